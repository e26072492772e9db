// Trees for a product whose right operand is images with their channels side by side, as
// lowering/gpu/warpgroup_points.cpp has them: blocks of rows and of points that follow one another,
// taps of the window one by one around the channels. A block has one group of channels.
#include <algorithm>

#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "models/quickest/gpu.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {
namespace {

constexpr std::int64_t kMostPoints = 256;         // of an instruction's columns
constexpr std::size_t kMostParts = 6;             // chosen: of a loop, to try
constexpr std::int64_t kRow = 128, kRowsAt = 16;  // bytes of a box's row, and where rows begin

struct Images {
  LoopId rows, channel, group;
  std::vector<LoopId> points, taps;  ///< innermost first
  bool beside = false;  ///< the innermost taps lie beside few channels: all of them at once
};

/// Whether a row of the window is one piece of the image and of the weights, as
/// lowering/gpu/warpgroup_points.cpp has it of few channels.
bool taps_beside(const Workload& w, const Access& left, const Access& right, const Images& of) {
  const std::size_t d = right.index.size() - 2;
  const Tensor& image = w.tensor(right.tensor);
  const std::int64_t pixel = image.shape.back(), size = size_of(image.dtype);
  if (of.group.valid() || of.taps.empty() || right.index[d].offset != 0 || left.index.size() < 2 ||
      left.index[left.index.size() - 2].plain_loop() != of.taps.front() ||
      w.tensor(left.tensor).shape.back() != pixel || w.loop(of.channel).extent != pixel)
    return false;
  std::int64_t reach = 0, taps = 0, step = 0;
  for (const Term& t : right.index[d].terms) {
    reach += t.coefficient * (w.loop(t.loop).extent - 1);
    if (t.loop == of.taps.front()) taps = t.coefficient == 1 ? w.loop(t.loop).extent : 0;
    if (t.loop == of.points.front()) step = t.coefficient;
  }
  return taps > 0 && step * pixel * size > 0 && step * pixel * size % kRowsAt == 0 &&
         taps * pixel * size <= kRow && reach < image.shape[d];
}

std::optional<Images> images_of(const Workload& w, const Operator& op) {
  if (op.inputs.size() != 2 || op.outputs.size() != 1) return std::nullopt;
  const Access& out = op.outputs.front().target;
  const auto of_result = [&](const Access& a) {
    return std::ranges::count_if(op.loops, [&](LoopId l) {
      return w.loop(l).extent > 1 && indexes(out, l) && indexes(a, l);
    });
  };
  const bool first = of_result(op.inputs[0]) > of_result(op.inputs[1]);
  const Access &right = op.inputs[first ? 0 : 1], &left = op.inputs[first ? 1 : 0];
  Images found;
  if (right.index.empty()) return std::nullopt;
  for (const LoopId l : op.loops) {
    if (w.loop(l).extent == 1 || !indexes(out, l) || !indexes(left, l)) continue;
    LoopId& of_left = indexes(right, l) ? found.group : found.rows;
    if (of_left.valid()) return std::nullopt;
    of_left = l;
  }
  for (const Term& t : right.index.back().terms) {
    if (t.loop == found.group) continue;
    if (found.channel.valid() || t.coefficient != 1) return std::nullopt;
    found.channel = t.loop;
  }
  if (!found.channel.valid() || indexes(out, found.channel) || w.loop(found.channel).extent == 1)
    return std::nullopt;
  for (std::size_t d = right.index.size() - 1; d-- > 0;)
    for (const Term& t : right.index[d].terms)
      if (w.loop(t.loop).extent > 1 && t.loop != found.group)
        (indexes(out, t.loop) ? found.points : found.taps).push_back(t.loop);
  if (!found.rows.valid() || found.points.empty()) return std::nullopt;
  found.beside = taps_beside(w, left, right, found);
  return found;
}

/// Parts of a loop of at most `most`, for each number of blocks the smallest; the largest last.
std::vector<std::int64_t> parts_of(std::int64_t extent, std::int64_t most) {
  std::vector<std::int64_t> parts;
  for (std::int64_t blocks = ceil_div(extent, most); parts.size() < kMostParts; ++blocks) {
    const std::int64_t part = ceil_div(extent, blocks);
    if (parts.empty() || part < parts.back()) parts.push_back(part);
    if (part == 1) break;
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace

std::vector<Form> image_forms(const Workload& w, const std::vector<GpuProduct>& products) {
  const auto order = w.topological_order();
  if (products.size() != 1 || w.op(order.front()).name != products.front().op) return {};
  const auto images = images_of(w, w.op(order.front()));
  if (!images) return {};
  std::vector<std::string> operators, stored;
  for (const OpId op : order) {
    if (op != order.front() && !w.reduction_loops(op).empty()) return {};
    operators.push_back(w.op(op).name);
    for (const Output& o : w.op(op).outputs)
      if (w.is_output(o.target.tensor)) stored.push_back(w.tensor(o.target.tensor).name);
  }
  const auto name = [&](LoopId l) { return w.loop(l).name; };
  const auto extent = [&](LoopId l) { return w.loop(l).extent; };
  // The outermost loop of the window that has several taps: a cluster's blocks may have one each.
  std::optional<std::string> shared;
  for (const LoopId tap : images->taps) shared = name(tap);
  if (shared && (order.size() > 1 || extent(*w.find_loop(*shared)) > lowering::kMostShare))
    shared.reset();
  std::vector<Form> forms;
  std::int64_t inside = 1;  // points of the loops within
  for (std::size_t d = 0; d < images->points.size() && inside < kMostPoints; ++d) {
    const LoopId cut = images->points[d];
    for (const bool share : {false, true}) {
      if (share && !shared) continue;
      Form f;
      f.variables.push_back({name(cut), parts_of(extent(cut), kMostPoints / inside)});
      f.variables.back().at = f.variables.back().steps.size() - 1;
      Variable rows{name(images->rows), {}};
      for (const std::int64_t r : {64, 128, 192, 256})
        if (rows.steps.empty() || r < round_up(extent(images->rows), 64) + 64)
          rows.steps.push_back(std::min<std::int64_t>(r, extent(images->rows)));
      rows.at = std::min<std::size_t>(1, rows.steps.size() - 1);
      f.variables.push_back(rows);
      f.variables.push_back({"", share || images->group.valid()
                                     ? std::vector<std::int64_t>{1}
                                     : std::vector<std::int64_t>{1, 2, 4}});
      f.kernel = [=, &w](const std::vector<Variable>& all) {
        std::vector<std::pair<const Variable*, Binding>> blocks, within;
        std::vector<Variable> fixed;
        fixed.reserve(images->points.size() + images->taps.size() + 2);
        if (images->group.valid()) {
          fixed.push_back({name(images->group), {1}});
          blocks.emplace_back(&fixed.back(), Binding::grid);
        }
        for (std::size_t i = images->points.size(); i-- > 0;) {
          const LoopId l = images->points[i];
          if (i != d) fixed.push_back({name(l), {i < d ? w.loop(l).extent : 1}});
          blocks.emplace_back(i == d ? &all[0] : &fixed.back(), Binding::grid);
        }
        blocks.emplace_back(&all[1], Binding::grid);
        for (std::size_t i = images->taps.size(); i-- > (images->beside ? 1 : 0);) {
          fixed.push_back({name(images->taps[i]), {1}});
          within.emplace_back(&fixed.back(), share && fixed.back().loop == *shared
                                                 ? Binding::cluster
                                                 : Binding::seq);
        }
        fixed.push_back(
            {name(images->channel), {std::min<std::int64_t>(64, w.loop(images->channel).extent)}});
        within.emplace_back(&fixed.back(), Binding::seq);
        std::vector<Node> body;
        for (const std::string& op : operators)
          body.push_back(op == operators.front() ? nest(within, compute(op)) : compute(op));
        for (const std::string& t : stored) body.push_back(store(t));
        Kernel k{.name = operators.front(), .tree = nest(blocks, sequence(std::move(body)))};
        if (all[2].step() > 1) k.launch.cluster = static_cast<int>(all[2].step());
        return k;
      };
      forms.push_back(std::move(f));
    }
    inside *= extent(cut);
  }
  return forms;
}

std::vector<std::string> channels_to_try(const Workload& w) {
  std::vector<std::string> names;
  for (const OpId op : channels_to_be_last(w)) {
    const DType type = w.tensor(w.op(op).inputs.front().tensor).dtype;
    if (type == DType::f16 || type == DType::bf16) names.push_back(w.op(op).name);
  }
  return names;
}

}  // namespace tilewright::quickest
