// mlockall, for programs that are not linked with the library: src/writer/mlockall.cpp gives the reason.
#include "writer/mlockall.hpp"

#include "preload/hook.hpp"

HOOK int mlockall(int flags) noexcept { return ringside::lock_all(flags); }
