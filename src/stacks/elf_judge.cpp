#include "stacks/elf_judge.hpp"

#include <elf.h>
#include <gelf.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u64 most_sections = 1 << 17, of_a_section = 512;  // what libelf and libdwfl keep of one
constexpr u64 most_of_notes = u64{16} << 20, most_of_names = u64{16} << 20;

template <class T>
bool read_at(int fd, u64 offset, T& out) {
  return pread(fd, &out, sizeof out, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof out);
}

// The numbers in a file's first bytes, by which libelf allocates; empty: they cannot be read.
template <class Header, class Section>
std::optional<u64> sections_of(int fd) {
  Header header;
  if (!read_at(fd, 0, header) || header.e_phnum == PN_XNUM) return std::nullopt;
  if (header.e_shnum != 0 || header.e_shoff == 0) return header.e_shnum;
  Section first;  // says how many there are
  return read_at(fd, header.e_shoff, first) ? std::optional<u64>(first.sh_size) : std::nullopt;
}

std::optional<u64> sections_of(int fd, u8 elf_class) {
  return elf_class == ELFCLASS64 ? sections_of<Elf64_Ehdr, Elf64_Shdr>(fd) : sections_of<Elf32_Ehdr, Elf32_Shdr>(fd);
}

// What libdwfl makes of .gnu_debugdata, symbols that are packed with xz: its size, or more than `most`. The sizes that are in
// the data are not believed.
u64 unpacked_size(const Elf_Data& packed, u64 most) {
  lzma_stream stream = LZMA_STREAM_INIT;
  constexpr u64 memory = u64{64} << 20;
  if (lzma_stream_decoder(&stream, memory, 0) != LZMA_OK) return most + 1;
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
  std::vector<u8> room(size_t{1} << 16);
  stream.next_in = static_cast<const u8*>(packed.d_buf);
  stream.avail_in = packed.d_size;
  for (lzma_ret ret = LZMA_OK; ret == LZMA_OK && stream.total_out <= most;) {
    stream.next_out = room.data();
    stream.avail_out = room.size();
    ret = lzma_code(&stream, LZMA_FINISH);
  }
  return stream.total_out;
}

// Of a section that is compressed; 0: it is none. ".zdebug": "ZLIB" and the size, the high byte first.
u64 inflated_size(Elf_Scn* section, const GElf_Shdr& header, std::string_view name) {
  if (GElf_Chdr compressed; (header.sh_flags & SHF_COMPRESSED) != 0 && gelf_getchdr(section, &compressed) != nullptr)
    return compressed.ch_size;
  if (!name.starts_with(".zdebug")) return 0;
  const Elf_Data* const data = elf_rawdata(section, nullptr);
  if (data == nullptr || data->d_buf == nullptr || data->d_size < 12) return 0;
  u64 size = 0;
  for (u32 i = 4; i < 12; ++i) size = size << 8 | static_cast<const u8*>(data->d_buf)[i];
  return size;
}

bool is_table(u32 type) {
  return type == SHT_SYMTAB || type == SHT_DYNSYM || type == SHT_STRTAB || type == SHT_NOTE || type == SHT_SYMTAB_SHNDX;
}

tl::unexpected<Error> too_much(const std::string& path, const std::string& of) {
  return refuse(std::errc::file_too_large,
                path + " is not read: " + of + " would take more memory than a file of its size may");
}

}  // namespace

result<void> judge_elf_shape(int fd, const std::string& path, Budget& budget) {
  u8 ident[EI_NIDENT];
  if (!read_at(fd, 0, ident) || std::memcmp(ident, ELFMAG, SELFMAG) != 0)
    return refuse(std::errc::executable_format_error, path + " is no ELF file");
  const auto sections = ident[EI_DATA] == ELFDATA2LSB ? sections_of(fd, ident[EI_CLASS]) : std::nullopt;
  if (!sections) return refuse(std::errc::executable_format_error, path + " is no ELF file of a machine like this");
  if (*sections > most_sections || !budget.take(*sections * of_a_section) || !budget.step(1000 + *sections * 8))
    return too_much(path, "its table of sections");
  elf_version(EV_CURRENT);
  // Read, not mapped: another user may cut the file at any time.
  const ElfHandle file(elf_begin(fd, ELF_C_READ, nullptr));
  if (file == nullptr) return refuse(std::errc::executable_format_error, path + " cannot be read as ELF: " + elf_errmsg(-1));
  u64 notes = 0;
  size_t count = 0;
  for (size_t i = 0; elf_getphdrnum(file.get(), &count) == 0 && i < count; ++i) {
    GElf_Phdr part;
    if (gelf_getphdr(file.get(), static_cast<int>(i), &part) == nullptr) break;
    if (part.p_type == PT_NOTE && (notes += std::min(part.p_filesz, most_of_notes + 1)) > most_of_notes)
      return too_much(path, "what its notes claim to be");
  }
  notes = 0;
  GElf_Shdr header;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(file.get(), section)) != nullptr;) {
    if (gelf_getshdr(section, &header) != nullptr && header.sh_type == SHT_NOTE &&
        (notes += std::min(header.sh_size, most_of_notes + 1)) > most_of_notes)
      return too_much(path, "what its notes claim to be");
  }
  return {};
}

result<ElfFit> judge_elf(int fd, const std::string& path, Budget& budget) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return fail(errno, "cannot look at " + path);
  budget.grow(st);
  RS_TRY(judge_elf_shape(fd, path, budget));
  const ElfHandle file(elf_begin(fd, ELF_C_READ_MMAP, nullptr));
  if (file == nullptr) return refuse(std::errc::executable_format_error, path + " cannot be read as ELF: " + elf_errmsg(-1));
  u64 inflated = 0;
  size_t names = 0;
  GElf_Shdr header;
  const bool named = elf_getshdrstrndx(file.get(), &names) == 0 &&
                     gelf_getshdr(elf_getscn(file.get(), names), &header) != nullptr && header.sh_size <= most_of_names &&
                     (header.sh_flags & SHF_COMPRESSED) == 0;
  for (Elf_Scn* section = nullptr; named && (section = elf_nextscn(file.get(), section)) != nullptr;) {
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
    const char* const text = elf_strptr(file.get(), names, header.sh_name);
    const std::string_view name = text == nullptr ? "" : text;
    const u64 size = inflated_size(section, header, name);
    if (size != 0 && is_table(header.sh_type)) return too_much(path, "a compressed table");
    inflated = inflated + size < size ? ~u64{0} : inflated + size;
    if (name != ".gnu_debugdata") continue;
    const Elf_Data* const packed = elf_rawdata(section, nullptr);
    const u64 most = budget.bytes() / 2;  // its reader doubles what it has
    if (packed != nullptr && packed->d_buf != nullptr && !budget.take(2 * unpacked_size(*packed, most)))
      return too_much(path, "its packed symbols");
  }
  if (!named && elf_getshdrstrndx(file.get(), &names) == 0 && names != 0) return too_much(path, "the names of its sections");
  return budget.take(inflated) ? ElfFit::whole : ElfFit::symbols;
}

}  // namespace ringside
