// The numbers of a trace are those of the machine that it was recorded on.
#include "source/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "analysis/column.hpp"
#include "analysis/filter.hpp"
#include "consumer/reading.hpp"
#include "decode/syscalls.hpp"
#include "export/json.hpp"
#include "export/recording_as_dat.hpp"
#include "foreign_dat.hpp"
#include "source/recording.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/json.hpp"
#include "sys/sys.hpp"

namespace ringside::world_test {
namespace {

namespace fs = std::filesystem;
using test::ForeignDat;
using A = Architecture;

struct Worlds : testing::Test {
  std::string dir = fs::temp_directory_path() / ("ringside-world-" + std::to_string(getpid()));
  void SetUp() override {
    fs::remove_all(dir);
    fs::create_directories(dir);
  }
  void TearDown() override { fs::remove_all(dir); }

  std::string file(const std::string& name, const ForeignDat& dat) const {
    std::ofstream(dir + "/" + name, std::ios::binary) << dat.bytes();
    return dir + "/" + name;
  }
  // The names of its calls, or their numbers.
  static std::vector<std::string> calls(const Trace& opened, Timeline& timeline) {
    std::vector<std::string> found;
    SyscallReader reader;
    TraceRecord record;
    while (timeline.next(record)) {
      const EventType* const type = opened.formats.find(record.number());
      const auto fields = syscall_fields(*type);
      if (fields && fields->returned == nullptr)
        found.push_back(std::string(reader.read(*type, record.payload).call) + "/" +
                        syscall_shown(read_integer(record.payload, *fields->number), type->world.architecture));
    }
    return found;
  }
  static std::vector<std::string> calls(const std::string& where) {
    Trace trace = must(open_traces({where}));
    return calls(trace, trace.timeline);
  }
  // An empty recording whose meta.json says this; its world.
  World recorded(const std::function<void(RecordingMeta&)>& change, const std::string& without = "") const {
    const std::string at = dir + "/recording";
    fs::remove_all(at);
    {
      auto writer = must(RecordingWriter::create(at, ClockInfo{}));
      change(writer.meta());
      must(writer.finish(1));
    }
    if (!without.empty()) {
      auto text = nlohmann::json::parse(must(sys::read_file(at + "/meta.json")));
      text.erase(without);
      std::ofstream(at + "/meta.json") << text;
    }
    return must(RecordingMeta::read(at)).world;
  }
};

TEST(World, MachinesAreKnownByWhatUnameSays) {
  for (const auto& [said, of] : std::initializer_list<std::pair<const char*, A>>{{"x86_64", A::x86_64},
                                                                                 {"i586", A::i386},
                                                                                 {"i686", A::i386},
                                                                                 {"aarch64", A::arm64},
                                                                                 {"aarch64_be", A::arm64},
                                                                                 {"armv7l", A::arm},
                                                                                 {"armv5tejl", A::arm},
                                                                                 {"ppc64le", A::ppc64le},
                                                                                 {"s390x", A::s390x},
                                                                                 {"riscv64", A::riscv64},
                                                                                 {"", A::unknown},
                                                                                 {"alpha", A::unknown},
                                                                                 {"i6x86", A::unknown}})
    EXPECT_EQ(architecture_from(said), of) << said;
  for (u32 i = 0; i < architectures; ++i) EXPECT_EQ(architecture_from(machine_of(static_cast<A>(i))), static_cast<A>(i));
  EXPECT_EQ(World::own(), World::of(World::own().architecture));
}

// As the kernels' own headers have them.
TEST(World, CallsAreNamedByTheArchitectureOfTheirKernel) {
  const std::vector<std::tuple<A, i64, std::string>> known = {
      {A::x86_64, 0, "read"},   {A::x86_64, 63, "uname"},     {A::x86_64, 257, "openat"}, {A::x86_64, 0x40000000, "read"},
      {A::i386, 3, "read"},     {A::i386, 295, "openat"},     {A::arm64, 63, "read"},     {A::arm64, 64, "write"},
      {A::arm64, 98, "futex"},  {A::arm64, 101, "nanosleep"}, {A::arm, 3, "read"},        {A::arm, 322, "openat"},
      {A::riscv64, 63, "read"}, {A::riscv64, 56, "openat"},   {A::ppc64le, 3, "read"},    {A::ppc64le, 286, "openat"},
      {A::s390x, 3, "read"},    {A::s390x, 288, "openat"}};
  for (const auto& [of, number, name] : known) {
    EXPECT_EQ(syscall_name(number, of), name) << machine_of(of) << " " << number;
    EXPECT_EQ(syscall_shown(number, of), name);
    if (number < 0x40000000) {
      EXPECT_EQ(syscall_number(name, of), number) << machine_of(of);
    }
  }
  EXPECT_EQ(syscall_name(63, A::unknown), "");
  EXPECT_EQ(syscall_shown(63, A::unknown), "63");
  EXPECT_EQ(syscall_number("read", A::unknown), std::nullopt);
  EXPECT_EQ(syscall_number("open", A::arm64), std::nullopt);
  EXPECT_EQ(syscall_name(0x40000000, A::arm64), "");
  EXPECT_EQ(syscall_name(-1, A::x86_64), "");
}

TEST_F(Worlds, AFileSaysWhoseItsCallsAre) {
  const std::vector<std::pair<i64, i64>> some = {{63, 10}, {64, 3}, {98, -110}, {101, 0}};
  using Names = std::vector<std::string>;
  EXPECT_EQ(calls(file("arm64", ForeignDat::of_calls("Linux host 6.1.0 aarch64", some))),
            (Names{"read/read", "write/write", "futex/futex", "nanosleep/nanosleep"}));
  EXPECT_EQ(calls(file("x86", ForeignDat::of_calls("Linux host 6.1.0 x86_64", some))),
            (Names{"uname/uname", "semget/semget", "getrusage/getrusage", "ptrace/ptrace"}));
  EXPECT_EQ(calls(file("none", ForeignDat::of_calls("", some))), (Names{"/63", "/64", "/98", "/101"}));
  EXPECT_EQ(calls(file("other", ForeignDat::of_calls("Linux host 6.1.0 alpha", some))), (Names{"/63", "/64", "/98", "/101"}));
  // 32 bits, and the other byte order.
  EXPECT_EQ(calls(file("arm", ForeignDat::of_calls("Linux host 6.1.0 armv7l", {{3, 1}, {322, -2}}, false, 4))),
            (Names{"read/read", "openat/openat"}));
  EXPECT_EQ(calls(file("s390x", ForeignDat::of_calls("Linux host 6.1.0 s390x", {{3, 1}, {288, -2}}, true))),
            (Names{"read/read", "openat/openat"}));
  EXPECT_EQ(calls(file("ppc", ForeignDat::of_calls("Linux host 6.1.0 ppc", {{3, 1}}, true))), (Names{"read/read"}));
  EXPECT_EQ(calls(file("s390", ForeignDat::of_calls("Linux host 6.1.0 s390", {{288, 1}}, true))), (Names{"openat/openat"}));
  // Its recorder ran under setarch, on a kernel of 64 bits.
  EXPECT_EQ(calls(file("setarch", ForeignDat::of_calls("Linux host 6.1.0 i686", {{0, 1}}))), (Names{"read/read"}));
}

TEST_F(Worlds, FilesOfTwoMachinesAreNamedByTheirOwn) {
  const std::string arm = file("arm64", ForeignDat::of_calls("Linux a 6.1.0 aarch64", {{63, 10}})),
                    x86 = file("x86", ForeignDat::of_calls("Linux b 6.1.0 x86_64", {{63, 0}}));
  Trace trace = must(open_traces({arm, x86}));
  EXPECT_THAT(calls(trace, trace.timeline), testing::UnorderedElementsAre("read/read", "uname/uname"));
  const auto matches = [&](const std::string& filter) {
    return Filter::compile(filter, trace.formats, trace.tasks).has_value();
  };
  EXPECT_TRUE(matches("syscall == read"));
  EXPECT_FALSE(matches("syscall == no_such_call"));
  // One number, two calls: no name is right for both.
  auto column = must(Column::compile("syscall", trace.formats, trace.tasks));
  Texts texts;
  EXPECT_EQ(column.show(63, texts), "63");
  Trace alone = must(open_traces({arm}));
  EXPECT_EQ(must(Column::compile("syscall", alone.formats, alone.tasks)).show(63, texts), "read");
}

TEST_F(Worlds, AFilterByNameNeedsAnArchitecture) {
  Trace trace = must(open_traces({file("none", ForeignDat::of_calls("", {{63, 10}}))}));
  const auto filter = Filter::compile("syscall == read", trace.formats, trace.tasks);
  ASSERT_FALSE(filter);
  EXPECT_THAT(filter.error().sentence, testing::HasSubstr("does not say of which architecture"));
  EXPECT_TRUE(Filter::compile("syscall == 63", trace.formats, trace.tasks));
}

TEST_F(Worlds, ARecordingKeepsItsMachine) {
  EXPECT_EQ(recorded([](RecordingMeta&) {}), World::own());
  const World other{A::s390x, true, 8};
  EXPECT_EQ(recorded([&](RecordingMeta& meta) { meta.world = other; }), other);
  EXPECT_EQ(recorded([&](RecordingMeta& meta) { meta.world = {}; }), World{});
  // Older ones do not say it: this boot is of this machine, and an instruction that one architecture has was a clock of it.
  EXPECT_EQ(recorded([](RecordingMeta&) {}, "world"), sys::boot_id().empty() ? World{} : World::own());
  const auto older = [&](ClockKind clock) {
    return recorded(
               [&](RecordingMeta& meta) {
                 meta.boot = "11111111-2222-3333-4444-555555555555";
                 meta.clock.kind = clock;
               },
               "world")
        .architecture;
  };
  EXPECT_EQ(older(ClockKind::tsc), A::x86_64);
  EXPECT_EQ(older(ClockKind::cntvct), A::arm64);
  EXPECT_EQ(older(ClockKind::mono), A::unknown);
}

// A file that was copied here is as new as one that was made here: its uname decides.
TEST_F(Worlds, AFileOfAnotherMachineIsOfNoKnownBoot) {
  const World here = World::own();
  const auto boot = [&](const std::string& uname) {
    return must(open_traces({file("x", ForeignDat::of_calls(uname, {{0, 1}}))})).first().boot;
  };
  const std::string of_here = "Linux " + here.host + " " + here.release + " ", machine(machine_of(here.architecture));
  EXPECT_EQ(boot(of_here + machine), sys::boot_id());
  EXPECT_EQ(boot("Linux other " + here.release + " " + machine), "");
  EXPECT_EQ(boot("Linux " + here.host + " 2.6.32 " + machine), "");
  EXPECT_EQ(boot(of_here + "alpha"), "");
  EXPECT_EQ(boot(""), "");
}

TEST_F(Worlds, AnExportedFileKeepsIt) {
  for (const A architecture : {A::arm64, A::x86_64, A::unknown}) {
    recorded([&](RecordingMeta& meta) { meta.world = World::of(architecture); });
    fs::remove(dir + "/dat");
    must(export_recording(dir + "/recording", dir + "/dat", ""));
    EXPECT_EQ(must(open_trace_dat(dir + "/dat")).world.architecture, architecture);
  }
}

}  // namespace
}  // namespace ringside::world_test
