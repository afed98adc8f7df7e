#include "convert/unpacked.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "source/packed_stream.hpp"
#include "source/recording.hpp"
#include "source/tar.hpp"
#include "source/trace_dat_format.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

namespace fs = std::filesystem;

result<void> write_all(int fd, const u8* from, size_t size, const std::string& where) {
  while (size != 0) {
    const ssize_t n = ::write(fd, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno, "cannot unpack " + where + " into " + temporary_place() + " (TMPDIR names another place)");
    from += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

u64 size_of(const TarHead& head) {
  const auto* const from = reinterpret_cast<const u8*>(head.size);
  const bool bytes = (from[0] & 0x80) != 0;
  u64 value = 0;
  for (size_t n = bytes ? 4 : 0; n < sizeof head.size; ++n) {
    if (bytes || (from[n] >= '0' && from[n] <= '7')) value = bytes ? value << 8 | from[n] : value << 3 | (from[n] - u8{'0'});
  }
  return value;
}

// The prefix and the name, without ./ in front.
std::string name_of(const TarHead& head) {
  std::string name(head.prefix, strnlen(head.prefix, sizeof head.prefix));
  name += (name.empty() ? "" : "/") + std::string(head.name, strnlen(head.name, sizeof head.name));
  while (name.starts_with("./")) name.erase(0, 2);
  return name;
}

// Below the directory that it is unpacked into, whatever it says.
bool stays_below(const std::string& name) {
  if (name.empty() || name.front() == '/') return false;
  const fs::path path(name);
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

bool is_trace_dat(const u8* first, size_t size) {
  return size > trace_dat::magic_size && std::memcmp(first, trace_dat::magic, trace_dat::magic_size) == 0;
}
bool is_tar(const u8* first, size_t size) { return size == tar_block && reinterpret_cast<const TarHead*>(first)->is_one(); }

}  // namespace

bool Unpacked::is_given_open(const std::string& where) {
  if (where == "-" || where == "/dev/stdin") return true;
  struct stat st {};
  return (where.starts_with("/dev/fd/") || where.starts_with("/proc/self/fd/")) && ::stat(where.c_str(), &st) == 0 &&
         (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

result<std::shared_ptr<const Unpacked>> Unpacked::of(const std::string& where) {
  static std::mutex held;
  static std::map<std::pair<dev_t, ino_t>, std::shared_ptr<const Unpacked>> pipes;
  const std::string shown = where == "-" ? "stdin" : where;
  const bool given = is_given_open(where);
  sys::Fd opened = given ? sys::Fd(where == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                                : ::open(where.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY))
                         : RS_TRY(sys::open_data(where));
  struct stat st {};
  if (!opened || fstat(opened.get(), &st) != 0) return fail(errno, "cannot open " + shown);
  if (isatty(opened.get()) != 0)
    return refuse(std::errc::invalid_argument, shown + " is a terminal: pipe a trace.dat or a recording into this command");
  const bool once = !S_ISREG(st.st_mode);
  const std::lock_guard lock(held);
  if (const auto known = pipes.find({st.st_dev, st.st_ino}); once && known != pipes.end()) return known->second;
  if (!once) lseek(opened.get(), 0, SEEK_SET);
  std::unique_ptr<ByteStream> stream = RS_TRY(packed_stream(opened.get(), shown));
  std::shared_ptr<Unpacked> made(new Unpacked);
  if (stream == nullptr) {
    u8 first[tar_block];
    const ssize_t n = pread(opened.get(), first, sizeof first, 0);
    if (n < 0) return fail(errno, "cannot read " + shown);
    if (!is_tar(first, static_cast<size_t>(n))) {
      if (!given) return std::shared_ptr<const Unpacked>();
      made->file_ = std::move(opened);
      made->path_ = "/proc/self/fd/" + std::to_string(made->file_.get());
      return std::shared_ptr<const Unpacked>(made);
    }
    lseek(opened.get(), 0, SEEK_SET);
    stream = plain_stream(opened.get(), shown);
  }
  RS_TRY(made->take(*stream, shown));
  if (once) pipes[{st.st_dev, st.st_ino}] = made;
  return std::shared_ptr<const Unpacked>(made);
}

result<void> Unpacked::take(ByteStream& from, const std::string& where) {
  std::vector<u8> buffer(1 << 20);
  size_t n = RS_TRY(from.read(buffer.data(), tar_block));
  if (is_tar(buffer.data(), n)) return take_tar(from, where, buffer.data());
  if (!is_trace_dat(buffer.data(), n))
    return refuse(std::errc::invalid_argument,
                  where + (n == 0 ? " is empty" : " is neither a trace.dat nor a tar of a recording"));
  file_ = sys::Fd(::open(temporary_place().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file_)
    return fail(errno,
                "cannot make a file for what is in " + where + " in " + temporary_place() + " (TMPDIR names another place)");
  path_ = "/proc/self/fd/" + std::to_string(file_.get());
  while (n != 0) {
    RS_TRY(write_all(file_.get(), buffer.data(), n, where));
    n = RS_TRY(from.read(buffer.data(), buffer.size()));
  }
  return {};
}

result<void> Unpacked::take_tar(ByteStream& from, const std::string& where, const u8* first) {
  constexpr u64 most_files = 1 << 20;
  const auto cut = [&] { return refuse(std::errc::bad_message, where + " ends in the middle of a file of its tar"); };
  dir_ = RS_TRY(TemporaryDirectory::make("tar", "what is in " + where));
  const std::string& dir = dir_.path();
  std::vector<u8> buffer(1 << 20);
  std::memcpy(buffer.data(), first, tar_block);
  for (u64 files = 0;;) {
    if (std::all_of(buffer.begin(), buffer.begin() + tar_block, [](u8 byte) { return byte == 0; })) break;
    const auto& head = *reinterpret_cast<const TarHead*>(buffer.data());
    if (!head.is_one()) return refuse(std::errc::bad_message, where + " is damaged: a file of its tar has no head");
    const std::string name = name_of(head), path = dir + "/" + name;
    u64 left = size_of(head);
    const bool is_file = head.type == '0' || head.type == 0;
    // Links and devices are no part of a recording.
    if (is_file && (!stays_below(name) || ++files > most_files))
      return refuse(std::errc::bad_message, where + " is no recording: its tar has a file " + sys::printable(name));
    sys::Fd out;
    if (is_file) {
      std::error_code none;
      fs::create_directories(fs::path(path).parent_path(), none);
      ::unlink(path.c_str());  // of files of one name the last one counts
      out = sys::Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!out) return fail(errno, "cannot unpack " + where + " into " + dir);
    }
    if (left > u64{1} << 60) return refuse(std::errc::bad_message, where + " is damaged: a file of its tar has no size");
    for (u64 padded = (left + tar_block - 1) / tar_block * tar_block; padded != 0;) {
      const size_t want = std::min<u64>(padded, buffer.size());
      if (RS_TRY(from.read(buffer.data(), want)) != want) return cut();
      const size_t its = std::min<u64>(left, want);
      if (is_file) RS_TRY(write_all(out.get(), buffer.data(), its, where));
      left -= its;
      padded -= want;
    }
    if (const size_t n = RS_TRY(from.read(buffer.data(), tar_block)); n != tar_block) {
      if (n == 0) break;
      return cut();
    }
  }
  for (u64 rest = 0; rest < u64{1} << 20;) {  // the padding: a writer to a pipe would be killed
    const size_t n = RS_TRY(from.read(buffer.data(), buffer.size()));
    if (n == 0) break;
    rest += n;
  }
  // The recording is the whole, or a directory in it.
  if (ringside::is_recording(dir)) return path_ = dir, result<void>();
  std::vector<std::string> found;
  std::error_code none;
  for (fs::directory_iterator at(dir, none), end; !none && at != end; at.increment(none))
    if (ringside::is_recording(at->path())) found.push_back(at->path());
  if (found.empty())
    return refuse(std::errc::bad_message,
                  where + " is a tar, but there is no recording of ringside in it (a directory with a meta.json)");
  if (found.size() > 1)
    return refuse(std::errc::not_supported,
                  where + " is a tar of " + std::to_string(found.size()) +
                      " recordings, and one of them is no answer; unpack it with tar xf, and name them");
  path_ = found.front();
  return {};
}

}  // namespace ringside
