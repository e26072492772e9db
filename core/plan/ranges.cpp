// Ranges of operators and tiles of tensors at a point of the walk (plan.md, "Ranges and tiles").
#include <map>

#include "core/plan/schedule.h"
#include "core/workload/access.h"

namespace tilewright {

namespace {

std::span<const Interval> at(const Schedule& s, const ScheduledKernel& k, const Ranges& r,
                             OpId op) {
  return ranges_of(s, k, r, op);
}

/// Ranges around, with those of a few operators as they will be further in.
class Ahead {
 public:
  Ahead(const Schedule& s, const ScheduledKernel& k, const Ranges& around)
      : s_(s), k_(k), around_(around) {}
  std::span<const Interval> of(OpId op) const {
    const auto changed = changed_.find(op);
    if (changed != changed_.end()) return changed->second;
    return at(s_, k_, around_, op);
  }
  void infer(const Inference& i);
  Box hull_of(std::span<const ReadRef> reads) const {
    Box box = access(reads.front());
    for (const ReadRef& read : reads.subspan(1)) box = hull(box, access(read));
    return box;
  }

 private:
  Box access(ReadRef read) const {
    const Operator& op = s_.workload->op(read.op);
    return footprint(*s_.workload, op, op.inputs[static_cast<std::size_t>(read.input)],
                     of(read.op));
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Ranges& around_;
  std::map<OpId, std::vector<Interval>> changed_;
};

/// Makes the box that is needed the producer's ranges.
void narrow(const Workload& w, const Inference& i, const Box& need, std::span<Interval> ranges) {
  const Access& target = w.op(i.producer).outputs[static_cast<std::size_t>(i.output)].target;
  for (int d = 0; d < need.rank(); ++d) {
    const auto loop = target.index[static_cast<std::size_t>(d)].plain_loop();
    if (!loop) continue;
    Interval& range = ranges[static_cast<std::size_t>(w.local_index(i.producer, *loop))];
    range = i.merge ? hull(range, need[d]) : need[d];
  }
}

void Ahead::infer(const Inference& i) {
  const Box need = hull_of(i.reads);
  const auto now = of(i.producer);
  auto& ranges = changed_.try_emplace(i.producer, now.begin(), now.end()).first->second;
  narrow(*s_.workload, i, need, ranges);
}

/// The hull of the reads with the ranges after inferences still to come further in.
Box hull_ahead(const Schedule& s, const ScheduledKernel& k, std::span<const ReadRef> reads,
               std::span<const Inference> lookahead, const Ranges& r) {
  Ahead ahead(s, k, r);
  for (const Inference& i : lookahead) ahead.infer(i);
  return ahead.hull_of(reads);
}

}  // namespace

Ranges whole_ranges(const Schedule& s, const ScheduledKernel& k) {
  Ranges r(k.range_count);
  for (OpId op : k.ops) {
    std::size_t slot = k.range_base[op.index()];
    for (LoopId l : s.workload->op(op).loops) r[slot++] = {0, s.workload->loop(l).extent};
  }
  return r;
}

std::int64_t trips(const ScheduledKernel& k, NodeId loop, const Ranges& around) {
  const ScheduleNode& n = k.node(loop);
  const OpLoop& first = n.cuts.front();
  const Interval range =
      around[k.range_base[first.op.index()] + static_cast<std::size_t>(first.local)];
  return ceil_div(range.size(), n.step);
}

void cut(const ScheduledKernel& k, NodeId loop, std::int64_t i, const Ranges& around, Ranges& r) {
  const ScheduleNode& n = k.node(loop);
  for (const OpLoop& c : n.cuts) {
    const std::size_t slot = k.range_base[c.op.index()] + static_cast<std::size_t>(c.local);
    const Interval range = around[slot];
    const std::int64_t lo = range.lo + i * n.step;
    r[slot] = {lo, std::min(lo + n.step, range.hi)};
  }
}

Box infer(const Schedule& s, const ScheduledKernel& k, const Inference& inference, Ranges& r,
          const Box* held) {
  const Box region = hull_ahead(s, k, inference.reads, inference.lookahead, r);
  const Box need = inference.sliding && held != nullptr ? new_part(*held, region) : region;
  narrow(*s.workload, inference, need,
         {r.data() + k.range_base[inference.producer.index()],
          s.workload->op(inference.producer).loops.size()});
  return region;
}

Box load_box(const Schedule& s, const ScheduledKernel& k, NodeId load, const Ranges& r) {
  const ScheduleNode& n = k.node(load);
  return hull_ahead(s, k, n.reads_below, n.lookahead, r);
}

Box tile_of(const Schedule& s, const ScheduledKernel& k, const Buffer& b, const Ranges& r) {
  if (!b.reads.empty()) return hull_ahead(s, k, b.reads, b.lookahead, r);
  Ahead ahead(s, k, r);
  for (const Inference& i : b.lookahead) ahead.infer(i);
  Box box;
  for (std::size_t i = 0; i < b.writes.size(); ++i) {
    const auto& [id, output] = b.writes[i];
    const Operator& op = s.workload->op(id);
    const Box written = footprint(
        *s.workload, op, op.outputs[static_cast<std::size_t>(output)].target, ahead.of(id));
    box = i == 0 ? written : hull(box, written);
  }
  return box;
}

Box read_box(const Schedule& s, const ScheduledKernel& k, OpId op, const InputUse& use,
             const Ranges& r) {
  std::vector<ReadRef> reads;
  for (int input : use.inputs) reads.push_back({op, input});
  return Ahead(s, k, r).hull_of(reads);
}

Box write_box(const Schedule& s, const ScheduledKernel& k, OpId op, int output, const Ranges& r) {
  const Operator& o = s.workload->op(op);
  return footprint(*s.workload, o, o.outputs[static_cast<std::size_t>(output)].target,
                   at(s, k, r, op));
}

std::vector<NodeId> unit_loops(const Schedule& s, const ScheduledKernel& k, NodeId place,
                               LevelId level) {
  const Unit owner = s.machine->level(level).private_to;
  std::vector<NodeId> loops;
  for (NodeId n = place; n.valid(); n = k.node(n).parent) {
    const ScheduleNode& node = k.node(n);
    if (node.kind != NodeKind::loop) continue;
    const std::optional<Unit> unit = unit_of(node.binding);
    if (unit && *unit <= owner) loops.push_back(n);
  }
  std::reverse(loops.begin(), loops.end());
  return loops;
}

std::int64_t blocks_below(const ScheduledKernel& k, NodeId node) {
  const ScheduleNode& n = k.node(node);
  std::int64_t most = 1;
  for (NodeId c : n.children) most = std::max(most, k.node(c).first_block + blocks_of(k, c));
  return most;
}

std::int64_t blocks_of(const ScheduledKernel& k, NodeId node) {
  const ScheduleNode& n = k.node(node);
  return (n.binding == Binding::grid ? n.max_trips : 1) * blocks_below(k, node);
}

std::int64_t gathered_elements(const Schedule& s, const ScheduledKernel& k, OpId op, int input,
                               const Ranges& r) {
  const Operator& o = s.workload->op(op);
  return points_named(*s.workload, o, o.inputs[static_cast<std::size_t>(input)], at(s, k, r, op));
}

Operations operations(const Schedule& s, const ScheduledKernel& k, OpId op, const Ranges& r) {
  std::int64_t n = 1;
  for (const Interval& i : at(s, k, r, op)) n *= i.size();
  return Operations(n);
}

}  // namespace tilewright
