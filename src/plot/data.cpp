#include <algorithm>

#include "export/json.hpp"
#include "text/units.hpp"
#include "plot/parts.hpp"

namespace ringside::plot {
namespace {

template <class Number>
void number(fmt::memory_buffer& out, Number n) {
  const fmt::format_int text(n);
  append(out, {text.data(), text.size()});
}

// ,"key":
void key(fmt::memory_buffer& out, std::string_view name) {
  out.push_back(',');
  append_json_text(name, out);
  out.push_back(':');
}

template <class Items, class Print>
void list(fmt::memory_buffer& out, const Items& items, Print print) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.push_back(',');
    first = false;
    print(item);
  }
  out.push_back(']');
}

// Counts as [column, count, distance to the next column, count, ...].
void sparse(fmt::memory_buffer& out, const TimeGrid& grid, u32 row, u64 first) {
  out.push_back('[');
  u64 before = first;
  bool any = false;
  grid.for_each(row, [&](u64 column, u64 count) {
    if (any) out.push_back(',');
    any = true;
    number(out, column - before);
    out.push_back(',');
    number(out, count);
    before = column;
  });
  out.push_back(']');
}

// A time as nanoseconds after `origin`.
void after(fmt::memory_buffer& out, u64 time, u64 origin) { number(out, static_cast<i64>(time - origin)); }

// "begin":...,"width":...,"columns":...
void columns(fmt::memory_buffer& out, u64 begin, u64 width, u64 many, u64 origin) {
  append(out, "\"begin\":");
  after(out, begin, origin);
  key(out, "width");
  number(out, width);
  key(out, "columns");
  number(out, many);
}

// The times of a lane's slices: ends in order, each as the distance from the previous one, and lengths.
void times(fmt::memory_buffer& out, const std::vector<Slice>& slices, u64 origin) {
  u64 before = origin;
  key(out, "end");
  list(out, slices, [&](const Slice& s) {
    after(out, s.end, before);
    before = s.end;
  });
  key(out, "length");
  list(out, slices, [&](const Slice& s) { number(out, s.end - s.begin); });
}

// Merged ones only: index, as the distance from the previous one, their number, and the rest as `put` writes it.
template <class One, class Number, class Put>
void merged(fmt::memory_buffer& out, const std::vector<One>& all, Number One::*many, Put put) {
  key(out, "merged");
  out.push_back('[');
  size_t last = 0;
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].*many == 1) continue;
    fmt::format_to(std::back_inserter(out), "{}{},{},", any ? "," : "", i - last, all[i].*many);
    put(all[i]);
    any = true;
    last = i;
  }
  out.push_back(']');
}

// Of slices: summed time, the longest.
void merged(fmt::memory_buffer& out, const std::vector<Slice>& slices) {
  merged(out, slices, &Slice::merged,
         [&](const Slice& s) { fmt::format_to(std::back_inserter(out), "{},{}", s.busy, s.longest); });
}

// By value: [LogBuckets' number, its counts as [column, count, distance to the next column, count, ...]], ...
void rows(fmt::memory_buffer& out, const HeatMap& map) {
  out.push_back('[');
  bool first_row = true;
  for (u32 row = 0; row < map.rows(); ++row) {
    bool first_count = true;
    size_t before = 0;
    for (size_t column = 0; column < map.columns(); ++column) {
      const u64 many = map.count(column, row);
      if (many == 0) continue;
      if (first_count) fmt::format_to(std::back_inserter(out), "{}[{},[", first_row ? "" : ",", row);
      fmt::format_to(std::back_inserter(out), "{}{},{}", first_count ? "" : ",", column - before, many);
      first_count = first_row = false;
      before = column;
    }
    if (!first_count) append(out, "]]");
  }
  out.push_back(']');
}

// Index, as the distance from the previous one, and stack, of the slices that have one.
void stacks_of(fmt::memory_buffer& out, const std::vector<Slice>& slices, StackTable& stacks) {
  key(out, "stack");
  out.push_back('[');
  size_t last = 0;
  bool any = false;
  for (size_t i = 0; i < slices.size(); ++i) {
    const u32 stack = stacks.number(slices[i].stack);
    if (stack == 0) continue;
    fmt::format_to(std::back_inserter(out), "{}{},{}", any ? "," : "", i - last, stack);
    any = true;
    last = i;
  }
  out.push_back(']');
}

// At most `most` bytes, and no half of a character.
std::string_view cut(std::string_view text, size_t most) {
  std::string_view shown = text.substr(0, most);
  while (shown.size() < text.size() && !shown.empty() && (static_cast<u8>(text[shown.size()]) & 0xC0) == 0x80)
    shown.remove_suffix(1);
  return shown;
}

}  // namespace

