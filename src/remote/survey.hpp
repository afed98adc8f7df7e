// What stands in the sub-buffers of an external writer's ring, told from the sub-buffers alone: a writer that died, a memory dump.
// Everything in them may be hostile; what contradicts itself is left out, with a sentence.
#pragma once
#include <ringside/remote/descriptor.hpp>

#include <string>
#include <vector>

namespace ringside::remote {

struct PageSeen {
  u32 id = 0;
  u64 position = 0;   // layout (a)
  u64 base = 0;       // layout (a): index of its first event
  u64 time = 0;
  u32 end = 0;        // of the committed data
  u64 events = 0;
  const u8* sub_buffer = nullptr;
};

struct Survey {
  std::vector<PageSeen> pages;  // in the ring's order, the oldest first; with data, and not before the reader page
  bool has_reader = false;      // pages[0] is the reader page, if that has data
  u64 reader_overrun = 0;       // layout (a): lost before the reader page
  u64 reader_base = 0;
  std::vector<std::string> problems;
};

// pages: the ring's sub-buffers by id; those that are missing (of a dump) are null.
Survey survey_footers(const std::vector<const u8*>& pages, u32 subbuf_size, u32 ring);

// Layout (b): order by time stamps. reader: the page that the meta-page names.
Survey survey_stamps(const std::vector<const u8*>& pages, const Geometry& geometry, u32 reader, u32 ring);

// Events of a sub-buffer up to `end`; stops at what is no event.
u64 count_events(const u8* sub_buffer, u32 end) noexcept;

}  // namespace ringside::remote
