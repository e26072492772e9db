// Rates of the emulated NPU, one core, timing on: a compute-bound GEMM, and instructions too small
// for anything but their own cost.
#include <memory>
#include <stdexcept>

#include "bench/rates.h"
#include "core/machine/machine.h"
#include "core/npu/assembly.h"
#include "simulator/npu/emulator.h"
#include "tests/support/npu_programs.h"

namespace tilewright::bench {
namespace {

constexpr int kM = 256, kN = 2048, kK = 1024;

/// What a call needs, made once.
struct Run {
  Machine machine = named_machine("ascend910");
  npu::Program program;
  npu::TensorData data;
};

std::shared_ptr<Run> prepared(const std::string& text) {
  auto run = std::make_shared<Run>();
  run->program = npu::parse_assembly(text, "bench");
  for (const npu::Tensor& t : run->program.tensors) {
    if (t.role != npu::Role::input) continue;
    run->data[t.name].assign(static_cast<std::size_t>(t.elements() * size_of(t.type)),
                             std::byte{0});
  }
  return run;
}

std::function<void()> emulation(std::shared_ptr<Run> run, bool check, double least_utilisation) {
  return [run = std::move(run), check, least_utilisation] {
    const npu::Report r = npu::emulate(run->program, run->machine, run->data, {.check = check});
    if (!r.ok()) throw std::runtime_error("the emulator finds: " + r.findings[0].text);
    if (r.cube_utilisation() < least_utilisation) {
      throw std::runtime_error("the emulated cube is busy for " +
                               std::to_string(r.cube_utilisation()) + " of the time");
    }
  };
}

}  // namespace

std::vector<Rate> npu_rates() {
  const auto gemm = prepared(npu::gemm_text(kM, kN, kK));
  const auto small = prepared(
      ".buffer x UB f16[128] at 0 holds X\nvdup x[0], 1, repeat=1\nfor i = 0 to 100000\n"
      "vmuls x[0], x[0], 1, repeat=1\nend\n");
  const double macs = static_cast<double>(kM) * kN * kK;
  const std::string size = "NPU GEMM 256x2048x1024";
  return {{.name = size + ", hazards checked",
           .unit = "multiply-accumulates",
           .per_call = macs,
           .call = emulation(gemm, true, 0.9),
           .beside = "at least 1 G is wanted"},
          {.name = size + ", unchecked",
           .unit = "multiply-accumulates",
           .per_call = macs,
           .call = emulation(gemm, false, 0.9)},
          {.name = "NPU vector instructions of one repeat",
           .unit = "instructions",
           .per_call = 100001,
           .call = emulation(small, true, 0)}};
}

}  // namespace tilewright::bench
