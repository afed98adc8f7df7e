#include "decode/compile_steps.hpp"

#include <algorithm>

#include "decode/compile_value.hpp"
#include "decode/conversion.hpp"
#include "decode/print_memory.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

using StepKind = PrintStep::Kind;
using NodeKind = Node::Kind;
using Steps = std::vector<PrintStep>;

constexpr size_t most_work = 50'000;  // steps and instructions: a variable of ({ ... }) may be there often

// One event is one line.
std::string in_one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), sys::is_control, ' ');
  return text;
}

void add_literal(std::string_view text, Steps& steps) {
  if (text.empty()) return;
  if (steps.empty() || steps.back().kind != StepKind::literal) steps.emplace_back();
  steps.back().text += in_one_line(std::string(text));
}

// Pointers and floating numbers bring their own 0x, or none.
void drop_hex_sign(Steps& steps) {
  if (steps.empty() || steps.back().kind != StepKind::literal) return;
  std::string& text = steps.back().text;
  if (text.ends_with("0x")) text.resize(text.size() - 2);
}

bool is_array(const Field& field) { return field.kind == FieldKind::array || field.kind == FieldKind::loc_array; }

std::string_view sign_of(ValueOp::Op op) {
  using enum ValueOp::Op;
  switch (op) {
    case negate:
      return "-";
    case invert:
      return "~";
    case boolean_not:
      return "!";
    case add:
      return " + ";
    case subtract:
      return " - ";
    case multiply:
      return " * ";
    case divide:
      return " / ";
    case remainder:
      return " % ";
    case shift_left:
      return " << ";
    case shift_right:
      return " >> ";
    case bit_and:
      return " & ";
    case bit_or:
      return " | ";
    case bit_xor:
      return " ^ ";
    case both:
      return " && ";
    case either:
      return " || ";
    case equal:
      return " == ";
    case unequal:
      return " != ";
    case less:
      return " < ";
    case less_equal:
      return " <= ";
    case greater:
      return " > ";
    case greater_equal:
      return " >= ";
    default:
      return "";
  }
}

class StepCompiler {
 public:
  StepCompiler(u32 word_size, EventFormat& type) : type_(type), word_size_(static_cast<u8>(word_size)) {}

  // False: the steps would be too many.
  bool compile(const PrintTree& tree) {
    std::string_view rest = tree.format;
    while (rest.ends_with('\n')) rest.remove_suffix(1);
    auto argument = tree.arguments.begin();
    const auto next = [&]() -> const Node* { return argument != tree.arguments.end() ? *argument++ : nullptr; };
    Steps steps;
    while (!rest.empty()) {
      const size_t percent = std::min(rest.find('%'), rest.size());
      add_literal(rest.substr(0, percent), steps);
      rest.remove_prefix(percent);
      if (rest.empty()) break;
      const Conversion conversion = read_conversion(rest.substr(1));
      const std::string_view source = rest.substr(0, conversion.length + 1);
      rest.remove_prefix(source.size());
      if (conversion.letter == '%') {
        add_literal("%", steps);
        continue;
      }
      PrintStep sized;
      sized.width = conversion.is_word ? word_size_ : conversion.size;
      sized.is_signed = conversion.is_signed();
      sized.form = conversion.form;
      if (conversion.star_width) star(next(), sized.star_width);
      if (conversion.star_precision) star(next(), sized.star_precision);
      const Node* const node = conversion.letter != 0 ? next() : nullptr;
      if (node == nullptr)
        add_literal(source, steps);
      else
        print(node, conversion, sized, steps);
      if (work_ > most_work) return false;
    }
    if (steps.empty()) steps.emplace_back();  // it prints nothing
    show_faults(steps);
    type_.steps = std::move(steps);
    return true;
  }

