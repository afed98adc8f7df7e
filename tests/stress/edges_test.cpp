// The storm of edges: programs that fork and exec, in namespaces of their own, recorders, lookers, mounts, snapshots, resizes
// and external writers come and go at random, under random limits, and are stopped and killed; then all counts must balance to
// the event.
//
// RINGSIDE_SEED repeats the decisions of a run (each actor has a random stream of its own), RINGSIDE_EDGES=write,fork,... takes
// part of them only: names of actors, limits and blows below.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "edges.hpp"
#include "instance/instance.hpp"
#include "ring_memory.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace ringside::test::edges_test {
namespace {

namespace fs = std::filesystem;
using namespace edges;

constexpr u64 bound_ns = 600'000'000'000;  // a process that takes longer hangs; nothing else is judged by time
constexpr u32 most_actors = 5;            // at a time

// The exit codes of an actor's process; it has explained a "wrong".
enum Answer { fine = 0, wrong = 1, cut_short = 10, refused = 11 };

struct Stage {
  std::string base, root, ledger;  // this run's directory; RINGSIDE_ROOT
  bool is_root = false;            // with the privileges to mount and unshare
  std::set<std::string> only;      // RINGSIDE_EDGES
  bool takes(const std::string& name) const { return only.empty() || only.count(name) != 0; }
  std::string recording(u32 serial) const { return base + "/disk-" + std::to_string(serial) + "/data"; }
  std::string taken(u32 serial, const std::string& instance) const {
    return root + "/taken-" + std::to_string(serial) + "-" + instance;
  }
};
const Stage* stage;

constexpr const char* instances[] = {"", "cpu", "thread"};  // by Where

u64 now() { return sys::now_ns(); }
void pause_ms(u64 ms) {
  timespec t{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

// An actor's own process.
struct Actor {
  u32 serial;
  Random random;
  const char* name;
  bool hit = false;      // killed something, or limited it
  bool refused = false;  // a command reported that it cannot, with the reason

  [[noreturn]] void fail(const std::string& what) const {
    std::fprintf(stderr, "edges: %s %u: %s\n", name, serial, what.c_str());
    _exit(wrong);
  }
  Where where() { return random.one_in(2) ? Where::cpu : Where::thread; }
  std::string instance() { return instances[static_cast<u32>(where())]; }

  // Drawn here; the child sets it before its exec.
  struct Limit {
    int resource;
    u64 value;
  };
  std::vector<Limit> limits() {
    std::vector<Limit> all;
    const auto draw = [&](const char* what, int resource, u64 least, u64 range) {
      const bool wanted = random.one_in(4);
      const u64 value = least + random.below(range);
      if (wanted && stage->takes(what)) all.push_back({resource, value});
    };
    draw("nofile", RLIMIT_NOFILE, 5, 60);
    draw("as", RLIMIT_AS, 200 << 20, 400 << 20);
    draw("fsize", RLIMIT_FSIZE, 1 << 12, 4 << 20);
    hit = hit || !all.empty();
    return all;
  }
};
void set(const std::vector<Actor::Limit>& limits) {
  for (const auto& [resource, value] : limits) {
    const rlimit both{value, value};
    setrlimit(static_cast<__rlimit_resource>(resource), &both);
  }
}

struct Started {
  pid_t pid = -1;
  int errors = -1;  // reading end of its stderr
};

// A program in a process group of its own. prepare: between fork and exec.
template <class Prepare>
Started start(Actor& actor, std::vector<std::string> words, Prepare prepare) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) actor.fail("pipe2");
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(null, 1);
    dup2(fds[1], 2);
    signal(SIGPIPE, SIG_DFL);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    prepare();
    execv(argv[0], argv.data());
    _exit(127);
  }
  setpgid(pid, pid);
  close(fds[1]);
  return {pid, fds[0]};
}

// The kernel stack of each process of the group.
std::string stacks_of_group(pid_t group) {
  std::string text;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), none; !error && at != none; at.increment(error)) {
    const pid_t pid = std::atoi(at->path().filename().c_str());
    if (pid <= 0 || getpgid(pid) != group) continue;
    std::ifstream status(at->path() / "stat"), stack(at->path() / "stack");
    std::stringstream both;
    both << status.rdbuf() << stack.rdbuf();
    text += both.str();
  }
  return text;
}

