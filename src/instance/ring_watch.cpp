#include "instance/ring_watch.hpp"

#include <fcntl.h>
#include <ringside/ring/fullness.hpp>
#include <ringside/ring/reader.hpp>

#include <algorithm>

#include "writer/ring_file.hpp"
#include "sys/beneath.hpp"

namespace ringside {
namespace {

constexpr u32 most_kept = 16384;  // limits mappings in a process: a consumer has two more of each ring

Geometry geometry_in(const Control& c) noexcept {
  if (__atomic_load_n(&c.magic, __ATOMIC_ACQUIRE) != control_magic || c.nr_slots >= c.nr_subbufs) return {};
  return Geometry(c.subbuf_size, c.nr_subbufs, c.nr_subbufs - c.nr_slots - 1);
}

}  // namespace

bool RingWatch::reached(u32 percent) {
  const u32 n = words_.nr_rings();
  if (seen_.size() < n) seen_.resize(n);
  for (u32 i = 0; i < n; ++i) {
    const RingState state = state_of(__atomic_load_n(&words_.ring(i).state, __ATOMIC_ACQUIRE));
    if (state == RingState::never || state == RingState::empty || state == RingState::busy) continue;
    const Ring look = ring(i);
    bool yes = false;
    if (look.control != nullptr) {
      const Reader<> reader(look);
      yes = percent != 0 ? is_full<Hardware>(look, percent) : reader.index() > reader.state().expected;
    }
    if (i >= most_kept) seen_[i] = {};
    if (yes) return true;
  }
  return false;
}

// A thread's ring is mapped without data: nothing here reads it. A ring that was given back and made anew may have other sizes
// than when it was mapped.
Ring RingWatch::ring(u32 n) {
  Seen& seen = seen_[n];
  if (seen.control.data() == nullptr || geometry_in(*reinterpret_cast<Control*>(seen.control.data())) != seen.geometry) {
    seen = {};
    const sys::Fd folder = open_ring(dir_, n);
    const Geometry geometry = folder ? ring_geometry_in(folder.get(), {}) : Geometry();
    if (!geometry.valid()) return {};
    const auto map = [&](const char* name, u64 size) {
      const sys::Fd fd = sys::open_owned(folder.get(), name, O_RDWR);
      return fd ? sys::Region::map(fd.get(), size, true, name) : result<sys::Region>(fail(errno, name));
    };
    auto region = map("ring", control_size(geometry));
    if (!region) return {};
    sys::Region data;
    if (kind_of(*reinterpret_cast<Control*>(region->data())) == RingKind::cpu) {
      auto mapped = map("trace_pipe_raw", geometry.data_size());
      if (!mapped) return {};
      data = std::move(*mapped);
    }
    seen = {std::move(*region), std::move(data), geometry};
  }
  auto* const control = reinterpret_cast<Control*>(seen.control.data());
  const bool cpu = seen.data.data() != nullptr;
  const Geometry geometry = seen.geometry;
  if (cpu && (__atomic_load_n(&control->gate, __ATOMIC_ACQUIRE) & gate_moved) != 0)
    seen.geometry = {};  // the next check maps the fresh one
  return {geometry, control, seen.data.data(), nullptr, cpu ? RingKind::cpu : RingKind::thread};
}

}  // namespace ringside
