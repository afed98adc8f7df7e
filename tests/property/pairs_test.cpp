// Pairs of random traces, with double starts, nested calls, conditions, losses, late events and small tables, agree with a walk
// over a plain list. Heat maps of random values do not depend on their order.
#include "analysis/pairs.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <sstream>

#include "analysis/heat_map.hpp"
#include "cli/hand_made.hpp"

namespace ringside::test::pairs_test {
namespace {

using Random = std::mt19937_64;

struct Event {
  u64 time = 0, lost = 0;
  u32 source = 0;
  std::string name;  // begin, end, both, other
  u32 number = 0;
  std::string text;
  i32 tid = 0;
  Payload payload{0, 0};
};

constexpr u16 begin_id = 1, end_id = 2, both_id = 3, other_id = 4;

struct World {
  Formats formats;
  Tasks tasks;
  std::vector<RingName> rings;
  // calls: begin and end are entry and return of a function.
  explicit World(bool calls) {
    const std::string begin = calls ? "work" : "begin", end = calls ? "work__return" : "end";
    const std::string number = "\tfield:u32 number;\toffset:8;\tsize:4;\tsigned:0;\n",
                      text = "\tfield:char text[4];\toffset:12;\tsize:4;\tsigned:0;\n";
    formats.add(begin_id, "app", begin, format(begin_id, begin, number + text, R"("a=%u", REC->number)"));
    formats.add(end_id, "app", end, format(end_id, end, number + text, R"("a=%u", REC->number)"));
    formats.add(both_id, "app", "both", format(both_id, "both", number + text, R"("a=%u", REC->number)"));
    formats.add(other_id, "app", "other", format(other_id, "other", "", R"("")"));
    for (u32 i = 0; i < 3; ++i) rings.push_back({i, 0, 0, "", "", i == 2, ""});
    formats.add(kernel_ids + end_id, "app", end, format(end_id, end, number + text, R"("a=%u", REC->number)"));
    formats.add(kernel_ids + begin_id, "app", begin, format(begin_id, begin, number + text, R"("a=%u", REC->number)"));
    formats.add(kernel_ids + both_id, "app", "both", format(both_id, "both", number + text, R"("a=%u", REC->number)"));
    formats.add(kernel_ids + other_id, "app", "other", format(other_id, "other", "", R"("")"));
  }
};

std::vector<Event> random_trace(Random& random, size_t events, u32 keys) {
  static const char* const names[] = {"begin", "end", "both", "other"};
  static const char* const texts[] = {"a", "bc", "def", ""};
  std::vector<Event> trace;
  u64 time = 1000;
  for (size_t i = 0; i < events; ++i) {
    Event e;
    time += random() % 3 == 0 ? random() % 1'000'000 : random() % 5;
    e.time = random() % 30 == 0 ? time - std::min<u64>(time, random() % 1000) : time;
    e.source = static_cast<u32>(random() % 3);
    if (random() % 40 == 0) {
      e.lost = 1 + random() % 10;
    } else {
      const u64 kind = std::array<u64, 8>{0, 0, 0, 1, 1, 1, 2, 3}[random() % 8];
      e.name = names[kind];
      e.number = static_cast<u32>(random() % keys);
      e.text = texts[random() % 4];
      e.tid = static_cast<i32>(random() % 3);
      std::string padded = e.text;
      padded.resize(4);
      e.payload = Payload(static_cast<u16>(kind + 1), e.tid).put(e.number).text(padded);
    }
    trace.push_back(std::move(e));
  }
  return trace;
}

// The plan of a run, for the reference and as options.
struct Plan {
  bool by_number = false, by_text = false, by_tid = false, by_cpu = false;  // the key
  bool condition = false;                                                   // starts of even numbers only
  bool calls = false;
  std::function<bool(const Event& start, const Event& end, u64 latency)> wanted;  // what options.filter says
  std::string by;
  Pairs::Options options;
};

const World& world_of(const Plan& plan) {
  static const World worlds[] = {World(false), World(true)};
  return worlds[plan.calls];
}

// A condition on pairs of a few comparisons, and the same by hand.
void choose_pairs(Random& random, Plan& plan) {
  using Wanted = decltype(plan.wanted);
  const auto comparison = [&]() -> std::pair<std::string, Wanted> {
    const u32 n = static_cast<u32>(random() % 6);
    switch (random() % 6) {
      case 0:
        return {"start/number > " + std::to_string(n), [=](const Event& s, const Event&, u64) { return s.number > n; }};
      case 1:
        return {"end/number & 1", [](const Event&, const Event& e, u64) { return e.number % 2 == 1; }};
      case 2:
        return {"end/text == \"bc\"", [](const Event&, const Event& e, u64) { return e.text == "bc"; }};
      case 3:
        return {"start/text != a", [](const Event& s, const Event&, u64) { return s.text != "a"; }};
      case 4:
        return {"latency >= " + std::to_string(n * 100) + "us",
                [=](const Event&, const Event&, u64 ns) { return ns >= n * 100'000; }};
      default:
        return {"end/common_pid == 1", [](const Event&, const Event& e, u64) { return e.tid == 1; }};
    }
  };
  const auto [a, is_a] = comparison();
  const auto [b, is_b] = comparison();
  const auto [c, is_c] = comparison();
  plan.options.filter = "(" + a + " || !(" + b + ")) && !" + c;
  plan.wanted = [is_a = is_a, is_b = is_b, is_c = is_c](const Event& s, const Event& e, u64 ns) {
    return (is_a(s, e, ns) || !is_b(s, e, ns)) && !is_c(s, e, ns);
  };
}

Plan random_plan(Random& random) {
  Plan plan;
  Pairs::Options& o = plan.options;
  o.start = random() % 2 == 0 ? "app:begin,app:both" : "app:begin";
  o.end = random() % 2 == 0 ? "end,both" : "app:en*";
  switch (random() % 5) {
    case 0: plan.by_tid = true; break;
    case 1: plan.by_number = true; o.keys = {{"number", "number"}}; break;
    case 2: plan.by_text = plan.by_number = true; o.keys = {{"text", "text"}, {"number", "number"}}; break;
    case 3: plan.by_number = plan.by_cpu = true; o.keys = {{"number", "number"}, {"ring", "ring"}}; break;
    default:
      plan.by_text = plan.by_number = plan.by_tid = true;
      o.keys = {{"text", "text"}, {"common_pid", "common_pid"}, {"number", "number"}};
  }
  plan.calls = plan.by_tid && random() % 2 == 0;
  if (plan.calls) {
    o.start = "app:work";
    o.end = random() % 2 == 0 ? "work__return" : "app:work__*";
  }
  if (random() % 2 == 0) choose_pairs(random, plan);
  if (random() % 3 == 0) {
    plan.condition = true;
    o.start += " if !(number & 1)";
  }
  static const char* const bys[] = {"", "start/text", "end/text", "start/number", "number", "ring", "start/ring"};
  plan.by = o.by = bys[random() % 7];
  o.most_waiting = random() % 2 == 0 ? 100'000 : 1 + random() % 4;
  o.slowest = static_cast<u32>(random() % 5);
  o.context = static_cast<u32>(random() % 4);
  o.first = random() % 2 == 0;
  o.sure = random() % 3 == 0;
  return plan;
}

struct Reference {
  struct Start {
    std::string key;
    size_t at = 0;
  };
  u64 starts = 0, ends = 0, pairs = 0, left_out = 0, doubtful = 0, repeated = 0, evicted = 0, negative = 0, unmatched = 0;
  std::vector<u64> latencies;
  std::map<std::string, std::vector<u64>> groups;
  std::vector<std::pair<size_t, size_t>> matched;  // start and end of each latency
  std::list<Start> waiting;                        // the oldest first

  static std::string key(const Plan& plan, const Event& e) {
    std::string key;
    if (plan.by_number) key += "n" + std::to_string(e.number);
    if (plan.by_text) key += "t" + e.text;
    if (plan.by_tid) key += "i" + std::to_string(e.tid);
    if (plan.by_tid && e.tid == 0 && e.source == 2) key += "idle";  // the thread of the kernel's CPU
    if (plan.by_cpu) key += "c" + std::to_string(e.source);
    return key;
  }
  static std::string group(const Plan& plan, const Event& start, const Event& end) {
    const Event& e = plan.by.rfind("start/", 0) == 0 ? start : end;
    if (plan.by.find("text") != std::string::npos) return e.text;
    if (plan.by.find("number") != std::string::npos) return std::to_string(e.number);
    return std::to_string(e.source);
  }

  void run(const Plan& plan, const std::vector<Event>& trace) {
    const auto is = [&](const std::string& events, const std::string& name) {
      if (plan.calls) return name == (&events == &plan.options.end ? "end" : "begin");
      return events.find(name) != std::string::npos || (events == "app:en*" && name == "end");
    };
    for (size_t i = 0; i < trace.size(); ++i) {
      const Event& e = trace[i];
      if (e.lost != 0) continue;
      if (is(plan.options.end, e.name)) {
        ++ends;
        const auto newest =
            std::find_if(waiting.rbegin(), waiting.rend(), [&](const Start& s) { return s.key == key(plan, e); });
        const auto it = newest == waiting.rend() ? waiting.end() : std::prev(newest.base());
        if (it == waiting.end()) {
          ++unmatched;
        } else {
          const Event& s = trace[it->at];
          if (e.time < s.time) {
            ++negative;
          } else if (plan.wanted && !plan.wanted(s, e, e.time - s.time)) {
            ++left_out;
          } else {
            ++pairs;
            // In a ring that only one thread writes, and with the CPU in the key, only the ring's own losses matter.
            const bool own = s.source == e.source && (plan.by_cpu || (plan.by_tid && e.source != 2));
            const bool doubt =
                std::any_of(trace.begin() + static_cast<std::ptrdiff_t>(it->at), trace.begin() + static_cast<std::ptrdiff_t>(i),
                            [&](const Event& l) { return l.lost != 0 && (!own || l.source == e.source); });
            doubtful += doubt;
            if (!doubt || !plan.options.sure) {
              latencies.push_back(e.time - s.time);
              matched.emplace_back(it->at, i);
              if (!plan.by.empty()) groups[group(plan, s, e)].push_back(e.time - s.time);
            }
          }
          waiting.erase(it);
        }
      }
      if (is(plan.options.start, e.name) && (!plan.condition || e.number % 2 == 0)) {
        ++starts;
        const auto it = std::find_if(waiting.begin(), waiting.end(), [&](const Start& s) { return s.key == key(plan, e); });
        if (it != waiting.end() && !plan.calls) {
          ++repeated;
          if (plan.options.first) continue;
          waiting.erase(it);
        } else if (waiting.size() == plan.options.most_waiting) {
          waiting.pop_front();
          ++evicted;
        }
        waiting.push_back({key(plan, e), i});
      }
    }
  }
};

// The value of this rank, within the histogram's error.
void check_quantiles(const Histogram& h, std::vector<u64> values) {
  std::sort(values.begin(), values.end());
  RC_ASSERT(h.count() == values.size());
  if (values.empty()) return;
  RC_ASSERT(h.min() == static_cast<i64>(values.front()));
  RC_ASSERT(h.max() == static_cast<i64>(values.back()));
  double sum = 0;
  for (const u64 v : values) sum += static_cast<double>(v);
  RC_ASSERT(h.sum() == sum);
  for (const double q : {.5, .9, .99, .999}) {
    const auto rank = std::max<size_t>(1, static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))));
    const auto exact = static_cast<double>(values[rank - 1]);
    RC_ASSERT(std::abs(h.quantile(q) - exact) <= exact * std::exp2(-static_cast<double>(Pairs::precision) - 1) + .5);
  }
}

TraceRecord record_of(const World& world, const Event& e) {
  TraceRecord record;
  record.time = e.time;
  record.lost = e.lost;
  record.source = e.source;
  record.ids = world.rings[e.source].ids();
  record.payload = e.payload;
  return record;
}

RC_GTEST_PROP(PairsProperty, AgreeWithAWalkOverAList, ()) {
  Random random(*rc::gen::arbitrary<u64>());
  const Plan plan = random_plan(random);
  const World& world = world_of(plan);
  const auto trace = random_trace(random, 1 + random() % 120, 1 + static_cast<u32>(random() % 6));
  auto made = Pairs::make(plan.options, world.formats, world.tasks);
  RC_ASSERT(made.has_value());
  Pairs pairs = std::move(*made);
  Reference reference;
  reference.run(plan, trace);
  size_t found = 0;
  u64 lost = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    const Event& e = trace[i];
    lost += e.lost;
    if (!pairs.take(record_of(world, e), world.rings[e.source])) continue;
    RC_ASSERT(found < reference.latencies.size());
    RC_ASSERT(reference.matched[found].second == i);
    RC_ASSERT(pairs.latency() == reference.latencies[found++]);
  }
  const Pairs::Counts c = pairs.counts();
  RC_ASSERT(found == reference.latencies.size());
  RC_ASSERT(c.starts == reference.starts);
  RC_ASSERT(c.ends == reference.ends);
  RC_ASSERT(c.pairs == reference.pairs);
  RC_ASSERT(pairs.nests() == plan.calls);
  RC_ASSERT(c.left_out == reference.left_out);
  RC_ASSERT(c.doubtful == reference.doubtful);
  RC_ASSERT(c.repeated == reference.repeated);
  RC_ASSERT(c.evicted == reference.evicted);
  RC_ASSERT(c.negative == reference.negative);
  RC_ASSERT(c.unmatched == reference.unmatched);
  RC_ASSERT(c.waiting == reference.waiting.size());
  RC_ASSERT(c.lost == lost);
  RC_ASSERT(c.without_key == 0u);
  RC_ASSERT(c.starts == c.pairs + c.left_out + c.repeated + c.evicted + c.negative + c.waiting);
  RC_ASSERT(c.ends == c.pairs + c.left_out + c.negative + c.unmatched);
  check_quantiles(pairs.all(), reference.latencies);

