// The output of --json: objects with their members in the order of insertion, one a line. docs/json.md is the schema.
#pragma once
#include <fmt/format.h>

#include <string>

#include "cli/command.hpp"
#include "export/json.hpp"
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

// Invalid UTF-8 becomes U+FFFD.
template <class AnyJson>
std::string text_of(AnyJson json) {
  if (json_safe) make_safe(json);
  return json.dump(-1, ' ', false, AnyJson::error_handler_t::replace);
}
// An object begins with the schema's number.
template <class AnyJson>
std::string line_of(AnyJson json) {
  std::string text = text_of(std::move(json));
  if (text[0] == '{') text.insert(1, "\"schema\":" + std::to_string(json_schema) + (text == "{}" ? "" : ","));
  return text + "\n";
}

// Rounded to this number of digits behind the point; without one: as short as possible. Values that JSON cannot express are
// null.
inline Json rounded(double value, int digits = -1) {
  Json json = Json::parse(digits < 0 ? fmt::format("{}", value) : fmt::format("{:.{}f}", value, digits), nullptr, false);
  return json.is_discarded() ? Json() : json;
}

}  // namespace ringside::cli
