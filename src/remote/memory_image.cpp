#include "remote/memory_image.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <ringside/abi/page_footer.hpp>

#include "source/decompress.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::remote {
namespace {

template <class T>
std::optional<T> at(Bytes file, u64 offset) {
  if (offset > file.size || file.size - offset < sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, file.data + offset, sizeof out);
  return out;
}

bool begins_with(Bytes file, std::string_view text) {
  return file.size >= text.size() && std::memcmp(file.data, text.data(), text.size()) == 0;
}

auto damaged(const std::string& what) { return refuse(std::errc::bad_message, "the dump is damaged: " + what); }

// makedumpfile's form for pipes: pieces of the real file, each with its place and length, big-endian, after a page of header.
// The place of a byte of the real file in this one; pieces that come later replace earlier ones only where they begin.
class Flattened {
 public:
  static constexpr std::string_view magic = "makedumpfile";
  static result<Flattened> of(Bytes file) {
    Flattened all(file);
    for (u64 here = 4096;;) {
      const auto place = at<u64>(file, here), length = at<u64>(file, here + 8);
      if (!place || !length) return damaged("it ends before its last piece");
      const u64 to = __builtin_bswap64(*place), size = __builtin_bswap64(*length);
      if (static_cast<i64>(to) < 0) return all;
      here += 16;
      if (size > file.size - here) return damaged("a piece is longer than the file");
      if (to + size < to) return damaged("a piece has an impossible place");
      all.pieces_[to] = {here, size};
      here += size;
    }
  }
  // False: some of these bytes are in no piece.
  bool copy(u64 from, u64 size, u8* to) const {
    while (size != 0) {
      auto piece = pieces_.upper_bound(from);
      if (piece == pieces_.begin()) return false;
      --piece;
      const u64 inside = from - piece->first;
      if (inside >= piece->second.size) return false;
      const u64 part = std::min(size, piece->second.size - inside);
      std::memcpy(to, file_.data + piece->second.at + inside, part);
      from += part, to += part, size -= part;
    }
    return true;
  }

 private:
  explicit Flattened(Bytes file) : file_(file) {}
  struct Piece {
    u64 at = 0, size = 0;
  };
  Bytes file_;
  std::map<u64, Piece> pieces_;
};

// A kdump: a header, bitmaps of the pages, a descriptor for each page that is there, the pages.
class Kdump {
 public:
  static constexpr std::string_view magic = "KDUMP   ";
  static result<Kdump> of(Bytes file, const Flattened* flattened);

  // The page frames that are there, in their order, with the number of their descriptor.
  const std::vector<std::pair<u64, u64>>& frames() const { return frames_; }
  u32 block() const { return block_; }
  // Reads a page into block() bytes.
  result<void> page(u64 descriptor, u8* to);

