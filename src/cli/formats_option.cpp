#include "cli/formats_option.hpp"

#include <sys/stat.h>

#include <charconv>
#include <set>

#include "decode/format_file.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

constexpr std::string_view name_line = "name: ", id_line = "\nID: ";

// Texts one after the other; each begins with the line of its name.
result<void> add_texts(std::string_view text, const std::string& system, const std::string& file, std::vector<EventInfo>& all) {
  const auto wrong = [&](const std::string& what) { return refuse(std::errc::invalid_argument, file + ": " + what); };
  if (!text.starts_with(name_line)) return wrong("it does not begin with \"name: \", as the format of an event does");
  while (!text.empty()) {
    const size_t next = text.find("\nname: ", 1);
    const std::string_view one = text.substr(0, next == std::string_view::npos ? text.size() : next + 1);
    text.remove_prefix(one.size());
    EventInfo e;
    e.system = system;
    e.name = one.substr(name_line.size(), one.find('\n') - name_line.size());
    e.format = one;
    e.enabled = true;
    e.apart = 1;
    const size_t id = one.find(id_line);
    u32 number = 0;
    if (id != std::string_view::npos) std::from_chars(one.data() + id + id_line.size(), one.data() + one.size(), number);
    if (e.name.empty() || number == 0 || number > 0xFFFF)
      return wrong("the format of \"" + e.name + "\" has no name, or no line \"ID: \" with a number from 1 to 65535");
    e.id = static_cast<u16>(number);
    if (const FormatFile parsed = read_format_file(e.format); !parsed.wrong.empty()) return wrong(e.name + ": " + parsed.wrong);
    all.push_back(std::move(e));
  }
  return {};
}

result<void> add_directory(const std::string& path, std::vector<EventInfo>& all) {
  const auto top = RS_TRY(sys::open_trusted(path, sys::Role::other));
  const auto systems = RS_TRY(sys::names_in(top.get()));
  for (const std::string& system : systems) {
    const sys::Fd in = sys::open_beneath(top.get(), system.c_str(), O_PATH | O_DIRECTORY);
    const auto events = in ? sys::names_in(in.get()) : result<std::vector<std::string>>();
    for (const std::string& event : events ? *events : std::vector<std::string>{})
      if (const auto text = sys::read_beneath(in.get(), event + "/format"))
        RS_TRY(add_texts(*text, system, path + "/" + system + "/" + event + "/format", all));
  }
  return {};
}

}  // namespace

result<std::vector<EventInfo>> read_formats(const std::string& path) {
  std::vector<EventInfo> all;
  if (struct stat st{}; stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
    RS_TRY(add_directory(path, all));
  } else {
    const std::string text = RS_TRY(sys::read_file(path)), file = path.substr(path.rfind('/') + 1);
    RS_TRY(add_texts(text, file.substr(0, file.find('.')), path, all));
  }
  if (all.empty()) return refuse(std::errc::invalid_argument, path + " holds no format of an event");
  std::set<u16> ids;
  for (const EventInfo& e : all)
    if (!ids.insert(e.id).second)
      return refuse(std::errc::invalid_argument, path + ": two events have the number " + std::to_string(e.id));
  return all;
}

}  // namespace ringside::cli
