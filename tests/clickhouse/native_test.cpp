// Blocks of ClickHouse's format Native: what is written is read; what is cut or false is an error.
#include "clickhouse/native.hpp"

#include <gtest/gtest.h>

#include <random>

#include "clickhouse/server.hpp"

namespace ringside::test::native_test {
namespace {

using namespace clickhouse;

std::string block(u64 rows) {
  ColumnOut number{"number", "Int32"}, text{"text", "String"}, list{"list", "Array(UInt16)"}, real{"real", "Float64"};
  for (u64 row = 0; row < rows; ++row) {
    put_number(number.data, static_cast<i32>(row) - 2);
    put_text(text.data, std::string(row * 60, 'x'));
    for (u64 n = 0; n < row; ++n) put_number(list.data, static_cast<u16>(n));
    list.end_array(row);
    put_number(real.data, 0.5 * static_cast<double>(row));
  }
  return write_block({number, text, list, real, constant("host", "String", "here", rows)}, rows);
}

TEST(Native, WhatIsWrittenIsRead) {
  const std::string bytes = block(5) + block(3);
  const auto blocks = must(read_blocks(bytes));
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[1].rows, 3u);
  const BlockIn& first = blocks[0];
  EXPECT_EQ(first.column("number")->whole(0), -2);
  EXPECT_EQ(first.column("text")->texts[4].size(), 240u);
  EXPECT_EQ(first.column("list")->begin_of(4), 6u);
  EXPECT_EQ(first.column("list")->whole(9), 3);
  EXPECT_EQ(first.column("host")->texts[4], "here");
  EXPECT_EQ(first.column("nothing"), nullptr);
}

TEST(Native, WhatIsCutOrFalseIsAnErrorAndNoCrash) {
  const std::string bytes = block(4);
  for (size_t size = 1; size < bytes.size(); ++size) EXPECT_FALSE(read_blocks(std::string_view(bytes).substr(0, size))) << size;
  std::mt19937_64 random(1);
  for (int n = 0; n < 20'000; ++n) {
    std::string bad = bytes;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    (void)read_blocks(bad);
  }
  EXPECT_NE(read_blocks(write_block({{"a", "Nullable(Int8)", "xx"}}, 1)).error().sentence.find("Nullable(Int8)"),
            std::string::npos);
}

TEST(Native, NamesAndTextsAreQuoted) {
  EXPECT_EQ(quoted_name("a:b\"c"), "\"a:b\\\"c\"");
  EXPECT_EQ(quoted_text("it's \\"), "'it\\'s \\\\'");
}

TEST(Native, AnAddressIsTakenApart) {
  const Address a = must(Address::parse("clickhouse://db.example:9000/traces?hosts=a,b&from=1"));
  EXPECT_EQ(a.host + std::to_string(a.port) + a.database + a.more.at("hosts") + a.more.at("from"), "db.example9000tracesa,b1");
  EXPECT_EQ(must(Address::parse("clickhouse://[::1]/x")).host, "[::1]");
  EXPECT_EQ(must(Address::parse("clickhouse://h")).port, 8123);
  for (const char* bad : {"http://h/x", "clickhouse://", "clickhouse://h:0/x", "clickhouse://h:99999/x", "clickhouse://u:p@h/x",
                          "clickhouse://h/a b", "clickhouse://h/x?y"})
    EXPECT_FALSE(Address::parse(bad)) << bad;
}

}  // namespace
}  // namespace ringside::test::native_test
