// An event as the call site sees it, over the binary interface (ringside.h): the event's layout, computed at compile time from
// its declaration. A call hands its values to the library, whose code is there once; so an event costs little to compile, and
// little space.
//
//   payload:  | u16 type | u8 flags | u8 preempt | s32 pid |  fixed fields, naturally aligned  |  strings, each with its NUL |
//             0          2          3            4         8                                   fixed
#pragma once
#include <ringside/ringside.h>

#include <array>
#include <ringside/base/types.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ringside {

using cstring = const char*;  // null reads "(null)"

template <class T, size_t N>
using array = std::array<T, N>;

// A field that holds the calls that led to the event: net::packet_in(1500, ringside::stack{}). Taken only if the event is
// enabled.
struct stack {};

// A field that says how important the event is: readers show the word, and filters compare it (level >= warn).
enum class log_level : u8 { trace, debug, info, warn, error, fatal };

// The names that a declaration may use without a prefix.
namespace field_types {
using i8 = int8_t;
using i16 = int16_t;
using ringside::cstring;
using ringside::i32;
using ringside::i64;
using ringside::u16;
using ringside::u32;
using ringside::u64;
using ringside::u8;
}  // namespace field_types

// How values of a type of the program become a field: get() gives the value that is written, of one of the types that a field
// may have. Before its first use as a field:
//
//   template <> struct ringside::field<leveldb::Slice> {
//     static std::string_view get(const leveldb::Slice& s) noexcept { return {s.data(), s.size()}; }
//   };
//
// Durations and time points of <chrono> have one: nanoseconds, since the clock's epoch for a time point.
namespace detail {
template <class T, class = void>
inline constexpr bool is_duration = false;
template <class T>
inline constexpr bool is_duration<T, decltype(void(std::declval<const T&>().count() * T::period::num))> = true;
template <class T, class = void>
inline constexpr bool is_time_point = false;
template <class T>
inline constexpr bool is_time_point<T, decltype(void(std::declval<const T&>().time_since_epoch().count()))> = true;
}  // namespace detail

template <class T, class = void>
struct field {};
template <class T>
struct field<T, std::enable_if_t<detail::is_duration<T>>> {
  static constexpr i64 get(const T& d) noexcept {
    using P = typename T::period;
    constexpr i64 most = INT64_MAX, second = 1'000'000'000;
    if constexpr (std::is_integral_v<typename T::rep> && P::den <= second && second % P::den == 0) {
      i64 ns = 0;  // one beyond 292 years is as long
      return !__builtin_mul_overflow(d.count(), static_cast<i64>(P::num * (second / P::den)), &ns) ? ns
             : d.count() < 0                                                                       ? -most
                                                                                                   : most;
    } else {
      const auto ns = static_cast<long double>(d.count()) * P::num * second / P::den;
      return ns >= static_cast<long double>(most) ? most : ns <= -static_cast<long double>(most) ? -most : static_cast<i64>(ns);
    }
  }
};
template <class T>
struct field<T, std::enable_if_t<detail::is_time_point<T>>> {
  static constexpr i64 get(const T& t) noexcept { return field<typename T::duration>::get(t.time_since_epoch()); }
};

// The names of an enum's values, which readers show: RINGSIDE_ENUM.
template <class T>
struct enum_names {
  static constexpr const ringside_symbol* list = nullptr;
};
template <>
struct enum_names<log_level> {
  static constexpr ringside_symbol list[] = {{"trace", 0}, {"debug", 1}, {"info", 2},   {"warn", 3},
                                             {"error", 4}, {"fatal", 5}, {nullptr, 0}};
};

