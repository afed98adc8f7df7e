// Commands under limits: few descriptors, little memory, a full disk, files that may not grow. The traced command goes on;
// losses are reported, and "none" only where that is known.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include "binary.hpp"
#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/json.hpp"

namespace ringside::limits_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

struct Limits : test::BinaryTest {
  void TearDown() override {
    umount2((dir + "/disk").c_str(), MNT_DETACH);
    test::BinaryTest::TearDown();
  }
  // A small file system in `disk`.
  bool disk(const std::string& size) const {
    const std::string at = dir + "/disk";
    umount2(at.c_str(), MNT_DETACH);
    fs::create_directories(at);
    return mount("none", at.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  // With the instances in memory, their usual place.
  struct InMemory {
    InMemory() : at("/dev/shm/ringside-limits-" + std::to_string(getpid())) { fs::create_directories(at); }
    ~InMemory() { fs::remove_all(at); }
    std::string at;
  };
  Outcome limited(const std::string& limits, const std::string& arguments) const {
    return run("prlimit " + limits + " " RINGSIDE_BUILD_DIR "/ringside " + arguments);
  }
  json meta(const std::string& where) const { return json::parse(test::slurp(dir + "/" + where + "/meta.json")); }
  // All written events are recorded, or reported as missing.
  static void books(const json& meta) {
    u64 events = 0, gaps = 0;
    for (const json& ring : meta.at("rings")) {
      events += ring.at("events").get<u64>();
      gaps += ring.at("lost").get<u64>();
    }
    EXPECT_EQ(events + gaps + meta.at("account").at("unrecorded").get<u64>(), meta.at("totals").at("written").get<u64>());
  }
};

const char* const writer = " sh -c 'dd if=/dev/zero of=/dev/null bs=1 count=100000 2> /dev/null; echo done > mark; exit ";

TEST_F(Limits, TenThousandRingsWith256Descriptors) {
  const InMemory memory;
  const std::string root = "RINGSIDE_ROOT=" + memory.at + " ", tool = root + RINGSIDE_BUILD_DIR "/ringside ",
                    few = root + "prlimit --nofile=256:256 " RINGSIDE_BUILD_DIR "/ringside ";
  ASSERT_EQ(run(tool + "record -q -i crowd --rings thread -b 8k --subbuf-size 4k -o none -- true").code, 0);
  ASSERT_EQ(run(root + "RINGSIDE_INSTANCE=crowd " RINGSIDE_BUILD_DIR "/tests/many_threads 10000 2").code, 0);
  ASSERT_EQ(json::parse(run(tool + "stat crowd --json").out).at("rings").size(), 10000u);
  Outcome o = run(few + "report crowd | wc -l");
  EXPECT_EQ(o.out, "20000\n") << o.err;
  o = run(few + "top crowd --once");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("20,000 events, none lost: the numbers are exact"), std::string::npos) << o.out;
  // Some of them cannot be mapped.
  o = run(root + "prlimit --as=250000000 " RINGSIDE_BUILD_DIR "/ringside top crowd --once");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("not enough memory: raise ulimit -v"), std::string::npos) << o.err.substr(0, 2000);
  EXPECT_EQ(o.out.find("exact"), std::string::npos) << o.out;
  o = run(few + "record -i crowd -o r --duration 10ms");
  EXPECT_EQ(o.code, 0) << o.err.substr(0, 2000);
  EXPECT_NE(o.err.find("20,000 events"), std::string::npos) << o.err.substr(0, 2000);
  EXPECT_NE(o.err.find("from 10,000 rings; lost 0;"), std::string::npos) << o.err.substr(0, 2000);
  o = run(few + "report r | wc -l");
  EXPECT_EQ(o.out, "20000\n") << o.err;
  EXPECT_EQ(run(few + "export r --to t.dat").code, 0);
  EXPECT_EQ(run(few + "report t.dat | wc -l").out, "20000\n");
}

