#include "analysis/pair_condition.hpp"

#include <algorithm>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

std::string_view field_of(std::string_view column) {
  column.remove_prefix(column.rfind('/') + 1);
  return column.substr(0, column.find('.'));
}

}  // namespace

// The events of both sides, and the meaning of names in them.
class PairMeaning {
 public:
  PairMeaning(const PairCondition::Sides& sides, const Formats& formats)
      : sides_(sides), formats_(formats), events_{patterns_or_none(sides.start), patterns_or_none(sides.end)} {}

  enum class Side : u8 { start, end, both, none };
  const std::string& events_of(Side side) const { return side == Side::start ? sides_.start : sides_.end; }

  Side of_event(const EventPatterns& named) const {
    return which([&](const EventPatterns& side) {
      return any(side, [&](const EventType& type) { return named.matches(type.system, type.name); });
    });
  }
  Side of_field(const std::string& name) const {
    const auto has = [&](const EventType& type) {
      return type.field(name) != nullptr || (name == "syscall" && type.of_syscalls);
    };
    const Side all = which([&](const EventPatterns& side) { return !any(side, [&](const auto& type) { return !has(type); }); });
    return all == Side::start || all == Side::end ? all : which([&](const EventPatterns& side) { return any(side, has); });
  }
  // Both have it, and it is the same in both.
  bool is_same(const std::string& name, Side side) const {
    const auto among = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (std::any_of(sides_.keys.begin(), sides_.keys.end(),
                    [&](const PairCondition::Key& key) { return field_of(key.start) == name && field_of(key.end) == name; }))
      return true;
    if (side == Side::both) return among({"syscall", "id", "__syscall_nr", "nr"}) && of_calls(0) && of_calls(1);
    return (sides_.one_thread && among({"comm", "COMM", "task", "pid", "tid", "common_pid", "cgroup"})) ||
           (sides_.one_cpu && among({"cpu", "CPU"})) || (sides_.one_ring && name == "ring");
  }

 private:
  template <class Is>
  bool any(const EventPatterns& side, const Is& is) const {
    const auto& all = formats_.all();
    return std::any_of(all.begin(), all.end(), [&](const auto& type) { return matches(side, *type) && is(*type); });
  }
  template <class Is>
  Side which(const Is& is) const {
    const bool start = is(events_[0]), end = is(events_[1]);
    return start && end ? Side::both : start ? Side::start : end ? Side::end : Side::none;
  }
  bool of_calls(size_t side) const {
    return !any(events_[side], [](const EventType& type) { return !type.of_syscalls; });
  }

  const PairCondition::Sides& sides_;
  const Formats& formats_;
  const EventPatterns events_[2];
};

class PairCondition::Compiler {
 public:
  Compiler(const std::string& text, const Sides& sides, const Formats& formats, const Tasks& tasks)
      : text_(text), sides_(sides), formats_(formats), tasks_(tasks), meaning_(sides, formats) {}

  result<PairCondition> compile() {
    RS_TRY(parsed_.parse(text_));
    Part whole = RS_TRY(part(parsed_.root_));
    condition_.tree_ = whole.side == Side::none ? std::move(whole.tree) : RS_TRY(filter(whole.side, whole.text));
    return std::move(condition_);
  }

 private:
  using Side = PairMeaning::Side;
  using Node = Filter::Node;
  // Of one side: its text. Else a tree.
  struct Part {
    Side side = Side::none;
    std::string text{};
    Node tree{};
  };

  result<Part> part(const Node& node) {
    if (node.kind == Node::Kind::leaf) {
      Part one = RS_TRY(comparison(parsed_.leaves_[node.leaf]));
      if (node.negated) one.text.insert(0, "!");
      one.tree.negated = node.negated;
      return one;
    }
    const char* const between = node.kind == Node::Kind::all ? " && " : " || ";
    std::string texts[2];
    Part out;
    out.tree.kind = node.kind;
    out.tree.negated = node.negated;
    for (const Node& child : node.children) {
      Part one = RS_TRY(part(child));
      if (one.side == Side::none) {
        out.tree.children.push_back(std::move(one.tree));
        continue;
      }
      std::string& text = texts[one.side == Side::end];
      text += (text.empty() ? "" : between) + one.text;
    }
    for (const Side side : {Side::start, Side::end}) {
      const bool end = side == Side::end;
      if (texts[end].empty()) continue;
      if (texts[!end].empty() && out.tree.children.empty()) return Part{side, (node.negated ? "!(" : "(") + texts[end] + ")"};
      out.tree.children.push_back(RS_TRY(filter(side, texts[end])));
    }
    return out;
  }

  result<Node> filter(Side side, const std::string& text) {
    auto& filters = side == Side::start ? condition_.starts_ : condition_.ends_;
    Test test;
    test.of = side == Side::start ? Of::start : Of::end;
    test.at = static_cast<u32>(filters.size());
    if (test.of == Of::start && test.at == most_of_start)
      return mistyped(std::errc::invalid_argument, "filter: it asks the start in more than " + std::to_string(most_of_start) +
                                                       " places; put comparisons of the start side by side");
    auto made = RS_TRY(Filter::compile(text, formats_, tasks_));
    filters.push_back(std::move(made));
    return leaf(test);
  }
  Node leaf(const Test& test) {
    Node node;
    node.leaf = static_cast<u32>(condition_.tests_.size());
    condition_.tests_.push_back(test);
    return node;
  }

