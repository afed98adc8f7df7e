#include "cli/program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "analysis/names.hpp"
#include "cli/command.hpp"
#include "text/units.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {

std::vector<std::string> libc_groups(const std::string& list) {
  std::vector<std::string> groups;
  static const std::set<std::string> known{"malloc", "io", "mutex", "lock"};
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    if (known.count(word) == 0)
      throw UsageError{"--libc does not know \"" + word + "\"; it takes malloc, io, mutex, lock, with commas"};
    groups.push_back(word);
    at = end + 1;
  }
  return groups;
}

namespace {

// use(pid, "/proc/PID"): true ends it, as the answer.
bool each_process(const std::function<bool(i32, const std::string&)>& use) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    i32 pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc() && use(pid, entry.path())) return true;
  }
  return false;
}

std::string what_to_do_with(const std::string& name) {
  return "ringside record -i " + name + " records what it holds; ringside rm " + name + " removes it";
}

// Those that map the instance, as far as this user may see: "server (4711), worker (4712)".
std::string processes_with(const Instance& instance) {
  std::error_code ignored;
  const std::string mapped = " " + std::filesystem::canonical(instance.path(), ignored).string() + "/instance\n";
  std::vector<std::string> names;
  each_process([&](i32 pid, const std::string& folder) {
    const auto maps = pid != getpid() ? sys::read_file(folder + "/maps") : result<std::string>("");
    if (!maps || maps->find(mapped) == std::string::npos) return false;
    char comm[16] = {};
    sys::comm_of(pid, pid, comm);
    names.push_back(fmt::format("{} ({})", std::string(comm, strnlen(comm, sizeof comm)), pid));
    return false;
  });
  return names.empty() ? "some processes" : short_list(names);
}

// A process that was just started with the instance in its environment may be about to open it: a daemon that a script starts
// in the background.
bool one_may_come(const Instance& instance) {
  constexpr u64 young = 100;  // ticks of /proc: a second
  const std::string wanted = "RINGSIDE_INSTANCE=" + std::filesystem::absolute(instance.path()).string();
  return each_process([&](i32 pid, const std::string& folder) {
    if (pid == getpid() || sys::start_time(pid) + young < sys::ticks_since_boot()) return false;
    const auto environment = sys::read_file(folder + "/environ");
    return environment && ('\0' + *environment).find('\0' + wanted + '\0') != std::string::npos;
  });
}

}  // namespace

bool LeftBehind::awaited() {
  if (!wait_) return false;
  if (instance_.users() != Presence::some) return one_may_come(instance_);
  if (!std::exchange(said_, true))
    say("the command has ended and left " + processes_with(instance_) +
        " with its instance open: this goes on until they end; Ctrl-C ends it here, --no-wait does not wait");
  return true;
}

result<std::unique_ptr<Instance>> make_private_instance(const std::string& prefix, InstanceOptions make) {
  for (const std::string& name : Instance::list()) {
    if (name.rfind(prefix + "-", 0) != 0) continue;
    const auto opened = Instance::open(name);
    if (!opened || !(*opened)->of_one_command() || (*opened)->maker_lives()) continue;
    if (const u64 unread = (*opened)->unread(); unread != 0)
      say("the instance " + name + ", which a killed command left, has " + counted(unread, "event") +
          " that nobody has read: " + what_to_do_with(name));
    else
      (void)Instance::remove(name);  // refused while a process has it open
  }
  make.one_command = true;
  // The name may be in use: by a process that has this number in another PID namespace, or by the children of a killed one,
  // which still write.
  for (u64 number = static_cast<u64>(getpid());; number += u64{1} << 32) {
    make.name = prefix + "-" + std::to_string(number);
    auto made = Instance::create(make);
    if (made || made.error().code != std::errc::file_exists) return made;
  }
}

PrivateInstance::~PrivateInstance() {
  if (instance_ == nullptr) return;
  const std::string name = instance_->name();
  const Presence users = instance_->users();
  const bool open = users != Presence::none;
  const u64 unread = open || !read_out_ ? 0 : instance_->unread();
  if (!open && unread == 0 && Instance::remove(instance_->path())) return;
  instance_->keep();
  if (!instance_->tracing_on()) (void)instance_->tracing(true);
  say(unread != 0 ? "the instance " + name + " stays, with " + counted(unread, "event") +
                        " that came too late to be recorded: " + what_to_do_with(name)
      : users == Presence::some
          ? "the instance " + name + " stays, for " + processes_with(*instance_) + ", which the command left running: " +
                what_to_do_with(name)
          : "the instance " + name + " stays, as nothing shows whether a process still has it open: " + what_to_do_with(name));
}

void add_wait(CLI::App& app, bool& wait) {
  app.add_flag_callback(
      "--no-wait", [&wait] { wait = false; },
      "end with the command, also if it leaves processes that have its instance open: that stays, and they write on");
}

Child::Environment environment_of(const Instance& instance, const std::string& preload, const std::string& libc,
                                  u64 sample_hz) {
  Child::Environment environment{{"RINGSIDE_INSTANCE", std::filesystem::absolute(instance.path())}};
  if (preload.empty()) return environment;
  const char* before = std::getenv("LD_PRELOAD");
  environment.emplace_back("LD_PRELOAD", before != nullptr && *before != 0 ? preload + ":" + before : preload);
  environment.emplace_back("RINGSIDE_LIBC", libc);
  if (sample_hz != 0) environment.emplace_back("RINGSIDE_SAMPLE", std::to_string(sample_hz));
  return environment;
}

}  // namespace ringside::cli
