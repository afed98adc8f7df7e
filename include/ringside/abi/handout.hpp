// How rings are handed to a process that may only read them: messages over a Unix SOCK_SEQPACKET socket, each a packet.
//
//   client                                       server (the owner, or `ringside serve`)
//     | -- Request{hello} ----------------------> |   the kernel says who the client is (SO_PEERCRED)
//     | <- Hello -------------------------------- |   clock, sizes
//     | -- Request{open_ring, N} ---------------> |
//     | <- RingAnswer + read-only descriptor ---- |   of the data region: the meta-page, then the sub-buffers by id
//     | -- Request{get_reader, N} --------------> |   swaps on the client's behalf
//     | <- ReaderAnswer ------------------------- |   the meta-page is up to date by now
//
// A request is always 32 bytes; an answer has the one size of its kind, or is a Refusal with a positive errno and a sentence.
// After a request that it cannot understand, the server refuses and hangs up; after one that it cannot carry out, it goes on. A
// client has one request under way at a time; the answer carries the request's sequence number. Native endianness, because both
// are on one machine. Requests carry no identity, no address, and no size that is used before it is checked.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::handout {

inline constexpr u32 magic = 0x48534752;  // "RGSH"
inline constexpr u16 version = 1;
inline constexpr u32 most_rings = 65536, most_events = 4095;
inline constexpr u64 longest_wait_ns = u64{3600} * 1'000'000'000;

enum class Kind : u16 {
  hello = 1,   // first of all
  list_rings,  // ring: the first number of interest; answers one ring and where to go on
  open_ring,  // ring; the answer brings the descriptor; the ring counts as mapped until close_ring or the end of the connection
  get_reader,   // ring, which this client has opened
  wait,         // percent, argument: timeout in ns; for any ring that this client has opened
  counters,     // ring, which this client has opened
  read_format,  // ring: the first event number of interest; argument: offset in the format's text
  close_ring,   // ring
  past,         // counters of all rings that gave their memory back; dropped: and of events that found no ring
};
inline constexpr u16 last_kind = static_cast<u16>(Kind::past);

struct Request {
  u32 magic;
  u16 version;
  u16 kind;
  u32 sequence;
  u32 ring;
  u32 percent;
  u32 reserved;  // 0
  u64 argument;
};
static_assert(sizeof(Request) == 32);
static_assert(offsetof(Request, kind) == 6 && offsetof(Request, ring) == 12 && offsetof(Request, argument) == 24);

// Before every answer.
struct Answer {
  u32 magic;
  u16 version;
  u16 kind;      // the request's
  u32 sequence;  // the request's
  u32 error;     // 0, or an errno: then a Refusal
  u32 ring;      // the ring that the answer is about
  u32 reserved;
};
static_assert(sizeof(Answer) == 24 && offsetof(Answer, error) == 12 && offsetof(Answer, ring) == 16);

struct Refusal {
  Answer head;
  char why[104];  // NUL-terminated
};

struct Hello {
  Answer head;
  u32 clock_kind, clock_mult, clock_shift;
  u32 mode;  // 0 overwrite, 1 discard
  u64 clock_base_ticks, clock_base_ns;
  u32 subbuf_size, nr_subbufs;  // of rings made from now on
  u32 nr_rings, nr_events;
  char name[64];
};

// list_rings: head.ring is the ring that is described, `next` the number to go on at. found is 0 if there is no ring.
struct RingAnswer {
  Answer head;
  u32 found;
  u32 next;
  u32 subbuf_size, nr_subbufs, spares;
  u32 live;
  u32 pid, tid;
  u32 reader_id, reader_read;  // open_ring: the values in the meta-page
  char task[16], process[16];  // not NUL-terminated when full
};

struct ReaderAnswer {
  Answer head;
  u32 id, read;     // meta-page: reader.id, reader.read
  u64 lost_events;  // lost before the data that this call found; 0 if it found none
  u64 entries, overrun, read_events;
  u32 ended;  // the ring's thread was gone before this call looked
  u32 reserved;
};

