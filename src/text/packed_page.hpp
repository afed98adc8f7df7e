// A web page as one file with its data inside.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>

namespace ringside {

// `page` with `json` in the place of the word RINGSIDE_DATA, compressed (zlib) and as base64: no text of a trace can be
// anything but data there.
result<std::string> packed_page(std::string_view page, std::string_view json);

}  // namespace ringside
