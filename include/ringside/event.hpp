// An event as the library and the call site see it: the binary interface (ringside.h) and, for C++, the event's layout and
// texts, which are computed at compile time from its declaration.
//
//   payload:  | u16 type | u8 flags | u8 preempt | s32 pid |  fixed fields, naturally aligned  |  strings, each with its NUL |
//             0          2          3            4         8                                   fixed
#pragma once
#include <ringside/ringside.h>

#include <array>
#include <ringside/thread.hpp>
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

namespace detail {

template <class... T>
struct Types {};

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
using Param = std::conditional_t<is_array<T> || (is_text<T> && !std::is_same_v<T, std::string_view>), const T&, T>;

template <class T>
constexpr u32 kind_of() {
  if constexpr (is_string<T>) {
    return RINGSIDE_STRING;
  } else if constexpr (is_pointer<T>) {
    return RINGSIDE_POINTER;
  } else if constexpr (is_stack<T>) {
    return RINGSIDE_STACK;
  } else if constexpr (std::is_enum_v<T>) {
    return kind_of<std::underlying_type_t<T>>();
  } else {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8,
                  "ringside: a field is an integer, bool, float, double, enum, ringside::array of these, void*, "
                  "ringside::cstring, std::string, std::string_view or ringside::stack");
    return std::is_same_v<T, bool>       ? RINGSIDE_BOOL
           : std::is_same_v<T, char>     ? RINGSIDE_CHAR
           : std::is_floating_point_v<T> ? RINGSIDE_FLOAT
           : std::is_signed_v<T>         ? RINGSIDE_SIGNED
                                         : RINGSIDE_UNSIGNED;
  }
}

template <class T>
constexpr ringside_field field_of(const char* name) {
  if constexpr (is_array<T>) {
    using E = typename T::value_type;
    static_assert(!is_array<E> && !is_string<E> && !is_pointer<E>, "ringside: arrays are of numbers, bool, char or enums");
    static_assert(std::tuple_size_v<T> > 0, "ringside: an array has at least one element");
    return {name, kind_of<E>(), sizeof(E), std::tuple_size_v<T>, 0};
  } else {
    return {name, kind_of<T>(), is_string<T> ? u32{4} : is_stack<T> ? u32{8} : u32{sizeof(T)}, 0, 0};
  }
}

// A name as the trace has it: without an underscore at its end.
constexpr std::string_view plain(const char* name) noexcept { return {name, ringside_plain_length(name)}; }

template <class D, class List = typename D::Fields>
struct Layout;

// The layout of the event that D declares.
template <class D, class... T>
struct Layout<D, Types<T...>> {
  static constexpr u32 count = sizeof...(T);
  static constexpr u32 strings = (u32{is_string<T>} + ... + 0);

  struct Table {
    ringside_field field[count + 1];
    u32 fixed;  // bytes in front of the strings
  };
  static constexpr Table table = [] {
    u32 i = 0;
    Table t{{field_of<T>(D::names[i++])..., {}}, RINGSIDE_COMMON_SIZE};
    for (i = 0; i < count; ++i) {
      ringside_field& f = t.field[i];
      f.offset = align_up(t.fixed, f.size);
      t.fixed = f.offset + f.size * (f.count != 0 ? f.count : 1);
    }
    return t;
  }();

  static constexpr bool names_differ() {
    for (u32 i = 0; i < count; ++i)
      for (u32 k = 0; k < i; ++k)
        if (plain(D::names[i]) == plain(D::names[k])) return false;
    return true;
  }
  static constexpr bool names_are_free() {
    for (u32 i = 0; i < count; ++i)
      if (std::string_view(D::names[i]).substr(0, 7) == "common_") return false;
    return true;
  }
  static_assert(count <= RINGSIDE_FIELDS_MAX, "ringside: an event has at most 32 fields");
  static_assert(names_differ(), "ringside: two fields of an event have the same name");
  static_assert(names_are_free(), "ringside: names that start with common_ are the format's own");
  static_assert(table.fixed + strings <= RINGSIDE_PAYLOAD_MAX, "ringside: the fields of an event take at most 4,000 bytes");

  template <auto Put>
  static constexpr auto text() {
    constexpr u32 size = [] {
      ringside_text measure{nullptr, 0};
      Put(&measure, table.field, count);
      return measure.size;
    }();
    std::array<char, size + 1> out{};
    ringside_text write{out.data(), 0};
    Put(&write, table.field, count);
    return out;
  }
  static constexpr auto fields_text = text<ringside_put_fields>();
  static constexpr auto print_text = text<ringside_put_print>();
};

// A string on its way into the ring. Strings share the room: each takes as much of the rest as it needs.
struct Text {
  const char* data;
  u32 size;
};
inline Text take(cstring s, u32& room) noexcept {
  if (!s) s = "(null)";
  Text t{s, ringside_length(s, room)};
  room -= t.size;
  return t;
}
inline Text take(std::string_view s, u32& room) noexcept {
  Text t{s.data(), s.size() < room ? static_cast<u32>(s.size()) : room};
  room -= t.size;
  return t;
}

template <class D, class List = typename D::Fields>
struct Event;

// The event that D declares by D::system_name, D::event_name, D::names, D::Fields and D::print (null: made from the fields).
template <class D, class... T>
struct Event<D, Types<T...>> {
  using L = Layout<D>;
  static constexpr u32 gate = ringside_gate_of(D::system_name, D::event_name);

