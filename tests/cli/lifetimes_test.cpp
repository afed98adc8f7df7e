// Programs that outlive their start, and commands that come and go beside a service: no event goes nowhere, and all that was
// changed for a while is as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "binary.hpp"
#include "ringside/base/types.hpp"
#include "sys/json.hpp"

namespace ringside::lifetimes_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;
using testing::Not;

const std::string build = RINGSIDE_BUILD_DIR "/", tool = build + "ringside ";

// A shell's words that wait until the file is there, or has this text.
std::string until_there(const std::string& file) { return "until [ -e " + file + " ]; do sleep 0.02; done; "; }
std::string until_says(const std::string& text, const std::string& file) {
  return "until grep -qs '" + text + "' " + file + "; do sleep 0.02; done; ";
}

struct Lifetimes : test::BinaryTest {
  const std::string daemon = build + "tests/daemon_writer ";

  std::vector<std::string> instances() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir + "/root")) names.push_back(entry.path().filename());
    return names;
  }
  // The numbers n of a recording's events of this name, in order.
  std::vector<u64> numbers(const std::string& of, const std::string& event) const {
    std::vector<u64> all;
    for (const json& e : events(of + " -e " + event)) all.push_back(e.at("fields").at("n"));
    return all;
  }
  // What recordings lack, by their own account.
  u64 lost_in(const std::string& of) const {
    u64 lost = 0;
    for (const json& line : report(of))
      if (line.contains("lost")) lost += line.at("lost").get<u64>();
    const json meta = json::parse(test::slurp(dir + "/" + of + "/meta.json"));
    for (const auto& [why, count] : meta.at("account").at("refused").items()) lost += count.get<u64>();
    return lost;
  }
  static std::vector<u64> first(u64 from, u64 end) {
    std::vector<u64> all;
    for (; from < end; ++from) all.push_back(from);
    return all;
  }
  // The counts that the service wrote when it ended.
  std::pair<u64, u64> counts() const {
    std::istringstream text(test::slurp(dir + "/counts"));
    u64 errs = 0, queries = 0;
    text >> errs >> queries;
    return {errs, queries};
  }
  const std::string service = "RINGSIDE_INSTANCE=web " + build + "tests/counted_writer stop counts & S=$!; ";
  const std::string end_service = "touch stop; wait $S; ";
};

// The command ends before its child has written anything: nothing but an inherited mapping tells of that child.
TEST_F(Lifetimes, ADaemonThatHasWrittenNothingYetIsWaitedFor) {
  const Outcome o =
      run(tool + "record -o here " + daemon + "1 ready go done 2>log & P=$!; " +
          until_says("has ended and left daemon_writer (", "log") + "touch go; wait $P; code=$?; cat log >&2; exit $code");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("Ctrl-C ends it here, --no-wait does not wait"));
  EXPECT_EQ(numbers("here", "d:ev"), first(0, 1000));
  EXPECT_TRUE(instances().empty());
}

// The recording ends, the daemon does not: what it writes later is in its instance, and no later recording takes that away.
TEST_F(Lifetimes, WhatALeftDaemonWritesStaysUntilAPersonRemovesIt) {
  for (const bool waits : {true, false}) {
    const Outcome o = run(tool + "record -o here " + (waits ? "" : "--no-wait ") + "sh -c '" + daemon + "0 ready go done; " +
                          until_there("ready") + "' 2>log & P=$!; " +
                          (waits ? until_says("has ended and left", "log") + "kill -INT $P; " : "") +
                          "wait $P; code=$?; touch go; " + until_there("done") + "cat log >&2; exit $code");
    EXPECT_THAT(o.err, HasSubstr(" stays, for daemon_writer ("));
    EXPECT_EQ(numbers("here", "d:ev"), first(0, 500));
    ASSERT_EQ(instances().size(), 1u) << o.err;
    const std::string left = instances().front();
    EXPECT_EQ(ringside("record -o other true").code, 0);
    EXPECT_EQ(instances(), std::vector{left});
    EXPECT_EQ(ringside("record -i " + left + " -o rest --duration 1ms").code, 0);
    EXPECT_EQ(numbers("rest", "d:ev"), first(500, 1000));
    EXPECT_EQ(ringside("record -o other true").code, 0);
    EXPECT_EQ(instances(), std::vector{left}) << "a person removes it";
    EXPECT_EQ(ringside("rm " + left).code, 0);
    EXPECT_EQ(run("rm -r ready go done").code, 0);
  }
}

