// `ringside plot` from the outside: errors, the content of the page, texts that look like code.
#include <gtest/gtest.h>

#include <filesystem>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "plot_page.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::test::plot_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct PlotCli : test::BinaryTest {
  void SetUp() override {
    BinaryTest::SetUp();
    record({});
  }
  // By default, four events on a ring with a gap before the last.
  void record(const std::vector<u64>& times, const std::string& task = "cc1plus", const std::string& event = "malloc",
              bool empty = false) const {
    auto w = RecordingWriter::create(dir + "/ringside.data", ClockInfo{});
    ASSERT_TRUE(w) << w.error().sentence;
    w->meta().command = {"g++", "-c", task};
    w->meta().events.push_back(
        {1, "libc", event,
         test::format(1, event,
                      "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 ptr;\toffset:16;\tsize:8;\tsigned:0;\n",
                      R"("size=%llu ptr=0x%llx", REC->size, REC->ptr)"),
         true});
    ASSERT_TRUE(w->add_ring({0, 4700, 4711, task, "g++"}, 4096));
    if (!empty && times.empty()) {
      SubBuffer a(1'000'000'000), b(3'000'000'000);
      for (u64 i = 0; i < 3; ++i) a.event(1'000'000'000 + i * 500'000'000, Payload(1, 4711).put(u64{32}).put(u64{0xA0}));
      b.event(3'000'000'000, Payload(1, 4711).put(u64{64}).put(u64{0xB0}));
      ASSERT_TRUE(w->append(0, a.view()));
      ASSERT_TRUE(w->append(0, b.view(1234)));
    }
    for (const u64 time : times) {
      SubBuffer s(time);
      s.event(time, Payload(1, 4711).put(u64{32}).put(u64{0xA0}));
      ASSERT_TRUE(w->append(0, s.view()));
    }
    ASSERT_TRUE(w->finish(2'000'000'000));
  }
  json page(const std::string& arguments = "") const {
    const Outcome o = ringside("plot " + arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "");
    return test::page_json(test::slurp(dir + "/ringside.html"));
  }
};

TEST_F(PlotCli, WritesOneFileThatHoldsAll) {
  const json j = page();
  EXPECT_EQ(j["events"], 4);
  EXPECT_EQ(j["lost"], 1234);
  EXPECT_EQ(j["origin"], "1000000000");
  EXPECT_EQ(j["duration"], 2'000'000'000);
  EXPECT_EQ(j["where"], "ringside.data");
  EXPECT_EQ(j["facts"][0], json::parse(R"(["command","g++ -c cc1plus"])"));
  const std::string html = test::slurp(dir + "/ringside.html");
  for (const char* loads : {"src=", "@import", "<link rel=\"stylesheet\"", "http-equiv=\"refresh\""})
    EXPECT_EQ(html.find(loads), std::string::npos) << loads;
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(run("ls | grep '[.]part'").out, "");
}

TEST_F(PlotCli, ToStdoutIsTheSameBytes) {
  const Outcome to_file = ringside("plot -o x.html"), to_stdout = ringside("plot -o -");
  EXPECT_EQ(to_stdout.code, 0);
  EXPECT_EQ(to_stdout.out, test::slurp(dir + "/x.html"));
  EXPECT_NE(to_file.err.find("4 events, lost 1,234; x.html"), std::string::npos) << to_file.err;
}

TEST_F(PlotCli, PartOfATrace) {
  EXPECT_EQ(page("--from 1.5s --to 2")["events"], 2);
  EXPECT_EQ(page("--from +500ms --to +1s")["events"], 2);
  EXPECT_EQ(page("--from 1.5s --to 2")["lost"], 0);
  EXPECT_EQ(page("-F 'size > 32'")["events"], 1);
  EXPECT_EQ(page("-e 'libc:*'")["events"], 4);
  EXPECT_EQ(ringside("plot -e nothing").code, 2);
  for (const auto& [window, words] :
       {std::pair{"--from +100ms --to +200ms", "no event between +100 ms and +200 ms; ringside.data has 4, up to +2 s"},
        std::pair{"--time 1.1..1.2", "no event between 1.100000000 s and 1.200000000 s; ringside.data has 4, up to +2 s"},
        std::pair{"--from 1h", "no event from 3600.000000000 s on; ringside.data has 4, up to +2 s"},
        std::pair{"-f 'size > 1000'",
                  "no event with size > 1000; ringside.data has 4, up to +2 s; ringside.html was not written"}}) {
    fs::remove(dir + "/ringside.html");
    const Outcome o = ringside(std::string("plot ") + window);
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_FALSE(fs::exists(dir + "/ringside.html")) << window;
    EXPECT_NE(o.err.find(words), std::string::npos) << window << ": " << o.err;
  }
}

TEST_F(PlotCli, TheLatencyThatWasAskedForComesFirst) {
  const json j = page("--latency libc:malloc libc:malloc");
  ASSERT_EQ(j["heat"].size(), 1u);
  EXPECT_EQ(j["heat"][0]["name"], "latency: libc:malloc libc:malloc");
  EXPECT_EQ(j["heat"][0]["asked"], true);
}

TEST_F(PlotCli, Errors) {
  for (const char* wrong :
       {"--from never", "--to +", "--from ''", "--items 5", "--items many", "--columns 1", "--nonsense", "--from 3s --to 2s"}) {
    const Outcome o = ringside(std::string("plot ") + wrong);
    EXPECT_EQ(o.code, 2) << wrong << o.err;
    EXPECT_FALSE(fs::exists(dir + "/ringside.html")) << wrong;
  }
  Outcome o = ringside("plot -o /nonexistent/x.html");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("/nonexistent/x.html cannot be written: No such file or directory; name another with -o"),
            std::string::npos)
      << o.err;
  o = ringside("plot nothing");
  EXPECT_EQ(o.code, 1);
  EXPECT_FALSE(fs::exists(dir + "/ringside.html"));
  EXPECT_EQ(ringside("plot -F 'size >'").code, 2);
  fs::create_directory(dir + "/taken");
  EXPECT_EQ(ringside("plot -o taken").code, 1);
  EXPECT_EQ(run("ls | grep '[.]part'").out, "");
}

TEST_F(PlotCli, HostileNamesAreData) {
  const std::string bad = "</script><script>alert(1)</script><!--\xff\"\\";
  record({}, bad);
  const json j = page();
  EXPECT_EQ(j["threads"][1]["name"], "</script><script>alert(1)</script><!--\xef\xbf\xbd\"\\");
  const std::string html = test::slurp(dir + "/ringside.html");
  EXPECT_EQ(html.find("alert(1)"), std::string::npos);
  const Outcome o = ringside("plot -o 'RINGSIDE_DATA</title>.html'");
  EXPECT_EQ(o.code, 1);  // the / of it
}

TEST_F(PlotCli, AnEmptyTrace) {
  record({}, "t", "malloc", true);
  const Outcome o = ringside("plot");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("no event is in ringside.data; ringside.html was not written"), std::string::npos) << o.err;
  EXPECT_FALSE(fs::exists(dir + "/ringside.html"));
}

TEST_F(PlotCli, HugeTimes) {
  record({1, u64{1} << 62, ~u64{0} - 5});
  const json j = page();
  EXPECT_EQ(j["events"], 3);
  EXPECT_LE(j["rates"]["columns"], 2048);
}

}  // namespace
}  // namespace ringside::test::plot_cli_test
