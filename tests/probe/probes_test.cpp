// Probes: their names on the command line, the notes of ELF files, and arguments in the kernel's words.
#include "probe/probes.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

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

// ---- Arguments.

std::string arguments_of(const char* level) { return std::string(RINGSIDE_BUILD_DIR "/tests/arguments_") + level; }

// What the kernel is to fetch; or the error's sentence.
std::string fetch_at(const std::string& text) {
  std::vector<std::string> notices;
  const auto probe = Probe::parse(text);
  if (!probe) return probe.error().sentence;
  const auto points = points_of(*probe, notices);
  if (!points) return points.error().sentence;
  std::string out;
  for (const ProbePoint& point : *points) out += (out.empty() ? "" : " | ") + point.fetch;
  for (const std::string& notice : notices) out += " (" + notice + ")";
  return out;
}

#if defined(__x86_64__)
TEST(ProbeArguments, AreFetchedWhereTheDebuggingInformationSays) {
  for (const char* level : {"O0", "O2"}) {
    const auto fetch = [&](const std::string& text) { return fetch_at("uprobe:" + arguments_of(level) + ":" + text); };
    EXPECT_EQ(fetch("handle(req, len, text, byte, words, seventh, eighth)"),
              "req=%di:x64 len=%si:u64 text=+0(%dx):string byte=%cx:u8 words=%r8:x64 seventh=%r9:s32 eighth=+8(%sp):s32")
        << level;
    EXPECT_EQ(fetch("handle(req->id, req->path, req->from.name, req->from.port, req->via->port)"),
              "id=+0(%di):s32 path=+0(+8(%di)):string name=+16(%di):string port=+32(%di):u16 req_via_port=+16(+40(%di)):u16");
    EXPECT_EQ(fetch("handle(req->flag, req->kind, req->counts, second=req->counts[1], req->colour, req->ok, req->a)"),
              "flag=+48(%di):b1@0/32 kind=+48(%di):b5@1/32 counts=+56(%di):s64[4] second=+64(%di):s64 colour=+104(%di):u32 "
              "ok=+108(%di):u8 a=+112(%di):s32");
    EXPECT_EQ(fetch("handle(req->whole, req->level:b4@0/32)"), "whole=+560(%di):s32 level=+552(%di):b4@0/32");
    EXPECT_EQ(fetch("handle(words[1]:string, *words:string, *req->next->path, len:x16, req->weight:x64)"),
              "words=+0(+8(%r8)):string words_2=+0(+0(%r8)):string path=+0(+8(+96(%di))):s8 len=%si:x16 weight=+88(%di):x64");
    EXPECT_EQ(fetch("handle(%di, n=$arg2:u32, $arg3:string, $comm, +16(%di):string)"),
              "arg1=%di n=%si:u32 arg3=+0(%dx):string comm=$comm arg5=+16(%di):string");
    EXPECT_EQ(fetch("by_value(p.port, p.name, n)"), "port=+24(%sp):u16 name=+8(%sp):string n=%di:s32");
    EXPECT_EQ(fetch("addressed(x)"), "x=%di:s32");
    EXPECT_EQ(fetch("name_of%return($ret)"), "ret=+0($retval):string");
    EXPECT_EQ(fetch("name_of%return($retval:x64)"), "ret=$retval:x64");
    EXPECT_EQ(fetch("next_of%return($ret->next->id)"), "id=+0(+96($retval)):s32");
    EXPECT_EQ(fetch("large_of%return($ret.words[1])"), "words=+8($retval):s64");
    EXPECT_EQ(fetch("large_of(n)"), "n=%si:s32") << "after the hidden pointer to its result";
    EXPECT_EQ(fetch("handle%return"), "ret=$retval:s64");
    EXPECT_EQ(fetch("handle()"), "");
    EXPECT_THAT(fetch("handle($params)"), testing::MatchesRegex("req=.* eighth=.*leaves out: real is .*")) << level;
  }
}

