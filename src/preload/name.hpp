#pragma once

namespace ringside::preload {

// This thread has given itself a name.
void thread_was_named(const char* name) noexcept;

}  // namespace ringside::preload
