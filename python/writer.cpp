// The extension ringside._writer: events that a Python program writes. python/ringside/writing.py is what users see of it.
//
// It is plain CPython: a call costs what the conversion of its values costs. The writing library is inside, as in
// ringside-libc.so. All functions are called with the GIL; an event that the ring refuses is counted there. A value that does
// not fit its field warns, and the event is refused, and counted as one that came into no ring: a program must not end because
// it is traced.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cerrno>
#include <cstddef>
#include <map>
#include <memory>
#include <ringside/trace.hpp>
#include <string>
#include <vector>

namespace ringside::python {
namespace {

// Owns one reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) noexcept : object_(owned) {}
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  void take(PyObject* owned) noexcept { Py_XSETREF(object_, owned); }
  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// The text of a str as UTF-8; surrogates as the bytes that they stand for, or as \udc80. Any other object is its str(). `held`
// keeps the text. False: its str() raised an error, which is cleared.
bool text_of(PyObject* value, Ref& held, std::string_view& text) noexcept {
  if (!PyUnicode_Check(value)) {
    held.take(PyObject_Str(value));
    value = held.get();
  }
  Py_ssize_t size = 0;
  const char* utf8 = value != nullptr ? PyUnicode_AsUTF8AndSize(value, &size) : nullptr;
  for (const char* errors : {"surrogateescape", "backslashreplace"}) {
    if (utf8 != nullptr || value == nullptr) break;
    PyErr_Clear();
    PyObject* const bytes = PyUnicode_AsEncodedString(value, "utf-8", errors);
    if (bytes == nullptr) continue;
    held.take(bytes);
    utf8 = PyBytes_AS_STRING(bytes), size = PyBytes_GET_SIZE(bytes);
  }
  if (utf8 == nullptr) {
    PyErr_Clear();
    return false;
  }
  text = {utf8, static_cast<size_t>(size)};
  return true;
}
// For what is written in any case.
std::string_view any_text_of(PyObject* value, Ref& held) noexcept {
  std::string_view text;
  return text_of(value, held, text) ? text : "(no str)";
}

// ---- Events

// It lives as long as the process: the library holds pointers into it.
struct Declared {
  std::string system, name;
  std::vector<std::string> names;  // of the fields
  std::vector<std::vector<std::string>> symbol_names;
  std::vector<std::vector<ringside_symbol>> symbols;
  std::vector<ringside_field> fields;  // the first one sums up the others, as in ringside.h
  std::string print_fmt;
  ringside_event event{};
  u32 gate = 0;

  size_t count() const noexcept { return fields.size() - 1; }
  std::string full() const { return system + ":" + name; }
  bool enabled() noexcept { return ringside_gate_open(gate) && ringside_wanted(&event); }
};

struct EventObject {
  PyObject_HEAD;
  vectorcallfunc call;
  Declared* declared;
  PyObject* names;  // a tuple of interned texts
};

// One that is refused and counted. Null if the warning is an error.
PyObject* refuse(Declared& declared, size_t i, const char* wanted) noexcept {
  u64 none = 0;
  (void)ringside_write(&declared.event, &none, 0);
  PyErr_Clear();
  const std::string message = "ringside: " + declared.full() + ": " + declared.names[i] + " takes " + wanted +
                              "; this event is not written, but counted as one that came into no ring";
  if (PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1) != 0) return nullptr;
  Py_RETURN_NONE;
}

union Number {
  u64 whole;
  double real;
  float small;
};

// Null: done; else what the field takes.
const char* convert(PyObject* value, const ringside_field& field, Number& to) noexcept {
  switch (field.kind) {
    case RINGSIDE_BOOL: {
      const int truth = PyObject_IsTrue(value);
      if (truth < 0) return "a truth value";
      to.whole = static_cast<u64>(truth);
      return nullptr;
    }
    case RINGSIDE_FLOAT: {
      const double real = PyFloat_AsDouble(value);
      if (real == -1 && PyErr_Occurred() != nullptr) return "a float";
      if (field.size == 4)
        to.small = static_cast<float>(real);
      else
        to.real = real;
      return nullptr;
    }
    default:
      break;
  }
  Ref inner;
  if (field.symbols != nullptr && !PyLong_Check(value)) {  // a member of an Enum
    inner.take(PyObject_GetAttrString(value, "value"));
    value = inner.get();
    if (value == nullptr) return "a member of its Enum, or an int";
  }
  Ref index;
  if (!PyLong_CheckExact(value)) {
    index.take(PyNumber_Index(value));
    value = index.get();
    if (value == nullptr) return "an int";
  }
  const u32 bits = 8 * field.size;
  if (field.kind == RINGSIDE_SIGNED) {
    int overflow = 0;
    const long long whole = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0 || (bits < 64 && (whole < -(i64{1} << (bits - 1)) || whole >= i64{1} << (bits - 1))))
      return bits == 64 ? "an int of 64 bits (\"uint64\" is the type without a sign)" : "a smaller int";
    to.whole = static_cast<u64>(whole);
    return nullptr;
  }
  const unsigned long long whole = PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred() != nullptr || (bits < 64 && whole >> bits != 0)) return "an int from 0 to the largest of its type";
  to.whole = whole;
  return nullptr;
}

