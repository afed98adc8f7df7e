#include "ship/spool.hpp"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "consumer/reading.hpp"
#include "shipped/columns.hpp"
#include "source/recording.hpp"
#include "sys/as_memory_allows.hpp"
#include "sys/json.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

using nlohmann::json;

constexpr const char* prefix = "part.";

std::optional<u64> part_of(std::string_view name) {
  if (name.substr(0, 5) != prefix || name.size() < 6 || name.size() > 20) return std::nullopt;
  u64 number = 0;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number == 0) return std::nullopt;
  return number;
}

std::string new_name(u64 part) { return fmt::format("{}{:07}", prefix, part); }

// The bytes on disk, without holes.
u64 bytes_in(const std::string& dir) {
  u64 bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), none; !error && at != none; at.increment(error)) {
    struct stat st {};
    if (lstat(at->path().c_str(), &st) == 0) bytes += static_cast<u64>(st.st_blocks) * 512;
  }
  return bytes;
}

constexpr u64 room_bytes = u64{1} << 18;
constexpr u64 save_every_ns = 1'000'000'000;
// Added to the number of the next batch if it is not known which ones the server has.
constexpr u64 beyond_doubt = 1'000'000'000;

u64 wall_now() {
  return static_cast<u64>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace

bool no_room(const Error& error) { return error.code.value() == ENOSPC || error.code.value() == EDQUOT; }

CountOfPart count_part(const std::string& dir) {
  if (const auto meta = RecordingMeta::read(dir); meta && meta->complete) {
    CountOfPart all{0, meta->account.elsewhere(), meta->account.exact()};
    for (const RecordedRing& ring : meta->rings) {
      all.events += ring.events - ring.removed.events;
      all.lost += ring.lost;
    }
    return all;
  }
  Reading::Options options;
  options.where = {dir};
  options.notices = [](const auto&) {};
  auto reading = Reading::open(std::move(options));
  if (!reading) return {};
  (*reading)->run([](const TraceRecord&, const RingName&, Reading::Got) {});
  const Account& account = (*reading)->complete().account;
  return {account.read, account.lost(), false};
}

std::string Spool::path_of(u64 part) const {
  const std::lock_guard held(mutex_);
  const auto at = parts_.find(part);
  return dir_ + "/" + (at != parts_.end() ? at->second.name : new_name(part));
}

result<std::unique_ptr<Spool>> Spool::open(const std::string& dir, u64 most_bytes, std::function<u64()> now) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return fail(error.value(), "cannot make the spool " + dir);
  std::unique_ptr<Spool> spool(new Spool(dir, most_bytes, std::move(now)));
  spool->folder_ = sys::Fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!spool->folder_) return fail(errno, "cannot open the spool " + dir);
  spool->lock_ = sys::Fd(openat(spool->folder_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!spool->lock_) return fail(errno, "cannot make " + dir + "/lock");
  if (flock(spool->lock_.get(), LOCK_EX | LOCK_NB) != 0)
    return refuse(std::errc::device_or_resource_busy,
                  "another agent uses the spool " + dir + "; give each one its own with --spool");
  RS_TRY(spool->load());
  return spool;
}

Spool::~Spool() {
  // An exception may have come between two changes that belong together: then the older state is the one to repair.
  if (unsaved_ && std::uncaught_exceptions() == 0) sys::as_memory_allows([this] { (void)save(); });
}

Spool::Part Spool::look_at(const std::string& name) const {
  const std::string path = dir_ + "/" + name;
  const CountOfPart count = count_part(path);
  Part out{name, count.events, bytes_in(path)};
  out.lost = count.lost;
  out.proved = count.proved;
  if (const auto meta = RecordingMeta::read(path)) {
    out.from_ns = meta->start_ns;
    out.to_ns = meta->stop_ns != 0 ? meta->stop_ns : meta->start_ns + meta->duration_ns;
  }
  return out;
}

