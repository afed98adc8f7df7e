// Two versions of a service in one instance: namesakes_writer VERSION COUNT writes shop:order with that version's fields.
#include <ringside/ringside.h>

#include <cstdlib>
#include <cstring>

namespace {

constinit ringside_event versions[] = {
    {"shop", "order", "\tfield:u32 id;\toffset:8;\tsize:4;\tsigned:0;\n", "\"id=%u\", REC->id", nullptr, 0, nullptr, nullptr},
    {"shop", "order", "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 price;\toffset:16;\tsize:8;\tsigned:0;\n",
     "\"id=%llu price=%llu\", REC->id, REC->price", nullptr, 0, nullptr, nullptr},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const unsigned long version = std::strtoul(argv[1], nullptr, 10), count = std::strtoul(argv[2], nullptr, 10);
  ringside_event& event = versions[version];
  if (ringside_register(&event) != 0) return 3;
  for (unsigned long i = 0; i < count; ++i) {
    unsigned long payload[3] = {0, i, 100 * i};
    const auto id = static_cast<unsigned>(i);
    if (version == 0) std::memcpy(&payload[1], &id, sizeof id);
    if (!ringside_gate_open(ringside_gate_of(event.system, event.name)) || !ringside_wanted(&event)) return 4;
    (void)ringside_write(&event, payload, version == 0 ? 12 : 24);
  }
  return 0;
}
