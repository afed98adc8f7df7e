// The restartable sequences of this program, cut off at each of their instructions.
//
// A child writes numbered events; breakpoints stop it at every instruction boundary of every sequence that it runs, and of the
// code between them. While it is stopped, something happens to it or to its ring: it is moved to another CPU, a handler writes,
// another process writes until the ring has gone round, a reader takes everything, the gate is shut, it is killed. Then the
// counts must be exact.
#include <gtest/gtest.h>

#include "cpu_rings.hpp"

#if RS_TEST_RSEQ && defined(__x86_64__)
#include <link.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <string>

extern "C" {
// The kernel's struct rseq_cs; the linker provides the begin and the end of their section.
struct RseqDescriptor {
  unsigned version, flags;
  unsigned long long start, length, abort;
};
extern const RseqDescriptor __start___rseq_cs[] __attribute__((weak, visibility("hidden")));
extern const RseqDescriptor __stop___rseq_cs[] __attribute__((weak, visibility("hidden")));
}

namespace ringside::test::cpu_sequences_test {
namespace {

constexpr u32 contexts = 2;  // the child, and its handler
constexpr u32 most_lives = 8192;
constexpr u32 nr_subbufs = 5;

struct Life {
  u64 done[contexts], refused[contexts], disabled[contexts], other, aborted;
  u64 steps;  // writes that were begun, with any outcome
  bool killed;
};
struct Stage {
  std::atomic<bool> go, stop, exact;  // exact: the times of events are let alone
  Life lives[most_lives];
};
Stage* stage;
const CpuRingSet* all;
Life* mine;

struct Counted : Rseq {
  template <u32 known>
  RINGSIDE_INLINE static Sequence append_usual(i64 area, const CpuRings& r, const Shape& shape, const void* payload) noexcept {
    return count(Rseq::append_usual<known>(area, r, shape, payload));
  }
  template <class C>
  RINGSIDE_INLINE static Sequence append_timed(i64 area, const CpuRings& r, const Shape& shape, const void* payload,
                                               C& clock, bool watch) noexcept {
    return count(Rseq::append_timed(area, r, shape, payload, clock, watch));
  }
  RINGSIDE_INLINE static Sequence append(i64 area, const Append& a, const Guard& guard) noexcept { return count(Rseq::append(area, a, guard)); }
  RINGSIDE_INLINE static Sequence refuse(i64 area, const Refuse& a) noexcept { return count(Rseq::refuse(area, a)); }
  RINGSIDE_INLINE static Sequence enter(i64 area, const Enter& a) noexcept { return count(Rseq::enter(area, a)); }

