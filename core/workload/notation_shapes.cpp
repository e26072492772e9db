// The shapes of tensors that a workload uses without declaring them.
#include <algorithm>

#include "core/workload/notation.h"

namespace tilewright {

std::optional<std::int64_t> end_of(const WorkloadSpec& spec, const Affine& index) {
  std::optional<std::int64_t> end = checked_add(index.offset, 1);
  for (const Term& t : index.terms) {
    if (t.coefficient < 0) continue;
    const auto reach = checked_mul(t.coefficient, spec.loops[t.loop.index()].extent - 1);
    end = end && reach ? checked_add(*end, *reach) : std::nullopt;
  }
  return end;
}

void infer_shapes(NotationContext& context) {
  WorkloadSpec& spec = context.spec;
  context.inferred.resize(spec.tensors.size(), false);
  std::vector<bool> written(spec.tensors.size(), false);
  const auto grow = [&](const Operator& op, const Access& a) {
    Tensor& tensor = spec.tensors[a.tensor.index()];
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      if (a.index[d].gathered >= 0)
        throw InputError({.field = "operators." + op.name,
                          .value = tensor.name,
                          .problem = "is indexed by values and has no declared shape",
                          .accepted = "an entry in tensors"});
      const auto end = end_of(spec, a.index[d]);
      if (!end)
        throw InputError({.field = "operators." + op.name,
                          .value = tensor.name,
                          .problem = "has an index past 64 bits",
                          .accepted = "indices within 2^62"});
      tensor.shape[d] = std::max({tensor.shape[d], *end, std::int64_t{1}});
    }
  };
  for (const Operator& op : spec.operators)
    for (const Output& out : op.outputs) {
      if (context.inferred[out.target.tensor.index()]) grow(op, out.target);
      written[out.target.tensor.index()] = true;
    }
  for (const Operator& op : spec.operators)
    for (const Access& in : op.inputs)
      if (context.inferred[in.tensor.index()] && !written[in.tensor.index()]) grow(op, in);
}

InputError unknown_name(std::string_view where, std::string_view field, std::string_view given,
                        std::vector<std::string> candidates) {
  const std::string near = nearest(given, candidates);
  const std::string hint = near.empty() ? "" : ", did you mean '" + near + "'?";
  return InputError({.where = std::string(where),
                     .field = std::string(field),
                     .value = "'" + std::string(given) + "'",
                     .problem = "is unknown" + hint,
                     .accepted = join(candidates)});
}

}  // namespace tilewright
