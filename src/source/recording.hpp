// A recording: a directory with the content of an instance's rings, written live.
//
//   DIR/meta.json   version, clock, boot, events with their formats, rings, threads, start and stop, the counters at the end
//   DIR/cpuN.raw    the kernel's ring of processor N, in the format of ringN.raw
//   DIR/printk_formats   texts that the kernel's events point to, as tracefs lists them
//   DIR/kallsyms    names of the kernel's addresses, like /proc/kallsyms; only where an event needs them
//   DIR/names       names of the addresses of its stacks, as they were when it was made
//   DIR/ringN.raw   ring N's sub-buffers back to back, each `subbuf_size` bytes, in the format of read() of trace_pipe_raw:
//                   16 bytes of header (time stamp; commit with the missed-events flags in bits 31 and 30), the data, the
//                   number of missed events right after the data, zeros (holes of the file) to the end
//
//   DIR/ringN.zst, cpuN.zst   of a compressed recording: the older part of ringN.raw, in groups (groups.hpp). ringN.raw has a
//   hole
//                   there, and is gone when all is compressed
//
// With --max-size the files begin with a hole, where the sub-buffers were that had to go.
//
// Sub-buffers that were read bit by bit grow in place: the data first, then the commit that makes it valid. meta.json is
// replaced in one step, from time to time while recording (it grows with the number of threads). So a recorder may be killed at
// any time, and the directory is readable. Then "complete" is false, the closing counters are missing, and rings that have a
// file but no entry yet are added with the general `subbuf_size`, without a name.
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "source/account.hpp"
#include "source/compressor.hpp"
#include "source/groups.hpp"
#include "source/size_limit.hpp"
#include "source/source.hpp"
#include "source/wall.hpp"
#include "source/world.hpp"
#include "sys/sys.hpp"

namespace ringside {

class RecordingSender;

struct RecordedRing {
  RingName name;
  u32 subbuf_size = 0;
  u64 events = 0, bytes = 0, lost = 0;  // recorded; lost: the gaps between them
  Removed removed{};                    // of these, the oldest that had to go (RecordingMeta::max_size)
  Counters counters;                    // of the ring, at the end
  u64 file_size = 0;                    // of ringN.raw when it was closed; 0: not known
  bool unordered = false;               // its times go back somewhere
  std::string way;                      // how the kernel's ring was read: "read", "map"
};

// The event that made a flight recorder save its rings.
struct RecordedTrigger {
  std::string condition, event;        // the event as text
  u64 time_ns = 0;                     // of the event, by the recording's clock
  std::optional<u64> latency_ns{};     // of the pair that the event ended
};

inline constexpr const char* kept_names = "names";  // of the addresses of stacks, as the recorder has looked them up

// A doubt about a recording that is not `complete`: its recorder died, or is still at work.
inline constexpr const char* recorder_did_not_finish =
    "the recorder did not finish; the closing counters are missing, the events are here";
std::string why_incomplete(const std::string& dir);

struct RecordingMeta {
  ClockInfo clock;
  std::string boot;               // the machine's boot_id; empty: made before it was kept, or by another machine's writer
  World world;                    // the machine
  u32 subbuf_size = 0;            // for rings that are not listed yet
  u64 start_ns = 0, stop_ns = 0;  // wall clock, since 1970
  std::optional<WallClock> wall{};  // at its begin
  i64 wall_set_ns = 0;              // how much further the wall clock went until its end: somebody has set it
  u64 duration_ns = 0;
  u64 max_size = 0;               // what the rings' files may take; 0: as much as there is
  std::vector<std::string> command;
  std::vector<EventInfo> events;
  std::vector<RecordedRing> rings;
  std::vector<RingName> threads;  // every thread seen; more than rings, because rings are reused
  std::vector<NameChange> names;  // that their numbers got while it was recorded
  std::optional<RecordedTrigger> trigger;
  Counters totals;                // at the end, including rings whose memory was given back
  Account account;                // where the events are that were written while it was made; the gaps are in its rings, too
  bool compressed = false;        // there are files ringN.zst
  bool complete = false;

