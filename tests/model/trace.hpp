// Names for addresses, and the lines of an execution that is told. Off during a search, where it costs a branch per access.
#pragma once
#include <cstdio>
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ringside::model {

class Trace {
 public:
  bool on = false;
  std::vector<std::string> lines;

  void name(const void* p, const char* what, int index) {
    if (on) names_.push_back({u64(p), what + (index < 0 ? "" : "[" + std::to_string(index) + "]")});
  }
  void forget_names() { names_.clear(); }

  // By the nearest name at or below it, else by its place in the arena.
  std::string called(const void* p, const void* arena) const {
    std::pair<u64, std::string> best = {u64(arena), "arena"};
    for (const auto& entry : names_)
      if (entry.first <= u64(p) && entry.first >= best.first) best = entry;
    if (best.first == u64(p)) return best.second;
    char offset[32];
    snprintf(offset, sizeof offset, "+%#llx", static_cast<unsigned long long>(u64(p) - best.first));
    return best.second + offset;
  }

  void access(const char* who, u32 nesting, const char* what, const std::string& where, u64 value, const char* detail) {
    char line[256];
    snprintf(line, sizeof line, "  %-10s %*s%-9s %-14s %#llx %s", who, int(2 * nesting), "", what, where.c_str(),
             static_cast<unsigned long long>(value), detail);
    lines.push_back(line);
  }

  void event(const char* who, u32 nesting, const char* what) {
    char line[256];
    snprintf(line, sizeof line, "  %-10s %*s%s", who, int(2 * nesting), "", what);
    lines.push_back(line);
  }

 private:
  std::vector<std::pair<u64, std::string>> names_;
};

}  // namespace ringside::model
