// Where ranges are cut and where they are inferred (plan.md rules 1 to 3).
#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/format.h"
#include "core/plan/resolver.h"

namespace tilewright::resolving {

namespace {

void cut_loops(Draft& d) {
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    ScheduleNode& n = d.k.nodes[i];
    if (n.kind != NodeKind::loop) continue;
    for (OpId op : d.ops_inside(NodeId(i))) {
      const int local = d.w.local_index(op, n.loop);
      if (local >= 0) n.cuts.push_back({op, local});
    }
    const Loop& loop = d.w.loop(n.loop);
    if (n.cuts.empty())
      d.bad("loop " + loop.name, "", "is a loop of no operator inside it",
            "a loop around the compute (C.OPERATOR) of an operator that has it");
  }
}

/// How long ranges can be: the step of the loop that cuts them, or what readers need of them.
class LongestRanges {
 public:
  explicit LongestRanges(const Draft& d) : d_(d) {}

  /// Of an operator's loop in a node of that body, before the node cuts it.
  std::int64_t length(const OpLoop& c, NodeId body) {
    const NodeId inferred = inferred_at(c);
    return (inferred.valid() && inferred != body && d_.inside(inferred, body) ? cut(c, body)
                                                                              : range(c, body))
        .length();
  }

 private:
  /// From `lo` to before `hi`, from where `origin` has its turn's beginning on; from 0 on without.
  struct Range {
    std::int64_t lo = 0, hi = 1;
    NodeId origin;
    bool fixed = true;  ///< false: from an unknown beginning on
    std::int64_t length() const { return hi - lo; }
  };

  LoopId loop_of(const OpLoop& c) const {
    return d_.w.op(c.op).loops[static_cast<std::size_t>(c.local)];
  }
  Range whole(const OpLoop& c) const { return {.hi = d_.w.loop(loop_of(c)).extent}; }
  /// Sums' ranges are never inferred.
  NodeId inferred_at(const OpLoop& c) const {
    return d_.w.is_reduction(c.op, loop_of(c)) ? NodeId() : d_.inferred_at[c.op.index()];
  }

  /// By loops alone.
  Range cut(const OpLoop& c, NodeId place) const {
    const LoopId loop = loop_of(c);
    for (; place.valid(); place = d_.node(place).parent)
      if (const ScheduleNode& n = d_.node(place); n.kind == NodeKind::loop && n.loop == loop)
        return n.step < whole(c).hi ? Range{.hi = n.step, .origin = place} : whole(c);
    return whole(c);
  }

  /// On entering a body, what is inferred further in ahead of that.
  Range range(const OpLoop& c, NodeId body) {
    const auto key = std::tuple{c.op, c.local, body};
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const NodeId inferred = inferred_at(c);
    const ScheduleNode& n = d_.node(body);
    Range r;
    if (!inferred.valid())
      r = cut(c, body);
    else if (d_.inside(inferred, body))
      r = needed(loop_of(c), c.op, d_.node(inferred).infer, body);
    else if (n.kind == NodeKind::loop && n.loop == loop_of(c))
      r = {.hi = n.step, .origin = body};
    else
      r = range(c, n.parent);
    if (r.length() > whole(c).hi) r = whole(c);
    return known_[key] = r;
  }

  /// What all reads need that make one loop's range.
  Range needed(LoopId loop, OpId producer, const std::vector<Inference>& all, NodeId place) {
    std::optional<Range> hull;
    for (const Inference& i : all) {
      if (i.producer != producer) continue;
      const Access& target = d_.w.op(producer).outputs[static_cast<std::size_t>(i.output)].target;
      for (std::size_t dim = 0; dim < target.index.size(); ++dim)
        if (target.index[dim].plain_loop() == loop)
          for (const ReadRef& r : i.reads) {
            const Range one = read(r, dim, place);
            if (!hull) {
              hull = one;
              continue;
            }
            if (!hull->fixed || !one.fixed || hull->origin != one.origin)
              return {.hi = d_.w.loop(loop).extent};
            hull->lo = std::min(hull->lo, one.lo);
            hull->hi = std::max(hull->hi, one.hi);
          }
    }
    return hull.value_or(Range{.hi = d_.w.loop(loop).extent});
  }

