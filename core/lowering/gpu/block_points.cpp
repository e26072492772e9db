// How threads share an operator's points where it is carried out point by point, on tiles in shared
// memory: which neighbours one takes at once, and who adds up what of a point's sum.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kCounted = 1 << 20;
constexpr std::int64_t kLanesOfWarp = 32;
constexpr std::int64_t kMostAtOnce = 8;  // points of a thread
constexpr double kSome = 1.2;            // how much longer a point takes where not all exist

/// Functions of an expression.
double calls(const Expr& e) {
  double n = e.kind == Expr::Kind::call ? 1 : 0;
  for (const Expr& a : e.args) n += calls(a);
  return n;
}

/// Whether results are read before they are made.
bool runs(const Output& o) { return o.rescale || names_outputs(o.value); }

/// By about as many instructions as turns and joining take. `width`: points of a sum that are taken
/// at once; `compute`: instructions of one of them.
void share(BlockPoints& p, std::int64_t points, std::int64_t sum, std::int64_t width,
           double compute, std::int64_t threads, std::span<const PointBlock> blocks) {
  double least = std::numeric_limits<double>::infinity();
  for (const PointBlock& b : blocks) {
    if (b.block > 1 && b.alike == 0) continue;
    for (std::int64_t members = 1; members <= threads; members *= 2) {
      if (members > 1 && (members * width > sum || threads % members != 0 ||
                          (b.block > 1 && members > kLanesOfWarp)))
        continue;
      const double turns = static_cast<double>(ceil_div(sum, members * width)),
                   rounds = static_cast<double>(ceil_div(points / b.block * members, threads)),
                   block = static_cast<double>(b.block);
      const double of_turn =
          b.alike * kOfPointRead +
          b.some * block * (b.own * kOfPointRead + compute * static_cast<double>(width));
      const double cost =
          rounds *
          (turns * of_turn +
           block * kOfPointJoin * std::log2(static_cast<double>(std::min(members, kLanesOfWarp))) +
           (members > kLanesOfWarp ? kOfPointExchange : 0) + kOfPointRound);
      if (cost >= least) continue;
      least = cost;
      p.at_once = b, p.members = members;
    }
  }
}

}  // namespace

/// Whether an access's neighbours along a loop are neighbours in its tile, kStripOfPoints of them
/// from where one of 16 bytes, or of 8, begins.
bool BlockLowering::runs_along_rows(OpId op, const Access& a, BufferId b, int loop,
                                    const PointRanges& of) const {
  const LoopId l = workload_.op(op).loops[static_cast<std::size_t>(loop)];
  if (!b.valid() || a.index.empty() || is_gather(a) || tile(b).in_registers()) return false;
  const Affine& last = a.index.back();
  return last.terms.size() == 1 && last.terms.front().loop == l &&
         last.terms.front().coefficient == 1 && last.offset >= 0 &&
         last.offset + workload_.loop(l).extent <= workload_.tensor(a.tensor).shape.back() &&
         std::none_of(a.index.begin(), a.index.end() - 1,
                      [&](const Affine& i) { return indexes(i, l); }) &&
         of.begins(a, b, loop) % kStripOfPoints == 0;
}

/// The longest loop of a sum, or that of the results' columns where there are enough points for all
/// threads.
void BlockLowering::choose_strip(NodeId compute, const PointRanges& of, BlockPoints& p) const {
  const ScheduleNode& n = k_.node(compute);
  const Operator& op = workload_.op(n.op);
  if (f64_ || choices_.tight) return;  // rows begin anywhere
  const auto most = [&](int l) { return of.most[static_cast<std::size_t>(l)]; };
  const auto whole = [&](int l) {
    return most(l) >= kStripOfPoints && of.divides(l) % kStripOfPoints == 0;
  };
  const auto inputs_along = [&](int l) {
    std::vector<bool> along(op.inputs.size());
    for (std::size_t i = 0; i < along.size(); ++i)
      along[i] =
          runs_along_rows(n.op, op.inputs[i], buffer_of_input(n, static_cast<int>(i)), l, of);
    return along;
  };
  std::int64_t points = 1;
  bool reduces = false;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const int at = static_cast<int>(l);
    if (!workload_.is_reduction(n.op, op.loops[l])) {
      points = std::min(kCounted, points * most(at));
      continue;
    }
    reduces = true;
    if (!whole(at) || (p.strip >= 0 && most(at) <= most(p.strip))) continue;
    std::vector<bool> inputs = inputs_along(at);
    if (std::ranges::find(inputs, true) != inputs.end()) p.strip = at, p.inputs = std::move(inputs);
  }
  if (reduces) return;
  const Access& target = output_of(compute, 0).target;
  if (target.index.empty() || points < kStripOfPoints * program_.threads()) return;
  const auto loop = target.index.back().plain_loop();
  if (!loop) return;
  const int at = workload_.local_index(n.op, *loop);
  if (!whole(at)) return;
  for (std::size_t w = 0; w < n.writes.size(); ++w) {
    const Output& out = output_of(compute, static_cast<int>(w));
    if (out.combine != Combine::assign || runs(out) ||
        !runs_along_rows(n.op, out.target, n.writes[w].buffer, at, of))
      return;
  }
  p.strip = at, p.inputs = inputs_along(at);
}

BlockPoints BlockLowering::points_of(NodeId compute, const PointRanges& of) {
  const ScheduleNode& n = k_.node(compute);
  const Operator& op = workload_.op(n.op);
  BlockPoints p;
  choose_strip(compute, of, p);
  p.at_once.own = static_cast<double>(op.inputs.size());
  std::int64_t points = 1, sum = 1;
  std::vector<int> outer;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const bool added = workload_.is_reduction(n.op, op.loops[l]);
    if (!added) outer.push_back(static_cast<int>(l));
    std::int64_t& count = added ? sum : points;
    count = std::min(kCounted, count * of.most[l]);
  }
  if (outer.size() == op.loops.size()) return p;
  double compute_each = 1;
  for (const OutputUse& w : n.writes)
    compute_each += calls(op.outputs[static_cast<std::size_t>(w.output)].value);
  std::vector<PointBlock> blocks{p.at_once};
  if (p.strip >= 0 && n.writes.size() == 1 && std::ranges::none_of(op.outputs, runs))
    for (const int l : outer)
      for (std::int64_t block = 2; block <= kMostAtOnce; ++block) {
        if (of.most[static_cast<std::size_t>(l)] % block != 0) continue;
        PointBlock b{.loop = l, .block = block, .some = of.divides(l) % block == 0 ? 1 : kSome};
        for (std::size_t i = 0; i < op.inputs.size(); ++i)
          (p.inputs[i] && !indexes(op.inputs[i], op.loops[static_cast<std::size_t>(l)]) ? b.alike
                                                                                        : b.own) +=
              1;
        blocks.push_back(b);
      }
  share(p, points, sum, p.strip >= 0 ? kStripOfPoints : 1, compute_each, program_.threads(),
        blocks);
  if (p.members > kLanesOfWarp)
    note_parts(program_.threads() / kLanesOfWarp * (f64_ ? 2 : 1) *
               static_cast<std::int64_t>(n.writes.size()));
  return p;
}

}  // namespace tilewright::lowering
