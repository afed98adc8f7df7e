// What --json prints: objects whose members stand as they were put in, one a line.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ringside::cli {

using Json = nlohmann::ordered_json;

// What is no UTF-8 becomes U+FFFD.
template <class AnyJson>
std::string line_of(const AnyJson& json) {
  return json.dump(-1, ' ', false, AnyJson::error_handler_t::replace) + "\n";
}

// Rounded to so many digits behind the point; without: as short as it can be. What JSON has no word for is null.
inline Json rounded(double value, int digits = -1) {
  Json json = Json::parse(digits < 0 ? fmt::format("{}", value) : fmt::format("{:.{}f}", value, digits), nullptr, false);
  return json.is_discarded() ? Json() : json;
}

}  // namespace ringside::cli
