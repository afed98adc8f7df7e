// record -e usdt:, uprobe: and kprobe:, on the live kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <thread>

#include "binary.hpp"
#include "kernel/probe_group.hpp"
#include "sys/sys.hpp"

namespace ringside::probe_test {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;

std::string definitions() {
  const auto text = sys::read_file(*tracefs_dir() + "/uprobe_events");
  return text ? *text : "";
}

// Nobody may ask for its exit code.
bool runs(pid_t pid) {
  const auto stat = sys::read_file("/proc/" + std::to_string(pid) + "/stat");
  return stat && stat->find(") Z") == std::string::npos;
}

struct Probes : test::BinaryTest {
  std::string probed = dir + "/probed";  // a copy: tests beside this one have definitions of their own

  void SetUp() override {
    const auto root = tracefs_dir();
    if (!root) GTEST_SKIP() << root.error().sentence;
    if (access((*root + "/uprobe_events").c_str(), W_OK) != 0)
      GTEST_SKIP() << "uprobe_events of " << *root << " cannot be written: no root, or a kernel without CONFIG_UPROBE_EVENTS";
    BinaryTest::SetUp();
    std::filesystem::copy_file(RINGSIDE_BUILD_DIR "/tests/probed", probed);
  }
};

TEST_F(Probes, ArgumentsOfAllPlacesAreFields) {
  const Outcome o = ringside("record -e usdt:" + probed + ":probed:* -e sched:sched_process_exit " + probed + " 3");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "5 3\n");  // the semaphore was up
  EXPECT_THAT(o.err, HasSubstr("left out: probed:round arg5"));
  std::vector<json> rounds;
  std::vector<i64> listened, others;
  for (const json& e : events()) {
    const std::string name = e.at("event");
    if (name == "sdt_probed:round") rounds.push_back(e.at("fields"));
    if (name == "sdt_probed:listened") listened.push_back(e.at("fields").at("arg1"));
    if (name == "sdt_probed:listened_1") others.push_back(e.at("fields").at("arg1"));
  }
  ASSERT_EQ(rounds.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const json& f = rounds[static_cast<size_t>(i)];
    EXPECT_EQ(f.at("arg1"), i);
    EXPECT_EQ(f.at("arg2"), 77);
    EXPECT_EQ(f.at("arg3"), -i);
    EXPECT_EQ(f.at("arg4"), 250 + i);
    EXPECT_EQ(f.at("arg6"), -5);
  }
  EXPECT_THAT(listened, testing::ElementsAre(0, 1000, 1, 1000, 2, 1000));
  EXPECT_THAT(others, testing::ElementsAre(0, 0, 1));  // a place with another type
  EXPECT_EQ(definitions().find(probed), std::string::npos);
}

// A path in the root of a process is that of its mount namespace, also where symlinks of that root lead. Here another program
// has it.
TEST_F(Probes, AProgramInAnotherRoot) {
  const Outcome o =
      run("mkdir -p box/there; cp /bin/true box/there/real; unshare -m sh -c 'mount -t tmpfs none box && mkdir box/there && mv "
          "probed box/there/real && ln -s " +
          dir +
          "/box/there/real box/link && touch box/ready && while test -e box/ready; do sleep 0.05; done' & "
          "until test -e /proc/$!/root" +
          dir +
          "/box/ready; do sleep 0.05; kill -0 $! || exit 9; done; "
          "for path in root" +
          dir + "/box/there/real root" + dir +
          "/box/link; do " RINGSIDE_BUILD_DIR
          "/ringside record -o out.${path##*/} -e uprobe:/proc/$!/$path:probed_work -e usdt:/proc/$!/$path:probed:round -- "
          "nsenter -m -t $! " +
          dir + "/box/there/real 3 || exit 8; done; rm /proc/$!/root" + dir + "/box/ready; wait");
  if (o.code == 9) GTEST_SKIP() << "unshare does not work here: " << o.err;
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* const out : {"out.real", "out.link"}) {
    std::map<std::string, u64> counts;
    for (const json& e : events(out)) ++counts[e.at("event")];
    EXPECT_EQ(counts["probe_real:probed_work"], 3u) << out;
    EXPECT_EQ(counts["sdt_probed:round"], 3u) << out;
  }
}

