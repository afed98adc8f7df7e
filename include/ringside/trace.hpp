// Declare events and write them. C++17; <ringside/ringside.h> is the same in C.
//
//   RINGSIDE_EVENT(net, packet_in, (u32, length), (std::string_view, device), (ringside::array<u8, 6>, mac));
//   net::packet_in(1500, "eth0", mac);
//
//   RINGSIDE_TRACE("net", "dropped", ("length", n), ("flow", id));   // the same, declared where it is written
//
//   ringside::scope s{"parse"};                   // a span from here to the end of the block
//   ringside::instant("cache miss");
//   ringside::counter("queue depth", depth);
//   ringside::marker("took %d of %d", i, n);      // free text
//
// Where the events go: to the instance that the environment's RINGSIDE_INSTANCE names when the program starts; `ringside record
// ./program` sets it. It is read before main. A program that chooses its instance itself, or sets the variable in main, calls
// ringside_open(name), or ringside_open(nullptr) for the variable's (ringside.h). Without either nothing is written. A program
// that is about to forbid itself system calls or the clock calls ringside_prepare_sandbox(bytes) before (ringside.h).
//
// Cost while disabled: one load and a predicted branch at the call. Arguments are evaluated but not converted (those of
// RINGSIDE_TRACE are not evaluated); guard costly ones with `if (net::packet_in.enabled())`. Safety: every call may be made
// from any thread and from signal handlers, never blocks, never throws, and reports no error. An event that is refused
// (full, too big, recording off) is counted, by its ring or by the instance. Exception: marker formats with vsnprintf, and is as safe in a signal handler
// as the C library's vsnprintf. Stack: at most 1 KiB below the caller, 2 KiB where the event has a stack of calls; a marker takes
// 1 KiB and what vsnprintf takes on top. Not for: text that must not be lost (use a log).
#pragma once
#if __cplusplus < 201703L
#error "ringside/trace.hpp needs C++17: compile with -std=c++17 or later; <ringside/ringside.h> takes C99 and every C++"
#include <ringside needs -std=c++17>  // ends the compilation here
#endif
#ifndef RINGSIDE_WARNINGS  // its macros are clean with any warnings of the program that includes it
#pragma GCC system_header
#endif
#include <ringside/event.hpp>
#ifdef RINGSIDE_USDT  // each call is a USDT probe, too
#include <ringside/usdt.h>
#define RINGSIDE_PROBE(system, name, ...) RINGSIDE_USDT_PROBE(system, name, RINGSIDE_OPERAND, __VA_ARGS__);
#else
#define RINGSIDE_PROBE(...)
#endif

// Declares the event `system:name` at namespace scope, in a source or a header: the callable object system::name, with
// system::name.enabled(). Each field is (type, name):
//
//   integers, bool, char, enums     by value; an enum has its underlying type's name
//   float, double                   text tools show their bits in hexadecimal: libtraceevent has no floating point
//   ringside::array<T, N>           the same as std::array; of char: a text of at most N bytes
//   ringside::cstring               a NUL-terminated string; null reads "(null)"
//   std::string_view                a string that may be shorter than its storage; readers stop at the first NUL
//   std::string                     the same; <string> is yours to include
//   void*, const void*              the address
//   ringside::stack                 the calls that led to the event: pass ringside::stack{}
//   durations, time points          of <chrono>: nanoseconds
//   other types                     what their ringside::field<T> says (event.hpp)
//
// RINGSIDE_ENUM gives an enum's values names. u8 to u64, i8 to i64 and cstring need no prefix. At most 32 fields, and 4,000
// bytes with the 8 common ones: strings share the room in order, and are shortened to fit. `ringside list` knows an event before
// its first call. Two declarations of one name should have the same fields: others are another layout beside it.
//
// The system becomes a namespace, the event an object in it, the fields parameters. A name that the program or C++ has for
// something else takes an underscore after it, which the trace does not show: RINGSIDE_EVENT(socket_, delete_, (u32, class_))
// is socket:delete, and called by socket_::delete_(1).
#define RINGSIDE_EVENT(system, ...)                                                                                        \
  RINGSIDE_SPELLED(RINGSIDE_EVENT, system, __VA_ARGS__, )                                                                  \
  RINGSIDE_EVENT_FIELDS(system, __VA_ARGS__, )
