// The commands of products that this build does not have: they say how to get them.
#include "cli/command.hpp"

namespace ringside::cli {
namespace {

[[maybe_unused]] Command absent(CLI::App& app, const std::string& name, const std::string& description, const std::string& option) {
  CLI::App* c = app.add_subcommand(name, description + " (not in this build)");
  c->allow_extras();
  return {c, [name, option]() -> result<int> {
            return refuse(std::errc::not_supported, "this build has no ringside " + name + "; Debian's package has it, and so has a build with -D" +
                                                        option + "=ON: cmake --preset release && cmake --build --preset release");
          }};
}

}  // namespace

#ifndef RINGSIDE_FLEET
Command add_ship(CLI::App& app) { return absent(app, "ship", "record, and send the recordings to a ClickHouse server", "RINGSIDE_FLEET"); }
#endif
#ifndef RINGSIDE_MOUNT
Command add_mount(CLI::App& app) { return absent(app, "mount", "instances and external writers as files of tracefs", "RINGSIDE_MOUNT"); }
#endif
#ifndef RINGSIDE_GUEST
Command add_guest(CLI::App& app) {
#ifdef __x86_64__
  return absent(app, "guest", "run a guest in a virtual machine, and record its events", "RINGSIDE_GUEST");
#else
  CLI::App* c = app.add_subcommand("guest", "run a guest in a virtual machine (x86-64 only)");
  return {c, []() -> result<int> { return refuse(std::errc::not_supported, "guests run on x86-64 only"); }};
#endif
}
#endif

}  // namespace ringside::cli
