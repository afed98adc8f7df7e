// usage: traces DIR: trace.dat files of other machines, for what is read on several: system calls and print fmts that compute,
// by byte order and word size, with kernel stacks, names of threads and symbols.
#include <cstdio>
#include <fstream>

#include "foreign_dat.hpp"

using namespace ringside;
using test::ForeignDat;

namespace {

// A page of events of this kind behind the calls: a kernel's address, its difference to another one in u32, and its stack.
void add_places(ForeignDat& dat) {
  const u32 word = dat.word, caller = word == 8 ? 16 : 12;
  const u64 place = word == 8 ? 0xffffffff81000100 : 0xc1000100;
  dat.formats.push_back(
      {"a", ForeignDat::format("at", 23,
                               ForeignDat::field("unsigned long ip", 8, word) + ForeignDat::field("u32 n", 8 + word, 4) +
                                   ForeignDat::field("u32 m", 12 + word, 4),
                               "\"%pS %u %llx\", (void *)REC->ip, REC->n - REC->m, REC->n * 3ULL")});
  dat.ftrace = {{"ftrace", ForeignDat::format("kernel_stack", 4,
                                              ForeignDat::field("int size", 8, 4, true) +
                                                  ForeignDat::field("unsigned long caller[8]", caller, 8 * word),
                                              "\"%ps\", (void *)REC->caller[0]")}};
  std::string data;
  for (u32 i = 0; i < 20; ++i) {
    data += dat.event(100 * i, dat.head(23, 42) + dat.a_long(place + i) + dat.number(i) + dat.number(u32{7}));
    std::string stack = dat.head(4, 42) + dat.number(i32{2});
    stack.resize(caller);
    data += dat.event(0, stack + dat.a_long(place + 4) + dat.a_long(place + 0x1004));
  }
  dat.pages.push_back(dat.sub_buffer(2'000'000'000, data, 5));
  char symbols[200];
  std::snprintf(symbols, sizeof symbols, "%llx T inner\n%llx T outer\n%llx T end\n", static_cast<unsigned long long>(place),
                static_cast<unsigned long long>(place + 0x1000), static_cast<unsigned long long>(place + 0x2000));
  dat.kallsyms = symbols;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const struct {
    const char *name, *uname;
    bool big;
    u32 word;
  } all[] = {{"arm64", "Linux board 6.1.0 aarch64", false, 8},  {"x86", "Linux host 6.1.0 x86_64", false, 8},
             {"s390x", "Linux mainframe 6.1.0 s390x", true, 8}, {"arm", "Linux phone 6.1.0 armv7l", false, 4},
             {"ppc", "Linux old 6.1.0 ppc", true, 4},           {"unknown", "", false, 8}};
  for (const auto& one : all) {
    ForeignDat dat =
        ForeignDat::of_calls(one.uname, {{63, 10}, {64, 3}, {98, -110}, {101, 0}, {3, 7}, {4, -11}}, one.big, one.word);
    add_places(dat);
    std::ofstream(std::string(argv[1]) + "/" + one.name + ".dat", std::ios::binary) << dat.bytes();
  }
  return 0;
}
