#include "decode/symbols.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "sys/text.hpp"

namespace ringside {
namespace {

// Takes the next word off `line`: blanks, then what is none.
std::string_view word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const std::string_view found = line.substr(0, line.find_first_of(" \t"));
  line.remove_prefix(found.size());
  return found;
}

}  // namespace

void Symbols::load(std::string text) {
  load_later([text = std::move(text)]() mutable { return std::move(text); });
}

void Symbols::load_later(std::function<std::string()> source) {
  table_ = std::make_unique<Table>();
  table_->source = std::move(source);
}

void Symbols::Table::read() {
  if (source) text = std::exchange(source, nullptr)();
  std::string_view rest = text;
  all.reserve(text.size() / 26);  // a line's bytes, most often
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    Symbol symbol;
    const auto address = std::from_chars(line.data(), line.data() + line.size(), symbol.address, 16);
    if (address.ec != std::errc() || symbol.address == 0) continue;
    line.remove_prefix(static_cast<size_t>(address.ptr - line.data()));
    if (line.size() > 3 && line[0] == ' ' && line[2] == ' ' && line[3] != ' ') {  // as the kernel writes them, all 200,000
      line.remove_prefix(3);
      symbol.name = line.substr(0, std::min(line.find('\t'), line.find(' ')));
      line.remove_prefix(symbol.name.size());
    } else {
      word(line);  // the type
      symbol.name = word(line);
    }
    symbol.module = word(line);
    if (symbol.module.size() > 2) symbol.module = symbol.module.substr(1, symbol.module.size() - 2);
    symbol.name = sys::cut_name(text, symbol.name);
    symbol.module = sys::cut_name(text, symbol.module);
    if (!symbol.name.empty()) all.push_back(symbol);
  }
  // If an address has several names, the last is the function's: section marks (_stext) come before it. The kernel's own come
  // in order, those of modules after them do not.
  const auto by_address = [](const Symbol& a, const Symbol& b) { return a.address < b.address; };
  const auto modules = std::is_sorted_until(all.begin(), all.end(), by_address);
  std::stable_sort(modules, all.end(), by_address);
  std::inplace_merge(all.begin(), modules, all.end(), by_address);
  // A 64-bit kernel lives in the upper half. What it lists below are places in a processor's own data (__per_cpu_end), where
  // programs are.
  constexpr u64 upper_half = u64{1} << 63;
  if (!all.empty() && all.back().address >= upper_half)
    all.erase(all.begin(), std::lower_bound(all.begin(), all.end(), Symbol{upper_half, {}, {}}, by_address));
}

const Symbols::Symbol* Symbols::find(u64 address) const {
  const std::vector<Symbol>& symbols = all();
  // Most questions are about few addresses, those of callers.
  std::atomic<u32>& answer = table_->answers[address * 0x9E3779B97F4A7C15 >> 54];
  const u32 at = answer.load(std::memory_order_relaxed);
  if (at < symbols.size() && symbols[at].address <= address && (at + 1 == symbols.size() || address < symbols[at + 1].address))
    return &symbols[at];
  const auto above =
      std::upper_bound(symbols.begin(), symbols.end(), address, [](u64 a, const Symbol& symbol) { return a < symbol.address; });
  if (above == symbols.begin()) return nullptr;
  answer.store(static_cast<u32>(above - symbols.begin() - 1), std::memory_order_relaxed);
  return &*std::prev(above);
}

const Symbols::Symbol* Symbols::find_first(u64 address) const {
  const Symbol* symbol = find(address);
  while (symbol != nullptr && symbol != all().data() && symbol[-1].address == symbol->address) --symbol;
  return symbol;
}

u64 Symbols::end_of(const Symbol& symbol) const {
  const Symbol *next = &symbol, *const end = all().data() + all().size();
  while (next != end && next->address == symbol.address) ++next;
  return next != end ? next->address : symbol.address;
}

}  // namespace ringside
