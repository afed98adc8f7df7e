#include "source/books.hpp"

#include <algorithm>

namespace ringside {

Counters sum(const std::vector<Counters>& all) {
  Counters s;
  for (const Counters& c : all) {
    s.written += c.written;
    s.read += c.read;
    s.overrun += c.overrun;
    s.unread += c.unread;
    s.refusals = std::max(s.refusals, c.refusals);
    s.dropped += c.dropped;
    s.commit_overrun += c.commit_overrun;
    s.bytes += c.bytes;
    s.unfinished_bytes += c.unfinished_bytes;
    s.resident_bytes += c.resident_bytes;
  }
  return s;
}

bool adds_up(const Counters& c) { return c.written == c.read + c.unread + c.overrun; }

}  // namespace ringside
