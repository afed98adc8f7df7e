#include "decode/symbols.hpp"

#include <algorithm>
#include <charconv>

namespace ringside {
namespace {

// Takes the next word off `line`.
std::string_view word(std::string_view& line) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };  // a kernel has 200,000 of these lines
  size_t begin = 0;
  while (begin < line.size() && blank(line[begin])) ++begin;
  size_t end = begin;
  while (end < line.size() && !blank(line[end])) ++end;
  const std::string_view found = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return found;
}

}  // namespace

void Symbols::load(std::string text) {
  table_ = std::make_unique<Table>();
  table_->text = std::move(text);
}

void Symbols::load_later(std::function<std::string()> source) {
  table_ = std::make_unique<Table>();
  table_->source = std::move(source);
}

void Symbols::Table::read() {
  if (source) text = source();
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::string_view address = word(line);
    Symbol symbol;
    const auto read = std::from_chars(address.data(), address.data() + address.size(), symbol.address, 16);
    if (read.ec != std::errc() || symbol.address == 0) continue;
    word(line);  // the type
    symbol.name = word(line);
    symbol.module = word(line);
    if (symbol.module.size() > 2) symbol.module = symbol.module.substr(1, symbol.module.size() - 2);
    if (!symbol.name.empty()) all.push_back(symbol);
  }
  // If an address has several names, the last is the function's: section marks (_stext) come before it. The kernel's own come
  // in order, those of modules behind them do not.
  const auto by_address = [](const Symbol& a, const Symbol& b) { return a.address < b.address; };
  const auto modules = std::is_sorted_until(all.begin(), all.end(), by_address);
  std::stable_sort(modules, all.end(), by_address);
  std::inplace_merge(all.begin(), modules, all.end(), by_address);
}

const Symbols::Symbol* Symbols::find(u64 address) const {
  const auto above =
      std::upper_bound(all().begin(), all().end(), address, [](u64 a, const Symbol& symbol) { return a < symbol.address; });
  return above == all().begin() ? nullptr : &*std::prev(above);
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