  Range read(const ReadRef& r, std::size_t dim, NodeId place) {
    const Operator& op = d_.w.op(r.op);
    const Affine& index = op.inputs[static_cast<std::size_t>(r.input)].index[dim];
    if (index.terms.empty()) return {.lo = index.offset, .hi = index.offset + 1};
    Range all{.hi = 1, .fixed = false};
    for (const Term& t : index.terms) {
      Range one = range({r.op, d_.w.local_index(r.op, t.loop)}, place);
      if (index.terms.size() == 1 && t.coefficient == 1) {
        one.lo += index.offset;
        one.hi += index.offset;
        return one;
      }
      all.hi += std::abs(t.coefficient) * (one.length() - 1);
    }
    return all;
  }

  const Draft& d_;
  std::map<std::tuple<OpId, int, NodeId>, Range> known_;
};

}  // namespace

std::int64_t longest_range(const Draft& d, const OpLoop& c, NodeId body) {
  return LongestRanges(d).length(c, body);
}

namespace {

void bound_trips(Draft& d) {
  LongestRanges longest(d);
  for (ScheduleNode& n : d.k.nodes) {
    if (n.kind != NodeKind::loop) continue;
    std::int64_t length = 0;
    for (const OpLoop& c : n.cuts) length = std::max(length, longest.length(c, n.parent));
    n.max_trips = ceil_div(length, n.step);
  }
}

/// The innermost body with a producer and all consumers of all that it makes here (rule 2).
NodeId home_of(const Draft& d, OpId producer) {
  NodeId body = d.body_of(d.compute_of[producer.index()]);
  for (const Output& out : d.w.op(producer).outputs)
    for (OpId c : d.w.consumers(out.target.tensor))
      if (d.computed_here(c)) body = d.common_body(body, d.body_of(d.compute_of[c.index()]));
  return body;
}

void infer_at(Draft& d, OpId producer) {
  const Operator& op = d.w.op(producer);
  bool consumed = false;
  bool everything = false;
  for (const Output& out : op.outputs) {
    consumed |= d.consumed_here(out.target.tensor);
    everything |= d.leaves(out.target.tensor) || d.w.consumers(out.target.tensor).empty();
  }
  if (!consumed) return;
  const NodeId body = home_of(d, producer);
  bool merge = false;
  for (std::size_t o = 0; o < op.outputs.size(); ++o) {
    const TensorId t = op.outputs[o].target.tensor;
    d.home_body[t.index()] = body;
    if (everything || !d.consumed_here(t)) continue;
    d.node(body).infer.push_back({.tensor = t,
                                  .producer = producer,
                                  .output = static_cast<int>(o),
                                  .reads = d.reads_inside(t, body),
                                  .merge = merge,
                                  .sliding = d.sliding[t]});
    d.inferred_at[producer.index()] = body;
    merge = true;
  }
}

/// The ranges of an inference's readers may themselves be inferred further in.
void look_further_in(Draft& d) {
  for (std::size_t n = 0; n < d.k.nodes.size(); ++n)
    for (std::size_t i = 0; i < d.k.nodes[n].infer.size(); ++i) {
      std::vector<OpId> readers;
      for (const ReadRef& r : d.k.nodes[n].infer[i].reads) readers.push_back(r.op);
      d.k.nodes[n].infer[i].lookahead = d.lookahead(NodeId(n), readers);
    }
}

/// Follows which ranges are the same range: every cut and every inferred box makes a new one,
/// unless a consumer's own range passes to its producer as it is.
class SameRanges {
 public:
  explicit SameRanges(const Draft& d) : d_(d), tokens_(d.k.range_count) {
    for (OpId op : d.k.ops) {
      const auto& loops = d.w.op(op).loops;
      for (std::size_t l = 0; l < loops.size(); ++l)
        tokens_[d.k.range_base[op.index()] + l] = whole(loops[l]);
      for (const Output& out : d.w.op(op).outputs)
        if (const NodeId home = d.home_body[out.target.tensor.index()];
            home.valid() && d.inferred_at[op.index()] != home && d.consumed_here(out.target.tensor))
          leaving_[home].push_back(out.target.tensor);
    }
    for (auto& [body, tensors] : leaving_) std::ranges::sort(tensors);
  }

