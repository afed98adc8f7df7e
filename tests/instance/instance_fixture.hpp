// An instance of a test's own, with rings of threads, and what can be read out of it.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <ringside/trace.hpp>
#include <string>

#include "instance/instance.hpp"
#include "instance/ring_source.hpp"
#include "own_root.hpp"
#include "seen.hpp"

RINGSIDE_EVENT(unit, number, (u64, n));
RINGSIDE_EVENT(unit, quiet, (u64, n));

namespace ringside::test::instance_test {

struct InstanceTest : testing::Test {
  OwnRoot root;
  const std::string& dir = root.path();
  static std::unique_ptr<Instance> make(const std::string& name, u64 size = 1 << 20, bool overwrite = true) {
    InstanceOptions o;
    o.name = name;
    o.buffer_size = size;
    o.overwrite = overwrite;
    o.rings = Rings::thread;
    return must(Instance::create(o));
  }
};

inline constexpr u32 number_at = 8;  // behind the common fields

inline Seen read_ring(Source& source) {
  Seen seen;
  read_all(source, seen, number_at);
  EXPECT_EQ(seen.error, "");
  return seen;
}

inline Seen read_all(Instance& instance) {
  Seen all;
  for (const RingInfo& r : instance.rings()) {
    auto source = must(instance.source(r.name.ring));
    read_all(*source, all, number_at);
    const Counters n = source->counters();
    EXPECT_EQ(n.written, n.read + n.overrun + n.unread);
  }
  EXPECT_EQ(all.error, "");
  return all;
}

// Runs `work` in a child that ends by _exit; returns its status.
template <class F>
int in_child(F work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace ringside::test::instance_test
