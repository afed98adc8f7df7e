#include "format_text.hpp"

#include <algorithm>
#include <ringside/log_format.hpp>

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
    case RINGSIDE_LEVEL:
      return "ringside_level";
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

// As %..., and its argument: of a value with a form, of the kinds that log_format::fits lets through.
std::string conversion(const log_format::Spec& spec, const ringside_field& f, std::string& argument_text) {
  const bool is_text =
      f.kind == RINGSIDE_STRING || ((f.kind == RINGSIDE_BOOL || f.kind == RINGSIDE_CHAR || f.symbols != nullptr) &&
                                    (spec.type == 0 || spec.type == 's' || spec.type == 'c'));
  argument_text = is_text || f.kind == RINGSIDE_POINTER ? argument(f) : "REC->" + std::string(plain(f.name));
  if (is_text && f.kind == RINGSIDE_BOOL) argument_text += " ? \"true\" : \"false\"";
  if (f.count != 0 || f.kind == RINGSIDE_POINTER || f.kind == RINGSIDE_LEVEL || (spec.plain() && !is_text))
    return argument_text = argument(f), conversion(f);
  const bool shortest = f.kind == RINGSIDE_FLOAT && spec.type == 0;
  std::string out = shortest ? "0x%" : "%";
  if (spec.align == '<' || (spec.align == 0 && is_text)) out += spec.width >= 0 ? "-" : "";
  if (spec.sign == '+' || spec.sign == ' ') out += spec.sign;
  if (spec.sharp) out += '#';
  if (spec.zeros && spec.align == 0) out += '0';
  if (spec.width >= 0) out += std::to_string(spec.width);
  if (spec.precision >= 0) out += "." + std::to_string(spec.precision);
  if (is_text) return out + "s";
  if (f.kind == RINGSIDE_FLOAT && !shortest) return out + spec.type;
  const bool is_signed = f.kind == RINGSIDE_SIGNED || f.kind == RINGSIDE_CHAR;
  const char* const length = f.size == 8 ? "ll" : f.size == 4 ? "" : f.size == 2 ? "h" : "hh";
  const char type = shortest ? 'x' : spec.type == 0 || spec.type == 'd' ? (is_signed ? 'd' : 'u') : spec.type;
  return out + length + type;
}

bool is_message(std::string_view print) { return !print.starts_with('"') && std::count(print.begin(), print.end(), '\n') >= 2; }

// The print format of a message: its file and line, and its text.
std::string print_of_message(const ringside_event& event) {
  const std::string_view whole = event.print_fmt;
  const size_t end = whole.find('\n');
  const size_t slash = whole.rfind('/', end);
  const std::string_view file = whole.substr(slash == whole.npos ? 0 : slash + 1, end - (slash == whole.npos ? 0 : slash + 1));
  const char* const message = log_format::message_of(event.print_fmt);
  std::string print = "\"", arguments;
  const auto literal = [&](char c) {
    if (c == '%' || c == '"' || c == '\\') print += c == '%' ? '%' : '\\';
    if (c == '\n')
      print += "\\n";
    else
      print += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? ' ' : c;  // a format file has no control characters
  };
  std::for_each(file.begin(), file.end(), literal);
  print += ':';
  print += whole.substr(end + 1, static_cast<size_t>(message - event.print_fmt) - end - 2);
  print += ": ";
  log_format::Reader reader(message);
  for (auto piece = reader.next(); piece != log_format::Reader::Piece::end; piece = reader.next()) {
    if (piece != log_format::Reader::Piece::replacement || reader.spec.argument >= event.fields->size) {
      literal(reader.character);
      continue;
    }
    std::string text;
    print += conversion(reader.spec, event.fields[1 + reader.spec.argument], text);
    arguments += ", " + text;
  }
  return print + '"' + arguments;
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
    texts.print = n != 0 && is_message(event.print_fmt) ? print_of_message(event) : event.print_fmt;
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
