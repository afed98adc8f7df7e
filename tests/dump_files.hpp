// Dump files as other tools write them, of memory in this process.
#pragma once
#include <elf.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside::test {

template <class T>
inline void put(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
// As qemu writes them: notes in front, so the memory begins at no page of the file. Two segments, cut at `cut`.
inline std::string elf_core(Bytes memory, u64 cut, u64 notes) {
  Elf64_Ehdr h{};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64;
  h.e_ident[EI_DATA] = ELFDATA2LSB;
  h.e_type = ET_CORE;
  h.e_phoff = sizeof h;
  h.e_phentsize = sizeof(Elf64_Phdr);
  h.e_phnum = 3;
  const u64 begin = sizeof h + 3 * sizeof(Elf64_Phdr) + notes;
  std::string file;
  put(file, h);
  put(file, Elf64_Phdr{PT_NOTE, 0, begin - notes, 0, 0, notes, notes, 0});
  put(file, Elf64_Phdr{PT_LOAD, 0, begin, 0, 0, cut, cut, 0});
  put(file, Elf64_Phdr{PT_LOAD, 0, begin + cut, 0, 1 << 20, memory.size - cut, memory.size - cut, 0});
  file.append(notes, 'n');
  return file.append(reinterpret_cast<const char*>(memory.data), memory.size);
}
inline std::string kdump(Bytes memory, bool compressed) {
  constexpr u32 block = 4096;
  const u64 pages = memory.size / block, bitmap = (pages / 8 + block) / block * block;
  std::string file = "KDUMP   ";
  file.resize(424);
  for (const u32 word : {u32{0}, block, 1u, static_cast<u32>(2 * bitmap / block), static_cast<u32>(pages)}) put(file, word);
  file.resize(2 * block);
  std::string bits(bitmap, '\0');
  for (u64 n = 0; n < pages; ++n) bits[n / 8] = static_cast<char>(bits[n / 8] | 1 << n % 8);
  file += bits + bits;
  u64 at = file.size() + pages * 24;
  std::string data;
  for (u64 n = 0; n < pages; ++n) {
    uLongf size = compressBound(block);
    std::string page(size, '\0');
    const u8* const from = memory.data + n * block;
    if (!compressed || ::compress2(reinterpret_cast<Bytef*>(page.data()), &size, from, block, 1) != Z_OK || size >= block)
      page.assign(reinterpret_cast<const char*>(from), size = block);
    page.resize(size);
    put(file, at + data.size());
    put(file, static_cast<u32>(size));
    put(file, size == block ? 0u : 1u);
    put(file, u64{0});
    data += page;
  }
  return file + data;
}
inline std::string flattened(const std::string& whole) {
  std::string file = "makedumpfile";
  file.resize(4096);
  for (u64 at = 0; at < whole.size(); at += 5000) {
    const u64 size = std::min<u64>(5000, whole.size() - at);
    put(file, __builtin_bswap64(at));
    put(file, __builtin_bswap64(size));
    file += whole.substr(at, size);
  }
  return file.append(16, '\xFF');
}
struct AlignedFile {
  explicit AlignedFile(const std::string& text) : words(text.size() / 8 + 1), size(text.size()) {
    std::memcpy(words.data(), text.data(), text.size());
  }
  Bytes bytes() const { return {reinterpret_cast<const u8*>(words.data()), size}; }
  std::vector<u64> words;
  u64 size;
};

}  // namespace ringside::test
