// Bytes from a stranger to the receiver of `ringside collect`: it takes or refuses any, makes no file but those of a recording,
// and what it has made is read without harm. Input: u8 size of the parts, then the bytes; `$` alone stands for a good hello.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "source/recording.hpp"
#include "source/recording_receiver.hpp"

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  static const std::string dir = std::filesystem::temp_directory_path() / ("ringside-collect-fuzz-" + std::to_string(getpid()));
  if (size < 2) return 0;
  std::vector<u8> bytes(input + 1, input + size);
  if (bytes[0] == '$') {
    messages::Head head{static_cast<u32>(messages::Kind::hello), messages::version, 0, sizeof messages::magic, 0};
    std::vector<u8> hello(sizeof head + sizeof messages::magic);
    std::memcpy(hello.data(), &head, sizeof head);
    std::memcpy(hello.data() + sizeof head, messages::magic, sizeof messages::magic);
    bytes.erase(bytes.begin());
    bytes.insert(bytes.begin(), hello.begin(), hello.end());
  }
  std::filesystem::remove_all(dir);
  RecordingReceiver receiver([](const std::string&) -> result<std::string> { return dir; });
  const size_t part = 1 + size_t{input[0]} * 16;
  for (size_t at = 0; at < bytes.size(); at += part) {
    if (!receiver.take(bytes.data() + at, std::min(part, bytes.size() - at))) break;
    if (receiver.offers_names()) receiver.ask();
  }
  const bool made = receiver.has_recording();
  receiver.close();
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(dir, none)) {
    const std::string name = entry.path().filename();
    const bool text = name == "meta.json" || name == "kallsyms" || name == "printk_formats" || name == kept_names;
    if (!text && !ring_of_file(name)) std::abort();
  }
  if (made) {
    if (const auto meta = RecordingMeta::read(dir)) {
      if (auto sources = open_recording(dir, *meta)) {
        for (auto& source : *sources)
          for (int n = 0; n < 100; ++n) {
            const auto view = source->next();
            if (!view || !*view) break;
            source->consume();
          }
      }
    }
  }
  std::filesystem::remove_all(dir);
  return 0;
}
