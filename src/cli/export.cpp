// ringside export: a recording as a trace.dat, for trace-cmd and KernelShark.
#include "cli/command.hpp"
#include "consumer/where.hpp"
#include "export/recording_as_dat.hpp"
#include "export/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct ExportOptions {
  std::string where = default_recording, to, only;
};

result<int> run_export(const ExportOptions& options) {
  const Where where = Where::of(options.where);
  if (!where.is(Where::Kind::recording) && !where.is(Where::Kind::nothing))
    return refuse(std::errc::invalid_argument, where.text + " is " + where.what() + ", not a recording; only what ringside record has made can be exported");
  auto written = RS_TRY(export_recording(options.where, options.to, options.only));
  say(format_count(written.sub_buffers) + " sub-buffers, " + format_size(written.bytes) + "; look with: trace-cmd report " +
      options.to);
  return exit_ok;
}

}  // namespace

Command add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* c = app.add_subcommand("export", "write a recording as a trace.dat");
  c->add_option("WHERE", options->where, "recording (a directory)")->capture_default_str();
  c->add_option("-o,--to,--output", options->to, "the file to write; an older one is replaced")->required()->type_name("FILE");
  c->add_option("--only", options->only, "leave the other out: kernel, or program")
      ->check(CLI::IsMember({"kernel", "program"}));
  c->footer(
      "Examples:\n"
      "  ringside export -o trace.dat && trace-cmd report trace.dat\n"
      "  ringside export build.data --only kernel -o kernel.dat    for kernelshark\n"
      "Version 6 of the format; version 7 with a buffer for each where both are in it. Sub-buffers go in as they are. A ring's number\n"
      "is the CPU that trace-cmd shows.");
  return {c, [options] { return run_export(*options); }};
}

}  // namespace ringside::cli
