// What no plan can move less than; bounds.h says which theorems.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "models/bounds/bounds.h"
#include "models/bounds/product.h"

namespace tilewright::bounds {
namespace {

constexpr const char* kCompulsory = "compulsory: every input read once, every output written once";
constexpr const char* kIo = "I/O lower bound 2 V / sqrt(S)";
constexpr const char* kResident = "I/O lower bound V^2 / (T S) + T, a whole loop in one residency";
constexpr const char* kAgain =
    "I/O lower bound of the chain, which may compute its intermediate again";
constexpr std::size_t kMostTogether = 8;  // products under one bound

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

/// Tensors whose elements are made one of one by element-wise operators, as one: an element is on
/// chip while one of these tensors has it there. It comes by a load of one of them, or with the
/// first of them that a reduction makes.
struct Values {
  bool input = false;  ///< the first is an input: every time it comes, it is loaded
  double made = 0;     ///< elements of the first, unless it is an input
  double least = 0;    ///< words of inputs and outputs among them that every plan moves
  bool output = false;
  bool masked = false;  ///< a loop's index decides whether an element of them matters
};

bool has_index(const Expr& e) {
  return e.kind == Expr::Kind::index || std::ranges::any_of(e.args, has_index);
}

class Graph {
 public:
  explicit Graph(const Workload& w) : w_(w), of_(w.tensors().size()) {
    for (std::size_t t = 0; t < of_.size(); ++t)
      if (w.is_input(TensorId(t))) of_[t] = add(TensorId(t));
    for (OpId id : w.topological_order()) {
      const std::optional<std::size_t> from = element_wise(id);
      for (const Output& out : w.op(id).outputs)
        of_[out.target.tensor.index()] = from ? *from : add(out.target.tensor);
      if (auto c = contraction_of(w, id)) products_.push_back(*std::move(c));
      for (const Output& out : w.op(id).outputs) {
        if (!has_index(out.value)) continue;
        values_[of(out.target.tensor)].masked = true;
        for (const Access& in : w.op(id).inputs) values_[of(in.tensor)].masked = true;
      }
    }
    // An element counts as a word of the smallest type that it may be held in.
    std::vector<bool> read(values_.size());
    for (const Contraction& c : products_)
      for (TensorId t : {c.x, c.y, c.out}) read[of(t)] = true;
    for (std::size_t t = 0; t < of_.size(); ++t)
      if (read[of_[t]])
        word_ = std::min(word_ ? word_ : INT64_MAX, size_of(w.tensor(TensorId(t)).dtype));
    for (std::size_t t = 0; word_ > 0 && t < of_.size(); ++t) {
      const TensorId id(t);
      const double words =
          static_cast<double>(w.tensor(id).bytes().value) / static_cast<double>(word_);
      Values& v = values_[of_[t]];
      if (w.is_input(id)) v.least += words;
      if (w.is_output(id)) v.least += words, v.output = true;
    }
  }

  const std::vector<Contraction>& products() const { return products_; }
  std::size_t of(TensorId t) const { return of_[t.index()]; }
  const Values& values(std::size_t i) const { return values_[i]; }
  std::size_t size() const { return values_.size(); }
  std::int64_t word() const { return word_; }

 private:
  std::size_t add(TensorId t) {
    values_.push_back({.input = w_.is_input(t), .made = w_.is_input(t) ? 0 : elements(w_, t)});
    return values_.size() - 1;
  }

  /// What the operator's result is made of, element by element: rather what an operator made than
  /// an input, since products are chained by it.
  std::optional<std::size_t> element_wise(OpId id) const {
    const Operator& op = w_.op(id);
    if (op.running || !w_.reduction_loops(id).empty() || op.outputs.size() != 1 ||
        op.outputs[0].combine != Combine::assign)
      return std::nullopt;
    const auto loops = whole_loops(w_, op.outputs[0].target);
    if (!loops) return std::nullopt;
    std::optional<std::size_t> from;
    for (const Access& in : op.inputs) {
      const auto its = whole_loops(w_, in);
      if (its && std::ranges::is_permutation(*its, *loops) && (!from || values_[*from].input))
        from = of(in.tensor);
    }
    return from;
  }

