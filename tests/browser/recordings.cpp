// usage: recordings DIR: writes what the browser test looks at, made by hand: DIR/work (two processors, three threads, a gap, a
// thread whose name would be HTML), DIR/states (threads that wake each other, spans, counters), DIR/stacks (three stacks),
// DIR/huge (times at both ends), DIR/empty. And, for the tests of Python and CTF, DIR/random,
// DIR/mixed (fields of the same name).
#include <cstdio>
#include <limits>
#include <string>

#include "cli/hand_made.hpp"
#include "random_recording.hpp"
#include "source/recording.hpp"

using namespace ringside;
using test::Payload;
using test::SubBuffer;

namespace {

constexpr u64 second = 1'000'000'000, begin = 100 * second;
const char* const hostile = "</script><img src=x onerror=hacked=1>";

std::string padded(std::string name) {
  name.resize(16);
  return name;
}
Payload switch_to(const std::string& from, i32 prev, const std::string& to, i32 next) {
  return Payload(5, prev).text(padded(from)).put(prev).text(padded(to)).put(next);
}

RecordingWriter create(const std::string& dir) {
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  w.meta().command = {"make", "-j2"};
  w.meta().events.push_back({1, "libc", "malloc", test::malloc_format(), true});
  w.meta().events.push_back(
      {2, "libc", "read",
       test::format(
           2, "read",
           "\tfield:s32 fd;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u64 duration_ns;\toffset:16;\tsize:8;\tsigned:0;\n",
           R"("fd=%d duration_ns=%llu", REC->fd, REC->duration_ns)"),
       true});
  w.meta().events.push_back(
      {5, "sched", "sched_switch",
       test::format(
           5, "sched_switch",
           "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:s32 "
           "prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
           "\tfield:char next_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\tfield:s32 "
           "next_pid;\toffset:44;\tsize:4;\tsigned:1;\n",
           R"("prev_comm=%s prev_pid=%d ==> next_comm=%s next_pid=%d", REC->prev_comm, REC->prev_pid, REC->next_comm, REC->next_pid)"),
       true, true});
  return w;
}

void work(const std::string& dir) {
  auto w = create(dir);
  constexpr u32 kernel = RecordingWriter::kernel_rings;
  const RingName threads[] = {
      {0, 4700, 4711, "cc1plus", "g++"}, {1, 4700, 4712, "as", "g++"}, {2, 4800, 4800, hostile, hostile}};
  for (const RingName& t : threads) {
    must(w.add_ring(t, 4096));
    w.meta().threads.push_back(t);
  }
  for (const u32 cpu : {0u, 1u}) {
    must(w.add_ring({cpu, 0, 0, "", "", true}, 4096));
    SubBuffer s(begin);
    // 20 ms of cc1plus or as, 5 ms of nobody.
    const bool first = cpu == 0;
    const std::string name = first ? "cc1plus" : "as";
    const i32 tid = first ? 4711 : 4712;
    for (u64 i = 0; i < 32; ++i) {
      s.event(begin + i * 25'000'000 + cpu * 7'000'000, switch_to("swapper", 0, name, tid));
      s.event(begin + i * 25'000'000 + cpu * 7'000'000 + 20'000'000, switch_to(name, tid, "swapper", 0));
    }
    must(w.append(cpu + kernel, s.view()));
  }
  for (const RingName& t : threads) {
    u64 time = begin + t.ring * 1'000'000;
    for (u64 page = 0; page < 10; ++page) {
      SubBuffer s(time);
      for (u64 i = 0; i < 60; ++i) {
        time += 1'300'000;
        if (i % 3 == 0)
          s.event(time, Payload(2, t.tid).put(i32{3}).put(u32{0}).put(u64{1000} << (i % 10)));
        else
          s.event(time, Payload(1, t.tid).put(u64{16 + i}).put(u64{0x1000 * (i + 1)}));
      }
      // cc1plus lost 1,234 between its fifth and its sixth page.
      const bool gap = t.ring == 0 && page == 5;
      must(w.append(t.ring, s.view(gap ? 1234 : 0)));
      if (t.ring == 0 && page == 4) time += 20'000'000;
    }
  }
  must(w.finish(second));
}

// alpha sleeps until beta wakes it, runs 3 ms on CPU 0 and answers a request; beta is blocked until an interrupt wakes it, and
// runs 8 ms on CPU 1. Forty times.
void states(const std::string& dir) {
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  const std::string comm =
      "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:s32 pid;\toffset:24;\tsize:4;\tsigned:1;\n";
  const std::string at_8 = "\toffset:8;\tsize:8;\tsigned:", text = "[16];\toffset:16;\tsize:16;\tsigned:0;\n";
  w.meta().events.push_back(
      {1, "ringside", "counter",
       test::format(1, "counter", "\tfield:s64 counter_value;" + at_8 + "1;\n\tfield:char track_name" + text,
                    R"("%lld", REC->counter_value)"),
       true});
  w.meta().events.push_back(
      {2, "ringside", "span",
       test::format(2, "span", "\tfield:u64 track_event_type;" + at_8 + "0;\n\tfield:char slice_name" + text,
                    R"("%llu", REC->track_event_type)"),
       true});
  w.meta().events.push_back(
      {3, "job", "done", test::format(3, "done", "\tfield:u64 id;" + at_8 + "0;\n", R"("id=%llu", REC->id)"), true});
  w.meta().events.push_back({5, "sched", "sched_switch",
                             test::format(5, "sched_switch",
                                          "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:s32 "
                                          "prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
                                          "\tfield:char next_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\tfield:s32 "
                                          "next_pid;\toffset:44;\tsize:4;\tsigned:1;\n"
                                          "\tfield:long prev_state;\toffset:48;\tsize:8;\tsigned:1;\n",
                                          R"("%d ==> %d", REC->prev_pid, REC->next_pid)"),
                             true, true});
  w.meta().events.push_back(
      {6, "sched", "sched_waking", test::format(6, "sched_waking", comm, R"("pid=%d", REC->pid)"), true, true});
  constexpr u32 kernel = RecordingWriter::kernel_rings;
  const RingName alpha{0, 5001, 5001, "alpha", "alpha"}, beta{1, 5001, 5002, "beta", "alpha"};
  for (const RingName& t : {alpha, beta}) {
    must(w.add_ring(t, 16384));
    w.meta().threads.push_back(t);
  }
  for (const u32 cpu : {0u, 1u}) must(w.add_ring({cpu, 0, 0, "", "", true}, 16384));
  const auto waking = [](i32 waker, const std::string& name, i32 tid, u16 flags) {
    return Payload(6, waker, flags).text(padded(name)).put(tid);
  };
  const auto switched = [](const std::string& from, i32 prev, const std::string& to, i32 next, i64 state) {
    return Payload(switch_to(from, prev, to, next)).put(state);
  };
  SubBuffer cpu0(begin, 16384), cpu1(begin, 16384), of_alpha(begin, 16384), of_beta(begin, 16384);
  for (u64 i = 0; i < 40; ++i) {
    const auto us = [i](u64 n) { return begin + i * 10'000'000 + n * 1000; };
    cpu1.event(us(500), waking(0, "beta", 5002, 0x08));
    cpu1.event(us(1000), switched("swapper", 0, "beta", 5002, 0));
    cpu1.event(us(2000), waking(5002, "alpha", 5001, 0));
    cpu1.event(us(9000), switched("beta", 5002, "swapper", 0, 2));
    cpu0.event(us(3000), switched("swapper", 0, "alpha", 5001, 0));
    cpu0.event(us(6000), switched("alpha", 5001, "swapper", 0, 1));
    of_alpha.event(us(3200), Payload(2, 5001).put(u64{'B'}).text(padded("request")));
    of_alpha.event(us(4000), Payload(1, 5001).put(static_cast<i64>(i)).text(padded("depth")));
    of_alpha.event(us(5000), Payload(3, 5001).put(i));
    of_alpha.event(us(5800), Payload(2, 5001).put(u64{'E'}).text(padded("request")));
    if (i == 15)
      of_beta.event(us(4000),
                    Payload(2, 5002).put(u64{'I'}).text(padded("=1+1,\"x\"")));  // a spreadsheet must not calculate it
    if (i == 16) of_beta.event(us(4200), Payload(2, 5002).put(u64{'B'}).text(padded("DB::Write")));
    if (i == 16) of_beta.event(us(4800), Payload(2, 5002).put(u64{'E'}).text(padded("DB::Write")));
    of_beta.event(us(5000), Payload(1, 5002).put(-static_cast<i64>(i)).text(padded("depth")));
  }
  must(w.append(0, of_alpha.view()));
  must(w.append(1, of_beta.view()));
  must(w.append(kernel, cpu0.view()));
  must(w.append(kernel + 1, cpu1.view()));
  must(w.finish(second));
}

// Three stacks of a program without a file: 60, 30 and 10 events.
void stacks(const std::string& dir) {
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  const std::string u64_at = ";\tsize:8;\tsigned:0;\n";
  w.meta().events.push_back(
      {1, "app", "work",
       test::format(1, "work", "\tfield:u64 size;\toffset:8" + u64_at + "\tfield:ringside_stack stack;\toffset:16" + u64_at,
                    R"("size=%llu", REC->size)"),
       true});
  w.meta().events.push_back(
      {2, "ringside", "stack",
       test::format(2, "stack",
                    "\tfield:u64 id;\toffset:8" + u64_at + "\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n",
                    R"("%llx", REC->id)"),
       true});
  w.meta().events.push_back(
      {3, "ringside", "code_map",
       test::format(3, "code_map",
                    "\tfield:u32 pid;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u64 start;\toffset:16" + u64_at +
                        "\tfield:u64 size;\toffset:24" + u64_at + "\tfield:u64 file_offset;\toffset:32" + u64_at +
                        "\tfield:char path[16];\toffset:40;\tsize:16;\tsigned:0;\n",
                    R"("%u", REC->pid)"),
       true});
  must(w.add_ring({0, 4711, 4711, "<worker>", "worker"}, 16384));
  SubBuffer s(second, 16384);
  s.event(second, Payload(3, 4711)
                      .put(u32{4711})
                      .put(u32{0})
                      .put(u64{0x10000})
                      .put(u64{0x1000})
                      .put(u64{0})
                      .text({"/nowhere/app\0\0\0\0", 16}));
  const std::vector<std::vector<u64>> all = {{0x10301, 0x10201, 0x10101}, {0x10201, 0x10101}, {0x10401, 0x10101}};
  u64 id = 0, time = second;
  for (const auto& frames : all) {
    Payload p(2, 4711);
    p.put(++id).put(static_cast<u32>(20 | frames.size() * 8 << 16));
    for (const u64 f : frames) p.put(f);
    s.event(++time, p);
    for (u64 n = id == 1 ? 60 : id == 2 ? 30 : 10; n != 0; --n) s.event(++time, Payload(1, 4711).put(n).put(id));
  }
  must(w.append(0, s.view()));
  must(w.finish(second));
}

// Fields of one name that differ in size, or have the name of a column of an answer; values at the ends of their types.
void mixed(const std::string& dir) {
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  const auto add = [&](u16 id, const std::string& name, const std::string& fields) {
    w.meta().events.push_back({id, "app", name, test::format(id, name, fields, R"("")"), true});
  };
  const auto field = [](const std::string& type_and_name, u32 offset, u32 size) {
    return "\tfield:" + type_and_name + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
           ";\tsigned:0;\n";
  };
  add(1, "small", field("u32 x", 8, 4) + field("bool f", 12, 1));
  add(2, "large", field("u64 x", 8, 8) + field("u8 f", 16, 1));
  add(3, "stat", field("u32 lost", 8, 4) + field("u32 count", 12, 4) + field("u32 ns", 16, 4));
  add(4, "real", field("double d", 8, 8));
  add(5, "text", field("char s[4]", 8, 4));
  must(w.add_ring({0, 4711, 4711, "worker", "worker"}, 4096));
  SubBuffer s(second, 4096);
  u64 time = second;
  for (u32 n = 0; n < 3; ++n) {
    s.event(++time, Payload(1, 4711).put(n).put(u32{n % 2}));
    s.event(++time, Payload(2, 4711).put((u64{1} << 63) + n).put(u64{40 + n}));
    s.event(++time, Payload(3, 4711).put(1000 + n).put(2000 + n).put(3000 + n));
    s.event(++time, Payload(4, 4711).put(n == 2 ? std::numeric_limits<double>::quiet_NaN() : n + .5));
    s.event(++time, Payload(5, 4711).text(std::string(n == 0 ? "\xfe\0\0\0" : n == 1 ? "\xff\0\0\0" : "ok\0\0", 4)));
  }
  must(w.append(0, s.view()));
  must(w.finish(second));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: recordings DIR\n", stderr);
    return 2;
  }
  const std::string dir = argv[1];
  work(dir + "/work");
  states(dir + "/states");
  stacks(dir + "/stacks");
  mixed(dir + "/mixed");
  auto empty = create(dir + "/empty");
  must(empty.finish(1));
  auto huge = create(dir + "/huge");
  must(huge.add_ring({0, 1, 1, "far", "far"}, 4096));
  for (const u64 time : {u64{1}, u64{1} << 62, ~u64{0} - 5}) {
    SubBuffer s(time);
    s.event(time, Payload(2, 1).put(i32{3}).put(u32{0}).put(~u64{0} / 2));
    must(huge.append(0, s.view()));
  }
  must(huge.finish(1));
  test::random_recording(dir + "/random", ClockInfo{}, 6, 4096, test::Of::both);
  return 0;
}
