#include "decode/formats.hpp"

#include <mutex>
#include <sstream>

#include "decode/compile_steps.hpp"
#include "decode/format_file.hpp"
#include "decode/print_steps.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

std::mutex parsing;

// trace_printk's events hold a format by its address, and its arguments in binary: `buf` becomes their text. A text without
// conversions comes alone.
void find_message(const std::string& full, const World& world, EventFormat& to, const FormatContext& context) {
  const u32 word_size = world.word_size == 4 ? 4 : 8;
  const auto is_message = [&](Field& field, u32 format_at) {
    field.kind = FieldKind::text;
    field.messages = &context;
    field.is_composed = true;
    field.message_at = format_at;
    field.message_word = static_cast<u8>(word_size);
    field.message_big = world.big_endian;
  };
  if (full == "ftrace:bputs") {
    for (Field& field : to.fields)
      if (field.name == "str" && field.kind == FieldKind::integer && field.size == word_size) is_message(field, field.offset);
    return;
  }
  const Field* const text = to.field("fmt");
  for (Field& field : to.fields) {
    const bool rest = field.name == "buf" && field.kind == FieldKind::array && field.size == 0;
    if (!rest || text == nullptr || text->kind != FieldKind::integer || text->size != word_size) continue;
    field.element = 1;
    is_message(field, text->offset);
  }
}

std::string place_in(std::string_view text, size_t at) {
  constexpr size_t longest = 40;
  const std::string_view rest = text.substr(std::min(at, text.size()));
  return "at character " + std::to_string(at + 1) +
         (rest.empty() ? ", its end" : " (" + sys::printable(rest.substr(0, longest)) + (rest.size() > longest ? "...)" : ")"));
}

// Returns what could not be understood; empty: nothing.
std::string read_format(const std::string& full, const std::string& text, const World& world, const FormatContext& context,
                        EventFormat& to) {
  const u32 word_size = world.word_size == 4 ? 4 : 8;
  FormatFile file = read_format_file(text, world);
  if (!file.wrong.empty())
    return "the format of " + full + " cannot be understood: " + file.wrong + "; its fields appear as hex";
  to.parsed = true;
  to.has_tid = file.has_tid;
  to.fields = std::move(file.fields);
  find_message(full, world, to, context);
  for (Field& field : to.fields) {
    field.is_rest = (full == "ftrace:kernel_stack" || full == "ftrace:user_stack") && field.kind == FieldKind::array &&
                    field.name == "caller";
    if (field.is_stack && to.stack == nullptr) to.stack = &field;
    if (field.is_level && to.level == nullptr) to.level = &field;
  }
  if (file.print_fmt.empty()) return default_steps(to), std::string();
  PrintTree tree =
      parse_print_fmt(file.print_fmt, {to.fields, file.common, context.ticks_per_second, word_size, world.big_endian});
  if (tree.wrong.empty() && compile_steps(tree, word_size, to)) return {};
  if (tree.wrong.empty()) tree.wrong = "its values are too many";
  default_steps(to);
  return "the print fmt of " + full + " cannot be understood " + place_in(file.print_fmt, tree.wrong_at) + ": " + tree.wrong +
         "; its fields appear by their names";
}

}  // namespace

const Field* EventFormat::field(std::string_view wanted) const {
  for (const Field& f : fields) {
    if (f.name == wanted) return &f;
  }
  return nullptr;
}

EventType::EventType(u32 number, std::string of_system, std::string named, std::string format, const World& recorder,
                     FormatContext& context)
    : id(number),
      system(std::move(of_system)),
      name(std::move(named)),
      full(system + ":" + name),
      of_syscalls(system == "syscalls" || system == "raw_syscalls"),
      of_ftrace(system == "ftrace"),
      world(recorder),
      context_(context),
      names_a_stack_(format.find("ringside_stack") != format.npos),
      names_a_level_(format.find("ringside_level") != format.npos),
      text_(std::move(format)) {}

void EventType::parse() const {
  const std::lock_guard alone(parsing);
  if (known_.load(std::memory_order_relaxed)) return;
  EventFormat format;
  std::string wrong = read_format(full, text_, world, context_, format);
  if (!wrong.empty()) context_.failed.push_back({this, std::move(wrong)});
  format_ = std::move(format);
  text_ = std::string();
  known_.store(true, std::memory_order_release);  // pairs with the load in format()
}

void Formats::add(u32 id, std::string system, std::string name, std::string format, const World& world) {
  if (id >= numbers_) return;
  ++version_;
  const u32 of = id >> 16;
  if (of >= by_id_.size()) by_id_.resize(of + 1);
  if (by_id_[of] == nullptr) by_id_[of] = std::make_unique<const EventType*[]>(1u << 16);
  FormatContext& shared = context(id);
  if (world.architecture != Architecture::unknown) shared.architecture = world.architecture;
  types_.push_back(std::make_unique<EventType>(id, std::move(system), std::move(name), std::move(format), world, shared));
  by_id_[of][id & 0xFFFF] = types_.back().get();
}

void Formats::add_strings(const std::string& printk_formats, u32 ids) {
  std::istringstream lines(printk_formats);
  for (std::string line; std::getline(lines, line);) {
    char* end = nullptr;
    const u64 address = std::strtoull(line.c_str(), &end, 16);
    const size_t begin = line.find('"'), last = line.rfind('"');
    if (address == 0 || begin >= last) continue;  // none of them is the end either
    std::string text;
    for (size_t at = begin + 1; at < last; ++at) {
      const bool escape = line[at] == '\\' && (line[at + 1] == 'n' || line[at + 1] == 't' || line[at + 1] == '"');
      at += escape && at + 1 < last ? 1 : 0;
      text += escape && line[at] == 'n' ? '\n' : escape && line[at] == 't' ? '\t' : line[at];
    }
    context(ids).strings.emplace(address, std::move(text));
  }
}

std::vector<FailedFormat> Formats::take_failed() {
  const std::lock_guard alone(parsing);
  std::vector<FailedFormat> all = std::exchange(context_->failed, {});
  for (const auto& [ids, context] : contexts_)
    for (FailedFormat& failed : std::exchange(context->failed, {})) all.push_back(std::move(failed));
  return all;
}

void Formats::print(const EventType& type, Bytes payload, fmt::memory_buffer& out) const {
  const EventFormat& format = type.format();
  if (!format.parsed) {
    const size_t common = std::min<size_t>(payload.size, 8);
    append_hex({payload.data + common, payload.size - common}, " ", out);
  } else {
    run_steps(format, payload, type.context(), out);
  }
}

}  // namespace ringside
