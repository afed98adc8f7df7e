#include "consumer/where.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "convert/ctf.hpp"
#include "convert/unpacked.hpp"
#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/get_reader_served.hpp"
#include "source/recording.hpp"
#include "sys/beneath.hpp"
#include "writer/place.hpp"

namespace ringside {
namespace {

// INSTANCE/socket, the default socket of `ringside serve`, whether it runs or not.
bool is_instances_own(const std::string& socket) {
  const size_t slash = socket.rfind('/');
  return slash != std::string::npos && socket.substr(slash) == "/socket" && Instance::open(socket.substr(0, slash + 1));
}

}  // namespace

std::vector<std::string> announced_writers() {
  std::vector<std::string> all;
  const auto dir = sys::open_trusted(instances_root() + "/.remotes", sys::Role::root);
  const auto names = dir ? sys::names_in(dir->get()) : result<std::vector<std::string>>();
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    struct stat st {};
    if (name[0] != '.' && fstatat(dir->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode))
      all.push_back(name);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string announced_socket(const std::string& name) {
  const auto all = announced_writers();
  return std::binary_search(all.begin(), all.end(), name) ? instances_root() + "/.remotes/" + name : "";
}

Where Where::now(const std::string& text) {
  if (text.starts_with("clickhouse://")) return {text, Kind::shipped};
  if (Unpacked::is_given_open(text)) return {text, Kind::trace_dat};
  const auto is_instance = [&] { return Instance::open(text).has_value(); };
  const bool is_path = text.find('/') != std::string::npos;
  if (!is_path && is_instance()) return {text, Kind::instance};
  if (ringside::is_recording(text)) return {text, Kind::recording};
  struct stat st {};
  const bool exists = ::stat(text.c_str(), &st) == 0;
  if (exists && S_ISSOCK(st.st_mode)) {
    const bool served = is_instances_own(text) || ringside::is_served(text);
    return {text, served ? Kind::served : Kind::writer, "", served ? "" : text};
  }
  if (exists && S_ISREG(st.st_mode)) return {text, Kind::trace_dat};
  if (std::string socket = is_path ? "" : announced_socket(text); !socket.empty())
    return {text, Kind::writer, "", std::move(socket)};
  if (is_path && is_instance()) return {text, Kind::instance};
  std::string dir = find_kernel_instance(text);
  if (dir.empty() && is_ctf(text)) return {text, Kind::ctf};
  return {text, dir.empty() ? Kind::nothing : Kind::kernel, std::move(dir)};
}

Where Where::of(const std::string& text) {
  Where where = now(text);
  if (!where.is_nothing() || text == default_recording) return where;
  if (::access(text.c_str(), F_OK) != 0) await_instance(text);
  if (Instance::open(text)) where.kind = Kind::instance;  // there by now
  return where;
}

std::optional<std::pair<u64, u64>> Where::place() const {
  std::string path = is_writer() ? socket : text == "-" ? "/dev/stdin" : text;
  if (is_served() && is_instances_own(text)) path.resize(path.rfind('/'));
  if (kind == Kind::instance) {
    const auto opened = Instance::open(text);
    if (!opened) return std::nullopt;
    path = (*opened)->path();
  }
  struct stat st {};
  if (kind == Kind::shipped || ::stat(path.c_str(), &st) != 0) return std::nullopt;
  return std::pair<u64, u64>{st.st_dev, st.st_ino};
}

void await_instance(const std::string& name) {
  for (int ms = 0; ms < 1000 && !Instance::open(name); ms += 5) {
    if (ms >= 50 && !instance_is_being_made(name)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

const char* Where::what() const {
  switch (kind) {
    case Kind::instance: return "an instance";
    case Kind::recording: return "a recording";
    case Kind::served: return "a socket of ringside serve";
    case Kind::writer: return "an external writer's socket";
    case Kind::trace_dat: return "a plain file";
    case Kind::kernel: return "an instance of the kernel's";
    case Kind::ctf: return "a CTF trace";
    case Kind::shipped: return "a place on a server";
    case Kind::nothing: break;
  }
  return "nothing";
}

Error Where::not_to_be_read() const {
  return {std::make_error_code(std::errc::not_supported),
          text +
              " is an instance of the kernel's, and to read it is to take its events away from the process that made it; "
              "ringside stat " +
              text + " shows its counters, cat " + dir +
              "/trace its events, both leave them there; record -e PATTERN and top -e PATTERN make instances of their own"};
}

result<void> not_the_kernels(const std::string& name) {
  const Where where{name, Where::Kind::kernel, find_kernel_instance(name)};
  if (where.dir.empty()) return {};
  return tl::unexpected<Error>(where.not_to_be_read());
}

}  // namespace ringside
