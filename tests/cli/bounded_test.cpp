// record --max-size and --rotate, and instances of other users.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/json.hpp"

namespace ringside::bounded_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;

constexpr const char* busy = "dd if=/dev/zero of=/dev/null bs=1 count=20000";  // 40,000 calls and some
// Calls until there is this file.
std::string until(const std::string& file) {
  return "sh -c 'until [ -e " + file + " ]; do dd if=/dev/zero of=/dev/null bs=1 count=2000; sleep 0.02; done'";
}

struct Bounded : test::BinaryTest {
  json meta(const std::string& recording = "ringside.data") const {
    return json::parse(test::slurp(dir + "/" + recording + "/meta.json"));
  }
  static u64 sum(const json& meta, const char* name, const char* inner = nullptr) {
    u64 all = 0;
    for (const json& ring : meta.at("rings"))
      all += inner == nullptr ? ring.at(name).get<u64>() : ring.value(name, json::object()).value(inner, u64{0});
    return all;
  }
};

TEST_F(Bounded, ARecordingStaysSmallAndEveryEventIsCounted) {
  const Outcome o = ringside(std::string("record --max-size 1M -b 16M --libc io -- ") + busy);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("were recorded and removed again (--max-size)"));
  const json m = meta();
  u64 blocks = 0;
  for (const auto& file : fs::directory_iterator(dir + "/ringside.data")) {
    struct stat st {};
    if (file.path().extension() == ".raw" && stat(file.path().c_str(), &st) == 0)
      blocks += static_cast<u64>(st.st_blocks) * 512;
  }
  EXPECT_LE(blocks, 1u << 20);
  const u64 removed = sum(m, "removed", "events");
  EXPECT_GT(removed, 0u);
  EXPECT_EQ(m.at("totals").at("written").get<u64>(), sum(m, "events") + sum(m, "lost"));
  const auto kept = events();
  EXPECT_EQ(kept.size() + removed, sum(m, "events"));
  EXPECT_EQ(kept.back().value("event", ""), "libc:close");  // the newest are here: dd's last call
  EXPECT_THAT(ringside("top --once").err, HasSubstr("older events went"));
  EXPECT_EQ(json::parse(ringside("stat ringside.data --json").out).at("removed").at("events").get<u64>(), removed);
  // As a trace.dat, too: what is left.
  ASSERT_EQ(ringside("export -o trace.dat").code, 0);
  EXPECT_EQ(events("trace.dat").size(), kept.size());
}

TEST_F(Bounded, CompressedPartsAndWhatContradictsThem) {
  const Outcome o =
      run(RINGSIDE_BUILD_DIR
          "/ringside record --compress --rotate 512k -b 16M --libc io -- sh -c 'until [ -e ringside.data.0001 ]; do " +
          std::string(busy) + "; sleep 0.02; done; exec " + busy + "'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("compressed to"));
  u64 parts = 0, recorded = 0, bytes = 0, packed = 0;
  for (const auto& part : fs::directory_iterator(dir)) {
    const std::string name = part.path().filename().string();
    if (name.rfind("ringside.data", 0) != 0) continue;
    ++parts;
    recorded += sum(meta(name), "events");
    bytes += sum(meta(name), "bytes");
    EXPECT_EQ(meta(name).at("ringside_recording"), 2);
    for (const auto& file : fs::directory_iterator(part)) {
      EXPECT_NE(file.path().extension(), ".raw") << file.path();
      if (file.path().extension() == ".zst") packed += file.file_size();
    }
  }
  EXPECT_GT(parts, 1u);
  EXPECT_LT(packed * 4, bytes);
  EXPECT_EQ(events("ringside.data*").size(), recorded);
  ASSERT_EQ(ringside("export ringside.data.0001 -o trace.dat").code, 0);
  EXPECT_EQ(ringside("report trace.dat | cut -d: -f2-").out, ringside("report ringside.data.0001 | cut -d: -f2-").out);
  EXPECT_THAT(ringside("record --compress --max-size 1M -- true").err, HasSubstr("contradict"));
  EXPECT_EQ(ringside("record --compress --to a.dat -- true").code, 2);
}

// The number of possible CPUs is that of a large machine: its rings cost what is written to them.
TEST_F(Bounded, AMachineWith512Processors) {
  if (geteuid() != 0) GTEST_SKIP() << "wants root, for unshare";
  if (run("unshare -m true").code != 0) GTEST_SKIP() << "unshare does not work here";
  std::ofstream(dir + "/possible") << "0-511\n";
  const struct InMemory {  // thousands of files
    std::string path = "/dev/shm/ringside-large-" + std::to_string(getpid());
    InMemory() { fs::create_directories(path); }
    ~InMemory() { fs::remove_all(path); }
  } root;
  std::ofstream(dir + "/script") << "set -e\nexport RINGSIDE_ROOT=" << root.path
                                 << "\nmount --bind possible /sys/devices/system/cpu/possible\n" RINGSIDE_BUILD_DIR
                                    "/ringside record -i large -b 1M --rings cpu --libc io -- sh -c 'for i in $(seq 60); do "
                                    "cat /etc/hostname & done; wait' > names\n" RINGSIDE_BUILD_DIR
                                    "/ringside stat large --json > stat\n";
  const Outcome o = run("unshare -m sh script");
  if (o.err.find("rings of CPUs are not possible") != std::string::npos) GTEST_SKIP() << o.err;
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("from 512 rings; lost 0"));
  u64 opens = 0;
  for (const json& e : events()) opens += e["event"] == "libc:open" && e["fields"]["path"] == "/etc/hostname";
  EXPECT_EQ(opens, 60u);
  const json stat = json::parse(test::slurp(dir + "/stat"));
  EXPECT_EQ(stat["rings"].size(), 512u);
  EXPECT_TRUE(stat["adds_up"]);
  u64 blocks = 0;
  for (const auto& file : fs::recursive_directory_iterator(root.path)) {
    struct stat st {};
    if (lstat(file.path().c_str(), &st) == 0) blocks += static_cast<u64>(st.st_blocks) * 512;
  }
  EXPECT_LT(blocks, u64{64} << 20);  // of 512 MiB
}

