#include "stacks/zstd_sections.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "source/decompress.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u32 by_zstd = 2;  // ELFCOMPRESS_ZSTD, which older headers do not have
constexpr u64 most_headers = 1 << 17;
constexpr u64 plain_of_a_step = 32;  // bytes that decompress in 10 ns

struct Packed {
  u64 header;                   // where its section's header is
  u64 at, packed, size, align;  // its data after its own header; unpacked
};
struct Packing {
  std::vector<Packed> all;
  u64 bytes = 0;  // unpacked, with room for their alignment
};

bool read_at(int fd, u64 at, void* to, size_t size) {
  auto* out = static_cast<u8*>(to);
  while (size != 0 && at < u64{1} << 62) {
    const ssize_t n = pread(fd, out, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out += n, at += static_cast<u64>(n), size -= static_cast<size_t>(n);
  }
  return size == 0;
}

template <class Header, class Section, class Compressed>
Packing look_at(int fd) {
  Packing found;
  Header file;
  Section first;
  if (!read_at(fd, 0, &file, sizeof file) || file.e_shentsize != sizeof(Section) || file.e_shoff == 0) return found;
  if (!read_at(fd, file.e_shoff, &first, sizeof first)) return found;
  const u64 count = file.e_shnum != 0 ? file.e_shnum : first.sh_size;
  if (count > most_headers) return found;
  std::vector<Section> sections(count);
  if (!read_at(fd, file.e_shoff, sections.data(), count * sizeof(Section))) return found;
  for (u64 i = 0; i < count; ++i) {
    const Section& s = sections[i];
    Compressed c;
    if ((s.sh_flags & SHF_COMPRESSED) == 0 || s.sh_type == SHT_NOBITS || s.sh_size < sizeof c) continue;
    if (!read_at(fd, s.sh_offset, &c, sizeof c) || c.ch_type != by_zstd) continue;
    if (c.ch_size > ~found.bytes - 64) return {};
    found.bytes += c.ch_size + 64;
    found.all.push_back(
        {file.e_shoff + i * sizeof(Section), s.sh_offset + sizeof c, s.sh_size - sizeof c, c.ch_size, c.ch_addralign});
  }
  return found;
}

bool is_wide(int fd) {
  u8 ident[EI_NIDENT] = {};
  return read_at(fd, 0, ident, sizeof ident) && ident[EI_CLASS] == ELFCLASS64;
}

Packing packing_of(int fd, bool wide) {
  return wide ? look_at<Elf64_Ehdr, Elf64_Shdr, Elf64_Chdr>(fd) : look_at<Elf32_Ehdr, Elf32_Shdr, Elf32_Chdr>(fd);
}

template <class Section>
void set_plain(u8* header, const Packed& p, u64 at) {
  Section s;
  std::memcpy(&s, header, sizeof s);
  s.sh_flags &= ~static_cast<decltype(s.sh_flags)>(SHF_COMPRESSED);
  s.sh_offset = static_cast<decltype(s.sh_offset)>(at);
  s.sh_size = static_cast<decltype(s.sh_size)>(p.size);
  s.sh_addralign = static_cast<decltype(s.sh_addralign)>(p.align);
  std::memcpy(header, &s, sizeof s);
}

}  // namespace

bool has_zstd_sections(int fd) { return !packing_of(fd, is_wide(fd)).all.empty(); }

result<void> unpack_zstd_sections(sys::Fd& fd, const std::string& path, Budget& budget) {
  const bool wide = is_wide(fd.get());
  const Packing packing = packing_of(fd.get(), wide);
  if (packing.all.empty()) return {};
  const auto cannot = [&](const char* why) {
    return refuse(std::errc::bad_message, path + ": its debugging information is compressed by zstd, and " + why);
  };
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return fail(errno, "cannot look at " + path);
  const auto file = static_cast<u64>(st.st_size), size = file + packing.bytes;
  if (size < file || !budget.take(size) || !budget.step(size / plain_of_a_step))
    return cannot("would take more memory than a file of its size may");
  sys::Fd copy(memfd_create("ringside-debug", MFD_CLOEXEC));
  if (!copy || ftruncate(copy.get(), static_cast<off_t>(size)) != 0) return cannot("there is no memory for it");
  const sys::Region map = RS_TRY(sys::Region::map(copy.get(), size, true, path));
  u8* const bytes = map.data();
  if (!read_at(fd.get(), 0, bytes, file)) return cannot("the file cannot be read whole");
  u64 at = file;
  for (const Packed& p : packing.all) {
    at = align_up(at, u64{64});
    const Bytes packed{bytes + std::min(p.at, file), p.packed};
    if (p.at > file || p.packed > file - p.at || p.header > file - (wide ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr)) ||
        !may_expand_to(Compression::zstd, packed, p.size) || !decompress(Compression::zstd, packed, bytes + at, p.size))
      return cannot("is damaged");
    wide ? set_plain<Elf64_Shdr>(bytes + p.header, p, at) : set_plain<Elf32_Shdr>(bytes + p.header, p, at);
    at += p.size;
  }
  fd = std::move(copy);
  return {};
}

}  // namespace ringside
