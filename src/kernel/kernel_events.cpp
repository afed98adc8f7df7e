#include "kernel/kernel_events.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "kernel/kernel_remote.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {

result<std::vector<KernelEvent>> kernel_events() {
  auto dir = RS_TRY(tracefs_dir());
  auto text = RS_TRY(sys::read_file(dir + "/available_events"));
  std::vector<KernelEvent> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos) events.push_back({line.substr(0, colon), line.substr(colon + 1)});
  }
  for (const std::string& remote : names_in(dir + "/remotes"))
    for (KernelEvent& event : kernel_remote_events(dir + "/remotes/" + remote)) events.push_back(std::move(event));
  return events;
}

bool names(const EventPattern& pattern, const KernelEvent& event) {
  return pattern.of_remotes() == !event.remote.empty() && pattern.matches(event.system, event.name);
}

bool names_some(const EventPattern& pattern, const std::vector<KernelEvent>& known) {
  return std::any_of(known.begin(), known.end(), [&](const KernelEvent& e) { return names(pattern, e); });
}

bool means_kernel(const EventPattern& pattern, const std::vector<KernelEvent>& known) {
  return pattern.may_name_kernel() && names_some(pattern, known);
}

result<EventInfo> kernel_event(const KernelEvent& event) {
  auto dir = RS_TRY(tracefs_dir());
  if (!event.remote.empty()) return kernel_remote_event(dir + "/remotes/" + event.remote, event);
  const std::string path = dir + "/events/" + event.system + "/" + event.name;
  auto format = RS_TRY(sys::read_file(path + "/format"));
  EventInfo info;
  info.kernel = true;
  info.system = event.system;
  info.name = event.name;
  info.format = std::move(format);
  const size_t at = info.format.find("\nID: ");
  if (at == std::string::npos) return refuse(std::errc::bad_message, path + "/format names no ID");
  info.id = static_cast<u16>(std::strtoul(info.format.c_str() + at + 5, nullptr, 10));
  return info;
}

std::vector<EventInfo> kernel_internal_events() {
  std::vector<EventInfo> all;
  auto dir = tracefs_dir();
  if (!dir) return all;
  for (const std::string& name : names_in(*dir + "/events/ftrace")) {
    if (auto info = kernel_event({"ftrace", name})) all.push_back(std::move(*info));
  }
  return all;
}

namespace {

// Is the field a text? COMM and comm are the thread's name in each event that has no such field.
bool is_text(std::string_view field, const std::string& format) {
  if (field == "COMM") return true;
  for (size_t at = 0; (at = format.find("\tfield:", at)) != std::string::npos;) {
    at += sizeof "\tfield:" - 1;
    const std::string_view declared = std::string_view(format).substr(at, format.find(';', at) - at);
    std::string_view name = declared.substr(declared.rfind(' ') + 1), type = declared.substr(0, declared.size() - name.size());
    const bool array = name.find('[') != name.npos || type.find('[') != type.npos;
    while (!name.empty() && name.front() == '*') name.remove_prefix(1), type = declared;
    if (name.substr(0, name.find('[')) == field)
      return type.find("char") != type.npos && (array || type.find('*') != type.npos);
  }
  return field == "comm";
}

}  // namespace

std::string with_quotes(const std::string& filter, const std::string& format) {
  const auto of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto ends_word = [](char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0 || c == ')' || c == '(' || c == '&' || c == '|' || c == '"' ||
           c == '\'';
  };
  const auto skip_space = [&](size_t at) { return std::min(filter.find_first_not_of(" \t", at), filter.size()); };
  std::string out;
  for (size_t at = 0; at < filter.size();) {
    const char c = filter[at];
    if (c == '"' || c == '\'') {
      const size_t end = std::min(filter.find(c, at + 1), filter.size() - 1) + 1;
      out += filter.substr(at, end - at);
      at = end;
      continue;
    }
    if (!of_word(c)) {
      out += c;
      ++at;
      continue;
    }
    size_t end = at;
    while (end < filter.size() && of_word(filter[end])) ++end;
    const std::string_view field = std::string_view(filter).substr(at, end - at);
    size_t value = skip_space(end);
    const std::string_view compare = std::string_view(filter).substr(value, 2);
    const bool compares = compare == "==" || compare == "!=" || compare.starts_with('~');
    value = skip_space(value + (compare.starts_with('~') ? 1 : 2));
    size_t past = value;
    while (past < filter.size() && !ends_word(filter[past])) ++past;
    if (!compares || past == value || !is_text(field, format)) {
      out += field;
      at = end;
      continue;
    }
    out += filter.substr(at, value - at) + '"' + filter.substr(value, past - value) + '"';
    at = past;
  }
  return out;
}

bool needs_symbols(const std::string& format) {
  for (size_t at = format.find("%p"); at != std::string::npos; at = format.find("%p", at + 2)) {
    if (at + 2 < format.size() && std::string_view("sSfFB").find(format[at + 2]) != std::string_view::npos) return true;
  }
  return format.find("kernel_stack") != std::string::npos;
}

}  // namespace ringside
