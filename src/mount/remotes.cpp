// The list of external writers.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "instance/instance.hpp"
#include "mount/remote.hpp"
#include "sys/beneath.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

constexpr size_t most_remotes = 256;
constexpr int probe_again_ms = 50;
constexpr u64 give_up_ns = 2'000'000'000;  // a socket that refuses for this long is a dead writer's

bool good_name(const std::string& name) {
  return !name.empty() && name.size() < 64 && name[0] != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

bool over(const std::shared_ptr<Job>& job) { return job != nullptr && job->error.load(std::memory_order_acquire) >= 0; }

}  // namespace

result<std::unique_ptr<Remotes>> Remotes::create(const std::vector<std::string>& named, u32 rings,
                                                 std::chrono::nanoseconds patience, int event_fd) {
  std::unique_ptr<Remotes> remotes(new Remotes);
  remotes->rings_ = rings;
  remotes->patience_ = patience;
  remotes->event_fd_ = event_fd;
  remotes->dir_ = instances_root() + "/.remotes";
  (void)!mkdir(instances_root().c_str(), 0700);
  const auto root = sys::open_trusted(instances_root(), sys::Role::root);
  if (!root && root.error().code == std::errc::permission_denied) return tl::unexpected<Error>(root.error());
  if (root && sys::make_owned_directory(root->get(), ".remotes"))
    remotes->open_ = sys::open_owned(root->get(), ".remotes", O_RDONLY | O_DIRECTORY);
  remotes->notices_ = sys::Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  remotes->stop_ = sys::Fd(eventfd(0, EFD_CLOEXEC));
  if (!remotes->notices_ || !remotes->stop_) return fail(errno, "cannot watch for external writers");
  const auto watch = [&](const std::string& dir) {
    (void)!inotify_add_watch(remotes->notices_.get(), dir.c_str(),
                             IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_ONLYDIR);
  };
  if (remotes->open_) watch("/proc/self/fd/" + std::to_string(remotes->open_.get()));
  for (const std::string& pair : named) {
    const size_t equals = pair.find('=');
    const std::string name = pair.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == pair.size() || !good_name(name) || remotes->find(name) != nullptr)
      return refuse(std::errc::invalid_argument,
                    "--remote " + pair + ": give each writer as NAME=SOCKET, a NAME of letters, digits, '-', '_' and '.' once");
    char cwd[PATH_MAX];
    std::string socket = pair.substr(equals + 1);
    if (socket[0] != '/' && getcwd(cwd, sizeof cwd) != nullptr) socket = std::string(cwd) + "/" + socket;
    watch(socket.substr(0, socket.rfind('/') + 1));
    Known known;
    known.remote = std::make_shared<Remote>(name, socket, rings, patience, event_fd);
    known.named = true;
    remotes->known_.emplace_back(name, std::move(known));
  }
  remotes->scan();
  const u64 deadline =
      sys::now_ns() + static_cast<u64>(std::min(patience, std::chrono::nanoseconds(std::chrono::seconds(1))).count()) * 5 / 4;
  const auto asked = [](const auto& k) { return k.second.probe == nullptr || over(k.second.probe); };
  while (sys::now_ns() < deadline && !std::all_of(remotes->known_.begin(), remotes->known_.end(), asked)) usleep(1000);
  remotes->thread_ = RS_TRY(sys::start_thread("that looks for writers", [r = remotes.get()] { r->run(); }));
  return remotes;
}

Remotes::~Remotes() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

bool Remotes::shown(const Known& k) const {
  return k.named || k.remote->loaded() ||
         (k.there && over(k.probe) && k.probe->error.load(std::memory_order_acquire) != ENODEV);
}

std::vector<std::string> Remotes::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [name, known] : known_)
    if (shown(known)) all.push_back(name);
  return all;
}

std::shared_ptr<Remote> Remotes::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.first == name; });
  return found != known_.end() && shown(found->second) ? found->second.remote : nullptr;
}

void Remotes::run() {
  u64 last_notice_ns = sys::now_ns();
  bool settled = false;
  for (;;) {
    // A socket exists before its writer listens: those that refuse are asked again for a while.
    const bool again = !settled || sys::now_ns() - last_notice_ns < give_up_ns;
    pollfd on[2] = {{stop_.get(), POLLIN, 0}, {notices_.get(), POLLIN, 0}};
    if (poll(on, 2, again ? probe_again_ms : -1) < 0 && errno != EINTR) return;
    if (on[0].revents != 0) return;
    if (on[1].revents != 0) {
      alignas(inotify_event) char some[4096];
      while (read(notices_.get(), some, sizeof some) > 0) {
      }
      last_notice_ns = sys::now_ns();
    }
    settled = scan();
    if (poll(on, 1, 10) > 0) return;  // a busy directory is not scanned more often
  }
}

bool Remotes::scan() {
  std::vector<std::pair<std::string, std::string>> sockets;
  std::vector<std::pair<std::string, Known>> gone;  // destroyed without the mutex
  {
    const std::lock_guard lock(mutex_);
    for (auto k = known_.begin(); k != known_.end();) {
      const Known& who = k->second;
      const bool stays = who.named || who.there || !over(who.probe) || who.remote.use_count() > 1 || who.remote->loaded();
      if (!stays) gone.push_back(std::move(*k));
      k = stays ? k + 1 : known_.erase(k);
    }
    for (auto& [name, known] : known_) sockets.emplace_back(name, known.remote->socket());
  }
  const auto names = sys::names_in(open_.get());
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    const auto known = std::any_of(sockets.begin(), sockets.end(), [&](const auto& s) { return s.first == name; });
    if (!known && good_name(name) && sockets.size() < most_remotes) sockets.emplace_back(name, dir_ + "/" + name);
  }
  for (const auto& [name, socket] : sockets) check_socket(name, socket);
  // Answers still to come make room.
  const std::lock_guard lock(mutex_);
  return std::all_of(known_.begin(), known_.end(),
                     [](const auto& k) { return k.second.probe == nullptr || over(k.second.probe); });
}

void Remotes::check_socket(const std::string& name, const std::string& socket) {
  struct stat st {};
  const bool there = stat(socket.c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
  const std::string identity =
      there ? fmt::format("{} {} {} {}", st.st_dev, st.st_ino, st.st_ctim.tv_sec, st.st_ctim.tv_nsec) : "";
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.first == name; });
  if (found == known_.end()) {
    if (!there) return;
    Known known;
    try {
      known.remote = std::make_shared<Remote>(name, socket, rings_, patience_, event_fd_);
    } catch (const std::system_error&) {
      return;  // no thread is available now: the next scan tries again
    }
    found = known_.insert(known_.end(), {name, std::move(known)});
  }
  Known& k = found->second;
  k.there = there;
  const bool refused = over(k.probe) && k.probe->error.load(std::memory_order_acquire) == ENODEV;
  if (there && (k.identity != identity || refused)) k.probe = k.remote->probe();
  k.identity = identity;
}

}  // namespace ringside::mount
