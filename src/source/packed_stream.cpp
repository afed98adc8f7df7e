#include "source/packed_stream.hpp"

#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u64 free_bytes = u64{64} << 20, times_packed = 200;
constexpr u64 lzma_memory = u64{256} << 20;

class FileStream : public ByteStream {
 public:
  FileStream(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  result<size_t> read(u8* to, size_t size) override {
    size_t done = std::min(size, head_.size());
    std::memcpy(to, head_.data(), done);
    head_.erase(0, done);
    while (done < size) {
      const ssize_t n = ::read(fd_, to + done, size - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(errno, "cannot read " + path_);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }
  // The first bytes, which read() gives once more.
  result<std::string_view> head(size_t size) {
    std::string first(size, 0);
    first.resize(RS_TRY(read(reinterpret_cast<u8*>(first.data()), size)));
    head_ = std::move(first);
    return std::string_view(head_);
  }

 private:
  int fd_;
  std::string path_, head_;
};

// What a library unpacks, a step at a time.
class Unpacker : public ByteStream {
 public:
  Unpacker(std::unique_ptr<ByteStream> packed, std::string path, const char* packer)
      : packed_(std::move(packed)), path_(std::move(path)), packer_(packer) {}
  result<size_t> read(u8* to, size_t size) final {
    size_t done = 0;
    while (done < size) {
      if (at_ == end_ && !over_) {
        at_ = 0;
        end_ = RS_TRY(packed_->read(buffer_.data(), buffer_.size()));
        taken_ += end_;
        over_ = end_ < buffer_.size();
      }
      const size_t at = at_;
      const size_t made = RS_TRY(step(to + done, size - done));
      done += made;
      made_ += made;
      if (made_ > free_bytes + times_packed * taken_)
        return refuse(std::errc::file_too_large, path_ + " becomes more than " + std::to_string(times_packed) +
                                                     " times as large when it is unpacked; if you trust it, unpack it with " +
                                                     packer_ + " -d first");
      if (made != 0 || at_ != at) continue;
      if (at_ == end_ && !over_) continue;
      if (between_ && at_ == end_) break;
      return refuse(std::errc::bad_message, at_ == end_ ? path_ + " ends in the middle of what " + packer_ + " packed"
                                                        : path_ + " is damaged: " + packer_ + " did not write this");
    }
    return done;
  }

 protected:
  // Takes some of at_ to end_, and makes at most `size` bytes. Neither: it needs more.
  virtual result<size_t> step(u8* to, size_t size) = 0;
  tl::unexpected<Error> damaged() const {
    return refuse(std::errc::bad_message, path_ + " is damaged: " + packer_ + " did not write this");
  }

  std::unique_ptr<ByteStream> packed_;
  std::string path_;
  const char* packer_;
  std::vector<u8> buffer_ = std::vector<u8>(1 << 16);
  size_t at_ = 0, end_ = 0;
  bool over_ = false;     // nothing comes after the buffer
  bool between_ = false;  // whole streams were taken, and no other one has begun
  u64 taken_ = 0, made_ = 0;
};

class GzipStream final : public Unpacker {
 public:
  GzipStream(std::unique_ptr<ByteStream> packed, std::string path) : Unpacker(std::move(packed), std::move(path), "gzip") {
    good_ = inflateInit2(&stream_, 15 + 16) == Z_OK;  // the largest window, a gzip header
  }
  ~GzipStream() override { inflateEnd(&stream_); }

 private:
  result<size_t> step(u8* to, size_t size) override {
    if (!good_) return fail(ENOMEM, "cannot unpack " + path_);
    if (between_) {  // zeros after it are padding, as gzip has it
      for (; at_ != end_ && buffer_[at_] == 0; ++at_) padded_ = true;
      if (at_ == end_) return size_t{0};
      if (padded_) return damaged();
    }
    stream_.next_in = buffer_.data() + at_;
    stream_.avail_in = static_cast<unsigned>(end_ - at_);
    stream_.next_out = to;
    stream_.avail_out = static_cast<unsigned>(std::min<size_t>(size, 1 << 30));
    const unsigned room = stream_.avail_out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    at_ = end_ - stream_.avail_in;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return damaged();
    between_ = status == Z_STREAM_END;
    if (between_) inflateReset(&stream_);
    return size_t{room - stream_.avail_out};
  }
  z_stream stream_{};
  bool good_ = false, padded_ = false;
};

class XzStream final : public Unpacker {
 public:
  XzStream(std::unique_ptr<ByteStream> packed, std::string path) : Unpacker(std::move(packed), std::move(path), "xz") {
    good_ = lzma_stream_decoder(&stream_, lzma_memory, LZMA_CONCATENATED) == LZMA_OK;
  }
  ~XzStream() override { lzma_end(&stream_); }

 private:
  result<size_t> step(u8* to, size_t size) override {
    if (!good_) return fail(ENOMEM, "cannot unpack " + path_);
    if (between_) return size_t{0};
    stream_.next_in = buffer_.data() + at_;
    stream_.avail_in = end_ - at_;
    stream_.next_out = to;
    stream_.avail_out = size;
    const lzma_ret status = lzma_code(&stream_, over_ ? LZMA_FINISH : LZMA_RUN);
    at_ = end_ - stream_.avail_in;
    if (status == LZMA_MEMLIMIT_ERROR)
      return refuse(std::errc::not_enough_memory,
                    path_ + " was packed so that xz needs more than 256 MiB; unpack it with xz -d first");
    if (status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR) return damaged();
    between_ = status == LZMA_STREAM_END;  // of all: the library takes several as one
    return size - stream_.avail_out;
  }
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool good_ = false;
};

class ZstdStream final : public Unpacker {
 public:
  ZstdStream(std::unique_ptr<ByteStream> packed, std::string path)
      : Unpacker(std::move(packed), std::move(path), "zstd"), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {}

 private:
  result<size_t> step(u8* to, size_t size) override {
    if (stream_ == nullptr) return fail(ENOMEM, "cannot unpack " + path_);
    if (at_ == end_ && between_) return size_t{0};
    ZSTD_inBuffer in{buffer_.data(), end_, at_};
    ZSTD_outBuffer out{to, size, 0};
    const size_t status = ZSTD_decompressStream(stream_.get(), &out, &in);
    at_ = in.pos;
    if (ZSTD_isError(status) != 0) return damaged();
    between_ = status == 0;
    return out.pos;
  }
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> plain_stream(int fd, const std::string& path) { return std::make_unique<FileStream>(fd, path); }

result<std::unique_ptr<ByteStream>> packed_stream(int fd, const std::string& path) {
  using namespace std::string_view_literals;
  struct stat st {};
  if (fstat(fd, &st) != 0) return fail(errno, "cannot look at " + path);
  auto file = std::make_unique<FileStream>(fd, path);
  const std::string_view head = RS_TRY(file->head(6));
  if (head.starts_with("\x1f\x8b\x08"sv)) return std::make_unique<GzipStream>(std::move(file), path);
  if (head.starts_with("\xfd"
                       "7zXZ\0"sv))
    return std::make_unique<XzStream>(std::move(file), path);
  if (head.starts_with("\x28\xb5\x2f\xfd"sv)) return std::make_unique<ZstdStream>(std::move(file), path);
  if (S_ISREG(st.st_mode)) return std::unique_ptr<ByteStream>();
  return std::unique_ptr<ByteStream>(std::move(file));
}

}  // namespace ringside