 private:
  RINGSIDE_INLINE static Sequence count(Sequence s) noexcept {
    if (s == Sequence::aborted) Hardware::add_local(&mine->aborted, 1);
    return s;
  }
};
// Each has its own places in the program.
const CpuWriter<EitherClock, Counted> writer{{true}}, timed_writer{{false}}, watched_writer{{false}, true};
// read: by the sequence itself. given: by a call, guarded by the descriptor; watched: by the stopwatch.
enum class Times { read, given, watched } times_are;
bool is_timed() { return times_are != Times::read; }

// One place in the program for each sequence: the child and its handler write here.
[[gnu::noinline]] Refused append_one(const u8* payload, u32 size) {
  const auto& by = times_are == Times::read ? writer : times_are == Times::given ? timed_writer : watched_writer;
  return write_numbered(by, all->rings(), payload, size);
}

Refused write_one(u32 context) {
  Life& life = *mine;
  u8 payload[numbered_most];
  const u64 sequence = life.done[context];
  const u32 size = make_numbered(payload, static_cast<u32>(&life - stage->lives) * contexts + context, sequence);
  Hardware::add_local(&life.steps, 1);
  const Refused why = append_one(payload, size);
  switch (why) {
    case Refused::no: __atomic_store_n(&life.done[context], sequence + 1, __ATOMIC_RELAXED); break;
    case Refused::full: Hardware::add_local(&life.refused[context], 1); break;
    case Refused::disabled: Hardware::add_local(&life.disabled[context], 1); break;
    default: Hardware::add_local(&life.other, 1);
  }
  return why;
}

void on_signal(int) {
  static u32 came;
  const u64 n = ++came % 3 == 0 ? 70 : came % 3;  // larger than the sub-buffer, or not
  for (u64 i = 0; i < n; ++i) write_one(1);
}

// Makes the newest event of this CPU's ring `ticks` later.
void shift_last(i64 ticks) {
  const Ring& ring = (*all)[Rseq::cpu(rseq_area())];
  const u32 id = place_of(ring.control->commit).id;
  const u64 commit = ring.header(id).commit;
  if (commit != 0) times(ring.record(id))[events_at(ring.record(id).committed, commit) & 1] += static_cast<u64>(ticks);
}

[[noreturn]] void live(Life& life) {
  mine = &life;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (!stage->go) sched_yield();
  for (u64 i = 0; !stage->stop; ++i) {
    if (i % 16 == 5 && !stage->exact) shift_last(-(i64{1} << 28));  // the next event needs a time extend
    if (i % 16 == 11 && !stage->exact) shift_last(i64{1} << 13);    // here the clock went back
    if (write_one(0) == Refused::full) usleep(10);  // the reader's turn
  }
  _exit(0);
}

// Writes on one CPU until the tail has moved on, or the ring is full: for each byte of a pipe.
class Helper {
 public:
  Helper(Life& life, u32 cpu, u32 positions) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      mine = &life;
      close(to[1]);
      close(from[0]);
      pin(0, cpu);
      const Control& c = *(*all)[cpu].control;
      for (char command; read(to[0], &command, 1) == 1;) {
        const u64 until = place_of(__atomic_load_n(&c.commit, __ATOMIC_RELAXED)).position + positions;
        while (place_of(__atomic_load_n(&c.commit, __ATOMIC_RELAXED)).position < until)
          if (write_one(0) != Refused::no) break;
        if (write(from[1], &command, 1) != 1) break;
      }
      _exit(0);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Helper() {
    close(to_);
    close(from_);
    waitpid(pid_, nullptr, 0);
  }
  void lap() {
    char c = 0;
    if (write(to_, &c, 1) != 1 || read(from_, &c, 1) != 1) ADD_FAILURE() << "the helper has died";
  }

 private:
  pid_t pid_;
  int to_, from_;
};

// The program's own code.
struct Range {
  u64 begin, end;
  bool holds(u64 at) const { return at >= begin && at < end; }
};
std::string own_path() {
  char path[4096] = {};
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  return n > 0 ? path : "";
}
u64 load_address() {
  u64 base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<u64*>(to) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}
std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  std::FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  char line[4096];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) lines.emplace_back(line);
  if (pipe != nullptr) pclose(pipe);
  return lines;
}
std::vector<u64> instructions(Range r) {
  const u64 base = load_address();
  char options[100];
  std::snprintf(options, sizeof options, "--start-address=0x%llx --stop-address=0x%llx ",
                static_cast<unsigned long long>(r.begin - base), static_cast<unsigned long long>(r.end - base));
  std::vector<u64> found;
  for (const std::string& line :
       lines_of("objdump -d -w --no-show-raw-insn " + std::string(options) + "'" + own_path() + "'")) {
    char* end;
    const u64 at = std::strtoull(line.c_str(), &end, 16);
    if (line[0] == ' ' && *end == ':') found.push_back(at + base);
  }
  return found;
}
// The functions that these addresses are in; none if the program has no symbols.
std::vector<Range> functions_of(const std::vector<Range>& sequences) {
  const u64 base = load_address();
  std::set<std::pair<u64, u64>> found;
  for (const std::string& line : lines_of("nm -S --defined-only '" + own_path() + "'")) {
    unsigned long long at, size;
    char type;
    if (std::sscanf(line.c_str(), "%llx %llx %c", &at, &size, &type) != 3 || std::strchr("tTwWuv", type) == nullptr) continue;
    const Range f{at + base, at + base + size};
    for (const Range& s : sequences)
      if (f.holds(s.begin)) found.insert({f.begin, f.end});
    if (line.find("9CpuWriter") != std::string::npos) found.insert({f.begin, f.end});  // which reads the clock between two of them
  }
  std::vector<Range> out;
  for (const auto& [begin, end] : found) out.push_back({begin, end});
  return out;
}

