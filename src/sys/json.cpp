#include "sys/json.hpp"

NLOHMANN_JSON_NAMESPACE_BEGIN
template class basic_json<>;
template class basic_json<ordered_map>;
namespace detail {
template class lexer<json, TextAdapter>;
template class parser<json, TextAdapter>;
template class serializer<json>;
template class serializer<ordered_json>;
}  // namespace detail
NLOHMANN_JSON_NAMESPACE_END
