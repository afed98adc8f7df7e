// Ways out: events of a recording as columns in Python, and as Perfetto's packets. Each as a process, as a user runs it.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bench.hpp"
#include "pages.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

constexpr const char* format =
    "name: switch\nID: 61441\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:s32 next_pid;\toffset:8;\tsize:4;\tsigned:1;\n"
    "\tfield:s32 prio;\toffset:12;\tsize:4;\tsigned:1;\n\n"
    "print fmt: \"next_pid=%d prio=%d\", REC->next_pid, REC->prio\n";

// A recording of two CPUs' rings, whose events come in runs of 50.
u64 record(const std::string& dir, u64 events) {
  auto writer = must(RecordingWriter::create(dir, ClockInfo{}));
  writer.meta().events.push_back({61441, "bench", "switch", format, true});
  for (i32 cpu = 0; cpu < 2; ++cpu) {
    RingName name;
    name.ring = static_cast<u32>(cpu);
    name.cpu = cpu;
    must(writer.add_ring(name, 65536));
    LocalRing local(65536, static_cast<u32>(events / 2 * 20 / 65000 + 8));
    Writer<Given> to(local.ring, Given{});
    for (u64 k = 0; k < events / 2; ++k) {
      to.clock().time = 1'000'000'000 + (k / 50 * 100 + k % 50 + static_cast<u64>(cpu) * 50) * 500;
      write_pair(to, u64{61441} | (4711 + k % 7) << 32, (1000 + k % 100) | u64{120} << 32);
    }
    const Pages pages = pages_of(local);
    for (const auto& [bytes, end] : pages)
      must(writer.append(name.ring, {reinterpret_cast<const u8*>(bytes.data()), 0, end, 0, bytes[0]}));
  }
  must(writer.finish(1));
  return events / 2 * 2;
}

// The numbers that a command prints.
std::vector<double> numbers_of(const std::string& command, const std::string& dir) {
  std::vector<double> all;
  if (std::system(("{ " + command + "; } > " + dir + "/said 2> " + dir + "/complained").c_str()) != 0) return all;
  std::ifstream in(dir + "/said");
  for (double one; in >> one;) all.push_back(one);
  return all;
}

// A command that prints the user's and the system's CPU time of another one, in s.
std::string timed(const std::string& command) { return "bash -c 'TIMEFORMAT=\"%U %S\"; { time " + command + "; } 2>&1'"; }

void python_row(const std::string& dir, u64 events) {
  const std::string python = RINGSIDE_PYTHON;
  if (python.empty()) return row("python.rows_per_s", std::nullopt, "1/s", "the Python package was not built");
  std::ofstream(dir + "/columns.py")
      << "import sys, time\nsys.path.insert(0, sys.argv[1])\nimport ringside\nt = ringside.open(sys.argv[2])\n"
         "for i in range("
      << (quick ? 3 : 9)
      << "):\n"
         "    at = time.process_time()\n    c = t.columns('bench:switch', ['ts', 'cpu', 'next_pid'])\n"
         "    print(len(c) / (time.process_time() - at) if c['next_pid'].min() == 1000 else 0)\n";
  const std::vector<double> rates =
      numbers_of(python + " " + dir + "/columns.py " RINGSIDE_PYTHON_PACKAGE " " + dir + "/rec", dir);
  if (rates.empty()) return row("python.rows_per_s", std::nullopt, "1/s", "python3-numpy is not installed, or it failed");
  // The same columns by babeltrace2's bindings, of the CTF trace that `export` makes of a part.
  std::ofstream(dir + "/bindings.py")
      << "import sys, time, bt2, numpy\nat = time.process_time()\nrows = []\n"
         "for m in bt2.TraceCollectionMessageIterator(sys.argv[1]):\n    if type(m) is bt2._EventMessageConst:\n"
         "        e = m.event\n        rows.append((m.default_clock_snapshot.value, int(e.common_context_field['cpu']), "
         "int(e.payload_field['next_pid'])))\n"
         "a = numpy.array(rows)\nprint(len(a) / (time.process_time() - at))\n";
  const std::string part = dir + "/part.ctf";
  const bool exported = std::system((RINGSIDE_COMMAND " export -q " + dir + "/few --to " + part + " 2>/dev/null").c_str()) == 0;
  const std::vector<double> theirs =
      exported ? numbers_of(python + " " + dir + "/bindings.py " + part, dir) : std::vector<double>();
  // And perf's text of as simple events of the kernel: no arrays yet.
  const std::string perf = "-i " + dir + "/perf.data -F time,cpu,event,trace > " + dir + "/perf.txt 2> /dev/null";
  const std::vector<double> took =
      numbers_of("perf record -q -a -e kmem:kmalloc -o " + dir + "/perf.data -- find /usr/include > /dev/null 2>&1 && " +
                     timed("perf script " + perf) + " && wc -l < " + dir + "/perf.txt",
                 dir);
  const auto beside = [](const char* name, std::optional<double> rate) {
    return rate ? text("%s: %.2f M/s", name, *rate / 1e6) : text("%s: not installed, or failed", name);
  };
  row("python.rows_per_s", fastest(rates), "1/s",
      text("ts, cpu and a field of %.0f M events of two rings as arrays, of CPU time, opening included; %s; %s",
           static_cast<double>(events) / 1e6,
           beside("babeltrace2's bindings, same events", theirs.empty() ? std::nullopt : std::optional(theirs[0])).c_str(),
           beside("perf script", took.size() != 3 ? std::nullopt : std::optional(took[2] / (took[0] + took[1]))).c_str()));
}

