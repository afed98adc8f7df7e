// Stacks: how fast they are added up, and named.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "bench.hpp"
#include "pages.hpp"
#include "stacks/fold.hpp"

namespace bench {
namespace {

// Events of the kernel with a stack of 26 frames behind each, 10,000 different ones: found out, added up, named at the end.
void fold_row() {
  constexpr u32 different = 10'000, frames = 26;
  constexpr u64 events = 1'000'000;
  std::mt19937_64 random(1);
  std::vector<std::vector<u64>> stacks(different);
  for (auto& stack : stacks) {
    stack = {4 | u64{4711} << 32, frames};
    for (u32 d = 0; d < frames; ++d) stack.push_back(0xffffffff81000000 + random() % (d < 13 ? 2000 : 20) * 64 + d);
  }
  std::vector<u32> order(events);
  for (u32& n : order) n = static_cast<u32>(random() % different);
  std::string kallsyms;
  for (u64 n = 0; n < 4000; ++n)
    kallsyms += text("%llx t function_%llu\n", 0xffffffff81000000ull + n * 64, static_cast<unsigned long long>(n));
  const u64 event = u64{4711} << 32;
  const RingName ring{0, 0, 0, "", "", true};
  std::vector<double> rates, whole;
  for (int round = 0; round < (quick ? 3 : 9); ++round) {
    Formats formats;
    formats.symbols().load(kallsyms);
    const Tasks tasks;
    Stacks joined(formats, tasks);
    Fold fold;
    TraceRecord record;
    record.payload = {reinterpret_cast<const u8*>(&event), sizeof event};
    record.ids = kernel_ids;
    const u64 from = cpu_ns();
    for (const u32 n : order)
      fold.add(0,
               joined.number(record, ring,
                             {{reinterpret_cast<const u8*>(stacks[n].data()), static_cast<u32>(stacks[n].size() * 8)}, {}}),
               1);
    const u64 folded = cpu_ns();
    FlameTree tree;
    tree.add(fold, joined, {"task"}, 0);
    const u64 named = cpu_ns();
    rates.push_back(fold.weight() == events ? static_cast<double>(events) * 1e9 / static_cast<double>(folded - from) : 0);
    whole.push_back(static_cast<double>(named - from) / 1e9);
  }
  row("flame.stacks_per_s", fastest(rates), "1/s",
      text("stacks of 26 frames added up, of CPU time; 1 million with 10,000 different ones, names and tree included: %.2f s",
           *std::min_element(whole.begin(), whole.end())));
}

// The addresses of a program's own code, each asked for once.
void names_row() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  auto elf = ElfNames::open(program, "");
  if (!elf) return row("symbols.per_s", std::nullopt, "1/s", elf.error().sentence);
  std::ifstream file(program, std::ios::ate);
  const auto size = static_cast<u64>(file.tellg());
  std::mt19937_64 random(1);
  (void)(*elf)->at(0x1000);
  u64 named = 0, asked = 0;
  const u64 from = cpu_ns();
  for (; asked < 100'000 && cpu_ns() - from < 2'000'000'000; ++asked) named += !(*elf)->at(random() % size).empty();
  row("symbols.per_s", static_cast<double>(asked) * 1e9 / static_cast<double>(cpu_ns() - from), "1/s",
      text("addresses of this program looked up, each once, with inlined functions and lines; %.0f %% have a name",
           100 * static_cast<double>(named) / static_cast<double>(asked)));
}

}  // namespace

void stack_rows() {
  fold_row();
  names_row();
}

}  // namespace bench
