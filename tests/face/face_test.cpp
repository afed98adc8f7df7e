// What is built on events: spans with arguments, spans that cross threads, names of enums, types of the program's own.
#include <gmock/gmock.h>

#include <chrono>
#include <ringside/trace.hpp>
#include <string>
#include <utility>

#include "writer/fake_runtime.hpp"

namespace face_test {
enum class State : short { open = -1, paid = 5, lost };
enum Plain { zero, one };
struct Slice {
  const char* data;
  size_t size;
};
struct Price {
  ringside::u32 cents;
};
struct Timeout {
  std::chrono::milliseconds value;
};
struct Order {
  Price price;
  char more[28];
};
}  // namespace face_test

template <>
struct ringside::field<face_test::Timeout> {
  static std::chrono::milliseconds get(const face_test::Timeout& t) noexcept { return t.value; }
};
template <>
struct ringside::field<face_test::Order> {
  static face_test::Price get(const face_test::Order& o) noexcept { return o.price; }
};
template <>
struct ringside::field<face_test::Slice> {
  static std::string_view get(const face_test::Slice& s) noexcept { return {s.data, s.size}; }
};
template <>
struct ringside::field<face_test::Price> {
  static u32 get(const face_test::Price& p) noexcept { return p.cents; }
};
RINGSIDE_ENUM(face_test::State, open, paid, lost);
RINGSIDE_ENUM(face_test::Plain, zero, one);

RINGSIDE_EVENT(face_test, order, (State, state), (Slice, key), (Price, price), (Plain, plain),
               (std::chrono::milliseconds, took), (std::chrono::system_clock::time_point, at));
RINGSIDE_EVENT(face_test, numbers, (State, state), (Price, price), (std::chrono::duration<double>, took));
RINGSIDE_SPAN(face_test_db, query, (cstring, sql), (std::string, user), (u32, rows), (face_test::Price, price));
RINGSIDE_SPAN(face_test_db, delete_);
RINGSIDE_SPAN(face_test_db, Span, (u32, type), (u32, write), (bool, begun), (u32, ringside_begun));
RINGSIDE_EVENT(face_test, nested, (face_test::Timeout, timeout), (face_test::Order, order));
RINGSIDE_EVENT(face_test, del__, (u32, x__));

