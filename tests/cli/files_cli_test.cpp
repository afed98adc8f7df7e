// Files of system calls: record --files, syscalls --by file, filters and JSON, judged by /proc and by the program itself.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "probe/file_calls.hpp"

namespace ringside::files_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;

struct Files : test::BinaryTest {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    if (auto calls = FileCalls::open({}, calibrate(ClockKind::mono)); !calls) {
      ASSERT_EQ(calls.error().sentence.find("refuses the BPF program"), std::string::npos) << calls.error().sentence;
      GTEST_SKIP() << calls.error().sentence;
    }
    BinaryTest::SetUp();
  }
};

// A shell with a copied, an inherited, a relative and a closed descriptor says what /proc says of them; then it uses them.
const std::string asks_proc =
    "cd /usr; exec 5</etc/passwd; exec 6<&5; exec 7<../etc/hostname; exec 5<&-; exec 5</etc/group; "
    "for n in 3 5 6 7; do echo $n $(readlink /proc/$$/fd/$n); done; for n in 3 5 6 7; do read x <&$n; done; :";

TEST_F(Files, AreWhatProcSays) {
  ASSERT_EQ(run("echo text >inherited").code, 0);
  const Outcome o = ringside("record -q --files -e raw_syscalls -- sh -c '" + asks_proc + "' 3<inherited");
  ASSERT_EQ(o.code, 0) << o.err;
  std::map<std::string, std::string> files;
  std::istringstream lines(o.out);
  for (std::string number, file; lines >> number >> file;) files[number] = file;
  ASSERT_EQ(files.size(), 4u) << o.out;
  EXPECT_EQ(files["6"], "/etc/passwd");
  files["7"] = "/usr/../etc/hostname";  // the name that the program used
  std::set<std::string> read;
  i64 shell = 0;
  for (const json& e : events()) {
    if (e.at("event") != "raw_syscalls:sys_enter") continue;
    if (shell == 0) shell = e.at("pid");
    if (e.at("pid") != shell || !e.contains("files") || (e.at("syscall") != "dup2" && e.at("syscall") != "fcntl")) continue;
    const std::string text = e.at("files"), number = text.substr(0, text.find('<'));
    if (files.count(number) == 0 || text.find('<') == std::string::npos) continue;
    const std::string file = text.substr(number.size() + 1, text.find('>') - number.size() - 1);
    if (number == "5" && file == "/etc/passwd") continue;  // until it was closed
    EXPECT_EQ(file, files[number]) << e.dump();
    read.insert(number);
  }
  EXPECT_EQ(read, (std::set<std::string>{"3", "5", "6", "7"}));
}

TEST_F(Files, FiltersTablesAndLinesHaveThem) {
  ASSERT_EQ(ringside("record -q --files -- cat /etc/passwd /nonexistent").code, 1);
  std::set<std::string> calls;
  for (const json& e : events("-f 'file == \"/etc/passwd\"'")) calls.insert(e.at("syscall"));
  EXPECT_EQ(calls.count("openat"), 1u);
  EXPECT_EQ(calls.count("close"), 1u);
  bool failed = false;
  for (const json& e : events("-f 'file ~ \"*nonexistent\"'")) failed = failed || e.value("error", "") == "ENOENT";
  EXPECT_TRUE(failed);
  const std::string lines = ringside("report").out;
  EXPECT_NE(lines.find("> \"/etc/passwd\"\n"), std::string::npos) << lines;
  EXPECT_TRUE(std::regex_search(lines, std::regex("# openat [0-9]+</etc/passwd>\n"))) << lines;
  EXPECT_NE(lines.find("\"/nonexistent\"]\n"), std::string::npos) << "execve's arguments: " << lines;
  EXPECT_EQ(lines.find("file_call"), std::string::npos) << "they tell the files of other events";
  const json table = json::parse(ringside("syscalls --json --by file -n 10000 ringside.data").out);
  u64 opens = 0;
  for (const json& row : table.at("rows"))
    if (row.at("key") == "/etc/passwd" && row.at("syscall") == "openat") opens = row.at("calls");
  EXPECT_EQ(opens, 1u);
}

TEST_F(Files, SyscallsOfACommandHasThemByItself) {
  const Outcome o = ringside("syscalls --json --by file -n 10000 -- sh -c 'cat /etc/passwd >copy; cat copy copy >/dev/null'");
  ASSERT_EQ(o.code, 0) << o.err;
  const json table = json::parse(o.out);
  u64 opens = 0;
  for (const json& row : table.at("rows"))
    if (row.at("key") == dir + "/copy" && row.at("syscall") == "openat") opens = row.at("calls");
  EXPECT_EQ(opens, 3u) << o.out;
}

TEST_F(Files, AProcessThatRunsAlreadyHasThoseOfProc) {
  ASSERT_EQ(run("echo text >before").code, 0);
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside";
  const Outcome o =
      run("sh -c 'exec 8<before; exec sleep 1000' & P=$!; while ! grep -q sleep /proc/$P/comm; do :; done; " + tool +
          " record -q --files -e raw_syscalls -p $P & R=$!; while ! test -e ringside.data/meta.json; do :; done; "
          "kill $P; wait $R");
  ASSERT_EQ(o.code, 0) << o.err;
  bool known = false;
  for (const json& e : events("-e ringside:file_call"))
    known = known || (e.at("fields").at("value") == 8 && e.at("fields").at("text") == dir + "/before");
  EXPECT_TRUE(known);
}

TEST_F(Files, WhereNoneWereNotedNoCallHasOne) {
  ASSERT_EQ(ringside("record -q -e raw_syscalls -- true").code, 0);
  EXPECT_EQ(events("-e raw_syscalls -f 'file ~ \"*\"'").size(), 0u);
  EXPECT_EQ(ringside("record -q --files --clock tsc true").code, 2);
  EXPECT_EQ(ringside("syscalls --files ringside.data").code, 2);
}

}  // namespace
}  // namespace ringside::files_cli_test
