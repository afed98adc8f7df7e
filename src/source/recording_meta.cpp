// meta.json of a recording: to text and back. All input is checked: the file may come from anywhere.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <set>

#include "source/recording.hpp"
#include "source/recording_sender.hpp"
#include "sys/beneath.hpp"
#include "sys/json.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using nlohmann::json;

constexpr int meta_version = 1, compressed_version = 2;
constexpr u64 largest_meta = u64{256} << 20;  // a thousand times the largest seen

// Of the first writer as older recorders wrote it.
json json_of_apart(u8 writer) { return writer == 1 ? json(true) : json(writer); }
u8 apart_from(const json& j, bool kernel) {
  const auto at = j.find("apart");
  if (kernel || at == j.end()) return 0;
  if (at->is_boolean()) return at->get<bool>() ? 1 : 0;
  return static_cast<u8>(std::min<u64>(at->get<u64>(), most_apart));
}

json name_json(const RingName& n) {
  json j = {{"ring", n.ring}, {"pid", n.pid}, {"tid", n.tid}, {"task", n.task}, {"process", n.process}};
  if (n.kernel) j["kernel"] = true;
  if (n.apart != 0) j["apart"] = json_of_apart(n.apart);
  if (n.cpu >= 0) j["cpu"] = n.cpu;
  if (!n.cgroup.empty()) j["cgroup"] = n.cgroup;
  if (const Elsewhere& e = n.elsewhere; e.tid != 0) {
    j["ns_tid"] = e.tid;
    j["ns_pid"] = e.pid;
    j["pid_namespace"] = e.pid_namespace;
    if (e.here_tid != 0) j["here_tid"] = e.here_tid, j["here_pid"] = e.here_pid;
  }
  return j;
}

RingName name_from(const json& j) {
  const auto name = [&](const char* of) { return sys::kept_name(j.at(of).get<std::string>()); };
  RingName n{j.at("ring").get<u32>(), j.at("pid").get<i32>(),   j.at("tid").get<i32>(), name("task"),
             name("process"),         j.value("kernel", false), {},                     std::max(j.value("cpu", -1), -1)};
  n.apart = apart_from(j, n.kernel);
  n.cgroup = sys::kept_name(j.value("cgroup", ""));
  n.elsewhere.tid = j.value("ns_tid", 0);
  n.elsewhere.pid = j.value("ns_pid", 0);
  n.elsewhere.pid_namespace = j.value("pid_namespace", u64{0});
  n.elsewhere.here_tid = j.value("here_tid", 0);
  n.elsewhere.here_pid = j.value("here_pid", 0);
  return n;
}

json change_json(const NameChange& c) {
  json j = {{"time", c.time}, {"tid", c.tid}, {"task", c.task}, {"old_task", c.old_task}};
  if (c.kernel) j["kernel"] = true;
  if (c.pid != 0) j["pid"] = c.pid, j["process"] = c.process;
  if (c.old_pid != 0) j["old_pid"] = c.old_pid, j["old_process"] = c.old_process;
  return j;
}

NameChange change_from(const json& j) {
  const auto name = [&](const char* of) { return sys::kept_name(j.value(of, "")); };
  return {j.at("time").get<u64>(), j.at("tid").get<i32>(),   j.value("pid", 0),
          j.value("old_pid", 0),   j.value("kernel", false), name("task"),
          name("process"),         name("old_task"),         name("old_process")};
}

struct CounterField {
  const char* name;
  u64 Counters::*member;
};
constexpr CounterField counter_fields[] = {
    {"written", &Counters::written},
    {"read", &Counters::read},
    {"overrun", &Counters::overrun},
    {"unread", &Counters::unread},
    {"dropped", &Counters::dropped},
    {"commit_overrun", &Counters::commit_overrun},
    {"bytes", &Counters::bytes},
    {"unfinished_bytes", &Counters::unfinished_bytes},
    {"oldest_time", &Counters::oldest_time},
    {"resident_bytes", &Counters::resident_bytes},
    {"subbuf_size", &Counters::subbuf_size},
    {"nr_subbufs", &Counters::nr_subbufs},
};