PyObject* write(Declared& declared, PyObject* const* values) noexcept {
  Number numbers[RINGSIDE_FIELDS_MAX];
  const void* sources[RINGSIDE_FIELDS_MAX];
  u32 lengths[RINGSIDE_FIELDS_MAX];
  Ref held[RINGSIDE_FIELDS_MAX];
  for (size_t i = 0; i < declared.count(); ++i) {
    const ringside_field& field = declared.fields[1 + i];
    if (field.kind == RINGSIDE_STRING) {
      std::string_view text;
      if (!text_of(values[i], held[i], text)) return refuse(declared, i, "an object with a str()");
      sources[i] = text.data();
      lengths[i] = static_cast<u32>(std::min<size_t>(text.size(), RINGSIDE_PAYLOAD_MAX));
      continue;
    }
    if (const char* const wanted = convert(values[i], field, numbers[i]); wanted != nullptr) return refuse(declared, i, wanted);
    sources[i] = &numbers[i];  // a smaller number is in its first bytes: little-endian, as all processors of the library are
  }
  (void)ringside_write_fields(&declared.event, declared.fields.data(), sources, lengths, __builtin_return_address(0));
  Py_RETURN_NONE;
}

PyObject* wrong_arguments(const EventObject& self, const char* what, PyObject* name) noexcept {
  PyErr_Format(PyExc_TypeError, "%s takes %R: %s%S", self.declared->full().c_str(), self.names, what, name);
  return nullptr;
}

// Where a keyword's value belongs. -1: an error is set.
Py_ssize_t place_of(const EventObject& self, PyObject* keyword) noexcept {
  const Py_ssize_t n = PyTuple_GET_SIZE(self.names);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (PyTuple_GET_ITEM(self.names, i) == keyword) return i;  // both are interned, as a rule
  for (Py_ssize_t i = 0; i < n; ++i)
    if (PyUnicode_Compare(PyTuple_GET_ITEM(self.names, i), keyword) == 0) return i;
  wrong_arguments(self, "there is no ", keyword);
  return -1;
}

