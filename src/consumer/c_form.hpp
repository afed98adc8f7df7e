// What the C interfaces share: texts for the caller, and no exceptions.
#pragma once
#include <ringside/consumer.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

struct ringside_remote_reader;

namespace ringside::c_form {

inline void tell(std::string_view sentence, char* error, size_t size) {
  if (error == nullptr || size == 0) return;
  const size_t length = std::min(sentence.size(), size - 1);
  std::memcpy(error, sentence.data(), length);
  error[length] = 0;
}

// Unexpected exceptions become an error like the others.
template <class Make>
auto guarded(char* error, size_t size, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    tell("not enough memory", error, size);
    return {};
  } catch (const std::exception& e) {
    tell(e.what(), error, size);
    return {};
  }
}

// What must be there, by its name.
struct Argument {
  const char* name;
  const void* value;
};
inline bool all_there(std::initializer_list<Argument> arguments, char* error, size_t size) {
  for (const auto& [name, value] : arguments) {
    if (value != nullptr) continue;
    tell(std::string("the argument ") + name + " is NULL", error, size);
    return false;
  }
  return true;
}

// remote: read beside the others; null: none. options: null: that alone.
ringside_consumer* open_consumer(const ringside_consumer_options* options, ringside_remote_reader* remote, char* error,
                                 size_t error_size);

}  // namespace ringside::c_form
