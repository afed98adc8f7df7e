// The names of a finished recording's stacks, looked up while the files are what ran, and kept in it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "stacks/names.hpp"
#include "sys/sys.hpp"

namespace ringside {

class HandedFiles;

struct NamesToKeep {
  // By what programs have handed over, and by what a living process has mapped or finds at the path. null: none was handed
  // over.
  static NamesToKeep of(HandedFiles* files);
  Names::FindFiles before{}, after{};  // as of Names::find_files
  u64 most_ns = 5'000'000'000;
  u64 most_bytes = 64u << 20;
  std::function<bool()> over{};  // asked now and then: no more time
};
struct NamesKept {
  u64 addresses = 0, bytes = 0;
  bool all = true;  // the time and the room sufficed
  std::vector<std::string> problems{};  // files that cannot name all, a sentence each
};
// Reads the recording and writes its file `names`. Nothing to name: no file.
result<NamesKept> keep_names(const std::string& dir, const NamesToKeep& how);

// Where the recording is on another machine than the files: there this makes the list of the addresses that its stacks have, as
// a text of at most `most_bytes`; here answer_names() gives each its name, in the text of the file `names`.
result<std::string> ask_names(const std::string& dir, const NamesToKeep& how);
NamesKept answer_names(const std::string& asked, const NamesToKeep& how, std::string& names);

}  // namespace ringside
