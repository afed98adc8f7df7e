// The parts with which columns, filters and pairs read events.
#include <gtest/gtest.h>

#include "analysis/column.hpp"
#include "decode/id_table.hpp"
#include "analysis/integer_at.hpp"
#include "sys/sys.hpp"

namespace ringside::column_test {
namespace {

template <class T>
void expect_as_it_stands(const std::vector<u8>& bytes) {
  // Payloads of every length lie in memory of exactly that length: a sanitizer detects a read beyond it.
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::vector<u8> payload(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    for (u32 offset = 0; offset <= bytes.size() + 2; ++offset) {
      T value = 0;
      if (offset + sizeof(T) <= size) std::memcpy(&value, payload.data() + offset, sizeof value);
      EXPECT_EQ(IntegerAt(offset, sizeof(T), std::is_signed_v<T>)({payload.data(), size}), static_cast<i64>(value))
          << offset << " of " << size << ", " << sizeof(T);
    }
  }
}

TEST(IntegerAt, ReadsEveryPlaceOfEveryPayload) {
  std::vector<u8> bytes(24);
  for (const u8 base : {0x00, 0x71, 0xF3}) {  // both signs
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<u8>(base + i * 7);
    expect_as_it_stands<u8>(bytes);
    expect_as_it_stands<int8_t>(bytes);
    expect_as_it_stands<u16>(bytes);
    expect_as_it_stands<int16_t>(bytes);
    expect_as_it_stands<u32>(bytes);
    expect_as_it_stands<i32>(bytes);
    expect_as_it_stands<u64>(bytes);
    expect_as_it_stands<i64>(bytes);
  }
  EXPECT_EQ(IntegerAt()({bytes.data(), bytes.size()}), 0);
  EXPECT_EQ(IntegerAt(~0u, 8, false)({bytes.data(), bytes.size()}), 0);
}

TEST(IdTable, ForgetsWhenTheFormatsChange) {
  struct Known {
    u32 value = 0;
  };
  IdTable<Known> table;
  table.at(7, 1).value = 42;
  table.at(200'000, 1).value = 43;  // grows: a cache may forget, but never mix up
  EXPECT_TRUE(table.at(7, 1).value == 42 || table.at(7, 1).value == 0);
  EXPECT_EQ(table.at(200'000, 1).value, 43u);
  table.at(7, 1).value = 44;
  IdTable<Known> copy = table;
  EXPECT_EQ(copy.at(7, 1).value, 0u);
  IdTable<Known> moved = std::move(table);
  EXPECT_EQ(moved.at(7, 1).value, 44u);
  EXPECT_EQ(moved.at(7, 2).value, 0u);
}

// Formats come one by one while a program is watched: unrequested ids cost no memory, however often the cache is cleared.
TEST(IdTable, TakesMemoryOnlyForRequestedIds) {
  struct Known {
    u64 words[6];
  };
  const auto resident_kb = [] {
    const std::string status = must(sys::read_file("/proc/self/status"));
    return std::atoll(status.c_str() + status.find("VmRSS:") + 6);
  };
  const auto before = resident_kb();
  std::vector<IdTable<Known>> tables(40);  // 6 MiB each
  for (u64 version = 1; version < 5; ++version)
    for (auto& table : tables) table.at(5, version).words[0] = version;
  EXPECT_LT(resident_kb() - before, 120 * 1024);  // huge pages have 2 MiB
}

// An id that is reused: the facts about the old event do not hold for the new one.
TEST(Column, FollowsFormatsThatChange) {
  const auto text = [](const char* field) {
    return std::string("name: e\nID: 5\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                       "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:") + field + ";\n\nprint fmt: \"\"\n";
  };
  Formats formats;
  const Tasks tasks;
  formats.add(5, "s", "e", text("u32 n;\toffset:8;\tsize:4;\tsigned:0"));
  auto n = Column::compile("n", formats, tasks);
  ASSERT_TRUE(n) << n.error().sentence;
  const u8 payload[16] = {5, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0};
  TraceRecord record;
  record.payload = {payload, sizeof payload};
  i64 value = 0;
  ASSERT_TRUE(n->number(record, {}, value));
  EXPECT_EQ(value, 10);
  formats.add(5, "s", "e", text("u32 n;\toffset:12;\tsize:4;\tsigned:0"));
  ASSERT_TRUE(n->number(record, {}, value));
  EXPECT_EQ(value, 20);
  formats.add(5, "s", "e", text("u32 m;\toffset:12;\tsize:4;\tsigned:0"));
  EXPECT_FALSE(n->number(record, {}, value));
}

}  // namespace
}  // namespace ringside::column_test
