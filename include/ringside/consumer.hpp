// Read any ring, live or recorded: events in one time order, filtered, by typed fields, and added up.
//
//   auto consumer = must(ringside::Consumer::open({.kernel = {"sched:sched_switch"}, .filter = "prev_prio < 100"}));
//   auto prev = must(consumer.field<std::string_view>("sched:sched_switch/prev_comm"));
//   consumer.run([&](const ringside::Event& e) {
//     if (prev.in(e)) std::cout << e.time << ' ' << prev(e) << '\n';
//   });
//
// Sources: recordings, trace.dat files, instances of ringside's, sockets of ringside serve and of external writers, the
// kernel's events (as root). Reading an instance consumes nothing; a socket hands out each event once. The kernel's events come
// from an instance of tracefs of the consumer's own, which goes with it.
// Link with ringside::consumer (CMake) or `pkg-config ringside-consumer`. The C form is ringside/consumer.h.
// A result without a value has error().sentence: what was tried, on what, why it failed, what to do. Hostile rings and files do
// no harm: what cannot be read is skipped and named in problems().
// Lifetimes: a TypedField, Column, Hist or Latency holds on to what its Consumer has opened. The Consumer may be moved, and may
// go before them: they stay valid, and what it has opened (rings, an instance of tracefs) is released with the last of them. An
// Event, and every view of a text, is valid until the next event is asked for. Rows and groups are copies.
// Thread-safety: a Consumer, with all that was made of it, is for one thread at a time; stop() may be called from any thread
// and from signal handlers.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <ringside/histogram.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

struct ringside_remote_reader;

namespace ringside {

// One event, or a gap; valid until the next one is asked for.
struct Event {
  u64 time = 0;        // ns, of CLOCK_MONOTONIC where the source's clock can be converted
  u64 lost = 0;        // not 0: no event: the number of those lost here
  const u8* data = nullptr;  // its bytes, the 8 common ones first
  u32 size = 0;
  u32 id = 0;          // the consumer's number for the type of event; 0: a gap
  u32 source = 0;      // which ring
  bool late = false;   // one with a later time was handed out before
  int running_on = -1;  // Consumer::cpu, if its ring is no CPU's
  u32 stack = 0;        // the number of its stack, if a column asks for stacks; 0: none
};

// The place of a field in the events of one type.
struct FieldPlace {
  u32 id = 0, offset = 0, size = 0;
  bool is_signed = false;
  const void* field = nullptr;
};

// A field of the events of one name. Each source numbers its events by itself, so there may be several types of that name. T:
// an integer, bool, float, double, or std::string_view.
template <class T>
class TypedField {
 public:
  bool in(const Event& e) const { return e.id == first_.id || other(e) != nullptr; }
  // A field that lies outside the event reads as 0, or as an empty text; so does one of another type of event.
  T operator()(const Event& e) const {
    const FieldPlace* const at = e.id == first_.id ? &first_ : other(e);
    if (at == nullptr) return T{};
    if constexpr (std::is_same_v<T, std::string_view>) {
      return text(e, *at);
    } else if constexpr (std::is_floating_point_v<T>) {
      return at->size == 4 ? static_cast<T>(load<float>(e, *at)) : static_cast<T>(load<double>(e, *at));
    } else {
      switch (at->size) {
        case 1: return at->is_signed ? static_cast<T>(load<signed char>(e, *at)) : static_cast<T>(load<u8>(e, *at));
        case 2: return at->is_signed ? static_cast<T>(load<short>(e, *at)) : static_cast<T>(load<u16>(e, *at));
        case 4: return at->is_signed ? static_cast<T>(load<i32>(e, *at)) : static_cast<T>(load<u32>(e, *at));
        default: return static_cast<T>(load<u64>(e, *at));
      }
    }
  }

