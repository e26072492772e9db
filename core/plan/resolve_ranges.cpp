// Where ranges are cut and where they are inferred (plan.md rules 1 to 3).
#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "core/plan/resolver.h"

namespace tilewright::lowering {

namespace {

std::vector<OpId> ops_inside(const Draft& d, NodeId scope) {
  std::vector<OpId> ops;
  for (OpId op : d.w.topological_order())
    if (d.computed_here(op) && d.inside(d.compute_of[op.index()], scope)) ops.push_back(op);
  return ops;
}

void cut_loops(Draft& d) {
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    ScheduleNode& n = d.k.nodes[i];
    if (n.kind != NodeKind::loop) continue;
    for (OpId op : ops_inside(d, NodeId(i))) {
      const int local = d.w.local_index(op, n.loop);
      if (local >= 0) n.cuts.push_back({op, local});
    }
    const Loop& loop = d.w.loop(n.loop);
    if (n.cuts.empty())
      d.bad("loop " + loop.name, "no operator", "below this loop has it", "a loop around C.operator");
  }
}

/// The longest range that a loop node can meet: the step of the loop of the same name around it,
/// unless its operators' ranges are inferred anew in between.
std::int64_t longest_range(const Draft& d, const ScheduleNode& n) {
  const std::int64_t extent = d.w.loop(n.loop).extent;
  for (NodeId p = n.parent; p.valid(); p = d.node(p).parent) {
    for (const Inference& i : d.node(p).infer)
      for (const OpLoop& c : n.cuts)
        if (c.op == i.producer && !d.w.is_reduction(c.op, n.loop)) return extent;
    if (d.node(p).kind == NodeKind::loop && d.node(p).loop == n.loop)
      return std::min(extent, d.node(p).step);
  }
  return extent;
}

void bound_trips(Draft& d) {
  for (ScheduleNode& n : d.k.nodes)
    if (n.kind == NodeKind::loop) n.max_trips = ceil_div(longest_range(d, n), n.step);
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
    everything |= d.leaves(out.target.tensor) || !d.consumed_here(out.target.tensor);
  }
  if (!consumed) return;
  const NodeId body = home_of(d, producer);
  bool merge = false;
  for (std::size_t o = 0; o < op.outputs.size(); ++o) {
    const TensorId t = op.outputs[o].target.tensor;
    d.home_body[t.index()] = body;
    if (everything || !d.consumed_here(t)) continue;
    d.node(body).infer.push_back({.tensor = t, .producer = producer, .output = static_cast<int>(o),
                                  .reads = d.reads_inside(t, body), .merge = merge,
                                  .sliding = d.sliding[t]});
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

/// Follows which ranges are the same range: every cut and every inferred box makes a new one, unless
/// a consumer's own range passes to its producer as it is.
class SameRanges {
 public:
  explicit SameRanges(const Draft& d) : d_(d) {
    tokens_.resize(d.w.operators().size());
    for (OpId op : d.k.ops)
      for (LoopId l : d.w.op(op).loops) tokens_[op.index()].push_back(whole(l));
  }

  std::optional<Reason> visit(NodeId id) {
    const ScheduleNode& n = d_.node(id);
    const auto outer = tokens_;
    if (n.kind == NodeKind::loop) {
      for (const OpLoop& c : n.cuts)
        if (token(c) != token(n.cuts.front()))
          return Reason{formatted(
              "loop {} runs over different ranges of {} and {}", d_.w.loop(n.loop).name,
              d_.w.op(n.cuts.front().op).name, d_.w.op(c.op).name)};
      const int fresh = ++last_;
      for (const OpLoop& c : n.cuts) token(c) = fresh;
    }
    for (const Inference& i : n.infer) pass(i);
    if (auto reason = check_leaving(id)) return reason;
    for (NodeId c : n.children)
      if (auto reason = visit(c)) return reason;
    tokens_ = outer;
    return std::nullopt;
  }

 private:
  using Tokens = std::vector<std::vector<int>>;  // by op, loop
  static constexpr int kNone = 0;  // no single range; tokens of cuts count up from 1
  static int whole(LoopId l) { return -1 - l.value; }
  static bool is_whole(int token) { return token < kNone; }
  int& token(const OpLoop& c) {
    return tokens_[c.op.index()][static_cast<std::size_t>(c.local)];
  }

  /// The token of one dimension of an access, if the access is that loop and covers no more; else
  /// kNone.
  int dimension(const ReadRef& read, std::size_t dim, const Tokens& tokens) const {
    const Access& a = d_.w.op(read.op).inputs[static_cast<std::size_t>(read.input)];
    const auto loop = a.index[dim].plain_loop();
    if (!loop || d_.w.tensor(a.tensor).shape[dim] != d_.w.loop(*loop).extent) return kNone;
    return tokens[read.op.index()][static_cast<std::size_t>(d_.w.local_index(read.op, *loop))];
  }

  void pass(const Inference& i) {
    // What a reader will run over may be known by its own consumers only, further in.
    const Tokens now = tokens_;
    for (const Inference& further_in : i.lookahead) pass(further_in);
    const Tokens ahead = tokens_;
    tokens_ = now;
    const Access& target =
        d_.w.op(i.producer).outputs[static_cast<std::size_t>(i.output)].target;
    for (std::size_t dim = 0; dim < target.index.size(); ++dim) {
      const auto loop = target.index[dim].plain_loop();
      if (!loop) continue;
      const OpLoop slot{i.producer, d_.w.local_index(i.producer, *loop)};
      int same = i.sliding ? kNone : dimension(i.reads.front(), dim, ahead);
      for (const ReadRef& r : i.reads)
        if (dimension(r, dim, ahead) != same) same = kNone;
      // Who reads all of a dimension needs all of it, whatever the others read.
      for (const ReadRef& r : i.reads)
        if (!i.sliding && is_whole(dimension(r, dim, ahead))) same = whole(*loop);
      if (i.merge && token(slot) != same) same = kNone;
      token(slot) = same != kNone ? same : ++last_;
    }
  }

  /// What leaves the kernel is made whole, so nothing is inferred: a consumer here must need no more
  /// than its producer makes around their home point.
  std::optional<Reason> check_leaving(NodeId body) {
    for (std::size_t t = 0; t < d_.home_body.size(); ++t) {
      const TensorId tensor(t);
      const OpId producer = d_.w.producer(tensor);
      if (d_.home_body[t] != body || !d_.consumed_here(tensor) || inferred(body, producer)) continue;
      const Operator& op = d_.w.op(producer);
      for (const Output& out : op.outputs) {
        if (out.target.tensor != tensor) continue;
        for (const ReadRef& r : d_.reads_inside(tensor, body))
          for (std::size_t dim = 0; dim < out.target.index.size(); ++dim) {
            const auto loop = out.target.index[dim].plain_loop();
            if (!loop) continue;
            const int made = token({producer, d_.w.local_index(producer, *loop)});
            if (made != whole(*loop) && dimension(r, dim, tokens_) != made)
              return Reason{formatted("{} leaves the kernel, and {} needs more of it than {} makes "
                                        "around both",
                                        d_.w.tensor(tensor).name, d_.w.op(r.op).name, op.name)};
          }
      }
    }
    return std::nullopt;
  }
  bool inferred(NodeId body, OpId producer) const {
    return std::ranges::any_of(d_.node(body).infer,
                               [&](const Inference& i) { return i.producer == producer; });
  }

  const Draft& d_;
  Tokens tokens_;
  int last_ = 0;
};

}  // namespace

std::optional<Reason> place_cuts(Draft& d) {
  d.home_body.assign(d.w.tensors().size(), NodeId());
  cut_loops(d);
  const auto order = d.w.topological_order();
  for (auto op = order.rbegin(); op != order.rend(); ++op)  // consumers first
    if (d.computed_here(*op)) infer_at(d, *op);
  look_further_in(d);
  bound_trips(d);
  return SameRanges(d).visit(NodeId(0));
}

std::vector<ReadRef> Draft::reads_inside(TensorId t, NodeId scope) const {
  std::vector<ReadRef> reads;
  for (OpId op : w.topological_order()) {
    if (!computed_here(op) || !inside(compute_of[op.index()], scope)) continue;
    const auto& inputs = w.op(op).inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].tensor == t && !is_gather(inputs[i]))
        reads.push_back({op, static_cast<int>(i)});
  }
  return reads;
}

std::vector<Inference> Draft::lookahead(NodeId scope, std::vector<OpId> ops) const {
  std::vector<const Inference*> below;  // producers first
  for (OpId op : w.topological_order())
    for (std::size_t n = 0; n < k.nodes.size(); ++n)
      if (NodeId(n) != scope && inside(NodeId(n), scope))
        for (const Inference& i : k.nodes[n].infer)
          if (i.producer == op) below.push_back(&i);
  std::vector<Inference> needed;
  for (const Inference* i : below) {
    if (std::ranges::find(ops, i->producer) == ops.end()) continue;
    needed.push_back(*i);
    needed.back().sliding = false;  // a tile looked ahead is the whole region
    needed.back().lookahead.clear();  // all that it depends on is in this list
    for (const ReadRef& r : i->reads) ops.push_back(r.op);
  }
  // Consumers first; a merged output must follow the first one of its producer.
  std::stable_sort(needed.begin(), needed.end(), [&](const Inference& a, const Inference& b) {
    const auto order = w.topological_order();
    const auto at = [&](OpId op) { return std::ranges::find(order, op) - order.begin(); };
    return at(a.producer) > at(b.producer);
  });
  return needed;
}

}  // namespace tilewright::lowering
