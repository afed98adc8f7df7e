// The guest that comes along (src/guest/demo).
#pragma once
#include <ringside/base/types.hpp>
#include <span>

namespace ringside::guest {

std::span<const u8> demo_image() noexcept;  // a static ELF file

}  // namespace ringside::guest
