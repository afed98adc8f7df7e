// A ring of a recording, read in place.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "source/sub_buffer_copy.hpp"
#include "source/recording.hpp"
#include "source/walk.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

using abi::SubBufferHeader;

RecordingSource::RecordingSource(SubBufferFile whole, sys::Region file, u64 begin, const RecordedRing& ring,
                                 const RecordingMeta& meta)
    : Source(ring.name, meta.clock),
      sub_buffer_file_(std::move(whole)),
      file_(std::move(file)),
      ring_(ring),
      complete_(meta.complete),
      whole_(meta.keeps_all() && !meta.compressed),
      shrinking_(meta.max_size != 0 && !meta.complete),
      begin_(begin),
      offset_(begin) {
  ring_.counters.subbuf_size = ring.subbuf_size;  // known also where the recorder could not close its books
}

result<std::unique_ptr<Source>> RecordingSource::open(int open, const std::string& dir, const RecordedRing& ring,
                                                      const RecordingMeta& meta) {
  const std::string path = ring_path(dir, ring.name);
  const std::string packed_path = dir + "/" + packed_file(ring.name);
  if (!valid_subbuf_size(ring.subbuf_size))
    return refuse(std::errc::bad_message, dir + "/meta.json gives ring " + std::to_string(ring.name.ring) + " sub-buffers of " +
                                              std::to_string(ring.subbuf_size) +
                                              " bytes; possible are powers of two from 4096 to 262144");
  sys::guard_mappings();
  // What leaves the second one is in the first.
  sys::Fd packed = meta.compressed ? sys::open_beneath(open, packed_file(ring.name).c_str(), O_RDONLY) : sys::Fd();
  if (meta.compressed && !packed) return sys::fail_beneath(errno, "cannot open " + packed_path);
  const sys::Fd fd = sys::open_beneath(open, ring_file(ring.name).c_str(), O_RDONLY);
  if (!fd && (!packed || errno != ENOENT)) return sys::fail_beneath(errno, "cannot open " + path);
  struct stat st {};
  if (fd && fstat(fd.get(), &st) != 0) return fail(errno, "cannot measure " + path);
  const SubBufferFile whole{path, static_cast<u64>(st.st_size), st.st_dev, st.st_ino};
  const off_t data = meta.max_size == 0 ? 0 : lseek(fd.get(), 0, SEEK_DATA);
  const u64 begin = data >= 0 ? static_cast<u64>(data) / ring.subbuf_size * ring.subbuf_size : errno == ENXIO ? whole.size : 0;
  sys::Region file;
  if (whole.size != 0) {
    file = RS_TRY(sys::Region::map(fd.get(), whole.size, false, path));
  }
  std::unique_ptr<RecordingSource> source(new RecordingSource(whole, std::move(file), begin, ring, meta));
  if (packed) {
    source->packed_ = std::move(packed);
    RS_TRY(source->map_groups(packed_path));
  }
  return std::unique_ptr<Source>(std::move(source));
}

// Maps what is there now. The rest is after it in the other file.
result<void> RecordingSource::map_groups(const std::string& path) {
  struct stat st {};
  if (fstat(packed_.get(), &st) != 0) return fail(errno, "cannot measure " + path);
  sys::Region file;
  if (st.st_size != 0) {
    file = RS_TRY(sys::Region::map(packed_.get(), static_cast<u64>(st.st_size), false, path));
  }
  groups_ = GroupFile(std::move(file), ring_.subbuf_size);
  begin_ = offset_ = groups_.raw_end();
  packed_path_ = path;
  if (complete_) packed_ = {};
  return {};
}

// Were those that are gone from the other file compressed meanwhile?
bool RecordingSource::more_groups() {
  struct stat st {};
  was_read_ = offset_ - ring_.subbuf_size;  // this one is gone; those before it were read
  return packed_ && fstat(packed_.get(), &st) == 0 && static_cast<u64>(st.st_size) > groups_.size() &&
         map_groups(packed_path_) && group_at_ < groups_.end();
}

