#include "sys/sandbox.hpp"

namespace ringside {

constinit Sandbox sandbox = Sandbox::none;

}  // namespace ringside
