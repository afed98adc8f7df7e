#include "export/recording_as_tar.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "source/packed_stream.hpp"
#include "source/recording.hpp"
#include "source/tar.hpp"
#include "sys/beneath.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

namespace fs = std::filesystem;

template <size_t n>
void put(char (&field)[n], std::string_view text) {
  std::memcpy(field, text.data(), std::min(n, text.size()));
}

TarHead tar_head(const std::string& name, u64 size, i64 modified) {
  constexpr u64 largest = u64{1} << 33;
  TarHead head{};
  put(head.name, name);
  put(head.mode, "0000600");
  put(head.user, "0000000");  // root's, as no user's name is sent
  put(head.group, "0000000");
  if (size < largest) {
    put(head.size, fmt::format("{:011o}", size));
  } else {
    head.size[0] = static_cast<char>(0x80);
    for (size_t n = 0; n < 8; ++n) head.size[11 - n] = static_cast<char>(size >> 8 * n);
  }
  put(head.modified, fmt::format("{:011o}", std::max<i64>(modified, 0)));
  head.type = '0';
  put(head.magic, "ustar");
  put(head.version, "00");
  put(head.sum, "        ");  // the sum counts itself as blanks
  u32 sum = 0;
  for (size_t n = 0; n < sizeof head; ++n) sum += reinterpret_cast<const u8*>(&head)[n];
  put(head.sum, fmt::format("{:06o}", sum));
  head.sum[6] = 0;
  return head;
}

}  // namespace

result<void> recording_as_tar(const std::string& dir, std::string folder,
                              const std::function<result<void>(std::string_view)>& write) {
  constexpr size_t longest = 60;  // of the directory's name: the head has 100 bytes for both
  (void)RS_TRY(RecordingMeta::read(dir));
  if (folder.size() > longest) folder.resize(longest);
  const sys::Fd folder_fd(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd) return fail(errno, "cannot open " + dir);
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) files.push_back(at->path());
  if (error) return fail(error.value(), "cannot list the recording " + dir);
  std::sort(files.begin(), files.end());
  const std::string zeros(2 * tar_block, 0);
  std::vector<u8> buffer(1 << 20);
  for (const fs::path& file : files) {
    const sys::Fd fd = sys::open_beneath(folder_fd.get(), file.filename().c_str(), O_RDONLY);
    if (!fd) return sys::fail_beneath(errno, "cannot open " + file.string());
    struct stat st {};
    if (fstat(fd.get(), &st) != 0) return fail(errno, "cannot measure " + file.string());
    const auto size = static_cast<u64>(st.st_size);
    const std::string name = folder + "/" + file.filename().string();
    if (name.size() >= 100) return refuse(std::errc::filename_too_long, file.string() + " is no file of a recording");
    const TarHead head = tar_head(name, size, st.st_mtim.tv_sec);
    RS_TRY(write({reinterpret_cast<const char*>(&head), sizeof head}));
    const auto bytes = plain_stream(fd.get(), file);
    for (u64 left = size; left != 0;) {  // a recorder may be at work: what it adds is not taken
      const size_t n = RS_TRY(bytes->read(buffer.data(), std::min<u64>(left, buffer.size())));
      if (n == 0) return refuse(std::errc::io_error, file.string() + " became shorter while it was read");
      RS_TRY(write({reinterpret_cast<const char*>(buffer.data()), n}));
      left -= n;
    }
    RS_TRY(write(std::string_view(zeros).substr(0, (tar_block - size % tar_block) % tar_block)));
  }
  return write(zeros);
}

}  // namespace ringside