  size_t groups = 0;
  pairs.each_group([&](u64 key, const Pairs::Group& group) {
    const auto it = reference.groups.find(pairs.show_group(key, group));
    RC_ASSERT(it != reference.groups.end());
    check_quantiles(group.times, it->second);
    ++groups;
  });
  RC_ASSERT(groups == reference.groups.size());

  const auto slowest = pairs.slowest();
  auto sorted = reference.matched;
  const auto latency = [&](const auto& m) { return trace[m.second].time - trace[m.first].time; };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) { return latency(a) > latency(b); });
  RC_ASSERT(slowest.size() == std::min<size_t>(plan.options.slowest, sorted.size()));
  for (size_t i = 0; i < slowest.size(); ++i) {
    RC_ASSERT(slowest[i].latency == latency(sorted[i]));
    // Finds the pair, or any equal one.
    const auto it = std::find_if(sorted.begin(), sorted.end(), [&](const auto& m) {
      return latency(m) == slowest[i].latency && trace[m.first].time == slowest[i].start.time &&
             trace[m.second].time == slowest[i].end.time && trace[m.first].source == slowest[i].start.source &&
             trace[m.second].source == slowest[i].end.source &&
             (plan.by.empty() || slowest[i].group == Reference::group(plan, trace[m.first], trace[m.second]));
    });
    RC_ASSERT(it != sorted.end());
    std::vector<u64> before;
    for (size_t at = it->second; at-- > 0 && before.size() < plan.options.context;) {
      if (trace[at].source == trace[it->second].source) before.insert(before.begin(), trace[at].time);
    }
    std::vector<u64> context;
    for (const Pairs::Copy& copy : slowest[i].context) context.push_back(copy.time);
    const auto alike =
        std::count_if(sorted.begin(), sorted.end(), [&](const auto& m) { return trace[m.second].time == slowest[i].end.time; });
    if (alike == 1) RC_ASSERT(context == before);
  }
}

