// An event takes little of its caller's stack, wherever that is: a large payload, and what is not the usual way to write it, are
// elsewhere.
#include "sys/side_stack.hpp"
#include "writer/payload_parts.hpp"
#include "writer/process.hpp"
#include "writer/unwind.hpp"

namespace ringside {
namespace {

constexpr u32 most_on_stack = 48;

[[gnu::noinline]] bool write_small(const ringside_event& event, const PayloadParts& parts, u32 size) noexcept {
  auto* const payload = static_cast<u8*>(__builtin_alloca_with_align(align_up(size, 8u), 64));
  return detail::write_event(detail::this_thread, event, payload, parts.put(payload, size));
}

// In a sandbox the step makes no system call, and goes as far as it can. Without a stack for it the event is refused.
template <class Step>
void run_beside_caller(const Step& step) noexcept {
  const SignalsOff off;
  if (!(off ? sys::on_side_stack(step) : sys::on_mapped_side_stack(step))) count_refused();
}

// Two calls with such memory are interrupted already, or there is none.
[[gnu::noinline]] bool write_without_memory(const ringside_event& event, const PayloadParts& parts) noexcept {
  bool written = false;
  const auto write = [&]() noexcept {
    alignas(8) u8 payload[RINGSIDE_PAYLOAD_MAX];
    written = detail::write_event(detail::this_thread, event, payload, parts.put(payload, sizeof payload));
  };
  run_beside_caller(write);
  return written;
}

[[gnu::noinline]] bool write_large(const ringside_event& event, const PayloadParts& parts) noexcept {
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
  run_beside_caller(write);
  return written;
}

}  // namespace
}  // namespace ringside

using namespace ringside;

extern "C" bool ringside_write_fields(ringside_event* event, const ringside_field* field, uint32_t n, uint32_t fixed,
                                      const void* const* sources, const uint32_t* lengths, const void* caller) {
  const PayloadNeeds needs = needs_of(*event, field, n, fixed);
  if (needs.least > RINGSIDE_PAYLOAD_MAX || sandbox_now() == Sandbox::shut) {
    count_refused();
    return false;
  }
  // A function that asks for its frame keeps a frame pointer: in a static program, which has no tables, the walk goes by those.
  asm volatile("" ::"r"(__builtin_frame_address(0)));
  const u64 stack = needs.stack ? ringside_stack_of(caller) : 0;
  const PayloadParts parts{field, n, fixed, needs.begin, sources, lengths, stack};
  const u32 size = parts.put(nullptr, RINGSIDE_PAYLOAD_MAX);
  return size <= most_on_stack ? write_small(*event, parts, size) : write_large(*event, parts);
}
