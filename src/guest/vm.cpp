#include "guest/vm.hpp"

#include <ringside/trace.hpp>

#include <elf.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "sys/thread.hpp"
#include "sys/try.hpp"


RINGSIDE_EVENT(monitor, interrupt, (u64, address));

namespace ringside::guest {
namespace {

// C++ gives the header's flexible array a byte, and so changes these two numbers.
constexpr unsigned long get_supported_cpuid = _IOWR(KVMIO, 0x05, char[8]), set_cpuid2 = _IOW(KVMIO, 0x90, char[8]);
constexpr u64 tables_at = 0x10000, descriptors_at = 0x3000;
constexpr u16 code_selector = 0x1B, data_selector = 0x23;
constexpr u64 flags_at_start = 0x3002;  // I/O privilege 3
constexpr u64 flag_trap = 0x100, flag_direction = 0x400;

int kick_signal() { return SIGRTMIN + 5; }
void on_kick(int) {}

// KVM_RUN returns with EINTR; the handler does nothing.
void take_kicks() {
  struct sigaction action {};
  action.sa_handler = on_kick;
  sigaction(kick_signal(), &action, nullptr);
}

}  // namespace

result<std::unique_ptr<Vm>> Vm::start(std::span<const u8> elf, int region, u64 region_bytes, std::span<const u64> descriptor,
                                      const VmOptions& options) {
#if !defined(__x86_64__)
  return refuse(std::errc::not_supported, "guests run on x86-64 only");
#endif
  take_kicks();
  std::unique_ptr<Vm> vm(new Vm);
  vm->options_ = options;
  RS_TRY(vm->build(elf, region, region_bytes, descriptor));
  vm->cpu_[0].thread =
      RS_TRY(sys::start_thread("of the guest's program", [v = vm.get()] { v->run_program(), v->cpu_[0].finished = true; }));
  std::unique_lock lock(vm->mutex_);
  if (!vm->changed_.wait_for(lock, options.patience, [&] { return vm->ready_ || vm->ended_; }))
    return refuse(std::errc::timed_out, "the guest has not made its rings in time: it is no guest of ringside, or it hangs");
  if (vm->ended_) return refuse(std::errc::protocol_error, "the guest did not start: " + vm->why_);
  vm->cpu_[1].thread =
      RS_TRY(sys::start_thread("of the guest's service", [v = vm.get()] { v->run_service(), v->cpu_[1].finished = true; }));
  return vm;
}

result<void> Vm::build(std::span<const u8> elf, int region, u64 region_bytes, std::span<const u64> descriptor) {
  kvm_ = sys::Fd(::open("/dev/kvm", O_RDWR | O_CLOEXEC));
  if (!kvm_)
    return fail(errno, errno == ENOENT ? "this machine has no /dev/kvm (no virtualisation, or the module kvm is not loaded)"
                                       : "cannot open /dev/kvm (members of the group kvm may)");
  if (ioctl(kvm_.get(), KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
    return refuse(std::errc::not_supported, "/dev/kvm has another version");
  vm_ = sys::Fd(ioctl(kvm_.get(), KVM_CREATE_VM, 0));
  if (!vm_) return fail(errno, "cannot make a virtual machine");
  if (options_.memory % (2 << 20) != 0 || options_.memory < (8 << 20) || options_.memory > (512 << 20))
    return refuse(std::errc::invalid_argument, "a guest's memory is a multiple of 2 MiB from 8 to 512 MiB");
  if (region_bytes > (u64{4} << 30) - region_at)
    return refuse(std::errc::invalid_argument,
                  "the guest's rings are too big: all of them have 3 GiB at most, as a guest has 4 GiB of addresses; choose a"
                  " smaller buffer (-b)");
  void* const at = mmap(nullptr, options_.memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return fail(errno, "no memory for the guest");
  memory_ = static_cast<u8*>(at);
  region_ = RS_TRY(sys::Region::map(region, region_bytes, true, "the region of the guest's rings"));
  const kvm_userspace_memory_region slots[] = {
      {0, 0, 0, options_.memory, reinterpret_cast<u64>(memory_)},
      {1, 0, region_at, region_bytes, reinterpret_cast<u64>(region_.data())},
  };
  for (const auto& slot : slots)
    if (ioctl(vm_.get(), KVM_SET_USER_MEMORY_REGION, &slot) != 0) return fail(errno, "cannot give the guest its memory");

  auto entry = RS_TRY(load(elf));
  // After the image: descriptor, heap, stacks.
  u64 free = align_up(boot()->heap, u64{64});
  const u64 top = options_.memory - 2 * stack_bytes, bytes = descriptor.size_bytes();
  if (bytes > top || free > top - bytes)
    return refuse(std::errc::not_enough_memory, "the guest's memory is too small for its image and rings");
  std::memcpy(memory_ + free, descriptor.data(), bytes);
  Boot& b = *boot();
  b = {};
  b.magic = boot_magic;
  b.version = abi_version;
  b.descriptor = free, b.descriptor_bytes = bytes;
  b.region = region_at, b.region_bytes = region_bytes;
  b.heap = align_up(free + bytes, u64{4096});
  b.heap_bytes = b.heap < top ? top - b.heap : 0;
  std::memcpy(b.arguments, options_.arguments, sizeof b.arguments);
  b.masked = 1;

  // Identity-maps the first 4 GiB, in pages of 2 MiB, for level 3.
  const auto table = [&](u64 where) { return reinterpret_cast<u64*>(memory_ + where); };
  constexpr u64 present = 7, large = 0x80;  // present, writable, for level 3
  table(tables_at)[0] = (tables_at + 0x1000) | present;
  for (u64 gib = 0; gib < 4; ++gib) {
    const u64 directory = tables_at + 0x2000 + gib * 0x1000;
    table(tables_at + 0x1000)[gib] = directory | present;
    for (u64 i = 0; i < 512; ++i) table(directory)[i] = (gib << 30 | i << 21) | present | large;
  }
  u64* const segments = table(descriptors_at);
  segments[code_selector / 8] = 0x00AFFB000000FFFF;
  segments[data_selector / 8] = 0x00CFF3000000FFFF;
  for (u32 n = 0; n < 2; ++n)
    RS_TRY(set_up(cpu_[n], n, entry, options_.memory - n * stack_bytes));
  return {};
}

// Sets Boot::heap to the end of the image.
result<u64> Vm::load(std::span<const u8> elf) {
  const auto bad = [](const std::string& what) {
    return refuse(std::errc::executable_format_error, "the guest's image " + what);
  };
  Elf64_Ehdr head;
  if (elf.size() < sizeof head) return bad("is no ELF file: it is too short");
  std::memcpy(&head, elf.data(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != EM_X86_64 ||
      head.e_type != ET_EXEC)
    return bad("is no static ELF file for x86-64 (link it with -static)");
  u64 end = image_at;
  for (u32 i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr p;
    const u64 at = head.e_phoff + u64{i} * sizeof p;
    if (head.e_phentsize != sizeof p || head.e_phoff > elf.size() || at > elf.size() - sizeof p)
      return bad("is cut: its program headers are missing");
    std::memcpy(&p, elf.data() + at, sizeof p);
    if (p.p_type != PT_LOAD || p.p_memsz == 0) continue;
    if (p.p_filesz > p.p_memsz || p.p_offset > elf.size() || p.p_filesz > elf.size() - p.p_offset)
      return bad("is cut: a segment is missing");
    if (p.p_vaddr < image_at || p.p_vaddr > options_.memory || p.p_memsz > options_.memory - p.p_vaddr)
      return bad("does not fit: link it at 0x200000, and give the guest memory enough");
    std::memcpy(memory_ + p.p_vaddr, elf.data() + p.p_offset, p.p_filesz);
    end = std::max(end, p.p_vaddr + p.p_memsz);
  }
  if (head.e_entry < image_at || head.e_entry >= end) return bad("has its entry outside of its segments");
  boot()->heap = end;
  return head.e_entry;
}

result<void> Vm::set_up(Processor& p, u32 number, u64 entry, u64 stack) {
  p.fd = sys::Fd(ioctl(vm_.get(), KVM_CREATE_VCPU, number));
  if (!p.fd) return fail(errno, "cannot make a virtual processor");
  const int bytes = ioctl(kvm_.get(), KVM_GET_VCPU_MMAP_SIZE, 0);
  if (bytes < static_cast<int>(sizeof(kvm_run)))
    return refuse(std::errc::not_supported, "/dev/kvm has no processor state to share");
  p.run_bytes = static_cast<u64>(bytes);
  void* const run = mmap(nullptr, p.run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd.get(), 0);
  if (run == MAP_FAILED) return fail(errno, "cannot map a virtual processor");
  p.run = static_cast<kvm_run*>(run);

  constexpr u32 most = 256;
  std::vector<u64> room((sizeof(kvm_cpuid2) + most * sizeof(kvm_cpuid_entry2)) / 8 + 1);
  auto* const ids = reinterpret_cast<kvm_cpuid2*>(room.data());
  ids->nent = most;
  if (ioctl(kvm_.get(), get_supported_cpuid, ids) != 0 || ioctl(p.fd.get(), set_cpuid2, ids) != 0)
    return fail(errno, "cannot set the guest's processor features");

  kvm_sregs s{};
  if (ioctl(p.fd.get(), KVM_GET_SREGS, &s) != 0) return fail(errno, "cannot read a virtual processor");
  kvm_segment code{};
  code.limit = 0xFFFFFFFF, code.selector = code_selector, code.type = 11, code.present = 1, code.dpl = 3, code.s = 1,
  code.l = 1, code.g = 1;
  kvm_segment data = code;
  data.selector = data_selector, data.type = 3, data.l = 0, data.db = 1;
  s.cs = code;
  s.ds = s.es = s.ss = s.fs = s.gs = data;
  s.gdt.base = descriptors_at, s.gdt.limit = 5 * 8 - 1;
  s.cr0 = 0x80000033;  // paging, protection, the usual bits
  s.cr3 = tables_at;
  s.cr4 = 0x20;   // physical address extension
  s.efer = 0x500;  // long mode, active
  if (ioctl(p.fd.get(), KVM_SET_SREGS, &s) != 0) return fail(errno, "cannot put a virtual processor into 64-bit mode");
  kvm_regs r{};
  r.rip = entry;
  r.rsp = stack - 8;  // as after a call
  r.rdi = number;
  r.rsi = boot_at;
  r.rflags = flags_at_start;
  if (ioctl(p.fd.get(), KVM_SET_REGS, &r) != 0) return fail(errno, "cannot set a virtual processor's registers");
  return {};
}

Vm::~Vm() {
  request_stop();
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  for (Processor& p : cpu_) {
    if (!p.thread.joinable()) continue;
    while (!p.finished.load(std::memory_order_acquire)) {  // a kick that comes just before KVM_RUN is lost
      pthread_kill(p.thread.native_handle(), kick_signal());
      usleep(500);
    }
    p.thread.join();
  }
  for (Processor& p : cpu_)
    if (p.run != nullptr) munmap(p.run, p.run_bytes);
  if (memory_ != nullptr) munmap(memory_, options_.memory);
}

void Vm::go() {
  const std::lock_guard lock(mutex_);
  going_ = true;
  changed_.notify_all();
}

void Vm::end(const std::string& why, int status) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = true;
  why_ = why;
  status_ = status;
  changed_.notify_all();
}

bool Vm::run_once(Processor& p, u16& call, u32& value, bool& interrupted) {
  interrupted = false;
  {
    const std::lock_guard lock(mutex_);
    if (quit_) return false;
  }
  if (ioctl(p.fd.get(), KVM_RUN, 0) != 0) {
    interrupted = errno == EINTR || errno == EAGAIN;
    if (!interrupted) end(std::string("its processor cannot run: ") + std::strerror(errno), -1);
    return interrupted;
  }
  const kvm_run& r = *p.run;
  if (r.exit_reason == KVM_EXIT_INTR) return interrupted = true;
  if (r.exit_reason == KVM_EXIT_IO && r.io.direction == KVM_EXIT_IO_OUT && r.io.size == 4 && r.io.count == 1 &&
      r.io.port >= port) {
    call = static_cast<u16>(r.io.port - port);
    std::memcpy(&value, reinterpret_cast<const u8*>(p.run) + r.io.data_offset, sizeof value);
    return true;
  }
  kvm_regs at{};
  ioctl(p.fd.get(), KVM_GET_REGS, &at);
  char where[80];
  std::snprintf(where, sizeof where, " at 0x%llx (exit %u)", static_cast<unsigned long long>(at.rip), r.exit_reason);
  end((r.exit_reason == KVM_EXIT_SHUTDOWN ? "it crashed"
       : r.exit_reason == KVM_EXIT_HLT    ? "it halted"
                                          : "it did something that no guest of ringside does") +
          std::string(where),
      -1);
  return false;
}

void Vm::run_program() {
  Processor& p = cpu_[0];
  pthread_setname_np(pthread_self(), "guest-cpu0");
  boot()->task = static_cast<u64>(gettid());
  timer_t timer{};
  struct sigevent to {};
  to.sigev_notify = SIGEV_THREAD_ID;
  to.sigev_signo = kick_signal();
  to._sigev_un._tid = gettid();
  const bool ticking = options_.tick.count() > 0 && timer_create(CLOCK_MONOTONIC, &to, &timer) == 0;
  u16 call = 0;
  u32 value = 0;
  for (bool interrupted = false; run_once(p, call, value, interrupted);) {
    if (interrupted) {
      std::unique_lock lock(mutex_);
      while (pause_ && !quit_) {
        paused_ = true;
        changed_.notify_all();
        changed_.wait(lock);
      }
      paused_ = false;
      lock.unlock();
      upcall();
      continue;
    }
    if (call == static_cast<u16>(Call::nothing)) continue;
    if (call == static_cast<u16>(Call::event)) {
      if (auto taken = take_event(value); !taken) {
        end(taken.error().sentence, -1);
        break;
      }
      continue;
    }
    if (call == static_cast<u16>(Call::end)) {
      end("its program has ended", static_cast<int>(value));
      break;
    }
    if (call != static_cast<u16>(Call::ready)) {
      end("processor 0 made the unknown call " + std::to_string(call), -1);
      break;
    }
    std::unique_lock lock(mutex_);
    ready_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return going_ || quit_; });
    if (ticking) {
      const auto ns = options_.tick.count();
      const itimerspec period{{ns / 1'000'000'000, ns % 1'000'000'000}, {ns / 1'000'000'000, ns % 1'000'000'000}};
      timer_settime(timer, 0, &period, nullptr);
    }
  }
  if (ticking) timer_delete(timer);
  const std::lock_guard lock(mutex_);
  paused_ = true;
  changed_.notify_all();
}

// Like a processor's interrupt without a change of privilege.
void Vm::upcall() {
  const u64 handler = __atomic_load_n(&boot()->upcall, __ATOMIC_RELAXED);
  if (handler == 0 || __atomic_load_n(&boot()->masked, __ATOMIC_ACQUIRE) != 0) return;
  kvm_regs r{};
  if (ioctl(cpu_[0].fd.get(), KVM_GET_REGS, &r) != 0) return;
  if (r.rsp < image_at + 16 || r.rsp > options_.memory || r.rsp % 8 != 0) return end("its stack is not in its memory", -1);
  r.rsp -= 16;
  std::memcpy(memory_ + r.rsp + 8, &r.rip, 8);
  std::memcpy(memory_ + r.rsp, &r.rflags, 8);
  r.rip = handler;
  r.rflags &= ~(flag_trap | flag_direction);
  if (ioctl(cpu_[0].fd.get(), KVM_SET_REGS, &r) != 0) return end("its processor takes no interrupt", -1);
  __atomic_fetch_add(&ticks_, u64{1}, __ATOMIC_RELAXED);
  u64 interrupted;
  std::memcpy(&interrupted, memory_ + r.rsp + 8, 8);
  monitor::interrupt(interrupted);
}

void Vm::run_service() {
  Processor& p = cpu_[1];
  pthread_setname_np(pthread_self(), "guest-cpu1");
  u16 call = 0;
  u32 value = 0;
  for (bool interrupted = false; run_once(p, call, value, interrupted);) {
    if (interrupted) continue;
    if (call != static_cast<u16>(Call::serve)) return end("processor 1 made the unknown call " + std::to_string(call), -1);
    std::unique_lock lock(mutex_);
    serving_ = true;
    if (asked_) answered_ = true, asked_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return asked_ || quit_; });
    serving_ = false;
  }
}

