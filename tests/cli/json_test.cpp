// docs/json.md names every key that the commands print; large numbers.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "binary.hpp"
#include "hand_made.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::json_test {
namespace {

using nlohmann::json;
using test::Outcome;

struct JsonOutput : test::BinaryTest {
  void make() const {
    auto w = must(test::malloc_and_packets(dir + "/ringside.data"));
    test::SubBuffer s(1'000'000'000, 4096), t(1'000'000'000, 4096);
    for (u64 i = 0; i < 5; ++i) s.event(1'000'000'000 + i * 1'000'000, test::Payload(1, 4711).put(u64{32 + i}).put(u64{0xa0}));
    t.event(1'500'000'000, test::Payload(2, 4800).put(u32{1500}));
    must(w.append(0, s.view(0)));
    must(w.append(3, t.view(1234)));
    must(w.finish(1));
  }
  // The words in backquotes of each section, by the commands in its title; "The account" belongs to each.
  static std::map<std::string, std::set<std::string>> documented() {
    std::map<std::string, std::set<std::string>> all;
    std::istringstream lines(test::slurp(RINGSIDE_SOURCE_DIR "/docs/json.md"));
    std::vector<std::string> commands;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("## ", 0) == 0) {
        commands.clear();
        std::istringstream words(line.substr(3));
        for (std::string word; std::getline(words, word, ',');) commands.push_back(word.substr(word.find_first_not_of(' ')));
        continue;
      }
      static const std::regex word("[`.]([a-z0-9_]+)`");
      for (auto from = std::sregex_iterator(line.begin(), line.end(), word); from != std::sregex_iterator(); ++from)
        for (const std::string& command : commands) all[command].insert((*from)[1]);
    }
    return all;
  }
  // The keys at any depth, but an event's fields and what the command line names.
  static void keys_of(const json& value, const std::set<std::string>& named, std::set<std::string>& out) {
    if (value.is_array()) {
      for (const json& one : value) keys_of(one, named, out);
    }
    if (!value.is_object()) return;
    for (const auto& [key, inner] : value.items()) {
      if (named.count(key) == 0) out.insert(key);
      if (key != "fields" && key != "context") keys_of(inner, named, out);  // a context has lines as of report
    }
  }
  void expect_documented(const std::string& arguments, const std::set<std::string>& named = {}) {
    static const auto known = documented();
    const std::string command = arguments.substr(0, arguments.find(' '));
    ASSERT_EQ(known.count(command), 1u) << "docs/json.md has no section on " << command;
    const Outcome o = ringside(arguments);
    std::istringstream lines(o.out);
    std::set<std::string> printed;
    u64 values = 0;
    for (std::string line; std::getline(lines, line); ++values) keys_of(json::parse(line), named, printed);
    EXPECT_GE(values, 1u) << arguments << "\n" << o.err;
    EXPECT_FALSE(printed.empty()) << arguments;
    for (const std::string& key : printed)
      EXPECT_GE(known.at(command).count(key) + known.at("The account").count(key), 1u) << arguments << ": " << key;
  }
};

TEST_F(JsonOutput, DocsNameEveryKey) {
  make();
  for (const char* arguments : {"report --json", "crash ringside.data --json", "stat ringside.data --json", "doctor --json",
                                "latency libc:malloc libc:malloc ringside.data --by start/task --context 2 --heat --json"})
    expect_documented(arguments);
  expect_documented("top --by task,event --json", {"task", "event"});
  expect_documented("hist event -v size --json", {"event", "size"});
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/example_01_write >/dev/null; " RINGSIDE_BUILD_DIR
                "/ringside list --json | grep -q '\"web\"'")
                .code,
            0);
  for (const char* arguments : {"list --json", "list -i web --json", "stat web --json"}) expect_documented(arguments);
  expect_documented("watch ringside.data --by event --json", {"event"});
}

TEST_F(JsonOutput, DocsNameEveryKeyOfTheKernels) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  ASSERT_EQ(ringside("record -q --libc io -e raw_syscalls -- cat /nonexistent").code, 1);
  for (const char* arguments :
       {"report --json", "stat ringside.data --json", "syscalls --json --by task", "list -e 'sched:*' --json"})
    expect_documented(arguments);
}

TEST_F(JsonOutput, DocsAreWhatTheCommandsDeclare) {
  const std::string page = test::slurp(RINGSIDE_SOURCE_DIR "/docs/json.md");
  std::ofstream(dir + "/json.md") << page;
  ASSERT_EQ(ringside("manual json " + dir + "/json.md").code, 0);
  EXPECT_EQ(test::slurp(dir + "/json.md"), page) << "update it: build/dev/ringside manual json docs/json.md";
  const size_t row = page.find("| `rows[].rate` |");
  ASSERT_NE(row, page.npos);
  std::ofstream(dir + "/json.md") << page.substr(0, row) << page.substr(page.find('\n', row) + 1);
  ASSERT_EQ(ringside("manual json " + dir + "/json.md").code, 0);
  EXPECT_EQ(test::slurp(dir + "/json.md"), page) << "a missing row does not come back";
}

TEST_F(JsonOutput, TheSchemaHasANumber) {
  make();
  for (const char* arguments : {"top --json", "hist event --json", "watch ringside.data --json", "stat ringside.data --json",
                                "latency libc:malloc libc:malloc ringside.data --json"})
    EXPECT_EQ(ringside(arguments).out.rfind("{\"schema\":1,", 0), 0u) << arguments;
}

TEST_F(JsonOutput, NumbersBeyondWhatJavaScriptKeeps) {
  auto w = must(RecordingWriter::create(dir + "/ringside.data", ClockInfo{}));
  w.meta().events.push_back({1, "libc", "malloc", test::malloc_format(), true});
  must(w.add_ring({0, 4700, 4711, "cc1plus", "cc1plus"}, 4096));
  test::SubBuffer s(1'000'000'000, 4096);
  constexpr u64 limit = u64{1} << 53;
  for (const u64 ptr : {limit - 1, limit, limit + 1, ~u64{0}})
    s.event(1'000'000'000, test::Payload(1, 4711).put(u64{32}).put(ptr));
  must(w.append(0, s.view(0)));
  must(w.finish(1));
  std::vector<json> exact, safe;
  for (const json& e : events()) exact.push_back(e.at("fields").at("ptr"));
  EXPECT_EQ(exact, (std::vector<json>{limit - 1, limit, limit + 1, ~u64{0}}));
  for (const json& e : events("--json-safe")) safe.push_back(e.at("fields").at("ptr"));
  EXPECT_EQ(safe, (std::vector<json>{limit - 1, limit, "9007199254740993", "18446744073709551615"}));
  const std::string hist = ringside("hist event -v ptr --json").out;
  for (const char* exactly : {R"("sum":18473765671473774591,)", R"("min":9007199254740991,)", R"("max":18446744073709551615})"})
    EXPECT_NE(hist.find(exactly), std::string::npos) << hist;
  EXPECT_EQ(json::parse(ringside("hist event -v ptr --json-safe").out)["rows"][0]["ptr"]["sum"], "18473765671473774591");
  EXPECT_NE(ringside("hist event -v ptr").out.find("18,473,765,671,473,774,591"), std::string::npos);
  const json top = json::parse(ringside("top --by ptr --json-safe").out);
  std::set<std::string> seen;
  for (const json& row : top.at("rows")) {
    EXPECT_TRUE(row.at("count").is_number());
    if (row.at("ptr").is_string()) seen.insert(row.at("ptr"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"9007199254740993", "18446744073709551615"}));
}

}  // namespace
}  // namespace ringside::json_test