 private:
  // "%s" of a probe's text that the kernel could not read is (fault), without the quotes.
  void show_faults(Steps& steps) const {
    for (size_t i = 1; i + 1 < steps.size(); ++i) {
      std::string &before = steps[i - 1].text, &behind = steps[i + 1].text;
      const bool is_quoted = steps[i].kind == StepKind::text && steps[i - 1].kind == StepKind::literal &&
                             steps[i + 1].kind == StepKind::literal && before.ends_with('"') && behind.starts_with('"');
      if (!is_quoted || !steps[i].from.empty() || !type_.fields[steps[i].field].is_probed) continue;
      before.pop_back();
      behind.erase(0, 1);
      PrintStep chosen;
      chosen.kind = StepKind::choice;
      chosen.code = {{ValueOp::Op::length, steps[i].field, 0}};
      add_literal("\"", chosen.then);
      chosen.then.push_back(std::move(steps[i]));
      add_literal("\"", chosen.then);
      add_literal(fault, chosen.otherwise);
      steps[i] = std::move(chosen);
    }
  }
  void star(const Node* node, std::vector<ValueOp>& code) {
    if (node == nullptr || !code_of(node, code)) code = {{ValueOp::Op::constant, 0, 0}};
  }
  bool code_of(const Node* node, std::vector<ValueOp>& code) {
    const bool done = work_ <= most_work && compile_value(node, type_.fields, code);
    work_ += code.size() + 1;
    return done;
  }
  u32 index(const Field* field) const { return static_cast<u32>(field - type_.fields.data()); }
  // The step's value; false: it is unknown.
  bool value(const Node* node, PrintStep& step) {
    const Field* const field = plain_field(node, type_.fields);
    if (field == nullptr) return code_of(node, step.code);
    step.field = index(field);
    return field->kind == FieldKind::integer;
  }
  const Field* floating(const Node* node) const {
    const Field* const field = plain_field(node, type_.fields);
    return field != nullptr && field->kind == FieldKind::floating ? field : nullptr;
  }

  void print(const Node* node, const Conversion& conversion, const PrintStep& sized, Steps& steps) {
    PrintStep step = sized;
    if (const Field* const field = floating(node); field != nullptr) return print_floating(*field, conversion, step, steps);
    switch (conversion.letter) {
      case 's':
        return print_text(node, sized, steps);
      case 'p':
        return print_pointer(node, conversion, sized, steps);
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'e':
      case 'E':
        return spell(node, steps, 0);
      default:
        break;
    }
    if (!value(node, step)) return spell(node, steps, 0);
    const PrintForm& form = step.form;
    const bool plain = form.is_plain() && step.star_width.empty() && step.star_precision.empty();
    const bool zeros = form.base == 16 && form.zeros && !form.left && form.width <= 16 && form.precision < 0 && !form.sharp &&
                       !form.upper && step.star_width.empty() && step.star_precision.empty();
    step.kind = conversion.letter == 'c'              ? StepKind::character
                : plain && form.base == 10            ? StepKind::decimal
                : form.base == 16 && (plain || zeros) ? StepKind::hex
                                                      : StepKind::number;
    steps.push_back(std::move(step));
  }

  // The kernel has no floating point, so formats print the bits of a program's numbers as 0x%llx; here is the number.
  void print_floating(const Field& field, const Conversion& conversion, PrintStep& step, Steps& steps) {
    step.kind = StepKind::floating;
    step.field = index(&field);
    if (conversion.letter == 'x') drop_hex_sign(steps);
    if (std::string_view("fFgGeE").find(conversion.letter) != std::string_view::npos)
      step.text = std::string("%") + (step.form.left ? "-" : "") + (step.form.zeros ? "0" : "") + (step.form.plus ? "+" : "") +
                  (step.form.blank ? " " : "") + (step.form.sharp ? "#" : "") + "*.*" + conversion.letter;
    steps.push_back(std::move(step));
  }

  void print_pointer(const Node* node, const Conversion& conversion, PrintStep step, Steps& steps) {
    step.width = word_size_;
    const std::string_view form = memory_form(conversion.extension);
    if (conversion.names_function()) {
      step.kind = StepKind::address;
      step.distance = conversion.with_distance();
      step.returns = conversion.extension[0] == 'B';
    } else if (!form.empty()) {
      return print_memory(node, form, conversion, step, steps);
    } else {
      step.kind = conversion.extension == "e" ? StepKind::error : StepKind::pointer;
      step.is_signed = step.kind == StepKind::error;
    }
    if (step.kind == StepKind::pointer) {
      drop_hex_sign(steps);
      return print_address(node, std::move(step), steps);
    }
    if (!value(node, step)) return spell(node, steps, 0);
    steps.push_back(std::move(step));
  }

  // A page of the kernel's is an element of an array whose place only the kernel knows: its number is shown.
  void print_address(const Node* node, PrintStep step, Steps& steps) {
    if (node->is(NodeKind::choice) && !is_number(node)) {
      PrintStep chosen;
      chosen.kind = StepKind::choice;
      if (++work_ > most_work || !value(node->parts[0], chosen)) return spell(node, steps, 0);
      print_address(node->parts[1], step, chosen.then);
      print_address(node->parts[2], std::move(step), chosen.otherwise);
      steps.push_back(std::move(chosen));
      return;
    }
    const bool of_unknown = node->is(NodeKind::binary) && node->op == ValueOp::Op::add && node->parts[0]->is(NodeKind::cast) &&
                            node->parts[0]->type.is_pointer() && !node->parts[0]->is_known;
    if (!value(of_unknown ? node->parts[1] : node, step)) return spell(node, steps, 0);
    steps.push_back(std::move(step));
  }

