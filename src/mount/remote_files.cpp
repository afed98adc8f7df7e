// The files below remotes/NAME: upstream's files for its remote buffers and, for each ring, trace_pipe_raw and stats, which
// upstream lacks.
#include <fmt/format.h>
#include <ringside/remote/messages.hpp>

#include <algorithm>

#include "mount/files.hpp"
#include "schema/format_text.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

Text read_on(const Node& at) { return std::string(at.remote->on() ? "1\n" : "0\n"); }
WriteResult write_on(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value) return invalid();
  if (*value == 0 && at.remote->on()) ++at.remote->woken;
  return Written(bytes.size(), at.remote->enable(*value != 0));
}

Text read_size(const Node& at) {
  return fmt::format("{} ({})\n", at.remote->kilobytes(), at.remote->loaded() ? "loaded" : "unloaded");
}
WriteResult write_size(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value) return invalid();
  RS_TRY(at.remote->kilobytes(*value));
  return bytes.size();
}
// The writer's sizes cannot be changed, and it always overwrites: the answers are the kernel's for its remote buffers.
Text read_subbuf_size(const Node&) { return std::to_string(Remote::subbuf_bytes() / 1024) + "\n"; }
WriteResult write_subbuf_size(const Node&, std::string_view bytes, const Client&) {
  if (number(bytes) != Remote::subbuf_bytes() / 1024) return invalid();
  return bytes.size();
}
Text read_one(const Node&) { return std::string("1\n"); }
WriteResult write_overwrite(const Node&, std::string_view bytes, const Client&) {
  if (number(bytes) != 1) return invalid();
  return bytes.size();
}

WriteResult write_enable(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value > 1) return invalid();
  return Written(bytes.size(), at.remote->switch_events(at.system, at.event, *value == 1));
}
// The writer gets the text without the newline that echo adds.
WriteResult write_event(const Node& at, std::string_view bytes, const Client& client) {
  std::string_view text = bytes;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.size() > remote::most_text) return invalid();
  const i32 cpu = sys::cpu_of(client.tid);  // -1: the client is not in our PID namespace
  return Written(bytes.size(), at.remote->write_event(static_cast<u32>(std::max(cpu, 0)), text));
}
result<EventInfo> event_of(const Node& at) {
  for (const EventInfo& e : at.remote->known_events())
    if (e.system == at.system && e.name == at.event) return e;
  return fail(ENODEV, at.event);
}
Text read_id(const Node& at) { return std::to_string(RS_TRY(event_of(at)).id) + "\n"; }
Text read_format(const Node& at) { return RS_TRY(event_of(at)).format; }
Text read_header_page(const Node&) { return header_page_text(Remote::subbuf_bytes()); }

// name, mode, how it is read, what a write does, or how it is opened
const FileType file_types[] = {
    {in_remote, "buffer_size_kb", 0640, read_size, write_size, nullptr},
    {in_remote, "buffer_subbuf_size_kb", 0640, read_subbuf_size, write_subbuf_size, nullptr},
    {in_remote, "trace", 0640, nullptr, nullptr, open_trace},
    {in_remote, "trace_pipe", 0440, nullptr, nullptr, open_pipe},
    {in_remote, "tracing_on", 0640, read_on, write_on, nullptr},
    {in_remote, "write_event", 0200, nullptr, write_event, nullptr},
    {in_options, "overwrite", 0640, read_one, write_overwrite, nullptr},
    {in_events, "enable", 0640, read_enable_all, write_enable, nullptr},
    {in_events, "header_event", 0440, read_header_event, nullptr, nullptr},
    {in_events, "header_page", 0440, read_header_page, nullptr, nullptr},
    {in_system, "enable", 0640, read_enable_system, write_enable, nullptr},
    {in_event, "enable", 0640, read_enable, write_enable, nullptr},
    {in_event, "format", 0440, read_format, nullptr, nullptr},
    {in_event, "id", 0440, read_id, nullptr, nullptr},
    {in_cpu, "stats", 0440, read_stats, nullptr, nullptr},
    {in_cpu, "trace", 0640, nullptr, nullptr, open_trace},
    {in_cpu, "trace_pipe", 0440, nullptr, nullptr, open_pipe},
    {in_cpu, "trace_pipe_raw", 0440, nullptr, nullptr, open_raw, true},
};

}  // namespace

std::span<const FileType> remote_files() { return file_types; }

}  // namespace ringside::mount
