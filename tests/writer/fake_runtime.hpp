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

#include "schema/format_text.hpp"
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

  std::deque<std::string> names;

  const char* plain(const char* declared) { return names.emplace_back(ringside::plain(declared)).c_str(); }
  ringside_event* find(std::string_view system, std::string_view name) {
    for (auto* e : events)
      if (e->system == system && e->name == name) return e;
    return nullptr;
  }
  void enable(std::string_view system, std::string_view name, bool on = true) {
    for (auto* e : events)
      if (e->system == system && e->name == name) {
        words[e->id - 1] = on;
        ringside_gate[ringside_gate_of(e->system, e->name)] = on;
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
  for (const char** name : {&event->system, &event->name}) *name = r.plain(*name);
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
__attribute__((weak)) bool ringside_write_numbers(ringside_event* event, uint32_t size, void* payload) {
  return ringside_wanted(event) && ringside_write(event, payload, size);
}
__attribute__((weak)) bool ringside_write_3_words(ringside_event* event, uint32_t size, uint64_t first, uint64_t second,
                                                  uint64_t third) {
  uint64_t payload[] = {0, first, second, third};
  return ringside_write_numbers(event, size, payload);
}
__attribute__((weak)) bool ringside_write_2_words(ringside_event* event, uint32_t size, uint64_t first, uint64_t second) {
  return ringside_write_3_words(event, size, first, second, 0);
}
__attribute__((weak)) bool ringside_write_word(ringside_event* event, uint32_t size, uint64_t first) {
  return ringside_write_3_words(event, size, first, 0, 0);
}
__attribute__((weak)) bool ringside_write_texts(ringside_event* event, void* payload, uint32_t fixed,
                                                const ringside_text* texts, uint32_t n, const void*) {
  if (!ringside_wanted(event)) return false;
  alignas(8) ringside::u8 whole[RINGSIDE_PAYLOAD_MAX] = {};
  bool full = false;
  return ringside_write(event, whole, ringside::PayloadTexts(*event, payload, fixed, texts, n).put(whole, sizeof whole, full));
}
__attribute__((weak)) bool ringside_write_fields(ringside_event* event, const ringside_field* fields,
                                                 const void* const* sources, const uint32_t* lengths, const void* caller) {
  if (!ringside_wanted(event)) return false;
  ringside::PayloadParts parts(*event, *fields, sources, lengths);
  if (parts.has_stack) parts.stack = ringside_stack_of(caller);
  alignas(8) ringside::u8 payload[RINGSIDE_PAYLOAD_MAX] = {};
  bool full = false;
  return ringside_write(event, payload, parts.put(payload, sizeof payload, full));
}
}
