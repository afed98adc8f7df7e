// Bytes that come in order, from a file or a pipe, unpacked if gzip, xz or zstd packed them (RFC 1952, the .xz format, RFC
// 8878; by zlib, liblzma and libzstd). What packed one file into 500 bytes is not believed for ever: each packed byte may become 200,
// beyond the first 64 MiB.
#pragma once
#include <memory>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>

namespace ringside {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Waits for bytes, and puts `size` of them to `to`, or fewer at the end.
  virtual result<size_t> read(u8* to, size_t size) = 0;
};

std::unique_ptr<ByteStream> plain_stream(int fd, const std::string& path);
// fd: open while the stream is used. path: for errors. Null: it is no pipe, and nothing packed it, so it can be mapped.
result<std::unique_ptr<ByteStream>> packed_stream(int fd, const std::string& path);

}  // namespace ringside
