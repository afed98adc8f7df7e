#include "export/text.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "cli/hand_made.hpp"
#include "export/csv.hpp"
#include "export/json.hpp"
#include "sys/json.hpp"

namespace ringside::text_test {
namespace {

using test::Payload;

struct Fixture : testing::Test {
  Formats formats;
  Tasks tasks;
  RingName ring{3, 4700, 4711, "cc1plus", "cc1plus"};
  Fixture() {
    formats.add(1, "libc", "malloc", test::malloc_format());
    tasks.add(ring);
  }
  std::string text(const TraceRecord& r) {
    TextLines lines(formats, tasks);
    fmt::memory_buffer out;
    lines.print(r, ring, out);
    return {out.data(), out.size()};
  }
  std::string json(const TraceRecord& r) {
    JsonLines lines(formats, tasks);
    fmt::memory_buffer out;
    lines.print(r, ring, out);
    return {out.data(), out.size()};
  }
};

TEST_F(Fixture, ALineIsTheKernels) {
  const Payload p = Payload(1, 4711).put(u64{32}).put(u64{0x55});
  EXPECT_EQ(text({1234567890499, 0, p, 0}), "         cc1plus-4711    [---]  1234.567890: malloc: size=32 ptr=0x55\n");
  EXPECT_EQ(text({1234567890500, 0, p, 0}), "         cc1plus-4711    [---]  1234.567891: malloc: size=32 ptr=0x55\n");
  EXPECT_EQ(text({7, 0, p, 0}), "         cc1plus-4711    [---]     0.000000: malloc: size=32 ptr=0x55\n");
}

// Upstream's lines for remote buffers.
TEST_F(Fixture, ALineWithoutItsTask) {
  formats.add(2, "test", "selftest",
              "name: selftest\nID: 2\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
              "\tfield:unsigned long id;\toffset:2;\tsize:8;\tsigned:0;\n\nprint fmt: \"id=%lu\", REC->id\n");
  formats.add(
      3, "test", "bare",
      "name: bare\nID: 3\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\nprint fmt: \"\"\n");
  TextLines lines(formats, tasks, false, true);
  lines.show_tasks(false);
  const auto line = [&](const TraceRecord& r) {
    fmt::memory_buffer out;
    lines.print(r, ring, out);
    return std::string(out.data(), out.size());
  };
  const u8 selftest[12] = {2, 0, 0x39, 0x30}, bare[4] = {3}, unknown[4] = {9, 0, 1, 2};
  EXPECT_EQ(line({1234567890499, 0, {selftest, 12}, 0}), "[003]\t 1234.567890: selftest id=12345\n");
  EXPECT_EQ(line({7, 0, {bare, 4}, 0}), "[003]\t    0.000000: bare\n");
  EXPECT_EQ(line({7, 0, {unknown, 4}, 0}), "[003]\t    0.000000: unknown_9: 09 00 01 02\n");
  EXPECT_EQ(line({7, 5, {}, 0}), "CPU:3 [LOST 5 EVENTS]\n");
}

// "tracing_mark_write: hi there\x0a": what `echo hi there >trace_marker` writes is a line.
TEST_F(Fixture, AMarkerHasNoNewline) {
  formats.add(5, "ftrace", "print",
              "name: print\nID: 5\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
              "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
              "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n"
              "\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:1;\n\nprint fmt: \"%s\", REC->buf\n");
  const auto marker = [&](std::string_view words) {
    Payload p = Payload(5, 4711).put(u64{1});
    for (const char c : words) p.put(c);
    const std::string line = text({7, 0, p.put('\0'), 0});
    return line.substr(line.find("print: ") + 7);
  };
  EXPECT_EQ(marker("hi there\n"), "hi there\n");
  EXPECT_EQ(marker("hi there"), "hi there\n");
  EXPECT_EQ(marker("one\ntwo\n"), "one\\x0atwo\n");
  EXPECT_EQ(marker("\n"), "\n");
}

TEST_F(Fixture, AGap) { EXPECT_EQ(text({5, 1234, {}, 0}), "RING:3 [LOST 1234 EVENTS]\n"); }

TEST_F(Fixture, UnknownThreadsAndEvents) {
  EXPECT_EQ(text({7, 0, Payload(9, 5), 0}),
            "           <...>-5       [---]     0.000000: unknown_9: 09 00 00 00 05 00 00 00\n");
}

TEST_F(Fixture, JsonOfAnEvent) {
  const Payload p = Payload(1, 4711).put(u64{32}).put(~u64{0});
  EXPECT_EQ(json({1234567890499, 0, p, 0}),
            R"({"ts":1234567890499,"cpu":null,"ring":3,"pid":4700,"tid":4711,"task":"cc1plus","event":"libc:malloc",)"
            R"("fields":{"size":32,"ptr":18446744073709551615}})"
            "\n");
}

// JSON has no number for these.
TEST_F(Fixture, JsonOfRealsThatJsonHasNot) {
  formats.add(4, "app", "real",
              "name: real\nID: 4\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
              "\tfield:double value;\toffset:8;\tsize:8;\tsigned:1;\n\nprint fmt: \"value=%f\", REC->value\n");
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    EXPECT_NE(json({7, 0, Payload(4, 4711).put(value), 0}).find(R"("fields":{"value":null})"), std::string::npos) << value;
  EXPECT_NE(json({7, 0, Payload(4, 4711).put(0.5), 0}).find(R"("fields":{"value":0.5})"), std::string::npos);
}

// As pandas, DuckDB and R read them.
TEST_F(Fixture, CsvHasWordsForThem) {
  formats.add(4, "app", "real",
              "name: real\nID: 4\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
              "\tfield:double value;\toffset:8;\tsize:8;\tsigned:1;\n\nprint fmt: \"value=%f\", REC->value\n");
  CsvLines lines(formats, tasks);
  fmt::memory_buffer head;
  lines.begin([](const EventType& type) { return type.id == 4; }, head);
  const auto line = [&](double value) {
    fmt::memory_buffer out;
    lines.print({7, 0, Payload(4, 4711).put(value), 0}, ring, out);
    return std::string(out.data(), out.size());
  };
  for (const auto& [value, word] :
       {std::pair{std::nan(""), "nan"}, {-std::nan(""), "nan"}, {HUGE_VAL, "inf"}, {-HUGE_VAL, "-inf"}, {0.5, "0.5"}})
    EXPECT_NE(line(value).find(std::string(",app:real,,") + word + ","), std::string::npos) << line(value);
}

TEST_F(Fixture, JsonOfAGap) { EXPECT_EQ(json({5, 1234, {}, 0}), "{\"ts\":5,\"cpu\":null,\"ring\":3,\"lost\":1234}\n"); }

TEST_F(Fixture, JsonOfAnUnknownEventParses) {
  EXPECT_EQ(nlohmann::json::parse(json({5, 0, Payload(9, 5), 0}))["event"], "unknown:9");
}

TEST(JsonText, EverythingParses) {
  for (const std::string text :
       {"plain", "\"quoted\\\"", "tab\tnul", "\xff\xfe", "\xc3\xa4", "\xed\xa0\x80", "\xf0\x9f\x98\x80", "\xe2\x82"}) {
    fmt::memory_buffer out;
    append_json_text(text, out);
    EXPECT_TRUE(nlohmann::json::accept(std::string(out.data(), out.size()))) << text;
  }
  fmt::memory_buffer out;
  append_json_text(std::string_view("a\0b\xff\xc3\xa4", 6), out);
  EXPECT_EQ(std::string(out.data(), out.size()), "\"a\\u0000b\\ufffd\xc3\xa4\"");
}

}  // namespace
}  // namespace ringside::text_test
