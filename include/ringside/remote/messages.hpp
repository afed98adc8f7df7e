// How a reader asks a writer process: messages over a Unix SOCK_SEQPACKET socket, each a packet. The writer listens, because it
// stays while readers come and go. The reader allocates the rings and sends them.
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
// One reader at a time: a second one is answered EBUSY. A request has 32 bytes, an answer 32 or those of an EventAnswer. An
// answer carries the request's sequence number; error is 0 or an errno. The kernel tells who the other side is (SO_PEERCRED).
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::remote {

inline constexpr u32 message_magic = 0x4D524752;  // "RGRM"
inline constexpr u32 most_events = 4095;
inline constexpr u32 most_files = 253;  // in one message

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
