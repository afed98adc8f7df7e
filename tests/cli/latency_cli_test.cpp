// ringside latency: on a recording made by hand, where every number is known; and on the kernel's own events, against a second
// computation from trace-cmd's text of the same recording.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::latency_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::Payload;
using test::SubBuffer;

struct LatencyCli : test::BinaryTest {
  // Requests on two threads' rings: 1 takes 5 us across rings, 2 takes 1 ms and is begun twice, 3 never ends, 4 never began.
  void make(bool with_loss) {
    auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
    const std::string fields =
        "\tfield:u64 request;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:char kind[4];\toffset:16;\tsize:4;\tsigned:0;\n";
    for (const auto& [id, name] : {std::pair<u16, const char*>{0xF001, "begin"}, {0xF002, "end"}})
      w.meta().events.push_back(
          {id, "app", name, test::format(id, name, fields, R"("request=%llu kind=%s", REC->request, REC->kind)"), true, false});
    const auto event = [](u16 id, i32 tid, u64 request, const char* kind) {
      return Payload(id, tid).put(request).text({kind, 4});
    };
    const u64 t = 5'000'000'000;
    SubBuffer one(t, 4096), two(t + 1000, 4096);
    one.event(t, event(0xF001, 71, 1, "get"))
        .event(t + 2'000'000, event(0xF001, 71, 2, "put"))
        .event(t + 3'000'000, event(0xF001, 71, 2, "put"))
        .event(t + 3'500'000, event(0xF001, 71, 3, "get"));
    two.event(t + 5000, event(0xF002, 72, 1, "ok\0"))
        .event(t + 4'000'000, event(0xF002, 72, 2, "bad"))
        .event(t + 4'100'000, event(0xF002, 72, 4, "ok\0"));
    must(w.add_ring({0, 70, 71, "front", "server", false, ""}, 4096));
    must(w.add_ring({1, 70, 72, "back", "server", false, ""}, 4096));
    must(w.append(0, one.view()));
    SubBuffer begin(t + 10, 4096);
    if (with_loss) must(w.append(1, begin.event(t + 10, event(0xF002, 72, 9, "ok\0")).view()));
    must(w.append(1, two.view(with_loss ? 6 : 0)));
    must(w.finish(1));
  }
};

TEST_F(LatencyCli, NumbersOfAKnownRecording) {
  make(false);
  const Outcome o = ringside("latency app:begin app:end ringside.data --key request --by kind --heat --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j.at("exact"), false);  // a start repeats
  EXPECT_EQ(j.at("starts"), 4);
  EXPECT_EQ(j.at("ends"), 3);
  EXPECT_EQ(j.at("pairs"), 2);
  EXPECT_EQ(j.at("repeated"), 1);
  EXPECT_EQ(j.at("open"), 1);
  EXPECT_EQ(j.at("unmatched"), 1);
  EXPECT_EQ(j.at("all").at("count"), 2);
  EXPECT_EQ(j.at("all").at("sum"), 1'005'000);
  EXPECT_EQ(j.at("all").at("min"), 5000);
  EXPECT_EQ(j.at("all").at("max"), 1'000'000);
  EXPECT_NEAR(j.at("all").at("p50").get<double>(), 5000, 40);
  ASSERT_EQ(j.at("groups").size(), 2u);
  EXPECT_EQ(j.at("groups")[0].at("key"), "bad");  // the end's field, the largest maximum first
  EXPECT_EQ(j.at("groups")[0].at("max"), 1'000'000);
  ASSERT_EQ(j.at("slowest").size(), 2u);
  EXPECT_EQ(j.at("slowest")[0].at("latency"), 1'000'000);
  EXPECT_EQ(j.at("slowest")[0].at("key"), "request=2");
  EXPECT_EQ(j.at("slowest")[0].at("start").at("task"), "front");
  EXPECT_EQ(j.at("slowest")[0].at("end").at("task"), "back");
  EXPECT_EQ(j.at("slowest")[0].at("end").at("event"), "app:end");
  u64 in_heat = 0;
  for (const json& column : j.at("heat").at("columns"))
    for (const json& n : column) in_heat += n.get<u64>();
  EXPECT_EQ(in_heat, 2u);
  EXPECT_EQ(
      json::parse(ringside("latency app:begin app:end ringside.data --key request --first --json").out).at("all").at("max"),
      2'000'000);
  const json some =
      json::parse(ringside("latency 'app:begin if request == 1' 'app:end' ringside.data --key request --json").out);
  EXPECT_EQ(some.at("pairs"), 1);
  EXPECT_EQ(some.at("starts"), 1);
}

TEST_F(LatencyCli, TheTableAndThePictures) {
  make(false);
  const Outcome o =
      ringside("latency app:begin app:end ringside.data --key request --by start/kind --heat --ascii --context 1");
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part :
       {"app:begin  ->  app:end  (request)", "start/kind", "put", "p99.9", "1 ms", "###", "a column is", "request=2",
        "front-71", "back-72", "and what led to it", "starts 4 = pairs 2 + repeated 1 + evicted 0 + negative 0 + still open 1",
        "ends 3 = pairs 2 + negative 0 + without a start 1", "1 start has no end here", "1 end has no start here",
        "1 start repeats within the key", "nothing was lost\n"})
    EXPECT_NE(o.out.find(part), std::string::npos) << part << "\n" << o.out;
  EXPECT_NE(ringside("latency app:begin app:end ringside.data --key request").out.find("█"), std::string::npos);
  EXPECT_EQ(run("LC_ALL=C " RINGSIDE_BUILD_DIR "/ringside latency app:begin app:end ringside.data --key request").out.find("█"),
            std::string::npos);
}

