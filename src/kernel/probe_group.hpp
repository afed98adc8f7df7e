// Probes in code as events of tracefs: uprobes in files that programs execute, kprobes in the kernel.
//
//   auto group = must(ProbeGroup::define(instance, points, filter));   // events "ringside_1234:*", enabled there alone
//
// Definitions are the machine's, not an instance's. So their group has the name of the instance that they were made for, and it
// lives as long: the next recorder removes the groups of instances that are gone (SIGKILL). Other groups are never touched.
#pragma once
#include <string>
#include <vector>

#include "kernel/tracefs_instance.hpp"

namespace ringside {

// One place of one event. Places with the same system, name, at_return and names and types of arguments are one event.
struct ProbePoint {
  std::string system, name;  // letters, digits and _
  bool in_kernel = false, at_return = false;
  std::string place;         // "FILE:0x1234", with "(0x5678)" for a counter of listeners; "FUNCTION+16"
  std::string fetch;         // "arg1=%di:s32 ..."; may be empty
};

// Removes the definitions of recorders that are gone, unless another process is about to define some.
void remove_stale_probes();

class ProbeGroup {
 public:
  // Errors: the kernel has no such probes, no privileges, a place that the kernel refuses; nothing stays defined then.
  static result<ProbeGroup> define(TracefsInstance& instance, const std::vector<ProbePoint>& points, const std::string& filter);
  ProbeGroup(ProbeGroup&& other) noexcept
      : name_(std::move(other.name_)), defined_(std::exchange(other.defined_, {})), events_(std::move(other.events_)) {}
  ProbeGroup& operator=(ProbeGroup&&) = delete;
  ~ProbeGroup() { remove(); }

  struct Event {
    EventInfo info;            // as tracefs has it
    std::string system, name;  // of its points. A name that a point of other arguments has, too, got a number: "read_1"
  };
  std::vector<Event>& events() { return events_; }
  void remove();  // no instance may have them enabled: the instance must be gone

 private:
  explicit ProbeGroup(std::string name) : name_(std::move(name)) {}
  struct Defined {
    bool in_kernel = false;
    std::string name;
  };
  std::string name_;
  std::vector<Defined> defined_;
  std::vector<Event> events_;
};

}  // namespace ringside
