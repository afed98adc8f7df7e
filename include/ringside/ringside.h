// ringside in C: declare events, write them; and the binary interface between call sites and the library, which trace.hpp
// shares.
//
//   RINGSIDE_EVENT(net, packet_in, (uint32_t, length), (const char*, device), (uint8_t[6], mac));   // at file scope
//   net_packet_in(1500, "eth0", mac);                                                                // anywhere
//
//   ringside_span_begin("parse"); ... ringside_span_end("parse");      // spans, on this thread or on a track of a name
//   ringside_instant("cache miss");
//   ringside_counter("queue depth", depth);
//   RINGSIDE_SPAN(db, query, (const char*, sql));                      // at file scope: a span with arguments
//   db_query_begin("SELECT 1"); ... db_query_end("SELECT 1");
//   RINGSIDE_MARKER("took %d of %d", i, n);                            // free text
//
// Where the events go: to the instance that the environment's RINGSIDE_INSTANCE names when the program starts; `ringside record
// ./program` sets it. It is read before main. A program that chooses its instance itself, or sets the variable in main, calls
// ringside_open("name"), or ringside_open(NULL) for the variable's. Without either nothing is written.
//
// C99 with extensions that GCC 12 and Clang 14 have in each mode (_Generic, __typeof__, __VA_OPT__); no warnings with -std=c99
// -pedantic -Wall -Wextra. In C++ include <ringside/trace.hpp>.
//
// Field types: _Bool, char, every integer, float, double, enums, void* (the address), const char* (a string), ringside_stack
// (the calls that led to the event: pass ringside_here), and arrays of the numbers as in (uint8_t[6], mac). At most 32 fields
// and 4,000 bytes with the 8 common ones and the strings' NULs; strings are shortened to fit, NULL reads "(null)". A name that
// C has for something else takes an underscore after it, which the trace does not show: (int, class_), (int, default_).
//
// Cost while disabled: one load and a predicted branch (from -O1). Arguments are evaluated: guard costly ones with
// `if (net_packet_in_enabled())`.
// Safety: every call may be made from any thread and from signal handlers, never blocks and never fails loudly: an event that
// the ring refuses is counted there. Exception: the markers format with vsnprintf, as safe as the C library makes it.
// Stack: a call takes at most 1 KiB below its caller, 2 KiB where the event has a stack of calls; so a handler on an alternate
// stack of SIGSTKSZ bytes and a coroutine of 4 KiB may write. Exception: a marker takes 1 KiB and what vsnprintf takes on top.
// Static TLS: 64 bytes for each copy of the library in a process.
#ifndef RINGSIDE_RINGSIDE_H
#define RINGSIDE_RINGSIDE_H
#ifndef RINGSIDE_WARNINGS  // its macros are clean with any warnings of the program that includes it
#pragma GCC system_header
#endif

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define RINGSIDE_SHARED constexpr
extern "C" {
#else
#define RINGSIDE_SHARED static inline
#endif

// ---------------------------------------------------------------------------------------------------------------------------
// The binary interface

// One byte per hash of "system:event", shared with the controllers. 0: every event with this hash is disabled. There are 4,096;
// the array has a page of its own, of 64 KiB with some kernels.
#if defined(__x86_64__) || defined(__i386__)
#define RINGSIDE_GATE_BYTES 4096
#else
#define RINGSIDE_GATE_BYTES 65536
#endif
extern unsigned char ringside_gate[RINGSIDE_GATE_BYTES];

// A declared event. It lives as long as its program or shared object; several may have one name (a header used by two shared
// objects, or from C and C++): the library gives them one id as long as their format is the same.
struct ringside_event {
  const char* system;                // with `fields`, both may end in an underscore, which the library takes off
  const char* name;
  const char* format_fields;         // the lines of the fields, as in a tracefs format file, with newlines; NULL: `fields`
  const char* print_fmt;             // what follows "print fmt: "; NULL: name=value of each of `fields`; if it begins with no
                                     // quote, a message of the fields in fmt's syntax: "FILE\nLINE\nMESSAGE" (log_format.hpp)
  const struct ringside_field* fields;  // in their order; before them, one without a name that describes all: its size is
                                        // their number, its count that of strings, its offset where those begin, its kind
                                        // RINGSIDE_STACK if one of them is; NULL: the event is written by ringside_write alone
  uint32_t id;                       // atomic; 0: not registered yet; high half: where in the payload, after the fixed fields,
                                     // the number of the caller's stack is; 0: nowhere
  const volatile uint32_t* enabled;  // atomic; the exact word: 0 disabled; null until registered
  struct ringside_event* next;       // the library's
};

// Makes the event known; declarations do it by themselves when their object is loaded, before its static constructors. Returns
// 0 or a negative errno. Idempotent; may be called before the library's own constructors ran: the first call opens the instance
// that the environment names. Not for signal handlers.
int ringside_register(struct ringside_event* event);

// For a function that declares an event: before all constructors of the object, also those with a priority. The compilers keep
// this priority for the implementation, and say so.
#if !defined(__clang__)
#define RINGSIDE_CONSTRUCTOR(priority)                                                   \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wprio-ctor-dtor\"") \
      __attribute__((constructor(priority)))
#define RINGSIDE_CONSTRUCTOR_END _Pragma("GCC diagnostic pop")
#else
#define RINGSIDE_CONSTRUCTOR(priority) __attribute__((constructor(100)))
#define RINGSIDE_CONSTRUCTOR_END
#endif

// Writes the event: `size` bytes from `payload`, of which the first 8, the common ones, are the library's to fill in. Whole or
// not at all; false: refused, and counted, as is a size below 8 or above 4,000. From any thread and any signal handler.
bool ringside_write(struct ringside_event* event, void* payload, uint32_t size);

// What a declared event's call is made of. All write the event if it is enabled; false: it is not, or it was refused, and
// counted. From any thread and any signal handler.
//
// An event whose fields are all numbers: `size` bytes, of which the first 8 are the library's to fill in, and then those of the
// words, up to 3, which registers hold; or all from `payload`, up to 48. The calls of a stack begin where this is called.
bool ringside_write_word(struct ringside_event* event, uint32_t size, uint64_t first);
bool ringside_write_2_words(struct ringside_event* event, uint32_t size, uint64_t first, uint64_t second);
bool ringside_write_3_words(struct ringside_event* event, uint32_t size, uint64_t first, uint64_t second, uint64_t third);
bool ringside_write_numbers(struct ringside_event* event, uint32_t size, void* payload);
// An event with texts, and at most 48 bytes with empty ones: `payload` has room for 48 bytes. The first `fixed` are those of
// ringside_write, with zeros for the texts. caller: where the calls of a stack begin.
struct ringside_text {
  const char* text;
  uint32_t size;  // RINGSIDE_TO_ITS_NUL: it ends in a NUL; then NULL reads "(null)"
  uint32_t at;    // its field's offset
};
#define RINGSIDE_TO_ITS_NUL 0xffffffffu
bool ringside_write_texts(struct ringside_event* event, void* payload, uint32_t fixed, const struct ringside_text* texts,
                          uint32_t n, const void* caller);
// Any event, from its parts: sources[i] points to the value of fields[1 + i]; the table is the caller's own. A string's source
// is the text itself, of lengths[i] bytes, or one that ends in a NUL: lengths NULL, or RINGSIDE_TO_ITS_NUL; then NULL reads
// "(null)". Strings take the room that they need in order, and leave one byte for the NUL of each string after them. The payload
// is put together beside the caller's stack if it is large. caller: where the calls of a stack begin.
bool ringside_write_fields(struct ringside_event* event, const struct ringside_field* fields, const void* const* sources,
                           const uint32_t* lengths, const void* caller);

// The number of the stack of calls that led to `caller`, a return address of this thread, written to the ring as ringside:stack
// unless it holds that stack already. 0: it could not be taken, which is counted. For call sites; from any thread and any
// signal handler.
uint64_t ringside_stack_of(const void* caller);

// ---------------------------------------------------------------------------------------------------------------------------
// Instance control

// Makes this process write into the instance `name` (created if missing; 1 to 63 letters, digits, '-', '_', '.'). With a '/' in
// it, it is a path instead: of an instance that may be anywhere, in a directory that exists. NULL: the one that is open,
// else the one in the environment's RINGSIDE_INSTANCE, else the one named "default". The variable is read by this call, so it
// may be set in main, by setenv. Returns 0 or a negative errno: EINVAL for a bad name, EBUSY if another one is open, EOPNOTSUPP
// if this processor does not have the instance's clock, EACCES, ENOENT or ENOSPC from the file system. Not for signal handlers.
int ringside_open(const char* name);

// How to make an instance that is not there yet. Zeros are the usual values.
struct ringside_options {
  const char* name;    // as ringside_open takes it
  const char* events;  // those that are enabled at first, as ringside_enable takes them; NULL: all
  uint64_t ring_bytes;    // of events that each ring holds; 0: 1 MiB
  uint64_t budget_bytes;  // of memory that all rings may take; 0: a quarter of the machine's
  uint32_t mode;          // what a full ring does
  uint32_t reserved;      // 0
};
enum { RINGSIDE_OVERWRITE = 0 /* it loses its oldest events */, RINGSIDE_DISCARD = 1 /* it refuses new ones, and counts them */ };

// ringside_open, for an instance of your own making; one that is there already stays as it is. size: of the struct. Beside the
// errors of ringside_open: EINVAL also for a size, a mode or a pattern that is none. Not for signal handlers.
int ringside_open_with(const struct ringside_options* options, size_t size);

// The directory of the open instance, which commands take as its name; NULL: none is open. The text stays as long as the
// process.
const char* ringside_instance(void);

// Enables or disables events in the open instance, for all of its programs, and remembers it for events that are declared
// later: "net:*", "net:err,db", as `ringside enable` takes them. 0 or a negative errno: EINVAL for a pattern that is none,
// ENOENT if no instance is open or it was removed, EPERM after ringside_prepare_sandbox, and those of the file system. Not for
// signal handlers.
int ringside_enable(const char* events);
int ringside_disable(const char* events);

// Saves what the rings of the open instance hold now as a recording, which every command reads: `ringside report PATH`.
// PATH.dat, .pftrace, .json, .csv and .tar are files of these formats. An older one is renamed, or replaced. The events leave
// the rings: the next call saves those that came since. Writers go on meanwhile; what they overwrite before it was read is
// counted as lost. It starts `ringside record`, found in PATH, and waits for it, some 0.2 s; the end of the child is a SIGCHLD.
// 0 or a negative errno: ENOENT if no instance is open or there is no command, EIO if that failed (another recorder has the
// rings; the disk is full), ECHILD if the program waited for the child itself, EPERM after ringside_prepare_sandbox. Not for
// signal handlers: in one for a deadly signal there is nothing to save, as rings outlive their program (`ringside crash`).
int ringside_save(const char* path);

// Detaches this process. Events are disabled until the next ringside_open; events written before stay readable. Not for signal
// handlers.
void ringside_close(void);

// For a program that is about to forbid itself system calls, by seccomp or by syscall user dispatch. From here on the library
// makes none in this process, and events go on: what would need one is done now. The memory of the rings is taken, `bytes` of
// it at most (SIZE_MAX: any). 0: events do not go on, but are refused, and counted; strict mode on x86-64 and PR_SET_TSC need
// that, as they forbid any clock. Returns 0, or a negative errno, and then events are refused, and counted: ENOSPC if the rings
// are larger, ENOMEM, EALREADY if it was called before. Refused, and counted, are from here on also the events of children of
// fork, and those of a ring that is resized or makes room for a snapshot; in an instance with rings of threads also those of
// other threads, as far as their rings have no memory, and of handlers that interrupt an event. Threads that begin later have
// their process's name, and events no stacks. A reader that waits sees an event up to 10 ms late. It waits until no other
// thread is in a system call of the library, a second at most: the filter may be for all threads (TSYNC). So no ringside_save
// that takes longer may run meanwhile. There is no way back. Not for signal handlers. docs/guide.md has the list of system
// calls.
int ringside_prepare_sandbox(size_t bytes);

// ---------------------------------------------------------------------------------------------------------------------------
// What an event looks like

enum { RINGSIDE_FIELDS_MAX = 32, RINGSIDE_PAYLOAD_MAX = 4000, RINGSIDE_COMMON_SIZE = 8, RINGSIDE_MARKER_MAX = 1024 };

enum ringside_kind {
  RINGSIDE_BOOL = 1,
  RINGSIDE_CHAR,
  RINGSIDE_UNSIGNED,
  RINGSIDE_SIGNED,
  RINGSIDE_FLOAT,
  RINGSIDE_POINTER,
  RINGSIDE_STRING,  // a u32: low half the offset from the payload's start, high half the length with its NUL
  RINGSIDE_STACK,   // the number of a stack
  RINGSIDE_LEVEL    // a byte: 0 trace, debug, info, warn, error, 5 fatal
};

// The type of a field that holds the stack of calls at the event. Its value at the call is ignored: write ringside_here.
typedef struct {
  uint64_t id;
} ringside_stack;
#ifndef __cplusplus
#define ringside_here ((ringside_stack){0})
#endif

// A value of an enum, and its name. A list ends in one without a name.
struct ringside_symbol {
  const char* name;
  int64_t value;
};

struct ringside_field {
  const char* name;
  uint32_t kind;    // enum ringside_kind
  uint32_t size;    // bytes of one element
  uint32_t count;   // elements of an array; 0: not an array
  uint32_t offset;  // from the payload's start
  const struct ringside_symbol* symbols;  // the names of its values; NULL: they have none
};

// A name's length in the trace, which does not show an underscore at its end: declarations need it where the name means
// something else (net:delete is (net, delete_) in C++).
__attribute__((always_inline)) RINGSIDE_SHARED size_t ringside_plain_length(const char* name) {
  return __builtin_strlen(name) - (__builtin_strlen(name) > 1 && name[__builtin_strlen(name) - 1] == '_');
}

// FNV-1a of a name, carried on from `hash`. Unrolled by hand so that the compilers fold it for literals of up to 64 characters.
#define RINGSIDE_HASH_1(k) hash = i + k < n ? (hash ^ (unsigned char)text[i + k]) * 16777619u : hash;
#define RINGSIDE_HASH_4(k) RINGSIDE_HASH_1(k) RINGSIDE_HASH_1(k + 1) RINGSIDE_HASH_1(k + 2) RINGSIDE_HASH_1(k + 3)
#define RINGSIDE_HASH_16(k) RINGSIDE_HASH_4(k) RINGSIDE_HASH_4(k + 4) RINGSIDE_HASH_4(k + 8) RINGSIDE_HASH_4(k + 12)
__attribute__((always_inline)) RINGSIDE_SHARED uint32_t ringside_hash(uint32_t hash, const char* text) {
  size_t n = ringside_plain_length(text), i = 0;
  RINGSIDE_HASH_16(0)
  RINGSIDE_HASH_16(16)
  RINGSIDE_HASH_16(32) RINGSIDE_HASH_16(48) for (i = 64; i < n; ++i) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
  return hash;
}

// The index into ringside_gate: FNV-1a of "system:name", low 12 bits.
__attribute__((always_inline)) RINGSIDE_SHARED uint32_t ringside_gate_of(const char* system, const char* name) {
  return ringside_hash(ringside_hash(ringside_hash(2166136261u, system), ":"), name) & 4095;
}

// False: every event with this index is certainly disabled.
__attribute__((always_inline)) static inline bool ringside_gate_open(uint32_t gate) {
  return __builtin_expect(__atomic_load_n(&ringside_gate[gate], __ATOMIC_RELAXED) != 0, 0);
}

// After the enable byte let a call through: does the exact word want this event?
static inline bool ringside_wanted(struct ringside_event* event) {
  const volatile uint32_t* word = __atomic_load_n(&event->enabled, __ATOMIC_ACQUIRE);
  return word && __atomic_load_n(word, __ATOMIC_RELAXED) != 0;
}

#ifdef __cplusplus
}
#endif

