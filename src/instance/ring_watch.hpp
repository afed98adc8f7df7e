// Checks all rings of an instance, again and again, as cheaply as possible: their control regions stay mapped.
#pragma once
#include <ringside/ring/control.hpp>

#include <vector>

#include "writer/layout.hpp"
#include "sys/sys.hpp"

namespace ringside {

class RingWatch {
 public:
  // dir: an open descriptor of the instance; both must outlive this.
  RingWatch(int dir, const InstanceWords& words) noexcept : dir_(dir), words_(words) {}

  // percent 0: does any ring have events that no reader has consumed? Else: is any ring this full?
  bool reached(u32 percent);

 private:
  struct Seen {
    sys::Region control, data;  // data: only for a CPU's ring
    Geometry geometry;
  };
  Ring ring(u32 n);
  int dir_;
  InstanceWords words_;
  std::vector<Seen> seen_;  // by ring number
};

}  // namespace ringside
