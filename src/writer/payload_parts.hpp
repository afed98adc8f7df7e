// An event's payload, put together from its parts (ringside_write_fields).
#pragma once
#include <ringside/ringside.h>

#include <algorithm>
#include <cstring>
#include <ringside/base/types.hpp>

namespace ringside {

// A text after those before it, and its place in its field. room: bytes beyond the NULs.
RINGSIDE_INLINE void put_text(u8* payload, const ringside_text& one, u32& end, u32& room, bool& full) noexcept {
  const bool to_its_nul = one.size == RINGSIDE_TO_ITS_NUL;
  const char* const text = to_its_nul && one.text == nullptr ? "(null)" : one.text;
  const size_t whole = to_its_nul ? std::strlen(text) : one.size;
  const u32 size = static_cast<u32>(std::min<size_t>(whole, room)), place = end | (size + 1) << 16;
  full |= size != whole;
  std::memcpy(payload + one.at, &place, 4);
  if (size != 0) std::memcpy(payload + end, text, size);
  payload[end + size] = 0;
  end += size + 1;
  room -= size;
}

struct PayloadParts {
  const ringside_field* fields;
  const void* const* sources;
  const uint32_t* lengths;
  u32 n, begin;                  // begin: where the strings begin
  u32 least;                     // the size with empty strings
  bool has_stack, stack_behind;  // in a field, or after the fixed part; the same one in all
  u64 stack = 0;

  RINGSIDE_INLINE PayloadParts(const ringside_event& event, const ringside_field& all, const void* const* from,
                               const uint32_t* of_lengths) noexcept
      : fields(&all + 1), sources(from), lengths(of_lengths), n(all.size) {
    stack_behind = __atomic_load_n(&event.id, __ATOMIC_RELAXED) >> 16 != 0;
    has_stack = stack_behind || all.kind == RINGSIDE_STACK;
    begin = stack_behind ? align_up(all.offset, 8u) + 8 : all.offset;
    least = begin + all.count;
  }

  // Puts the payload into `most` bytes, `least` or more, of which those before `begin` are 0: what lies between the fields
  // stays so. Answers its size; `full`: a text is not whole, as there is no room.
  RINGSIDE_INLINE u32 put(u8* payload, u32 most, bool& full) const noexcept {
    if (stack_behind) std::memcpy(payload + begin - 8, &stack, 8);
    u32 end = begin, room = most - least;  // room: beyond the NULs
    full = false;
    for (u32 i = 0; i < n; ++i) {
      const ringside_field& f = fields[i];
      if (f.kind == RINGSIDE_STRING) {
        const u32 size = lengths != nullptr ? lengths[i] : RINGSIDE_TO_ITS_NUL;
        put_text(payload, {static_cast<const char*>(sources[i]), size, f.offset}, end, room, full);
      } else {
        put_number(payload + f.offset, f.kind == RINGSIDE_STACK ? &stack : sources[i],
                   f.count == 0 ? f.size : f.size * f.count);
      }
    }
    return end;
  }

 private:
  RINGSIDE_INLINE static void put_number(u8* to, const void* from, u32 size) noexcept {
    switch (size) {  // without a call
      case 1:
        std::memcpy(to, from, 1);
        break;
      case 2:
        std::memcpy(to, from, 2);
        break;
      case 4:
        std::memcpy(to, from, 4);
        break;
      case 8:
        std::memcpy(to, from, 8);
        break;
      default:
        std::memcpy(to, from, size);
    }
  }
};

// The same of numbers that are in their places, and texts (ringside_write_texts).
struct PayloadTexts {
  const void* numbers;
  u32 fixed;
  const ringside_text* texts;
  u32 n, begin, least;
  bool stack_behind;
  u64 stack = 0;

  PayloadTexts(const ringside_event& event, const void* from, u32 size, const ringside_text* of_texts, u32 nr) noexcept
      : numbers(from), fixed(size), texts(of_texts), n(nr) {
    stack_behind = __atomic_load_n(&event.id, __ATOMIC_RELAXED) >> 16 != 0;
    begin = stack_behind ? align_up(fixed, 8u) + 8 : fixed;
    least = begin + n;
  }

  u32 put(u8* payload, u32 most, bool& full) const noexcept {
    if (payload != numbers) std::memcpy(payload, numbers, fixed);
    if (stack_behind) std::memcpy(payload + begin - 8, &stack, 8);
    u32 end = begin, room = most - least;
    full = false;
    for (u32 i = 0; i < n; ++i) put_text(payload, texts[i], end, room, full);
    return end;
  }
};

}  // namespace ringside
