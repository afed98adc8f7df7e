#include "source/packer.hpp"

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_header.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <utility>

namespace ringside {
namespace {

constexpr u32 kept_free = abi::header_size + sizeof(u64);  // the header, and the number of lost events

}  // namespace

bool Packer::holds(size_t payload) const {
  return payload < room_ && abi::event_size(static_cast<u32>(payload)) + abi::stamp_size <= room_ - kept_free;
}

bool Packer::add(u64 time, Bytes payload) {
  const u32 size = abi::event_size(static_cast<u32>(payload.size));
  if (!holds(payload.size) || end_ + size + abi::stamp_size > room_ - kept_free) return false;
  if (end_ == 0) {
    last_ = taken_time_ = time;
    std::memcpy(words_.data(), &time, sizeof time);
  }
  u8* const data = reinterpret_cast<u8*>(words_.data()) + abi::header_size;
  const auto word = [&](u32 value) {
    std::memcpy(data + end_, &value, sizeof value);
    end_ += sizeof value;
  };
  u64 delta = std::max(time, last_) - last_;
  last_ += delta;
  if (delta >= abi::delta_limit) {
    word(abi::event_word(abi::type_time_extend, static_cast<u32>(delta & (abi::delta_limit - 1))));
    word(static_cast<u32>(delta >> abi::delta_bits));
    delta = 0;
  }
  const u32 start = end_;
  const bool large = size - 4 > abi::small_payload_max;
  word(abi::event_word(large ? 0 : (size - 4) / 4, static_cast<u32>(delta)));
  if (large) word(size - 4);
  std::memset(data + end_, 0, start + size - end_);
  if (payload.size != 0) std::memcpy(data + end_, payload.data, payload.size);
  end_ = start + size;
  return true;
}

SubBufferView Packer::take() {
  const u64 commit = end_;
  std::memcpy(words_.data() + 1, &commit, sizeof commit);
  return {reinterpret_cast<const u8*>(words_.data()), std::exchange(taken_, end_), end_, std::exchange(lost_, 0),
          std::exchange(taken_time_, last_)};
}

void Packer::restart() { taken_ = end_ = 0; }

}  // namespace ringside
