#pragma once

namespace ringside {

// mlockall() for a program that is traced.
int lock_all(int flags) noexcept;

}  // namespace ringside
