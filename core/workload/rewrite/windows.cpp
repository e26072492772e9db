// Operands of products that are read through windows, written by an operator of their own first.
//
//   Y[o,y,x] += X[c,y+r-1,x+s-1] * W[o,c,r,s]     =>     X_rows[c,r,s,y,x] = X[c,y+r-1,x+s-1]
//                                                        Y[o,y,x] += X_rows[c,r,s,y,x] * W[o,c,r,s]
//
// The copy has an element for each point of its operand's loops, however often one element is read,
// and zeros outside of the tensor. Its last dimensions are those of the result that the other
// operand does not have, where the result ends in these; else those that are summed over. The
// depth is in the other operand's order, so that it is read in one piece, or, where the copy ends
// in it, in that of its own tensor; the other operand is then written in that order, too.
//
// Operators that read before the first element of a tensor's rows read a copy with zeros there:
//
//   Y[c,x] max= X[c,x+s-1]     =>     X_wide[c,i] = X[c,i-16]
//                                     Y[c,x]     max= X_wide[c,x+s+15]
//
// Rows of the copy begin a whole number of blocks of 16 elements before those of the tensor, so
// that elements keep their places within blocks. Where neighbours of the result are made of
// elements that are no neighbours, the copy has what each tap of the window reads, side by side:
//
//   Y[c,x] max= X[c,2*x+s-1]   =>     X_wide[c,s,x] = X[c,2*x+s-1]
//                                     Y[c,x]     max= X_wide[c,s,x]
#include <algorithm>
#include <array>
#include <optional>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/rewrite/build.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"
#include "core/workload/rewrite/written_first.h"

