// A compressed ring of any bytes: its groups are found from any place, one after another and by a search, and none expands to
// more than a group may hold.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "source/groups.hpp"
#include "source/sub_buffer_copy.hpp"
#include "source/walk.hpp"

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size == 0) return 0;
  constexpr u32 subbuf = 4096;
  const sys::Fd fd(memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), input, size) != static_cast<ssize_t>(size)) return 0;
  auto region = sys::Region::map(fd.get(), size, false, "fuzz");
  if (!region) return 0;
  const GroupFile file(std::move(*region), subbuf);
  std::vector<u64> raw;
  u64 events = 0;
  for (u64 at = 0; at < file.end();) {
    const auto group = file.at(at);
    if (!group) break;
    if (group->end <= at || group->end > size) std::abort();
    if (file.read(*group, raw)) {
      if (raw.size() * 8 > group_size) std::abort();
      for (u64 n = 0; n < raw.size() * 8; n += subbuf) {
        SubBufferView view;
        if (view_copy(reinterpret_cast<const u8*>(raw.data()) + n, subbuf, subbuf, view)) events += walk(view).events;
      }
    }
    at = group->end;
  }
  for (u64 place = 0; place < file.places(); ++place) {
    if (const auto group = file.first_from(place * GroupFile::place); group && group->at < place * GroupFile::place)
      std::abort();
  }
  return events > size * group_size ? std::abort(), 0 : 0;
}