 private:
  struct Descriptor {
    u64 offset;
    u32 size, flags;
    u64 page_flags;
  };
  Kdump(Bytes file, const Flattened* flattened) : file_(file), flattened_(flattened) {}
  bool read(u64 from, u64 size, void* to) const {
    if (flattened_ != nullptr) return flattened_->copy(from, size, static_cast<u8*>(to));
    if (from > file_.size || file_.size - from < size) return false;
    std::memcpy(to, file_.data + from, size);
    return true;
  }
  Bytes file_;
  const Flattened* flattened_;
  u32 block_ = 0;
  u64 descriptors_ = 0;  // their place
  std::vector<std::pair<u64, u64>> frames_;
  std::vector<u8> packed_;
};

result<Kdump> Kdump::of(Bytes file, const Flattened* flattened) {
  Kdump dump(file, flattened);
  constexpr u64 status_64 = 424, status_32 = 412;  // after names of the machine and a time stamp of 16 or 8 bytes
  struct Rest {
    u32 status, block_size, sub_header_blocks, bitmap_blocks, max_mapnr;
  } rest{};
  const auto plausible = [&] {
    return is_power_of_two(rest.block_size) && rest.block_size >= 4096 && rest.block_size <= 65536 && rest.bitmap_blocks != 0 &&
           rest.sub_header_blocks != 0 && rest.sub_header_blocks < 1u << 20;
  };
  if (!dump.read(status_64, sizeof rest, &rest)) return damaged("it ends in its header");
  if (!plausible() && (!dump.read(status_32, sizeof rest, &rest) || !plausible()))
    return damaged("its header has no possible size of a page");
  dump.block_ = rest.block_size;
  const u64 bitmap_bytes = u64{rest.bitmap_blocks} * rest.block_size / 2,
            bitmaps = (1 + u64{rest.sub_header_blocks}) * rest.block_size;
  if (bitmap_bytes > file.size) return damaged("its bitmaps are longer than the file");
  std::vector<u8> bits(bitmap_bytes);  // the second one: of the pages that are in the file
  if (!dump.read(bitmaps + bitmap_bytes, bitmap_bytes, bits.data())) return damaged("it ends in its bitmaps");
  dump.descriptors_ = bitmaps + 2 * bitmap_bytes;
  const u64 most = file.size / sizeof(Descriptor);
  for (u64 byte = 0; byte < bitmap_bytes; ++byte)
    for (u32 bit = 0; bit < 8; ++bit)
      if ((bits[byte] >> bit & 1) != 0) dump.frames_.emplace_back(byte * 8 + bit, dump.frames_.size());
  if (dump.frames_.size() > most) return damaged("its bitmap names more pages than the file can hold");
  return dump;
}

result<void> Kdump::page(u64 number, u8* to) {
  constexpr u32 zlib = 1, lzo = 2, snappy = 4, zstd = 32;
  Descriptor d{};
  if (!read(descriptors_ + number * sizeof d, sizeof d, &d)) return damaged("it ends in its list of pages");
  if (d.size > block_ || d.size == 0) return damaged("a page is longer than a page");
  packed_.resize(block_);
  if (!read(d.offset, d.size, packed_.data())) return damaged("a page is not in it");
  if ((d.flags & (lzo | snappy)) != 0)
    return refuse(
        std::errc::not_supported,
        "its pages are compressed by lzo or snappy, which is not read here: make it with zlib (dump-guest-memory -z)");
  const Bytes packed{packed_.data(), d.size};
  if ((d.flags & (zlib | zstd)) == 0) {
    if (d.size != block_) return damaged("a page that is not compressed is no page");
    std::memcpy(to, packed.data, block_);
    return {};
  }
  if (!decompress((d.flags & zlib) != 0 ? Compression::zlib : Compression::zstd, packed, to, block_))
    return damaged("a page cannot be decompressed");
  return {};
}

}  // namespace

u64 sub_buffer_ending_in(const u8* page_end) {
  abi::PageFooter f{};
  std::memcpy(&f, page_end - abi::footer_size, sizeof f);
  if ((f.writer_status & abi::footer_magic_mask) != abi::footer_magic) return 0;
  const u32 order = f.writer_status >> 8 & 0xFF;
  return order <= abi::footer_order(abi::largest_subbuf) ? u64{abi::smallest_subbuf} << order : 0;
}

void MemoryImage::add(Bytes piece) {
  if (reinterpret_cast<u64>(piece.data) % 8 == 0) {
    pieces_.push_back(piece);
    return;
  }
  std::vector<u64>& copy = copies_.emplace_back((piece.size + 7) / 8);
  std::memcpy(copy.data(), piece.data, piece.size);
  pieces_.push_back({reinterpret_cast<const u8*>(copy.data()), piece.size});
}

