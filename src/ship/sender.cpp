#include "ship/sender.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "export/units.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

// May the same request succeed later? Not if the server's number of rows is impossible, or if it refuses the user.
bool may_pass(const Error& error) { return error.code != std::errc::state_not_recoverable; }

bool is_unreadable(const Error& error) {
  return error.code == std::errc::bad_message || error.code == std::errc::invalid_argument ||
         error.code == std::errc::no_such_file_or_directory;
}

}  // namespace

result<std::unique_ptr<Sender>> Sender::create(Spool& spool, Options options) {
  std::unique_ptr<Sender> sender(new Sender(spool, std::move(options)));
  std::vector<clickhouse::Address> all{sender->options_.to};
  all.insert(all.end(), sender->options_.others.begin(), sender->options_.others.end());
  std::vector<clickhouse::Server*> servers;
  for (const clickhouse::Address& address : all) {
    sender->servers_.push_back(RS_TRY(clickhouse::Server::open(address, sender->options_.login, sender->options_.stop)));
    servers.push_back(sender->servers_.back().get());
  }
  sender->tables_ = std::make_unique<Tables>(servers, sender->options_.cluster);
  return sender;
}

bool Sender::wait(u64 ms) const {
  for (u64 n = 0; n < ms; n += 20) {
    if (over()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return !over();
}

result<void> Sender::begin_session() {
  const u64 attempt = RS_TRY(spool_.next_attempt());
  session_ = fmt::format("ringside-{}-{}-{}", spool_.agent(), spool_.begun()->part, attempt);
  auto begun = servers_.front()->begin_session(session_);
  if (!begun) session_.clear();  // it may begin late: no insert has its name
  return begun;
}

result<bool> Sender::is_there(const Batch& batch, u64 number) {
  const u64 rows = RS_TRY(servers_.front()->count(
      fmt::format("SELECT count() FROM {} WHERE agent = '{}' AND batch = {} AND time_ns >= {} AND time_ns <= {}",
                  tables_->own_name(batch.table), spool_.agent(), number, batch.from_ns, batch.to_ns)));
  if (rows == batch.rows) return true;
  if (rows == 0) return false;
  return refuse(std::errc::state_not_recoverable,
                fmt::format("the server has {} rows of batch {} of agent {} in the table {}, and there should be {}: rows were "
                            "removed there, or another agent has this number; "
                            "with `ALTER TABLE ... DELETE WHERE agent = ... AND batch = ...` they are sent again",
                            format_count(rows), number, spool_.agent(), batch.table, format_count(batch.rows)));
}

result<void> Sender::send_batch(Batch& batch, u64 number) {
  std::vector<std::string> own_names;  // as the fields have them
  for (const auto& column : batch.columns) own_names.push_back(column.name);
  bool said = false;
  for (u64 pause_ms = 100;; pause_ms = std::min<u64>(pause_ms * 2, 5000)) {
    const auto one = [&]() -> result<void> {
      if (doubtful_) {
        if (!session_.empty()) RS_TRY(servers_.front()->fence(session_));
        session_.clear();
        last_doubt_ = std::max(last_doubt_, number);
        doubtful_ = false;
      }
      RS_TRY(tables_->fit(batch));
      if (batch.rows == 0) return {};
      if (number <= last_doubt_ && RS_TRY(is_there(batch, number))) return {};
      if (session_.empty()) RS_TRY(begin_session());
      std::string names;
      for (const auto& column : batch.columns) names += (names.empty() ? "" : ", ") + clickhouse::quoted_name(column.name);
      const std::string sql = fmt::format("INSERT INTO {} ({}) FORMAT Native", tables_->own_name(batch.table), names);
      const std::string block = clickhouse::write_block(batch.columns, batch.rows);
      auto done = servers_.front()->insert(sql, block, session_);
      if (!done) doubtful_ = true;
      return done;
    };
    auto done = one();
    answers_ = done.has_value();
    if (done) {
      if (said && options_.say) options_.say("the server takes events again");
      return {};
    }
    if (!may_pass(done.error()) || over() || (options_.leave && options_.leave())) return done;
    if (!said && options_.say) options_.say(done.error().sentence + "; events wait in the spool");
    said = true;
    tables_->forget();
    for (size_t n = 0; n < own_names.size(); ++n) batch.columns[n].name = own_names[n];
    if (!wait(pause_ms)) return done;
  }
}

// Two agents of a machine, or one that died, may send them twice, which does no harm.
result<void> Sender::send_symbols(PartRows& rows) {
  constexpr u64 most_texts = 16;  // of a boot
  u64 hash = 0;
  auto batch = rows.symbols(hash);
  if (!batch || !*batch || symbols_.count(hash) != 0) return {};  // a part that cannot be read has an error of its own
  RS_TRY(tables_->fit(**batch));
  u64 boot = 0;
  for (const auto& column : (*batch)->columns)
    if (column.name == "boot") std::memcpy(&boot, column.data.data(), sizeof boot);
  const auto count = [&](const std::string& more) {
    return servers_.front()->count(fmt::format("SELECT count() FROM {} WHERE host = {} AND boot = {}{}",
                                               tables_->own_name((*batch)->table), clickhouse::quoted_text(options_.host), boot,
                                               more));
  };
  if (RS_TRY(count(fmt::format(" AND hash = {}", hash))) == 0 && RS_TRY(count("")) < most_texts) RS_TRY(send_batch(**batch, 0));
  symbols_.insert(hash);
  return {};
}

result<void> Sender::send(u64 part) {
  auto begun = spool_.begun();
  if (begun) {
    // Its last inserts were an earlier sender's: of this process or of one that was killed.
    session_ = begun->attempt != 0 ? fmt::format("ringside-{}-{}-{}", spool_.agent(), begun->part, begun->attempt) : "";
    doubtful_ = begun->attempt != 0;
    last_doubt_ = begun->attempt != 0 ? ~u64{0} : 0;
  } else {
    if (auto kept = WallOffset::keep(spool_.path_of(part)); !kept && !is_unreadable(kept.error())) return kept;
    if (auto taken = spool_.begin({part, spool_.first_batch(), 0, options_.choice}); !taken) {
      if (taken.error().code == std::errc::no_such_file_or_directory) return {};  // dropped for want of room
      return taken;
    }
    begun = spool_.begun();
    session_.clear();
    doubtful_ = false;
    last_doubt_ = 0;
  }
  PartRows rows(spool_.path_of(part), {options_.host, spool_.agent()}, *begun);
  RS_TRY(send_symbols(rows));
  std::optional<Error> of_server;
  const auto counted = rows.read([&](Batch&& batch, u64 number) -> result<void> {
    auto sent = send_batch(batch, number);
    if (!sent) of_server = sent.error();
    return sent;
  });
  if (of_server) return tl::unexpected<Error>(*of_server);
  if (!counted && !is_unreadable(counted.error())) return tl::unexpected<Error>(counted.error());
  if (!counted && options_.say) options_.say(counted.error().sentence + "; its events are dropped");
  if (wait_for_) wait_for_(part);
  return spool_.sent(counted ? counted->shipped : 0, counted ? counted->filtered : 0, rows.batches());
}

result<void> Sender::run() {
  bool said = false;
  for (;;) {
    if (over()) return {};
    const auto part = spool_.next(100'000'000);
    if (!part) {
      if (spool_.ended()) return {};
      continue;
    }
    const auto done = send(*part);
    if (done) {
      said = false;
      continue;
    }
    if (over() || (options_.leave && options_.leave())) {
      if (options_.say && done.error().code != std::errc::operation_canceled) options_.say(done.error().sentence);
      return {};
    }
    if (!may_pass(done.error())) return done;
    if (!said && options_.say) options_.say(done.error().sentence + "; it is tried again");
    said = true;
    if (!wait(1000)) return {};
  }
}

}  // namespace ringside::ship
