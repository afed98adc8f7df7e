// The web page: one HTML file that shows a Plot's JSON without loading anything else. `page/build` makes page.html
// from page/.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

namespace ringside::plot {

// The file with `json` in it, compressed (zlib) and as base64: no text of a trace can be anything but data there.
result<std::string> page(std::string_view json);

}  // namespace ringside::plot
