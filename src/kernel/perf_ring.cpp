#include "kernel/perf_ring.hpp"

#include <linux/perf_event.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace ringside {
namespace {

template <class T>
T at(Bytes record, size_t offset) {
  T value;
  std::memcpy(&value, record.data + offset, sizeof value);
  return value;
}

std::string_view text_at(Bytes record, size_t offset, size_t end) {
  const char* const from = reinterpret_cast<const char*>(record.data) + offset;
  return {from, strnlen(from, end - offset)};
}

constexpr size_t id_size = 16;  // at the end of all but samples: TID and TIME
constexpr size_t map_texts = 72, name_text = 16, fork_size = 32, sample_chain = 32;

// After the chain: the registers' ABI, the registers, the size of the copy, its bytes, and how many of them are used.
bool read_stack(Bytes rest, PerfRecord& r) {
  constexpr u64 of_64_bits = PERF_SAMPLE_REGS_ABI_64;
  constexpr size_t count = std::popcount(perf_registers);
  const auto take = [&] {
    const u64 word = at<u64>(rest, 0);
    rest = {rest.data + 8, rest.size - 8};
    return word;
  };
  if (rest.size < 8) return false;
  const u64 kind = take();
  if (kind != PERF_SAMPLE_REGS_ABI_NONE) {
    if (rest.size < 8 * count) return false;
    u64 words[count + 1] = {};
    for (size_t i = 0; i < count; ++i) words[i] = take();
#if defined(__aarch64__)
    if (kind == of_64_bits) r.registers = {words[3], words[2], words[0], words[1]};
#else
    if (kind == of_64_bits) r.registers = {words[2], words[1], words[0], 0};
#endif
  }
  if (rest.size < 8) return false;
  const u64 size = take();
  if (size == 0) return true;
  if (size % 8 != 0 || rest.size < 8 || size > rest.size - 8) return false;
  r.stack = {rest.data, std::min(size, at<u64>(rest, size))};
  return true;
}

// False: the record is too short for its kind.
bool read_record(const perf_event_header& header, Bytes record, bool with_stack, PerfRecord& r) {
  const bool is_sample = header.type == PERF_RECORD_SAMPLE;
  const size_t end = is_sample ? record.size : record.size - id_size;
  const auto has = [&](size_t bytes) { return record.size >= (is_sample ? bytes : bytes + id_size); };
  if (!is_sample && has(sizeof header)) {
    r.pid = at<i32>(record, end), r.tid = at<i32>(record, end + 4);
    r.time = at<u64>(record, end + 8);
  }
  switch (header.type) {
    case PERF_RECORD_SAMPLE: {
      if (!has(sample_chain) || at<u64>(record, 24) > (record.size - sample_chain) / 8) return false;
      r.kind = PerfRecord::Kind::sample;
      r.pid = at<i32>(record, 8), r.tid = at<i32>(record, 12);
      r.time = at<u64>(record, 16);
      r.chain = {record.data + sample_chain, at<u64>(record, 24) * 8};
      const size_t behind = sample_chain + r.chain.size;
      return !with_stack || read_stack({record.data + behind, record.size - behind}, r);
    }
    case PERF_RECORD_MMAP2:
      if (!has(map_texts)) return false;
      r.kind = PerfRecord::Kind::map;
      r.pid = at<i32>(record, 8), r.tid = at<i32>(record, 12);
      r.start = at<u64>(record, 16), r.size = at<u64>(record, 24), r.offset = at<u64>(record, 32);
      if ((header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID) != 0)
        r.build_id = {record.data + 44, std::min<size_t>(record.data[40], 20)};
      else
        r.inode = at<u64>(record, 48);
      r.text = text_at(record, map_texts, end);
      return true;
    case PERF_RECORD_COMM:
      if (!has(name_text)) return false;
      r.kind = PerfRecord::Kind::name;
      r.exec = (header.misc & PERF_RECORD_MISC_COMM_EXEC) != 0;
      r.pid = at<i32>(record, 8), r.tid = at<i32>(record, 12);
      r.text = text_at(record, name_text, end);
      return true;
    case PERF_RECORD_FORK:
    case PERF_RECORD_EXIT:
      if (!has(fork_size)) return false;
      r.kind = header.type == PERF_RECORD_FORK ? PerfRecord::Kind::fork : PerfRecord::Kind::exit;
      r.pid = at<i32>(record, 8), r.maker = at<i32>(record, 12), r.tid = at<i32>(record, 16);
      return true;
    case PERF_RECORD_LOST:
      if (!has(24)) return false;
      r.kind = PerfRecord::Kind::lost;
      r.lost = at<u64>(record, 16);
      return true;
    case PERF_RECORD_THROTTLE: r.kind = PerfRecord::Kind::throttled; return true;
    default: return true;
  }
}

}  // namespace

PerfRecords::PerfRecords(const u8* data, u64 size, u64 tail, u64 head, bool with_stacks)
    : data_(data), size_(size), tail_(tail), head_(head), with_stacks_(with_stacks) {
  malformed_ = head - tail > size;
  if (malformed_) tail_ = head_;
}

// Empty: there are fewer bytes.
Bytes PerfRecords::piece(u64 size) {
  if (size > head_ - tail_) return {};
  const u64 from = tail_ & (size_ - 1);
  if (size <= size_ - from) return {data_ + from, size};
  copy_.resize(size / 8 + 1);
  auto* const to = reinterpret_cast<u8*>(copy_.data());
  std::memcpy(to, data_ + from, size_ - from);
  std::memcpy(to + (size_ - from), data_, size - (size_ - from));
  return {to, size};
}

std::optional<PerfRecord> PerfRecords::next() {
  if (tail_ == head_) return std::nullopt;
  const Bytes start = piece(sizeof(perf_event_header));
  const auto header = start.size != 0 ? at<perf_event_header>(start, 0) : perf_event_header{};
  const Bytes record = header.size >= sizeof header && header.size % 8 == 0 ? piece(header.size) : Bytes{};
  if (record.size == 0) {
    malformed_ = true;
    tail_ = head_;
    return std::nullopt;
  }
  tail_ += record.size;
  PerfRecord r;
  if (!read_record(header, record, with_stacks_, r)) malformed_ = true;  // its size is right, so the walk goes on
  return r;
}

}  // namespace ringside
