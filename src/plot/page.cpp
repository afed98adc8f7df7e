#include "plot/page.hpp"

#include "text/packed_page.hpp"

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

result<std::string> page(std::string_view json) {
  return packed_page({ringside_plot_page, static_cast<size_t>(ringside_plot_page_end - ringside_plot_page)}, json);
}

}  // namespace ringside::plot
