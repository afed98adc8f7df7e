// How a reader asks a writer process: messages over a Unix SOCK_SEQPACKET socket, each a packet. The writer listens, because it
// stays while readers come and go. The reader allocates the rings and sends them.
//
//   reader                                        writer process
//     | -- Request{attach} + 2 or more files ------> |   descriptor blob; the region: one file or several, of sealed sizes,
//     back to back | <- Answer{attach, argument: events} -------- |   all rings empty and disabled | -- Request{event, N}
//     ----------------------> |   N = 0, 1, ... | <- EventAnswer ----------------------------- |   its number, name and format
//     | -- Request{enable} ------------------------> |   and disable
//     | -- Request{swap, ring, read} --------------> |   RemoteWriter::swap_reader
//     | <- Answer{swap, argument: Swap, id, refused} |
//     | -- Request{update, ring}, {reset, ring} ---> |
//     | -- Request{switch_event, N, on} -----------> |   if the writer can (can_switch_events); all are on at first
//     | -- TextRequest{write, ring} ---------------> |   if the writer can (can_write): it makes an event of the text
//     | -- Request{rings} -------------------------> |   if the writer can (can_tell_rings); also before attach
//     | <- Answer{rings, argument: rings, refused} - |   how many it writes to; events that it had for rings not brought
//     | -- Request{ring_name, N} ------------------> |   if the writer can (can_name_rings); also before attach
//     | <- EventAnswer ----------------------------- |   its name; argument: its CPU plus 1, or 0
//     | -- (end of the connection) ----------------> |   disabled, detached, unmapped
//     | <- Answer{last, argument: ring, refused} --- |   or the writer ends: for each ring, if the reader takes that
//
// One reader at a time: a second one is answered EBUSY. A request has 32 bytes, and after them a text if it is a TextRequest;
// an answer has 32 or those of an EventAnswer. An answer carries the request's sequence number; error is 0 or an errno. The
// kernel says who the other side is (SO_PEERCRED). A writer closes the connection on a request that it does not know, so a
// reader sends optional requests only if the answers to attach and to event, also one with an error, have the bit for it in
// `id`. In the same way a writer says that it fills in `refused`, which is 0 otherwise. `last` answers no request: its
// sequence is 0, and a writer sends it only if attach had takes_last.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::remote {

inline constexpr u32 message_magic = 0x4D524752;  // "RGRM"
inline constexpr u32 most_events = 4095;
inline constexpr u32 most_files = 253;  // in one message

inline constexpr u32 most_text = 1024;   // bytes

enum class Ask : u32 { attach = 1, event, enable, disable, swap, update, reset, switch_event, write, last, rings, ring_name };

// Optional requests that a writer takes; counts_refused: its answers have `refused`.
inline constexpr u32 can_write = 1, can_switch_events = 2, counts_refused = 4, can_tell_rings = 8, can_name_rings = 16;
inline constexpr u64 takes_last = 1;

struct Request {
  u32 magic;
  Ask ask;
  u32 sequence;
  u32 ring;      // event, switch_event: the event's index
  u64 argument;  // attach: version of the protocol, 1; swap: bytes read; switch_event: 0 or 1; write: bytes of text
  u64 takes;     // attach: takes_last
};
struct TextRequest {
  Request head;
  char text[most_text];  // any bytes; only as many as there are are sent
};
struct Answer {
  u32 magic;
  Ask ask;
  u32 sequence;
  i32 error;
  u64 argument;
  u32 id;       // attach, event: can_write, can_switch_events, counts_refused, can_tell_rings, can_name_rings
  u32 refused;  // swap, last: events that the ring has refused so far, modulo 2^32; rings: events of those not brought
};
inline constexpr u32 format_room = 3840;
struct EventAnswer {
  Answer head;  // argument: the event's number
  char system[64], name[64];
  char format[format_room];  // NUL-terminated, as the others
};
static_assert(sizeof(Request) == 32 && sizeof(TextRequest) == 32 + most_text && sizeof(Answer) == 32 &&
              sizeof(EventAnswer) == 4000);

}  // namespace ringside::remote
