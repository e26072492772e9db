#include "models/stitching/own_copies.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/workload/expr.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright::stitching {
namespace {

/// Whether its expression may take the place of what it writes: element-wise, of one tensor.
bool may_inline(const Operator& op) {
  return !op.running && op.outputs.size() == 1 && op.outputs.front().combine == Combine::assign;
}

/// Whether a read of what the operator writes is at another index than it is written at.
bool read_elsewhere(const Operator& writer, const Operator& reader) {
  const Access& written = writer.outputs.front().target;
  return std::ranges::any_of(reader.inputs, [&](const Access& a) {
    return a.tensor == written.tensor && a.index != written.index;
  });
}

/// Operators by what they are copies of and their kernel, named as the rewrite `copies` names them.
class Copier {
 public:
  Copier(const Workload& w, std::span<const SharedKernel> kernels) : w_(w), kernels_(kernels) {
    for (const Operator& op : w.operators()) taken_.push_back({op.name});
    held_.resize(w.operators().size());
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      names_.emplace_back();
      for (OpId op : kernels[k].ops) held_[op.index()].push_back(k);
    }
  }

  /// Consumers first: a copy's readers are called by the names that they have by then.
  std::string argument() {
    std::string text;
    const auto order = w_.topological_order();
    for (auto op = order.rbegin(); op != order.rend(); ++op) {
      const std::string copied = copy(*op);
      if (!copied.empty()) text += (text.empty() ? "" : ";") + copied;
    }
    return text;
  }
  const std::string& name(OpId op, std::size_t kernel) const { return names_[kernel].at(op); }

 private:
  struct Named {
    std::string name;
  };

  std::string copy(OpId op) {
    const std::vector<std::size_t>& in = held_[op.index()];
    if (in.empty()) return {};
    const auto gives = [&](std::size_t k) {
      return std::ranges::find(kernels_[k].gives, op) != kernels_[k].gives.end();
    };
    const auto giver = std::ranges::find_if(in, gives);
    const std::size_t keeps = giver == in.end() ? in.front() : *giver;
    const std::string& own = w_.op(op).name;
    std::string text;
    for (std::size_t k : in) {
      if (k == keeps) {
        names_[k][op] = own;
        continue;
      }
      text += (text.empty() ? own + "=" : "/") + readers(op, k);
      names_[k][op] = rewrite::unused(taken_, own);
      taken_.push_back({names_[k][op]});
    }
    return text;
  }

  std::string readers(OpId op, std::size_t k) const {
    std::string text;
    std::set<OpId> seen;
    for (const Output& o : w_.op(op).outputs)
      for (OpId reader : w_.consumers(o.target.tensor))
        if (names_[k].contains(reader) && seen.insert(reader).second)
          text += (text.empty() ? "" : "+") + names_[k].at(reader);
    TW_CHECK(!text.empty(), "a copy that its kernel does not read");
    return text;
  }

  const Workload& w_;
  std::span<const SharedKernel> kernels_;
  std::vector<Named> taken_;
  std::vector<std::vector<std::size_t>> held_;      ///< by operator: its kernels
  std::vector<std::map<OpId, std::string>> names_;  ///< by kernel
};

/// Operators of the kernel whose readers, all in it, read them elsewhere; consumers first.
std::vector<OpId> to_inline(const Workload& w, const SharedKernel& k) {
  std::vector<OpId> out;
  const std::set<OpId> own(k.ops.begin(), k.ops.end());
  for (auto op = k.ops.rbegin(); op != k.ops.rend(); ++op) {
    if (std::ranges::find(k.gives, *op) != k.gives.end() || !may_inline(w.op(*op))) continue;
    bool elsewhere = false;
    for (OpId reader : w.consumers(w.op(*op).outputs.front().target.tensor))
      elsewhere |= own.contains(reader) && read_elsewhere(w.op(*op), w.op(reader));
    if (elsewhere) out.push_back(*op);
  }
  return out;
}

/// The kernel's operators as a workload of their own, which may compute what others do, too.
std::shared_ptr<const Workload> part_of(const Workload& w, const SharedKernel& k) {
  WorkloadSpec spec;
  spec.name = "kernel";
  spec.dtype = w.dtype();
  std::map<TensorId, TensorId> tensors;
  std::map<LoopId, LoopId> loops;
  const auto loop = [&](LoopId& l) {
    const auto [at, fresh] = loops.try_emplace(l, spec.loops.size());
    if (fresh) spec.loops.push_back(w.loop(l));
    l = at->second;
  };
  const auto tensor = [&](TensorId t) {
    const auto [at, fresh] = tensors.try_emplace(t, spec.tensors.size());
    if (fresh) spec.tensors.push_back(w.tensor(t));
    return at->second;
  };
  const auto access = [&](Access& a) {
    a.tensor = tensor(a.tensor);
    for (Affine& index : a.index)
      for (Term& t : index.terms) loop(t.loop);
  };
  for (OpId id : k.ops) {
    Operator op = w.op(id);
    std::ranges::for_each(op.loops, loop);
    std::ranges::for_each(op.inputs, access);
    for (Output& o : op.outputs) {
      access(o.target);
      each_index(o.value, loop);
      if (o.rescale) each_index(*o.rescale, loop);
    }
    spec.operators.push_back(std::move(op));
  }
  for (OpId id : k.gives)
    for (const Output& o : w.op(id).outputs) spec.outputs.push_back(tensor(o.target.tensor));
  rewrite::drop_unneeded(spec);  // of several results, what other kernels' copies give
  return std::make_shared<const Workload>(Workload::create(std::move(spec)));
}

