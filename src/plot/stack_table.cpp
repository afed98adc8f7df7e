#include "plot/stack_table.hpp"

namespace ringside::plot {

u32 StackTable::number(u32 stack) {
  if (stack == 0 || texts_ == nullptr) return 0;
  const auto [at, fresh] = numbers_.try_emplace(texts_->same_names(stack), 0);
  if (!fresh) return at->second;
  const std::vector<std::string>& functions = texts_->functions(stack);
  if (calls_.size() + functions.size() > most) {
    full_ = true;
    return 0;
  }
  u32 call = 0;
  for (auto name = functions.rbegin(); name != functions.rend(); ++name) {
    const auto [function, first] = function_numbers_.try_emplace(*name, static_cast<u32>(functions_.size()));
    if (first) functions_.push_back(&function->first);
    const auto [known, added] = known_.try_emplace(u64{call} << 32 | function->second, static_cast<u32>(calls_.size() + 1));
    if (added) calls_.push_back({function->second, call});
    call = known->second;
  }
  return at->second = call;
}

void StackCounts::add(u64 time, u32 row, u64 count) {
  if (row >= rows_.size()) rows_.resize(row + 1);
  auto& counts = rows_[row];
  const u64 column = time >> shift_;
  auto at = counts.end();
  while (at != counts.begin() && std::prev(at)->column >= column) --at;  // times come nearly in order
  if (at != counts.end() && at->column == column) {
    at->count += count;
    return;
  }
  counts.insert(at, {column, count});
  if (++held_ > 2 * most_) widen();
}

void StackCounts::widen() {
  for (; held_ > most_ && shift_ < 63; ++shift_) {
    held_ = 0;
    for (auto& counts : rows_) {
      size_t kept = 0;
      for (Count c : counts) {
        c.column >>= 1;
        if (kept != 0 && counts[kept - 1].column == c.column) counts[kept - 1].count += c.count;
        else counts[kept++] = c;
      }
      counts.resize(kept);
      held_ += kept;
    }
  }
}

}  // namespace ringside::plot
