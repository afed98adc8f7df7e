// The output of --json: objects with their members in the order of insertion, one a line. docs/json.md is the schema.
#pragma once
#include <fmt/format.h>

#include <random>
#include <string>

#include "cli/command.hpp"
#include "export/json.hpp"
#include "text/units.hpp"
#include "sys/json.hpp"

namespace ringside::cli {

using Json = nlohmann::ordered_json;

constexpr int json_schema = 1;  // the number of docs/json.md

// --json and --json-safe
inline void add_json(CLI::App& app, bool& json, const std::string& what) {
  app.add_flag("--json", json, what);
  app.add_flag_callback(
      "--json-safe", [&json] { json = json_safe = true; },
      "the same, but whole numbers beyond 2^53 are texts: for JavaScript and jq before 1.7");
}

template <class AnyJson>
void make_safe(AnyJson& json) {
  if (json.is_structured()) {
    for (auto& inner : json) make_safe(inner);
  } else if (json.is_number_unsigned() ? needs_text(static_cast<i64>(json.template get<u64>()), false)
                                       : json.is_number_integer() && needs_text(json.template get<i64>(), true)) {
    json = json.dump();
  }
}

// A whole number beyond 64 bits, which Json cannot hold, is a text that begins with this; text_of makes a number of it. Random:
// no text of an event is taken for one.
inline const std::string& large_number_mark() {
  static const std::string mark = [] {
    std::random_device random;
    return fmt::format("number {:08x}{:08x}{:08x} ", random(), random(), random());
  }();
  return mark;
}
inline Json whole(Whole value) {
  if (value >= INT64_MIN && value <= INT64_MAX) return static_cast<i64>(value);
  if (value > 0 && value <= UINT64_MAX) return static_cast<u64>(value);
  return json_safe ? digits_of(value) : large_number_mark() + digits_of(value);
}
inline void unquote_large_numbers(std::string& text) {
  const std::string begin = '"' + large_number_mark();
  for (size_t at = text.find(begin); at != text.npos; at = text.find(begin, at)) {
    text.erase(at, begin.size());
    text.erase(text.find('"', at), 1);
  }
}

// Invalid UTF-8 becomes U+FFFD.
template <class AnyJson>
std::string text_of(AnyJson json) {
  if (json_safe) make_safe(json);
  std::string text = json.dump(-1, ' ', false, AnyJson::error_handler_t::replace);
  unquote_large_numbers(text);
  return text;
}
// An object begins with the schema's number.
template <class AnyJson>
std::string line_of(AnyJson json) {
  std::string text = text_of(std::move(json));
  if (text[0] == '{') text.insert(1, "\"schema\":" + std::to_string(json_schema) + (text == "{}" ? "" : ","));
  return text + "\n";
}

// Rounded to this number of digits after the point; without one: as short as possible. Values that JSON cannot express are
// null.
inline Json rounded(double value, int digits = -1) {
  Json json = Json::parse(digits < 0 ? fmt::format("{}", value) : fmt::format("{:.{}f}", value, digits), nullptr, false);
  return json.is_discarded() ? Json() : json;
}

}  // namespace ringside::cli
