// What a guest and its monitor agree on. The guest runs with two processors in 64-bit mode, at privilege level 3 with I/O
// privilege 3 (which is as fast where /dev/kvm emulates level 0). All of its memory is mapped one to one; it has no paging of
// its own:
//
//   0x1000      Boot: filled in by the monitor before the start, read and written by both afterwards
//   0x200000    the image, as its ELF headers say
//   after it    the rings' descriptor, then the heap, then 64 KiB of stack for each processor
//   0x40000000  the shared region of the rings
//
// A call is one `out` of 32 bits to port `port + call`; the processor goes on when it is answered. Both processors start at the
// image's entry with rdi = processor and rsi = Boot. Processor 0 runs the program, 1 the service (Mailbox). An interrupt is an
// upcall, which the monitor delivers as a kernel delivers a signal: it pushes the flags and the interrupted address, and
// processor 0 goes on at Boot::upcall, which ends with popfq and ret. The direction and trap flags are clear then. There is no
// red zone below the stack.
#pragma once
#include <ringside/abi/event_header.hpp>

namespace ringside::guest {

inline constexpr u64 boot_at = 0x1000, image_at = 0x200000, region_at = 0x40000000, stack_bytes = 65536;
inline constexpr u64 boot_magic = 0x0054534555474E52;  // "RNGUEST\0"
inline constexpr u32 abi_version = 1;

inline constexpr u16 port = 0x7270;
enum class Call : u16 {
  ready = 0,   // processor 0: the rings are made, the events declared; answered when tracing may begin
  event = 1,   // value: the address of an EventText
  serve = 2,   // processor 1: the mailbox holds an answer; returns with the next question
  end = 3,     // processor 0: the program has ended; value: its exit status. Not answered
  nothing = 4  // for measurements
};

enum class Ask : u32 { time = 1, enable, disable, swap, update, reset };

// One question at a time, from the monitor to processor 1.
struct Mailbox {
  Ask ask;
  u32 ring;
  u64 argument;   // swap: data bytes read of the reader page
  i32 error;      // the answer: 0 or an errno
  u32 id;         // swap: of the reader page
  u64 value;      // swap: remote::Swap; time: the time stamp counter
  u64 refused;    // swap: events that the ring has refused so far, if Boot::counts_refused
};

// Addresses, below 4 GiB, of NUL-terminated texts. id: the first two bytes of the event's payload, from a range that the
// monitor's own events do not use.
inline constexpr u32 first_event = abi::event_id(2048), last_event = abi::event_id(4095);
struct EventText {
  u32 id, reserved;
  u64 system, name, format;
};

struct Boot {
  u64 magic;
  u32 version;
  u32 counts_refused;  // written by the guest: not 0: it fills in Mailbox::refused. 0 in older guests
  u64 descriptor, descriptor_bytes;
  u64 region, region_bytes;
  u64 heap, heap_bytes;
  u64 arguments[4];  // the program's
  u64 stop;          // written by the monitor: not 0: end soon
  u64 upcall;        // written by the guest: address of the interrupt handler; 0: interrupts stay pending
  u64 masked;        // written by the guest: not 0: interrupts stay pending, one at most
  u64 task;          // the host's thread that runs processor 0, for the events' common_pid
  u64 results[8];    // written by the guest: its results
  Mailbox mailbox;
};

}  // namespace ringside::guest
