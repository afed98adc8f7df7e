#include "consumer/input.hpp"

#include "consumer/trace.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {
result<std::vector<std::unique_ptr<Input>>> (*open_server)(const std::string& place) = nullptr;
}

void open_servers_by(result<std::vector<std::unique_ptr<Input>>> (*open)(const std::string& place)) { open_server = open; }

void add_events(Trace& trace, const Input& of, const std::vector<EventInfo>& events) {
  trace.know_machine(of);
  for (const EventInfo& e : events) {
    const u32 number = of.origin.ids + e.number();
    if (trace.formats.find(number) == nullptr) trace.formats.add(number, e.system, e.name, e.format, of.world);
  }
}

result<std::vector<std::unique_ptr<Input>>> inputs_of(const Where& where) {
  std::vector<std::unique_ptr<Input>> inputs;
  switch (where.kind) {
    case Where::Kind::recording: inputs.push_back(recording_input(where.text)); break;
    case Where::Kind::ctf: inputs.push_back(ctf_input(where.text)); break;
    case Where::Kind::shipped: 
      if (open_server != nullptr) return open_server(where.text);
      return refuse(std::errc::not_supported, where.text + " is a place on a server, and this build of ringside reads none: "
                                                           "CMake's option RINGSIDE_FLEET=ON builds what does");
    case Where::Kind::writer:
      inputs.push_back(writer_input(where.text, where.socket));
      break;
    case Where::Kind::trace_dat:
      inputs.push_back(RS_TRY(file_input(where.text)));
      break;
    case Where::Kind::served: inputs.push_back(served_input(where.text)); break;
    case Where::Kind::kernel: return tl::unexpected<Error>(where.not_to_be_read());
    case Where::Kind::instance:
    case Where::Kind::nothing: inputs.push_back(instance_input(where.text)); break;
  }
  return inputs;
}

}  // namespace ringside
