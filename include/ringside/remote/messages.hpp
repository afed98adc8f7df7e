// How a reader asks a writer process: messages over a Unix SOCK_SEQPACKET socket, one packet each. The writer listens, because it is
// there for long and readers come and go; the reader allocates the rings and brings them along.
//
//   reader                                        writer process
//     | -- Request{attach} + 2 or more files ------> |   descriptor blob; the region: one file or several, of sealed sizes, back to back
//     | <- Answer{attach, argument: events} -------- |   all rings empty and disabled
//     | -- Request{event, N} ----------------------> |   N = 0, 1, ...
//     | <- EventAnswer ----------------------------- |   its number, name and format
//     | -- Request{enable} ------------------------> |   and disable
//     | -- Request{swap, ring, read} --------------> |   RemoteWriter::swap_reader
//     | <- Answer{swap, argument: Swap, id} -------- |
//     | -- Request{update, ring}, {reset, ring} ---> |
//     | -- (end of the connection) ----------------> |   disabled, detached, unmapped
//
// One reader at a time: the second is answered EBUSY. A request has 32 bytes, an answer 32 or an EventAnswer's; an answer bears the
// request's sequence number, and error is 0 or an errno. Who the other side is, the kernel says (SO_PEERCRED).
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::remote {

inline constexpr u32 message_magic = 0x4D524752;  // "RGRM"
inline constexpr u32 most_events = 4095;
inline constexpr u32 most_files = 253;  // that one message can bring

enum class Ask : u32 { attach = 1, event, enable, disable, swap, update, reset };

struct Request {
  u32 magic;
  Ask ask;
  u32 sequence;
  u32 ring;      // event: its index
  u64 argument;  // attach: version of the protocol, 1; swap: bytes read
  u64 reserved;
};
struct Answer {
  u32 magic;
  Ask ask;
  u32 sequence;
  i32 error;
  u64 argument;
  u32 id;
  u32 reserved;
};
inline constexpr u32 format_room = 3840;
struct EventAnswer {
  Answer head;  // argument: the event's number
  char system[64], name[64];
  char format[format_room];  // NUL-terminated, as the others
};
static_assert(sizeof(Request) == 32 && sizeof(Answer) == 32 && sizeof(EventAnswer) == 4000);

}  // namespace ringside::remote
