#include "source/recording.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/check.hpp>

#include "source/recording_sender.hpp"
#include "source/sub_buffer_copy.hpp"
#include "source/walk.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using abi::SubBufferHeader;

// Writes all of it or fails; a full disk shows here.
result<void> write_all(int fd, iovec* parts, int count, u64 offset, const std::string& what) {
  while (count > 0) {
    const ssize_t n = pwritev(fd, parts, count, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail(errno, "cannot write to " + what + " (what was recorded so far stays readable)");
    }
    offset += static_cast<u64>(n);
    auto rest = static_cast<size_t>(n);
    while (count > 0 && rest >= parts->iov_len) {
      rest -= parts->iov_len;
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + rest;
      parts->iov_len -= rest;
    }
  }
  return {};
}

}  // namespace

namespace {

// This recording's share of the descriptors that the process may have; it needs the others for the rings that it reads.
size_t most_open_files() {
  rlimit limit{};
  const u64 may = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
  return std::clamp<u64>(may / 2, 8, 4096);
}

u32 number_of(const RingName& name) { return name.ring + (name.kernel ? RecordingWriter::kernel_rings : 0); }

u64 wall_clock_ns() {
  timespec ts{};
  clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<u64>(ts.tv_sec) * 1000000000 + static_cast<u64>(ts.tv_nsec);
}

bool holds_recording(int dir) { return static_cast<bool>(sys::open_beneath(dir, "meta.json", O_RDONLY)); }

// The files of the recording in a directory; none, if it is empty. EEXIST: there is anything else.
result<std::vector<std::string>> files_of_recording(int open, const std::string& dir) {
  const auto names = sys::names_in(open);
  if (!names) return fail(errno_of(names.error()), "cannot read the directory " + dir);
  std::vector<std::string> ours;
  std::string foreign;
  for (const std::string& name : *names) {
    if (name == "meta.json" || name == "meta.json.new" || name == "kallsyms" || name == "printk_formats" ||
        name == kept_names || ring_of_file(name))
      ours.push_back(name);
    else
      foreign = name;
  }
  if (!foreign.empty() || (!ours.empty() && !holds_recording(open))) {
    return refuse(std::errc::file_exists, "will not record into " + dir + ": it holds \"" +
                                              (foreign.empty() ? ours.front() : foreign) +
                                              "\", which is no recording; choose another directory with -o");
  }
  return ours;
}

// Removes an older recording. Touches nothing else in the directory. meta.json goes last: a death leaves a recording, or
// nothing.
result<void> clear_directory(int open, const std::string& dir) {
  auto files = RS_TRY(files_of_recording(open, dir));
  std::partition(files.begin(), files.end(), [](const std::string& name) { return name != "meta.json"; });
  for (const std::string& name : files) {
    if (unlinkat(open, name.c_str(), 0) != 0) return fail(errno, "cannot replace the older recording in " + dir);
  }
  return {};
}

// A recorder holds this lock until its end. Of no value: the file system has no locks.
result<sys::Fd> lock(int open, const std::string& dir) {
  sys::Fd own(openat(open, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (own && flock(own.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return refuse(std::errc::device_or_resource_busy,
                  "another command is still recording into " + dir + "; choose another directory with -o");
  return own;
}

}  // namespace

bool valid_subbuf_size(u64 size) {
  return is_power_of_two(size) && size >= abi::smallest_subbuf && size <= abi::largest_subbuf;
}
std::string ring_path(const std::string& dir, const RingName& name) { return dir + "/" + ring_file(name); }
std::string ring_file(const RingName& name) { return (name.kernel ? "cpu" : "ring") + std::to_string(name.ring) + ".raw"; }

std::string packed_file(const RingName& name) {
  std::string file = ring_file(name);
  return file.replace(file.size() - 4, 4, ".zst");
}

std::optional<RingName> ring_of_file(const std::string& file) {
  for (const bool kernel : {false, true}) {
    const std::string start = kernel ? "cpu" : "ring";
    if (file.compare(0, start.size(), start) != 0) continue;
    const size_t dot = file.find_first_not_of("0123456789", start.size());
    if (dot == start.size() || dot == std::string::npos || dot - start.size() > 9 ||
        (file.substr(dot) != ".raw" && file.substr(dot) != ".zst"))
      continue;
    RingName name;
    name.ring = static_cast<u32>(std::stoul(file.substr(start.size())));
    name.kernel = kernel;
    return name;
  }
  return std::nullopt;
}

bool is_being_recorded(const std::string& dir) {
  const sys::Fd own(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return own && flock(own.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}
std::string why_incomplete(const std::string& dir) {
  return is_being_recorded(dir) ? "it is still being recorded: what is here is what has been written so far"
                                : recorder_did_not_finish;
}

bool is_recording(const std::string& path) {
  const sys::Fd dir(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return dir && holds_recording(dir.get());
}

result<std::string> read_kept(const std::string& recording, const std::string& name) {
  const sys::Fd dir(::open(recording.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return fail(errno, "cannot open " + recording);
  return sys::read_beneath(dir.get(), name);
}

namespace {

// An older recording, and where it is to go.
struct Older {
  std::string path, old;
  bool link = false;      // a symlink leads to it
  bool replaces = false;  // a recording is at `old`
};

// None: there is no older recording.
result<std::optional<Older>> find_older(const std::string& dir) {
  std::error_code none;
  Older older;
  older.link = std::filesystem::is_symlink(dir, none);
  older.path = older.link ? std::filesystem::canonical(dir, none).string() : dir;
  while (older.path.size() > 1 && older.path.back() == '/') older.path.pop_back();
  older.old = older.path + ".old";
  struct stat st {};
  if (none || lstat(older.path.c_str(), &st) != 0) return std::nullopt;
  const auto holds = [](const std::string& place) -> result<bool> {
    const auto opened = RS_TRY(sys::open_trusted(place, sys::Role::other));
    RS_TRY(lock(opened.get(), place));
    return !RS_TRY(files_of_recording(opened.get(), place)).empty();
  };
  if (!S_ISDIR(st.st_mode))
    return refuse(std::errc::file_exists,
                  "will not record into " + older.path + ": it is no directory; choose another one with -o");
  if (!RS_TRY(holds(older.path))) return std::nullopt;
  if (lstat(older.old.c_str(), &st) != 0) return older;
  // An empty directory, which a death in the middle of set_aside leaves, is replaced by the rename itself.
  const auto is_one = S_ISDIR(st.st_mode) ? holds(older.old) : refuse(std::errc::not_a_directory, "");
  if (!is_one && is_one.error().code == std::errc::device_or_resource_busy) return tl::unexpected<Error>(is_one.error());
  if (!is_one)
    return refuse(std::errc::file_exists,
                  "will not replace " + older.old + ", where the older recording in " + older.path +
                      " would go: it is no recording; move one of them, or choose another directory with -o");
  older.replaces = *is_one;
  return older;
}

}  // namespace

result<void> can_set_aside(const std::string& dir) {
  (void)RS_TRY(find_older(dir));
  return {};
}

result<void> set_aside(const std::string& dir) {
  const auto older = RS_TRY(find_older(dir));
  if (!older) return {};
  const auto at = RS_TRY(sys::open_parent(older->path));
  if (older->replaces) {
    const auto opened = RS_TRY(sys::open_trusted(older->old, sys::Role::other));
    RS_TRY(clear_directory(opened.get(), older->old));
    if (unlinkat(at.dir.get(), (at.name + ".old").c_str(), AT_REMOVEDIR) != 0)
      return fail(errno, "cannot remove " + older->old);
  }
  if (renameat(at.dir.get(), at.name.c_str(), at.dir.get(), (at.name + ".old").c_str()) != 0)
    return fail(errno, "cannot rename the older recording " + older->path + " to " + older->old);
  if (older->link && mkdirat(at.dir.get(), at.name.c_str(), 0700) != 0)
    return fail(errno, "cannot make the directory " + older->path + " for the recording");
  return {};
}

result<sys::Fd> make_recording_directory(const std::string& dir) {
  auto at = RS_TRY(sys::open_parent(dir));
  const bool fresh = mkdirat(at.dir.get(), at.name.c_str(), 0700) == 0;
  if (!fresh && errno != EEXIST) return fail(errno, "cannot make the directory " + dir + " for the recording");
  auto opened = fresh ? result<sys::Fd>(sys::open_beneath(at.dir.get(), at.name.c_str(), O_PATH | O_DIRECTORY))
                      : sys::open_trusted(dir, sys::Role::other);
  if (opened && !*opened) return fail(errno, "cannot open " + dir);
  if (!opened) return opened;
  if (auto own = RS_TRY(lock(opened->get(), dir)); own) *opened = std::move(own);
  if (!fresh) RS_TRY(clear_directory(opened->get(), dir));
  return opened;
}

RecordingWriter::RecordingWriter(std::string dir, const ClockInfo& clock) : dir_(std::move(dir)) {
  meta_.clock = clock;
  meta_.boot = sys::boot_id();
  meta_.world = World::own();
  meta_.start_ns = wall_clock_ns();
}

result<RecordingWriter> RecordingWriter::create(std::shared_ptr<RecordingSender> sender, const ClockInfo& clock) {
  RecordingWriter writer(sender->to(), clock);
  writer.sender_ = std::move(sender);
  RS_TRY(writer.save());
  writer.reserved_ = true;
  return writer;
}

result<RecordingWriter> RecordingWriter::create(const std::string& dir, const ClockInfo& clock, u64 max_size, bool compress) {
  auto opened = RS_TRY(make_recording_directory(dir));
  RecordingWriter writer(dir, clock);
  writer.folder_ = std::make_shared<sys::Fd>(std::move(opened));
  RINGSIDE_CHECK(max_size == 0 || !compress, "what is compressed has no place that could be freed");
  writer.meta_.max_size = max_size;
  writer.meta_.compressed = compress;
  RS_TRY(writer.save());
  if (max_size != 0) {
    const sys::Fd probe = RS_TRY(writer.make_file("meta.json.new"));
    writer.limit_ = RS_TRY(SizeLimit::create(writer.folder_, dir, max_size, probe.get()));
  }
  if (compress) {
    const sys::Fd probe = RS_TRY(writer.make_file("meta.json.new"));
    writer.compressor_ = RS_TRY(Compressor::create(writer.folder_, dir, probe.get()));
  }
  RS_TRY(RecordingMeta::keep_room(writer.folder_->get(), dir));
  writer.reserved_ = true;
  return writer;
}

RecordingWriter RecordingWriter::beside(const RecordingWriter& first) {
  RecordingWriter writer(first.dir_, {});
  writer.folder_ = first.folder_;
  writer.sender_ = first.sender_;
  writer.limit_ = first.limit_;
  writer.followed_ = first.followed_;
  writer.compressor_ = first.compressor_;
  writer.meta_.subbuf_size = page_size;  // not the first ring, so nothing to save
  return writer;
}

RecordingWriter::RecordingWriter(RecordingWriter&& other) noexcept
    : dir_(std::move(other.dir_)),
      folder_(std::move(other.folder_)),
      sender_(std::move(other.sender_)),
      meta_(std::move(other.meta_)),
      files_(std::exchange(other.files_, {})),
      open_(std::exchange(other.open_, {})),
      limit_(std::move(other.limit_)),
      compressor_(std::move(other.compressor_)),
      reserved_(std::exchange(other.reserved_, false)),
      followed_(other.followed_),
      unlisted_(other.unlisted_) {}

RecordingWriter::~RecordingWriter() {
  if (reserved_ && folder_) unlinkat(folder_->get(), "meta.json.new", 0);
}

void RecordingWriter::count_removed() {
  if (!limit_) return;
  const auto lock = limit_->lock();
  for (RecordedRing& ring : meta_.rings) ring.removed = limit_->removed(number_of(ring.name));
}

result<void> RecordingWriter::save() {
  unlisted_ = false;
  count_removed();
  return sender_ ? meta_.send(*sender_) : meta_.write(folder_->get(), dir_, !reserved_);
}

// The directory may have a new name by now, and others may write there: the file is made anew, and opened in no other way.
result<sys::Fd> RecordingWriter::make_file(const std::string& name) const {
  if (unlinkat(folder_->get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return fail(errno, "cannot replace " + dir_ + "/" + name);
  sys::Fd fd = sys::open_beneath(folder_->get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL);
  if (!fd) return fail(errno, "cannot make " + dir_ + "/" + name);
  return result<sys::Fd>(std::move(fd));
}

result<void> RecordingWriter::keep(const std::string& name, const std::string& text) const {
  if (sender_) return sender_->replace(name, text);
  auto fd = RS_TRY(make_file(name));
  auto written = sys::write_text(fd.get(), dir_ + "/" + name, text);
  if (!written) unlinkat(folder_->get(), name.c_str(), 0);  // the disk may be full of this half
  return written;
}

bool RecordingWriter::keep_as_in(const std::string& dir, const std::string& name) const {
  if (sender_) return false;
  const sys::Fd other(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return other && linkat(other.get(), name.c_str(), folder_->get(), name.c_str(), 0) == 0;
}

void RecordingWriter::release(u32 ring) {
  RingFile& file = files_.at(ring);
  if (!file.fd) return;
  file.fd = {};
  const auto place = std::find(open_.begin(), open_.end(), ring);
  RINGSIDE_CHECK(place != open_.end(), "an open file of a recording is in the list of open files");
  open_.erase(place);
}

void RecordingWriter::make_room() {
  static const size_t most = most_open_files();
  if (open_.size() >= most) release(open_.front());
  RINGSIDE_CHECK(open_.size() < most, "a released file leaves room for another one");
}

result<void> RecordingWriter::reopen(u32 ring, RingFile& file) {
  if (file.fd || sender_) return {};
  make_room();
  const std::string name = ring_file(meta_.rings[file.index].name);
  sys::Fd fd = sys::open_beneath(folder_->get(), name.c_str(), O_RDWR);
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return fail(errno, "cannot open again " + dir_ + "/" + name);
  if (st.st_dev != file.device || st.st_ino != file.inode)
    return refuse(
        std::errc::permission_denied,
        dir_ + "/" + name + " is another file than the one that was recorded into: somebody else writes to this directory");
  file.fd = std::move(fd);
  open_.push_back(ring);
  return {};
}

result<void> RecordingWriter::add_ring(const RingName& name, u32 subbuf_size) {
  if (!valid_subbuf_size(subbuf_size))
    return refuse(std::errc::invalid_argument,
                  "ring " + std::to_string(name.ring) + " claims sub-buffers of " + std::to_string(subbuf_size) + " bytes");
  if (meta_.subbuf_size == 0) {
    meta_.subbuf_size = subbuf_size;
    RS_TRY(save());
  }
  RingFile file;
  struct stat st {};
  if (sender_) {
    file.sent = RS_TRY(sender_->add_ring(ring_file(name)));
  } else {
    make_room();
    if (compressor_) RS_TRY(make_file(packed_file(name)));  // a reader that finds the other one finds this, too
    file.fd = RS_TRY(make_file(ring_file(name)));
    if (fstat(file.fd.get(), &st) != 0) return fail(errno, "cannot look at " + ring_path(dir_, name));
  }
  file.device = st.st_dev;
  file.inode = st.st_ino;
  file.index = meta_.rings.size();
  RecordedRing ring;
  ring.name = name;
  ring.subbuf_size = subbuf_size;
  meta_.rings.push_back(ring);
  unlisted_ = unlisted_ || (reserved_ && subbuf_size != meta_.subbuf_size);
  const u32 number = number_of(name);
  RINGSIDE_CHECK(!has_ring(number), "a ring is added to a recording once");
  if (file.fd) open_.push_back(number);
  files_[number] = std::move(file);
  if (limit_) {
    const auto lock = limit_->lock();
    limit_->add_ring(number, ring_file(name), st.st_dev, st.st_ino, subbuf_size);
  }
  if (compressor_) compressor_->add_ring(number, {ring_file(name), packed_file(name), st.st_dev, st.st_ino, subbuf_size});
  return {};
}

result<void> RecordingWriter::append(u32 ring, const SubBufferView& view) {
  RingFile& file = files_.at(ring);
  RecordedRing& entry = meta_.rings[file.index];
  if (view.begin > view.end || view.end > entry.subbuf_size - abi::header_size)
    return refuse(std::errc::bad_message, ring_file(entry.name) + ": bytes " + std::to_string(view.begin) +
                                              " to " + std::to_string(view.end) + " of a sub-buffer of " +
                                              std::to_string(entry.subbuf_size) + " were handed out");
  const Walk w = walk(view);
  if (w.malformed != abi::Malformed::no)
    return refuse(std::errc::bad_message,
                  ring_file(entry.name) + ": a malformed sub-buffer was handed out: " + abi::to_string(w.malformed));
  RINGSIDE_CHECK(view.begin <= w.end && w.end <= view.end, "a walk over a view ends inside it");
  SubBufferView kept = view;
  kept.end = w.end;
  if (w.events != 0 || view.lost_before != 0) {
    RS_TRY(reopen(ring, file));
    if (!entry.unordered && (w.backwards || view.time < file.latest)) {
      entry.unordered = true;
      unlisted_ = unlisted_ || reserved_;
    }
    file.latest = std::max(file.latest, w.time);
    RS_TRY(unlisted_ ? save() : result<void>{});
    const auto lock = limit_ ? limit_->lock() : std::unique_lock<std::mutex>();
    struct Whole {  // half a sub-buffer would be a damaged file
      RingFile& file;
      const Written before;
      bool done = false;
      ~Whole() {
        if (done) return;
        static_cast<Written&>(file) = before;
        if (file.fd) (void)!ftruncate(file.fd.get(), static_cast<off_t>(file.offset));
      }
    } whole{file, file};
    RS_TRY(put(file, entry, kept, w));
    whole.done = true;
  }
  entry.events += w.events;
  entry.bytes += kept.end - kept.begin;
  entry.lost += view.lost_before;
  return {};
}

result<void> RecordingWriter::put(RingFile& file, RecordedRing& entry, const SubBufferView& view, const Walk& w) {
  SubBufferView kept = view;
  bool grows = view.begin != 0 && file.last_end == view.begin && view.lost_before == 0;
  if (limit_ && grows) {
    RS_TRY(limit_->make_room(view.end - view.begin));
    grows = !limit_->newest_is_gone(number_of(entry.name));
  }
  if (grows) return grow(file, kept, w.events);

  // After a full sub-buffer there is no room for the number of missed events: its last event then goes into a sub-buffer of
  // its own.
  const u32 capacity = entry.subbuf_size - abi::header_size;
  if (view.lost_before != 0 && kept.end - kept.begin + 8 > capacity && w.events > 1) {
    SubBufferView last = kept;
    kept.end = last.begin = w.before_last;
    last.time = w.time_before_last;
    last.lost_before = 0;
    RS_TRY(append_piece(file, entry, kept, w.events - 1));
    return append_piece(file, entry, last, 1);
  }
  return append_piece(file, entry, kept, w.events);
}

result<void> RecordingWriter::write(const RingFile& file, iovec* parts, int count, u64 offset) const {
  if (sender_) return sender_->write(file.sent, offset, parts, count);
  return write_all(file.fd.get(), parts, count, offset, ring_path(dir_, meta_.rings[file.index].name));
}

result<void> RecordingWriter::append_piece(RingFile& file, RecordedRing& ring, const SubBufferView& view, u64 events) {
  const u32 size = view.end - view.begin;
  RINGSIDE_CHECK(size <= ring.subbuf_size - abi::header_size, "the data of a piece fits in its sub-buffer");
  SubBufferHeader header = header_of_copy(view, ring.subbuf_size);
  u64 lost = view.lost_before;
  if (limit_) RS_TRY(limit_->make_room(size + sizeof lost));
  iovec parts[3] = {
      {&header, sizeof header}, {const_cast<u8*>(view.sub_buffer) + abi::header_size + view.begin, size}, {&lost, sizeof lost}};
  const int count = abi::commit_stored(header.commit) ? 3 : 2;
  if (followed_) {
    RS_TRY(write(file, parts + 1, count - 1, file.offset + sizeof header));
    RS_TRY(write(file, parts, 1, file.offset));
  } else {
    RS_TRY(write(file, parts, count, file.offset));
  }
  if (compressor_) compressor_->ready(number_of(ring.name), file.offset);  // the last one grows no more
  if (limit_) limit_->wrote(number_of(ring.name), file.offset, size, events);
  file.last_offset = file.offset;
  file.offset += ring.subbuf_size;
  file.time_stamp = header.time_stamp;
  file.commit = size;
  file.shift = view.begin;
  file.last_end = lost != 0 ? 0 : view.end;  // a stored number is where the data would grow
  return {};
}

result<void> RecordingWriter::grow(RingFile& file, const SubBufferView& view, u64 events) {
  const u32 size = view.end - view.begin;
  RINGSIDE_CHECK(file.shift + file.commit == view.begin, "what a sub-buffer grows by begins where its data ends");
  iovec data{const_cast<u8*>(view.sub_buffer) + abi::header_size + view.begin, size};
  const u64 at = file.last_offset + abi::header_size + view.begin - file.shift;
  RS_TRY(write(file, &data, 1, at));
  SubBufferHeader header{file.time_stamp, file.commit + size};
  iovec head{&header, sizeof header};
  RS_TRY(write(file, &head, 1, file.last_offset));
  if (limit_) limit_->grew(number_of(meta_.rings[file.index].name), size, events);
  file.commit += size;
  file.last_end = view.end;
  return {};
}

result<void> RecordingWriter::close_files() {
  for (auto& [ring, file] : files_) {
    const bool idle = !file.fd;
    RS_TRY(reopen(ring, file));
    if (sender_)
      RS_TRY(sender_->set_size(file.sent, file.offset));
    else if (ftruncate(file.fd.get(), static_cast<off_t>(file.offset)) != 0)
      return fail(errno, "cannot close " + ring_path(dir_, meta_.rings[file.index].name));
    file.last_end = 0;  // it grows no more
    meta_.rings[file.index].file_size = compressor_ ? 0 : file.offset;
    if (compressor_) compressor_->close(ring, file.offset);
    if (idle) release(ring);
  }
  return {};
}

result<void> RecordingWriter::finish(u64 duration_ns) {
  auto ended = close_files();
  meta_.stop_ns = wall_clock_ns();
  if (ended && compressor_) ended = compressor_->finish();
  meta_.duration_ns = duration_ns;
  meta_.complete = true;
  count_removed();
  auto saved = sender_ ? meta_.send(*sender_) : meta_.write(folder_->get(), dir_);
  if (saved && sender_) saved = sender_->end(has_stacks(meta_));
  if (!saved) return saved;
  reserved_ = false;
  return ended;
}

}  // namespace ringside
