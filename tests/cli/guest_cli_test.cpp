// ringside guest and ringside stream.
#include <gtest/gtest.h>
#include <unistd.h>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"

namespace ringside::guest_cli_test {
namespace {

using test::Outcome;

#if defined(__x86_64__)
struct GuestCli : test::BinaryTest {
  void SetUp() override {
    test::BinaryTest::SetUp();
    if (access("/dev/kvm", R_OK | W_OK) != 0) GTEST_SKIP() << "/dev/kvm cannot be opened";
  }
};

TEST_F(GuestCli, OneTimeline) {
  const bool traced = static_cast<bool>(tracefs_dir());
  const Outcome o = ringside(std::string("guest demo 30000 --tick 200us -o rec") + (traced ? " -e 'kvm:*'" : ""));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto meta = RecordingMeta::read(dir + "/rec");
  ASSERT_TRUE(meta) << meta.error().sentence;
  EXPECT_TRUE(meta->complete);
  EXPECT_EQ(meta->totals.written, meta->totals.read + meta->totals.overrun);
  const Outcome r = ringside("report rec");
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* what : {": step: number=30000 ", ": timer: number=1 ", ": swap: ring=0 ", ": interrupt: "})
    EXPECT_NE(r.out.find(what), std::string::npos) << what;
  if (traced) {
    EXPECT_NE(r.out.find(": kvm_"), std::string::npos);
  }
  EXPECT_EQ(
      run("ringside=" RINGSIDE_BUILD_DIR "/ringside; $ringside report rec | grep -o '[0-9]*\\.[0-9]*: ' | sort -c -n").code, 0);
  // The guest took each interrupt that the monitor made.
  const auto count = [&](const char* event) {
    return std::stoul(run(std::string(RINGSIDE_BUILD_DIR "/ringside report rec | grep -c '") + event + "'").out);
  };
  EXPECT_EQ(count(": timer: "), count(": interrupt: "));
  EXPECT_EQ(count(": step: "), 30000u);
}

TEST_F(GuestCli, Errors) {
  EXPECT_EQ(ringside("guest nowhere.elf").code, 1);
  EXPECT_EQ(ringside("guest demo --tick 1us").code, 2);
  EXPECT_EQ(ringside("guest demo --memory 3M").code, 1);
  const Outcome o = ringside("guest /bin/true");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("no static ELF file"), std::string::npos) << o.err;
  const Outcome hostile = ringside("guest " RINGSIDE_BUILD_DIR "/guest-hostile.elf 5 -q -o bad");
  EXPECT_EQ(hostile.code, 1);
  EXPECT_NE(hostile.err.find("the guest has ended before its time"), std::string::npos) << hostile.err;
}

TEST_F(GuestCli, AnExitStatusIsNeverTakenForAnother) {
  const auto ends_with = [&](const std::string& status) {
    return ringside("guest " RINGSIDE_BUILD_DIR "/guest-hostile.elf 9 " + status + " -q -o status");
  };
  EXPECT_EQ(ends_with("0").code, 0);
  EXPECT_EQ(ends_with("7").code, 7);
  for (const std::string status : {"256", "512", "1000"}) {
    const Outcome o = ends_with(status);
    EXPECT_EQ(o.code, 255) << status;
    EXPECT_NE(o.err.find("exit status is " + status), std::string::npos) << o.err;
  }
  const Outcome o = ringside("guest demo -b 3.5G -q -o big");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("the guest's rings are too big"), std::string::npos) << o.err;
}

TEST_F(GuestCli, CtrlCEndsIt) {
  // Sent once it records; a shell's background jobs would ignore Ctrl-C.
  const Outcome o = run("env --default-signal=INT " RINGSIDE_BUILD_DIR
                        "/ringside guest demo -o rec & for n in $(seq 600); do find rec -size +64k 2>/dev/null | grep -q . && "
                        "break; sleep .05; done; "
                        "kill -INT $!; wait $!");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(RecordingMeta::read(dir + "/rec")->complete);
}
#endif

struct StreamCli : test::BinaryTest {};

TEST_F(StreamCli, AGoodLineAndABadOne) {
  const std::string board = RINGSIDE_BUILD_DIR "/example_04_stream", tool = RINGSIDE_BUILD_DIR "/ringside ";
  Outcome o = run(board + " 5000 | " + tool + "stream - --compress -o good --fail-on-loss");
  EXPECT_EQ(o.code, 0) << o.err;
  const Outcome r = ringside("report good");
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 5000);
  EXPECT_NE(r.out.find("0.625000: sample: number=4999 volts=3301"), std::string::npos) << r.out.substr(0, 200);
  // 1,000 bytes are missing in the middle.
  o = run(board + " 5000 >all; (head -c 20000 all; tail -c +21001 all) >cut; " + tool + "stream cut -o bad --fail-on-loss");
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_NE(o.err.find("did not arrive whole"), std::string::npos) << o.err;
  const auto meta = RecordingMeta::read(dir + "/bad");
  ASSERT_TRUE(meta) << meta.error().sentence;
  EXPECT_EQ(meta->totals.written, 5000u);
  EXPECT_EQ(meta->totals.read + meta->totals.overrun, 5000u);
  EXPECT_GT(meta->totals.overrun, 0u);
  EXPECT_NE(ringside("report bad").out.find(" EVENTS]"), std::string::npos);
  o = run("head -c 100000 /dev/urandom | " + tool + "stream - -o none");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("no hello came"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace ringside::guest_cli_test
