#include "cli/export_ctf.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "cli/child.hpp"
#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "convert/ctf.hpp"
#include "convert/installed.hpp"
#include "text/units.hpp"
#include "source/temporary_directory.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

namespace fs = std::filesystem;

// As babeltrace2 reads values of --params.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string quoted(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out += (out.size() > 1 ? "," : "") + quoted(text);
  return out + "]";
}

u64 size_of(const std::string& dir) {
  u64 bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), none; !error && at != none; at.increment(error)) {
    const auto size = at->file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

// From 2.1 on its sink writes CTF 2 if not asked; the sink before knows no such parameter. Our source speaks the protocol
// of CTF 1.8.
std::string ctf_version() {
  FILE* const said = popen("babeltrace2 --version 2>/dev/null", "re");
  if (said == nullptr) return "";
  unsigned major = 0, minor = 0;
  const bool known = std::fscanf(said, "Babeltrace %u.%u", &major, &minor) == 2;
  pclose(said);
  return known && (major > 2 || (major == 2 && minor >= 1)) ? ",ctf-version=\"1.8\"" : "";
}

// A file without a name. flags: MFD_CLOEXEC, or 0 for one that babeltrace2 inherits.
result<sys::Fd> nameless_file(const char* what, unsigned flags) {
  sys::Fd fd(memfd_create(what, flags));
  return fd ? result<sys::Fd>(std::move(fd)) : fail(errno, "cannot make a file in memory");
}

result<std::string> content(const sys::Fd& file) {
  if (lseek(file.get(), 0, SEEK_SET) != 0) return fail(errno, "cannot read a file in memory");
  return sys::read_text(file.get(), "a file in memory");
}

}  // namespace

result<int> export_ctf(const std::vector<std::string>& where, const std::vector<std::string>& events, const std::string& filter,
                       const std::string& to, bool quiet) {
  std::error_code none;
  if (fs::exists(to, none) && !(fs::is_directory(to, none) && fs::is_empty(to, none)))
    return refuse(std::errc::file_exists,
                  "cannot write " + to +
                      ": a CTF trace is a directory of its own, and this is there already; remove it, or choose another name");
  const std::string plugin = find_babeltrace_plugin();
  if (plugin.empty())
    return refuse(std::errc::no_such_file_or_directory,
                  "cannot find babeltrace-plugin-ringside.so for CTF: it is built where libbabeltrace2-dev is installed");
  {  // what cannot be opened is said in our own words
    Reading::Options open = reading_of(where, filter);
    open.only = parse_events(events);
    const auto reading = RS_TRY(Reading::open(std::move(open)));
    for (const auto& type : reading->trace().formats.all()) (void)type->format();  // a CTF trace declares them all
    (void)reading->notices();
  }
  std::string name = to;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  const sys::Fd said = RS_TRY(nameless_file("said", MFD_CLOEXEC)), totals = RS_TRY(nameless_file("totals", 0));
  catch_signals();  // from here on there are things to clean up
  const auto part = TemporaryDirectory::at(name + ".partXXXXXX");
  if (!part) return fail(errno, "cannot make a directory beside " + to);
  const std::string trace = part.path() + "/trace";
  auto child = Child::start(
      {"babeltrace2", "--log-level=F", "--plugin-path=" + plugin, "--component=source.ringside.rings",
       "--params=inputs=" + quoted(where) + ",events=" + quoted(events) + ",filter=" + quoted(filter) +
           ",totals=" + quoted("/proc/self/fd/" + std::to_string(totals.get())),
       "--component=sink.ctf.fs", "--params=path=" + quoted(trace) + ",assume-single-trace=yes,quiet=yes" + ctf_version()},
      {}, nullptr, said.get());
  const auto interrupted = [&] { return refuse(std::errc::interrupted, to + " was not written: interrupted"); };
  if (!child && asked_to_stop()) return interrupted();
  if (!child)
    return refuse(std::errc::no_such_file_or_directory,
                  child.error().sentence + "; CTF is written by babeltrace2: install the package of that name");
  Progress progress(quiet);
  std::optional<int> code;
  bool stopping = false;
  for (; !(code = child->ended()); usleep(20'000)) {
    stopping = stopping || asked_to_stop();
    child->pass_on_stop();
    progress.update([&](double seconds) { return fmt::format("{}, {:.0f} s", format_size(size_of(trace)), seconds); });
  }
  progress.clear();
  if (stopping) return interrupted();
  if (*code > 128)
    return refuse(std::errc::io_error, to + " was not written: signal " + std::to_string(*code - 128) + " ended babeltrace2");
  if (*code != 0)
    return refuse(std::errc::io_error, "babeltrace2 could not write " + to + ": " + innermost_cause(RS_TRY(content(said))));
  std::istringstream told(RS_TRY(content(totals)));
  u64 written = 0, lost = 0;
  if (!(told >> written >> lost))
    return refuse(std::errc::io_error, "babeltrace2 did not read to the end, so " + to + " was not written");
  if (!fs::exists(trace + "/metadata", none))
    return refuse(std::errc::no_message,
                  "there are no events to write, and a CTF trace without events is none; " + to + " was not written");
  fs::rename(trace, name, none);
  if (none) return fail(none.value(), "cannot put " + to + " in place");
  std::string doubt;
  bool problems = false;
  for (std::getline(told, doubt); std::getline(told, doubt); problems = true) say(doubt);
  say(counted(written, "event") + (lost != 0 ? ", " + format_count(lost) + " lost" : "") + ", " + format_size(size_of(name)) +
      " in " + to + "; look with: babeltrace2 " + to);
  return problems ? exit_failure : exit_ok;
}

}  // namespace ringside::cli
