// Files of at most 1 MiB that claim to stand for gigabytes, or for hours: each command that reads them takes no more than 256
// MiB of memory beyond what it takes for an ordinary recording, and no more than 5 s of a processor.
#pragma once
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "ringside/base/sanitizers.hpp"
#include "source/recording.hpp"
#include "trace_dat_files.hpp"

namespace ringside::bombs_test {

using test::Outcome;
using test::Payload;
using test::SubBuffer;
using testing::HasSubstr;

struct Made {
  std::string name = "bomb.data";
  u64 names = 1;        // hard links of the program: l1bomb, l2bomb ...
  u64 addresses = 256;  // of the first, from 0x1001 on
  u64 events = 100;
  i32 pid = 70;
  bool kernel = false;  // also an event of the kernel
};

struct Bombs : test::BinaryTest {
  static inline u64 ordinary = 0;  // KiB of address space that is enough for an ordinary recording

  void SetUp() override {
    BinaryTest::SetUp();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's address space has no limit";
#endif
    if (std::system("as --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no assembler";
    if (ordinary != 0) return;
    record(RINGSIDE_BUILD_DIR "/tests/walker_O2", {.name = "ordinary.data"});
    for (u64 kib = 64 << 10; ordinary == 0 && kib <= u64{64} << 20; kib += kib / 2) {
      const bool enough = within(kib, "flame ordinary.data --folded").code == 0 &&
                          within(kib, "plot ordinary.data -o p.html").code == 0 &&
                          within(kib, "report ordinary.data").code == 0;
      if (enough) ordinary = kib;
    }
    ASSERT_NE(ordinary, 0u);
  }
  Outcome within(u64 kib, const std::string& arguments, const std::string& environment = "") const {
    return run(environment + "sh -c 'ulimit -v " + std::to_string(kib) +
               " && ulimit -t 5 && exec " RINGSIDE_BUILD_DIR "/ringside " + arguments + "' >/dev/null");
  }
  Outcome bounded(const std::string& arguments, const std::string& environment = "") const {
    return within(ordinary + (256 << 10), arguments, environment);
  }

  // Assembles a program; `symbol` in it is code.
  std::string assemble(const std::string& source) const {
    std::ofstream(dir + "/bomb.s") << source;
    EXPECT_EQ(std::system(("cd " + dir + " && as bomb.s -o bomb.o && ld bomb.o -o bomb -e 0 2>ld.err").c_str()), 0)
        << test::slurp(dir + "/ld.err");
    return dir + "/bomb";
  }
  // each(header): the sections of a file, which it may change.
  template <class Each>
  static void change_sections(const std::string& file, const Each& each) {
    std::string bytes = test::slurp(file);
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (u32 i = 0; i < header.e_shnum; ++i) {
      Elf64_Shdr section;
      std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof section, sizeof section);
      each(section);
      std::memcpy(bytes.data() + header.e_shoff + i * sizeof section, &section, sizeof section);
    }
    std::ofstream(file, std::ios::binary) << bytes;
  }
  // A program with a section of zlib's that becomes `size` bytes. The linker would unpack it if it knew.
  std::string with_packed_section(const std::string& source, u64 size) const {
    const std::string packed = test::packed("zlib", std::string(size, 'a'));
    std::ofstream(dir + "/packed", std::ios::binary) << packed;
    const std::string file = assemble(source + "\t.section .debug_str,\"\",@progbits\n\t.4byte 1,0\n\t.8byte " +
                                      std::to_string(size) + ",1\n\t.incbin \"packed\"\n");
    change_sections(file, [&](Elf64_Shdr& section) {
      if (section.sh_size == packed.size() + sizeof(Elf64_Chdr)) section.sh_flags |= SHF_COMPRESSED;
    });
    return file;
  }
  // Allocations with stacks whose addresses are in the first pages of `program`. Empty: of no file.
  void record(const std::string& program, const Made& made = {}) const {
    auto w = must(RecordingWriter::create(dir + "/" + made.name, ClockInfo{}));
    const auto add = [&](u16 id, const char* system, const char* event, const std::string& fields) {
      w.meta().events.push_back({id, system, event, test::format(id, event, fields, R"("")"), true, false});
    };
    add(1, "libc", "malloc",
        "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 ptr;\toffset:16;\tsize:8;\tsigned:0;\n"
        "\tfield:ringside_stack stack;\toffset:24;\tsize:8;\tsigned:0;\n");
    add(3, "ringside", "stack",
        "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n");
    add(4, "ringside", "code_map",
        "\tfield:u32 pid;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u64 start;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u64 "
        "size;\toffset:24;\tsize:8;\tsigned:0;\n\tfield:u64 file_offset;\toffset:32;\tsize:8;\tsigned:0;\n"
        "\tfield:__data_loc char[] path;\toffset:40;\tsize:4;\tsigned:0;\n");
    constexpr u32 size = 65536;
    must(w.add_ring({0, made.pid, 71, "worker", "server", false, ""}, size));
    if (made.kernel) {
      w.meta().events.push_back({5, "sched", "tick", test::format(5, "tick", "", R"("")"), true, true});
      const RingName ring{1, 0, 0, "", "", true, "", 1};
      must(w.add_ring(ring, size));
      SubBuffer one(1000, size);
      must(w.append(RecordingWriter::kernel_rings + 1, one.event(1000, Payload(5, 71)).view()));
    }
    SubBuffer maps(1000, size);
    std::vector<u64> frames;
    for (u64 i = 0; i < made.names; ++i) {
      const u64 start = 0x10000 + i * 0x10000;
      const size_t folder = program.rfind('/') + 1;
      std::string path = program.substr(0, folder);
      path += (i == 0 ? "" : "l" + std::to_string(i)) + program.substr(folder) + '\0';
      if (program.empty()) path = std::string("//anon") + '\0';
      maps.event(1000, Payload(4, 71)
                           .put(static_cast<u32>(made.pid))
                           .put(u32{0})
                           .put(start)
                           .put(u64{0x10000})
                           .put(u64{0})
                           .put(static_cast<u32>(44 | path.size() << 16))
                           .text(path));
      const u64 many = i == 0 ? made.addresses : 1, step = made.addresses > 256 ? 1 : 4;
      for (u64 n = 0; n < many; ++n) frames.push_back(start + 0x1001 + n * step);
    }
    must(w.append(0, maps.view()));
    constexpr u64 in_one = 4000;
    u64 stacks = 0;
    for (u64 at = 0; at < frames.size(); at += in_one) {
      const u64 count = std::min(in_one, frames.size() - at);
      Payload stack(3, 71);
      stack.put(u64{0xA} + stacks++).put(static_cast<u32>(20 | count * 8 << 16));
      for (u64 i = 0; i < count; ++i) stack.put(frames[at + i]);
      SubBuffer one(1010, size);
      one.event(1010, stack);
      must(w.append(0, one.view()));
    }
    for (u64 i = 0; i < made.events;) {
      SubBuffer one(1020 + i, size);
      for (u64 n = 0; n < 1000 && i < made.events; ++n, ++i)
        one.event(1020 + i, Payload(1, 71).put(i).put(i).put(u64{0xA} + i % stacks));
      must(w.append(0, one.view()));
    }
    must(w.finish(1));
  }
  // Each command that reads a recording, with a fiftieth of what it may take: without a budget it takes as long. Returns what
  // one with all of it said.
  Outcome in_each_command(const std::string& name = "bomb.data") const {
    const auto run = [&](const std::string& share, std::string arguments) {
      arguments.replace(arguments.find("NAME"), 4, name);
      const Outcome o = bounded(arguments, share);
      EXPECT_LT(o.code, 128) << arguments << "\n" << o.err;
      EXPECT_THAT(o.err, testing::Not(HasSubstr("memory is used up"))) << arguments;
      return o;
    };
    for (const std::string command :
         {"report NAME -e libc:malloc", "report NAME --json", "stat NAME", "hist libc:malloc/size.log2 NAME",
          "hist libc:malloc/stack NAME", "latency libc:malloc libc:malloc NAME", "top NAME --by stack",
          "export NAME --to e.pftrace", "export NAME --to e.dat", "export NAME --to e.json", "plot NAME -o e.html",
          "flame NAME -o e.html"})
      (void)run("RINGSIDE_BUDGET=2 ", command);
    return run("", "flame NAME --folded");
  }
};

// Of an assembler.
inline std::string function(const std::string& symbol, u64 size = 1024) {
  const std::string bytes = std::to_string(size);
  return "\t.globl " + symbol + "\n\t.type " + symbol + ",@function\n" + symbol + ":\n\t.fill " + bytes + ",1,0x90\n\t.size " +
         symbol + "," + bytes + "\n";
}

// A unit of DWARF 4 with the code of `f`, and in it `entries`; abbreviation 1 is its own.
inline std::string debugged(const std::string& abbreviations, const std::string& entries, const std::string& more = "",
                            u64 size = 1024) {
  return function("f", size) +
         "\t.section .debug_abbrev,\"\",@progbits\n.Labbrev:\n\t.byte 1,0x11,1, 0x11,0x01, 0x12,0x07, 0x10,0x17, 0,0\n" +
         abbreviations +
         "\t.byte 0\n\t.section .debug_info,\"\",@progbits\n.Lbegin:\n\t.4byte .Lend-.Lafter\n.Lafter:\n\t.2byte 4\n\t.4byte "
         ".Labbrev\n"
         "\t.byte 8\n\t.byte 1\n\t.quad f\n\t.quad " +
         std::to_string(size) + "\n\t.4byte 0\n" + entries + "\t.byte 0\n.Lend:\n" + more;
}

inline std::string times(u64 n, const std::string& lines) {
  return "\t.rept " + std::to_string(n) + "\n" + lines + "\t.endr\n";
}

inline const std::string subprogram = "\t.byte 3,0x2e,0, 0x03,0x08, 0x11,0x01, 0x12,0x0b, 0,0\n";
inline const std::string one_subprogram = "\t.byte 3\n\t.asciz \"s\"\n\t.quad f\n\t.byte 200\n";

}  // namespace ringside::bombs_test