// A killed recorder's instance has events that nobody has read.
TEST_F(Lifetimes, UnreadEventsOfAKilledRecordersInstanceStay) {
  const Outcome killed =
      run(tool + "record -o here " + daemon + "1 ready go done 2>log & P=$!; " + until_says("has ended and left", "log") +
          "kill -KILL $P; wait $P; touch go; " + until_there("done") + "true");
  ASSERT_EQ(instances().size(), 1u) << killed.err;
  const std::string left = instances().front();
  const Outcome next = ringside("record -o other true");
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_THAT(next.err,
              HasSubstr("the instance " + left + ", which a killed command left, has 1,000 events that nobody has read"));
  EXPECT_EQ(ringside("record -i " + left + " -o rest --duration 1ms").code, 0);
  EXPECT_EQ(numbers("rest", "d:ev"), first(0, 1000));
  EXPECT_EQ(ringside("record -o other true").code, 0);
  EXPECT_TRUE(instances().empty()) << "all was read";
}

TEST_F(Lifetimes, ATriggerWaitsForADaemonToo) {
  const Outcome o = run(tool + "trigger 'd:ev if n == 600' -o here " + daemon + "1 ready go done 2>log & P=$!; " +
                        until_says("has ended and left", "log") + "touch go; wait $P; code=$?; cat log >&2; exit $code");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("n=600; frozen "));
  const Outcome left = run("rm -f go done; " + tool + "trigger --no-wait 'd:ev if n == 2000' -o here " + daemon +
                           "1 ready go done; code=$?; touch go; " + until_there("done") + "exit $code");
  EXPECT_EQ(left.code, 4) << left.err;
  EXPECT_THAT(left.err, HasSubstr(" stays, for daemon_writer ("));
}

// An instance that a silent process has open is not removed under it.
TEST_F(Lifetimes, AnInstanceThatASilentProcessHasOpenIsNotRemoved) {
  const Outcome o = run("RINGSIDE_INSTANCE=mine " + daemon + "1 ready go done; " + until_there("ready") + tool +
                        "rm mine; code=$?; touch go; " + until_there("done") + "exit $code");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(events("mine").size(), 1000u);
}

// As a service is looked at: one event is recorded for a while, and the others that are taken with it are recorded, too.
TEST_F(Lifetimes, AGlanceTakesNothingThatItDoesNotRecord) {
  ASSERT_EQ(ringside("record -q -i web -o made -- true").code, 0);
  ASSERT_EQ(ringside("disable -i web '*:*'").code, 0);
  ASSERT_EQ(ringside("enable -i web net:err").code, 0);
  const std::string before = test::slurp(dir + "/root/web/set_event");
  const Outcome o = run(
      service + "until " + tool + "stat web --json | grep -q '\"unread\":[1-9][0-9][0-9]'; do sleep 0.02; done; " + tool +
      "record -i web -u db:query -o glance 2>log & P=$!; until [ $(" + tool +
      "report glance -e db:query 2>/dev/null | wc -l) -gt 100 ]; do sleep 0.02; done; kill -INT $P; wait $P; cat log >&2; " +
      end_service + tool + "record -q -i web -o rest --duration 1ms");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(
      o.err,
      HasSubstr("web has other events enabled, too: net:err. They are taken from its rings with yours, and all are recorded"));
  EXPECT_EQ(test::slurp(dir + "/root/web/set_event"), before);
  const auto [errs, queries] = counts();
  std::vector<u64> all = numbers("glance", "net:err"), rest = numbers("rest", "net:err");
  EXPECT_FALSE(all.empty());
  all.insert(all.end(), rest.begin(), rest.end());
  EXPECT_EQ(all, first(0, errs));
  EXPECT_EQ(lost_in("glance") + lost_in("rest"), 0u);
  // The last one may have met the event switched off.
  const std::vector<u64> glance = numbers("glance", "db:query");
  EXPECT_EQ(glance, first(0, glance.size()));
  const std::vector<u64> late =
      events("rest -e net:err").size() == events("rest").size() ? std::vector<u64>() : numbers("rest", "db:query");
  EXPECT_LE(queries - glance.size() - late.size(), 1u);
  EXPECT_FALSE(fs::exists(dir + "/root/web/borrowed"));
}

