// mlockall, for programs that are linked with the library. In its own file, because the preloaded library exports its own
// definition. The run-times of sanitizers have theirs.
#include <ringside/base/sanitizers.hpp>

#include "writer/mlockall.hpp"

#if !RINGSIDE_SANITIZED
extern "C" int mlockall(int flags) noexcept { return ringside::lock_all(flags); }
#endif
