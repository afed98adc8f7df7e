#include <algorithm>

#include "export/exporter.hpp"
#include "export/otlp.hpp"

namespace ringside {

const std::vector<ExportFormat>& export_formats() {
  using Of = ExportFormat::Of;
  static const std::vector<ExportFormat> all = {
      {"perfetto", ".pftrace .perfetto-trace", "for https://ui.perfetto.dev", Of::records, perfetto_exporter, true,
       "https://ui.perfetto.dev"},
      {"dat", ".dat", "for trace-cmd and KernelShark", Of::dat, nullptr, false, "trace-cmd report"},
      {"otlp", "otlp.json otlp.jsonl", "spans for OpenTelemetry", Of::records, otlp_exporter},
      {"json", ".json .jsonl", "a line for each event", Of::records, json_exporter, true},
      {"csv", ".csv", "a column for each field", Of::records, csv_exporter},
      {"tar", ".tar", "all of a recording in one file", Of::tar, nullptr, false, "ringside report"},
      {"ctf", ".ctf /", "a directory, for babeltrace2 and Trace Compass", Of::ctf, nullptr, false, "babeltrace2"},
  };
  return all;
}

namespace {

// use(ending) for each, until it returns true.
template <class Use>
bool any_ending(const ExportFormat& format, Use use) {
  std::string_view rest = format.endings;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (use(rest.substr(0, end))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

template <class Is>
const ExportFormat* first(Is is) {
  const auto& all = export_formats();
  const auto found = std::find_if(all.begin(), all.end(), is);
  return found != all.end() ? &*found : nullptr;
}

}  // namespace

const ExportFormat* export_format(std::string_view name) {
  return first([&](const ExportFormat& format) { return name == format.name; });
}

const ExportFormat* export_format_of_file(std::string_view file) {
  return first([&](const ExportFormat& format) {
    return any_ending(format, [&](std::string_view ending) { return file.ends_with(ending); });
  });
}

std::string export_format_endings(bool (*of)(const ExportFormat&)) {
  std::string out;
  for (const ExportFormat& format : export_formats()) {
    if (!of(format)) continue;
    const std::string_view endings = format.endings;
    out += (out.empty() ? "" : ", ") + std::string(endings.substr(0, endings.find(' ')));
  }
  return out;
}

}  // namespace ringside
