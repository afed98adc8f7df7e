// The plugin of babeltrace2: babeltrace2 --plugin-path=DIR --component=source.ringside.rings --params='inputs=["web"]'
#include <fstream>

#include "babeltrace/recorder.hpp"
#include "babeltrace/rings.hpp"
#ifdef RINGSIDE_FLEET
#include "shipped/shipped_input.hpp"
#endif
#include "sys/try.hpp"

namespace ringside::babeltrace {
namespace {

// An error of babeltrace2's current thread, with the sentence.
void tell(bt_self_component* component, const std::string& sentence) {
  bt_current_thread_error_append_cause_from_component(component, __FILE__, __LINE__, "%s", sentence.c_str());
}

// A text, or an array of texts. False: it is neither.
bool texts_of(const bt_value* from, std::vector<std::string>& to) {
  if (bt_value_is_string(from)) return to.emplace_back(bt_value_string_get(from)), true;
  if (!bt_value_is_array(from)) return false;
  for (u64 i = 0; i < bt_value_array_get_length(from); ++i) {
    const bt_value* const one = bt_value_array_borrow_element_by_index_const(from, i);
    if (!bt_value_is_string(one)) return false;
    to.emplace_back(bt_value_string_get(one));
  }
  return true;
}

struct Params {
  Wanted wanted;
  std::string problem;
};

bt_value_map_foreach_entry_const_func_status param(const char* key, const bt_value* value, void* data) {
  auto& out = *static_cast<Params*>(data);
  std::vector<std::string> texts;
  const std::string name = key;
  bool good = false;
  if (name == "inputs") {
    good = texts_of(value, out.wanted.where);
  } else if (name == "events") {
    good = texts_of(value, out.wanted.events);
  } else if (name == "filter") {
    good = bt_value_is_string(value);
    if (good) out.wanted.filter = bt_value_string_get(value);
  } else if (name == "totals") {
    good = bt_value_is_string(value);
    if (good) out.wanted.totals = bt_value_string_get(value);
  } else if (name == "follow") {
    good = true;
    if (bt_value_is_bool(value))
      out.wanted.follow = bt_value_bool_get(value) == BT_TRUE ? -1 : 0;
    else if (bt_value_is_real(value))
      out.wanted.follow = bt_value_real_get(value);
    else if (bt_value_is_signed_integer(value))
      out.wanted.follow = static_cast<double>(bt_value_integer_signed_get(value));
    else if (bt_value_is_unsigned_integer(value))
      out.wanted.follow = static_cast<double>(bt_value_integer_unsigned_get(value));
    else
      good = false;
  } else {
    out.problem = "there is no parameter \"" + name + "\": there are inputs, events, filter, follow and totals";
  }
  if (!good && out.problem.empty()) out.problem = "the parameter \"" + name + "\" has a value of the wrong type";
  return out.problem.empty() ? BT_VALUE_MAP_FOREACH_ENTRY_CONST_FUNC_STATUS_OK
                             : BT_VALUE_MAP_FOREACH_ENTRY_CONST_FUNC_STATUS_INTERRUPT;
}

result<std::unique_ptr<Reading>> open(const Wanted& wanted) {
  Reading::Options options;
  options.where = wanted.where;
  options.filter = wanted.filter;
  auto events = RS_TRY(EventPatterns::parse(wanted.events));
  options.only = std::move(events);
  options.time.sleep = [](u64) {};  // babeltrace2 sleeps when it is asked to come again
  auto reading = Reading::open(std::move(options));
  if (reading && wanted.follow == 0) (*reading)->look_up_names();
  if (reading && wanted.follow != 0)
    (*reading)->follow(100'000'000, wanted.follow < 0 ? 0 : static_cast<u64>(wanted.follow * 1e9));
  return reading;
}

bt_component_class_initialize_method_status initialize(bt_self_component_source* self, bt_self_component_source_configuration*,
                                                       const bt_value* given, void*) {
#ifdef RINGSIDE_FLEET
  open_servers();
#endif
  bt_self_component* const component = bt_self_component_source_as_self_component(self);
  Params params;
  (void)bt_value_map_foreach_entry_const(given, param, &params);
  if (params.problem.empty()) {
    // An error comes now, and not in the middle of a graph.
    if (auto tried = open({params.wanted.where, params.wanted.events, params.wanted.filter, 0, ""}); !tried)
      params.problem = tried.error().sentence;
  }
  if (!params.problem.empty()) {
    tell(component, params.problem);
    return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
  }
  if (bt_self_component_source_add_output_port(self, "out", nullptr, nullptr) != BT_SELF_COMPONENT_ADD_PORT_STATUS_OK)
    return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
  bt_self_component_set_data(component, new Wanted(std::move(params.wanted)));
  return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK;
}

void finalize(bt_self_component_source* self) {
  delete static_cast<Wanted*>(bt_self_component_get_data(bt_self_component_source_as_self_component(self)));
}

bt_message_iterator_class_initialize_method_status iterator_initialize(bt_self_message_iterator* self,
                                                                       bt_self_message_iterator_configuration*,
                                                                       bt_self_component_port_output*) {
  bt_self_component* const component = bt_self_message_iterator_borrow_component(self);
  auto reading = open(*static_cast<const Wanted*>(bt_self_component_get_data(component)));
  if (!reading) {
    tell(component, reading.error().sentence);
    return BT_MESSAGE_ITERATOR_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
  }
  try {
    bt_self_message_iterator_set_data(self, new Rings(self, component, std::move(*reading)));
  } catch (const std::bad_alloc&) {
    return BT_MESSAGE_ITERATOR_CLASS_INITIALIZE_METHOD_STATUS_MEMORY_ERROR;
  }
  return BT_MESSAGE_ITERATOR_CLASS_INITIALIZE_METHOD_STATUS_OK;
}

void iterator_finalize(bt_self_message_iterator* self) { delete static_cast<Rings*>(bt_self_message_iterator_get_data(self)); }

void write_totals(const std::string& path, Reading& reading) {
  const Account& account = reading.complete().account;
  std::ofstream out(path);
  out << account.read << ' ' << account.lost() << '\n';
  for (const std::string& doubt : account.doubts) out << doubt << '\n';
}

bt_message_iterator_class_next_method_status next(bt_self_message_iterator* self, bt_message_array_const messages, u64 capacity,
                                                  u64* count) {
  auto& rings = *static_cast<Rings*>(bt_self_message_iterator_get_data(self));
  try {
    *count = rings.next(messages, capacity);
  } catch (const std::exception& e) {
    tell(bt_self_message_iterator_borrow_component(self), e.what());
    return BT_MESSAGE_ITERATOR_CLASS_NEXT_METHOD_STATUS_ERROR;
  }
  if (*count != 0) return BT_MESSAGE_ITERATOR_CLASS_NEXT_METHOD_STATUS_OK;
  if (!rings.over()) return BT_MESSAGE_ITERATOR_CLASS_NEXT_METHOD_STATUS_AGAIN;
  const auto& wanted = *static_cast<const Wanted*>(bt_self_component_get_data(bt_self_message_iterator_borrow_component(self)));
  if (!wanted.totals.empty()) write_totals(wanted.totals, rings.reading());
  return BT_MESSAGE_ITERATOR_CLASS_NEXT_METHOD_STATUS_END;
}

struct Sink {
  std::unique_ptr<Recorder> recorder;
  bt_message_iterator* messages = nullptr;
};

bt_component_class_initialize_method_status sink_initialize(bt_self_component_sink* self, bt_self_component_sink_configuration*,
                                                            const bt_value* given, void*) {
  bt_self_component* const component = bt_self_component_sink_as_self_component(self);
  const bt_value* const path = bt_value_map_borrow_entry_value_const(given, "path");
  if (path == nullptr || !bt_value_is_string(path) || bt_value_map_get_size(given) != 1) {
    tell(component, "sink.ringside.recording has one parameter, path=\"DIR\", where the recording is to be");
    return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
  }
  auto recorder = Recorder::create(bt_value_string_get(path));
  if (!recorder) {
    tell(component, recorder.error().sentence);
    return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
  }
  if (bt_self_component_sink_add_input_port(self, "in", nullptr, nullptr) != BT_SELF_COMPONENT_ADD_PORT_STATUS_OK)
    return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
  bt_self_component_set_data(component, new Sink{std::move(*recorder)});
  return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK;
}

Sink& sink_of(bt_self_component_sink* self) {
  return *static_cast<Sink*>(bt_self_component_get_data(bt_self_component_sink_as_self_component(self)));
}

void sink_finalize(bt_self_component_sink* self) {
  Sink* const sink = &sink_of(self);
  if (sink->messages != nullptr) bt_message_iterator_put_ref(sink->messages);
  delete sink;
}

bt_component_class_sink_graph_is_configured_method_status sink_configured(bt_self_component_sink* self) {
  bt_self_component_port_input* const port = bt_self_component_sink_borrow_input_port_by_index(self, 0);
  return bt_message_iterator_create_from_sink_component(self, port, &sink_of(self).messages) ==
                 BT_MESSAGE_ITERATOR_CREATE_FROM_SINK_COMPONENT_STATUS_OK
             ? BT_COMPONENT_CLASS_SINK_GRAPH_IS_CONFIGURED_METHOD_STATUS_OK
             : BT_COMPONENT_CLASS_SINK_GRAPH_IS_CONFIGURED_METHOD_STATUS_ERROR;
}

bt_component_class_sink_consume_method_status consume(bt_self_component_sink* self) {
  Sink& sink = sink_of(self);
  bt_self_component* const component = bt_self_component_sink_as_self_component(self);
  bt_message_array_const messages = nullptr;
  u64 count = 0;
  try {
    switch (bt_message_iterator_next(sink.messages, &messages, &count)) {
      case BT_MESSAGE_ITERATOR_NEXT_STATUS_OK: break;
      case BT_MESSAGE_ITERATOR_NEXT_STATUS_AGAIN: return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_AGAIN;
      case BT_MESSAGE_ITERATOR_NEXT_STATUS_END: {
        const auto done = sink.recorder->finish();
        if (done) return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_END;
        tell(component, done.error().sentence);
        return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
      }
      default: return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
    }
    result<void> taken;
    for (u64 i = 0; i < count; ++i) {
      if (taken) taken = sink.recorder->take(messages[i]);
      bt_message_put_ref(messages[i]);
    }
    if (taken) return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_OK;
    tell(component, taken.error().sentence);
  } catch (const std::exception& e) {
    tell(component, e.what());
  }
  return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
}

}  // namespace
}  // namespace ringside::babeltrace