TEST_F(Probes, CallsOfAFunctionAndTheirEnds) {
  const std::string one = "uprobe:" + probed + ":probed_work";
  const Outcome o = ringside("record --kstack -e " + one + " -e " + one + "%return -e " + one + "+0 -e uprobe:" + probed +
                             ":probed::overloaded " + probed + " 4");
  ASSERT_EQ(o.code, 0) << o.err;
  std::map<std::string, u64> counts;
  std::vector<i64> ret;
  for (const json& e : events()) {
    ++counts[e.at("event")];
    if (e.at("event") == "probe_probed:probed_work__return") ret.push_back(e.at("fields").at("ret"));
  }
  EXPECT_EQ(counts["probe_probed:probed_work"], 4u);
  EXPECT_EQ(counts["probe_probed:probed_overloaded"], 8u);
  EXPECT_THAT(ret, testing::ElementsAre(0, 1, 4, 9));
  EXPECT_THAT(ringside("latency -k common_pid probe_probed:probed_work probe_probed:probed_work__return ringside.data").out,
              HasSubstr("probed"));
}

// The same events twice: as ringside writes them, and as the kernel sees them at their USDT notes.
TEST_F(Probes, EventsOfOurOwnAreUsdtProbes) {
  const std::string writer = RINGSIDE_BUILD_DIR "/tests/usdt_writer";
  const Outcome o = ringside("record -e usdt:" + writer + ":shop:* " + writer + " 20");
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<json> ours, theirs;
  std::map<std::string, u64> counts;
  for (const json& e : events()) {
    const std::string name = e.at("event");
    ++counts[name];
    if (name == "shop:order") ours.push_back(e.at("fields"));
    if (name.rfind("sdt_shop:order", 0) == 0) theirs.push_back(e.at("fields"));
    if (name == "sdt_shop:wide") {
      EXPECT_EQ(e.at("fields").at("arg3"), -3);
      EXPECT_EQ(e.at("fields").at("arg4"), -4);
      EXPECT_EQ(e.at("fields").at("arg12"), 2);
    }
  }
  ASSERT_EQ(ours.size(), 22u);
  ASSERT_EQ(theirs.size(), ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(theirs[i].at("arg1"), ours[i].at("id"));
    EXPECT_EQ(theirs[i].at("arg2"), ours[i].at("balance"));
    EXPECT_EQ(theirs[i].at("arg6"), ours[i].at("paid").get<int>());
    EXPECT_EQ(theirs[i].at("arg7"), -3);
  }
  for (const char* name : {"none", "wide", "wider"}) EXPECT_EQ(counts[std::string("sdt_shop:") + name], 1u) << name;
  // While the event is disabled it is a probe, too.
  const Outcome alone = run("env -u RINGSIDE_INSTANCE " RINGSIDE_BUILD_DIR "/ringside record -u none:none -e usdt:" + writer +
                            ":shop:order " + writer + " 5");
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(events().size(), 7u);
}

