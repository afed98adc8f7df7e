// Traced programs among signals, clones and other preloaded libraries; and what they get no ring for.
#include "preload/limited.hpp"

namespace ringside::limited_test {
namespace {

// Each read is recorded, also those of handlers and children, wherever signals come. COUNT makes it likely that one comes at
// each place.
TEST_F(Limited, SignalsAroundForksLoseNothing) {
  for (const char* way : {"fork 200", "nest 100", "jump 100", "mlockall 200"})
    for (const char* rings : {"cpu", "thread"}) {
      const Outcome o = ringside(std::string("record -o rec -b 8M --libc io --rings ") + rings + " -- " + RINGSIDE_BUILD_DIR +
                                 "/tests/preload_forks " + way);
      EXPECT_EQ(o.code, 0) << way << rings << o.err;
      u64 reads = 0;
      for (const json& event : events("rec")) reads += event["event"] == "libc:read";
      EXPECT_EQ(static_cast<long>(reads), two_numbers(o.out + " 0").first) << way << rings << o.err;
      EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << way << rings << o.err;
      fs::remove_all(dir + "/rec");
    }
}

// A child that shares its parent's memory, and its thread's words.
TEST_F(Limited, ClonesThatShareMemoryAreCounted) {
  struct Case {
    const char* way;
    bool exact;
  };
  for (const Case& c : {Case{"clone", true}, {"clone-vfork", true}, {"clone-vm", false}, {"clone-number", false}})
    for (const char* rings : {"cpu", "thread"}) {
      const Outcome o = ringside(std::string("record -o rec -b 8M --libc io --rings ") + rings + " -- " + RINGSIDE_BUILD_DIR +
                                 "/tests/preload_forks " + c.way + " 20");
      EXPECT_EQ(o.code, 0) << c.way << rings << o.err;
      long reads = 0;
      for (const json& event : events("rec")) reads += event["event"] == "libc:read";
      const long lost = counted(o.err, "; lost ");
      EXPECT_EQ(reads + lost, two_numbers(o.out + " 0").first) << c.way << rings << o.err;
      EXPECT_EQ(lost == 0, c.exact) << c.way << rings << o.err;
      fs::remove_all(dir + "/rec");
    }
}

// A thread that may open nothing gets no ring of its own: larger rings would not help.
TEST_F(Limited, AProgramWithoutDescriptorsIsCounted) {
  for (const char* rings : {"cpu", "thread"}) {
    const bool of_cpu = rings == std::string("cpu");
    const std::string until = of_cpu ? "true" : "while ! grep -q \"lost already\" err; do sleep 0.1; done";
    const Outcome o = run(RINGSIDE_BUILD_DIR "/ringside record --libc io -o rec --rings " + std::string(rings) +
                          " -- bash -c '" + limited + "descriptors 1000; " + until + "' 2> err");
    EXPECT_EQ(o.code, 0);
    const std::string said = test::slurp(dir + "/err");
    u64 reads = 0;
    for (const json& event : events("rec")) reads += event["event"] == "libc:read" && event["task"] == "preload_limited";
    EXPECT_EQ(static_cast<long>(reads) + counted(said, "; lost "), 2001) << rings << said;
    EXPECT_EQ(said.find("too small for this rate"), std::string::npos) << said;
    fs::remove_all(dir + "/rec");
  }
}

// Another preloaded library's functions of the same names are called, as without the recording.
TEST_F(Limited, AnotherPreloadedLibraryIsCalled) {
  const std::string both = "export LD_PRELOAD=" RINGSIDE_BUILD_DIR "/tests/between.so; ";
  for (const bool forks : {false, true})
    for (const char* rings : {"cpu", "thread"}) {
      const std::string how = both + (forks ? "export BETWEEN_FORKS=1; " : "");
      const Outcome alone = run(how + limited + "between");
      EXPECT_EQ(alone.out, forks ? "4242 77 55\n100\n" : "4242 77 55\n200\n");  // a fork's child counts for itself
      const Outcome o =
          run(how + RINGSIDE_BUILD_DIR "/ringside record --libc malloc -o rec --rings " + rings + " -- " + limited + "between");
      EXPECT_EQ(o.code, 0) << o.err;
      EXPECT_EQ(o.out, alone.out) << forks << rings;
      u64 calls = 0;
      for (const json& event : events("rec")) calls += event["event"] == "libc:malloc" && event["fields"]["size"] == 4321;
      EXPECT_EQ(calls, 300u) << forks << rings << o.err;
      EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << forks << rings << o.err;
      fs::remove_all(dir + "/rec");
    }
}

}  // namespace
}  // namespace ringside::limited_test
