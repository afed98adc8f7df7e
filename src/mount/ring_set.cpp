#include "mount/ring_set.hpp"

namespace ringside::mount {

bool RingSet::open_pipe(Only only) {
  if (!text_rules().one_pipe) return true;
  if (all_pipes_ || (only ? pipes_.count(*only) != 0 : !pipes_.empty())) return false;
  if (only)
    pipes_.insert(*only);
  else
    all_pipes_ = true;
  return true;
}

void RingSet::close_pipe(Only only) {
  if (only)
    pipes_.erase(*only);
  else
    all_pipes_ = false;
}

}  // namespace ringside::mount