// ---------------------------------------------------------------------------------------------------------------------------
// Macros that walk a list of fields, each in parentheses: EACH(m, (a, b), (c, d), ) is m(a, b) m(c, d); LIST puts commas
// between. A list ends in an empty argument: so no macro is called with less arguments than C99 wants.

#define RINGSIDE_AGAIN_1(...) RINGSIDE_AGAIN_2(RINGSIDE_AGAIN_2(RINGSIDE_AGAIN_2(RINGSIDE_AGAIN_2(__VA_ARGS__))))
#define RINGSIDE_AGAIN_2(...) RINGSIDE_AGAIN_3(RINGSIDE_AGAIN_3(RINGSIDE_AGAIN_3(RINGSIDE_AGAIN_3(__VA_ARGS__))))
#define RINGSIDE_AGAIN_3(...) RINGSIDE_AGAIN_4(RINGSIDE_AGAIN_4(RINGSIDE_AGAIN_4(RINGSIDE_AGAIN_4(__VA_ARGS__))))
#define RINGSIDE_AGAIN_4(...) __VA_ARGS__
#define RINGSIDE_PARENTHESES ()

#define RINGSIDE_EACH(m, ...) __VA_OPT__(RINGSIDE_AGAIN_1(RINGSIDE_EACH_STEP(m, __VA_ARGS__)))
#define RINGSIDE_EACH_STEP(m, f, ...) m f __VA_OPT__(RINGSIDE_EACH_NEXT RINGSIDE_PARENTHESES(m, __VA_ARGS__))
#define RINGSIDE_EACH_NEXT() RINGSIDE_EACH_STEP

