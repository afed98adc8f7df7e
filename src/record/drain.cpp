#include "record/drain.hpp"

#include <ringside/base/check.hpp>

namespace ringside {
namespace {

constexpr size_t most_problems = 10'000;

}  // namespace

void Faults::problem(std::string sentence) {
  if (problems_.size() < most_problems)
    problems_.push_back(std::move(sentence));
  else
    ++unnamed_;
}

void Faults::skipped(u32 ring, const Error& malformed) {
  Skipped& of_ring = skipped_[ring];
  if (of_ring.count++ == 0) of_ring.first = malformed.sentence;
}

void Faults::add(const Faults& other) {
  for (const std::string& sentence : other.problems_) problem(sentence);
  unnamed_ += other.unnamed_;
  for (const auto& [ring, more] : other.skipped_) {
    Skipped& of_ring = skipped_[ring];
    if (of_ring.count == 0) of_ring.first = more.first;
    of_ring.count += more.count;
  }
  if (other.failure_) full(*other.failure_);
}

std::vector<std::string> Faults::doubts() const {
  std::vector<std::string> all = problems_;
  if (unnamed_ != 0) all.push_back("and " + std::to_string(unnamed_) + " more problems of that kind");
  for (const auto& [ring, of_ring] : skipped_)
    all.push_back(of_ring.first + (of_ring.count == 1
                                       ? "; it was skipped"
                                       : "; " + std::to_string(of_ring.count) + " such sub-buffers were skipped"));
  if (failure_) all.push_back(failure_->sentence + "; the recording ends there");
  return all;
}

bool put(const SubBufferView& view, RecordingWriter& writer, u32 ring, Faults& faults, Taken& taken) {
  if (faults.failure()) return false;
  const RecordedRing& recorded = writer.ring(ring);
  const u64 events = recorded.events, bytes = recorded.bytes, gaps = recorded.lost;
  const auto written = writer.append(ring, view);
  RINGSIDE_CHECK(written || (recorded.events == events && recorded.bytes == bytes && recorded.lost == gaps),
                 "what a recording refused is not counted");
  taken.account.read += recorded.events - events;
  taken.account.overrun += recorded.lost - gaps;
  taken.account.overrun_at_least |= view.lost_at_least && recorded.lost != gaps;
  taken.bytes += recorded.bytes - bytes;
  if (written) return true;
  const bool malformed = written.error().code == std::errc::bad_message;
  if (malformed)
    faults.skipped(ring, written.error());
  else
    faults.full(written.error());
  return malformed;
}

Drained drain(Source& source, RecordingWriter& writer, u32 ring, u64 most, Faults& faults, Taken& taken, u64 earlier,
              const Select& select) {
  for (; most > 0; --most) {
    auto view = source.next();
    if (!view && view.error().code == std::errc::timed_out) {
      faults.silent(view.error().sentence);
      return Drained::silent;
    }
    if (!view) {
      faults.problem(view.error().sentence);
      return Drained::ended;
    }
    if (!*view) return Drained::all;
    (*view)->time -= earlier;
    bool put_there = false;
    try {
      put_there = put(select ? select(**view) : **view, writer, ring, faults, taken);
    } catch (const std::bad_alloc&) {
      source.put_back();
      faults.full({std::make_error_code(std::errc::not_enough_memory), "there is not enough memory to record"});
      return Drained::some;
    }
    if (!put_there) {
      source.put_back();
      return Drained::some;
    }
    source.consume();
  }
  return Drained::some;
}

}  // namespace ringside