// Wherever memory runs out, there is an answer, never an end by a signal.
TEST_F(Limits, AnyAmountOfMemory) {
  ASSERT_EQ(ringside("record -q -i many --rings thread -o none -- true").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=many " RINGSIDE_BUILD_DIR "/tests/many_threads 300 2000").code, 0);
  for (u64 megabytes = 60; megabytes <= 120; megabytes += 2) {
    const Outcome o = limited("--as=" + std::to_string(megabytes * 1'000'000), "record -i many -o r --duration 10ms");
    EXPECT_LE(o.code, 1) << megabytes << ": " << o.err.substr(0, 500);
    EXPECT_NE(o.err, "");
  }
}

TEST_F(Limits, ACommandWith64Descriptors) {
  const Outcome o =
      limited("--nofile=64:64", "record --rings thread -b 64k -o r -- " RINGSIDE_BUILD_DIR "/tests/many_threads 300 10");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("3,000 events"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("; lost 0;"), std::string::npos) << o.err;
  // The command has the original limit, not the recorder's.
  ASSERT_EQ(run("ulimit -S -n 100; " RINGSIDE_BUILD_DIR "/ringside record -q -o r -- sh -c 'ulimit -n'").out, "100\n");
}

TEST_F(Limits, AnUnreadableRingIsReported) {
  ASSERT_EQ(ringside("record -q -i web --rings thread -o none -- true").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/tests/many_threads 3 2").code, 0);
  ASSERT_EQ(truncate((dir + "/root/web/per_cpu/cpu1/ring").c_str(), 100), 0);
  for (const char* command : {"report web", "top web --once", "hist n web --once", "watch web --batch --once", "stat web",
                              "record -i web -o r --duration 10ms"}) {
    const Outcome o = ringside(command);
    EXPECT_EQ(o.code, 1) << command << "\n" << o.out << o.err;
    EXPECT_NE(o.err.find("ring 1: its control file is missing, cut or damaged"), std::string::npos) << command << "\n" << o.err;
    EXPECT_EQ(o.out.find("exact"), std::string::npos) << command << "\n" << o.out;
    EXPECT_EQ((o.out + o.err).find("lost 0"), std::string::npos) << command << "\n" << o.err;
  }
  // The recording stores it.
  const Outcome o = ringside("top r");
  EXPECT_NE(o.out.find("4 events, perhaps some lost"), std::string::npos) << o.out << o.err;
}

// One file that is gone takes its own events away, and no others.
TEST_F(Limits, AnUnreadableFileOfARecordingIsReported) {
  ASSERT_EQ(ringside("record -q -i web --rings thread -o none -- true").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/tests/many_threads 3 2").code, 0);
  ASSERT_EQ(ringside("record -q -i web -o r --duration 10ms").code, 0);
  const json rings = meta("r").at("rings");
  ASSERT_EQ(rings.size(), 3u);
  fs::remove(dir + "/r/ring1.raw");
  for (const char* command : {"report r", "report --json r", "top r", "hist n r", "watch r --batch --once",
                              "export r --to r.csv", "export r --to r.dat"}) {
    const Outcome o = ringside(command);
    EXPECT_EQ(o.code, 1) << command << "\n" << o.out << o.err;
    EXPECT_NE(o.err.find("ring1.raw: No such file or directory; its events are missing: 2"), std::string::npos)
        << command << "\n"
        << o.err;
    EXPECT_EQ(o.out.find("exact"), std::string::npos) << command << "\n" << o.out;
  }
  EXPECT_EQ(run("wc -l < r.csv").out, "6\n") << "a header, the events of the others, and the row of what is missing";
  const std::string missing = run("tail -n 1 r.csv").out;
  EXPECT_NE(missing.find(",,,,,,,,0,"), std::string::npos) << missing;
  EXPECT_NE(missing.find("ring1.raw: No such file or directory; its events are missing: 2"), std::string::npos) << missing;
  EXPECT_EQ(run(RINGSIDE_BUILD_DIR "/ringside report r.dat | wc -l").out, "4\n");
  for (const char* other : {"ring0.raw", "ring2.raw"}) fs::remove(dir + "/r/" + other);
  const Outcome none = ringside("report r");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("cannot open"), std::string::npos) << none.err;
}

// Events that a full ring refused have no position in a recording.
TEST_F(Limits, RefusedEventsAreMissing) {
  ASSERT_EQ(ringside("record -q -i full --rings thread --mode discard -b 8k --subbuf-size 4k -o none -- true").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=full " RINGSIDE_BUILD_DIR "/tests/many_threads 1 10000").code, 0);
  const u64 dropped = json::parse(ringside("stat full --json").out).at("total").at("dropped");
  ASSERT_GT(dropped, 0u);
  EXPECT_EQ(json::parse(ringside("top full --once --json").out).at("lost"), dropped);
  ASSERT_EQ(ringside("record -q -i full -o r --duration 10ms").code, 0);
  EXPECT_EQ(json::parse(ringside("top r --json").out).at("lost"), dropped);
  EXPECT_EQ(ringside("report r --fail-on-loss").code, 3);
}

TEST_F(Limits, AFullDiskEndsTheRecordingAndNotTheCommand) {
  if (!disk("512k")) GTEST_SKIP() << "cannot mount a tmpfs: it takes root";
  for (const int code : {0, 7}) {
    run("rm -rf mark disk/r");
    const Outcome o = ringside("record --libc io -o disk/r --" + std::string(writer) + std::to_string(code) + "'");
    EXPECT_EQ(o.code, code == 0 ? 1 : code) << o.err;
    EXPECT_TRUE(fs::exists(dir + "/mark")) << o.err;
    EXPECT_NE(o.err.find("cannot write to disk/r/ring"), std::string::npos) << o.err;
    EXPECT_NE(
        o.err.find(
            "No space left on device; make room there, or choose another place; the recording ends here, the command goes on"),
        std::string::npos)
        << o.err;
    EXPECT_NE(o.err.find(" or more (not recorded); disk/r"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("could no longer be recorded"), std::string::npos) << o.err;
    books(meta("disk/r"));
    const Outcome report = ringside("report disk/r | grep -c ' read: '");
    EXPECT_GT(std::stoi(report.out), 1000) << report.err;
    EXPECT_NE(report.err.find("or more events were lost"), std::string::npos) << report.err;
    EXPECT_EQ(report.err.find("malformed"), std::string::npos) << report.err;
    EXPECT_FALSE(fs::exists(dir + "/disk/r/meta.json.new"));
  }
}

TEST_F(Limits, ADiskThatIsFullFromTheBeginning) {
  if (!disk("8k")) GTEST_SKIP() << "cannot mount a tmpfs: it takes root";
  for (const char* to : {"-o disk/r", "--to disk/t.dat"}) {
    const Outcome o = ringside("record --libc io " + std::string(to) + " --" + writer + "0'");
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(o.err.find("cannot keep room for disk/"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("make room there"), std::string::npos) << o.err;
    EXPECT_FALSE(fs::exists(dir + "/mark"));  // no file was started
  }
  ASSERT_EQ(mount("none", (dir + "/disk").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=8k"), 0);
  const Outcome o = ringside("record --libc io -o disk/s -- true");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("that file system is read-only"), std::string::npos) << o.err;
}

TEST_F(Limits, ATraceDatThatFindsNoRoomStaysInParts) {
  if (!disk("1M")) GTEST_SKIP() << "cannot mount a tmpfs: it takes root";
  const Outcome o = ringside("record --libc io --to disk/t.dat -- dd if=/dev/zero of=/dev/null bs=1 count=10000");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.err.find("No space left on device; make room there"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("ringside export disk/t.dat.parts --to FILE"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("report disk/t.dat.parts | grep -c ' read: '").code, 0);
}

TEST_F(Limits, AFileThatMayNotGrow) {
  ASSERT_EQ(ringside("record -q -i web --libc io -o none -- true").code, 0);
  const Outcome o = limited("--fsize=262144", "record -i web --libc io -o r --" + std::string(writer) + "7'");
  EXPECT_EQ(o.code, 7) << o.err;
  EXPECT_TRUE(fs::exists(dir + "/mark")) << o.err;
  EXPECT_NE(o.err.find("File too large; files may not grow beyond ulimit -f, raise it"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find(" or more (not recorded); r"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("report r").code, 0);
  // The command's own writes do not concern the recorder.
  EXPECT_EQ(limited("--fsize=262144", "record -q -i web -o s -- sh -c 'head -c 300000 /dev/zero > mark'").code, 128 + SIGXFSZ);
}

TEST_F(Limits, AFullDiskAndTheKernelsEvents) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  if (!disk("1M")) GTEST_SKIP() << "cannot mount a tmpfs: it takes root";
  // The command ends when this is said; how soon the recorder looks does not matter.
  const Outcome o = ringside(
      "record -e syscalls:sys_enter_read -o disk/r -- sh -c 'dd if=/dev/zero of=/dev/null bs=1 count=100000 2>/dev/null; "
      "for n in $(seq 1000); do grep -q \"goes on\" said && break; sleep 0.02; done; touch mark' 2>said; C=$?; cat said >&2; "
      "exit $C");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_TRUE(fs::exists(dir + "/mark")) << o.err;
  EXPECT_NE(o.err.find("; the recording ends here, the command goes on"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find(" or more (not recorded); disk/r"), std::string::npos) << o.err;
  books(meta("disk/r"));
  EXPECT_EQ(ringside("report disk/r > /dev/null").code, 0);
}

TEST_F(Limits, AFullStdoutIsReported) {
  ASSERT_EQ(ringside("record -q --libc io -o r -- dd if=/dev/zero of=/dev/null bs=1 count=10").code, 0);
  for (const char* command : {"report r", "top r", "hist event r", "plot r -o -"}) {
    const Outcome o = ringside(std::string(command) + " > /dev/full");
    EXPECT_EQ(o.code, 1) << command;
    EXPECT_NE(o.err.find("cannot write to standard output: No space left on device"), std::string::npos) << command << o.err;
  }
}

}  // namespace
}  // namespace ringside::limits_test