namespace ringside {
namespace {

struct Face : fake::Test {};

TEST_F(Face, TypesOfTheProgramsOwn) {
  using namespace std::chrono_literals;
  ringside_event* const event = run.find("face_test", "order");
  ASSERT_NE(event, nullptr);
  const EventTexts texts = texts_of(*event);
  EXPECT_EQ(texts.fields,
            "\tfield:s16 state;\toffset:8;\tsize:2;\tsigned:1;\n"
            "\tfield:__data_loc char[] key;\toffset:12;\tsize:4;\tsigned:0;\n"
            "\tfield:u32 price;\toffset:16;\tsize:4;\tsigned:0;\n"
            "\tfield:u32 plain;\toffset:20;\tsize:4;\tsigned:0;\n"
            "\tfield:s64 took;\toffset:24;\tsize:8;\tsigned:1;\n"
            "\tfield:s64 at;\toffset:32;\tsize:8;\tsigned:1;\n");
  EXPECT_EQ(texts.print,
            "\"state=%s key=%s price=%u plain=%s took=%lld at=%lld\", "
            "__print_symbolic(REC->state, { -1, \"open\" }, { 5, \"paid\" }, { 6, \"lost\" }), __get_str(key), REC->price, "
            "__print_symbolic(REC->plain, { 0, \"zero\" }, { 1, \"one\" }), REC->took, REC->at");
  run.enable("face_test", "order");
  face_test::order(face_test::State::paid, {"abcdef", 3}, {1999}, face_test::one, 1500ms,
                   std::chrono::system_clock::time_point(2s));
  ASSERT_EQ(run.records.size(), 1u);
  const auto& r = run.records[0];
  EXPECT_EQ(r.at<int16_t>(8), 5);
  EXPECT_EQ(r.text(12), "abc");
  EXPECT_EQ(r.at<u32>(16), 1999u);
  EXPECT_EQ(r.at<u32>(20), 1u);
  EXPECT_EQ(r.at<i64>(24), 1'500'000'000);
  EXPECT_EQ(r.at<i64>(32), 2'000'000'000);
}

TEST_F(Face, TypesOfTheProgramsOwnAmongNumbersAlone) {
  run.enable("face_test", "numbers");
  face_test::numbers(face_test::State::open, {7}, std::chrono::duration<double>(0.25));
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].at<int16_t>(8), -1);
  EXPECT_EQ(run.records[0].at<u32>(12), 7u);
  EXPECT_EQ(run.records[0].at<i64>(16), 250'000'000);
}

TEST_F(Face, AnEventThatIsNotEnabledIsNotWrittenThoughAnotherOpensItsGate) {
  ringside_gate[face_test::ringside_numbers::Call::gate] = 1;
  face_test::numbers(face_test::State::open, {7}, std::chrono::duration<double>(0.25));
  ringside_gate[face_test::ringside_order::Call::gate] = 1;
  face_test::order({}, {"", 0}, {1}, face_test::one, {}, {});
  EXPECT_TRUE(run.records.empty());
}

TEST_F(Face, AFieldOfAFieldIsWrittenAsTheLastOne) {
  using namespace std::chrono_literals;
  run.enable("face_test", "nested");
  face_test::nested({2s}, {{7}, {}});
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].payload.size(), 20u);
  EXPECT_EQ(run.records[0].at<i64>(8), 2'000'000'000);
  EXPECT_EQ(run.records[0].at<u32>(16), 7u);
  EXPECT_EQ(field<std::chrono::milliseconds>::get(std::chrono::milliseconds::max()), INT64_MAX);
  EXPECT_EQ(field<std::chrono::milliseconds>::get(std::chrono::milliseconds::min()), -INT64_MAX);
  EXPECT_EQ(field<std::chrono::duration<double>>::get(std::chrono::duration<double>(1e300)), INT64_MAX);
}

TEST_F(Face, ASpansFieldsMayHaveAnyName) {
  run.enable("face_test_db", "Span");
  { face_test_db::Span span{7777, 1, false, 2}; }
  ASSERT_EQ(run.records.size(), 2u);
  for (const auto& r : run.records) {
    EXPECT_EQ(r.at<u32>(16), 7777u);
    EXPECT_EQ(r.at<u32>(20), 1u);
    EXPECT_EQ(r.at<bool>(24), false);
    EXPECT_EQ(r.at<u32>(28), 2u);
  }
}

TEST_F(Face, OneUnderscoreIsTakenOffAName) {
  ASSERT_NE(run.find("face_test", "del_"), nullptr);
  EXPECT_EQ(texts_of(*run.find("face_test", "del_")).fields, "\tfield:u32 x_;\toffset:8;\tsize:4;\tsigned:0;\n");
  EXPECT_EQ(face_test::ringside_del__::Call::gate, ringside_gate_of("face_test", "del__"));
}

TEST_F(Face, ASpanHasItsArgumentsAtBothEnds) {
  run.enable("face_test_db", "query");
  {
    const std::string user = "ada";
    face_test_db::query span{"SELECT", user, 0, {3}};
    span.rows = 17;
    span.sql = "SELECT 1";
    span.price = {4};
  }
  ASSERT_EQ(run.records.size(), 2u);
  for (u32 i : {0u, 1u}) {
    const auto& r = run.records[i];
    EXPECT_EQ(r.at<char>(8), "BE"[i]);
    EXPECT_EQ(r.text(12), "query");
    EXPECT_EQ(r.text(16), i == 0 ? "SELECT" : "SELECT 1");
    EXPECT_EQ(r.text(20), "ada");
    EXPECT_EQ(r.at<u32>(24), i == 0 ? 0u : 17u);
    EXPECT_EQ(r.at<u32>(28), i == 0 ? 3u : 4u);
  }
}

TEST_F(Face, ASpanOfACategoryEndsOnlyIfItBegan) {
  {
    face_test_db::delete_ span;
    run.enable("face_test_db", "delete");
  }
  EXPECT_TRUE(run.records.empty());
  {
    face_test_db::query disabled("", "", 0, {});
    face_test_db::delete_ span;
  }
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_EQ(run.records[1].text(12), "delete");
}

struct Store {
  int get(int key) {
    RINGSIDE_FUNCTION();
    return key;
  }
  template <class T>
  std::pair<T, T> both(T a) const {
    RINGSIDE_FUNCTION();
    return {a, a};
  }
};

TEST_F(Face, AFunctionIsASpanOfItsName) {
  run.enable("ringside", "span");
  Store store;
  store.get(1);
  store.both(2);
  ASSERT_EQ(run.records.size(), 4u);
  EXPECT_THAT(run.records[0].text(12), testing::EndsWith("::Store::get"));
  EXPECT_EQ(run.records[1].text(12), run.records[0].text(12));
  EXPECT_THAT(run.records[2].text(12), testing::EndsWith("::Store::both"));
  EXPECT_EQ(detail::function_name("int ringside::(anonymous namespace)::Store::get(int)", "get"),
            "ringside::(anonymous namespace)::Store::get");
  EXPECT_EQ(detail::function_name("std::map<int, int> K<T>::f(int) [with T = int]", "f"), "K<T>::f");
  EXPECT_EQ(detail::function_name("int (* f())(int)", "f"), "f");
  EXPECT_EQ(detail::function_name("char *ns::name(int)", "name"), "ns::name");
  EXPECT_EQ(detail::function_name("decltype(auto) ns::g(int)", "g"), "ns::g");
  EXPECT_EQ(detail::function_name("main", "main"), "main");
}

TEST_F(Face, AnAsyncSpanEndsOnceWhereverItIs) {
  run.enable("ringside", "async_span");
  async_span kept;
  {
    async_span first{"request", 7};
    async_instant("request", 7);
    async_span moved{std::move(first)};
    kept = std::move(moved);
  }
  EXPECT_EQ(run.records.size(), 2u);
  kept.end();
  kept.end();
  ASSERT_EQ(run.records.size(), 3u);
  for (u32 i : {0u, 1u, 2u}) {
    EXPECT_EQ(run.records[i].at<char>(8), "BIE"[i]);
    EXPECT_EQ(run.records[i].text(12), "request");
    EXPECT_EQ(run.records[i].at<u64>(16), 7u);
  }
  kept = async_span{"other", 1};
  kept = async_span{"third", 2};
  EXPECT_EQ(run.records.size(), 6u) << "what another one replaces ends";
  EXPECT_EQ(run.records[5].text(12), "other");
}

TEST_F(Face, AFrameEndsWithTheNext) {
  const auto mark = [] { RINGSIDE_FRAME("render"); };
  mark();
  EXPECT_TRUE(run.records.empty());
  run.enable("ringside", "async_span");
  mark();
  mark();
  ASSERT_EQ(run.records.size(), 3u);
  for (u32 i : {0u, 1u, 2u}) {
    EXPECT_EQ(run.records[i].at<char>(8), "BEB"[i]);
    EXPECT_EQ(run.records[i].text(12), "render");
    EXPECT_EQ(run.records[i].at<u64>(16), i < 2 ? 1u : 2u);
  }
}

TEST_F(Face, AFlowConnectsSpansAndInstants) {
  run.enable("ringside", "flow_span");
  {
    scope span{"handle", flow{9}};
    instant("sent", flow{9});
  }
  ASSERT_EQ(run.records.size(), 3u);
  for (u32 i : {0u, 1u, 2u}) {
    EXPECT_EQ(run.records[i].at<char>(8), "BIE"[i]);
    EXPECT_EQ(run.records[i].text(12), i == 1 ? "sent" : "handle");
    EXPECT_EQ(run.records[i].at<u64>(16), 9u);
  }
  static_assert(!std::is_constructible_v<scope, std::string&&, flow>, "a name that would be gone");
}

TEST_F(Face, CountersAreOfIntegersRealNumbersAndProcesses) {
  run.enable("ringside", "counter");
  run.enable("ringside", "real_counter");
  run.enable("ringside", "process_counter");
  counter("depth", -3);
  counter("load", 0.25f);
  process_counter("open", 7u);
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_EQ(run.records[0].at<i64>(8), -3);
  EXPECT_EQ(run.records[1].at<double>(8), 0.25);
  EXPECT_EQ(run.records[1].text(16), "load");
  EXPECT_EQ(run.records[2].at<double>(8), 7.0);
  EXPECT_EQ(run.records[2].text(16), "open");
  EXPECT_EQ(run.records[2].at<i32>(20), 0);
}

void of_int(int n) { RINGSIDE_TRACE("face_test", "widened", ("n", n)); }
void of_size(size_t n) { RINGSIDE_TRACE("face_test", "widened", ("n", n)); }

TEST_F(Face, IntegersOfATraceHaveOneLayout) {
  run.enable("face_test", "widened");
  of_int(-1);
  of_size(1);
  ASSERT_EQ(run.records.size(), 2u);
  for (const auto& r : run.records) EXPECT_EQ(texts_of(*r.event).fields, "\tfield:s64 n;\toffset:8;\tsize:8;\tsigned:1;\n");
  EXPECT_EQ(run.records[0].at<i64>(8), -1);
  EXPECT_EQ(run.records[1].at<i64>(8), 1);
}

}  // namespace
}  // namespace ringside
