#include "sys/json.hpp"

NLOHMANN_JSON_NAMESPACE_BEGIN
template void json::json_value::destroy(detail::value_t);
template void ordered_json::json_value::destroy(detail::value_t);
namespace detail {
template class lexer<json, TextAdapter>;
template class parser<json, TextAdapter>;
template class serializer<json>;
template class serializer<ordered_json>;
}  // namespace detail
NLOHMANN_JSON_NAMESPACE_END
