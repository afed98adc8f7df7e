// The web page: one HTML file that shows a Plot's JSON without loading anything else. The build makes it from page/
// (page/build), if npm and its registry are available.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

namespace ringside::plot {

// The file with `json` in it, compressed (zlib) and in base64: no text of a trace can be anything but data there. If ringside
// was built without the page, the error tells the reason.
result<std::string> page(std::string_view json);

}  // namespace ringside::plot
