#include "harness/verified_kernel.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/base/format.h"

namespace tilewright::harness {
namespace {

using Memory = std::unique_ptr<std::byte[]>;

Memory memory_for(const Tensor& tensor) {
  return std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(tensor.bytes().value));
}

/// Of a row-major element.
std::vector<std::int64_t> index_of(const Tensor& tensor, std::int64_t element) {
  std::vector<std::int64_t> index(tensor.shape.size());
  for (std::size_t d = index.size(); d-- > 0; element /= tensor.shape[d])
    index[d] = element % tensor.shape[d];
  return index;
}

Memory forgotten(const Tensor& tensor) {
  Memory memory = memory_for(tensor);
  fill_with_nan(tensor.dtype, static_cast<std::size_t>(tensor.elements().value), memory.get());
  return memory;
}

}  // namespace

void add_json(nlohmann::ordered_json& json, const Verification& v, const Workload& w) {
  json["verified"] = v.verified();
  json["relative_error"] = v.relative_error;
  json["tolerance"] = v.tolerance;
  json["worst_element"] = nullptr;
  if (v.tensor.valid())
    json["worst_element"] = {{"tensor", w.tensor(v.tensor).name},
                             {"index", index_of(w.tensor(v.tensor), v.at.element)},
                             {"value", v.at.got},
                             {"reference", v.at.reference},
                             {"allowed_error", v.at.bound}};
  json["unverifiable_elements"] = v.unseen;
}

std::string reason_of(const Verification& v, const Workload& w,
                      const std::function<std::string(TensorId)>& named) {
  if (v.verified()) return "verified";
  if ((v.worst <= 1 || !v.tensor.valid()) && 2 * v.undefined > v.unseen)
    return formatted(
        "{} of {} elements cannot be verified: they are no numbers, as the root of a negative "
        "value; accepted: inputs for which they are (ranges and values of a workload file)",
        v.undefined, v.elements);
  if (v.worst <= 1 || !v.tensor.valid())
    return formatted(
        "{} of {} elements cannot be verified: rounding alone may change them by more "
        "than a quarter",
        v.unseen, v.elements);
  std::string at;
  for (std::int64_t i : index_of(w.tensor(v.tensor), v.at.element))
    at += (at.empty() ? "" : ",") + std::to_string(i);
  return formatted("{}[{}] is {:.6g}, the reference has {:.6g}, rounding explains {:.3g}",
                   named ? named(v.tensor) : w.tensor(v.tensor).name, at, v.at.got, v.at.reference,
                   v.at.bound);
}

Reference reference_of(const Workload& w, TensorValues inputs) {
  const auto start = std::chrono::steady_clock::now();
  Reference reference;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    reference.inputs.emplace_back(inputs[t].size() *
                                  static_cast<std::size_t>(size_of(tensor.dtype)));
    encode_elements(tensor.dtype, inputs[t], reference.inputs[t].data());
  }
  Bounded all = evaluate_bounded(w, std::move(inputs));
  reference.outputs.resize(w.tensors().size());
  for (TensorId t : w.outputs()) reference.outputs[t.index()] = std::move(all.values[t.index()]);
  reference.bounds = std::move(all.bounds);
  reference.accepted = std::move(all.accepted);
  reference.others = std::make_shared<std::map<std::vector<bool>, Bounded>>();
  reference.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return reference;
}

namespace {

/// The tensor of that name, which a rewrite must have kept.
TensorId same_in(const Workload& named, const Tensor& tensor) {
  const auto same = named.find_tensor(tensor.name);
  TW_CHECK(same && named.tensor(*same) == tensor, "a rewrite that changes " + tensor.name);
  return *same;
}

}  // namespace

Reference reference_of(const Workload& w, std::uint64_t seed) {
  return reference_of(w, random_inputs(w, seed));
}

Reference reference_of(const Setting& setting, std::uint64_t seed) {
  if (!setting.original) return reference_of(*setting.workload, seed);
  const auto start = std::chrono::steady_clock::now();
  const Workload &named = *setting.original, &w = *setting.workload;
  TensorValues drawn = random_inputs(named, seed), inputs(w.tensors().size());
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_input(TensorId(t))) inputs[t] = drawn[same_in(named, w.tensors()[t]).index()];
  Reference own = reference_of(w, std::move(inputs));
  TensorValues values = evaluate(named, std::move(drawn), {.outputs_only = true});
  for (TensorId t : w.outputs())
    own.outputs[t.index()] = std::move(values[same_in(named, w.tensor(t)).index()]);
  own.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return own;
}

