// The kernel's globs: * ? [a-z] [!a-z] and \ before a literal character. No recursion: a hostile pattern costs the product
// of both lengths at most.
#pragma once
#include <string_view>

namespace ringside {

bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace ringside
