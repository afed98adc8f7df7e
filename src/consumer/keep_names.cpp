#include "consumer/keep_names.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "consumer/reading.hpp"
#include "record/handed_files.hpp"
#include "source/recording.hpp"
#include "stacks/judged.hpp"
#include "stacks/kept_names.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

bool has_stacks(const RecordingMeta& meta) {
  return std::any_of(meta.events.begin(), meta.events.end(), [](const EventInfo& e) { return e.name == "code_map"; });
}

NamesToKeep NamesToKeep::of(HandedFiles* files) {
  NamesToKeep how;
  how.find_file = [files](const std::string& path, i32 pid) {
    sys::Fd file = files != nullptr ? files->file(path) : sys::Fd();
    if (file || pid <= 0 || access(path.c_str(), F_OK) == 0) return file;
    return open_judged(path, {.pid = pid}).value_or(sys::Fd());  // in a mount namespace that is still there
  };
  return how;
}

result<NamesKept> keep_names(const std::string& dir, const NamesToKeep& how) {
  NamesKept kept;
  const u64 until = sys::now_ns() + how.most_ns;
  Reading::Options options;
  options.where = {std::filesystem::absolute(dir).string()};
  const auto over = [&] { return sys::now_ns() > until || (how.over && how.over()); };
  options.time.over = over;
  auto reading = RS_TRY(Reading::open(std::move(options)));
  Stacks& stacks = reading->join_stacks();
  stacks.names().find_files(how.find_file);
  std::vector<bool> named;
  const auto use = [&](const TraceRecord& record, const RingName&, Reading::Got) {
    if (record.stack == 0 || over()) return;
    if (record.stack >= named.size()) named.resize(2 * record.stack + 1);
    if (named[record.stack]) return;
    named[record.stack] = true;
    (void)stacks.frames(record.stack);
  };
  reading->take_rest(use);
  std::string text = stacks.names().kept();
  kept.problems = stacks.names().problems();
  kept.all = !reading->cut() && text.size() <= how.most_bytes;
  if (text.size() > how.most_bytes) text.resize(text.rfind("\nA\t", how.most_bytes) + 1);
  if (text.empty()) return kept;
  kept.addresses = stacks.names().addresses();
  kept.bytes = text.size();
  const sys::Fd at(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const sys::Fd file = at ? sys::open_beneath(at.get(), kept_names, O_WRONLY | O_CREAT | O_EXCL) : sys::Fd();
  if (!file) return fail(errno, "cannot make " + dir + "/" + kept_names);
  RS_TRY(sys::write_text(file.get(), dir + "/" + kept_names, text));
  return kept;
}

}  // namespace ringside
