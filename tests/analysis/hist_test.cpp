// Keys and values, the names of buckets, the evictions of a full table.
#include "analysis/hist.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "cli/hand_made.hpp"

namespace ringside::hist_test {
namespace {

using test::Payload;

TEST(Histogram, QuantilesAreWithinHalfABucket) {
  Histogram h;
  for (int i = 1; i <= 100000; ++i) h.add(i);
  EXPECT_EQ(h.count(), 100000u);
  EXPECT_EQ(h.max(), 100000);
  EXPECT_EQ(h.sum(), 5000050000.0);
  for (const double q : {.01, .5, .9, .99, .999}) EXPECT_NEAR(h.quantile(q), q * 100000, q * 100000 / 256 + 1) << q;
  EXPECT_EQ(h.quantile(1), 100000);
}

TEST(Histogram, OddValues) {
  Histogram h;
  EXPECT_EQ(h.quantile(.5), 0);
  for (const i64 value : {i64{-5}, i64{0}, INT64_MAX, INT64_MIN}) h.add(value);
  EXPECT_EQ(h.min(), INT64_MIN);
  EXPECT_EQ(h.max(), INT64_MAX);
  EXPECT_EQ(h.quantile(.5), -5);
  EXPECT_EQ(h.quantile(.75), 0);
  EXPECT_NEAR(h.quantile(1), 0x1p63, 0x1p55);
  EXPECT_NEAR(h.quantile(0), -0x1p63, 0x1p55);
  i64 before = INT64_MIN;
  h.each([&](i64 low, i64 high, u64 count) {
    EXPECT_LE(before, low);
    EXPECT_LE(low, high);
    EXPECT_EQ(count, 1u);
    before = high;
  });
}

TEST(Histogram, Reals) {
  Histogram h, part, none;
  for (const double value : {9.99, 19.98, 29.97, 0.4, -1e300, 1e300, 1e-300, -0.0}) h.add_real(value);
  EXPECT_DOUBLE_EQ(h.sum(), 60.34);
  EXPECT_EQ(h.least(), -1e300);
  EXPECT_EQ(h.most(), 1e300);
  EXPECT_NEAR(h.quantile(.75), 19.98, 19.98 / 128);
  EXPECT_NEAR(h.quantile(.125), -1e300, 1e300 / 128);
  part.add_real(0.1, 1'000'000'000'001);
  EXPECT_DOUBLE_EQ(part.sum(), 0.1 * 1'000'000'000'001);
  none.merge(part);
  h.merge(none);
  EXPECT_EQ(h.count(), 9u + 1'000'000'000'000);
  EXPECT_DOUBLE_EQ(h.sum(), 60.34 + 0.1 * 1'000'000'000'001);
  u64 seen = 0;
  h.each([&](i64 low, i64 high, u64 count) {
    EXPECT_LE(low, high);
    seen += count;
  });
  EXPECT_EQ(seen, h.count());
  h.add_real(std::numeric_limits<double>::infinity());
  EXPECT_EQ(h.sum(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(h.quantile(1), std::numeric_limits<double>::infinity());
  h.add_real(-std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(h.sum()));
  EXPECT_EQ(Histogram().most(), 0);
  RealSum many;
  many.add(std::numeric_limits<double>::max(), 4);
  many.add(-std::numeric_limits<double>::max(), 3);
  EXPECT_EQ(many.value(), std::numeric_limits<double>::max());
}

// The order and the parts in which reals are added change nothing.
TEST(Histogram, SumsOfRealsAreExact) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> values;
    for (int i = 0; i < 100; ++i) {
      double value = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 2000) - 1050);
      if (random() % 2 != 0) value = -value;
      values.push_back(value);
      values.push_back(-value);
    }
    values.push_back(5e-324);  // all that is left
    std::shuffle(values.begin(), values.end(), random);
    RealSum whole, first, second;
    for (size_t i = 0; i < values.size(); ++i) {
      whole.add(values[i]);
      (i % 3 == 0 ? first : second).add(values[i]);
    }
    first.merge(second);
    EXPECT_EQ(whole.value(), 5e-324);
    EXPECT_EQ(first.value(), 5e-324);
  }
}

