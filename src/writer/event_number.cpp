#include "writer/event_number.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>

#include "sys/beneath.hpp"

namespace ringside {
namespace {

constexpr int lock_patience_ms = 2000;

// False: another process has it, or there are no locks. Without it, two processes that choose at the same time may choose one
// number.
bool lock(int dir) noexcept {
  static constinit bool patient = true;
  for (int ms = 0; flock(dir, LOCK_EX | LOCK_NB) != 0; ++ms) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || !patient) return false;
    patient = ms < lock_patience_ms;
    usleep(1000);
  }
  return true;
}

}  // namespace

std::vector<EventNumbers::Neighbour>& EventNumbers::known() {
  static auto& all = *new std::vector<Neighbour>;
  return all;
}

u64 EventNumbers::hash_of(const EventEntry& event) {
  const auto text = [](const char(&name)[64]) { return std::string_view(name, strnlen(name, sizeof name)); };
  return sys::hash(text(event.name), sys::hash(":", sys::hash(text(event.system), event.format_hash)));
}

// It reads the files instead of mapping them: a neighbour may be cut or removed meanwhile.
EventNumbers::EventNumbers(int instance) {
  beside_ = sys::Fd(openat(instance, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat own {
  }, there{};
  if (!beside_ || fstat(instance, &own) != 0 || fstat(beside_.get(), &there) != 0) return;
  // The neighbours count where only the instance's owner can have put them.
  if (there.st_uid != own.st_uid || (there.st_mode & 0022) != 0) return;
  (void)lock(beside_.get());
  const auto names = sys::names_in(beside_.get());
  if (!names) return;
  known().reserve(known().size() + names->size());  // they stay where they are
  for (const std::string& name : *names) {
    const sys::Fd dir = sys::open_beneath(beside_.get(), name.c_str(), O_PATH | O_DIRECTORY);
    if (!dir || fstat(dir.get(), &there) != 0 || there.st_uid != own.st_uid || there.st_ino == own.st_ino) continue;
    see(dir.get(), there.st_dev, there.st_ino);
  }
  std::erase_if(known(), [&](const Neighbour& one) {
    return std::find(neighbours_.begin(), neighbours_.end(), &one) == neighbours_.end();
  });
  neighbours_.clear();
  for (const Neighbour& one : known()) neighbours_.push_back(&one);
}

// A child of fork that ran no handlers has the lock, too: it is given back for all.
EventNumbers::~EventNumbers() {
  if (beside_) flock(beside_.get(), LOCK_UN);
}

void EventNumbers::see(int dir, u64 device, u64 inode) {
  const sys::Fd fd = sys::open_owned(dir, "instance", O_RDONLY);
  InstanceControl c{};
  if (!fd || pread(fd.get(), &c, sizeof c, 0) != sizeof c || c.magic != instance_magic || c.version != instance_version) return;
  const Neighbour here{device, inode, c.creator, c.created_ns};
  auto at = std::find_if(known().begin(), known().end(), [&](const Neighbour& one) { return one.is(here); });
  if (at == known().end()) at = known().insert(at, here);
  if (at->events != c.events) {
    at->events = 0;
    at->all.clear();
    if (!read(fd.get(), c.events, at->all)) return;
    at->events = c.events;
  }
  neighbours_.push_back(&*at);
}

bool EventNumbers::read(int fd, u64 events, std::vector<Numbered>& all) {
  const u32 last = std::min(static_cast<u32>(events), most_events);
  EventEntry some[16];
  for (u32 i = 0; i < last; i += std::size(some)) {
    const size_t bytes = std::min<size_t>(last - i, std::size(some)) * sizeof some[0];
    const auto from = static_cast<off_t>(event_table_at + (i + 1) * sizeof some[0]);
    if (pread(fd, some, bytes, from) != static_cast<ssize_t>(bytes)) return false;
    for (u32 k = 0; k < bytes / sizeof some[0]; ++k)
      if (some[k].known != 0) all.push_back({hash_of(some[k]), i + k + 1});
  }
  return true;
}

u32 EventNumbers::choose(const InstanceWords& words, const EventEntry& event) const {
  std::bitset<most_events + 1> own;
  words.each_event([&](u32 number, const EventEntry&) { own.set(number); });
  auto taken = own;
  const u64 wanted = hash_of(event);
  for (const Neighbour* const neighbour : neighbours_) {
    for (const Numbered& one : neighbour->all) {
      if (one.event == wanted && !own.test(one.number)) return one.number;
      taken.set(one.number);
    }
  }
  for (const auto& used : {taken, own})
    for (u32 number = 1; number <= most_events; ++number)
      if (!used.test(number)) return number;
  return 0;
}

}  // namespace ringside