  std::optional<Reason> visit(NodeId id) {
    const ScheduleNode& n = d_.node(id);
    const std::size_t outer = undo_.size();
    if (n.kind == NodeKind::loop) {
      for (const OpLoop& c : n.cuts)
        if (token(c) != token(n.cuts.front()))
          return Reason{formatted("loop {} runs over different ranges of {} and {}",
                                  d_.w.loop(n.loop).name, d_.w.op(n.cuts.front().op).name,
                                  d_.w.op(c.op).name)};
      const int fresh = ++last_;
      for (const OpLoop& c : n.cuts) set(c, fresh);
    }
    for (const Inference& i : n.infer) pass(i);
    if (auto reason = check_leaving(id)) return reason;
    for (NodeId c : n.children)
      if (auto reason = visit(c)) return reason;
    go_back(outer);
    return std::nullopt;
  }

 private:
  static constexpr int kNone = 0;  // no single range; tokens of cuts count up from 1
  static int whole(LoopId l) { return -1 - l.value; }
  static bool is_whole(int token) { return token < kNone; }
  std::size_t slot(const OpLoop& c) const {
    return d_.k.range_base[c.op.index()] + static_cast<std::size_t>(c.local);
  }
  int token(const OpLoop& c) const { return tokens_[slot(c)]; }
  void set(const OpLoop& c, int token) {
    undo_.emplace_back(slot(c), tokens_[slot(c)]);
    tokens_[slot(c)] = token;
  }
  void go_back(std::size_t mark) {
    for (; undo_.size() > mark; undo_.pop_back()) tokens_[undo_.back().first] = undo_.back().second;
  }

  /// The token of one dimension of an access, if the access is that loop and covers no more; else
  /// kNone.
  int dimension(const ReadRef& read, std::size_t dim) const {
    const Access& a = d_.w.op(read.op).inputs[static_cast<std::size_t>(read.input)];
    const auto loop = a.index[dim].plain_loop();
    if (!loop || d_.w.tensor(a.tensor).shape[dim] != d_.w.loop(*loop).extent) return kNone;
    return token({read.op, d_.w.local_index(read.op, *loop)});
  }

  /// What the readers need of one dimension, all of them together.
  int needed(const Inference& i, std::size_t dim, LoopId loop) const {
    int same = i.sliding ? kNone : dimension(i.reads.front(), dim);
    for (const ReadRef& r : i.reads)
      if (dimension(r, dim) != same) same = kNone;
    // Who reads all of a dimension needs all of it, whatever the others read.
    for (const ReadRef& r : i.reads)
      if (!i.sliding && is_whole(dimension(r, dim))) same = whole(loop);
    return same;
  }

  void pass(const Inference& i) {
    // What a reader will run over may be known by its own consumers only, further in.
    const std::size_t now = undo_.size();
    for (const Inference& further_in : i.lookahead) pass(further_in);
    std::vector<std::pair<OpLoop, int>> need;
    const Access& target = d_.w.op(i.producer).outputs[static_cast<std::size_t>(i.output)].target;
    for (std::size_t dim = 0; dim < target.index.size(); ++dim)
      if (const auto loop = target.index[dim].plain_loop())
        need.emplace_back(OpLoop{i.producer, d_.w.local_index(i.producer, *loop)},
                          needed(i, dim, *loop));
    go_back(now);
    for (auto [at, same] : need) {
      if (i.merge && token(at) != same) same = kNone;
      set(at, same != kNone ? same : ++last_);
    }
  }

