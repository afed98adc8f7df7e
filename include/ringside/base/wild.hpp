// A value from a peer, as it was found: it cannot be used. Only a function that is given our own knowledge gets it out, and
// answers a tame type of its own.
//
//   Wild<u32> id(load_from_the_peer());
//   if (auto tame = id.tame([&](u32 v) { return geometry.holds(v) ? v : none; }); ...)
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

template <class T>
class Wild {
 public:
  explicit constexpr Wild(T value) noexcept : value_(value) {}
  template <class Check>
  constexpr auto tame(Check check) const noexcept {
    return check(value_);
  }

 private:
  T value_;
};

}  // namespace ringside
