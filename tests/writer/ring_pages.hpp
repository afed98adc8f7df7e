// A ring in ordinary memory with a clock that the test sets, and sub-buffers as hex.
#pragma once
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/counters.hpp>
#include <ringside/ring/iterate.hpp>
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "single.hpp"

namespace ringside::test {

struct SetClock {
  u64* time;
  u64 now() noexcept { return *time; }
};

inline std::string hex(const u8* bytes, size_t size) {
  constexpr const char* digits = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < size; ++i) {
    if (i != 0) out += i % 16 == 0 ? '\n' : ' ';
    out += digits[bytes[i] >> 4];
    out += digits[bytes[i] & 15];
  }
  return out;
}

// Bytes as a hex dump shows them: "0a 1b", and "00*16" for sixteen of the same.
inline std::vector<u8> page(const std::string& text) {
  std::vector<u8> out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto star = word.find('*');
    const size_t times = star == std::string::npos ? 1 : std::stoul(word.substr(star + 1));
    out.insert(out.end(), times, static_cast<u8>(std::stoul(word.substr(0, star), nullptr, 16)));
  }
  return out;
}

inline std::string hex_page(const std::string& text) {
  const std::vector<u8> bytes = page(text);
  return hex(bytes.data(), bytes.size());
}

// The regions are as long as they claim to be and not a byte longer, so a sanitizer sees each step outside.
class TestRing {
 public:
  explicit TestRing(u32 nr_subbufs, bool discard = false, u32 subbuf_size = 4096, u32 spares = 0, u8 stale = 0)
      : ring{Geometry(subbuf_size, nr_subbufs, spares)},
        control_(static_cast<u8*>(std::aligned_alloc(64, align_up<u64>(control_size(ring.geometry), 64))), std::free),
        data_(static_cast<u8*>(std::aligned_alloc(4096, ring.geometry.data_size())), std::free) {
    std::memset(control_.get(), 0, control_size(ring.geometry));
    std::memset(data_.get(), 0, ring.geometry.data_size());
    // Stale bytes of an earlier use, after the meta-page.
    if (stale != 0) std::memset(data_.get() + subbuf_size, stale, ring.geometry.data_size() - subbuf_size);
    ring.control = reinterpret_cast<Control*>(control_.get());
    ring.data = data_.get();
    ring.control->mode = discard ? 1 : 0;
  }

  // The first `size` bytes of a sub-buffer, header included.
  std::string bytes(u32 id, u32 size, u32 from = 0) const { return hex(ring.subbuf(id) + from, size); }
  u64 commit_word(u32 id) const { return ring.header(id).commit; }
  const abi::MetaPage& meta() const { return *reinterpret_cast<const abi::MetaPage*>(ring.data); }
  Place tail() const { return place_of(ring.control->tail); }

  // An event that contains only a number; its length on the sub-buffer is event_size(size).
  bool number(u64 n, u32 size = 8) {
    const Reservation slot = writer.reserve(size);
    if (!slot) return false;
    std::memset(slot.payload, 0, size);
    std::memcpy(slot.payload, &n, 8);
    writer.commit(slot);
    return true;
  }

  Ring ring;

 private:
  std::unique_ptr<u8, void (*)(void*)> control_, data_;

 public:
  u64 time = 1000;
  Writer<SetClock, Single> writer{Ring{ring.geometry, reinterpret_cast<Control*>(control_.get()), data_.get()},
                                  SetClock{&time}};
  Reader<Single> reader{Ring{ring.geometry, reinterpret_cast<Control*>(control_.get()), data_.get()}};
};

// The numbers between two offsets of some data.
inline std::vector<u64> numbers(const u8* data, u32 begin, u32 end) {
  std::vector<u64> out;
  abi::EventCursor c(data, begin, end, 0);
  while (c.next()) {
    u64 n = ~u64{0};
    if (c.payload().size >= 8) std::memcpy(&n, c.payload().data, 8);
    out.push_back(n);
  }
  if (c.malformed() != abi::Malformed::no) out.push_back(~u64{0});
  return out;
}

template <class R>
std::vector<u64> numbers(const R& reader) { return numbers(reader.data(), reader.view().begin, reader.view().end); }

inline std::vector<u64> range(u64 from, u64 to) {
  std::vector<u64> out;
  for (; from < to; ++from) out.push_back(from);
  return out;
}

}  // namespace ringside::test