PyObject* call_event(PyObject* object, PyObject* const* arguments, size_t flags, PyObject* keywords) noexcept {
  const EventObject& self = *reinterpret_cast<EventObject*>(object);
  Declared& declared = *self.declared;
  const auto given = static_cast<size_t>(PyVectorcall_NARGS(flags));
  const size_t named = keywords != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0;
  if (given + named != declared.count()) {
    PyErr_Format(PyExc_TypeError, "%s takes %zu values, %R; %zu were given", declared.full().c_str(), declared.count(),
                 self.names, given + named);
    return nullptr;
  }
  if (named == 0) {
    if (!declared.enabled()) Py_RETURN_NONE;
    return write(declared, arguments);
  }
  PyObject* values[RINGSIDE_FIELDS_MAX] = {};
  std::copy(arguments, arguments + given, values);
  for (size_t i = 0; i < named; ++i) {
    PyObject* const keyword = PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i));
    const Py_ssize_t at = place_of(self, keyword);
    if (at < 0) return nullptr;
    if (values[at] != nullptr) return wrong_arguments(self, "twice ", keyword);
    values[at] = arguments[given + i];
  }
  if (!declared.enabled()) Py_RETURN_NONE;
  return write(declared, values);
}

void forget_event(PyObject* object) noexcept {
  Py_XDECREF(reinterpret_cast<EventObject*>(object)->names);
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* name_of_event(PyObject* object, void*) noexcept {
  return PyUnicode_FromString(reinterpret_cast<EventObject*>(object)->declared->full().c_str());
}
PyObject* event_enabled(PyObject* object, void*) noexcept {
  return PyBool_FromLong(reinterpret_cast<EventObject*>(object)->declared->enabled());
}
PyObject* show_event(PyObject* object) noexcept {
  const EventObject& self = *reinterpret_cast<EventObject*>(object);
  return PyUnicode_FromFormat("<ringside event %s%R>", self.declared->full().c_str(), self.names);
}

PyGetSetDef event_attributes[] = {{"name", name_of_event, nullptr, "\"shop:order\"", nullptr},
                                  {"enabled", event_enabled, nullptr, "whether a call writes it now", nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef event_members[] = {{"fields", T_OBJECT_EX, offsetof(EventObject, names), READONLY, "the names of its fields"},
                               {"__vectorcalloffset__", T_PYSSIZET, offsetof(EventObject, call), READONLY, nullptr},
                               {nullptr, 0, 0, 0, nullptr}};
PyType_Slot event_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(forget_event)},
                             {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                             {Py_tp_repr, reinterpret_cast<void*>(show_event)},
                             {Py_tp_getset, event_attributes},
                             {Py_tp_members, event_members},
                             {Py_tp_doc, const_cast<char*>("A declared event: call it with the values of its fields.")},
                             {0, nullptr}};
PyType_Spec event_spec = {"ringside.DeclaredEvent", sizeof(EventObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                          event_slots};
PyTypeObject* event_type = nullptr;

struct KnownType {
  const char* name;
  u32 kind, size;
};
constexpr KnownType known_types[] = {
    {"bool", RINGSIDE_BOOL, 1},       {"int", RINGSIDE_SIGNED, 8},      {"float", RINGSIDE_FLOAT, 8},
    {"str", RINGSIDE_STRING, 4},      {"int8", RINGSIDE_SIGNED, 1},     {"int16", RINGSIDE_SIGNED, 2},
    {"int32", RINGSIDE_SIGNED, 4},    {"int64", RINGSIDE_SIGNED, 8},    {"uint8", RINGSIDE_UNSIGNED, 1},
    {"uint16", RINGSIDE_UNSIGNED, 2}, {"uint32", RINGSIDE_UNSIGNED, 4}, {"uint64", RINGSIDE_UNSIGNED, 8},
    {"float32", RINGSIDE_FLOAT, 4},   {"float64", RINGSIDE_FLOAT, 8},   {"level", RINGSIDE_LEVEL, 1}};

// declare(system, name, print_fmt, ((field, type, ((symbol, value), ...)), ...)): writing.py has checked the names.
PyObject* declare(PyObject*, PyObject* arguments) noexcept try {
  const char *system = nullptr, *name = nullptr, *print_fmt = nullptr;
  PyObject* rows = nullptr;
  if (!PyArg_ParseTuple(arguments, "sszO!", &system, &name, &print_fmt, &PyTuple_Type, &rows)) return nullptr;
  auto made = std::make_unique<Declared>();
  made->system = system, made->name = name;
  made->print_fmt = print_fmt != nullptr ? print_fmt : "";
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(rows));
  if (n > RINGSIDE_FIELDS_MAX) {
    PyErr_Format(PyExc_ValueError, "an event has at most %d fields, not %zu", RINGSIDE_FIELDS_MAX, n);
    return nullptr;
  }
  made->names.resize(n), made->symbols.resize(n), made->symbol_names.resize(n), made->fields.resize(1 + n);
  std::string key = made->full() + "\n" + made->print_fmt;
  u32 at = RINGSIDE_COMMON_SIZE, texts = 0;
  Ref names(PyTuple_New(static_cast<Py_ssize_t>(n)));
  if (!names) return nullptr;
  for (size_t i = 0; i < n; ++i) {
    const char *field = nullptr, *type = nullptr;
    PyObject* symbols = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, static_cast<Py_ssize_t>(i)), "ssO!", &field, &type, &PyTuple_Type, &symbols))
      return nullptr;
    const KnownType* known = nullptr;
    for (const KnownType& k : known_types)
      if (std::string_view(k.name) == type) known = &k;
    if (known == nullptr) {
      PyErr_Format(
          PyExc_TypeError,
          "%s: %s is no type of a field: bool, int, float, str, an Enum of ints, or \"uint8\" to \"int64\", \"float32\"", field,
          type);
      return nullptr;
    }
    made->names[i] = field;
    key += std::string("\n") + field + " " + type;
    const auto nr_symbols = static_cast<size_t>(PyTuple_GET_SIZE(symbols));
    made->symbol_names[i].resize(nr_symbols);
    for (size_t s = 0; s < nr_symbols; ++s) {
      const char* symbol = nullptr;
      long long value = 0;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(symbols, static_cast<Py_ssize_t>(s)), "sL", &symbol, &value)) return nullptr;
      made->symbol_names[i][s] = symbol;
      made->symbols[i].push_back({made->symbol_names[i][s].c_str(), value});
      key += std::string(" ") + symbol + "=" + std::to_string(value);
    }
    if (nr_symbols != 0) made->symbols[i].push_back({nullptr, 0});
    at = (at + known->size - 1) / known->size * known->size;
    made->fields[1 + i] = {
        made->names[i].c_str(), known->kind, known->size, 0, at, nr_symbols != 0 ? made->symbols[i].data() : nullptr};
    at += known->size;
    texts += known->kind == RINGSIDE_STRING;
    PyObject* text = PyUnicode_FromString(field);
    if (text == nullptr) return nullptr;
    PyUnicode_InternInPlace(&text);
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), text);
  }
  made->fields[0] = {nullptr, 0, static_cast<u32>(n), texts, at, nullptr};
  // One declaration for all modules that write the same event.
  static auto& all = *new std::map<std::string, Declared*>;
  const auto [found, is_new] = all.try_emplace(std::move(key), made.get());
  if (is_new) {
    Declared& declared = *made.release();
    declared.event.system = declared.system.c_str();
    declared.event.name = declared.name.c_str();
    declared.event.print_fmt = declared.print_fmt.empty() ? nullptr : declared.print_fmt.c_str();
    declared.event.fields = declared.fields.data();
    declared.gate = ringside_gate_of(declared.event.system, declared.event.name);
    if (const int error = ringside_register(&declared.event); error != 0) {
      errno = -error;
      return PyErr_SetFromErrno(PyExc_OSError);
    }
  }
  auto* const object = PyObject_New(EventObject, event_type);
  if (object == nullptr) return nullptr;
  object->call = call_event;
  object->declared = found->second;
  object->names = names.release();
  return reinterpret_cast<PyObject*>(object);
} catch (const std::bad_alloc&) {
  return PyErr_NoMemory();
}

