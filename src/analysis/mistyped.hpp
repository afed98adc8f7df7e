// Errors in what the user typed: the code is the system's, in a category of its own.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

namespace ringside {

tl::unexpected<Error> mistyped(std::errc code, std::string sentence);
bool is_mistyped(const Error& error);

// The calls of the C library that --libc traces.
std::vector<std::string> libc_calls();

}  // namespace ringside