// Waits, at most for the bound; a blow may fall meanwhile: SIGKILL, or SIGSTOP and SIGCONT. Returns the wait status.
int finish(Actor& actor, const Started& started, const std::string& what) {
  const bool kills = stage->takes("kill") && actor.random.one_in(4), stops = stage->takes("stop") && actor.random.one_in(4);
  const u64 blow_ms = actor.random.below(700), stopped_ms = 20 + actor.random.below(300);
  const u64 begin = now();
  bool blown = false;
  int status = 0;
  std::string said;
  fcntl(started.errors, F_SETFL, O_NONBLOCK);
  const auto listen = [&] {
    char text[4096];
    for (ssize_t n; (n = read(started.errors, text, sizeof text)) > 0;) said.append(text, static_cast<size_t>(n));
  };
  for (;;) {
    if (waitpid(started.pid, &status, WNOHANG) == started.pid) break;
    listen();
    if (!blown && (kills || stops) && now() - begin > blow_ms * 1'000'000) {
      blown = true;
      if (stops) {
        kill(-started.pid, SIGSTOP);
        pause_ms(stopped_ms);
        kill(-started.pid, SIGCONT);
      }
      if (kills) {
        actor.hit = true;
        kill(-started.pid, SIGKILL);
      }
    }
    // Repeatedly: a child that is born between both signals takes the first and never sees the second (Linux drops an unhandled
    // SIGCONT before it looks for forks in progress).
    if (blown && stops) kill(-started.pid, SIGCONT);
    if (now() - begin > bound_ns) {
      const std::string stacks = stacks_of_group(started.pid);
      kill(-started.pid, SIGKILL);
      actor.fail(what + " hangs; in the kernel:\n" + stacks);
    }
    pause_ms(2);
  }
  listen();
  close(started.errors);
  if (WIFSIGNALED(status) && !(kills && WTERMSIG(status) == SIGKILL))
    actor.fail(what + " died of signal " + std::to_string(WTERMSIG(status)) + " after it said: " + said);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  // 127: no room for the program itself under its limit. 77: none for the ledger.
  if (code != 0 && code != 1 && !(actor.hit && (code == 127 || code == 77)))
    actor.fail(what + " answered " + std::to_string(code) + ": " + said);
  if (code == 1 && said.empty() && !actor.hit) actor.fail(what + " failed without a word");
  actor.refused = actor.refused || code == 1;
  if (said.find("DOES NOT ADD UP") != std::string::npos) actor.fail(what + ": " + said);
  return status;
}

Answer answer(const Actor& actor) { return actor.hit ? cut_short : actor.refused ? refused : fine; }

Answer command(Actor& actor, std::vector<std::string> words, bool limited = true) {
  words.insert(words.begin(), RINGSIDE_BUILD_DIR "/ringside");
  std::string what;
  for (const std::string& w : words) what += w + " ";
  const auto limits = limited ? actor.limits() : std::vector<Actor::Limit>{};
  for (const auto& [resource, value] : limits)
    what += "(limit " + std::to_string(resource) + ": " + std::to_string(value) + ") ";
  finish(actor, start(actor, words, [&] { set(limits); }), what);
  return answer(actor);
}

std::vector<std::string> writer_words(Actor& actor, Where where, const char* way) {
  return {RINGSIDE_BUILD_DIR "/tests/edges_writer", stage->ledger, std::to_string(actor.serial), std::to_string(actor.random()),
          std::to_string(static_cast<u32>(where)), way};
}

// The actors.

