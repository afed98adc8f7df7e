#include "source/world.hpp"

#include <sys/utsname.h>

#include <iterator>

#include "sys/sys.hpp"

namespace ringside {
namespace {

struct Row {
  Architecture architecture;
  std::string_view machine;
  bool big_endian;
  u32 word_size;
};
using A = Architecture;
constexpr Row rows[] = {{A::unknown, "", false, 0},
                        {A::x86_64, "x86_64", false, 8},
                        {A::i386, "i686", false, 4},
                        {A::arm64, "aarch64", false, 8},
                        {A::arm, "armv7l", false, 4},
                        {A::riscv64, "riscv64", false, 8},
                        {A::riscv32, "riscv32", false, 4},
                        {A::ppc64le, "ppc64le", false, 8},
                        {A::ppc64, "ppc64", true, 8},
                        {A::ppc, "ppc", true, 4},
                        {A::s390x, "s390x", true, 8},
                        {A::s390, "s390", true, 4},
                        {A::loongarch64, "loongarch64", false, 8}};
static_assert(std::size(rows) == architectures);

const Row& row_of(Architecture architecture) { return rows[static_cast<size_t>(architecture) % architectures]; }

}  // namespace

std::string_view machine_of(Architecture architecture) { return row_of(architecture).machine; }

Architecture architecture_from(std::string_view machine) {
  for (const Row& row : rows)
    if (row.machine == machine) return row.architecture;
  if (machine.size() == 4 && machine[0] == 'i' && machine.ends_with("86")) return A::i386;  // i386 to i686
  if (machine.starts_with("aarch64")) return A::arm64;                                      // aarch64_be
  if (machine.starts_with("arm")) return A::arm;                                            // armv5tejl, armv7l, armv8l, armeb
  return A::unknown;
}

World World::of(Architecture architecture) {
  const Row& row = row_of(architecture);
  World world;
  world.architecture = architecture;
  world.big_endian = row.big_endian;
  world.word_size = row.word_size;
  return world;
}

namespace {

World of_this_program() {
#if defined(__x86_64__)
  return World::of(A::x86_64);
#elif defined(__aarch64__)
  return World::of(A::arm64);
#elif defined(__riscv) && __riscv_xlen == 64
  return World::of(A::riscv64);
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
  return World::of(A::ppc64le);
#elif defined(__s390x__)
  return World::of(A::s390x);
#elif defined(__loongarch64)
  return World::of(A::loongarch64);
#else
  return {};
#endif
}

}  // namespace

World World::own() {
  static const World fixed = [] {
    World world = of_this_program();
    world.pid_namespace = sys::pid_namespace();
    world.page_size = static_cast<u32>(sys::page_bytes());
    if (utsname name{}; uname(&name) == 0) {
      world.release = name.release;
      world.host = name.nodename;
    }
    return world;
  }();
  World own = fixed;
  own.suspended_ns = sys::suspended_ns();
  return own;
}

World World::told_by(ClockKind clock) {
  return clock == ClockKind::tsc ? of(A::x86_64) : clock == ClockKind::cntvct ? of(A::arm64) : World{};
}

}  // namespace ringside