// The syntax of trace-cmd profile: g, because the two events are in different tasks.
TEST_F(LatencyCli, Hooks) {
  make(false);
  const json pairs = json::parse(ringside("latency -H app:begin,request/app:end,request,g ringside.data --json").out);
  EXPECT_EQ(pairs.at("pairs"), 2);
  EXPECT_EQ(json::parse(ringside("latency -H begin,request/end,request ringside.data --json").out).at("pairs"), 0);
  EXPECT_EQ(json::parse(ringside("latency -H begin,request/end,request,gp ringside.data --json").out).at("pairs"), 0);
  EXPECT_EQ(json::parse(ringside("latency -H begin,request,request/end,request ringside.data --json").out).at("by"),
            "start/request");
  for (const char* bad : {"begin,request", "begin/end", "begin,request/end,request,x", ",a/b,c"})
    EXPECT_EQ(ringside("latency -H " + std::string(bad) + " ringside.data").code, 2) << bad;
}

TEST_F(LatencyCli, LossesAreReported) {
  make(true);
  const json j = json::parse(ringside("latency app:begin app:end ringside.data --key request --json").out);
  EXPECT_EQ(j.at("exact"), false);
  EXPECT_EQ(j.at("lost"), 6);
  EXPECT_EQ(j.at("doubtful"), 1);  // request 1: meanwhile the other ring lost some
  EXPECT_EQ(j.at("pairs"), 2);
  const Outcome o = ringside("latency app:begin app:end ringside.data --key request");
  EXPECT_NE(o.out.find("NOT exact: 6 events were lost"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("? 5 us"), std::string::npos) << o.out;
  EXPECT_EQ(
      json::parse(ringside("latency app:begin app:end ringside.data --key request --sure --json").out).at("all").at("count"),
      1);
}

TEST_F(LatencyCli, MistakesAreExplained) {
  make(false);
  const auto says = [&](const std::string& arguments, int code, const char* what) {
    const Outcome o = ringside("latency " + arguments);
    EXPECT_EQ(o.code, code) << arguments << o.err;
    EXPECT_NE(o.err.find(what), std::string::npos) << o.err;
  };
  says("", 2, "START END");
  says("app:begin", 2, "START END");
  says("app:begin app:nothing ringside.data", 2, "no event here matches \"app:nothing\"; there are begin, end");
  says("app:begin app:end ringside.data --key requst", 2, "did you mean request");
  says("app:begin app:end ringside.data --key request=kind", 2, "not both the same");
  says("app:begin app:end ringside.data --key a,b,c,d", 2, "3");
  says("app:begin app:end ringside.data --key =", 2, "FIELD");
  says("wakeup ringside.data", 2, "sched:sched_waking");
}

// What an event prints with [ns] behind it is a time, and bars show what the rows are sorted by.
TEST_F(LatencyCli, TimesPrintAsTimesAndBarsAreSums) {
  auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
  const std::string fields =
      "\tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 runtime;\toffset:16;\tsize:8;\tsigned:0;\n";
  w.meta().events.push_back({1, "sched", "sched_stat_runtime",
                             test::format(1, "sched_stat_runtime", fields,
                                          R"("comm=%s runtime=%Lu [ns]", REC->comm, (unsigned long long)REC->runtime)"),
                             true, false});
  SubBuffer all(1000, 4096);
  all.event(1000, Payload(1, 7).text({"often\0\0\0", 8}).put(u64{1'000'000}));
  all.event(1001, Payload(1, 7).text({"often\0\0\0", 8}).put(u64{1'000'000}));
  all.event(1002, Payload(1, 7).text({"long\0\0\0\0", 8}).put(u64{842'000'000}));
  must(w.add_ring({0, 7, 7, "t", "p", false, ""}, 4096));
  must(w.append(0, all.view()));
  must(w.finish(1));
  const std::string out = ringside("hist sched_stat_runtime/comm -v runtime --ascii").out;
  EXPECT_NE(out.find("842 ms"), std::string::npos) << out;
  const auto bar_of = [&](const char* row) {
    const size_t at = out.find(row), end = out.find('\n', at);
    return std::count(out.begin() + static_cast<std::ptrdiff_t>(at), out.begin() + static_cast<std::ptrdiff_t>(end), '#');
  };
  EXPECT_EQ(bar_of("long"), 20) << out;
  EXPECT_LE(bar_of("often"), 1) << out;
  EXPECT_EQ(ringside("hist sched_stat_runtime/runtime.msecs").code, 0);
}

struct KernelLatency : LatencyCli {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    LatencyCli::SetUp();
  }
};

