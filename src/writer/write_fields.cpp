// An event's payload, put together from its parts. An event takes little of its caller's stack, wherever that is: a large
// payload, and what is not the usual way to write it, are elsewhere.
#include <algorithm>
#include <cstring>

#include "sys/side_stack.hpp"
#include "writer/process.hpp"
#include "writer/unwind.hpp"

namespace ringside {
namespace {

constexpr u32 most_on_stack = 96;

struct Parts {
  const ringside_field* field;
  u32 n, fixed, begin;  // begin: where the strings begin
  const void* const* sources;
  const u32* lengths;
  u64 stack;

  // Of string i, without its NUL.
  u32 length(u32 i, u32 room) const noexcept {
    if (lengths != nullptr) return std::min(lengths[i], room);
    return sources[i] != nullptr ? static_cast<u32>(strnlen(static_cast<const char*>(sources[i]), room)) : std::min(6u, room);
  }

  // Puts the payload into `most` bytes, of which the fixed part and a NUL for each string need at least some; null: only
  // measures. Returns the size. A text may grow between two calls, but not beyond `most`.
  u32 put(u8* payload, u32 most) const noexcept {
    u32 strings = 0, end = begin;
    for (u32 i = 0; i < n; ++i) strings += field[i].kind == RINGSIDE_STRING;
    if (payload != nullptr) put_fixed(payload);
    for (u32 i = 0; i < n; ++i) {
      if (field[i].kind != RINGSIDE_STRING) continue;
      const u32 size = length(i, most - end - strings--);
      if (payload != nullptr) {
        const u32 place = end | (size + 1) << 16;
        std::memcpy(payload + field[i].offset, &place, 4);
        if (size != 0) std::memcpy(payload + end, sources[i] != nullptr ? sources[i] : "(null)", size);
        payload[end + size] = 0;
      }
      end += size + 1;
    }
    return end;
  }

  void put_fixed(u8* payload) const noexcept {
    std::memset(payload, 0, begin);  // the bytes between the fields
    if (begin != fixed) std::memcpy(payload + begin - 8, &stack, 8);
    for (u32 i = 0; i < n; ++i) {
      if (field[i].kind == RINGSIDE_STACK)
        std::memcpy(payload + field[i].offset, &stack, 8);
      else if (field[i].kind != RINGSIDE_STRING)
        std::memcpy(payload + field[i].offset, sources[i], size_t{field[i].size} * std::max(field[i].count, 1u));
    }
  }
};

[[gnu::noinline]] bool write_small(const ringside_event& event, const Parts& parts, u32 size) noexcept {
  auto* const payload = static_cast<u8*>(__builtin_alloca_with_align(align_up(size, 8u), 64));
  return detail::write_event(detail::this_thread, event, payload, parts.put(payload, size));
}

// Two calls with such memory are interrupted already, or there is none.
[[gnu::noinline]] bool write_without_memory(const ringside_event& event, const Parts& parts) noexcept {
  bool written = false;
  const auto write = [&]() noexcept {
    alignas(8) u8 payload[RINGSIDE_PAYLOAD_MAX];
    written = detail::write_event(detail::this_thread, event, payload, parts.put(payload, sizeof payload));
  };
  const SignalsOff off;
  if (!sys::on_side_stack(write)) count_refused();
  return written;
}

[[gnu::noinline]] bool write_large(const ringside_event& event, const Parts& parts) noexcept {
  const WalkMemory memory;
  StackWalk* const walk = memory.get();
  if (walk == nullptr) return write_without_memory(event, parts);
  u8* const payload = walk->payload;
  const u32 size = parts.put(payload, sizeof walk->payload);
#if RINGSIDE_RSEQ
  using detail::Way;
  if (detail::write_to_cpus<0, Way::usual>(detail::this_thread, event, 0, payload, size) == Refused::no) return true;
#endif
  bool written = false;
  const auto write = [&]() noexcept { written = detail::write_event(detail::this_thread, event, payload, size); };
  const SignalsOff off;
  if (!sys::on_side_stack(write)) count_refused();
  return written;
}

}  // namespace
}  // namespace ringside

using namespace ringside;

extern "C" bool ringside_write_fields(ringside_event* event, const ringside_field* field, uint32_t n, uint32_t fixed,
                                      const void* const* sources, const uint32_t* lengths, const void* caller) {
  const bool with_stack = __atomic_load_n(&event->id, __ATOMIC_RELAXED) >> 16 != 0;
  Parts parts{field, n, fixed, with_stack ? align_up(fixed, 8u) + 8 : fixed, sources, lengths, 0};
  bool wants_stack = with_stack;
  u32 least = parts.begin;
  for (u32 i = 0; i < n; ++i) {
    wants_stack |= field[i].kind == RINGSIDE_STACK;
    least += field[i].kind == RINGSIDE_STRING;
  }
  if (least > RINGSIDE_PAYLOAD_MAX) {
    count_refused();
    return false;
  }
  if (wants_stack) parts.stack = ringside_stack_of(caller);
  const u32 size = parts.put(nullptr, RINGSIDE_PAYLOAD_MAX);
  // In a sandbox a large payload stands on the caller's stack, too: to take other memory may need a system call.
  return size <= most_on_stack || no_system_calls() ? write_small(*event, parts, size) : write_large(*event, parts);
}