TEST(ProbeArguments, WhatCannotBeFetchedIsSaidWithTheReason) {
  for (const char* level : {"O0", "O2"}) {
    const std::string file = arguments_of(level);
    const auto says = [&](const std::string& text) { return fetch_at("uprobe:" + file + ":" + text); };
    EXPECT_THAT(says("handle(real)"), HasSubstr("which the kernel cannot fetch"));
    EXPECT_THAT(says("handle(nope)"), HasSubstr("no variable \"nope\" in sight here; there are: req, len, text"));
    EXPECT_THAT(says("handle(req->nope)"), HasSubstr("has no member \"nope\" with a place of its own; it has: id, path"));
    EXPECT_THAT(says("handle(req.id)"), HasSubstr("write req->id"));
    EXPECT_THAT(says("handle(req->from)"), HasSubstr("name a member, req->from.MEMBER; it has: name, port"));
    EXPECT_THAT(says("handle(req->from->name)"), HasSubstr("and no pointer"));
    EXPECT_THAT(says("handle(len.x)"), HasSubstr("has no members"));
    EXPECT_THAT(says("handle(req->weight)"), HasSubstr("its bits: req->weight:x64"));
    EXPECT_THAT(says("handle(req->level)"),
                HasSubstr("a signed bit-field, and the kernel reads bit-fields as unsigned; its bits: req->level:b4@0/32"));
    EXPECT_THAT(says("handle(req->far)"), HasSubstr("its bits: req->far:b40@4/64"));
    EXPECT_THAT(says("handle(req->grid[1])"), HasSubstr("several dimensions"));
    EXPECT_THAT(says("handle(req->many)"), HasSubstr("1 to 64 elements"));
    EXPECT_THAT(says("handle(req->hidden->x)"), HasSubstr("defined in another file"));
    EXPECT_THAT(says("handle(req->counts[9999999999999])"), HasSubstr("no such element"));
    EXPECT_THAT(says("handle($ret)"), HasSubstr("FUNCTION%return($ret)"));
    EXPECT_THAT(says("handle%return(len)"), HasSubstr("its variables are gone"));
    EXPECT_THAT(says("addressed%return($ret)"), HasSubstr("returns nothing"));
    EXPECT_THAT(says("half_of%return($ret)"), HasSubstr("a real number"));
    EXPECT_THAT(says("handle(a_name_of_thirty_one_characters_=req->next->next->next->next->id)"), HasSubstr("at most 31"));
    EXPECT_THAT(says("handle(req->next->next->next->next->next->next->next->next->next->next->id)"),
                HasSubstr("at most 63 characters"));
    for (const char* text :
         {"a b", ",", "len,", "len:", "len:a b", "=len", "9=len", "common_x=len", "__x=len", "req->", "req..id", "req[",
          "req[x]", "req[1", "req->counts[99999999999999999999]", "$other", "%di\nq", "x=%di;p", "*"})
      EXPECT_THAT(says("handle(" + std::string(text) + ")"),
                  testing::AnyOf(HasSubstr("arguments are VARIABLE"), HasSubstr("cannot be a field's name"),
                                 HasSubstr("is no probe"), HasSubstr("$other")))
          << text;
  }
  EXPECT_THAT(fetch_at("uprobe:" RINGSIDE_BUILD_DIR "/tests/walker_no_debug:main(argc)"),
              HasSubstr("no debugging information"));
  EXPECT_EQ(fetch_at("uprobe:" RINGSIDE_BUILD_DIR "/tests/walker_no_debug:main($arg1:u32, $arg2)"), "arg1=%di:u32 arg2=%si");
}

