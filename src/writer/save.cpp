// ringside_save: the command makes the recording, as the writing side reads no rings.
#include <cerrno>
#include <iterator>
#include <string>

#include "sys/command.hpp"
#include "writer/process.hpp"

namespace ringside {
namespace {

int save(const char* instance, const char* path) {
  std::string words[] = {"ringside", "record", "--quiet", "--duration=1ms", std::string("--instance=") + instance,
                         std::string("--output=") + path};  // its ending names the format
  char* arguments[std::size(words) + 1] = {};
  for (size_t i = 0; i < std::size(words); ++i) arguments[i] = words[i].data();
  const int status = sys::run(arguments);
  constexpr int not_found = 127;
  return status < 0 ? status : status == not_found ? -ENOENT : status != 0 ? -EIO : 0;
}

}  // namespace
}  // namespace ringside

extern "C" int ringside_save(const char* path) {
  using namespace ringside;
  const SystemCalls may;
  if (!may) return -EPERM;
  if (path == nullptr || *path == 0) return -EINVAL;
  const char* const instance = ringside_instance();
  if (instance == nullptr) return -ENOENT;
  try {
    return save(instance, path);
  } catch (...) {
    return -ENOMEM;
  }
}
