// Finds the content of an external writer's ring from its sub-buffers alone, for a writer that died or a memory dump.
// Everything in them may be hostile; a sub-buffer that contradicts itself or others is left out, with a sentence.
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
  u32 end = 0;        // end of the committed data
  u64 events = 0;
  const u8* sub_buffer = nullptr;
};

struct Survey {
  std::vector<PageSeen> pages;  // in the ring's order, the oldest first; with data, and not before the reader page
  bool has_reader = false;      // pages[0] is the reader page, if that has data
  bool saw_reader = false;      // layout (a): it is there, with or without data
  u64 reader_overrun = 0;       // layout (a): events lost before the reader page
  u64 reader_base = 0;
  std::vector<std::string> problems;
};

// pages: the ring's sub-buffers by id; sub-buffers missing from a dump are null.
Survey survey_footers(const std::vector<const u8*>& pages, u32 subbuf_size, u32 ring);

// Layout (b): order by time stamps. reader: the page that the meta-page names.
Survey survey_stamps(const std::vector<const u8*>& pages, const Geometry& geometry, u32 reader, u32 ring);

// The number of events in a sub-buffer up to `end`; stops at an invalid event.
u64 count_events(const u8* sub_buffer, u32 end) noexcept;

}  // namespace ringside::remote
