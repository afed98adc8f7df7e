// An event takes little of its caller's stack, wherever that is: a large payload, and what is not the usual way to write it, are
// elsewhere. Compiled with frame pointers (CMakeLists.txt).
#include "sys/side_stack.hpp"
#include "writer/payload_parts.hpp"
#include "writer/process.hpp"
#include "writer/unwind.hpp"

namespace ringside {
namespace {

constexpr u32 most_on_stack = 48;

// Puts a small payload together; its own frame is gone when that is written. Answers its size; 0: it is not small.
[[gnu::noinline]] u32 put_small(u8* payload, const ringside_event& event, const ringside_field& fields,
                                const void* const* sources, const uint32_t* lengths, const void* caller) noexcept {
  PayloadParts parts(event, fields, sources, lengths);
  if (parts.least > most_on_stack) return 0;
  std::memset(payload, 0, most_on_stack);
  if (RINGSIDE_UNLIKELY(parts.has_stack)) parts.stack = ringside_stack_of(caller);
  bool full = false;
  const u32 size = parts.put(payload, most_on_stack, full);
  return full ? 0 : size;
}

// In a sandbox the step makes no system call, and goes as far as it can. Without a stack for it the event is refused.
template <class Step>
void run_beside_caller(const Step& step) noexcept {
  const SignalsOff off;
  if (!(off ? sys::on_side_stack(step) : sys::on_mapped_side_stack(step))) count_refused();
}

// Two calls with such memory are interrupted already, or there is none.
template <class Parts>
[[gnu::noinline]] bool write_without_memory(const ringside_event& event, const Parts& parts) noexcept {
  bool written = false;
  const auto write = [&]() noexcept {
    alignas(8) u8 payload[RINGSIDE_PAYLOAD_MAX];
    std::memset(payload, 0, parts.begin);
    bool full = false;
    written = detail::write_event(detail::this_thread, event, payload, parts.put(payload, sizeof payload, full));
  };
  run_beside_caller(write);
  return written;
}

template <class Parts>
[[gnu::noinline]] bool write_large(const ringside_event& event, const Parts& parts) noexcept {
  const WalkMemory memory;
  StackWalk* const walk = memory.get();
  if (walk == nullptr) return write_without_memory(event, parts);
  u8* const payload = walk->payload;
  std::memset(payload, 0, parts.begin);
  bool full = false;
  const u32 size = parts.put(payload, sizeof walk->payload, full);
#if RINGSIDE_RSEQ
  using detail::Way;
  if (detail::write_to_cpus<0, Way::usual>(detail::this_thread, event, 0, payload, size) == Refused::no) return true;
#endif
  bool written = false;
  const auto write = [&]() noexcept { written = detail::write_event(detail::this_thread, event, payload, size); };
  run_beside_caller(write);
  return written;
}

[[gnu::noinline]] bool write_large_fields(const ringside_event& event, const ringside_field& fields, const void* const* sources,
                                          const uint32_t* lengths, const void* caller) noexcept {
  PayloadParts parts(event, fields, sources, lengths);
  if (parts.least > RINGSIDE_PAYLOAD_MAX) return count_refused(), false;
  if (parts.has_stack) parts.stack = ringside_stack_of(caller);
  return write_large(event, parts);
}

[[gnu::noinline]] bool write_large_texts(const ringside_event& event, const void* numbers, u32 fixed,
                                         const ringside_text* texts, u32 n, const void* caller) noexcept {
  PayloadTexts parts(event, numbers, fixed, texts, n);
  if (parts.stack_behind) parts.stack = ringside_stack_of(caller);
  return write_large(event, parts);
}

// Puts small texts after the numbers. Answers the size; 0: they are not small.
u32 put_small_texts(u8* payload, u32 fixed, const ringside_text* texts, u32 n) noexcept {
  u32 end = fixed, room = most_on_stack - fixed - n;
  bool full = false;
  for (u32 i = 0; i < n && !full; ++i) put_text(payload, texts[i], end, room, full);
  return full ? 0 : end;
}

}  // namespace
}  // namespace ringside

using namespace ringside;

extern "C" bool ringside_write_fields(ringside_event* event, const ringside_field* fields, const void* const* sources,
                                      const uint32_t* lengths, const void* caller) {
  if (!ringside_wanted(event)) return false;
  if (sandbox_now() == Sandbox::shut) return count_refused(), false;
  alignas(8) u8 payload[most_on_stack];
  const u32 size = put_small(payload, *event, *fields, sources, lengths, caller);
  if (size == 0) return write_large_fields(*event, *fields, sources, lengths, caller);
  return ringside_write(event, payload, size);  // whose frame is gone on the slow ways
}

extern "C" bool ringside_write_texts(ringside_event* event, void* payload, uint32_t fixed, const ringside_text* texts,
                                     uint32_t n, const void* caller) {
  if (RINGSIDE_UNLIKELY(!ringside_wanted(event))) return false;
  if (RINGSIDE_UNLIKELY(sandbox_now() == Sandbox::shut)) return count_refused(), false;
  const u32 size = has_stack(*event) ? 0 : put_small_texts(static_cast<u8*>(payload), fixed, texts, n);
  if (RINGSIDE_LIKELY(size != 0)) return ringside_write(event, payload, size);  // whose frame is gone on the slow ways
  return write_large_texts(*event, payload, fixed, texts, n, caller);
}

// With the number of the caller's stack after the numbers.
[[gnu::noinline]] static bool write_with_stack(const ringside_event& event, const void* numbers, u32 size,
                                               const void* caller) noexcept {
  alignas(8) u8 payload[most_on_stack + 8] = {};
  const u32 place = align_up(size, 8u);
  if (place > most_on_stack) return count_refused(), false;
  const u64 stack = ringside_stack_of(caller);
  std::memcpy(payload, numbers, size);
  std::memcpy(payload + place, &stack, sizeof stack);
  return detail::write_event(detail::this_thread, event, payload, place + 8);
}

namespace ringside {

bool write_words_with_stack(ringside_event* event, const void* caller, u32 size, u64 first, u64 second, u64 third) noexcept {
  const u64 payload[] = {0, first, second, third};
  return ringside_wanted(event) && write_with_stack(*event, payload, size, caller);
}

}  // namespace ringside

extern "C" bool ringside_write_numbers(ringside_event* event, uint32_t size, void* payload) {
  if (!ringside_wanted(event)) return false;
  return has_stack(*event) ? write_with_stack(*event, payload, size, __builtin_return_address(0))
                           : ringside_write(event, payload, size);
}