// Wake-up latencies of a small load that this test makes, computed twice: by ringside, and from trace-cmd's text of the same
// events.
TEST_F(KernelLatency, WakeUpsAsTraceCmdsTextHasThem) {
  if (run("trace-cmd --version").code == 127) GTEST_SKIP() << "trace-cmd is not installed";
  ASSERT_EQ(ringside("record -q -a -b 32M -e sched:sched_waking -e sched:sched_switch --to trace.dat -- "
                     "sh -c 'i=0; while [ $i -lt 60 ]; do echo $i | cat | cat; sleep 0.001; i=$((i+1)); done > /dev/null'")
                .code,
            0);
  const Outcome o =
      ringside("latency sched:sched_waking sched:sched_switch trace.dat --key pid=next_pid --slowest 10000 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = json::parse(o.out);
  if (j.at("lost") != 0) GTEST_SKIP() << "this machine is too busy: events were lost, and the two may differ";
  const Outcome report = run("trace-cmd report -t -N trace.dat");
  ASSERT_EQ(report.code, 0) << report.err;
  std::map<i64, u64> woken;
  std::vector<u64> latencies;
  u64 wakings = 0, switches = 0;
  std::istringstream lines(report.out);
  for (std::string line; std::getline(lines, line);) {
    const bool waking = line.find(": sched_waking:") != std::string::npos;
    if (!waking && line.find(": sched_switch:") == std::string::npos) continue;
    const size_t colon = line.find(waking ? ": sched_waking:" : ": sched_switch:");
    const std::string stamp = line.substr(line.rfind(' ', colon) + 1, colon - line.rfind(' ', colon) - 1);
    const size_t point = stamp.find('.');
    ASSERT_NE(point, std::string::npos) << line;
    ASSERT_EQ(stamp.size() - point, 10u) << line;
    const u64 ns = std::stoull(stamp.substr(0, point)) * 1'000'000'000 + std::stoull(stamp.substr(point + 1));
    const std::string name = waking ? " pid=" : " next_pid=";
    const i64 pid = std::stoll(line.substr(line.rfind(name) + name.size()));
    if (waking) {
      ++wakings;
      woken[pid] = ns;
    } else {
      ++switches;
      if (const auto it = woken.find(pid); it != woken.end()) {
        latencies.push_back(ns - it->second);
        woken.erase(it);
      }
    }
  }
  EXPECT_GT(latencies.size(), 100u);
  EXPECT_EQ(j.at("starts"), wakings);
  EXPECT_EQ(j.at("ends"), switches);
  EXPECT_EQ(j.at("pairs"), latencies.size());
  EXPECT_EQ(j.at("open"), woken.size());
  // Both convert ticks to ns, each in its own way: the results may differ by rounding.
  std::sort(latencies.rbegin(), latencies.rend());
  const json& slowest = j.at("slowest");
  ASSERT_EQ(slowest.size(), std::min<size_t>(latencies.size(), 10000));
  double sum = 0;
  for (size_t i = 0; i < slowest.size(); ++i) {
    sum += static_cast<double>(latencies[i]);
    const auto mine = slowest[i].at("latency").get<double>(), theirs = static_cast<double>(latencies[i]);
    ASSERT_NEAR(mine, theirs, 3 + theirs * 1e-6) << i;
  }
  if (slowest.size() < 10000) {
    EXPECT_NEAR(j.at("all").at("sum").get<double>(), sum, 3 * static_cast<double>(latencies.size()) + sum * 1e-6);
  }
  std::reverse(latencies.begin(), latencies.end());
  for (const auto& [name, q] : {std::pair<const char*, double>{"p50", .5}, {"p99", .99}}) {
    const auto exact =
        static_cast<double>(latencies[static_cast<size_t>(std::ceil(q * static_cast<double>(latencies.size()))) - 1]);
    EXPECT_NEAR(j.at("all").at(name).get<double>(), exact, 4 + exact / 128) << name;
  }
}

// The kernel live: system calls begin and end in the same thread.
TEST_F(KernelLatency, SystemCallsLive) {
  const Outcome o = run("(while :; do cat /dev/null; done) & load=$!; " RINGSIDE_BUILD_DIR
                        "/ringside latency syscalls --duration 1s --json; code=$?; kill $load; exit $code");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = json::parse(o.out);
  EXPECT_GT(j.at("pairs"), 10);
  EXPECT_EQ(j.at("starts").get<u64>(), j.at("pairs").get<u64>() + j.at("repeated").get<u64>() + j.at("evicted").get<u64>() +
                                           j.at("negative").get<u64>() + j.at("open").get<u64>());
  EXPECT_EQ(j.at("ends").get<u64>(), j.at("pairs").get<u64>() + j.at("negative").get<u64>() + j.at("unmatched").get<u64>());
  EXPECT_FALSE(j.at("groups").empty());
}

// Ctrl-C ends with the final table.
TEST_F(KernelLatency, CtrlCEndsWithTheTable) {
  const Outcome o = run("env --default-signal=INT " RINGSIDE_BUILD_DIR
                        "/ringside latency wakeup --slowest 3 2>log & P=$!; "
                        "until grep -qs Ctrl-C log || ! kill -0 $P 2>/dev/null; do sleep 0.02; done; sleep 1; "
                        "kill -INT $P; wait $P; cat log >&2");
  EXPECT_NE(o.out.find("sched:sched_switch"), std::string::npos) << o.out << o.err;
  EXPECT_NE(o.out.find("\nstarts "), std::string::npos) << o.out << o.err;
}

}  // namespace
}  // namespace ringside::latency_cli_test
