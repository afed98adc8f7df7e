// std::thread whose failure is an error with a sentence.
#pragma once
#include <ringside/base/result.hpp>
#include <thread>

namespace ringside::sys {

// what: "that reads the kernel's rings".
template <class Body>
result<std::thread> start_thread(const std::string& what, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    return fail(e.code().value(), "cannot start the thread " + what);
  }
}

}  // namespace ringside::sys