#define RINGSIDE_LIST(m, ...) __VA_OPT__(RINGSIDE_AGAIN_1(RINGSIDE_LIST_STEP(m, __VA_ARGS__)))
#define RINGSIDE_LIST_STEP(m, f, ...) m f __VA_OPT__(, RINGSIDE_LIST_NEXT RINGSIDE_PARENTHESES(m, __VA_ARGS__))
#define RINGSIDE_LIST_NEXT() RINGSIDE_LIST_STEP

#define RINGSIDE_FIRST(first, ...) first

// ---------------------------------------------------------------------------------------------------------------------------
// The C face

#ifndef __cplusplus

// What a field's type is: kind << 8 | bytes of an element, and bit 16 for an array (which _Generic sees as a pointer).
#define RINGSIDE_A(T) (*(__typeof__(T)*)0)
// clang-format off
#define RINGSIDE_CASE(T, kind) T: (kind) << 8 | (int)sizeof(T), T*: 1 << 16 | (kind) << 8 | (int)sizeof(T)
#define RINGSIDE_CODE(T)                                          \
  __extension__ _Generic(RINGSIDE_A(T),                           \
           RINGSIDE_CASE(_Bool, RINGSIDE_BOOL),                   \
           RINGSIDE_CASE(char, RINGSIDE_CHAR),                    \
           RINGSIDE_CASE(unsigned char, RINGSIDE_UNSIGNED),       \
           RINGSIDE_CASE(unsigned short, RINGSIDE_UNSIGNED),      \
           RINGSIDE_CASE(unsigned, RINGSIDE_UNSIGNED),            \
           RINGSIDE_CASE(unsigned long, RINGSIDE_UNSIGNED),       \
           RINGSIDE_CASE(unsigned long long, RINGSIDE_UNSIGNED),  \
           RINGSIDE_CASE(signed char, RINGSIDE_SIGNED),           \
           RINGSIDE_CASE(short, RINGSIDE_SIGNED),                 \
           RINGSIDE_CASE(int, RINGSIDE_SIGNED),                   \
           RINGSIDE_CASE(long, RINGSIDE_SIGNED),                  \
           RINGSIDE_CASE(long long, RINGSIDE_SIGNED),             \
           RINGSIDE_CASE(float, RINGSIDE_FLOAT),                  \
           RINGSIDE_CASE(double, RINGSIDE_FLOAT),                 \
           void*: RINGSIDE_POINTER << 8 | (int)sizeof(void*),       \
           const void*: RINGSIDE_POINTER << 8 | (int)sizeof(void*), \
           ringside_stack: RINGSIDE_STACK << 8 | 8,                 \
           const char*: RINGSIDE_STRING << 8 | 4)
