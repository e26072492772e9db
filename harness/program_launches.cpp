// A network's launches one by one, where the whole is too sensitive to rounding to be compared; and
// what another runtime makes of it.
#include <cmath>
#include <cstring>

#include "core/base/format.h"
#include "core/workload/expr.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "harness/program.h"

namespace tilewright::harness {
namespace {

TensorValues inputs_of(const Workload& w, const Launch& l, const TensorValues& values) {
  TensorValues inputs(w.tensors().size());
  for (std::size_t t = 0; t < inputs.size(); ++t)
    if (w.is_input(TensorId(t))) inputs[t] = values[l.tensors[t].index()];
  return inputs;
}

/// The launch's workload with what other launches hand to it in float64: `evaluate` rounds inputs
/// to their types.
Workload unrounded(const Program& program, const Launch& l) {
  WorkloadSpec spec = program.kernels[l.kernel].workload->spec();
  for (std::size_t t = 0; t < spec.tensors.size(); ++t)
    if (!program.workload->is_input(l.tensors[t]) && !is_integer(spec.tensors[t].dtype))
      spec.tensors[t].dtype = DType::f64;
  return Workload::create(std::move(spec));
}

/// The launches' workloads one after the other in float64: they are the network, apart from
/// rounding, if this is what the network's reference has.
std::optional<Reason> compose(const Program& program, std::span<const std::size_t> order,
                              TensorValues values, const TensorValues& expected) {
  constexpr double kMost = 0x1p-12;
  for (const std::size_t i : order) {
    const Launch& l = program.launches[i];
    const Workload w = unrounded(program, l);
    TensorValues made = evaluate(w, inputs_of(w, l, values), {.outputs_only = true});
    for (TensorId t : w.outputs())
      values[l.tensors[t.index()].index()] = std::move(made[t.index()]);
  }
  for (TensorId t : program.workload->outputs()) {
    const std::vector<double>& got = values[t.index()];
    const double error = relative_error(DType::f64, got.data(), expected[t.index()]);
    if (!(error <= kMost))
      return Reason{formatted("its kernels together, without rounding, are off by {:.3g}", error)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Reason> verify_launches(const Program& program, std::span<const std::size_t> order,
                                      TensorValues inputs, const TensorValues& expected,
                                      const Stepping& device) {
  if (auto why = compose(program, order, inputs, expected)) return why;
  TensorValues values = std::move(inputs);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Launch& l = program.launches[order[i]];
    const ProgramKernel& kernel = program.kernels[l.kernel];
    const Workload& w = *kernel.workload;
    if (const Result<double> seconds = device.run(i); !seconds) return seconds.why();
    std::vector<std::unique_ptr<std::byte[]>> outputs(w.tensors().size());
    const Reference reference = reference_of(w, inputs_of(w, l, values));
    for (TensorId t : w.outputs()) {
      const TensorId whole = l.tensors[t.index()];
      const Result<std::vector<std::byte>> got = device.read(whole);
      if (!got) return got.why();
      outputs[t.index()] = std::make_unique_for_overwrite<std::byte[]>(got->size());
      std::memcpy(outputs[t.index()].get(), got->data(), got->size());
      values[whole.index()] = decode_elements(
          w.tensor(t).dtype, got->data(), static_cast<std::size_t>(w.tensor(t).elements().value));
    }
    const Verification v = verification_of(w, outputs, reference, &kernel.schedule);
    if (!v.verified())
      return Reason{formatted("kernel {} on what it has in the network: {}", l.name,
                              reason_of(v, w, [&](TensorId t) {
                                return program.workload->tensor(l.tensors[t.index()]).name;
                              }))};
  }
  return std::nullopt;
}

double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return std::ldexp(1.0, -26);
    case DType::f32:
      return std::ldexp(1.0, -12);
    default:
      return std::ldexp(1.0, -4);
  }
}

std::optional<Reason> differs(const Workload& w, const TensorValues& inputs,
                              const TensorValues& expected, const TensorValues& theirs,
                              double moved, bool& by_rounding) {
  constexpr double kApart = 4;
  const auto known = [&](TensorId t) {
    return !theirs[t.index()].empty() && theirs[t.index()].size() == expected[t.index()].size();
  };
  const auto within = [&](auto most) {
    return std::ranges::all_of(w.outputs(), [&](TensorId t) {
      return !known(t) || relative_error(theirs[t.index()], expected[t.index()]) <= most(t);
    });
  };
  by_rounding = !within([&](TensorId t) { return tolerance_of(w.tensor(t).dtype); });
  if (!by_rounding || within([&](TensorId) { return kApart * moved; })) return std::nullopt;
  std::vector<std::unique_ptr<std::byte[]>> outputs(w.tensors().size());
  for (TensorId t : w.outputs()) {
    const Tensor& tensor = w.tensor(t);
    const std::vector<double>& values = known(t) ? theirs[t.index()] : expected[t.index()];
    outputs[t.index()] =
        std::make_unique<std::byte[]>(static_cast<std::size_t>(tensor.bytes().value));
    encode_elements(tensor.dtype, values, outputs[t.index()].get());
  }
  TensorValues given(w.tensors().size());
  for (std::size_t t = 0; t < given.size(); ++t)
    if (w.is_input(TensorId(t))) given[t] = inputs[t];
  Bounded all = evaluate_bounded(w, std::move(given), {.other = true});
  const Reference reference{.outputs = std::move(all.values),
                            .bounds = std::move(all.bounds),
                            .accepted = std::move(all.accepted)};
  const Verification v = verification_of(w, outputs, reference, nullptr);
  if (v.worst <= 1 || !v.tensor.valid()) return std::nullopt;
  return Reason{reason_of(v, w)};
}

}  // namespace tilewright::harness
