// The text of a filter, as the expressions that filter.cpp compiles.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "analysis/filter.hpp"
#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "schema/filter_clauses.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr std::string_view end_of_word = " \t\r\n()&|!=<>~\"'";
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

template <class T>
bool read_all(std::string_view text, T& value, int base) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return code == std::errc() && end == text.data() + text.size();
}

}  // namespace

// Recursive descent; as deep as the parentheses, so at most `deepest`.
class FilterParser {
 public:
  FilterParser(std::string_view text, Filter& filter) : whole_(text), filter_(filter) {}

  result<void> parse() {
    if (whole_.size() > Filter::longest)
      return mistyped(std::errc::invalid_argument, "filter: the text has " + std::to_string(whole_.size()) + " bytes, " +
                                                       std::to_string(Filter::longest) + " are the most");
    const auto clauses = RS_TRY(filter_clauses(whole_));
    Node& root = filter_.root_;
    root.kind = Node::Kind::all;
    for (const FilterClause& clause : clauses) {
      at_ = static_cast<size_t>(clause.text.data() - whole_.data());
      text_ = whole_.substr(0, at_ + clause.text.size());
      root.children.emplace_back();
      if (!this->clause(clause, root.children.back())) return tl::unexpected<Error>(*error_);
    }
    return {};
  }

 private:
  using Node = Filter::Node;

  bool fail(const std::string& why) {
    if (!error_) error_ = Filter::error_at(whole_, at_, why);
    return false;
  }
  // An event that the clause does not name passes it.
  bool clause(const FilterClause& clause, Node& node) {
    Node* condition = &node;
    if (!clause.events.empty()) {
      Filter::Leaf named;
      named.events = clause.events;
      named.at = named.field_at = named.value_at = named.end = at_;
      node.kind = Node::Kind::any;
      node.children.resize(2);
      node.children[0].negated = true;
      node.children[0].leaf = static_cast<u32>(filter_.leaves_.size());
      filter_.leaves_.push_back(std::move(named));
      condition = &node.children[1];
    }
    if (!any(*condition)) return false;
    if (skip(); at_ == text_.size()) return true;
    return fail(text_[at_] == ')' ? "there is no ( for this )" : "expected && or || here");
  }
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  bool any(Node& node) { return list(node, Node::Kind::any, "||", &FilterParser::all); }
  bool all(Node& node) { return list(node, Node::Kind::all, "&&", &FilterParser::one); }
  bool list(Node& node, Node::Kind kind, std::string_view between, bool (FilterParser::*part)(Node&)) {
    node.kind = kind;
    do {
      node.children.emplace_back();
      if (!(this->*part)(node.children.back())) return false;
    } while (take(between));
    return true;
  }

  bool one(Node& node) {
    bool negated = false;
    while (take("!")) negated = !negated;
    const size_t open = at_;
    if (!take("(")) {
      if (!comparison(node)) return false;
    } else {
      if (++depth_ > Filter::deepest) return fail("parentheses are nested deeper than " + std::to_string(Filter::deepest));
      if (!any(node)) return false;
      if (!take(")")) {
        if (at_ == text_.size()) at_ = open;
        return fail(at_ == open ? "this ( has no )" : "expected ), && or || here");
      }
      --depth_;
    }
    node.negated = negated;
    return true;
  }

