// The events of a part as rows: a table for each type of events, with a column for each of its fields.
//
//   "sched:sched_switch"   time, time_ns, error_ns, mono_ns, host, boot, agent, batch, ring, cpu, tid, task, flags; prev_comm, prev_pid, ...
//   losses                 what is missing: which ring, from when to when, how many, why
//   threads                names of the threads that wrote them
//   kernel_symbols         the kernel's addresses and their names, as /proc/kallsyms has them: once for each boot, and when a module came or went
//   parts                  a row for each part, the newest row counts: which batches it has, its clock, its description
//
// A part always yields the same batches in the same order, so an insert whose outcome is unknown can be repeated.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ringside/base/result.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "clickhouse/native.hpp"
#include "consumer/reading.hpp"
#include "ship/spool.hpp"
#include "ship/wall.hpp"

namespace ringside::ship {

struct Batch {
  std::string table;
  u64 rows = 0;
  i64 from_ns = 0, to_ns = 0;  // of the rows' time_ns
  bool events = false;         // of a table of events
  std::vector<clickhouse::ColumnOut> columns;
};

struct Counted {
  u64 shipped = 0, filtered = 0, refused = 0;
};

struct Identity {
  std::string host, agent;  // host: empty: its recorder's machine; agent: 16 hexadecimal digits
};

// use(batch, number) for each; its error ends it. False: the server does not take the batch. An error of the recording itself:
// bad_message. state_not_recoverable: the filter does not suit the events; the recording is good.
class PartRows {
 public:
  PartRows(std::string dir, Identity identity, Sending sending)
      : dir_(std::move(dir)), identity_(std::move(identity)), sending_(std::move(sending)) {}
  using Use = std::function<result<bool>(Batch&& batch, u64 number)>;
  result<Counted> read(const Use& use);
  // The names of the kernel's addresses, if the part has them: a row of `kernel_symbols`, which may be there more than once.
  // hash: of the text.
  result<std::optional<Batch>> symbols(u64& hash);
  const std::string& host() const { return host_; }  // of the rows
  u64 batches() const { return next_ - sending_.first_batch; }

 private:
  struct Table;
  class Tables;
  class LastName;
  result<std::unique_ptr<Reading>> open(const RecordingMeta& meta);
  result<void> read_events(Reading& reading, const Use& use);
  result<void> flush(Table& table, const Use& use);
  result<bool> give(Batch&& batch, const Use& use);
  void know_machine(const RecordingMeta& meta);
  void add_common(Batch& batch);
  result<void> tell_losses(const Reading& reading, const Use& use);
  result<void> tell_threads(const RecordingMeta& meta, const Use& use);
  result<void> tell_part(const RecordingMeta& meta, const Use& use);

  struct Loss {
    u32 ring = 0;
    std::string name, why;
    i64 from_ns = 0, to_ns = 0;  // by the wall clock
    u64 count = 0;
    u32 place = 0;  // in the part
  };

  std::string dir_;
  Identity identity_;
  Sending sending_;
  std::string host_;
  WallOffset wall_;
  u64 boot_ = 0;
  i64 start_ns_ = 0;
  u64 next_ = 0;
  Counted counted_;
  std::vector<Loss> losses_;
  std::unordered_set<i32> threads_;  // that wrote events, and the first ones of their processes
};

}  // namespace ringside::ship
