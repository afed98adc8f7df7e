// Names of addresses in files, kept as text: in a recording, as they were when it was made. Lines:
//
//   F <TAB> build id <TAB> size <TAB> mtime <TAB> path         a file; size and mtime (ns) as it was found by its path, or 0
//   A <TAB> offset                                             an address in it, in hex; without a P: its file had no name for
//   it P <TAB> offset <TAB> size <TAB> line <TAB> inlined <TAB> source <TAB> function    what is there; the innermost first
//
// The text is hostile: what it takes is taken from a budget, and names have a most length.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stacks/elf_names.hpp"

namespace ringside {

class KeptNames {
 public:
  void add(const std::string& text, Budget& budget);
  void add(const std::string& path, const std::string& build_id, u64 offset, ElfPlace place);
  void add_unnamed(const std::string& path, const std::string& build_id, u64 offset);
  std::string text() const;
  // Lines of the text that ask: a file, and after it an address in it.
  static std::string head(const std::string& path, const std::string& build_id);
  static std::string asking(u64 offset);
  // Looks up all that has no name. False from it: nothing could be looked at; the address is left out.
  using LookUp =
      std::function<bool(const std::string& path, const std::string& build_id, u64 offset, std::vector<ElfPlace>& found)>;
  void answer(const LookUp& look_up);
  // Empty: none is known.
  std::vector<ElfPlace> at(const std::string& path, const std::string& build_id, u64 offset) const;
  bool knows_no_name(const std::string& path, const std::string& build_id, u64 offset) const;
  // Whether the file at this path, which has no build id, is another one than that of the recording.
  bool has_changed(const std::string& path) const;
  size_t size() const { return addresses_; }  // addresses

 private:
  struct File {
    u64 size = 0, mtime = 0;
    std::map<u64, std::vector<ElfPlace>> at{};
  };
  std::map<std::pair<std::string, std::string>, File> files_;  // by build id and path
  size_t addresses_ = 0;
};

}  // namespace ringside