namespace tilewright {
namespace {

using rewrite::looked_by, rewrite::stride_of, rewrite::written_first;
using WindowLoops = std::vector<LoopId>;

/// The copies that a product reads: by input, its dimensions; empty: it is read as it lies.
using Copies = std::array<WindowLoops, 2>;

bool names_loop(const Access& a, LoopId l) {
  return std::ranges::any_of(a.index, [&](const Affine& i) {
    return std::ranges::find(i.terms, l, &Term::loop) != i.terms.end();
  });
}

bool all_plain(const Access& a) {
  return std::ranges::all_of(a.index, [](const Affine& i) { return i.plain_loop().has_value(); });
}

WindowLoops as_in(const Workload& w, WindowLoops loops, const Access& a) {
  std::ranges::stable_sort(
      loops, [&](LoopId x, LoopId y) { return stride_of(w, a, x) > stride_of(w, a, y); });
  return loops;
}

/// Of a sum of products of two inputs, one of which is read through windows and has loops of the
/// result that the other has not, as the other has.
std::optional<Copies> copies_of(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (op.running || op.outputs.size() != 1 || op.inputs.size() != 2 || w.gathers(id) ||
      op.outputs.front().rescale || !factors_of(op.outputs.front()))
    return std::nullopt;
  const Access& out = op.outputs.front().target;
  if (!all_plain(out) || all_plain(op.inputs[0]) == all_plain(op.inputs[1])) return std::nullopt;
  const std::size_t side = all_plain(op.inputs[0]) ? 1 : 0;
  const Access &image = op.inputs[side], &other = op.inputs[1 - side];
  WindowLoops depth, mine, shared;
  bool others = false;
  for (const LoopId l : op.loops) {
    const bool in_image = names_loop(image, l), in_other = names_loop(other, l);
    if (w.is_reduction(id, l)) {
      if (!in_image || !in_other) return std::nullopt;
      depth.push_back(l);
    } else if (in_image) {
      (in_other ? shared : mine).push_back(l);
    } else {
      others = true;
    }
  }
  if (depth.empty() || mine.empty() || !others) return std::nullopt;
  const auto is_mine = [&](LoopId l) { return std::ranges::find(mine, l) != mine.end(); };
  WindowLoops result;
  for (const Affine& index : out.index)
    if (const LoopId l = *index.plain_loop(); names_loop(image, l)) result.push_back(l);
  WindowLoops ending;  // of the result
  for (std::size_t d = out.index.size(); d-- > 0 && is_mine(*out.index[d].plain_loop());)
    ending.insert(ending.begin(), *out.index[d].plain_loop());
  Copies copies;
  WindowLoops& rows = copies[side];
  rows.assign(result.begin(), result.end() - static_cast<std::ptrdiff_t>(ending.size()));
  depth = as_in(w, depth, ending.empty() ? image : other);
  rows.insert(rows.end(), depth.begin(), depth.end());
  rows.insert(rows.end(), ending.begin(), ending.end());
  if (ending.empty() && as_in(w, depth, other) != depth) {
    WindowLoops& whole = copies[1 - side];
    for (const Affine& index : other.index)
      if (!w.is_reduction(id, *index.plain_loop())) whole.push_back(*index.plain_loop());
    whole.insert(whole.end(), depth.begin(), depth.end());
  }
  return copies;
}

Result<Workload> with_windows(const Workload& w, std::string_view text) {
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names)
    if (!copies_of(w, rewrite::operator_named(w, name, "materialise-windows:OP;OP")))
      return Reason{
          formatted("operator {} is no product of two tensors of which it reads one through "
                    "windows",
                    name)};
  return rewrite::after_others(
      w, names,
      [&](WorkloadSpec& spec, OpId id, Operator& op, const rewrite::WriteFirst& write_first) {
        const Copies copies = *copies_of(w, id);
        const std::vector<Access> reads = op.inputs;
        for (const std::size_t side : {0, 1}) {
          if (copies[side].empty()) continue;
          const auto at = std::ranges::find(op.inputs, reads[side]) - op.inputs.begin();
          write_first(
              written_first(spec, op, static_cast<std::size_t>(at), looked_by(w, copies[side])));
        }
      });
}

/// How far beyond the ends of its tensor's rows an access reads.
struct Beyond {
  std::int64_t before = 0, behind = 0;
};

/// Of an access that reads before the first element of a row.
std::optional<Beyond> beyond_rows(const Workload& w, const Access& a) {
  if (a.index.empty() || a.index.back().gathered >= 0) return std::nullopt;
  const Affine& index = a.index.back();
  std::int64_t least = index.offset, most = index.offset;
  for (const Term& t : index.terms)
    (t.coefficient < 0 ? least : most) += t.coefficient * (w.loop(t.loop).extent - 1);
  if (least >= 0) return std::nullopt;
  return Beyond{-least, std::max<std::int64_t>(0, most + 1 - w.tensor(a.tensor).shape.back())};
}

/// Whether neighbours of a result are made of elements of a row that are no neighbours, at several
/// places of the row.
bool has_gaps(const Operator& op, const Access& a) {
  const std::vector<Affine>& out = op.outputs.front().target.index;
  if (op.outputs.size() != 1 || out.empty() || a.index.empty()) return false;
  const auto along = out.back().plain_loop();
  const std::vector<Term>& terms = a.index.back().terms;
  return along && terms.size() > 1 && a.index.back().gathered < 0 &&
         std::ranges::any_of(terms,
                             [&](const Term& t) { return t.loop == *along && t.coefficient > 1; });
}

bool reads_beyond(const Workload& w, const Operator& op) {
  return !op.running && std::ranges::any_of(op.inputs, [&](const Access& a) {
    return has_gaps(op, a) || beyond_rows(w, a).has_value();
  });
}

/// The tensor, its rows as `row` reads them along these loops, as an operator that writes it.
Operator with_rows(WorkloadSpec& spec, TensorId from, Affine row, const WindowLoops& along) {
  const Tensor whole = spec.tensors[from.index()];
  Tensor wide{.name = rewrite::unused(spec.tensors, whole.name + "_wide"),
              .shape = whole.shape,
              .dtype = whole.dtype};
  Operator op{.name = rewrite::unused(spec.operators, wide.name)};
  Access read{.tensor = from}, written{.tensor = TensorId(spec.tensors.size())};
  wide.shape.pop_back();
  for (const std::int64_t extent : wide.shape) {
    op.loops.emplace_back(spec.loops.size());
    spec.loops.push_back(
        {.name = rewrite::unused(spec.loops, "of_" + wide.name), .extent = extent});
    read.index.push_back({.terms = {{.loop = op.loops.back()}}});
  }
  read.index.push_back(std::move(row));
  for (const LoopId l : along) {
    op.loops.push_back(l);
    wide.shape.push_back(spec.loops[l.index()].extent);
  }
  for (const LoopId l : op.loops) written.index.push_back({.terms = {{.loop = l}}});
  spec.tensors.push_back(std::move(wide));
  op.inputs = {std::move(read)};
  op.outputs = {{.target = std::move(written), .value = rewrite::read(0)}};
  return op;
}

/// With zeros around its rows.
Operator widened(WorkloadSpec& spec, TensorId from, std::int64_t before, std::int64_t behind) {
  const LoopId along(spec.loops.size());
  spec.loops.push_back({.name = rewrite::unused(spec.loops, "along"),
                        .extent = spec.tensors[from.index()].shape.back() + before + behind});
  return with_rows(spec, from, {.terms = {{.loop = along}}, .offset = -before}, {along});
}

Result<Workload> with_borders(const Workload& w, std::string_view text) {
  constexpr std::int64_t kWhole = 16;
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names)
    if (!reads_beyond(w, w.op(rewrite::operator_named(w, name, "materialise-borders:OP;OP"))))
      return Reason{
          formatted("operator {} neither reads before the first element of a row nor steps over "
                    "elements of one",
                    name)};
  return rewrite::after_others(
      w, names,
      [&](WorkloadSpec& spec, OpId, Operator& op, const rewrite::WriteFirst& write_first) {
        const auto reads = [&](Access& a, Operator first) {
          a.tensor = first.outputs.front().target.tensor;
          write_first(std::move(first));
        };
        for (Access& a : op.inputs) {
          if (has_gaps(op, a)) {
            WindowLoops along;
            for (const Term& t : a.index.back().terms) along.push_back(t.loop);
            const LoopId last = *op.outputs.front().target.index.back().plain_loop();
            std::ranges::stable_partition(along, [&](LoopId l) { return l != last; });
            reads(a, with_rows(spec, a.tensor, a.index.back(), along));
            a.index.pop_back();
            for (const LoopId l : along) a.index.push_back({.terms = {{.loop = l}}});
            continue;
          }
          const std::optional<Beyond> beyond = beyond_rows(w, a);
          if (!beyond) continue;
          const std::int64_t before = ceil_div(beyond->before, kWhole) * kWhole;
          reads(a, widened(spec, a.tensor, before, beyond->behind));
          a.index.back().offset += before;
        }
      });
}

}  // namespace

std::vector<OpId> readers_beyond_rows(const Workload& w) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (reads_beyond(w, w.operators()[i])) found.emplace_back(i);
  return found;
}

Rewrite materialise_borders() {
  return {.name = "materialise-borders",
          .summary =
              "operators that read before the first element of a tensor's rows read a copy that "
              "has zeros there, a whole number of blocks of 16 elements; those that step over "
              "elements of a row, a copy of what each tap reads",
          .source = "the usual padding of images before a convolution",
          .function = nullptr,
          .argument = "OP;OP",
          .with = with_borders};
}

std::vector<OpId> products_of_windows(const Workload& w) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (copies_of(w, OpId(i))) found.emplace_back(i);
  return found;
}

Rewrite materialise_windows() {
  return {.name = "materialise-windows",
          .summary =
              "products of which an operand is read through windows, as in convolutions, read a "
              "copy that has an element for each point, with zeros outside of the tensor",
          .source =
              "lowering of convolutions: Chellapilla et al., High Performance Convolutional "
              "Neural Networks for Document Processing, IWFHR 2006",
          .function = nullptr,
          .argument = "OP;OP",
          .with = with_windows};
}

}  // namespace tilewright
