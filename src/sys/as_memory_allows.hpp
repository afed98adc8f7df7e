// For destructors and threads of a library, which must not end the process.
#pragma once
#include <new>

namespace ringside::sys {

// False: it found no memory.
template <class Work>
bool as_memory_allows(const Work& work) noexcept {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace ringside::sys