double VerifiedKernel::run() {
  const Result<double> seconds = kernel_->run();
  TW_CHECK(seconds.ok(), "a run that failed where none can: " + seconds.reason());
  return *seconds;
}

namespace {

/// The outputs as the kernel has left them, by TensorId.
using Outputs = std::vector<Memory>;

/// Row-major elements that the tensor's operator writes, where its rows are longer than that; empty
/// where it writes all.
std::vector<std::size_t> written_of(const Workload& w, TensorId t) {
  const Operator& op = w.op(w.producer(t));
  const Tensor& tensor = w.tensor(t);
  const auto target =
      std::ranges::find(op.outputs, t, [](const Output& o) { return o.target.tensor; });
  std::vector<Interval> all;
  for (LoopId l : op.loops) all.push_back({0, w.loop(l).extent});
  const Box box = footprint(w, op, target->target, all);
  if (box == tensor.whole()) return {};
  std::vector<std::size_t> elements{0};
  for (int d = 0; d < box.rank(); ++d) {
    std::vector<std::size_t> longer;
    for (std::size_t e : elements)
      for (std::int64_t i = box[d].lo; i < box[d].hi; ++i)
        longer.push_back(e * static_cast<std::size_t>(tensor.shape[static_cast<std::size_t>(d)]) +
                         static_cast<std::size_t>(i));
    elements = std::move(longer);
  }
  return elements;
}

/// Of an output whose rows are longer than what is written: nobody says what lies behind them.
Comparison compare_written(DType type, const void* got, std::span<const double> reference,
                           std::span<const double> bounds, std::span<const std::size_t> written) {
  const auto size = static_cast<std::size_t>(size_of(type));
  std::vector<std::byte> bytes;
  std::vector<double> values, allowed;
  for (std::size_t e : written) {
    const auto* const at = static_cast<const std::byte*>(got) + e * size;
    bytes.insert(bytes.end(), at, at + size);
    values.push_back(reference[e]);
    allowed.push_back(bounds[e]);
  }
  Comparison c = compare(type, bytes.data(), values, allowed);
  c.element = static_cast<std::int64_t>(written[static_cast<std::size_t>(c.element)]);
  return c;
}

Verification held_against(const Workload& w, const Outputs& outputs, const TensorValues& values,
                          const TensorValues& bounds, const AcceptedPlaces& accepted) {
  Verification v;
  for (TensorId t : w.outputs()) {
    const DType type = w.tensor(t).dtype;
    const void* const got = outputs[t.index()].get();
    const auto other = with_places(values[t.index()], accepted, t, type, got);
    const std::vector<double>& held = other ? *other : values[t.index()];
    const std::vector<std::size_t> written = written_of(w, t);
    const Comparison c = written.empty()
                             ? compare(type, got, held, bounds[t.index()])
                             : compare_written(type, got, held, bounds[t.index()], written);
    v.relative_error = std::max(v.relative_error, c.relative_error);
    v.tolerance = std::max(v.tolerance, c.tolerance);
    v.elements +=
        written.empty() ? w.tensor(t).elements().value : static_cast<std::int64_t>(written.size());
    v.unseen += c.unseen;
    v.undefined += c.undefined;
    if (c.worst > v.worst) v.worst = c.worst, v.tensor = t, v.at = c;
  }
  return v;
}

/// For kernels of that rounding, of the workload that the reference is of.
Bounded bounds_for(const Workload& w, const Reference& reference, const Rounding& rounding) {
  TensorValues inputs(w.tensors().size());
  for (std::size_t t = 0; t < inputs.size(); ++t)
    if (w.is_input(TensorId(t)))
      inputs[t] = decode_elements(w.tensors()[t].dtype, reference.inputs[t].data(),
                                  static_cast<std::size_t>(w.tensors()[t].elements().value));
  return evaluate_bounded(w, std::move(inputs), rounding);
}

}  // namespace