result<Answer> Vm::ask(Ask what, u32 ring, u64 argument) {
  const std::lock_guard one(asking_);
  return ask_locked(what, ring, argument);
}

result<Answer> Vm::ask_locked(Ask what, u32 ring, u64 argument) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, options_.patience, [&] { return serving_ || quit_; }) || !serving_)
    return refuse(std::errc::timed_out, "the guest's second processor does not answer");
  Mailbox& box = boot()->mailbox;
  box.ask = what;
  box.ring = ring;
  box.argument = argument;
  asked_ = true, answered_ = false, serving_ = false;
  changed_.notify_all();
  if (!changed_.wait_for(lock, options_.patience, [&] { return answered_ || quit_; }) || !answered_)
    return refuse(std::errc::timed_out, "the guest's second processor does not answer");
  return Answer{box.error, box.id, box.value, box.refused, boot()->counts_refused != 0};
}

result<Answer> Vm::ask_alone(Ask what, u32 ring, u64 argument) {
  const std::lock_guard one(asking_);
  {
    std::unique_lock lock(mutex_);
    pause_ = true;
    const auto still = [&] { return paused_ || ended_ || quit_ || !going_; };
    for (int i = 0; i < 2000 && !still(); ++i) {
      pthread_kill(cpu_[0].thread.native_handle(), kick_signal());
      changed_.wait_for(lock, std::chrono::milliseconds(1), still);
    }
    if (!still()) {
      pause_ = false;
      return refuse(std::errc::timed_out, "the guest's first processor does not stop");
    }
  }
  auto answer = ask_locked(what, ring, argument);
  const std::lock_guard lock(mutex_);
  pause_ = false;
  changed_.notify_all();
  return answer;
}