struct WaitAnswer {
  Answer head;
  u32 ready;
  u32 reserved;
};

struct CountersAnswer {
  Answer head;
  u64 written, read, overrun, unread, dropped, commit_overrun;
  u64 bytes, unfinished_bytes, oldest_time, resident_bytes, capacity_bytes;
};

inline constexpr u32 format_piece = 3840;
struct FormatAnswer {
  Answer head;
  u32 id;  // the event's number; its payloads carry event_id(id). 0: there is no event with this number or a larger one
  u32 enabled;
  u32 total;          // length of the text
  u32 offset, count;  // of this piece
  u32 reserved;
  char system[64], name[64];
  char text[format_piece];
};
static_assert(sizeof(Refusal) == 128 && sizeof(Hello) == 136 && sizeof(RingAnswer) == 96 && sizeof(ReaderAnswer) == 72);
static_assert(sizeof(WaitAnswer) == 32 && sizeof(CountersAnswer) == 112 && sizeof(FormatAnswer) == 4016);
static_assert(offsetof(Hello, clock_base_ticks) == 40 && offsetof(Hello, name) == 72 && offsetof(RingAnswer, task) == 64);
static_assert(offsetof(ReaderAnswer, lost_events) == 32 && offsetof(ReaderAnswer, ended) == 64 &&
              offsetof(FormatAnswer, text) == 176);

inline constexpr size_t largest_answer = sizeof(FormatAnswer);

constexpr size_t answer_size(Kind kind) noexcept {
  switch (kind) {
    case Kind::hello:
      return sizeof(Hello);
    case Kind::list_rings:
    case Kind::open_ring:
      return sizeof(RingAnswer);
    case Kind::get_reader:
      return sizeof(ReaderAnswer);
    case Kind::wait:
      return sizeof(WaitAnswer);
    case Kind::counters:
    case Kind::past:
      return sizeof(CountersAnswer);
    case Kind::read_format:
      return sizeof(FormatAnswer);
    case Kind::close_ring:
      return sizeof(Answer);
  }
  return 0;
}

// What is wrong with a packet that claims to be a request; nullptr: nothing. size: the packet's true size.
constexpr const char* check_request(const Request& in, size_t size) noexcept {
  if (size != sizeof(Request)) return "a request has 32 bytes";
  if (in.magic != magic) return "this is no request of ringside";
  if (in.version != version) return "this version of the protocol is not known here";
  if (in.kind == 0 || in.kind > last_kind) return "there is no such request";
  if (in.reserved != 0) return "a reserved field is not 0";
  if (in.ring >= most_rings) return "ring numbers end at 65,535";
  if (in.percent > 100) return "a percentage is 0 to 100";
  const auto kind = static_cast<Kind>(in.kind);
  if (kind != Kind::wait && in.percent != 0) return "only wait takes a percentage";
  if (kind == Kind::wait) return in.argument <= longest_wait_ns ? nullptr : "the longest wait is an hour";
  if (kind == Kind::read_format) return in.argument < (1u << 20) ? nullptr : "no format is that long";
  return in.argument == 0 ? nullptr : "this request takes no argument";
}

// The same for an answer to `asked`. At least the 24 bytes of the head can be read if `size` says so.
constexpr const char* check_answer(const Answer& in, size_t size, const Request& asked) noexcept {
  if (size < sizeof(Answer)) return "an answer has at least 24 bytes";
  if (in.magic != magic || in.version != version) return "this is no answer of ringside, or of another version";
  if (in.error != 0 && size != sizeof(Refusal)) return "a refusal has 128 bytes";
  if (in.error > 4095) return "an error that is no errno";
  if (in.sequence != asked.sequence || in.kind != asked.kind) {
    return in.error != 0 && in.sequence == 0 ? nullptr : "an answer to another request";  // refused before it was understood
  }
  if (in.error == 0 && size != answer_size(static_cast<Kind>(asked.kind))) return "an answer of the wrong size";
  return nullptr;
}

}  // namespace ringside::handout