TEST(Histogram, UnsignedValuesBeyond63Bits) {
  Histogram h, part;
  h.add_unsigned(~u64{0});
  h.add_unsigned(1, 2);
  part.add_unsigned(u64{1} << 63, 3);
  part.add(-4);
  EXPECT_EQ(h.whole_max(), Histogram::Whole{~u64{0}});
  EXPECT_EQ(h.max(), INT64_MAX);
  EXPECT_EQ(h.whole_min(), 1);
  EXPECT_NEAR(h.quantile(1), 0x1p64, 0x1p56);
  h.merge(part);
  EXPECT_EQ(h.count(), 7u);
  EXPECT_EQ(h.whole_sum(), Histogram::Whole{~u64{0}} + 2 + (Histogram::Whole{3} << 63) - 4);
  EXPECT_EQ(h.whole_min(), -4);
  EXPECT_EQ(h.whole_max(), Histogram::Whole{~u64{0}});
  EXPECT_NEAR(h.quantile(.7), 0x1p63, 0x1p56);
  EXPECT_EQ(Histogram().whole_max(), 0);
}

struct Hists : testing::Test {
  Formats formats;
  Tasks tasks;
  RingName ring{3, 700, 711, "ring's", "process", false, ""};
  void SetUp() override {
    formats.add(1, "libc", "malloc", test::malloc_format());
    formats.add(
        2, "app", "odd",
        test::format(
            2, "odd",
            "\tfield:s32 pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:char name[4];\toffset:12;\tsize:4;\tsigned:0;\n"
            "\tfield:double load;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u64 wait_ns;\toffset:24;\tsize:8;\tsigned:0;\n"
            "\tfield:u16 state;\toffset:32;\tsize:2;\tsigned:0;\n\tfield:u32 size[2];\toffset:34;\tsize:8;\tsigned:0;\n",
            R"("state=%s", __print_symbolic(REC->state, { 0, "idle" }, { 1, "busy" }))"));
    tasks.add(Task{700, 4711, "cc1plus", "g++"});
  }
  static Payload allocation(u64 size, i32 tid = 4711) { return Payload(1, tid).put(size).put(u64{0xA0}); }
  static Payload odd(i32 pid, const char* name, double load, u64 wait_ns, u16 state) {
    const std::string padded = (name + std::string(4, 0)).substr(0, 4);
    return Payload(2, 712).put(pid).text(padded).put(load).put(wait_ns).put(state).put(u32{1}).put(u32{2});
  }
  bool add(Hist& hist, const Payload& payload) {
    TraceRecord record;
    record.time = 1'500'000'000;
    record.payload = payload;
    return hist.add(record, ring);
  }
  Hist make(const std::string& keys, std::vector<std::string> values = {}, size_t most = 1000) {
    Hist::Options options;
    options.keys = split_columns(keys);
    options.values = std::move(values);
    options.most_keys = most;
    auto hist = Hist::make(options, formats, tasks);
    EXPECT_TRUE(hist) << keys << ": " << (hist ? "" : hist.error().sentence);
    return std::move(*hist);
  }
  std::string key(const std::string& keys, const Payload& payload) {
    Hist hist = make(keys);
    if (!add(hist, payload)) return "none";
    const auto rows = hist.rows({});
    std::string out = hist.show(rows[0], 0);
    if (hist.keys().size() > 1) out += "|" + hist.show(rows[0], 1);
    return out;
  }
};

