#include "decode/compile_steps.hpp"

namespace ringside {

void make_line(EventFormat& type) {
  type.line = {};
  for (u32 n = 0; n < type.steps.size(); ++n) {
    const PrintStep& step = type.steps[n];
    using Form = LineTemplate::Number::Form;
    const bool hex = step.kind == PrintStep::Kind::hex, pointer = step.kind == PrintStep::Kind::pointer && step.form.width == 0,
               plain = step.code.empty() && (hex || pointer || step.kind == PrintStep::Kind::decimal);
    if (step.kind == PrintStep::Kind::literal)
      type.line.literal(step.text);
    else if (const Field* const field = plain ? &type.fields[step.field] : nullptr; field != nullptr)
      type.line.number({field->offset, static_cast<u8>(field->size), step.width, field->is_signed, step.is_signed,
                        hex       ? Form::hex
                        : pointer ? Form::pointer
                                  : Form::decimal,
                        step.form.width});
    else
      type.line.other(n);
  }
}

void default_steps(EventFormat& type) {
  type.by_fields = true;
  type.steps.clear();
  for (u32 i = 0; i < type.fields.size(); ++i) {
    const Field& field = type.fields[i];
    PrintStep name, value;
    name.text = (i != 0 ? " " : "") + field.name + "=";
    value.field = i;
    value.is_signed = field.is_signed;
    if (field.element != 0) value.width = static_cast<u8>(field.element);
    switch (field.kind) {
      case FieldKind::integer:
        value.kind = PrintStep::Kind::decimal;
        break;
      case FieldKind::floating:
        value.kind = PrintStep::Kind::floating;
        break;
      case FieldKind::text:
      case FieldKind::loc_text:
        value.kind = field.is_composed ? PrintStep::Kind::message : PrintStep::Kind::text;
        break;
      case FieldKind::array:
      case FieldKind::loc_array:
        value.kind = PrintStep::Kind::list;
        break;
    }
    type.steps.push_back(std::move(name));
    type.steps.push_back(std::move(value));
  }
  make_line(type);
}

}  // namespace ringside