Answer write_events(Actor& actor, const char* way, int unshared) {
  const Where where = actor.where();
  const u64 boottime = 1000 + actor.random.below(100000);
  const auto limits = actor.limits();
  const Started started = start(actor, writer_words(actor, where, way), [&] {
    setenv("RINGSIDE_INSTANCE", instances[static_cast<u32>(where)], 1);
    if (unshared != 0 && unshare(unshared) != 0) _exit(1);
    if ((unshared & CLONE_NEWTIME) != 0)
      std::ofstream("/proc/self/timens_offsets") << "boottime " << boottime << " 0\n" << std::flush;
    if ((unshared & (CLONE_NEWPID | CLONE_NEWTIME)) != 0) {
      const pid_t inner = fork();  // the first process in the namespace
      if (inner != 0) {
        int status = 0;
        waitpid(inner, &status, 0);
        if (WIFSIGNALED(status)) kill(getpid(), WTERMSIG(status));
        _exit(WEXITSTATUS(status));
      }
      if ((unshared & CLONE_NEWNS) != 0) mount("proc", "/proc", "proc", 0, nullptr);
    }
    set(limits);
  });
  std::string what = std::string("a writer (") + actor.name + ", " + instances[static_cast<u32>(where)];
  for (const auto& [resource, value] : limits) what += ", limit " + std::to_string(resource) + ": " + std::to_string(value);
  finish(actor, started, what + ")");
  return fine;
}
Answer write_plainly(Actor& a) { return write_events(a, "write", 0); }
Answer write_and_fork(Actor& a) { return write_events(a, "fork", 0); }
Answer write_and_exec(Actor& a) { return write_events(a, "exec", 0); }
Answer write_in_pidns(Actor& a) {
  return write_events(a, a.random.one_in(2) ? "write" : "fork", CLONE_NEWPID | (a.random.one_in(2) ? CLONE_NEWNS : 0));
}
Answer write_in_timens(Actor& a) { return write_events(a, a.random.one_in(2) ? "write" : "exec", CLONE_NEWTIME); }
Answer write_in_userns(Actor& a) { return write_events(a, "write", CLONE_NEWUSER); }
Answer write_in_mntns(Actor& a) { return write_events(a, "fork", CLONE_NEWNS); }

std::string ms(u64 n) { return std::to_string(n) + "ms"; }

// Makes a recording's place: a disk of its own, sometimes a tiny one.
std::string make_disk(Actor& actor, const std::string& instance) {
  const std::string data = stage->recording(actor.serial), disk = fs::path(data).parent_path();
  fs::create_directory(disk);
  std::ofstream(disk + ".of") << instance;
  if (stage->is_root && stage->takes("disk") && actor.random.one_in(4)) {
    const std::string size = "size=" + std::to_string(16 + actor.random.below(1000)) + "k";
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, size.c_str()) == 0) actor.hit = true;
  }
  return data;
}
Answer record(Actor& actor) {
  const std::string instance = actor.instance(), data = make_disk(actor, instance);
  return command(actor, {"record", "-i", instance, "-o", data, "--duration", ms(30 + actor.random.below(1200))});
}
Answer record_kernel(Actor& actor) {
  const std::string instance = actor.instance(), data = make_disk(actor, instance);
  return command(
      actor,
      {"record", "-i", instance, "-e", "sched:sched_process_fork", "-o", data, "--duration", ms(30 + actor.random.below(500))},
      false);
}
Answer record_remote(Actor& actor) {
  const std::string socket = stage->root + "/.remotes/w" + std::to_string(actor.serial), data = make_disk(actor, "remote");
  auto words = writer_words(actor, Where::remote, "write");
  words.push_back(socket);
  const Started writer = start(actor, words, [] {});
  for (int k = 0; k < 500 && access(socket.c_str(), F_OK) != 0; ++k) pause_ms(2);
  command(actor, {"remote", socket, "-o", data, "--duration", ms(30 + actor.random.below(800)), "-b", "64k", "--subbuf-size",
                  "4k", "--layout", actor.random.one_in(2) ? "meta" : "footers"});
  finish(actor, writer, "an external writer");
  unlink(socket.c_str());
  return answer(actor);
}
Answer top(Actor& actor) { return command(actor, {"top", actor.instance(), "--duration", ms(1 + actor.random.below(800))}); }
Answer stat(Actor& actor) { return command(actor, {"stat", actor.instance()}); }
Answer report(Actor& actor) { return command(actor, {"report", actor.instance(), "--json"}); }
Answer list(Actor& actor) { return command(actor, {"list"}); }

