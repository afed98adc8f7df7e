// The descriptions of events, judged by libtraceevent.
#include <event-parse.h>
#include <trace-seq.h>

#include <ringside/trace.hpp>

#include "../../src/schema/format_text.hpp"
#include "writer/fake_runtime.hpp"

namespace {
enum Plain { plain_minus = -1, plain_zero };
enum class Wide : ringside::u64 { top = 1ull << 63 };
}  // namespace

RINGSIDE_EVENT(schema_test, integers, (u8, a), (i8, b), (u16, c), (i16, d), (u32, e), (i32, f), (u64, g), (i64, h),
               (unsigned long, i), (long long, j));
RINGSIDE_EVENT(schema_test, others, (bool, yes), (char, letter), (float, single_), (double, double_), (Plain, plain),
               (Wide, wide), (const void*, where));
RINGSIDE_EVENT(schema_test, arrays, (ringside::array<u8, 6>, mac), (ringside::array<i16, 3>, xyz), (std::array<u32, 2>, pair),
               (ringside::array<u64, 2>, quad), (ringside::array<char, 8>, comm), (ringside::array<double, 2>, point));
RINGSIDE_EVENT(schema_test, strings, (cstring, path), (u32, n), (std::string_view, note));
RINGSIDE_EVENT(schema_test, empty);

namespace ringside {
namespace {

class Schema : public fake::Test {
 protected:
  void SetUp() override {
    fake::Test::SetUp();
    tep_ = tep_alloc();
    tep_set_long_size(tep_, 8);
    tep_set_page_size(tep_, 4096);
    std::string page = header_page_text(4096);
    ASSERT_EQ(tep_parse_header_page(tep_, page.data(), page.size(), 8), 0);
    for (auto* e : run.events) {
      std::string text = format_text(*e, e->id);
      ASSERT_EQ(tep_parse_event(tep_, text.data(), text.size(), e->system), 0) << text;
    }
  }
  void TearDown() override {
    tep_free(tep_);
    fake::Test::TearDown();
  }