json counters_json(const Counters& counters) {
  json j = json::object();
  for (const auto& f : counter_fields) j[f.name] = counters.*f.member;
  if (counters.refusals != Refusals::by_reason) j["refusals"] = to_string(counters.refusals);
  return j;
}

Counters counters_from(const json& j) {
  Counters counters;
  for (const auto& f : counter_fields) counters.*f.member = j.value(f.name, u64{0});
  const std::string refusals = j.value("refusals", "");
  for (const Refusals kind : {Refusals::in_sum, Refusals::at_least})
    if (refusals == to_string(kind)) counters.refusals = kind;
  return counters;
}

json ring_json(const RecordedRing& ring) {
  json j = name_json(ring.name);
  j["subbuf_size"] = ring.subbuf_size;
  j["events"] = ring.events;
  j["bytes"] = ring.bytes;
  j["lost"] = ring.lost;
  if (ring.file_size != 0) j["file_size"] = ring.file_size;
  if (ring.removed.events != 0 || ring.removed.bytes != 0)
    j["removed"] = {{"events", ring.removed.events}, {"bytes", ring.removed.bytes}};
  j["counters"] = counters_json(ring.counters);
  if (ring.unordered) j["unordered"] = true;
  if (!ring.way.empty()) j["source"] = ring.way;
  return j;
}

RecordedRing ring_from(const json& j) {
  RecordedRing ring;
  ring.name = name_from(j);
  ring.subbuf_size = j.at("subbuf_size").get<u32>();
  ring.events = j.value("events", u64{0});
  ring.bytes = j.value("bytes", u64{0});
  ring.lost = j.value("lost", u64{0});
  ring.file_size = j.value("file_size", u64{0});
  if (const auto r = j.find("removed"); r != j.end()) ring.removed = {r->value("events", u64{0}), r->value("bytes", u64{0})};
  ring.counters = counters_from(j.value("counters", json::object()));
  ring.unordered = j.value("unordered", false);
  ring.way = j.value("source", "");
  return ring;
}

ClockInfo read_clock(const json& j) {
  ClockInfo clock;
  const auto kind = clock_from(j.at("kind").get<std::string>());
  if (!kind) throw std::runtime_error(kind.error().sentence);
  clock.kind = *kind;
  clock.mult = j.at("mult").get<u32>();
  clock.shift = j.at("shift").get<u32>();
  if (clock.shift > 63) throw std::runtime_error("the clock's shift of " + std::to_string(clock.shift) + " is above 63");
  clock.base_ticks = j.at("base_ticks").get<u64>();
  clock.base_ns = j.at("base_ns").get<u64>();
  return clock;
}

// Older recorders did not write it.
World read_world(const json& j, const RecordingMeta& meta) {
  const auto world = j.find("world");
  if (world == j.end())
    return !meta.boot.empty() && meta.boot == sys::boot_id() ? World::of(World::own().architecture)
                                                             : World::told_by(meta.clock.kind);
  World of;
  of.architecture = architecture_from(world->value("machine", ""));
  of.big_endian = world->value("byte_order", "") == "big";
  of.word_size = world->value("word_size", u32{0});
  of.pid_namespace = world->value("pid_namespace", u64{0});
  of.page_size = world->value("page_size", u32{0});
  of.release = world->value("release", "");
  of.host = world->value("host", "");
  if (world->contains("suspended_ns")) of.suspended_ns = world->at("suspended_ns").get<u64>();
  return of;
}

// Recordings of before the account: what no gap showed.
Account account_of_missing(const json& missing) {
  Account account;
  const u64 refused = missing.value("refused", u64{0}), off = std::min(refused, missing.value("refused_off", u64{0}));
  account.refused[Refusal::off] = off;
  account.refused[Refusal::unknown] = refused - off;
  account.refused_at_least = missing.value("refused_at_least", false);
  account.unrecorded = missing.value("unrecorded", u64{0});
  account.own = missing.value("own", u64{0});
  account.doubts = missing.value("doubts", std::vector<std::string>{});
  return account;
}

