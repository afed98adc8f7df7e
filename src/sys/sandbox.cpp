#include "sys/sandbox.hpp"

namespace ringside {

constinit u32 sandbox = 0;

}  // namespace ringside
