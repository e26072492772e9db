// ONNX files, with and without --skip. Values of weights are never read but for small ones.
#include "core/workload/import/onnx_import.h"
#include "core/workload/text.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

void one(std::string_view input) {
  for (const bool skip : {false, true})
    refusable([&] {
      const OnnxImport made = import_onnx(input, "no-such.onnx", {.bind = {}, .skip = skip});
      use(made.workload);
      refusable([&] {  // where it is not too long for a file
        const std::string text = to_yaml(made.workload);
        TW_CHECK(workload_from_yaml(text, "again") == made.workload, text);
      });
    });
}

}  // namespace tilewright::fuzz
