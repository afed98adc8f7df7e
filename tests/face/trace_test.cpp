#include <ringside/trace.hpp>

#include <sys/socket.h>

#include "writer/fake_runtime.hpp"

namespace {
enum class Colour : ringside::u16 { red = 7 };
}

RINGSIDE_EVENT(trace_test, mixed, (u8, tag), (u64, flow), (ringside::cstring, path), (double, ratio), (Colour, colour),
               (ringside::array<u8, 6>, mac), (std::string_view, note), (bool, last));
RINGSIDE_EVENT(trace_test, empty);
RINGSIDE_EVENT(trace_test, stacked, (u8, tag), (ringside::stack, calls), (cstring, note));
RINGSIDE_EVENT(trace_test, never_called, (int, x));
RINGSIDE_EVENT(trace_test, three, (cstring, a), (cstring, b), (cstring, c));
RINGSIDE_EVENT(trace_test, owned, (std::string, path), (u8, tag));
RINGSIDE_EVENT(socket_, delete_, (u32, class_));  // socket() is a function, the other two are keywords
RINGSIDE_EVENT(trace_test, many, (u8, f1), (u8, f2), (u8, f3), (u8, f4), (u8, f5), (u8, f6), (u8, f7), (u8, f8), (u8, f9),
               (u8, f10), (u8, f11), (u8, f12), (u8, f13), (u8, f14), (u8, f15), (u8, f16), (u8, f17), (u8, f18), (u8, f19),
               (u8, f20), (u8, f21), (u8, f22), (u8, f23), (u8, f24), (u8, f25), (u8, f26), (u8, f27), (u8, f28), (u8, f29),
               (u8, f30), (u8, f31), (u8, f32));

