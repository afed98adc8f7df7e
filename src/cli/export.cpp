// ringside export: a recording as a trace.dat, for trace-cmd and KernelShark.
#include "cli/trace.hpp"
#include "cli/units.hpp"
#include "export/trace_dat.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

struct Options {
  std::string where = default_recording, to, only;
};

int run(const Options& options) {
  auto meta = RecordingMeta::read(options.where);
  if (!meta) return failed(meta.error());
  auto sources = open_recording(options.where, *meta);
  if (!sources) return failed(sources.error());
  bool kernel = options.only == "kernel", both = false;
  if (options.only.empty()) {
    for (const RecordedRing& ring : meta->rings) {
      if (ring.events == 0 && meta->complete) continue;
      both = both || (kernel && !ring.name.kernel);
      kernel = kernel || ring.name.kernel;
    }
    for (const RecordedRing& ring : meta->rings) both = both || (kernel && !ring.name.kernel && ring.events != 0);
  }
  if (both)
    return failed({std::make_error_code(std::errc::not_supported),
                   options.where + " holds events of the kernel and of programs, which have ids of their own; a trace.dat of version "
                                   "6 takes one of the two: add --only kernel or --only program"});
  TraceDat dat;
  dat.clock = meta->clock;
  for (EventInfo& e : meta->events) {
    if (e.kernel == kernel) dat.events.push_back(std::move(e));
  }
  for (const RingName& thread : meta->threads) dat.tasks[thread.tid] = thread.task;
  for (auto& source : *sources) {
    const RingName& name = source->name();
    if (name.kernel != kernel) continue;
    if (!name.kernel) dat.tasks.emplace(name.tid, name.task);
    dat.rings.push_back(std::move(source));
  }
  if (kernel) {
    if (auto names = sys::read_file(options.where + "/kallsyms")) dat.kallsyms = std::move(*names);
    if (auto texts = sys::read_file(options.where + "/printk_formats")) dat.printk_formats = std::move(*texts);
  }
  auto written = write_trace_dat(options.to, dat);
  if (!written) return failed(written.error());
  say(format_count(written->sub_buffers) + " sub-buffers, " + format_size(written->bytes) + "; look with: trace-cmd report " +
      options.to);
  return exit_ok;
}

}  // namespace

Command add_export(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("export", "write a recording as a trace.dat");
  c->add_option("WHERE", options->where, "recording (a directory)")->capture_default_str();
  c->add_option("--to", options->to, "the file to write; an older one is replaced")->required()->type_name("FILE");
  c->add_option("--only", options->only, "of a recording with both: kernel, or program")
      ->check(CLI::IsMember({"kernel", "program"}));
  c->footer(
      "Examples:\n"
      "  ringside export --to trace.dat && trace-cmd report trace.dat\n"
      "  ringside export build.data --only kernel --to kernel.dat    for kernelshark\n"
      "Version 6 of the format; sub-buffers go in as they are. A ring's number is the CPU that trace-cmd shows.");
  return {c, [options] { return run(*options); }};
}

}  // namespace ringside::cli
