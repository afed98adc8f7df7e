#include "shipped/parts.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "shipped/query.hpp"
#include "shipped/rows.hpp"
#include "source/sample_rings.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::shipped {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_text;

namespace {

constexpr size_t most_names = size_t{64} << 20;  // bytes of names of stacks, of all parts

result<void> write_file(const std::string& path, std::string_view text) {
  const sys::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return fail(errno, "cannot write " + path);
  return sys::write_text(fd.get(), path, std::string(text));
}

}  // namespace

// Those that reach into the range, and those that have events in it: these may be older than the recording.
std::string Parts::wanted_parts() const {
  std::string out = parts_in_range(place_);
  for (const auto& [agent, batches] : machine_.batches)
    out += fmt::format(" OR (agent = {} AND batch >= {} AND first_batch <= {})", quoted_text(agent), *batches.begin(),
                       *batches.rbegin());
  return "(" + out + ")";
}

bool Parts::has_events(std::string_view agent, u64 first, u64 last) const {
  const auto of = machine_.batches.find(std::string(agent));
  if (of == machine_.batches.end()) return false;
  const auto batch = of->second.lower_bound(first);
  return batch != of->second.end() && *batch <= last;
}

result<void> Parts::read(clickhouse::Server& server, const std::string& dir) {
  std::string answer;
  const auto blocks = RS_TRY(
      server.select(fmt::format("SELECT agent, first_batch, batch, filtered, offset_ns, description, printk_formats, names, {} "
                                "AS reaches FROM parts WHERE {} AND {} ORDER BY time_ns, agent, batch",
                                parts_in_range(place_), of_machine(machine_), wanted_parts()),
                    answer));
  for (const BlockIn& block : blocks) {
    const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *description = RS_TRY(wanted(block, "description", true)),
                   *texts = RS_TRY(wanted(block, "printk_formats", true)), *names = RS_TRY(wanted(block, "names", true));
    const ColumnIn *first = RS_TRY(wanted(block, "first_batch", false)), *last = RS_TRY(wanted(block, "batch", false)),
                   *left_out = RS_TRY(wanted(block, "filtered", false)), *reaches = RS_TRY(wanted(block, "reaches", false)),
                   *offset = RS_TRY(wanted(block, "offset_ns", false));
    for (u64 row = 0; row < block.rows; ++row) {
      Part part{std::string(agent->texts[row]), static_cast<u64>(first->whole(row)), static_cast<u64>(last->whole(row)),
                static_cast<u32>(parts_.size())};
      if (reaches->whole(row) == 0 && !has_events(part.agent, part.first, part.last)) continue;
      filtered_ += static_cast<u64>(left_out->whole(row));
      if (printk_formats_.size() < texts->texts[row].size()) printk_formats_ = texts->texts[row];
      if (most_names - kept_names_.size() >= names->texts[row].size()) kept_names_ += names->texts[row];
      const std::string file = dir + "/described";
      std::filesystem::create_directories(file);
      RS_TRY(write_file(file + "/meta.json", description->texts[row]));
      RS_TRY(add(std::move(part), RS_TRY(RecordingMeta::read(file)), static_cast<i64>(offset->whole(row))));
    }
  }
  for (u32 n = 0; n < parts_.size(); ++n) by_batch_[{parts_[n].agent, parts_[n].last}] = n;
  return {};
}

result<void> Parts::add(Part part, RecordingMeta meta, i64 offset_ns) {
  if (parts_.empty()) {
    meta_.start_ns = meta.start_ns;
    meta_.command = meta.command;
  }
  meta_.world = meta.world;
  if (!meta_.wall) meta_.wall = meta.wall;
  meta_.duration_ns += meta.duration_ns;
  complete_ = complete_ && meta.complete;
  if (!meta.complete) meta.account.doubts.emplace_back(recorder_did_not_finish);
  std::erase_if(meta.account.doubts, [&](const std::string& doubt) { return !doubts_.insert(doubt).second; });
  meta_.account += meta.account;
  for (EventInfo& event : meta.events) {
    const std::string full = event.system + ":" + event.name;
    const auto [at, fresh] = ids_.try_emplace(
        {event.kernel, full, event.format.substr(std::min(event.format.find("\nformat:"), event.format.size()))}, 0);
    if (fresh) {
      const auto id = free_id(event.kernel, event.id);
      if (!id) return refuse(std::errc::value_too_large, "there are more than 65,535 types of events; ask for a shorter time");
      event.id = *id;
      at->second = event.number();
      formats_.add(at->second, event.system, event.name, event.format, meta_.world);
      meta_.events.push_back(event);
      names_.insert(full);
    }
    part.events[{event.kernel, full}] = at->second;
  }
  for (const RecordedRing& ring : meta.rings) {
    const RingName& n = ring.name;
    const bool of_cpu = n.kernel || n.cpu >= 0;
    add_ring(part, ring,
             {n.kernel, n.kernel ? static_cast<i32>(n.ring) : n.cpu, of_cpu ? 0 : n.pid, of_cpu ? 0 : n.tid,
              !of_cpu                                    ? part.agent + n.task
              : n.apart != 0                             ? n.task
              : !n.kernel && n.ring >= first_sample_ring ? "samples"
                                                         : ""});
  }
  for (NameChange& change : meta.names) {
    change.time = meta.clock.to_ns(change.time);
    if (times_ == ShippedAsRecording::Times::wall) change.time += static_cast<u64>(offset_ns);
    meta_.names.push_back(std::move(change));
  }
  for (RingName& thread : meta.threads) threads_[{thread.tid, thread.elsewhere.pid_namespace}] = std::move(thread);
  parts_.push_back(std::move(part));
  return {};
}

