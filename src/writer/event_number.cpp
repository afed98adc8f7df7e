#include "writer/event_number.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bitset>

#include "sys/beneath.hpp"

namespace ringside {
namespace {

constexpr int lock_patience_ms = 2000;

bool is_same(const EventEntry& a, const EventEntry& b) {
  return a.format_hash == b.format_hash && std::strncmp(a.name, b.name, sizeof a.name) == 0 &&
         std::strncmp(a.system, b.system, sizeof a.system) == 0;
}

}  // namespace

// It reads the files instead of mapping them: a neighbour may be cut or removed meanwhile.
EventNumbers::EventNumbers(int instance) {
  beside_ = sys::Fd(openat(instance, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat own {
  }, there{};
  if (!beside_ || fstat(instance, &own) != 0 || fstat(beside_.get(), &there) != 0) return;
  // The neighbours count where only the instance's owner can have put them.
  if (there.st_uid != own.st_uid || (there.st_mode & 0022) != 0) return;
  for (int ms = 0; ms < lock_patience_ms && flock(beside_.get(), LOCK_EX | LOCK_NB) != 0; ++ms) usleep(1000);
  const auto names = sys::names_in(beside_.get());
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    const sys::Fd dir = sys::open_beneath(beside_.get(), name.c_str(), O_PATH | O_DIRECTORY);
    if (!dir || fstat(dir.get(), &there) != 0 || there.st_uid != own.st_uid || there.st_ino == own.st_ino) continue;
    const sys::Fd fd = sys::open_owned(dir.get(), "instance", O_RDONLY);
    InstanceControl c{};
    if (!fd || pread(fd.get(), &c, sizeof c, 0) != sizeof c || c.magic != instance_magic || c.version != instance_version)
      continue;
    const u32 last = std::min(static_cast<u32>(c.events), most_events);
    std::vector<EventEntry> table(last);
    const auto bytes = static_cast<ssize_t>(last * sizeof(EventEntry));
    if (pread(fd.get(), table.data(), static_cast<size_t>(bytes), event_table_at + sizeof(EventEntry)) != bytes) continue;
    for (u32 i = 0; i < last; ++i) {
      if (table[i].known == 0) continue;
      others_.push_back(table[i]);
      numbers_.push_back(i + 1);
    }
  }
}

u32 EventNumbers::choose(const InstanceWords& words, const EventEntry& event) const {
  std::bitset<most_events + 1> own;
  words.each_event([&](u32 number, const EventEntry&) { own.set(number); });
  auto taken = own;
  for (size_t i = 0; i < others_.size(); ++i) {
    if (is_same(others_[i], event) && !own.test(numbers_[i])) return numbers_[i];
    taken.set(numbers_[i]);
  }
  for (const auto& used : {taken, own})
    for (u32 number = 1; number <= most_events; ++number)
      if (!used.test(number)) return number;
  return 0;
}

}  // namespace ringside
