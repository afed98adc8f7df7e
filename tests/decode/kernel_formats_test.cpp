// Every format of this machine's kernel decodes.
#include <event-parse.h>
#include <gtest/gtest.h>
#include <trace-seq.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::kernel_formats_test {
namespace {

std::string printed(const Formats& formats, const EventType& type, Bytes payload) {
  fmt::memory_buffer out;
  formats.print(type, payload, out);
  return {out.data(), out.size()};
}

TEST(KernelFormats, EachFormatOfThisMachineParsesAndPrintsAnyBytes) {
  auto events = kernel_events();
  if (!events) GTEST_SKIP() << events.error().sentence;
  std::vector<EventInfo> all = kernel_internal_events();
  for (const KernelEvent& event : *events) all.push_back(must(kernel_event(event)));
  Formats formats;
  u64 by_steps = 0, by_fields = 0;
  std::mt19937_64 random(1);
  for (const EventInfo& e : all) {
    ASSERT_TRUE(test::add(formats, e.number(), e.system, e.name, e.format)) << e.system << ":" << e.name << "\n" << e.format;
    const EventType& type = *formats.find(e.number());
    EXPECT_TRUE(type.has_tid() || e.system == "ftrace") << type.full;
    const bool has_fields = e.format.find("\n\n\tfield:") != std::string::npos;
    EXPECT_EQ(has_fields, !type.fields().empty()) << e.format;
    size_t size = 8;
    for (const Field& f : type.fields()) size = std::max<size_t>(size, f.offset + f.size);
    for (int round = 0; round < 8; ++round) {
      std::vector<u64> bytes((size + 64) / 8);
      if (round != 0)
        for (u64& word : bytes) word = round == 1 ? ~u64{0} : random();
      for (const Field& f : type.fields()) {  // located within the event
        if (round % 2 != 0 || (f.kind != FieldKind::loc_array && f.kind != FieldKind::loc_text)) continue;
        const u64 at = random() % 32, length = random() % (33 - at);
        const u32 located = static_cast<u32>((f.relative ? size - f.offset - 4 + at : size + at) | length << 16);
        std::memcpy(reinterpret_cast<u8*>(bytes.data()) + f.offset, &located, sizeof located);
      }
      const std::string line = printed(formats, type, {reinterpret_cast<const u8*>(bytes.data()), size + 32});
      EXPECT_EQ(line.find('\n'), std::string::npos) << type.full;
      printed(formats, type, {reinterpret_cast<const u8*>(bytes.data()), size / 2});
    }
    ++(type.format().by_fields ? by_fields : by_steps);
  }
  EXPECT_EQ(by_fields, 0u);
  for (const FailedFormat& failed : formats.take_failed()) ADD_FAILURE() << failed.sentence;
  std::printf("%zu events\n", all.size());
}

struct TepFree {
  void operator()(tep_handle* tep) const { tep_free(tep); }
};

template <class Is>
bool any_step(const std::vector<PrintStep>& steps, const Is& is) {
  return std::any_of(steps.begin(), steps.end(), [&](const PrintStep& step) {
    return is(step) || any_step(step.then, is) || any_step(step.otherwise, is);
  });
}

// libtraceevent knows no types of C (no signs, no 32 bits) and groups operators from the right; it divides by zero, reads
// beyond the payload, and knows no %c, no %*pb and no width of %p. A compiler judges those (print_fmt_judge_test.cpp).
bool is_beyond_libtraceevent(const PrintStep& step) {
  using Kind = PrintStep::Kind;
  using Op = ValueOp::Op;
  const auto code_has = [&](auto is) { return std::any_of(step.code.begin(), step.code.end(), is); };
  const bool names = step.kind == Kind::flags || step.kind == Kind::symbol;
  if (names && !step.form.is_plain()) return true;  // it gives the width to each name, and none to a number
  if (names && std::any_of(step.names.begin(), step.names.end(), [](const auto& name) { return name.first < 0; })) return true;
  if ((step.kind == Kind::bytes || step.kind == Kind::list) &&
      code_has([](const ValueOp& op) { return op.op != Op::constant && op.op != Op::length; }))
    return true;
  return step.kind == Kind::character || (step.kind == Kind::memory && step.text[0] == 'b') ||
         code_has([](const ValueOp& op) { return op.op != Op::constant && op.op != Op::field && op.op != Op::length; });
}

// Compiled steps print the same as libtraceevent, whose output trace-cmd shows.
TEST(KernelFormats, StepsPrintWhatLibtraceeventPrints) {
  auto events = kernel_events();
  if (!events) GTEST_SKIP() << events.error().sentence;
  std::mt19937_64 random(7);
  u64 compared = 0, different = 0;
  for (const KernelEvent& event : *events) {
    const EventInfo e = must(kernel_event(event));
    Formats formats;
    ASSERT_TRUE(test::add(formats, e.id, e.system, e.name, e.format));
    const EventType& type = *formats.find(e.id);
    if (e.name == "bprint") continue;
    if (any_step(type.format().steps, is_beyond_libtraceevent)) continue;
    const bool stars = any_step(type.format().steps,
                                [](const PrintStep& step) { return !step.star_width.empty() || !step.star_precision.empty(); });
    const bool sockets = any_step(
        type.format().steps, [](const PrintStep& step) { return step.kind == PrintStep::Kind::memory && step.text[1] == 'S'; });
    const std::unique_ptr<tep_handle, TepFree> tep(tep_alloc());
    tep_set_loglevel(TEP_LOG_NONE);
    tep_set_long_size(tep.get(), 8);
    ASSERT_EQ(tep_parse_event(tep.get(), e.format.data(), e.format.size(), e.system.c_str()), 0);
    u32 size = 8;
    for (const Field& f : type.fields()) size = std::max(size, f.offset + f.size);
    const std::string_view print = std::string_view(e.format).substr(e.format.find("print fmt"));
    const char* const names[] = {
        "jiffies", "APICV_INHIBIT_REASON_", "(1 << VMSCAN_THROTTLE_", "XEN_MC_FL_", "PARAVIRT_LAZY_", "XEN_LAZY_", "{ true,"};
    const bool uses_name_of_kernel =
        std::any_of(std::begin(names), std::end(names), [&](const char* name) { return print.find(name) != print.npos; });
    bool same = true;
    for (int round = 0; round < 20 && same; ++round) {
      std::vector<u8> payload(size + 64 + 4096);
      std::memcpy(payload.data(), &e.id, 2);
      for (const Field& f : type.fields()) {
        u8* const at = payload.data() + f.offset;
        if (f.kind == FieldKind::loc_text || f.kind == FieldKind::loc_array) {
          const u32 length = f.kind == FieldKind::loc_text ? 8 : static_cast<u32>(random() % 5) * 8;
          const u32 word = ((f.relative ? size - f.offset - 4 : size) + static_cast<u32>(random() % 4) * 8) | length << 16;
          std::memcpy(at, &word, 4);
          continue;
        }
        const u64 shape = stars ? 0 : random() % 4;  // a negative * is no argument there
        for (u32 i = 0; i < f.size; ++i)
          at[i] = static_cast<u8>(f.kind == FieldKind::text ? (i + 1 < f.size && i < 9 ? 'a' + random() % 26 : 0)
                                  : shape == 0              ? (i == 0 ? random() % 8 + 1 : 0)
                                  : shape == 1              ? 1 << random() % 8
                                  : shape == 2              ? 0xFF
                                                            : random());
        for (u32 i = f.element != 0 ? f.element : f.size; f.is_signed && i <= f.size; i += f.element != 0 ? f.element : f.size)
          at[i - 1] &= 0x7F;
      }
      for (u32 i = 0; i < 64; ++i) payload[size + i] = i % 8 == 7 ? 0 : static_cast<u8>('A' + i % 26);
      if (sockets) payload[size] = round % 2 == 0 ? 2 : 10, payload[size + 1] = 0;  // AF_INET, AF_INET6
      tep_record record{};
      record.size = static_cast<int>(size + 64);
      record.data = payload.data();
      trace_seq seq;
      trace_seq_init(&seq);
      tep_print_event(tep.get(), &seq, &record, "%s", TEP_PRINT_INFO);
      trace_seq_terminate(&seq);
      std::string theirs = seq.buffer;
      std::replace_if(
          theirs.begin(), theirs.end(), [](char c) { return static_cast<u8>(c) < 0x20; }, ' ');
      trace_seq_destroy(&seq);
      std::string ours = printed(formats, type, {payload.data(), size + 64});
      for (std::string* const line : {&theirs, &ours})
        line->erase(line->find_last_not_of(' ') + 1);  // a print fmt may end with \n
      // It gives up a line at a part that it does not know, knows no * of %ph and takes a name of the kernel's for 0.
      if (theirs.find("[FAILED TO PARSE]") != std::string::npos || uses_name_of_kernel) continue;
      if (theirs.find("ARG TYPE NOT FIELD BUT") != std::string::npos) continue;
      same = ours == theirs;
      ++compared;
      if (!same && ++different <= 40)
        ADD_FAILURE() << type.full << "\n" << ours << "\n" << theirs << "\n" << e.format.substr(e.format.find("print fmt"));
    }
  }
  EXPECT_GT(compared, 10000u);
  EXPECT_EQ(different, 0u);
}

TEST(KernelFormats, FormatsMayLackCommonPid) {
  Formats formats;
  ASSERT_TRUE(test::add(formats, 7, "hypervisor", "hyp_enter",
                        "name: hyp_enter\nID: 7\nformat:\n"
                        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
                        "\tfield:u64 vcpu;\toffset:8;\tsize:8;\tsigned:0;\n\n"
                        "print fmt: \"vcpu=%llu\", REC->vcpu\n"));
  const EventType& type = *formats.find(7);
  EXPECT_FALSE(type.has_tid());
  ASSERT_EQ(type.fields().size(), 1u);
  const u64 bytes[2] = {7, 42};
  EXPECT_EQ(printed(formats, type, {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "vcpu=42");
}

// Where libtraceevent knows no signs, the line must be the kernel's.
TEST(KernelFormats, ComputedValues) {
  Formats formats;
  const auto print = [&](const std::string& print_fmt, i32 a, i64 b) {
    EXPECT_TRUE(test::add(formats, 11, "s", "calc",
                          "name: calc\nID: 11\nformat:\n"
                          "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                          "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
                          "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n"
                          "\tfield:u32 pad;\toffset:12;\tsize:4;\tsigned:0;\n"
                          "\tfield:s64 b;\toffset:16;\tsize:8;\tsigned:1;\n"
                          "\tfield:u64 c;\toffset:24;\tsize:8;\tsigned:0;\n\n"
                          "print fmt: " +
                              print_fmt + "\n"));
    const EventType& type = *formats.find(11);
    EXPECT_FALSE(type.format().by_fields) << print_fmt;
    u64 bytes[4] = {11, static_cast<u32>(a), static_cast<u64>(b), static_cast<u64>(b)};
    return printed(formats, type, {reinterpret_cast<const u8*>(bytes), sizeof bytes});
  };
  EXPECT_EQ(print("\"%s\", REC->a < 0 ? \"early\" : \"late\"", -1, 0), "early");
  EXPECT_EQ(print("\"%s\", REC->a < 0 ? \"early\" : \"late\"", 1, 0), "late");
  EXPECT_EQ(print("\"%s\", REC->c > 5 ? \"more\" : \"less\"", 1, -1), "more");  // unsigned
  EXPECT_EQ(print("\"%d:%d\", ((unsigned int) ((REC->a) >> 20)), ((unsigned int) ((REC->a) & ((1U << 20) - 1)))", 0x800003, 0),
            "8:3");
  EXPECT_EQ(print("\"%lld\", REC->b / REC->a", 0, 100), "0");
  EXPECT_EQ(print("\"%lld\", REC->b / REC->a", -1, INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(print("\"%d\", (s8)REC->a", 0x1FF, 0), "-1");
  EXPECT_EQ(print("\"%d\", (u8)REC->a", 0x1FF, 0), "255");
  EXPECT_EQ(print("\"[%5d] [%-5d] [%05d] [%#x] [%08llx]\", REC->a, REC->a, REC->a, REC->a, REC->b", -42, 0xBEEF),
            "[  -42] [-42  ] [-0042] [0xffffffd6] [0000beef]");
  EXPECT_EQ(print("\"%s\", (REC->a) ? __print_flags(REC->a, \"|\", {1, \"A\"}, {2, \"B\"}) : \"none\"", 0, 0), "none");
  EXPECT_EQ(print("\"%s\", (REC->a) ? __print_flags(REC->a & 3, \"|\", {1, \"A\"}, {2, \"B\"}) : \"none\"", 7, 0), "A|B");
  EXPECT_EQ(print("\"%s\", __print_symbolic(REC->a + 1, {8, \"eight\"})", 7, 0), "eight");
  // The machine's stack is deep enough.
  std::string deep = "REC->a";
  for (int i = 0; i < 40; ++i) deep = "(1 + " + deep + ")";
  formats.add(12, "s", "deep",
              "name: deep\nID: 12\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
              "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", " +
                  deep + "\n");
  const u64 bytes[2] = {12, 2};
  EXPECT_EQ(printed(formats, *formats.find(12), {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "42");
}

TEST(KernelFormats, AnUnknownCallCostsItsArgumentAlone) {
  Formats formats;
  ASSERT_TRUE(test::add(formats, 8, "s", "odd",
                        "name: odd\nID: 8\nformat:\n"
                        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
                        "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n"
                        "\tfield:unsigned int b;\toffset:12;\tsize:4;\tsigned:0;\n\n"
                        "print fmt: \"%d %s %u\", REC->a, some_function_of_the_kernel(REC->a + 3, REC->b, \"x\"), REC->b\n"));
  const u32 bytes[4] = {8, 1, ~u32{0}, 9};
  EXPECT_EQ(printed(formats, *formats.find(8), {reinterpret_cast<const u8*>(bytes), sizeof bytes}),
            "-1 some_function_of_the_kernel(2, 9, \"x\") 9");
}

TEST(KernelFormats, AddressesGetNames) {
  Formats formats;
  formats.symbols().load(
      "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 T do_work\nffffffffc0000000 t probe\t[e1000]\n"
      "ffffffffb0000000 t reset\t[igb]\n");
  ASSERT_TRUE(test::add(formats, 9, "s", "call",
                        "name: call\nID: 9\nformat:\n"
                        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
                        "\tfield:void * f;\toffset:8;\tsize:8;\tsigned:0;\n\n"
                        "print fmt: \"f=%ps\", REC->f\n"));
  const u64 bytes[2] = {9, 0xffffffff81000104};
  EXPECT_EQ(printed(formats, *formats.find(9), {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "f=do_work");
  EXPECT_EQ(formats.symbols().find(0xffffffffc0000010)->module, "e1000");
  EXPECT_EQ(formats.symbols().find(0xffffffffb0000010)->module, "igb") << "modules come in no order";
  EXPECT_EQ(formats.symbols().find(0xffffffff81000010)->name, "_text");
  EXPECT_EQ(formats.symbols().find_first(0xffffffff81000010)->name, "_stext");
  EXPECT_EQ(formats.symbols().find(1), nullptr);
  Symbols with_offsets;  // Linux 6.1 on x86-64
  with_offsets.load("0000000000000000 A __per_cpu_start\n0000000000036000 A __per_cpu_end\nffffffff81000100 T do_work\n");
  EXPECT_EQ(with_offsets.find(0x560e2bc2c928), nullptr) << "a program's address";
  EXPECT_EQ(with_offsets.find(0xffffffff81000100)->name, "do_work");
  Symbols hidden;
  hidden.load("0000000000000000 T _text\n");
  EXPECT_TRUE(hidden.empty());
}

const char* const text_by_address =
    "name: rcu_utilization\nID: 10\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:const char * s;\toffset:8;\tsize:8;\tsigned:0;\n\n"
    "print fmt: \"%s\", REC->s\n";

TEST(KernelFormats, EventsMayPointToTextsOfTheKernel) {
  Formats formats;
  formats.add_strings("0xffffffff82819abc : \"Start context switch\"\nnonsense\n");
  ASSERT_TRUE(test::add(formats, 10, "rcu", "rcu_utilization", text_by_address));
  const u64 bytes[2] = {10, 0xffffffff82819abc};
  EXPECT_EQ(printed(formats, *formats.find(10), {reinterpret_cast<const u8*>(bytes), sizeof bytes}), "Start context switch");
}

// A kernel lists texts of two characters ("NQ", "CB").
TEST(KernelFormats, TextsOfTheKernelMayBeShort) {
  Formats formats;
  formats.add_strings(
      "0xffffffff82819ab0 : \"\"\n0xffffffff82819ab4 : \"N\"\n0xffffffff82819ab8 : \"NQ\"\n0xffffffff82819abc : \"End\"\n");
  ASSERT_TRUE(test::add(formats, 10, "rcu", "rcu_utilization", text_by_address));
  const u64 text[2] = {10, 0xffffffff82819abc}, short_text[2] = {10, 0xffffffff82819ab8};
  EXPECT_EQ(printed(formats, *formats.find(10), {reinterpret_cast<const u8*>(text), sizeof text}), "End");
  EXPECT_EQ(printed(formats, *formats.find(10), {reinterpret_cast<const u8*>(short_text), sizeof short_text}), "NQ");
}

}  // namespace
}  // namespace ringside::kernel_formats_test
