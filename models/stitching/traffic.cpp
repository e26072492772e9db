// Which operators kernels compute, and the bytes that they move.
#include <algorithm>
#include <set>

#include "models/model.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {
namespace {

void computed(const Node& n, const Workload& w, std::set<OpId>& ops) {
  if (n.kind == Node::Kind::compute)
    if (const auto op = w.find_op(n.name)) ops.insert(*op);
  for (const Node& c : n.children) computed(c, w, ops);
}

}  // namespace

std::vector<Pattern> patterns_of(const Graph& g, const Plan& plan) {
  const Workload& w = g.workload();
  std::vector<Pattern> out;
  for (const Kernel& k : plan.kernels) {
    std::set<OpId> ops;
    computed(k.tree, w, ops);
    out.emplace_back();
    for (int v = 0; v < g.size(); ++v)
      if (ops.contains(g.vertex(v).op)) out.back().push_back(v);
  }
  return out;
}

Traffic traffic_of(const Machine& machine, const Graph& g, std::span<const Pattern> kernels) {
  const Workload& w = g.workload();
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.machine = machine.name;
  const std::string boundary = boundary_into(machine, machine.default_level());
  std::map<TensorId, TrafficEntry> entries;
  for (const Pattern& kernel : kernels) {
    std::set<TensorId> reads;
    std::set<OpId> own;
    for (int v : kernel) own.insert(g.vertex(v).op);
    for (OpId id : own) {
      const Operator& op = w.op(id);
      for (const Access& a : op.inputs)
        if (!own.contains(w.producer(a.tensor)))
          reads.insert(a.tensor);
      for (const Output& o : op.outputs) {
        const TensorId t = o.target.tensor;
        const bool leaves = w.is_output(t) || std::ranges::any_of(w.consumers(t), [&](OpId c) {
                              return !own.contains(c);
                            });
        if (leaves) entries[t].written += w.tensor(t).bytes();
      }
      traffic.operations[op.name] = w.operations(id);
    }
    const std::vector<OpId> ops(own.begin(), own.end());
    for (TensorId t : reads) entries[t].read += bytes_read(w, t, ops);
  }
  for (auto& [tensor, entry] : entries) {
    entry.tensor = w.tensor(tensor).name;
    entry.boundary = boundary;
    traffic.entries.push_back(std::move(entry));
  }
  return traffic;
}

}  // namespace tilewright::stitching
