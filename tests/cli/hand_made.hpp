// Sub-buffers, sources and formats made by hand, byte by byte, for tests of all code that reads.
#pragma once
#include <cstring>
#include <memory>
#include <ringside/abi/event_header.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <string>
#include <vector>

#include "decode/formats.hpp"
#include "source/recording.hpp"

namespace ringside::test {

// A payload: the common fields, then the values put behind them.
class Payload {
 public:
  Payload(u16 id, i32 tid, u16 flags = 0) { put(id).put(flags).put(tid); }
  template <class T>
  Payload& put(T value) {
    const auto* p = reinterpret_cast<const u8*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
    return *this;
  }
  Payload& text(std::string_view s) {
    bytes_.insert(bytes_.end(), s.begin(), s.end());
    return *this;
  }
  operator Bytes() const { return {bytes_.data(), bytes_.size()}; }  // NOLINT: reads like one
  const std::vector<u8>& bytes() const { return bytes_; }

 private:
  std::vector<u8> bytes_;
};

class SubBuffer {
 public:
  explicit SubBuffer(u64 time, u32 size = 4096) : words_(size / 8), last_(time) { std::memcpy(bytes(), &time, 8); }

  SubBuffer& event(u64 time, const Payload& payload) {
    const u64 delta = time - last_;
    last_ = time;
    if (delta >= abi::delta_limit) {
      word(abi::event_word(abi::type_time_extend, static_cast<u32>(delta & (abi::delta_limit - 1))));
      word(static_cast<u32>(delta >> abi::delta_bits));
    }
    const u32 in_word = delta >= abi::delta_limit ? 0 : static_cast<u32>(delta);
    const auto n = static_cast<u32>(payload.bytes().size());
    const u32 size = abi::event_size(n);
    const u32 start = end_;
    word(abi::event_word(size - 4 > abi::small_payload_max ? 0 : (size - 4) / 4, in_word));
    if (size - 4 > abi::small_payload_max) word(size - 4);
    std::memcpy(data() + end_, payload.bytes().data(), n);
    end_ = start + size;
    return commit();
  }
  SubBuffer& word(u32 w) {
    std::memcpy(data() + end_, &w, 4);
    end_ += 4;
    return commit();
  }
  // The missed-events flags and the number behind the data.
  SubBuffer& lost(u64 n) {
    const u64 c = end_ | abi::missed_events | abi::missed_stored;
    std::memcpy(bytes() + 8, &c, 8);
    std::memcpy(data() + end_, &n, 8);
    return *this;
  }

  u8* bytes() { return reinterpret_cast<u8*>(words_.data()); }
  u8* data() { return bytes() + abi::header_size; }
  u32 end() const { return end_; }
  u32 size() const { return static_cast<u32>(words_.size() * 8); }
  SubBufferView view(u64 lost_before = 0) {
    u64 time = 0;
    std::memcpy(&time, bytes(), 8);
    return {bytes(), 0, end_, lost_before, time};
  }

 private:
  SubBuffer& commit() {
    const u64 c = end_;
    std::memcpy(bytes() + 8, &c, 8);
    return *this;
  }
  std::vector<u64> words_;
  u64 last_;
  u32 end_ = 0;
};

// Hands out the views it was given; a null view means "nothing now".
class FakeSource : public Source {
 public:
  FakeSource(u32 ring, std::vector<std::optional<SubBufferView>> views, bool over = true)
      : views_(std::move(views)), over_(over) {
    name_.ring = ring;
    name_.task = "fake";
  }
  result<std::optional<SubBufferView>> next() override {
    if (fail_at == at_) return refuse(std::errc::io_error, "ring " + std::to_string(name_.ring) + " is corrupt");
    if (at_ >= views_.size()) return std::nullopt;
    return views_[at_++];
  }
  Counters counters() const override { return {}; }
  bool ended() const override { return over_; }
  u64 lag_ns() const override { return lag; }
  size_t fail_at = ~size_t{0};
  u64 lag = 0;
  using Source::clock_;

 private:
  std::vector<std::optional<SubBufferView>> views_;
  bool over_;
  size_t at_ = 0;
};

inline std::string format(u16 id, const std::string& name, const std::string& fields, const std::string& print) {
  return "name: " + name + "\nID: " + std::to_string(id) +
         "\nformat:\n"
         "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
         "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
         "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
         "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n" +
         fields + "\nprint fmt: " + print + "\n";
}

// False: the text could not be parsed.
inline bool add(Formats& formats, u32 id, const std::string& system, const std::string& name, const std::string& text) {
  formats.add(id, system, name, text);
  return formats.find(id)->parsed();
}

inline std::string malloc_format(u16 id = 1) {
  return format(id, "malloc",
                "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n"
                "\tfield:u64 ptr;\toffset:16;\tsize:8;\tsigned:0;\n",
                R"("size=%llu ptr=0x%llx", REC->size, REC->ptr)");
}

// A new recording in `dir` of two rings: 0 of cc1plus-4711 with libc:malloc (event 1), 3 of as-4800 with net:in (event 2).
inline result<RecordingWriter> malloc_and_packets(const std::string& dir) {
  auto w = RecordingWriter::create(dir, ClockInfo{});
  if (!w) return w;
  w->meta().events.push_back({1, "libc", "malloc", malloc_format(), true});
  w->meta().events.push_back(
      {2, "net", "in", format(2, "in", "\tfield:u32 length;\toffset:8;\tsize:4;\tsigned:0;\n", R"("length=%u", REC->length)"),
       true});
  for (const RingName& ring : {RingName{0, 4700, 4711, "cc1plus", "g++"}, RingName{3, 4800, 4800, "as", "as"}}) {
    if (auto added = w->add_ring(ring, 4096); !added) return tl::unexpected<Error>(added.error());
  }
  return w;
}

}  // namespace ringside::test
