#include "guest/guest.hpp"

#include <ringside/trace.hpp>
#include <unistd.h>

#include "guest/image.hpp"
#include "sys/try.hpp"

// The monitor's own events; times are in ns.
RINGSIDE_EVENT(monitor, swap, (u32, ring), (u32, page), (u64, took));

namespace ringside::guest {
namespace {

tl::unexpected<Error> refused(const Answer& answer, u32 ring) {
  return fail(answer.error, "the guest, ring " + std::to_string(ring) + ": it refuses");
}

result<remote::SwapAnswer> swap(Vm& vm, u32 ring, u32 read) {
  const u64 start = sys::now_ns();
  auto answer = RS_TRY(vm.ask(Ask::swap, ring, read));
  if (answer.error != 0) return refused(answer, ring);
  if (answer.value > static_cast<u64>(remote::Swap::corrupt))
    return refuse(std::errc::protocol_error, "the guest, ring " + std::to_string(ring) + ": it answers nonsense");
  monitor::swap(ring, answer.id, sys::now_ns() - start);
  return remote::SwapAnswer{{static_cast<remote::Swap>(answer.value), answer.id}, static_cast<u32>(answer.refused),
                            answer.counts_refused};
}

result<void> simply(Vm& vm, Ask what, u32 ring) {
  auto answer = RS_TRY(vm.ask(what, ring, 0));
  if (answer.error != 0) return refused(answer, ring);
  return {};
}

result<void> reset_ring(Vm& vm, u32 ring) {
  for (int tries = 0;; ++tries) {
    auto answer = RS_TRY(vm.ask_alone(Ask::reset, ring, 0));
    if (answer.error == 0) return {};
    if (answer.error != EBUSY || tries == 100) return refused(answer, ring);
    usleep(1000);
  }
}

}  // namespace

result<std::unique_ptr<Guest>> Guest::start(Options options) {
  std::unique_ptr<Guest> guest(new Guest);
  guest->late_ = std::make_shared<std::unique_ptr<Vm>>();
  const auto late = guest->late_;
  options.buffer.who = "the guest";
  guest->buffer_ =
      RS_TRY(remote::Buffer::create(options.buffer, {[late](u32 ring, u32 read) { return swap(**late, ring, read); },
                                                     [late](u32 ring) { return simply(**late, Ask::update, ring); },
                                                     [late](u32 ring) { return reset_ring(**late, ring); },
                                                     {}}));
  const std::span<const u8> image = options.image.empty() ? demo_image() : std::span<const u8>(options.image);
  *late =
      RS_TRY(Vm::start(image, guest->buffer_->fd(), guest->buffer_->region_bytes(), guest->buffer_->descriptor(), options.vm));
  guest->vm_ = late->get();
  guest->offset_ = RS_TRY(guest->vm_->tsc_offset());
  return guest;
}

Guest::~Guest() {
  if (buffer_ != nullptr) (void)buffer_->poll_every({});
}

result<void> Guest::enable(bool on) {
  for (u32 ring = 0; ring < buffer_->options().rings; ++ring)
    RS_TRY(simply(*vm_, on ? Ask::enable : Ask::disable, ring));
  return {};
}

result<void> Guest::reset(u32 ring) {
  RS_TRY(simply(*vm_, Ask::disable, ring));
  auto done = buffer_->reset(ring);
  auto on = simply(*vm_, Ask::enable, ring);
  return done ? on : done;
}

}  // namespace ringside::guest