result<Vm::TscOffset> Vm::tsc_offset() {
#if defined(__x86_64__)
  i64 low = std::numeric_limits<i64>::min(), high = std::numeric_limits<i64>::max();
  for (int i = 0; i < 50; ++i) {
    const u64 before = __builtin_ia32_rdtsc();
    auto answer = ask(Ask::time, 0, 0);
    const u64 after = __builtin_ia32_rdtsc();
    if (!answer) return tl::unexpected(answer.error());
    if (answer->error != 0) return fail(answer->error, "the guest does not say its time");
    low = std::max(low, static_cast<i64>(answer->value - after));
    high = std::min(high, static_cast<i64>(answer->value - before));
  }
  if (low > high) return refuse(std::errc::protocol_error, "the guest's time goes back and forth");
  if (low <= 0 && high >= 0) return TscOffset{0, 0};  // the guest reads the host's counter
  kvm_device_attr attribute{0, KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, 0};
  i64 told = 0;
  attribute.addr = reinterpret_cast<u64>(&told);
  if (ioctl(cpu_[1].fd.get(), KVM_GET_DEVICE_ATTR, &attribute) == 0 && low <= told && told <= high) return TscOffset{told, 0};
  const u64 error = (static_cast<u64>(high) - static_cast<u64>(low)) / 2;
  return TscOffset{low + static_cast<i64>(error), error};
#else
  return TscOffset{};
#endif
}

