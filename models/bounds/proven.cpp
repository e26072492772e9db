// What no plan can move less than; bounds.h says which theorems.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "models/bounds/bounds.h"
#include "models/bounds/product.h"

namespace tilewright::bounds {
namespace {

constexpr const char* kCompulsory = "compulsory: every input read once, every output written once";
constexpr const char* kIo = "I/O lower bound 2 V / sqrt(S)";
constexpr const char* kResident = "I/O lower bound V^2 / (T S) + T, a whole loop in one residency";

/// Words, and what bounds them.
struct Words {
  double words = 0;
  const char* is = kCompulsory;
  void raise(double other, const char* why) {
    if (other > words) *this = {other, why};
  }
};

/// Of products with V multiply-adds in all, over tensors in three classes of these sizes.
Words io_bound(double volume, const std::array<double, 3>& sizes, double s) {
  Words best{sizes[0] + sizes[1] + sizes[2], kCompulsory};
  best.raise(2 * volume / std::sqrt(s), kIo);
  for (double t : sizes)
    if (volume / t < std::sqrt(s)) best.raise(t + volume * volume / t * (1 - 1 / s) / s, kResident);
  return best;
}

double elements(const Workload& w, TensorId t) {
  return static_cast<double>(w.tensor(t).elements().value);
}

/// Contractions one after the other, each reading what the last made, directly or through
/// element-wise operators of the same subscripts; all of the workload.
struct Links {
  std::vector<Contraction> ops;
  std::vector<double> made;   ///< by link: the intermediate's elements
  std::vector<double> other;  ///< by operator: the input that is not the last one's result
  double rest = 0;            ///< inputs of the operators in between
};

/// The tensor that an element-wise operator makes of `from` under the same subscripts.
std::optional<TensorId> mapped(const Workload& w, OpId id, TensorId from) {
  const Operator& op = w.op(id);
  if (op.outputs.size() != 1 || op.outputs[0].combine != Combine::assign) return std::nullopt;
  if (!w.reduction_loops(id).empty()) return std::nullopt;
  for (const Access& in : op.inputs)
    if (in.tensor == from) {
      if (in.index == op.outputs[0].target.index) return op.outputs[0].target.tensor;
    } else if (!w.is_input(in.tensor)) {
      return std::nullopt;
    }
  return std::nullopt;
}

std::optional<Links> links_of(const Workload& w) {
  Links links;
  std::set<TensorId> seen;
  std::optional<TensorId> last;
  double counted = 0;
  for (OpId id : w.topological_order()) {
    if (last) {
      const auto readers = w.consumers(*last);
      if (!w.is_intermediate(*last) || readers.size() != 1 || readers[0] != id) return std::nullopt;
    }
    const auto c = contraction_of(w, id);
    if (!c) {
      if (!last) return std::nullopt;
      last = mapped(w, id, *last);
      if (!last) return std::nullopt;
      continue;
    }
    if (last && c->x != *last && c->y != *last) return std::nullopt;
    const TensorId other = last && c->x == *last ? c->y : c->x;
    for (TensorId t : {c->x, c->y})
      if (!(last && t == *last) && (!w.is_input(t) || !seen.insert(t).second)) return std::nullopt;
    if (last) links.made.push_back(elements(w, *last));
    links.other.push_back(elements(w, other));
    counted += elements(w, other) + (last ? 0 : elements(w, c->y));
    links.ops.push_back(*c);
    last = c->out;
  }
  if (!last || links.ops.empty() || links.ops.size() > 8 || !w.is_output(*last))
    return std::nullopt;
  if (links.ops.back().out != *last) return std::nullopt;  // element-wise operators at the end
  counted += elements(w, *last);
  links.rest =
      static_cast<double>(w.compulsory_bytes().value) / static_cast<double>(word_bytes(w)) -
      counted;
  return links;
}

/// Operators [from, to) of the chain as one: the best over the ways to put their tensors into three
/// classes, less each intermediate's first residency.
Words part_bound(const Workload& w, const Links& chain, std::size_t from, std::size_t to,
                 double s) {
  double volume = 0, saved = 0;
  for (std::size_t i = from; i < to; ++i) volume += chain.ops[i].volume;
  if (from > 0) saved += chain.made[from - 1];
  for (std::size_t i = from; i + 1 < chain.ops.size() && i < to; ++i) saved += chain.made[i];
  Words best;
  for (unsigned ways = 0; ways < (1u << (to - from - 1)); ++ways) {
    std::array<double, 3> sizes{};
    // The first operator's inputs in classes 0 and 1, its output in 2; then the class of what goes
    // on is given, and the others may be swapped.
    const Contraction& first = chain.ops[from];
    sizes[0] += elements(w, first.x);
    sizes[1] += elements(w, first.y);
    sizes[2] += elements(w, first.out);
    int at = 2, x = 0, y = 1;
    for (std::size_t i = from + 1; i < to; ++i) {
      if (ways >> (i - from - 1) & 1) std::swap(x, y);
      sizes[static_cast<std::size_t>(x)] += chain.other[i];
      sizes[static_cast<std::size_t>(y)] += elements(w, chain.ops[i].out);
      std::swap(at, y);
    }
    const Words one = io_bound(volume, sizes, s);
    if (one.words - saved > best.words) best = {one.words - saved, one.is};
  }
  return best;
}

/// The chain cut into runs of operators, their bounds added up; the best way to cut it.
Words without_recomputation(const Workload& w, const Links& chain, double s) {
  std::vector<Words> best(chain.ops.size() + 1);
  for (std::size_t to = 1; to <= chain.ops.size(); ++to)
    for (std::size_t from = 0; from < to; ++from) {
      Words part = part_bound(w, chain, from, to, s);
      part.words += best[from].words;
      if (best[from].is != kCompulsory) part.is = best[from].is;
      if (from == 0 || part.words > best[to].words) best[to] = part;
    }
  best.back().words += chain.rest;
  return best.back();
}

/// Most multiply-adds of the first two products in a segment: c counts v an event, the rest 1; the
/// first product's result may be made again from rows and columns on chip. An upper bound of the
/// maximum over y, by cells.
double segment(double s, double x, double v, double k) {
  const auto c = [&](double y) { return y <= s ? s - y + x / v : (x - (y - s)) / v; };
  constexpr int kCells = 256;
  double most = 0;
  for (int i = 0; i < kCells; ++i) {
    const double low = (s + x) * i / kCells, high = (s + x) * (i + 1) / kCells;
    most = std::max(most, std::sqrt(std::max(0.0, c(low))) * high / 2 + high * high / (16 * k));
  }
  return most;
}

Words with_recomputation(const Workload& w, const Links& chain, double s) {
  double compulsory =
      elements(w, chain.ops.front().y) + elements(w, chain.ops.back().out) + chain.rest;
  for (double other : chain.other) compulsory += other;
  Words best{compulsory, kCompulsory};
  if (chain.ops.size() < 2) return best;
  const Contraction &one = chain.ops[0], &two = chain.ops[1];
  const double made = elements(w, one.out), volume = one.volume + two.volume;
  double outside = compulsory - elements(w, one.x) - elements(w, one.y) - chain.other[1];
  if (chain.ops.size() == 2)
    outside -= elements(w, two.out);
  else
    outside -= elements(w, two.out);  // its first residency is free as well
  const double k = one.volume / made;
  const double share = std::min(1.0, volume / made * volume / made / s);
  for (double v : {share, 1.0})
    for (double x : {s / 2, s, 2 * s, 4 * s})
      if (x > 1)
        best.raise((x - 1) * volume / segment(s, x, v, k) - v * made + outside,
                   "I/O lower bound of the chain, which may compute its intermediate again");
  return best;
}

/// Any plan of any workload: one product that reads inputs only, and what else is compulsory.
Words any_product(const Workload& w, double compulsory, double s) {
  Words best{compulsory, kCompulsory};
  for (OpId id : w.topological_order()) {
    const auto c = contraction_of(w, id);
    if (!c || !w.is_input(c->x) || !w.is_input(c->y)) continue;
    const std::array<double, 3> sizes{elements(w, c->x), elements(w, c->y), elements(w, c->out)};
    double all = sizes[0] + sizes[1];
    const double made = w.is_output(c->out) ? 0 : sizes[2];
    if (made == 0) all += sizes[2];
    const Words one = io_bound(c->volume, sizes, s);
    best.raise(one.words - made + compulsory - all, one.is);
  }
  return best;
}

double whole_tensors(const Workload& w, const Operator& op) {
  double sum = 0;
  std::set<TensorId> seen;
  const auto add = [&](const Access& a) {
    if (!seen.insert(a.tensor).second) return;
    std::set<LoopId> loops;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const auto loop = a.index[d].plain_loop();
      if (!loop || !loops.insert(*loop).second) return;
      if (w.loop(*loop).extent != w.tensor(a.tensor).shape[d]) return;
    }
    sum += elements(w, a.tensor);
  };
  for (const Access& in : op.inputs) add(in);
  for (const Output& out : op.outputs) add(out.target);
  return sum;
}

Words each_alone(const Workload& w, double s) {
  Words sum;
  for (OpId id : w.topological_order()) {
    Words one{whole_tensors(w, w.op(id)), kCompulsory};
    if (const auto c = contraction_of(w, id))
      one = io_bound(c->volume, {elements(w, c->x), elements(w, c->y), elements(w, c->out)}, s);
    sum.words += one.words;
    if (one.is != kCompulsory) sum.is = one.is;
  }
  return sum;
}

}  // namespace

Proven proven(const Workload& w, Bytes capacity, Freedom freedom) {
  const std::int64_t word = word_bytes(w);
  const Bytes compulsory = w.compulsory_bytes();
  if (word == 0) return {compulsory, kCompulsory};
  const double s = static_cast<double>(std::max<std::int64_t>(1, capacity.value / word));
  const double least = static_cast<double>(compulsory.value) / static_cast<double>(word);
  Words best = any_product(w, least, s);
  if (freedom == Freedom::unfused) {
    best = each_alone(w, s);
    best.raise(least, kCompulsory);
  } else if (const auto chain = links_of(w)) {
    const Words again = with_recomputation(w, *chain, s);
    best.raise(again.words, again.is);
    if (freedom == Freedom::no_recomputation) {
      const Words once = without_recomputation(w, *chain, s);
      best.raise(once.words, once.is);
    }
  }
  // Words are whole; the factor is for rounding in the sums above.
  const double words = std::ceil(best.words * (1 - 1e-12));
  const double bytes = words * static_cast<double>(word);
  if (bytes >= 9e18) return {compulsory, kCompulsory};
  return {std::max(compulsory, Bytes(static_cast<std::int64_t>(bytes))), best.is};
}

}  // namespace tilewright::bounds
