// The compressions of trace.dat files.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string>

namespace ringside {

enum class Compression : u8 { none, zlib, zstd };
std::optional<Compression> compression_from(const std::string& name);

// Can `in` yield `size` bytes at all, by its beginning and the format's limits? Checked before memory for them is allocated.
bool may_expand_to(Compression by, Bytes in, u64 size);
// False: the data is invalid, or does not yield exactly `size` bytes.
bool decompress(Compression by, Bytes in, u8* out, u64 size);

}  // namespace ringside
