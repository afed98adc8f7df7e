// The output of --json: objects with their members in the order of insertion, one a line.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ringside::cli {

using Json = nlohmann::ordered_json;

// Invalid UTF-8 becomes U+FFFD.
template <class AnyJson>
std::string line_of(const AnyJson& json) {
  return json.dump(-1, ' ', false, AnyJson::error_handler_t::replace) + "\n";
}

// Rounded to this number of digits behind the point; without one: as short as possible. Values that JSON cannot express are
// null.
inline Json rounded(double value, int digits = -1) {
  Json json = Json::parse(digits < 0 ? fmt::format("{}", value) : fmt::format("{:.{}f}", value, digits), nullptr, false);
  return json.is_discarded() ? Json() : json;
}

}  // namespace ringside::cli
