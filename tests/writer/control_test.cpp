// A program that chooses its instance, its rings and its events itself, and saves what they hold.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ringside/control.hpp>
#include <ringside/trace.hpp>
#include <thread>

#include "instance/instance.hpp"
#include "own_root.hpp"
#include "sys/sandbox.hpp"
#include "writer/process.hpp"

RINGSIDE_EVENT(control, one, (u64, n));
RINGSIDE_EVENT(control, other, (u64, n));

namespace ringside::control_test {
namespace {

class Control : public testing::Test {
 protected:
  void TearDown() override { ringside_close(); }
  static std::string list(const char* name) { return must(must(Instance::open(name))->read("set_event")); }
  test::OwnRoot root;
};

TEST_F(Control, AnInstanceIsMadeAsTheProgramSays) {
  open_options o;
  o.name = "made";
  o.ring_bytes = 256 << 10;
  o.when_full = ringside::when_full::discard;
  o.budget_bytes = 64 << 20;
  o.events = "control:one";
  ASSERT_EQ(ringside::open(o), 0);
  EXPECT_EQ(std::string(ringside::instance()), root.path() + "/made");
  const auto instance = must(Instance::open("made"));
  EXPECT_EQ(instance->control().mode, 1u);
  EXPECT_EQ(instance->control().budget, 64u << 20);
  EXPECT_TRUE(::control::one.enabled());
  EXPECT_FALSE(::control::other.enabled());
  EXPECT_EQ(list("made"), "control:one\n");
  // One that is there stays as it is.
  o.when_full = ringside::when_full::overwrite;
  EXPECT_EQ(ringside::open(o), 0);
  EXPECT_EQ(instance->control().mode, 1u);
  o.name = "another";
  EXPECT_EQ(ringside::open(o), -EBUSY);
}

TEST_F(Control, ZerosAreTheUsualValues) {
  open_options o;
  o.name = "usual";
  ASSERT_EQ(ringside::open(o), 0);
  EXPECT_EQ(must(Instance::open("usual"))->control().mode, 0u);
  EXPECT_TRUE(::control::one.enabled());
  EXPECT_EQ(list("usual"), "*:*\n");
}

TEST_F(Control, WrongOptionsAreRefused) {
  EXPECT_EQ(ringside_open_with(nullptr, sizeof(ringside_options)), -EINVAL);
  ringside_options o{};
  o.name = "wrong";
  EXPECT_EQ(ringside_open_with(&o, 4), -EINVAL);
  o.mode = 2;
  EXPECT_EQ(ringside_open_with(&o, sizeof o), -EINVAL);
  o.mode = 0;
  o.events = "control:one,,";
  o.reserved = 1;
  EXPECT_EQ(ringside_open_with(&o, sizeof o), -EINVAL);
  struct {
    ringside_options known;
    u64 later;
  } more{};
  more.known.name = "wrong";
  more.later = 1;
  EXPECT_EQ(ringside_open_with(&more.known, sizeof more), -EINVAL) << "an option that this library does not know";
  EXPECT_FALSE(Instance::open("wrong"));
  more.later = 0;
  EXPECT_EQ(ringside_open_with(&more.known, sizeof more), 0);
}

TEST_F(Control, EventsAreSwitchedFromInside) {
  EXPECT_EQ(ringside::enable("control:one"), -ENOENT);
  ASSERT_EQ(ringside_open("switched"), 0);
  EXPECT_EQ(ringside::disable("control:*"), 0);
  EXPECT_FALSE(::control::one.enabled());
  EXPECT_FALSE(::control::other.enabled());
  EXPECT_EQ(ringside::enable("control:other,late:*"), 0);
  EXPECT_FALSE(::control::one.enabled());
  EXPECT_TRUE(::control::other.enabled());
  EXPECT_EQ(list("switched"), "*:*\n!control:*\ncontrol:other\nlate:*\n");
  for (const char* const wrong : {"", "control:\n", "!control:one"}) EXPECT_EQ(ringside::enable(wrong), -EINVAL) << wrong;
  EXPECT_EQ(ringside::enable(nullptr), -EINVAL);
  ASSERT_TRUE(Instance::remove("switched", true));
  EXPECT_EQ(ringside::enable("control:one"), -ENOENT);
}

// Makes `to` the command that save() starts.
class Command {
 public:
  explicit Command(const std::string& folder, const char* to) : path_(std::getenv("PATH")) {
    std::filesystem::create_symlink(to, folder + "/ringside");
    setenv("PATH", folder.c_str(), 1);
  }
  ~Command() { setenv("PATH", path_.c_str(), 1); }

