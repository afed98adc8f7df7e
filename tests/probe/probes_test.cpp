// Probes: their names on the command line, the notes of ELF files, and arguments in the kernel's words.
#include "probe/probes.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "stacks/elf_names.hpp"
#include "stacks/usdt_notes.hpp"

namespace ringside::probes_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string probed = RINGSIDE_BUILD_DIR "/tests/probed";

TEST(UsdtArguments, RegistersMemoryAndConstantsOfAllWidths) {
  EXPECT_EQ(usdt_arguments("8@%rdi -4@%eax 2@%bx -1@%dl 4@%r15d 1@%sil", Machine::x86_64).fetch,
            "arg1=%di:u64 arg2=%ax:s32 arg3=%bx:u16 arg4=%dx:s8 arg5=%r15:u32 arg6=%si:u8");
  EXPECT_EQ(usdt_arguments("8@-80(%rbx) -4@(%rsp) 8@0x10(%rbp)", Machine::x86_64).fetch,
            "arg1=-80(%bx):u64 arg2=+0(%sp):s32 arg3=+16(%bp):u64");
  EXPECT_EQ(usdt_arguments("-4@$-5 8@$0x7f %rax", Machine::x86_64).fetch, "arg1=\\-5:s32 arg2=\\127:u64 arg3=%ax:u64");
  EXPECT_EQ(usdt_arguments("8@x0 -4@w19 8@[sp, 16] -4@[x29,-4] 4@7 8@[x1]", Machine::arm64).fetch,
            "arg1=%x0:u64 arg2=%x19:s32 arg3=+16(%sp):u64 arg4=-4(%x29):s32 arg5=\\7:u32 arg6=+0(%x1):u64");
  EXPECT_EQ(usdt_arguments("").fetch, "");
}

TEST(UsdtArguments, WhatTheKernelCannotFetchIsLeftOutAndNamed) {
  const UsdtArguments a =
      usdt_arguments("8f@%xmm0 -4@%ah 8@8(%rax,%rbx,8) 8@table(%rip) 16@%rax 8@%rdx 3@%rax 8@ @", Machine::x86_64);
  EXPECT_EQ(a.fetch, "arg6=%dx:u64");
  EXPECT_THAT(a.left_out, ElementsAre("arg1 (8f@%xmm0)", "arg2 (-4@%ah)", "arg3 (8@8(%rax,%rbx,8))", "arg4 (8@table(%rip))",
                                      "arg5 (16@%rax)", "arg7 (3@%rax)", "arg8 (8@)", "arg9 (@)"));
  EXPECT_EQ(usdt_arguments("8@%r16 8@%r7 8@%rr 8@$ 8@$x 8@$99999999999999999999 8@(%rax 8@x0", Machine::x86_64).fetch, "");
}

TEST(UsdtNotes, AreThoseThatReadelfShows) {
  for (const std::string& path : {probed, std::string("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")}) {
    FILE* const pipe =
        popen(("readelf -n " + path + " 2>/dev/null | sed -n 's/.*\\(Provider\\|Name\\|Arguments\\): \\?//p'").c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string theirs, ours;
    char buffer[4096];
    while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) theirs.append(buffer, n);
    pclose(pipe);
    const auto notes = usdt_notes(path);
    ASSERT_TRUE(notes) << notes.error().sentence;
    for (const UsdtNote& note : *notes) {
      ours += note.provider + "\n" + note.name + "\n" + note.arguments + "\n";
      EXPECT_NE(note.offset, 0u);
      EXPECT_EQ(note.semaphore != 0, note.name == "listened");
    }
    EXPECT_EQ(ours, theirs) << path;
    EXPECT_FALSE(notes->empty());
  }
  EXPECT_FALSE(usdt_notes("/etc/passwd"));
  EXPECT_FALSE(usdt_notes("/nowhere"));
}

