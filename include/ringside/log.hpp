// A logger: messages are events, and readers put the text together. C++17.
//
//   RINGSIDE_LOG(warn, "took {} of {}", i, n);                       // trace, debug, info, warn, error, fatal
//   RINGSIDE_LOG_EVERY(info, 1s, "{:.1f} % done", percent);          // at most once a second, from all threads together
//   RINGSIDE_LOG_EVERY(debug, 1000, "packet {}", number);            // the 1st, the 1,001st, ...
//   RINGSIDE_LOG_FIRST(error, 10, "cannot open {}", path);           // the first 10 ones
//
//   ringside log NAME --follow       prints them as they come: time, level, thread, file:line, message
//
// Each call is an event of its own, log:warn with its own fields: the values, in binary, under their names if they are names of
// variables or members (else arg1, arg2, ...), and `level`. Message, file and line are in the event's format, which is written
// once. So a call costs what an event costs, and filters and histograms know its values: -f 'level >= warn && n > 100'. Levels
// are switched like events, also while the program runs: ringside disable -i NAME log:debug. `fatal` ends nothing. An instance
// has room for 4,095 events.
//
// Message: a literal in fmt's syntax, {} or {:SPEC}. The compiler checks it against the types of the values. It may have the
// specs that printf has, too (log_format.hpp lists them); so trace-cmd and KernelShark show the same text. A double's {} is the
// shortest text that reads back as it. Values: up to 31 of the types that an event's field may have (trace.hpp): numbers, texts
// of any kind, bool, char, enums, void*, arrays, types with a ringside::field. A duration is its nanoseconds. Other pointers
// and types do not compile.
//
// Cost while disabled: one load and a predicted branch; no value is evaluated. Safety: as in trace.hpp, from any thread and any
// signal handler; it never blocks, and formats nothing. RINGSIDE_LOG_EVERY with a duration asks the clock
// CLOCK_MONOTONIC_COARSE while its event is enabled. What the rings refuse or overwrite is counted, and `ringside log` says so.
//
// RINGSIDE_LOG_SYSTEM, defined before this header is included, is another name before the level: #define RINGSIDE_LOG_SYSTEM
// "net" makes net:warn of log:warn. Later in a file it is #undef'd first; then it is for the calls that follow.
#pragma once
#include <ringside/trace.hpp>
#ifndef RINGSIDE_WARNINGS
#pragma GCC system_header
#endif
#include <time.h>

#include <ringside/log_format.hpp>

#ifndef RINGSIDE_LOG_SYSTEM
#define RINGSIDE_LOG_SYSTEM "log"
#endif

// Writes a message; a statement. level: one of the six words.
#define RINGSIDE_LOG(level, ...) RINGSIDE_LOG_CALL(level, true, __VA_ARGS__, )
// limit: a duration (std::chrono): a message, and then none for so long. A number n: the first of each n. Only calls while the
// level is enabled count.
#define RINGSIDE_LOG_EVERY(level, limit, ...) \
  RINGSIDE_LOG_CALL(level, ::ringside::detail::is_due(ringside_state, limit), __VA_ARGS__, )
// The first n messages of this call; none if n is below 1.
#define RINGSIDE_LOG_FIRST(level, n, ...) \
  RINGSIDE_LOG_CALL(level, ::ringside::detail::is_among_first(ringside_state, n), __VA_ARGS__, )