// False: all were read.
result<bool> RecordingSource::next_group() {
  if (group_at_ >= groups_.end()) {
    const bool torn = complete_ && groups_.size() != groups_.end();
    if (torn && group_at_ <= groups_.size()) {
      group_at_ = groups_.size() + 1;
      return refuse(std::errc::bad_message, packed_path_ + " is no sequence of groups after " + std::to_string(groups_.end()) +
                                                " bytes; the rest of this ring cannot be read");
    }
    return false;
  }
  const auto group = groups_.at(group_at_);
  const bool good = group && groups_.read(*group, group_);
  if (groups_.cut())
    return refuse(std::errc::io_error, "cannot read " + packed_path_ + " at " + std::to_string(group_at_) +
                                           ": it was truncated, or its disk has an error");
  if (!good) {
    const u64 at = std::exchange(group_at_, ~u64{0});
    return refuse(std::errc::bad_message,
                  packed_path_ + ": the group at " + std::to_string(at) + " is damaged; the rest of this ring cannot be read");
  }
  group_at_ = group->end;
  in_group_ = std::clamp(was_read_, group->raw_at, group->raw_end()) - group->raw_at;
  return true;
}

std::optional<SubBufferFile> RecordingSource::sub_buffer_file() const {
  return begin_ == 0 && !shrinking_ && packed_path_.empty() ? std::optional(sub_buffer_file_) : std::nullopt;
}

// Whether the kernel is to read ahead. Time stamps are looked up here and there, each in a page of its own.
void RecordingSource::will_read(bool in_a_row) const {
  if (in_a_row_ == in_a_row || file_.size() == 0) return;
  in_a_row_ = in_a_row;
  madvise(file_.data(), file_.size(), in_a_row ? MADV_NORMAL : MADV_RANDOM);
}

u64 RecordingSource::time_stamp(u64 index) const {
  if (index < groups_.places()) {
    const auto group = groups_.first_from(index * GroupFile::place);
    return group ? group->time_stamp : 0;
  }
  will_read(false);
  SubBufferHeader header{};
  const u64 at = begin_ + (with_header(index) - groups_.places()) * ring_.subbuf_size;
  if (at + sizeof header <= file_.size()) std::memcpy(&header, file_.data() + at, sizeof header);
  return header.time_stamp;
}

// The last sub-buffer with a non-zero header at or before index; else the first one. Zeros have no time, and the order by time
// must stay.
u64 RecordingSource::with_header(u64 index) const {
  const auto zeros = [&](u64 n) {
    const u64 at = begin_ + n * ring_.subbuf_size;
    return at + abi::header_size <= file_.size() && is_removed(file_.data() + at);
  };
  if (!whole_) return index;
  while (index != 0 && zeros(index)) --index;
  return index;
}

void RecordingSource::seek(u64 index) {
  index = with_header(index);
  group_.clear();
  in_group_ = was_read_ = 0;
  const bool compressed = index < groups_.places();
  const auto group = compressed ? groups_.first_from(index * GroupFile::place) : std::nullopt;
  group_at_ = group ? group->at : groups_.end();
  offset_ = begin_ + (compressed ? 0 : index - groups_.places()) * ring_.subbuf_size;
  removed_ = false;
}

// Copies a sub-buffer. False: it was removed meanwhile.
bool RecordingSource::take(u64 at, u64 have) {
  copy_.assign(ring_.subbuf_size / 8, 0);
  std::memcpy(copy_.data(), file_.data() + at, have);
  if (!shrinking_ && !packed_) return true;
  return !is_removed(file_.data() + at);
}

// A removed one reads as zeros, perhaps only in part: its header goes with the rest.
bool RecordingSource::is_removed(const u8* sub_buffer) {
  SubBufferHeader now{};
  std::memcpy(&now, sub_buffer, sizeof now);
  return is_zeros(now);
}