result<void> MemoryImage::read_elf(Bytes file) {
  format_ = "an ELF core";
  const bool wide = file.size > EI_CLASS && file.data[EI_CLASS] == ELFCLASS64;
  u64 headers = 0, size = 0, count = 0, sections = 0;
  if (wide) {
    const auto h = at<Elf64_Ehdr>(file, 0);
    if (!h) return damaged("it ends in its header");
    headers = h->e_phoff, size = h->e_phentsize, count = h->e_phnum, sections = h->e_shoff;
  } else {
    const auto h = at<Elf32_Ehdr>(file, 0);
    if (!h) return damaged("it ends in its header");
    headers = h->e_phoff, size = h->e_phentsize, count = h->e_phnum, sections = h->e_shoff;
  }
  if (count == PN_XNUM) {  // more than 65,534: the first section's header has their number
    if (wide) {
      const auto first = at<Elf64_Shdr>(file, sections);
      count = first ? first->sh_info : 0;
    } else {
      const auto first = at<Elf32_Shdr>(file, sections);
      count = first ? first->sh_info : 0;
    }
  }
  if (size < (wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)) || count == 0 || headers > file.size ||
      count > (file.size - headers) / size)
    return damaged("its program headers are not in it");
  u64 copied = 0;
  for (u64 n = 0; n < count; ++n) {
    u64 type = 0, from = 0, bytes = 0;
    if (wide) {
      const auto p = at<Elf64_Phdr>(file, headers + n * size);
      type = p->p_type, from = p->p_offset, bytes = p->p_filesz;
    } else {
      const auto p = at<Elf32_Phdr>(file, headers + n * size);
      type = p->p_type, from = p->p_offset, bytes = p->p_filesz;
    }
    if (type != PT_LOAD || bytes == 0 || from >= file.size) continue;
    if (bytes > file.size - from) {
      problems_.push_back("the dump was cut: segment " + std::to_string(n) + " ends after it");
      bytes = file.size - from;
    }
    bytes &= ~u64{page_size - 1};
    if (bytes == 0) continue;
    if (reinterpret_cast<u64>(file.data + from) % 8 != 0 && (copied += bytes) > file.size)
      return damaged("its segments overlap");  // each would be copied
    add({file.data + from, bytes});
  }
  return {};
}

// Pages are decompressed one by one; kept are those of a sub-buffer alone, whose last page has its footer.
result<void> MemoryImage::read_kdump(Bytes file) {
  std::optional<Flattened> flattened;
  if (begins_with(file, Flattened::magic)) flattened.emplace(RS_TRY(Flattened::of(file)));
  format_ = flattened ? "a kdump, as a pipe takes it" : "a kdump";
  if (flattened) {
    char magic[8] = {};
    if (!flattened->copy(0, sizeof magic, reinterpret_cast<u8*>(magic)) || std::string_view(magic, 8) != Kdump::magic)
      return damaged("after makedumpfile's header is no kdump");
  }
  Kdump dump = RS_TRY(Kdump::of(file, flattened ? &*flattened : nullptr));
  const u32 block = dump.block();
  std::vector<u64> page(block / 8);
  auto* const bytes = reinterpret_cast<u8*>(page.data());
  const auto& frames = dump.frames();
  const u64 most_kept = (u64{64} << 20) + 16 * file.size;  // a page of zeros takes nearly nothing; one of events does not
  u64 kept = 0;
  for (size_t n = 0; n < frames.size(); ++n) {
    if (auto done = dump.page(frames[n].second, bytes); !done) {
      if (done.error().code != std::errc::bad_message) return done;
      if (problems_.size() < 10) problems_.push_back(done.error().sentence);
      continue;
    }
    for (u64 end = page_size; end <= block; end += page_size) {
      const u64 size = sub_buffer_ending_in(bytes + end);
      if (size == 0) continue;
      const u64 last = frames[n].first * block + end, first = last - std::min(size, last);
      const u64 from = first / block, pages = frames[n].first - from + 1;
      if (last < size || pages > n + 1 || frames[n + 1 - pages].first != from) continue;  // not all of it is in the dump
      if ((kept += size) > most_kept) return damaged("more sub-buffers are in it than a dump of its size holds");
      std::vector<u64>& copy = copies_.emplace_back(pages * block / 8);
      auto* const to = reinterpret_cast<u8*>(copy.data());
      bool whole = true;
      for (u64 k = 0; whole && k < pages; ++k) whole = dump.page(frames[n + 1 - pages + k].second, to + k * block).has_value();
      if (whole)
        pieces_.push_back({to + (first - from * block), size});
      else
        copies_.pop_back();
    }
  }
  return {};
}

result<MemoryImage> MemoryImage::of(Bytes file) {
  MemoryImage image;
  const auto type = at<u16>(file, EI_NIDENT);
  const bool little = file.size > EI_DATA && file.data[EI_DATA] == ELFDATA2LSB;
  if (begins_with(file, ELFMAG) && little && type && *type == ET_CORE)
    RS_TRY(image.read_elf(file));
  else if (begins_with(file, Kdump::magic) || begins_with(file, Flattened::magic))
    RS_TRY(image.read_kdump(file));
  else
    image.add({file.data, file.size & ~u64{page_size - 1}});
  return image;
}

}  // namespace ringside::remote
