#include "cli/keep_names.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "consumer/reading.hpp"
#include "record/handed_files.hpp"
#include "source/recording.hpp"
#include "stacks/judged.hpp"
#include "stacks/kept_names.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

NamesToKeep NamesToKeep::of(HandedFiles* files) {
  NamesToKeep how;
  how.before = [files](const std::string& path, i32) { return files != nullptr ? files->files(path) : std::vector<sys::Fd>(); };
  how.after = [](const std::string& path, i32 pid) {
    std::vector<sys::Fd> all;
    if (pid <= 0) return all;
    if (sys::Fd held = hold_mapped(pid, path))
      if (auto file = open_held(std::move(held), path, {.pid = pid})) all.push_back(std::move(*file));
    if (auto file = open_judged(path, {.pid = pid}))
      all.push_back(std::move(*file));  // in a mount namespace that is still there
    return all;
  };
  return how;
}

namespace {

// The recording, when all addresses of its stacks have been looked up.
result<std::unique_ptr<Reading>> look_all_up(const std::string& dir, const std::function<bool()>& over,
                                             const std::function<void(Names&)>& prepare) {
  Reading::Options options;
  options.where = {std::filesystem::absolute(dir).string()};
  options.time.over = over;
  auto reading = RS_TRY(Reading::open(std::move(options)));
  Stacks& stacks = reading->join_stacks();
  prepare(stacks.names());
  std::vector<bool> named;
  const auto use = [&](const TraceRecord& record, const RingName&, Reading::Got) {
    if (record.stack == 0 || over()) return;
    if (record.stack >= named.size()) named.resize(2 * record.stack + 1);
    if (named[record.stack]) return;
    named[record.stack] = true;
    (void)stacks.frames(record.stack);
  };
  reading->take_rest(use);
  return result<std::unique_ptr<Reading>>(std::move(reading));
}

std::function<bool()> over_at(const NamesToKeep& how) {
  return [&how, until = sys::now_ns() + how.most_ns] { return sys::now_ns() > until || (how.over && how.over()); };
}

// Of a text that is too long: the addresses that fit.
bool fits(std::string& text, u64 most_bytes) {
  if (text.size() <= most_bytes) return true;
  text.resize(text.rfind("\nA\t", most_bytes) + 1);
  return false;
}

}  // namespace

result<NamesKept> keep_names(const std::string& dir, const NamesToKeep& how) {
  NamesKept kept;
  const auto reading = RS_TRY(look_all_up(dir, over_at(how), [&](Names& names) { names.find_files(how.before, how.after); }));
  const Names& names = reading->join_stacks().names();
  std::string text = names.kept();
  kept.problems = names.problems();
  kept.all = fits(text, how.most_bytes) && !reading->cut();
  if (text.empty()) return kept;
  kept.addresses = names.addresses();
  kept.bytes = text.size();
  const sys::Fd at(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const sys::Fd file = at ? sys::open_beneath(at.get(), kept_names, O_WRONLY | O_CREAT | O_EXCL) : sys::Fd();
  if (!file) return fail(errno, "cannot make " + dir + "/" + kept_names);
  RS_TRY(sys::write_text(file.get(), dir + "/" + kept_names, text));
  return kept;
}

result<std::string> ask_names(const std::string& dir, const NamesToKeep& how) {
  const auto reading = RS_TRY(look_all_up(dir, over_at(how), [](Names& names) { names.only_ask(); }));
  return reading->join_stacks().names().asked(how.most_bytes);
}

NamesKept answer_names(const std::string& asked, const NamesToKeep& how, std::string& names) {
  NamesKept kept;
  Budget budget;
  KeptNames all;
  all.add(asked, budget);
  std::unique_ptr<ElfNames> elf;
  std::pair<std::string, std::string> open{"", "-"};  // the file of elf: addresses come file by file
  const auto over = over_at(how);
  all.answer([&](const std::string& path, const std::string& build_id, u64 offset, std::vector<ElfPlace>& found) {
    if (over()) kept.all = false;
    if (!kept.all) return false;
    if (open != std::pair(path, build_id)) {
      open = {path, build_id};
      result<std::unique_ptr<ElfNames>> opened;
      auto files = how.before ? how.before(path, 0) : std::vector<sys::Fd>();
      for (size_t n = 0; n < files.size() && (!opened || *opened == nullptr); ++n)
        opened = ElfNames::open(path, build_id, &budget, std::move(files[n]));
      if (!opened || *opened == nullptr) opened = ElfNames::open(path, build_id, &budget);
      const std::string problem = opened ? (*opened)->doubt() : opened.error().sentence + "; its functions have no names here";
      if (!problem.empty()) kept.problems.push_back(problem);
      elf = opened ? std::move(*opened) : nullptr;
    }
    if (elf != nullptr) found = elf->at(offset);
    return elf != nullptr;
  });
  kept.addresses = all.size();
  names = all.text();
  if (!fits(names, how.most_bytes)) kept.all = false;
  kept.bytes = names.size();
  return kept;
}

}  // namespace ringside