void Plot::print_lanes(fmt::memory_buffer& out, u64 origin) {
  const auto begin = [&](const char* kind, u32 of) {
    fmt::format_to(std::back_inserter(out), "{}{{\"kind\":\"{}\",\"number\":{}", out.size() > 1 ? "," : "", kind, of);
  };
  out.push_back('[');
  for (u32 n = 0; n < lane_names_.size(); ++n) {
    const LaneName& lane = lane_names_[n];
    const std::vector<Slice>& slices = lanes_.slices(n);
    begin(lane.kind == LaneKind::cpu ? "cpu" : lane.kind == LaneKind::thread ? "thread" : "loss", lane.number);
    times(out, slices, origin);
    if (lane.kind == LaneKind::loss) {
      key(out, "lost");
      list(out, slices, [&](const Slice& s) { number(out, s.weight); });
    } else {
      key(out, "what");
      list(out, slices, [&](const Slice& s) { number(out, static_cast<i32>(s.what)); });
      if (lane.kind == LaneKind::thread) {
        key(out, "ring");
        list(out, slices, [&](const Slice& s) { number(out, static_cast<i32>(s.ring)); });
      }
      key(out, "text");
      list(out, slices, [&](const Slice& s) {
        if (s.text.size() > longest_text) ++cut_;
        const std::string_view shown = cut(s.text, longest_text);
        append_json_text(shown.size() < s.text.size() ? std::string(shown) + "..." : std::string(shown), out);
      });
      merged(out, slices);
      stacks_of(out, slices, stacks_);
    }
    out.push_back('}');
  }
  const Lanes& states = states_.lanes();
  for (u32 n = 0; n < states.size(); ++n) {
    const std::vector<Slice>& slices = states.slices(n);
    if (slices.empty()) continue;
    begin("state", n);
    times(out, slices, origin);
    key(out, "what");
    list(out, slices, [&](const Slice& s) { number(out, static_cast<i32>(s.what)); });
    key(out, "ring");
    list(out, slices, [&](const Slice& s) { number(out, static_cast<i32>(s.ring)); });
    // Runnable ones: -2 nobody is known, -1 an interrupt, else the thread that woke it.
    key(out, "waker");
    list(out, slices, [&](const Slice& s) { number(out, s.merged == 1 ? static_cast<i64>(s.weight) - 2 : i64{-2}); });
    merged(out, slices);
    out.push_back('}');
  }
  out.push_back(']');
}

void Plot::print_counters(fmt::memory_buffer& out, u64 origin) const {
  list(out, counters_, [&](const Counter& counter) {
    const auto& points = curves_.points(static_cast<u32>(&counter - counters_.data()));
    append(out, "{\"name\":");
    append_json_text(counter.name, out);
    key(out, "thread");
    number(out, counter.thread);
    key(out, "type");
    number(out, counter.event);
    u64 before = origin;
    key(out, "at");
    list(out, points, [&](const Point& p) {
      after(out, p.end, before);
      before = p.end;
    });
    key(out, "value");
    list(out, points, [&](const Point& p) { fmt::format_to(std::back_inserter(out), "{}", p.last); });
    // Length, first, lowest, highest.
    merged(out, points, &Point::count, [&](const Point& p) {
      fmt::format_to(std::back_inserter(out), "{},{},{},{}", p.end - p.begin, p.first, p.low, p.high);
    });
    out.push_back('}');
  });
}

void Plot::print_types(fmt::memory_buffer& out) const {
  list(out, events_seen_, [&](const Event* e) {
    append(out, "{\"name\":");
    append_json_text(e->full, out);
    key(out, "count");
    number(out, e->count);
    key(out, "rate");
    sparse(out, rates_, e->index + 1, rates_.first());
    out.push_back('}');
  });
}

void Plot::print_threads(fmt::memory_buffer& out, u64 origin) const {
  list(out, threads_, [&](const Thread& t) {
    fmt::format_to(std::back_inserter(out), "{{\"tid\":{},\"pid\":{},\"events\":{},\"name\":", t.tid, t.pid, t.events);
    append_json_text(t.name, out);
    key(out, "process");
    append_json_text(t.process, out);
    if (t.parent > 0) {
      key(out, "parent");
      number(out, t.parent);
    }
    if (t.names.size() > 1) {
      key(out, "names");
      list(out, t.names, [&](const auto& named) {
        out.push_back('[');
        if (named.first == 0) append(out, "null"); else after(out, named.first, origin);
        out.push_back(',');
        append_json_text(named.second, out);
        out.push_back(']');
      });
    }
    if (t.shown != std::to_string(t.tid)) {
      key(out, "shown");
      append_json_text(t.shown, out);
    }
    out.push_back('}');
  });
}

void Plot::print_heat(fmt::memory_buffer& out, u64 origin) const {
  std::vector<const Heat*> shown;
  for (const Heat& heat : heat_maps_)
    if (!heat.name.empty() && heat.map->count() != 0) shown.push_back(&heat);
  list(out, shown, [&](const Heat* heat) {
    const HeatMap& map = *heat->map;
    append(out, "{\"name\":");
    append_json_text(heat->name, out);
    if (heat->asked) append(out, ",\"asked\":true");
    key(out, "count");
    number(out, map.count());
    out.push_back(',');
    columns(out, map.begin_ns(0), map.column_ns(), map.columns(), origin);
    key(out, "rows");
    rows(out, map);
    out.push_back('}');
  });
}

