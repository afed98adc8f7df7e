// Bombs in recordings, trace.dat files, CTF traces and perf maps.
#include "cli/bombs.hpp"
#include "source/groups.hpp"

namespace ringside::bombs_test {
namespace {

// A text of 15,000 letters that is printed 3,000 times for each event.
TEST_F(Bombs, AFormatThatRepeatsAText) {
  auto w = must(RecordingWriter::create(dir + "/bomb.data", ClockInfo{}));
  std::string text, arguments;
  for (int i = 0; i < 3000; ++i) {
    text += "%s";
    arguments += ", __get_str(t)";
  }
  w.meta().events.push_back({1, "libc", "malloc",
                             test::format(1, "malloc",
                                          "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n"
                                          "\tfield:__data_loc char[] t;\toffset:16;\tsize:4;\tsigned:0;\n",
                                          '"' + text + '"' + arguments),
                             true, false});
  must(w.add_ring({0, 70, 71, "worker", "server", false, ""}, 16384));
  for (u64 i = 0; i < 50; ++i) {
    SubBuffer one(1000 + i, 16384);
    const std::string letters = std::string(15'000, 'x') + '\0';
    one.event(1000 + i, Payload(1, 71).put(i).put(static_cast<u32>(20 | letters.size() << 16)).text(letters));
    must(w.append(0, one.view()));
  }
  must(w.finish(1));
  EXPECT_LT(in_each_command().code, 128);
}

// Lists of nothing, deep ones, numbers that are none: the metadata is read before anything else, the same by all.
TEST_F(Bombs, AListOfEverythingInTheMetadata) {
  record(RINGSIDE_BUILD_DIR "/tests/walker_O2", {.name = "good.data"});
  const std::string good = test::slurp(dir + "/good.data/meta.json");
  const nlohmann::json meta = nlohmann::json::parse(good);
  const auto read = [&](const std::string& text) {
    std::filesystem::remove_all(dir + "/bomb.data");
    std::filesystem::copy(dir + "/good.data", dir + "/bomb.data");
    std::ofstream(dir + "/bomb.data/meta.json") << text;
    const Outcome o = bounded("report bomb.data --json");  // all commands have the same code for it
    EXPECT_LT(o.code, 128) << text.substr(0, 100) << "\n" << o.err.substr(0, 1000);
    EXPECT_LT(o.err.size(), 10'000u);
  };
  for (const std::string list : {"rings", "threads", "events"}) {
    const auto with = [&](const std::string& one, u64 times) {
      nlohmann::json bad = meta;
      bad[list] = "@";
      std::string text = bad.dump(), all = "[" + one;
      for (u64 i = 1; i < times; ++i) all += "," + one;
      return text.replace(text.find("\"@\""), 3, all + "]");
    };
    const std::string one = meta[list].empty() ? R"({"ring":5,"pid":1,"tid":1,"task":"","process":""})" : meta[list][0].dump();
    read(with(one, (1 << 20) / (one.size() + 1)));
    read(with("{}", 300'000));
  }
  for (const std::string part : {"[", "{\"a\":"}) {
    std::string deep;
    while (deep.size() < 1 << 20) deep += part;
    read(deep);
  }
  for (const std::string& number : {std::string("1e99999"), std::string(1 << 19, '9'), "-" + std::string(1 << 19, '9'),
                                    "0." + std::string(1 << 19, '1') + "e-99999"}) {
    nlohmann::json bad = meta;
    bad["subbuf_size"] = bad["totals"]["read"] = "@";
    std::string text = bad.dump();
    for (size_t at = 0; (at = text.find("\"@\"")) != text.npos;) text.replace(at, 3, number);
    read(text);
  }
}

// A thread's name of 900,000 letters, which each of 5,000 events would show.
TEST_F(Bombs, AThreadWithALongName) {
  record("", {.events = 5000});
  nlohmann::json meta = nlohmann::json::parse(test::slurp(dir + "/bomb.data/meta.json"));
  meta["rings"][0]["task"] = meta["rings"][0]["process"] = std::string(450'000, 'n');
  std::ofstream(dir + "/bomb.data/meta.json") << meta.dump();
  EXPECT_EQ(in_each_command().code, 0);
  const Outcome o = run(RINGSIDE_BUILD_DIR "/ringside report bomb.data | wc -c");
  EXPECT_LT(std::stoull(o.out), u64{32} << 20) << "it would be 2 GB";
  EXPECT_THAT(run(RINGSIDE_BUILD_DIR "/ringside report bomb.data | head -n 1").out, HasSubstr("nnn...#"));
}

TEST_F(Bombs, APerfMapWithALongLine) {
  const i32 pid = 4'194'304 + getpid();  // of no process
  const std::string map = "/tmp/perf-" + std::to_string(pid) + ".map";
  std::ofstream(map) << "10000 f0000 " << std::string(1'000'000, 'j') << "\n";
  record("", {.addresses = 50'000, .pid = pid});
  EXPECT_EQ(in_each_command().code, 0);
  EXPECT_THAT(run(RINGSIDE_BUILD_DIR "/ringside flame bomb.data --folded | head -c 2000").out, HasSubstr("jjj...#"));
  std::filesystem::remove(map);
}

// One stack of 256 long names, which each of 2,000 events would show.
TEST_F(Bombs, AStackOfLongNamesInEachEvent) {
  std::string source;
  for (int i = 0; i < 256; ++i) {
    const std::string name = "f" + std::to_string(1000 + i) + std::string(900, 'n');
    source +=
        "\t.globl " + name + "\n\t.type " + name + ",@function\n" + name + ":\n\t.fill 4,1,0x90\n\t.size " + name + ",4\n";
  }
  record(assemble(source), {.events = 2000});
  EXPECT_EQ(in_each_command().code, 0);
  for (const std::string command : {"report bomb.data --json", "report bomb.data"}) {
    const Outcome o = run("RINGSIDE_BUDGET=2 " RINGSIDE_BUILD_DIR "/ringside " + command + " | wc -c");
    EXPECT_LT(std::stoull(o.out), u64{100} << 20) << command << ": it would be 480 MB";
    EXPECT_THAT(o.err, HasSubstr("stacks are not written")) << command;
  }
}

// Chunks of a trace.dat that become 13 GB of nothing, and sections that claim more than the budget has.
TEST_F(Bombs, ATraceDatOfZeros) {
  record("", {.name = "small.data", .events = 10, .kernel = true});
  ASSERT_EQ(ringside("export small.data --to small.dat").code, 0);
  const std::string dat = test::slurp(dir + "/small.dat");
  for (const std::string by : {"zstd", "zlib"}) {
    const std::string zeros = test::packed(by, std::string(u64{1} << 20, '\0'));
    std::string chunks;
    u32 count = 0;
    for (; chunks.size() < 900'000; ++count) {
      test::put(chunks, static_cast<u32>(zeros.size()));
      test::put(chunks, u32{1} << 20);
      chunks += zeros;
    }
    std::string bad = test::compressed(dat, by, {.chunks = chunks, .count = count});
    std::ofstream(dir + "/bomb.dat", std::ios::binary) << bad;
    for (const std::string command : {"report bomb.dat", "stat bomb.dat", "export bomb.dat --to e.json"})
      EXPECT_LT(bounded(command, command[0] == 'r' && by == "zstd" ? "" : "RINGSIDE_BUDGET=2 ").code, 128)
          << by << ": " << command;
    if (by != "zstd") continue;
    EXPECT_THAT(bounded("report bomb.dat", "RINGSIDE_BUDGET=2 ").err,
                HasSubstr("would become far more than a file of its size may"));
  }
  for (const std::string by : {"zstd", "zlib"}) {
    const std::string zeros = test::packed(by, std::string(u64{290} << 20, '\0'));
    std::string bad =
        test::compressed(dat, by, {.section = trace_dat::section_kallsyms, .packed = zeros, .size = u32{290} << 20});
    ASSERT_LT(bad.size(), 1u << 20);
    std::ofstream(dir + "/bomb.dat", std::ios::binary) << bad;
    const Outcome o = bounded("report bomb.dat");
    EXPECT_LT(o.code, 128) << by;
    EXPECT_THAT(o.err, HasSubstr("to be compressed " + by + " data of 304087040 bytes"));
  }
}

// Groups of a compressed recording: each becomes at most 256 KiB, however few bytes it takes.
TEST_F(Bombs, GroupsOfNothing) {
  record("", {.events = 10});
  nlohmann::json meta = nlohmann::json::parse(test::slurp(dir + "/bomb.data/meta.json"));
  meta["ringside_recording"] = 2;
  meta["compression"] = "zstd";
  std::ofstream(dir + "/bomb.data/meta.json") << meta.dump();
  const u64 raw = 4 * 65536;
  static_assert(raw <= group_size);
  std::vector<u64> zeros(raw / 8);
  std::vector<u8> group;
  std::string file;
  for (u64 n = 0; file.size() < 1 << 20; ++n) {
    ASSERT_TRUE(make_group({reinterpret_cast<const u8*>(zeros.data()), raw}, file.size(), n * raw, 1000 + n, group));
    file.append(group.begin(), group.end());
  }
  std::filesystem::remove(dir + "/bomb.data/ring0.raw");
  std::ofstream(dir + "/bomb.data/ring0.zst", std::ios::binary) << file;
  for (const std::string command : {"report bomb.data", "flame bomb.data --folded", "stat bomb.data"})
    EXPECT_LT(bounded(command).code, 128) << command;
}

// babeltrace2 believes what the metadata of CTF claims.
TEST_F(Bombs, CtfThatClaimsMore) {
  if (std::system("babeltrace2 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no babeltrace2";
  const auto read =
      [&](const std::string& packet, const std::string& fields, const std::string& stream) {
        std::filesystem::remove_all(dir + "/ctf");
        std::filesystem::create_directory(dir + "/ctf");
        std::ofstream(dir + "/ctf/metadata")
            << "/* CTF 1.8 */\ntypealias integer { size = 32; align = 8; } := u32;\ntypealias integer { size = 64; align = 8; "
               "} := u64;\n"
               "trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };\n"
               "clock { name = c; freq = 1000000000; };\n"
               "typealias integer { size = 64; align = 8; map = clock.c.value; } := t64;\n"
               "stream { event.header := struct { t64 time; }; " +
                   packet + " };\nevent { name = \"e\"; fields := " + fields + "; };\n";
        std::string bytes;
        test::put(bytes, u32{0xC1FC1FC1});
        std::ofstream(dir + "/ctf/stream", std::ios::binary) << bytes << stream;
        const Outcome o = bounded("report ctf");
        EXPECT_LT(o.code, 128) << fields.substr(0, 100) << "\n" << o.err;
        EXPECT_LT(o.err.size(), 10'000u);
        return o;
      };
  const std::string time(8, '\0'), ones(64, '\xff');
  const std::string context = "packet.context := struct { u64 packet_size; u64 content_size; };";
  const Outcome ordinary_one = read("", "struct { u32 a; }", std::string(12, '\0'));
  if (ordinary_one.err.find("plugin for it was not found") != std::string::npos) GTEST_SKIP() << ordinary_one.err;
  EXPECT_EQ(ordinary_one.code, 0) << "nothing is wrong but what the others claim";
  EXPECT_NE(read("", "struct { u32 a[4294967295]; }", time + ones).code, 0);
  EXPECT_NE(read("", "struct { u64 n; u32 a[n]; }", time + ones).code, 0);
  EXPECT_NE(read("", "struct { u64 n; struct { } a[n]; }", time + std::string(5, '\0') + '\1' + std::string(2, '\0')).code, 0);
  EXPECT_NE(read("", "struct { struct { struct { u32 a[65535]; } b[65535]; } c[65535]; }", time + ones).code, 0);
  EXPECT_NE(read(context, "struct { u32 a; }", ones).code, 0);
  const std::string large = std::string(7, '\0') + '\x40';
  EXPECT_NE(read(context, "struct { u32 a; }", large + large + time + ones).code, 0);
  std::string deep = "u32 a;";
  for (int i = 0; i < 20'000; ++i) deep = "struct { " + deep + " } a;";
  EXPECT_NE(read("", "struct { " + deep + " }", time + ones).code, 0);
  EXPECT_THAT(read("", "struct { string " + std::string(900'000, 'n') + "; }", std::string(4500, '\0')).err,
              HasSubstr("its fields appear as hex"));
}

}  // namespace
}  // namespace ringside::bombs_test