enum class Action { nothing, migrate, handler, lap, swap, gate, kill, late };
constexpr const char* name_of[] = {"nothing", "migrate", "handler", "lap", "swap", "gate", "kill", "late"};

// A child with breakpoints.
class Traced {
 public:
  Traced(Life& life, u32 cpu) : life_(life) {
    stage->go = false;
    pid_ = fork();
    if (pid_ == 0) live(life);
    pin(pid_, cpu);
    ok_ = ptrace(PTRACE_SEIZE, pid_, nullptr, PTRACE_O_EXITKILL) == 0;
    if (ok_) stop();
    stage->go = true;
  }
  ~Traced() {
    if (pid_ != 0) kill();
  }
  bool ok() const { return ok_; }
  pid_t pid() const { return pid_; }
  Life& life() const { return life_; }

  // Only while it is stopped.
  void arm(u64 at) { poke(at, 0xCC); }
  void disarm(u64 at) { poke(at, *reinterpret_cast<const u8*>(at)); }
  void go_on(int signal = 0) { ptrace(PTRACE_CONT, pid_, nullptr, signal); }

  // Stops it wherever it is.
  void stop() {
    ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr);
    wait_stopped([] {});
  }
  // Lets it run until it comes to a breakpoint, and returns that; 0: it has begun `most` writes, and is stopped.
  template <class F>
  u64 run(u64 most, int signal, F meanwhile) {
    const u64 until = steps() + most;
    bool asked = false;
    go_on(signal);
    for (;;) {
      const int status = wait_stopped([&] {
        meanwhile();
        if (!asked && steps() > until) {
          ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr);
          asked = true;
        }
      });
      if (pid_ == 0) return 0;
      const int why = WSTOPSIG(status);
      if (status >> 16 == PTRACE_EVENT_STOP) {
        if (asked && !on_breakpoint()) return 0;
        go_on();  // it was asked to stop before, and came to a breakpoint first; or it is about to report that
      } else if (why == SIGTRAP) {
        user_regs_struct regs;
        ptrace(PTRACE_GETREGS, pid_, nullptr, &regs);
        return regs.rip - 1;
      } else {
        go_on(why);
      }
    }
  }
  // Runs without breakpoints until this holds; then it is stopped. False: it is gone.
  template <class F>
  bool run_until(F holds) {
    go_on();
    for (int status = 0; !holds(); sched_yield()) {
      if (waitpid(pid_, &status, WNOHANG) != pid_) continue;
      if (!WIFSTOPPED(status)) return false;
      go_on();  // it was asked to stop before
    }
    stop();
    return pid_ != 0;
  }
  // The descriptor that the kernel would look at: the child's main thread has this one's addresses.
  u64 descriptor() const {
    const auto area = reinterpret_cast<u64>(__builtin_thread_pointer()) + static_cast<u64>(rseq_area());
    return static_cast<u64>(ptrace(PTRACE_PEEKDATA, pid_, area + 8, nullptr));
  }
  void set_position(u64 at) {
    user_regs_struct regs;
    ptrace(PTRACE_GETREGS, pid_, nullptr, &regs);
    regs.rip = at;
    ptrace(PTRACE_SETREGS, pid_, nullptr, &regs);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    int status;
    while (waitpid(pid_, &status, 0) == pid_ && !WIFEXITED(status) && !WIFSIGNALED(status)) {
    }
    pid_ = 0;
  }
  // Not while it is on a breakpoint.
  int end() {
    stage->stop = true;
    go_on();
    int status = -1;
    while (waitpid(pid_, &status, 0) == pid_ && !WIFEXITED(status) && !WIFSIGNALED(status)) go_on();
    pid_ = 0;
    stage->stop = false;
    return status;
  }
  u64 steps() const { return __atomic_load_n(&life_.steps, __ATOMIC_RELAXED); }

 private:
  template <class F>
  int wait_stopped(F meanwhile) {
    for (int status = 0;;) {
      const pid_t got = waitpid(pid_, &status, WNOHANG);
      if (got == pid_ && WIFSTOPPED(status)) return status;
      if (got != 0) {
        ADD_FAILURE() << "the child is gone, status " << status;
        pid_ = 0;
        return status;
      }
      meanwhile();
      sched_yield();
    }
  }
  // A breakpoint's signal is waiting to be reported.
  bool on_breakpoint() const {
    siginfo_t pending[8];
    const __ptrace_peeksiginfo_args which{0, 0, 8};
    const long n = ptrace(PTRACE_PEEKSIGINFO, pid_, &which, pending);
    return std::any_of(pending, pending + std::max(n, 0l), [](const siginfo_t& s) { return s.si_signo == SIGTRAP; });
  }
  void poke(u64 at, u8 byte) {
    const u64 word = static_cast<u64>(ptrace(PTRACE_PEEKTEXT, pid_, at, nullptr));
    ptrace(PTRACE_POKETEXT, pid_, at, (word & ~u64{0xFF}) | byte);
  }

  Life& life_;
  pid_t pid_;
  bool ok_;
};

