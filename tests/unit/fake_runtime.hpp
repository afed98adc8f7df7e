// The library's side of the binary interface, for tests of the call sites: events go into a vector. Weak, so that several tests
// can share an executable.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <ringside/event.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "writer/payload_parts.hpp"

namespace fake {

struct Record {
  const ringside_event* event;
  std::vector<ringside::u8> payload;

  template <class T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, payload.data() + offset, sizeof value);
    return value;
  }
  std::string text(size_t offset) const {  // the string whose location is at `offset`; it must be whole and end in a NUL
    auto place = at<ringside::u32>(offset), size = place >> 16, start = place & 0xFFFF;
    EXPECT_GE(size, 1u);
    EXPECT_LE(start + size, payload.size());
    EXPECT_EQ(payload[start + size - 1], 0);
    return {reinterpret_cast<const char*>(payload.data()) + start, size - 1};
  }
};

struct Runtime {
  std::deque<ringside::u32> words;
  std::vector<ringside_event*> events;
  std::vector<Record> records;
  bool refuse = false;
  uintptr_t caller = 0;  // of the last stack that was asked for

  ringside_event* find(std::string_view system, std::string_view name) {
    for (auto* e : events)
      if (e->system == system && e->name == name) return e;
    return nullptr;
  }
  void enable(std::string_view system, std::string_view name, bool on = true) {
    for (auto* e : events)
      if (e->system == system && e->name == name) {
        words[e->id - 1] = on;
        ringside_gate[e->gate] = on;
      }
  }
  void reset() {
    records.clear();
    refuse = false;
    for (auto& w : words) w = 0;
    std::memset(ringside_gate, 0, sizeof ringside_gate);
  }
};

inline Runtime& runtime() {
  static Runtime r;
  return r;
}

class Test : public testing::Test {
 protected:
  void SetUp() override { runtime().reset(); }
  void TearDown() override { runtime().reset(); }
  Runtime& run = runtime();
};

}  // namespace fake

extern "C" {
__attribute__((weak, aligned(RINGSIDE_GATE_BYTES))) unsigned char ringside_gate[RINGSIDE_GATE_BYTES];

__attribute__((weak)) int ringside_register(ringside_event* event) {
  auto& r = fake::runtime();
  if (event->id != 0) return 0;
  r.words.push_back(0);
  r.events.push_back(event);
  event->id = static_cast<uint32_t>(r.events.size());
  event->enabled = &r.words.back();
  return 0;
}
__attribute__((weak)) uint64_t ringside_stack_of(const void* caller) {
  return fake::runtime().caller = reinterpret_cast<uintptr_t>(caller), 0x57ac;
}
__attribute__((weak)) bool ringside_write(ringside_event* event, void* payload, uint32_t size) {
  auto& r = fake::runtime();
  if (r.refuse) return false;
  const auto* const bytes = static_cast<const ringside::u8*>(payload);
  r.records.push_back({event, {bytes, bytes + size}});
  auto& whole = r.records.back().payload;
  auto id = static_cast<uint16_t>(event->id);
  int32_t pid = 42;
  std::memcpy(whole.data(), &id, 2);
  std::memset(whole.data() + 2, 0, 2);
  std::memcpy(whole.data() + 4, &pid, 4);
  return true;
}
__attribute__((weak)) bool ringside_write_fields(ringside_event* event, const ringside_field* field, uint32_t n, uint32_t fixed,
                                                 const void* const* sources, const uint32_t* lengths, const void* caller) {
  const ringside::PayloadNeeds needs = ringside::needs_of(*event, field, n, fixed);
  const ringside::u64 stack = needs.stack ? ringside_stack_of(caller) : 0;
  alignas(8) ringside::u8 payload[RINGSIDE_PAYLOAD_MAX];
  const ringside::PayloadParts parts{field, n, fixed, needs.begin, sources, lengths, stack};
  return ringside_write(event, payload, parts.put(payload, sizeof payload));
}
}

namespace ringside::detail {
__attribute__((weak)) Epoch epoch = {};
__attribute__((weak)) constinit thread_local ThisThread this_thread{};
__attribute__((weak)) constinit const CpuSide* cpu_side = nullptr;
__attribute__((weak)) bool write_slowly(const ringside_event& event, void* payload, u32 size, Refused, i32) noexcept {
  return ringside_write(const_cast<ringside_event*>(&event), payload, size);
}
#if RINGSIDE_RSEQ
__attribute__((weak)) Refused append_slowly(const CpuSide&, const void*, u32) noexcept { return Refused::no_ring; }
#endif
}  // namespace ringside::detail

namespace ringside {
__attribute__((weak)) u64 RingClockNow::slow() noexcept { return 1; }
}  // namespace ringside
