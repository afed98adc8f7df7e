// ringside export: a recording as a trace.dat, for trace-cmd and KernelShark.
#include "cli/export.hpp"

#include "cli/options.hpp"
#include "cli/units.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

struct ExportOptions {
  std::string where = default_recording, to, only;
};

int run_export(const ExportOptions& options) {
  auto written = export_recording(options.where, options.to, options.only);
  if (!written) return failed(written.error());
  say(format_count(written->sub_buffers) + " sub-buffers, " + format_size(written->bytes) + "; look with: trace-cmd report " +
      options.to);
  return exit_ok;
}

}  // namespace

result<TraceDatSize> export_recording(const std::string& dir, const std::string& to, const std::string& only) {
  auto meta = RecordingMeta::read(dir);
  if (!meta) return tl::unexpected<Error>(meta.error());
  auto sources = open_recording(dir, *meta);
  if (!sources) return tl::unexpected<Error>(sources.error());
  // A side whose rings held nothing is left out.
  bool wanted[2] = {only != "kernel", only != "program"};
  if (only.empty()) {
    bool any[2] = {false, false};
    for (const RecordedRing& ring : meta->rings) any[ring.name.kernel] = any[ring.name.kernel] || ring.events != 0 || !meta->complete;
    if (any[0] != any[1]) std::copy(any, any + 2, wanted);
  }
  TraceDat dat;
  dat.clock = meta->clock;
  for (EventInfo& e : meta->events) {
    if (wanted[e.kernel]) dat.events.push_back(std::move(e));
  }
  // A number that is not the thread's TID here tells that as well: trace-cmd shows "server-81234(7)-4194305".
  const auto named = [](const RingName& thread) {
    const bool plain = thread.elsewhere.tid == 0 || thread.elsewhere.seen_tid(0) == thread.tid;
    return plain ? thread.task : thread.task + "-" + thread.show_tid();
  };
  for (const RingName& thread : meta->threads) dat.tasks[thread.tid] = named(thread);
  for (const bool kernel : {true, false}) {
    TraceDatBuffer buffer;
    buffer.name = kernel ? "kernel" : "program";
    for (auto& source : *sources) {
      if (source == nullptr || source->name().kernel != kernel || !wanted[kernel]) continue;
      if (!kernel && source->name().cpu < 0) dat.tasks.emplace(source->name().tid, named(source->name()));
      buffer.rings.push_back(std::move(source));
    }
    if (!buffer.rings.empty()) dat.buffers.push_back(std::move(buffer));
  }
  if (wanted[true]) {
    if (auto names = read_kept(dir, "kallsyms")) dat.kallsyms = std::move(*names);
    if (auto texts = read_kept(dir, "printk_formats")) dat.printk_formats = std::move(*texts);
  }
  return write_trace_dat(to, dat);
}

Command add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* c = app.add_subcommand("export", "write a recording as a trace.dat");
  c->add_option("WHERE", options->where, "recording (a directory)")->capture_default_str();
  c->add_option("--to", options->to, "the file to write; an older one is replaced")->required()->type_name("FILE");
  c->add_option("--only", options->only, "leave the other out: kernel, or program")
      ->check(CLI::IsMember({"kernel", "program"}));
  c->footer(
      "Examples:\n"
      "  ringside export --to trace.dat && trace-cmd report trace.dat\n"
      "  ringside export build.data --only kernel --to kernel.dat    for kernelshark\n"
      "Version 6 of the format; version 7 with a buffer for each where both are in it. Sub-buffers go in as they are. A ring's number\n"
      "is the CPU that trace-cmd shows.");
  return {c, [options] { return run_export(*options); }};
}

}  // namespace ringside::cli
