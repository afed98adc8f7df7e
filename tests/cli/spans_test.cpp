// Spans with arguments and spans that cross threads, from a program to each reader.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "binary.hpp"
#include "perfetto_reader.hpp"

namespace ringside::spans_test {
namespace {

using nlohmann::json;

struct Spans : test::BinaryTest {
  static constexpr u64 count = 12;
  void SetUp() override {
    BinaryTest::SetUp();
    const auto o = ringside("record -q -o rec " RINGSIDE_BUILD_DIR "/tests/spans_writer " + std::to_string(count));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  json answer(const std::string& command) {
    const auto o = ringside(command + " --json");
    EXPECT_EQ(o.code, 0) << command << o.err;
    return json::parse(o.out);
  }
  std::map<std::string, u64> pairs(const std::string& arguments) {
    std::map<std::string, u64> all;
    const json all_groups = answer("latency " + arguments + " rec").at("groups");
    for (const json& row : all_groups)
      all[row.at("key").get<std::string>()] = row.at("count");
    return all;
  }
};

TEST_F(Spans, ThoseOfCategoriesAreSpans) {
  const std::map<std::string, u64> all{{"query", 2 * count}, {"commit", count}, {"{anonymous}::serve", count}};
  EXPECT_EQ(pairs("span"), all);
}

TEST_F(Spans, AnAsyncSpanEndsOnAnotherThread) { EXPECT_EQ(pairs("async"), (std::map<std::string, u64>{{"request", count}})); }

TEST_F(Spans, TheEndHasItsResults) {
  std::multiset<u64> rows;
  for (const json& e : events("rec -e db:query -f 'track_event_type == \"E\"'"))
    rows.insert(e.at("fields").at("rows").get<u64>());
  std::multiset<u64> wanted;
  for (u64 i = 0; i < count; ++i) wanted.insert({i, 1000});
  EXPECT_EQ(rows, wanted);
}

TEST_F(Spans, ACategoryIsEnabledByItself) {
  ASSERT_EQ(ringside("record -q -o few -u db:commit " RINGSIDE_BUILD_DIR "/tests/spans_writer 3").code, 0);
  std::set<std::string> names;
  const auto few = events("few");
  for (const json& e : few) names.insert(e.at("event").get<std::string>());
  EXPECT_EQ(few.size(), 6u);
  EXPECT_EQ(names, std::set<std::string>{"db:commit"});
}

TEST_F(Spans, AnEnumHasItsNames) {
  EXPECT_EQ(events("rec -f 'state == paid'").size(), count / 2);
  EXPECT_EQ(events("rec -f 'state == 2'").size(), 0u);
  const std::string text = ringside("report rec -e shop:order").out;
  EXPECT_NE(text.find("state=paid id=0"), std::string::npos) << text;
  EXPECT_NE(text.find("state=open id=1"), std::string::npos) << text;
}

// Twelve requests are open at a time: each stands on a track of its own, and its end closes it there.
TEST_F(Spans, PerfettoDrawsThem) {
  ASSERT_EQ(ringside("export rec -o rec.pftrace").code, 0);
  const test::PerfettoFile file(test::slurp(dir + "/rec.pftrace"));
  EXPECT_EQ(file.dropped, 0u);
  std::set<u64> tracks;
  u64 requests = 0, queries = 0;
  for (const test::PerfettoSlice& slice : file.slices()) {
    queries += slice.name == "query" && slice.duration >= 0;
    if (slice.name != "request") continue;
    ++requests;
    EXPECT_GE(slice.duration, 0) << "it has an end";
    EXPECT_EQ(file.tracks.at(slice.track).name, "request");
    tracks.insert(slice.track);
  }
  EXPECT_EQ(requests, count);
  EXPECT_EQ(tracks.size(), count) << "all are open at a time";
  EXPECT_EQ(queries, 2 * count);
}

TEST_F(Spans, ThePageDrawsThem) {
  const auto o = ringside("plot rec -o page.html");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err.find("without their begin or end"), std::string::npos) << o.err;
  EXPECT_NE(ringside("plot rec -o -").out.find("request"), std::string::npos);
}

TEST_F(Spans, RingsideAloneTellsOfTheRecordingHere) {
  const auto none = ringside("");
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_NE(none.err.find("ringside doctor"), std::string::npos);
  ASSERT_EQ(ringside("record -q " RINGSIDE_BUILD_DIR "/tests/spans_writer 12").code, 0);
  const auto o = ringside("");
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* const words : {"ringside.data: 132 events of 5 kinds in ", "48  db:query", "(1 more: ringside top)", "none lost",
                                  "ringside latency span", "ringside report | less", "ringside plot -o page.html"})
    EXPECT_NE(o.out.find(words), std::string::npos) << words << "\n" << o.out;
  EXPECT_LE(std::count(o.out.begin(), o.out.end(), '\n'), 13) << o.out;
}

// ---- OpenTelemetry: each line of the file is a TracesData in OTLP's JSON.

struct OtlpSpans {
  std::vector<json> spans;
  u64 events = 0;  // in spans
  explicit OtlpSpans(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const json data = json::parse(line);
      for (const json& resource : data.at("resourceSpans"))
        for (const json& scope : resource.at("scopeSpans"))
          for (const json& span : scope.at("spans")) {
            spans.push_back(span);
            if (span.contains("events")) events += span.at("events").size();
          }
    }
  }
  std::vector<json> named(const std::string& name) const {
    std::vector<json> out;
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(out), [&](const json& s) { return s.at("name") == name; });
    return out;
  }
  // A parent is in the file, in the same trace, and its span holds the child's.
  void expect_nested() const {
    std::map<std::string, const json*> by_id;
    for (const json& s : spans) EXPECT_TRUE(by_id.emplace(s.at("spanId"), &s).second) << s;
    const auto number = [](const json& s, const char* key) { return std::stoull(s.at(key).get<std::string>()); };
    for (const json& s : spans) {
      EXPECT_EQ(s.at("traceId").get<std::string>().size(), 32u);
      EXPECT_LE(number(s, "startTimeUnixNano"), number(s, "endTimeUnixNano"));
      if (!s.contains("parentSpanId")) continue;
      const auto parent = by_id.find(s.at("parentSpanId"));
      ASSERT_NE(parent, by_id.end()) << s;
      EXPECT_EQ(parent->second->at("traceId"), s.at("traceId"));
      EXPECT_LE(number(*parent->second, "startTimeUnixNano"), number(s, "startTimeUnixNano"));
      EXPECT_GE(number(*parent->second, "endTimeUnixNano"), number(s, "endTimeUnixNano"));
    }
  }
};

