#include "ship/sender.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "text/units.hpp"
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
    sender->servers_.push_back(
        RS_TRY(clickhouse::Server::open(address, sender->options_.login, sender->options_.stop, sender->options_.time)));
    servers.push_back(sender->servers_.back().get());
  }
  sender->tables_ = std::make_unique<Tables>(servers, sender->options_.cluster);
  return sender;
}

bool Sender::wait(u64 ms) const {
  for (u64 n = 0; n < ms; n += 20) {
    if (over()) return false;
    options_.time.sleep(20'000'000);
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

result<bool> Sender::try_batch(Batch& batch, u64 number, bool give_up) {
  if (doubtful_) {
    if (!session_.empty()) RS_TRY(servers_.front()->fence(session_));
    session_.clear();
    last_doubt_ = std::max(last_doubt_, number);
    doubtful_ = false;
  }
  if (auto fits = tables_->fit(batch); !fits) {
    if (give_up && fits.error().code == std::errc::protocol_error) return false;
    return tl::unexpected<Error>(fits.error());
  }
  if (batch.rows == 0) return true;
  if (number <= last_doubt_ && RS_TRY(is_there(batch, number))) return true;
  if (give_up) return false;
  if (session_.empty()) RS_TRY(begin_session());
  std::string names;
  for (const auto& column : batch.columns) names += (names.empty() ? "" : ", ") + clickhouse::quoted_name(column.name);
  const std::string sql = fmt::format("INSERT INTO {} ({}) FORMAT Native", tables_->own_name(batch.table), names);
  const std::string block = clickhouse::write_block(batch.columns, batch.rows);
  const auto done = servers_.front()->insert(sql, block, session_);
  if (done) return true;
  doubtful_ = true;
  // An administrator who changed a column of the agent's can change it back: that is no odd batch.
  if (const std::string changed = tables_->changed_column(batch); !changed.empty())
    return refuse(std::errc::io_error, done.error().sentence + "; " + changed);
  return tl::unexpected<Error>(done.error());
}

bool Sender::refuses_for_good(const std::string& table, const Error& error) {
  if (error.code != std::errc::protocol_error) return false;
  Refusals& refusals = refusals_[table];
  if (refusals.times++ == 0) refusals.since_ns = options_.time.now();
  return refusals.times >= most_refusals && options_.time.now() - refusals.since_ns >= longest_refusal_ns;
}

void Sender::say_given_up(const Batch& batch, const Error& error) {
  if (std::exchange(refusals_[batch.table].said, true) || !options_.say) return;
  options_.say(fmt::format("{}; {} of {} are dropped, and further ones are counted", error.sentence, counted(batch.rows, "row"),
                           batch.table));
}

result<bool> Sender::send_batch(Batch& batch, u64 number) {
  std::vector<std::string> own_names;  // as the fields have them
  for (const auto& column : batch.columns) own_names.push_back(column.name);
  bool said = false, give_up = false;
  for (u64 pause_ms = 100;; pause_ms = std::min<u64>(pause_ms * 2, 5000)) {
    const auto done = try_batch(batch, number, give_up);
    answers_ = done.has_value();
    if (done) {
      if (*done) refusals_.erase(batch.table);
      if (said && *done && options_.say) options_.say("the server takes events again");
      return done;
    }
    const bool enough = !give_up && refuses_for_good(batch.table, done.error());
    give_up = give_up || enough;
    if (!may_pass(done.error()) || over() || (!enough && options_.leave && options_.leave())) return done;
    if (enough)
      say_given_up(batch, done.error());
    else if (!said && options_.say)
      options_.say(done.error().sentence + "; events wait in the spool");
    said = true;
    tables_->forget();
    for (size_t n = 0; n < own_names.size(); ++n) batch.columns[n].name = own_names[n];
    if (!enough && !wait(pause_ms)) return done;
  }
}

// Keeps in the spool's state how it ended.
result<bool> Sender::send_once(Batch& batch, u64 number, const Sending& begun) {
  if (begun.refused.count(number) != 0) return false;
  const bool arrived = RS_TRY(send_batch(batch, number));
  if (!arrived)
    RS_TRY(spool_.refused(number));
  else if (batch.events)
    RS_TRY(spool_.arrived(number, batch.rows));
  else if (batch.table == "losses" && batch.rows != 0)
    RS_TRY(spool_.told(batch.to_ns));
  return arrived;
}

// Two agents of a machine, or one that died, may send them twice, which does no harm.
result<void> Sender::send_symbols(PartRows& rows) {
  constexpr u64 most_texts = 16;  // of a boot
  u64 hash = 0;
  auto batch = rows.symbols(hash);
  if (!batch || !*batch || symbols_.count(hash) != 0) return {};  // a part that cannot be read has an error of its own
  if (const auto fits = tables_->fit(**batch); !fits) {
    if (fits.error().code != std::errc::protocol_error) return fits;
    symbols_.insert(hash);
    if (options_.say) options_.say(fits.error().sentence + "; the names of the kernel's functions are not sent");
    return {};
  }
  u64 boot = 0;
  for (const auto& column : (*batch)->columns)
    if (column.name == "boot") std::memcpy(&boot, column.data.data(), sizeof boot);
  const auto count = [&](const std::string& more) {
    return servers_.front()->count(fmt::format("SELECT count() FROM {} WHERE host = {} AND boot = {}{}",
                                               tables_->own_name((*batch)->table), clickhouse::quoted_text(rows.host()), boot,
                                               more));
  };
  if (RS_TRY(count(fmt::format(" AND hash = {}", hash))) == 0 && RS_TRY(count("")) < most_texts) RS_TRY(send_batch(**batch, 0));
  symbols_.insert(hash);
  return {};
}

result<void> Sender::send(u64 part) {
  auto begun = spool_.begun();
  if (begun && begun->attempt != 0) {
    // Its last inserts were an earlier sender's: of this process or of one that was killed.
    session_ = fmt::format("ringside-{}-{}-{}", spool_.agent(), begun->part, begun->attempt);
    doubtful_ = true;
    last_doubt_ = ~u64{0};
  } else {
    if (options_.keep_names) options_.keep_names(spool_.path_of(part));
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
  std::optional<Error> of_server;
  const auto counted = rows.read([&](Batch&& batch, u64 number) -> result<bool> {
    auto sent = send_once(batch, number, *begun);
    if (!sent) of_server = sent.error();
    return sent;
  });
  if (of_server) return tl::unexpected<Error>(*of_server);
  if (!counted && !is_unreadable(counted.error())) return tl::unexpected<Error>(counted.error());
  const u64 batches = rows.batches();
  if (counted)
    RS_TRY(send_symbols(rows));  // not before: a filter that does not suit the part is known now
  else if (options_.say)
    options_.say(counted.error().sentence + "; its events that the server does not have are dropped");
  if (wait_for_) wait_for_(part);
  return counted ? spool_.sent(counted->shipped, counted->filtered, counted->refused, batches) : spool_.unreadable();
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
