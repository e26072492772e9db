// Assembly of the NPU, whether a program makes sense, and what it does.
#include "core/machine/machine.h"
#include "core/npu/assembly.h"
#include "core/workload/text.h"
#include "simulator/npu/emulator.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

namespace {

/// Programs with little data, for a while.
void run(const npu::Program& p, const Machine& machine) {
  constexpr std::int64_t kMost = 1 << 16;
  npu::TensorData data;
  std::int64_t bytes = 0;
  for (const npu::Tensor& t : p.tensors) {
    const std::int64_t here = t.elements() * size_of(t.type);
    bytes += here;
    if (bytes > kMost) return;
    if (t.role == npu::Role::input) data[t.name].resize(static_cast<std::size_t>(here));
  }
  if (p.blocks > 4) return;
  npu::emulate(p, machine, data, {.most_statements = 200});
}

}  // namespace

void one(std::string_view input) {
  static const Machine machine = named_machine("ascend910");
  refusable([&] {
    const npu::Program p = npu::parse_assembly(input, "f");
    const std::string text = npu::to_text(p);
    TW_CHECK(npu::parse_assembly(text, "again") == p, text);
    npu::listing(p, *machine.npu_core);
    npu::check(p, machine);
    run(p, machine);
  });
}

}  // namespace tilewright::fuzz