using namespace ringside::babeltrace;

BT_PLUGIN_MODULE();
BT_PLUGIN(ringside);
BT_PLUGIN_DESCRIPTION("Traces of ringside and of the kernel");
BT_PLUGIN_SOURCE_COMPONENT_CLASS(rings, next);
BT_PLUGIN_SOURCE_COMPONENT_CLASS_DESCRIPTION(rings, "Read recordings, trace.dat files and instances of ringside");
BT_PLUGIN_SOURCE_COMPONENT_CLASS_HELP(rings,
  "Parameters:\n"
  "  inputs=[\"WHERE\", ...]    recordings, trace.dat files, instances; none: ./ringside.data\n"
  "  events=[\"EVENT\", ...]    only these\n"
  "  filter=\"CONDITION\"       as of ringside report --filter\n"
  "  follow=yes|SECONDS       of instances: events as they come; no (the default): what there is now\n"
  "  totals=\"FILE\"           at the end: the number of events and of lost ones, and what could not be read, a line each");
BT_PLUGIN_SOURCE_COMPONENT_CLASS_INITIALIZE_METHOD(rings, initialize);
BT_PLUGIN_SOURCE_COMPONENT_CLASS_FINALIZE_METHOD(rings, finalize);
BT_PLUGIN_SOURCE_COMPONENT_CLASS_MESSAGE_ITERATOR_CLASS_INITIALIZE_METHOD(rings, iterator_initialize);
BT_PLUGIN_SOURCE_COMPONENT_CLASS_MESSAGE_ITERATOR_CLASS_FINALIZE_METHOD(rings, iterator_finalize);
BT_PLUGIN_SINK_COMPONENT_CLASS(recording, consume);
BT_PLUGIN_SINK_COMPONENT_CLASS_DESCRIPTION(recording, "Write a recording, which every command of ringside reads");
BT_PLUGIN_SINK_COMPONENT_CLASS_HELP(recording, "Parameter: path=\"DIR\", where the recording is to be.");
BT_PLUGIN_SINK_COMPONENT_CLASS_INITIALIZE_METHOD(recording, sink_initialize);
BT_PLUGIN_SINK_COMPONENT_CLASS_FINALIZE_METHOD(recording, sink_finalize);
BT_PLUGIN_SINK_COMPONENT_CLASS_GRAPH_IS_CONFIGURED_METHOD(recording, sink_configured);