RecordingMeta meta_from(const json& j) {
  const int version = j.at("ringside_recording").get<int>();
  if (version != meta_version && version != compressed_version)
    throw std::runtime_error("it is of version " + j.at("ringside_recording").dump() +
                             ", this ringside reads versions 1 and 2");
  RecordingMeta meta;
  meta.compressed = version == compressed_version;
  if (meta.compressed && j.at("compression").get<std::string>() != "zstd")
    throw std::runtime_error("it is compressed by " + j.at("compression").dump() + ", this ringside reads zstd");
  meta.clock = read_clock(j.at("clock"));
  meta.boot = j.value("boot", "");
  meta.world = read_world(j, meta);
  meta.subbuf_size = j.value("subbuf_size", u32{0});
  meta.start_ns = j.value("start_ns", u64{0});
  meta.stop_ns = j.value("stop_ns", u64{0});
  if (const auto w = j.find("wall"); w != j.end()) {
    meta.wall = WallClock{w->value("offset_ns", i64{0}), w->value("error_ns", WallClock::unknown_error)};
    meta.wall_set_ns = w->value("set_ns", i64{0});
  }
  meta.duration_ns = j.value("duration_ns", u64{0});
  meta.max_size = j.value("max_size", u64{0});
  meta.totals = counters_from(j.value("totals", json::object()));
  if (const auto a = j.find("account"); a != j.end())
    meta.account = account_from(*a);
  else if (const auto m = j.find("missing"); m != j.end())
    meta.account = account_of_missing(*m);
  meta.complete = j.value("complete", false);
  meta.command = j.value("command", std::vector<std::string>{});
  if (const auto t = j.find("trigger"); t != j.end()) {
    meta.trigger =
        RecordedTrigger{t->at("condition").get<std::string>(), t->at("event").get<std::string>(), t->at("time_ns").get<u64>()};
    if (t->contains("latency_ns")) meta.trigger->latency_ns = t->at("latency_ns").get<u64>();
  }
  for (const json& e : j.at("events")) {
    EventInfo info{};
    info.id = e.at("id").get<u16>();
    info.system = sys::kept_name(e.at("system").get<std::string>());
    info.name = sys::kept_name(e.at("name").get<std::string>());
    info.format = e.at("format").get<std::string>();
    info.enabled = e.value("enabled", true);
    info.kernel = e.value("kernel", false);
    info.apart = apart_from(e, info.kernel);
    meta.events.push_back(std::move(info));
  }
  std::set<std::string> seen;
  for (const json& r : j.at("rings")) {
    meta.rings.push_back(ring_from(r));
    if (!seen.insert(ring_file(meta.rings.back().name)).second)
      throw std::runtime_error(ring_file(meta.rings.back().name) + " appears twice");
  }
  if (const auto threads = j.find("threads"); threads != j.end())
    for (const json& t : *threads) meta.threads.push_back(name_from(t));
  if (const auto names = j.find("names"); names != j.end())
    for (const json& change : *names) meta.names.push_back(change_from(change));
  return meta;
}

// Adds the rings of a killed recorder that have a file and no entry yet.
void add_unlisted(int dir, RecordingMeta& meta) {
  std::set<std::string> listed;
  for (const RecordedRing& ring : meta.rings) listed.insert(ring_file(ring.name));
  const auto names = sys::names_in(dir);
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    const auto found = ring_of_file(name);
    if (!found || !listed.insert(ring_file(*found)).second) continue;
    struct stat st {};
    if (meta.subbuf_size == 0 && fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == 0)
      continue;  // killed before it listed the first
    RecordedRing ring;
    ring.name = *found;
    ring.subbuf_size = meta.subbuf_size;
    meta.rings.push_back(ring);
  }
}

// Reserves room after the end of the file, for a text of twice the size.
bool reserve(const sys::Fd& fd, u64 size) {
  return fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(2 * size + 65536)) == 0;
}

