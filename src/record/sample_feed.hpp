// Records the kernel's samples of CPU time as ringside:sample, with their stacks (ringside:stack) and what was at the
// addresses (ringside:code_map): the same events as a program's own. Each CPU has a ring; what was mapped before is in one
// more. With a rate of 0 it records only the latter, for stacks that come with events of the kernel.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "kernel/perf_sampler.hpp"
#include "record/handed_files.hpp"
#include "record/recording_run.hpp"
#include "source/packer.hpp"
#include "stacks/sample_walk.hpp"

namespace ringside {

// Converts CLOCK_MONOTONIC_RAW, which has the rate of the processor's ticks, to these. Exact to some 50 ns.
class RawToTicks {
 public:
  RawToTicks();
  void now();  // measures again: what is converted should not be much older
  u64 ticks(u64 raw_ns) const;

 private:
  struct Pair {
    u64 ticks = 0, ns = 0;
  };
  static Pair measure();
  Pair first_, last_;
};

class SampleFeed final : public Feed {
 public:
  struct Options {
    PerfSampler::Options sampler;
    u64 max_size = 0;  // of the recording: what it removes must be in it again
    std::function<void(const std::string&)> notice{};  // takes messages for the user
  };
  static result<std::unique_ptr<SampleFeed>> create(Options options, const ClockInfo& clock);
  const PerfSampler& sampler() const { return *sampler_; }
  // Holds there what processes map. files: outlives this; null: holds nothing.
  void hold_files(HandedFiles* files) { files_ = files; }

  result<void> begin(RecordingRun& run) override;  // samples from here on
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Counters close(RecordingRun& run) override;

 private:
  struct Out {
    u32 number = 0;  // in the recording
    Packer packer;
    u64 events = 0, lost = 0;
    u64 told_lost = 0;  // of `lost`, by records of this run
  };
  SampleFeed(std::unique_ptr<PerfSampler> sampler, Options options, const ClockInfo& clock)
      : sampler_(std::move(sampler)), options_(std::move(options)), clock_(clock) {}

  bool samples() const { return options_.sampler.hz != 0; }
  u64 time_of(const PerfRecord& record) const { return ticks_ ? ticks_->ticks(record.time) : record.time; }
  u64 now() const;
  void add_out(u32 number);
  void write(RecordingRun& run, Out& out, u64 time, Bytes payload);
  void flush(RecordingRun& run, Out& out);
  void take(RecordingRun& run, const PerfRecord& record, Out& out);
  void take_sample(RecordingRun& run, const PerfRecord& record, Out& out);
  void lose(RecordingRun& run, Out& out, u64 records);
  void write_map(RecordingRun& run, Out& out, u64 time, i32 pid, u64 start, u64 size, u64 offset, std::string_view build_id,
                 std::string_view path, u64 inode = 0);
  void hold(i32 pid, u64 start, u64 size, std::string_view build_id, std::string_view path, u64 inode);
  void look_at_processes(RecordingRun& run);
  void look_at(RecordingRun& run, i32 pid);
  void know(i32 pid, i32 tid, std::string_view name, u64 time = 0);  // time: since then; 0: unknown
  std::string build_id_of(int maps, u64 address, const std::string& file);

  std::unique_ptr<PerfSampler> sampler_;
  Options options_;
  ClockInfo clock_;
  std::optional<RawToTicks> ticks_;
  std::vector<Out> outs_;                            // of each CPU; the last one: of what was there before
  std::vector<size_t> out_of_;                       // outs_ by the sampler's ring
  std::map<i32, RingName> threads_;
  std::deque<NameChange> names_;
  std::set<u64> stacks_;                             // that are in the recording
  std::unordered_map<std::string, std::string> build_ids_;  // in hex, by device, inode and path
  u64 bytes_at_look_ = 0, throttled_ = 0, malformed_ = 0;
  u64 mapped_before_ = 0;                            // the time of what was mapped before
  bool changed_ = false, on_ = false;
  std::optional<SampleWalk> walk_;                   // by tables; else the kernel has followed frame pointers
  HandedFiles* files_ = nullptr;
  std::vector<u8> payload_;
  std::vector<u64> frames_;
};

}  // namespace ringside
