// Sums, products and extremes of many points that have few results, in two steps: of parts that do
// not wait for one another, and of these.
//
//   s[] += square(x[m,n])     =>     s_part[m] += square(x[m,n])
//                                    s[]       += s_part[m]
//
//   d[] += x[n] * y[n]        =>     d_part[no] += x[1024*no+ni] * y[1024*no+ni]
//                                    d[]        += d_part[no]
//
// Outer loops tell the parts apart; where these are too few or too many, one is cut into chunks.
// Behind the end of a ragged chunk a tensor reads as zero. Where the points are not zero there,
// they are chosen by their index.
#include <algorithm>
#include <limits>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"
#include "core/workload/rewrite/build.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// So few results leave units of a machine without work.
constexpr std::int64_t kFewResults = 32;
/// Points of a result that are worth a second step.
constexpr double kManyPoints = 16'384;
/// Parts: these many are enough, these many too many, and where a loop is cut about so many.
constexpr std::int64_t kEnough = 512, kTooMany = 4096, kParts = 2048;
/// Iterations of a chunk of elements that lie side by side: a multiple of these, two at least.
constexpr std::int64_t kSideBySide = 64;

/// Loops of the sum of which each part has one iteration, and the next of them in chunks.
struct Parts {
  std::vector<LoopId> kept;
  LoopId cut;
  std::int64_t length = 1;
};

bool side_by_side(const Operator& op, LoopId l) {
  return std::ranges::any_of(op.inputs, [l](const Access& a) {
    return !a.index.empty() && a.index.back().plain_loop() == l;
  });
}

/// The length nearest to a wanted one that divides the extent; a multiple of `grain`.
std::int64_t length_near(std::int64_t extent, std::int64_t wanted, std::int64_t grain) {
  wanted = round_up(wanted, grain);
  for (std::int64_t off = 0; 2 * off < wanted; off += grain)
    for (const std::int64_t length : {wanted + off, wanted - off})
      if (extent % length == 0) return length;
  return wanted;
}

std::optional<Parts> parts_of(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (op.running || w.gathers(id) || op.outputs.size() != 1) return std::nullopt;
  const Output& out = op.outputs.front();
  const DType type = w.tensor(out.target.tensor).dtype;
  if (out.combine == Combine::assign || out.rescale || names_outputs(out.value) ||
      type == DType::i8)
    return std::nullopt;
  double results = 1, points = 1;
  for (const Affine& i : out.target.index) {
    if (!i.terms.empty() && !i.plain_loop()) return std::nullopt;
    if (const auto l = i.plain_loop()) results *= static_cast<double>(w.loop(*l).extent);
  }
  const auto over = w.reduction_loops(id);
  for (const LoopId l : over) points *= static_cast<double>(w.loop(l).extent);
  if (results > kFewResults || points < kManyPoints) return std::nullopt;
  Parts found;
  std::int64_t parts = 1;
  for (const LoopId l : op.loops) {
    if (std::ranges::find(over, l) == over.end()) continue;
    const std::int64_t extent = w.loop(l).extent;
    if (extent <= kTooMany / parts && l != over.back()) {
      parts *= extent;
      found.kept.push_back(l);
      if (parts >= kEnough) return found;
      continue;
    }
    const std::int64_t grain = side_by_side(op, l) ? kSideBySide : 1;
    found.length = length_near(
        extent, std::max(2 * grain, ceil_div(extent, std::max<std::int64_t>(1, kParts / parts))),
        grain);
    if (found.length < extent) found.cut = l;
    break;
  }
  if (!found.cut.valid() && found.kept.empty()) return std::nullopt;
  return found;
}

/// Whether the operator's value is zero where the loop is behind its end, as all that it indexes
/// is, if what it reads is finite.
bool is_zero_behind(const Workload& w, const Operator& op, const Expr& e, LoopId l) {
  const auto zero = [&](int input) {
    const Access& a = op.inputs[static_cast<std::size_t>(input)];
    for (std::size_t d = 0; d < a.index.size(); ++d)
      if (a.index[d].plain_loop() == l && w.tensor(a.tensor).shape[d] == w.loop(l).extent)
        return true;
    return false;
  };
  return rewrite::vanishes(e, zero, [](int) { return true; });
}

