// Assembly of the NPU, and whether a program makes sense.
#include "core/ir/files.h"
#include "core/npu/assembly.h"

#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

void one(std::string_view input) {
  static const Machine machine = named_machine("ascend910");
  refusable([&] {
    const npu::Program p = npu::parse_assembly(input, "f");
    const std::string text = npu::to_text(p);
    TW_CHECK(npu::parse_assembly(text, "again") == p, text);
    npu::listing(p, *machine.npu_core);
    npu::check(p, machine);
  });
}

}  // namespace tilewright::fuzz