  /// What leaves the kernel is made whole, so nothing is inferred: a consumer here must need no
  /// more than its producer makes around their home point.
  std::optional<Reason> check_leaving(NodeId body) const {
    const auto leaving = leaving_.find(body);
    if (leaving == leaving_.end()) return std::nullopt;
    for (TensorId tensor : leaving->second) {
      const OpId producer = d_.w.producer(tensor);
      const Operator& op = d_.w.op(producer);
      for (const Output& out : op.outputs) {
        if (out.target.tensor != tensor) continue;
        for (const ReadRef& r : d_.reads_inside(tensor, body))
          for (std::size_t dim = 0; dim < out.target.index.size(); ++dim) {
            const auto loop = out.target.index[dim].plain_loop();
            if (!loop) continue;
            const int made = token({producer, d_.w.local_index(producer, *loop)});
            if (made != whole(*loop) && dimension(r, dim) != made)
              return Reason{
                  formatted("{} leaves the kernel, and {} needs more of it than {} makes "
                            "around both",
                            d_.w.tensor(tensor).name, d_.w.op(r.op).name, op.name)};
          }
      }
    }
    return std::nullopt;
  }

  const Draft& d_;
  std::vector<int> tokens_;                          // by range
  std::vector<std::pair<std::size_t, int>> undo_;    // what ranges had before
  std::map<NodeId, std::vector<TensorId>> leaving_;  // by home body: made, not inferred there
  int last_ = 0;
};

}  // namespace

std::optional<Reason> place_cuts(Draft& d) {
  cut_loops(d);
  for (auto op = d.k.ops.rbegin(); op != d.k.ops.rend(); ++op) infer_at(d, *op);  // consumers first
  look_further_in(d);
  bound_trips(d);
  return SameRanges(d).visit(NodeId(0));
}

std::vector<ReadRef> Draft::reads_inside(TensorId t, NodeId scope) const {
  std::vector<ReadRef> reads;
  for (OpId op : w.consumers(t)) {
    if (!computed_here(op) || !inside(compute_of[op.index()], scope)) continue;
    const auto& inputs = w.op(op).inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].tensor == t && !is_gather(inputs[i]))
        reads.push_back({op, static_cast<int>(i)});
  }
  return reads;
}

std::vector<Inference> Draft::lookahead(NodeId scope, std::vector<OpId> ops) const {
  const auto rank = [&](OpId op) { return placement.rank[op.index()]; };
  // Producers first: what one depends on is inferred from operators after it.
  std::map<std::size_t, OpId> open;
  for (OpId op : ops) open.emplace(rank(op), op);
  std::vector<std::vector<Inference>> found;
  for (; !open.empty(); open.erase(open.begin())) {
    const OpId op = open.begin()->second;
    const NodeId body = inferred_at[op.index()];
    if (!body.valid() || body == scope || !inside(body, scope)) continue;
    found.emplace_back();
    for (const Inference& i : inferences_of(op)) {
      found.back().push_back(i);
      found.back().back().sliding = false;    // a tile looked ahead is the whole region
      found.back().back().lookahead.clear();  // all that it depends on is in this list
      for (const ReadRef& r : i.reads) open.emplace(rank(r.op), r.op);
    }
  }
  // Consumers first; a merged output must follow the first one of its producer.
  std::vector<Inference> needed;
  for (auto of = found.rbegin(); of != found.rend(); ++of)
    std::ranges::move(*of, std::back_inserter(needed));
  return needed;
}

std::span<const Inference> Draft::inferences_of(OpId op) const {
  const std::vector<Inference>& all = node(inferred_at[op.index()]).infer;
  // Those of one body stand consumers first.
  const auto rank = [&](const Inference& i) { return placement.rank[i.producer.index()]; };
  const auto own = placement.rank[op.index()];
  return {std::ranges::lower_bound(all, own, std::ranges::greater(), rank),
          std::ranges::upper_bound(all, own, std::ranges::greater(), rank)};
}

}  // namespace tilewright::resolving