double neutral(Combine c) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return c == Combine::sum       ? 0
         : c == Combine::product ? 1
         : c == Combine::max     ? -kInfinity
                                 : kInfinity;
}

/// The operator of the parts; `op` joins them from then on.
std::optional<Reason> split(const Workload& w, WorkloadSpec& spec, Operator& op, const Parts& parts,
                            std::vector<Operator>& all) {
  Operator first = op;
  Output& own = first.outputs.front();
  std::vector<LoopId> loops = parts.kept;
  if (parts.cut.valid()) {
    const Loop whole = w.loop(parts.cut);
    rewrite::CutLoop cut{.whole = parts.cut, .length = parts.length};
    cut.chunk = rewrite::add_loop(spec, whole.name + "o", ceil_div(whole.extent, parts.length));
    cut.within = rewrite::add_loop(spec, whole.name + "i", parts.length);
    loops.push_back(cut.chunk);
    const bool ragged = whole.extent % parts.length != 0,
               zero = own.combine == Combine::sum && is_zero_behind(w, op, own.value, parts.cut);
    cut.cut(own.value);
    if (ragged && !zero) {
      if (whole.extent > rewrite::kExactInF32)
        return Reason{formatted("loop {} has {} iterations, and indices past {} are not exact",
                                whole.name, whole.extent, rewrite::kExactInF32)};
      own.value = cut.until(whole.extent, std::move(own.value), neutral(own.combine));
    }
    for (Access& a : first.inputs) std::ranges::for_each(a.index, [&](Affine& i) { cut.cut(i); });
  }
  const Tensor& result = spec.tensors[own.target.tensor.index()];
  Tensor part{
      .name = rewrite::unused(spec.tensors, result.name + "_part"),
      .dtype = result.dtype == DType::f64 || is_integer(result.dtype) ? result.dtype : DType::f32};
  Access access{.tensor = TensorId(spec.tensors.size())};
  for (const Affine& i : own.target.index)
    if (const auto l = i.plain_loop()) loops.push_back(*l);
  for (const LoopId l : loops) {
    access.index.push_back({.terms = {{.loop = l}}});
    part.shape.push_back(spec.loops[l.index()].extent);
  }
  spec.tensors.push_back(std::move(part));
  first.name = rewrite::unused(spec.operators, op.name + "_part");
  own.target = access;
  rewrite::name_loops(first);
  spec.operators.push_back(first);  // its name is taken
  all.push_back(std::move(first));
  op.inputs = {std::move(access)};
  op.outputs.front().value = rewrite::read(0);
  rewrite::name_loops(op);
  return std::nullopt;
}

Result<Workload> with_parts(const Workload& w, std::string_view text) {
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names)
    if (!parts_of(w, rewrite::operator_named(w, name, "split-sums:OP;OP")))
      return Reason{formatted("operator {} is no sum of {} points or more with {} results or fewer",
                              name, static_cast<std::int64_t>(kManyPoints), kFewResults)};
  WorkloadSpec spec = w.spec();
  std::vector<Operator> all;
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    Operator op = spec.operators[i];
    if (std::ranges::find(names, op.name) != names.end())
      if (auto why = split(w, spec, op, *parts_of(w, OpId(i)), all)) return *why;
    all.push_back(std::move(op));
  }
  spec.operators = std::move(all);
  // A loop that was cut may have no operator any more.
  rewrite::drop(spec, std::vector<bool>(spec.operators.size()));
  return Workload::create(std::move(spec));
}

}  // namespace

std::vector<OpId> sums_to_split(const Workload& w) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (parts_of(w, OpId(i))) found.emplace_back(i);
  return found;
}

Rewrite split_sums() {
  return {
      .name = "split-sums",
      .summary =
          "sums, products and extremes of many points that have few results are taken of parts "
          "first, which do not wait for one another, and then of these",
      .source = "reductions in two passes, as Harris, Optimizing Parallel Reduction in CUDA, 2007",
      .function = nullptr,
      .argument = "OP;OP",
      .with = with_parts};
}

}  // namespace tilewright