TEST_F(Bounded, ItIsReadableWhileItIsMade) {
  const Outcome o = run(std::string(RINGSIDE_BUILD_DIR "/ringside record -q --max-size 1M -b 16M --libc io -- ") + busy +
                        " & recorder=$!; until [ -e ringside.data/meta.json ]; do sleep 0.01; done; bad=0; "
                        "while kill -0 $recorder; do " RINGSIDE_BUILD_DIR
                        "/ringside report >report 2>errors || { [ $? = 1 ] || bad=1; }; "
                        "grep -v 'did not finish\\|still being recorded\\|went again\\|older events\\|were lost\\|no events' "
                        "errors && bad=1; done "
                        "2>/dev/null; wait $recorder && exit $bad");
  EXPECT_EQ(o.code, 0) << o.err << o.out;
}

TEST_F(Bounded, PartsHoldEveryEventOnce) {
  const Outcome o = ringside("record --rotate 64k --fail-on-loss -b 16M --libc io -- " + until("ringside.data.0002"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::exists(dir + "/ringside.data.0001"));
  u64 written = 0, here = 0;
  for (const auto& part : fs::directory_iterator(dir)) {
    if (part.path().filename().string().rfind("ringside.data", 0) != 0) continue;
    const json m = meta(part.path().filename());
    EXPECT_TRUE(m.at("complete").get<bool>());
    here += sum(m, "events");
    written = std::max(written, m.at("totals").at("written").get<u64>());
  }
  EXPECT_EQ(here, written);
  EXPECT_EQ(events("ringside.data*").size(), here);
}

// An event that was overwritten when a part ended is a gap in the next one.
TEST_F(Bounded, PartsTellEachLossOnce) {
  const Outcome o =
      ringside("record --rotate 64k -b 16k --subbuf-size 4k --libc io -- sh -c 'until [ -e ringside.data.0002 ]; do dd if=/dev/zero "
               "of=/dev/null bs=1 count=50000; done'");
  ASSERT_EQ(o.code, 0) << o.err;
  u64 written = 0, here = 0, told = 0;
  for (const auto& part : fs::directory_iterator(dir)) {
    if (part.path().filename().string().rfind("ringside.data", 0) != 0) continue;
    const json m = meta(part.path().filename());
    here += sum(m, "events");
    written = std::max(written, m.at("totals").at("written").get<u64>());
  }
  for (size_t at = 0; (at = o.err.find("; lost ", at)) != std::string::npos;) {
    u64 lost = 0;
    for (at += 7; std::isdigit(o.err[at]) || o.err[at] == ','; ++at)
      if (o.err[at] != ',') lost = lost * 10 + static_cast<u64>(o.err[at] - '0');
    told += lost;
  }
  EXPECT_GT(written, here);
  EXPECT_EQ(here + told, written) << o.err;
}

TEST_F(Bounded, ThePartsHaveTheKernelsSymbolsOnce) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const Outcome o = ringside("record --rotate 100ms -b 16M --kstack -e raw_syscalls -- " + until("ringside.data.0002"));
  ASSERT_EQ(o.code, 0) << o.err;
  if (!fs::exists(dir + "/ringside.data/kallsyms")) GTEST_SKIP() << "the kernel hides its addresses";
  for (const char* part : {"ringside.data.0001", "ringside.data.0002"}) {
    struct stat its {}, last {};
    ASSERT_EQ(stat((dir + "/" + part + "/kallsyms").c_str(), &its), 0);
    ASSERT_EQ(stat((dir + "/ringside.data/kallsyms").c_str(), &last), 0);
    EXPECT_EQ(its.st_ino, last.st_ino);
    EXPECT_EQ(ringside("report " + std::string(part)).code, 0);
  }
}

