// What was shipped, read back by clickhouse://: it answers as the recordings did that it came from.
#include <gtest/gtest.h>

#include <regex>

#include "consumer/reading.hpp"
#include "plot_page.hpp"
#include "ship/ship.hpp"
#include "shipped/shipped.hpp"

namespace ringside::test::ship_test {
namespace {

std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream one(a), two(b);
  for (std::string here, there;;) {
    const bool more = static_cast<bool>(std::getline(one, here)), other = static_cast<bool>(std::getline(two, there));
    if (!more && !other) return "";
    if (more != other || here != there) return "\n" + here + "\n" + there + "\n";
  }
}

// What was shipped gives the same answers as the recordings that it came from.
TEST_F(Ship, WhatWasShippedReadsAsTheRecordingDid) {
  part(1, 6, 50);
  ASSERT_EQ(std::system(("cp -r " + dir + "/spool/part.0000001 " + dir + "/kept").c_str()), 0);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  for (const std::string command : {"report --json", "report", "hist app:numbers/c.log2 -v d", "hist common_pid,event",
                                    "hist task", "latency app:numbers app:texts --json", "top --once"}) {
    // Cut for several threads or not, the answer is the same.
    const Outcome local = ringside(command + " -i kept --jobs 1"), shipped = ringside(command + " --jobs 2 -i '" + url() + "'");
    EXPECT_EQ(local.code, shipped.code) << command << shipped.err;
    EXPECT_EQ(local.out == shipped.out, true) << command << first_difference(local.out, shipped.out) << shipped.err;
    EXPECT_GT(local.out.size(), 100u) << command << local.err;
  }
  const auto plot_of = [&](const std::string& range) {
    EXPECT_EQ(ringside("plot -o plot.html '" + url() + range + "'").code, 0);
    return page_json(slurp(dir + "/plot.html"));
  };
  EXPECT_GT(plot_of("")["events"], 0);
  // A range of the time of day.
  const u64 middle = number("SELECT toUInt64(quantileExact(0.5)(time_ns)) FROM \"app:numbers\"");
  const u64 later =
      number("SELECT count() FROM \"app:numbers\" WHERE time_ns >= " + std::to_string(middle / 1'000'000 * 1'000'000));
  char from[64];
  std::snprintf(from, sizeof from, "%lu.%03lu", middle / 1'000'000'000, middle / 1'000'000 % 1000);
  const Outcome o = ringside("report -e app:numbers '" + url() + "?hosts=here&from=" + from + "'");
  u64 there = 0;
  for (size_t at = o.out.find(" numbers: "); at != std::string::npos; at = o.out.find(" numbers: ", at + 1)) ++there;
  EXPECT_EQ(there, later) << o.err << middle;
  EXPECT_EQ(ringside("report '" + url() + "?hosts=elsewhere'").code, 1);
  EXPECT_EQ(ringside("report '" + url() + "?from=yesterday'").code, 1);
  // Two machines, by time of day.
  part(1, 4, 50, "other");
  ASSERT_EQ(ringside("ship -q --spool other --host there " + url()).code, 0);
  EXPECT_EQ(plot_of("?hosts=here")["apart"], 0);  // of one clock
  std::vector<u64> errors;
  for (const std::string host : {"here", "there"})
    errors.push_back(number("SELECT max(error_ns) FROM merge(currentDatabase(), '^app:') WHERE host = '" + host + "'"));
  const bool known = std::max(errors[0], errors[1]) < ~u32{0};
  const auto page = plot_of("?hosts=here,there");
  EXPECT_EQ(page["apart"], known ? nlohmann::json(errors[0] + errors[1]) : nlohmann::json());
  std::set<std::string> types;
  for (const auto& type : page["types"]) EXPECT_TRUE(types.insert(type["name"]).second) << type;
  const Outcome both = ringside("report --json '" + url() + "?hosts=here,there'");
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_NE(both.err.find("there: times of day, "), std::string::npos) << both.err;
  u64 lines = 0, last = 0;
  std::istringstream in(both.out);
  for (std::string line; std::getline(in, line);) {
    const auto event = nlohmann::json::parse(line);
    if (!event.contains("event")) continue;
    ++lines;
    EXPECT_GE(event["ts"].get<u64>(), last);
    last = event["ts"];
  }
  EXPECT_EQ(lines, rows());
}

// A time of day in whole milliseconds, as a range of clickhouse:// takes it.
std::string seconds(u64 ns) {
  char text[64];
  std::snprintf(text, sizeof text, "%lu.%03lu", ns / 1'000'000'000, ns / 1'000'000 % 1000);
  return text;
}

// An instance's ring may hold events from long before the recording began.
TEST_F(Ship, ARangeHasTheEventsThatAreOlderThanTheirRecording) {
  part(1, 6, 50);
  const std::string made = dir + "/spool/part.0000001";
  const u64 offset = must(RecordingMeta::read(made)).start_ns - 100'000'000'000;
  std::ofstream(made + "/wall") << offset << " 1000\n";
  ASSERT_EQ(std::system(("cp -r " + made + " " + dir + "/kept").c_str()), 0);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  const auto all = events("kept");
  const auto at = [&](size_t part) { return (all[all.size() * part / 4]["ts"].get<u64>() + offset) / 1'000'000 * 1'000'000; };
  const u64 from = at(1), to = at(3);
  const auto mono = [&](u64 wall) {
    return std::to_string((wall - offset) / 1'000'000'000) + "." +
           std::to_string(1'000'000'000 + (wall - offset) % 1'000'000'000).substr(1) + "s";
  };
  const Outcome local = ringside("report --json --time " + mono(from) + ".." + mono(to - 1) + " kept");
  const Outcome shipped = ringside("report --json '" + url() + "?from=" + seconds(from) + "&to=" + seconds(to) + "'");
  EXPECT_EQ(shipped.code, 0) << shipped.err;
  EXPECT_GT(local.out.size(), 10'000u) << local.err;
  EXPECT_EQ(local.out == shipped.out, true) << first_difference(local.out, shipped.out);
  EXPECT_EQ(ringside("report '" + url() + "?to=" + seconds(at(0) - 1'000'000'000) + "'").code, 1);
}

// The recorder was killed before it listed a ring, and a type of events.
TEST_F(Ship, ARingThatNoDescriptionListsIsReadBack) {
  part(1, 6, 50);
  const std::string made = dir + "/spool/part.0000001";
  auto meta = nlohmann::json::parse(slurp(made + "/meta.json"));
  meta["complete"] = false;
  meta["rings"].erase(4);
  meta["rings"].erase(1);
  meta["events"].erase(0);
  std::ofstream(made + "/meta.json") << meta.dump();
  ASSERT_EQ(std::system(("cp -r " + made + " " + dir + "/kept").c_str()), 0);
  const Outcome sent = ringside("ship -q --spool spool --host here " + url());
  ASSERT_EQ(sent.code, 0) << sent.err;
  for (const std::string command : {"report --json ", "hist event ", "hist common_pid "}) {
    const Outcome local = ringside(command + "-i kept"), shipped = ringside(command + "-i '" + url() + "'");
    EXPECT_EQ(shipped.code, local.code) << shipped.err;
    EXPECT_EQ(local.out == shipped.out, true) << first_difference(local.out, shipped.out);
  }
  // Some rows of a part whose last one has not arrived.
  must(server().client(database)->ask("CREATE TABLE early AS parts ENGINE = Log"));
  must(server().client(database)->ask("RENAME TABLE parts TO late, early TO parts"));
  part(2, 1, 50);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  const Outcome early = ringside("report '" + url() + "'");
  EXPECT_EQ(early.code, 0) << early.err;
  EXPECT_NE(early.err.find("left out: the rest of their recordings has not arrived yet"), std::string::npos) << early.err;
}

// One of the kernel's and one of a program's: their numbers and formats differ.
TEST_F(Ship, TwoTypesOfOneNameInOnePartKeepTheirFields) {
  fs::create_directories(dir + "/spool");
  {
    auto w = must(RecordingWriter::create(path_of_part(1), {}));
    const auto field = [](const char* type, u32 size, bool is_signed) {
      return "\tfield:" + std::string(type) + " id;\toffset:8;\tsize:" + std::to_string(size) +
             ";\tsigned:" + std::to_string(is_signed) + ";\n";
    };
    const std::string print = "\"%lld\", REC->id";
    w.meta().events.push_back({1, "shop", "order", format(1, "order", field("u32", 4, false), print), true});
    w.meta().events.push_back({2, "shop", "order", format(2, "order", field("s64", 8, true), print), true, true});
    for (const bool kernel : {false, true}) {
      must(w.add_ring({0, kernel ? 0 : 1, kernel ? 0 : 1, kernel ? "" : "shop", kernel ? "" : "shop", kernel}, 4096));
      SubBuffer s(1000);
      s.event(2000, kernel ? Payload(2, 7).put(i64{-6'000'000'000}) : Payload(1, 1).put(u32{5}));
      must(w.append(kernel ? RecordingWriter::kernel_rings : 0, s.view()));
    }
    must(w.finish(1));
  }
  ASSERT_EQ(std::system(("cp -r " + path_of_part(1) + " " + dir + "/kept").c_str()), 0);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  for (const std::string command : {"report --json -i ", "hist id -i "}) {
    const Outcome local = ringside(command + "kept"), shipped = ringside(command + "'" + url() + "'");
    EXPECT_EQ(shipped.code, 0) << shipped.err;
    EXPECT_EQ(shipped.out, local.out);
  }
  // A time beyond all that nanoseconds reach is as good as the last one.
  EXPECT_EQ(events("'" + url() + "?to=9999-12-31T00:00:00'").size(), 2u);
  EXPECT_EQ(events("'" + url() + "?from=0001-01-01T00:00:00'").size(), 2u);
}

TEST_F(Ship, HistogramsAreThoseOfTheRecording) {
  part(1, 6, 50);
  part(1, 5, 50, "own", Of::program);
  for (const char* copy : {"spool/part.0000001 kept", "own/part.0000001 kept_own"})
    ASSERT_EQ(std::system(("cd " + dir + " && cp -r " + copy).c_str()), 0);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  ASSERT_EQ(ringside("ship -q --spool own --host own " + url()).code, 0);
  std::random_device seed;
  std::mt19937 random(seed());
  const auto one_of = [&](const std::vector<std::string>& all) { return all[random() % all.size()]; };
  const std::vector<std::string> keys = {"a.log2",
                                         "a.buckets=7",
                                         "b.log2",
                                         "b.buckets=1000",
                                         "c.log2",
                                         "c.hex",
                                         "d.log2",
                                         "d.buckets=1000000007",
                                         "event",
                                         "common_pid",
                                         "tid",
                                         "ring",
                                         "cpu",
                                         "name",
                                         "state",
                                         "system",
                                         "source",
                                         "ts.buckets=1000000000",
                                         "e.log2",
                                         "f3",
                                         "task",
                                         "thread",
                                         "common_pid,event",
                                         "event,c.log2",
                                         "a.log2,b",
                                         "name,ring",
                                         "app:others/d.log2,b"};
  const std::vector<std::string> filters = {"",
                                            "",
                                            "a > 100",
                                            "c < 1000000000 && b > 0",
                                            "state == busy",
                                            "name == short",
                                            "common_pid == 1001 || d < 0",
                                            "!(a > 10)",
                                            "cpu == 1",
                                            "task == task2",
                                            "e & 0x8",
                                            "others/c > 5"};
  for (int n = 0; n < 12; ++n) {
    const std::string where = n % 3 == 0 ? "own" : "here", filter = one_of(filters),
                      value = one_of({"", "", "", " -v c", " -v d -v a"}),
                      only = one_of({"", "", " -e numbers", " -e 'app:*'"});
    const std::string command = "hist " + one_of(keys) + value + only + (filter.empty() ? "" : " -f '" + filter + "'") +
                                (n % 2 == 0 ? " --json" : " -n 1000");
    const Outcome local = ringside(command + " -i kept" + (where == "own" ? "_own" : "")),
                  shipped = ringside(command + " -i '" + url() + "?hosts=" + where + "'");
    EXPECT_EQ(local.code, shipped.code) << command << local.err << shipped.err;
    // The server sends no events that are not wanted, so they are not in the account.
    static const std::regex account(",\"account\":.*\\}");
    const std::string here = std::regex_replace(local.out, account, "}"), there = std::regex_replace(shipped.out, account, "}");
    EXPECT_EQ(here, there) << where << ": " << command;
  }
}

// Stacks of programs have the names of their functions, whatever becomes of the programs' files: the agent keeps them.
TEST_F(Ship, AProgramsFunctionsHaveTheirNames) {
  fs::create_directories(dir + "/spool");
  fs::copy_file(RINGSIDE_BUILD_DIR "/tests/names_writer", dir + "/b");
  const Outcome recorded = ringside("record -q --libc malloc --stack -o spool/part.1 -- ./b 4321");
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  fs::remove(dir + "/spool/part.1/names");  // of a recorder that did not come to it
  ASSERT_EQ(ringside("ship -q --spool spool " + url()).code, 0);
  fs::remove(dir + "/b");
  const Outcome shipped = ringside("flame --folded -e libc:malloc -f 'size == 4321' -i '" + url() + "'");
  EXPECT_NE(shipped.out.find("main;inside"), std::string::npos) << shipped.out << shipped.err;
}

// Stacks of the kernel have the names of its functions, also where they were shipped.
TEST_F(Ship, TheKernelsFunctionsHaveTheirNames) {
  fs::create_directories(dir + "/spool");
  const Outcome recorded = ringside("record -q -a -e sched:sched_switch --kstack -o spool/part.1 -- sleep 0.05");
  if (recorded.code != 0) GTEST_SKIP() << "no events of the kernel here: " << recorded.err;
  for (const char* to : {"/kept", "/spool/part.2"})
    ASSERT_EQ(std::system(("cp -r " + dir + "/spool/part.1 " + dir + to).c_str()), 0);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  EXPECT_EQ(number("SELECT count() FROM kernel_symbols"), 1u);
  must(server().client(database)->ask("ALTER TABLE parts DELETE WHERE first_batch != 1"));
  ASSERT_TRUE(wait_for([&] { return number("SELECT count() FROM parts") == 1; }));
  for (const std::string command : {"flame --folded ", "report ", "report --json "}) {
    const Outcome local = ringside(command + "-i kept"), shipped = ringside(command + "-i '" + url() + "'");
    EXPECT_EQ(local.code, 0) << local.err;
    EXPECT_NE(local.out.find("schedule"), std::string::npos) << local.out.substr(0, 2000);
    EXPECT_EQ(local.out == shipped.out, true) << command << first_difference(local.out, shipped.out) << shipped.err;
  }
}

}  // namespace
}  // namespace ringside::test::ship_test
