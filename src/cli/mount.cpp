// ringside mount: shows instances like the kernel's tracefs, for the tools that know it.
#include <charconv>

#include "analysis/names.hpp"
#include "consumer/where.hpp"
#include "cli/command.hpp"
#include "watch/signals.hpp"
#include "mount/fuse/session.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct MountOptions {
  std::string dir;
  std::vector<std::string> instances, remotes, options;
  u32 cpus = 0;
  u64 patience_ns = 1'000'000'000;
  bool others = false, automatic = false;
};

// "uid=N,gid=N,mode=0750", as mount(8) has them for tracefs.
mount::Owner parse_owner(const std::vector<std::string>& options) {
  mount::Owner owner;
  for (const std::string& option : options) {
    const size_t equals = std::min(option.find('='), option.size());
    const std::string name = option.substr(0, equals), text = option.substr(std::min(equals + 1, option.size()));
    std::optional<u32>* const field = name == "uid"    ? &owner.uid
                                      : name == "gid"  ? &owner.gid
                                      : name == "mode" ? &owner.mode
                                                       : nullptr;
    u32 value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, name == "mode" ? 8 : 10);
    if (field == nullptr) throw UsageError{"-o takes uid=N, gid=N and mode=OCTAL, not " + ringside::in_quotes(option)};
    if (text.empty() || code != std::errc() || end != text.data() + text.size() || (name == "mode" && value > 07777))
      throw UsageError{"-o " + name + " wants " + (name == "mode" ? "a mode in octal, such as 0750" : "a number") + ", not " +
                       ringside::in_quotes(text)};
    *field = value;
  }
  return owner;
}

result<int> run_mount(const MountOptions& options) {
  for (const std::string& pair : options.remotes)
    if (const size_t equals = pair.find('='); equals == 0 || equals >= pair.size() - 1)
      throw UsageError{"--remote wants NAME=SOCKET, not " + pair};
  mount::SessionOptions wanted;
  wanted.server.instances = options.instances;
  wanted.server.remotes = options.remotes;
  wanted.server.cpus = options.cpus;
  wanted.server.patience = std::chrono::nanoseconds(options.patience_ns);
  wanted.server.others = wanted.others = options.others;
  if (!options.options.empty()) {
    wanted.server.owner = parse_owner(options.options);
    wanted.others = true;  // the modes decide
  }
  wanted.automatic = options.automatic;
  catch_signals();
  for (const std::string& name : options.instances) await_instance(name);
  before_leaving(mount::unmount_at_once);
  auto session = RS_TRY(mount::Session::mount(options.dir, wanted));
  say("mounted at " + session->dir() + "; Ctrl-C unmounts");
  while (!asked_to_stop()) {
    if (!RS_TRY(session->turn(200))) break;
    if (const std::string why = session->unmapped(); !why.empty()) say(why);
  }
  return exit_ok;
}

}  // namespace

Command add_mount(CLI::App& app) {
  auto options = std::make_shared<MountOptions>();
  CLI::App* c = app.add_subcommand("mount", "show instances as the kernel's tracefs, to trace-cmd, libtracefs, cat and echo");
  c->add_option("DIR", options->dir, "an empty directory")->required();
  c->add_option("--instance", options->instances, "the top level; more of them: the only ones under instances/ (default: all)")
      ->allow_extra_args(false);
  c->add_option("--remote", options->remotes,
                "an external writer that listens at SOCKET, as remotes/NAME; those that are announced are "
                "there by themselves")
      ->allow_extra_args(false)
      ->type_name("NAME=SOCKET");
  c->add_option("--cpus", options->cpus,
                "cpuN directories to show at least, for rings to come (default: one for each processor)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  add_time(*c, "--patience", options->patience_ns, "how long an external writer may take to answer (default 1s)");
  c->add_flag("--allow-other", options->others, "other users may enter the mount and read");
  c->add_option("-o", options->options,
                "owner and group of all files, and the mode of DIR, as for tracefs; others come in where modes let them")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("uid=N,gid=N,mode=M");
  c->add_flag("--auto", options->automatic, "unmount when the last user has gone");
  c->footer(
      "Examples:\n"
      "  ringside mount /mnt/trace --instance web          web at the top, the others in /mnt/trace/instances\n"
      "  cat /mnt/trace/trace                              what its rings hold\n"
      "  echo 'ms > 10' > /mnt/trace/events/web/request/filter\n"
      "  ringside mount /mnt/trace --remote hv=/run/hv.rings &   an external writer as remotes/hv:\n"
      "  echo 1 > /mnt/trace/remotes/hv/tracing_on; cat /mnt/trace/remotes/hv/trace_pipe\n"
      "  trace-cmd stat                                    in a mount namespace with it at /sys/kernel/tracing\n"
      "What is as in the kernel, what differs and why: docs/tracefs.md. Rings are mapped by clients (mmap of trace_pipe_raw) "
      "where\n"
      "the kernel has FUSE passthrough and this program CAP_SYS_ADMIN; they are read by read() everywhere.");
  return {c, [options] { return run_mount(*options); }};
}

}  // namespace ringside::cli
