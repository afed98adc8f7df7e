// Random events under random keys: a histogram agrees with a map of texts, counted the obvious way.
#include "analysis/hist.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <random>

#include "cli/hand_made.hpp"

namespace ringside::test::hist_test {
namespace {

using Random = std::mt19937_64;

struct Event {
  std::vector<u8> payload;
  std::map<std::string, std::string> shown;  // each column as it is shown
  std::map<std::string, i64> numbers;
};

struct World {
  Formats formats;
  Tasks tasks;
  World() {
    formats.add(1, "app", "one",
                format(1, "one",
                       "\tfield:u8 a;\toffset:8;\tsize:1;\tsigned:0;\n\tfield:s16 "
                       "b;\toffset:10;\tsize:2;\tsigned:1;\n\tfield:char t[4];\toffset:12;\tsize:4;\tsigned:0;\n",
                       R"("a=%u", REC->a)"));
    formats.add(
        2, "app", "two",
        format(2, "two", "\tfield:u32 a;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:s64 c;\toffset:16;\tsize:8;\tsigned:1;\n",
               R"("a=%u", REC->a)"));
  }
};

// The power of two, and the multiple, below or at a value, the slow way.
std::string log2_of(i64 value) {
  if (value == 0 || value == -1) return std::to_string(value);
  i64 low = value > 0 ? 1 : -2;
  if (value > 0) {
    while (low * 2 <= value) low *= 2;
    return "[" + std::to_string(low) + ", " + std::to_string(low * 2) + ")";
  }
  while (low > value) low *= 2;
  return "[" + std::to_string(low) + ", " + std::to_string(low / 2) + ")";
}
std::string tens_of(i64 value) {
  i64 low = value;
  while (low % 10 != 0) --low;
  return "[" + std::to_string(low) + ", " + std::to_string(low + 10) + ")";
}

Event event(Random& random) {
  Event e;
  const bool one = random() % 2 == 0;
  Payload p(one ? 1 : 2, static_cast<i32>(random() % 3));
  const auto number = [&](const std::string& name, i64 value) {
    e.numbers[name] = value;
    e.shown[name] = std::to_string(value);
    e.shown[name + ".log2"] = log2_of(value);
    e.shown[name + ".buckets=10"] = tens_of(value);
  };
  if (one) {
    const auto a = static_cast<u8>(random() % 20);
    const auto b = static_cast<int16_t>(random() % 3 == 0 ? random() : random() % 40 - 20);
    const std::string t = random() % 2 == 0 ? "x" : std::string(random() % 5, 'y');
    p.put(a).put(u8{0}).put(b).text({(t + std::string(4, '\0')).data(), 4});
    number("a", a), number("b", b);
    e.shown["t"] = t.substr(0, 4);
  } else {
    const auto a = static_cast<u32>(random() % 20);
    const auto c = static_cast<i64>(random() % 3 == 0 ? random() >> random() % 64 : random() % 100);
    p.put(a).put(u32{0}).put(c);
    number("a", a), number("c", c / 2);
    p = Payload(2, 0).put(a).put(u32{0}).put(c / 2);
  }
  e.shown["event"] = one ? "app:one" : "app:two";
  const Bytes bytes = p;
  e.payload.assign(bytes.data, bytes.data + bytes.size);
  return e;
}

RC_GTEST_PROP(Hist, AgreesWithAMap, ()) {
  World world;
  Random random(*rc::gen::arbitrary<u64>());
  const std::vector<std::string> columns = {
      "a", "b", "c", "t", "event", "a.log2", "b.log2", "c.log2", "a.buckets=10", "b.buckets=10", "c.buckets=10"};
  Hist::Options options;
  options.keys.push_back(columns[random() % columns.size()]);
  if (random() % 2 == 0) options.keys.push_back(columns[random() % columns.size()]);
  if (random() % 2 == 0) options.values.push_back(std::vector<std::string>{"a", "b", "c"}[random() % 3]);
  options.most_keys = random() % 4 == 0 ? 2 + random() % 8 : 100'000;
  Hist hist = std::move(*Hist::make(options, world.formats, world.tasks));

  struct Expected {
    u64 count = 0;
    double sum = 0;
    i64 max = INT64_MIN;
  };
  std::map<std::vector<std::string>, Expected> expected;
  u64 without = 0, events = random() % 300;
  const RingName ring;
  for (u64 i = 0; i < events; ++i) {
    const Event e = event(random);
    TraceRecord record;
    record.payload = {e.payload.data(), static_cast<u32>(e.payload.size())};
    std::vector<std::string> key;
    for (const std::string& name : options.keys)
      if (e.shown.count(name) != 0) key.push_back(e.shown.at(name));
    const bool has = key.size() == options.keys.size() && (options.values.empty() || e.numbers.count(options.values[0]) != 0);
    RC_ASSERT(hist.add(record, ring) == has);
    if (!has) {
      ++without;
      continue;
    }
    Expected& cell = expected[key];
    ++cell.count;
    if (options.values.empty()) continue;
    cell.sum += static_cast<double>(e.numbers.at(options.values[0]));
    cell.max = std::max(cell.max, e.numbers.at(options.values[0]));
  }
  RC_ASSERT(hist.without() == without);
  RC_ASSERT(hist.count() + without == events);
  RC_ASSERT(hist.size() <= options.most_keys);
  u64 kept = 0;
  for (const auto& row : hist.rows({})) {
    std::vector<std::string> key;
    for (size_t i = 0; i < options.keys.size(); ++i) key.push_back(hist.show(row, i));
    RC_ASSERT(expected.count(key) == 1u);
    kept += row.count;
    if (hist.evicted().keys != 0) continue;
    RC_ASSERT(row.count == expected[key].count);
    if (options.values.empty()) continue;
    RC_ASSERT(std::abs(row.values[0].sum() - expected[key].sum) <= 1e-9 * std::abs(expected[key].sum));
    RC_ASSERT(row.values[0].max() == expected[key].max);
  }
  RC_ASSERT(kept + hist.evicted().count == hist.count());
  if (hist.evicted().keys == 0) RC_ASSERT(hist.size() == expected.size());
}

}  // namespace
}  // namespace ringside::test::hist_test