result<void> Spool::load() {
  room_ = faccessat(folder_.get(), "room", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  RS_TRY(read_state());
  RS_TRY(find_parts());
  RS_TRY(take_in_unfinished());
  for (auto& [number, part] : parts_) part = look_at(part.name);
  if (sending_)
    if (const auto at = parts_.find(sending_->part); at != parts_.end())
      at->second.events = std::max(at->second.events, sending_->arrived);  // it may have been damaged since
  settle_removed();
  reconcile();
  count_new_parts();
  return settle_if_there_is_room();
}

// Somebody removed the part that was being sent, and it may be on the server, in part or as a whole.
void Spool::settle_removed() {
  if (!sending_ || parts_.count(sending_->part) != 0) return;
  take_back_dropped();
  books_.shipped += sending_->arrived;
  sending_.reset();
  next_batch_ += beyond_doubt;
}

// The next part reports the losses that the part on its way has not reported.
void Spool::take_back_dropped() {
  std::vector<Sending::Dropped>& untold = sending_->dropped;
  std::erase_if(untold, [&](const Sending::Dropped& one) { return static_cast<i64>(one.to_ns) < sending_->told_before; });
  dropped_.insert(dropped_.begin(), untold.begin(), untold.end());
  untold.clear();
}

// After a long absence the server hears of many dropped parts as of one.
void Spool::tell_dropped(Sending::Dropped dropped) {
  if (dropped.events == 0 && dropped.lost == 0 && dropped.proved) return;
  if (dropped_.size() < 1000) return dropped_.push_back(std::move(dropped));
  Sending::Dropped& last = dropped_.back();
  last.to_ns = std::max(last.to_ns, dropped.to_ns);
  last.events += dropped.events;
  last.lost += dropped.lost;
  last.proved = last.proved && dropped.proved;
}

// Reads the state that the previous agent left; the agent of a new spool gets a number.
result<void> Spool::read_state() {
  if (faccessat(folder_.get(), "state.json", F_OK, 0) != 0) {
    u64 number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return fail(errno, "cannot make a number for the agent");
    agent_ = fmt::format("{:016x}", number);
    return {};
  }
  const std::string text = RS_TRY(sys::read_beneath(folder_.get(), "state.json"));
  try {
    const json j = json::parse(text);
    agent_ = j.at("agent").get<std::string>();
    if (agent_.size() != 16 || agent_.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw std::runtime_error("its agent is no number");
    next_batch_ = j.at("next_batch").get<u64>();
    counted_ = j.at("counted").get<u64>();
    gone_ = j.at("gone").get<std::set<u64>>();
    books_ = {j.at("read").get<u64>(), j.at("shipped").get<u64>(), j.at("filtered").get<u64>(), j.at("dropped").get<u64>(), 0,
              j.at("lost").get<u64>(), j.value("unproved", u64{0})};
    oldest_ns_ = j.value("oldest_ns", u64{0});
    const auto dropped_in = [](const json& list) {
      std::vector<Sending::Dropped> out;
      for (const json& one : list) {
        out.push_back({one.at(0).get<u64>(), one.at(1).get<u64>(), one.at(2).get<u64>(), why::spool_full});
        if (one.size() == 3) continue;  // by an older agent
        out.back().why = one.at(3).get<std::string>();
        out.back().lost = one.at(4).get<u64>();
        out.back().proved = one.at(5).get<bool>();
      }
      return out;
    };
    dropped_ = dropped_in(j.at("dropped_parts"));
    if (const auto s = j.find("sending"); s != j.end())
      sending_ = Sending{s->at("part").get<u64>(),
                         s->at("first_batch").get<u64>(),
                         s->at("attempt").get<u64>(),
                         {s->at("filter").get<std::string>(), std::max<u64>(s->at("keep_one_of").get<u64>(), 1)},
                         dropped_in(s->at("dropped_parts")),
                         s->value("refused", std::set<u64>{}),
                         s->value("arrived_to", u64{0}),
                         s->value("arrived", u64{0}),
                         s->value("told_before", i64{0})};
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return refuse(std::errc::bad_message,
                  dir_ + "/state.json cannot be understood: " + e.what() +
                      "; if you remove it, the parts beside it are sent once more, under another agent's number");
  }
  return {};
}

result<void> Spool::find_parts() {
  const auto names = RS_TRY(sys::names_in(folder_.get()));
  std::vector<std::pair<u64, std::string>> others;
  for (const std::string& name : names) {
    const auto part = part_of(name);
    if (!part) continue;
    if (name != new_name(*part))
      others.emplace_back(*part, name);
    else if (gone_.count(*part) != 0)
      RS_TRY(remove(name));
    else
      parts_[*part].name = name;
  }
  gone_.clear();
  return take_in(std::move(others));
}

// Makes a part of the recording that a killed agent left.
result<void> Spool::take_in_unfinished() {
  if (faccessat(folder_.get(), "now", F_OK, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (!is_recording(now())) {
    if (!sys::remove_beneath(folder_.get(), "now")) return fail(errno, "cannot remove " + now());
    return {};
  }
  const u64 part = newest() + 1;
  if (renameat(folder_.get(), "now", folder_.get(), new_name(part).c_str()) != 0) return fail(errno, "cannot rename " + now());
  parts_[part].name = new_name(part);
  return {};
}

void Spool::count_new_parts() {
  for (const auto& [number, part] : parts_) {
    if (number <= counted_) continue;
    books_.read += part.events;
    books_.lost += part.lost;
    books_.unproved += part.proved ? 0 : 1;
    counted_ = number;
  }
}

// No number is ever given to two parts.
u64 Spool::newest() const {
  return std::max({parts_.empty() ? 0 : parts_.rbegin()->first, counted_, gone_.empty() ? 0 : *gone_.rbegin()});
}

// Parts that another recorder put here, in its order.
result<void> Spool::take_in(std::vector<std::pair<u64, std::string>> others) {
  std::sort(others.begin(), others.end());
  for (const auto& [its, name] : others) {
    const u64 number = newest() + 1;
    if (renameat2(folder_.get(), name.c_str(), folder_.get(), new_name(number).c_str(), RENAME_NOREPLACE) != 0)
      return fail(errno, "cannot rename " + dir_ + "/" + name + " to " + new_name(number));
    parts_[number].name = new_name(number);
  }
  return {};
}

// Parts that were counted before may be gone, by hand or with the machine's power, or hold more than could be counted then.
void Spool::reconcile() {
  books_.read = std::max(books_.read, books_.shipped + books_.filtered + books_.dropped);
  const u64 known = books_.read - books_.shipped - books_.filtered - books_.dropped;
  u64 there = 0;
  for (const auto& [number, part] : parts_) there += number <= counted_ ? part.events : 0;
  if (there >= known) {
    books_.read += there - known;
    return;
  }
  books_.dropped += known - there;
  tell_dropped({oldest_ns_, wall_now(), known - there, why::gone});
}

result<void> Spool::save() {
  auto saved = write_state();
  if (!saved && room_ && no_room(saved.error())) {
    (void)unlinkat(folder_.get(), "room", 0);
    room_ = false;
    saved = write_state();
  }
  if (saved && !room_) keep_room();
  if (saved) unsaved_ = false;
  saved_ns_ = now_();
  return saved;
}

// Else what is saved is older than what is known, and load() finds out the rest.
result<void> Spool::save_if_there_is_room() {
  auto saved = save();
  return saved || no_room(saved.error()) ? result<void>() : saved;
}

void Spool::keep_room() {
  const sys::Fd file = sys::open_beneath(folder_.get(), "room", O_WRONLY | O_CREAT);
  room_ = file && (fallocate(file.get(), 0, 0, static_cast<off_t>(room_bytes)) == 0 || errno == EOPNOTSUPP);
  if (!room_) (void)unlinkat(folder_.get(), "room", 0);
}

// Saves the books, and removes the parts that they have closed.
result<void> Spool::settle() {
  RS_TRY(save());
  for (const u64 number : gone_) RS_TRY(remove(new_name(number)));
  gone_.clear();
  return {};
}

result<void> Spool::settle_if_there_is_room() {
  auto settled = settle();
  return settled || no_room(settled.error()) ? result<void>() : settled;
}

result<void> Spool::write_state() {
  const auto list = [](const std::vector<Sending::Dropped>& dropped) {
    json out = json::array();
    for (const auto& one : dropped) out.push_back({one.from_ns, one.to_ns, one.events, one.why, one.lost, one.proved});
    return out;
  };
  oldest_ns_ = parts_.empty() ? 0 : parts_.begin()->second.from_ns;
  json j = {
      {"agent", agent_},     {"next_batch", next_batch_},   {"counted", counted_},         {"gone", gone_},
      {"read", books_.read}, {"shipped", books_.shipped},   {"filtered", books_.filtered}, {"dropped", books_.dropped},
      {"lost", books_.lost}, {"unproved", books_.unproved}, {"oldest_ns", oldest_ns_},     {"dropped_parts", list(dropped_)}};
  if (sending_)
    j["sending"] = {{"part", sending_->part},
                    {"first_batch", sending_->first_batch},
                    {"attempt", sending_->attempt},
                    {"filter", sending_->choice.filter},
                    {"keep_one_of", sending_->choice.keep_one_of},
                    {"dropped_parts", list(sending_->dropped)},
                    {"refused", sending_->refused},
                    {"arrived_to", sending_->arrived_to},
                    {"arrived", sending_->arrived},
                    {"told_before", sending_->told_before}};
  const std::string path = dir_ + "/state.json";
  auto file = RS_TRY(sys::NewFile::create(folder_.get(), "state.json", path));
  RS_TRY(sys::write_text(file.fd(), path, j.dump(1, ' ', false, json::error_handler_t::replace) + "\n"));
  if (fsync(file.fd()) != 0) return fail(errno, "cannot write " + path);
  RS_TRY(file.put_in_place());
  if (fsync(folder_.get()) != 0) return fail(errno, "cannot write " + dir_);
  return {};
}

result<void> Spool::remove(const std::string& name) {
  if (!sys::remove_beneath(folder_.get(), name.c_str()) && errno != ENOENT)
    return fail(errno, "cannot remove " + dir_ + "/" + name);
  return {};
}

SpoolBooks Spool::books() const {
  const std::lock_guard held(mutex_);
  SpoolBooks out = books_;
  for (const auto& [number, part] : parts_) out.spooled += part.events;
  return out;
}

u64 Spool::bytes() const {
  const std::lock_guard held(mutex_);
  u64 bytes = 0;
  for (const auto& [number, part] : parts_) bytes += part.bytes;
  return bytes;
}

result<void> Spool::discard() {
  if (!sys::remove_beneath(folder_.get(), "now") && errno != ENOENT) return fail(errno, "cannot remove " + now());
  return {};
}

result<u64> Spool::add(u64 events, u64 lost, bool proved) {
  const std::lock_guard held(mutex_);
  const u64 number = newest() + 1;
  if (renameat2(folder_.get(), "now", folder_.get(), new_name(number).c_str(), RENAME_NOREPLACE) != 0)
    return fail(errno, "cannot rename " + now() + " to " + new_name(number));
  Part part = look_at(new_name(number));
  part.events = events;
  part.lost = lost;
  part.proved = proved;
  parts_[number] = part;
  counted_ = number;
  books_.read += events;
  books_.lost += lost;
  books_.unproved += proved ? 0 : 1;
  const u64 dropped = RS_TRY(make_room());
  RS_TRY(settle_if_there_is_room());
  more_.notify_all();
  return dropped;
}

result<u64> Spool::make_room() {
  u64 dropped = 0;
  for (;;) {
    u64 bytes = 0;
    for (const auto& [number, part] : parts_) bytes += part.bytes;
    if (bytes <= most_bytes_) return dropped;
    const auto events = RS_TRY(drop());
    if (!events) return dropped;
    dropped += *events;
  }
}

result<std::optional<u64>> Spool::drop_oldest() {
  const std::lock_guard held(mutex_);
  return drop();
}

// The oldest part. The one on its way stays: some of it may be on the server.
result<std::optional<u64>> Spool::drop() {
  auto oldest = parts_.begin();
  if (oldest != parts_.end() && sending_ && oldest->first == sending_->part) ++oldest;
  if (oldest == parts_.end()) return std::nullopt;
  const u64 number = oldest->first;
  const Part part = oldest->second;
  books_.dropped += part.events;
  tell_dropped({part.from_ns, part.to_ns, part.events, why::spool_full, part.lost, part.proved});
  parts_.erase(oldest);
  gone_.insert(number);
  RS_TRY(save_if_there_is_room());
  RS_TRY(remove(part.name));  // that makes room
  gone_.erase(number);
  RS_TRY(settle_if_there_is_room());
  return part.events;
}

void Spool::end() {
  const std::lock_guard held(mutex_);
  ended_ = true;
  more_.notify_all();
}

bool Spool::ended() const {
  const std::lock_guard held(mutex_);
  return ended_;
}

std::optional<u64> Spool::next(u64 timeout_ns) {
  std::unique_lock held(mutex_);
  more_.wait_for(held, std::chrono::nanoseconds(timeout_ns), [&] { return ended_ || !parts_.empty(); });
  if (parts_.empty()) return std::nullopt;
  return sending_ ? sending_->part : parts_.begin()->first;
}

std::optional<u64> Spool::next_after(u64 part, u64 timeout_ns) {
  std::unique_lock held(mutex_);
  more_.wait_for(held, std::chrono::nanoseconds(timeout_ns), [&] { return parts_.upper_bound(part) != parts_.end(); });
  const auto at = parts_.upper_bound(part);
  return at != parts_.end() ? std::optional(at->first) : std::nullopt;
}

std::optional<Sending> Spool::begun() const {
  const std::lock_guard held(mutex_);
  return sending_;
}

result<void> Spool::begin(const Sending& sending) {
  const std::lock_guard held(mutex_);
  if (parts_.count(sending.part) == 0) return refuse(std::errc::no_such_file_or_directory, "the part is gone");
  if (sending_) take_back_dropped();
  sending_ = sending;
  sending_->dropped = std::exchange(dropped_, {});
  return settle();
}

result<u64> Spool::next_attempt() {
  const std::lock_guard held(mutex_);
  ++sending_->attempt;
  RS_TRY(save());
  return sending_->attempt;
}

// By an older state these events count as not sent, if the agent is killed and the part goes before its end.
result<void> Spool::arrived(u64 batch, u64 events) {
  const std::lock_guard held(mutex_);
  if (batch <= sending_->arrived_to) return {};
  sending_->arrived_to = batch;
  sending_->arrived += events;
  unsaved_ = true;
  return now_() - saved_ns_ < save_every_ns ? result<void>() : save_if_there_is_room();
}

result<void> Spool::told(i64 to_ns) {
  const std::lock_guard held(mutex_);
  sending_->told_before = to_ns + 1;
  return save_if_there_is_room();
}

result<void> Spool::refused(u64 batch) {
  const std::lock_guard held(mutex_);
  sending_->refused.insert(batch);
  return save();
}

result<void> Spool::sent(u64 shipped, u64 filtered, u64 refused, u64 batches) {
  const std::lock_guard held(mutex_);
  const Part& part = parts_.at(sending_->part);
  const u64 seen = shipped + filtered + refused, rest = part.events - std::min(seen, part.events);
  books_.shipped += shipped;
  books_.filtered += filtered;
  books_.dropped += refused + rest;
  books_.read += seen - std::min(seen, part.events);  // a recorder that was killed did not say how many these are
  tell_dropped({part.from_ns, part.to_ns, rest, why::not_readable});
  next_batch_ = sending_->first_batch + batches;
  return close_part();
}

result<void> Spool::unreadable() {
  const std::lock_guard held(mutex_);
  const Part& part = parts_.at(sending_->part);
  const u64 rest = part.events - std::min(sending_->arrived, part.events);
  take_back_dropped();
  books_.shipped += sending_->arrived;
  books_.dropped += rest;
  books_.read += sending_->arrived - std::min(sending_->arrived, part.events);
  tell_dropped({part.from_ns, part.to_ns, rest, why::not_readable, part.lost, part.proved});
  next_batch_ = sending_->first_batch + (sending_->attempt != 0 ? beyond_doubt : 0);
  return close_part();
}

result<void> Spool::keep_back() {
  const std::lock_guard held(mutex_);
  books_.filtered += parts_.at(sending_->part).events;
  next_batch_ = sending_->first_batch;
  return close_part();
}

result<void> Spool::close_part() {
  gone_.insert(sending_->part);
  parts_.erase(sending_->part);
  sending_.reset();
  return settle();
}

u64 Spool::first_batch() const {
  const std::lock_guard held(mutex_);
  return next_batch_;
}

}  // namespace ringside::ship