  bool comparison(Node& node) {
    using Compare = Filter::Compare;
    constexpr std::pair<std::string_view, Compare> compares[] = {
        {"==", Compare::equal},         {"!=", Compare::unequal}, {"<=", Compare::less_equal}, {">=", Compare::greater_equal},
        {"<", Compare::less},           {">", Compare::greater},  {"&", Compare::bits},        {"~", Compare::glob}};
    Filter::Leaf leaf;
    skip();
    leaf.at = at_;
    if (at_ == text_.size()) return fail("expected a field's name, but the text ends here");
    if (!event(leaf)) return false;
    if (at_ == text_.size() || !is_letter(text_[at_])) return fail("expected a field's name here");
    leaf.field_at = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) leaf.field += text_[at_++];
    if (leaf.field == "stack" && at_ < text_.size() && text_[at_] == '[') {
      const size_t end = text_.find(']', at_);
      if (end == std::string_view::npos || !read_all(text_.substr(at_ + 1, end - at_ - 1), leaf.frame, 10) || leaf.frame < 0)
        return fail("expected stack[N]: 0 is the innermost function, 1 its caller");
      at_ = end + 1;
    }
    skip();
    if (at_ < text_.size() && text_[at_] == ':')
      return fail("a clause of one event has a space after its \":\": sched_switch: next_pid == 1");
    const auto* const found = std::find_if(std::begin(compares), std::end(compares), [&](const auto& c) {
      return text_.substr(at_, c.first.size()) == c.first;
    });
    if (found == std::end(compares) || text_.substr(at_, 2) == "&&")
      return fail("expected a comparison here (== != < <= > >= & ~): " + in_quotes(leaf.field) + " alone is not a comparison");
    at_ += found->first.size();
    leaf.compare = found->second;
    skip();
    leaf.value_at = at_;
    if (!value(leaf.value)) return false;
    leaf.end = at_;
    node.kind = Node::Kind::leaf;
    node.leaf = static_cast<u32>(filter_.leaves_.size());
    filter_.leaves_.push_back(std::move(leaf));
    return true;
  }

  // [ EVENT "/" ]
  bool event(Filter::Leaf& leaf) {
    const std::string_view word = text_.substr(at_, std::min(text_.find_first_of(end_of_word, at_), text_.size()) - at_);
    const size_t slash = word.rfind('/');
    if (slash == std::string_view::npos) return true;
    auto events = EventPatterns::parse(word.substr(0, slash));
    if (!events) return fail(events.error().sentence);
    leaf.events = std::move(*events);
    at_ += slash + 1;
    return true;
  }

  bool value(Filter::Value& value) {
    if (at_ == text_.size()) return fail("expected a value, but the text ends here");
    if (const char quote = text_[at_]; quote == '"' || quote == '\'') {
      const size_t end = text_.find(quote, at_ + 1);
      if (end == std::string_view::npos) return fail("this quote has no end");
      value.quote = quote;
      value.text = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return true;
    }
    const size_t end = std::min(text_.find_first_of(end_of_word, at_), text_.size());
    if (end == at_) return fail("expected a value here: a number, a \"text\" or a name");
    value.text = text_.substr(at_, end - at_);
    at_ = end;
    number(value);
    return true;
  }

  // A value that is no number stays a text; the field decides whether it accepts a text.
  static void number(Filter::Value& value) {
    using Number = Filter::Value::Number;
    std::string_view text = value.text;
    const bool negative = text[0] == '-';
    if (negative) text.remove_prefix(1);
    if (text.empty() || !is_digit(text[0])) return;
    const bool digits = std::all_of(text.begin(), text.end(), is_digit);
    const bool hex = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    u64 magnitude = 0;
    if (hex || digits) {
      if (hex ? !read_all(text.substr(2), magnitude, 16) : !read_all(text, magnitude, text[0] == '0' ? 8 : 10)) return;
      if (negative && magnitude > u64{1} << 63) return;
      value.number = Number::whole;
      value.whole = negative ? -static_cast<__int128>(magnitude) : static_cast<__int128>(magnitude);
      value.real = static_cast<double>(value.whole);
      return;
    }
    u64 unit = 1;
    for (const auto& [suffix, ns] :
         {std::pair<std::string_view, u64>{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}}) {
      if (!text.ends_with(suffix)) continue;
      text.remove_suffix(suffix.size());
      unit = ns;
      value.is_time = true;
      break;
    }
    long double real = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), real);
    if (code != std::errc() || end != text.data() + text.size()) return;
    real *= static_cast<long double>(negative ? -1 : 1) * static_cast<long double>(unit);
    if (value.is_time) real = std::round(real);
    value.real = static_cast<double>(real);
    value.number = Number::real;
    if (real == std::floor(real) && real >= -0x1p63L && real < 0x1p64L) {
      value.number = Number::whole;
      value.whole = static_cast<__int128>(real);
    }
  }

  const std::string_view whole_;
  std::string_view text_{};  // up to the end of the clause
  Filter& filter_;
  size_t at_ = 0;
  u32 depth_ = 0;
  std::optional<Error> error_;
};

result<void> Filter::parse(std::string_view text) { return FilterParser(text, *this).parse(); }

Error Filter::error_at(std::string_view text, size_t at, const std::string& why, std::errc code) {
  constexpr size_t around = 60;
  const size_t begin = at > around ? at - around : 0;
  std::string line;
  for (const char c : text.substr(begin, 2 * around)) line += sys::is_control(c) ? ' ' : c;
  return mistyped(code, "filter: " + why + "\n  " + line + "\n  " + std::string(at - begin, ' ') + "^").value();
}

}  // namespace ringside