  result<Part> comparison(const Filter::Leaf& one) {
    if (one.field.empty())
      return wrong(one, "a condition on pairs takes no event with a colon in front; start/FIELD and end/FIELD name the side");
    const std::string event = one.field_at == one.at ? "" : text_.substr(one.at, one.field_at - one.at - 1);
    if (event.empty() && one.field == "latency") return Part{Side::none, "", leaf(RS_TRY(latency(one)))};
    std::string rest = text_.substr(one.field_at, one.end - one.field_at);
    const Side side = RS_TRY(side_of(one, event));
    if (event.empty() && one.field == "key") rest.replace(0, one.field.size(), field_of(sides_.keys[0].end));
    // Of the side's events, not of all that have such a field.
    const bool named = !event.empty() && event != "start" && event != "end";
    return Part{side, (named ? event : meaning_.events_of(side)) + "/" + rest};
  }

  result<Test> latency(const Filter::Leaf& one) const {
    using Compare = Filter::Compare;
    const Filter::Value& time = one.value;
    if (!time.is_time || time.number != Filter::Value::Number::whole || time.whole < 0 || one.compare == Compare::glob ||
        one.compare == Compare::bits)
      return wrong(one,
                   "latency is the time from start to end: compare it with a time and its unit, as in latency > 5ms, by "
                   "== != < <= > >=");
    Test test;
    test.of = Of::latency;
    test.compare = one.compare;
    test.ns = static_cast<u64>(time.whole);
    return test;
  }

  result<Side> side_of(const Filter::Leaf& one, const std::string& event) const {
    const std::string& name = one.field;
    const std::string both = ": write start/" + name + " or end/" + name;
    if (event == "start") return Side::start;
    if (event == "end") return Side::end;
    if (!event.empty()) {
      const Side side = meaning_.of_event(one.events);
      if (side == Side::none) return wrong(one, in_quotes(event) + " is neither a start nor an end of these pairs");
      if (side == Side::both) return wrong(one, in_quotes(event) + " starts and ends these pairs" + both);
      return side;
    }
    if (name == "stack") return Side::start;
    if (name == "key") {
      if (sides_.keys.size() == 1) return Side::end;
      std::string all;
      for (const Key& key : sides_.keys) all += (all.empty() ? "start/" : ", start/") + std::string(field_of(key.start));
      return wrong(one, "these pairs have several keys: " + all);
    }
    const Side side = meaning_.of_field(name);
    if (side == Side::start || side == Side::end) return side;
    if (side == Side::none && !is_builtin(name))
      return wrong(one, "neither the start nor the end has a field " + in_quotes(name) + near_names(name, formats_) +
                            (near_names(name, formats_).empty() ? "; a" : " A") +
                            " condition on pairs knows start/FIELD, end/FIELD, latency, stack and key");
    if (!meaning_.is_same(name, side))
      return wrong(one, "start and end both have " + in_quotes(name) + ", and it may differ" + both);
    return side == Side::both ? Side::start : Side::end;  // names of threads are better known at the end
  }

  tl::unexpected<Error> wrong(const Filter::Leaf& one, const std::string& why) const {
    return tl::unexpected<Error>(Filter::error_at(text_, one.at, why));
  }

  const std::string& text_;
  const Sides& sides_;
  const Formats& formats_;
  const Tasks& tasks_;
  const PairMeaning meaning_;
  Filter parsed_{};
  PairCondition condition_{};
};

result<PairCondition> PairCondition::compile(const std::string& text, const Sides& sides, const Formats& formats,
                                             const Tasks& tasks) {
  return Compiler(text, sides, formats, tasks).compile();
}

u32 PairCondition::of_start(const TraceRecord& record, const RingName& ring) {
  u32 bits = 0;
  for (size_t i = 0; i < starts_.size(); ++i) bits |= u32{starts_[i].matches(record, ring)} << i;
  return bits;
}

bool PairCondition::met(u32 of_start, u64 latency, const TraceRecord& end, const RingName& ring) {
  return met(tree_, of_start, latency, end, ring);
}

bool PairCondition::is(const Test& test, u32 of_start, u64 latency, const TraceRecord& end, const RingName& ring) {
  if (test.of == Of::start) return (of_start >> test.at & 1) != 0;
  if (test.of == Of::end) return ends_[test.at].matches(end, ring);
  switch (test.compare) {
    case Filter::Compare::equal:
      return latency == test.ns;
    case Filter::Compare::unequal:
      return latency != test.ns;
    case Filter::Compare::less:
      return latency < test.ns;
    case Filter::Compare::less_equal:
      return latency <= test.ns;
    case Filter::Compare::greater:
      return latency > test.ns;
    default:
      return latency >= test.ns;
  }
}

bool PairCondition::met(const Filter::Node& node, u32 of_start, u64 latency, const TraceRecord& end, const RingName& ring) {
  using Kind = Filter::Node::Kind;
  const auto child = [&](const Filter::Node& one) { return met(one, of_start, latency, end, ring); };
  const bool holds = node.kind == Kind::leaf  ? is(tests_[node.leaf], of_start, latency, end, ring)
                     : node.kind == Kind::all ? std::all_of(node.children.begin(), node.children.end(), child)
                                              : std::any_of(node.children.begin(), node.children.end(), child);
  return holds != node.negated;
}

std::vector<const Filter*> PairCondition::filters() const {
  std::vector<const Filter*> all;
  for (const auto* side : {&starts_, &ends_}) {
    for (const Filter& filter : *side) all.push_back(&filter);
  }
  return all;
}

}  // namespace ringside
