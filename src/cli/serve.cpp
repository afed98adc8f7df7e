// ringside serve: hands an instance's rings to processes that may read but not write them, also those of other users.
#include <grp.h>
#include <pwd.h>

#include "cli/command.hpp"
#include "watch/signals.hpp"
#include "serve/server.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct ServeOptions {
  std::string instance, socket, mode, socket_group;
  std::vector<std::string> users, groups;
};

std::optional<u32> number(const std::string& text, int base = 10) {
  size_t used = 0;
  try {
    const unsigned long value = std::stoul(text, &used, base);
    if (used == text.size() && text[0] != '-' && text[0] != '+' && value < 0xFFFFFFFF) return static_cast<u32>(value);
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

u32 uid_of(const std::string& user) {
  if (const passwd* entry = getpwnam(user.c_str()); entry != nullptr) return entry->pw_uid;
  if (auto id = number(user)) return *id;
  throw UsageError{"there is no user " + user};
}

u32 gid_of(const std::string& name) {
  if (const group* entry = getgrnam(name.c_str()); entry != nullptr) return entry->gr_gid;
  if (auto id = number(name)) return *id;
  throw UsageError{"there is no group " + name};
}

result<int> run_serve(const ServeOptions& options) {
  ServerOptions wanted;
  wanted.instance = options.instance;
  wanted.socket = options.socket;
  for (const std::string& user : options.users) wanted.uids.push_back(uid_of(user));
  for (const std::string& group : options.groups) wanted.gids.push_back(gid_of(group));
  if (!options.mode.empty()) {
    wanted.mode = number(options.mode, 8);
    if (!wanted.mode || *wanted.mode > 0777) throw UsageError{"--mode " + options.mode + " is no mode; write 660"};
  }
  if (!options.socket_group.empty()) wanted.gid = gid_of(options.socket_group);
  if (wanted.socket.empty() && (!wanted.uids.empty() || !wanted.gids.empty()))
    throw UsageError{"other users cannot reach a socket inside the instance: give one they can with --socket PATH"};
  auto server = RS_TRY(Server::create(wanted));
  catch_signals();
  say("serving " + server->instance() + " at " + server->socket() + "; Ctrl-C ends");
  while (!asked_to_stop())
    RS_TRY(server->turn(200));
  return exit_ok;
}

}  // namespace

Command add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* c = app.add_subcommand("serve", "let processes that must not write read an instance's rings");
  c->add_option("INSTANCE", options->instance, "name or path; its programs may run or be gone")->required();
  c->add_option("--socket", options->socket, "where clients connect (default: INSTANCE/socket, for this user alone)");
  c->add_option("--allow-user", options->users, "user that may connect, by name or number, beside this one")
      ->allow_extra_args(false);
  c->add_option("--allow-group", options->groups, "group whose members may connect")->allow_extra_args(false);
  c->add_option("--mode", options->mode,
                "mode of the socket (default 600; 666 with --allow-...: the kernel says who connects)");
  c->add_option("--socket-group", options->socket_group, "group of the socket");
  c->footer(
      "Examples:\n"
      "  ringside serve web                                               this user, at INSTANCE/socket\n"
      "  ringside serve web --socket /run/trace/web --allow-user www-data another user, too\n"
      "  ringside top /run/trace/web --by event                           that user reads: report, hist, latency, watch, ... "
      "take the socket\n"
      "Clients map the rings read-only and ask here for the next sub-buffer; what one takes, the others do not get.");
  return {c, [options] { return run_serve(*options); }};
}

}  // namespace ringside::cli
