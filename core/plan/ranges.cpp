// Ranges of operators and tiles of tensors at a point of the walk (plan.md, "Ranges and tiles").
#include "core/plan/schedule.h"

namespace tilewright {

namespace {

std::span<const Interval> at(const Schedule& s, const ScheduledKernel& k, const Ranges& r, OpId op) {
  return ranges_of(s, k, r, op);
}

Box access_box(const Schedule& s, const ScheduledKernel& k, ReadRef read, const Ranges& r) {
  const Operator& op = s.workload->op(read.op);
  return footprint(*s.workload, op, op.inputs[static_cast<std::size_t>(read.input)],
                   at(s, k, r, read.op));
}

Box hull_of(const Schedule& s, const ScheduledKernel& k, std::span<const ReadRef> reads,
            const Ranges& r) {
  Box box = access_box(s, k, reads.front(), r);
  for (const ReadRef& read : reads.subspan(1)) box = hull(box, access_box(s, k, read, r));
  return box;
}

/// The hull of the reads with the ranges after inferences still to come further in.
Box hull_ahead(const Schedule& s, const ScheduledKernel& k, std::span<const ReadRef> reads,
               std::span<const Inference> lookahead, const Ranges& r) {
  if (lookahead.empty()) return hull_of(s, k, reads, r);
  Ranges ahead = r;
  for (const Inference& i : lookahead) infer(s, k, i, ahead);
  return hull_of(s, k, reads, ahead);
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
  const Operator& producer = s.workload->op(inference.producer);
  const Access& target = producer.outputs[static_cast<std::size_t>(inference.output)].target;
  for (int d = 0; d < need.rank(); ++d) {
    const auto loop = target.index[static_cast<std::size_t>(d)].plain_loop();
    if (!loop) continue;
    const int local = s.workload->local_index(inference.producer, *loop);
    Interval& range =
        r[k.range_base[inference.producer.index()] + static_cast<std::size_t>(local)];
    range = inference.merge ? hull(range, need[d]) : need[d];
  }
  return region;
}

Box load_box(const Schedule& s, const ScheduledKernel& k, NodeId load, const Ranges& r) {
  const ScheduleNode& n = k.node(load);
  return hull_ahead(s, k, n.reads_below, n.lookahead, r);
}

Box tile_of(const Schedule& s, const ScheduledKernel& k, const Buffer& b, const Ranges& r) {
  if (!b.reads.empty()) return hull_ahead(s, k, b.reads, b.lookahead, r);
  Ranges ahead = r;
  for (const Inference& i : b.lookahead) infer(s, k, i, ahead);
  Box box = write_box(s, k, b.writes.front().first, b.writes.front().second, ahead);
  for (std::size_t i = 1; i < b.writes.size(); ++i)
    box = hull(box, write_box(s, k, b.writes[i].first, b.writes[i].second, ahead));
  return box;
}

Box read_box(const Schedule& s, const ScheduledKernel& k, OpId op, const InputUse& use,
             const Ranges& r) {
  Box box = access_box(s, k, {op, use.inputs.front()}, r);
  for (std::size_t i = 1; i < use.inputs.size(); ++i)
    box = hull(box, access_box(s, k, {op, use.inputs[i]}, r));
  return box;
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
  std::int64_t sum = 0;
  for (NodeId c : n.children) {
    const ScheduleNode& child = k.node(c);
    const std::int64_t own = child.binding == Binding::grid ? child.max_trips : 1;
    const std::int64_t blocks = own * blocks_below(k, c);
    most = std::max(most, blocks);
    sum += blocks;
  }
  return n.kind == NodeKind::pack ? sum : most;
}

std::int64_t gathered_elements(const Schedule& s, const ScheduledKernel& k, OpId op, int input,
                               const Ranges& r) {
  const Operator& o = s.workload->op(op);
  std::int64_t n = 1;
  for (int l : gather_loops(o, o.inputs[static_cast<std::size_t>(input)]))
    n *= at(s, k, r, op)[static_cast<std::size_t>(l)].size();
  return n;
}

Operations operations(const Schedule& s, const ScheduledKernel& k, OpId op, const Ranges& r) {
  std::int64_t n = 1;
  for (const Interval& i : at(s, k, r, op)) n *= i.size();
  return Operations(n);
}

}  // namespace tilewright