struct Figures {
  u64 stops = 0, inside = 0, cleared = 0, missed = 0, missed_inside = 0, events = 0, aborted = 0, kills = 0, more = 0, refused = 0, armed = 0;
};

// The parts of a ring that must not change while nothing runs on its CPU.
struct Still {
  const Ring* ring = nullptr;
  u64 tail = 0, written = 0;
  u64 at = 0;  // where the departed child was
  static Still of(const Ring* r) {
    return r == nullptr ? Still{} : Still{r, __atomic_load_n(&r->control->commit, __ATOMIC_RELAXED), counters<>(*r).written};
  }
  bool operator==(const Still& o) const { return tail == o.tail && written == o.written; }
};

// The rings, the lives on them, and their readers.
class Play {
 public:
  Play(bool discard, const std::vector<u32>& allowed)
      : set(4096, nr_subbufs, discard, !is_timed()), cpus(allowed), books_(set.nr()) {
    all = &set;
    stage = static_cast<Stage*>(mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    tallies_.resize(size_t{most_lives} * contexts);
    for (const u32 cpu : cpus) readers_.emplace_back(set[cpu], most_lives * contexts, tallies_.data(), books_[cpu]);
  }
  ~Play() { munmap(stage, sizeof(Stage)); }

  Life& next_life() { return stage->lives[lives++]; }
  void drain() {
    for (BookReader& r : readers_) r.read_all();
    if (testing::Test::HasFailure()) return;
    for (const BookReader::Books& b : books_)
      if (b.bad != 0) ADD_FAILURE() << b.what;
  }
  // Nobody writes at this moment: what comes has a later time; the stopwatch allows a millisecond or two.
  void expect_from_now() {
    for (BookReader& r : readers_) r.expect_from(EitherClock{!is_timed()}.now() - (times_are == Times::watched ? 3'000'000 : 0));
  }
  u64 written() const {
    u64 n = 0;
    for (const u32 cpu : cpus) n += counters<>(set[cpu]).written;
    return n;
  }
  void shut(bool off) {
    for (const u32 cpu : cpus) off ? __atomic_fetch_or(&set[cpu].control->gate, gate_off, __ATOMIC_SEQ_CST)
                                   : __atomic_fetch_and(&set[cpu].control->gate, ~gate_off, __ATOMIC_SEQ_CST);
  }
  const char* first_broken() const {
    for (const u32 cpu : cpus)
      if (const char* what = broken<>(set[cpu])) return what;
    return nullptr;
  }

  // No writer is left.
  void close_books(bool discard, Figures& f) {
    drain();
    u64 written = 0, dropped = 0, done = 0, refused = 0, most_more = 0;
    for (u32 cpu = 0; cpu < set.nr(); ++cpu) {
      const RingCounters n = counters<>(set[cpu]);
      EXPECT_EQ(n.written, n.read + n.overrun) << "CPU " << cpu;
      EXPECT_EQ(n.unread, 0u);
      EXPECT_EQ(n.read, books_[cpu].events);
      EXPECT_EQ(n.overrun, books_[cpu].lost);
      EXPECT_EQ(books_[cpu].bad, 0u) << books_[cpu].what;
      EXPECT_EQ(set[cpu].control->corrupt, 0u);
      EXPECT_EQ(broken<>(set[cpu]), nullptr);
      written += n.written, dropped += n.dropped;
    }
    for (u32 i = 0; i < lives; ++i) {
      const Life& life = stage->lives[i];
      for (u32 c = 0; c < contexts; ++c) {
        const Tally& t = tallies_[i * contexts + c];
        EXPECT_LE(t.count, life.done[c] + life.killed) << "life " << i << " context " << c;
        if (discard) {
          EXPECT_GE(t.count, life.done[c]) << "life " << i << " context " << c;
          EXPECT_TRUE(t.whole()) << "life " << i << " context " << c;
        }
        done += life.done[c], refused += life.refused[c], most_more += life.killed;
      }
      EXPECT_EQ(life.other, 0u);
      f.aborted += life.aborted;
    }
    EXPECT_GE(written, done);
    EXPECT_LE(written, done + most_more);
    EXPECT_GE(dropped, refused);
    EXPECT_LE(dropped, refused + most_more);
    f.events += written, f.more += written - done, f.refused += refused;
  }

  CpuRingSet set;
  const std::vector<u32> cpus;
  u32 lives = 0;

 private:
  std::vector<BookReader::Books> books_;
  std::vector<Tally> tallies_;
  std::vector<BookReader> readers_;
};

struct CpuSequences : testing::TestWithParam<Times> {
  void SetUp() override {
    if (!rseq_registered()) GTEST_SKIP() << "this thread has no rseq area";
    if (lines_of("objdump --version").empty())
      GTEST_SKIP() << "objdump is missing, so the boundaries of instructions are unknown";
    times_are = GetParam();
    cpus = allowed_cpus();
    pin(0, cpus.back());  // the child begins on the first
    struct sigaction action{};
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, nullptr);
  }
  // Only in discard mode does a full ring refuse events.
  void find_points(bool discard) {
    std::vector<u64> starts;
    for (const RseqDescriptor* d = __start___rseq_cs; d != __stop___rseq_cs; ++d) starts.push_back(d->start);
    std::set<u64> found;  // the points that the child runs
    {
      Play play(discard, cpus);
      Traced child(play.next_life(), play.cpus.front());
      if (!child.ok()) GTEST_SKIP() << "a child cannot be traced here";
      found = reached(child, play, starts, discard);
      child.end();
    }
    for (const RseqDescriptor* d = __start___rseq_cs; d != __stop___rseq_cs; ++d)
      if (found.contains(d->start)) sequences.push_back({d->start, d->start + d->length});
    std::printf("%zu sequences in this program, %zu of them ours\n", static_cast<size_t>(__stop___rseq_cs - __start___rseq_cs),
                sequences.size());
    ASSERT_GE(sequences.size(), (discard ? 5u : 4u) - is_timed())
        << "the usual event, also of known size, any event, the next sub-buffer, a refusal";
    for (const Range& s : sequences) {
      const std::vector<u64> in = instructions(s);
      ASSERT_FALSE(in.empty());
      ASSERT_EQ(in.front(), s.begin);
      points.insert(in.begin(), in.end());
      if (times_are != Times::watched) leave_out_stopwatch(in);
      points.insert(s.end);
    }
    in_sequences = points.size();
    for (const Range& f : functions_of(sequences)) {
      for (const u64 at : instructions(f))
        if (!left_out.contains(at)) points.insert(at);
    }
  }
  // The nine instructions around the first reading of the counter in a sequence that asks for its descriptor (cmp %rax, %fs:8).
  // Without the stopwatch they come after 30 tries in vain.
  void leave_out_stopwatch(const std::vector<u64>& in) {
    const auto byte = [](u64 at) { return *reinterpret_cast<const u8*>(at); };
    if (byte(in[0]) != 0x64 || byte(in[0] + 2) != 0x39) return;
    size_t k = 0;
    while (k < in.size() && (byte(in[k]) != 0x0F || byte(in[k] + 1) != 0x31)) ++k;  // rdtsc
    ASSERT_TRUE(k >= 3 && k + 5 < in.size());
    for (size_t i = k - 3; i <= k + 5; ++i) points.erase(in[i]), left_out.insert(in[i]);
  }
  void TearDown() override {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const u32 cpu : cpus) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  bool inside(u64 at) const {
    for (const Range& s : sequences)
      if (s.holds(at)) return true;
    return false;
  }

