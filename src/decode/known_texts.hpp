// The texts of values that took time to put together: flags of memory are searched for among thirty names, and a trace has some
// ten of their values; addresses are those of a few hundred callers. Thread-safe; a value whose place is taken is not kept.
#pragma once
#include <array>
#include <atomic>
#include <string_view>

#include "decode/append.hpp"

namespace ringside {

template <u32 bits>  // 2^bits places
class KnownTexts {
 public:
  KnownTexts() = default;
  ~KnownTexts() {
    for (const auto& one : ones_) delete one.load(std::memory_order_relaxed);
  }
  KnownTexts(const KnownTexts&) = delete;
  KnownTexts& operator=(const KnownTexts&) = delete;

  // Null: it is not known.
  const CopiedText* find(u64 value) const {
    const One* const one = place(value).load(std::memory_order_acquire);  // pairs with the exchange in add()
    return one != nullptr && one->value == value ? &one->text : nullptr;
  }
  void add(u64 value, std::string_view text) {
    std::atomic<const One*>& at = place(value);
    const One* none = nullptr;
    if (text.size() > longest || at.load(std::memory_order_relaxed) != nullptr) return;
    const auto* const one = new One{value, CopiedText(text)};
    if (!at.compare_exchange_strong(none, one, std::memory_order_release, std::memory_order_relaxed)) delete one;
  }

 private:
  static constexpr size_t longest = 1000;
  struct One {
    u64 value;
    CopiedText text;
  };
  const std::atomic<const One*>& place(u64 value) const { return ones_[value * 0x9E3779B97F4A7C15 >> (64 - bits)]; }
  std::atomic<const One*>& place(u64 value) { return ones_[value * 0x9E3779B97F4A7C15 >> (64 - bits)]; }

  std::array<std::atomic<const One*>, 1 << bits> ones_{};
};

}  // namespace ringside
