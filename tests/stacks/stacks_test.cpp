// Names of addresses against the debugger's, hostile files, maps over time, and which stack belongs to which event.
#include <fcntl.h>
#include <gelf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "cli/hand_made.hpp"
#include "gdb.hpp"
#include "stacks/demangle.hpp"
#include "stacks/fold.hpp"

namespace ringside::stacks_test {
namespace {

namespace fs = std::filesystem;
using test::by_gdb;
using test::from_capture_to_main;
using test::GdbLine;
using test::output_of;
using test::Payload;
using testing::ElementsAre;

// The same, by the addresses that the program sees itself.
std::vector<GdbLine> by_names(const std::string& program, const std::string& arguments) {
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  std::vector<u64> frames;
  std::istringstream lines(output_of(program + " " + arguments));
  for (std::string line; std::getline(lines, line);) {
    u64 a = 0, b = 0, offset = 0;
    char rights[8] = "", path[4096] = "";
    if (sscanf(line.c_str(), "frame 0x%lx", &a) == 1) frames.push_back(a);
    if (sscanf(line.c_str(), "map %lx-%lx %7s %lx %*s %*s %4095s", &a, &b, rights, &offset, path) >= 4 && rights[2] == 'x')
      maps.add(1, 1, {a, b, offset, maps.file(path, "")});
  }
  std::vector<GdbLine> all;
  for (const u64 address : frames) {
    for (const CodePlace& place : names.at(maps.space(1), address - 1))
      all.push_back({names.function(place.function).name, place.line});
  }
  return from_capture_to_main(all);
}

struct Walked {
  const char *program, *from;
};
struct Walker : testing::TestWithParam<Walked> {};

TEST_P(Walker, EachFrameHasTheNameAndTheLineThatGdbGives) {
  if (std::system("gdb --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no gdb";
  const std::string name = GetParam().program, from = GetParam().from, program = RINGSIDE_BUILD_DIR "/tests/walker_" + name;
  if (!fs::exists(program)) GTEST_SKIP() << "there is no compiler for it";
  const auto stops = by_gdb(program, from);
  ASSERT_EQ(stops.size(), 1u);
  auto gdb = from_capture_to_main(stops[0]);
  const auto ours = by_names(program, from);
  // A function that left by a jump is on no stack; gdb concludes it from what the compiler wrote about the call.
  std::erase_if(gdb, [](const GdbLine& l) { return l.function == "walker::leaves_by_a_jump"; });
  // A coroutine's body and the function that made it have one name; gdb has a frame for each.
  gdb.erase(std::unique(gdb.begin(), gdb.end(),
                        [](const GdbLine& a, const GdbLine& b) {
                          return a.function == "walker::coroutine" && b.function == a.function;
                        }),
            gdb.end());
  ASSERT_GE(gdb.size(), 10u) << name;
  std::string all;
  for (const GdbLine& l : ours) all += l.function + ":" + std::to_string(l.line) + " ";
  ASSERT_EQ(gdb.size(), ours.size()) << all;
  for (size_t i = 0; i < gdb.size(); ++i) {
    EXPECT_EQ(gdb[i].function, ours[i].function) << name << " frame " << i;
    // In the first frame gdb stands at another call.
    EXPECT_EQ(i == 0 ? 0 : gdb[i].line, i == 0 ? 0 : ours[i].line) << name << " frame " << i << " " << gdb[i].function;
  }
}

INSTANTIATE_TEST_SUITE_P(Stacks, Walker,
                         testing::Values(Walked{"O2", "handler"}, Walked{"O3", "handler"}, Walked{"clang", "handler"},
                                         Walked{"no_debug", "handler"}, Walked{"separate", "handler"},
                                         Walked{"static", "handler"}, Walked{"O2", "tail"}, Walked{"clang", "tail"},
                                         Walked{"coroutine", "coroutine"}),
                         [](const auto& one) { return one.param.program + std::string("_") + one.param.from; });

TEST(Names, AStrippedFileShowsOffsetsThatAreCounted) {
  const auto frames = output_of(RINGSIDE_BUILD_DIR "/tests/walker_stripped");
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  maps.add(1, 1, {0x1000, 0x100000, 0x1000, maps.file(RINGSIDE_BUILD_DIR "/tests/walker_stripped", "")});
  const auto places = names.at(maps.space(1), 0x1200);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(names.function(places[0].function).name, "walker_stripped+0x1200");
  EXPECT_EQ(names.unnamed(), 1u);
  EXPECT_FALSE(frames.empty());
}

TEST(Names, AFileThatChangedIsNotUsed) {
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  maps.add(
      1, 1,
      {0x1000, 0x100000, 0x1000, maps.file(RINGSIDE_BUILD_DIR "/tests/walker_O2", "0123456789abcdef0123456789abcdef01234567")});
  EXPECT_EQ(names.function(names.at(maps.space(1), 0x1300)[0].function).name, "walker_O2+0x1300");
  ASSERT_EQ(names.problems().size(), 1u);
  EXPECT_THAT(names.problems()[0], testing::HasSubstr("is not the file that ran"));
  EXPECT_THAT(names.problems()[0], testing::HasSubstr("0123456789abcdef"));
}

TEST(Names, WhatIsNoFileHasNoName) {
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  const std::string fifo = fs::temp_directory_path() / ("ringside-fifo-" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  u64 at = 0x1000;
  for (const std::string& path :
       {fifo, std::string("/dev/zero"), std::string("/proc"), std::string("/nowhere"), std::string("/etc/passwd")}) {
    maps.add(1, 1, {at, at + 0x1000, 0, maps.file(path, "")});
    EXPECT_EQ(names.function(names.at(maps.space(1), at + 0x10)[0].function).name, path.substr(path.rfind('/') + 1) + "+0x10")
        << path;
    at += 0x1000;
  }
  EXPECT_EQ(names.problems().size(), 5u);
  fs::remove(fifo);
}

TEST(Names, CompiledAtRunTimeByPerfMap) {
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  const i32 pid = getpid();
  const std::string file = "/tmp/perf-" + std::to_string(pid) + ".map";
  std::ofstream(file)
      << "garbage\n7f0000001000 20 LazyCompile:~parse /app/main.js:12\n7f0000002000 ffffffffffffffff overflows\n 1\n";
  maps.add(7, pid, {0x7f0000000000, 0x7f0000010000, 0, maps.file("", "")});
  EXPECT_EQ(names.function(names.at(maps.space(7), 0x7f0000001010)[0].function).name, "LazyCompile:~parse /app/main.js:12");
  EXPECT_EQ(names.function(names.at(maps.space(7), 0x7f0000001020)[0].function).name, "0x7f0000001020");
  fs::remove(file);
}

// Its own /tmp, and its own number: the map is found in its root. Kept, it outlives the process and the file.
void names_of_a_container(int namespaces) {
  int line[2];
  ASSERT_EQ(pipe(line), 0);
  const uid_t user = geteuid();
  const pid_t outer = fork();
  if (outer == 0) {
    const auto put = [](const char* path, const std::string& text) {
      const int fd = open(path, O_WRONLY);
      return fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    i32 inside = 0;
    bool apart = unshare(namespaces) == 0;
    if ((namespaces & CLONE_NEWUSER) != 0)
      apart = apart && put("/proc/self/setgroups", "deny") && put("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") &&
              put("/proc/self/gid_map", "0 " + std::to_string(getegid()) + " 1");
    if (apart && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) inside = fork();
    if (inside == 0 && getpid() == 1) {
      const bool made = ::mount("none", "/tmp", "tmpfs", 0, nullptr) == 0;
      std::ofstream("/tmp/perf-1.map") << "1000 10 inside\n";
      if (!made || write(line[1], "y", 1) != 1) _exit(1);
      for (;;) pause();
    }
    if (write(line[1], &inside, sizeof inside) != sizeof inside) _exit(1);
    waitpid(inside, nullptr, 0);
    _exit(0);
  }
  close(line[1]);
  i32 pid = 0;
  char ready = 0;
  std::string said;
  for (char some[8]; said.size() < 5;) {
    const ssize_t n = read(line[0], some, sizeof some);
    if (n <= 0) break;
    said.append(some, static_cast<size_t>(n));
  }
  close(line[0]);
  // The one of both comes first that was faster.
  const size_t letter = said.size() == 5 && said[0] == 'y' ? 0 : 4;
  if (said.size() == 5) ready = said[letter], std::memcpy(&pid, said.data() + (letter == 0 ? 1 : 0), sizeof pid);
  if (ready != 'y' || pid <= 0) {
    if (pid > 0) kill(pid, SIGKILL);
    waitpid(outer, nullptr, 0);
    GTEST_SKIP() << "namespaces cannot be made here";
  }
  Symbols kernel;
  CodeMaps maps;
  const auto name = [&](Names& names) { return names.function(names.at(maps.space(7), 0x1008)[0].function).name; };
  maps.add(7, pid, {0, 0x10000, 0, maps.file("", "")});
  Names live(kernel, maps);
  const bool refused = (namespaces & CLONE_NEWUSER) != 0 && name(live) == "0x1008";
  if (refused) {  // an overlay is asked nothing there: it may stand on a stranger's FUSE
    EXPECT_THAT(live.problems(), ElementsAre(testing::HasSubstr("in another user namespace")));
  } else {
    EXPECT_EQ(name(live), "inside");
    EXPECT_TRUE(live.problems().empty());
  }
  Names abroad(kernel, maps);
  abroad.are_elsewhere();
  EXPECT_EQ(name(abroad), "0x1008") << "the process of this number is another machine's";
  kill(pid, SIGKILL);
  waitpid(outer, nullptr, 0);
  Names later(kernel, maps), kept(kernel, maps);
  EXPECT_EQ(name(later), "0x1008");
  kept.take_kept(live.kept());
  EXPECT_EQ(name(kept), refused ? "0x1008" : "inside");
}
// An address without a name in a file that is not here: with kept names nothing is missing that was there.
TEST(Names, ThatTheRecorderDidNotFind) {
  Symbols kernel;
  CodeMaps maps;
  maps.add(7, 70, {0x10000, 0x11000, 0, maps.file("/nowhere/app", "0102")});
  Names names(kernel, maps), kept(kernel, maps), other(kernel, maps);
  kept.take_kept("F\t0102\t0\t0\t/nowhere/app\nA\t100\n");
  other.take_kept("F\t0102\t0\t0\t/nowhere/app\nA\t200\n");
  for (Names* const one : {&names, &kept, &other}) {
    const auto at = one->at(maps.space(7), 0x10100);
    ASSERT_EQ(at.size(), 1u);
    EXPECT_EQ(one->function(at[0].function).name, "app+0x100");
    EXPECT_EQ(one->unnamed(), 1u);
    EXPECT_EQ(one->problems().size(), one == &kept ? 0u : 1u);
  }
}
TEST(Names, OfAContainersPerfMap) { names_of_a_container(CLONE_NEWNS | CLONE_NEWPID); }

// A line of a map that is written later replaces what it covers, whatever its beginning; the rest of the older one stays.
TEST(Names, OfCodeThatWasCompiledAgainIsTheLast) {
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  const i32 pid = getpid();
  const std::string file = "/tmp/perf-" + std::to_string(pid) + ".map";
  std::ofstream(file) << "1100 10 old\n1108 4 inner\n1200 40 a\n1210 10 b\n1000 180 new\n1210 8 c\n0 20 first\n";
  maps.add(7, pid, {0, 0x10000, 0, maps.file("", "")});
  const auto at = [&](u64 address) { return names.at(maps.space(7), address)[0]; };
  const auto name = [&](u64 address) { return names.function(at(address).function).name; };
  for (const u64 address : {0x1000u, 0x1100u, 0x1108u, 0x110Fu, 0x117Fu}) EXPECT_EQ(name(address), "new") << address;
  EXPECT_EQ(name(0x1180), "0x1180");
  EXPECT_EQ(name(0x1200), "a");
  EXPECT_EQ(name(0x1210), "c");
  EXPECT_EQ(name(0x1218), "b");
  EXPECT_EQ(at(0x1218).offset, 8u);
  EXPECT_EQ(name(0x1220), "a");
  EXPECT_EQ(name(0), "first");
  EXPECT_TRUE(names.problems().empty());
  fs::remove(file);
}

// Anybody may have written the map of a process that is gone.
TEST(Names, AnotherUsersMapIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Symbols kernel;
  CodeMaps maps;
  const i32 gone = 0x7FFFFFF0, own = getpid();
  for (const i32 pid : {gone, own}) {
    for (const uid_t owner : {0u, 12345u}) {
      Names names(kernel, maps);
      const std::string file = "/tmp/perf-" + std::to_string(pid) + ".map";
      std::ofstream(file) << "1000 10 name\n";
      ASSERT_EQ(chown(file.c_str(), owner, 0), 0);
      maps.add(7, pid, {0, 0x10000, 0, maps.file("", "")});
      maps.clear(8, pid);
      maps.add(8, pid, {0, 0x10000, 0, maps.file("", "")});
      EXPECT_EQ(names.function(names.at(maps.space(8), 0x1000)[0].function).name, owner == 0 ? "name" : "0x1000");
      ASSERT_EQ(names.problems().size(), owner == 0 ? 0u : 1u);
      if (owner != 0) {
        EXPECT_THAT(names.problems()[0], testing::HasSubstr(file + " belongs to user 12345, who is neither root"));
      }
      fs::remove(file);
    }
  }
}

// A map that is larger than its file has blocks for is cut at a line's end, and that is said.
TEST(Names, ALargeMapIsCutAloud) {
  Symbols kernel;
  CodeMaps maps;
  Names names(kernel, maps);
  const i32 pid = getpid();
  const std::string file = "/tmp/perf-" + std::to_string(pid) + ".map";
  std::ofstream(file) << "1000 10 name\n";
  fs::resize_file(file, (u64{256} << 20) + 1);
  maps.add(7, pid, {0, 0x10000, 0, maps.file("", "")});
  EXPECT_EQ(names.function(names.at(maps.space(7), 0x1000)[0].function).name, "name");
  ASSERT_EQ(names.problems().size(), 1u);
  EXPECT_THAT(names.problems()[0], testing::HasSubstr("has 256 MiB, of which the first"));
  fs::remove(file);
}

TEST(Names, TheKernelsAsItPrintsThem) {
  Symbols kernel;
  kernel.load(
      "ffffffff81000000 T _stext\nffffffff81000000 T first\nffffffff81000040 t second\nffffffffc0000000 t "
      "in_module\t[ext4]\nffffffffc0000080 t end\t[ext4]\n");
  CodeMaps maps;
  Names names(kernel, maps);
  const CodePlace place = names.at(0, 0xffffffff81000010)[0];
  EXPECT_EQ(names.function(place.function).name, "_stext");
  EXPECT_EQ(place.offset, 0x10u);
  EXPECT_EQ(place.size, 0x40u);
  EXPECT_EQ(names.function(names.at(0, 0xffffffffc0000010)[0].function).module, "ext4");
  EXPECT_EQ(names.function(names.at(0, 0xffffffff80000000)[0].function).kind, CodeFunction::Kind::unnamed);
}

TEST(Elf, CorruptFilesAreNoCrash) {
  std::ifstream in(RINGSIDE_BUILD_DIR "/tests/walker_O2", std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  ASSERT_GT(good.size(), 4096u);
  const std::string path = fs::temp_directory_path() / ("ringside-elf-" + std::to_string(getpid()));
  std::mt19937_64 random(1);
  u32 opened = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    if (round % 3 == 0) bad.resize(random() % bad.size());
    for (u64 n = round % 7; n != 0 && !bad.empty(); --n) {
      // Headers and tables more often than code.
      const u64 at = random() % 4 == 0 ? random() % std::min<u64>(bad.size(), 4096) : random() % bad.size();
      bad[at] = static_cast<char>(random() % 3 == 0 ? 0xFF : random());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    auto elf = ElfNames::open(path, "");
    if (!elf) continue;
    ++opened;
    for (u64 offset = 0; offset < bad.size(); offset += 97) {
      for (const ElfPlace& place : (*elf)->at(offset)) ASSERT_FALSE(place.function.empty());
    }
  }
  EXPECT_GT(opened, 50u);
  fs::remove(path);
}

// Tables of lines whose names stand in sections that are missing or empty: a null pointer is no text (UBSan).
TEST(Elf, LinesWithNamesInMissingSections) {
  if (std::system("as --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no assembler";
  const std::string file = fs::temp_directory_path() / ("ringside-lines-" + std::to_string(getpid()));
  for (const int version : {4, 5}) {
    std::ofstream source(file + ".s");
    source
        << "\t.globl f\n\t.type f,@function\nf:\n\t.fill 64,1,0x90\n\t.size f,64\n"
           "\t.section .note.GNU-stack,\"\",@progbits\n"
           "\t.section .debug_abbrev,\"\",@progbits\n.Labbrev:\n\t.byte 1,0x11,1, 0x11,0x01, 0x12,0x07, 0x10,0x17, 0,0\n"
           "\t.byte 2,0x2e,0, 0x03,0x08, 0x11,0x01, 0x12,0x0b, 0,0, 0\n"
           "\t.section .debug_info,\"\",@progbits\n\t.4byte .Lend-.Lafter\n.Lafter:\n\t.2byte 4\n\t.4byte .Labbrev\n\t.byte 8\n"
           "\t.byte 1\n\t.quad f\n\t.quad 64\n\t.4byte 0\n\t.byte 2\n\t.asciz \"f\"\n\t.quad f\n\t.byte "
           "64,0\n.Lend:\n\t.section .debug_line,\"\",@progbits\n";
    if (version == 5)
      source << "\t.4byte .Lline_end-.Lline\n.Lline:\n\t.2byte 5\n\t.byte 8,0\n\t.4byte .Lprogram-.Lheader\n.Lheader:\n"
                "\t.byte 1,1,1,-5,14,13,0,1,1,1,1,0,0,0,1,0,0,1\n"
                "\t.byte 1,1,0x1f,1\n\t.4byte 0\n\t.byte 1,1,0x0e,1\n\t.4byte 0\n.Lprogram:\n.Lline_end:\n";
    source.close();
    ASSERT_EQ(std::system(("as " + file + ".s -o " + file + ".o && ld " + file + ".o -o " + file + " -e 0").c_str()), 0);
    auto elf = ElfNames::open(file, "");
    ASSERT_TRUE(elf) << elf.error().sentence;
    const auto functions = (*elf)->named("f");
    ASSERT_EQ(functions.size(), 1u);
    const auto places = (*elf)->at(functions[0].begin + 1);
    ASSERT_EQ(places.size(), 1u);
    EXPECT_EQ(places[0].function, "f");
    EXPECT_EQ(places[0].line, 0u);
  }
  for (const char* const end : {"", ".s", ".o"}) fs::remove(file + end);
}

// A linker, or a stranger who wants to harm the reader, cuts a file while libdw has it mapped.
TEST(Elf, AFileThatIsCutWhileItIsReadCostsItsNames) {
  const std::string file = fs::temp_directory_path() / ("ringside-cut-" + std::to_string(getpid()));
  fs::copy_file("/proc/self/exe", file);
  EXPECT_EXIT(
      {
        sys::guard_all_mappings();
        const auto elf = must(ElfNames::open(file, ""));
        fs::resize_file(file, 0);
        (void)elf->named("main");
        for (u64 at = 0; at < 1 << 20; at += 4096) (void)elf->at(at);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
  fs::remove(file);
}

// A longer name than any is cut, and stays another one than those that begin alike.
TEST(Elf, ANameHasAMostLength) {
  const std::string most(sys::longest_name, 'n');
  EXPECT_EQ(sys::shown_name(most), most);
  EXPECT_EQ(sys::shown_name("line\nbreak"), "line?break");
  const std::string one = sys::shown_name(most + "1"), two = sys::shown_name(most + "2");
  EXPECT_EQ(one.size(), sys::longest_name);
  EXPECT_NE(one, two);
  EXPECT_THAT(one, testing::MatchesRegex("n+\\.\\.\\.#[0-9a-f]{8}"));
  Budget budget;
  EXPECT_EQ(demangled(most + "1", budget), one);
  std::string text = "a " + most + "1 b";
  EXPECT_EQ(sys::cut_name(text, std::string_view(text).substr(2, most.size() + 1)), one);
  EXPECT_EQ(sys::cut_name(text, std::string_view(text).substr(0, 1)), "a");
  Symbols symbols;
  symbols.load("ffffffff81000000 T " + most + "1 [m]\n");
  ASSERT_NE(symbols.find(0xffffffff81000001), nullptr);
  EXPECT_EQ(symbols.find(0xffffffff81000001)->name, one);
  EXPECT_EQ(symbols.find(0xffffffff81000001)->module, "m");
}

// The debugging information of a stripped program stands beside it, in a file that it names. Any name is no hang and no leak.
TEST(Elf, DebuggingInformationIsFoundByTheNameInTheFile) {
  const std::string folder = fs::temp_directory_path() / ("ringside-debuglink-" + std::to_string(getpid()));
  const std::string file = folder + "/stripped";
  fs::create_directory(folder);
  const std::string strip = "strip --remove-section=.note.gnu.build-id " RINGSIDE_BUILD_DIR "/tests/walker_O2 -o " + file;
  ASSERT_EQ(std::system((strip + " && objcopy --only-keep-debug " RINGSIDE_BUILD_DIR "/tests/walker_O2 " + file +
                         ".debug && "
                         "objcopy --add-gnu-debuglink=" +
                         file + ".debug " + file)
                            .c_str()),
            0);
  const auto has_main = [&] {
    auto elf = ElfNames::open(file, "");
    return elf && !(*elf)->named("main").empty();
  };
  EXPECT_TRUE(has_main());
  fs::create_directory(folder + "/.debug");
  fs::rename(file + ".debug", folder + "/.debug/stripped.debug");
  EXPECT_TRUE(has_main());
  std::ofstream(folder + "/.debug/stripped.debug", std::ios::app) << "changed";
  EXPECT_FALSE(has_main());
  ASSERT_EQ(mkfifo((file + ".debug").c_str(), 0600), 0);
  EXPECT_FALSE(has_main());
  fs::remove_all(folder);
}

// Says in the header of each compressed section that it has 2^62 bytes.
bool inflate(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  elf_version(EV_CURRENT);
  Elf* const elf = elf_begin(fd, ELF_C_READ, nullptr);
  u32 changed = 0;
  for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr; section = elf_nextscn(elf, section)) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    char mark[4] = {};
    const bool old = pread(fd, mark, 4, static_cast<off_t>(header.sh_offset)) == 4 && std::memcmp(mark, "ZLIB", 4) == 0;
    if (!old && (header.sh_flags & SHF_COMPRESSED) == 0) continue;
    const u64 size = old ? u64{0x40} : u64{1} << 62;
    changed += pwrite(fd, &size, 8, static_cast<off_t>(header.sh_offset) + (old ? 4 : 8)) == 8;
  }
  elf_end(elf);
  close(fd);
  return changed != 0;
}

// A few bytes of a compressed section may stand for gigabytes. Symbols are enough then, and a sentence says so. It is the same
// for the file's own information, in both formats, and for that of a separate file.
TEST(Elf, DebuggingInformationThatFillsTheMemoryIsLeftOut) {
  const std::string folder = fs::temp_directory_path() / ("ringside-inflated-" + std::to_string(getpid()));
  const std::string walker = RINGSIDE_BUILD_DIR "/tests/walker_O2", file = folder + "/file", debug = folder + "/file.debug";
  fs::create_directory(folder);
  const auto doubt = [&] {
    auto elf = ElfNames::open(file, "");
    EXPECT_TRUE(elf) << elf.error().sentence;
    EXPECT_FALSE((*elf)->named("main").empty());
    return (*elf)->doubt();
  };
  for (const std::string how : {"zlib", "zlib-gnu"}) {
    ASSERT_EQ(std::system(("objcopy --compress-debug-sections=" + how + " " + walker + " " + file).c_str()), 0);
    EXPECT_EQ(doubt(), "");
    ASSERT_TRUE(inflate(file)) << how;
    EXPECT_THAT(doubt(), testing::HasSubstr(file + ": its debugging information would take more memory"));
  }
  ASSERT_EQ(std::system(("objcopy --remove-section=.note.gnu.build-id --strip-debug " + walker + " " + file +
                         " && objcopy --only-keep-debug --compress-debug-sections=zlib " + walker + " " + debug)
                            .c_str()),
            0);
  ASSERT_TRUE(inflate(debug));
  ASSERT_EQ(std::system(("objcopy --add-gnu-debuglink=" + debug + " " + file).c_str()), 0);
  EXPECT_THAT(doubt(), testing::HasSubstr("would take more memory"));
  fs::remove_all(folder);
}

// Writes into the section .debug_info, at this place.
bool overwrite_debug_info(const std::string& path, u64 at, u32 word) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  elf_version(EV_CURRENT);
  Elf* const elf = elf_begin(fd, ELF_C_READ, nullptr);
  size_t names = 0;
  bool done = false;
  if (elf_getshdrstrndx(elf, &names) == 0) {
    for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr; section = elf_nextscn(elf, section)) {
      GElf_Shdr header;
      if (gelf_getshdr(section, &header) == nullptr || std::string(elf_strptr(elf, names, header.sh_name)) != ".debug_info")
        continue;
      done = pwrite(fd, &word, 4, static_cast<off_t>(header.sh_offset + at)) == 4;
    }
  }
  elf_end(elf);
  close(fd);
  return done;
}

TEST(Elf, SaysThatCompressedDebuggingInformationCannotBeRead) {
  const std::string folder = fs::temp_directory_path() / ("ringside-damaged-" + std::to_string(getpid()));
  const std::string walker = RINGSIDE_BUILD_DIR "/tests/walker_O2", file = folder + "/file";
  fs::create_directory(folder);
  // The format in the section's header; its data.
  for (const auto& [at, word] : {std::pair{u64{0}, u32{77}}, {sizeof(Elf64_Chdr) + 40, 0xFFFFFFFF}}) {
    ASSERT_EQ(std::system(("objcopy --compress-debug-sections=zlib " + walker + " " + file).c_str()), 0);
    ASSERT_TRUE(overwrite_debug_info(file, at, word));
    auto elf = ElfNames::open(file, "");
    ASSERT_TRUE(elf) << elf.error().sentence;
    EXPECT_FALSE((*elf)->named("main").empty());
    EXPECT_THAT((*elf)->doubt(), testing::HasSubstr(file + ": its debugging information is compressed, and is damaged"));
  }
  fs::remove_all(folder);
}

// libdw reads zlib's alone, unless it was built with zstd.
TEST(Elf, DebuggingInformationThatZstdCompressed) {
  if (std::system("objcopy --help | grep -q zstd") != 0) GTEST_SKIP() << "this objcopy has no zstd";
  const std::string folder = fs::temp_directory_path() / ("ringside-zstd-" + std::to_string(getpid()));
  const std::string walker = RINGSIDE_BUILD_DIR "/tests/walker_O2", file = folder + "/file", debug = folder + "/file.debug";
  fs::create_directory(folder);
  const auto all_places = [](const std::string& path) {
    std::vector<std::string> all;
    auto elf = ElfNames::open(path, "");
    EXPECT_TRUE(elf) << elf.error().sentence;
    EXPECT_EQ((*elf)->doubt(), "");
    for (const ElfFunction& f : (*elf)->named("main"))
      for (u64 at = f.begin; at < f.begin + f.size; ++at)
        for (const ElfPlace& place : (*elf)->at(at)) all.push_back(place.function + place.file + std::to_string(place.line));
    return all;
  };
  const auto plain = all_places(walker);
  EXPECT_GT(std::set<std::string>(plain.begin(), plain.end()).size(), 3u);
  ASSERT_EQ(std::system(("objcopy --compress-debug-sections=zstd " + walker + " " + file).c_str()), 0);
  EXPECT_EQ(all_places(file), plain);
  const std::string whole = must(sys::read_file(file));
  // In a debug file.
  ASSERT_EQ(std::system(("objcopy --remove-section=.note.gnu.build-id --strip-debug " + walker + " " + file +
                         " && objcopy --only-keep-debug --compress-debug-sections=zstd " + walker + " " + debug +
                         " && objcopy --add-gnu-debuglink=" + debug + " " + file)
                            .c_str()),
            0);
  EXPECT_EQ(all_places(file), plain);
  // Damaged: it is said.
  std::string bad = whole;
  size_t frames = 0;
  for (size_t at = bad.find("\x28\xb5\x2f\xfd"); at != bad.npos; at = bad.find("\x28\xb5\x2f\xfd", at + 8), ++frames)
    std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(at) + 4, 12, '\xff');
  ASSERT_GT(frames, 2u);
  std::ofstream(file, std::ios::binary) << bad;
  auto elf = ElfNames::open(file, "");
  ASSERT_TRUE(elf);
  EXPECT_THAT((*elf)->doubt(), testing::HasSubstr(file + ": its debugging information is compressed by zstd, and is damaged"));
  EXPECT_FALSE((*elf)->named("main").empty());
  fs::remove_all(folder);
}

// -gsplit-dwarf: the functions stand in another file, which the program names. Any name is no hang.
TEST(Elf, InlinedFunctionsOfASplitUnit) {
  const std::string folder = fs::temp_directory_path() / ("ringside-split-" + std::to_string(getpid()));
  fs::create_directory(folder);
  std::ofstream(folder + "/split.cpp") << R"(
volatile int sink;
namespace deep { static inline __attribute__((always_inline)) void inlined(int n) { sink = n; sink += n; } }
__attribute__((noinline)) void outer(int n) { deep::inlined(n); sink = 0; }
int main() { outer(1); })";
  ASSERT_EQ(std::system(("cd " + folder + " && g++ -O1 -g -gsplit-dwarf -c split.cpp && g++ -o split split.o").c_str()), 0);
  const auto places = [&] {
    std::set<std::vector<std::string>> found;
    auto elf = ElfNames::open(folder + "/split", "");
    for (const ElfFunction& f : (*elf)->named("outer")) {
      for (u64 at = f.begin; at < f.begin + f.size; ++at) {
        std::vector<std::string> names;
        for (const ElfPlace& place : (*elf)->at(at)) names.push_back(place.function);
        found.insert(names);
      }
    }
    return found;
  };
  EXPECT_TRUE(places().count({"deep::inlined", "outer"}));
  fs::remove(folder + "/split.dwo");
  EXPECT_THAT(places(), ElementsAre(std::vector<std::string>{"outer"}));
  ASSERT_EQ(mkfifo((folder + "/split.dwo").c_str(), 0600), 0);
  EXPECT_THAT(places(), ElementsAre(std::vector<std::string>{"outer"}));
  fs::remove_all(folder);
}

// What other users may replace is not read: libdw opens it by its path.
TEST(Elf, ASplitUnitThatOtherUsersMayReplaceIsNotRead) {
  const std::string folder = fs::temp_directory_path() / ("ringside-open-split-" + std::to_string(getpid()));
  fs::create_directory(folder);
  std::ofstream(folder + "/split.cpp") << "volatile int sink;\nint main() { return sink; }\n";
  ASSERT_EQ(std::system(("cd " + folder + " && g++ -O1 -g -gsplit-dwarf -c split.cpp && g++ -o split split.o").c_str()), 0);
  const auto doubt = [&] { return must(ElfNames::open(folder + "/split", ""))->doubt(); };
  EXPECT_EQ(doubt(), "");
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(doubt(), testing::HasSubstr("another user could replace it"));
  fs::remove_all(folder);
}

// Debugging information may name another file (dwz), which is not libdw's to open. A function has its name there here.
TEST(Elf, AnAlternateFileIsJudged) {
  const std::string folder = fs::temp_directory_path() / ("ringside-alternate-" + std::to_string(getpid()));
  const std::string alternate = folder + "/alternate";
  fs::create_directory(folder);
  const auto shell = [&](const std::string& command) { return std::system(("cd " + folder + " && " + command).c_str()); };
  std::ofstream(folder + "/main.c") << "int target(void) { return 1; }\nint main(void) { return target() - 1; }\n";
  std::ofstream(folder + "/names.s") << R"(
  .section .debug_abbrev,"",%progbits
.Labbrev:
  .uleb128 1, 0x11
  .byte 1
  .uleb128 0x11, 1, 0x12, 7, 0, 0
  .uleb128 2, 0x2e
  .byte 0
  .uleb128 3, 0x1f21, 0x11, 1, 0x12, 7, 0, 0
  .byte 0
  .section .debug_info,"",%progbits
  .long .Lend - .Lbegin
.Lbegin:
  .short 4
  .long .Labbrev
  .byte 8
  .uleb128 1
  .quad target, 4
  .uleb128 2
  .long 1
  .quad target, 4
  .byte 0
.Lend:
  .section .gnu_debugaltlink,"",%progbits
  .asciz "alternate"
  .ascii "0123456789abcdefghij"
)";
  std::ofstream(folder + "/alternate.s") << R"(
  .section .note.gnu.build-id,"a",%note
  .long 4, 20, 3
  .asciz "GNU"
  .ascii "0123456789abcdefghij"
  .section .debug_str,"",%progbits
  .asciz ""
  .asciz "from_the_alternate"
  .skip 4096
  .section .debug_info,"",%progbits
  .skip 4096
)";
  ASSERT_EQ(shell("gcc -O1 -c -o main.o main.c && gcc -c -o names.o names.s && gcc -o program main.o names.o && "
                  "gcc -c -o alternate alternate.s"),
            0);
  using Named = std::pair<std::string, std::string>;
  // The function's name, and what is doubted.
  const auto named = [&] {
    const auto elf = must(ElfNames::open(folder + "/program", ""));
    const auto places = elf->at(elf->named("target").at(0).begin);
    return Named(places.empty() ? "" : places[0].function, elf->doubt());
  };
  EXPECT_EQ(named(), Named("from_the_alternate", ""));
  fs::rename(alternate, folder + "/elsewhere");
  EXPECT_EQ(named(), Named("target", ""));
  ASSERT_EQ(mkfifo(alternate.c_str(), 0600), 0);
  EXPECT_EQ(named().first, "target");
  EXPECT_THAT(named().second, testing::HasSubstr(alternate + " is no regular file; debugging information"));
  fs::remove(alternate);
  ASSERT_EQ(shell("sed s/0123456789abcdefghij/0123456789abcdefghix/ elsewhere > alternate"), 0);
  EXPECT_EQ(named(), Named("target", "")) << "another build id";
  ASSERT_EQ(shell("objcopy --compress-debug-sections=zlib elsewhere alternate"), 0);
  EXPECT_EQ(named(), Named("from_the_alternate", ""));
  ASSERT_TRUE(inflate(alternate));
  EXPECT_EQ(named().first, "target");
  EXPECT_THAT(named().second, testing::HasSubstr("would take more memory"));
  fs::remove_all(folder);
}

TEST(Elf, NamesAreShort) {
  Budget budget;
  const auto demangled = [&](std::string_view name) { return ringside::demangled(name, budget); };
  EXPECT_EQ(demangled("main"), "main");
  EXPECT_EQ(demangled("_ZNK6walker6Animal5speakEi"), "walker::Animal::speak");
  EXPECT_EQ(demangled("_ZN6walker4NestIlLi2EE2goEl"), "walker::Nest<long, 2>::go");
  EXPECT_EQ(demangled("_Z1fIiET_S0_"), "f<int>");
  EXPECT_EQ(demangled("_ZN12_GLOBAL__N_11fEi"), "(anonymous namespace)::f");
  EXPECT_EQ(demangled("_ZlsRSoi"), "operator<<");
  EXPECT_EQ(demangled("_ZN1AcviEv"), "A::operator int");
  EXPECT_EQ(demangled("_ZN1AclEi"), "A::operator()");
  EXPECT_EQ(demangled("_Z1fPFivE"), "f");
  EXPECT_EQ(demangled("_Z3fooIiEPFvvET_"), "foo<int>");
  EXPECT_EQ(demangled("_Z3fooIiEPFPFvvEiET_"), "foo<int>");
  EXPECT_EQ(demangled("_ZNK1A3fooIiEEPFvvET_"), "A::foo<int>");
  EXPECT_EQ(demangled("_Z3fooIPFviEEvT_"), "foo<void (*)(int)>");
  EXPECT_EQ(demangled("_Z3fooIiERA3_iT_"), "foo<int>");
  EXPECT_EQ(demangled("_Z3fooIiEM1AFviET_"), "foo<int>");
  EXPECT_EQ(demangled("_ZN1AcvPFvvEEv"), "A::operator void (*)()");
  EXPECT_EQ(demangled("_Z3foov.part.0"), "foo [clone .part.0]");
  EXPECT_EQ(demangled("_Zgarbage"), "_Zgarbage");
  EXPECT_EQ(demangled("_ZN3std2rt10lang_start17h0123456789abcdefE"), "std::rt::lang_start");
  EXPECT_EQ(demangled("_ZN4core3ptr46drop_in_place$LT$alloc..vec..Vec$LT$u8$GT$$GT$17h0123456789abcdefE"),
            "core::ptr::drop_in_place<alloc::vec::Vec<u8>>");
  EXPECT_EQ(demangled("_ZN58_$LT$alloc..string..String$u20$as$u20$core..fmt..Debug$GT$3fmt17hf123456789abcdefE"),
            "<alloc::string::String as core::fmt::Debug>::fmt");
  EXPECT_EQ(demangled("_ZN1a13b$u7b$$x$u7d$17h0123456789abcdefE"), "a::b{$x}");
  EXPECT_EQ(demangled("_ZN1a13gr$uf6$$udf$e17h0123456789abcdefE"), "a::größe");
  EXPECT_EQ(demangled("_ZN1a17h0123456789abcdegE"), "a::h0123456789abcdeg");
  EXPECT_EQ(demangled("_ZN3std2rt10lang_start17h0123456789abcdefE.llvm.6470294271"), "std::rt::lang_start");
  EXPECT_EQ(demangled("_ZN1a5b..cX17h0123456789abcdefE.cold"), "a::b::cX");
  EXPECT_EQ(demangled("line\nbreak"), "line?break");
}

// As c++filt -i writes them.
TEST(Elf, NamesOfRustsNewerMangling) {
  Budget budget;
  for (const auto& [mangled, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"_RNvNtC7mycrate4shop5order", "mycrate::shop::order"},
           {"_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"},
           {"_RNCNvC7mycrate4main0B3_", "mycrate::main::{closure#0}"},
           {"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
           {"_RINvCs_1a3barKj2a_E", "a::bar::<42>"},
           {"_RNvXs_C1aNtB4_1SNtB4_1T1f.llvm.123", "<a::S as a::T>::f"},
           {"_RNvMs_C1aNtB4_1S1f", "<a::S>::f"},
           {"_RNvYNtC1a1SNtB4_1T1f", "<a::S as a::T>::f"},
           {"_RINvC1a1fRShQeE", "a::f::<&[u8], &mut str>"},
           {"_RINvC1a1fPhOlAhj3_SaE", "a::f::<*const u8, *mut i32, [u8; 3], [i8]>"},
           {"_RINvC1a1fThETjEE", "a::f::<(u8,), (usize,)>"},
           {"_RINvC1a1fTEE", "a::f::<()>"},
           {"_RINvC1a1fFUKCheEuE", "a::f::<unsafe extern \"C\" fn(u8, str)>"},
           {"_RINvC1a1fFG_RL0_hEBa_E", "a::f::<for<'a> fn(&'a u8) -> &'a u8>"},
           {"_RINvC1a1fDNtB2_1TEL_E", "a::f::<dyn a::T>"},
           {"_RINvC1a1fDG_INtB2_1TL0_hEp1OlNtB2_1UEL_E", "a::f::<dyn for<'a> a::T<'a, u8, O = i32> + a::U>"},
           {"_RINvC1a1fKb1_Kb0_Kc41_Kca_Kc1f600_Kln5_KpE", "a::f::<true, false, 'A', '\\n', '\\u{1f600}', -5, _>"},
           {"_RNvC1au9bcher_kva", "a::bücher"},
           {"_RNvC1au8grn_nva", "_RNvC1au8grn_nva"},
           {"_RNSNvC1a1b4shim0B3_", "_RNSNvC1a1b4shim0B3_"},
           {"_RNCC1as_0", "a::{closure#1}"},
           {"_RNCNvC1a1bs0_0B3_", "a::b::{closure#2}"},
           {"_RINvC1a1fKo1234567890abcdef1_E", "a::f::<0x1234567890abcdef1>"},  // c++filt 2.40 begins behind the 1
           {"_RINvC1a1fxyznomstijE", "a::f::<i64, u64, !, i128, u128, u32, i16, u16, isize, usize>"},
           {"_RNvNvC1a1b1c", "a::b::c"},
           {"_RINvC1a1fFEuE", "a::f::<fn()>"},
           {"_RINvC1a1fFK7sysv_64EhE", "a::f::<extern \"sysv-64\" fn() -> u8>"},
           {"_RNvC1a3_12", "_RNvC1a3_12"},
           {"_RNvC7mycrate4mainX", "_RNvC7mycrate4mainX"},  // more than a name
           {"_RNvC7mycrate", "_RNvC7mycrate"},
           {"_Rabc", "_Rabc"},
           {"_RNvB_1a", "_RNvB_1a"}})  // it refers to itself
    EXPECT_EQ(demangled(mangled, budget), name);
}

// Each part repeats the one in front of it twice: 2^40 letters of a name of 300.
TEST(Elf, RustNamesThatGrowAreLeftAsTheyAre) {
  std::string bomb = "_RIC1a";
  std::string at = "TC1bC1bE";
  size_t begin = bomb.size() - 2;
  bomb += at;
  for (int i = 0; i < 40; ++i) {
    std::string digits;
    for (size_t n = begin - 1;; n /= 62) {
      digits.insert(digits.begin(), "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[n % 62]);
      if (n < 62) break;
    }
    const std::string next = "TB" + digits + "_B" + digits + "_E";
    begin = bomb.size() - 2;
    bomb += next;
  }
  Budget budget;
  bool left_out = false;
  EXPECT_EQ(demangled(bomb + "E", budget, &left_out), bomb + "E");
  EXPECT_TRUE(left_out);
  const std::string deep = "_RIC1a" + std::string(5000, 'R') + "uE";
  EXPECT_TRUE(demangled(deep, budget, &left_out).starts_with(deep.substr(0, 100)));
  EXPECT_TRUE(left_out);
}

// The name of a bomb is bounded from above before it is demangled, and those of compilers by far less than what is allowed.
TEST(Elf, NamesThatGrowAreLeftAsTheyAre) {
  Budget budget;
  bool left_out = false;
  std::string bomb = "_Z1fSt4pairIiiES_IS0_S0_E";
  for (const char c : std::string("0123456789ABCDEFGHIJKLMNOP")) {
    const std::string next = c == '9' ? "A" : std::string(1, static_cast<char>(c + 1));
    bomb += "S_IS" + next + "_S" + next + "_E";
  }
  EXPECT_EQ(demangled(bomb, budget, &left_out), bomb);
  EXPECT_TRUE(left_out);
  for (const std::string name :
       {"_Z1fIJEEvDpDpDpDpDpDpDpDpDpDpDpDpT_",                                                        // packs of packs
        "_ZN1acvT_IN1bcvT_IN1ccvT_IN1dcvT_IN1ecvT_IN1fcvT_IN1gcvT_IN1hcvT_IN1icvT_IN1jcvT_IN1kcvT_I"  // read twice each
        "N1lcvT_IN1mcvT_IN1ncvT_IN1ocvT_IN1pcvT_IN1qcvT_IN1rcvT_IN1scvT_IN1tcvT_IN1ucvT_IiEEEEEEEEEEEEEEEEEEEEEEEv"})
    EXPECT_GT(demangled_size(name), u64{1} << 22) << name;
  // An argument that names later ones: f<pair<T0_, T0_>, pair<T1_, T1_>, ...>.
  std::string later = "_Z1fI";
  for (const char c : std::string("0123456789ABCDEFGHIJKLMNOP")) later += std::string("St4pairIT") + c + "_T" + c + "_E";
  EXPECT_GT(demangled_size(later + "iEvv"), u64{1} << 22);
  // More steps than a reading has: the rest stays as it is.
  Budget small(1 << 20, 5000);
  u64 without = 0;
  for (int i = 0; i < 100; ++i) {
    (void)demangled("_ZN6walker4NestIlLi2EE2goEl", small, &left_out);
    without += left_out ? 1 : 0;
  }
  EXPECT_GT(without, 0u);
  EXPECT_LT(without, 100u);
  for (const std::string name : {"_ZNSt6vectorINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaIS5_EE17_M_realloc_"
                                 "insertIJRKS5_EEEvN9__gnu_cxx17__normal_"
                                 "iteratorIPS5_S7_EEDpOT_",
                                 "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_iESt10_"
                                 "Select1stIS8_ESt4lessIS5_ESaIS8_EE8_M_eraseE"
                                 "PSt13_Rb_tree_nodeIS8_E"}) {
    EXPECT_NE(demangled(name, budget, &left_out), name);
    EXPECT_FALSE(left_out);
    EXPECT_LT(demangled_size(name), u64{1} << 20);
  }
}

// A program's events with stacks, by hand: ids 1 event, 2 stack, 3 code_map, 4 sample; and the kernel's.
struct Joined : testing::Test {
  Formats formats;
  Tasks tasks;
  Stacks stacks{formats, tasks};
  RingName program{0, 100, 100, "app", "app"}, kernel{0, 0, 0, "", "", true};
  void SetUp() override {
    formats.add(
        1, "app", "work",
        test::format(
            1, "work",
            "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:ringside_stack stack;\toffset:16;\tsize:8;\tsigned:0;\n",
            R"("size=%llu", REC->size)"));
    formats.add(2, "ringside", "stack",
                test::format(2, "stack",
                             "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc u64[] "
                             "frames;\toffset:16;\tsize:4;\tsigned:0;\n",
                             R"("id=%llx", REC->id)"));
    formats.add(3, "ringside", "code_map",
                test::format(3, "code_map",
                             "\tfield:u32 pid;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u64 "
                             "start;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u64 size;\toffset:24;\tsize:8;\tsigned:0;\n"
                             "\tfield:u64 file_offset;\toffset:32;\tsize:8;\tsigned:0;\n\tfield:__data_loc char[] "
                             "build_id;\toffset:40;\tsize:4;\tsigned:0;\n"
                             "\tfield:__data_loc char[] path;\toffset:44;\tsize:4;\tsigned:0;\n",
                             R"("pid=%u", REC->pid)"));
    formats.add(4, "ringside", "sample",
                test::format(4, "sample",
                             "\tfield:ringside_stack stack;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u32 "
                             "count;\toffset:16;\tsize:4;\tsigned:0;\n",
                             R"("count=%u", REC->count)"));
    formats.add(kernel_ids + 4, "ftrace", "kernel_stack",
                test::format(4, "kernel_stack",
                             "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:unsigned long "
                             "caller[8];\toffset:16;\tsize:64;\tsigned:0;\n",
                             R"("stack")"));
    formats.symbols().load("ffffffff81000000 T outer\nffffffff81000100 T inner\nffffffff81000200 T end\n");
    tasks.add(program);
    formats.use_stacks(&stacks);
  }
  static Payload stack_event(u64 id, const std::vector<u64>& frames) {
    Payload p(2, 100);
    p.put(id).put(static_cast<u32>(20 | frames.size() * 8 << 16));
    for (const u64 f : frames) p.put(f);
    return p;
  }
  static Payload map_event(u32 pid, u64 start, u64 size, const std::string& path) {
    return Payload(3, static_cast<i32>(pid))
        .put(pid)
        .put(u32{0})
        .put(start)
        .put(size)
        .put(u64{0})
        .put(u32{48})
        .put(static_cast<u32>(48 | (path.size() + 1) << 16))
        .text(path)
        .put(u8{0});
  }
  u32 take(const Payload& payload, const RingName& ring, const Stacks::Behind& behind = {}) {
    TraceRecord record;
    record.payload = payload;
    record.ids = ring.ids();
    stacks.see(record, ring);
    return stacks.number(record, ring, behind);
  }
};

TEST_F(Joined, AnEventHasTheStackOfItsIdWhereverThatStands) {
  (void)take(map_event(100, 0x10000, 0x1000, "/nowhere/app"), program);
  const u32 early = take(Payload(1, 100).put(u64{8}).put(u64{0xAB}), program);
  const u32 again = take(Payload(1, 100).put(u64{9}).put(u64{0xAB}), program);
  EXPECT_EQ(take(Payload(1, 100).put(u64{9}).put(u64{0}), program), 0u);
  EXPECT_EQ(early, again);
  (void)take(stack_event(0xAB, {0x10021, 0x10011}), program);  // behind the events
  EXPECT_THAT(stacks.functions(early), ElementsAre("app+0x20", "app+0x10"));
  EXPECT_EQ(stacks.missing(), 0u);
  const u32 sample = take(Payload(4, 100).put(u64{0xAB}).put(u32{1}), program);
  EXPECT_THAT(stacks.functions(sample), ElementsAre("app+0x21", "app+0x10"));  // the innermost is no return address
}

TEST_F(Joined, AStackThatIsNowhereIsLookedForOnceAndCounted) {
  int looked = 0;
  stacks.on_missing([&](Stacks& s) {
    ++looked;
    const Payload found = stack_event(0x77, {0x10011});
    s.learn(found, *formats.find(2));
  });
  const u32 found = take(Payload(1, 100).put(u64{8}).put(u64{0x77}), program),
            lost = take(Payload(1, 100).put(u64{8}).put(u64{0x78}), program);
  EXPECT_THAT(stacks.functions(found), ElementsAre("0x10010"));
  EXPECT_THAT(stacks.functions(lost), ElementsAre("[stack lost]"));
  EXPECT_THAT(stacks.functions(lost), ElementsAre("[stack lost]"));
  EXPECT_EQ(looked, 1);
  EXPECT_EQ(stacks.missing(), 1u);
  EXPECT_THAT(stacks.remarks(), testing::Contains(testing::HasSubstr("1 different stack is lost")));
}

TEST_F(Joined, OneIdInTwoProcessesHasTheNamesOfEach) {
  const RingName other{1, 200, 200, "other", "other"};
  tasks.add(other);
  (void)take(stack_event(5, {0x10011}), program);
  (void)take(map_event(100, 0x10000, 0x1000, "/nowhere/app"), program);
  (void)take(map_event(200, 0x10000, 0x1000, "/nowhere/other"), other);
  const u32 a = take(Payload(1, 100).put(u64{8}).put(u64{5}), program),
            b = take(Payload(1, 200).put(u64{8}).put(u64{5}), other);
  EXPECT_THAT(stacks.functions(a), ElementsAre("app+0x10"));
  EXPECT_THAT(stacks.functions(b), ElementsAre("other+0x10"));
  // exec: the place has another file from now on.
  (void)take(map_event(100, 0, 0, ""), program);
  (void)take(map_event(100, 0x10000, 0x1000, "/nowhere/next"), program);
  const u32 later = take(Payload(1, 100).put(u64{8}).put(u64{5}), program);
  EXPECT_THAT(stacks.functions(later), ElementsAre("next+0x10"));
  EXPECT_THAT(stacks.functions(a), ElementsAre("app+0x10"));
}

TEST_F(Joined, TheKernelsStackIsThatOfTheEventInFrontOfIt) {
  const Payload event(9, 55),
      stack = Payload(4, 55).put(i32{2}).put(u32{0}).put(u64{0xffffffff81000110}).put(u64{0xffffffff81000020}).put(u64{0xdead});
  EXPECT_TRUE(Stacks::together(event, stack));
  EXPECT_FALSE(Stacks::together(Payload(9, 56), stack));
  EXPECT_TRUE(Stacks::together(event, Payload(4, 55, 4))) << "an interrupt has asked to reschedule in between";
  EXPECT_FALSE(Stacks::together(event, Payload(4, 55, 8))) << "it is the interrupt's";
  const u32 n = take(event, kernel, {stack, {}});
  EXPECT_THAT(stacks.functions(n), ElementsAre("inner", "outer"));  // as many as `size` says
  EXPECT_EQ(take(event, kernel, {stack, {}}), n);
  EXPECT_EQ(stacks.text(n), "inner;outer");
  fmt::memory_buffer out;
  stacks.append_lines(n, out);
  EXPECT_EQ(std::string(out.data(), out.size()), " => inner+0x10/0x100\n => outer+0x20/0x100\n");
}

TEST_F(Joined, AnyPayloadIsNoCrash) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::vector<u8> bytes(random() % 64);
    for (u8& b : bytes) b = random() % 3 == 0 ? 0xFF : static_cast<u8>(random());
    if (bytes.size() >= 2) bytes[0] = static_cast<u8>(1 + random() % 4), bytes[1] = 0;
    TraceRecord record;
    record.payload = {bytes.data(), bytes.size()};
    const bool in_kernel = round % 4 == 0;
    record.ids = in_kernel ? kernel_ids : 0;
    stacks.see(record, in_kernel ? kernel : program);
    const u32 n = stacks.number(record, in_kernel ? kernel : program, {record.payload, record.payload});
    (void)stacks.text(n);
  }
}

TEST(FoldTest, SumsAreThoseOfTheEventsAndFoldedTextHasAllOfThem) {
  Formats formats;
  Tasks tasks;
  Stacks stacks(formats, tasks);
  formats.add(kernel_ids + 4, "ftrace", "kernel_stack", "");
  std::mt19937_64 random(11);
  Fold fold;
  u64 sum = 0, count = 0;
  const RingName ring{0, 0, 0, "", "", true};
  for (int i = 0; i < 30000; ++i) {
    Payload stack = Payload(4, 1).put(i32{26}).put(u32{0});
    for (u64 d = 0; d < 26; ++d) stack.put(0xffffffff81000000 + random() % (d < 23 ? 1 : 9) * 16 + d);
    TraceRecord record;
    const Payload event(7, 1);
    record.payload = event;
    record.ids = kernel_ids;
    const u32 n = i % 10 == 0 ? 0 : stacks.number(record, ring, {stack, {}});
    const u64 weight = random() % 1000;
    fold.add(static_cast<u32>(random() % 3), n, weight);
    sum += weight;
    ++count;
  }
  EXPECT_EQ(fold.weight(), sum);
  EXPECT_EQ(fold.count(), count);
  u64 cells = 0;
  fold.each([&](const Fold::Cell& cell) { cells += cell.weight; });
  EXPECT_EQ(cells, sum);
  FlameTree tree;
  tree.add(fold, stacks, {"a", "b;c", "d"}, 0);
  u64 text = 0;
  std::istringstream lines(tree.folded());
  for (std::string line; std::getline(lines, line);) text += std::stoull(line.substr(line.rfind(' ') + 1));
  EXPECT_EQ(text, sum);
  EXPECT_EQ(tree.in_order().size(), tree.nodes().size());
}

TEST(Maps, ALaterOneReplacesWhatItOverlaps) {
  CodeMaps maps;
  const u32 a = maps.file("/a", ""), b = maps.file("/b", "");
  maps.add(1, 1, {0x1000, 0x5000, 0, a});
  const u32 before = maps.space(1);
  maps.add(1, 1, {0x9000, 0xA000, 0, b});
  EXPECT_EQ(maps.space(1), before);  // where there was nothing
  maps.add(1, 1, {0x2000, 0x3000, 0, b});
  const u32 after = maps.space(1);
  EXPECT_NE(after, before);
  EXPECT_EQ(maps.find(before, 0x2800)->file, a);
  EXPECT_EQ(maps.find(after, 0x2800)->file, b);
  EXPECT_EQ(maps.find(after, 0x1800)->file, a);
  EXPECT_EQ(maps.find(after, 0x3800)->offset + 0x800, 0x2800u);
  EXPECT_EQ(maps.find(after, 0x5000), nullptr);
  EXPECT_NE(maps.find(after, 0x9000), nullptr);
  maps.copy(2, 2, 1);
  const u32 child = maps.space(2);
  maps.add(2, 2, {0xB000, 0xC000, 0, a});
  EXPECT_EQ(maps.find(maps.space(1), 0xB000), nullptr);
  EXPECT_NE(maps.find(maps.space(2), 0xB000), nullptr);
  EXPECT_NE(maps.find(maps.space(2), 0x9000), nullptr);
  (void)child;
  maps.clear(1, 1);
  EXPECT_EQ(maps.find(maps.space(1), 0x9000), nullptr);
  EXPECT_EQ(maps.find(after, 0x1800)->file, a);
  EXPECT_EQ(maps.space(77), 0u);
}

}  // namespace
}  // namespace ringside::stacks_test