  const Workload& w_;
  std::vector<std::size_t> of_;
  std::vector<Values> values_;
  std::vector<Contraction> products_;
  std::int64_t word_ = 0;
};

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

/// What bounds of products add to the compulsory words.
class Gains {
 public:
  Gains(const Graph& graph, double s, Freedom freedom) : graph_(graph), s_(s) {
    readers_.resize(graph.size());
    const auto given = [&](TensorId t) { return graph.values(graph.of(t)).input; };
    for (const Contraction& c : graph.products()) {
      const std::set<std::size_t> three = {graph.of(c.x), graph.of(c.y), graph.of(c.out)};
      // Kernels may skip what a mask hides.
      if (three.size() < 3 ||
          std::ranges::any_of(three, [&](std::size_t v) { return graph.values(v).masked; }))
        continue;
      // Where an operand may be computed again, how often it comes on chip says nothing.
      const bool reads_inputs = given(c.x) && given(c.y);
      if (freedom == Freedom::any && !reads_inputs && !follows(c)) continue;
      products_.push_back(&c);
      alone_.push_back(freedom == Freedom::no_recomputation || reads_inputs);
      for (TensorId t : {c.x, c.y}) ++readers_[graph.of(t)];
    }
  }

  /// The products in their order, cut into runs; the best way to cut them. Runs have no values in
  /// common but those that one makes and the other reads.
  Words most() const {
    std::vector<Words> best(products_.size() + 1);
    for (std::size_t to = 1; to <= products_.size(); ++to) {
      best[to] = best[to - 1];
      for (std::size_t from = to - std::min(to, kMostTogether); from < to; ++from) {
        Words run = together(from, to);
        if (to - from == 2) {
          const Words two = computed_again(*products_[from], *products_[from + 1]);
          run.raise(two.words, two.is);
        }
        if (run.words > 0) best[to].raise(best[from].words + run.words, run.is);
      }
    }
    return best.back();
  }

 private:
  /// Whether one operand is an input and the other is made: it may be the second of a pair.
  bool follows(const Contraction& c) const {
    const std::size_t x = graph_.of(c.x), y = graph_.of(c.y);
    return graph_.values(x).input != graph_.values(y).input;
  }

  bool read_by_these_alone(const std::vector<const Contraction*>& run) const {
    std::map<std::size_t, std::size_t> reads;
    for (const Contraction* c : run)
      for (TensorId t : {c->x, c->y}) ++reads[graph_.of(t)];
    return std::ranges::all_of(reads, [&](const auto& r) { return readers_[r.first] == r.second; });
  }

  /// What is moved at least of some values, and what of them comes on chip without being moved.
  double known(std::size_t v) const {
    const Values& values = graph_.values(v);
    return values.least + (values.output ? 0 : values.made);
  }

  /// Products [from, to) under one bound, the best over the ways to put their values into three
  /// classes. Each product shares one tensor with those before it at most, so that sums of
  /// sqrt(a b c) over them are at most the square root of the product of sums. What does not join
  /// is left out.
  Words together(std::size_t from, std::size_t to) const {
    struct Joined {
      std::array<std::size_t, 3> local;  ///< of x, y, out: position in `seen`
      std::size_t shared;                ///< which of these an earlier product has; of the first, 0
    };
    std::vector<Joined> run;
    std::vector<std::size_t> seen;
    std::vector<double> touched;  ///< elements, by position in `seen`
    std::vector<const Contraction*> these;
    double volume = 0, moved = 0;
    for (std::size_t i = from; i < to; ++i) {
      const Contraction& c = *products_[i];
      if (!alone_[i]) continue;
      const std::size_t values[3] = {graph_.of(c.x), graph_.of(c.y), graph_.of(c.out)};
      const double elements[3] = {c.elements_x, c.elements_y, c.elements_out};
      const std::size_t before = seen.size();
      Joined joined{};
      int shared = 0;
      for (std::size_t t = 0; t < 3; ++t) {
        const auto at = std::find(seen.begin(), seen.begin() + before, values[t]) - seen.begin();
        joined.local[t] = static_cast<std::size_t>(at);
        if (joined.local[t] < before) {
          joined.shared = t, ++shared;
        } else {
          joined.local[t] = seen.size();
          seen.push_back(values[t]);
        }
      }
      if (shared != (run.empty() ? 0 : 1)) {
        seen.resize(before);
        if (run.empty()) return {};
        continue;
      }
      touched.resize(seen.size(), 0);
      for (std::size_t t = 0; t < 3; ++t)
        touched[joined.local[t]] = std::max(touched[joined.local[t]], elements[t]);
      volume += c.volume / std::sqrt(c.spread);
      run.push_back(joined);
      these.push_back(&c);
    }
    if (run.empty() || these.front() != products_[from] || !read_by_these_alone(these)) return {};
    for (std::size_t v : seen) moved += known(v);
    Words best;
    std::vector<std::size_t> colour(seen.size());
    for (unsigned ways = 0; ways < 1u << (run.size() - 1); ++ways) {
      for (std::size_t i = 0; i < run.size(); ++i) {
        const auto& local = run[i].local;
        const std::size_t at = run[i].shared, is = i == 0 ? 0 : colour[local[at]];
        const std::size_t swapped = i > 0 && (ways >> (i - 1) & 1) ? 2 : 1;
        colour[local[at]] = is;
        colour[local[(at + 1) % 3]] = (is + swapped) % 3;
        colour[local[(at + 2) % 3]] = (is + 3 - swapped) % 3;
      }
      std::array<double, 3> sizes{};
      for (std::size_t v = 0; v < seen.size(); ++v) sizes[colour[v]] += touched[v];
      const Words one = io_bound(volume, sizes, s_);
      best.raise(one.words - moved, one.is);
    }
    return best;
  }

