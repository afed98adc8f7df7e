#include "ship/wall.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "consumer/reading.hpp"
#include "source/recording.hpp"
#include "source/wall.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

constexpr u64 largest_error = ~u32{0};

}  // namespace

WallOffset WallOffset::measure() {
  const WallClock now = WallClock::measure();
  return {now.offset_ns, static_cast<u32>(std::min<u64>(now.error_ns, largest_error))};
}

std::string WallOffset::text() const { return fmt::format("{} {}\n", offset_ns, error_ns); }

std::optional<WallOffset> WallOffset::kept(const std::string& recording) {
  const auto text = read_kept(recording, file);
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  WallOffset out;
  if (in >> out.offset_ns >> out.error_ns) return out;
  return std::nullopt;
}

WallOffset WallOffset::of(const std::string& recording) {
  if (const auto known = kept(recording)) return *known;
  WallOffset out;
  // A recording by `record` has its start by the wall clock and its first event by CLOCK_MONOTONIC; the event was not earlier.
  const auto meta = RecordingMeta::read(recording);
  if (!meta) return out;
  if (meta->wall) return {meta->wall->offset_ns, static_cast<u32>(std::min<u64>(meta->wall->error_ns, largest_error))};
  if (!meta->boot.empty() && meta->boot == sys::boot_id()) return measure();
  Reading::Options options;
  options.where = {recording};
  options.notices = [](const auto&) {};
  auto reading = Reading::open(std::move(options));
  const u64 first = reading ? (*reading)->trace().timeline.begin() : 0;
  out.offset_ns = first == Timeline::forever ? 0 : static_cast<i64>(meta->start_ns - first);
  out.error_ns = static_cast<u32>(std::min<u64>(std::max<u64>(meta->duration_ns, 1'000'000'000), largest_error));
  return out;
}

result<void> WallOffset::keep(const std::string& recording) {
  if (kept(recording)) return {};
  const std::string path = recording + "/" + file;
  auto made = RS_TRY(sys::NewFile::create(path, 0600));
  RS_TRY(sys::write_text(made.fd(), path, of(recording).text()));
  if (fsync(made.fd()) != 0) return fail(errno, "cannot write " + path);
  return made.put_in_place();
}

}  // namespace ringside::ship
