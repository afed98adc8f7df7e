// Sizes, times and tables of the command line. The table is compiled in: the binary's sources are no library.
#include "text/units.hpp"

#include <gtest/gtest.h>

#include "../src/cli/table.cpp"  // NOLINT

namespace ringside::cli::units_test {
namespace {

TEST(Units, Sizes) {
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("64k"), 65536u);
  EXPECT_EQ(parse_size("8M"), 8u << 20);
  EXPECT_EQ(parse_size("1G"), 1u << 30);
  EXPECT_EQ(parse_size("1.5KiB"), 1536u);
  for (const char* bad : {"", "k", "-1", "64q", "1kk", "1e9", "99999999T", "0x10", "1 k"})
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
}

TEST(Units, Times) {
  EXPECT_EQ(parse_time("10s"), 10'000'000'000u);
  EXPECT_EQ(parse_time("5ms"), 5'000'000u);
  EXPECT_EQ(parse_time("3us"), 3'000u);
  EXPECT_EQ(parse_time("7ns"), 7u);
  EXPECT_EQ(parse_time("2m"), 120'000'000'000u);
  EXPECT_EQ(parse_time("1.5"), 1'500'000'000u);
  for (const char* bad : {"", "s", "5 s", "5days", "-3s"}) EXPECT_EQ(parse_time(bad), std::nullopt) << bad;
}

TEST(Units, ForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(16384), "16.0 KiB");
  EXPECT_EQ(format_size(1023 * 1024 + 1023), "1.0 MiB");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(counted(1, "sub-buffer") + ", " + counted(0, "ring") + ", " + counted(1234, "event"),
            "1 sub-buffer, 0 rings, 1,234 events");
  EXPECT_EQ(counted(1, "end is", "ends are") + "; " + counted(2, "end is", "ends are"), "1 end is; 2 ends are");
  EXPECT_EQ(format_time(999), "999 ns");
  EXPECT_EQ(format_time(1234567), "1.23 ms");
  EXPECT_EQ(format_rate(21.4e6, ""), "21.4M/s");
}

TEST(Table, ColumnsAndHostileCells) {
  Table t({{"event"}, {"count", Kind::count}});
  t.row({"a\033[2J\n", 1});
  t.row({"äö", 1234});
  EXPECT_EQ(t.render(false), "event   count\na?[2J?      1\näö      1,234\n");
}

TEST(Table, ValuesAreTextByKindAndJsonAsTheyAre) {
  const Members members = {{"name", Kind::text, "", "event"},
                           {"id", Kind::number, "", "id"},
                           {"on", Kind::flag, "", "enabled"},
                           {"total_ns", Kind::time, "", "total"},
                           {"mean_ns", Kind::mean, "", "mean"},
                           {"share", Kind::share, "", "share"},
                           {"hidden", Kind::count},
                           {"", Kind::text, "", "only text"}};
  Table t;
  t.add(members);
  t.add({"resident", Kind::bytes, "bytes", true, "memory"});
  t.row({"a", 4711, true, 1'230'000, 1234.56, 12.345, 7, "x", 16384});
  t.row({"b", Cell(1, "one"), Cell(), Cell::absent("-")});
  t.row({"c"}, {2}, Table::Only::json);
  t.line({"all"}, {3});
  EXPECT_EQ(t.render(false),
            "event    id  enabled    total     mean   share  only text  resident\n"
            "a      4711  yes      1.23 ms  1.23 us  12.3 %  x          16.0 KiB\n"
            "b       one                 -\n"
            "all       3\n");
  EXPECT_EQ(t.objects().dump(),
            "[{\"name\":\"a\",\"id\":4711,\"on\":true,\"total_ns\":1230000,\"mean_ns\":1234.6,\"share\":12.35,\"hidden\":7,"
            "\"memory\":{\"bytes\":16384}},{\"name\":\"b\",\"id\":1,\"on\":null},{\"name\":\"c\",\"id\":2}]");
  EXPECT_THROW(Table().row({1}), std::logic_error);
}

}  // namespace
}  // namespace ringside::cli::units_test
