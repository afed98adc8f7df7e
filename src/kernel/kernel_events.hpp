// The events of the running kernel, as tracefs lists them, and those of its own remotes (kernel_remote.hpp).
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "schema/event_pattern.hpp"
#include "source/source.hpp"

namespace ringside {

struct KernelEvent {
  std::string system, name;
  std::string remote{};  // of the kernel's own remotes: which (kernel_remote.hpp)
  std::string shown_system() const { return (remote.empty() ? "" : "remotes/") + system; }
  std::string shown() const { return shown_system() + ":" + name; }
};

// All events that can be enabled, as available_events lists them, and those of the kernel's own remotes.
result<std::vector<KernelEvent>> kernel_events();
// Only remotes/SYSTEM:EVENT names events of remotes.
bool names(const EventPattern& pattern, const KernelEvent& event);
bool names_some(const EventPattern& pattern, const std::vector<KernelEvent>& known);
// Whose events a pattern names, where it does not say: the kernel's, if it has such an event and the pattern does not fit the
// events of every program. The one place that decides it; options that are for the kernel alone ask names_some().
bool means_kernel(const EventPattern& pattern, const std::vector<KernelEvent>& known);

// id, system, name and format text of one event, also of an `ftrace` one (print, raw_data, ...).
result<EventInfo> kernel_event(const KernelEvent& event);
// The events that the kernel writes on its own account: they have formats, but cannot be enabled.
std::vector<EventInfo> kernel_internal_events();

// A filter in the kernel's language, which wants texts in quotes: words that are compared with a text of the event with this
// format file get them.
std::string with_quotes(const std::string& filter, const std::string& format);

// Do its values have addresses of the kernel, "%pS" and its family?
bool needs_symbols(const std::string& format);

}  // namespace ringside
