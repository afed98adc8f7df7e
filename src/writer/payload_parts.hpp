// An event's payload, put together from its parts (ringside_write_fields).
#pragma once
#include <ringside/ringside.h>

#include <algorithm>
#include <cstring>
#include <ringside/base/types.hpp>

namespace ringside {

struct PayloadParts {
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

// stack: it holds the number of a stack. begin: where its strings begin. least: its size with empty strings.
struct PayloadNeeds {
  bool stack;
  u32 begin, least;
};
inline PayloadNeeds needs_of(const ringside_event& event, const ringside_field* field, u32 n, u32 fixed) noexcept {
  const bool has_stack = __atomic_load_n(&event.id, __ATOMIC_RELAXED) >> 16 != 0;
  const u32 begin = has_stack ? align_up(fixed, 8u) + 8 : fixed;
  PayloadNeeds needs{has_stack, begin, begin};
  for (u32 i = 0; i < n; ++i) {
    needs.stack |= field[i].kind == RINGSIDE_STACK;
    needs.least += field[i].kind == RINGSIDE_STRING;
  }
  return needs;
}

}  // namespace ringside