  Removed removed() const;  // of all rings
  bool keeps_all() const { return complete && max_size == 0; }  // what was recorded is in its files
  static result<RecordingMeta> read(const std::string& dir);
  std::string text(int indent = -1) const;  // of meta.json; -1: on one line
  // Writes into the directory `open`; `dir` is its name in messages. Two files take turns, so that there is room for the next:
  // a full disk takes no more events, but it takes the names of the recorded ones. last: gives that room back.
  result<void> write(int open, const std::string& dir, bool last = true) const;
  static result<void> keep_room(int open, const std::string& dir, u64 size = 0);
  result<void> send(RecordingSender& sender) const;
};
bool has_stacks(const RecordingMeta& meta);  // of calls of programs, whose addresses have names

// "ring7.raw", "cpu1.raw"; and back.
std::string ring_file(const RingName& name);
std::string packed_file(const RingName& name);  // "ring7.zst"
std::string ring_path(const std::string& dir, const RingName& name);
bool valid_subbuf_size(u64 size);
std::optional<RingName> ring_of_file(const std::string& file);

bool is_being_recorded(const std::string& dir);  // a recorder writes it now
bool is_recording(const std::string& path);  // is it a directory with a meta.json?
// An older recording in `dir` becomes `dir`.old, in place of the one there. EEXIST: one of both holds anything but a recording;
// EBUSY: one is still being written. Nothing was changed then.
result<void> set_aside(const std::string& dir);
result<void> can_set_aside(const std::string& dir);  // the same errors; changes nothing
result<std::string> read_kept(const std::string& recording, const std::string& name);  // printk_formats, kallsyms

// Makes the directory for a new recording, or empties one that holds a recording; refuses one that holds anything else. The
// descriptor holds the recorder's lock, where the file system has locks.
result<sys::Fd> make_recording_directory(const std::string& dir);

struct Walk;  // a walk over a sub-buffer

class RecordingWriter {
 public:
  // Makes the directory. Replaces one that holds a recording; refuses one that holds anything else.
  // max_size: of its rings' files; 0: any. compress: that is not possible with a max_size.
  static result<RecordingWriter> create(const std::string& dir, const ClockInfo& clock, u64 max_size = 0,
                                        bool compress = false);
  // One that another machine keeps.
  static result<RecordingWriter> create(std::shared_ptr<RecordingSender> sender, const ClockInfo& clock);
  // A second one for other rings of the same recording, perhaps in another thread. It never writes meta.json: the first one
  // takes over its rings from its meta().
  static RecordingWriter beside(const RecordingWriter& first);
  ~RecordingWriter();
  RecordingWriter(RecordingWriter&&) noexcept;
  RecordingWriter& operator=(RecordingWriter&&) = delete;

  const RecordingMeta& meta() const { return meta_; }
  RecordingMeta& meta() { return meta_; }  // events, threads, command: call save() after a change
  result<void> save();
  result<void> keep(const std::string& name, const std::string& text) const;  // beside the rings: printk_formats, kallsyms
  // The file that another recording keeps, as the same one. False: it was not possible.
  bool keep_as_in(const std::string& dir, const std::string& name) const;

  // Adds a ring. Its name is in meta.json only after the next save(); a ring of other sizes than the first is listed before its
  // first event.
  result<void> add_ring(const RingName& name, u32 subbuf_size);
  // ring: its number, plus kernel_rings for the kernel's.
  static constexpr u32 kernel_rings = 1u << 31;
  bool has_ring(u32 ring) const { return files_.count(ring) != 0; }
  RecordedRing& ring(u32 ring) { return meta_.rings[files_.at(ring).index]; }