#define RINGSIDE_LOG_CALL(level_, condition, message, ...)                                                   \
  do {                                                                                                       \
    static_assert(::ringside::detail::is_literal(RINGSIDE_TEXT(message)),                                    \
                  "ringside: a message is a literal: RINGSIDE_LOG(" #level_ ", \"took {} of {}\", i, n)");   \
    struct RingsideHere {                                                                                    \
      static constexpr ::ringside::log_level level() { return ::ringside::log_level::level_; }               \
      static constexpr const char* system() { return RINGSIDE_LOG_SYSTEM; }                                  \
      static constexpr const char* event() { return #level_; }                                               \
      static constexpr const char* print() { return __FILE__ "\n" RINGSIDE_TEXT(__LINE__) "\n" message; }    \
      static constexpr const char* source(decltype(sizeof 0) ringside_i) {                                   \
        const char* const ringside_all[] = {RINGSIDE_WORDS(__VA_ARGS__) nullptr};                            \
        return ringside_all[ringside_i];                                                                     \
      }                                                                                                      \
      static constexpr decltype(sizeof 0) sources() {                                                        \
        const char* const ringside_all[] = {RINGSIDE_WORDS(__VA_ARGS__) nullptr};                            \
        return sizeof ringside_all / sizeof *ringside_all - 1;                                               \
      }                                                                                                      \
    };                                                                                                       \
    using RingsideEvent = decltype(::ringside::detail::log_here<RingsideHere>(RINGSIDE_ITEMS(__VA_ARGS__))); \
    (void)&RingsideEvent::declare;                                                                           \
    [[maybe_unused]] static ::ringside::u64 ringside_state = 0;                                              \
    if (RINGSIDE_UNLIKELY(RingsideEvent::gate_open()) && RingsideEvent::enabled() && (condition))            \
      RingsideEvent::log(RINGSIDE_ITEMS(__VA_ARGS__));                                                       \
  } while (0)
// Of a list that ends in an empty argument: its texts, each with a comma; the list without that.
#define RINGSIDE_WORDS(...) __VA_OPT__(RINGSIDE_AGAIN_1(RINGSIDE_WORDS_STEP(__VA_ARGS__)))
#define RINGSIDE_WORDS_STEP(x, ...) #x, __VA_OPT__(RINGSIDE_WORDS_NEXT RINGSIDE_PARENTHESES(__VA_ARGS__))
#define RINGSIDE_WORDS_NEXT() RINGSIDE_WORDS_STEP
#define RINGSIDE_ITEMS(...) __VA_OPT__(RINGSIDE_AGAIN_1(RINGSIDE_ITEMS_STEP(__VA_ARGS__)))
#define RINGSIDE_ITEMS_STEP(x, ...) x __VA_OPT__(, RINGSIDE_ITEMS_NEXT RINGSIDE_PARENTHESES(__VA_ARGS__))
#define RINGSIDE_ITEMS_NEXT() RINGSIDE_ITEMS_STEP

namespace ringside::detail {

constexpr bool is_literal(const char* text) {
  for (; *text != 0 && *text != '"'; ++text)
    if (*text != 'R') return false;
  return *text != 0;
}

constexpr bool is_keyword(const char* name) {
  for (const char* const word : {"true", "false", "nullptr", "this"})
    if (same_name(name, word)) return true;
  return false;
}
// Of the text of an argument: the name of a variable, or of a member (`id` of order->id); null: it is none.
constexpr const char* name_in(const char* text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  for (;;) {
    const char* const name = text;
    if (!is_letter(*text)) return nullptr;
    while (is_letter(*text) || (*text >= '0' && *text <= '9')) ++text;
    if (*text == 0) return ringside_plain_length(name) < 64 && !is_keyword(name) ? name : nullptr;
    if (text[0] == '-' && text[1] == '>')
      text += 2;
    else if (text[0] == ':' && text[1] == ':')
      text += 2;
    else if (*text == '.')
      ++text;
    else
      return nullptr;
  }
}
constexpr const char* const numbered_names[] = {"arg1",  "arg2",  "arg3",  "arg4",  "arg5",  "arg6",  "arg7",  "arg8",
                                                "arg9",  "arg10", "arg11", "arg12", "arg13", "arg14", "arg15", "arg16",
                                                "arg17", "arg18", "arg19", "arg20", "arg21", "arg22", "arg23", "arg24",
                                                "arg25", "arg26", "arg27", "arg28", "arg29", "arg30", "arg31"};

// The names of the fields: of the n values, and the level.
template <size_t n>
struct LogNames {
  const char* name[n + 2];
  constexpr const char* operator[](size_t i) const { return name[i]; }
};
template <class Here, size_t n>
constexpr LogNames<n> log_names() {
  LogNames<n> all{};
  all.name[n] = "level";
  for (size_t i = 0; i < n; ++i) {
    // A comma within an argument, f<1, 2>(x), or a pack: it is unknown which text is that of which value.
    const char* const name = Here::sources() == n ? name_in(Here::source(i)) : nullptr;
    bool is_free = name != nullptr && !same_name(name, "level") && !is_common(name);
    for (size_t k = 0; is_free && k < i; ++k) is_free = !same_name(name, all.name[k]);
    for (size_t k = 0; is_free && k < n; ++k) is_free = !same_name(name, numbered_names[k]);
    all.name[i] = is_free ? name : numbered_names[i];
  }
  return all;
}

template <class T>
using LoggedAs =
    std::conditional_t<std::is_same_v<T, char*>, cstring, std::conditional_t<std::is_null_pointer_v<T>, const void*, T>>;

template <class Here, class... T>
struct LogDeclared {
  static_assert(sizeof...(T) < RINGSIDE_FIELDS_MAX, "ringside: a message has at most 31 values");
  static_assert(
      (... && (!std::is_pointer_v<T> || is_pointer<T> || std::is_same_v<T, cstring>)),
      "ringside: a message shows texts and void*: write *pointer for the value, static_cast<const void*>(pointer) for "
      "the address");
  static_assert((... && !is_stack<T>), "ringside: a stack is no value of a message; ringside enable --stack log:warn adds one");
  static constexpr const char* system_name = Here::system();
  static constexpr const char* event_name = Here::event();
  static constexpr const char* print = Here::print();
  static constexpr auto names = log_names<Here, sizeof...(T)>();
  using Fields = Types<T..., log_level>;
};

template <class Here, class... T>
struct LogHere : Event<LogDeclared<Here, T...>> {
  using Base = Event<LogDeclared<Here, T...>>;
  static constexpr log_format::Fault fault =
      log_format::fault_of(log_format::message_of(Here::print()), &Base::table.field[1], sizeof...(T));
  static_assert(fault != log_format::Fault::brace, "ringside: a { or } of a message's text is doubled: {{ or }}");
  static_assert(fault != log_format::Fault::few, "ringside: the message has a {} without a value");
  static_assert(fault != log_format::Fault::many, "ringside: the message has a value without a {}");
  static_assert(fault != log_format::Fault::mixed, "ringside: the message mixes {} and {0}");
  static_assert(fault != log_format::Fault::syntax,
                "ringside: a message knows {:SPEC} with < or >, a sign, #, 0, a width, a precision, "
                "and d x X o s c p e E f F g G: what printf has, too");
  static_assert(fault != log_format::Fault::type, "ringside: the message has a {:SPEC} that is not for its value's type");

  // GCC forgets a priority that does not depend on the template.
  RINGSIDE_CONSTRUCTOR(sizeof(Here) * 0 + 100) static void declare() { ringside_register(&LogHere::event); }
  RINGSIDE_CONSTRUCTOR_END
  RINGSIDE_INLINE static void log(Param<T>... value) noexcept { Base::write(value..., Here::level()); }
};
template <class Here, class... V>
LogHere<Here, LoggedAs<std::decay_t<V>>...> log_here(const V&...);  // names the type, never called

template <class N>
RINGSIDE_INLINE bool is_among_first(u64& state, N n) noexcept {
  static_assert(std::is_integral_v<N>, "ringside: RINGSIDE_LOG_FIRST takes a number of messages");
  const u64 most = n > 0 ? static_cast<u64>(n) : 0;
  return __atomic_load_n(&state, __ATOMIC_RELAXED) < most && __atomic_fetch_add(&state, u64{1}, __ATOMIC_RELAXED) < most;
}
template <class Limit>
RINGSIDE_INLINE bool is_due(u64& state, const Limit& limit) noexcept {
  static_assert(std::is_integral_v<Limit> || is_duration<Limit>,
                "ringside: RINGSIDE_LOG_EVERY takes a number of calls, or a duration");
  if constexpr (std::is_integral_v<Limit>) {
    const u64 n = limit > 0 ? static_cast<u64>(limit) : 1;
    return __atomic_fetch_add(&state, u64{1}, __ATOMIC_RELAXED) % n == 0;
  } else {
    // The state is the ns of the last message; 0: there was none.
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    const u64 now = static_cast<u64>(time.tv_sec) * 1'000'000'000 + static_cast<u64>(time.tv_nsec) + 1;
    u64 last = __atomic_load_n(&state, __ATOMIC_RELAXED);
    const i64 least = field<Limit>::get(limit);
    if (last != 0 && static_cast<i64>(now - last) < least) return false;
    return __atomic_compare_exchange_n(&state, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
}

}  // namespace ringside::detail