std::string attribute_of(const json& span, const std::string& key) {
  for (const json& one : span.at("attributes"))
    if (one.at("key") == key)
      return one.at("value").begin().value().is_string() ? one.at("value").begin().value().get<std::string>()
                                                         : one.at("value").begin().value().dump();
  return "";
}

TEST_F(Spans, OpenTelemetryHasThemWithParentsEventsAndResults) {
  ASSERT_EQ(ringside("export rec -o otlp.json").code, 0);
  const std::string text = test::slurp(dir + "/otlp.json");
  const OtlpSpans file(text);
  file.expect_nested();
  std::map<std::string, std::string> name_of;
  for (const json& s : file.spans) name_of[s.at("spanId")] = s.at("name");
  EXPECT_EQ(file.named("request").size(), count);
  EXPECT_EQ(file.named("query").size(), 2 * count);
  u64 inner = 0;
  for (const json& s : file.named("commit")) {
    EXPECT_EQ(name_of[s.value("parentSpanId", "")], "query");
    ++inner;
  }
  EXPECT_EQ(inner, count);
  std::multiset<std::string> rows;
  for (const json& s : file.named("query")) rows.insert(attribute_of(s, "rows"));
  EXPECT_EQ(rows.count("1000"), count) << "the end's value counts";
  u64 orders = 0;
  for (const json& s : file.named("query"))
    for (const json& e : s.value("events", json::array())) orders += e.at("name") == "shop:order";
  for (const json& s : file.named("{anonymous}::serve")) EXPECT_FALSE(s.contains("parentSpanId"));
  EXPECT_EQ(orders, count);
  ASSERT_EQ(ringside("export rec -o again.otlp.jsonl --format otlp").code, 0);
  EXPECT_EQ(test::slurp(dir + "/again.otlp.jsonl"), text);
}

TEST_F(Spans, OpenTelemetryHasAllEventsOfADurationOrNone) {
  ASSERT_EQ(ringside("record -q -o calls --libc malloc,io ls -lR /etc").code, 0);
  ASSERT_EQ(ringside("export calls -o calls.otlp.json").code, 0);
  const OtlpSpans file(test::slurp(dir + "/calls.otlp.json"));
  file.expect_nested();
  EXPECT_EQ(file.spans.size() + file.events, events("calls").size());
  std::map<std::string, u64> took;
  for (const json& e : events("calls -e libc:write")) took[std::to_string(e.at("fields").at("duration_ns").get<u64>())]++;
  for (const json& s : file.named("libc:write")) {
    const u64 length =
        std::stoull(s.at("endTimeUnixNano").get<std::string>()) - std::stoull(s.at("startTimeUnixNano").get<std::string>());
    EXPECT_GT(took[std::to_string(length)]--, 0u);
  }
}

}  // namespace
}  // namespace ringside::spans_test
