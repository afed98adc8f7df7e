// Any text as a filter: an error or a filter, and a filter answers for any payload. The input is a payload's length, the
// payload, and the text.
#include <algorithm>
#include <cstdlib>

#include "analysis/filter.hpp"
#include "cli/hand_made.hpp"

using namespace ringside;

namespace {

struct Subject {
  Formats formats;
  Tasks tasks;
  Subject() {
    formats.add(1, "libc", "malloc", test::malloc_format());
    formats.add(
        2, "s", "mixed",
        test::format(
            2, "mixed",
            "\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc char[] "
            "path;\toffset:16;\tsize:4;\tsigned:0;\n"
            "\tfield:s8 c;\toffset:20;\tsize:1;\tsigned:1;\n\tfield:double load;\toffset:24;\tsize:8;\tsigned:0;\n"
            "\tfield:u16 list[2];\toffset:32;\tsize:4;\tsigned:0;\n\tfield:u16 state;\toffset:36;\tsize:2;\tsigned:0;\n",
            R"("state=%s", __print_symbolic(REC->state, { 0, "idle" }, { 1, "busy" }))"));
    tasks.add(Task{1, 1, "task", "task"});
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static Subject world;
  if (size == 0) return 0;
  const size_t length = std::min<size_t>(bytes[0] % 64, size - 1);
  const std::vector<u8> payload(bytes + 1, bytes + 1 + length);  // a sanitizer checks its end
  const std::string text(reinterpret_cast<const char*>(bytes) + 1 + length, size - 1 - length);
  auto filter = Filter::compile(text, world.formats, world.tasks);
  // A condition that holds in parentheses does not hold after a `!`.
  auto opposite = Filter::compile("!(" + text + ")", world.formats, world.tasks);
  if (!filter) {
    if (filter.error().sentence.empty()) std::abort();
    return 0;
  }
  const RingName ring{1, 1, 1, "ring", "ring", false, ""};
  TraceRecord record;
  record.time = 1000;
  record.payload = {payload.data(), payload.size()};
  const bool met = filter->matches(record, ring);
  if (opposite && opposite->matches(record, ring) == met) std::abort();
  return 0;
}
