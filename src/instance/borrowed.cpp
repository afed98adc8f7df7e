#include "instance/borrowed.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "instance/patterns.hpp"
#include "sys/beneath.hpp"
#include "sys/json.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using nlohmann::json;

constexpr const char* note_file = "borrowed";
constexpr off_t lock_at = (off_t{1} << 40) - 1;  // before the members' (members.cpp)

// Empty, errno EAGAIN: another process has it.
sys::Fd lock_of(const Instance& instance) {
  sys::Fd fd = sys::open_owned(instance.dir(), "instance", O_RDWR);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = lock_at;
  lock.l_len = 1;
  const bool taken = fd && fcntl(fd.get(), F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES);
  return taken ? sys::Fd() : std::move(fd);  // a file system without locks: the command goes on
}

json parsed(const std::string& text) {
  json note = json::parse(text, nullptr, false);
  return note.is_object() ? std::move(note) : json(json::object());
}

// The text of set_event before the change, with what others have changed since it was `now`.
std::string merged(const std::string& before, const std::string& now, const std::string& current) {
  std::string text = before;
  const std::vector<std::string> known = lines_of(now);
  for (const std::string& line : lines_of(current)) {
    if (std::find(known.begin(), known.end(), line) != known.end()) continue;
    text = with_pattern(text, line.substr(line[0] == '!' ? 1 : 0), line[0] != '!');
  }
  return text;
}

result<void> put_back(Instance& instance, const std::string& text) {
  const json note = parsed(text);
  const auto at = [&](const char* name, const char* when) {
    const auto one = note.find(name);
    return one != note.end() && one->is_object() ? one->value(when, "") : std::string();
  };
  if (note.contains("set_event")) {
    RS_TRY(instance.replace("set_event", [&](const std::string& current) {
      return merged(at("set_event", "before"), at("set_event", "now"), current);
    }));
  }
  if (note.contains("set_stack")) {  // unless somebody has chosen anew
    RS_TRY(instance.replace("set_stack", [&](const std::string& current) {
      return current == at("set_stack", "now") ? at("set_stack", "before") : current;
    }));
  }
  if (const auto on = note.find("tracing_on"); on != note.end() && on->is_boolean() && instance.tracing_on() != on->get<bool>())
    RS_TRY(instance.tracing(on->get<bool>()));
  unlinkat(instance.dir(), note_file, 0);
  return {};
}

result<void> write_note(const Instance& instance, const json& note, std::string& kept) {
  kept = note.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return replace_file(instance.dir(), note_file, kept);
}

}  // namespace

result<std::unique_ptr<Borrowed>> Borrowed::take(Instance& instance, const std::string& by) {
  sys::Fd lock = lock_of(instance);
  for (int tries = 0; !lock && errno == EAGAIN && tries < 50; ++tries) {  // one that is about to end, or puts back
    usleep(20'000);
    lock = lock_of(instance);
  }
  if (!lock && errno == EAGAIN) {
    const json note = parsed(instance.read(note_file).value_or(""));
    return refuse(
        std::errc::device_or_resource_busy,
        "the events of " + instance.name() + " are taken by " + note.value("by", "another command") + " (process " +
            std::to_string(note.value("pid", 0)) +
            "), which has them for itself: end that first; ringside top, watch and report look at them and take none");
  }
  if (!lock) return sys::fail_beneath(errno, "cannot open " + instance.path() + "/instance");
  if (const auto left = instance.read(note_file)) RS_TRY(put_back(instance, *left));
  std::unique_ptr<Borrowed> borrowed(new Borrowed(instance, std::move(lock), ""));
  RS_TRY(write_note(instance, {{"by", by}, {"pid", getpid()}}, borrowed->note_));
  return borrowed;
}

result<void> Borrowed::enable(const EventPatterns& patterns) {
  RS_TRY(can_be_lines(patterns));
  return instance_.replace("set_event", [&](const std::string& before) -> result<std::string> {
    std::string now = before;
    for (const EventPattern& one : patterns)
      for (const std::string& line : one.in_full()) now = with_pattern(now, line, true);
    json note = parsed(note_);
    note["set_event"] = {{"before", before}, {"now", now}};
    RS_TRY(write_note(instance_, note, note_));
    return now;
  });
}

result<void> Borrowed::stacks(const EventPatterns& patterns, u32 depth) {
  RS_TRY(can_be_lines(patterns));
  return instance_.replace("set_stack", [&](const std::string& before) -> result<std::string> {
    const std::string now = with_stacks(before, patterns, depth);
    json note = parsed(note_);
    note["set_stack"] = {{"before", before}, {"now", now}};
    RS_TRY(write_note(instance_, note, note_));
    return now;
  });
}

result<void> Borrowed::tracing() {
  json note = parsed(note_);
  note["tracing_on"] = instance_.tracing_on();
  return write_note(instance_, note, note_);
}

result<void> Borrowed::give_back() {
  if (!lock_) return {};
  auto done = put_back(instance_, note_);
  if (done) lock_ = sys::Fd();
  return done;
}

void put_back_after_death(Instance& instance) {
  if (faccessat(instance.dir(), note_file, F_OK, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (const sys::Fd lock = lock_of(instance); lock)
    if (const auto left = instance.read(note_file)) (void)put_back(instance, *left);  // else the next one tries
}

}  // namespace ringside
