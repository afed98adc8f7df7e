#include "plot/heap.hpp"

#include <algorithm>
#include <map>

namespace ringside::plot {

u32 Heap::place_of(i64 process) {
  const auto [at, fresh] = places_.try_emplace(process, static_cast<u32>(processes_.size()));
  if (fresh) processes_.push_back({process});
  return at->second;
}

void Heap::count(u32 place, u64 time, u32 stack, u64 bytes) {
  if (stack == 0 || bytes == 0) return;
  const u64 key = u64{place} << 32 | stack;
  auto row = rows_.find(key);
  if (row == rows_.end()) {
    if (rows_.size() == most_stacks) {
      ++left_out_;
      return;
    }
    row = rows_.emplace(key, static_cast<u32>(rows_.size())).first;
    place_and_stack_.emplace_back(place, stack);
  }
  by_stack_.add(time, row->second, bytes);
}

void Heap::flush(u32 place) {
  Process& p = processes_[place];
  if (std::exchange(p.waits, false)) curves_.add(place, p.time, static_cast<double>(p.held));
}

void Heap::add(i64 process, u64 time, u32 /*root*/, u32 stack, u64 bytes) {
  const u32 place = place_of(process);
  Process& p = processes_[place];
  if (p.waits && p.time == time) p.waits = false;  // a realloc
  flush(place);
  p.held += bytes;
  curves_.add(place, time, static_cast<double>(p.held));
  count(place, time, stack, bytes);
}

void Heap::free(i64 process, u64 time, u32 /*root*/, u32 stack, u64 bytes) {
  const u32 place = place_of(process);
  flush(place);
  Process& p = processes_[place];
  p.held -= bytes;
  p.waits = true;
  p.time = time;
  count(place, time, stack, 0 - bytes);
}

void Heap::finish() {
  for (u32 n = 0; n < processes_.size(); ++n) flush(n);
  curves_.finish();
}

std::vector<Heap::Site> Heap::sites(size_t place, StackTexts& texts, u64 last_ns) const {
  std::map<std::string, std::map<u64, u64>> changes;  // by functions and column
  for (u32 row = 0; row < by_stack_.rows(); ++row) {
    const auto [of, stack] = place_and_stack_[row];
    if (of != place) continue;
    const std::vector<std::string>& functions = texts.functions(stack);
    std::string site;
    for (size_t n = 0; n < std::min(site_depth, functions.size()); ++n) site += (n != 0 ? " ← " : "") + functions[n];
    auto& into = changes[std::move(site)];
    for (const StackCounts::Count& c : by_stack_.row(row)) into[c.column] += c.count;
  }
  u64 highest = 0;
  for (const Point& p : curves_.points(static_cast<u32>(place))) highest = std::max(highest, static_cast<u64>(p.high));
  std::vector<Site> out;
  for (const auto& [functions, columns] : changes) {
    Site site{functions, 0, {}};
    u64 held = 0;
    for (const auto& [column, more] : columns) {
      held += more;
      site.values.emplace_back(std::min(((column + 1) << by_stack_.shift()) - 1, last_ns), held);
      site.most = std::max(site.most, held);
    }
    if (site.most >= highest / 100 && site.most != 0) out.push_back(std::move(site));
  }
  std::stable_sort(out.begin(), out.end(), [](const Site& a, const Site& b) { return a.most > b.most; });
  if (out.size() > most_sites) out.resize(most_sites);
  return out;
}

}  // namespace ringside::plot