  // The bytes of a node for memory: a field's, or those of one array in it.
  bool place(const Node* node, PrintStep& step) {
    step.field = node->field;
    if (node->parts.empty() || !node->is(NodeKind::memory)) return true;
    const Field& field = type_.fields[node->field];
    const u64 level = node->value % Node::flat;
    if (level != 0 && level <= field.strides.size()) step.part = field.strides[level - 1] * field.element;
    return code_of(node->parts[0], step.from);
  }

  // %pU of a field, and its kin.
  void print_memory(const Node* node, std::string_view form, const Conversion& conversion, PrintStep step, Steps& steps) {
    while (node->is(NodeKind::cast)) node = node->parts[0];
    if (!node->is(NodeKind::memory) && !node->is(NodeKind::field)) return spell(node, steps, 0);
    step.kind = StepKind::memory;
    if (!place(node, step)) return spell(node, steps, 0);
    step.text = form;
    const bool counts = form[0] == 'h' || form[0] == 'b' || form[0] == 'E';  // the width is no width
    if (!counts)
      step.star_width.clear();
    else if (!conversion.star_width)
      step.star_width = {{ValueOp::Op::constant, 0, std::max<i64>(conversion.form.width, 1)}};
    steps.push_back(std::move(step));
  }

  void print_text(const Node* node, PrintStep step, Steps& steps) {
    if (++work_ > most_work) return;
    switch (node->kind) {
      case NodeKind::choice: {
        PrintStep chosen;
        chosen.kind = StepKind::choice;
        if (!value(node->parts[0], chosen)) break;
        print_text(node->parts[1], step, chosen.then);
        print_text(node->parts[2], std::move(step), chosen.otherwise);
        steps.push_back(std::move(chosen));
        return;
      }
      case NodeKind::text:
        return constant(node->text, std::move(step), steps);
      case NodeKind::names:
        return print_names(node, std::move(step), steps);
      case NodeKind::memory: {
        const Field& field = type_.fields[node->field];
        if (!place(node, step)) break;
        if (node->type.is_text() || !is_array(field)) {
          step.kind = StepKind::text;
        } else {
          step.kind = StepKind::list;
          step.width = static_cast<u8>(field.element);
        }
        steps.push_back(std::move(step));
        return;
      }
      case NodeKind::list:
      case NodeKind::bytes: {
        step.kind = node->is(NodeKind::list) ? StepKind::list : StepKind::bytes;
        if (!place(node->parts.back(), step)) break;
        step.text = node->is(NodeKind::list) ? " " : node->text;
        step.width = static_cast<u8>(node->value);
        if (node->parts.size() == 2 && !code_of(node->parts[0], step.code)) break;
        steps.push_back(std::move(step));
        return;
      }
      case NodeKind::mask:
        step.kind = node->is_symbolic ? StepKind::bit_ranges : StepKind::bitmap;
        step.width = word_size_;
        step.field = node->field;
        steps.push_back(std::move(step));
        return;
      case NodeKind::cast:
        if (node->type.is_pointer() && !is_number(node)) return print_text(node->parts[0], std::move(step), steps);
        break;
      default:
        break;
    }
    if (node->is(NodeKind::number) && node->value == 0) return constant("(null)", std::move(step), steps);
    if (!value(node, step)) return spell(node, steps, 0);
    const Field* const field = plain_field(node, type_.fields);
    const Field* const message = field != nullptr && field->name == "fmt" ? type_.field("buf") : nullptr;
    if (message != nullptr && message->messages != nullptr) {
      step.kind = StepKind::message;
      step.field = index(message);
    } else if (node->type.is_char || (field != nullptr && field->is_char)) {
      step.kind = StepKind::character;
    } else if (node->type.size() == word_size_) {
      step.kind = StepKind::kernel_text;
    } else {
      step.kind = StepKind::decimal;
      step.is_signed = node->type.is_signed;
      step.width = 8;
    }
    steps.push_back(std::move(step));
  }

  static void constant(const std::string& text, PrintStep step, Steps& steps) {
    const bool plain = step.form.is_plain() && step.star_width.empty() && step.star_precision.empty();
    if (plain) return add_literal(text, steps);
    step.kind = StepKind::constant;
    step.text = in_one_line(text);
    steps.push_back(std::move(step));
  }

