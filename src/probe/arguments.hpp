// The arguments of a probe, as `record -e 'uprobe:PATH:FUNCTION(ARGUMENT, ...)'` names them:
//
//   [NAME=]VARIABLE[->MEMBER|.MEMBER|[N]]...[:TYPE]    by debugging information; *VARIABLE, $ret at %return
//   [NAME=]$argN[:TYPE]                                where the machine's convention passes the N-th integer
//   [NAME=]FETCH[:TYPE]                                in the kernel's own words: %di, +8(%sp), $stack0, $retval, $comm
//   $params, $vars                                     all parameters; all variables, as far as they have a place
//
// Types are the kernel's: u8..u64, s8..s64, x8..x64, string, and these in arrays, u32[4].
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "stacks/elf_names.hpp"

namespace ringside {

struct ProbeArgument {
  enum class Kind : u8 { path, raw, parameters, variables } kind = Kind::path;
  std::string text;        // as given
  std::string name, type;  // empty: by the expression
  VariablePath path{};     // of Kind::path
  std::string raw{};       // of Kind::raw: what the kernel is to fetch
};

// "a, b[2], c->d". Errors: what is wrong, and the forms.
result<std::vector<ProbeArgument>> parse_arguments(std::string_view list);

// "id=+0(%di):s32 len=%si:u64". variables: null, if there is no debugging information. why: a sentence for that.
// notices: gets a sentence about variables of $params and $vars that are left out.
result<std::string> fetch_of(const std::vector<ProbeArgument>& arguments, Variables* variables, const std::string& why,
                             std::vector<std::string>& notices);

}  // namespace ringside