namespace detail {

template <class... T>
struct Types {};

template <class T, class = void>
inline constexpr bool has_field = false;
template <class T>
inline constexpr bool has_field<T, std::void_t<decltype(ringside::field<T>::get(std::declval<const T&>()))>> = true;

template <class T, class = void>
struct Written {
  using Type = T;
};
template <class T>
struct Written<T, std::enable_if_t<has_field<T>>> {
  using Got = std::decay_t<decltype(ringside::field<T>::get(std::declval<const T&>()))>;
  using Type = typename Written<Got>::Type;
};
// What the event holds for a field of type T, and that value: get() may give a type that has one itself.
template <class T>
using WrittenAs = typename Written<T>::Type;
template <class T>
RINGSIDE_INLINE decltype(auto) written(const T& value) noexcept {
  if constexpr (!has_field<T>)
    return (value);
  else if constexpr (has_field<typename Written<T>::Got>)
    return WrittenAs<T>(written(ringside::field<T>::get(value)));
  else
    return ringside::field<T>::get(value);
}

template <class T>
inline constexpr bool is_array = false;
template <class T, size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;

// std::string_view, std::string with any allocator, and other classes that are texts.
template <class T>
inline constexpr bool is_text = std::is_class_v<T> && std::is_convertible_v<const T&, std::string_view>;

template <class T>
inline constexpr bool is_string = std::is_same_v<T, cstring> || is_text<T>;

template <class T>
inline constexpr bool is_stack = std::is_same_v<T, stack>;

template <class T>
inline constexpr bool is_pointer = std::is_same_v<T, void*> || std::is_same_v<T, const void*>;

// How a field is passed to the call.
template <class T>
using Param =
    std::conditional_t<is_array<T> || has_field<T> || (is_text<T> && !std::is_same_v<T, std::string_view>), const T&, T>;
// T is that of a forwarding reference: a text that owns its bytes and goes at the end of the expression.
template <class T>
inline constexpr bool is_owner_that_goes =
    !std::is_lvalue_reference_v<T> && std::is_convertible_v<const T&, std::string_view> && !std::is_pointer_v<T> &&
    !std::is_array_v<T> && !std::is_same_v<std::remove_cv_t<T>, std::string_view>;

// A text that a span is made with, and keeps by reference: one that would be gone does not compile.
struct LastingText {
  std::string_view text;
  template <class V, std::enable_if_t<!is_owner_that_goes<V> && is_text<std::decay_t<V>>, int> = 0>
  RINGSIDE_INLINE constexpr LastingText(V&& value) noexcept : text(value) {}
  template <class V, std::enable_if_t<is_owner_that_goes<V>, int> = 0>
  LastingText(V&& value) = delete;
  RINGSIDE_INLINE constexpr LastingText(const char* value) noexcept : text(value != nullptr ? value : "(null)") {}
  RINGSIDE_INLINE constexpr operator std::string_view() const noexcept { return text; }
};

// How a span is given a field, and keeps it.
template <class T>
using Given = std::conditional_t<is_text<T>, LastingText, Param<T>>;
template <class T>
using Kept = std::conditional_t<is_text<T>, std::string_view, T>;

template <class T>
constexpr u32 kind_of() {
  if constexpr (is_string<T>) {
    return RINGSIDE_STRING;
  } else if constexpr (is_pointer<T>) {
    return RINGSIDE_POINTER;
  } else if constexpr (is_stack<T>) {
    return RINGSIDE_STACK;
  } else if constexpr (std::is_same_v<T, log_level>) {
    return RINGSIDE_LEVEL;
  } else if constexpr (std::is_enum_v<T>) {
    return kind_of<std::underlying_type_t<T>>();
  } else {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8,
                  "ringside: a field is an integer, bool, float, double, enum, ringside::array of these, void*, "
                  "ringside::cstring, std::string, std::string_view, ringside::stack or a type with a ringside::field<T>");
    return std::is_same_v<T, bool>       ? RINGSIDE_BOOL
           : std::is_same_v<T, char>     ? RINGSIDE_CHAR
           : std::is_floating_point_v<T> ? RINGSIDE_FLOAT
           : std::is_signed_v<T>         ? RINGSIDE_SIGNED
                                         : RINGSIDE_UNSIGNED;
  }
}

// Is it (type, name), (type, name), ... to the end? The text of a macro's arguments.
constexpr bool in_parentheses(const char* text) {
  int depth = 0;
  bool two = false;
  for (bool quoted = false; *text != 0; ++text) {
    const char c = *text;
    if (c == '"')
      quoted = !quoted;
    else if (quoted && c == '\\' && text[1] != 0)
      ++text;
    else if (quoted)
      continue;
    else if (c == '(')
      ++depth;
    else if (c == ',')
      two = depth != 0;
    else if (depth == 0 && c != ' ')
      return false;
    else if (c == ')' && --depth == 0 && !two)
      return false;
  }
  return true;
}

template <class T>
constexpr ringside_field field_of(const char* name) {
  if constexpr (has_field<T>) {
    return field_of<WrittenAs<T>>(name);
  } else if constexpr (is_array<T>) {
    using E = typename T::value_type;
    static_assert(!is_array<E> && !is_string<E> && !is_pointer<E>, "ringside: arrays are of numbers, bool, char or enums");
    static_assert(std::tuple_size_v<T> > 0, "ringside: an array has at least one element");
    return {name, kind_of<E>(), sizeof(E), std::tuple_size_v<T>, 0, nullptr};
  } else {
    return {name, kind_of<T>(), is_string<T> ? u32{4} : is_stack<T> ? u32{8} : u32{sizeof(T)}, 0, 0, enum_names<T>::list};
  }
}

