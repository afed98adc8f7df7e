#include "writer/call_frame.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>

#ifdef DLFO_EH_SEGMENT_TYPE  // glibc's header since 2.35; weak, because an older glibc may load the library
extern "C" [[gnu::weak]] decltype(_dl_find_object) _dl_find_object;
#endif

namespace ringside {
namespace {

#if defined(__aarch64__)
constexpr u64 register_fp = 29, register_sp = 31, register_ra = 30;
#else
constexpr u64 register_fp = 6, register_sp = 7, register_ra = 16;
#endif

// Bytes of a mapped segment. A read beyond its end yields zeros, and is remembered.
struct TableReader {
  const u8* at;
  const u8* end;
  bool good = true;

  template <class T>
  T take() noexcept {
    T value{};
    if (end < at || static_cast<u64>(end - at) < sizeof value) return fail<T>();
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  template <class T = u64>
  T fail() noexcept {
    good = false;
    at = end;
    return T{};
  }
  u64 uleb() noexcept {
    u64 value = 0;
    for (u32 shift = 0; shift < 64; shift += 7) {
      const u8 byte = take<u8>();
      value |= u64{byte & 0x7Fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return fail();
  }
  i64 sleb() noexcept {
    u64 value = 0;
    for (u32 shift = 0; shift < 64;) {
      const u8 byte = take<u8>();
      value |= u64{byte & 0x7Fu} << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if (shift < 64 && (byte & 0x40) != 0) value |= ~u64{0} << shift;
      return static_cast<i64>(value);
    }
    return fail<i64>();
  }
  void skip(u64 bytes) noexcept {
    if (end < at || static_cast<u64>(end - at) < bytes)
      fail();
    else
      at += bytes;
  }
  // A pointer by its DW_EH_PE encoding. relative: no addition of the place, for a length.
  u64 pointer(u8 encoding, bool relative = true) noexcept {
    const u64 here = reinterpret_cast<u64>(at);
    u64 value = 0;
    switch (encoding & 0x0F) {
      case 0x00: case 0x04: case 0x0C: value = take<u64>(); break;
      case 0x02: value = take<u16>(); break;
      case 0x03: value = take<u32>(); break;
      case 0x0A: value = static_cast<u64>(i64{take<int16_t>()}); break;
      case 0x0B: value = static_cast<u64>(i64{take<i32>()}); break;
      case 0x01: value = uleb(); break;
      case 0x09: value = static_cast<u64>(sleb()); break;
      default: return fail();
    }
    if (!relative) return value;
    switch (encoding & 0x70) {
      case 0x00: return value;
      case 0x10: return value + here;
      default: return fail();
    }
  }
};

constexpr u32 longest_entry = 1 << 20;  // no compiler makes a longer table

struct Cie {
  u64 code_align = 1;
  i64 data_align = 1;
  u64 ra = 0;
  u8 encoding = 0;
  bool augmented = false, is_signal = false;
  TableReader code{nullptr, nullptr};
};

bool read_cie(TableReader r, Cie& cie) noexcept {
  const u32 length = r.take<u32>();
  if (!r.good || length > longest_entry || static_cast<u64>(r.end - r.at) < length) return false;
  r.end = r.at + length;
  if (r.take<u32>() != 0) return false;
  const u8 version = r.take<u8>();
  if (version != 1 && version != 3) return false;
  const char* const augmentation = reinterpret_cast<const char*>(r.at);
  while (r.good && r.take<u8>() != 0) {
  }
  cie.code_align = r.uleb();
  cie.data_align = r.sleb();
  cie.ra = version == 1 ? r.take<u8>() : r.uleb();
  if (!r.good) return false;
  if (augmentation[0] == 'z') {
    cie.augmented = true;
    const u64 size = r.uleb();
    TableReader data = r;
    r.skip(size);
    for (const char* c = augmentation + 1; *c != 0; ++c) {
      if (*c == 'R') cie.encoding = data.take<u8>();
      else if (*c == 'P') (void)data.pointer(data.take<u8>());
      else if (*c == 'L') (void)data.take<u8>();
      else if (*c == 'S') cie.is_signal = true;
      else if (*c != 'B') break;  // the rest is unknown, and not needed
    }
  } else if (augmentation[0] != 0) {
    return false;
  }
  cie.code = r;
  return r.good;
}

// What a row says of one register, in 16 bytes: a walk takes little of its caller's stack, and a row may be kept eightfold.
struct KeptSaved {
  i32 offset;
  u32 size;  // of the expression, which begins at `code` + `expression`
  u32 expression;
  FrameRow::Where where;
};
struct KeptRow {
  KeptSaved fp, ra;
  i32 cfa_offset;
  u32 expression, expression_size;
  bool cfa_by_expression, cfa_of_fp, cfa_unknown;
};

// Rows that are remembered. False: one holds numbers that no compiler's tables have.
class KeptRows {
 public:
  explicit KeptRows(const u8* code) noexcept : code_(code) {}
  bool push(const FrameRow& row) noexcept {
    KeptRow& k = rows_[count_ % most];
    return count_ < most && keep(row.fp, k.fp) && keep(row.ra, k.ra) && fit(row.cfa_offset, k.cfa_offset) &&
           fit(row.expression != nullptr ? row.expression - code_ : 0, k.expression) &&
           fit(row.expression_size, k.expression_size) &&
           (k.cfa_by_expression = row.cfa_by_expression, k.cfa_of_fp = row.cfa_of_fp, k.cfa_unknown = row.cfa_unknown,
            ++count_ != 0);
  }
  bool pop(FrameRow& row) noexcept {
    if (count_ == 0) return false;
    const KeptRow& k = rows_[--count_];
    row.fp = kept(k.fp);
    row.ra = kept(k.ra);
    row.cfa_offset = k.cfa_offset;
    row.expression = code_ + k.expression;
    row.expression_size = k.expression_size;
    row.cfa_by_expression = k.cfa_by_expression;
    row.cfa_of_fp = k.cfa_of_fp;
    row.cfa_unknown = k.cfa_unknown;
    return true;
  }

 private:
  template <class Wide, class Narrow>
  static bool fit(Wide wide, Narrow& narrow) noexcept {
    narrow = static_cast<Narrow>(wide);
    return static_cast<Wide>(narrow) == wide;
  }
  bool keep(const FrameRow::Saved& saved, KeptSaved& k) const noexcept {
    k.where = saved.where;
    return fit(saved.offset, k.offset) && fit(saved.size, k.size) &&
           fit(saved.expression != nullptr ? saved.expression - code_ : 0, k.expression);
  }
  FrameRow::Saved kept(const KeptSaved& k) const noexcept { return {k.where, k.offset, code_ + k.expression, k.size}; }

  static constexpr u32 most = 8;
  const u8* code_;
  u32 count_ = 0;
  KeptRow rows_[most];
};

// Runs call frame instructions up to the row of `address`.
struct Machine {
  const Cie& cie;
  FrameRow row;
  FrameRow::Saved first_fp, first_ra;  // as the CIE has them
  KeptRows kept;
  u64 location = 0;

  FrameRow::Saved* saved(u64 number) noexcept { return number == register_fp ? &row.fp : number == cie.ra ? &row.ra : nullptr; }
  void set(u64 number, FrameRow::Where where, i64 offset = 0) noexcept {
    if (auto* const s = saved(number)) *s = {where, offset, nullptr, 0};
  }
  void restore(u64 number) noexcept {
    if (auto* const s = saved(number)) *s = number == register_fp ? first_fp : first_ra;
  }
  void cfa_register(u64 number) noexcept {
    row.cfa_by_expression = false;
    row.cfa_of_fp = number == register_fp;
    row.cfa_unknown = number != register_fp && number != register_sp;
  }
  i64 scaled(u64 offset) const noexcept { return static_cast<i64>(offset) * cie.data_align; }

  // False: the instruction defines something else.
  bool define_cfa(u8 instruction, TableReader& code) noexcept {
    switch (instruction) {
      case 0x0C: cfa_register(code.uleb()); row.cfa_offset = static_cast<i64>(code.uleb()); return true;
      case 0x0D: cfa_register(code.uleb()); return true;
      case 0x0E: row.cfa_offset = static_cast<i64>(code.uleb()); return true;
      case 0x0F:
        row.expression_size = code.uleb();
        row.expression = code.at;
        row.cfa_by_expression = true;
        row.cfa_unknown = false;
        code.skip(row.expression_size);
        return true;
      case 0x12: cfa_register(code.uleb()); row.cfa_offset = code.sleb() * cie.data_align; return true;
      case 0x13: row.cfa_offset = code.sleb() * cie.data_align; return true;
      default: return false;
    }
  }

  bool run(TableReader code, u64 address) noexcept {
    while (code.good && code.at < code.end) {
      const u8 byte = code.take<u8>();
      const u64 low = byte & 0x3F;
      u64 advance = 0;
      switch (byte & 0xC0) {
        case 0x40: advance = low; break;
        case 0x80: set(low, FrameRow::Where::at_cfa, scaled(code.uleb())); continue;
        case 0xC0: restore(low); continue;
        default: break;
      }
      if ((byte & 0xC0) == 0) switch (byte) {
        case 0x00: continue;
        case 0x01: {
          const u64 to = code.pointer(cie.encoding);
          if (to > address) return true;
          location = to;
          continue;
        }
        case 0x02: advance = code.take<u8>(); break;
        case 0x03: advance = code.take<u16>(); break;
        case 0x04: advance = code.take<u32>(); break;
        case 0x05: { const u64 n = code.uleb(); set(n, FrameRow::Where::at_cfa, scaled(code.uleb())); continue; }
        case 0x06: restore(code.uleb()); continue;
        case 0x07: set(code.uleb(), FrameRow::Where::undefined); continue;
        case 0x08: set(code.uleb(), FrameRow::Where::same); continue;
        case 0x09: { const u64 n = code.uleb(); (void)code.uleb(); set(n, FrameRow::Where::unknown); continue; }
        case 0x0A:
          if (!kept.push(row)) return false;
          continue;
        case 0x0B:
          if (!kept.pop(row)) return false;
          continue;
        case 0x10: {
          const u64 n = code.uleb(), size = code.uleb();
          if (auto* const s = saved(n)) *s = {FrameRow::Where::at_expression, 0, code.at, size};
          code.skip(size);
          continue;
        }
        case 0x11: { const u64 n = code.uleb(); set(n, FrameRow::Where::at_cfa, code.sleb() * cie.data_align); continue; }
        case 0x14: case 0x15: { const u64 n = code.uleb(); (void)code.uleb(); set(n, FrameRow::Where::unknown); continue; }
        case 0x16: {
          const u64 n = code.uleb(), size = code.uleb();
          set(n, FrameRow::Where::unknown);
          code.skip(size);
          continue;
        }
        case 0x2D: continue;  // arm64: the return address is signed from here on, or no longer
        case 0x2E: (void)code.uleb(); continue;
        case 0x2F: { const u64 n = code.uleb(); set(n, FrameRow::Where::at_cfa, -scaled(code.uleb())); continue; }
        default:
          if (!define_cfa(byte, code)) return false;
          continue;
      }
      location += advance * cie.code_align;
      if (location > address) return true;
    }
    return code.good;
  }
};

}  // namespace

bool find_object([[maybe_unused]] u64 address, [[maybe_unused]] MappedObject& object) noexcept {
#ifdef DLFO_EH_SEGMENT_TYPE
  if (dl_find_object found; _dl_find_object != nullptr && _dl_find_object(reinterpret_cast<void*>(address), &found) == 0) {
    object = {reinterpret_cast<u64>(found.dlfo_map_start), reinterpret_cast<u64>(found.dlfo_map_end), found.dlfo_eh_frame,
              found.dlfo_link_map != nullptr ? found.dlfo_link_map->l_name : "",
              found.dlfo_link_map != nullptr ? found.dlfo_link_map->l_addr : 0};
    return true;
  }
#endif
  return false;
}

// The kernel, or the dynamic linker, gives the program's own: the linker may have left gaps between its segments, and then
// `start` is that of one in the middle; so it is in static programs.
static Segments segments_of_program(const MappedObject& object) noexcept {
  if (object.path == nullptr || *object.path != 0 || getauxval(AT_PHENT) != sizeof(ElfW(Phdr))) return {};
  const Segments told{reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR)), static_cast<u32>(getauxval(AT_PHNUM))};
  if (told.first == nullptr) return {};
  for (const ElfW(Phdr)& s : told) {
    if (s.p_type == PT_LOAD && object.start - ((object.bias + s.p_vaddr) & ~u64{page_size - 1}) < s.p_memsz + page_size)
      return told;
  }
  return {};  // they are those of another object
}

Segments segments_of(const MappedObject& object) noexcept {
  if (const Segments told = segments_of_program(object); told.count != 0) return told;
  const auto* const elf = reinterpret_cast<const ElfW(Ehdr)*>(object.start);
  if (object.end - object.start < sizeof *elf || std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (elf->e_phentsize != sizeof(ElfW(Phdr)) || elf->e_phoff > page_size ||
      elf->e_phoff + elf->e_phnum * sizeof(ElfW(Phdr)) > std::min<u64>(page_size, object.end - object.start))
    return {};
  return {reinterpret_cast<const ElfW(Phdr)*>(object.start + elf->e_phoff), elf->e_phnum};
}

bool find_tables(const MappedObject& object, FrameTables& found) noexcept {
  const Segments segments = segments_of(object);
  u64 tables = reinterpret_cast<u64>(object.tables);
  for (const ElfW(Phdr)& s : segments) {
    if (tables == 0 && s.p_type == PT_GNU_EH_FRAME) tables = object.bias + s.p_vaddr;
  }
  if (tables == 0) return false;
  for (const ElfW(Phdr)& s : segments) {
    const u64 at = object.bias + s.p_vaddr;
    if (s.p_type != PT_LOAD || (s.p_flags & PF_R) == 0 || tables < at || tables - at >= s.p_filesz) continue;
    const u8* const begin = reinterpret_cast<const u8*>(at);
    found = {reinterpret_cast<const u8*>(tables), begin, begin + s.p_filesz};
    return true;
  }
  return false;
}

FrameFound find_frame_row(u64 address, FrameRow& row) noexcept {
  MappedObject object;
  FrameTables tables;
  if (!find_object(address, object)) return FrameFound::no_object;
  return find_tables(object, tables) ? find_frame_row(tables, address, row) : FrameFound::no_row;
}

FrameFound find_frame_row(const FrameTables& tables, u64 address, FrameRow& row, u64* bytes) noexcept {
  const u8 *const base = tables.header, *const begin = tables.begin, *const end = tables.end;
  TableReader header{base, end};
  const u8 version = header.take<u8>(), frame_encoding = header.take<u8>(), count_encoding = header.take<u8>(),
           table_encoding = header.take<u8>();
  if (version != 1 || table_encoding != 0x3B)
    return FrameFound::no_row;  // 0x3B: sorted pairs of 32 bits from here, as every linker makes them
  (void)header.pointer(frame_encoding);
  const u64 count = header.pointer(count_encoding, false);
  if (!header.good || count == 0 || count > static_cast<u64>(end - header.at) / 8) return FrameFound::no_row;
  const auto word = [&](u64 entry, u32 half) {
    i32 value;
    std::memcpy(&value, header.at + entry * 8 + half * 4, sizeof value);
    return reinterpret_cast<u64>(base) + static_cast<u64>(i64{value});
  };
  u64 low = 0, high = count;  // the last entry that begins at or before the address
  while (high - low > 1) {
    const u64 middle = low + (high - low) / 2;
    (word(middle, 0) <= address ? low : high) = middle;
  }
  const u64 fde_at = word(low, 1);
  if (fde_at < reinterpret_cast<u64>(begin) || fde_at >= reinterpret_cast<u64>(end)) return FrameFound::no_row;
  TableReader fde{reinterpret_cast<const u8*>(fde_at), end};
  const u32 length = fde.take<u32>();
  if (!fde.good || length > longest_entry || static_cast<u64>(end - fde.at) < length) return FrameFound::no_row;
  fde.end = fde.at + length;
  const u8* const back_from = fde.at;
  const u32 back = fde.take<u32>();
  if (back == 0 || back > static_cast<u64>(back_from - begin)) return FrameFound::no_row;
  Cie cie;
  if (!read_cie({back_from - back, end}, cie)) return FrameFound::no_row;
  const u64 first = fde.pointer(cie.encoding), range = fde.pointer(cie.encoding & 0x0F, false);
  if (!fde.good || address - first >= range) return FrameFound::no_row;
  if (cie.augmented) fde.skip(fde.uleb());
  if (bytes != nullptr) *bytes = length + static_cast<u64>(cie.code.end - cie.code.at);
  Machine machine{cie, {}, {}, {}, KeptRows(begin)};
  machine.row.is_signal = cie.is_signal;
  machine.row.cfa_unknown = true;
  if (cie.ra != register_ra || !machine.run(cie.code, ~u64{0})) return FrameFound::no_row;
  machine.first_fp = machine.row.fp;
  machine.first_ra = machine.row.ra;
  machine.location = first;
  if (!machine.run(fde, address)) return FrameFound::no_row;
  row = machine.row;
  row.function_end = first + range;
  return FrameFound::yes;
}

static u64 calculated(u8 op, u64 a, u64 b) noexcept {
  const auto x = static_cast<i64>(a), y = static_cast<i64>(b);
  switch (op) {
    case 0x1A: return a & b;
    case 0x1C: return a - b;
    case 0x21: return a | b;
    case 0x22: return a + b;
    case 0x24: return b < 64 ? a << b : 0;
    case 0x25: return b < 64 ? a >> b : 0;
    case 0x29: return x == y;
    case 0x2A: return x >= y;
    case 0x2B: return x > y;
    case 0x2C: return x <= y;
    case 0x2D: return x < y;
    default: return x != y;
  }
}

bool evaluate(const u8* code, u64 size, const Registers& registers, bool push_cfa, u64 cfa, LoadWord load, void* context,
              u64& result) noexcept {
  TableReader r{code, code + size};
  u64 stack[16];
  u32 depth = 0;
  if (push_cfa) stack[depth++] = cfa;
  const auto of = [&](u64 number, u64& value) {
    if (number == register_sp) value = registers.sp;
    else if (number == register_fp) value = registers.fp;
    else if (number == register_ra) value = registers.pc;
    else return false;
    return true;
  };
  while (r.good && r.at < r.end) {
    const u8 op = r.take<u8>();
    u64 push = 0;
    if (op >= 0x70 && op <= 0x8F) {  // a register and an offset
      if (!of(op - 0x70u, push)) return false;
      push += static_cast<u64>(r.sleb());
    } else if (op >= 0x30 && op <= 0x4F) {
      push = op - 0x30u;
    } else {
      switch (op) {
        case 0x06:
          if (depth == 0 || !load(context, stack[depth - 1], stack[depth - 1])) return false;
          continue;
        case 0x08: push = r.take<u8>(); break;
        case 0x09: push = static_cast<u64>(i64{static_cast<signed char>(r.take<u8>())}); break;
        case 0x0A: push = r.take<u16>(); break;
        case 0x0B: push = static_cast<u64>(i64{r.take<int16_t>()}); break;
        case 0x0C: push = r.take<u32>(); break;
        case 0x0D: push = static_cast<u64>(i64{r.take<i32>()}); break;
        case 0x0E: case 0x0F: push = r.take<u64>(); break;
        case 0x10: push = r.uleb(); break;
        case 0x11: push = static_cast<u64>(r.sleb()); break;
        case 0x12:
          if (depth == 0) return false;
          push = stack[depth - 1];
          break;
        case 0x23:
          if (depth == 0) return false;
          stack[depth - 1] += r.uleb();
          continue;
        case 0x1A:
        case 0x1C:
        case 0x21:
        case 0x22:
        case 0x24:
        case 0x25:
        case 0x29:
        case 0x2A:
        case 0x2B:
        case 0x2C:
        case 0x2D:
        case 0x2E: {
          if (depth < 2) return false;
          const u64 b = stack[--depth], a = stack[--depth];
          push = calculated(op, a, b);
          break;
        }
        default: return false;
      }
    }
    if (depth == 16) return false;
    stack[depth++] = push;
  }
  if (!r.good || depth == 0) return false;
  result = stack[depth - 1];
  return true;
}

bool step_by_row(const FrameRow& row, Registers& r, LoadWord load, void* context) noexcept {
  if (row.cfa_unknown && !row.cfa_by_expression) return false;
  u64 cfa;
  if (row.cfa_by_expression) {
    if (!evaluate(row.expression, row.expression_size, r, false, 0, load, context, cfa)) return false;
  } else {
    cfa = (row.cfa_of_fp ? r.fp : r.sp) + static_cast<u64>(row.cfa_offset);
  }
  if (cfa <= r.sp && row.ra.where != FrameRow::Where::same) return false;
  const auto fetch = [&](const FrameRow::Saved& saved, u64 same, u64& value) {
    u64 at;
    switch (saved.where) {
      case FrameRow::Where::same: value = same; return true;
      case FrameRow::Where::at_cfa: return load(context, cfa + static_cast<u64>(saved.offset), value);
      case FrameRow::Where::at_expression:
        return evaluate(saved.expression, saved.size, r, true, cfa, load, context, at) && load(context, at, value);
      default: return false;
    }
  };
  u64 ra, fp;
  if (!fetch(row.ra, r.lr, ra)) return false;
  if (!fetch(row.fp, r.fp, fp)) fp = 0;
  r = {ra & code_bits, cfa, fp, 0};
  return true;
}

bool step_over_signal([[maybe_unused]] Registers& r, [[maybe_unused]] LoadWord load, [[maybe_unused]] void* context) noexcept {
  Registers n{};
#if defined(__x86_64__)
  const auto at = [&](int which) { return r.sp + offsetof(ucontext_t, uc_mcontext.gregs) + static_cast<u64>(which) * 8; };
  if (!load(context, at(REG_RIP), n.pc) || !load(context, at(REG_RSP), n.sp) || !load(context, at(REG_RBP), n.fp)) return false;
#elif defined(__aarch64__)
  const u64 at = r.sp + 128 + offsetof(ucontext_t, uc_mcontext);
  if (!load(context, at + offsetof(mcontext_t, pc), n.pc) || !load(context, at + offsetof(mcontext_t, sp), n.sp) ||
      !load(context, at + offsetof(mcontext_t, regs) + 29 * 8, n.fp) ||
      !load(context, at + offsetof(mcontext_t, regs) + 30 * 8, n.lr))
    return false;
  n.pc &= code_bits;
#else
  return false;
#endif
  r = n;
  return true;
}

}  // namespace ringside
