// The recorder of an agent: an instance's events, the kernel's, or both, into the parts of a spool. It never waits for a server: a full
// spool loses its oldest part, a full disk what the rings lose meanwhile.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <ringside/base/result.hpp>
#include <string>

#include "instance/instance.hpp"
#include "record/instance_feed.hpp"
#include "record/kernel_feed.hpp"
#include "record/recording_run.hpp"
#include "ship/metrics.hpp"
#include "ship/spool.hpp"

namespace ringside::ship {

class Recorder {
 public:
  struct Options {
    std::string instance{};              // made if it is not there; empty: events of the kernel alone
    EventPatterns user{};                // of programs only these
    std::optional<KernelFeed::Options> kernel{};
    u64 buffer_size = 4 << 20;           // of rings that are made here
    u64 part_ns = 10'000'000'000, part_bytes = 64 << 20;
    std::function<void(const std::string&)> say;
  };
  static result<std::unique_ptr<Recorder>> create(Spool& spool, Options options);
  ~Recorder();

  // Takes the present events, for some ms; now and then a part becomes complete.
  result<void> poll();
  result<void> finish();  // the last part

  u64 events() const;  // in the part in the making
  std::vector<RingFill> fills() const;  // for another thread; a second old

 private:
  Recorder(Spool& spool, Options options) : spool_(spool), options_(std::move(options)) {}
  result<void> begin();
  result<void> complete();
  void look_at_fills();

  Spool& spool_;
  Options options_;
  std::unique_ptr<Instance> instance_;
  std::unique_ptr<InstanceFeed> program_;
  std::unique_ptr<KernelFeed> kernel_;
  ClockInfo clock_;
  std::unique_ptr<RecordingRun> run_;
  u64 begun_ns_ = 0;
  bool said_full_ = false;
  mutable std::mutex fills_mutex_;
  std::vector<RingFill> fills_;
  u64 looked_at_fills_ns_ = 0;
};

}  // namespace ringside::ship