// Is there memory for a tree of JSON? Destroying one takes some as well (nlohmann-json 3.11): if memory runs out there, the
// process ends.
bool memory_for_tree(u64 bytes) noexcept {
  void* volatile all = std::malloc(bytes);  // else the compiler leaves both out
  std::free(all);
  return all != nullptr;
}
// Estimated from the texts made of them: a tree is some ten times as large.
u64 tree_size(const RecordingMeta& meta) noexcept {
  u64 bytes = u64{1} << 20;
  for (const EventInfo& e : meta.events) bytes += 4096 + 3 * e.format.size();
  return bytes + meta.rings.size() * 8192 + (meta.threads.size() + meta.names.size()) * 2048;
}

constexpr const char* next_meta = "meta.json.new";

// The file for the next text, with its reserved room. Others may write to the directory, but this file is the recorder's own,
// and has no other name.
sys::Fd open_next(int open) {
  sys::Fd fd = sys::open_beneath(open, next_meta, O_WRONLY);
  if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) return fd;
  struct stat st {};
  if (fd && fstat(fd.get(), &st) == 0 && st.st_uid == geteuid() && st.st_nlink == 1) return fd;
  if (unlinkat(open, next_meta, 0) != 0 && errno != ENOENT) return {};
  return sys::open_beneath(open, next_meta, O_WRONLY | O_CREAT | O_EXCL);
}

}  // namespace

Removed RecordingMeta::removed() const {
  Removed all;
  for (const RecordedRing& ring : rings) {
    all.events += ring.removed.events;
    all.bytes += ring.removed.bytes;
  }
  return all;
}

