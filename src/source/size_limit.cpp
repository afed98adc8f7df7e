#include "source/size_limit.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/check.hpp>

#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// The blocks that a sub-buffer with this many bytes of events takes.
u64 taken(u64 bytes) { return (bytes + abi::header_size + page_size - 1) / page_size * page_size; }

}  // namespace

result<std::shared_ptr<SizeLimit>> SizeLimit::create(std::shared_ptr<const sys::Fd> folder, const std::string& dir, u64 most,
                                                     int probe) {
  if (!sys::free_part(probe, 0, page_size))
    return fail(
        errno,
        "cannot keep the recording in " + dir +
            " small: its file system frees no parts of files; without --max-size it grows, with --rotate whole parts go");
  return std::shared_ptr<SizeLimit>(new SizeLimit(std::move(folder), dir, most));
}

result<void> SizeLimit::remove_oldest() {
  const Piece oldest = pieces_.front();
  Ring& ring = rings_.at(oldest.ring);
  const std::string path = dir_ + "/" + ring.file;
  const sys::Fd file = sys::open_beneath(folder_->get(), ring.file.c_str(), O_RDWR);
  struct stat st {};
  if (!file || fstat(file.get(), &st) != 0) return fail(errno, "cannot open again " + path);
  if (st.st_dev != ring.device || st.st_ino != ring.inode)
    return refuse(std::errc::permission_denied,
                  path + " is another file than the one that was recorded into: somebody else writes to this directory");
  if (!sys::free_part(file.get(), oldest.offset, ring.subbuf_size))
    return fail(errno, "cannot remove the oldest events of " + path);
  ring.removed.events += oldest.events;
  ring.removed.bytes += oldest.bytes;
  total_ -= taken(oldest.bytes);
  pieces_.pop_front();
  ++first_;
  return {};
}

result<void> SizeLimit::make_room(u64 bytes) {
  while (!pieces_.empty() && total_ + taken(bytes) > most_) RS_TRY(remove_oldest());
  return {};
}

void SizeLimit::wrote(u32 ring, u64 offset, u64 bytes, u64 events) {
  pieces_.push_back({ring, offset, bytes, events});
  rings_.at(ring).newest = first_ + pieces_.size() - 1;
  total_ += taken(bytes);
}

void SizeLimit::grew(u32 ring, u64 bytes, u64 events) {
  RINGSIDE_CHECK(!newest_is_gone(ring), "what grows is there");
  Piece& piece = pieces_[rings_.at(ring).newest - first_];
  total_ += taken(piece.bytes + bytes) - taken(piece.bytes);
  piece.bytes += bytes;
  piece.events += events;
}

bool SizeLimit::newest_is_gone(u32 ring) const { return rings_.at(ring).newest < first_; }

Removed SizeLimit::removed(u32 ring) const {
  const auto at = rings_.find(ring);
  return at == rings_.end() ? Removed{} : at->second.removed;
}

}  // namespace ringside
