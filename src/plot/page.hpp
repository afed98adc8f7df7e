// The web page: one HTML file that shows a Plot's JSON without loading anything else. It is made of page/ when ringside is
// built (page/build), where npm and the registry are at hand.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

namespace ringside::plot {

// The file with `json` in it, compressed (zlib) and as base64: no text of a trace can be anything but data there. An error if
// the page was not there when ringside was built: why.
result<std::string> page(std::string_view json);

}  // namespace ringside::plot