  // When the reader reads: a full ring has refused some events before.
  struct Pace {
    bool discard;
    u32 rest;  // polls, if nothing is refused
    u64 seen = 0;
    bool reads(const Life& life) {
      if (!discard) return ++seen % rest == 0;
      const u64 refused = life.refused[0] + life.refused[1];
      if (refused >= seen && refused < seen + 3) return false;
      seen = refused;
      return true;
    }
  };

  // The points that the child reaches in a free run.
  std::set<u64> reached(Traced& child, Play& play, const std::vector<u64>& where, bool discard) {
    std::set<u64> found;
    for (u64 at : where) child.arm(at);
    Pace pace{discard, 16};
    for (;;) {
      const u64 at = child.run(20000, 0, [&] {
        if (pace.reads(child.life())) play.drain();
      });
      if (at == 0 || HasFailure()) break;
      if (std::find(where.begin(), where.end(), at) == where.end()) continue;
      child.disarm(at);
      child.set_position(at);
      found.insert(at);
    }
    if (child.pid() != 0)
      for (u64 at : where)
        if (!found.contains(at)) child.disarm(at);
    return found;
  }

  // Goes through all the points, and does one thing at each.
  void go_through(Action action, bool discard, const std::set<u64>& where, Figures& f) {
    Play play(discard, cpus);
    const u32 home = play.cpus.front();
    if (action == Action::migrate && play.cpus.size() < 2) return;
    stage->exact = action == Action::late;
    Helper helper(play.next_life(), home, nr_subbufs + 2);
    std::unique_ptr<Traced> child(new Traced(play.next_life(), home));
    ASSERT_TRUE(child->ok());
    std::vector<u64> order(where.begin(), where.end());
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<u32>(action) * 2 + discard));
    int signal = 0;
    u32 on = 0;
    Pace pace{discard, 64};
    Still still;  // the ring of the CPU that it was taken away from
    for (const u64 at : order) {
      if (HasFailure()) return;
      child->arm(at);
      u64 came = 0;
      // A child that the kernel had sent to its abort handler before it stopped comes again.
      for (int tries = 0; tries < 5 && came != at; ++tries) {
        came = child->run(inside(at) ? 100000 : 3000, signal, [&] {
          if (pace.reads(child->life())) play.drain();
        });
        signal = 0;
        if (child->pid() == 0) return;
        if (came == 0) break;
      }
      child->disarm(at);
      if (came != at) {
        ++(inside(at) ? f.missed_inside : f.missed);
        continue;
      }
      child->set_position(at);
      ++f.stops;
      f.inside += inside(at);
      f.cleared += inside(at) && child->descriptor() == 0;
      ASSERT_EQ(play.first_broken(), nullptr) << name_of[static_cast<int>(action)] << " at " << std::hex << at - load_address();
      const u64 before = play.written();
      if (action == Action::migrate) {
        // No other process is there.
        ASSERT_TRUE(still == Still::of(still.ring))
            << "wrote to another CPU's ring, at " << std::hex << still.at - load_address();
        still = Still::of(&play.set[play.cpus[on % play.cpus.size()]]);
        still.at = at;
      }
      switch (action) {
        case Action::nothing: break;
        case Action::migrate: ASSERT_TRUE(pin(child->pid(), play.cpus[++on % play.cpus.size()])); break;
        case Action::handler: signal = SIGUSR1; break;
        case Action::lap: {
          const Control& c = *play.set[home].control;
          const u64 until = place_of(c.commit).position + nr_subbufs + 1;
          do {
            helper.lap();
            if (discard) play.drain();
          } while (place_of(c.commit).position < until && !HasFailure());
          break;
        }
        case Action::swap: play.drain(); break;
        case Action::late:
          f.armed += !inside(at) && child->descriptor() != 0;
          play.drain();
          play.expect_from_now();
          break;
        case Action::gate: {
          const Still still_open = Still::of(&play.set[home]);
          play.shut(true);
          const u64 refused = child->life().disabled[0];
          ASSERT_TRUE(
              child->run_until([&] { return __atomic_load_n(&child->life().disabled[0], __ATOMIC_RELAXED) >= refused + 3; }));
          ASSERT_TRUE(still_open == Still::of(&play.set[home]))
              << "through a shut gate, at " << std::hex << at - load_address();
          play.shut(false);
          break;
        }
        case Action::kill:
          child->kill();
          child->life().killed = true;
          ++f.kills;
          ASSERT_EQ(play.written(), before);
          ASSERT_LT(play.lives, most_lives);
          child.reset(new Traced(play.next_life(), home));
          break;
      }
    }
    if (HasFailure()) return;
    EXPECT_EQ(child->end(), 0);
    play.close_books(discard, f);
  }

  void go_through_all(bool discard) {
    find_points(discard);
    if (HasFatalFailure() || IsSkipped()) return;
    std::set<u64> where;
    {
      Play play(discard, cpus);
      Traced child(play.next_life(), play.cpus.front());
      where = reached(child, play, std::vector<u64>(points.begin(), points.end()), discard);
      EXPECT_EQ(child.end(), 0);
    }
    // Without a clock that they can read, the usual events' sequences are left at once.
    if (is_timed()) {
      std::erase_if(sequences, [&](const Range& s) { return !where.contains(*std::prev(points.lower_bound(s.end))); });
      ASSERT_GE(sequences.size(), discard ? 4u : 3u) << "the usual event, any event, the next sub-buffer, a refusal";
    }
    // Every instruction of a sequence is reached, but for those around a reading of the counter that this way leaves out.
    std::vector<u64> never;
    const auto judge = [&] {
      const bool reads = std::any_of(never.begin(), never.end(), [](u64 at) {
        return std::memcmp(reinterpret_cast<const void*>(at), "\x0F\x31", 2) == 0;  // rdtsc
      });
      for (const u64 at : never) EXPECT_TRUE(is_timed() && reads) << "never reached: " << std::hex << at - load_address();
      never.clear();
    };
    for (const u64 at : points) {
      if (inside(at) && !where.contains(at))
        never.push_back(at);
      else
        judge();
    }
    judge();
    std::printf("%zu points in sequences, %zu with the code between them; %zu are reached\n", in_sequences, points.size(),
                where.size());
    for (const Action action :
         {Action::nothing, Action::migrate, Action::handler, Action::lap, Action::swap, Action::gate, Action::kill, Action::late}) {
      SCOPED_TRACE(name_of[static_cast<int>(action)]);
      Figures f;
      const u64 begin = MonoClock{}.now();
      go_through(action, discard, where, f);
      std::printf(
          "%-8s %llu stops (%llu inside a sequence), %llu not reached again; %llu events, %llu more than counted, %llu "
          "refused, "
          "%llu tries aborted; %.1f s\n",
          name_of[static_cast<int>(action)], static_cast<unsigned long long>(f.stops),
          static_cast<unsigned long long>(f.inside), static_cast<unsigned long long>(f.missed),
          static_cast<unsigned long long>(f.events), static_cast<unsigned long long>(f.more),
          static_cast<unsigned long long>(f.refused), static_cast<unsigned long long>(f.aborted),
          static_cast<double>(MonoClock{}.now() - begin) / 1e9);
      if (action != Action::late) {  // which leaves out some ways
        EXPECT_EQ(f.missed_inside, 0u);
        EXPECT_LE(f.missed, where.size() / 10);
      }
      if (action == Action::late && times_are == Times::given) {
        EXPECT_GT(f.armed, 20u) << "between the descriptor and the sequence";
      }
      // Each stop inside a sequence cuts it off, unless the kernel has taken the descriptor away before it began: then it ends by
      // itself. A killed child cannot count that.
      if (action != Action::kill) {
        EXPECT_GE(f.aborted + f.cleared, f.inside) << f.cleared << " without a descriptor";
        EXPECT_LE(f.cleared, f.inside / 20);
      }
      if (HasFailure()) return;
    }
  }

  std::vector<u32> cpus;
  std::vector<Range> sequences;
  std::set<u64> points, left_out;
  size_t in_sequences = 0;
};

TEST_P(CpuSequences, Overwrite) { go_through_all(false); }
TEST_P(CpuSequences, Discard) { go_through_all(true); }
INSTANTIATE_TEST_SUITE_P(Clocks, CpuSequences, testing::Values(Times::read, Times::given, Times::watched), [](const auto& a) {
  return std::string(a.param == Times::read ? "read" : a.param == Times::given ? "given" : "watched");
});

}  // namespace
}  // namespace ringside::test::cpu_sequences_test

#endif  // RS_TEST_RSEQ
