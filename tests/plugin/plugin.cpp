// A plug-in that writes events: loaded and unloaded by the instance's tests.
#include <ringside/trace.hpp>

RINGSIDE_EVENT(plugin, work, (u64, n));

extern "C" [[gnu::visibility("default")]] void plugin_work(unsigned long n) { plugin::work(n); }
