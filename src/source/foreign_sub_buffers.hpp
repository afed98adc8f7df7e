// Sub-buffers of a kernel of 32 bits or of a big-endian machine, converted into those of a little-endian kernel of 64 bits, so
// that no other code has to know of them: headers, the numbers of events and of their fields, as the formats give them.
//
//   32 bits      the commit, and the number of missed events, have 4 bytes, the data begins at 12; kernel_stack and user_stack
//                have addresses of 4 bytes: they and their formats become those of 64 bits
//   big-endian   the type of an event is in the upper 5 bits of its first word; each field is turned. The arguments of
//                trace_printk stay as they are: only its text says where they begin (decode/binary_print.hpp)
//
// What is hostile stays in bounds: a sub-buffer never becomes longer than size_of() says.
#pragma once
#include <ringside/abi/sub_buffer.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "source/source.hpp"
#include "source/world.hpp"

namespace ringside::trace_dat {

class ForeignSubBuffers {
 public:
  // data_at: where the data of a sub-buffer begin. events: those whose formats change become what the converted ones hold.
  ForeignSubBuffers(const World& world, u32 data_at, std::vector<EventInfo>& events);

  static constexpr u32 largest = abi::largest_subbuf;  // more would not fit the converted one's commit
  static u32 size_of(u32 sub_buffer) { return sub_buffer * 3 + 64; }
  u32 data_at() const { return data_at_; }
  bool big_endian() const { return world_.big_endian; }
  u32 claimed(Bytes sub_buffer) const;  // bytes of data
  u64 time_stamp(const u8* sub_buffer) const { return number<u64>(sub_buffer); }
  // sub_buffer: at least data_at() bytes. out: size_of(its size) bytes, zeroed. Converts the data that is there.
  void convert(Bytes sub_buffer, u8* out) const;

 private:
  struct Field {
    u32 offset = 0, size = 0, element = 0;
    bool located = false, relative = false;
  };
  struct Event {
    std::vector<Field> fields;
    bool stack = false;  // its addresses go on to its end
  };
  template <class T>
  T number(const u8* at) const {
    T value;
    __builtin_memcpy(&value, at, sizeof value);
    return !world_.big_endian ? value : turned(value);
  }
  u64 long_at(const u8* at) const { return world_.word_size == 8 ? number<u64>(at) : number<u32>(at); }
  static u32 turned(u32 value) { return __builtin_bswap32(value); }
  static u64 turned(u64 value) { return __builtin_bswap64(value); }
  static u16 turned(u16 value) { return __builtin_bswap16(value); }
  Event parse(std::string_view format) const;
  void turn(const Event* event, u8* payload, u32 size) const;
  const Event* find(Bytes payload) const;
  u32 widen(Bytes payload, u32 delta, u8* to) const;
  u32 convert_data(Bytes data, u8* to) const;

  World world_;
  u32 data_at_;
  std::unordered_map<u16, Event> events_;
};

}  // namespace ringside::trace_dat
