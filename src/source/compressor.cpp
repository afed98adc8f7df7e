#include "source/compressor.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <ringside/base/check.hpp>

#include "source/groups.hpp"
#include "sys/beneath.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr int niceness = 10;  // the traced program comes first

// All of it or an error; `step` is pread or pwrite.
template <class Step, class Byte>
bool whole(const Step& step, int fd, Byte* at, u64 size, u64 offset) {
  while (size > 0) {
    const ssize_t n = step(fd, at, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno = n == 0 ? EIO : errno, false;
    at += n, offset += static_cast<u64>(n), size -= static_cast<u64>(n);
  }
  return true;
}

}  // namespace

result<std::shared_ptr<Compressor>> Compressor::create(std::shared_ptr<const sys::Fd> folder, const std::string& dir,
                                                       int probe) {
  if (!sys::free_part(probe, 0, page_size))
    return fail(errno,
                "cannot compress the recording in " + dir +
                    ": its file system frees no parts of files; record without --compress, or into another directory with -o");
  return std::shared_ptr<Compressor>(new Compressor(std::move(folder), dir));
}

Compressor::~Compressor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    queue_.clear();
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Compressor::add_ring(u32 number, Ring ring) {
  const std::lock_guard lock(mutex_);
  rings_[number] = std::move(ring);
}

// The thread is started by the first group: a command may be started by fork() before.
void Compressor::wake(u32 number, Ring& ring) {
  if (ring.waits || failure_ || ring.done == ring.ready || (ring.ready - ring.done < group_size && !ring.closed)) return;
  if (!thread_.joinable()) {
    auto started = sys::quiet_thread("that compresses the recording", [this] { work(); });
    if (!started) {
      failure_ = started.error();  // nothing is queued: finish() waits for nobody
      return;
    }
    thread_ = std::move(*started);
  }
  queue_.push_back(number);
  ring.waits = true;
  news_.notify_all();
}

void Compressor::ready(u32 number, u64 end) {
  const std::lock_guard lock(mutex_);
  Ring& ring = rings_.at(number);
  RINGSIDE_CHECK(end >= ring.ready, "what is complete stays so");
  ring.ready = end;
  ring.closed = false;
  wake(number, ring);
}

void Compressor::close(u32 number, u64 end) {
  const std::lock_guard lock(mutex_);
  Ring& ring = rings_.at(number);
  ring.ready = end;
  ring.closed = true;
  wake(number, ring);
}

void Compressor::work() {
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(sys::gettid()), niceness);
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const u32 number = queue_.front();
    const Ring ring = rings_.at(number);
    const u64 end = std::min<u64>(ring.ready, ring.done + group_size);
    lock.unlock();
    const auto size = compress_or_fail(ring, end);
    lock.lock();
    if (!size) {
      failure_ = size.error();
      queue_.clear();
    } else if (!queue_.empty()) {
      queue_.pop_front();
      Ring& now = rings_.at(number);
      now.size += *size;
      now.done = end;
      now.waits = false;
      wake(number, now);
    }
    news_.notify_all();
  }
}

result<sys::Fd> Compressor::open(const Ring& ring) const {
  sys::Fd file = sys::open_beneath(folder_->get(), ring.raw.c_str(), O_RDWR);
  struct stat st {};
  if (!file || fstat(file.get(), &st) != 0) return fail(errno, "cannot open again " + dir_ + "/" + ring.raw);
  if (st.st_dev != ring.device || st.st_ino != ring.inode)
    return refuse(
        std::errc::permission_denied,
        dir_ + "/" + ring.raw + " is another file than the one that was recorded into: somebody else writes to this directory");
  return result<sys::Fd>(std::move(file));
}

result<u64> Compressor::compress_or_fail(const Ring& ring, u64 end) {
  try {
    return compress(ring, end);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "cannot compress " + dir_ + "/" + ring.packed);
  }
}

result<u64> Compressor::compress(const Ring& ring, u64 end) {
  const std::string path = dir_ + "/" + ring.packed;
  const sys::Fd file = RS_TRY(open(ring));
  raw_.resize(end - ring.done);
  if (!whole(pread, file.get(), raw_.data(), raw_.size(), ring.done))
    return fail(errno, "cannot read again " + dir_ + "/" + ring.raw);
  u64 time_stamp = 0;
  std::memcpy(&time_stamp, raw_.data(), sizeof time_stamp);
  if (!make_group({raw_.data(), raw_.size()}, ring.size, ring.done, time_stamp, group_))
    return fail(ENOMEM, "cannot compress " + path);
  const sys::Fd packed = sys::open_beneath(folder_->get(), ring.packed.c_str(), O_WRONLY);
  if (!packed) return fail(errno, "cannot open again " + path);
  if (!whole(pwrite, packed.get(), static_cast<const u8*>(group_.data()), group_.size(), ring.size)) {
    const int why = errno;
    (void)!ftruncate(packed.get(), static_cast<off_t>(ring.size));
    return fail(why, "cannot write to " + path + " (what is not compressed is in " + ring.raw + ")");
  }
  if (!sys::free_part(file.get(), ring.done, raw_.size()))
    return fail(errno, "cannot free what is compressed of " + dir_ + "/" + ring.raw);
  return group_.size();
}

result<void> Compressor::finish() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return queue_.empty(); });
  if (failure_) return tl::unexpected<Error>(*failure_);
  for (const auto& [number, ring] : rings_) {
    RINGSIDE_CHECK(ring.done == ring.ready && ring.closed, "all of a closed ring is compressed");
    RS_TRY(open(ring));
    if (unlinkat(folder_->get(), ring.raw.c_str(), 0) != 0)
      return fail(errno, "cannot remove " + dir_ + "/" + ring.raw + ", which is compressed");
  }
  return {};
}

u64 Compressor::bytes() const {
  const std::lock_guard lock(mutex_);
  u64 sum = 0;
  for (const auto& [number, ring] : rings_) sum += ring.size;
  return sum;
}

}  // namespace ringside
