// A flame graph as one HTML file that loads nothing else: src/stacks/flame.html with a tree in it.
#pragma once
#include <ringside/base/result.hpp>
#include <string>

#include "stacks/fold.hpp"

namespace ringside {

struct FlameFacts {
  std::string title;
  std::string unit;       // "events", "ns", "bytes", a field's name
  std::string against;    // the trace that it is compared with; empty: none
  bool absolute = false;  // colours compare numbers, not shares
};

result<std::string> flame_page(const FlameTree& tree, const FlameFacts& facts);

}  // namespace ringside
