// A ring of a recording that is being written.
#include <sys/stat.h>

#include "source/recording.hpp"
#include "source/sub_buffer_copy.hpp"
#include "source/walk.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

GrowingSource::GrowingSource(std::string dir, const RecordedRing& ring, const ClockInfo& clock)
    : Source(ring.name, clock), dir_(std::move(dir)), ring_(ring) {
  sys::guard_mappings();
}

// False: the file does not reach so far yet. No descriptor is kept: there may be thousands of rings.
result<bool> GrowingSource::reach(u64 size) {
  if (size <= file_.size()) return true;
  const std::string path = ring_path(dir_, ring_.name);
  const auto at = RS_TRY(sys::open_parent(path));
  const sys::Fd fd = sys::open_beneath(at.dir.get(), at.name.c_str(), O_RDONLY);
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return sys::fail_beneath(errno, "cannot open " + path);
  if (static_cast<u64>(st.st_size) < size) return false;
  file_ = RS_TRY(sys::Region::map(fd.get(), static_cast<u64>(st.st_size), false, path));
  return true;
}

result<std::optional<SubBufferView>> GrowingSource::next() {
  for (;;) {
    if (!RS_TRY(reach(offset_ + abi::header_size))) return std::nullopt;
    const u64 after = offset_ + ring_.subbuf_size;
    const bool last = !RS_TRY(reach(after + abi::header_size));  // asked first: only the last one grows
    const u8* const bytes = file_.data() + offset_;
    const u64 commit =
        __atomic_load_n(reinterpret_cast<const u64*>(bytes + offsetof(abi::SubBufferHeader, commit)), __ATOMIC_ACQUIRE);
    if (!RS_TRY(reach(offset_ + abi::header_size + abi::commit_size(commit)))) return std::nullopt;
    SubBufferView view;
    const bool good = view_copy(file_.data() + offset_, file_.size() - offset_, ring_.subbuf_size, view);
    if (file_.cut())
      return refuse(std::errc::io_error,
                    "cannot read " + ring_path(dir_, ring_.name) + ": it was truncated, or its disk has an error");
    if (!good && view.end <= ring_.subbuf_size - abi::header_size) return std::nullopt;  // it grew just now
    if (!good)
      return refuse(std::errc::bad_message, ring_path(dir_, ring_.name) + ": the sub-buffer at " + std::to_string(offset_) +
                                                " claims more data than the file has");
    if (view.end > seen_ || (!begun_ && view.lost_before != 0)) {
      if (begun_) {
        view.begin = seen_;
        view.time = time_;
        view.lost_before = 0;
      }
      begun_ = true;
      seen_ = view.end;
      time_ = walk(view).time;
      return view;
    }
    if (last) return std::nullopt;
    offset_ = after;
    seen_ = 0;
    begun_ = false;
  }
}

}  // namespace ringside