TEST_F(Hists, KeysOfEachKind) {
  const Payload p = odd(-7, "make", 1.5, 5'000'000, 1), m = allocation(48);
  for (const auto& [text, shown] :
       std::initializer_list<std::pair<const char*, const char*>>{{"pid", "-7"},
                                                                  {"app:odd/pid.log2", "[-8, -4)"},
                                                                  {"pid.buckets=5", "[-10, -5)"},
                                                                  {"name", "make"},
                                                                  {"load", "1.5"},
                                                                  {"state", "busy"},
                                                                  {"state.hex", "0x1"},
                                                                  {"wait_ns.usecs", "5000"},
                                                                  {"wait_ns.msecs", "5"},
                                                                  {"wait_ns.log2", "[4194304, 8388608)"},
                                                                  {"event", "app:odd"},
                                                                  {"system", "app"},
                                                                  {"ring", "3"},
                                                                  {"cpu", "none"},
                                                                  {"thread", "<...>-712"},
                                                                  {"process", "g++-700"},
                                                                  {"source", "program"},
                                                                  {"ts.msecs", "1500"},
                                                                  {"odd/tid", "712"},
                                                                  {"app/pid,name", "-7|make"},
                                                                  {"common_pid.execname", "<712>"}})
    EXPECT_EQ(key(text, p), shown) << text;
  for (const auto& [text, shown] : std::initializer_list<std::pair<const char*, const char*>>{{"thread", "cc1plus-4711"},
                                                                                              {"tid.execname", "cc1plus"},
                                                                                              {"process", "g++-700"},
                                                                                              {"task", "cc1plus"},
                                                                                              {"libc:m*/size.log2", "[32, 64)"},
                                                                                              {"size.buckets=48", "[48, 96)"},
                                                                                              {"pid", "4711"},
                                                                                              {"name", "none"},
                                                                                              {"app:odd/task", "none"},
                                                                                              {"ptr.hex", "0xa0"}})
    EXPECT_EQ(key(text, m), shown) << text;
  EXPECT_EQ(key("size.log2", allocation(0)), "0");
  EXPECT_EQ(key("size.log2", allocation(1)), "[1, 2)");
  EXPECT_EQ(key("size.log2", allocation(~u64{0})), "[2^63, 2^64)");
  EXPECT_EQ(key("size.buckets=10", allocation(~u64{0})), "[18446744073709551610, 18446744073709551620)");
  EXPECT_EQ(key("pid.log2", odd(INT32_MIN, "make", 0, 0, 0)), "[-2147483648, -1073741824)");
}

// The same 64 bits are -1 in one event and 2^64 - 1 in another; fields of one name may even differ in kind.
struct MixedHists : Hists {
  enum : u16 { whole = 3, wide, floating, word, list };
  void know(u16 id, const char* name, const std::string& field, u32 size, bool is_signed) {
    formats.add(id, "app", name,
                test::format(id, name,
                             "\tfield:" + field + ";\toffset:8;\tsize:" + std::to_string(size) +
                                 ";\tsigned:" + (is_signed ? "1" : "0") + ";\n",
                             "\"\""));
  }
  void know_numbers(bool wide_first) {
    if (wide_first) know(wide, "wide", "u64 x", 8, false);
    know(whole, "whole", "int x", 4, true);
    if (!wide_first) know(wide, "wide", "u64 x", 8, false);
  }
  std::string rows(const Hist& hist) const {
    std::string out;
    for (const auto& row : hist.rows({Hist::By::key, 0, false}))
      out += hist.show(row, 0) + "=" + hist.json(row, 0).dump() + " x" + std::to_string(row.count) + "; ";
    return out;
  }
  std::string numbers(const std::string& key) {
    Hist hist = make(key);
    for (const i32 x : {-1, 7, -1, INT32_MIN}) EXPECT_TRUE(add(hist, Payload(whole, 1).put(x).put(u32{0})));
    for (const u64 x : {~u64{0}, u64{7}, u64{1} << 63}) EXPECT_TRUE(add(hist, Payload(wide, 1).put(x)));
    EXPECT_EQ(hist.misfits(), 0u);
    return rows(hist);
  }
};

TEST_F(MixedHists, NumbersHaveTheSignOfTheirEvent) {
  for (const bool wide_first : {false, true}) {
    formats = {};
    know_numbers(wide_first);
    EXPECT_EQ(numbers("app:*/x"),
              "-2147483648=-2147483648 x1; -1=-1 x2; 7=7 x2; 9223372036854775808=9223372036854775808 x1; "
              "18446744073709551615=18446744073709551615 x1; ");
    EXPECT_EQ(numbers("x.log2"),
              "[-2147483648, -1073741824)=-2147483648 x1; -1=-1 x2; [4, 8)=4 x2; [2^63, 2^64)=9223372036854775808 x2; ");
    EXPECT_EQ(numbers("x.buckets=10"),
              "[-2147483650, -2147483640)=-2147483650 x1; [-10, 0)=-10 x2; [0, 10)=0 x2; "
              "[9223372036854775800, 9223372036854775810)=9223372036854775800 x1; "
              "[18446744073709551610, 18446744073709551620)=18446744073709551610 x1; ");
    EXPECT_EQ(numbers("x.hex"),
              "-0x80000000=\"-0x80000000\" x1; -0x1=\"-0x1\" x2; 0x7=\"0x7\" x2; 0x8000000000000000=\"0x8000000000000000\" x1; "
              "0xffffffffffffffff=\"0xffffffffffffffff\" x1; ");
  }
}