  void print_names(const Node* node, PrintStep step, Steps& steps) {
    step.kind = node->is_symbolic ? StepKind::symbol : StepKind::flags;
    step.texts = std::make_shared<KnownTexts<6>>();
    step.names = node->list;
    for (auto& [number, name] : step.names) name = in_one_line(std::move(name));
    step.text = in_one_line(node->text);
    step.width = node->value == 0 ? word_size_ : u8{8};
    step.is_signed = false;
    if (!is_number(node->parts[0])) return spell(node, steps, 0);
    if (!value(node->parts[0], step)) return add_literal("?", steps);
    const Field* const field = plain_field(node->parts[0], type_.fields);
    if (field != nullptr && node->is_symbolic) type_.fields[index(field)].symbols = step.names;
    if (step.width == 4)
      for (auto& name : step.names) name.first = static_cast<u32>(name.first);
    steps.push_back(std::move(step));
  }

  // As it is written, with the values of what is known.
  void spell(const Node* node, Steps& steps, u32 depth) {
    work_ += 1 + node->text.size() / 8;
    if (work_ > most_work || depth > Nodes::deepest) return;
    PrintStep step;
    if (is_number(node) && value(node, step)) {
      step.kind = node->type.is_pointer() ? StepKind::pointer : StepKind::decimal;
      step.is_signed = node->type.is_signed;
      steps.push_back(std::move(step));
      return;
    }
    const auto parts = [&](std::string_view between) {
      for (size_t n = 0; n < node->parts.size(); ++n) {
        if (n != 0) add_literal(between, steps);
        spell(node->parts[n], steps, depth + 1);
      }
    };
    switch (node->kind) {
      case NodeKind::call:
        add_literal(node->text + "(", steps);
        parts(", ");
        return add_literal(")", steps);
      case NodeKind::unary:
        add_literal(sign_of(node->op), steps);
        return parts("");
      case NodeKind::binary:
        if (depth != 0) add_literal("(", steps);
        parts(sign_of(node->op));
        return add_literal(depth != 0 ? ")" : "", steps);
      case NodeKind::cast:
        return parts("");
      case NodeKind::element:
        parts("[");
        return add_literal("]", steps);
      case NodeKind::names:
        if (is_number(node->parts[0])) break;
        add_literal(node->is_symbolic ? "__print_symbolic(" : "__print_flags(", steps);
        parts("");
        return add_literal(")", steps);
      case NodeKind::choice: {
        PrintStep chosen;
        chosen.kind = StepKind::choice;
        if (!is_number(node->parts[0]) || !value(node->parts[0], chosen)) {
          spell(node->parts[0], steps, depth + 1);
          add_literal(" ? ", steps);
          spell(node->parts[1], steps, depth + 1);
          add_literal(" : ", steps);
          return spell(node->parts[2], steps, depth + 1);
        }
        spell(node->parts[1], chosen.then, depth);
        spell(node->parts[2], chosen.otherwise, depth);
        steps.push_back(std::move(chosen));
        return;
      }
      case NodeKind::text:
        add_literal("\"" + node->text + "\"", steps);
        return;
      case NodeKind::memory:
        if (!node->type.is_text() || is_array(type_.fields[node->field])) break;
        add_literal("\"", steps);
        print_text(node, {}, steps);
        return add_literal("\"", steps);
      case NodeKind::list:
      case NodeKind::bytes:
        if (std::vector<ValueOp> code; node->parts.size() == 2 && !code_of(node->parts[0], code))
          return add_literal("?", steps);
        break;
      case NodeKind::mask:
        break;
      case NodeKind::field:
        if (const Field* const field = floating(node); field != nullptr) {
          step.kind = StepKind::floating;
          step.field = index(field);
          steps.push_back(std::move(step));
          return;
        }
        [[fallthrough]];
      default:
        return add_literal(node->text.empty() ? "?" : std::string_view(node->text), steps);
    }
    if (node->is(NodeKind::memory) && is_array(type_.fields[node->field])) {
      step.kind = StepKind::list;
      if (!place(node, step)) return add_literal("?", steps);
      step.width = static_cast<u8>(type_.fields[node->field].element);
      steps.push_back(std::move(step));
      return;
    }
    print_text(node, {}, steps);
  }

  EventFormat& type_;
  const u8 word_size_;  // bytes of a long
  size_t work_ = 0;
};

}  // namespace

bool compile_steps(const PrintTree& tree, u32 word_size, EventFormat& type) {
  if (!StepCompiler(word_size, type).compile(tree)) return false;
  make_line(type);
  return true;
}

}  // namespace ringside