  template <size_t size>
  static constexpr auto copy(const char* from) {
    std::array<char, size + 1> out{};
    for (size_t i = 0; i < size; ++i) out[i] = from[i];
    return out;
  }
  static constexpr auto system = copy<plain(D::system_name).size()>(D::system_name);
  static constexpr auto name = copy<plain(D::event_name).size()>(D::event_name);

  RINGSIDE_CONSTINIT static inline ringside_event event = {
      system.data(), name.data(), L::fields_text.data(), D::print ? D::print : L::print_text.data(), gate, 0, nullptr, nullptr};

  // False: certainly disabled. One load.
  RINGSIDE_INLINE static bool gate_open() noexcept { return ringside_gate_open(gate); }

  // Is it enabled now? Costs one load while its enable byte is 0.
  RINGSIDE_INLINE static bool enabled() noexcept { return gate_open() && ringside_wanted(&event); }

  // Writes the event if its own word says that it is enabled. Out of line, so that a call site is a load, a branch and a call.
  [[gnu::noinline]] static void write(Param<T>... value) noexcept {
    if (!ringside_wanted(&event)) return;
    if (__atomic_load_n(&event.id, __ATOMIC_RELAXED) >> 16 != 0) [[unlikely]]
      return put_large(__builtin_return_address(0), value...);
    put(__builtin_return_address(0), value...);
  }

  // Puts the payload together on the stack; if it is larger than this, or has the caller's stack behind its fixed fields
  // (ringside_event::id), the library does so beside the caller's stack.
  static constexpr u32 most_on_stack = 48;
  RINGSIDE_INLINE static void put([[maybe_unused]] const void* caller, Param<T>... value) noexcept {
    constexpr u32 fixed = L::table.fixed;
    if constexpr (fixed + L::strings > most_on_stack) {
      put_large(caller, value...);
    } else {
      [[maybe_unused]] u32 room = RINGSIDE_PAYLOAD_MAX - fixed - L::strings;
      Text text[L::strings != 0 ? L::strings : 1];
      u32 next = 0;
      (measure(value, text, next, room), ...);
      u32 size = fixed;
      for (u32 i = 0; i < next; ++i) size += text[i].size + 1;
      if constexpr (L::strings != 0) {
        if (size > most_on_stack) [[unlikely]]
          return put_large(caller, value...);
      }
      u8* const payload = static_cast<u8*>(__builtin_alloca_with_align(align_up(size, 8u), 64));
      __builtin_memset(payload, 0, L::strings == 0 ? align_up(fixed, 4u) : fixed);  // the bytes between the fields, and behind them
      store_all(payload, text, fixed, caller, value...);
      write_event<L::strings == 0 ? known_size(fixed) : 0>(this_thread, event, payload, size);
    }
  }

  [[gnu::noinline, gnu::cold]] static void put_large(const void* caller, Param<T>... value) noexcept {
    const void* const sources[] = {source_of(value)..., nullptr};
    const u32 lengths[] = {length_of(value)..., 0};
    ringside_write_fields(&event, L::table.field, L::count, L::table.fixed, sources, lengths, caller);
  }
  template <class V>
  static const void* source_of(const V& value) noexcept {
    if constexpr (std::is_same_v<V, cstring>)
      return value != nullptr ? value : "(null)";
    else if constexpr (is_string<V>)
      return std::string_view(value).data();
    else
      return &value;
  }
  template <class V>
  static u32 length_of([[maybe_unused]] const V& value) noexcept {
    u32 room = RINGSIDE_PAYLOAD_MAX;
    if constexpr (is_string<V>) return take(value, room).size;
    return 0;
  }

  RINGSIDE_INLINE static void store_all([[maybe_unused]] u8* payload, [[maybe_unused]] Text* text,
                                        [[maybe_unused]] u32 end_of_text, [[maybe_unused]] const void* caller,
                                        Param<T>... value) noexcept {
    [[maybe_unused]] u32 i = 0;
    (store(payload, L::table.field[i++].offset, value, text, end_of_text, caller), ...);
  }

  template <class V>
  RINGSIDE_INLINE static void measure(const V& value, Text* text, u32& next, u32& room) noexcept {
    if constexpr (is_string<V>) text[next++] = take(value, room);
  }

  template <class V>
  RINGSIDE_INLINE static void store(u8* payload, u32 offset, [[maybe_unused]] const V& value,
                                    [[maybe_unused]] Text*& from, [[maybe_unused]] u32& at,
                                    [[maybe_unused]] const void* caller) noexcept {
    if constexpr (is_string<V>) {
      u32 place = at | (from->size + 1) << 16;
      __builtin_memcpy(payload + offset, &place, sizeof place);
      if (from->size != 0) __builtin_memcpy(payload + at, from->data, from->size);
      payload[at + from->size] = 0;
      at += from++->size + 1;
    } else if constexpr (is_stack<V>) {
      const u64 id = ringside_stack_of(caller);
      __builtin_memcpy(payload + offset, &id, sizeof id);
    } else {
      __builtin_memcpy(payload + offset, &value, sizeof value);
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

// The type of the field that holds such a value.
template <class T>
using FieldFor = std::conditional_t<
    std::is_same_v<T, char*>, cstring,
    std::conditional_t<(std::is_pointer_v<T> && !std::is_same_v<T, cstring>) || std::is_null_pointer_v<T>, const void*, T>>;
template <class Here, class... V>
EventHere<Here, FieldFor<std::decay_t<V>>...> event_here(const V&...);  // names the type, never called

}  // namespace detail
}  // namespace ringside
