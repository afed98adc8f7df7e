// Random filters on random events: a compiled filter answers like a walk over the tree of the expression and the values.
#include "analysis/filter.hpp"

#include <fnmatch.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <random>
#include <variant>

#include "schema/glob.hpp"
#include "cli/hand_made.hpp"

namespace ringside::test::filter_test {
namespace {

// A plain value: a whole number of any size, a floating one or a text.
using Plain = std::variant<__int128, double, std::string>;
struct Event {
  std::vector<u8> payload;
  u32 ids = 0;
  u64 time = 0;
  RingName ring;
  std::map<std::string, Plain> values;
  std::map<std::string, int> width;  // bits of whole numbers
};

// `!`, a comparison, or a list of parts: the complete grammar.
struct Tree {
  enum Kind { comparison, negation, conjunction, disjunction } kind = comparison;
  std::string field, compare, value_text;
  Plain value;
  std::vector<Tree> parts;
};

bool obvious(const Tree& tree, const Event& event) {
  switch (tree.kind) {
    case Tree::negation:
      return !obvious(tree.parts[0], event);
    case Tree::conjunction:
      for (const Tree& part : tree.parts)
        if (!obvious(part, event)) return false;
      return true;
    case Tree::disjunction:
      for (const Tree& part : tree.parts)
        if (obvious(part, event)) return true;
      return false;
    default:
      break;
  }
  const auto found = event.values.find(tree.field);
  if (found == event.values.end()) return false;
  const auto by_order = [&](auto a, auto b) {
    return tree.compare == "=="   ? a == b
           : tree.compare == "!=" ? a != b
           : tree.compare == "<"  ? a < b
           : tree.compare == "<=" ? a <= b
           : tree.compare == ">"  ? a > b
                                  : a >= b;
  };
  if (const auto* text = std::get_if<std::string>(&found->second)) {
    const auto& wanted = std::get<std::string>(tree.value);
    return tree.compare == "~"    ? fnmatch(wanted.c_str(), text->c_str(), 0) == 0
           : tree.compare == "==" ? *text == wanted
                                  : *text != wanted;
  }
  if (const auto* real = std::get_if<double>(&found->second))
    return by_order(*real, static_cast<double>(std::get<__int128>(tree.value)) / 4);
  const __int128 have = std::get<__int128>(found->second), wanted = std::get<__int128>(tree.value);
  if (tree.compare != "&") return by_order(have, wanted);
  for (int bit = 0; bit < event.width.at(tree.field); ++bit)
    if ((have >> bit & 1) != 0 && (wanted >> bit & 1) != 0) return true;
  return false;
}

struct World {
  Formats formats;
  Tasks tasks;
  World() {
    formats.add(1, "app", "numbers",
                format(1, "numbers",
                       "\tfield:u8 a;\toffset:8;\tsize:1;\tsigned:0;\n\tfield:s8 b;\toffset:9;\tsize:1;\tsigned:1;\n"
                       "\tfield:u16 c;\toffset:10;\tsize:2;\tsigned:0;\n\tfield:s32 d;\toffset:12;\tsize:4;\tsigned:1;\n"
                       "\tfield:u64 e;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:s64 f;\toffset:24;\tsize:8;\tsigned:1;\n",
                       R"("a=%u", REC->a)"));
    formats.add(
        kernel_ids + 1, "kern", "mixed",
        format(1, "mixed",
               "\tfield:s16 a;\toffset:8;\tsize:2;\tsigned:1;\n\tfield:u32 d;\toffset:12;\tsize:4;\tsigned:0;\n"
               "\tfield:double g;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:char name[4];\toffset:24;\tsize:4;\tsigned:0;\n"
               "\tfield:__data_loc char[] more;\toffset:28;\tsize:4;\tsigned:0;\n",
               R"("a=%d", REC->a)"));
    tasks.add(Task{5, 5, "abc", "abc"});
  }
};

using Random = std::mt19937_64;

// Edges more often than the middle.
u64 number(Random& random) {
  switch (random() % 4) {
    case 0:
      return random() % 4;
    case 1:
      return (u64{1} << random() % 64) - random() % 2;
    case 2:
      return ~u64{0} - random() % 4;
    default:
      return random();
  }
}

std::string text(Random& random, std::string_view of, size_t longest) {
  std::string out;
  for (size_t n = random() % (longest + 1); n != 0; --n) out += of[random() % of.size()];
  return out;
}

Event event(Random& random) {
  Event e;
  const bool kernel = random() % 2 == 0;
  const i32 tid = random() % 2 == 0 ? 5 : 6;
  Payload p(1, tid);
  const auto whole = [&](const char* name, auto value) {
    p.put(value);
    e.values[name] = static_cast<__int128>(value);
    e.width[name] = sizeof value * 8;
  };
  if (kernel) {
    whole("a", static_cast<int16_t>(number(random)));
    p.put(u16{0});
    whole("d", static_cast<u32>(number(random)));
    const double real = static_cast<double>(static_cast<i64>(random() % 9) - 4) / 4;
    p.put(real);
    e.values["g"] = real;
    const std::string name = text(random, "ab", 4), more = text(random, "ab-", 6);
    p.text(name)
        .text(std::string(4 - name.size(), '\0'))
        .put(static_cast<u32>(32 | (more.size() + 1) << 16))
        .text(more)
        .text({"\0", 1});
    e.values["name"] = name;
    e.values["more"] = more;
  } else {
    whole("a", static_cast<u8>(number(random)));
    whole("b", static_cast<int8_t>(number(random)));
    whole("c", static_cast<u16>(number(random)));
    whole("d", static_cast<i32>(number(random)));
    whole("e", number(random));
    whole("f", static_cast<i64>(number(random)));
  }
  e.payload = p.bytes();
  e.ids = kernel ? kernel_ids : 0;
  e.time = number(random);
  e.ring = {static_cast<u32>(random() % 3), 6, 6, "ba", "ba", kernel, ""};
  const auto also = [&](const char* name, __int128 value, int bits) {
    e.values[name] = value;
    e.width[name] = bits;
  };
  also("ts", e.time, 64);
  also("ring", e.ring.ring, 32);
  also("tid", tid, 32);
  e.values["comm"] = tid == 5 ? std::string("abc") : std::string("ba");
  e.values["source"] = kernel ? std::string("kernel") : std::string("program");
  e.values["event"] = kernel ? std::string("mixed") : std::string("numbers");
  return e;
}

std::string spelled(__int128 value, Random& random) {
  const bool negative = value < 0;
  const auto magnitude = static_cast<u64>(negative ? -value : value);
  constexpr const char* ways[] = {"{}", "{:#x}", "{:#o}"};
  return (negative ? "-" : "") + fmt::format(fmt::runtime(ways[random() % 3]), magnitude);
}

Tree tree(Random& random, u32 depth) {
  Tree t;
  if (depth != 0 && random() % 3 != 0) {
    t.kind = static_cast<Tree::Kind>(1 + random() % 3);
    for (u64 n = t.kind == Tree::negation ? 1 : 2 + random() % 2; n != 0; --n) t.parts.push_back(tree(random, depth - 1));
    return t;
  }
  constexpr const char* fields[] = {"a",   "b", "c",    "d",    "e",    "f",      "ts",   "ring",
                                    "tid", "g", "name", "more", "comm", "source", "event"};
  constexpr const char* compares[] = {"==", "!=", "<", "<=", ">", ">=", "&"};
  const u64 which = random() % 15;
  t.field = fields[which];
  if (which >= 10) {
    t.compare = std::array{"==", "!=", "~"}[random() % 3];
    const std::string words[] = {
        text(random, t.compare == "~" ? "ab*?" : "ab-", 4), "kernel", "mixed", "abc", "[!b]*", "*[k-n]*"};
    std::string word = words[random() % 6];
    t.value = word;
    const char* quote = random() % 2 == 0 ? "\"" : "'";
    t.value_text = quote + word + quote;
  } else if (which == 9) {
    t.compare = compares[random() % 6];
    const auto quarters = static_cast<__int128>(random() % 9) - 4;
    t.value = quarters;
    t.value_text = fmt::format("{}", static_cast<double>(quarters) / 4);
  } else {
    t.compare = compares[random() % 7];
    const u64 n = number(random);
    const __int128 value = random() % 2 == 0 ? static_cast<__int128>(n) : static_cast<__int128>(static_cast<i64>(n));
    t.value = value;
    t.value_text = spelled(value, random);
  }
  return t;
}

// As few parentheses as the precedence allows, or some more.
std::string written(const Tree& t, Random& random, int outer = 0) {
  const std::string gap = std::array{"", " ", "  ", "\t"}[random() % 4];
  if (t.kind == Tree::comparison) return t.field + gap + t.compare + gap + t.value_text;
  const int inner = t.kind == Tree::disjunction ? 1 : t.kind == Tree::conjunction ? 2 : 3;
  std::string out;
  for (const Tree& part : t.parts) {
    if (t.kind == Tree::negation) out += "!" + gap;
    else if (!out.empty()) out += gap + (t.kind == Tree::conjunction ? "&&" : "||") + gap;
    out += written(part, random, inner);
  }
  return inner < outer || random() % 8 == 0 ? "(" + gap + out + gap + ")" : out;
}

RC_GTEST_PROP(FilterProperty, AgreesWithAWalkOverTheTree, (u64 seed)) {
  static World world;
  Random random(seed);
  const Tree t = tree(random, static_cast<u32>(random() % 5));
  const std::string text = written(t, random);
  auto filter = Filter::compile(text, world.formats, world.tasks);
  if (!filter) RC_FAIL(filter.error().sentence);
  int met = 0;
  for (int i = 0; i < 8; ++i) {
    const Event e = event(random);
    TraceRecord record;
    record.time = e.time;
    record.payload = {e.payload.data(), e.payload.size()};
    record.ids = e.ids;
    const bool expected = obvious(t, e);
    met += expected ? 1 : 0;
    if (filter->matches(record, e.ring) != expected)
      RC_FAIL(text + (expected ? " is met" : " is not met") + " by event " + std::to_string(i));
  }
  RC_CLASSIFY(met != 0 && met != 8, "tells events apart");
}

RC_GTEST_PROP(FilterProperty, GlobsAgreeWithFnmatch, (u64 seed)) {
  Random random(seed);
  constexpr std::string_view parts[] = {"a", "b", "-", "*", "?", "[ab]", "[!a]", "[a-c]", "[^b-]", "\\*", "\\a"};
  std::string pattern;
  for (u64 n = random() % 6; n != 0; --n) pattern += parts[random() % std::size(parts)];
  for (int i = 0; i < 8; ++i) {
    const std::string subject = text(random, "abc-*", 6);
    if (glob_matches(pattern, subject) != (fnmatch(pattern.c_str(), subject.c_str(), 0) == 0))
      RC_FAIL(pattern + " on " + subject);
  }
}

}  // namespace
}  // namespace ringside::test::filter_test
