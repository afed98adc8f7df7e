#include "source/decompress.hpp"

#include <zlib.h>
#include <zstd.h>

#include <memory>

namespace ringside {
namespace {

constexpr u64 best_deflate = 1032;  // to 1: the most that the format can do

}  // namespace

std::optional<Compression> compression_from(const std::string& name) {
  if (name == "none" || name.empty()) return Compression::none;
  if (name == "zlib") return Compression::zlib;
  if (name == "zstd") return Compression::zstd;
  return std::nullopt;
}

bool may_expand_to(Compression by, Bytes in, u64 size) {
  if (by == Compression::zlib) return size / best_deflate <= in.size;
  if (by != Compression::zstd) return false;
  const unsigned long long says = ZSTD_getFrameContentSize(in.data, in.size);
  return says == ZSTD_CONTENTSIZE_UNKNOWN || says == size;
}

bool decompress(Compression by, Bytes in, u8* out, u64 size) {
  if (by == Compression::zlib) {
    uLongf made = size;
    return uncompress(out, &made, in.data, in.size) == Z_OK && made == size;
  }
  if (by != Compression::zstd) return false;
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  static thread_local const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  return context != nullptr && ZSTD_decompressDCtx(context.get(), out, size, in.data, in.size) == size;
}

}  // namespace ringside