namespace ringside {
namespace {

struct Trace : fake::Test {};

TEST_F(Trace, AnEventIsKnownBeforeItsFirstCall) {
  ASSERT_NE(run.find("trace_test", "never_called"), nullptr);
  EXPECT_EQ(ringside::texts_of(*run.find("trace_test", "never_called")).fields,
            "\tfield:s32 x;\toffset:8;\tsize:4;\tsigned:1;\n");
}

TEST_F(Trace, TheGateIsTheHashOfTheFullName) {
  u32 hash = 2166136261u;
  for (char c : std::string_view("trace_test:mixed")) hash = (hash ^ static_cast<u8>(c)) * 16777619u;
  EXPECT_EQ(trace_test::ringside_mixed::Call::gate, hash & 4095);
  std::string long_name(200, 'x');
  hash = 2166136261u;
  for (char c : "s:" + long_name) hash = (hash ^ static_cast<u8>(c)) * 16777619u;
  EXPECT_EQ(ringside_gate_of("s", long_name.c_str()), hash & 4095);
}

TEST_F(Trace, DisabledWritesNothing) {
  trace_test::empty();
  EXPECT_FALSE(trace_test::empty.enabled());
  run.enable("trace_test", "empty");
  run.words[run.find("trace_test", "empty")->id - 1] = 0;  // another event with this hash is enabled
  trace_test::empty();
  EXPECT_TRUE(run.records.empty());
}

TEST_F(Trace, FieldsLieWhereTheFormatSays) {
  run.enable("trace_test", "mixed");
  EXPECT_TRUE(trace_test::mixed.enabled());
  trace_test::mixed(1, 0x123456789abcdefull, "/tmp/x", 0.25, Colour::red, {1, 2, 3, 4, 5, 6}, std::string_view("notes", 4),
                    true);
  ASSERT_EQ(run.records.size(), 1u);
  auto& r = run.records[0];
  EXPECT_EQ(r.at<u8>(8), 1);
  EXPECT_EQ(r.at<u64>(16), 0x123456789abcdefull);
  EXPECT_EQ(r.text(24), "/tmp/x");
  EXPECT_EQ(r.at<double>(32), 0.25);
  EXPECT_EQ(r.at<u16>(40), 7);
  EXPECT_EQ((r.at<array<u8, 6>>(42)), (array<u8, 6>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(r.text(48), "note");
  EXPECT_EQ(r.at<u8>(52), 1);
  EXPECT_EQ(r.payload.size(), 53u + 7 + 5);
}

TEST_F(Trace, AFieldMayBeAStack) {
  EXPECT_EQ(ringside::texts_of(*run.find("trace_test", "stacked")).fields,
            "\tfield:u8 tag;\toffset:8;\tsize:1;\tsigned:0;\n"
            "\tfield:ringside_stack calls;\toffset:16;\tsize:8;\tsigned:0;\n"
            "\tfield:__data_loc char[] note;\toffset:24;\tsize:4;\tsigned:0;\n");
  trace_test::stacked(1, stack{}, "no");
  EXPECT_EQ(run.caller, 0u) << "taken although the event is disabled";
  run.enable("trace_test", "stacked");
  trace_test::stacked(1, stack{}, "yes");
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].at<u64>(16), 0x57acu);
  EXPECT_EQ(run.records[0].text(24), "yes");
  EXPECT_NE(run.caller, 0u);
  run.caller = 0;
}

// The high half of an event's id says that it is to have a stack behind its fields, whatever these are.
TEST_F(Trace, AnyEventMayGetAStack) {
  ringside_event* const mixed = run.find("trace_test", "mixed");
  const u32 id = mixed->id;
  run.enable("trace_test", "mixed");
  mixed->id = id | 56u << 16;
  const std::string longest(5000, 'x');
  trace_test::mixed(1, 2, longest.c_str(), 0.25, Colour::red, {1, 2, 3, 4, 5, 6}, std::string_view("notes", 4), true);
  mixed->id = id;
  ASSERT_EQ(run.records.size(), 1u);
  auto& r = run.records[0];
  EXPECT_EQ(r.at<u8>(52), 1);
  EXPECT_EQ(r.at<u64>(56), 0x57acu);
  EXPECT_EQ(r.at<u32>(24) & 0xFFFF, 64u);
  EXPECT_EQ(r.text(24), longest.substr(0, r.text(24).size()));
  EXPECT_EQ(r.text(48), "");
  EXPECT_LE(r.payload.size(), size_t{RINGSIDE_PAYLOAD_MAX});
  EXPECT_GE(r.payload.size(), size_t{RINGSIDE_PAYLOAD_MAX} - 8);
}

TEST_F(Trace, StringsOfTheStandardLibrary) {
  EXPECT_EQ(
      ringside::texts_of(*run.find("trace_test", "owned")).fields,
      "\tfield:__data_loc char[] path;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u8 tag;\toffset:12;\tsize:1;\tsigned:0;\n");
  run.enable("trace_test", "owned");
  trace_test::owned(std::string(100, 'x'), 7);
  trace_test::owned("short", 8);
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_EQ(run.records[0].text(8), std::string(100, 'x'));
  EXPECT_EQ(run.records[0].at<u8>(12), 7);
  EXPECT_EQ(run.records[1].text(8), "short");
}

TEST_F(Trace, AnUnderscoreAtTheEndOfANameIsNotShown) {
  ringside_event* const event = run.find("socket", "delete");
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(socket_::ringside_delete_::Call::gate, ringside_gate_of("socket", "delete"));
  EXPECT_EQ(ringside::texts_of(*event).fields, "\tfield:u32 class;\toffset:8;\tsize:4;\tsigned:0;\n");
  EXPECT_EQ(ringside::texts_of(*event).print, "\"class=%u\", REC->class");
  run.enable("socket", "delete");
  socket_::delete_(5);
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].at<u32>(8), 5u);
}

int times_evaluated = 0;
int counted(int value) { return ++times_evaluated, value; }
void declared_here(int length, const std::string& text) {
  char* const nothing = nullptr;
  RINGSIDE_TRACE("trace_here", "packet_in", ("length", counted(length)), ("flow", u64{1} << 40), ("text", text),
                 ("literal", "four"), ("colour", Colour::red), ("null", nothing), ("at", &times_evaluated));
}

TEST_F(Trace, AnEventDeclaredWhereItIsWritten) {
  ringside_event* const event = run.find("trace_here", "packet_in");
  ASSERT_NE(event, nullptr) << "it is known before its first call";
  EXPECT_EQ(
      ringside::texts_of(*event).fields,
      std::string{"\tfield:s64 length;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:s64 flow;\toffset:16;\tsize:8;\tsigned:1;\n"
                  "\tfield:__data_loc char[] text;\toffset:24;\tsize:4;\tsigned:0;\n\tfield:__data_loc char[] "
                  "literal;\toffset:28;\tsize:4;\tsigned:0;\n"
                  "\tfield:u16 colour;\toffset:32;\tsize:2;\tsigned:0;\n\tfield:__data_loc char[] "
                  "null;\toffset:36;\tsize:4;\tsigned:0;\n"} +
          "\tfield:void * at;\toffset:40;\tsize:" + std::to_string(sizeof(void*)) + ";\tsigned:0;\n");
  declared_here(1, "a");
  EXPECT_EQ(times_evaluated, 0) << "values of a disabled event are not evaluated";
  run.enable("trace_here", "packet_in");
  declared_here(1500, "eth0");
  EXPECT_EQ(times_evaluated, 1);
  ASSERT_EQ(run.records.size(), 1u);
  const auto& r = run.records[0];
  EXPECT_EQ(r.at<i64>(8), 1500);
  EXPECT_EQ(r.at<u64>(16), u64{1} << 40);
  EXPECT_EQ(r.text(24), "eth0");
  EXPECT_EQ(r.text(28), "four");
  EXPECT_EQ(r.at<u16>(32), 7);
  EXPECT_EQ(r.text(36), "(null)");
  EXPECT_EQ(r.at<const void*>(40), &times_evaluated);
  RINGSIDE_TRACE("trace_here", "no_fields");
  EXPECT_EQ(run.records.size(), 1u);
  EXPECT_NE(run.find("trace_here", "no_fields"), nullptr);
}

