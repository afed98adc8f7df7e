// The value of a result<T>, or a return from the function with its Error.
//   auto meta = RS_TRY(RecordingMeta::read(dir));
//   RS_TRY(writer.save());
#pragma once
#include "ringside/base/result.hpp"

namespace ringside {

template <class T>
T value_of(result<T>&& r) {
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

}  // namespace ringside

#define RS_TRY(...)                                                                        \
  __extension__({                                                                          \
    auto rs_result = __VA_ARGS__;                                                          \
    if (!rs_result) return tl::unexpected<::ringside::Error>(std::move(rs_result).error()); \
    ::ringside::value_of(std::move(rs_result));                                            \
  })
