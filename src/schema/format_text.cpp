#include "format_text.hpp"

namespace ringside {

std::string format_text(std::string_view name, u32 id, std::string_view fields, std::string_view print) {
  std::string text = "name: ";
  text.append(name).append("\nID: ").append(std::to_string(id)).append("\nformat:\n");
  text.append(
      "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
      "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
      "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
      "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
      "\n");
  text.append(fields).append("\nprint fmt: ").append(print).append("\n");
  return text;
}

std::string format_text(const ringside_event& event, u32 id) {
  return format_text(event.name, id, event.format_fields, event.print_fmt);
}

std::string header_page_text(u32 subbuf_size) {
  return "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
         "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
         "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
         "\tfield: char data;\toffset:16;\tsize:" +
         std::to_string(subbuf_size - 16) + ";\tsigned:0;\n";
}

std::string_view header_event_text() {
  return "# compressed entry header\n"
         "\ttype_len    :    5 bits\n"
         "\ttime_delta  :   27 bits\n"
         "\tarray       :   32 bits\n"
         "\n"
         "\tpadding     : type == 29\n"
         "\ttime_extend : type == 30\n"
         "\ttime_stamp : type == 31\n"
         "\tdata max type_len  == 28\n";
}

}  // namespace ringside