std::unique_ptr<Instance> open_instance(Actor& actor, const std::string& name) {
  for (int tries = 0;; ++tries) {
    auto instance = Instance::open(name);
    if (instance) return std::move(*instance);
    if (tries == 5) actor.fail("cannot open " + name + ": " + instance.error().sentence);
    pause_ms(20);
  }
}
Answer resize(Actor& actor) {
  const auto instance = open_instance(actor, actor.instance());
  for (u64 n = 1 + actor.random.below(5); n != 0; --n) {
    const u32 subbuf = 4096u << actor.random.below(3);
    auto done = instance->resize(subbuf * (4 + actor.random.below(20)), subbuf);
    if (!done && done.error().code != std::errc::device_or_resource_busy && done.error().code != std::errc::no_space_on_device)
      actor.fail(done.error().sentence);
    pause_ms(actor.random.below(50));
  }
  return fine;
}
Answer trim(Actor& actor) {
  const auto instance = open_instance(actor, actor.instance());
  for (u64 n = 1 + actor.random.below(10); n != 0; --n) {
    instance->trim();
    pause_ms(actor.random.below(40));
  }
  return fine;
}
// Takes a snapshot's events out of the instance, for the accounts.
Answer snapshot(Actor& actor) {
  const auto instance = open_instance(actor, actor.instance());
  auto path = instance->snapshot();
  if (!path) {
    if (path.error().code != std::errc::device_or_resource_busy && path.error().code != std::errc::no_space_on_device)
      actor.fail(path.error().sentence);
    if (!instance->has_snapshot()) return fine;  // else some rings were taken out before the memory was full
  }
  const std::string taken = instance->path() + "/snapshot";
  if (rename(taken.c_str(), stage->taken(actor.serial, instance->name()).c_str()) != 0) actor.fail("rename");
  return fine;
}
// Other instances: made by their first writers, removed while others use them.
Answer make_and_remove(Actor& actor) {
  const std::string name = "other-" + std::to_string(actor.random.below(3));
  const char* const rings = instances[static_cast<u32>(actor.where())];
  const Started writer = start(actor, writer_words(actor, Where::none, "fork"), [&] {
    setenv("RINGSIDE_INSTANCE", name.c_str(), 1);
    setenv("RINGSIDE_RINGS", rings, 1);
  });
  pause_ms(actor.random.below(100));
  std::vector<std::string> words{"rm", name};
  if (actor.random.one_in(2)) words.push_back("-f");
  command(actor, words, false);
  finish(actor, writer, "a writer of " + name);
  if (actor.random.one_in(2)) command(actor, {"rm", "-f", name}, false);
  return fine;
}
Answer fill_memory(Actor& actor) {
  const std::string filler = fs::path(stage->root).parent_path().string() + "/filler" + std::to_string(actor.serial);
  const sys::Fd fd(open(filler.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  off_t at = 0;
  for (off_t step = 4 << 20; step >= 4096;)
    if (posix_fallocate(fd.get(), at, step) == 0) at += step;
    else step /= 2;
  pause_ms(20 + actor.random.below(150));
  unlink(filler.c_str());
  return fine;
}
Answer look_through_mount(Actor& actor) {
  if (access("/dev/fuse", R_OK | W_OK) != 0) return fine;
  const std::string at = stage->base + "/mount-" + std::to_string(actor.serial);
  fs::create_directory(at);
  const std::string instance = actor.instance();
  const Started server = start(actor, {RINGSIDE_BUILD_DIR "/ringside", "mount", at, "--instance", instance}, [] {});
  siginfo_t ended{};
  for (int k = 0; k < 30000 && ended.si_pid == 0 && access((at + "/trace").c_str(), R_OK) != 0; ++k) {
    pause_ms(2);
    waitid(P_PID, static_cast<id_t>(server.pid), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
  for (u64 n = 1 + actor.random.below(4); n != 0; --n) {
    for (const char* file : {"/trace", "/per_cpu/cpu0/stats", "/saved_cmdlines"}) {
      const sys::Fd fd(open((at + file).c_str(), O_RDONLY | O_CLOEXEC));
      char bytes[65536];
      for (int k = 0; k < 200 && read(fd.get(), bytes, sizeof bytes) > 0; ++k) {
      }
    }
    pause_ms(actor.random.below(60));
  }
  if (actor.random.one_in(3)) {
    actor.hit = true;
    kill(-server.pid, SIGKILL);
    int status;
    waitpid(server.pid, &status, 0);
    close(server.errors);
  } else {
    kill(-server.pid, SIGTERM);
    finish(actor, server, "ringside mount");
  }
  while (umount2(at.c_str(), MNT_DETACH) == 0) {
  }
  fs::remove(at);
  return fine;
}

struct Part {
  const char* name;
  Answer (*act)(Actor&);
  u32 weight;
  bool wants_root = false, alone = false;  // alone: never two at a time
};
constexpr Part parts[] = {
    {"write", write_plainly, 6},
    {"fork", write_and_fork, 5},
    {"exec", write_and_exec, 3},
    {"pidns", write_in_pidns, 3, true},
    {"timens", write_in_timens, 2, true},
    {"userns", write_in_userns, 2, true},
    {"mntns", write_in_mntns, 2, true},
    {"record", record, 5},
    {"remote", record_remote, 3},
    {"kernel", record_kernel, 1, true},
    {"top", top, 2},
    {"stat", stat, 3},
    {"report", report, 2},
    {"list", list, 1},
    {"resize", resize, 2},
    {"trim", trim, 2},
    {"snapshot", snapshot, 2, false, true},
    {"rm", make_and_remove, 2},
    {"fill", fill_memory, 2, true},
    {"mount", look_through_mount, 2, true},
};

// The accounts of all written events: read ones, and losses by count.
class Books {
 public:
  explicit Books(const Ledger& ledger) : ledger_(ledger) {}

  std::set<std::string> problems;
  void problem(const std::string& text) {
    if (problems.size() < 50) problems.insert(text);
  }
  struct Sums {
    u64 seen = 0, twice = 0, lost = 0, written = 0, overrun = 0, refused = 0, unread = 0;
  };
  Sums& of(Where where) { return sums_[static_cast<u32>(where)]; }

  // Takes everything from a source. ticks: the ids of tick events.
  u64 take(Source& source, const std::set<u16>& ticks, Where where, const std::string& what) {
    std::map<u32, u64> next;  // by life: in one ring, numbers only grow
    u64 seen = 0;
    for (;;) {
      auto view = source.next();
      if (!view) {
        problem(what + ": " + view.error().sentence);
        return seen;
      }
      if (!*view) return seen;
      const SubBufferView& v = **view;
      of(where).lost += v.lost_before;
      abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
      while (c.next()) {
        u16 id;
        std::memcpy(&id, c.payload().data, sizeof id);
        if (ticks.count(id) == 0) {
          problem(what + ": an event of the unknown id " + std::to_string(id));
          continue;
        }
        ++seen;
        Tick t;
        if (!is_tick(c.payload().data, c.payload().size, t)) {
          problem(what + ": an event that nobody wrote: life " + std::to_string(t.who) + " number " + std::to_string(t.number));
          continue;
        }
        tick(t, where, next, what);
      }
      if (c.malformed() != abi::Malformed::no) problem(what + ": a malformed sub-buffer was handed out");
    }
  }

 private:
  void tick(const Tick& t, Where where, std::map<u32, u64>& next, const std::string& what) {
    const std::string who = what + ": life " + std::to_string(t.who) + " number " + std::to_string(t.number);
    if (t.who >= ledger_.count() || t.number >= __atomic_load_n(&ledger_[t.who].before, __ATOMIC_ACQUIRE))
      return problem(who + " was never tried");
    if (ledger_[t.who].where != static_cast<u32>(where)) return problem(who + " stands in another instance's ring");
    u64& least = next[t.who];
    if (t.number < least) problem(who + " comes behind number " + std::to_string(least - 1));
    least = t.number + 1;
    if (seen_.size() <= t.who) seen_.resize(t.who + 1);
    auto& of_life = seen_[t.who];
    if (of_life.size() <= t.number) of_life.resize(t.number + 1);
    ++(of_life[t.number] ? of(where).twice : of(where).seen);
    of_life[t.number] = true;
  }

  const Ledger& ledger_;
  std::vector<std::vector<bool>> seen_;
  std::array<Sums, 4> sums_{};
};

std::set<u16> ticks_of(const std::vector<EventInfo>& events) {
  std::set<u16> ids;
  for (const EventInfo& e : events)
    if (e.system == "edges") ids.insert(e.id);
  return ids;
}

class Storm {
 public:
  Storm(const Stage& the_stage, u64 seed)
      : stage_(the_stage), ledger_(the_stage.ledger), books_(ledger_), seed_(seed), random_(seed) {}

  void run(u64 end) {
    u32 weight = 0;
    std::vector<Part> chosen_from;
    for (const Part& p : parts) {
      if (!stage_.takes(p.name) || (p.wants_root && !stage_.is_root)) continue;
      chosen_from.push_back(p);
      weight += p.weight;
    }
    while (weight != 0 && now() < end && ledger_.count() < most_lives / 2 && books_.problems.size() < 20) {
      u64 ticket = random_.below(weight);
      auto chosen = chosen_from.begin();
      for (; ticket >= chosen->weight; ++chosen) ticket -= chosen->weight;
      const auto runs_already = [&](const auto& running) { return running.second.name == chosen->name; };
      while (running_.size() >= most_actors || (chosen->alone && std::any_of(running_.begin(), running_.end(), runs_already)))
        reap();
      begin(*chosen);
      for (u64 n = random_.below(20); n != 0; --n) reap();
    }
    while (!running_.empty()) reap();
    for (const u64 since = now(); wait_for_any(); pause_ms(2))
      if (now() - since > bound_ns) {
        books_.problem("processes are left over");
        break;
      }
  }

  Books& books() { return books_; }

  // Takes an instance's content: its events and its counters.
  void close(Instance& instance, Where where, const std::string& what) {
    const auto ticks = ticks_of(instance.events());
    for (const RingInfo& r : instance.rings()) {
      auto source = instance.source(r.name.ring);
      if (source) books_.take(**source, ticks, where, what + ", ring " + std::to_string(r.name.ring));
      else if (r.counters.unread != 0) books_.problem(what + ": " + source.error().sentence);
    }
    Books::Sums& sums = books_.of(where);
    for (const RingInfo& r : instance.rings()) {
      const Counters& n = r.counters;
      if (r.corrupt) books_.problem(what + ": ring " + std::to_string(r.name.ring) + " was given up");
      if (n.written != n.read + n.overrun + n.unread)
        books_.problem(what + ", ring " + std::to_string(r.name.ring) + ": its counters do not add up");
      sums.written += n.written, sums.overrun += n.overrun, sums.unread += n.unread,
          sums.refused += n.dropped + n.commit_overrun;
    }
  }

  void balance(Instance& instance, Where where) {
    const std::string name = instances[static_cast<u32>(where)];
    close(instance, where, name);
    Books::Sums& sums = books_.of(where);
    const PastTotals past = instance.past();
    sums.written += past.written, sums.overrun += past.overrun,
        sums.refused += past.dropped + past.commit_overrun + instance.refused();
    // Resizes and snapshots leave rings that also fill the memory.
    bool limited = false;
    for (const char* limit : {"nofile", "as", "fsize", "fill", "resize", "snapshot"}) limited = limited || stage_.takes(limit);
    u64 before = 0, after = 0, written = 0, refused = 0;
    for (u32 who = 1; who < ledger_.count(); ++who) {
      const Life& life = ledger_[who];
      if (life.where != static_cast<u32>(where)) continue;
      before += life.before, after += life.after, written += life.written, refused += life.refused;
      if (!limited && life.refused >= 20 && life.written == 0)
        books_.problem(name + ": life " + std::to_string(who) + " of actor " + std::to_string(life.serial) +
                       " was refused each of its " + std::to_string(life.refused) + " events");
    }
    const auto n = [](u64 x) { return static_cast<unsigned long long>(x); };
    std::printf(
        "%s: tried %llu (%llu in flight of the dead), written %llu = seen %llu + overrun %llu + unread %llu, refused %llu; "
        "read twice %llu, gaps %llu\n",
        name.c_str(), n(before), n(before - after), n(sums.written), n(sums.seen), n(sums.overrun), n(sums.unread),
        n(sums.refused), n(sums.twice), n(sums.lost));
    EXPECT_EQ(sums.written, sums.seen + sums.overrun + sums.unread) << name;
    EXPECT_EQ(sums.unread, 0u) << name;
    EXPECT_GE(sums.written + sums.refused, after) << name;
    EXPECT_LE(sums.written + sums.refused, before) << name;
    EXPECT_GE(sums.written, written) << name << ": fewer events than calls that said \"written\"";
    EXPECT_GE(sums.refused, refused) << name << ": fewer are counted as refused than were";
    if (cuts_ == 0) {  // an interrupted recorder leaves its last data to the next one
      EXPECT_EQ(sums.twice, 0u) << name;
      EXPECT_EQ(sums.lost, sums.overrun) << name;
    }
  }

 private:
  struct Running {
    const char* name;
    u32 serial;
  };

  void begin(const Part& part) {
    const u32 serial = ++serial_;
    std::fflush(stdout);
    const pid_t pid = fork();
    if (pid != 0) {
      running_[pid] = {part.name, serial};
      return;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    Actor actor{serial, Random(mix(seed_ ^ mix(serial))), part.name};
    const Answer answer = part.act(actor);
    std::fflush(stdout);
    _exit(answer);
  }

  void reap() {
    if (!wait_for_any()) pause_ms(2);
    else pause_ms(1);
  }
  // False: there is no child.
  bool wait_for_any() {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return pid == 0;
    const auto it = running_.find(pid);
    if (it == running_.end()) {  // a child whose parent is gone
      if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        books_.problem("an orphan died of signal " + std::to_string(WTERMSIG(status)));
      return true;
    }
    const Running done = it->second;
    running_.erase(it);
    const std::string what = std::string(done.name) + " " + std::to_string(done.serial);
    const int answer = WIFEXITED(status) ? WEXITSTATUS(status) : wrong;
    if (answer == wrong || WIFSIGNALED(status))
      books_.problem(what + " went wrong" + (WIFSIGNALED(status) ? ": signal " + std::to_string(WTERMSIG(status)) : ""));
    cuts_ += answer == cut_short;
    check_recording(done.serial, what, answer);
    for (const Where where : {Where::cpu, Where::thread}) {
      const std::string taken = stage_.taken(done.serial, instances[static_cast<u32>(where)]);
      if (access(taken.c_str(), F_OK) != 0) continue;
      if (auto instance = Instance::open(taken)) close(**instance, where, what);
      else books_.problem(what + ": " + instance.error().sentence);
      fs::remove_all(taken);
    }
    return true;
  }

  void check_recording(u32 serial, const std::string& what, int answer) {
    const std::string data = stage_.recording(serial), disk = fs::path(data).parent_path();
    std::string of;
    if (!(std::ifstream(disk + ".of") >> of)) return;
    const Where where = of == "cpu" ? Where::cpu : of == "thread" ? Where::thread : Where::remote;
    if (auto meta = RecordingMeta::read(data)) {
      const bool whole = answer == fine || (answer == refused && meta->complete);
      u64 seen = 0;
      Books::Sums& sums = books_.of(where);
      const Books::Sums before = sums;
      auto sources = open_recording(data, *meta);
      if (!sources) books_.problem(what + ": " + sources.error().sentence);
      else
        for (auto& source : *sources)
          if (!source->name().kernel)
            seen += books_.take(*source, ticks_of(meta->events), where, what + ", ring " + std::to_string(source->name().ring));
      if (whole && !meta->complete) books_.problem(what + ": the recording is not complete");
      if (whole)
        for (const std::string& doubt : meta->account.doubts)
          if (doubt.find("is being consumed") == doubt.npos && doubt.find("not read") == doubt.npos)
            books_.problem(what + ": " + doubt);  // another recorder is there
      if (whole && where == Where::remote) {
        u64 written = 0;
        for (u32 who = 1; who < ledger_.count(); ++who)
          if (ledger_[who].where == static_cast<u32>(where) && ledger_[who].serial == serial) written += ledger_[who].written;
        const u64 lost = sums.lost - before.lost;
        if (written != seen + lost || meta->totals.written != written)
          books_.problem(what + ": " + std::to_string(written) + " written, " + std::to_string(seen) + " read, " +
                         std::to_string(lost) + " lost, " + std::to_string(meta->totals.written) + " told");
      }
      if (whole && serial % 8 == 0) check_report(data, what, seen);
    } else if (answer == fine) {
      books_.problem(what + ": " + meta.error().sentence);
    }
    while (umount2(disk.c_str(), MNT_DETACH) == 0) {
    }
    fs::remove_all(disk);
    fs::remove(disk + ".of");
  }
  void check_report(const std::string& data, const std::string& what, u64 seen) {
    FILE* const pipe = popen((RINGSIDE_BUILD_DIR "/ringside report --json -e 'edges:*' " + data +
                              " 2>/dev/null | grep -c '\"event\":\"edges:tick\"'")
                                 .c_str(),
                             "re");
    unsigned long long lines = 0;
    if (std::fscanf(pipe, "%llu", &lines) != 1 || lines != seen)
      books_.problem(what + ": report shows " + std::to_string(lines) + " of " + std::to_string(seen) + " events");
    pclose(pipe);
  }

  const Stage& stage_;
  const Ledger ledger_;
  Books books_;
  u64 seed_;
  Random random_;
  u32 serial_ = 0;
  u64 cuts_ = 0;
  std::map<pid_t, Running> running_;
};

u64 given_seed() {
  const char* const given = std::getenv("RINGSIDE_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : now();
}

// One storm, until `end`, or until its ledger is full.
void run_storm(u64 seed, u64 end) {
  std::printf("RINGSIDE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  SCOPED_TRACE("RINGSIDE_SEED=" + std::to_string(seed));
  Stage the_stage;
  char base[] = "/dev/shm/ringside-edges-XXXXXX";
  ASSERT_NE(mkdtemp(base), nullptr);
  the_stage.base = base;
  the_stage.ledger = the_stage.base + "/ledger";
  the_stage.is_root = geteuid() == 0;
  if (!the_stage.is_root) std::printf("not root: no namespaces, no mounts, no full memory, no tiny disks\n");
  const char* const given = std::getenv("RINGSIDE_EDGES");
  if (given != nullptr) {
    std::istringstream names(given);
    for (std::string name; std::getline(names, name, ',');) the_stage.only.insert(name);
  }
  const std::string memory = the_stage.base + "/memory";
  fs::create_directory(memory);
  if (the_stage.is_root) {
    ASSERT_EQ(mount("tmpfs", memory.c_str(), "tmpfs", 0, "size=48m"), 0);
  }
  the_stage.root = memory + "/root";
  fs::create_directories(the_stage.root + "/.remotes");
  setenv("RINGSIDE_ROOT", the_stage.root.c_str(), 1);
  stage = &the_stage;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  {
    std::unique_ptr<Instance> all[2];
    const Where wheres[] = {Where::cpu, Where::thread};
    for (int i = 0; i < 2; ++i) {
      InstanceOptions options;
      options.name = instances[static_cast<u32>(wheres[i])];
      options.buffer_size = 64 << 10;
      options.subbuf_size = 4096;
      options.rings = i == 0 ? Rings::cpu : Rings::thread;
      auto made = Instance::create(options);
      if (!made && i == 0) {
        std::printf("no rings of CPUs here: %s\n", made.error().sentence.c_str());
        options.rings = Rings::thread;
        made = Instance::create(options);
      }
      all[i] = must(std::move(made));
    }
    Storm storm(the_stage, seed);
    storm.run(end);
    for (int i = 0; i < 2; ++i) storm.balance(*all[i], wheres[i]);
    std::string problems;
    for (const std::string& problem : storm.books().problems) problems += problem + "\n";
    EXPECT_EQ(problems, "");
  }
  // Nothing is left over.
  for (const std::string& name : Instance::list()) (void)Instance::remove(name, true);
  fs::remove(the_stage.root + "/.remotes");
  for (const auto& entry : fs::recursive_directory_iterator(the_stage.root)) ADD_FAILURE() << "left over: " << entry.path();
  if (the_stage.is_root) {
    EXPECT_EQ(umount2(memory.c_str(), 0), 0) << strerrorname_np(errno);
  }
  fs::remove(memory);
  fs::remove(the_stage.ledger);
  for (const auto& entry : fs::directory_iterator(the_stage.base)) ADD_FAILURE() << "left over: " << entry.path();
  std::string line;
  for (std::ifstream mounts("/proc/self/mountinfo"); std::getline(mounts, line);)
    EXPECT_EQ(line.find(base), std::string::npos) << "left over: " << line;
  umount2(memory.c_str(), MNT_DETACH);
  fs::remove_all(base);
}

TEST(Edges, Storm) {
  const u64 end = now() + static_cast<u64>(test_seconds(60) / 2 * 1e9);
  u64 seed = given_seed();
  do {
    run_storm(seed++, end);
  } while (now() < end && !HasFailure());
}

}  // namespace
}  // namespace ringside::test::edges_test