 private:
  std::string path_;
};

TEST_F(Control, ACancelledThreadEndsAfterItsSave) {
  ASSERT_EQ(ringside_open("saved"), 0);
  const Command command(root.path(), "/bin/true");
  int saved = 1;
  std::thread([&] {
    pthread_cancel(pthread_self());
    saved = ringside::save((root.path() + "/file").c_str());
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  }).join();
  EXPECT_EQ(saved, 0);
}

TEST_F(Control, ASaveCountsAsSystemCallsThatASandboxWaitsFor) {
  ASSERT_EQ(ringside_open("saved"), 0);
  const std::string script = root.path() + "/script", until = root.path() + "/until";
  ASSERT_EQ(mkfifo(until.c_str(), 0600), 0);
  std::ofstream(script) << "#!/bin/sh\nread line <" << until << "\n";
  ASSERT_EQ(chmod(script.c_str(), 0700), 0);
  const Command command(root.path(), script.c_str());
  int saved = 0;
  std::thread saving([&] { saved = ringside::save((root.path() + "/file").c_str()); });
  {
    std::ofstream end(until);  // opens when the command has opened it, too
    EXPECT_EQ(__atomic_load_n(&calling, __ATOMIC_SEQ_CST), 1u);
    end << "end\n";
  }
  saving.join();
  EXPECT_EQ(saved, 0);
  EXPECT_EQ(__atomic_load_n(&calling, __ATOMIC_SEQ_CST), 0u);
}

TEST_F(Control, AFullInstanceIsOneComplaintOfAProcess) {
  ASSERT_EQ(ringside_open("full"), 0);
  const InstanceWords& words = opened_now()->words;
  for (u32 n = 1; n <= most_events; ++n) words.event(n).known = 1;
  words.control->events = u64{most_events} << 32 | most_events;
  static ringside_event more[2]{};
  testing::internal::CaptureStderr();
  for (ringside_event& one : more) {
    one.system = "control";
    one.name = &one == more ? "late" : "later";
    one.format_fields = "", one.print_fmt = "\"\"";
    EXPECT_EQ(ringside_register(&one), -ENOSPC);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("control:late and other new ones are not traced"), std::string::npos) << said;
  EXPECT_NE(said.find("`ringside rm " + root.path() + "/full`"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(Control, WhatCannotBeSavedIsAnError) {
  EXPECT_EQ(ringside::save("x"), -ENOENT);
  ASSERT_EQ(ringside_open("saved"), 0);
  EXPECT_EQ(ringside::save(nullptr), -EINVAL);
  EXPECT_EQ(ringside::save(""), -EINVAL);
  const std::string path = std::getenv("PATH");
  setenv("PATH", root.path().c_str(), 1);
  EXPECT_EQ(ringside::save((root.path() + "/file").c_str()), -ENOENT) << "there is no command";
  const std::string command = root.path() + "/ringside";
  std::filesystem::create_symlink("/bin/false", command);
  EXPECT_EQ(ringside::save((root.path() + "/file").c_str()), -EIO);
  std::filesystem::remove(command);
  std::filesystem::create_symlink("/bin/true", command);
  EXPECT_EQ(ringside::save((root.path() + "/file").c_str()), 0);
  setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace ringside::control_test