// All that it says, and what ended when.
std::string said(const Pairs& pairs, std::vector<std::pair<u64, u64>> found) {
  std::ostringstream out;
  const Pairs::Counts c = pairs.counts();
  for (const u64 n : {c.starts, c.ends, c.pairs, c.left_out, c.doubtful, c.repeated, c.evicted, c.negative, c.unmatched,
                      c.waiting, c.without_key, c.losses, c.lost, pairs.without_group()})
    out << n << " ";
  const auto add = [&](const Histogram& h) {
    out << h.count() << " " << h.sum() << " " << h.min() << " " << h.max();
    h.each([&](i64 low, i64, u64 count) { out << " " << low << ":" << count; });
    out << "\n";
  };
  add(pairs.all());
  std::map<std::string, const Pairs::Group*> groups;
  pairs.each_group([&](u64 key, const Pairs::Group& group) { groups[pairs.show_group(key, group)] = &group; });
  for (const auto& [name, group] : groups) {
    out << name << " " << group->count << " ";
    add(group->times);
  }
  for (const Pairs::Slow& s : pairs.slowest()) {
    out << s.latency << " " << s.doubtful << " " << s.key << " " << s.group << " " << s.order;
    for (const Pairs::Copy* copy : {&s.start, &s.end}) {
      out << " " << copy->time << " " << copy->source << " " << copy->ids;
      for (const u8 byte : copy->payload) out << "," << static_cast<u32>(byte);
    }
    out << "\n";
  }
  std::sort(found.begin(), found.end());
  for (const auto& [time, latency] : found) out << time << "+" << latency << " ";
  return out.str();
}

