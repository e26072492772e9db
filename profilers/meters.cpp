// Which meters there are: one record each feeds the list, the help and the contract tests.
// Hand-written, so that nothing depends on what a linker keeps.
#include "profilers/meter.h"

namespace tilewright::profilers {
namespace {

Availability no_ncu() {
  return {.reason = "not available yet: this version reads no reports of Nsight Compute"};
}

constexpr MeterRecord kMeters[] = {
    {"cachegrind", "Valgrind's cache simulation of the built kernel", cachegrind_here,
     make_cachegrind, true},
    {"ncu", "NVIDIA Nsight Compute", no_ncu, nullptr},
};

}  // namespace

std::span<const MeterRecord> meters() { return kMeters; }

}  // namespace tilewright::profilers
