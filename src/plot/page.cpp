#include "plot/page.hpp"

#include <zlib.h>

#include <vector>

// The built page.
asm(R"(
.section .rodata
.globl ringside_plot_page, ringside_plot_page_end
ringside_plot_page:
.incbin ")" RINGSIDE_PLOT_PAGE R"("
ringside_plot_page_end:
.text
)");
extern "C" const char ringside_plot_page[], ringside_plot_page_end[];

namespace ringside::plot {
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

result<std::string> page(std::string_view json) {
  static constexpr std::string_view place = "RINGSIDE_DATA";
  const std::string_view whole(ringside_plot_page, static_cast<size_t>(ringside_plot_page_end - ringside_plot_page));
  const size_t at = whole.find(place);
  uLongf size = compressBound(json.size());
  std::vector<u8> compressed(size);
  if (compress2(compressed.data(), &size, reinterpret_cast<const u8*>(json.data()), json.size(), 6) != Z_OK)
    return refuse(std::errc::not_enough_memory, "the data of the page cannot be compressed: memory is short");
  std::string out(whole.substr(0, at));
  out += base64(compressed.data(), size);
  out += whole.substr(at + place.size());
  return out;
}

}  // namespace ringside::plot