std::string Vm::text(u64 at, u64 room) const {
  if (at < image_at || at >= options_.memory) return {};
  return std::string(reinterpret_cast<const char*>(memory_ + at),
                     strnlen(reinterpret_cast<const char*>(memory_ + at), std::min(room, options_.memory - at)));
}

result<void> Vm::take_event(u32 at) {
  if (at < image_at || at > options_.memory - sizeof(EventText))
    return refuse(std::errc::bad_address, "it declared an event outside of its memory");
  EventText t;
  std::memcpy(&t, memory_ + at, sizeof t);
  EventInfo e;
  e.id = static_cast<u16>(t.id);
  e.system = text(t.system, 64), e.name = text(t.name, 64), e.format = text(t.format, 16384);
  const auto plain = [](const std::string& s) {
    return !s.empty() && s.size() < 64 &&
           s.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  };
  if (t.id < first_event || t.id > last_event || !plain(e.system) || !plain(e.name) || e.format.empty() ||
      e.format.size() == 16384 || events_.size() >= 4095)
    return refuse(std::errc::invalid_argument, "it declared an invalid event: number " + std::to_string(t.id));
  for (const EventInfo& other : events_)
    if (other.id == e.id)
      return refuse(std::errc::invalid_argument, "it declared two events with the number " + std::to_string(t.id));
  e.enabled = true;
  const std::lock_guard lock(mutex_);
  if (ready_) return refuse(std::errc::invalid_argument, "it declared an event after its start");
  events_.push_back(std::move(e));
  return {};
}

void Vm::request_stop() noexcept {
  if (memory_ != nullptr) __atomic_store_n(&boot()->stop, u64{1}, __ATOMIC_RELEASE);
}
bool Vm::running() const {
  const std::lock_guard lock(mutex_);
  return !ended_;
}
bool Vm::wait_end(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return ended_; });
}
std::string Vm::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}
int Vm::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace ringside::guest