#define RINGSIDE_SPELLED(macro, system, name, ...)                                                                         \
  static_assert((#system)[0] != '"' && (#name)[0] != '"',                                                                  \
                "ringside: write the names without quotes: " #macro "(shop, order, (u32, id))");                           \
  static_assert(::ringside::detail::in_parentheses(#__VA_ARGS__),                                                          \
                "ringside: write each field as (type, name): " #macro "(shop, order, (u32, id))");
#define RINGSIDE_EVENT_FIELDS(system, name, ...)             \
  namespace system {                                         \
  RINGSIDE_EVENT_PRINT(#system, name, nullptr, __VA_ARGS__)  \
  }                                                          \
  static_assert(true)

// The same inside a namespace of any name, with the print format of a tracefs format file (null: name=value of each field).
#define RINGSIDE_EVENT_AS(system, name, ...) RINGSIDE_EVENT_PRINT(system, name, __VA_ARGS__, )
#define RINGSIDE_EVENT_PRINT(system, name, print_, ...)                 \
  RINGSIDE_EVENT_CALL(system, name, print_, RINGSIDE_TYPE, __VA_ARGS__) \
  inline constexpr ringside_##name::Call name{};
#define RINGSIDE_EVENT_CALL(system, name, print_, type, ...)                                                     \
  namespace ringside_##name {                                                                                    \
    using namespace ::ringside::field_types;                                                                     \
    struct Declared {                                                                                            \
      static constexpr const char* system_name = system;                                                         \
      static constexpr const char* event_name = #name;                                                           \
      static constexpr const char* print = print_;                                                               \
      static constexpr const char* names[] = {RINGSIDE_LIST(RINGSIDE_NAME, __VA_ARGS__) __VA_OPT__(, ) nullptr}; \
      using Fields = ::ringside::detail::Types<RINGSIDE_LIST(type, __VA_ARGS__)>;                                \
    };                                                                                                           \
    struct Call : ::ringside::detail::Event<Declared> {                                                          \
      RINGSIDE_INLINE void operator()(RINGSIDE_LIST(RINGSIDE_PARAMETER, __VA_ARGS__)) const noexcept {           \
        RINGSIDE_PROBE(system, #name, __VA_ARGS__)                                                               \
        if (RINGSIDE_UNLIKELY(this->gate_open()))                                                                \
          this->write(RINGSIDE_LIST(RINGSIDE_NAME_ONLY, __VA_ARGS__));                                           \
      }                                                                                                          \
    };                                                                                                           \
    RINGSIDE_CONSTRUCTOR(100) static void declare() { ::ringside_register(&Call::event); }                       \
    RINGSIDE_CONSTRUCTOR_END                                                                                     \
  }

// Names for an enum's values, at namespace scope, before the first event that has it: RINGSIDE_ENUM(shop::State, open, paid).
// Events that have such a field show the name, and filters know it: state == "paid". Other values stay numbers. At most 32.
#define RINGSIDE_ENUM(type, ...)                                                       \
  template <>                                                                          \
  struct ringside::enum_names<type> {                                                  \
    using Enum = type;                                                                 \
    static constexpr ringside_symbol list[] = {                                        \
        RINGSIDE_AGAIN_1(RINGSIDE_ENUM_STEP(__VA_ARGS__)){nullptr, 0}};                \
  }
#define RINGSIDE_ENUM_STEP(value, ...) \
  {#value, static_cast<int64_t>(Enum::value)}, __VA_OPT__(RINGSIDE_ENUM_NEXT RINGSIDE_PARENTHESES(__VA_ARGS__))
#define RINGSIDE_ENUM_NEXT() RINGSIDE_ENUM_STEP

// Spans of a category, each with its arguments, at namespace scope:
//
//   RINGSIDE_SPAN(db, query, (cstring, sql), (u32, rows));
//   db::query span{"SELECT 1", 0};   // a slice `query` from here to the end of the block
//   span.rows = 17;                  // what its end says
//
// It is the event db:query, enabled by itself, with the fields track_event_type and slice_name before its own ones. The
// begin has the values that the span is made with, the end those that its members have then; a text must outlive it.
#define RINGSIDE_SPAN(category, ...)                                                                                       \
  RINGSIDE_SPELLED(RINGSIDE_SPAN, category, __VA_ARGS__, )                                                                 \
  RINGSIDE_SPAN_FIELDS(category, __VA_ARGS__, )
#define RINGSIDE_SPAN_FIELDS(category, name, ...)                                                                            \
  namespace category {                                                                                                       \
  RINGSIDE_EVENT_CALL(#category, name, nullptr, RINGSIDE_KEPT_TYPE, (char, track_event_type),                                \
                      (::std::string_view, slice_name), __VA_ARGS__)                                                         \
  namespace ringside_##name {                                                                                                \
    class [[nodiscard]] Ringside1Span {                                                                                      \
      bool ringside1_begun;                                                                                                  \
      RINGSIDE_INLINE void ringside1_write(char ringside1_type) const noexcept {                                             \
        Call::write(ringside1_type, ::ringside::detail::plain(#name) RINGSIDE_EACH(RINGSIDE_AND_NAME, __VA_ARGS__));         \
      }                                                                                                                      \
                                                                                                                             \
     public:                                                                                                                 \
      RINGSIDE_EACH(RINGSIDE_KEPT, __VA_ARGS__)                                                                              \
      RINGSIDE_INLINE explicit Ringside1Span(RINGSIDE_LIST(RINGSIDE_GIVEN, __VA_ARGS__)) noexcept                            \
          : ringside1_begun(Call::enabled()) RINGSIDE_EACH(RINGSIDE_KEEP, __VA_ARGS__) {                                     \
        if (RINGSIDE_UNLIKELY(ringside1_begun)) ringside1_write('B');                                                        \
      }                                                                                                                      \
      RINGSIDE_INLINE ~Ringside1Span() {                                                                                     \
        if (RINGSIDE_UNLIKELY(ringside1_begun)) ringside1_write('E');                                                        \
      }                                                                                                                      \
      Ringside1Span(const Ringside1Span&) = delete;                                                                          \
      Ringside1Span& operator=(const Ringside1Span&) = delete;                                                               \
    };                                                                                                                       \
  }                                                                                                                          \
  using name = ringside_##name::Ringside1Span;                                                                               \
  }                                                                                                                          \
  static_assert(true)
#define RINGSIDE_KEPT_TYPE(...) ::ringside::detail::Kept<RINGSIDE_TYPE(__VA_ARGS__)>
#define RINGSIDE_KEPT(...) RINGSIDE_KEPT_TYPE(__VA_ARGS__) RINGSIDE_NAME_ONLY(__VA_ARGS__);
#define RINGSIDE_GLUE(a, b) RINGSIDE_GLUE_(a, b)
#define RINGSIDE_GLUE_(a, b) a##b
#define RINGSIDE_GIVEN_NAME(...) RINGSIDE_GLUE(ringside0_, RINGSIDE_NAME_ONLY(__VA_ARGS__))
#define RINGSIDE_GIVEN(...) ::ringside::detail::Given<RINGSIDE_TYPE(__VA_ARGS__)> RINGSIDE_GIVEN_NAME(__VA_ARGS__)
#define RINGSIDE_KEEP(...) , RINGSIDE_NAME_ONLY(__VA_ARGS__)(RINGSIDE_GIVEN_NAME(__VA_ARGS__))
#define RINGSIDE_AND_NAME(...) , RINGSIDE_NAME_ONLY(__VA_ARGS__)

// A span `Class::function` from here to the end of the function.
#define RINGSIDE_FUNCTION()                                                                                    \
  static constexpr ::std::string_view ringside_function = ::ringside::detail::function_name(__PRETTY_FUNCTION__, __func__); \
  const ::ringside::scope ringside_function_scope { ringside_function }

// Declares an event in place, and writes it: RINGSIDE_TRACE("net", "packet_in", ("length", n), ("flow", id)), a statement. The
// fields' types are those of the values: as above, with texts of any kind, and the address for other pointers. The values are
// evaluated only while the event is enabled. It is known before its first call, as any other.
#define RINGSIDE_TRACE(system, ...) RINGSIDE_TRACE_FIELDS(system, __VA_ARGS__, )
#define RINGSIDE_TRACE_FIELDS(system_, event_, ...)                                                                   \
  do {                                                                                                                \
    static_assert(::ringside::detail::in_parentheses(#__VA_ARGS__),                                                   \
                  "ringside: write each field as (name, value): RINGSIDE_TRACE(\"net\", \"dropped\", (\"length\", n))"); \
    struct RingsideHere {                                                                                             \
      static constexpr const char* system() { return system_; }                                                       \
      static constexpr const char* event() { return event_; }                                                         \
      static constexpr const char* field(decltype(sizeof 0) ringside_i) {                                             \
        const char* const ringside_all[] = {RINGSIDE_LIST(RINGSIDE_FIRST, __VA_ARGS__) __VA_OPT__(, ) nullptr};       \
        return ringside_all[ringside_i];                                                                              \
      }                                                                                                               \
    };                                                                                                                \
    using RingsideEvent = decltype(::ringside::detail::event_here<RingsideHere>(RINGSIDE_LIST(RINGSIDE_VALUE, __VA_ARGS__))); \
    (void)&RingsideEvent::declare;                                                                                    \
    if (RINGSIDE_UNLIKELY(RingsideEvent::gate_open())) RingsideEvent::write(RINGSIDE_LIST(RINGSIDE_VALUE, __VA_ARGS__));    \
  } while (0)
#define RINGSIDE_VALUE(name, ...) (__VA_ARGS__)

// A field's name is the last piece. The type before it may contain commas, at most three.
#define RINGSIDE_PIECES(_1, _2, _3, _4, _5, pieces, ...) pieces
#define RINGSIDE_PICK(m, ...) RINGSIDE_PIECES(__VA_ARGS__, m##_5, m##_4, m##_3, m##_2, )(__VA_ARGS__)
#define RINGSIDE_TYPE(...) RINGSIDE_PICK(RINGSIDE_TYPE, __VA_ARGS__)
#define RINGSIDE_NAME_ONLY(...) RINGSIDE_PICK(RINGSIDE_LAST, __VA_ARGS__)
#define RINGSIDE_TYPE_2(a, n) a
#define RINGSIDE_TYPE_3(a, b, n) a, b
#define RINGSIDE_TYPE_4(a, b, c, n) a, b, c
#define RINGSIDE_TYPE_5(a, b, c, d, n) a, b, c, d
#define RINGSIDE_LAST_2(a, n) n
#define RINGSIDE_LAST_3(a, b, n) n
#define RINGSIDE_LAST_4(a, b, c, n) n
#define RINGSIDE_LAST_5(a, b, c, d, n) n
#define RINGSIDE_TEXT(x) RINGSIDE_TEXT_(x)
#define RINGSIDE_TEXT_(x) #x
#define RINGSIDE_NAME(...) RINGSIDE_TEXT(RINGSIDE_NAME_ONLY(__VA_ARGS__))
#define RINGSIDE_PARAMETER(...) ::ringside::detail::Param<RINGSIDE_TYPE(__VA_ARGS__)> RINGSIDE_NAME_ONLY(__VA_ARGS__)
#define RINGSIDE_OPERAND(...)                                                                 \
  "n"(::ringside::detail::operand_size<::ringside::detail::Param<RINGSIDE_TYPE(__VA_ARGS__)>>), \
      "nor"(::ringside::detail::operand_of(RINGSIDE_NAME_ONLY(__VA_ARGS__)))

// The ready-made events. Names, types and meaning are part of the interface. span, track_span and counter follow Perfetto's
// convention for kernel track events, so its viewer draws them without help; it also draws your own events with these field
// names.
//
//   event                 fields
//   ringside:marker       void* ip: an address in the calling function · buf: the text
//   ringside:span         char track_event_type: 'B' begins a slice on this thread's track, 'E' ends the last one that began,
//                         'I' is an instant · slice_name: its name (repeated at 'E' for readers of text)
//   ringside:track_span   the same on the track `track_name` of this thread
//   ringside:async_span   the same fields and u64 async_id: begin and end of one name and id belong together, whichever thread of
//                         the process writes them
//   ringside:flow_span    the fields of span and u64 flow_id: it is connected with all others of this id, on any thread
//   ringside:counter      s64 counter_value: the value from now on · track_name: the counter's name (one per thread)
//   ringside:real_counter     the same with a double
//   ringside:process_counter  a double, and s32 scope_tgid, which is 0: one counter for all threads of the process
namespace ringside {
namespace events {
RINGSIDE_EVENT_AS("ringside", marker, "\"%s\", __get_str(buf)", (const void*, ip), (cstring, buf))
RINGSIDE_EVENT_AS("ringside", span, nullptr, (char, track_event_type), (std::string_view, slice_name))
RINGSIDE_EVENT_AS("ringside", track_span, nullptr, (char, track_event_type), (std::string_view, slice_name),
                  (std::string_view, track_name))
RINGSIDE_EVENT_AS("ringside", async_span, nullptr, (char, track_event_type), (std::string_view, slice_name), (u64, async_id))
RINGSIDE_EVENT_AS("ringside", flow_span, nullptr, (char, track_event_type), (std::string_view, slice_name), (u64, flow_id))
RINGSIDE_EVENT_AS("ringside", counter, nullptr, (i64, counter_value), (std::string_view, track_name))
RINGSIDE_EVENT_AS("ringside", real_counter, nullptr, (double, counter_value), (std::string_view, track_name))
RINGSIDE_EVENT_AS("ringside", process_counter, nullptr, (double, counter_value), (std::string_view, track_name), (i32, scope_tgid))
}  // namespace events

// Free text as printf would print it, up to 1,023 bytes. RINGSIDE_MARKER does not evaluate its arguments while disabled.
[[gnu::format(printf, 1, 2), gnu::noinline]] inline void marker(const char* format, ...) noexcept {
  if (!events::marker.enabled()) return;
  char text[RINGSIDE_MARKER_MAX];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = 0;
  va_end(arguments);
  events::marker.write(__builtin_return_address(0), text);
}

#define RINGSIDE_MARKER(...) (::ringside::events::marker.enabled() ? ::ringside::marker(__VA_ARGS__) : void())

// A name as it is given: any text. A null pointer reads "(null)".
class Name {
 public:
  RINGSIDE_INLINE constexpr Name(const char* text) noexcept
      : text_(text != nullptr ? std::string_view(text) : std::string_view("(null)")) {}
  template <class Text, std::enable_if_t<std::is_convertible_v<const Text&, std::string_view>, int> = 0>
  RINGSIDE_INLINE constexpr Name(const Text& text) noexcept : text_(text) {}
  RINGSIDE_INLINE constexpr operator std::string_view() const noexcept { return text_; }

 private:
  std::string_view text_;
};
// A slice of this thread's time. Slices of one track must nest. Names are copied.
RINGSIDE_INLINE void span_begin(Name name) noexcept { events::span('B', name); }
RINGSIDE_INLINE void span_end(Name name) noexcept { events::span('E', name); }
RINGSIDE_INLINE void span_begin(Name name, Name track) noexcept {
  events::track_span('B', name, track);
}
RINGSIDE_INLINE void span_end(Name name, Name track) noexcept { events::track_span('E', name, track); }

// What leads from one span or instant to others, on any thread of any process: all of one id, which is not 0.
struct flow {
  u64 id;
};

// A point in time.
RINGSIDE_INLINE void instant(Name name) noexcept { events::span('I', name); }
RINGSIDE_INLINE void instant(Name name, Name track) noexcept { events::track_span('I', name, track); }
RINGSIDE_INLINE void instant(Name name, flow of) noexcept { events::flow_span('I', name, of.id); }

// The value of a counter from now on; a u64 above 2^63 - 1 wraps. Each thread has counters of its own.
RINGSIDE_INLINE void counter(Name name, i64 value) noexcept { events::counter(value, name); }
template <class Real, std::enable_if_t<std::is_floating_point_v<Real>, int> = 0>
RINGSIDE_INLINE void counter(Name name, Real value) noexcept {
  events::real_counter(static_cast<double>(value), name);
}
// The same for a counter that all threads of the process share. It is a double: integers are exact up to 2^53.
template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
RINGSIDE_INLINE void process_counter(Name name, Number value) noexcept {
  events::process_counter(static_cast<double>(value), name, 0);
}

// A span that lasts as long as the object. Its end is written only if its begin was enabled, so switching events on in the
// middle leaves no end without a begin. The name must outlive the object: one that would be gone does not compile.
class [[nodiscard]] scope {
 public:
  [[nodiscard]] RINGSIDE_INLINE explicit scope(Name name) noexcept : name_(name), begun_(events::span.enabled()) {
    if (RINGSIDE_UNLIKELY(begun_)) events::span.write('B', name_);
  }
  [[nodiscard]] RINGSIDE_INLINE scope(Name name, flow of) noexcept
      : name_(name), begun_(events::flow_span.enabled()), flow_(of.id) {
    if (RINGSIDE_UNLIKELY(begun_)) events::flow_span.write('B', name_, flow_);
  }
  template <class Owner, std::enable_if_t<detail::is_owner_that_goes<Owner>, int> = 0>
  explicit scope(Owner&& name) = delete;
  template <class Owner, std::enable_if_t<detail::is_owner_that_goes<Owner>, int> = 0>
  scope(Owner&& name, flow of) = delete;
  RINGSIDE_INLINE ~scope() {
    if (RINGSIDE_UNLIKELY(begun_)) flow_ != 0 ? events::flow_span('E', name_, flow_) : span_end(name_);
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

 private:
  std::string_view name_;
  bool begun_;
  u64 flow_ = 0;
};

// A span that may end on another thread than it began on: a request, a coroutine, a pool's job. `id` separates it from others
// of its name that are open at the same time in this process; an address will do.
RINGSIDE_INLINE void async_begin(Name name, u64 id) noexcept { events::async_span('B', name, id); }
RINGSIDE_INLINE void async_end(Name name, u64 id) noexcept { events::async_span('E', name, id); }
RINGSIDE_INLINE void async_instant(Name name, u64 id) noexcept { events::async_span('I', name, id); }

// The same as an object, which can be moved to where the work goes on. It ends with end(), or with the object that holds it
// then; not thread-safe in itself. The name must outlive it.
class [[nodiscard]] async_span {
 public:
  async_span() noexcept = default;
  RINGSIDE_INLINE async_span(Name name, u64 id) noexcept : name_(name), id_(id), open_(events::async_span.enabled()) {
    if (RINGSIDE_UNLIKELY(open_)) events::async_span.write('B', name_, id_);
  }
  template <class Owner, std::enable_if_t<detail::is_owner_that_goes<Owner>, int> = 0>
  async_span(Owner&& name, u64 id) = delete;
  RINGSIDE_INLINE async_span(async_span&& from) noexcept
      : name_(from.name_), id_(from.id_), open_(std::exchange(from.open_, false)) {}
  RINGSIDE_INLINE async_span& operator=(async_span&& from) noexcept {
    if (this != &from) {
      end();
      name_ = from.name_;
      id_ = from.id_;
      open_ = std::exchange(from.open_, false);
    }
    return *this;
  }
  RINGSIDE_INLINE ~async_span() { end(); }
  RINGSIDE_INLINE void end() noexcept {
    if (RINGSIDE_UNLIKELY(std::exchange(open_, false))) async_end(name_, id_);
  }
  u64 id() const noexcept { return id_; }

 private:
  std::string_view name_{};
  u64 id_ = 0;
  bool open_ = false;
};

// The frames of a program that draws, samples or ticks, a slice each: RINGSIDE_FRAME("render"), a statement, ends the last one
// and begins the next. They are async spans of that name, numbered from 1: `ringside latency async` has their times. One thread
// at a time marks frames.
struct frames {
  u64 number = 0, open = 0;
};
RINGSIDE_INLINE void frame_mark(frames& of, Name name) noexcept {
  const u64 last = __atomic_exchange_n(&of.open, u64{0}, __ATOMIC_RELAXED);
  if (RINGSIDE_UNLIKELY(last != 0)) async_end(name, last);
  if (!events::async_span.enabled()) return;
  const u64 next = __atomic_add_fetch(&of.number, u64{1}, __ATOMIC_RELAXED);
  async_begin(name, next);
  __atomic_store_n(&of.open, next, __ATOMIC_RELAXED);
}
#define RINGSIDE_FRAME(name)                            \
  do {                                                  \
    static ::ringside::frames ringside_frames;          \
    ::ringside::frame_mark(ringside_frames, name);      \
  } while (0)

}  // namespace ringside
