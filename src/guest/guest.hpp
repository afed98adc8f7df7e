// A guest and its rings: a virtual machine (vm.hpp) whose program writes into rings that this side provides, and that are read
// like any external writer's (remote/buffer.hpp). A swap is an exit of the guest's second processor.
#pragma once
#include "guest/vm.hpp"
#include "remote/buffer.hpp"

namespace ringside::guest {

class Guest {
 public:
  struct Options {
    std::vector<u8> image;  // a static ELF file; empty: the demo
    remote::Buffer::Options buffer;
    VmOptions vm;
  };
  // Its program waits for go().
  static result<std::unique_ptr<Guest>> start(Options options);
  ~Guest();

  Vm& vm() noexcept { return *vm_; }
  remote::Buffer& buffer() noexcept { return *buffer_; }
  // The offset of its time stamp counter from the host's; the times of its sub-buffers are the guest's.
  const Vm::TscOffset& tsc_offset() const noexcept { return offset_; }
  result<void> enable(bool on);  // tracing, in all rings
  // Empties a ring at both ends; tracing is off meanwhile. EBUSY: the guest stays in the middle of an event.
  result<void> reset(u32 ring);

 private:
  Guest() = default;
  std::shared_ptr<std::unique_ptr<Vm>> late_;  // for the callbacks, which are older than the machine
  Vm* vm_ = nullptr;
  std::shared_ptr<remote::Buffer> buffer_;
  Vm::TscOffset offset_;
};

}  // namespace ringside::guest
