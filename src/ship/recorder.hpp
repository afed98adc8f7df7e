// The recorder of an agent: an instance's events, the kernel's, or both, into the parts of a spool. It never waits for a
// server: a full spool loses its oldest part, and so does a full disk. If that does not help, events wait in the rings, which
// count those that they lose.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ringside/base/result.hpp>
#include <string>

#include "instance/borrowed.hpp"
#include "instance/instance.hpp"
#include "record/handed_files.hpp"
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

  HandedFiles* files() const { return files_.get(); }  // of programs' code, for another thread; null: none

  bool disk_is_full() const { return full_.load(std::memory_order_relaxed); }  // for another thread
  std::vector<RingFill> fills() const;  // for another thread; a second old

 private:
  Recorder(Spool& spool, Options options) : spool_(spool), options_(std::move(options)) {}
  result<void> begin();
  result<void> begin_part();
  result<void> end_part();
  void make_program_feed();
  result<void> no_room_for(const Error& error);
  result<std::optional<Error>> complete();
  void look_at_fills();
  std::string rest_in_rings() const;

  Spool& spool_;
  Options options_;
  std::unique_ptr<Instance> instance_;
  std::unique_ptr<HandedFiles> files_;
  std::unique_ptr<Borrowed> borrowed_;
  std::unique_ptr<InstanceFeed> program_;
  std::unique_ptr<KernelFeed> kernel_;
  ClockInfo clock_;
  std::unique_ptr<RecordingRun> run_;
  u64 begun_ns_ = 0;
  u64 begin_again_ns_ = 0;    // there is no part in the making: the disk is full
  Account told_{};            // of the program's rings, by the parts so far
  std::atomic<bool> full_{false};
  u64 said_disk_full_ns_ = 0;
  bool says_room_ = false;  // when there is room again
  bool said_full_ = false;
  mutable std::mutex fills_mutex_;
  std::vector<RingFill> fills_;
  u64 looked_at_fills_ns_ = 0;
};

}  // namespace ringside::ship
