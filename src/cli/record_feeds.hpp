// The feeds of `ringside record` beside the program's: the kernel, samples, external writers, the kernel's own remotes.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "cli/record_options.hpp"
#include "instance/instance.hpp"
#include "kernel/kernel_remote.hpp"
#include "probe/file_calls.hpp"
#include "probe/libc_calls.hpp"
#include "record/kernel_feed.hpp"
#include "record/remote_feed.hpp"
#include "record/sample_feed.hpp"
#include "record/source_feed.hpp"

namespace ringside::cli {

struct Others {
  std::unique_ptr<KernelFeed> kernel;
  std::unique_ptr<SampleFeed> samples;
  std::vector<std::unique_ptr<RemoteFeed>> remotes;
  std::vector<std::unique_ptr<KernelRemote>> kernel_remotes;
  std::unique_ptr<SourceFeed> of_kernel_remotes;  // null: there are none
  std::unique_ptr<LibcCalls> libc;                // null: none are probed
  std::unique_ptr<SourceFeed> of_libc;
  std::unique_ptr<FileCalls> files;  // null: they are not noted
  std::unique_ptr<SourceFeed> of_files;

  bool has_remotes() const { return !remotes.empty(); }
  bool remotes_ended() const {
    return std::none_of(remotes.begin(), remotes.end(), [](const auto& remote) { return remote->attached(); });
  }
  std::vector<Feed*> all() const {
    std::vector<Feed*> feeds{kernel.get(), samples.get()};
    for (const auto& remote : remotes) feeds.push_back(remote.get());
    feeds.push_back(of_kernel_remotes.get());
    feeds.push_back(of_libc.get());
    feeds.push_back(of_files.get());
    std::erase(feeds, nullptr);
    return feeds;
  }
};

result<Others> make_others(const RecordOptions& options, const Instance& instance);
// Null: no samples by the kernel are wanted. Without samples (a rate of 0) it records the symbols at the addresses of stacks.
result<std::unique_ptr<SampleFeed>> make_samples(const RecordOptions& options, const ClockInfo& clock,
                                                 const std::vector<i32>& pids);

}  // namespace ringside::cli