// By event and stack, how often over time.
void Plot::print_stack_counts(fmt::memory_buffer& out, u64 origin) {
  u64 first = ~u64{0}, last = 0;
  for (u32 n = 0; n < stack_counts_.rows(); ++n) {
    first = std::min(first, stack_counts_.row(n).front().column);
    last = std::max(last, stack_counts_.row(n).back().column);
  }
  const bool any = stack_counts_.rows() != 0;
  out.push_back('{');
  columns(out, any ? first << stack_counts_.shift() : origin, u64{1} << stack_counts_.shift(), any ? last - first + 1 : 0,
          origin);
  key(out, "rows");
  list(out, counted_stacks_, [&](const auto& row) {
    fmt::format_to(std::back_inserter(out), "[{},{},", row.first, stacks_.number(row.second));
    u64 before = first;
    list(out, stack_counts_.row(static_cast<u32>(&row - counted_stacks_.data())), [&](const StackCounts::Count& c) {
      fmt::format_to(std::back_inserter(out), "{},{}", c.column - before, c.count);
      before = c.column;
    });
    out.push_back(']');
  });
  out.push_back('}');
}

void Plot::print_stacks(fmt::memory_buffer& out) const {
  key(out, "functions");
  list(out, stacks_.functions(), [&](const std::string* name) { append_json_text(*name, out); });
  key(out, "calls");
  list(out, stacks_.calls(),
       [&](const StackTable::Call& call) { fmt::format_to(std::back_inserter(out), "{},{}", call.function, call.caller); });
}

void Plot::print_rates(fmt::memory_buffer& out, u64 origin) const {
  append(out, ",\"rates\":{");
  columns(out, rates_.first() << rates_.shift(), u64{1} << rates_.shift(),
          rates_.empty() ? 0 : rates_.last() - rates_.first() + 1, origin);
  key(out, "lost");
  sparse(out, rates_, 0, rates_.first());
  out.push_back('}');
}

void Plot::print_rings(fmt::memory_buffer& out) const {
  key(out, "rings");
  list(out, rings_, [&](const Ring& r) {
    fmt::format_to(std::back_inserter(out),
                   "{{\"ring\":{},\"kernel\":{},\"tid\":{},\"events\":{},\"lost\":{},\"buffer\":", r.name.ring, r.name.kernel,
                   r.name.tid, r.events, r.lost);
    append_json_text(r.name.buffer, out);
    out.push_back('}');
  });
}

std::string Plot::json(const About& about) {
  finish();
  const u64 origin = first_ > last_ ? 0 : first_;
  fmt::memory_buffer lanes, stack_counts;
  print_lanes(lanes, origin);
  print_stack_counts(stack_counts, origin);
  if (stacks_.full() || uncounted_stacks_ != 0)
    notes_.push_back(fmt::format(
        "there are too many different stacks: some are left out, and {} in no flame graph; choose with -e, or --from and --to",
        counted(uncounted_stacks_, "event is", "events are")));
  if (cut_ != 0) notes_.push_back(fmt::format("the texts of {} are cut after {} bytes", counted(cut_, "event"), longest_text));

  fmt::memory_buffer out;
  append(out, "{\"where\":");
  append_json_text(about.where, out);
  key(out, "raw_times");
  append(out, about.raw_times ? "true" : "false");
  key(out, "apart");
  if (about.apart_ns == About::unknown) append(out, "null");
  else number(out, about.apart_ns);
  key(out, "origin");
  fmt::format_to(std::back_inserter(out), "\"{}\"", origin);  // text: JavaScript's numbers are exact up to 2^53
  key(out, "duration");
  number(out, last_ > origin ? last_ - origin : 0);
  key(out, "events");
  number(out, events_);
  key(out, "lost");
  number(out, lost_);
  key(out, "merge_ns");
  number(out, lanes_.merges() ? u64{1} << lanes_.shift() : 0);
  key(out, "state_merge_ns");
  number(out, states_.lanes().merges() ? u64{1} << states_.lanes().shift() : 0);
  key(out, "facts");
  list(out, about.facts, [&](const auto& fact) {
    out.push_back('[');
    append_json_text(fact.first, out);
    out.push_back(',');
    append_json_text(fact.second, out);
    out.push_back(']');
  });
  key(out, "notes");
  list(out, notes_, [&](const std::string& note) { append_json_text(note, out); });
  key(out, "types");
  print_types(out);
  print_rates(out, origin);
  key(out, "names");
  list(out, names_, [&](const auto& n) {
    out.push_back('[');
    append_json_text(n.first, out);
    fmt::format_to(std::back_inserter(out), ",{}]", n.second);
  });
  key(out, "threads");
  print_threads(out, origin);
  print_rings(out);
  key(out, "lanes");
  append(out, {lanes.data(), lanes.size()});
  print_stacks(out);
  key(out, "stack_counts");
  append(out, {stack_counts.data(), stack_counts.size()});
  key(out, "counters");
  print_counters(out, origin);
  key(out, "heat");
  print_heat(out, origin);
  out.push_back('}');
  return {out.data(), out.size()};
}

}  // namespace ringside::plot
