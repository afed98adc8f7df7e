// Bombs in programs and their debug files.
#include "cli/bombs.hpp"

namespace ringside::bombs_test {
namespace {

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
    ASSERT_EQ(std::system(("head -c 270M /dev/zero | " + how + " -c > " + dir + "/bomb").c_str()), 0);
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
                         " && head -c 270M /dev/zero | xz -0 -c > packed && objcopy --strip-all "
                         "--add-section .gnu_debugdata=packed bomb")
                            .c_str()),
            0);
  record(file);
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("its packed symbols would take more memory"));
}

TEST_F(Bombs, ASectionThatInflates) {
  const std::string file = with_packed_section(debugged(subprogram, one_subprogram), 300'000'000);
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
  change_sections(file, [](Elf64_Shdr& section) {
    if (section.sh_type == SHT_NOTE) section.sh_size = u64{6} << 30;
  });
  std::filesystem::resize_file(file, u64{7} << 30);
  const Outcome o = bounded("record -e \"usdt:" + file + ":adv:*\" true");
  EXPECT_LT(o.code, 128) << o.err;
  EXPECT_THAT(o.err, HasSubstr("what its notes claim to be would take more memory"));
  record(file);
  EXPECT_EQ(in_each_command().code, 0);
}

// 300 names of one file that takes some memory each time.
TEST_F(Bombs, OneFileOfManyNames) {
  const std::string file = with_packed_section(debugged(subprogram, one_subprogram), 60'000'000);
  for (int i = 1; i < 300; ++i) std::filesystem::create_hard_link(file, dir + "/l" + std::to_string(i) + "bomb");
  record(file, {.names = 300});
  EXPECT_EQ(in_each_command().code, 0);
}

// Names that many addresses share are looked at once each, and have a most length.
TEST_F(Bombs, AFunctionWithALongName) {
  const std::string in_place = "\t.byte 3\n\t.fill 900000,1,0x6e\n\t.byte 0\n\t.quad f\n\t.4byte 60000\n";
  record(assemble(debugged("\t.byte 3,0x2e,0, 0x03,0x08, 0x11,0x01, 0x12,0x06, 0,0\n", in_place, "", 60'000)),
         {.addresses = 50'000});
  EXPECT_EQ(in_each_command().code, 0);
  std::filesystem::remove_all(dir + "/bomb.data");
  // All of a thousand functions have one name, of .debug_str.
  const std::string shared = "\t.byte 3,0x2e,0, 0x03,0x0e, 0x11,0x01, 0x12,0x05, 0,0\n";
  record(assemble(debugged(
             shared,
             "\t.set .Lat,0\n" + times(1000, "\t.byte 3\n\t.4byte .Lname\n\t.quad f+.Lat\n\t.2byte 60\n\t.set .Lat,.Lat+60\n"),
             "\t.section .debug_str,\"MS\",@progbits,1\n.Lname:\n\t.fill 900000,1,0x6e\n\t.byte 0\n", 60'000)),
         {.addresses = 50'000});
  EXPECT_LT(bounded("flame bomb.data --folded").code, 128);
  EXPECT_THAT(run(RINGSIDE_BUILD_DIR "/ringside flame bomb.data --folded | head -c 2000").out, HasSubstr("nnn...#"));
}

// The checksum of a file of 2 GiB that takes no room, for each of 30 names of a program.
TEST_F(Bombs, ADebugFileThatIsAHole) {
  const std::string file = assemble(function("f"));
  std::ofstream(dir + "/link.debug") << "\x7f"
                                        "ELF";
  ASSERT_EQ(std::system(("cd " + dir + " && objcopy --add-gnu-debuglink=link.debug bomb").c_str()), 0);
  for (const std::string& of : {dir, dir + "/.debug"}) {
    std::filesystem::create_directories(of);
    std::ofstream(of + "/link.debug") << "\x7f"
                                         "ELF";
    std::filesystem::resize_file(of + "/link.debug", u64{2} << 30);
  }
  for (int i = 1; i < 30; ++i) std::filesystem::create_hard_link(file, dir + "/l" + std::to_string(i) + "bomb");
  record(file, {.names = 30});
  const Outcome last = in_each_command();
  EXPECT_EQ(last.code, 0);
  EXPECT_THAT(last.err, HasSubstr("its debugging information would take more memory or time"));
}

}  // namespace
}  // namespace ringside::bombs_test
