#include "core/lowering/byte_products.h"

#include "core/workload/access.h"

namespace tilewright {

bool multiplies_bytes(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (op.outputs.size() != 1 || w.gathers(id)) return false;
  const auto factors = factors_of(op.outputs[0]);
  if (!factors) return false;
  for (const int i : *factors)
    if (w.tensor(op.inputs[static_cast<std::size_t>(i)].tensor).dtype != DType::i8) return false;
  return true;
}

bool multiplies_bytes(const Workload& w) {
  for (std::size_t o = 0; o < w.operators().size(); ++o)
    if (multiplies_bytes(w, OpId(o))) return true;
  return false;
}

}  // namespace tilewright
