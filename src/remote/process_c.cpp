// The C form of a writer process (ringside/remote.h).
#include <ringside/remote.h>

#include <ringside/remote/process_writer.hpp>

using namespace ringside::remote;

struct ringside_process {
  explicit ringside_process(ProcessOptions options) : writer(std::move(options)) {}
  ProcessWriter<> writer;
};

extern "C" {

ringside_process* ringside_process_open(const ringside_process_options* options) {
  try {
    ProcessOptions make;
    make.path = options->path != nullptr ? options->path : "";
    for (size_t i = 0; i < options->nr_events; ++i) {
      const ringside_process_event& e = options->events[i];
      make.events.push_back({e.id, e.system, e.name, e.format});
    }
    make.rings = options->nr_rings;
    for (uint32_t i = 0; options->rings != nullptr && i < options->nr_rings; ++i)
      make.ring_names.push_back({options->rings[i].name, options->rings[i].cpu});
    void* const context = options->context;
    if (options->write != nullptr)
      make.write = [write = options->write, context](ringside::u32 ring, std::string_view text) {
        return write(context, ring, text.data(), text.size());
      };
    if (options->switch_event != nullptr)
      make.switch_event = [switch_event = options->switch_event, context](ringside::u32 id, bool on) {
        return switch_event(context, id, on);
      };
    auto made = std::make_unique<ringside_process>(std::move(make));
    if (made->writer.error() == 0) return made.release();
    const int error = made->writer.error();
    made.reset();
    errno = error;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return nullptr;
}

void ringside_process_close(ringside_process* process) { delete process; }

int ringside_process_announced_path(const char* name, char* path, size_t size) {
  try {
    const std::string found = announced_path(name);
    if (found.empty()) return EACCES;
    if (found.size() >= size) return ENAMETOOLONG;
    std::memcpy(path, found.c_str(), found.size() + 1);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

bool ringside_process_write(ringside_process* process, uint32_t ring, const void* payload, uint32_t size) {
  auto* const to = process->writer.ring(ring);
  return to != nullptr && to->write(payload, size);
}

bool ringside_process_attached(ringside_process* process) { return process->writer.ring(0) != nullptr; }

}  // extern "C"
