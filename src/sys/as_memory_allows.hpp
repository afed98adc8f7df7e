// For destructors and threads of a library, which must not end the process.
#pragma once
#include <new>

namespace ringside::sys {

// What finds no memory is left undone.
template <class Work>
void as_memory_allows(const Work& work) noexcept {
  try {
    work();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace ringside::sys
