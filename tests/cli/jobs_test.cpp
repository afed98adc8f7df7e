// However many threads read a recording, the answer is the same.
#include <gtest/gtest.h>

#include <fstream>

#include "binary.hpp"
#include "random_recording.hpp"

namespace ringside::jobs_test {
namespace {

struct Jobs : test::BinaryTest {
  void expect_the_same(const std::string& command) const {
    const test::Outcome one = ringside(command + " --jobs 1");
    EXPECT_FALSE(one.out.empty()) << command << one.err;
    for (const char* jobs : {"2", "5"}) {
      const test::Outcome several = ringside(command + " --jobs " + jobs);
      EXPECT_EQ(several.code, one.code) << command;
      EXPECT_EQ(several.out, one.out) << command;
      EXPECT_EQ(several.err, one.err) << command;
    }
  }
};

TEST_F(Jobs, TheSameAnswer) {
  test::random_recording(dir + "/both", ClockInfo{}, 9, 4096, test::Of::both);
  test::random_recording(dir + "/program", ClockInfo{}, 5, 8192);
  for (const char* command :
       {"report both", "report program --json", "report both --time +1s..+100s", "report program -e app:state -f 'state > 0'",
        "report both -f 'task == task3'", "top both", "top program --by name --json", "hist state.hex both",
        "hist app:numbers/a.log2 -v c program", "hist task program both", "hist cpu both", "top both -f 'cpu == 1'"})
    expect_the_same(command);
}

// Wake-ups on the kernel's rings of CPUs: threads that are renamed meanwhile, starts that nothing ends, ends without a start,
// gaps. And a program's requests with numbers of their own, some open for long.
void switches_and_requests(const std::string& dir, u64 seed, bool renames) {
  constexpr u16 waking = 1, sched_switch = 2, rename = 3, begin = 0xF001, end = 0xF002;
  std::mt19937_64 random(seed);
  const auto comm = [](const char* name, u32 offset) {
    return "\tfield:char " + std::string(name) + "[16];\toffset:" + std::to_string(offset) + ";\tsize:16;\tsigned:0;\n";
  };
  const auto pid = [](const char* name, u32 offset) {
    return "\tfield:pid_t " + std::string(name) + ";\toffset:" + std::to_string(offset) + ";\tsize:4;\tsigned:1;\n";
  };
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  const auto event = [&](u16 id, const char* system, const char* name, const std::string& fields) {
    w.meta().events.push_back({id, system, name, test::format(id, name, fields, R"("%d", REC->pid)"), true, id < 0xF000});
  };
  event(waking, "sched", "sched_waking", comm("comm", 8) + pid("pid", 24));
  event(sched_switch, "sched", "sched_switch",
        comm("prev_comm", 8) + pid("prev_pid", 24) + comm("next_comm", 32) + pid("next_pid", 48));
  if (renames) event(rename, "task", "task_rename", pid("pid", 8) + comm("newcomm", 12));
  event(begin, "app", "begin", "\tfield:u64 request;\toffset:8;\tsize:8;\tsigned:0;\n" + pid("pid", 16));
  event(end, "app", "end", "\tfield:u64 request;\toffset:8;\tsize:8;\tsigned:0;\n" + pid("pid", 16));
  constexpr u32 cpus = 3;
  for (u32 cpu = 0; cpu < cpus; ++cpu) must(w.add_ring({cpu, 0, 0, "", "", true}, 4096));
  RingName own;
  own.ring = 9;
  own.cpu = 1;
  must(w.add_ring(own, 4096));
  w.meta().threads.push_back({0, 7, 7, "known", "app"});
  std::vector<std::vector<std::pair<u64, test::Payload>>> events(cpus + 1);
  std::map<i32, u32> names;
  const auto name = [&](i32 tid) {
    std::string text = "t" + std::to_string(tid) + "." + std::to_string(names[tid]);
    text.resize(16);
    return text;
  };
  u64 time = 1'000'000'000, requests = 0;
  for (u32 n = 0; n < 6000; ++n) {
    time += random() % 4 == 0 ? 0 : random() % 20'000;
    const auto tid = static_cast<i32>(1 + random() % 40), other = static_cast<i32>(1 + random() % 40);
    auto& of_cpu = events[random() % cpus];
    const u64 kind = random() % 10;
    if (kind < 4) of_cpu.emplace_back(time, test::Payload(waking, other).text(name(tid)).put(tid));
    else if (kind < 8)
      of_cpu.emplace_back(time,
                          test::Payload(sched_switch, other).text(name(other)).put(other).put(u32{0}).text(name(tid)).put(tid));
    else if (kind < 9 || !renames) {
      const bool starts = random() % 2 == 0;
      const u64 request = starts ? ++requests : requests - std::min(requests, random() % (random() % 20 == 0 ? 1000 : 5));
      events[cpus].emplace_back(time, test::Payload(starts ? begin : end, tid).put(request).put(tid));
    } else if (++names[tid]; true)
      of_cpu.emplace_back(time, test::Payload(rename, tid).put(tid).text(name(tid)));
  }
  for (u32 ring = 0; ring <= cpus; ++ring) {
    for (size_t at = 0; at < events[ring].size();) {
      test::SubBuffer s(events[ring][at].first);
      for (u32 n = 0; n < 40 && at < events[ring].size(); ++n, ++at) s.event(events[ring][at].first, events[ring][at].second);
      must(w.append(ring < cpus ? ring + RecordingWriter::kernel_rings : own.ring,
                    s.view(random() % 8 == 0 ? 1 + random() % 5 : 0)));
    }
  }
  must(w.finish(1));
}

// A thread's ring does not tell its CPU: the kernel's switches before its events do.
TEST_F(Jobs, EventsOfOneCpu) {
  switches_and_requests(dir + "/r", 3, false);
  auto w = must(RecordingWriter::create(dir + "/moves", ClockInfo{}));
  const std::string pids =
      "\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:pid_t next_pid;\toffset:12;\tsize:4;\tsigned:1;\n";
  const std::string sched_switch = test::format(1, "sched_switch", pids, R"("%d", REC->next_pid)");
  w.meta().events.push_back({1, "sched", "sched_switch", sched_switch, true, true});
  w.meta().events.push_back({0xF001, "app", "malloc", test::malloc_format(0xF001), true});
  for (u32 cpu = 0; cpu < 2; ++cpu) must(w.add_ring({cpu, 0, 0, "", "", true}, 4096));
  must(w.add_ring({9, 100, 100, "t", "p"}, 4096));
  u64 time = 1'000'000'000;
  for (u32 n = 0; n < 64; ++n) {
    test::SubBuffer away(time += 100), here(time + 10), own(time + 20);
    away.event(time, test::Payload(1, 100).put(100).put(0));
    here.event(time + 10, test::Payload(1, 0).put(0).put(100));
    for (u64 e = 0; e < 20; ++e) own.event(time + 20 + e, test::Payload(0xF001, 100).put(e).put(e));
    must(w.append((n + 1) % 2 + RecordingWriter::kernel_rings, away.view()));
    must(w.append(n % 2 + RecordingWriter::kernel_rings, here.view()));
    must(w.append(9, own.view()));
  }
  must(w.finish(1));
  for (const char* where : {" r", " moves"})
    for (const char* command : {"hist event --cpu 0", "top --cpu 1",
                                "latency sched:sched_switch sched:sched_switch --key next_pid --cpu 0"})
      expect_the_same(std::string(command) + where);
  expect_the_same("latency app:malloc app:malloc --slowest 0 --cpu 1 moves");
  EXPECT_NE(ringside("hist event -e app:malloc --cpu 0 moves --jobs 5").out.find("640 events"), std::string::npos);
  EXPECT_NE(ringside("plot -e app:malloc --cpu 0 moves").err.find("ringside: 640 events"), std::string::npos);
}

TEST_F(Jobs, Latencies) {
  switches_and_requests(dir + "/r", 1, true);
  switches_and_requests(dir + "/plain", 2, false);
  test::random_recording(dir + "/program", ClockInfo{}, 5, 8192);
  for (const std::string command :
       {"latency wakeup", "latency wakeup --json --heat --slowest 40", "latency wakeup --by next_pid --sort count",
        "latency wakeup --by start/task", "latency wakeup --time +10ms..+40ms --slowest 30",
        "latency wakeup --sure --slowest 0 --heat", "latency app:begin app:end --key request --by pid",
        "latency app:begin app:end --key request --keys 30", "latency app:begin app:end --key request --first --context 2",
        "latency app:begin app:end --key pid,request --json", "latency 'app:begin if pid > 9' app:end --key request --by none",
        "latency sched:sched_switch sched:sched_switch --key prev_pid=next_pid -f 'start/pid != 3' --slowest 20",
        "latency sched:sched_waking sched:sched_switch --key comm=next_comm --by comm"})
    for (const char* where : {" r", " plain"}) expect_the_same(command + where);
  for (const char* command :
       {"latency app:state app:numbers program", "latency app:state app:state program --by state",
        "latency app:texts app:texts --key name program", "latency app:state app:numbers --context 2 program"})
    expect_the_same(command);
}

// A compressed recording says what the other one says, at one place or all of it.
TEST_F(Jobs, Compressed) {
  test::random_recording(dir + "/r", ClockInfo{}, 9, 4096, test::Of::both);
  test::random_recording(dir + "/c", ClockInfo{}, 9, 4096, test::Of::both, 50, true);
  for (const std::string command : {"report ", "report --json ", "report --time +1s..+100s ", "top ", "hist task ",
                                    "latency app:state app:numbers --slowest 3 "}) {
    EXPECT_EQ(ringside(command + "c").out, ringside(command + "r").out) << command;
    expect_the_same(command + "c");
  }
}

// What stands behind a damaged sub-buffer is not read, wherever the cuts are.
TEST_F(Jobs, ADamagedRing) {
  test::random_recording(dir + "/r", ClockInfo{}, 3, 4096);
  const u64 huge = 0xFFFFF;
  std::fstream(dir + "/r/ring2.raw", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(2 * 4096 + 8)
      .write(reinterpret_cast<const char*>(&huge), 8);
  for (const char* command : {"report r", "top r", "hist a r"}) expect_the_same(command);
}

TEST_F(Jobs, AReaderThatGoes) {
  test::random_recording(dir + "/r", ClockInfo{}, 3, 4096);
  EXPECT_EQ(ringside("report r --jobs 3 | head -n 1 | wc -l").out, "1\n");
}

}  // namespace
}  // namespace ringside::jobs_test