// What it had switched on is off again, also after a kill; what others have chosen meanwhile stays.
TEST_F(Lifetimes, WhatAKilledRecorderHasEnabledIsPutBackByTheNextCommand) {
  ASSERT_EQ(ringside("record -q -i web -o made -- true").code, 0);
  ASSERT_EQ(ringside("disable -i web '*:*'").code, 0);
  ASSERT_EQ(ringside("enable -i web net:err").code, 0);
  for (const bool others_choose : {false, true}) {
    const std::string wanted = test::slurp(dir + "/root/web/set_event") + (others_choose ? "libc:read\n" : "");
    const Outcome o = run("rm -f stop; " + service + "until " + tool + "list -i web | grep -q db:query; do sleep 0.02; done; " +
                          tool + "record -i web -u db:query --stack=db:query -o glance 2>log & P=$!; until " + tool +
                          "list -i web | grep -q 'db:query.*yes'; do sleep 0.02; done; " +
                          (others_choose ? tool + "enable -i web libc:read 2>/dev/null; " : "") + "kill -KILL $P; wait $P; " +
                          tool + "list -i web >listed; " + end_service + "true");
    EXPECT_EQ(test::slurp(dir + "/root/web/set_event"), wanted) << o.err;
    EXPECT_THAT(test::slurp(dir + "/root/web/set_stack"), Not(HasSubstr("db:query")));
    EXPECT_EQ(run("grep -q 'db:query.*yes' listed").code, 1);
    EXPECT_FALSE(fs::exists(dir + "/root/web/borrowed"));
  }
}

// Each takes the events for itself: the second one is refused, whichever it is.
TEST_F(Lifetimes, ATriggerAndARecordingShareNoInstance) {
  ASSERT_EQ(ringside("record -q -i web -o made -- true").code, 0);
  const Outcome second =
      run(tool + "record -i web -o here 2>log & P=$!; until [ -e root/web/borrowed ]; do sleep 0.02; done; " + tool +
          "trigger 'net:err if n > 10' -i web -o trig; code=$?; kill -INT $P; wait $P; exit $code");
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr("the events of web are taken by ringside record (process "));
  const Outcome other = run(tool + "trigger 'net:err if n > 10' -i web -o trig 2>log & P=$!; " + until_says("armed", "log") +
                            tool + "record -i web -o there; code=$?; kill -INT $P; wait $P; exit $code");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("the events of web are taken by ringside trigger (process "));
}

// While a trigger saves, the rings stand still: what comes then is counted, and told once.
TEST_F(Lifetimes, EveryEventBesideATriggerIsSavedOrCounted) {
  for (const char* rings : {"auto", "thread"}) {
    ASSERT_EQ(run(tool + "record -q -i web --rings " + rings + " -o made -- true").code, 0);
    const Outcome o = run(service + tool + "trigger 'net:err if n > 10' -i web --count 4 -o trig-%n; code=$?; " + end_service +
                          tool + "record -q -i web -o rest --duration 1ms; exit $code");
    ASSERT_EQ(o.code, 0) << o.err;
    u64 events = 0, lost = 0;
    for (const char* one : {"trig-1", "trig-2", "trig-3", "trig-4", "rest"}) {
      events += numbers(one, "net:err").size() + numbers(one, "db:query").size();
      lost += lost_in(one);
    }
    const auto [errs, queries] = counts();
    EXPECT_EQ(events + lost, errs + queries) << lost << " of them lost";
    const json stat = json::parse(ringside("stat web --json").out);
    EXPECT_EQ(stat.at("refused_off"), lost);
    EXPECT_GT(lost, 0u);
    EXPECT_EQ(ringside("rm web").code, 0);
    EXPECT_EQ(run("rm -rf stop trig-*").code, 0);
  }
}

}  // namespace
}  // namespace ringside::lifetimes_test
