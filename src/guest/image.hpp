// The guest that comes with ringside (src/guest/demo).
#pragma once
#include <ringside/base/types.hpp>
#include <span>

namespace ringside::guest {

std::span<const u8> demo_image() noexcept;  // a static ELF file

}  // namespace ringside::guest