namespace {

// A recorder exchanges its two files, and writes the next text into the one that was read here: then it is read again.
result<std::string> read_whole(const sys::Fd& open, const std::string& dir, const std::string& path) {
  for (u32 tries = 1;; ++tries) {
    const sys::Fd file = open ? sys::open_beneath(open.get(), "meta.json", O_RDONLY) : sys::Fd();
    if (!file) return sys::fail_beneath(errno, dir + " is no recording: cannot read " + path);
    struct stat before {}, after {}, now {};
    const bool known = fstat(file.get(), &before) == 0;
    auto text = sys::read_text(file.get(), path, largest_meta);
    const bool same = known && fstat(file.get(), &after) == 0 &&
                      fstatat(open.get(), "meta.json", &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == before.st_dev &&
                      now.st_ino == before.st_ino && after.st_size == before.st_size &&
                      after.st_mtim.tv_sec == before.st_mtim.tv_sec && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
    if (same || tries == 100) return text;
  }
}

}  // namespace

result<RecordingMeta> RecordingMeta::read(const std::string& dir) {
  const std::string path = dir + "/meta.json";
  const sys::Fd open(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string text = RS_TRY(read_whole(open, dir, path));
  if (!memory_for_tree(16 * text.size() + (u64{1} << 20))) return fail(ENOMEM, "cannot read " + path);
  try {
    RecordingMeta meta = meta_from(json::parse(text));
    if (!meta.complete) add_unlisted(open.get(), meta);
    return meta;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return refuse(std::errc::bad_message, path + " cannot be understood: " + sys::shown_name(e.what()));
  }
}

std::string RecordingMeta::text(int indent) const {
  json j = json::object();
  j["ringside_recording"] = compressed ? compressed_version : meta_version;
  if (compressed) j["compression"] = "zstd";
  j["clock"] = {{"kind", to_string(clock.kind)},
                {"mult", clock.mult},
                {"shift", clock.shift},
                {"base_ticks", clock.base_ticks},
                {"base_ns", clock.base_ns}};
  if (!boot.empty()) j["boot"] = boot;
  j["world"] = {{"machine", machine_of(world.architecture)},
                {"byte_order", world.big_endian ? "big" : "little"},
                {"word_size", world.word_size}};
  if (world.pid_namespace != 0) j["world"]["pid_namespace"] = world.pid_namespace;
  if (world.page_size != 0) j["world"]["page_size"] = world.page_size;
  if (!world.release.empty()) j["world"]["release"] = world.release;
  if (!world.host.empty()) j["world"]["host"] = world.host;
  if (world.suspended_ns) j["world"]["suspended_ns"] = *world.suspended_ns;
  j["subbuf_size"] = subbuf_size;
  j["start_ns"] = start_ns;
  j["stop_ns"] = stop_ns;
  if (wall) j["wall"] = {{"offset_ns", wall->offset_ns}, {"error_ns", wall->error_ns}, {"set_ns", wall_set_ns}};
  j["duration_ns"] = duration_ns;
  if (max_size != 0) j["max_size"] = max_size;
  j["complete"] = complete;
  j["totals"] = counters_json(totals);
  if (complete) j["account"] = json_of(account);  // before, it has no end
  j["command"] = command;
  if (trigger) {
    j["trigger"] = {{"condition", trigger->condition}, {"event", trigger->event}, {"time_ns", trigger->time_ns}};
    if (trigger->latency_ns) j["trigger"]["latency_ns"] = *trigger->latency_ns;
  }
  j["events"] = json::array();
  for (const EventInfo& e : events) {
    j["events"].push_back({{"id", e.id}, {"system", e.system}, {"name", e.name}, {"format", e.format}, {"enabled", e.enabled}});
    if (e.kernel) j["events"].back()["kernel"] = true;
    if (e.apart != 0) j["events"].back()["apart"] = json_of_apart(e.apart);
  }
  j["rings"] = json::array();
  for (const RecordedRing& ring : rings) j["rings"].push_back(ring_json(ring));
  j["threads"] = json::array();
  for (const RingName& thread : threads) j["threads"].push_back(name_json(thread));
  for (const NameChange& change : names) j["names"].push_back(change_json(change));
  // Thread names are arbitrary bytes; invalid UTF-8 is replaced.
  return j.dump(indent, ' ', false, json::error_handler_t::replace) + "\n";
}

result<void> RecordingMeta::send(RecordingSender& sender) const {
  if (!memory_for_tree(tree_size(*this))) return fail(ENOMEM, "cannot send the meta.json of the recording to " + sender.to());
  return sender.replace("meta.json", text(1));
}

result<void> RecordingMeta::write(int open, const std::string& dir, bool last) const {
  if (!memory_for_tree(tree_size(*this))) return fail(ENOMEM, "cannot write " + dir + "/meta.json");
  const std::string text = this->text(1);
  const std::string path = dir + "/meta.json";
  const sys::Fd fd = open_next(open);
  if (!fd) return fail(errno, "cannot make " + path + ".new");
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && last && errno == ENOSPC && !threads.empty()) {  // the books matter more than names
      RecordingMeta without = *this;
      without.threads.clear();
      without.names.clear();
      without.account.doubts.push_back("there was no room for the names of threads");
      return without.write(open, dir);
    }
    if (n < 0) return fail(errno, "cannot write " + path + ".new");
    done += static_cast<size_t>(n);
  }
  if (ftruncate(fd.get(), static_cast<off_t>(done)) != 0) return fail(errno, "cannot close " + path + ".new");
  if (!last) {
    (void)reserve(fd, done);  // for its next turn; the text grows with threads and events
    if (renameat2(open, next_meta, open, "meta.json", RENAME_EXCHANGE) == 0) {
      (void)keep_room(open, dir, done);  // if there is no room, the file keeps what it had
      return {};
    }
  }
  if (renameat(open, next_meta, open, "meta.json") != 0) return fail(errno, "cannot put " + path + " in place");
  return last ? result<void>() : keep_room(open, dir, done);
}

result<void> RecordingMeta::keep_room(int open, const std::string& dir, u64 size) {
  const sys::Fd fd = open_next(open);
  // A file system that cannot reserve room has to be trusted.
  if (!fd || (!reserve(fd, size) && errno != EOPNOTSUPP && errno != EFBIG))
    return fail(errno, "cannot keep room for " + dir + "/meta.json");
  return {};
}

bool has_stacks(const RecordingMeta& meta) {
  return std::any_of(meta.events.begin(), meta.events.end(), [](const EventInfo& e) { return e.name == "code_map"; });
}

}  // namespace ringside
