// Any bytes as an ELF file with its debugging information, its probes and its unwinding tables: an error, or names for any
// offset, and walks that end.
#include <unistd.h>

#include <cstdlib>

#include "stacks/elf_names.hpp"
#include "stacks/sample_walk.hpp"
#include "stacks/usdt_notes.hpp"

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const struct File {  // a link of procfs would not be opened
    char path[32] = "/tmp/ringside-elf-fuzz-XXXXXX";
    int fd = mkstemp(path);
    ~File() { unlink(path); }
  } file;
  static const int fd = file.fd;
  static const std::string path = file.path;
  if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, size, 0) != static_cast<ssize_t>(size)) return 0;
  if (const auto notes = usdt_notes(path)) {
    for (const UsdtNote& note : *notes) {
      for (const Machine machine : {Machine::x86_64, Machine::arm64}) {
        if (usdt_arguments(note.arguments, machine).fetch.find('\n') != std::string::npos) std::abort();
      }
    }
  }
  (void)usdt_arguments({reinterpret_cast<const char*>(bytes), size});
  SampleWalk walk;
  walk.map(1, {0x1000, 0x1000 + size, 0}, path, "");
  PerfRecord sample;
  sample.pid = 1;
  sample.stack = {bytes, size};
  std::vector<u64> frames;
  for (size_t offset = 0; offset < size; offset += 1 + size / 64) {
    sample.registers = {0x1000 + offset, 0x100000, 0x100000 + offset, 0};
    frames.clear();
    (void)walk.frames(sample, 64, frames);
    if (frames.size() > 64) std::abort();
  }
  auto elf = ElfNames::open(path, "");
  if (!elf) {
    if (elf.error().sentence.empty()) std::abort();
    return 0;
  }
  (void)(*elf)->named("main");
  for (const auto& [name, function] : (*elf)->matching("*")) {
    for (const bool at_return : {false, true}) {
      const auto variables = (*elf)->variables(function.begin, 0, at_return);
      if (variables == nullptr) continue;
      (void)variables->returns();
      (void)variables->fetch({"$ret", {{VariablePath::Step::star}}}, "");
      for (const Variables::Known& known : variables->all()) {
        if (known.fetch.find_first_of("\n ") != std::string::npos || known.fetch.empty() == known.why.empty()) std::abort();
        (void)variables->fetch({known.name, {{VariablePath::Step::arrow, "id"}}}, "");
        (void)variables->fetch({known.name, {{VariablePath::Step::index, "", 3}, {VariablePath::Step::dot, "name"}}}, "");
      }
    }
  }
  for (size_t offset = 0; offset < size; offset += 1 + size / 64) {
    for (const ElfPlace& place : (*elf)->at(offset)) {
      if (place.function.empty()) std::abort();
    }
  }
  return 0;
}