Verification verification_of(const Workload& w, const Outputs& outputs, const Reference& reference,
                             const Schedule* schedule) {
  const auto against = [&](const TensorValues& bounds, const AcceptedPlaces& accepted) {
    return held_against(w, outputs, reference.outputs, bounds, accepted);
  };
  const Verification first = against(reference.bounds, reference.accepted);
  if (schedule == nullptr) return first;
  Rounding rounding = rounding_of(*schedule);
  const bool partial =
      std::ranges::any_of(rounding.partial_stores, [](double n) { return n > 0; }) ||
      !rounding.additions.empty();
  const bool keeps = std::ranges::any_of(rounding.kept, [](bool b) { return b; });
  const auto with_partial = [&] {
    const Bounded all = bounds_for(w, reference, rounding);
    return against(all.bounds, all.accepted);
  };
  // What is kept makes bounds tighter, partial sums that are stored or begun often make them
  // looser.
  if (!first.verified() && partial) return with_partial();
  if (!first.verified() || !keeps) return first;
  const auto [found, added] = reference.others->try_emplace(rounding.kept);
  if (added) found->second = bounds_for(w, reference, {.kept = rounding.kept});
  const Verification tight = against(found->second.bounds, found->second.accepted);
  if (tight.verified() || !partial) return tight;
  return with_partial();
}

struct Verifier {
  static VerifyResult verify(std::unique_ptr<TargetKernel> kernel, const Workload& w,
                             const Reference& reference, const std::function<void()>& after_run,
                             const Schedule* schedule) {
    const auto failed = [](const Reason& why) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      return VerifyResult{{.relative_error = kInfinity, .worst = kInfinity}, nullptr, why};
    };
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      if (!kernel->needs(TensorId(t))) continue;
      // What is not an input starts as NaN, so that an element never written shows.
      const std::vector<std::byte>& input = reference.inputs[t];
      const auto why = kernel->write(
          TensorId(t), input.empty() ? forgotten(w.tensors()[t]).get() : input.data());
      if (why) return failed(*why);
    }
    const Result<double> seconds = kernel->run();
    if (!seconds) return failed(Reason{seconds.reason()});
    if (after_run) after_run();
    Outputs outputs(w.tensors().size());
    for (TensorId t : w.outputs()) {
      TW_CHECK(kernel->needs(t), "a kernel that does not write an output");
      outputs[t.index()] = memory_for(w.tensor(t));
      if (auto why = kernel->read(t, outputs[t.index()].get())) return failed(*why);
    }
    Verification v = verification_of(w, outputs, reference, schedule);
    v.seconds = *seconds;
    if (!v.verified()) return {v, nullptr};
    return {v, std::unique_ptr<VerifiedKernel>(new VerifiedKernel(std::move(kernel), v))};
  }
};

VerifyResult verify(std::unique_ptr<TargetKernel> kernel, const Workload& workload,
                    const Reference& reference, const std::function<void()>& after_run,
                    const Schedule* schedule) {
  return Verifier::verify(std::move(kernel), workload, reference, after_run, schedule);
}

namespace {

/// Loops below a node, up to the computes, that move the tensor's tile: other tiles come between.
bool moves_tile(const ScheduledKernel& k, const Operator& op, const Output& o, OpId id,
                std::span<const NodeId> inside) {
  return std::ranges::any_of(inside, [&](NodeId at) {
    const ScheduleNode& n = k.node(at);
    return n.max_trips > 1 && std::ranges::any_of(n.cuts, [&](const OpLoop& c) {
             if (c.op != id) return false;
             const LoopId loop = op.loops[static_cast<std::size_t>(c.local)];
             return std::ranges::any_of(o.target.index, [&](const Affine& f) {
               return std::ranges::any_of(f.terms, [&](const Term& t) { return t.loop == loop; });
             });
           });
  });
}

bool stored_below(const ScheduledKernel& k, NodeId loop, TensorId t) {
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    if (k.nodes[i].kind != NodeKind::store || k.nodes[i].tensor != t) continue;
    for (NodeId at = k.nodes[i].parent; at.valid(); at = k.node(at).parent)
      if (at == loop) return true;
  }
  return false;
}

