// The compressions of trace.dat files.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string>

namespace ringside {

enum class Compression : u8 { none, zlib, zstd };
std::optional<Compression> compression_from(const std::string& name);

// Whether `size` bytes can come out of `in` at all, as far as its beginning and the format's limits say: asked before memory
// for them is taken.
bool may_expand_to(Compression by, Bytes in, u64 size);
// False: it is no such data, or does not yield exactly `size` bytes.
bool decompress(Compression by, Bytes in, u8* out, u64 size);

}  // namespace ringside
