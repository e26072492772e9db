#include "core/plan/loop_translation.h"

#include <algorithm>

namespace tilewright {

namespace {

bool depends_on_the_past(const ScheduledKernel& k) {
  if (!k.zeroed.empty()) return true;
  for (const Buffer& b : k.buffers)
    if (b.sliding || b.atomic) return true;
  return std::any_of(k.nodes.begin(), k.nodes.end(), [](const ScheduleNode& n) {
    return n.once || n.atomic ||
           std::any_of(n.writes.begin(), n.writes.end(),
                       [](const OutputUse& w) { return w.atomic; });
  });
}

bool within(const ScheduledKernel& k, NodeId node, NodeId loop) {
  for (; node.valid(); node = k.node(node).parent)
    if (node == loop) return true;
  return false;
}

class Analysis {
 public:
  Analysis(const Schedule& s, const AddressMap& map, const LoopPoint& point)
      : s_(s),
        w_(*s.workload),
        k_(s.kernels[static_cast<std::size_t>(point.kernel)]),
        map_(map),
        point_(point),
        regions_(map.regions()),
        moved_(w_.tensors().size()) {
    result_.bytes.assign(regions_.size(), 0);
    result_.touched.assign(regions_.size(), false);
  }

  std::optional<LoopTranslation> run() {
    if (point_.count < 3 || depends_on_the_past(k_) || !ranges_move_evenly()) return std::nullopt;
    for (std::size_t n = 0; n < k_.nodes.size(); ++n) {
      const ScheduleNode& node = k_.nodes[n];
      if (node.kind != NodeKind::compute || !within(k_, NodeId(n), point_.loop)) continue;
      if (w_.gathers(node.op)) return std::nullopt;  // what is read, values say
      const Operator& op = w_.op(node.op);
      for (const LoopId l : w_.reduction_loops(node.op)) {
        const auto local = static_cast<std::size_t>(w_.local_index(node.op, l));
        if (step_[k_.range_base[node.op.index()] + local] != 0) result_.first = 1;
      }
      for (const InputUse& use : node.reads)
        for (const int input : use.inputs)
          if (!add(node.op, op.inputs[static_cast<std::size_t>(input)], use.buffer))
            return std::nullopt;
      for (const OutputUse& use : node.writes)
        if (!add(node.op, op.outputs[static_cast<std::size_t>(use.output)].target, use.buffer))
          return std::nullopt;
    }
    return std::move(result_);
  }

 private:
  /// Inside an iteration's body.
  Ranges inside(std::int64_t iteration) const {
    Ranges r = *point_.around;
    cut(k_, point_.loop, iteration, *point_.around, r);
    for (const Inference& i : k_.node(point_.loop).infer) infer(s_, k_, i, r);
    return r;
  }

  bool ranges_move_evenly() {
    begin_ = inside(0);
    end_ = inside(point_.count - 2);
    const Ranges second = inside(1);
    step_.resize(begin_.size());
    for (std::size_t i = 0; i < begin_.size(); ++i) {
      const std::int64_t step = second[i].lo - begin_[i].lo;
      const std::int64_t whole = step * (point_.count - 2);
      if (step < 0 || second[i].hi - begin_[i].hi != step || end_[i].lo - begin_[i].lo != whole ||
          end_[i].hi - begin_[i].hi != whole)
        return false;
      step_[i] = step;
    }
    return true;
  }

  /// How many indices each dimension of an access moves by in an iteration.
  bool steps_of(OpId op, const Access& access, std::vector<std::int64_t>& by) const {
    const std::size_t base = k_.range_base[op.index()];
    for (std::size_t d = 0; d < access.index.size(); ++d) {
      const Affine& index = access.index[d];
      std::int64_t moves = 0;
      for (const Term& t : index.terms) {
        const std::size_t slot = base + static_cast<std::size_t>(w_.local_index(op, t.loop));
        if (step_[slot] == 0) continue;
        // Unclipped, so that the box moves as its loop does.
        if (!index.plain_loop() || end_[slot].hi > w_.tensor(access.tensor).shape[d]) return false;
        moves = step_[slot];
      }
      by.push_back(moves);
    }
    return true;
  }

