#include <sys/stat.h>

#include <cstring>
#include <ctime>
#include <optional>

#include "consumer/input.hpp"
#include "consumer/recorded_input.hpp"
#include "consumer/trace.hpp"
#include "convert/unpacked.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

bool same_content(const std::string& a, const std::string& b) {
  const auto map = [](const std::string& path) -> result<sys::Region> {
    const sys::Fd fd = RS_TRY(sys::open_regular(path));
    struct stat st {};
    if (fstat(fd.get(), &st) != 0) return fail(errno, "cannot read " + path);
    return sys::Region::map(fd.get(), static_cast<u64>(st.st_size), false, path);
  };
  const auto one = map(a), other = map(b);
  return one && other && one->size() == other->size() && std::memcmp(one->data(), other->data(), one->size()) == 0;
}

class TraceDatInput : public Input {
 public:
  TraceDatInput(const std::string& place, std::shared_ptr<const Unpacked> unpacked)
      : Input(place), unpacked_(std::move(unpacked)) {}
  result<void> open(Trace& trace) override;
  std::unique_ptr<Input> another() const override { return std::make_unique<TraceDatInput>(where, unpacked_); }
  ClockInfo own_clock() const override { return meta_.clock; }
  const RecordingMeta* recording() const override { return &meta_; }
  std::optional<WallClock> wall() const override { return of_day_ ? std::optional(WallClock()) : std::nullopt; }
  bool is_copy_of(const Input& other) const override {
    const auto* const dat = dynamic_cast<const TraceDatInput*>(&other);
    return dat != nullptr && same_content(file(), dat->file());
  }
  Account account() const override {
    Account of = doubtful();
    of.refused = meta_.account.refused;
    of.unrecorded = meta_.account.unrecorded;
    return of;
  }
  std::vector<std::unique_ptr<Source>> open_again() const override {
    auto again = open_trace_dat(file(), where);
    return again ? std::move(again->rings) : std::vector<std::unique_ptr<Source>>();
  }

 private:
  bool is_of_this_boot(bool of_guest) const;
  const std::string& file() const { return unpacked_ != nullptr ? unpacked_->path() : where; }
  std::shared_ptr<const Unpacked> unpacked_;  // null: it is mapped where it is
  RecordingMeta meta_{};
  bool of_day_ = false;
};

result<void> TraceDatInput::open(Trace& trace) {
  auto dat = RS_TRY(open_trace_dat(file(), where));
  if (dat.rings.empty() && !dat.problems.empty())
    return refuse(std::errc::bad_message, dat.problems.front() + "; no events are left to read");
  for (const std::string& problem : dat.problems) trace.notices.push_back(problem);
  doubts = std::move(dat.problems);
  for (const std::string& doubt : dat.account.doubts)
    trace.notices.push_back(doubts.emplace_back(where + ": " + sys::printable(doubt)));
  world = meta_.world = dat.world;
  if (!dat.unshifted && is_of_this_boot(dat.of_guest)) boot = sys::boot_id();
  add_events(trace, *this, dat.events);
  trace.formats.add_strings(dat.printk_formats, origin.ids);
  for (const RingName& thread : dat.threads) trace.tasks.add_recorded(thread, origin.ids);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  if (!dat.kallsyms.empty()) trace.formats.symbols(origin.ids).load(std::move(dat.kallsyms));
  sources = std::move(dat.rings);
  meta_.clock = dat.clock;
  meta_.complete = true;
  of_day_ = dat.of_day && dat.clock.kind != ClockKind::counter;
  meta_.account = dat.account;
  clock = dat.clock.kind == ClockKind::mono ? dat.clock_name : to_string(dat.clock.kind);
  if (dat.clock.kind == ClockKind::counter)
    trace.notices.push_back(where + ": its times are ticks of the clock " + sys::printable(dat.clock_name) +
                            ", and how many of them make a second it does not say");
  return {};
}

// The file does not say of which boot it is. If its uname is this machine's and it was changed since this machine started,
// assume this one; a guest's times are its host's by now.
bool TraceDatInput::is_of_this_boot(bool of_guest) const {
  const World here = World::own();
  if (!of_guest && (!(world == here) || world.release != here.release || world.host != here.host)) return false;
  struct stat st {};
  timespec wall{}, up{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &up);
  return stat(where.c_str(), &st) == 0 && st.st_mtim.tv_sec > wall.tv_sec - up.tv_sec;
}

}  // namespace

result<std::unique_ptr<Input>> file_input(const std::string& where) {
  auto unpacked = RS_TRY(Unpacked::of(where));
  if (unpacked != nullptr && unpacked->is_recording()) return unpacked_input(where, std::move(unpacked));
  return std::make_unique<TraceDatInput>(where, std::move(unpacked));
}

}  // namespace ringside
