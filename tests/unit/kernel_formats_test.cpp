// Every format of this machine's kernel decodes.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "decode/formats.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside {
namespace {

std::string printed(const Formats& formats, const EventType& type, Bytes payload) {
  fmt::memory_buffer out;
  formats.print(type, payload, out);
  return {out.data(), out.size()};
}

TEST(KernelFormats, EachOfThisMachineParsesAndPrintsWhateverTheBytesAre) {
  auto events = kernel_events();
  if (!events) GTEST_SKIP() << events.error().sentence;
  std::vector<EventInfo> all = kernel_internal_events();
  for (const KernelEvent& event : *events) all.push_back(must(kernel_event(event)));
  Formats formats;
  u64 by_steps = 0, by_tep = 0, by_fields = 0;
  std::mt19937_64 random(1);
  for (const EventInfo& e : all) {
    ASSERT_TRUE(formats.add(e.number(), e.system, e.name, e.format)) << e.system << ":" << e.name << "\n" << e.format;
    const EventType& type = *formats.find(e.number());
    EXPECT_TRUE(type.has_tid || e.system == "ftrace") << type.full;
    const bool has_fields = e.format.find("\n\n\tfield:") != std::string::npos;
    EXPECT_EQ(has_fields, !type.fields.empty()) << e.format;
    size_t size = 8;
    for (const Field& f : type.fields) size = std::max<size_t>(size, f.offset + f.size);
    for (int round = 0; round < 4; ++round) {
      std::vector<u64> bytes((size + 64) / 8);
      if (round != 0)
        for (u64& word : bytes) word = round == 1 ? ~u64{0} : random();
      const std::string line = printed(formats, type, {reinterpret_cast<const u8*>(bytes.data()), size + 32});
      EXPECT_EQ(line.find('\n'), std::string::npos) << type.full;
      printed(formats, type, {reinterpret_cast<const u8*>(bytes.data()), size / 2});
    }
    ++(type.tep != nullptr ? by_tep : type.by_fields ? by_fields : by_steps);
  }
  EXPECT_GT(by_steps + by_tep, 20 * by_fields);
  std::printf("%zu events: %lu by steps, %lu by libtraceevent, %lu field by field\n", all.size(), by_steps, by_tep, by_fields);
}

TEST(KernelFormats, WithoutCommonPidAsHypervisorsHaveThem) {
  Formats formats;
  ASSERT_TRUE(formats.add(7, "hypervisor", "hyp_enter",
                          "name: hyp_enter\nID: 7\nformat:\n"
                          "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
                          "\tfield:u64 vcpu;\toffset:8;\tsize:8;\tsigned:0;\n\n"
                          "print fmt: \"vcpu=%llu\", REC->vcpu\n"));
  const EventType& type = *formats.find(7);
  EXPECT_FALSE(type.has_tid);
  ASSERT_EQ(type.fields.size(), 1u);
  const u64 bytes[2] = {7, 42};
  EXPECT_EQ(printed(formats, type, {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "vcpu=42");
}

TEST(KernelFormats, AHelperThatNobodyKnowsLeavesTheFields) {
  Formats formats;
  ASSERT_TRUE(formats.add(8, "s", "odd",
                          "name: odd\nID: 8\nformat:\n"
                          "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                          "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
                          "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n"
                          "\tfield:unsigned int b;\toffset:12;\tsize:4;\tsigned:0;\n\n"
                          "print fmt: \"%s\", some_function_of_the_kernel(REC->a, REC->b)\n"));
  const u32 bytes[4] = {8, 1, ~u32{0}, 9};
  EXPECT_EQ(printed(formats, *formats.find(8), {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "a=-1 b=9");
}

TEST(KernelFormats, AddressesGetNames) {
  Formats formats;
  ASSERT_TRUE(formats.symbols().load("ffffffff81000000 T _text\nffffffff81000100 T do_work\nffffffffc0000000 t probe\t[e1000]\n"));
  ASSERT_TRUE(formats.add(9, "s", "call",
                          "name: call\nID: 9\nformat:\n"
                          "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                          "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
                          "\tfield:void * f;\toffset:8;\tsize:8;\tsigned:0;\n\n"
                          "print fmt: \"f=%ps\", REC->f\n"));
  const u64 bytes[2] = {9, 0xffffffff81000104};
  EXPECT_EQ(printed(formats, *formats.find(9), {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "f=do_work");
  EXPECT_EQ(formats.symbols().find(0xffffffffc0000010)->module, "e1000");
  EXPECT_EQ(formats.symbols().find(1), nullptr);
  EXPECT_FALSE(Symbols().load("0000000000000000 T _text\n"));
}

TEST(KernelFormats, TextsOfTheKernelThatEventsPointTo) {
  Formats formats;
  formats.add_strings("0xffffffff82819abc : \"Start context switch\"\nnonsense\n");
  ASSERT_TRUE(formats.add(10, "rcu", "rcu_utilization",
                          "name: rcu_utilization\nID: 10\nformat:\n"
                          "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                          "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
                          "\tfield:const char * s;\toffset:8;\tsize:8;\tsigned:0;\n\n"
                          "print fmt: \"%s\", REC->s\n"));
  const u64 bytes[2] = {10, 0xffffffff82819abc};
  EXPECT_EQ(printed(formats, *formats.find(10), {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "Start context switch");
}

}  // namespace
}  // namespace ringside