// An event's fields with their places, after the one that describes all (ringside_event).
template <u32 n>
struct FieldTable {
  ringside_field field[1 + n];
  constexpr u32 fixed() const { return field[0].offset; }
  constexpr u32 strings() const { return field[0].count; }
};
template <u32 n>
constexpr FieldTable<n> laid_out(FieldTable<n> t) {
  ringside_field& all = t.field[0];
  all = {nullptr, 0, n, 0, RINGSIDE_COMMON_SIZE, nullptr};
  for (u32 i = 1; i <= n; ++i) {
    ringside_field& f = t.field[i];
    f.offset = align_up(all.offset, f.size);
    all.offset = f.offset + f.size * (f.count != 0 ? f.count : 1);
    all.count += f.kind == RINGSIDE_STRING;
    if (f.kind == RINGSIDE_STACK) all.kind = RINGSIDE_STACK;
  }
  return t;
}

constexpr bool same_name(const char* a, const char* b) {
  const size_t size = ringside_plain_length(a);
  if (size != ringside_plain_length(b)) return false;
  for (size_t i = 0; i < size; ++i)
    if (a[i] != b[i]) return false;
  return true;
}
constexpr bool names_differ(const ringside_field* all) {
  for (u32 i = 1; i <= all->size; ++i)
    for (u32 k = 1; k < i; ++k)
      if (same_name(all[i].name, all[k].name)) return false;
  return true;
}
constexpr bool is_common(const char* name) {
  u32 same = 0;
  while (same < 7 && name[same] == "common_"[same]) ++same;
  return same == 7;
}
constexpr bool names_are_free(const ringside_field* all) {
  for (u32 i = 1; i <= all->size; ++i)
    if (is_common(all[i].name)) return false;
  return true;
}

// Where a value is, and how long a text is (ringside_write_fields).
template <class V>
RINGSIDE_INLINE const void* source_of(const V& value) noexcept {
  if constexpr (std::is_same_v<V, cstring>)
    return value;
  else if constexpr (is_text<V>)
    return std::string_view(value).data();
  else
    return &value;
}
template <class V>
RINGSIDE_INLINE u32 length_of([[maybe_unused]] const V& value) noexcept {
  if constexpr (is_text<V>) {
    const size_t size = std::string_view(value).size();
    return size < RINGSIDE_PAYLOAD_MAX ? static_cast<u32>(size) : u32{RINGSIDE_PAYLOAD_MAX};
  } else {
    return RINGSIDE_TO_ITS_NUL;
  }
}

// A name as the trace has it: without an underscore at its end.
constexpr std::string_view plain(const char* name) noexcept { return {name, ringside_plain_length(name)}; }

// Of a __PRETTY_FUNCTION__: Class::function, from after its return type up to its parameters. plain: its __func__.
constexpr std::string_view function_name(std::string_view pretty, std::string_view plain) noexcept {
  size_t end = pretty.find(plain);
  while (end != std::string_view::npos && (end + plain.size() >= pretty.size() || pretty[end + plain.size()] != '('))
    end = pretty.find(plain, end + 1);
  if (end == std::string_view::npos) return plain;
  size_t begin = end;
  for (int depth = 0; begin > 0; --begin) {
    const char c = pretty[begin - 1];
    if (depth == 0 && (c == ' ' || c == '*' || c == '&')) break;
    depth += c == ')' || c == '>' ? 1 : c == '(' || c == '<' ? -1 : 0;
    if (depth < 0) break;
  }
  return pretty.substr(begin, end + plain.size() - begin);
}

// A value on its way into a payload, or into the list of its texts.
template <class V>
RINGSIDE_INLINE void put(u8* payload, u32 at, const V& value, [[maybe_unused]] ringside_text*& text) noexcept {
  if constexpr (is_string<V>)
    *text++ = {static_cast<const char*>(source_of(value)), length_of(value), at};
  else
    __builtin_memcpy(payload + at, &value, sizeof value);
}

template <class D, class List = typename D::Fields>
struct Event;

// The event that D declares by D::system_name, D::event_name, D::names, D::Fields and D::print (null: made from the fields).
template <class D, class... T>
struct Event<D, Types<T...>> {
  static constexpr u32 gate = ringside_gate_of(D::system_name, D::event_name);

  static constexpr FieldTable<sizeof...(T)> table = [] {
    [[maybe_unused]] u32 i = 0;
    return laid_out(FieldTable<sizeof...(T)>{{{}, field_of<T>(D::names[i++])...}});
  }();
  static constexpr bool of_numbers = table.strings() == 0 && table.field[0].kind == 0;
  static_assert(sizeof...(T) <= RINGSIDE_FIELDS_MAX, "ringside: an event has at most 32 fields");
  static_assert(names_differ(table.field), "ringside: two fields of an event have the same name");
  static_assert(names_are_free(table.field), "ringside: names that start with common_ are the format's own");
  static_assert(table.fixed() + table.strings() <= RINGSIDE_PAYLOAD_MAX,
                "ringside: the fields of an event take at most 4,000 bytes");

