#include "source/groups.hpp"

#include <zstd.h>

#include <cstring>
#include <memory>

#include "source/decompress.hpp"

namespace ringside {
namespace {

// At least 4 times smaller at 150 MB/s are wanted. Higher levels of zstd make files of the kernel's events hardly smaller.
constexpr int level = 1;

constexpr u64 aligned(u64 size) { return (size + group_alignment - 1) / group_alignment * group_alignment; }
constexpr u64 largest_frame = ZSTD_COMPRESSBOUND(group_size) + 64;
constexpr u64 largest_group = aligned(sizeof(GroupHeader) + largest_frame);

}  // namespace

GroupFile::GroupFile(sys::Region file, u32 subbuf_size) : file_(std::move(file)), subbuf_size_(subbuf_size) {
  // After the last one comes at most a part of another.
  const u64 most = 2 * largest_group, top = file_.size() / group_alignment * group_alignment;
  for (u64 back = 0; back <= std::min(most, top) && !last_; back += group_alignment) last_ = at(top - back);
}

std::optional<Group> GroupFile::at(u64 offset) const {
  GroupHeader h;
  if (file_.size() < sizeof h || offset > file_.size() - sizeof h) return std::nullopt;
  std::memcpy(&h, file_.data() + offset, sizeof h);
  if (h.magic != GroupHeader::skippable || h.mark != GroupHeader::name || h.at != offset) return std::nullopt;
  Group g{offset, offset + 8 + h.skip, offset + 8 + h.skip + h.frame_size, h.raw_at, h.time_stamp, h.raw_size, h.frame_size};
  const bool good = h.skip >= sizeof h - 8 && h.skip < sizeof h - 8 + group_alignment && h.frame_size <= largest_frame &&
                    g.end <= file_.size() && g.end % group_alignment == 0 && h.raw_size != 0 && h.raw_size <= group_size &&
                    h.raw_size % subbuf_size_ == 0 && h.raw_at % subbuf_size_ == 0 && h.raw_at < u64{1} << 62;
  return good ? std::optional(g) : std::nullopt;
}

std::optional<Group> GroupFile::first_from(u64 offset) const {
  const u64 begin = aligned(offset);
  for (u64 at = begin; at < file_.size() && at - begin <= 2 * largest_group; at += group_alignment) {
    if (auto group = this->at(at)) return group;
  }
  return std::nullopt;
}

bool GroupFile::read(const Group& group, std::vector<u64>& out) const {
  const Bytes frame{file_.data() + group.frame, group.frame_size};
  if (!may_expand_to(Compression::zstd, frame, group.raw_size)) return false;
  out.resize(group.raw_size / 8);
  return decompress(Compression::zstd, frame, reinterpret_cast<u8*>(out.data()), group.raw_size);
}

bool make_group(Bytes raw, u64 at, u64 raw_at, u64 time_stamp, std::vector<u8>& out) {
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  static thread_local const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  if (context == nullptr) return false;
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  // The frame ends where the group ends, so what fills it up comes before it. It is made past the largest header.
  constexpr u64 most_header = sizeof(GroupHeader) + group_alignment;
  out.resize(most_header + ZSTD_compressBound(raw.size));
  const size_t size = ZSTD_compress2(context.get(), out.data() + most_header, out.size() - most_header, raw.data, raw.size);
  if (ZSTD_isError(size) != 0) return false;
  GroupHeader h;
  const u64 front = aligned(sizeof h + size) - size;
  h.skip = static_cast<u32>(front - 8);
  h.at = at;
  h.raw_at = raw_at;
  h.time_stamp = time_stamp;
  h.raw_size = static_cast<u32>(raw.size);
  h.frame_size = static_cast<u32>(size);
  out.resize(most_header + size);
  out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(most_header - front));
  std::memset(out.data(), 0, front);
  std::memcpy(out.data(), &h, sizeof h);
  return true;
}

}  // namespace ringside
