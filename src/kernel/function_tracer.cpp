// The kernel's tracers of functions, in an instance of this process: ftrace:funcgraph_entry and _exit, or ftrace:function.
#include <sstream>

#include "kernel/tracefs_instance.hpp"
#include "sys/try.hpp"

namespace ringside {

result<void> TracefsInstance::trace_functions(const FunctionChoice& choice) {
  const std::string there = sys::read_file(dir_ + "/available_tracers").value_or("");
  std::istringstream words(there);
  bool has = false, has_function = false;
  for (std::string word; words >> word;) has = has || word == choice.tracer, has_function = has_function || word == "function";
  if (!has)
    return refuse(std::errc::not_supported,
                  "this kernel's instances have no tracer " + choice.tracer +
                      (choice.tracer == "function" ? " (CONFIG_FUNCTION_TRACER)"
                                                   : " (Linux 6.11 and later, with CONFIG_FUNCTION_GRAPH_TRACER)") +
                      (has_function ? "; --tracer function records the same calls without their ends"
                                    : "; uprobe:, kprobe: and the events of -e may show the same"));
  // A name that matches nothing is no error to every kernel, and an empty list means all functions.
  std::string before;
  for (const std::string& function : choice.functions) {
    auto set = write("set_ftrace_filter", function, !before.empty());
    if (!set && set.error().code != std::errc::invalid_argument) return set;
    const std::string now = sys::read_file(dir_ + "/set_ftrace_filter").value_or("");
    if (!set || now.starts_with('#') || now == before)
      return refuse(std::errc::invalid_argument,
                    "the kernel has no function that matches " + function +
                        " and can be traced (available_filter_functions of tracefs lists them), or --graph names it twice");
    before = now;
  }
  if (choice.depth != 0 && !sys::read_file(dir_ + "/max_graph_depth"))
    return refuse(
        std::errc::not_supported,
        "this kernel bounds the depth of all its graph tracers at once, which would change those of others: leave out "
        "--depth; -f 'depth < N' shows the outer calls of a recording");
  if (choice.depth != 0) RS_TRY(write("max_graph_depth", std::to_string(choice.depth)));
  (void)write("options/function-fork", "1");  // of followed processes, as event-fork
  traces_functions_ = true;
  return write("current_tracer", choice.tracer);
}

}  // namespace ringside
