// Lines of a print fmt whose lengths, indices, divisors and widths come from the payload, over one event's fields.
#pragma once
#include <string>

#include "cli/hand_made.hpp"

namespace ringside::test {

inline const char* const hostile_formats[] = {
    R"("id=%pUl %s", REC->id, __print_hex(__get_dynamic_array(buf), REC->len))",
    R"("id=%pUl %s", REC->id, __print_array(__get_dynamic_array(buf), REC->len, 8))",
    R"("%s", __print_array(__get_dynamic_array(buf), REC->len, 3))",
    R"("%s %s", __print_hex(REC->id, -1), __print_hex_str(REC->id, REC->len))",
    R"("%d", REC->id[REC->len])",
    R"("%d %d", REC->id[-1], REC->id[16])",
    R"("%d", ((u32 *)__get_dynamic_array(buf))[REC->len])",
    R"("%pUl %d %d", REC->id, 100 / REC->len, 100 % REC->len)",
    R"("%*d %d", 1, 2, 7 / REC->len)",
    R"("%*d|%.*s", REC->len, 3, REC->len, __get_str(buf))",
    R"("%.*d|%-*x|%*c", REC->len, 3, REC->len, 4, REC->len, 5)",
    R"("%*s|%-*s", REC->len, "", REC->len, __print_flags(REC->len, "|", { 1, "a" }, { 2, "b" }))",
    R"("%999999999d", 1)",
    R"("%*.*d", REC->len, REC->len, 1)",
    R"("%*pbl %*pb %*ph %*phC", REC->len, REC->id, REC->len, REC->id, REC->len, REC->id, REC->len, __get_dynamic_array(buf))",
    R"("%s %s", __get_bitmask(buf), __get_cpumask(buf))",
    R"("%pI4 %pI6c %pISpc %piS", REC->len, REC->id, REC->id, __get_dynamic_array(buf))",
    R"("%pM %pmR %pU", REC->id, REC->id, REC->len)",
    R"("%p", REC->id)",
    R"("%*", 1)",
    R"("%", 1)",
    R"("%ls %lls", __get_str(buf), __print_symbolic(REC->len, { 0, "none" }))",
    R"("%d", REC->len << 99)",
};

inline std::string hostile_format(u16 id, const char* print) {
  return format(id, "x",
                "\tfield:u8 id[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:u32 len;\toffset:24;\tsize:4;\tsigned:0;\n"
                "\tfield:__data_loc u8[] buf;\toffset:28;\tsize:4;\tsigned:0;\n",
                print);
}

}  // namespace ringside::test