  // An error other than bad_message: the file can take no more. The events in it stay readable, and the counts are correct for
  // them.
  result<void> append(u32 ring, const SubBufferView& view);
  void release(u32 ring);  // no events are expected for now: its file is closed until the next append
  result<void> close_files();  // they end where their data does
  // From now on a sub-buffer's data is in the file before its header says so.
  void will_be_followed() { followed_ = true; }
  result<void> finish(u64 duration_ns);
  u64 least_pause_ns() const { return sender_ ? 1'000'000'000 : 0; }  // between two saves that nothing waits for
  u64 compressed_bytes() const { return compressor_ ? compressor_->bytes() : 0; }

 private:
  struct Written {
    u64 offset = 0;                  // of the next sub-buffer
    u64 last_offset = 0;             // of the one that may still grow
    u64 time_stamp = 0, commit = 0;  // its header
    u32 last_end = 0;                // where the source's view of it ended; 0: it cannot grow
    u64 latest = 0;                  // time of its last event
    u32 shift = 0;                   // bytes of the source's sub-buffer that are not in this one
  };
  struct RingFile : Written {
    sys::Fd fd;
    u32 sent = 0;      // its number on the line
    dev_t device = 0;  // identifies the file when it is opened again
    ino_t inode = 0;
    size_t index = 0;  // in meta_.rings
  };

  result<sys::Fd> make_file(const std::string& name) const;
  result<void> reopen(u32 ring, RingFile& file);
  void make_room();  // for one more open file
  RecordingWriter(std::string dir, const ClockInfo& clock);
  result<void> write(const RingFile& file, iovec* parts, int count, u64 offset) const;
  result<void> put(RingFile& file, RecordedRing& ring, const SubBufferView& kept, const Walk& walk);
  result<void> append_piece(RingFile& file, RecordedRing& ring, const SubBufferView& view, u64 events);
  result<void> grow(RingFile& file, const SubBufferView& view, u64 events);
  void count_removed();

  std::string dir_;
  std::shared_ptr<const sys::Fd> folder_;  // the directory, even if another one takes its name; locked
  std::shared_ptr<RecordingSender> sender_;  // to where it goes instead; null: into the directory
  RecordingMeta meta_;
  std::map<u32, RingFile> files_;
  std::deque<u32> open_;  // the rings with open files, the longest open first: thousands cannot all be open
  std::shared_ptr<SizeLimit> limit_;        // null: none
  std::shared_ptr<Compressor> compressor_;  // null: none
  bool reserved_ = false;  // there is room for the next meta.json
  bool followed_ = false;
  bool unlisted_ = false;  // a ring of other sizes than the first is not in meta.json yet
};

// One ring of a recording, shown in place; no descriptor is kept, unless it is being compressed meanwhile. The file may be
// hostile: every size is checked, and a false one ends the ring with a message.
class RecordingSource final : public Source {
 public:
  static result<std::unique_ptr<Source>> open(int open, const std::string& dir, const RecordedRing& ring,
                                              const RecordingMeta& meta);
  result<std::optional<SubBufferView>> next() override;
  Counters counters() const override { return ring_.counters; }
  bool ended() const override { return true; }
  std::optional<SubBufferFile> sub_buffer_file() const override;
  u64 sub_buffers() const override {
    return ring_.unordered
               ? 0
               : groups_.places() + (file_.size() - std::min(begin_, file_.size()) + ring_.subbuf_size - 1) / ring_.subbuf_size;
  }
  u64 place_bytes() const override {
    return groups_.places() == 0 ? ring_.subbuf_size : std::max<u64>(groups_.raw_end() / groups_.places(), 1);
  }
  u64 time_stamp(u64 index) const override;
  void seek(u64 index) override;

 private:
  RecordingSource(SubBufferFile whole, sys::Region file, u64 begin, const RecordedRing& ring, const RecordingMeta& meta);
  bool take(u64 at, u64 have);
  static bool is_removed(const u8* sub_buffer);
  u64 with_header(u64 index) const;
  void will_read(bool in_a_row) const;
  result<void> map_groups(const std::string& path);
  bool more_groups();
  result<bool> next_group();

  SubBufferFile sub_buffer_file_;
  sys::Region file_;
  RecordedRing ring_;
  bool complete_;
  bool whole_;             // and nothing was removed: each sub-buffer has its header
  bool shrinking_;         // its recorder may remove the oldest sub-buffers at any moment
  bool removed_ = false;   // since the last one that was handed out
  mutable bool in_a_row_ = true;
  std::vector<u64> copy_;  // of a sub-buffer in which the file ends, or that may be removed
  u64 begin_;              // after the hole
  u64 offset_;

  // Compressed: what is before begin_.
  GroupFile groups_;
  sys::Fd packed_;  // while more may come
  std::string packed_path_;
  u64 group_at_ = 0;        // the next one
  std::vector<u64> group_;  // its sub-buffers, of which the next one begins at
  u64 in_group_ = 0;
  u64 was_read_ = 0;  // what was before this place in the other file
};

// A ring of a recording that another object of this process writes, after RecordingWriter::will_be_followed(): what is there
// now, and later the rest. It never ends.
class GrowingSource final : public Source {
 public:
  GrowingSource(std::string dir, const RecordedRing& ring, const ClockInfo& clock);
  result<std::optional<SubBufferView>> next() override;
  Counters counters() const override { return ring_.counters; }
  bool ended() const override { return false; }
  u64 lag_ns() const override { return 50'000'000; }  // of the moment until which its recorder has taken all

 private:
  result<bool> reach(u64 size);

  std::string dir_;
  RecordedRing ring_;
  sys::Region file_;
  u64 offset_ = 0;   // of the sub-buffer
  u32 seen_ = 0;     // of its data
  u64 time_ = 0;     // at `seen_`
  bool begun_ = false;
};

// Every ring of the recording in DIR. problems: gets a sentence for each ring that cannot be opened, if another one can; null:
// that is an error.
result<std::vector<std::unique_ptr<Source>>> open_recording(const std::string& dir, const RecordingMeta& meta,
                                                            std::vector<std::string>* problems = nullptr);

}  // namespace ringside