 private:
  friend class Consumer;
  const FieldPlace* other(const Event& e) const {
    for (const FieldPlace& place : more_)
      if (place.id == e.id) return &place;
    return nullptr;
  }
  template <class Raw>
  static Raw load(const Event& e, const FieldPlace& at) {
    Raw raw{};
    if (at.offset + sizeof raw <= e.size) std::memcpy(&raw, e.data + at.offset, sizeof raw);
    return raw;
  }
  std::string_view text(const Event& e, const FieldPlace& at) const;

  FieldPlace first_;
  std::vector<FieldPlace> more_;  // of other types of that name; usually none
  std::shared_ptr<const void> held_;
};

class Consumer {
 public:
  struct Options {
    std::vector<std::string> where{};   // recordings, trace.dat files, instances, sockets
    std::vector<std::string> kernel{};  // live: globs over SYSTEM:EVENT
    std::vector<::ringside_remote_reader*> remotes{};  // of <ringside/remote_reader.h>; each outlives the consumer
    std::string filter{};               // as of `ringside report --filter`
    std::string time{};  // a part, as of `ringside report --time`: "12.5s..13s", "+0.5s..+1s" after the first event
    u64 kernel_buffer_size = 4 << 20;   // bytes for each CPU
    bool own_events = false;  // also what the opening thread causes itself
    std::chrono::nanoseconds look_ahead = std::chrono::milliseconds(100);  // how long a stalled source may delay the others
    std::chrono::nanoseconds duration{};  // run() and wait() end after it; 0: at stop(), and where recordings end
  };
  // Codes of errors: invalid_argument (a name, pattern or filter that is none, or a file that is no trace), bad_message (a
  // trace that is damaged), not_supported (a version or a clock that is not known here), permission_denied and
  // operation_not_permitted (a directory of another user, or one that others may write to), and those of the system calls, as
  // no_such_file_or_directory.
  static result<Consumer> open(const Options& options);
  Consumer(Consumer&&) noexcept;
  Consumer& operator=(Consumer&&) noexcept;
  ~Consumer();

  // The next event that the filter lets through, or gap; false: nothing now.
  bool next(Event& out);
  // Looks for new events at once: then next() hands out what was written before this call, up to look_ahead.
  void refresh();
  // Sleeps until there may be more: it looks every 5 ms. False: there will be none, everything was handed out.
  bool wait();
  // Every event until the end. `use` gets gaps, too.
  template <class Use>
  void run(const Use& use) {
    Event e;
    do {
      while (next(e)) use(static_cast<const Event&>(e));
    } while (wait());
  }
  // No new events from now on: those written until now still come, then wait() says false.
  void stop() noexcept;