TEST_F(Bounded, TheKernelsPartsHoldEveryEventOnce) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const Outcome o = ringside("record --rotate 100ms -b 16M -e raw_syscalls -- " + until("ringside.data.0002"));
  ASSERT_EQ(o.code, 0) << o.err;
  u64 written = 0, here = 0, lost = 0, parts = 0;
  for (const auto& part : fs::directory_iterator(dir)) {
    if (part.path().filename().string().rfind("ringside.data", 0) != 0) continue;
    const json m = meta(part.path().filename());
    ++parts;
    here += sum(m, "events");
    lost += sum(m, "lost");
    written = std::max(written, m.at("totals").at("written").get<u64>());
  }
  EXPECT_GE(parts, 3u);
  EXPECT_EQ(here + lost, written);
}

TEST_F(Bounded, OldPartsGoAndThoseOfEarlierRunsStay) {
  fs::create_directories(dir + "/ringside.data.0007");
  ASSERT_EQ(ringside("record -q --rotate 64k --keep 2 -b 16M --libc io -- " + until("ringside.data.0010")).code, 0);
  EXPECT_TRUE(fs::exists(dir + "/ringside.data.0007"));
  EXPECT_FALSE(fs::exists(dir + "/ringside.data.0008"));
  size_t parts = 0;
  for (const auto& part : fs::directory_iterator(dir))
    parts += part.path().filename().string().rfind("ringside.data.00", 0) == 0 ? 1 : 0;
  EXPECT_EQ(parts, 3u);
}

TEST_F(Bounded, OptionsThatContradictAreRefused) {
  for (const char* options : {"--rotate 3", "--rotate 1k", "--rotate nonsense", "--keep 3", "--max-size 10k",
                              "--rotate 1M --max-size 1M", "--rotate 1M --to x.dat"}) {
    const Outcome o = ringside(std::string("record ") + options + " true");
    EXPECT_EQ(o.code, 2) << options << o.err;
    EXPECT_FALSE(fs::exists(dir + "/ringside.data"));
  }
}

TEST_F(Bounded, RootSeesInstancesOfOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  // The user's own place is not this test's: a name of its own in it, which goes again.
  const std::string as = "setpriv --reuid 65534 --regid 65534 --clear-groups env -u RINGSIDE_ROOT -u XDG_RUNTIME_DIR ",
                    name = "test-" + std::to_string(getpid());
  ASSERT_EQ(run("cp " RINGSIDE_BUILD_DIR "/ringside . && chmod 755 . ringside").code, 0);
  ASSERT_EQ(run("cd / && " + as + dir + "/ringside record -q -i " + name + " -o /dev/shm/" + name + " -- true").code, 0);
  const std::string path = "/dev/shm/ringside-65534/" + name;
  const Outcome all = ringside("list --all"), one = ringside("list -U 65534 --json"), other = ringside("list -U 65533"),
                none = ringside("list -U no-such-user");
  EXPECT_THAT(all.out, HasSubstr(path));
  EXPECT_THAT(one.out, HasSubstr("\"instance\":\"" + path + "\""));
  EXPECT_EQ(other.out.find(path), std::string::npos);
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(ringside("report " + path).code, 0);
  // Plain list, and its name where a path is needed.
  EXPECT_THAT(run("env -u RINGSIDE_ROOT " RINGSIDE_BUILD_DIR "/ringside list").out, HasSubstr(path));
  EXPECT_EQ(ringside("list").out.find(path), std::string::npos);
  for (const char* command :
       {"top ", "report ", "stat ", "crash ", "rm ", "record --duration 1ms -i ", "enable '*' -i ", "trigger 'a == 1' -i "}) {
    const Outcome o = ringside(command + name);
    EXPECT_NE(o.code, 0) << command;
    EXPECT_THAT(o.err, HasSubstr("there is " + path + ": name it by that path")) << command;
    ringside("rm -f " + name);
  }
  const Outcome theirs = run("cd / && " + as + dir + "/ringside list --all");
  EXPECT_EQ(theirs.code, 1);
  EXPECT_THAT(theirs.err, HasSubstr("root sees them"));
  run(as + dir + "/ringside rm -f " + name);
  fs::remove_all("/dev/shm/" + name);
  std::error_code not_empty;
  fs::remove("/dev/shm/ringside-65534", not_empty);
}

}  // namespace
}  // namespace ringside::bounded_cli_test