// The same words as perf's, but for unsigned integers, which perf shows in hex ("x32").
TEST(ProbeArguments, AreThoseOfPerfProbe) {
  if (std::system("perf --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "perf is not installed";
  u32 compared = 0;
  for (const std::string text :
       {"handle req->id len byte req->from.port req->counts[1] seventh eighth",
        "handle req->via->port req->ok req->a req->flag:x8", "handle req->path:string req->next->path:string text:string words",
        "by_value p.port n", "addressed x", "next_of r->next->id unused", "handle req->from.name:string req->kind",
        "handle req->weight:x64 req->colour"}) {
    const std::string file = arguments_of("O2");
    FILE* const pipe = popen(("perf probe -x " + file + " -D '" + text + "' 2>/dev/null").c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string theirs;
    char buffer[4096];
    while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) theirs.append(buffer, n);
    pclose(pipe);
    std::string asked = text;
    const size_t blank = asked.find(' ');
    asked[blank] = '(';
    for (size_t at = blank; (at = asked.find(' ', at)) != std::string::npos; at += 2) asked.replace(at, 1, ", ");
    std::istringstream mine(fetch_at("uprobe:" + file + ":" + asked + ")")), of_perf(theirs);
    std::string a, b;
    for (int i = 0; i < 2; ++i) of_perf >> b;  // "p:GROUP/NAME FILE:PLACE"
    if (b.empty()) continue;                   // this perf cannot
    while (of_perf >> b) {
      ASSERT_TRUE(mine >> a) << theirs;
      const auto plain = [](std::string one) {
        one = one.substr(one.find('=') + 1);
        if (const size_t colon = one.rfind(':'); one.compare(colon + 1, 1, "u") == 0 || one.compare(colon + 1, 1, "x") == 0)
          one[colon + 1] = '.';
        return one;
      };
      EXPECT_EQ(plain(a), plain(b)) << text;
      ++compared;
    }
    EXPECT_FALSE(mine >> a) << text;
  }
  EXPECT_GT(compared, 15u);
}
#endif

TEST(ProbeArguments, BracketsMayBelongToTheFunctionsName) {
  const auto parsed = [](const std::string& text) {
    const auto probe = Probe::parse("uprobe:/a:" + text);
    return probe ? probe->name + "|" + std::to_string(probe->arguments.size()) + (probe->has_list ? "" : " none")
                 : probe.error().sentence;
  };
  EXPECT_EQ(parsed("ns::X::operator()"), "ns::X::operator()|0 none");
  EXPECT_EQ(parsed("ns::X::operator()(this, n)"), "ns::X::operator()|2");
  EXPECT_EQ(parsed("(anonymous namespace)::f(a)"), "(anonymous namespace)::f|1");
  EXPECT_EQ(parsed("main.(*T).serve(a, b[2].c)"), "main.(*T).serve|2");
  EXPECT_EQ(parsed("f%return($ret)"), "f|1");
  EXPECT_EQ(parsed("f+4(+8(%sp):u32, +0(+8(%di)))"), "f|2");
  EXPECT_EQ(parsed("f)"), "f)|0 none");
  EXPECT_EQ(fetch_at("kprobe:do_sys_openat2(name=filename:ustring, %si, how->flags)"),
            "name=filename:ustring %si flags=how->flags");
}

TEST(ProbeArguments, ProbeableFunctionsHaveTheirParameters) {
  const auto all = probeable(*Probe::parse("uprobe:" + arguments_of("O2") + ":*_of"));
  ASSERT_TRUE(all) << all.error().sentence;
  ASSERT_EQ(all->size(), 4u);
  const auto next = std::find_if(all->begin(), all->end(), [](const auto& f) { return f.probe.ends_with(":next_of"); });
  ASSERT_NE(next, all->end());
  EXPECT_EQ(next->returns, "struct request *");
  ASSERT_EQ(next->parameters.size(), 2u);
  EXPECT_EQ(next->parameters[0].type + next->parameters[0].name, "struct request *r");
  EXPECT_THAT(probeable(*Probe::parse("uprobe:" + arguments_of("O2") + ":hande")).error().sentence, HasSubstr("mean handle?"));
}

// Any byte of the debugging information may be wrong.
TEST(ProbeArguments, ASpoiltFileGivesAnErrorOrAnAnswer) {
  std::ifstream in(arguments_of("O2"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(whole.size(), 10'000u);
  const std::string path = std::filesystem::temp_directory_path() / ("ringside-spoilt-" + std::to_string(getpid()));
  const size_t begin = whole.size() / 4;  // most of the rest is debugging information
  u64 state = 88172645463325252;
  const auto next = [&] { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; };
  u32 answered = 0;
  for (u32 round = 0; round < 300; ++round) {
    std::string spoilt = whole;
    for (u32 i = 0; i < 1 + round % 24; ++i) spoilt[begin + next() % (whole.size() - begin)] = static_cast<char>(next());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << spoilt;
    const auto all = probeable(*Probe::parse("uprobe:" + path + ":*"));
    answered += all && std::any_of(all->begin(), all->end(), [](const auto& f) { return !f.parameters.empty(); });
    EXPECT_FALSE(fetch_at("uprobe:" + path + ":handle(req->next->path, req->from.name, $vars)").empty());
  }
  EXPECT_GT(answered, 50u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ringside::probes_test
