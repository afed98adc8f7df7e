#include "guest/image.hpp"

// The demo, a separate program, as data.
asm(R"(
.section .rodata
.balign 16
.globl ringside_guest_demo, ringside_guest_demo_end
ringside_guest_demo:
.incbin ")" RINGSIDE_GUEST_DEMO R"("
ringside_guest_demo_end:
.text
)");
extern "C" const unsigned char ringside_guest_demo[], ringside_guest_demo_end[];

namespace ringside::guest {

std::span<const u8> demo_image() noexcept { return {ringside_guest_demo, ringside_guest_demo_end}; }

}  // namespace ringside::guest
