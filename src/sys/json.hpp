// JSON: <nlohmann/json.hpp>, of which json.cpp compiles once all that does not depend on the includer.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

NLOHMANN_JSON_NAMESPACE_BEGIN
extern template class basic_json<>;
extern template class basic_json<ordered_map>;
namespace detail {
using TextAdapter = iterator_input_adapter<std::string::const_iterator>;
extern template class lexer<json, TextAdapter>;
extern template class parser<json, TextAdapter>;
extern template class serializer<json>;
extern template class serializer<ordered_json>;
}  // namespace detail
NLOHMANN_JSON_NAMESPACE_END