  // "sched:sched_switch/prev_comm", as on the command line; or event and field. It is in every event of that name that has the
  // field, of all sources. Errors: no such event or field (with what there is), or one that T cannot hold.
  template <class T>
  result<TypedField<T>> field(std::string_view path) const {
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos)
      return refuse(std::errc::invalid_argument,
                    "'" + std::string(path) + "' names no field: write EVENT/FIELD, as in sched:sched_switch/prev_comm");
    return field<T>(path.substr(0, slash), path.substr(slash + 1));
  }
  template <class T>
  result<TypedField<T>> field(std::string_view event, std::string_view name) const {
    static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, std::string_view>,
                  "a field is read as a number, a bool or a std::string_view");
    TypedField<T> f;
    constexpr int wanted = std::is_same_v<T, std::string_view> ? 2 : std::is_floating_point_v<T> ? 1 : 0;
    auto found = find_field(event, name, wanted, sizeof(T));
    if (!found) return tl::unexpected<Error>(found.error());
    f.first_ = found->front();
    f.more_.assign(found->begin() + 1, found->end());
    f.held_ = state_;
    return f;
  }
  std::string_view name(const Event& e) const;  // "sched:sched_switch"
  int cpu(const Event& e) const;  // where its thread ran; -1: unknown (a thread's ring, and no sched events give it)
  int tid(const Event& e) const;                // 0: it does not say
  std::string_view task(const Event& e) const;
  std::string text(const Event& e);             // its line, as `ringside report` prints it, without a newline

  u64 events() const;  // handed out
  u64 lost() const;    // in gaps; missing() has the others, too
  u64 late() const;
  // What could not be read, remarks, and the doubts of missing(), a sentence each.
  std::vector<std::string> problems() const;
  // All that was lost: in gaps, refused by the rings, or not recorded. Complete once next() has ended. With doubts more may be
  // missing than that; each is a sentence that says why.
  struct Missing {
    u64 count = 0;
    std::vector<std::string> doubts{};
  };
  Missing missing() const;

  // A named value of events of any type: "sched:sched_switch/prev_prio", "task", "size.log2" (see `ringside hist --help`). What
  // asks for stacks ("libc:malloc/stack[0]"), as a column or in a Hist or a Latency, is to be made before the first event is
  // read.
  class Column {
   public:
    Column(Column&&) noexcept;
    ~Column();
    // None: the event has no such value, or one of another kind.
    std::optional<i64> number(const Event& e);
    std::optional<double> real(const Event& e);  // of whole numbers, too
    std::optional<std::string_view> text(const Event& e);  // of "stack": its functions, innermost first, with ; between them

   private:
    friend class Consumer;
    struct State;
    explicit Column(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  result<Column> column(const std::string& text);

  // Counts and sums by one column or two ("task", "libc:malloc/size.log2"; see `ringside hist --help`), bounded in memory.
  class Hist {
   public:
    struct Row {
      std::vector<std::string> key;
      u64 count = 0;
      std::vector<Histogram> values;
    };
    Hist(Hist&&) noexcept;
    ~Hist();
    bool add(const Event& e);        // false: it has not all of the columns
    std::vector<Row> rows() const;   // the largest count first
    u64 evicted_keys() const;        // given up as there were too many
    u64 evicted_events() const;

   private:
    friend class Consumer;
    struct State;
    explicit Hist(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  result<Hist> hist(const std::vector<std::string>& keys, const std::vector<std::string>& values = {},
                    size_t most_keys = 100'000);

  // The time from a start to the end that belongs to it, by what they have in common: `ringside latency`
  // (src/analysis/pairs.hpp says how starts and ends meet, and what losses mean).
  struct LatencyOptions {
    std::string start{}, end{};  // "sched:sched_waking", or with a condition: "sched:sched_switch if prev_state == 0"
    std::vector<std::pair<std::string, std::string>> keys{};  // columns of the start, of the end; none: the thread
    std::string by{};                                         // a column: quantiles for each value of it
    std::string filter{};  // a condition on pairs: "latency > 1ms && start/comm == make"; Options::filter is of events
    size_t most_waiting = 100'000, most_groups = 10'000;
  };
  class Latency {
   public:
    struct Counts {
      u64 pairs = 0, doubtful = 0;  // a loss fell into doubtful ones
      u64 left_out = 0;             // pairs that do not meet the filter
      // Starts that were not measured: started again, too many, from the future, still open.
      u64 repeated = 0, evicted = 0, negative = 0, waiting = 0;
      u64 unmatched = 0;  // ends
    };
    struct Group {
      std::string key;
      Histogram times;  // ns
    };
    Latency(Latency&&) noexcept;
    ~Latency();
    // Every event and every gap, in order. The latency in ns, if it ended one.
    std::optional<u64> add(const Event& e);
    const Histogram& all() const;        // ns; lives with this Latency
    std::vector<Group> groups() const;   // by LatencyOptions::by, the largest sum first
    Counts counts() const;

   private:
    friend class Consumer;
    struct State;
    explicit Latency(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  result<Latency> latency(const LatencyOptions& options);

 private:
  struct State;
  explicit Consumer(std::shared_ptr<State> state);
  result<std::vector<FieldPlace>> find_field(std::string_view event, std::string_view name, int wanted, size_t bytes) const;
  std::shared_ptr<State> state_;
};

template <>
std::string_view TypedField<std::string_view>::text(const Event& e, const FieldPlace& at) const;

}  // namespace ringside