u32 Parts::add_ring(Part& part, const RecordedRing& ring, const RingKey& key) {
  const RingName& n = ring.name;
  const auto [at, fresh] = ring_numbers_.try_emplace(key, 0);
  if (fresh) {
    RecordedRing own;
    own.name = n;
    own.way = ring.way;
    if (!n.kernel) {
      while (!ring_taken_.insert(own.name.ring).second) ++own.name.ring;
    }
    own.subbuf_size = subbuf_size;
    at->second = own.name.ring + (n.kernel ? RecordingWriter::kernel_rings : 0);
    rings_.push_back(own);
  }
  return part.rings[n.ring + (n.kernel ? RecordingWriter::kernel_rings : 0)] = at->second;
}

u32 Parts::ring_of(Part& part, u32 number) {
  if (const auto at = part.rings.find(number); at != part.rings.end()) return at->second;
  RecordedRing ring;
  ring.name.kernel = number >= RecordingWriter::kernel_rings;
  ring.name.ring = number - (ring.name.kernel ? RecordingWriter::kernel_rings : 0);
  return add_ring(part, ring,
                  {ring.name.kernel, static_cast<i32>(ring.name.ring), 0, 0, ring.name.kernel ? "" : part.agent + "/unlisted"});
}

std::optional<u32> Parts::number_of_unknown(bool kernel, std::string_view payload) {
  u16 id = 0;
  if (payload.size() >= sizeof id) std::memcpy(&id, payload.data(), sizeof id);
  const auto [at, fresh] = ids_.try_emplace({kernel, unknown_events, std::to_string(id)}, 0);
  if (fresh) {
    const auto own = free_id(kernel, id);
    if (!own) return std::nullopt;
    at->second = *own + (kernel ? kernel_ids : 0);
  }
  return at->second;
}

// Its own number, unless another type has it.
std::optional<u16> Parts::free_id(bool kernel, u32 id) {
  u32& next = next_id_[kernel];
  if (!taken_.insert({kernel, id}).second) {
    while (next < 65536 && !taken_.insert({kernel, next}).second) ++next;
    if (next >= 65536) return std::nullopt;
    id = next;
  }
  return static_cast<u16>(id);
}

Part* Parts::of(std::string_view agent, u64 batch) {
  if (last_part_ != nullptr && last_part_->first <= batch && batch <= last_part_->last && last_part_->agent == agent)
    return last_part_;
  const auto at = by_batch_.lower_bound({std::string(agent), batch});
  if (at == by_batch_.end() || at->first.first != agent || parts_[at->second].first > batch) return nullptr;
  return last_part_ = &parts_[at->second];
}

result<void> Parts::describe(RecordingWriter& writer) const {
  RecordingMeta& meta = writer.meta();
  meta.boot = machine_.boot_id;
  meta.world = meta_.world;
  meta.wall = meta_.wall;
  meta.command = meta_.command;
  meta.events = meta_.events;
  meta.account = meta_.account;
  for (const auto& [key, thread] : threads_) meta.threads.push_back(thread);
  meta.names = meta_.names;
  std::stable_sort(meta.names.begin(), meta.names.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  if (!printk_formats_.empty()) RS_TRY(writer.keep("printk_formats", printk_formats_));
  if (!kept_names_.empty()) RS_TRY(writer.keep(kept_names, kept_names_));
  for (const RecordedRing& ring : rings_) RS_TRY(writer.add_ring(ring.name, subbuf_size));
  return {};
}

}  // namespace ringside::shipped
