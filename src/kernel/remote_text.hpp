// What the kernel's own remotes (Linux 7: remotes/NAME of tracefs) say of their events, which is text:
//
//   [001]<tab>    1.461460: selftest id=42
//   CPU:0 [LOST 1700 EVENTS]
//
// Read back by the event's format, it is an event with fields again. A field that the text does not show is not there.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

// An event, or the number of those that are missing before the next one.
struct RemoteLine {
  u32 cpu = 0;
  u64 lost = 0;
  u64 time_us = 0;
  std::string_view text{};  // "selftest id=42"; a text that is no such line, as a whole
  bool event = false;
};
// Takes the next one off `text`, which ends with an event's end, as each read() of the kernel's does. A text of an event may
// have several lines. None: `text` is empty.
std::optional<RemoteLine> take_remote_line(std::string_view& text);

// An event's format file, and the texts of such events.
class RemoteEventText {
 public:
  explicit RemoteEventText(std::string_view format);
  static RemoteEventText of_lines(u16 id);  // an event "line", which has any text

  const std::string& name() const { return name_; }
  u16 id() const { return id_; }
  std::string format() const;  // of what read() makes: what the text shows
  // The bytes of an event with this text, after its name. False: its format prints no such text.
  bool read(std::string_view text, std::vector<u8>& payload) const;

 private:
  enum class Kind : u8 { integer, text };
  struct Field {
    std::string type, name;
    Kind kind = Kind::integer;
    u32 size = 0;
    bool is_signed = false;
  };
  struct Conversion {
    std::string before, how;  // the text before it, and "%llu"
    u32 base = 10;
    size_t field = 0;  // of fields_
  };
  bool plan(std::string_view format, std::string_view print);
  bool add_conversion(std::string_view how, std::string_view argument, const std::vector<Field>& known);
  void show_whole();
  bool read_integer(const Conversion& conversion, std::string_view text, size_t& at, u64& value) const;

  std::string name_;
  u16 id_ = 0;
  std::vector<Field> fields_;
  std::vector<Conversion> conversions_;
  std::string behind_;  // the text after the last conversion
};

}  // namespace ringside