result<std::optional<SubBufferView>> RecordingSource::next() {
  u64 at = 0, have = 0;
  const u8* bytes = nullptr;
  will_read(true);
  for (;;) {
    if (in_group_ == group_.size() * 8 && RS_TRY(next_group())) continue;
    if (in_group_ < group_.size() * 8) {
      bytes = reinterpret_cast<const u8*>(group_.data()) + in_group_;
      in_group_ += have = ring_.subbuf_size;
      break;
    }
    at = offset_;
    have = std::min<u64>(ring_.subbuf_size, file_.size() - std::min(at, file_.size()));
    if (have < abi::header_size) {  // the end, or the recorder died after half a header
      if (std::exchange(removed_, false) && whole_)
        return refuse(std::errc::bad_message, sub_buffer_file_.path + " ends with zeros where events were recorded");
      return std::nullopt;
    }
    offset_ += ring_.subbuf_size;
    bytes = file_.data() + at;
    if (whole_ && is_removed(bytes)) {
      removed_ = true;
      continue;
    }
    // The recorder was killed before it closed the file: the last sub-buffer is as long as its written part.
    if (have == ring_.subbuf_size && !shrinking_ && !packed_) break;
    const bool there = take(at, have);
    bytes = reinterpret_cast<const u8*>(copy_.data());
    if (packed_ && !there && more_groups()) continue;
    if (packed_) break;
    if (there || file_.cut()) break;
    removed_ = true;
  }
  SubBufferView view;
  bool good = view_copy(bytes, have, ring_.subbuf_size, view);
  if (!good && !complete_ && have < ring_.subbuf_size && view.end <= ring_.subbuf_size - abi::header_size) {
    // Killed while writing it: the whole events are there. They are still in the ring, too, which counted none of them as read.
    view.end = static_cast<u32>(have - abi::header_size);
    view.end = walk(view).end;
    good = true;
  }
  if (file_.cut())
    return refuse(std::errc::io_error, "cannot read " + sub_buffer_file_.path + " at " + std::to_string(at) +
                                           ": it was truncated, or its disk has an error");
  if (!good) {
    return refuse(std::errc::bad_message, sub_buffer_file_.path + ": the sub-buffer at " + std::to_string(at) + " claims " +
                                              std::to_string(view.end) + " bytes of data, the file has " +
                                              std::to_string(have - abi::header_size) +
                                              "; the rest of this ring cannot be read");
  }
  if (std::exchange(removed_, false))
    view.lost_at_least = true, view.lost_before = std::max<u64>(view.lost_before, 1);  // by its recorder, or by anybody
  return view;
}

result<std::vector<std::unique_ptr<Source>>> open_recording(const std::string& dir, const RecordingMeta& meta,
                                                            std::vector<std::string>* problems) {
  std::vector<std::unique_ptr<Source>> sources;
  std::optional<Error> first;
  const sys::Fd open(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!open) return fail(errno, "cannot open " + dir);
  for (const RecordedRing& ring : meta.rings) {
    auto source = RecordingSource::open(open.get(), dir, ring, meta);
    // A recorder killed between naming a ring and making its file leaves a name without a file.
    if (!source && !meta.complete && source.error().code == std::errc::no_such_file_or_directory) continue;
    if (source) {
      const auto file = meta.keeps_all() ? (*source)->sub_buffer_file() : std::nullopt;
      const u64 size = std::max(ring.file_size, ring.bytes);
      if (problems != nullptr && file && file->size < size)
        problems->push_back(file->path + " was cut: it has " + std::to_string(file->size) + " bytes of " + std::to_string(size));
      sources.push_back(std::move(*source));
      continue;
    }
    if (problems != nullptr)
      problems->push_back(source.error().sentence + "; its events are missing: " + std::to_string(ring.events));
    if (!first) first = std::move(source.error());
  }
  if (first && (problems == nullptr || sources.empty())) return tl::unexpected<Error>(std::move(*first));
  return sources;
}

}  // namespace ringside
