// Files of at most 1 MiB that claim to stand for gigabytes, or for hours: each command that reads them takes no more than 256
// MiB of memory beyond what it takes for an ordinary recording, and no more than 5 s of a processor.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "ringside/base/sanitizers.hpp"
#include "source/groups.hpp"
#include "source/recording.hpp"
#include "trace_dat_files.hpp"

namespace ringside::bombs_test {
namespace {

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
    return run(environment + "sh -c 'ulimit -v " + std::to_string(kib) + " && ulimit -t 5 && exec " RINGSIDE_BUILD_DIR "/ringside " +
               arguments + "' >/dev/null");
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
  // A section of zlib's that becomes `size` bytes (SHF_COMPRESSED).
  std::string packed_section(u64 size) const {
    std::ofstream(dir + "/packed", std::ios::binary) << test::packed("zlib", std::string(size, 'a'));
    return "\t.section .debug_str,\"0x800\",@progbits\n\t.4byte 1,0\n\t.8byte " + std::to_string(size) +
           ",1\n\t.incbin \"packed\"\n";
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
      must(w.add_ring({1, 0, 0, "", "", true, "", 1}, size));
      SubBuffer one(1000, size);
      must(w.append(1, one.event(1000, Payload(5, 71)).view()));
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
  // Each command that reads a recording, with a fiftieth of what it may take: without a budget it takes as long. Returns what one
  // with all of it said.
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

std::string function(const std::string& symbol, u64 size = 1024) {
  const std::string bytes = std::to_string(size);
  return "\t.globl " + symbol + "\n\t.type " + symbol + ",@function\n" + symbol + ":\n\t.fill " + bytes + ",1,0x90\n\t.size " + symbol + "," +
         bytes + "\n";
}

// A unit of DWARF 4 with the code of `f`, and in it `entries`; abbreviation 1 is its own.
std::string debugged(const std::string& abbreviations, const std::string& entries, const std::string& more = "", u64 size = 1024) {
  return function("f", size) +
         "\t.section .debug_abbrev,\"\",@progbits\n.Labbrev:\n\t.byte 1,0x11,1, 0x11,0x01, 0x12,0x07, 0x10,0x17, 0,0\n" +
         abbreviations +
         "\t.byte 0\n\t.section .debug_info,\"\",@progbits\n.Lbegin:\n\t.4byte .Lend-.Lafter\n.Lafter:\n\t.2byte 4\n\t.4byte "
         ".Labbrev\n"
         "\t.byte 8\n\t.byte 1\n\t.quad f\n\t.quad " +
         std::to_string(size) + "\n\t.4byte 0\n" +
         entries + "\t.byte 0\n.Lend:\n" + more;
}

std::string times(u64 n, const std::string& lines) { return "\t.rept " + std::to_string(n) + "\n" + lines + "\t.endr\n"; }

const std::string subprogram = "\t.byte 3,0x2e,0, 0x03,0x08, 0x11,0x01, 0x12,0x0b, 0,0\n";
const std::string one_subprogram = "\t.byte 3\n\t.asciz \"s\"\n\t.quad f\n\t.byte 200\n";

// Each argument is a pair of two of the one before.
TEST_F(Bombs, ASymbolThatDoublesWithEachLetter) {
  std::string name = "_Z1fSt4pairIiiE";
  const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  name += "S_IS0_S0_E";
  for (int i = 1; i < 27; ++i) name += std::string("S_IS") + digits[i] + "_S" + digits[i] + "_E";
  record(assemble(function(name)));
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("1 name of " + dir + "/bomb was left out"));
}

// The same symbol where a function is looked for by its name.
TEST_F(Bombs, ManySymbolsWhereOneIsLookedFor) {
  std::string source = function("f");
  const std::string part = "S_IS_S_ES_IS0_S0_ES_IS1_S1_ES_IS2_S2_ES_IS3_S3_E";
  for (int i = 0; i < 8000; ++i) {
    const std::string name = "_Z" + std::to_string(5) + "a" + std::to_string(1000 + i) + "St4pairIiiE" + part;
    source += "\t.globl " + name + "\n\t.type " + name + ",@function\n\t.set " + name + ",f\n";
  }
  const Outcome o = bounded("record -e \"uprobe:" + assemble(source) + ":nothing\" true");
  EXPECT_LT(o.code, 128) << o.err;
  EXPECT_NE(o.code, 0);
}

TEST_F(Bombs, NamespacesOfOneLongName) {
  record(assemble(debugged("\t.byte 2,0x39,1, 0x03,0x0e, 0,0\n" + subprogram,
                           times(60, "\t.byte 2\n\t.4byte .Lname\n") + times(8000, one_subprogram) + times(60, "\t.byte 0\n"),
                           "\t.section .debug_str,\"MS\",@progbits,1\n.Lname:\n\t.fill 4094,1,0x6e\n\t.byte 0\n")));
  EXPECT_EQ(in_each_command().code, 0);
}

// Each of 100,000 files in a directory whose name has 400,000 letters.
TEST_F(Bombs, FilesOfADirectoryWithALongName) {
  record(assemble(debugged(
      subprogram, one_subprogram,
      "\t.section .debug_line,\"\",@progbits\n\t.4byte .Lline_end-.Lline\n.Lline:\n\t.2byte 4\n\t.4byte "
      ".Lprogram-.Lheader\n.Lheader:\n"
      "\t.byte 1,1,1,-5,14,13,0,1,1,1,1,0,0,0,1,0,0,1\n\t.fill 400000,1,0x64\n\t.byte 0,0\n" +
          times(100'000, "\t.byte 0x61,0,1,0,0\n") +
          "\t.byte 0\n.Lprogram:\n\t.byte 0,9,2\n\t.quad f\n\t.byte 1,2\n\t.uleb128 1024\n\t.byte 0,1,1\n.Lline_end:\n")));
  EXPECT_EQ(in_each_command().code, 0);
}

// 20,000 units, each of which needs the last one of 60,000 abbreviations.
TEST_F(Bombs, UnitsThatShareALongListOfAbbreviations) {
  std::string list = "\t.section .debug_abbrev,\"\",@progbits\n.Lbig:\n\t.set .Lcode,10\n" +
                     times(60'000, "\t.uleb128 .Lcode\n\t.byte 0x2e,0,0,0\n\t.set .Lcode,.Lcode+1\n") +
                     "\t.uleb128 9\n\t.byte 0x11,0,0,0\n\t.byte 0\n";
  record(assemble(debugged(subprogram, one_subprogram,
                           list + "\t.section .debug_info,\"\",@progbits\n" +
                               times(20'000, "\t.4byte 8\n\t.2byte 4\n\t.4byte .Lbig\n\t.byte 8,9\n"))));
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("its debugging information would take more memory"));
}

// Entries of one byte, each of which claims 100,000 attributes.
TEST_F(Bombs, EntriesWithManyAttributes) {
  record(assemble(debugged("\t.byte 2,0x2e,0\n" + times(100'000, "\t.byte 0x34,0x19\n") + "\t.byte 0,0\n" + subprogram,
                           times(200'000, "\t.byte 2\n") + one_subprogram)));
  EXPECT_EQ(in_each_command().code, 0);
}

// Each function has all ranges of a long list.
TEST_F(Bombs, FunctionsThatShareALongListOfRanges) {
  record(assemble(debugged("\t.byte 2,0x2e,0, 0x55,0x17, 0,0\n" + subprogram,
                           times(20'000, "\t.byte 2\n\t.4byte 0\n") + one_subprogram,
                           "\t.section .debug_ranges,\"\",@progbits\n" + times(20'000, "\t.quad 1,2\n") + "\t.quad 0,0\n")));
  EXPECT_EQ(in_each_command().code, 0);
}

// libdw inflates a file as a whole before it looks what it is.
TEST_F(Bombs, ACompressedStreamInPlaceOfAProgram) {
  for (const std::string how : {"gzip -1", "bzip2 -1"}) {
    if (std::system((how + " --version >/dev/null 2>&1 </dev/null").c_str()) != 0) continue;
    ASSERT_EQ(std::system(("head -c 300M /dev/zero | " + how + " -c > " + dir + "/bomb").c_str()), 0);
    record(dir + "/bomb");
    const Outcome last = in_each_command();
    EXPECT_EQ(last.code, 0) << last.err;
    EXPECT_THAT(last.err, HasSubstr("bomb is no ELF file; its functions have no names"));
    std::filesystem::remove_all(dir + "/bomb.data");
  }
}

TEST_F(Bombs, SymbolsThatArePackedWithXz) {
  if (std::system("xz --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no xz";
  const std::string file = assemble(function("f"));
  ASSERT_EQ(std::system(("cd " + dir +
                         " && head -c 300M /dev/zero | xz -0 -c > packed && objcopy --strip-all "
                         "--add-section .gnu_debugdata=packed bomb")
                            .c_str()),
            0);
  record(file);
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("its packed symbols would take more memory"));
}

TEST_F(Bombs, ASectionThatInflates) {
  const std::string file =
      assemble(debugged(subprogram, one_subprogram, packed_section(300'000'000)));
  ASSERT_LT(std::filesystem::file_size(file), 1u << 20);
  record(file);
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("its debugging information would take more memory"));
}

// A section of 6 GiB in a file that has a few blocks on the disk.
TEST_F(Bombs, NotesThatAreAHole) {
  const std::string file =
      assemble(function("f") + "\t.section .note.stapsdt,\"\",@note\n\t.4byte 8,24,3\n\t.asciz \"stapsdt\"\n\t.fill 24\n");
  std::string bytes = test::slurp(file);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (u32 i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type == SHT_NOTE) section.sh_size = u64{6} << 30;
    std::memcpy(bytes.data() + header.e_shoff + i * sizeof section, &section, sizeof section);
  }
  std::ofstream(file, std::ios::binary) << bytes;
  std::filesystem::resize_file(file, u64{7} << 30);
  const Outcome o = bounded("record -e \"usdt:" + file + ":adv:*\" true");
  EXPECT_LT(o.code, 128) << o.err;
  EXPECT_THAT(o.err, HasSubstr("what its notes claim to be would take more memory"));
  record(file);
  EXPECT_EQ(in_each_command().code, 0);
}

// 300 names of one file that takes some memory each time.
TEST_F(Bombs, OneFileOfManyNames) {
  const std::string file =
      assemble(debugged(subprogram, one_subprogram, packed_section(60'000'000)));
  for (int i = 1; i < 300; ++i) std::filesystem::create_hard_link(file, dir + "/l" + std::to_string(i) + "bomb");
  record(file, {.names = 300});
  EXPECT_EQ(in_each_command().code, 0);
}

// A text of 15,000 letters that is printed 3,000 times for each event.
TEST_F(Bombs, AFormatThatRepeatsAText) {
  auto w = must(RecordingWriter::create(dir + "/bomb.data", ClockInfo{}));
  std::string text, arguments;
  for (int i = 0; i < 3000; ++i) {
    text += "%s";
    arguments += ", __get_str(t)";
  }
  w.meta().events.push_back({1, "libc", "malloc",
                             test::format(1, "malloc",
                                          "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n"
                                          "\tfield:__data_loc char[] t;\toffset:16;\tsize:4;\tsigned:0;\n",
                                          '"' + text + '"' + arguments),
                             true, false});
  must(w.add_ring({0, 70, 71, "worker", "server", false, ""}, 16384));
  for (u64 i = 0; i < 50; ++i) {
    SubBuffer one(1000 + i, 16384);
    const std::string letters = std::string(15'000, 'x') + '\0';
    one.event(1000 + i, Payload(1, 71).put(i).put(static_cast<u32>(20 | letters.size() << 16)).text(letters));
    must(w.append(0, one.view()));
  }
  must(w.finish(1));
  EXPECT_LT(in_each_command().code, 128);
}

// Lists of nothing, deep ones, numbers that are none: the metadata is read before anything else, the same by all.
TEST_F(Bombs, AListOfEverythingInTheMetadata) {
  record(RINGSIDE_BUILD_DIR "/tests/walker_O2", {.name = "good.data"});
  const std::string good = test::slurp(dir + "/good.data/meta.json");
  const nlohmann::json meta = nlohmann::json::parse(good);
  const auto read = [&](const std::string& text) {
    std::filesystem::remove_all(dir + "/bomb.data");
    std::filesystem::copy(dir + "/good.data", dir + "/bomb.data");
    std::ofstream(dir + "/bomb.data/meta.json") << text;
    for (const std::string command : {"report bomb.data --json", "flame bomb.data --folded"}) {
      const Outcome o = bounded(command);
      EXPECT_LT(o.code, 128) << command << ", " << text.substr(0, 100) << "\n" << o.err.substr(0, 1000);
      EXPECT_LT(o.err.size(), 10'000u) << command;
    }
  };
  for (const std::string list : {"rings", "threads", "events"}) {
    const auto with = [&](const std::string& one, u64 times) {
      nlohmann::json bad = meta;
      bad[list] = "@";
      std::string text = bad.dump(), all = "[" + one;
      for (u64 i = 1; i < times; ++i) all += "," + one;
      return text.replace(text.find("\"@\""), 3, all + "]");
    };
    const std::string one = meta[list].empty() ? R"({"ring":5,"pid":1,"tid":1,"task":"","process":""})" : meta[list][0].dump();
    read(with(one, (1 << 20) / (one.size() + 1)));
    read(with("{}", 300'000));
  }
  for (const std::string part : {"[", "{\"a\":"}) {
    std::string deep;
    while (deep.size() < 1 << 20) deep += part;
    read(deep);
  }
  for (const std::string& number : {std::string("1e99999"), std::string(1 << 19, '9'), "-" + std::string(1 << 19, '9'),
                                   "0." + std::string(1 << 19, '1') + "e-99999"}) {
    nlohmann::json bad = meta;
    bad["subbuf_size"] = bad["totals"]["read"] = "@";
    std::string text = bad.dump();
    for (size_t at = 0; (at = text.find("\"@\"")) != text.npos;) text.replace(at, 3, number);
    read(text);
  }
}

// A thread's name of 900,000 letters, which each of 20,000 events would show.
TEST_F(Bombs, AThreadWithALongName) {
  record("", {.events = 20'000});
  nlohmann::json meta = nlohmann::json::parse(test::slurp(dir + "/bomb.data/meta.json"));
  meta["rings"][0]["task"] = meta["rings"][0]["process"] = std::string(450'000, 'n');
  std::ofstream(dir + "/bomb.data/meta.json") << meta.dump();
  EXPECT_EQ(in_each_command().code, 0);
  const Outcome o = run(RINGSIDE_BUILD_DIR "/ringside report bomb.data | wc -c");
  EXPECT_LT(std::stoull(o.out), u64{128} << 20) << "it would be 9 GB";
  EXPECT_THAT(run(RINGSIDE_BUILD_DIR "/ringside report bomb.data | head -n 1").out, HasSubstr("nnn...#"));
}

// Names that many addresses share are looked at once each, and have a most length.
TEST_F(Bombs, AFunctionWithALongName) {
  const std::string in_place = "\t.byte 3\n\t.fill 900000,1,0x6e\n\t.byte 0\n\t.quad f\n\t.byte 250\n";
  record(assemble(debugged(subprogram, in_place, "", 60'000)), {.addresses = 50'000});
  EXPECT_EQ(in_each_command().code, 0);
  std::filesystem::remove_all(dir + "/bomb.data");
  // All of a thousand functions have one name, of .debug_str.
  const std::string shared = "\t.byte 3,0x2e,0, 0x03,0x0e, 0x11,0x01, 0x12,0x05, 0,0\n";
  record(assemble(debugged(shared, "\t.set .Lat,0\n" + times(1000, "\t.byte 3\n\t.4byte .Lname\n\t.quad f+.Lat\n\t.2byte 60\n\t.set .Lat,.Lat+60\n"),
                           "\t.section .debug_str,\"MS\",@progbits,1\n.Lname:\n\t.fill 900000,1,0x6e\n\t.byte 0\n", 60'000)),
         {.addresses = 50'000});
  EXPECT_EQ(in_each_command().code, 0);
  EXPECT_THAT(run(RINGSIDE_BUILD_DIR "/ringside flame bomb.data --folded | head -c 2000").out, HasSubstr("nnn...#"));
}

TEST_F(Bombs, APerfMapWithALongLine) {
  const i32 pid = 4'194'304 + getpid();  // of no process
  const std::string map = "/tmp/perf-" + std::to_string(pid) + ".map";
  std::ofstream(map) << "10000 f0000 " << std::string(1'000'000, 'j') << "\n";
  record("", {.addresses = 50'000, .pid = pid});
  EXPECT_EQ(in_each_command().code, 0);
  EXPECT_THAT(run(RINGSIDE_BUILD_DIR "/ringside flame bomb.data --folded | head -c 2000").out, HasSubstr("jjj...#"));
  std::filesystem::remove(map);
}

// The checksum of a file of 2 GiB that takes no room, for each of 30 names of a program.
TEST_F(Bombs, ADebugFileThatIsAHole) {
  const std::string file = assemble(function("f"));
  std::ofstream(dir + "/link.debug") << "\x7f" "ELF";
  ASSERT_EQ(std::system(("cd " + dir + " && objcopy --add-gnu-debuglink=link.debug bomb").c_str()), 0);
  for (const std::string& of : {dir, dir + "/.debug"}) {
    std::filesystem::create_directories(of);
    std::ofstream(of + "/link.debug") << "\x7f" "ELF";
    std::filesystem::resize_file(of + "/link.debug", u64{2} << 30);
  }
  for (int i = 1; i < 30; ++i) std::filesystem::create_hard_link(file, dir + "/l" + std::to_string(i) + "bomb");
  record(file, {.names = 30});
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0);
  EXPECT_THAT(last.err, HasSubstr("its debugging information would take more memory or time"));
}

// One stack of 256 long names, which each of 2,000 events would show.
TEST_F(Bombs, AStackOfLongNamesInEachEvent) {
  std::string source;
  for (int i = 0; i < 256; ++i) {
    const std::string name = "f" + std::to_string(1000 + i) + std::string(900, 'n');
    source += "\t.globl " + name + "\n\t.type " + name + ",@function\n" + name + ":\n\t.fill 4,1,0x90\n\t.size " + name + ",4\n";
  }
  record(assemble(source), {.events = 2000});
  EXPECT_EQ(in_each_command().code, 0);
  for (const std::string command : {"report bomb.data --json", "report bomb.data"}) {
    const Outcome o = run("RINGSIDE_BUDGET=2 " RINGSIDE_BUILD_DIR "/ringside " + command + " | wc -c");
    EXPECT_LT(std::stoull(o.out), u64{100} << 20) << command << ": it would be 480 MB";
    EXPECT_THAT(o.err, HasSubstr("stacks are not written")) << command;
  }
}

// Frames of zstd, each of which becomes 16 MiB, or claims to be 4 GiB; chunks and sections of a trace.dat.
TEST_F(Bombs, ATraceDatOfZeros) {
  record("", {.name = "small.data", .events = 10, .kernel = true});
  ASSERT_EQ(ringside("export small.data --to small.dat").code, 0);
  const std::string dat = test::slurp(dir + "/small.dat");
  for (const std::string by : {"zstd", "zlib"}) {
    // Each ring is one more chunk of zeros, a thousand times.
    const std::string zeros = test::packed(by, std::string(u64{16} << 20, '\0'));
    std::string chunks;
    u32 count = 0;
    for (; chunks.size() < 900'000; ++count) {
      test::put(chunks, static_cast<u32>(zeros.size()));
      test::put(chunks, u32{16} << 20);
      chunks += zeros;
    }
    std::string bad = test::compressed(dat, by, {.chunks = chunks, .count = count});
    std::ofstream(dir + "/bomb.dat", std::ios::binary) << bad;
    for (const std::string command : {"report bomb.dat", "stat bomb.dat", "export bomb.dat --to e.json"})
      EXPECT_LT(bounded(command, command[0] == 'r' ? "" : "RINGSIDE_BUDGET=2 ").code, 128) << by << ": " << command;
    if (by != "zstd") continue;
    EXPECT_THAT(bounded("report bomb.dat", "RINGSIDE_BUDGET=2 ").err, HasSubstr("would become far more than a file of its size may"));
  }
  for (const std::string by : {"zstd", "zlib"}) {
    const std::string zeros = test::packed(by, std::string(u64{500} << 20, '\0'));
    std::string bad = test::compressed(dat, by, {.section = trace_dat::section_kallsyms, .packed = zeros, .size = u32{500} << 20});
    ASSERT_LT(bad.size(), 1u << 20);
    std::ofstream(dir + "/bomb.dat", std::ios::binary) << bad;
    const Outcome o = bounded("report bomb.dat");
    EXPECT_LT(o.code, 128) << by;
    EXPECT_THAT(o.err, HasSubstr("to be compressed " + by + " data of 524288000 bytes"));
  }
}

// Groups of a compressed recording: each becomes at most 256 KiB, however few bytes it takes.
TEST_F(Bombs, GroupsOfNothing) {
  record("", {.events = 10});
  nlohmann::json meta = nlohmann::json::parse(test::slurp(dir + "/bomb.data/meta.json"));
  meta["ringside_recording"] = 2;
  meta["compression"] = "zstd";
  std::ofstream(dir + "/bomb.data/meta.json") << meta.dump();
  const u64 raw = 4 * 65536;
  static_assert(raw <= group_size);
  std::vector<u64> zeros(raw / 8);
  std::vector<u8> group;
  std::string file;
  for (u64 n = 0; file.size() < 1 << 20; ++n) {
    ASSERT_TRUE(make_group({reinterpret_cast<const u8*>(zeros.data()), raw}, file.size(), n * raw, 1000 + n, group));
    file.append(group.begin(), group.end());
  }
  std::filesystem::remove(dir + "/bomb.data/ring0.raw");
  std::ofstream(dir + "/bomb.data/ring0.zst", std::ios::binary) << file;
  for (const std::string command : {"report bomb.data", "flame bomb.data --folded", "stat bomb.data"})
    EXPECT_LT(bounded(command).code, 128) << command;
}

// babeltrace2 believes what the metadata of CTF claims.
TEST_F(Bombs, CtfThatClaimsMore) {
  if (std::system("babeltrace2 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no babeltrace2";
  const auto read = [&](const std::string& packet, const std::string& fields, const std::string& stream) {
    std::filesystem::remove_all(dir + "/ctf");
    std::filesystem::create_directory(dir + "/ctf");
    std::ofstream(dir + "/ctf/metadata")
        << "/* CTF 1.8 */\ntypealias integer { size = 32; align = 8; } := u32;\ntypealias integer { size = 64; align = 8; } := u64;\n"
           "trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };\n"
           "clock { name = c; freq = 1000000000; };\n"
           "typealias integer { size = 64; align = 8; map = clock.c.value; } := t64;\n"
           "stream { event.header := struct { t64 time; }; " +
               packet + " };\nevent { name = \"e\"; fields := " + fields + "; };\n";
    std::string bytes;
    test::put(bytes, u32{0xC1FC1FC1});
    std::ofstream(dir + "/ctf/stream", std::ios::binary) << bytes << stream;
    const Outcome o = bounded("report ctf");
    EXPECT_LT(o.code, 128) << fields.substr(0, 100) << "\n" << o.err;
    EXPECT_LT(o.err.size(), 10'000u);
    return o;
  };
  const std::string time(8, '\0'), ones(64, '\xff');
  const std::string context = "packet.context := struct { u64 packet_size; u64 content_size; };";
  EXPECT_EQ(read("", "struct { u32 a; }", std::string(12, '\0')).code, 0) << "nothing is wrong but what the others claim";
  EXPECT_NE(read("", "struct { u32 a[4294967295]; }", time + ones).code, 0);
  EXPECT_NE(read("", "struct { u64 n; u32 a[n]; }", time + ones).code, 0);
  EXPECT_NE(read("", "struct { u64 n; struct { } a[n]; }", time + std::string(5, '\0') + '\1' + std::string(2, '\0')).code, 0);
  EXPECT_NE(read("", "struct { struct { struct { u32 a[65535]; } b[65535]; } c[65535]; }", time + ones).code, 0);
  EXPECT_NE(read(context, "struct { u32 a; }", ones).code, 0);
  const std::string large = std::string(7, '\0') + '\x40';
  EXPECT_NE(read(context, "struct { u32 a; }", large + large + time + ones).code, 0);
  std::string deep = "u32 a;";
  for (int i = 0; i < 20'000; ++i) deep = "struct { " + deep + " } a;";
  EXPECT_NE(read("", "struct { " + deep + " }", time + ones).code, 0);
  EXPECT_THAT(read("", "struct { string " + std::string(900'000, 'n') + "; }", std::string(4500, '\0')).err,
              HasSubstr("its fields appear as hex"));
}

}  // namespace
}  // namespace ringside::bombs_test
