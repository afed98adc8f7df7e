// Is the time stamp counter the clock of this machine? By the kernel's files, the flags, and a test.
#include <gtest/gtest.h>

#include "clock/clock.hpp"
#include "clock/tsc.hpp"

namespace ringside::test::tsc_test {
namespace {

TEST(Tsc, TheKernelsOpinion) {
  EXPECT_EQ(kernel_on_tsc("tsc\n", "tsc hpet acpi_pm \n"), KernelOnTsc::uses);
  EXPECT_EQ(kernel_on_tsc("kvm-clock\n", "tsc kvm-clock \n"), KernelOnTsc::accepts);
  EXPECT_EQ(kernel_on_tsc("hpet\n", "tsc hpet \n"), KernelOnTsc::accepts);
  EXPECT_EQ(kernel_on_tsc("kvm-clock\n", "kvm-clock \n"), KernelOnTsc::hypervisors);
  EXPECT_EQ(kernel_on_tsc("hyperv_clocksource_tsc_page\n", "hyperv_clocksource_tsc_page \n"), KernelOnTsc::hypervisors);
  EXPECT_EQ(kernel_on_tsc("hpet\n", "hpet acpi_pm \n"), KernelOnTsc::rejects);
  EXPECT_EQ(kernel_on_tsc("tsc-early\n", "\n"), KernelOnTsc::rejects);
  EXPECT_EQ(kernel_on_tsc("", ""), KernelOnTsc::rejects);
}

TEST(Tsc, TheFlags) {
  EXPECT_TRUE(has_invariant_flags("processor\t: 0\nflags\t\t: fpu tsc constant_tsc rep_good nonstop_tsc\nbugs\t: x\n"));
  EXPECT_FALSE(has_invariant_flags("processor\t: 0\nflags\t\t: fpu tsc constant_tsc rep_good\nbugs\t: nonstop_tsc\n"));
  EXPECT_FALSE(has_invariant_flags("processor\t: 0\nflags\t\t: fpu tsc_constant_tsc nonstop_tsc\n"));
  EXPECT_FALSE(has_invariant_flags(""));
}

TEST(Tsc, IsTrustedByEvidence) {
  const auto trusted = [](bool invariant, KernelOnTsc kernel, Warps warps) {
    TscEvidence e;
    e.invariant = invariant, e.kernel = kernel, e.warps = warps;
    return e.trusted();
  };
  EXPECT_TRUE(trusted(true, KernelOnTsc::uses, Warps::not_tested));
  EXPECT_TRUE(trusted(true, KernelOnTsc::accepts, Warps::not_tested));
  EXPECT_TRUE(trusted(true, KernelOnTsc::hypervisors, Warps::none));
  EXPECT_FALSE(trusted(true, KernelOnTsc::hypervisors, Warps::not_tested));
  for (const KernelOnTsc kernel : {KernelOnTsc::uses, KernelOnTsc::accepts, KernelOnTsc::hypervisors, KernelOnTsc::rejects}) {
    EXPECT_FALSE(trusted(true, kernel, Warps::found));
    EXPECT_FALSE(trusted(false, kernel, Warps::none));
  }
  EXPECT_FALSE(trusted(true, KernelOnTsc::rejects, Warps::none));
}

// On a machine whose kernel uses the counter, the test agrees with it. It tells how it went; whether the processors met depends
// on what else runs.
TEST(Tsc, TheTestAgreesWithTheKernel) {
  if (!tsc_evidence().invariant || tsc_evidence().kernel != KernelOnTsc::uses)
    GTEST_SKIP() << "the kernel does not use the time stamp counter here";
  TscEvidence found = tsc_evidence();
  test_for_warps(found);
  EXPECT_NE(found.warps, Warps::found) << found.most_back << " ticks";
  std::printf("%llu meetings\n", static_cast<unsigned long long>(found.meetings));
  EXPECT_EQ(best_clock(), ClockKind::tsc);
}

}  // namespace
}  // namespace ringside::test::tsc_test