RC_GTEST_PROP(PairsProperty, PartsMakeTheWhole, ()) {
  Random random(*rc::gen::arbitrary<u64>());
  Plan plan = random_plan(random);
  const World& world = world_of(plan);
  plan.options.context = 0;
  plan.options.first = false;
  const auto trace = random_trace(random, 1 + random() % 200, 1 + static_cast<u32>(random() % (random() % 10 == 0 ? 3000 : 8)));
  if (random() % 10 == 0) plan.options.most_groups = 2 + random() % 4;
  Pairs whole = must(Pairs::make(plan.options, world.formats, world.tasks)),
        sum = must(Pairs::make(plan.options, world.formats, world.tasks));
  RC_ASSERT(whole.has_parts());
  std::vector<std::pair<u64, u64>> found, found_in_parts;
  const auto take = [&](Pairs& pairs, const Event& e, std::vector<std::pair<u64, u64>>& to) {
    if (pairs.take(record_of(world, e), world.rings[e.source])) to.emplace_back(e.time, pairs.latency());
  };
  for (const Event& e : trace) take(whole, e, found);
  bool fits = true;
  for (size_t at = 0; at < trace.size() && fits;) {
    Pairs part = must(sum.part(world.formats, world.tasks));
    for (size_t end = at + random() % (random() % 2 == 0 ? 30 : 100); at < std::min(end, trace.size()); ++at)
      take(part, trace[at], found_in_parts);
    fits = sum.append(
        part, [&](u32 source) -> const RingName& { return world.rings[source]; },
        [&](const TraceRecord& end) { found_in_parts.emplace_back(end.time, sum.latency()); });
  }
  // It is in vain only where a table may have been too small.
  RC_ASSERT(fits || plan.options.most_waiting < 100 || plan.options.most_groups < 100);
  if (whole.counts().evicted != 0 || whole.evicted_groups().keys != 0) RC_ASSERT(!fits);
  if (fits) RC_ASSERT(said(sum, found_in_parts) == said(whole, found));
}

