// The time of day of a recording's events: CLOCK_REALTIME less CLOCK_MONOTONIC, and how far that may be from the true time.
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>

namespace ringside::ship {

struct WallOffset {
  i64 offset_ns = 0;
  u32 error_ns = 0;  // what the kernel says of its clock (adjtimex: maxerror), 4.29 s at most; and that of the measurement

  static WallOffset measure();
  std::string text() const;
  // Beside a recording's rings, in the file `wall`. of() without that file, or with one that cannot be understood: by the
  // recording's start. keep() makes it: from then on the times stay the same.
  static WallOffset of(const std::string& recording);
  static result<void> keep(const std::string& recording);
  static constexpr const char* file = "wall";

 private:
  static std::optional<WallOffset> kept(const std::string& recording);
};

}  // namespace ringside::ship
