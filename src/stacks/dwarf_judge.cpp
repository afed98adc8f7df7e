#include "stacks/dwarf_judge.hpp"

#include <dwarf.h>
#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ringside {
namespace {

// What libdw (0.188 to 0.192) keeps, rounded up.
constexpr u64 of_an_operation = 128;  // it has at least a byte
constexpr u64 of_a_unit = 1024, of_an_abbreviation_byte = 16, of_a_line_byte = 128, of_a_file = 64;
constexpr u64 most_attributes = 4096;
constexpr u64 of_a_step = 256;        // bytes of a text, which are passed over to find what comes after it
constexpr u64 longest_shared = 4096;  // of names that many may share: the longest path

struct DwarfReader {
  const u8 *at = nullptr, *end = nullptr;
  bool good = true;

  explicit DwarfReader(Bytes bytes, u64 offset = 0) : at(bytes.data), end(bytes.data + bytes.size) { skip(offset); }
  u64 left() const { return static_cast<u64>(end - at); }
  void skip(u64 bytes) {
    if (bytes > left())
      fail();
    else
      at += bytes;
  }
  void fail() {
    good = false;
    at = end;
  }
  u64 number(u32 bytes) {
    u64 value = 0;
    if (bytes > left()) return fail(), 0;
    std::memcpy(&value, at, bytes);
    at += bytes;
    return value;
  }
  u64 uleb() {
    u64 value = 0;
    for (u32 shift = 0; at != end; shift += 7) {
      const u8 byte = *at++;
      if (shift < 64) value |= u64{byte & 0x7Fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return fail(), 0;
  }
  u64 text() {                                                                                          // its length
    const auto* const zero = at != end ? static_cast<const u8*>(std::memchr(at, 0, left())) : nullptr;  // at may be null
    if (zero == nullptr) return fail(), 0;
    const auto length = static_cast<u64>(zero - at);
    at = zero + 1;
    return length;
  }
  // A length, and of how many bytes offsets are.
  u64 length(u32& offsets) {
    const u64 first = number(4);
    offsets = first == 0xFFFFFFFF ? 8 : 4;
    return offsets == 8 ? number(8) : first;
  }
};

struct Abbreviations {
  u64 bytes = 0;       // up to the one with the code, or all
  u64 attributes = 0;  // of the one that has most
};
Abbreviations read_abbreviations(Bytes section, u64 offset, u64 code) {
  DwarfReader in(section, offset);
  const u8* const begin = in.at;
  Abbreviations out;
  while (in.good) {
    const u64 its = in.uleb();
    if (its == 0) break;
    (void)in.uleb();
    in.skip(1);
    u64 attributes = 0;
    for (u64 name = 1, form = 1; in.good && (name != 0 || form != 0); ++attributes) {
      name = in.uleb();
      form = in.uleb();
      if (form == DW_FORM_implicit_const) (void)in.uleb();
    }
    out.attributes = std::max(out.attributes, attributes);
    if (its == code) break;
  }
  out.bytes = static_cast<u64>(in.at - begin);
  return out;
}

// The longest text that may be among the entries of a unit.
u64 longest_run(Bytes section, u64 offset) {
  DwarfReader in(section, offset);
  u32 offsets = 4;
  const u64 length = in.length(offsets);
  if (!in.good) return 0;
  in.end = in.at + std::min(length, in.left());
  u64 longest = 0, its = 0;
  for (; in.at != in.end; ++in.at) {
    its = *in.at != 0 ? its + 1 : 0;
    longest = std::max(longest, its);
  }
  return longest;
}

// One of the tables of directories and files of DWARF 5: the length of its longest and of all names.
struct LineNames {
  u64 count = 0, longest = 0, all = 0;
};
LineNames read_names(DwarfReader& in, u32 offsets, Bytes strings, Bytes line_strings) {
  LineNames out;
  std::pair<u64, u64> forms[256];
  const u64 columns = in.number(1);
  for (u64 i = 0; i < columns; ++i) {
    forms[i].first = in.uleb();
    forms[i].second = in.uleb();
  }
  out.count = in.uleb();
  const u8* const begin = in.at;
  for (u64 n = 0; n < out.count && in.good; ++n) {
    for (u64 i = 0; i < columns && in.good; ++i) {
      u64 length = 0;
      const auto shared = [&](Bytes from) {
        DwarfReader at(from, in.number(offsets));
        at.end = at.at + std::min(at.left(), longest_shared + 1);
        const u64 its = at.text();
        return at.good ? its : ~u64{0} >> 32;
      };
      switch (forms[i].second) {
        case DW_FORM_string:
          length = in.text();
          break;
        case DW_FORM_line_strp:
          length = shared(line_strings);
          break;
        case DW_FORM_strp:
          length = shared(strings);
          break;
        case DW_FORM_strp_sup:
          in.skip(offsets);
          length = 4096;
          break;
        case DW_FORM_udata:
        case DW_FORM_strx:
          (void)in.uleb();
          break;
        case DW_FORM_data1:
        case DW_FORM_strx1:
          in.skip(1);
          break;
        case DW_FORM_data2:
        case DW_FORM_strx2:
          in.skip(2);
          break;
        case DW_FORM_strx3:
          in.skip(3);
          break;
        case DW_FORM_data4:
        case DW_FORM_strx4:
          in.skip(4);
          break;
        case DW_FORM_data8:
          in.skip(8);
          break;
        case DW_FORM_data16:
          in.skip(16);
          break;
        case DW_FORM_block:
          in.skip(in.uleb());
          break;
        default:
          in.fail();
          break;
      }
      out.longest = std::max(out.longest, length);
      out.all += length;
    }
    if (in.at == begin) break;  // entries of no bytes
  }
  return out;
}

// What libdw would allocate for the lines at an offset; 0: it cannot read them either.
u64 size_of_lines(Bytes lines, Bytes strings, Bytes line_strings, u64 offset, u64 folder) {
  DwarfReader in(lines, offset);
  u32 offsets = 4;
  const u64 length = in.length(offsets);
  if (!in.good || length > in.left()) return 0;
  in.end = in.at + length;
  const u64 version = in.number(2);
  if (version >= 5) in.skip(2);
  (void)in.number(offsets);
  in.skip(version >= 4 ? 5 : 4);
  const u64 opcodes = in.number(1);
  in.skip(opcodes == 0 ? 0 : opcodes - 1);
  LineNames folders, files;
  if (version >= 5) {
    folders = read_names(in, offsets, strings, line_strings);
    files = read_names(in, offsets, strings, line_strings);
  } else {
    while (const u64 size = in.text()) {
      ++folders.count;
      folders.longest = std::max(folders.longest, size);
    }
    while (const u64 size = in.text()) {
      ++files.count;
      files.all += size;
      for (u32 i = 0; i < 3; ++i) (void)in.uleb();
    }
  }
  // Each name is made of the unit's directory, its own and itself.
  const u64 all = std::min(files.count, length) * (of_a_file + folder + folders.longest + 2) + files.all +
                  std::min(folders.count, length) * of_a_file;
  return all + length * of_a_line_byte;
}

// A list of locations: its bytes, and those of its longest expression, which is what libdw expands.
struct Locations {
  u64 bytes = 0, longest = 0;
};
Locations read_locations(Bytes section, u64 offset, u32 version, u32 address) {
  DwarfReader in(section, offset);
  const u8* const begin = in.at;
  Locations out;
  const auto expression = [&](u64 length) {
    out.longest = std::max(out.longest, length);
    in.skip(length);
  };
  while (in.good) {
    if (version < 5) {
      const u64 first = in.number(address), second = in.number(address);
      if (first == 0 && second == 0) break;
      if (first != (address == 4 ? u64{0xFFFFFFFF} : ~u64{0})) expression(in.number(2));
      continue;
    }
    const u64 kind = in.number(1);
    if (kind == DW_LLE_end_of_list || kind > DW_LLE_start_length) break;
    const bool first_is_address = kind >= DW_LLE_base_address;
    if (kind != DW_LLE_default_location) {
      if (first_is_address)
        in.skip(address);
      else
        (void)in.uleb();
    }
    if (kind == DW_LLE_base_addressx || kind == DW_LLE_base_address) continue;
    if (kind == DW_LLE_start_end)
      in.skip(address);
    else if (kind != DW_LLE_default_location)
      (void)in.uleb();
    expression(in.uleb());
  }
  out.bytes = static_cast<u64>(in.at - begin);
  return out;
}

}  // namespace

const DwarfJudge::Sections& DwarfJudge::sections_of(Dwarf* dwarf) {
  const auto [at, fresh] = sections_.try_emplace(dwarf);
  Sections& out = at->second;
  Elf* const file = dwarf_getelf(dwarf);
  size_t names = 0;
  if (!fresh || elf_getshdrstrndx(file, &names) != 0) return out;
  const std::pair<std::string_view, Bytes*> known[] = {{"debug_info", &out.info},
                                                       {"debug_types", &out.types},
                                                       {"debug_abbrev", &out.abbreviations},
                                                       {"debug_line", &out.lines},
                                                       {"debug_str", &out.strings},
                                                       {"debug_line_str", &out.line_strings},
                                                       {"debug_loc", &out.locations},
                                                       {"debug_loclists", &out.location_lists}};
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(file, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
    const char* const text = elf_strptr(file, names, header.sh_name);
    std::string_view name = text == nullptr ? "" : text;
    if (name.ends_with(".dwo")) name.remove_suffix(4);
    name.remove_prefix(name.starts_with(".zdebug") ? 2 : name.starts_with(".debug") ? 1 : 0);
    for (const auto& [wanted, bytes] : known) {
      if (name != wanted) continue;
      const Elf_Data* const data = elf_rawdata(section, nullptr);
      if (data != nullptr && data->d_buf != nullptr) *bytes = {static_cast<const u8*>(data->d_buf), data->d_size};
    }
  }
  return out;
}

bool DwarfJudge::may_list(Dwarf* dwarf) {
  const Sections& sections = sections_of(dwarf);
  for (const bool of_types : {false, true}) {
    DwarfReader in(of_types ? sections.types : sections.info);
    while (in.left() != 0) {
      u32 offsets = 4;
      const u64 length = in.length(offsets);
      if (!in.good || length > in.left()) break;
      DwarfReader unit({in.at, length});
      in.skip(length);
      const u64 version = unit.number(2);
      const u64 type = version >= 5 ? unit.number(1) : 0;
      if (version >= 5) unit.skip(1);
      const u64 offset = unit.number(offsets);
      if (version < 5) unit.skip(1);
      if (type == DW_UT_skeleton || type == DW_UT_split_compile) unit.skip(8);
      if (type == DW_UT_type || type == DW_UT_split_type || of_types) unit.skip(8 + offsets);
      const u64 code = unit.uleb();
      if (!unit.good) continue;
      const Abbreviations first = read_abbreviations(sections.abbreviations, offset, code);
      if (!budget_.step(32 + first.bytes) || !budget_.take(of_a_unit + first.bytes * of_an_abbreviation_byte)) return false;
    }
  }
  return true;
}

u64 DwarfJudge::weight(Dwarf_CU* unit) {
  const auto [at, fresh] = weights_.try_emplace(unit);
  if (!fresh || budget_.steps() == 0) return at->second;
  Dwarf_Die die;
  Dwarf_Off offset = 0;
  if (dwarf_cu_die(unit, &die, nullptr, &offset, nullptr, nullptr, nullptr, nullptr) == nullptr) return 0;
  const Sections& sections = sections_of(dwarf_cu_getdwarf(unit));
  const Abbreviations all = read_abbreviations(sections.abbreviations, offset, 0);
  const auto* const entry = static_cast<const u8*>(die.addr);
  const bool of_info = entry >= sections.info.data && entry < sections.info.data + sections.info.size;
  const Bytes units = of_info ? sections.info : sections.types;
  const u64 text = longest_run(units, dwarf_dieoffset(&die) - dwarf_cuoffset(&die));
  const bool fits = all.attributes <= most_attributes && budget_.step(all.bytes) &&
                    budget_.take(sizeof(u64) * 8 + all.bytes * of_an_abbreviation_byte);
  return at->second = fits ? 4 + all.attributes / 4 + text / of_a_step : 0;
}

bool DwarfJudge::may_read_lines(Dwarf_Die& unit) {
  Dwarf_Attribute attribute;
  Dwarf_Word offset = 0;
  if (dwarf_attr(&unit, DW_AT_stmt_list, &attribute) == nullptr || dwarf_formudata(&attribute, &offset) != 0) return false;
  Dwarf* const dwarf = dwarf_cu_getdwarf(unit.cu);
  if (lines_.contains({dwarf, offset})) return true;
  if (no_lines_.contains({dwarf, offset})) return false;
  const char* const folder = dwarf_attr(&unit, DW_AT_comp_dir, &attribute) != nullptr ? dwarf_formstring(&attribute) : nullptr;
  const Sections& sections = sections_of(dwarf);
  const u64 size = size_of_lines(sections.lines, sections.strings, sections.line_strings, offset,
                                 folder == nullptr ? 0 : std::strlen(folder));
  const bool fits = size != 0 && budget_.take(size) && budget_.step(size / 8);
  (fits ? lines_ : no_lines_).emplace(dwarf, offset);
  return fits;
}

bool DwarfJudge::may_read_location(Dwarf_Attribute& location) {
  Dwarf_Block block;
  Locations its;
  if (dwarf_formblock(&location, &block) == 0) {
    its = {block.length, block.length};
  } else {
    Dwarf_Word offset = 0;
    Dwarf_Die unit;
    Dwarf_Half version = 0;
    uint8_t address = 0;
    if (dwarf_formudata(&location, &offset) != 0 ||
        dwarf_cu_die(location.cu, &unit, &version, nullptr, &address, nullptr, nullptr, nullptr) == nullptr ||
        (address != 4 && address != 8))
      return false;
    const Sections& sections = sections_of(dwarf_cu_getdwarf(location.cu));
    its = read_locations(version < 5 ? sections.locations : sections.location_lists, offset, version, address);
  }
  return budget_.step(1 + its.bytes / 8) && budget_.take(its.longest * of_an_operation);
}

}  // namespace ringside