RC_GTEST_PROP(HeatMapProperty, ColumnsDoNotDependOnTheOrder, ()) {
  Random random(*rc::gen::arbitrary<u64>());
  HeatMap::Options options;
  options.most_columns = 2 + random() % 20;
  options.precision = static_cast<u32>(random() % 3);
  options.finest = static_cast<u32>(random() % 20);
  std::vector<std::pair<u64, u64>> values;
  const u64 start = random() >> random() % 64, range = 1 + (random() >> random() % 64);
  for (size_t n = random() % 60; n != 0; --n) values.emplace_back(start + random() % range, random() >> random() % 64);
  HeatMap heat(options), halves[2] = {HeatMap(options), HeatMap(options)};
  for (const auto& [time, value] : values) {
    heat.add(time, value);
    halves[random() % 2].add(time, value);
  }
  HeatMap merged = halves[0];
  merged.merge(halves[1]);
  if (random() % 2 == 0) {
    const size_t narrow = 1 + random() % 10;
    heat.narrow(narrow);
    merged.narrow(narrow);
    RC_ASSERT(heat.columns() <= std::max<size_t>(narrow, 2));  // two where time's middle lies between them
  }
  RC_ASSERT(heat.columns() <= options.most_columns);
  for (const HeatMap* map : {&heat, &merged}) {
    RC_ASSERT(map->count() == values.size());
    std::map<std::pair<size_t, u32>, u64> expected;
    for (const auto& [time, value] : values) {
      size_t c = 0;
      while (c < map->columns() && (time < map->begin_ns(c) || time - map->begin_ns(c) >= map->column_ns())) ++c;
      u32 row = 0;
      while (row < map->rows() && (value < map->low(row) || value > map->high(row))) ++row;
      ++expected[{c, row}];
    }
    u64 sum = 0, wrong = 0;
    for (size_t c = 0; c < map->columns(); ++c) {
      for (u32 row = 0; row < map->rows(); ++row) {
        const auto it = expected.find({c, row});
        wrong += map->count(c, row) != (it == expected.end() ? 0 : it->second);
        sum += map->count(c, row);
      }
    }
    RC_ASSERT(wrong == 0u);
    RC_ASSERT(sum == values.size());
  }
}

}  // namespace
}  // namespace ringside::test::pairs_test