// The definitions of a killed recorder go with the next one's; a living one's stay.
TEST_F(Probes, AKilledRecordersDefinitionsAreRemovedByTheNext) {
  const std::string probe = "-e uprobe:" + probed + ":probed_work ";
  const std::string start = "(exec " RINGSIDE_BUILD_DIR "/ringside record -q -o ";
  const Outcome two = run(start + "killed " + probe + probed + " 300 100000) >/dev/null & echo $!; " + start + "living " +
                          probe + probed + " 300 100000) >/dev/null & echo $!");
  std::istringstream numbers(two.out);
  pid_t killed = 0, living = 0;
  numbers >> killed >> living;
  ASSERT_GT(living, 0);
  const std::string of_killed = "ringside_" + std::to_string(killed) + "/",
                    of_living = "ringside_" + std::to_string(living) + "/";
  const auto has = [](const std::string& group) { return definitions().find(group) != std::string::npos; };
  for (int i = 0; i < 600 && !(has(of_killed) && has(of_living)); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(has(of_killed) && has(of_living)) << definitions();
  kill(killed, SIGKILL);
  for (int i = 0; i < 600 && runs(killed); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(ringside("record -q -e sched:sched_switch true").code, 0) << "it has no probes of its own";
  EXPECT_FALSE(has(of_killed)) << definitions();
  EXPECT_TRUE(has(of_living)) << definitions();
  kill(living, SIGTERM);
  for (int i = 0; i < 600 && runs(living); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has(of_living)) << definitions();
}

TEST_F(Probes, InAFileBelowAFolderWithAColon) {
  std::filesystem::create_directory(dir + "/v1:2");
  const std::string app = dir + "/v1:2/app";
  std::filesystem::copy_file(probed, app);
  const Outcome o = ringside("record -q -e uprobe:" + app + ":probed_work " + app + " 3");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(events("-e probe_app:probed_work").size(), 0u);
}

TEST_F(Probes, ArgumentsByDebuggingInformationAreFields) {
  for (const std::string level : {"O0", "O2"}) {
    const std::string app = dir + "/arguments_" + level;
    std::filesystem::copy_file(RINGSIDE_BUILD_DIR "/tests/arguments_" + level, app);
    const Outcome o = ringside("record -q -e 'uprobe:" + app +
                               ":handle(req->id, len, text, byte, words[1]:string, req->from.name, req->kind, req->counts, "
                               "req->next->path, req->colour, eighth)' -e 'uprobe:" +
                               app + ":name_of%return($ret)' -e 'uprobe:" + app + ":by_value(p.port, n)' -e 'uprobe:" + app +
                               ":addressed(x)' " + app + " one");
    ASSERT_EQ(o.code, 0) << o.err;
    std::map<std::string, u64> counts;
    for (const json& e : events()) {
      const std::string event = e.at("event");
      const std::string name = event.substr(event.find(':') + 1);
      const u64 n = counts[name]++;
      json fields = e.at("fields");
      for (const char* place : {"__probe_ip", "__probe_func", "__probe_ret_ip"}) fields.erase(place);
      const json expected = name == "handle"      ? json{{"id", 5},         {"len", 40 + n},           {"text", "hello, world"},
                                                    {"byte", 200 + n}, {"words", "one"},          {"name", "alpha"},
                                                    {"kind", 19},      {"counts", {1, -2, 3, 4}}, {"path", "/second"},
                                                    {"colour", 7},     {"eighth", 80 + n}}
                            : name == "by_value"  ? json{{"port", 8080}, {"n", n}}
                            : name == "addressed" ? json{{"x", 33 + n}}
                                                  : json{{"ret", "/first"}};
      EXPECT_EQ(fields, expected) << name << " " << level;
    }
    for (const char* name : {"handle", "by_value", "addressed", "name_of__return"}) EXPECT_EQ(counts[name], 3u) << name;
    EXPECT_THAT(ringside("hist 'probe_arguments_" + level + ":handle/name' ringside.data").out, HasSubstr("alpha"));
  }
  const Outcome shown = ringside("list 'uprobe:" + dir + "/arguments_O2:*_of'");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("struct request *r, int unused"));
  const json listed = json::parse(ringside("list --json 'uprobe:" + dir + "/arguments_O2:next_of'").out);
  EXPECT_EQ(listed.at(0).at("parameters").at(1), (json{{"name", "unused"}, {"type", "int"}, {"fetch", "%si:s32"}}));
  EXPECT_EQ(ringside("list 'usdt:" + dir + "/arguments_O2:a:b'").code, 2);
}

TEST_F(Probes, ErrorsNameWhatIsThere) {
  const auto says = [&](const std::string& probe) { return ringside("record -e " + probe + " true").err; };
  EXPECT_THAT(says("usdt:" + probed + ":probed:rond"), HasSubstr("did you mean probed:round?"));
  EXPECT_THAT(says("uprobe:" + probed + ":probed_wrok"), HasSubstr("did you mean probed_work?"));
  EXPECT_THAT(says("uprobe:/etc/passwd:f"), HasSubstr("ELF"));
  EXPECT_THAT(says("uprobe:" + probed), HasSubstr("write usdt:PATH:PROVIDER:NAME"));
  EXPECT_THAT(says("kprobe:no_such_function_here"),
              testing::AnyOf(HasSubstr("this kernel has no kprobes"), HasSubstr("no such function")));
  EXPECT_EQ(definitions().find(probed), std::string::npos);
}

TEST_F(Probes, OfTheKernel) {
  if (access((*tracefs_dir() + "/kprobe_events").c_str(), W_OK) != 0)
    GTEST_SKIP() << "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)";
  const Outcome o = ringside("record -e kprobe:do_sys_openat2 -e kprobe:do_sys_openat2%return cat /etc/hostname");
  ASSERT_EQ(o.code, 0) << o.err;
  std::map<std::string, u64> counts;
  for (const json& e : events()) ++counts[e.at("event")];
  EXPECT_GT(counts["probe:do_sys_openat2"], 0u);
  EXPECT_EQ(counts["probe:do_sys_openat2"], counts["probe:do_sys_openat2__return"]);
}

}  // namespace
}  // namespace ringside::probe_test
