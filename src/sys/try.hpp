// The value of a result<T>, or a return from the function with its Error.
//   auto meta = RS_TRY(RecordingMeta::read(dir));
//   RS_TRY(writer.save());
// It is alone, after = or return, or as a call's only argument: beside others, the order in which they are evaluated is
// open, and `new T(RS_TRY(...))` would lose its memory.
#pragma once
#include "ringside/base/result.hpp"

namespace ringside {

template <class T>
T value_of(result<T>&& r) {
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

}  // namespace ringside

#define RS_TRY(...) RS_TRY_AS(RS_TRY_NAME(__COUNTER__), __VA_ARGS__)
#define RS_TRY_NAME(n) RS_TRY_NAME_(n)
#define RS_TRY_NAME_(n) rs_result_##n  // a name of its own: what is tried may hold another RS_TRY
#define RS_TRY_AS(name, ...)                                                      \
  __extension__({                                                                 \
    auto name = __VA_ARGS__;                                                      \
    if (!name) return tl::unexpected<::ringside::Error>(std::move(name).error()); \
    ::ringside::value_of(std::move(name));                                        \
  })
