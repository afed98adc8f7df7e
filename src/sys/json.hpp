// JSON: <nlohmann/json.hpp>, of which json.cpp compiles once what takes the time of a program: to read a text, and to write one.
//
// An object begins as json::object(). One that begins as null and finds no memory for its first member is broken, and its
// destructor crashes.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

NLOHMANN_JSON_NAMESPACE_BEGIN
extern template void json::json_value::destroy(detail::value_t);
extern template void ordered_json::json_value::destroy(detail::value_t);
namespace detail {
using TextAdapter = iterator_input_adapter<std::string::const_iterator>;
extern template class lexer<json, TextAdapter>;
extern template class parser<json, TextAdapter>;
extern template class serializer<json>;
extern template class serializer<ordered_json>;
}  // namespace detail
NLOHMANN_JSON_NAMESPACE_END
