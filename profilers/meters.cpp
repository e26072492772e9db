// Which meters there are: one record each feeds the list, the help and the contract tests.
// Hand-written, so that nothing depends on what a linker keeps.
#include "profilers/meter.h"

namespace tilewright::profilers {
namespace {

Availability emulator_here() { return {.usable = true, .detail = "simulator/npu, in this process"}; }

constexpr MeterRecord kMeters[] = {
    {"cachegrind", "Valgrind's cache simulation of the built kernel", cachegrind_here,
     make_cachegrind, true},
    {"perf", "hardware counters of the core by Linux perf_event", perf_here, make_perf},
    {"likwid", "hardware counters by LIKWID's groups L2, L3 and MEM", likwid_here, make_likwid},
    {"pcm", "memory controllers and caches by Intel PCM", pcm_here, make_pcm},
    {"ncu", "counters of NVIDIA GPUs by Nsight Compute (target cuda)", ncu_here, make_ncu, false,
     Counts::process},
    {"emulator", "copies of the emulated NPU, by path and tensor; simulated (target npu)",
     emulator_here, nullptr, false,
     Counts::itself},
};

}  // namespace

std::span<const MeterRecord> meters() { return kMeters; }

}  // namespace tilewright::profilers