TEST_F(MixedHists, EveryKindOfValueCountsAndAnArrayIsReported) {
  know_numbers(false);
  know(floating, "floating", "double x", 8, false);
  know(word, "word", "char x[4]", 4, false);
  know(list, "list", "u32 x[2]", 8, false);
  Hist hist = make("x");
  for (const i32 x : {-1, 7}) EXPECT_TRUE(add(hist, Payload(whole, 1).put(x).put(u32{0})));
  for (const u64 x : {~u64{0}, u64{1} << 60}) EXPECT_TRUE(add(hist, Payload(wide, 1).put(x)));
  for (const double x : {7., -0.5, 0x1p60}) EXPECT_TRUE(add(hist, Payload(floating, 1).put(x)));
  EXPECT_TRUE(add(hist, Payload(word, 1).text(std::string("7\0\0\0", 4))));
  EXPECT_FALSE(add(hist, Payload(list, 1).put(u64{7})));
  EXPECT_EQ(rows(hist),
            "-1=-1 x1; -0.5=-0.5 x1; 7=7 x2; 1152921504606846976=1152921504606846976 x2; "
            "18446744073709551615=18446744073709551615 x1; 7=\"7\" x1; ");
  EXPECT_EQ(hist.misfits(), 1u);
  EXPECT_EQ(hist.without(), 1u);
  Hist sums = make("event", {"x"});
  EXPECT_FALSE(add(sums, Payload(floating, 1).put(1.5)));
  EXPECT_EQ(sums.misfits(), 1u);
}

// A live key began with the numbers of one event.
TEST_F(MixedHists, ANumberThatOnlyALaterEventMakesPossibleIsReported) {
  know(whole, "whole", "int x", 4, true);
  Hist hist = make("x");
  EXPECT_TRUE(add(hist, Payload(whole, 1).put(-1).put(u32{0})));
  know(wide, "wide", "u64 x", 8, false);
  EXPECT_TRUE(add(hist, Payload(wide, 1).put(u64{7})));
  EXPECT_FALSE(add(hist, Payload(wide, 1).put(~u64{0})));
  EXPECT_EQ(rows(hist), "-1=-1 x1; 7=7 x1; ");
  EXPECT_EQ(hist.misfits(), 1u);
}

// Events may name the values of an enum differently.
TEST_F(Hists, EachEventsNamesAreItsOwn) {
  const auto add_event = [&](u16 id, const std::string& name, const std::string& names) {
    formats.add(id, "app", name,
                test::format(id, name, "\tfield:u32 mode;\toffset:8;\tsize:4;\tsigned:0;\n",
                             "\"mode=%s\", __print_symbolic(REC->mode, " + names + ")"));
  };
  const auto modes = [&](const std::string& keys) {
    Hist hist = make(keys);
    for (const u16 id : {u16{11}, u16{12}, u16{13}})
      for (const u32 mode : {1u, 2u}) add(hist, Payload(id, 711).put(mode));
    std::map<std::string, u64> shown;
    for (const auto& row : hist.rows({})) shown[hist.show(row, 0)] = row.count;
    return shown;
  };
  using Shown = std::map<std::string, u64>;
  add_event(11, "alpha", R"({ 1, "idle" }, { 2, "busy" })");
  add_event(13, "gamma", R"({ 1, "idle" }, { 2, "busy" })");
  EXPECT_EQ(modes("mode"), (Shown{{"idle", 2}, {"busy", 2}}));
  add_event(12, "beta", R"({ 1, "open" })");
  EXPECT_EQ(modes("mode"), (Shown{{"idle", 2}, {"busy", 2}, {"open", 1}, {"2", 1}}));
  Hist mixed = make("mode");
  for (const u32 mode : {1u, 10u, 9u}) add(mixed, Payload(12, 711).put(mode));
  add(mixed, Payload(11, 711).put(u32{2}));
  std::string in_order;
  for (const auto& row : mixed.rows({Hist::By::key, 0, false})) in_order += mixed.json(row, 0).dump() + " ";
  EXPECT_EQ(in_order, R"(9 10 "busy" "open" )");
  EXPECT_EQ(modes("beta/mode"), (Shown{{"open", 1}, {"2", 1}}));
  EXPECT_EQ(modes("mode.hex"), (Shown{{"0x1", 3}, {"0x2", 3}}));
  Hist first = make("mode"), second = make("mode");
  add(first, Payload(11, 711).put(u32{1}));
  add(second, Payload(12, 711).put(u32{1}));
  first.merge(second);
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(first.json(first.rows({Hist::By::key, 0, false})[1], 0), "open");
}

