// The compressed part of a ring in a recording: groups of sub-buffers, each by itself, back to back in a file.
//
//   group:  GroupHeader, zeros, one zstd frame of `raw_size` bytes of sub-buffers as they are in ringN.raw; a multiple of 64
//   bytes
//
// The header and the zeros are a skippable frame of zstd's, so the file is one that zstd reads: `zstd -dc ring0.zst` writes
// what ringN.raw would be. A group says where it is in the file, so it is found from any place: a search looks at each 64th
// byte, and nothing that compressed data happens to hold is taken for one. No index has to be kept.
#pragma once
#include <optional>
#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

#include "sys/sys.hpp"

namespace ringside {

inline constexpr u32 group_size = abi::largest_subbuf;  // raw; so no frame expands to more
inline constexpr u64 group_alignment = 64;

struct GroupHeader {
  static constexpr u32 skippable = 0x184d2a5e;      // zstd's magic number of a frame to be skipped
  static constexpr u64 name = 0x65646973'676e6972;  // "ringside"

  u32 magic = skippable;
  u32 skip = 0;  // bytes after this word up to the frame
  u64 mark = name;
  u64 at = 0;          // of the header in this file
  u64 raw_at = 0;      // of the first sub-buffer in ringN.raw
  u64 time_stamp = 0;  // of it
  u32 raw_size = 0, frame_size = 0;
};
static_assert(sizeof(GroupHeader) == 48);

struct Group {
  u64 at = 0, frame = 0, end = 0;  // in the file
  u64 raw_at = 0, time_stamp = 0;
  u32 raw_size = 0, frame_size = 0;
  u64 raw_end() const { return raw_at + raw_size; }
};

// The groups of a file that may be hostile, or end in the middle of a group.
class GroupFile {
 public:
  GroupFile() = default;
  GroupFile(sys::Region file, u32 subbuf_size);

  u64 end() const { return last_ ? last_->end : 0; }  // after the last whole group
  u64 raw_end() const { return last_ ? last_->raw_end() : 0; }
  u64 size() const { return file_.size(); }
  bool cut() const { return file_.cut(); }
  std::optional<Group> at(u64 offset) const;                   // none: there is no whole group
  std::optional<Group> first_from(u64 offset) const;           // the first one that is there or later
  bool read(const Group& group, std::vector<u64>& out) const;  // its sub-buffers; false: it is damaged

  // A search by time goes in steps of this many bytes.
  static constexpr u64 place = 16384;
  u64 places() const { return last_ ? last_->at / place + 1 : 0; }

 private:
  sys::Region file_;
  u32 subbuf_size_ = 0;
  std::optional<Group> last_{};
};

// Appends the frame of `raw` and what belongs to it to `out`, which is emptied; the group is at `at`. False: there is no
// memory.
bool make_group(Bytes raw, u64 at, u64 raw_at, u64 time_stamp, std::vector<u8>& out);

}  // namespace ringside