  /// The second reads what the first makes of inputs, and an input.
  Words computed_again(const Contraction& one, const Contraction& two) const {
    const std::size_t made = graph_.of(one.out);
    const std::size_t from[2] = {graph_.of(one.x), graph_.of(one.y)};
    if (!graph_.values(from[0]).input || !graph_.values(from[1]).input) return {};
    if (graph_.values(made).input || one.spread > 1 || two.spread > 1) return {};
    const bool straight = graph_.of(two.x) == made;
    if (!straight && graph_.of(two.y) != made) return {};
    const std::size_t other = graph_.of(straight ? two.y : two.x), out = graph_.of(two.out);
    if (!graph_.values(other).input || other == from[0] || other == from[1]) return {};
    if (out == made || !read_by_these_alone({&one, &two})) return {};
    double outside = graph_.values(made).least;
    for (std::size_t v : {from[0], from[1], other, out}) outside += known(v);
    const double volume = one.volume + two.volume, c = one.elements_out;
    const double k = one.volume / c, share = std::min(1.0, volume / c * volume / c / s_);
    Words best;
    for (double v : {share, 1.0})
      for (double x : {s_ / 2, s_, 2 * s_, 4 * s_})
        if (x > 1) best.raise((x - 1) * volume / segment(s_, x, v, k) - v * c - outside, kAgain);
    return best;
  }

  const Graph& graph_;
  double s_;
  std::vector<const Contraction*> products_;
  std::vector<bool> alone_;           ///< whether a bound of this product and others like it holds
  std::vector<std::size_t> readers_;  ///< by values: how many of the products read them
};

double whole_tensors(const Workload& w, const Operator& op) {
  double sum = 0;
  std::set<TensorId> seen;
  const auto add = [&](const Access& a) {
    if (seen.insert(a.tensor).second && whole_loops(w, a)) sum += elements(w, a.tensor);
  };
  for (const Access& in : op.inputs) add(in);
  for (const Output& out : op.outputs) add(out.target);
  return sum;
}

/// Words of the smallest type, an element one at least.
Words each_alone(const Workload& w, double s) {
  Words sum;
  for (OpId id : w.topological_order()) {
    Words one{whole_tensors(w, w.op(id)), kCompulsory};
    if (const auto c = contraction_of(w, id))
      one = io_bound(c->volume / std::sqrt(c->spread),
                     {c->elements_x, c->elements_y, c->elements_out}, s);
    sum.words += one.words;
    if (one.is != kCompulsory) sum.is = one.is;
  }
  return sum;
}

}  // namespace

Proven proven(const Workload& w, Bytes capacity, Freedom freedom) {
  const Bytes compulsory = w.compulsory_bytes();
  std::int64_t smallest = INT64_MAX;
  for (const Tensor& t : w.tensors()) smallest = std::min(smallest, size_of(t.dtype));
  const Graph graph(w);
  const std::int64_t word = freedom == Freedom::unfused ? smallest : graph.word();
  if (word == 0) return {compulsory, kCompulsory};
  const double s = static_cast<double>(std::max<std::int64_t>(1, capacity.value / word));
  const double least = static_cast<double>(compulsory.value) / static_cast<double>(word);
  Words best{least, kCompulsory};
  if (freedom == Freedom::unfused) {
    const Words alone = each_alone(w, s);
    best.raise(alone.words, alone.is);
  } else {
    for (Freedom f : {Freedom::any, Freedom::no_recomputation}) {
      if (f == Freedom::no_recomputation && freedom == Freedom::any) continue;
      const Words gain = Gains(graph, s, f).most();
      best.raise(least + gain.words, gain.is);
    }
  }
  // Elements are whole, of the smallest type at least; the factor is for rounding in the sums
  // above.
  const auto unit = static_cast<double>(smallest);
  const double bytes =
      std::ceil(best.words * static_cast<double>(word) / unit * (1 - 1e-12)) * unit;
  if (bytes >= 9e18) return {compulsory, kCompulsory};
  return {std::max(compulsory, Bytes(static_cast<std::int64_t>(bytes))), best.is};
}

}  // namespace tilewright::bounds