// clang-format on
#define RINGSIDE_IS_ARRAY(T) (RINGSIDE_CODE(T) >> 16)
#define RINGSIDE_IS_STRING(T) ((RINGSIDE_CODE(T) >> 8) == RINGSIDE_STRING)

#define RINGSIDE_CHECK(T, name)                                                                             \
  __extension__ _Static_assert(                                                                             \
      !RINGSIDE_IS_ARRAY(T) || !__builtin_types_compatible_p(__typeof__(T), __typeof__(RINGSIDE_A(T) + 0)), \
      "ringside: '" #name "': write arrays as (uint8_t[6], mac), strings as (const char*, path)");
#define RINGSIDE_MEMBER(T, name) __typeof__(__extension__ _Generic(RINGSIDE_A(T), const char* : (uint32_t)0, default : RINGSIDE_A(T))) name;
#define RINGSIDE_FIELD(T, name)                                                                     \
  {#name, RINGSIDE_CODE(T) >> 8 & 255, RINGSIDE_CODE(T) & 255,                                      \
   RINGSIDE_IS_ARRAY(T) ? (uint32_t)(sizeof(__typeof__(T)) / (size_t)(RINGSIDE_CODE(T) & 255)) : 0, \
   (uint32_t)offsetof(ringside_layout, name), NULL},
#define RINGSIDE_PARAMETER(T, name) __typeof__(T) name
// A function's parameters, in parentheses: (void) without any, as empty ones are no prototype in C.
#define RINGSIDE_PARAMETERS(...) RINGSIDE_FIRST(__VA_OPT__((RINGSIDE_LIST(RINGSIDE_PARAMETER, __VA_ARGS__)), )(void), )
#define RINGSIDE_ARGUMENT(T, name) name
#define RINGSIDE_SOURCE(T, name) \
  (RINGSIDE_IS_ARRAY(T) || RINGSIDE_IS_STRING(T) ? (const void*)(uintptr_t)name : (const void*)&name),
#define RINGSIDE_ONE(T, name) +1
#define RINGSIDE_NUL(T, name) +RINGSIDE_IS_STRING(T)
#define RINGSIDE_TAKES_STACK(T, name) +((RINGSIDE_CODE(T) >> 8) == RINGSIDE_STACK)

#ifdef RINGSIDE_USDT  // each call is a USDT probe, too
#include <ringside/usdt.h>
#define RINGSIDE_PROBE(system, name, ...) RINGSIDE_USDT_PROBE(system, name, RINGSIDE_OPERAND, __VA_ARGS__);
#define RINGSIDE_OPERAND(T, name)                                                                               \
  "n"(RINGSIDE_IS_ARRAY(T) || RINGSIDE_IS_STRING(T)                     ? -8                                    \
      : ((RINGSIDE_CODE(T) >> 8 & 255) == RINGSIDE_SIGNED ? 1 : -1) * (RINGSIDE_CODE(T) & 255)),                \
      "nor"(name)
#else
#define RINGSIDE_PROBE(...)
#endif

#define RINGSIDE_FIXED(id) (uint32_t)offsetof(struct ringside_layout_##id, ringside_end)

// Declares the event `system:name` at file scope, in a source or a header, and with it
//   void system_name(fields...)       writes it, if enabled
//   bool system_name_enabled(void)    is it enabled now?
#define RINGSIDE_EVENT(system, ...) RINGSIDE_EVENT_FIELDS(system, __VA_ARGS__, )
#define RINGSIDE_EVENT_FIELDS(system, name, ...) RINGSIDE_EVENT_NAMED(system, name, system##_##name, NULL, __VA_ARGS__)

// The same with your own print format, as in a tracefs format file: "\"%d\", REC->code". NULL: name=value of each field.
#define RINGSIDE_EVENT_AS(system, name, ...) RINGSIDE_EVENT_PRINT(system, name, __VA_ARGS__, )
#define RINGSIDE_EVENT_PRINT(system, name, print, ...) RINGSIDE_EVENT_NAMED(system, name, system##_##name, print, __VA_ARGS__)

// The event's own table is that of the object which defines it, and stays; a call has its unit's.
#define RINGSIDE_EVENT_NAMED(system_, name_, id, print, ...)                                                                 \
  __extension__ _Static_assert((0 RINGSIDE_EACH(RINGSIDE_ONE, __VA_ARGS__)) <= RINGSIDE_FIELDS_MAX,                          \
                               "ringside: at most 32 fields");                                                               \
  RINGSIDE_EACH(RINGSIDE_CHECK, __VA_ARGS__)                                                                                 \
  struct ringside_layout_##id {                                                                                              \
    uint32_t ringside_common[2];                                                                                             \
    RINGSIDE_EACH(RINGSIDE_MEMBER, __VA_ARGS__)                                                                              \
    unsigned char ringside_end[];                                                                                            \
  };                                                                                                                         \
  __extension__ _Static_assert(RINGSIDE_FIXED(id) RINGSIDE_EACH(RINGSIDE_NUL, __VA_ARGS__) <= RINGSIDE_PAYLOAD_MAX,          \
                               "ringside: the fields of an event take at most 4,000 bytes");                                 \
  __attribute__((weak)) struct ringside_event ringside_event_##id = {#system_, #name_, NULL, print, NULL, 0, NULL, NULL};    \
  static inline const struct ringside_field* ringside_fields_##id(void) {                                                    \
    typedef struct ringside_layout_##id ringside_layout __attribute__((unused));                                             \
    static const struct ringside_field fields[] = {                                                                          \
        {NULL, (0 RINGSIDE_EACH(RINGSIDE_TAKES_STACK, __VA_ARGS__)) != 0 ? RINGSIDE_STACK : 0,                               \
         0 RINGSIDE_EACH(RINGSIDE_ONE, __VA_ARGS__), 0 RINGSIDE_EACH(RINGSIDE_NUL, __VA_ARGS__), RINGSIDE_FIXED(id), NULL},  \
        RINGSIDE_EACH(RINGSIDE_FIELD, __VA_ARGS__)};                                                                         \
    return fields;                                                                                                           \
  }                                                                                                                          \
  RINGSIDE_CONSTRUCTOR(100) static void ringside_register_##id(void) {                                                       \
    if (!ringside_event_##id.fields) ringside_event_##id.fields = ringside_fields_##id();                                    \
    ringside_register(&ringside_event_##id);                                                                                 \
  }                                                                                                                          \
  RINGSIDE_CONSTRUCTOR_END                                                                                                   \
  __attribute__((noinline, unused)) static void ringside_write_##id RINGSIDE_PARAMETERS(__VA_ARGS__) {                       \
    const void* const ringside_sources[] = {RINGSIDE_EACH(RINGSIDE_SOURCE, __VA_ARGS__) NULL};                               \
    ringside_write_fields(&ringside_event_##id, ringside_fields_##id(), ringside_sources, NULL, __builtin_return_address(0));\
  }                                                                                                                          \
  __attribute__((always_inline, unused)) static inline bool id##_enabled(void) {                                             \
    return ringside_gate_open(ringside_gate_of(#system_, #name_)) && ringside_wanted(&ringside_event_##id);                  \
  }                                                                                                                          \
  __attribute__((always_inline, unused)) static inline void id RINGSIDE_PARAMETERS(__VA_ARGS__) {                            \
    RINGSIDE_PROBE(#system_, #name_, __VA_ARGS__)                                                                            \
    if (ringside_gate_open(ringside_gate_of(#system_, #name_)))                                                              \
      ringside_write_##id(RINGSIDE_LIST(RINGSIDE_ARGUMENT, __VA_ARGS__));                                                    \
  }                                                                                                                          \
  extern struct ringside_event ringside_event_##id

// The ready-made events; <ringside/trace.hpp> says what their fields mean. They are the same in C and C++, and so are the calls
// below, in names and order of arguments: the C++ overloads with a track are ringside_NAME_on here, those with a flow
// ringside_NAME_flow, and a counter's with a double is ringside_real_counter.
RINGSIDE_EVENT_AS(ringside, marker, "\"%s\", __get_str(buf)", (void*, ip), (const char*, buf));
RINGSIDE_EVENT(ringside, span, (char, track_event_type), (const char*, slice_name));
RINGSIDE_EVENT(ringside, track_span, (char, track_event_type), (const char*, slice_name), (const char*, track_name));
RINGSIDE_EVENT(ringside, async_span, (char, track_event_type), (const char*, slice_name), (uint64_t, async_id));
RINGSIDE_EVENT(ringside, flow_span, (char, track_event_type), (const char*, slice_name), (uint64_t, flow_id));
RINGSIDE_EVENT_NAMED(ringside, counter, ringside_counter_event, NULL, (int64_t, counter_value), (const char*, track_name), );
RINGSIDE_EVENT_NAMED(ringside, real_counter, ringside_real_counter_event, NULL, (double, counter_value), (const char*, track_name), );
RINGSIDE_EVENT_NAMED(ringside, process_counter, ringside_process_counter_event, NULL, (double, counter_value),
                     (const char*, track_name), (int32_t, scope_tgid), );

// A slice of this thread's time, or of this thread's track of that name. Slices of one track must nest. Names are copied.
static inline void ringside_span_begin(const char* name) { ringside_span('B', name); }
static inline void ringside_span_end(const char* name) { ringside_span('E', name); }
static inline void ringside_span_begin_on(const char* name, const char* track) { ringside_track_span('B', name, track); }
static inline void ringside_span_end_on(const char* name, const char* track) { ringside_track_span('E', name, track); }

// A point in time.
static inline void ringside_instant(const char* name) { ringside_span('I', name); }
static inline void ringside_instant_on(const char* name, const char* track) { ringside_track_span('I', name, track); }

// The same, connected with all others of this id, which is not 0, on any thread of any process.
static inline void ringside_span_begin_flow(const char* name, uint64_t id) { ringside_flow_span('B', name, id); }
static inline void ringside_span_end_flow(const char* name, uint64_t id) { ringside_flow_span('E', name, id); }
static inline void ringside_instant_flow(const char* name, uint64_t id) { ringside_flow_span('I', name, id); }

// A span that may end on another thread than it began on. `id` separates it from others of its name open at the same time
// in this process; an address will do.
static inline void ringside_async_begin(const char* name, uint64_t id) { ringside_async_span('B', name, id); }
static inline void ringside_async_end(const char* name, uint64_t id) { ringside_async_span('E', name, id); }
static inline void ringside_async_instant(const char* name, uint64_t id) { ringside_async_span('I', name, id); }

// The value of a counter from now on: each thread has counters of its own; one of the process is for all its threads.
static inline void ringside_counter(const char* name, int64_t value) { ringside_counter_event(value, name); }
static inline void ringside_real_counter(const char* name, double value) { ringside_real_counter_event(value, name); }
static inline void ringside_process_counter(const char* name, double value) { ringside_process_counter_event(value, name, 0); }

// The frames of a program that draws, samples or ticks, a slice each: RINGSIDE_FRAME("render"), a statement, ends the last one
// and begins the next. They are async spans of that name, numbered from 1: `ringside latency async` has their times. One thread at a
// time marks frames.
struct ringside_frames {
  uint64_t number, open;
};
static inline void ringside_frame_mark(struct ringside_frames* frames, const char* name) {
  uint64_t last = __atomic_exchange_n(&frames->open, (uint64_t)0, __ATOMIC_RELAXED), next;
  if (last != 0) ringside_async_end(name, last);
  if (!ringside_async_span_enabled()) return;
  next = __atomic_add_fetch(&frames->number, (uint64_t)1, __ATOMIC_RELAXED);
  ringside_async_begin(name, next);
  __atomic_store_n(&frames->open, next, __ATOMIC_RELAXED);
}
#define RINGSIDE_FRAME(name)                       \
  do {                                             \
    static struct ringside_frames ringside_frames; \
    ringside_frame_mark(&ringside_frames, name);   \
  } while (0)

// Declares a span of a category with its arguments at file scope, RINGSIDE_SPAN(db, query, (const char*, sql)), and with it
//   void db_query_begin(fields...), db_query_end(fields...)     a slice `query` of this thread
//   bool db_query_enabled(void)
// It is the event db:query, enabled by itself, with the fields track_event_type and slice_name before its own ones.
#define RINGSIDE_SPAN(category, ...) RINGSIDE_SPAN_FIELDS(category, __VA_ARGS__, )
#define RINGSIDE_SPAN_FIELDS(category, name, ...)                                                                         \
  RINGSIDE_EVENT_NAMED(category, name, category##_##name, NULL, (char, track_event_type), (const char*, slice_name),      \
                       __VA_ARGS__);                                                                                      \
  __attribute__((unused)) static inline void category##_##name##_begin RINGSIDE_PARAMETERS(__VA_ARGS__) {                 \
    category##_##name('B', #name RINGSIDE_EACH(RINGSIDE_AND_ARGUMENT, __VA_ARGS__));                                      \
  }                                                                                                                       \
  __attribute__((unused)) static inline void category##_##name##_end RINGSIDE_PARAMETERS(__VA_ARGS__) {                   \
    category##_##name('E', #name RINGSIDE_EACH(RINGSIDE_AND_ARGUMENT, __VA_ARGS__));                                      \
  }                                                                                                                       \
  extern struct ringside_event ringside_event_##category##_##name
#define RINGSIDE_AND_ARGUMENT(T, name) , name

__attribute__((format(printf, 1, 2), noinline, unused)) static void ringside_marker_format(const char* format, ...) {
  char text[RINGSIDE_MARKER_MAX];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = 0;
  va_end(arguments);
  ringside_marker(__builtin_return_address(0), text);
}

// Free text as printf would print it, up to 1,023 bytes. Arguments are evaluated only if the event ringside:marker is enabled.
#define RINGSIDE_MARKER(...)                                            \
  do {                                                                  \
    if (ringside_marker_enabled()) ringside_marker_format(__VA_ARGS__); \
  } while (0)

#endif  // !__cplusplus
#endif  // RINGSIDE_RINGSIDE_H
