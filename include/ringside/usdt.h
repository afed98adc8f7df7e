/* With RINGSIDE_USDT defined before <ringside/trace.hpp> or <ringside/ringside.h>, each place that writes an event is a USDT
   probe, too: bpftrace, perf and `ringside record -e usdt:PROGRAM:SYSTEM:EVENT` can attach to it, whether the event is enabled
   or not.

     provider    the system         probe   the event; both as declared, with an underscore after a name that has one
     arguments   the fields in order: integers, bool, char and enums by value, float and double as their bits, texts and arrays
   by address; 0 for ringside::stack. An event with more than 12 fields has none.

   It costs a nop, a note of some 100 bytes in the file (none in memory), and the arguments: they are evaluated for it even
   while the event is disabled. RINGSIDE_TRACE makes no probes, as it evaluates none. */
#ifndef RINGSIDE_USDT_H
#define RINGSIDE_USDT_H

#define RINGSIDE_USDT_PROBE(system, name, operand, ...)                                                                       \
  RINGSIDE_USDT_JOIN(RINGSIDE_USDT_, RINGSIDE_USDT_PICK(__VA_ARGS__ many, many, many, many, many, many, many, many, many,     \
                                                        many, many, many, many, many, many, many, many, many, many, many, 12, \
                                                        11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0))                             \
  (system, name, operand, __VA_ARGS__)
#define RINGSIDE_USDT_PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, \
                           _22, _23, _24, _25, _26, _27, _28, _29, _30, _31, _32, n, ...)                                  \
  n
#define RINGSIDE_USDT_JOIN(a, b) RINGSIDE_USDT_JOIN_(a, b)
#define RINGSIDE_USDT_JOIN_(a, b) a##b

/* Each argument has two operands: minus its size, or its size if it is signed, and its place. */
#define RINGSIDE_USDT_TEXT(size, place) ".ascii \" %n" #size "@%" #place "\"\n"
#define RINGSIDE_USDT_TEXT_1 ".ascii \"%n0@%1\"\n"
#define RINGSIDE_USDT_TEXT_2 RINGSIDE_USDT_TEXT_1 RINGSIDE_USDT_TEXT(2, 3)
#define RINGSIDE_USDT_TEXT_3 RINGSIDE_USDT_TEXT_2 RINGSIDE_USDT_TEXT(4, 5)
#define RINGSIDE_USDT_TEXT_4 RINGSIDE_USDT_TEXT_3 RINGSIDE_USDT_TEXT(6, 7)
#define RINGSIDE_USDT_TEXT_5 RINGSIDE_USDT_TEXT_4 RINGSIDE_USDT_TEXT(8, 9)
#define RINGSIDE_USDT_TEXT_6 RINGSIDE_USDT_TEXT_5 RINGSIDE_USDT_TEXT(10, 11)
#define RINGSIDE_USDT_TEXT_7 RINGSIDE_USDT_TEXT_6 RINGSIDE_USDT_TEXT(12, 13)
#define RINGSIDE_USDT_TEXT_8 RINGSIDE_USDT_TEXT_7 RINGSIDE_USDT_TEXT(14, 15)
#define RINGSIDE_USDT_TEXT_9 RINGSIDE_USDT_TEXT_8 RINGSIDE_USDT_TEXT(16, 17)
#define RINGSIDE_USDT_TEXT_10 RINGSIDE_USDT_TEXT_9 RINGSIDE_USDT_TEXT(18, 19)
#define RINGSIDE_USDT_TEXT_11 RINGSIDE_USDT_TEXT_10 RINGSIDE_USDT_TEXT(20, 21)
#define RINGSIDE_USDT_TEXT_12 RINGSIDE_USDT_TEXT_11 RINGSIDE_USDT_TEXT(22, 23)

#define RINGSIDE_USDT_0(system, name, operand, ...) RINGSIDE_USDT_NOTE(system, name, "", )
#define RINGSIDE_USDT_many(system, name, operand, ...) RINGSIDE_USDT_NOTE(system, name, "", )
#define RINGSIDE_USDT_SOME(system, name, text, operand, ...) RINGSIDE_USDT_NOTE(system, name, text, RINGSIDE_LIST(operand, __VA_ARGS__))
#define RINGSIDE_USDT_1(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_1, __VA_ARGS__)
#define RINGSIDE_USDT_2(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_2, __VA_ARGS__)
#define RINGSIDE_USDT_3(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_3, __VA_ARGS__)
#define RINGSIDE_USDT_4(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_4, __VA_ARGS__)
#define RINGSIDE_USDT_5(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_5, __VA_ARGS__)
#define RINGSIDE_USDT_6(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_6, __VA_ARGS__)
#define RINGSIDE_USDT_7(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_7, __VA_ARGS__)
#define RINGSIDE_USDT_8(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_8, __VA_ARGS__)
#define RINGSIDE_USDT_9(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_9, __VA_ARGS__)
#define RINGSIDE_USDT_10(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_10, __VA_ARGS__)
#define RINGSIDE_USDT_11(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_11, __VA_ARGS__)
#define RINGSIDE_USDT_12(system, name, ...) RINGSIDE_USDT_SOME(system, name, RINGSIDE_USDT_TEXT_12, __VA_ARGS__)

/* SystemTap's note, version 3: the probe's address, that of .stapsdt.base, no semaphore; provider, name, arguments. The note
   goes with the section of its code ("?"), of which the linker keeps one. */
#define RINGSIDE_USDT_NOTE(system, name, text, ...)                                                \
  __asm__ __inline__ __volatile__("990: nop\n"                                                     \
                                  ".pushsection .note.stapsdt,\"?\",\"note\"\n"                    \
                                  ".balign 4\n"                                                    \
                                  ".4byte 992f-991f, 994f-993f, 3\n"                               \
                                  "991: .asciz \"stapsdt\"\n"                                      \
                                  "992: .balign 4\n"                                               \
                                  "993: .8byte 990b, _.stapsdt.base, 0\n"                          \
                                  ".asciz \"" system "\"\n"                                        \
                                  ".asciz \"" name "\"\n" text ".byte 0\n"                         \
                                  "994: .balign 4\n"                                               \
                                  ".popsection\n"                                                  \
                                  ".ifndef _.stapsdt.base\n"                                       \
                                  ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
                                  ".weak _.stapsdt.base\n"                                         \
                                  ".hidden _.stapsdt.base\n"                                       \
                                  "_.stapsdt.base: .space 1\n"                                     \
                                  ".size _.stapsdt.base, 1\n"                                      \
                                  ".popsection\n"                                                  \
                                  ".endif\n"                                                       \
                                  : /* no output */                                                \
                                  : __VA_ARGS__)

#ifdef __cplusplus
namespace ringside {
namespace detail {

// What represents a field's value at a probe: a number, or an address.
template <class T>
RINGSIDE_INLINE auto operand_of(const T& value) noexcept {
  if constexpr (is_array<T>) {
    return value.data();
  } else if constexpr (is_stack<T>) {
    return u64{0};
  } else if constexpr (is_text<T>) {
    return std::string_view(value).data();
  } else if constexpr (std::is_same_v<T, bool>) {
    return static_cast<u8>(value);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<std::underlying_type_t<T>>(value);
  } else {
    return value;
  }
}
template <class T>
using Operand = decltype(operand_of(std::declval<const std::decay_t<T>&>()));
template <class T>
inline constexpr int operand_size =
    std::is_integral_v<Operand<T>>&& std::is_signed_v<Operand<T>> ? int{sizeof(Operand<T>)} : -int{sizeof(Operand<T>)};

}  // namespace detail
}  // namespace ringside
#endif

#endif