// ---- Spans

// A task's own track, which it keeps: ringside.writing chooses it, again if the task has another name by now. Null: with an
// error.
PyObject* track_of(PyObject* task) noexcept {
  const Ref name(PyObject_CallMethod(task, "get_name", nullptr));
  const Ref kept(name ? PyObject_GetAttrString(task, "_ringside_track") : nullptr);
  if (kept && PyTuple_Check(kept.get()) && PyTuple_GET_SIZE(kept.get()) == 2 &&
      PyObject_RichCompareBool(PyTuple_GET_ITEM(kept.get(), 0), name.get(), Py_EQ) == 1) {
    PyObject* const track = PyTuple_GET_ITEM(kept.get(), 1);
    Py_INCREF(track);
    return track;
  }
  PyErr_Clear();
  const Ref module_name(PyUnicode_FromString("ringside.writing"));
  const Ref module(module_name ? PyImport_GetModule(module_name.get()) : nullptr);
  return module && name ? PyObject_CallMethod(module.get(), "_track_of", "OO", task, name.get()) : nullptr;
}

// The track of the asyncio task that runs in this thread, or nothing.
void find_task(Ref& track) noexcept {
  static PyObject *running_loop = nullptr, *current_task = nullptr;
  if (running_loop == nullptr) {
    const Ref module_name(PyUnicode_FromString("asyncio"));
    const Ref module(module_name ? PyImport_GetModule(module_name.get()) : nullptr);
    if (module) {
      current_task = PyObject_GetAttrString(module.get(), "current_task");
      running_loop = current_task != nullptr ? PyObject_GetAttrString(module.get(), "_get_running_loop") : nullptr;
    }
    if (running_loop == nullptr) return PyErr_Clear();
  }
  const Ref loop(PyObject_CallNoArgs(running_loop));
  if (loop && loop.get() != Py_None) {
    const Ref task(PyObject_CallOneArg(current_task, loop.get()));
    if (task && task.get() != Py_None) track.take(track_of(task.get()));
  }
  PyErr_Clear();
}

