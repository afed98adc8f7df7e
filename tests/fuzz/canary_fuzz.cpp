// Must crash within seconds: a fuzzer that does not find this finds nothing.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size >= 3 && bytes[0] == 'r' && bytes[1] == 's' && bytes[2] == '!') __builtin_trap();
  return 0;
}
