#include "columns.hpp"

#include <cmath>
#include <set>

#include "analysis/names.hpp"
#include "decode/print_steps.hpp"
#include "sys/try.hpp"

namespace ringside::python {

py::object Codes::take() {
  py::list values;
  py::dict known;
  std::vector<i32> merged;
  for (u64 n = 0; n < texts_.size(); ++n) {
    const py::str text = to_str(texts_.text(n));
    if (!known.contains(text)) {
      known[text] = values.size();
      values.append(text);
    }
    merged.push_back(known[text].cast<i32>());
  }
  if (values.size() != merged.size())
    codes_.each([&](i32& code) {
      if (code >= 0) code = merged[static_cast<size_t>(code)];
    });
  return py::module_::import("ringside").attr("Category")(codes_.take(), values);
}

std::unique_ptr<ColumnOf> ColumnOf::of_losses() {
  auto made = std::make_unique<ColumnOf>();
  made->how_ = How::lost;
  return made;
}

result<std::unique_ptr<ColumnOf>> ColumnOf::make(const std::string& name, const Chosen& chosen, const Trace& trace) {
  auto made = std::make_unique<ColumnOf>();
  // A field of one event must be one of all, and mean the same.
  const Field* field = nullptr;
  const EventType *has = nullptr, *has_not = nullptr;
  bool alike = true, narrow = true, boolean = true;
  std::string of;
  for (const auto& type : trace.formats.all()) {
    if (!chosen(*type)) continue;
    const Field* own = type->field(name.substr(0, name.find('.')));
    if (own != nullptr && own->is_stack && own->name == "stack") own = nullptr;  // its functions are wanted, not its number
    if (own != nullptr && field != nullptr)
      alike = alike && own->kind == field->kind && own->is_signed == field->is_signed && own->symbols == field->symbols;
    (own != nullptr ? has : has_not) = type.get();
    if (own != nullptr && field == nullptr) field = own;
    narrow = narrow && (own == nullptr || own->size <= 4);
    boolean = boolean && (own == nullptr || own->is_bool);
    of += (of.empty() ? "" : ",") + type->full;
  }
  if (name == "lost" && field == nullptr) return of_losses();
  if (of.empty())
    return refuse(std::errc::invalid_argument, "none of these events is in the trace: it has " + event_list(trace.formats));
  static const std::set<std::string> of_all = {"ts",     "cpu", "ring", "event",   "system", "task",  "comm",
                                               "thread", "tid", "pid",  "process", "cgroup", "source", "stack"};
  if (field != nullptr && has_not != nullptr && of_all.count(name) != 0) field = nullptr, alike = true;
  if (field != nullptr && has_not != nullptr)
    return refuse(std::errc::invalid_argument, has->full + " has a field " + in_quotes(name) + ", but " + has_not->full +
                                                   " has none; take the columns of one event");
  if (!alike)
    return refuse(std::errc::invalid_argument,
                  "the field " + in_quotes(name) + " has a different type in each event; take the columns of one event");
  if (field != nullptr && (field->kind == FieldKind::array || field->kind == FieldKind::loc_array))
    return refuse(std::errc::invalid_argument, has->full + "/" + name + " is an array; read it event by event");
  made->column_ =
      RS_TRY(Column::compile(field != nullptr || of_all.count(name) == 0 ? of + "/" + name : name, trace.formats, trace.tasks));
  if (made->column_->is_whole_stack())
    made->how_ = How::stack, made->stacks_ = &trace.formats;
  else if (made->column_->kind() == Column::Kind::text)
    made->how_ = How::text;
  else if (made->column_->kind() == Column::Kind::real)
    made->how_ = How::real;
  else if (field != nullptr && !field->symbols.empty() && name.find('.') == std::string::npos)
    made->how_ = How::symbol, made->symbols_ = field->symbols;
  else if (field != nullptr && boolean)
    made->how_ = How::boolean;
  else if (field != nullptr && name.find('.') == std::string::npos)
    made->is_signed_ = field->is_signed, made->is_narrow_ = narrow;
  else if (field == nullptr && name == "ts")
    made->how_ = How::time;
  else if (field == nullptr && name == "cpu")
    made->how_ = How::cpu;
  else if (field == nullptr && name == "ring")
    made->how_ = How::ring;
  else if (field == nullptr && (name == "tid" || name == "pid"))
    made->is_narrow_ = true;
  else if (field == nullptr && (name == "event" || name == "process" || name == "thread"))
    made->how_ = How::symbol;  // shown by name
  return made;
}

void ColumnOf::add_whole(const TraceRecord& record, const RingName& ring) {
  i64 value = 0;
  if (record.lost == 0 && !column_->number(record, ring, value)) value = -1;
  is_narrow_ ? narrow_.push_back(static_cast<i32>(value)) : whole_.push_back(value);
}

void ColumnOf::add_other(const TraceRecord& record, const RingName& ring) {
  const bool gap = record.lost != 0;
  i64 value = 0;
  switch (how_) {
    case How::time:
    case How::cpu:
    case How::whole: break;  // add()
    case How::lost: return whole_.push_back(static_cast<i64>(record.lost));
    case How::ring: return whole_.push_back(ring.place());
    case How::boolean:
      if (!gap) column_->number(record, ring, value);
      return whole_.push_back(value);
    case How::real: {
      double real = std::nan("");
      if (!gap) column_->real(record, ring, real);
      return real_.push_back(real);
    }
    case How::text: {
      std::string_view text;
      return !gap && column_->text(record, ring, text) ? codes_.add(text) : codes_.add_none();
    }
    case How::stack:
      if (gap || !column_->number(record, ring, value)) return codes_.add_none();
      return codes_.add(stacks_->stacks()->text(static_cast<u32>(value)));
    case How::symbol: {
      if (gap || !column_->number(record, ring, value)) return codes_.add_none();
      const std::string* const name = symbol_of(symbols_, value);
      return name != nullptr ? codes_.add(*name) : codes_.add(column_->show(static_cast<u64>(value), Texts()));
    }
  }
}

py::object ColumnOf::take() {
  switch (how_) {
    case How::real: return real_.take();
    case How::text:
    case How::stack:
    case How::symbol: return codes_.take();
    case How::cpu: return narrow_.take();
    case How::boolean: return whole_.take().attr("astype")("bool");
    default: break;
  }
  py::object taken = is_narrow_ ? py::object(narrow_.take()) : py::object(whole_.take());
  return is_signed_ ? taken : taken.attr("view")(is_narrow_ ? "uint32" : "uint64");
}

}  // namespace ringside::python
