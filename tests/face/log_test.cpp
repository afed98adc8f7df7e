// RINGSIDE_LOG: which event a call declares, what it writes, and what its format says.
#include <gmock/gmock.h>

#include <chrono>
#include <ringside/log.hpp>
#include <string>

#include "writer/fake_runtime.hpp"

namespace log_test {
enum class State : short { open = -1, paid = 5 };
struct Order {
  int id;
  std::string name;
};
struct Price {
  unsigned cents;
};
}  // namespace log_test
template <>
struct ringside::field<log_test::Price> {
  static u32 get(const log_test::Price& p) noexcept { return p.cents; }
};
RINGSIDE_ENUM(log_test::State, open, paid);

namespace ringside {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;

struct Log : fake::Test {
  void SetUp() override {
    fake::Test::SetUp();
    for (const char* level : {"trace", "debug", "info", "warn", "error", "fatal"}) run.enable("log", level);
  }
  // The texts of the event that was written last.
  EventTexts texts() const { return texts_of(*run.records.back().event); }
  // Its print format without the place in front.
  std::string print() const {
    const std::string all = texts().print;
    return '"' + all.substr(all.find(": ") + 2);
  }
};

TEST_F(Log, AMessageIsAnEventOfItsLevelWithItsValuesAndAFormat) {
  const int i = 3;
  const u64 n = 7;
  RINGSIDE_LOG(warn, "took {} of {}", i, n);
  const int line = __LINE__ - 1;
  ASSERT_EQ(run.records.size(), 1u);
  const auto& r = run.records[0];
  EXPECT_STREQ(r.event->system, "log");
  EXPECT_STREQ(r.event->name, "warn");
  EXPECT_EQ(texts().fields,
            "\tfield:s32 i;\toffset:8;\tsize:4;\tsigned:1;\n"
            "\tfield:u64 n;\toffset:16;\tsize:8;\tsigned:0;\n"
            "\tfield:ringside_level level;\toffset:24;\tsize:1;\tsigned:0;\n");
  EXPECT_EQ(texts().print, "\"log_test.cpp:" + std::to_string(line) + ": took %d of %llu\", REC->i, REC->n");
  EXPECT_EQ(r.at<i32>(8), 3);
  EXPECT_EQ(r.at<u64>(16), 7u);
  EXPECT_EQ(r.at<u8>(24), static_cast<u8>(log_level::warn));
}

TEST_F(Log, TheTextOfAMessageIsQuotedForAFormat) {
  RINGSIDE_LOG(info, "100 % \"sure\" {{}} a\\b\nc");
  EXPECT_EQ(print(), "\"100 %% \\\"sure\\\" {} a\\\\b\\nc\"");
  EXPECT_EQ(texts().fields, "\tfield:ringside_level level;\toffset:8;\tsize:1;\tsigned:0;\n");
}

TEST_F(Log, AFieldHasTheNameOfItsVariableOrMember) {
  const log_test::Order order{5, "Ada"}, *const pointer = &order;
  const int common_pid = 1, level = 2, arg2 = 3;
  RINGSIDE_LOG(info, "{} {} {} {} {} {} {}", order.id, pointer->name, order.id + 1, order.id, common_pid, level, arg2);
  EXPECT_THAT(print(), EndsWith("REC->id, __get_str(name), REC->arg3, REC->arg4, REC->arg5, REC->arg6, REC->arg7"));
}

template <int a, int b>
int sum(int x) {
  return a + b + x;
}
template <class... T>
void log_both(const T&... value) {
  RINGSIDE_LOG(info, "{} {}", value...);
}
TEST_F(Log, WhereACommaHidesTheNamesFieldsAreNumbered) {
  const int x = 1, y = 2, z = 3;
  RINGSIDE_LOG(info, "{} {} {}", sum<1, 2>(x), y, z);
  EXPECT_THAT(print(), EndsWith("REC->arg1, REC->arg2, REC->arg3"));
  EXPECT_EQ(run.records.back().at<i32>(8), 4);
  log_both(y, z);
  EXPECT_THAT(print(), EndsWith("REC->arg1, REC->arg2"));
  EXPECT_EQ(run.records.back().at<i32>(12), 3);
}

TEST_F(Log, NoFieldHasTheNameOfAKeyword) {
  RINGSIDE_LOG(info, "{} {} {}", true, false, nullptr);
  EXPECT_THAT(print(), EndsWith("REC->arg1 ? \"true\" : \"false\", REC->arg2 ? \"true\" : \"false\", REC->arg3"));
}

TEST_F(Log, EachTypeHasItsConversion) {
  const bool b = true;
  const char c = 'x';
  const double d = 0.1;
  const float f = 0.5F;
  const std::string s = "text";
  char buffer[8] = "buffer";
  const log_test::State state = log_test::State::paid;
  const log_test::Price price{199};
  const std::chrono::milliseconds ms{5};
  const void* const address = nullptr;
  const array<u16, 2> both{1, 2};
  RINGSIDE_LOG(info, "{} {} {} {} {} {} {} {} {} {} {}", b, c, d, f, s, buffer, state, price, ms, address, both);
  EXPECT_EQ(print(),
            "\"%s %s 0x%llx 0x%x %s %s %s %u %lld 0x%llx %s\", REC->b ? \"true\" : \"false\", REC->c, REC->d, REC->f, "
            "__get_str(s), __get_str(buffer), __print_symbolic(REC->state, { -1, \"open\" }, { 5, \"paid\" }), REC->price, "
            "REC->ms, REC->address, __print_array(REC->both, 2, 2)");
}

TEST_F(Log, FmtsSpecsBecomeThoseOfPrintf) {
  const int i = -5;
  const u8 byte = 7;
  const double d = 2.5;
  const std::string s = "s";
  RINGSIDE_LOG(info, "{:5}|{:<5}|{:05}|{:+}|{:#x}|{:X}|{:o}", i, i, i, i, byte, byte, byte);
  EXPECT_THAT(print(), testing::StartsWith("\"%5d|%-5d|%05d|%+d|%#hhx|%hhX|%hho\""));
  RINGSIDE_LOG(info, "{:.3f}|{:8.1e}|{:<8.3g}|{:10}|{:08.2f}", d, d, d, d, d);
  EXPECT_THAT(print(), testing::StartsWith("\"%.3f|%8.1e|%-8.3g|0x%10llx|%08.2f\""));
  RINGSIDE_LOG(info, "{:5}|{:>5}|{:<5s}|{:.2}|{:>5.2}", s, s, s, s, s);
  EXPECT_THAT(print(), testing::StartsWith("\"%-5s|%5s|%-5s|%.2s|%5.2s\""));
  RINGSIDE_LOG(info, "{1} {0:x} {1:>3}", i, s);
  EXPECT_EQ(print(), "\"%s %x %3s\", __get_str(s), REC->i, __get_str(s)");
}

TEST_F(Log, NoFieldIsWiderThanReadersPadIt) {
  const ringside_field number{"n", RINGSIDE_SIGNED, 4, 0, 8, nullptr}, real{"d", RINGSIDE_FLOAT, 8, 0, 8, nullptr};
  using log_format::Fault;
  EXPECT_EQ(log_format::fault_of("{:255}", &number, 1), Fault::none);
  EXPECT_EQ(log_format::fault_of("{:256}", &number, 1), Fault::syntax);
  EXPECT_EQ(log_format::fault_of("{:.255f}", &real, 1), Fault::none);
  EXPECT_EQ(log_format::fault_of("{:.256f}", &real, 1), Fault::syntax);
}

TEST_F(Log, ADisabledLevelEvaluatesNothing) {
  int evaluated = 0;
  run.enable("log", "debug", false);
  RINGSIDE_LOG(debug, "{}", ++evaluated);
  RINGSIDE_LOG_FIRST(debug, 1, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
  EXPECT_TRUE(run.records.empty());
  run.enable("log", "debug");
  RINGSIDE_LOG(debug, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 1);
}

TEST_F(Log, TheFirstNOfACall) {
  for (int i = 0; i < 10; ++i) RINGSIDE_LOG_FIRST(error, 3, "{}", i);
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_EQ(run.records[2].at<i32>(8), 2);
}

TEST_F(Log, AFirstNBelowOneIsNone) {
  for (const int n : {0, -1}) RINGSIDE_LOG_FIRST(error, n, "{}", n);
  RINGSIDE_LOG_FIRST(error, -1, "no value");
  EXPECT_TRUE(run.records.empty());
}

TEST_F(Log, EachNthOfACall) {
  for (int i = 0; i < 10; ++i) RINGSIDE_LOG_EVERY(info, 4, "{}", i);
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_EQ(run.records[1].at<i32>(8), 4);
  EXPECT_EQ(run.records[2].at<i32>(8), 8);
}

TEST_F(Log, OncePerDuration) {
  for (int i = 0; i < 10; ++i) RINGSIDE_LOG_EVERY(info, 24h, "{}", i);
  EXPECT_EQ(run.records.size(), 1u);
  run.records.clear();
  for (int i = 0; i < 10; ++i) RINGSIDE_LOG_EVERY(info, 0ns, "{}", i);
  EXPECT_EQ(run.records.size(), 10u);
}

template <class T>
void log_any(const T& value) {
  RINGSIDE_LOG(info, "any {}", value);
}
TEST_F(Log, InATemplateEachTypeIsAnEventOfItsOwn) {
  log_any(1);
  log_any(2.5);
  log_any(std::string("three"));
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_EQ(run.records[0].at<i32>(8), 1);
  EXPECT_EQ(run.records[1].at<double>(8), 2.5);
  EXPECT_EQ(run.records[2].text(8), "three");
}

#undef RINGSIDE_LOG_SYSTEM
#define RINGSIDE_LOG_SYSTEM "net"
TEST_F(Log, AnotherNameInFrontOfTheLevel) {
  RINGSIDE_LOG(warn, "not yet");
  EXPECT_TRUE(run.records.empty());
  run.enable("net", "warn");
  RINGSIDE_LOG(warn, "here");
  EXPECT_EQ(run.records.size(), 1u);
}

}  // namespace
}  // namespace ringside