/// Passes of the loops of the compute's reductions that another tile or a store comes between.
double partial_stores(const Workload& w, const ScheduledKernel& k, const ScheduleNode& compute,
                      const OutputUse& use) {
  const Operator& op = w.op(compute.op);
  const Output& o = op.outputs[static_cast<std::size_t>(use.output)];
  double passes = 1;
  std::vector<NodeId> inside;
  for (NodeId at = compute.parent; at.valid(); at = k.node(at).parent) {
    const ScheduleNode& loop = k.node(at);
    if (loop.kind != NodeKind::loop) continue;
    const bool reduces = std::ranges::any_of(loop.cuts, [&](const OpLoop& c) {
      return c.op == compute.op &&
             w.is_reduction(c.op, op.loops[static_cast<std::size_t>(c.local)]);
    });
    if (reduces && (moves_tile(k, op, o, compute.op, inside) || stored_below(k, at, use.tensor)))
      passes *= static_cast<double>(loop.max_trips);
    inside.push_back(at);
  }
  return passes - 1;
}

/// How often the compute's kernel adds products to an element's sum, at most: each time the compute
/// runs, a matrix unit takes up to kProductsAtOnce points of one of its loops, or of all together.
double additions(const Workload& w, const ScheduledKernel& k, const ScheduleNode& compute) {
  const Operator& op = w.op(compute.op);
  std::vector<std::int64_t> points;  // of a run, by loop
  for (LoopId l : op.loops) points.push_back(w.loop(l).extent);
  double runs = 1;
  for (NodeId at = compute.parent; at.valid(); at = k.node(at).parent)
    for (const OpLoop& c : k.node(at).cuts) {
      const auto local = static_cast<std::size_t>(c.local);
      if (c.op != compute.op || !w.is_reduction(c.op, op.loops[local])) continue;
      runs *= static_cast<double>(k.node(at).max_trips);
      points[local] = std::min(points[local], k.node(at).step);
    }
  std::int64_t longest = 1;
  for (std::size_t local = 0; local < op.loops.size(); ++local) {
    if (!w.is_reduction(compute.op, op.loops[local])) continue;
    runs *= static_cast<double>(points[local]);
    longest = std::max(longest, points[local]);
  }
  return runs / static_cast<double>(longest) *
         static_cast<double>(ceil_div(longest, kProductsAtOnce));
}

/// Whether a tensor is nowhere but in registers, and no matrix unit reads it.
bool stays_in_registers(const Schedule& s, TensorId t) {
  const Workload& w = *s.workload;
  bool any = false;
  for (const ScheduledKernel& k : s.kernels)
    for (const Buffer& b : k.buffers) {
      if (b.tensor != t) continue;
      any = true;
      if (b.role != BufferRole::intermediate || s.machine->level(b.level).name != "registers")
        return false;
    }
  return any &&
         std::ranges::none_of(w.consumers(t), [&w](OpId id) { return w.is_contraction(id); });
}

}  // namespace

Rounding rounding_of(const Schedule& s) {
  const Workload& w = *s.workload;
  Rounding rounding{.kept = std::vector<bool>(w.tensors().size()),
                    .partial_stores = std::vector<double>(w.tensors().size())};
  const auto narrow = [&w](TensorId t) {
    const DType type = w.tensor(t).dtype;
    return type == DType::f16 || type == DType::bf16;
  };
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    rounding.kept[t] =
        narrow(TensorId(t)) && w.is_intermediate(TensorId(t)) && stays_in_registers(s, TensorId(t));
  for (const ScheduledKernel& k : s.kernels)
    for (const ScheduleNode& n : k.nodes) {
      if (n.kind != NodeKind::compute) continue;
      for (const OutputUse& use : n.writes) {
        if (!narrow(use.tensor)) continue;
        double& stores = rounding.partial_stores[use.tensor.index()];
        stores = std::max(stores, partial_stores(w, k, n, use));
        if (!w.is_contraction(n.op)) continue;
        double terms = 1;
        for (LoopId l : w.reduction_loops(n.op)) terms *= static_cast<double>(w.loop(l).extent);
        const double added = additions(w, k, n);
        if (added <= terms / kProductsAtOnce) continue;
        rounding.additions.resize(w.tensors().size());
        double& most = rounding.additions[use.tensor.index()];
        most = std::max(most, added);
      }
    }
  return rounding;
}

}  // namespace tilewright::harness
