#include "text/packed_page.hpp"

#include <zlib.h>

#include <ringside/base/types.hpp>
#include <vector>

namespace ringside {
namespace {

std::string base64(const u8* data, size_t size) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((size + 2) / 3 * 4);
  for (size_t i = 0; i < size; i += 3) {
    const size_t n = size - i < 3 ? size - i : 3;
    const u32 three = u32{data[i]} << 16 | (n > 1 ? u32{data[i + 1]} << 8 : 0) | (n > 2 ? data[i + 2] : 0);
    for (size_t d = 0; d < 4; ++d) out += d <= n ? digits[three >> (18 - 6 * d) & 63] : '=';
  }
  return out;
}

}  // namespace

result<std::string> packed_page(std::string_view page, std::string_view json) {
  static constexpr std::string_view place = "RINGSIDE_DATA";
  const size_t at = page.find(place);
  uLongf size = compressBound(json.size());
  std::vector<u8> compressed(size);
  if (compress2(compressed.data(), &size, reinterpret_cast<const u8*>(json.data()), json.size(), 6) != Z_OK)
    return refuse(std::errc::not_enough_memory, "the data of the page cannot be compressed: memory is short");
  std::string out(page.substr(0, at));
  out += base64(compressed.data(), size);
  out += page.substr(at + place.size());
  return out;
}

}  // namespace ringside