  bool add(OpId op, const Access& access, BufferId buffer) {
    std::vector<std::int64_t> by;
    if (!steps_of(op, access, by)) return false;
    auto& before = moved_[access.tensor.index()];
    if (before && *before != by) return false;  // boxes that hold both would not just move
    before = by;
    const BufferId array = map_.array_of(point_.kernel, buffer);
    const auto bytes = array.valid() ? in_array(array, by) : at_home(op, access, by);
    if (!bytes) return false;
    const std::size_t region = region_of(access.tensor, array);
    if (result_.touched[region] && result_.bytes[region] != *bytes) return false;
    result_.touched[region] = true;
    result_.bytes[region] = *bytes;
    return true;
  }

  std::optional<std::int64_t> at_home(OpId op, const Access& access,
                                      const std::vector<std::int64_t>& by) const {
    const Operator& o = w_.op(op);
    const Box all = hull(footprint(w_, o, access, ranges_of(s_, k_, begin_, op)),
                         footprint(w_, o, access, ranges_of(s_, k_, end_, op)));
    return map_.translation(access.tensor, by, all);
  }

  /// A tile that is fixed within the loop moves with its boxes; one from outside it stays.
  std::optional<std::int64_t> in_array(BufferId array, const std::vector<std::int64_t>& by) const {
    const NodeId fixed = k_.buffer(array).fixed_at;
    if (!fixed.valid()) return std::nullopt;
    if (within(k_, fixed, point_.loop)) return 0;
    return map_.packed_translation(point_.kernel, array, point_.tiles[array.index()], by);
  }

  std::size_t region_of(TensorId tensor, BufferId array) const {
    const auto at =
        std::find_if(regions_.begin(), regions_.end(), [&](const AddressMap::Region& r) {
          return array.valid() ? r.kernel == point_.kernel && r.buffer == array
                               : r.kernel < 0 && r.tensor == tensor;
        });
    TW_CHECK(at != regions_.end(), "an access to what lies nowhere");
    return static_cast<std::size_t>(at - regions_.begin());
  }

  const Schedule& s_;
  const Workload& w_;
  const ScheduledKernel& k_;
  const AddressMap& map_;
  const LoopPoint& point_;
  std::vector<AddressMap::Region> regions_;
  Ranges begin_, end_;              // inside the first iteration and the last but one
  std::vector<std::int64_t> step_;  // by slot of a Ranges
  std::vector<std::optional<std::vector<std::int64_t>>> moved_;  // by tensor
  LoopTranslation result_;
};

}  // namespace

std::optional<LoopTranslation> translation_of(const Schedule& s, const AddressMap& map,
                                              const LoopPoint& point) {
  return Analysis(s, map, point).run();
}

std::optional<LoopRun> run_of(const Schedule& s, const AddressMap& map, const LoopPoint& point) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(point.kernel)];
  if (depends_on_the_past(k)) return std::nullopt;
  LoopRun run{.count = point.count};
  const auto add_tile = [&](BufferId buffer) {
    const BufferId array = map.array_of(point.kernel, buffer);
    if (array.valid() && !within(k, k.buffer(array).fixed_at, point.loop))
      run.tiles.push_back(point.tiles[array.index()]);
  };
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    const ScheduleNode& node = k.nodes[n];
    if (node.kind != NodeKind::compute || !within(k, NodeId(n), point.loop)) continue;
    if (s.workload->gathers(node.op)) return std::nullopt;
    const auto ranges = ranges_of(s, k, *point.around, node.op);
    run.ranges.insert(run.ranges.end(), ranges.begin(), ranges.end());
    for (const InputUse& use : node.reads) add_tile(use.buffer);
    for (const OutputUse& use : node.writes) add_tile(use.buffer);
  }
  return run;
}

}  // namespace tilewright
