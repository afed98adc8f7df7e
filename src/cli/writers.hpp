// External writers that a command records or saves: by their sockets, or the names that they have announced.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "record/remote_feed.hpp"

namespace ringside::cli {

// Names become sockets. -i of an external writer means the writer. Throws UsageError: there are too many.
result<void> find_writers(std::string& instance, std::vector<std::string>& remotes);

// Connected; each begins when it is attached or armed.
struct WriterOptions {
  u64 buffer_size, subbuf_size;
  ClockInfo clock;
  EventPatterns events{};  // none: all
};
result<std::vector<std::unique_ptr<RemoteFeed>>> connect_writers(const std::vector<std::string>& sockets,
                                                                 const WriterOptions& options);

}  // namespace ringside::cli
