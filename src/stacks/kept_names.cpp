#include "stacks/kept_names.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <string_view>

#include "stacks/judged.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

std::string_view take_part(std::string_view& line) {
  const size_t end = std::min(line.find('\t'), line.size());
  const std::string_view part = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return part;
}

u64 take_number(std::string_view& line, int base = 10) {
  const std::string_view part = take_part(line);
  u64 value = 0;
  (void)std::from_chars(part.data(), part.data() + part.size(), value, base);
  return value;
}

// Of the file at a path; 0, 0: it cannot be looked at.
std::pair<u64, u64> size_and_mtime(const std::string& path) {
  const auto file = path.starts_with('/') ? open_judged(path) : result<sys::Fd>(sys::Fd());
  struct stat st {};
  if (!file || !*file || fstat(file->get(), &st) != 0) return {};
  return {static_cast<u64>(st.st_size),
          static_cast<u64>(st.st_mtim.tv_sec) * 1'000'000'000 + static_cast<u64>(st.st_mtim.tv_nsec)};
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n') c = ' ';
  return text;
}

}  // namespace

void KeptNames::add(const std::string& path, const std::string& build_id, u64 offset, ElfPlace place) {
  const auto [file, fresh] = files_.try_emplace({build_id, path});
  if (fresh && build_id.empty()) std::tie(file->second.size, file->second.mtime) = size_and_mtime(path);
  const auto [at, first] = file->second.at.try_emplace(offset);
  addresses_ += first;
  at->second.push_back(std::move(place));
}

void KeptNames::add_unnamed(const std::string& path, const std::string& build_id, u64 offset) {
  const auto [file, fresh] = files_.try_emplace({build_id, path});
  if (fresh && build_id.empty()) std::tie(file->second.size, file->second.mtime) = size_and_mtime(path);
  addresses_ += file->second.at.try_emplace(offset).second;
}

std::string KeptNames::head(const std::string& path, const std::string& build_id) {
  return fmt::format("F\t{}\t0\t0\t{}\n", build_id, one_line(path));
}

std::string KeptNames::asking(u64 offset) { return fmt::format("A\t{:x}\n", offset); }

void KeptNames::answer(const LookUp& look_up) {
  addresses_ = 0;
  for (auto& [key, file] : files_) {
    if (key.first.empty()) std::tie(file.size, file.mtime) = size_and_mtime(key.second);
    for (auto at = file.at.begin(); at != file.at.end();) {
      const bool left_out = at->second.empty() && !look_up(key.second, key.first, at->first, at->second);
      at = left_out ? file.at.erase(at) : std::next(at);
    }
    addresses_ += file.at.size();
  }
}

std::string KeptNames::text() const {
  std::string out;
  for (const auto& [key, file] : files_) {
    out += fmt::format("F\t{}\t{}\t{}\t{}\n", key.first, file.size, file.mtime, one_line(key.second));
    for (const auto& [offset, places] : file.at) {
      out += fmt::format("A\t{:x}\n", offset);
      for (const ElfPlace& p : places)
        out += fmt::format("P\t{}\t{}\t{}\t{:d}\t{}\t{}\n", p.offset, p.size, p.line, p.inlined, one_line(p.file),
                           one_line(p.function));
    }
  }
  return out;
}

void KeptNames::add(const std::string& text, Budget& budget) {
  File* file = nullptr;
  std::vector<ElfPlace>* at = nullptr;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!budget.take(2 * line.size() + 192) || !budget.step(line.size() / 8 + 8)) return;
    const std::string_view kind = take_part(line);
    if (kind == "F") {
      const std::string_view build_id = take_part(line);
      const u64 size = take_number(line), mtime = take_number(line);
      file = &files_[{std::string(build_id), std::string(line)}];
      file->size = size;
      file->mtime = mtime;
      at = nullptr;
    } else if (kind == "A" && file != nullptr) {
      at = &file->at[take_number(line, 16)];
      at->clear();
      ++addresses_;
    } else if (kind == "P" && at != nullptr) {
      ElfPlace p;
      p.offset = take_number(line);
      p.size = take_number(line);
      p.line = static_cast<u32>(take_number(line));
      p.inlined = take_number(line) != 0;
      p.file = sys::kept_name(std::string(take_part(line)));
      p.function = sys::kept_name(std::string(line));
      if (!p.function.empty()) at->push_back(std::move(p));
    }
  }
}

std::vector<ElfPlace> KeptNames::at(const std::string& path, const std::string& build_id, u64 offset) const {
  const auto file = files_.find({build_id, one_line(path)});
  if (file == files_.end()) return {};
  const auto found = file->second.at.find(offset);
  return found == file->second.at.end() ? std::vector<ElfPlace>() : found->second;
}

bool KeptNames::knows_no_name(const std::string& path, const std::string& build_id, u64 offset) const {
  const auto file = files_.find({build_id, one_line(path)});
  if (file == files_.end()) return false;
  const auto found = file->second.at.find(offset);
  return found != file->second.at.end() && found->second.empty();
}

bool KeptNames::has_changed(const std::string& path) const {
  const auto file = files_.find({"", one_line(path)});
  if (file == files_.end() || file->second.size == 0) return false;
  return size_and_mtime(path) != std::pair(file->second.size, file->second.mtime);
}

}  // namespace ringside
