// The numbers of events are one for all instances of a directory, whatever stands beside them.
#include "writer/event_number.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "instance/instance.hpp"

namespace ringside::test::event_number_test {
namespace {

namespace fs = std::filesystem;

struct EventNumber : testing::Test {
  const std::string dir = fs::temp_directory_path() / ("ringside-numbers-" + std::to_string(getpid()));
  void SetUp() override {
    fs::remove_all(dir);
    fs::create_directories(dir);
    fs::permissions(dir, fs::perms::owner_all);
    setenv("RINGSIDE_ROOT", dir.c_str(), 1);
    for (const char* name : {"a", "b"}) {
      InstanceOptions o;
      o.name = name;
      o.rings = Rings::thread;
      o.clock = ClockKind::mono;
      must(Instance::create(o));
    }
  }
  void TearDown() override {
    unsetenv("RINGSIDE_ROOT");
    fs::remove_all(dir);
  }
  static EventEntry event(const std::string& name, u64 fields = 1) {
    EventEntry e{};
    e.known = 1;
    std::strcpy(e.system, "s");
    std::strcpy(e.name, name.c_str());
    e.format_hash = fields;
    return e;
  }
  // As a program that declares it there.
  static void put(const char* instance, u32 number, const EventEntry& e) {
    const auto opened = must(Instance::open(instance));
    const InstanceWords words = opened->words();
    words.event(number) = e;
    words.control->events = (u64{words.nr_events()} + 1) << 32 | std::max(words.last_event(), number);
  }
  static u32 choose(const char* instance, const EventEntry& e) {
    const auto opened = must(Instance::open(instance));
    return EventNumbers(opened->dir()).choose(opened->words(), e);
  }
};

TEST_F(EventNumber, ANeighboursEventKeepsItsNumber) {
  EXPECT_EQ(choose("b", event("x")), 1u);
  put("a", 1, event("x"));
  put("a", 7, event("y"));
  EXPECT_EQ(choose("b", event("y")), 7u);
  EXPECT_EQ(choose("b", event("y", 2)), 2u) << "with other fields it is another event";
  put("b", 7, event("z"));  // by an older order of things
  EXPECT_EQ(choose("b", event("y")), 2u) << "an instance has each number once";
  EXPECT_EQ(choose("a", event("z")), 2u);
}

TEST_F(EventNumber, WhenAllAreInUseTwoEventsShareOne) {
  for (u32 n = 1; n <= most_events; ++n) put("a", n, event("e" + std::to_string(n)));
  EXPECT_EQ(choose("b", event("e4000")), 4000u);
  EXPECT_EQ(choose("b", event("new")), 1u);
  EXPECT_EQ(choose("a", event("new")), 0u) << "the instance itself has no more";
}

// Whatever is there: no instance, one of another version, a table that is cut, others may write.
TEST_F(EventNumber, AnythingMayStandBesideAnInstance) {
  put("a", 1, event("x"));
  fs::create_directories(dir + "/c");
  std::ofstream(dir + "/c/instance") << "short";
  fs::create_directories(dir + "/d");
  std::ofstream(dir + "/file") << "x";
  fs::create_symlink("a", dir + "/link");
  EXPECT_EQ(choose("b", event("y")), 2u);
  put("a", 3, event("z"));
  fs::resize_file(dir + "/a/instance", event_table_at + 10);
  EXPECT_EQ(choose("b", event("y")), 1u) << "a table that is cut is none";
  fs::resize_file(dir + "/a/instance", instance_file_size);
  put("a", 1, event("x"));
  EXPECT_EQ(choose("b", event("y")), 2u);
  EXPECT_EQ(choose("b", event("x", 2)), 2u) << "what was read before";
  put("a", 2, event("v"));
  EXPECT_EQ(choose("b", event("y")), 3u) << "a table that grew is read again";
  fs::permissions(dir, fs::perms::all);
  EventNumbers numbers(must(sys::open_trusted(dir + "/b", sys::Role::instance)).get());
  EventEntry table[2] = {};
  InstanceControl none{};
  EXPECT_EQ(numbers.choose(InstanceWords{&none}, table[1]), 1u) << "others could put anything there";
}

}  // namespace
}  // namespace ringside::test::event_number_test
