// Rings over a line: firmware that shares no memory with its reader pushes whole sub-buffers through a UART or a pipe, or into
// a file. Each goes in a frame that a reader finds again after bytes were lost or damaged. Freestanding; nothing comes back.
//
//   offset  size  field (little endian)
//   0       4     sync "RSFR"
//   4       2     kind: 1 hello, 2 event, 3 sub-buffer, 4 end
//   6       2     ring
//   8       4     sequence: 1 more for each frame
//   12      4     bytes of payload after the header, at most 262,144
//   16      8     sub-buffer: index of its first event in its ring, so that losses are counted to the event
//                 end: events that the rings which it counts have refused in all
//   24      4     sub-buffer: its number of events; end: how many rings it counts, 0: it does not count
//   28      4     CRC-32 of the payload
//   32      4     sub-buffer: events that its ring has refused so far, modulo 2^32, if hello has counts_refused; otherwise 0
//   36      4     CRC-32 of these 36 bytes
//   40            hello: StreamHello; event: u32 id, then system, name and format, each with its NUL; sub-buffer: its 16-byte
//                 header (time stamp, bytes of data), then the data
//
// hello and events may be repeated at any time, for readers that come late.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/reader.hpp>

namespace ringside::remote {

enum class FrameKind : u16 { hello = 1, event = 2, sub_buffer = 3, end = 4 };

struct FrameHeader {
  u32 sync;
  FrameKind kind;
  u16 ring;
  u32 sequence, bytes;
  u64 first;
  u32 events, payload_check;
  u32 refused, header_check;
};
static_assert(sizeof(FrameHeader) == 40);
inline constexpr u32 frame_sync = 0x52465352;
inline constexpr u32 stream_counts_refused = 1;  // an ability: frames have `refused`
inline constexpr u32 stream_version = 1, most_frame_bytes = abi::largest_subbuf;

struct StreamHello {
  u32 version;
  u32 clock;  // 0: the reader's time stamp counter; 1: the reader's CLOCK_MONOTONIC in ns; 2: the writer's own
  u32 subbuf_size;
  u32 abilities;  // counts_refused; 0 in older writers
  u64 ticks_per_second;  // of the writer's own clock; 0: it does not count time
};
static_assert(sizeof(StreamHello) == 24);

// CRC-32 as in Ethernet and zlib, four bits at a time with a table of 64 bytes. Continues from `crc`.
constexpr u32 crc32(const u8* data, u64 bytes, u32 crc = 0) noexcept {
  constexpr u32 table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
                             0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  crc = ~crc;
  for (u64 i = 0; i < bytes; ++i) {
    crc ^= data[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

// put(const void*, u32): sends all of the bytes, in order. Used by one context, which is also the rings' reader.
template <class Put>
class StreamWriter {
 public:
  explicit StreamWriter(Put put) noexcept : put_(put) {}

  void hello(u32 clock, u32 subbuf_size, u64 ticks_per_second) noexcept {
    const StreamHello h{stream_version, clock, subbuf_size, stream_counts_refused, ticks_per_second};
    send(FrameKind::hello, 0, 0, 0, {{&h, sizeof h}});
  }
  void event(u32 id, const char* system, const char* name, const char* format) noexcept {
    send(FrameKind::event, 0, 0, 0,
         {{&id, sizeof id}, {system, length(system)}, {name, length(name)}, {format, length(format)}});
  }
  // Sends what the reader finds: sub-buffers that the writer has left; with `unfinished` also what is on the one that it is
  // on.
  template <class R>
  void push(u16 ring, R& reader, bool unfinished) noexcept {
    while (reader.peek() == Got::data && (reader.view().left || unfinished)) {
      const ReaderView v = reader.view();
      const u8* const page = reader.ring().subbuf(v.id);
      const u64 stamp = reinterpret_cast<const abi::SubBufferHeader*>(page)->time_stamp;
      const abi::SubBufferHeader header{abi::time_before(page + abi::header_size, 0, v.begin, stamp), v.end - v.begin};
      send(FrameKind::sub_buffer, ring, v.first_index, v.events,
           {{&header, sizeof header}, {page + abi::header_size + v.begin, v.end - v.begin}},
           static_cast<u32>(refused_by(reader)));
      reader.consume(v.end - v.begin, v.events);
    }
  }
  // The end of the line. readers: of all rings that were pushed, so that their refused events are counted to the last one.
  template <class... R>
  void end(const R&... readers) noexcept {
    send(FrameKind::end, 0, (u64{0} + ... + refused_by(readers)), static_cast<u32>(sizeof...(readers)), {{nullptr, 0}});
  }

 private:
  template <class R>
  static u64 refused_by(const R& reader) noexcept {
    const Control& c = *reader.ring().control;
    return Hardware::load(&c.dropped, unordered) + Hardware::load(&c.commit_overrun, unordered);
  }
  struct Piece {
    const void* data = nullptr;
    u32 bytes = 0;
  };
  static u32 length(const char* text) noexcept {
    u32 n = 0;
    while (text[n] != 0) ++n;
    return n + 1;
  }
  template <u32 N>
  void send(FrameKind kind, u16 ring, u64 first, u32 events, const Piece (&payload)[N], u32 refused = 0) noexcept {
    FrameHeader h{frame_sync, kind, ring, sequence_++, 0, first, events, 0, refused, 0};
    for (const Piece& p : payload) {
      h.bytes += p.bytes;
      h.payload_check = crc32(static_cast<const u8*>(p.data), p.bytes, h.payload_check);
    }
    h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - sizeof h.header_check);
    put_(&h, sizeof h);
    for (const Piece& p : payload)
      if (p.bytes != 0) put_(p.data, p.bytes);
  }

  Put put_;
  u32 sequence_ = 0;
};

}  // namespace ringside::remote
