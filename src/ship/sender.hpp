// Takes parts out of a spool and inserts them into a server's tables. Each batch is inserted once, even if the agent or the
// server dies.
//
// Each row has the agent's number and its batch's. Before the first insert of a part the spool's state names the part, with its
// first batch number, the choice of its events and the name of the inserts' session; so a sender that finds a part begun asks,
// for each batch, whether the server has it. The same is asked after an insert whose outcome is unknown. Such a question comes
// after a fence (clickhouse::Server): no earlier insert can happen later. The state also knows the batches that were given up,
// and how many events the server has for certain, in case the part cannot be read to its end later.
#pragma once
#include <functional>
#include <map>
#include <ringside/base/result.hpp>
#include <set>
#include <string>

#include "clickhouse/server.hpp"
#include "ship/rows.hpp"
#include "ship/spool.hpp"
#include "ship/tables.hpp"

namespace ringside::ship {

class Sender {
 public:
  struct Options {
    clickhouse::Address to;
    std::vector<clickhouse::Address> others;  // of the cluster
    clickhouse::Login login;
    std::string cluster, host;  // host: of all rows; empty: its recorder's machine, each
    Choice choice;
    std::function<void(const std::string& part)> keep_names{};  // of the stacks in this directory, before the part is sent
    std::function<bool()> stop;                          // at once: what is not sent stays in the spool
    std::function<bool()> leave;                         // no new attempts; what goes well goes on
    std::function<void(const std::string&)> say;         // a sentence for the user
    clickhouse::Time time = clickhouse::real_time();
  };
  // A batch that the server refused that often, for that long, is given up: one odd type of events must not stop all others.
  static constexpr u32 most_refusals = 20;
  static constexpr u64 longest_refusal_ns = 600'000'000'000;
  static result<std::unique_ptr<Sender>> create(Spool& spool, Options options);

  // Runs until the spool has ended and is empty, or `stop`. Errors: those that will not pass with time.
  result<void> run();
  void first_wait(std::function<void(u64 part)> wait) {
    wait_for_ = std::move(wait);
  }  // before a part is removed: others have read it
  bool answers() const { return answers_.load(std::memory_order_relaxed); }

 private:
  Sender(Spool& spool, Options options) : spool_(spool), options_(std::move(options)) {}
  result<void> send(u64 part);
  result<void> send_symbols(PartRows& rows);
  // Whether the server has the batch now; if not, it refuses it for good.
  result<bool> send_batch(Batch& batch, u64 number);
  result<bool> try_batch(Batch& batch, u64 number, bool give_up);
  result<bool> send_once(Batch& batch, u64 number, const Sending& begun);
  void say_given_up(const Batch& batch, const Error& error);
  bool refuses_for_good(const std::string& table, const Error& error);
  result<bool> is_there(const Batch& batch, u64 number);
  result<void> begin_session();
  bool wait(u64 ms) const;  // false: stop
  bool over() const { return options_.stop && options_.stop(); }

  Spool& spool_;
  Options options_;
  std::vector<std::unique_ptr<clickhouse::Server>> servers_;
  std::unique_ptr<Tables> tables_;
  std::function<void(u64 part)> wait_for_;
  bool doubtful_ = false;  // a batch of this part may be on the server
  u64 last_doubt_ = 0;     // the batches up to it
  std::string session_;
  std::set<u64> symbols_;  // texts that the server has, by hash
  struct Refusals {
    u32 times = 0;
    u64 since_ns = 0;
    bool said = false;
  };
  std::map<std::string, Refusals> refusals_;  // by table: since it took a batch
  std::atomic<bool> answers_{false};
};

}  // namespace ringside::ship