// What a Python program pays for an event, less an empty loop; beside a message of the module logging to a file.
void python_event_row(const std::string& dir) {
  const std::string python = RINGSIDE_PYTHON;
  if (python.empty()) return row("python.event_ns", std::nullopt, "ns", "the Python package was not built");
  std::ofstream(dir + "/events.py")
      << "import logging, sys, timeit\nsys.path.insert(0, sys.argv[1])\nimport ringside\n"
         "order = ringside.event('shop', 'order', id=int, customer=str)\noff = ringside.event('off', 'order', id=int, "
         "customer=str)\n"
         "ringside.disable('off:order')\nlog = logging.getLogger('shop')\nlog.propagate = False\n"
         "log.addHandler(logging.FileHandler(sys.argv[2]))\nn = 100000\n"
         "def ns(what, n=n):\n    return min(timeit.repeat(what, globals=globals(), number=n, repeat=7)) * 1e9 / n\n"
         "empty = ns('pass')\nprint(ns('order(1, \"Ada\")') - empty, ns('off(1, \"Ada\")') - empty, "
         "ns('with ringside.span(\"pay\"): pass') - empty, ns('log.warning(\"order %d of %s\", 1, \"Ada\")', 10000))\n";
  // Into rings that are overwritten; a recorder would have its share of two processors.
  const std::vector<double> ns =
      numbers_of("mkdir " + dir + "/root && RINGSIDE_ROOT=" + dir + "/root RINGSIDE_INSTANCE=python " + python + " " + dir +
                     "/events.py " RINGSIDE_PYTHON_PACKAGE " " + dir + "/log",
                 dir);
  if (ns.size() != 4) return row("python.event_ns", std::nullopt, "ns", "it failed");
  row("python.event_ns", ns[0], "ns",
      text("order(1, \"Ada\") of a Python program; disabled %.0f ns; an empty span %.0f ns; logging.warning to a file %.0f ns",
           ns[1], ns[2], ns[3]));
}

// Of what the kernel does while a compiler's files are read.
void perfetto_rows(const std::string& dir) {
  const std::string command = RINGSIDE_COMMAND, rec = dir + "/mix";
  const bool made = std::system((command + " record -q -e 'sched:*' -e 'syscalls:*' -e 'kmem:*' -e 'irq:*' -b 128M -o " + rec +
                                 " -- sh -c 'find /usr/include -type f -print0 | head -z -n " + (quick ? "1000" : "20000") +
                                 " | xargs -0 -n 40 cat' > /dev/null 2>&1")
                                    .c_str()) == 0;
  if (!made || std::system((command + " export " + rec + " --to " + dir + "/mix.dat > /dev/null 2>&1").c_str()) != 0) {
    for (const char* name : {"perfetto.events_per_s", "perfetto.bytes_over_tracedat"})
      row(name, std::nullopt, "", "needs the kernel's events: root and tracefs");
    return;
  }
  const std::vector<double> events = numbers_of(command + " report " + rec + " | wc -l", dir);
  std::vector<double> rates;
  for (int i = 0; i < (quick ? 3 : 7); ++i) {
    const auto took =
        numbers_of(timed(command + " export -q --uncompressed " + rec + " --to " + dir + "/mix.pftrace 2>/dev/null"), dir);
    if (took.size() == 2) rates.push_back(events.at(0) / (took[0] + took[1]));
  }
  (void)numbers_of(command + " export -q " + rec + " --to " + dir + "/mix.pftrace", dir);
  const auto packed = static_cast<double>(std::filesystem::file_size(dir + "/mix.pftrace")),
             dat = static_cast<double>(std::filesystem::file_size(dir + "/mix.dat"));
  row("perfetto.events_per_s", rates.empty() ? std::nullopt : std::optional(fastest(rates)), "1/s",
      text("%.0f kernel events, of CPU time, start included, without compression", events.at(0)));
  row("perfetto.bytes_over_tracedat", packed / dat, "x",
      text("%.1f MiB compressed, against %.1f MiB", packed / (1 << 20), dat / (1 << 20)));
}

}  // namespace

void format_rows() {
  char dir[] = "/tmp/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return;
  const std::string in = dir;
  const u64 events = record(in + "/rec", quick ? 2'000'000 : 10'000'000);
  record(in + "/few", 100'000);
  python_row(in, events);
  python_event_row(in);
  perfetto_rows(in);
  std::filesystem::remove_all(dir);
}

}  // namespace bench
