// Files of at most 1 MiB that claim to stand for gigabytes, or for hours: each command that reads them takes no more than 256
// MiB of memory beyond what it takes for an ordinary recording, and no more than 5 s of a processor.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "ringside/base/sanitizers.hpp"
#include "source/recording.hpp"

namespace ringside::bombs_test {
namespace {

using test::Outcome;
using test::Payload;
using test::SubBuffer;
using testing::HasSubstr;

struct Bombs : test::BinaryTest {
  static inline u64 ordinary = 0;  // KiB of address space that is enough for an ordinary recording

  void SetUp() override {
    BinaryTest::SetUp();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's address space has no limit";
#endif
    if (std::system("as --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no assembler";
    if (ordinary != 0) return;
    record(RINGSIDE_BUILD_DIR "/tests/walker_O2", "ordinary.data");
    for (u64 kib = 64 << 10; ordinary == 0 && kib <= u64{64} << 20; kib += kib / 4) {
      const bool enough = within(kib, "flame ordinary.data --folded").code == 0 &&
                          within(kib, "plot ordinary.data -o p.html").code == 0 &&
                          within(kib, "report ordinary.data").code == 0;
      if (enough) ordinary = kib;
    }
    ASSERT_NE(ordinary, 0u);
  }
  Outcome within(u64 kib, const std::string& arguments) const {
    return run("ulimit -v " + std::to_string(kib) + " && ulimit -t 5 && exec " RINGSIDE_BUILD_DIR "/ringside " + arguments +
               " >/dev/null");
  }
  Outcome bounded(const std::string& arguments) const { return within(ordinary + (256 << 10), arguments); }

  // Assembles a program; `symbol` in it is code.
  std::string assemble(const std::string& source) const {
    std::ofstream(dir + "/bomb.s") << source;
    EXPECT_EQ(std::system(("cd " + dir + " && as bomb.s -o bomb.o && ld bomb.o -o bomb -e 0 2>ld.err").c_str()), 0)
        << test::slurp(dir + "/ld.err");
    return dir + "/bomb";
  }
  // Two allocations with stacks whose addresses are in the first pages of `program`.
  void record(const std::string& program, const std::string& name = "bomb.data", u64 names = 1) const {
    auto w = must(RecordingWriter::create(dir + "/" + name, ClockInfo{}));
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
    SubBuffer one(1000, 65536);
    std::vector<u64> frames;
    for (u64 i = 0; i < names; ++i) {
      const u64 start = 0x10000 + i * 0x10000;
      const size_t folder = program.rfind('/') + 1;
      std::string path = program.substr(0, folder);
      path += (i == 0 ? "" : "l" + std::to_string(i)) + program.substr(folder) + '\0';
      one.event(1000, Payload(4, 71)
                          .put(u32{70})
                          .put(u32{0})
                          .put(start)
                          .put(u64{0x10000})
                          .put(u64{0})
                          .put(static_cast<u32>(44 | path.size() << 16))
                          .text(path));
      for (u64 at = 0x1001; at < 0x1400 && (i == 0 || at == 0x1001); at += 4) frames.push_back(start + at);
    }
    Payload stack(3, 71);
    stack.put(u64{0xA}).put(static_cast<u32>(20 | frames.size() * 8 << 16));
    for (const u64 f : frames) stack.put(f);
    one.event(1010, stack);
    for (u64 i = 0; i < 100; ++i) one.event(1020 + i, Payload(1, 71).put(i).put(i).put(u64{0xA}));
    must(w.add_ring({0, 70, 71, "worker", "server", false, ""}, 65536));
    must(w.append(0, one.view()));
    must(w.finish(1));
  }
  // Each command that reads a recording; returns what the last one said.
  Outcome in_each_command(const std::string& name = "bomb.data") const {
    Outcome last;
    for (const std::string command :
         {"report NAME -e libc:malloc", "report NAME --json", "stat NAME", "hist libc:malloc/size.log2 NAME",
          "hist libc:malloc/stack NAME", "latency libc:malloc libc:malloc NAME", "top NAME --by stack",
          "export NAME --to e.pftrace", "export NAME --to e.dat", "export NAME --to e.json", "plot NAME -o e.html",
          "flame NAME -o e.html", "flame NAME --folded"}) {
      std::string arguments = command;
      arguments.replace(arguments.find("NAME"), 4, name);
      last = bounded(arguments);
      EXPECT_LT(last.code, 128) << arguments << "\n" << last.err;
      EXPECT_THAT(last.err, testing::Not(HasSubstr("memory is used up"))) << arguments;
    }
    return last;
  }
};

std::string function(const std::string& symbol) {
  return "\t.globl " + symbol + "\n\t.type " + symbol + ",@function\n" + symbol + ":\n\t.fill 1024,1,0x90\n\t.size " + symbol +
         ",1024\n";
}

// A unit of DWARF 4 with the code of `f`, and in it `entries`; abbreviation 1 is its own.
std::string debugged(const std::string& abbreviations, const std::string& entries, const std::string& more = "") {
  return function("f") +
         "\t.section .debug_abbrev,\"\",@progbits\n.Labbrev:\n\t.byte 1,0x11,1, 0x11,0x01, 0x12,0x07, 0x10,0x17, 0,0\n" +
         abbreviations +
         "\t.byte 0\n\t.section .debug_info,\"\",@progbits\n.Lbegin:\n\t.4byte .Lend-.Lafter\n.Lafter:\n\t.2byte 4\n\t.4byte "
         ".Labbrev\n"
         "\t.byte 8\n\t.byte 1\n\t.quad f\n\t.quad 1024\n\t.4byte 0\n" +
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
  const Outcome o = bounded("record -e 'uprobe:" + assemble(source) + ":nothing' true");
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
    ASSERT_EQ(std::system(("head -c 700M /dev/zero | " + how + " -c > " + dir + "/bomb").c_str()), 0);
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
                         " && head -c 700M /dev/zero | xz -0 -c > packed && objcopy --strip-all "
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
      assemble(debugged(subprogram, one_subprogram, "\t.section .debug_str,\"\",@progbits\n\t.fill 600000000,1,0x61\n"));
  ASSERT_EQ(std::system(("objcopy --compress-debug-sections=zlib " + file).c_str()), 0);
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
  const Outcome o = bounded("record -e 'usdt:" + file + ":adv:*' true");
  EXPECT_LT(o.code, 128) << o.err;
  EXPECT_THAT(o.err, HasSubstr("what its notes claim to be would take more memory"));
  record(file);
  EXPECT_EQ(in_each_command().code, 0);
}

// 300 names of one file that takes some memory each time.
TEST_F(Bombs, OneFileOfManyNames) {
  const std::string file =
      assemble(debugged(subprogram, one_subprogram, "\t.section .debug_str,\"\",@progbits\n\t.fill 60000000,1,0x61\n"));
  ASSERT_EQ(std::system(("objcopy --compress-debug-sections=zlib " + file).c_str()), 0);
  for (int i = 1; i < 300; ++i) std::filesystem::create_hard_link(file, dir + "/l" + std::to_string(i) + "bomb");
  record(file, "bomb.data", 300);
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

// Lists of nothing: of rings, threads, events.
TEST_F(Bombs, AListOfEverythingInTheMetadata) {
  record(RINGSIDE_BUILD_DIR "/tests/walker_O2", "good.data");
  const std::string good = test::slurp(dir + "/good.data/meta.json");
  for (const std::string list : {"rings", "threads", "events"}) {
    std::filesystem::remove_all(dir + "/bomb.data");
    std::filesystem::copy(dir + "/good.data", dir + "/bomb.data");
    nlohmann::json meta = nlohmann::json::parse(good);
    const nlohmann::json one = meta[list].empty() ? nlohmann::json{{"ring", 5}} : meta[list][0];
    const size_t most = (size_t{1} << 20) / (one.dump().size() + 1);
    for (size_t i = 0; i < most; ++i) meta[list].push_back(one);
    std::ofstream(dir + "/bomb.data/meta.json") << meta.dump();
    (void)in_each_command();
    meta[list] = nlohmann::json::array();
    for (size_t i = 0; i < 300'000; ++i) meta[list].push_back(nlohmann::json::object());
    std::ofstream(dir + "/bomb.data/meta.json") << meta.dump();
    (void)in_each_command();
  }
  std::ofstream(dir + "/bomb.data/meta.json") << std::string(1 << 20, '[');
  (void)in_each_command();
}

}  // namespace
}  // namespace ringside::bombs_test
