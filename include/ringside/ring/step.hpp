// The place where tests check the structure of a ring while it is written and read.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/ring/control.hpp>

namespace ringside {

// Called after each slow step: the tail or the commit position has moved to another sub-buffer, or the reader page was
// swapped. A Memory with stepped(ring) is notified; tests check the ring's structure there (tests/single.hpp). The structure
// holds between any two accesses of anybody, but a check loads many words: it is right only where nobody else moves them
// meanwhile. So no product does it, whose writer, handlers and readers share the ring.
template <class M>
RINGSIDE_INLINE void after_step([[maybe_unused]] const Ring& ring) noexcept {
  if constexpr (requires { M::stepped(ring); }) M::stepped(ring);
}

}  // namespace ringside
