// The C face, through examples/02_c.c, which is compiled into this test with -Dmain=example_main.
#include "writer/fake_runtime.hpp"

extern "C" int example_main(void);

namespace ringside {
namespace {

struct CApi : fake::Test {};

TEST_F(CApi, EventsAreKnownBeforeTheFirstCall) {
  auto* e = run.find("net", "packet_in");
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(ringside::texts_of(*e).fields,
            "\tfield:u32 length;\toffset:8;\tsize:4;\tsigned:0;\n"
            "\tfield:u64 flow;\toffset:16;\tsize:8;\tsigned:0;\n"
            "\tfield:__data_loc char[] device;\toffset:24;\tsize:4;\tsigned:0;\n"
            "\tfield:double load;\toffset:32;\tsize:8;\tsigned:0;\n"
            "\tfield:u32 verdict;\toffset:40;\tsize:4;\tsigned:0;\n"
            "\tfield:u8 mac[6];\toffset:44;\tsize:6;\tsigned:0;\n");
  EXPECT_EQ(ringside::texts_of(*e).print,
            "\"length=%u flow=%llu device=%s load=0x%llx verdict=%u mac=%s\", REC->length, REC->flow, __get_str(device), "
            "REC->load, REC->verdict, __print_hex(REC->mac, 6)");
  EXPECT_EQ(ringside::texts_of(*run.find("net", "idle")).fields, "");
  EXPECT_EQ(ringside::texts_of(*run.find("net", "idle")).print, "\"\"");
  EXPECT_EQ(ringside::texts_of(*run.find("ringside", "marker")).print, "\"%s\", __get_str(buf)");
}

TEST_F(CApi, DisabledWritesNothing) {
  example_main();
  EXPECT_TRUE(run.records.empty());
}

TEST_F(CApi, TheExampleWritesItsEvents) {
  for (auto* e : run.events) run.enable(e->system, e->name);
  example_main();
  std::string names;
  for (auto& r : run.records) names += std::string(r.event->name) + " ";
  ASSERT_EQ(names,
            "span packet_in counter packet_in counter packet_in counter span idle marker span "
            "async_span flush process_counter flow_span flush ");

  auto& packet = run.records[5];
  EXPECT_EQ(packet.at<u32>(8), 66u);
  EXPECT_EQ(packet.at<u64>(16), 0x100000002u);
  EXPECT_EQ(packet.text(24), "eth0");
  EXPECT_EQ(packet.at<double>(32), 0.5);
  EXPECT_EQ(packet.at<u32>(40), 1u);
  EXPECT_EQ((packet.at<array<u8, 6>>(44)), (array<u8, 6>{2, 0, 0, 0, 0, 1}));

  EXPECT_EQ(run.records[0].at<char>(8), 'B');
  EXPECT_EQ(run.records[0].text(12), "poll");
  EXPECT_EQ(run.records[2].at<i64>(8), 3);
  EXPECT_EQ(run.records[2].text(16), "queue depth");
  EXPECT_EQ(run.records[7].at<char>(8), 'I');
  EXPECT_EQ(run.records[9].text(8 + sizeof(void*)), "took 3 packets from eth0");
  EXPECT_NE(run.records[9].at<uintptr_t>(8), 0u);

  EXPECT_EQ(run.records[11].text(12), "tick");
  EXPECT_EQ(run.records[11].at<u64>(16), 1u);
  for (const auto& [at, type, packets] : {std::tuple{12u, 'B', 0u}, std::tuple{15u, 'E', 3u}}) {
    EXPECT_EQ(run.records[at].at<char>(8), type);
    EXPECT_EQ(run.records[at].text(12), "flush");
    EXPECT_EQ(run.records[at].at<u32>(16), packets);
  }
  EXPECT_EQ(run.records[13].at<double>(8), 2.0);
  EXPECT_EQ(run.records[13].text(16), "sockets");
  EXPECT_EQ(run.records[13].at<i32>(20), 0);
  EXPECT_EQ(run.records[14].at<u64>(16), 7u);
}

}  // namespace
}  // namespace ringside
