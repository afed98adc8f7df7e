// C++ and Rust names as people write them.
#pragma once
#include <string>
#include <string_view>

#include "sys/budget.hpp"

namespace ringside {

// An upper bound of what a mangled C++ name can become, in bytes and in steps of a demangler. A name of 285 bytes can claim to
// mean gigabytes, because each part may repeat what comes before it.
u64 demangled_size(std::string_view mangled) noexcept;

// A C++ name without parameters, or a Rust name, as sys::shown_name shows it; others as they are, and so is a name that the
// budget has no room for. left_out: it is one.
std::string demangled(std::string_view name, Budget& budget, bool* left_out = nullptr);

}  // namespace ringside