  tep_record record() {
    tep_record r{};
    r.data = run.records.back().payload.data();
    r.size = static_cast<int>(run.records.back().payload.size());
    return r;
  }
  std::string printed() {
    tep_record r = record();
    trace_seq s;
    trace_seq_init(&s);
    tep_print_event(tep_, &s, &r, "%s:%s", TEP_PRINT_NAME, TEP_PRINT_INFO);
    trace_seq_terminate(&s);
    std::string text(s.buffer, s.len);
    trace_seq_destroy(&s);
    return text;
  }
  unsigned long long field(const char* name) {
    tep_record r = record();
    unsigned long long value = 0;
    EXPECT_EQ(tep_get_any_field_val(nullptr, tep_find_event_by_record(tep_, &r), name, &r, &value, 1), 0) << name;
    return value;
  }
  tep_handle* tep_ = nullptr;
};

TEST_F(Schema, TextsEqualTheKernelsToTheByte) {
  EXPECT_EQ(format_text("e", 1234, texts_of(*run.find("schema_test", "strings")).fields, "\"%d\", REC->n"),
            "name: e\n"
            "ID: 1234\n"
            "format:\n"
            "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
            "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
            "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
            "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
            "\n"
            "\tfield:__data_loc char[] path;\toffset:8;\tsize:4;\tsigned:0;\n"
            "\tfield:u32 n;\toffset:12;\tsize:4;\tsigned:0;\n"
            "\tfield:__data_loc char[] note;\toffset:16;\tsize:4;\tsigned:0;\n"
            "\n"
            "print fmt: \"%d\", REC->n\n");
  EXPECT_EQ(ringside::texts_of(*run.find("schema_test", "strings")).print,
            "\"path=%s n=%u note=%s\", __get_str(path), REC->n, __get_str(note)");
  EXPECT_NE(header_page_text(8192).find("field: char data;\toffset:16;\tsize:8176;"), std::string::npos);
  EXPECT_EQ(header_event_text().substr(0, 51), "# compressed entry header\n\ttype_len    :    5 bits\n");
}

TEST_F(Schema, EveryPrintFormatIsUnderstood) {
  for (auto* e : run.events) {
    auto* event = tep_find_event_by_name(tep_, e->system, e->name);
    ASSERT_NE(event, nullptr) << e->name;
    EXPECT_EQ(event->flags & TEP_EVENT_FL_FAILED, 0) << texts_of(*e).print;
  }
}

TEST_F(Schema, Integers) {
  run.enable("schema_test", "integers");
  schema_test::integers(255, -128, 65535, -32768, 4294967295u, -2147483647 - 1, ~0ull, INT64_MIN, 5, -5);
  EXPECT_EQ(printed(),
            "integers:a=255 b=-128 c=65535 d=-32768 e=4294967295 f=-2147483648 g=18446744073709551615 "
            "h=-9223372036854775808 i=5 j=-5");
  EXPECT_EQ(field("g"), ~0ull);
  EXPECT_EQ(static_cast<i64>(field("h")), INT64_MIN);
  EXPECT_EQ(field("common_pid"), 42u);
}

TEST_F(Schema, FloatingPointIsItsBits) {
  run.enable("schema_test", "others");
  schema_test::others(true, 'x', 1.0f, -2.0, plain_minus, Wide::top,
                      reinterpret_cast<void*>(static_cast<uintptr_t>(0x7f00dead0000)));
  EXPECT_EQ(printed(), "others:yes=1 letter=x single=0x3f800000 double=0xc000000000000000 plain=" +
                           std::to_string(std::is_signed_v<std::underlying_type_t<Plain>> ? -1ll : 4294967295ll) +
                           " wide=9223372036854775808 where=" + (sizeof(void*) == 8 ? "0x7f00dead0000" : "0xdead0000"));
  u64 bits = field("double");
  double value;
  std::memcpy(&value, &bits, 8);
  EXPECT_EQ(value, -2.0);
}

TEST_F(Schema, Arrays) {
  run.enable("schema_test", "arrays");
  schema_test::arrays({2, 0, 0, 0, 0, 0xfe}, {1, -1, 3}, {7, 8}, {1, 1ull << 40}, {'l', 'o', 'o', 'p'}, {1.0, 0.5});
  const std::string text = printed();
  if (text.find('{') == std::string::npos)  // libtraceevent 1.7
    EXPECT_EQ(text,
              "arrays:mac=02 00 00 00 00 fe xyz=1 65535 3 pair=7 8 quad=1 1099511627776 comm=loop "
              "point=4607182418800017408 4602678819172646912");
  else  // 1.8
    EXPECT_EQ(text,
              "arrays:mac=02 00 00 00 00 fe xyz={0x1,0xffff,0x3} pair={0x7,0x8} quad={0x1,0x10000000000} comm=loop "
              "point={0x3ff0000000000000,0x3fe0000000000000}");
}

TEST_F(Schema, Strings) {
  run.enable("schema_test", "strings");
  schema_test::strings("/etc/hosts", 3, "a b");
  EXPECT_EQ(printed(), "strings:path=/etc/hosts n=3 note=a b");
  schema_test::strings(nullptr, 4, "");
  EXPECT_EQ(printed(), "strings:path=(null) n=4 note=");
}

TEST_F(Schema, NoFields) {
  run.enable("schema_test", "empty");
  schema_test::empty();
  EXPECT_EQ(printed(), "empty:");
}

TEST_F(Schema, ReadyMadeEvents) {
  for (auto name : {"marker", "span", "track_span", "counter"}) run.enable("ringside", name);
  marker("%s", "hello, ring");
  EXPECT_EQ(printed(), "marker:hello, ring");
  span_begin("parse");
  EXPECT_EQ(printed(), "span:track_event_type=B slice_name=parse");
  instant("miss", "cache");
  EXPECT_EQ(printed(), "track_span:track_event_type=I slice_name=miss track_name=cache");
  counter("depth", -1);
  EXPECT_EQ(printed(), "counter:counter_value=-1 track_name=depth");
}

}  // namespace
}  // namespace ringside
