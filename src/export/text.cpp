#include "export/text.hpp"

#include <algorithm>

namespace ringside {
namespace {

// "seconds.micros: ", rounded as the kernel rounds, seconds at least 5 wide.
void append_time(u64 ns, fmt::memory_buffer& out) {
  const u64 us = (ns + 500) / 1000;
  char text[] = "                         .000000: ";
  constexpr int point = sizeof text - 1 - 9;
  auto micros = static_cast<u32>(us % 1000000);
  for (int i = point + 6; micros != 0; --i, micros /= 10) text[i] = static_cast<char>('0' + micros % 10);
  int begin = point;
  u64 seconds = us / 1000000;
  do {
    text[--begin] = static_cast<char>('0' + seconds % 10);
    seconds /= 10;
  } while (seconds != 0);
  begin = std::min(begin, point - 5);
  append(out, {text + begin, static_cast<size_t>(point + 9 - begin)});
}

// A thread may call itself anything; a line must stay a line.
std::string printable(std::string_view name) {
  std::string out;
  for (const char c : name) out += static_cast<u8>(c) < 0x20 || c == 0x7F ? '?' : c;
  return out;
}

}  // namespace

const std::string& TextLines::prefix(u32 source, i32 tid, const RingName& ring) {
  Prefix& p = prefixes_[(static_cast<u32>(tid) + source * 61) % prefixes_.size()];
  if (p.tid != tid || p.source != source || p.text.empty()) {
    const Task* task = tasks_.find(tid);
    const std::string name = task != nullptr ? task->name : tid == ring.tid ? ring.task : "<...>";
    p.tid = tid;
    p.source = source;
    p.text = ring.buffer.empty() ? "" : printable(ring.buffer) + ": ";
    p.text += fmt::format("{:>16}-{:<7} [{:03}] ", printable(name), tid, ring.ring);
  }
  return p.text;
}

void TextLines::print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) {
  if (record.lost != 0) {
    fmt::format_to(std::back_inserter(out), "CPU:{} [LOST {} EVENTS]\n", ring.ring, record.lost);
    return;
  }
  const Common common = read_common(record.payload);
  const EventType* type = formats_.find(record.ids + common.id);
  append(out, prefix(record.source, thread_of(type, common), ring));
  if (raw_times_)
    fmt::format_to(std::back_inserter(out), "{:>12}: ", record.time);
  else
    append_time(record.time, out);
  if (type != nullptr) {
    append(out, type->name);
    append(out, ": ");
    formats_.print(*type, record.payload, out);
  } else {
    fmt::format_to(std::back_inserter(out), "unknown_{}: ", common.id);
    append_hex(record.payload, " ", out);
  }
  out.push_back('\n');
}

}  // namespace ringside
