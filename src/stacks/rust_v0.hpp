// Rust's newer mangling (RFC 2603): "_RNvC7mycrate4main" is mycrate::main.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

#include "sys/budget.hpp"

namespace ringside {

// As c++filt -i writes it, without the hashes of crates. Empty: it is no such name, or the budget has no room for it (full): a
// part may repeat what comes before it, so a short name may mean a very long one.
std::string rust_v0_name(std::string_view mangled, Budget& budget, bool& full);

void append_utf8(u32 character, std::string& out);

}  // namespace ringside
