#include "stacks/mounts.hpp"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr size_t most_lists = 64;

std::string_view next_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

template <class Number>
Number number_of(std::string_view word) {
  Number number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number);
  return number;
}

// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
Mount mount_of(std::string_view line, bool trusted) {
  Mount mount;
  mount.trusted = trusted;
  mount.id = number_of<u64>(next_word(line));
  mount.parent = number_of<u64>(next_word(line));
  for (u32 i = 0; i < 2; ++i) (void)next_word(line);
  mount.place = next_word(line);
  while (!line.empty() && next_word(line) != "-") continue;
  mount.type = next_word(line);
  if (const size_t at = line.rfind("user_id="); at != line.npos) mount.user = number_of<uid_t>(line.substr(at + 8));
  return mount;
}

bool is_same(int a, int b) {
  struct stat one {
  }, other{};
  return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Whether this process's user namespace owns the mount namespace: then only those with rights in this one mount there.
bool is_owned(const sys::Fd& space) {
  const sys::Fd owner(ioctl(space.get(), NS_GET_USERNS)), own(::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC));
  return owner && own && is_same(owner.get(), own.get());
}

}  // namespace

// The files are opened below one directory: another process may have the number meanwhile.
result<void> Mounts::refresh(List& list, i32 pid, Budget* budget) {
  const std::string name = "/proc/" + (pid != 0 ? std::to_string(pid) : "self");
  const sys::Fd process(::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat st {};
  if ((!process || fstatat(process.get(), "ns/mnt", &st, 0) != 0) && pid != 0)
    return fail(errno, "cannot see the mounts of " + name);
  pollfd changed{list.file.get(), POLLPRI, 0};
  if (list.file && list.space == st.st_ino && ::poll(&changed, 1, 0) == 0) return {};
  list = {};
  sys::Fd file(openat(process.get(), "mountinfo", O_RDONLY | O_CLOEXEC));
  const sys::Fd space(openat(process.get(), "ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!file && pid == 0) return {};  // nothing is listed
  if (!file || (pid != 0 && !space)) return fail(errno, "cannot read the mounts of " + name);
  list.trusted = pid == 0 || is_owned(space);
  list.file = std::move(file);
  list.space = st.st_ino;
  const auto done = read(list, pid, budget);
  if (!done) list = {};
  return done;
}

result<void> Mounts::read(List& list, i32 pid, Budget* budget) {
  ++read_;
  std::string text;
  std::vector<char> part(size_t{1} << 16);
  for (u64 all = 0; pid == 0 || all < most_;) {
    const u64 wanted = pid == 0 ? part.size() : std::min(part.size(), most_ - all);
    const ssize_t n = ::read(list.file.get(), part.data(), wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno, "cannot read the mounts of a process");
    if (n == 0) break;
    const u64 counted = std::min(static_cast<u64>(n), most_ - std::min(all, most_));  // this process's own are root's
    if (budget != nullptr && !budget->step(counted)) return fail(EAGAIN, "there is no time left for the mounts of a process");
    all += static_cast<u64>(n);
    text.append(part.data(), static_cast<size_t>(n));
    std::string_view rest = text;
    for (size_t end = 0; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1))
      list.mounts.push_back(mount_of(rest.substr(0, end), list.trusted));
    text = std::string(rest);
  }
  std::sort(list.mounts.begin(), list.mounts.end(), [](const Mount& a, const Mount& b) { return a.id < b.id; });
  return {};
}

const Mount* Mounts::find(const List& list, u64 id) {
  const auto at = std::lower_bound(list.mounts.begin(), list.mounts.end(), id, [](const Mount& m, u64 i) { return m.id < i; });
  return at != list.mounts.end() && at->id == id ? &*at : nullptr;
}

result<const Mount*> Mounts::find(i32 pid, u64 id, Budget* budget) {
  RS_TRY(refresh(own_, 0, budget));
  if (const Mount* const found = find(own_, id); found != nullptr || pid == 0) return found;
  if (others_.size() >= most_lists && !others_.contains(pid)) others_.clear();
  List& list = others_[pid];
  RS_TRY(refresh(list, pid, budget));
  return find(list, id);
}

bool Mounts::has(u64 parent, std::string_view place) const {
  const auto has = [&](const List& list) {
    return std::any_of(list.mounts.begin(), list.mounts.end(),
                       [&](const Mount& m) { return m.parent == parent && m.place == place; });
  };
  return has(own_) || std::any_of(others_.begin(), others_.end(), [&](const auto& other) { return has(other.second); });
}

}  // namespace ringside
