// Memory for a ring that one thread has to itself: its structure is checked after each slow step of its writer and its reader.
#pragma once
#include <ringside/ring/check.hpp>

namespace ringside::test {

struct Single : Hardware {
  static void stepped(const Ring& ring) noexcept {
    if (const char* const what = broken<>(ring)) detail::check_failed("ring/check.hpp, does not hold: ", what);
  }
};

}  // namespace ringside::test