/// The part with every operator of to_inline() that can be computed in its readers, and which those
/// are.
struct Inlined {
  std::shared_ptr<const Workload> part;
  std::vector<OpId> ops;
};
Inlined inlined_part(const Workload& w, const SharedKernel& k) {
  Inlined out{.part = part_of(w, k), .ops = {}};
  for (OpId op : to_inline(w, k)) {
    Result<Workload> less = tilewright::apply("inline:" + w.op(op).name, *out.part);
    if (!less) continue;
    out.part = std::make_shared<const Workload>(std::move(less).value());
    out.ops.push_back(op);
  }
  return out;
}

}  // namespace

OwnCopies own_copies(const std::shared_ptr<const Workload>& w,
                     std::span<const SharedKernel> kernels) {
  OwnCopies out{.rewrites = {}, .workload = w, .kernels = {}};
  Copier copier(*w, kernels);
  const auto rewrite_by = [&out](std::string name) {
    Result<Workload> changed = tilewright::apply(name, *out.workload);
    if (!changed) return false;
    out.workload = std::make_shared<const Workload>(std::move(changed).value());
    out.rewrites.push_back(std::move(name));
    return true;
  };
  if (const std::string copies = copier.argument(); !copies.empty())
    TW_CHECK(rewrite_by("copies:" + copies), "copies of operators that are running");
  std::string names;
  std::vector<std::set<OpId>> gone;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    gone.emplace_back();
    if (to_inline(*w, kernels[k]).empty()) continue;
    for (OpId op : inlined_part(*w, kernels[k]).ops) {
      names += (names.empty() ? "" : ";") + copier.name(op, k);
      gone.back().insert(op);
    }
  }
  if (!names.empty())
    TW_CHECK(rewrite_by("inline:" + names),
             "what a part computes in its readers the whole does not");
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    out.kernels.emplace_back();
    for (OpId op : kernels[k].ops)
      if (!gone[k].contains(op)) out.kernels.back().push_back(copier.name(op, k));
  }
  return out;
}

std::optional<Reason> not_one_kernel(const Workload& w, const SharedKernel& kernel, double ridge,
                                     int most_operators) {
  const Result<Graph> g = Graph::create(inlined_part(w, kernel).part, ridge);
  if (!g) return Reason{g.reason()};
  Pattern all;
  for (int v = 0; v < g->size(); ++v) all.push_back(v);
  if (components_of(*g, all, most_operators)) return std::nullopt;
  return Reason{"no kernel holds both: blocks would need what others make"};
}

Result<KernelsPlanned> planned(const Question& q, const Device& d,
                               std::span<const SharedKernel> kernels, const Options& o) {
  const OwnCopies own = own_copies(q.workload, kernels);
  Result<Graph> made = Graph::create(own.workload, ridge_of(d, o));
  if (!made) return Reason{made.reason()};
  const auto graph = std::make_shared<const Graph>(std::move(made).value());
  std::map<std::string, int> vertex;
  for (int v = 0; v < graph->size(); ++v) vertex[own.workload->op(graph->vertex(v).op).name] = v;
  std::vector<Pattern> patterns;
  for (const std::vector<std::string>& names : own.kernels) {
    patterns.emplace_back();
    for (const std::string& name : names) patterns.back().push_back(vertex.at(name));
    std::ranges::sort(patterns.back());
  }
  std::erase_if(patterns, [](const Pattern& p) { return p.size() < 2; });
  Result<PlanPrice> found = price(*graph, d, patterns, o);
  if (!found) return Reason{found.reason()};
  const auto priced = std::make_shared<const PlanPrice>(std::move(found).value());
  Result<KernelsPlanned> result{KernelsPlanned{}};
  KernelsPlanned& out = result.value();
  out.graph = graph;
  out.patterns = priced->patterns;
  for (const Pattern& p : patterns)
    if (std::ranges::find(priced->patterns, p) == priced->patterns.end()) ++out.taken_apart;
  out.proposal.plan = write_plan(*graph, d, *priced, q.machine).plan;
  out.proposal.level = q.machine->default_level();
  out.proposal.rewrites = own.rewrites;
  out.proposal.choices = [graph, d, priced, o](std::size_t k) {
    std::vector<KernelChoice> choices;
    for (WrittenKernel& one : kernel_choices(*graph, d, *priced, k, o))
      choices.push_back({.kernel = std::move(one.kernel), .note = std::move(one.without_units)});
    return choices;
  };
  return result;
}

}  // namespace tilewright::stitching
