// Results that a product reads, with rows that begin at multiples of 16 bytes: boxes of them can be
// copied, and they are stored in whole pieces. Loops stay as they are, so that what lies behind a
// row is neither written nor read, and nothing is copied.
//
//   C[m,l] += A[m,k] * B[k,l]   l = 2099     =>     C has rows of 2104
//   E[m,n] += C[m,l] * D[l,n]
//
// Of an image, whose lines a product reads as one row of points, the row is a channel: 14 x 14
// points become 16 x 14.
#include <algorithm>
#include <numeric>

#include "core/workload/rewrite/rewrite.h"

namespace tilewright {
namespace {

constexpr std::int64_t kBytesOfRow = 16;

/// The loop of an index, beside which loops of one iteration count for nothing: the window of a 1 x
/// 1 convolution.
std::optional<LoopId> loop_of(const Workload& w, Affine index) {
  if (index.terms.size() > 1)
    std::erase_if(index.terms, [&](const Term& t) { return w.loop(t.loop).extent == 1; });
  return index.plain_loop();
}

/// Whether each dimension has a loop of its own, of the dimension's extent: none is outside of what
/// there is, or steps over some.
bool has_whole_loops(const Workload& w, const Access& a) {
  std::vector<LoopId> loops;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = loop_of(w, a.index[d]);
    if (!loop || w.loop(*loop).extent != w.tensor(a.tensor).shape[d] ||
        std::ranges::find(loops, *loop) != loops.end())
      return false;
    loops.push_back(*loop);
  }
  return true;
}

/// Whether rows of the product's other operand begin at multiples of 16 bytes: boxes of both can be
/// copied then. Where they do not, kernels copy pieces, and longer rows gained nothing (a chain of
/// 10 rows took 1.15 times as long on an H200).
bool other_in_sixteens(const Workload& w, OpId product, TensorId t) {
  return std::ranges::all_of(w.op(product).inputs, [&](const Access& a) {
    if (a.tensor == t) return true;
    const Tensor& other = w.tensor(a.tensor);
    const auto row = std::find_if(other.shape.rbegin(), other.shape.rend(),
                                  [](std::int64_t extent) { return extent > 1; });
    return row != other.shape.rend() && *row * size_of(other.dtype) % kBytesOfRow == 0;
  });
}

/// The last dimensions whose loops are points of the product's results and not of its other
/// operand's: its columns, where there are several.
std::size_t lines_of(const Workload& w, OpId product, const Access& a) {
  const auto of_other = [&](LoopId l) {
    return std::ranges::any_of(w.op(product).inputs, [&](const Access& other) {
      return other.tensor != a.tensor &&
             std::ranges::any_of(other.index, [&](const Affine& i) { return loop_of(w, i) == l; });
    });
  };
  std::size_t lines = 0;
  for (std::size_t d = a.index.size(); d-- > 1; ++lines)
    if (const LoopId l = *loop_of(w, a.index[d]); w.is_reduction(product, l) || of_other(l)) break;
  return lines;
}

/// The shape with longer rows, or the same where they need not be.
std::vector<std::int64_t> padded(const Workload& w, TensorId t, std::size_t lines) {
  std::vector<std::int64_t> shape = w.tensor(t).shape;
  const std::int64_t row = kBytesOfRow / size_of(w.tensor(t).dtype);
  if (lines < 2 || shape.size() < 3) {
    shape.back() = round_up(shape.back(), row);
  } else {
    std::int64_t& high = shape[shape.size() - 2];
    high = round_up(high, row / std::gcd(row, shape.back()));
  }
  return shape;
}

Result<Workload> with_longer_rows(const Workload& w) {
  WorkloadSpec spec = w.spec();
  bool any = false;
  for (std::size_t i = 0; i < w.tensors().size(); ++i) {
    const TensorId t(i);
    const Tensor& tensor = w.tensor(t);
    if (w.is_input(t) || w.is_output(t) || tensor.shape.size() < 2 ||
        size_of(tensor.dtype) >= kBytesOfRow)
      continue;
    bool whole = true, product = false;
    std::size_t lines = 0;
    for (const OpId reader : w.consumers(t))
      for (const Access& a : w.op(reader).inputs) {
        if (a.tensor != t) continue;
        whole = whole && has_whole_loops(w, a);
        if (whole && w.is_contraction(reader) && other_in_sixteens(w, reader, t))
          product = true, lines = std::max(lines, lines_of(w, reader, a));
      }
    for (const Operator& op : w.operators())
      for (const Output& o : op.outputs)
        if (o.target.tensor == t) whole = whole && !op.running && has_whole_loops(w, o.target);
    if (!whole || !product) continue;
    std::vector<std::int64_t> shape = padded(w, t, lines);
    any = any || shape != tensor.shape;
    spec.tensors[i].shape = std::move(shape);
  }
  if (!any) return Reason{"no result that a product reads has rows to be made longer"};
  return Workload::create(std::move(spec));
}

}  // namespace

Rewrite pad_results() {
  return {.name = "pad-results",
          .summary =
              "results that a product reads have rows, or channels of an image, that begin at "
              "multiples of 16 bytes; what lies behind them is neither written nor read",
          .source = "the pitch of cudaMallocPitch: CUDA Runtime API, memory management",
          .function = with_longer_rows};
}

}  // namespace tilewright