TEST_F(Trace, ARefusedEventIsSilent) {
  run.enable("trace_test", "three");
  run.refuse = true;
  trace_test::three("a", "b", "c");
  EXPECT_TRUE(run.records.empty());
}

TEST_F(Trace, NullAndEmptyStrings) {
  run.enable("trace_test", "three");
  run.enable("trace_test", "mixed");
  trace_test::three(nullptr, "", "c");
  trace_test::mixed(0, 0, nullptr, 0, Colour::red, {}, {}, false);
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_EQ(run.records[0].text(8), "(null)");
  EXPECT_EQ(run.records[0].text(12), "");
  EXPECT_EQ(run.records[0].text(16), "c");
  EXPECT_EQ(run.records[1].text(48), "");
}

TEST_F(Trace, LongStringsShareTheRoomInOrder) {
  run.enable("trace_test", "three");
  std::string a(2000, 'a'), b(9000, 'b');
  trace_test::three(a.c_str(), b.c_str(), "c");
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].payload.size(), 4000u);
  EXPECT_EQ(run.records[0].text(8), a);
  EXPECT_EQ(run.records[0].text(12), std::string(4000 - 20 - 2000 - 3, 'b'));
  EXPECT_EQ(run.records[0].text(16), "");
  trace_test::three(b.c_str(), "b", "c");
  EXPECT_EQ(run.records[1].payload.size(), 4000u);
}

TEST_F(Trace, ThirtyTwoFields) {
  run.enable("trace_test", "many");
  trace_test::many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
                   30, 31, 32);
  ASSERT_EQ(run.records.size(), 1u);
  for (u32 i = 1; i <= 32; ++i) EXPECT_EQ(run.records[0].at<u8>(7 + i), i);
}

TEST_F(Trace, MarkersFormatOnlyWhenEnabled) {
  int times = 0;
  RINGSIDE_MARKER("%d", ++times);
  EXPECT_EQ(times, 0);
  run.enable("ringside", "marker");
  RINGSIDE_MARKER("took %d%%", ++times);
  marker("%s is %.2f", "half", 0.5);
  marker("%s", std::string(5000, 'x').c_str());
  ASSERT_EQ(run.records.size(), 3u);
  constexpr size_t text_at = 8 + sizeof(void*);
  EXPECT_EQ(run.records[0].text(text_at), "took 1%");
  EXPECT_NE(run.records[0].at<uintptr_t>(8), 0u);
  EXPECT_EQ(run.records[1].text(text_at), "half is 0.50");
  EXPECT_EQ(run.records[2].text(text_at), std::string(1023, 'x'));
}

TEST_F(Trace, SpansInstantsCounters) {
  for (auto name : {"span", "track_span", "counter"}) run.enable("ringside", name);
  {
    scope s{"outer"};
    span_begin("inner", "gpu");
    span_end("inner", "gpu");
    instant("here");
    counter("depth", -3);
  }
  ASSERT_EQ(run.records.size(), 6u);
  std::string kinds;
  for (auto i : {0, 1, 2, 3, 5}) kinds += run.records[i].at<char>(8);
  EXPECT_EQ(kinds, "BBEIE");
  EXPECT_EQ(run.records[0].text(12), "outer");
  EXPECT_EQ(run.records[1].text(16), "gpu");
  EXPECT_EQ(run.records[4].at<i64>(8), -3);
  EXPECT_EQ(run.records[4].text(16), "depth");
  EXPECT_EQ(run.records[5].text(12), "outer");
}

TEST_F(Trace, NoEndWithoutABegin) {
  {
    scope s{"late"};
    run.enable("ringside", "span");
  }
  EXPECT_TRUE(run.records.empty());
  {
    scope s{"cut"};
    run.enable("ringside", "span", false);
  }
  EXPECT_EQ(run.records.size(), 1u);
}

}  // namespace
}  // namespace ringside
