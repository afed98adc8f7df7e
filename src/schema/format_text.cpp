#include "format_text.hpp"

#include <algorithm>

namespace ringside {
namespace {

// The type's name in a format file. Enums have their underlying type's.
std::string type_name(const ringside_field& f) {
  switch (f.kind) {
    case RINGSIDE_BOOL:
      return "bool";
    case RINGSIDE_CHAR:
      return "char";
    case RINGSIDE_UNSIGNED:
      return "u" + std::to_string(8 * f.size);
    case RINGSIDE_SIGNED:
      return "s" + std::to_string(8 * f.size);
    case RINGSIDE_FLOAT:
      return f.size == 4 ? "float" : "double";
    case RINGSIDE_POINTER:
      return "void *";
    case RINGSIDE_STACK:
      return "ringside_stack";
    default:
      return "__data_loc char[]";
  }
}

const char* conversion(const ringside_field& f) {
  if (f.count != 0 || f.kind == RINGSIDE_STRING || f.symbols != nullptr) return "%s";
  switch (f.kind) {
    case RINGSIDE_CHAR:
      return "%s";
    case RINGSIDE_SIGNED:
      return f.size == 8 ? "%lld" : f.size == 4 ? "%d" : f.size == 2 ? "%hd" : "%hhd";
    case RINGSIDE_FLOAT:
    case RINGSIDE_POINTER:
    case RINGSIDE_STACK:
      return f.size == 8 ? "0x%llx" : "0x%x";
    default:
      return f.size == 8 ? "%llu" : "%u";
  }
}

// field:u8 mac[6];	offset:8;	size:6;	signed:0;
std::string field_line(const ringside_field& f) {
  std::string line = "\tfield:" + type_name(f) + " ";
  line += plain(f.name);
  if (f.count != 0) line += "[" + std::to_string(f.count) + "]";
  const bool is_signed = f.kind == RINGSIDE_SIGNED || (f.kind == RINGSIDE_CHAR && static_cast<char>(-1) < 0);
  return line + ";\toffset:" + std::to_string(f.offset) + ";\tsize:" + std::to_string(f.size * std::max(f.count, 1u)) +
         ";\tsigned:" + (is_signed ? "1" : "0") + ";\n";
}

// , { 1, "red" }, { 2, "green" }
std::string list_of(const ringside_symbol* symbols) {
  std::string list;
  for (; symbols->name != nullptr; ++symbols) list += ", { " + std::to_string(symbols->value) + ", \"" + symbols->name + "\" }";
  return list;
}

// REC->length, __get_str(path) or __print_array(REC->sizes, 4, 2)
std::string argument(const ringside_field& f) {
  const std::string name(plain(f.name));
  if (f.kind == RINGSIDE_STRING) return "__get_str(" + name + ")";
  if (f.symbols != nullptr) return "__print_symbolic(REC->" + name + list_of(f.symbols) + ")";
  if (f.count == 0 || f.kind == RINGSIDE_CHAR) return "REC->" + name;
  if (f.kind == RINGSIDE_UNSIGNED && f.size == 1) return "__print_hex(REC->" + name + ", " + std::to_string(f.count) + ")";
  return "__print_array(REC->" + name + ", " + std::to_string(f.count) + ", " + std::to_string(f.size) + ")";
}

}  // namespace

EventTexts texts_of(const ringside_event& event) {
  EventTexts texts;
  const u32 n = event.fields != nullptr ? event.fields->size : 0;
  if (event.format_fields != nullptr)
    texts.fields = event.format_fields;
  else
    for (u32 i = 1; i <= n; ++i) texts.fields += field_line(event.fields[i]);
  if (event.print_fmt != nullptr) {
    texts.print = event.print_fmt;
    return texts;
  }
  std::string arguments;
  for (u32 i = 1; i <= n; ++i) {
    const ringside_field& f = event.fields[i];
    if (i != 1) texts.print += ' ';
    texts.print += plain(f.name);
    texts.print.append("=").append(conversion(f));
    arguments += ", " + argument(f);
  }
  texts.print = '"' + texts.print + '"' + arguments;
  return texts;
}

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
  const EventTexts texts = texts_of(event);
  return format_text(event.name, id, texts.fields, texts.print);
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