  RINGSIDE_CONSTINIT static inline ringside_event event = {D::system_name, D::event_name, nullptr, D::print, table.field, 0,
                                                           nullptr,        nullptr};

  // False: certainly disabled. One load.
  RINGSIDE_INLINE static bool gate_open() noexcept { return ringside_gate_open(gate); }

  // Is it enabled now? Costs one load while its enable byte is 0.
  RINGSIDE_INLINE static bool enabled() noexcept { return gate_open() && ringside_wanted(&event); }

  static constexpr u32 most_on_stack = 48;  // a larger payload is put together elsewhere

  // Writes the event if its own word says that it is enabled. Few numbers go to the library from here, in registers; other
  // fields from a function, so that a call site is a load, a branch and a call.
  RINGSIDE_INLINE static void write(Param<T>... value) noexcept {
    if constexpr (of_numbers && table.fixed() <= most_on_stack)
      write_numbers(written(value)...);
    else
      write_out_of_line(value...);
  }

 private:
  [[gnu::noinline]] static void write_out_of_line(Param<T>... value) noexcept {
    write_fields(__builtin_return_address(0), written(value)...);
  }

  template <class... V>
  RINGSIDE_INLINE static void write_numbers(const V&... value) noexcept {
    constexpr u32 size = align_up(table.fixed(), 4u), words = (size + 7) / 8;
    u64 word[words] = {};  // also the bytes between the fields, and after them
    [[maybe_unused]] u32 i = 0;
    (static_cast<void>(__builtin_memcpy(reinterpret_cast<u8*>(word) + table.field[++i].offset, &value, sizeof value)), ...);
    if constexpr (words == 2)
      ringside_write_word(&event, size, word[1]);
    else if constexpr (words == 3)
      ringside_write_2_words(&event, size, word[1], word[2]);
    else if constexpr (words == 4)
      ringside_write_3_words(&event, size, word[1], word[2], word[3]);
    else
      ringside_write_numbers(&event, size, word);
  }

  template <class... V>
  RINGSIDE_INLINE static void write_fields(const void* caller, const V&... value) noexcept {
    if constexpr (table.field[0].kind == 0 && table.strings() != 0 && table.fixed() + table.strings() <= most_on_stack) {
      alignas(8) u8 payload[most_on_stack];
      __builtin_memset(payload, 0, table.fixed());
      ringside_text texts[table.strings()], *next = texts;
      u32 i = 0;
      (put(payload, table.field[++i].offset, value, next), ...);
      ringside_write_texts(&event, payload, table.fixed(), texts, table.strings(), caller);
      return;
    }
    const void* const sources[] = {source_of(value)...};
    if constexpr ((is_text<V> || ...)) {
      const u32 lengths[] = {length_of(value)...};
      ringside_write_fields(&event, table.field, sources, lengths, caller);
    } else {
      ringside_write_fields(&event, table.field, sources, nullptr, caller);
    }
  }
};

// An event that is declared where it is written. Here: a local class with the texts of RINGSIDE_TRACE.
template <class Here, class... T>
struct DeclaredHere {
  static constexpr const char* system_name = Here::system();
  static constexpr const char* event_name = Here::event();
  static constexpr const char* print = nullptr;
  template <size_t... i>
  static constexpr auto list(std::index_sequence<i...>) {
    return std::array<const char*, sizeof...(T) + 1>{Here::field(i)..., nullptr};
  }
  static constexpr auto names = list(std::make_index_sequence<sizeof...(T)>());
  using Fields = Types<T...>;
};
template <class Here, class... T>
struct EventHere : Event<DeclaredHere<Here, T...>> {
  // GCC forgets a priority that does not depend on the template.
  RINGSIDE_CONSTRUCTOR(sizeof(Here) * 0 + 100) static void declare() { ringside_register(&EventHere::event); }
  RINGSIDE_CONSTRUCTOR_END
};

// The type of the field that holds such a value. All integers have one, so that an int here and a size_t there are one layout.
template <class T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;
template <class T>
using FieldFor =
    std::conditional_t<std::is_same_v<T, char*>, cstring,
                       std::conditional_t<(std::is_pointer_v<T> && !std::is_same_v<T, cstring>) || std::is_null_pointer_v<T>,
                                          const void*, std::conditional_t<is_integer<T>, i64, T>>>;
template <class Here, class... V>
EventHere<Here, FieldFor<std::decay_t<V>>...> event_here(const V&...);  // names the type, never called

}  // namespace detail
}  // namespace ringside