TEST_F(Hists, AnEventThatComesLaterKeepsItsNumbers) {
  formats.add(11, "app", "alpha",
              test::format(11, "alpha", "\tfield:u32 mode;\toffset:8;\tsize:4;\tsigned:0;\n",
                           R"("mode=%s", __print_symbolic(REC->mode, { 1, "idle" }))"));
  Hist hist = make("mode");
  add(hist, Payload(11, 711).put(u32{1}));
  formats.add(12, "app", "beta",
              test::format(12, "beta", "\tfield:u32 mode;\toffset:8;\tsize:4;\tsigned:0;\n",
                           R"("mode=%s", __print_symbolic(REC->mode, { 1, "open" }))"));
  add(hist, Payload(12, 711).put(u32{1}));
  ASSERT_EQ(hist.size(), 1u);
  EXPECT_EQ(hist.show(hist.rows({})[0], 0), "1");
}

TEST_F(Hists, RealsAreNotRounded) {
  Hist hist = make("state", {"load"}), part = make("state", {"load"});
  for (const double load : {9.99, 19.98, 29.97}) EXPECT_TRUE(add(hist, odd(1, "a", load, 0, 0)));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(add(part, odd(1, "a", 0.4, 0, 1)));
  EXPECT_FALSE(add(part, odd(1, "a", std::nan(""), 0, 1)));
  hist.merge(part);
  const auto rows = hist.rows({Hist::By::value, 0, true});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows[0].values[0].sum(), 59.94);
  EXPECT_EQ(rows[0].values[0].most(), 29.97);
  EXPECT_EQ(rows[1].values[0].sum(), 4.0);
  EXPECT_EQ(rows[1].values[0].mean(), 0.4);
  EXPECT_EQ(rows[1].values[0].quantile(.5), 0.4);
  EXPECT_EQ(hist.without_value(0), 1u);
}

TEST_F(Hists, UnsignedValuesHaveNoSign) {
  Hist hist = make("task", {"size"});
  for (const u64 size : {~u64{0}, u64{1} << 63, u64{5}}) EXPECT_TRUE(add(hist, allocation(size)));
  const auto rows = hist.rows({Hist::By::value, 0, true});
  const Histogram& h = rows[0].values[0];
  EXPECT_EQ(h.whole_sum(), Histogram::Whole{~u64{0}} + (Histogram::Whole{1} << 63) + 5);
  EXPECT_EQ(h.whole_max(), Histogram::Whole{~u64{0}});
  EXPECT_EQ(h.whole_min(), 5);
}

TEST_F(Hists, MissingKeysAndValuesAreCountedApart) {
  Hist hist = make("size", {"ptr", "wait_ns"});
  EXPECT_FALSE(add(hist, allocation(1)));            // no wait_ns
  EXPECT_FALSE(add(hist, odd(1, "make", 1, 1, 1)));  // no size: it is an array there; and no ptr
  EXPECT_EQ(hist.without_key(), 1u);
  EXPECT_EQ(hist.without_value(0), 0u);
  EXPECT_EQ(hist.without_value(1), 1u);
  EXPECT_EQ(hist.without(), 2u);
}

TEST_F(Hists, SumsAreExact) {
  Hist hist = make("task", {"libc:malloc/size"});
  for (u64 i = 0; i < 1000; ++i) EXPECT_TRUE(add(hist, allocation(i * i)));
  EXPECT_FALSE(add(hist, odd(1, "make", 1, 1, 1)));
  const auto rows = hist.rows({Hist::By::value, 0, true});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 1000u);
  EXPECT_EQ(rows[0].values[0].sum(), 332833500.0);
  EXPECT_EQ(rows[0].values[0].max(), 998001);
  EXPECT_EQ(hist.count(), 1000u);
  EXPECT_EQ(hist.without(), 1u);
}

