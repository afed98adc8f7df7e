#include "instance/patterns.hpp"

#include <fcntl.h>

#include <cerrno>

#include "instance/instance.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

std::string with_stacks(const std::string& text, const EventPatterns& patterns, u32 depth) {
  std::string now = "depth=" + std::to_string(depth) + "\n";
  for (const std::string& line : lines_of(text))
    if (line.rfind("depth=", 0) != 0) now += line + "\n";
  for (const EventPattern& one : patterns) now += one.text() + "\n";
  return now;
}

result<void> Instance::replace(const char* file, const std::function<result<std::string>(const std::string&)>& change) {
  const InstanceLock held = RS_TRY(lock());
  const std::string before = read(file).value_or("");
  const std::string now = RS_TRY(change(before));
  if (now != before) RS_TRY(replace_file(dir_.get(), file, now));
  return std::string(file) == "set_event" ? apply_events() : result<void>();
}

result<void> Instance::apply_events() {
  const sys::Fd fd = sys::open_owned(dir_.get(), "gate", O_RDWR);
  if (!fd) return sys::fail_beneath(errno, "cannot open " + path_ + "/gate");
  auto gate = RS_TRY(sys::Region::map(fd.get(), gate_bytes, true, path_ + "/gate"));
  auto lines = RS_TRY(read_patterns(dir_.get()));
  apply_patterns(lines, words_, gate.data());
  return {};
}

result<void> Instance::stacks(const EventPatterns& patterns, u32 depth) {
  RS_TRY(can_be_lines(patterns));
  return replace("set_stack", [&](const std::string& before) { return with_stacks(before, patterns, depth); });
}

result<void> Instance::choose_stacks(const EventPatterns& patterns, bool on) {
  RS_TRY(can_be_lines(patterns));
  return replace("set_stack", [&](const std::string& before) { return with_patterns(before, patterns, on, false); });
}

result<u32> Instance::enable(const EventPatterns& patterns, bool on) {
  RS_TRY(can_be_lines(patterns));
  RS_TRY(replace("set_event", [&](const std::string& before) { return with_patterns(before, patterns, on, true); }));
  u32 matched = 0;
  for (const EventInfo& e : events()) matched += patterns.matches(e.system, e.name);
  return matched;
}

result<u32> Instance::enable(const std::string& list, bool on) {
  auto patterns = RS_TRY(EventPatterns::parse(list));
  return enable(patterns, on);
}

}  // namespace ringside