TEST(Probe, IsParsedOrRefusedWithTheForms) {
  const auto usdt = Probe::parse("usdt:/a:b/python3:python:gc__*");
  ASSERT_TRUE(usdt);
  EXPECT_EQ(usdt->path + "|" + usdt->provider + "|" + usdt->name, "/a:b/python3|python|gc__*");
  const auto uprobe = Probe::parse("uprobe:./a.out:ns::work<int>+0x10");
  ASSERT_TRUE(uprobe);
  EXPECT_EQ(uprobe->path + "|" + uprobe->name, "./a.out|ns::work<int>");
  EXPECT_EQ(uprobe->offset, 16u);
  EXPECT_TRUE(Probe::parse("uprobe:/a:ns::operator+%return")->at_return);
  EXPECT_EQ(Probe::parse("uprobe:/a:ns::operator+")->name, "ns::operator+");
  EXPECT_TRUE(Probe::parse("kprobe:do_sys_openat2%return")->at_return);
  for (const char* text : {"usdt:", "usdt:/a", "usdt:/a:b", "usdt:/a::c", "usdt::b:c", "usdt:/a:b:", "uprobe:/a", "uprobe::f",
                           "uprobe:/a:", "uprobe:/a:f+0x", "uprobe:/a:f+1x", "uprobe:/a:f+4%return", "uprobe:/a:f\ng",
                           "kprobe:", "kprobe:a b", "kprobe:f+99999999999999999999"}) {
    const auto probe = Probe::parse(text);
    ASSERT_FALSE(probe) << text;
    EXPECT_FALSE(probe.error().sentence.empty());
  }
}

// Folders with colons, and functions with slashes.
TEST(Probe, APathEndsWhereAFileIs) {
  const std::string folder = std::filesystem::temp_directory_path() / ("ringside-colon-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder + "/v1:2/x");
  std::ofstream(folder + "/v1:2/app") << "x";
  std::ofstream(folder + "/v1:2/b:in") << "x";
  const auto parsed = [&](const std::string& text) {
    const auto probe = Probe::parse("uprobe:" + folder + text);
    if (!probe) return probe.error().sentence;
    EXPECT_EQ(probe->path.substr(0, folder.size()), folder);
    return probe->path.substr(std::min(folder.size(), probe->path.size())) + " " + probe->name;
  };
  EXPECT_EQ(parsed("/v1:2/app:f"), "/v1:2/app f");
  EXPECT_EQ(parsed("/v1:2/app:ns::f%return"), "/v1:2/app ns::f");
  EXPECT_EQ(parsed("/v1:2/app:net/http.(*Server).Serve"), "/v1:2/app net/http.(*Server).Serve");
  EXPECT_EQ(parsed("/v1:2/b:in:f"), "/v1:2/b:in f");
  EXPECT_EQ(parsed("/v1:2/none:f"), "/v1:2/none f");
  EXPECT_EQ(parsed("/v1:2/none:ns::f"), "/v1:2/none ns::f");
  std::filesystem::remove_all(folder);
}

std::string libc_of_this() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &info) != 0 ? info.dli_fname : "";
}

TEST(Probe, FindsAllItsPlacesAndTellsNearNames) {
  std::vector<std::string> notices;
  const auto points = [&](const std::string& text) { return points_of(*Probe::parse(text), notices); };
  const auto listened = points("usdt:" + probed + ":probed:listened");
  ASSERT_TRUE(listened);
  EXPECT_EQ(listened->size(), 3u);
  EXPECT_TRUE(notices.empty());
  const auto all = points("usdt:" + probed + ":*:*");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 4u);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0], HasSubstr("probed:round arg5 (8f@%xmm"));
  const auto overloaded = points("uprobe:" + probed + ":probed::overloaded");
  ASSERT_TRUE(overloaded);
  EXPECT_EQ(overloaded->size(), 2u);
  EXPECT_EQ((*overloaded)[0].system + ":" + (*overloaded)[0].name, "probe_probed:probed_overloaded");
  EXPECT_TRUE(points("uprobe:" + probed + ":probed_work+1"));
  EXPECT_THAT(points("uprobe:" + probed + ":probed_work+0x10000").error().sentence,
              HasSubstr("bytes, and an offset must be within them, at an instruction's first byte"));
  EXPECT_THAT(points("uprobe:" + libc_of_this() + ":strlen").error().sentence, HasSubstr("the loader chooses strlen when"));
  EXPECT_THAT(points("usdt:" + probed + ":probed:listend").error().sentence, HasSubstr("did you mean probed:listened?"));
  EXPECT_THAT(points("uprobe:" + probed + ":probed_wrok").error().sentence, HasSubstr("did you mean probed_work?"));
  EXPECT_THAT(points("usdt:" RINGSIDE_BUILD_DIR "/tests/walker_O2:a:b").error().sentence, HasSubstr("no USDT probes at all"));
}

}  // namespace
}  // namespace ringside::probes_test
