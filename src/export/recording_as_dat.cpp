#include "export/recording_as_dat.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "source/recording.hpp"
#include "sys/try.hpp"

namespace ringside {

result<TraceDatSize> export_recording(const std::string& dir, const std::string& to, const std::string& only,
                                      std::vector<std::string>* problems, std::function<bool()> stop) {
  auto meta = RS_TRY(RecordingMeta::read(dir));
  std::vector<std::string> found;
  auto sources = RS_TRY(open_recording(dir, meta, problems != nullptr ? &found : nullptr));
  for (std::string& problem : found)
    if (std::find(problems->begin(), problems->end(), problem) == problems->end()) problems->push_back(std::move(problem));
  // A side whose rings held nothing is left out.
  bool wanted[2] = {only != "kernel", only != "program"};
  if (only.empty()) {
    bool any[2] = {false, false};
    for (const RecordedRing& ring : meta.rings)
      any[ring.name.kernel] = any[ring.name.kernel] || ring.events != 0 || !meta.complete;
    if (any[0] != any[1]) std::copy(any, any + 2, wanted);
  }
  TraceDat dat;
  dat.clock = meta.clock;
  dat.world = meta.world;
  dat.account = meta.account;
  dat.stop = std::move(stop);
  if (problems != nullptr) dat.account.doubts.insert(dat.account.doubts.end(), problems->begin(), problems->end());
  if (!meta.complete) dat.account.doubts.push_back(why_incomplete(dir));
  dat.unordered = std::any_of(meta.rings.begin(), meta.rings.end(), [](const RecordedRing& ring) { return ring.unordered; });
  std::map<u16, std::string> numbers;  // a trace.dat has one space for them
  for (EventInfo& e : meta.events) {
    if (!wanted[e.kernel]) continue;
    const auto [at, fresh] = numbers.try_emplace(e.id, e.system + ":" + e.name);
    if (!fresh && at->second != e.system + ":" + e.name)
      return refuse(std::errc::not_supported,
                    dir + ": the events " + at->second + " and " + e.system + ":" + e.name + " have one number, " +
                        std::to_string(e.id) + ", as an external writer chooses its own; a trace.dat cannot keep them apart");
    dat.events.push_back(std::move(e));
  }
  // A number that is not the thread's TID here gets a name that shows its TIDs: trace-cmd prints "server-81234(7)-4194305".
  const auto named = [](const RingName& thread) {
    const bool plain = thread.elsewhere.tid == 0 || thread.elsewhere.seen_tid(0) == thread.tid;
    return plain ? thread.task : thread.task + "-" + thread.show_tid();
  };
  // In a container a thread of the kernel's events and one of the program may have one number: a trace.dat has one name for it.
  const bool apart = meta.world.kernel_counts_apart();
  for (const RingName& thread : meta.threads) {
    if (apart && !wanted[thread.kernel]) continue;
    const auto [at, fresh] = dat.tasks.try_emplace(thread.tid, named(thread));
    if (!fresh && !(apart && at->second != named(thread)))
      at->second = named(thread);
    else if (!fresh)
      at->second += "|" + named(thread);
  }
  for (const bool kernel : {true, false}) {
    TraceDatBuffer buffer;
    buffer.name = dat.buffers.empty() ? "" : "program";  // KernelShark opens no file whose first buffer has a name
    for (auto& source : sources) {
      if (source == nullptr || source->name().kernel != kernel || !wanted[kernel]) continue;
      if (!kernel && source->name().cpu < 0) dat.tasks.emplace(source->name().tid, named(source->name()));
      buffer.rings.push_back(std::move(source));
    }
    if (!buffer.rings.empty()) dat.buffers.push_back(std::move(buffer));
  }
  for (const RingName& thread : meta.threads) {  // a process is known by its first thread
    RingName first = thread;
    first.tid = thread.pid;
    first.task = thread.process;
    first.elsewhere.tid = thread.elsewhere.pid;
    first.elsewhere.here_tid = thread.elsewhere.here_pid;
    dat.tasks.emplace(first.tid, named(first));
  }
  if (wanted[true]) {
    if (auto names = read_kept(dir, "kallsyms")) dat.kallsyms = std::move(*names);
    if (auto texts = read_kept(dir, "printk_formats")) dat.printk_formats = std::move(*texts);
  }
  return write_trace_dat(to, dat);
}

}  // namespace ringside
