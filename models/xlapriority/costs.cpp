// What XLA's performance model says of fusions.
#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "core/workload/subgraph.h"
#include "models/stitching/loops.h"
#include "models/xlapriority/xlapriority.h"

namespace tilewright::xlapriority {
namespace {

constexpr int kResult = 0;           // the root of what leaves a fusion
constexpr double kTransaction = 64;  // bytes from DRAM to L2: what a read of one element brings
constexpr double kBytesAClock = 32;  // of an SM (AdjustBandwidth)
constexpr double kSignificant = 16;  // of a sum, from which two are not in one kernel
constexpr double kMostCode = 10000, kMostSplits = 10;
constexpr int kMostReductions = 8;
constexpr double kMostShared = 48 * 1024;  // of a block, without asking for more

int root_of_points(int v) { return 1 + 2 * v; }
int root_of_value(int v) { return 2 + 2 * v; }

double elements_of(const Workload& w, TensorId t) {
  return static_cast<double>(w.tensor(t).elements().value);
}
double bytes_of(const Workload& w, TensorId t) {
  return static_cast<double>(w.tensor(t).bytes().value);
}

/// Whether the loop that writes neighbours reads the tensor in steps of a row.
bool reads_across(const Operator& op, const Access& a) {
  const Access& target = op.outputs.front().target;
  if (target.index.empty() || a.index.size() < 2 || is_gather(a)) return false;
  const auto inner = target.index.back().plain_loop();
  const auto has = [&](const Affine& index) {
    return std::ranges::any_of(index.terms, [&](const Term& t) { return t.loop == *inner; });
  };
  if (!inner || has(a.index.back())) return false;
  return std::any_of(a.index.begin(), a.index.end() - 1, has);
}

bool is_binary(const Expr& e) {
  return e.args.size() > 1 || std::ranges::any_of(e.args, is_binary);
}

std::vector<int> united(std::span<const int> a, std::span<const int> b) {
  std::vector<int> out;
  std::ranges::set_union(a, b, std::back_inserter(out));
  return out;
}

}  // namespace

std::string_view name_of(Emitter e) {
  switch (e) {
    case Emitter::loop:
      return "loop";
    case Emitter::reduction:
      return "reduction";
    case Emitter::transpose:
      return "transpose";
  }
  return "loop";
}

Gpu gpu_of(const Device& d) {
  Gpu out{.clock_ghz = d.clock_hz / 1e9, .cores = static_cast<double>(d.sms)};
  const Machine& m = *d.machine;
  out.capability = static_cast<int>(std::lround(m.units.front().capability * 10));
  if (out.capability > 0 && out.capability < 86) out.fpus = 64;
  out.bandwidth = d.dram_bytes_per_second;
  for (const Level& l : m.levels)
    if (l.kind == LevelKind::cache)
      out.l2_bytes = std::max(out.l2_bytes, static_cast<double>(l.capacity.value));
  out.l1_bytes = static_cast<double>(d.shared_per_sm);
  out.threads_per_core = static_cast<double>(d.threads_per_sm);
  return out;
}

const Fusion::Read* Fusion::find(TensorId t) const {
  const auto at = std::ranges::lower_bound(reads, t, {}, &Read::tensor);
  return at != reads.end() && at->tensor == t ? &*at : nullptr;
}

Costs::Costs(const Graph& g, const Gpu& gpu, const Options& o) : g_(g), gpu_(gpu), o_(o) {
  const Workload& w = g.workload();
  std::set<OpId> tied;
  for (const auto& [a, b] : tied_operators(w)) tied.insert({a, b});
  for (const Vertex& v : g.vertices()) {
    const Operator& op = w.op(v.op);
    library_.push_back(v.kind == Kind::product || op.running || tied.contains(v.op));
    operations_.push_back(operation_of(w, v.op, gpu.capability));
    sums_.push_back(v.reduced.empty() ? Reduction{} : reduction_of(w, v.op));
    transposes_.push_back(v.reduced.empty() && std::ranges::any_of(op.inputs, [&](const Access& a) {
                            return reads_across(op, a);
                          }));
    unary_.push_back(v.reduced.empty() && op.inputs.size() == 1 && op.outputs.size() == 1 &&
                     op.inputs.front().index == op.outputs.front().target.index &&
                     !is_binary(op.outputs.front().value));
  }
}

/// Utilizations from the results to what is read.
void Costs::spread(Fusion& f) const {
  const Workload& w = g_.workload();
  const auto outside = [&](TensorId t) { return 2 + 2 * g_.size() + static_cast<int>(t.index()); };
  std::map<int, double> code = {{kResult, 1.0}};
  std::map<int, std::set<int>> roots;
  std::map<TensorId, Fusion::Read> reads;
  std::map<TensorId, int> maker;
  for (int v : f.ops)
    for (const Output& o : w.op(g_.vertex(v).op).outputs) maker[o.target.tensor] = v;
  f.roots = {{kResult, 1.0}};
  for (int v : f.gives) roots[v].insert(kResult);
  const auto sum = [](const std::set<int>& of, const std::map<int, double>& values) {
    double s = 0;
    for (int r : of) s += values.at(r);
    return s;
  };
  for (auto at = f.ops.rbegin(); at != f.ops.rend(); ++at) {
    const int v = *at;
    const Vertex& x = g_.vertex(v);
    const Operator& op = w.op(x.op);
    const std::set<int> own = roots[v];
    const double utilization = sum(own, f.roots), emitted = sum(own, code);
    const Operation& cost = operations_[static_cast<std::size_t>(v)];
    f.flops += utilization * cost.flops;
    f.code += emitted * cost.code;
    f.splits += emitted * cost.splits;
    const double points = g_.points(x.loops);
    for (const Access& a : op.inputs) {
      const auto inside = maker.find(a.tensor);
      const double elements = elements_of(w, a.tensor);
      std::set<int>& to = inside != maker.end() ? roots[inside->second]
                                                : reads.try_emplace(a.tensor).first->second.roots;
      if (x.reduced.empty() && a.index == op.outputs.front().target.index && points == elements) {
        to.insert(own.begin(), own.end());
      } else if (!x.reduced.empty() && points == elements && !is_gather(a)) {
        f.roots[root_of_points(v)] = utilization;
        code[root_of_points(v)] = emitted;
        to.insert(root_of_points(v));
      } else {
        const int root = inside != maker.end() ? root_of_value(inside->second) : outside(a.tensor);
        f.roots[root] += std::ceil(utilization * points) / elements;
        code[root] += emitted;
        to.insert(root);
      }
    }
  }
  for (auto& [tensor, read] : reads) {
    read.tensor = tensor;
    read.utilization = sum(read.roots, f.roots);
    read.emitted = sum(read.roots, code);
    f.reads.push_back(std::move(read));
  }
}

/// FindNonTrivialHero: what a result is behind functions of one value.
int Costs::hero(std::span<const int> ops, int v) const {
  const Workload& w = g_.workload();
  for (int at = v;;) {
    const auto i = static_cast<std::size_t>(at);
    if (sums_[i].written || transposes_[i]) return at;
    if (!unary_[i]) return v;
    const Vertex& x = g_.vertex(at);
    if (x.in.empty()) return v;
    const int from = g_.edge(x.in.front()).from;
    if (!stitching::in(ops, from)) return v;
    at = from;
    if (w.op(g_.vertex(at).op).outputs.size() != 1) return v;
  }
}

Launch Costs::launch_of(Shape& s, int v) const {
  const auto up = [](double x, double to) { return std::ceil(x / to) * to; };
  const auto i = static_cast<std::size_t>(v);
  if (sums_[i].written) {
    const Reduction& r = sums_[i];
    s.emitter = Emitter::reduction;
    s.sum = r;
    // A thread takes up to 16 elements of a row, or 128 of each of a block's 32 columns.
    if (!r.rows)
      return {r.outer * std::ceil(r.kept / 32) * std::ceil(r.reduced / (32 * 128)), 1024};
    const double across =
        r.reduced < 32 ? r.reduced : std::min(1024.0, up(std::ceil(r.reduced / 16), 32));
    const double rows = std::max(1.0, std::floor(256 / across));
    return {std::ceil(r.outer / 8) * std::ceil(r.kept / rows), across * rows};
  }
  if (transposes_[i]) {
    s.emitter = Emitter::transpose;
    return {std::ceil(s.elements / 1024), 128};
  }
  double unrolled = 1;
  if (s.elements >= gpu_.cores * gpu_.threads_per_core)
    unrolled = std::fmod(s.elements, 4) == 0 ? 4 : std::fmod(s.elements, 2) == 0 ? 2 : 1;
  const double threads = std::min(128.0, up(s.elements, 32));
  return {std::ceil(s.elements / unrolled / threads), threads};
}

Costs::Shape Costs::shape_of(std::span<const int> ops, std::span<const int> gives) const {
  Shape best;
  for (int v : gives) {
    const int h = hero(ops, v);
    const Vertex& x = g_.vertex(h);
    Shape s;
    s.elements = sums_[static_cast<std::size_t>(h)].written ? g_.points(x.loops)
                                                            : g_.points(x.loops & ~x.reduced);
    s.launch = launch_of(s, h);
    if (v == gives.front() || (best.emitter == Emitter::loop && s.emitter != Emitter::loop))
      best = s;
  }
  return best;
}

double Costs::combined(double compute, double memory) const {
  return compute + memory - std::min(compute, memory) * o_.parallelism;
}

double Costs::compute_seconds(double flops, const Launch& l) const {
  const double active = std::min(l.blocks, gpu_.cores) * std::min(l.threads, gpu_.fpus);
  return flops / (gpu_.clock_ghz * 1e9 * 2 * active);
}

/// ReadTimeWithDRAMHeuristic: what is read first comes from DRAM, the rest from where it fits.
double Costs::read_seconds(double blocks, double net, double total, double rate) const {
  double rest = gpu_.bandwidth;
  if (net < gpu_.l2_bytes) {
    rest *= o_.l2_speedup;
    if (net < gpu_.l1_bytes * gpu_.cores) rest *= o_.l1_speedup;
  } else {
    rest *= rate;
  }
  const double most = blocks * gpu_.clock_ghz * 1e9 * kBytesAClock;
  const double first = std::min(net, total);
  return first / std::min(gpu_.bandwidth * rate, most) + (total - first) / std::min(rest, most);
}

double Costs::dram_rate(TensorId t, bool coalesced) const {
  if (coalesced) return 1;
  return static_cast<double>(size_of(g_.workload().tensor(t).dtype)) / kTransaction;
}

Fusion Costs::fusion(std::vector<int> ops, std::vector<int> gives) const {
  const Workload& w = g_.workload();
  Fusion f{.ops = std::move(ops), .gives = std::move(gives)};
  spread(f);
  const Shape shape = shape_of(f.ops, f.gives);
  f.emitter = shape.emitter;
  f.launch = shape.launch;
  for (int v : f.ops) {
    const auto i = static_cast<std::size_t>(v);
    const Vertex& x = g_.vertex(v);
    const auto size = static_cast<double>(x.row_bytes);
    f.transposes = f.transposes || transposes_[i];
    f.reduces = f.reduces || (!x.reduced.empty() && g_.points(x.reduced) >= kSignificant);
    if (sums_[i].written) {
      ++f.reductions;
      f.shared_bytes += (sums_[i].rows ? 32 : 2 * 32 * 33) * size;
    } else if (transposes_[i]) {
      f.shared_bytes += 32 * 33 * size;
    }
  }
  for (int v : f.gives) {
    const Vertex& x = g_.vertex(v);
    f.bytes_written += g_.points(x.loops & ~x.reduced) * static_cast<double>(x.row_bytes);
  }
  const bool coalesced = f.emitter == Emitter::transpose || !f.transposes;
  for (const Fusion::Read& r : f.reads) {
    const double size = bytes_of(w, r.tensor), total = size * r.utilization;
    f.read_seconds +=
        read_seconds(f.launch.blocks, std::min(size, total), total, dram_rate(r.tensor, coalesced));
  }
  f.write_seconds = f.bytes_written / gpu_.bandwidth;
  f.compute_seconds = compute_seconds(f.flops, f.launch);
  f.seconds = combined(f.compute_seconds, f.read_seconds + f.write_seconds);
  return f;
}

Fusion Costs::fused(const Fusion& p, const Fusion& c, bool both) const {
  return fusion(united(p.ops, c.ops), both ? united(p.gives, c.gives) : c.gives);
}

double Costs::utilization_of(const Fusion& consumer, const Fusion& producer) const {
  double most = 0;
  for (int v : producer.gives)
    for (const Output& o : g_.workload().op(g_.vertex(v).op).outputs)
      if (const Fusion::Read* r = consumer.find(o.target.tensor))
        most = std::max(most, r->utilization);
  return most;
}

/// What both read at the same points: once in the kernel that they become.
double Costs::common_utilization(const Fusion& p, TensorId t, const Fusion& c) const {
  const Fusion::Read *first = p.find(t), *second = c.find(t);
  if (first == nullptr || second == nullptr || !first->roots.contains(kResult)) return 0;
  double sum = 0;
  for (int v : p.gives)
    for (const Output& o : g_.workload().op(g_.vertex(v).op).outputs)
      if (const Fusion::Read* read = c.find(o.target.tensor))
        for (int r : read->roots)
          if (second->roots.contains(r)) sum += c.roots.at(r);
  return sum;
}

double Costs::fused_seconds(const Fusion& p, const Fusion& c, bool both) const {
  const Workload& w = g_.workload();
  const double used = utilization_of(c, p);
  const Shape shape = shape_of(united(p.ops, c.ops), c.gives);
  bool coalesced = shape.emitter == Emitter::transpose || (!p.transposes && !c.transposes);
  if (shape.emitter == Emitter::reduction && p.emitter == Emitter::reduction &&
      c.emitter == Emitter::reduction)
    coalesced = false;
  std::set<TensorId> made, operands;
  for (int v : p.gives)
    for (const Output& o : w.op(g_.vertex(v).op).outputs) made.insert(o.target.tensor);
  for (const Fusion* f : {&p, &c})
    for (const Fusion::Read& r : f->reads)
      if (!made.contains(r.tensor)) operands.insert(r.tensor);
  double reading = 0;
  for (TensorId t : operands) {
    const Fusion::Read *first = p.find(t), *second = c.find(t);
    const double size = bytes_of(w, t);
    const double total = size * ((first ? first->utilization * used : 0) +
                                 (second ? second->utilization : 0) - common_utilization(p, t, c));
    reading +=
        read_seconds(shape.launch.blocks, std::min(size, total), total, dram_rate(t, coalesced));
  }
  const double compute = compute_seconds(p.flops * used + c.flops, shape.launch);
  return combined(compute, reading + c.write_seconds) + (both ? p.write_seconds : 0);
}

std::optional<std::string> Costs::over_budget(const Fusion& a, const Fusion& b,
                                              bool vertical) const {
  if (a.shared_bytes + b.shared_bytes > kMostShared) return "more than 48 KB of shared memory";
  if (a.reductions + b.reductions > kMostReductions) return "more than 8 reductions";
  std::set<TensorId> operands;
  for (const Fusion* f : {&a, &b})
    for (const Fusion::Read& r : f->reads) operands.insert(r.tensor);
  for (const Fusion* f : {&a, &b})
    for (int v : f->gives)
      for (const Output& o : g_.workload().op(g_.vertex(v).op).outputs)
        operands.erase(o.target.tensor);
  if (vertical && operands.size() <= b.reads.size()) return std::nullopt;
  if (operands.size() + a.gives.size() + b.gives.size() >
      static_cast<std::size_t>(o_.most_operands))
    return formatted("more than {} operands and results", o_.most_operands);
  return std::nullopt;
}

std::optional<std::string> Costs::not_held(const Fusion& both) const {
  const int most = o_.kernels.most_operators;
  if (both.ops.size() > static_cast<std::size_t>(most))
    return formatted("more than {} operators", most);
  stitching::SharedKernel kernel;
  for (int v : both.ops) kernel.ops.push_back(g_.vertex(v).op);
  for (int v : both.gives) kernel.gives.push_back(g_.vertex(v).op);
  // Products were set apart when the graph was made; what is fused has none.
  const auto reason = stitching::not_one_kernel(g_.workload(), kernel, 0, most);
  return reason ? std::optional(reason->text) : std::nullopt;
}

std::optional<std::string> Costs::refusal(const Fusion& p, const Fusion& c, bool both) const {
  for (const Fusion* f : {&p, &c})
    if (std::ranges::any_of(f->ops, [this](int v) { return is_library(v); }))
      return "a product is a call of a library, and a running operator stays as it is";
  if (!both && p.reduces && c.reduces) return "both have a reduction";
  if (!both && p.emitter == Emitter::reduction &&
      shape_of(united(p.ops, c.ops), c.gives).emitter == Emitter::loop)
    return "the kernel of a reduction would become a loop";
  if (both && p.transposes) return "the producer transposes";
  if (both)
    if (auto reason = sibling_refusal(p, c)) return reason;
  if (auto reason = over_budget(p, c, !both)) return reason;
  double emitted = 0;
  for (int v : p.gives)
    for (const Output& o : g_.workload().op(g_.vertex(v).op).outputs)
      if (const Fusion::Read* r = c.find(o.target.tensor)) emitted = std::max(emitted, r->emitted);
  const double splits = emitted * p.splits + c.splits;
  if (splits > kMostSplits || (p.code * emitted + c.code) * std::exp2(splits) > kMostCode)
    return "too much code would be written more than once";
  return both ? std::nullopt : not_held(fused(p, c));
}

std::optional<std::string> Costs::sibling_refusal(const Fusion& a, const Fusion& b) const {
  const Shape x = shape_of(a.ops, a.gives), y = shape_of(b.ops, b.gives);
  const auto is = [&](Emitter first, Emitter second) {
    return (x.emitter == first && y.emitter == second) ||
           (x.emitter == second && y.emitter == first);
  };
  if (is(Emitter::transpose, Emitter::reduction)) return "a transpose and a reduction";
  if (is(Emitter::reduction, Emitter::reduction) && x.sum != y.sum)
    return "reductions of different shapes";
  if (x.elements != y.elements) return "loops of different shapes";
  if (auto reason = over_budget(a, b, false)) return reason;
  return not_held(fused(a, b, true));
}

double seconds_of(const Costs& costs, std::span<const Fusion> kernels, const Options& o) {
  double seconds = 0;
  for (const Fusion& f : kernels)
    if (costs.graph().vertex(f.ops.front()).kind != Kind::product || f.ops.size() > 1)
      seconds += f.seconds + o.launch_seconds;
  return seconds;
}

}  // namespace tilewright::xlapriority