// Its values are copied before the write, which needs no Python.
void write_span(char type, PyObject* name, PyObject* track) noexcept {
  Ref held_name, held_track;
  const std::string_view text = any_text_of(name, held_name);
  if (track == nullptr) return void(events::span.write(type, text));
  events::track_span.write(type, text, any_text_of(track, held_track));
}
bool spans_enabled(PyObject* track) noexcept {
  return track != nullptr ? events::track_span.enabled() : events::span.enabled();
}

struct SpanObject {
  PyObject_HEAD;
  PyObject *name, *track;  // track: null: this thread
  PyObject* task;          // the track of the one that it began in; null: none
  bool entered, begun;
};

// track: None without one.
bool parse_name_and_track(PyObject* arguments, PyObject* keywords, PyObject*& name, PyObject*& track) noexcept {
  static const char* names[] = {"name", "track", nullptr};
  track = Py_None;
  return PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O", const_cast<char**>(names), &name, &track) != 0;
}

int make_span(PyObject* object, PyObject* arguments, PyObject* keywords) noexcept {
  auto& self = *reinterpret_cast<SpanObject*>(object);
  PyObject *name = nullptr, *track = nullptr;
  if (!parse_name_and_track(arguments, keywords, name, track)) return -1;
  Py_INCREF(name);
  Py_XSETREF(self.name, name);
  if (track != Py_None) Py_INCREF(track);
  Py_XSETREF(self.track, track != Py_None ? track : nullptr);
  return 0;
}
void forget_span(PyObject* object) noexcept {
  const auto& self = *reinterpret_cast<SpanObject*>(object);
  Py_XDECREF(self.name);
  Py_XDECREF(self.track);
  Py_XDECREF(self.task);
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}
PyObject* enter_span(PyObject* object, PyObject*) noexcept {
  auto& self = *reinterpret_cast<SpanObject*>(object);
  if (self.name == nullptr || self.entered) {
    PyErr_SetString(PyExc_RuntimeError, "a span is entered once at a time: make another one");
    return nullptr;
  }
  self.entered = true;
  if (events::span.enabled() || events::track_span.enabled()) {
    Ref task;
    if (self.track == nullptr) find_task(task);
    Py_XSETREF(self.task, task.release());
    PyObject* const track = self.track != nullptr ? self.track : self.task;
    self.begun = spans_enabled(track);
    if (self.begun) write_span('B', self.name, track);
  }
  Py_INCREF(object);
  return object;
}
PyObject* exit_span(PyObject* object, PyObject*) noexcept {
  auto& self = *reinterpret_cast<SpanObject*>(object);
  self.entered = false;
  if (std::exchange(self.begun, false)) write_span('E', self.name, self.track != nullptr ? self.track : self.task);
  Py_RETURN_FALSE;
}
PyMethodDef span_methods[] = {{"__enter__", enter_span, METH_NOARGS, nullptr},
                              {"__exit__", exit_span, METH_VARARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyMemberDef span_members[] = {{"name", T_OBJECT, offsetof(SpanObject, name), READONLY, nullptr},
                              {"track", T_OBJECT, offsetof(SpanObject, track), READONLY, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};
PyType_Slot span_slots[] = {{Py_tp_init, reinterpret_cast<void*>(make_span)},
                            {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(forget_span)},
                            {Py_tp_methods, span_methods},
                            {Py_tp_members, span_members},
                            {0, nullptr}};
PyType_Spec span_spec = {"ringside._writer.Span", sizeof(SpanObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, span_slots};

PyObject* instant(PyObject*, PyObject* arguments, PyObject* keywords) noexcept {
  PyObject *name = nullptr, *track = nullptr;
  if (!parse_name_and_track(arguments, keywords, name, track)) return nullptr;
  Ref task;
  if (track == Py_None) {
    if (events::track_span.enabled()) find_task(task);
    track = task.get();
  }
  if (spans_enabled(track)) write_span('I', name, track);
  Py_RETURN_NONE;
}

// None, or an exception where the program makes one of warnings.
PyObject* no_counter_value(const char* sentence) noexcept {
  PyErr_Clear();
  if (PyErr_WarnEx(PyExc_RuntimeWarning, sentence, 1) != 0) return nullptr;
  Py_RETURN_NONE;
}
PyObject* counter(PyObject*, PyObject* arguments) noexcept {
  PyObject *name = nullptr, *value = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO", &name, &value)) return nullptr;
  Ref held;
  if (PyFloat_Check(value)) {
    if (events::real_counter.enabled()) events::real_counter.write(PyFloat_AS_DOUBLE(value), any_text_of(name, held));
    Py_RETURN_NONE;
  }
  if (!events::counter.enabled()) Py_RETURN_NONE;
  int overflow = 0;
  const Ref index(PyNumber_Index(value));
  const long long whole = index ? PyLong_AsLongLongAndOverflow(index.get(), &overflow) : 0;
  if (!index || overflow != 0)
    return no_counter_value("ringside: a counter takes a float, or an int of 64 bits; this value is not written");
  events::counter.write(whole, any_text_of(name, held));
  Py_RETURN_NONE;
}
PyObject* process_counter(PyObject*, PyObject* arguments) noexcept {
  PyObject *name = nullptr, *value = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO", &name, &value)) return nullptr;
  if (!events::process_counter.enabled()) Py_RETURN_NONE;
  const double real = PyFloat_AsDouble(value);
  if (real == -1 && PyErr_Occurred() != nullptr)
    return no_counter_value("ringside: a counter takes a number; this value is not written");
  Ref held;
  events::process_counter.write(real, any_text_of(name, held), 0);
  Py_RETURN_NONE;
}

// async(type, name, id)
PyObject* async(PyObject*, PyObject* arguments) noexcept {
  int type = 0;
  PyObject* name = nullptr;
  unsigned long long id = 0;
  if (!PyArg_ParseTuple(arguments, "COK", &type, &name, &id)) return nullptr;
  if (!events::async_span.enabled()) Py_RETURN_NONE;
  Ref held;
  events::async_span.write(static_cast<char>(type), any_text_of(name, held), id);
  Py_RETURN_NONE;
}

// ---- The instance

PyObject* done(int result) noexcept {
  if (result == 0) Py_RETURN_NONE;
  errno = -result;
  return PyErr_SetFromErrno(PyExc_OSError);
}

PyObject* open(PyObject*, PyObject* arguments) noexcept {
  ringside_options options{};
  unsigned long long ring = 0, budget = 0;
  if (!PyArg_ParseTuple(arguments, "zzKKI", &options.name, &options.events, &ring, &budget, &options.mode)) return nullptr;
  options.ring_bytes = ring, options.budget_bytes = budget;
  int result = 0;
  Py_BEGIN_ALLOW_THREADS;
  result = ringside_open_with(&options, sizeof options);
  Py_END_ALLOW_THREADS;
  return done(result);
}
PyObject* close(PyObject*, PyObject*) noexcept {
  Py_BEGIN_ALLOW_THREADS;
  ringside_close();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}
PyObject* instance(PyObject*, PyObject*) noexcept {
  const char* const name = ringside_instance();
  if (name == nullptr) Py_RETURN_NONE;
  return PyUnicode_DecodeFSDefault(name);
}
template <int (*call)(const char*)>
PyObject* with_text(PyObject*, PyObject* arguments) noexcept {
  const char* text = nullptr;
  if (!PyArg_ParseTuple(arguments, "s", &text)) return nullptr;
  int result = 0;
  Py_BEGIN_ALLOW_THREADS;
  result = call(text);
  Py_END_ALLOW_THREADS;
  return done(result);
}
PyObject* save(PyObject*, PyObject* arguments) noexcept {
  PyObject* path = nullptr;
  if (!PyArg_ParseTuple(arguments, "O&", PyUnicode_FSConverter, &path)) return nullptr;
  const Ref held(path);
  int result = 0;
  Py_BEGIN_ALLOW_THREADS;
  result = ringside_save(PyBytes_AS_STRING(path));
  Py_END_ALLOW_THREADS;
  return done(result);
}

PyMethodDef functions[] = {
    {"declare", declare, METH_VARARGS, nullptr},
    {"instant", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(instant)), METH_VARARGS | METH_KEYWORDS,
     "instant(name, track=None)\n--\n\nA point in time, of this thread, of its asyncio task, or of the track of that name."},
    {"counter", counter, METH_VARARGS,
     "counter(name, value, /)\n--\n\nThe value, an int or a float, of this thread's counter of that name from now on."},
    {"process_counter", process_counter, METH_VARARGS,
     "process_counter(name, value, /)\n--\n\nThe same for a counter of all threads; a float: ints are exact up to 2**53."},
    {"async_", async, METH_VARARGS, nullptr},
    {"open", open, METH_VARARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {"instance", instance, METH_NOARGS, nullptr},
    {"enable", with_text<ringside_enable>, METH_VARARGS, nullptr},
    {"disable", with_text<ringside_disable>, METH_VARARGS, nullptr},
    {"save", save, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_writer", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

PyObject* make_module() noexcept {
  Ref made(PyModule_Create(&module));
  if (!made) return nullptr;
  for (PyType_Spec* const spec : {&event_spec, &span_spec}) {
    PyObject* const type = PyType_FromSpec(spec);
    if (type == nullptr || PyModule_AddType(made.get(), reinterpret_cast<PyTypeObject*>(type)) != 0) return nullptr;
    if (spec == &event_spec) event_type = reinterpret_cast<PyTypeObject*>(type), event_type->tp_new = nullptr;
  }
  return made.release();
}

}  // namespace
}  // namespace ringside::python

PyMODINIT_FUNC PyInit__writer() { return ringside::python::make_module(); }
