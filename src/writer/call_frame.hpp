// How to find a function's caller: the rules that compilers put beside the code (DWARF call frame information in .eh_frame).
//
// No lock, no allocation, no system call: the object that has the code is found by glibc's _dl_find_object (2.35), its tables
// are read where they are mapped. Signal-safe.
#pragma once
#include <link.h>

#include <ringside/base/types.hpp>

namespace ringside {

// The registers that a rule may name. lr: arm64's; 0: unknown.
struct Registers {
  u64 pc, sp, fp, lr;
};

// A row of the table: CFA, the stack pointer before the call, and where the caller's values are.
struct FrameRow {
  enum class Where : u8 { same, undefined, at_cfa, at_expression, unknown };
  struct Saved {
    Where where = Where::same;
    i64 offset = 0;              // at_cfa: from CFA
    const u8* expression = nullptr;  // at_expression: computes the address
    u64 size = 0;
  };
  bool cfa_by_expression = false, cfa_of_fp = false, cfa_unknown = false;
  i64 cfa_offset = 0;
  const u8* expression = nullptr;
  u64 expression_size = 0;
  Saved fp, ra;
  bool is_signal = false;  // the code to which a signal handler returns: the interrupted registers are on the stack
  u64 function_end = 0;    // the address after the function
};

// An object that is mapped here: a program, a library, the kernel's vDSO.
struct MappedObject {
  u64 start = 0, end = 0;  // of one segment, where others of the process lie between the object's
  const void* tables = nullptr;  // .eh_frame_hdr; null: its program headers may name it
  const char* path = nullptr;    // as the dynamic linker has it; empty: the program itself
  u64 bias = 0;                  // what is added to the addresses in its file
};
// False: no object has this address, or the C library has no answer (before glibc 2.35).
bool find_object(u64 address, MappedObject& object) noexcept;

// Its program headers, where they are mapped; count 0: they are not.
struct Segments {
  const ElfW(Phdr)* first = nullptr;
  u32 count = 0;
  const ElfW(Phdr)* begin() const noexcept { return first; }
  const ElfW(Phdr)* end() const noexcept { return first + count; }
};
Segments segments_of(const MappedObject& object) noexcept;

// The tables of an object: .eh_frame_hdr, and the segment that has it. In a copy, addresses are as if the object were mapped
// there.
struct FrameTables {
  const u8 *header = nullptr, *begin = nullptr, *end = nullptr;
};
bool find_tables(const MappedObject& object, FrameTables& tables) noexcept;

enum class FrameFound : u8 { yes, no_object, no_row };
// The row for the instruction at `address`.
FrameFound find_frame_row(u64 address, FrameRow& row) noexcept;
// bytes: of the tables that were run through.
FrameFound find_frame_row(const FrameTables& tables, u64 address, FrameRow& row, u64* bytes = nullptr) noexcept;

// Computes a DWARF expression. load(address, value): false if nothing can be read there.
using LoadWord = bool (*)(void* context, u64 address, u64& value) noexcept;
bool evaluate(const u8* code, u64 size, const Registers& registers, bool push_cfa, u64 cfa, LoadWord load, void* context,
              u64& result) noexcept;

// The caller's registers; false: its frame is impossible.
bool step_by_row(const FrameRow& row, Registers& r, LoadWord load, void* context) noexcept;
// Those that a signal interrupted, from the frame that the kernel made.
bool step_over_signal(Registers& r, LoadWord load, void* context) noexcept;

#if defined(__aarch64__)
inline constexpr u64 code_bits = (u64{1} << 48) - 1;  // the rest may be a signature of the address
#else
inline constexpr u64 code_bits = ~u64{0};
#endif

}  // namespace ringside