TEST_F(Hists, AFullTableKeepsHeavyKeysAndCountsEvictedOnes) {
  for (const bool texts : {false, true}) {
    Hist hist = make(texts ? "name" : "size", {}, 100);
    for (u32 i = 0; i < 10'000; ++i) {
      char name[5] = {};
      snprintf(name, sizeof name, "%04u", i);
      for (const u32 n : {i, i % 5, 6u})
        if (texts) snprintf(name, sizeof name, "%04u", n), add(hist, odd(0, name, 0, 0, 0));
        else add(hist, allocation(n));
    }
    EXPECT_LE(hist.size(), 100u);
    EXPECT_EQ(hist.count(), 30'000u);
    const auto rows = hist.rows({});
    EXPECT_EQ(hist.show(rows[0], 0), texts ? "0006" : "6");
    EXPECT_EQ(rows[0].count, 10'001u);
    u64 kept = 0;
    for (const auto& row : rows) kept += row.count;
    for (u32 i = 1; i <= 5; ++i) EXPECT_EQ(rows[i].count, 2001u) << i;
    EXPECT_EQ(kept + hist.evicted().count, 30'000u);
    EXPECT_GT(hist.evicted().keys, 9'000u);
  }
}

TEST_F(Hists, ErrorsListTheAlternatives) {
  const auto error = [&](const std::string& key, std::vector<std::string> values = {}) {
    Hist::Options options;
    options.keys = split_columns(key);
    options.values = std::move(values);
    auto hist = Hist::make(options, formats, tasks);
    return hist ? std::string("fine") : hist.error().sentence;
  };
  for (const auto& [key, words] :
       std::initializer_list<std::pair<const char*, const char*>>{{"sizee", "did you mean size?"},
                                                                  {"malloc/colour", "libc:malloc has size, ptr"},
                                                                  {"nobody:nothing/size", "there are app:odd, libc:malloc"},
                                                                  {"odd/size", "is an array"},
                                                                  {"name.log2", "is for whole numbers"},
                                                                  {"load.log2", "is for whole numbers"},
                                                                  {"size.log3", "there is no .log3"},
                                                                  {"size.usecs", "end in _ns"},
                                                                  {"size.buckets=0", "1 or more"},
                                                                  {"size.buckets=x", "1 or more"},
                                                                  {"", "no name"},
                                                                  {"malloc/", "no name"},
                                                                  {"size,ptr,pid", "one key or two"},
                                                                  {"common_flags", "is for filters only"}})
    EXPECT_NE(error(key).find(words), std::string::npos) << key << ": " << error(key);
  EXPECT_NE(error("size", {"name"}).find("do not add up"), std::string::npos);
}

struct Counted {
  u64 count = 0;
};

// Small keys have an index of their own, so all sizes and both forms come, and the table is full again and again.
TEST(KeyTable, HasEachKeyOnceWhateverIsEvicted) {
  std::mt19937_64 random(17);
  for (const size_t most : {size_t{2}, size_t{100}, size_t{20'000}, size_t{1'000'000}}) {
    KeyTable<Counted> table(most);
    std::map<KeyWords, u64> exact;
    u64 all = 0;
    for (int n = 0; n < 100'000; ++n) {
      const u64 bits = random() % 18;
      KeyWords key{random() & ((u64{1} << bits) - 1), random() % 4 == 0 ? random() % 3 : 0};
      if (random() % 8 == 0) key[0] = ~key[0];
      if (random() % 16 == 0) key[0] += 65'530;
      const u64 before = table.evicted().keys;
      Counted& cell = table.at(key);
      ++cell.count;
      ++exact[key];
      ++all;
      if (table.evicted().keys == 0) { ASSERT_EQ(cell.count, exact[key]); }
      ASSERT_EQ(table.find(key), &cell);
      ASSERT_LE(table.size(), most);
      if (before != table.evicted().keys) { ASSERT_LE(table.size(), most / 2 + 1); }
    }
    u64 counted = 0;
    std::set<KeyWords> seen;
    std::as_const(table).each([&](const KeyWords& key, const Counted& cell) {
      ASSERT_TRUE(seen.insert(key).second);
      ASSERT_LE(cell.count, exact[key]);
      counted += cell.count;
    });
    EXPECT_EQ(seen.size(), table.size());
    EXPECT_EQ(counted + table.evicted().count, all) << most;
    table.rekey([](KeyWords key) { return KeyWords{key[0] * 2 + 1, key[1]}; });
    u64 again = 0;
    for (const KeyWords& key : seen) again += table.find({key[0] * 2 + 1, key[1]})->count;
    EXPECT_EQ(again, counted);
  }
}

}  // namespace
}  // namespace ringside::hist_test
