// result<T>: what the library returns off the hot paths. An Error is a code and one sentence, which says what was tried, on
// what, why it failed, and what to do. Hosted only.
#pragma once
#include <cerrno>
#include <string>
#include <system_error>
#include <tl/expected.hpp>
#include <utility>

namespace ringside {

struct Error {
  std::error_code code;
  std::string sentence;
};

template <class T>
using result = tl::expected<T, Error>;

// What to do about a limit of the system, for any caller that ran into it.
inline const char* advice(int errno_value) noexcept {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT: return "; make room there, or choose another place";
    case EROFS: return "; that file system is read-only, choose another place";
    case EFBIG: return "; files may not grow beyond ulimit -f, raise it";
    case EMFILE: return "; this process may not open more files, raise ulimit -n";
    case ENFILE: return "; no process may open more files, raise the sysctl fs.file-max";
    case ENOMEM: return "; raise ulimit -v, or the sysctl vm.max_map_count for thousands of rings";
    default: return "";
  }
}

// An Error from an errno value. Appends to the sentence the system's words for it, and what to do about a limit.
inline tl::unexpected<Error> fail(int errno_value, std::string sentence) {
  std::error_code code{errno_value, std::generic_category()};
  return tl::unexpected<Error>(Error{code, std::move(sentence) + ": " + code.message() + advice(errno_value)});
}

// An Error whose sentence is complete.
inline tl::unexpected<Error> refuse(std::errc code, std::string sentence) {
  return tl::unexpected<Error>(Error{std::make_error_code(code), std::move(sentence)});
}

// What a C interface returns or stores for an Error.
inline int errno_of(const Error& e) { return e.code.value() > 0 ? e.code.value() : EIO; }

// For code that cannot return an error: throws std::system_error with the sentence.
template <class T>
T must(result<T>&& r) {
  if (!r) throw std::system_error(r.error().code, r.error().sentence);
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

}  // namespace ringside
