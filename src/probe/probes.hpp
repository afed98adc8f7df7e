// Probes as `record -e` names them, and their places:
//
//   usdt:PATH:PROVIDER:NAME            * and ? in both names; event sdt_PROVIDER:NAME, arguments arg1..
//   uprobe:PATH:FUNCTION[+OFFSET][%return]   event probe_FILE:FUNCTION, or FUNCTION__return with `ret`
//   kprobe:FUNCTION[+OFFSET][%return]        event probe:FUNCTION
//
// The last two take (ARGUMENT, ...) at their end: probe/arguments.hpp.
// A path may have colons: it ends where a file is.
//
// perf probe gives such names.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/probe_group.hpp"
#include "probe/arguments.hpp"

namespace ringside {

struct Probe {
  enum class Kind : u8 { usdt, uprobe, kprobe };
  Kind kind = Kind::uprobe;
  std::string text;            // as given
  std::string path, provider;  // as far as the kind has them
  std::string name;            // of the event, or the function
  u64 offset = 0;
  bool at_return = false;
  bool has_list = false;  // of arguments; without one, a return has `ret`
  std::vector<ProbeArgument> arguments{};

  static bool is(std::string_view text);  // begins as one does
  static result<Probe> parse(const std::string& text);
};

// All places of a probe; never empty. Errors: no such file, no ELF file, no such function or probe, with near names.
// notices: gets a sentence about arguments that are left out.
result<std::vector<ProbePoint>> points_of(const Probe& probe, std::vector<std::string>& notices);

// What can be taken of the functions of a uprobe, whose name may have * and ?: for `list`.
struct ProbeableFunction {
  std::string probe;          // "uprobe:./server:handle"
  bool is_described = false;  // by debugging information; else no variables are known
  std::vector<Variables::Known> parameters{};
  std::string returns{};  // the type; "void"
};
// The most functions that are described; the others have a name alone.
inline constexpr size_t most_described = 10'000;
result<std::vector<ProbeableFunction>> probeable(const Probe& probe);

}  // namespace ringside
