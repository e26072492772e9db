#include "core/plan/join.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <set>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"

namespace tilewright {
namespace {

/// Whether two workloads say the same of the same names, whatever they are called.
bool same(const Workload& a, const Workload& b) {
  WorkloadSpec renamed = a.spec();
  renamed.name = b.name();
  return renamed == b.spec();
}

std::vector<OpId> all_operators(const Workload& w) {
  std::vector<OpId> ops;
  for (std::size_t i = 0; i < w.operators().size(); ++i) ops.emplace_back(i);
  return ops;
}

std::string label(const PartPlan& part) {
  return formatted("part {}{}", part.part.name(), part.by.empty() ? "" : " by " + part.by);
}

/// Whether the whole, rewritten, still has the part as it was planned; else why not.
std::optional<Reason> not_in(const Workload& whole, const PartPlan& part) {
  std::vector<OpId> ops;
  for (const Operator& op : part.part.operators()) {
    const auto found = whole.find_op(op.name);
    if (!found || whole.op(*found).name != op.name)
      return Reason{formatted("{}: its operator {} is none of the whole's", label(part), op.name)};
    ops.push_back(*found);
  }
  if (auto reason = no_subgraph(whole, ops))
    return Reason{formatted("{}: {}", label(part), reason->text)};
  // Both in subgraph's own order of loops and tensors.
  if (!same(subgraph(whole, ops), subgraph(part.part, all_operators(part.part))))
    return Reason{formatted("{}: its operators are others in the whole", label(part))};
  return std::nullopt;
}

/// The operators that a kernel computes, by name.
void computed(const Node& n, std::set<std::string>& names, const Workload& w) {
  if (n.kind == Node::Kind::compute)
    if (const auto op = w.find_op(n.name)) names.insert(w.op(*op).name);
  for (const Node& c : n.children) computed(c, names, w);
}

struct Piece {
  const Kernel* kernel;
  std::size_t part;
  std::set<std::string> computes;
  std::vector<std::size_t> before;  ///< pieces that come before it
};

std::vector<Piece> pieces_of(const Workload& whole, std::span<const PartPlan> parts) {
  std::vector<Piece> pieces;
  std::map<std::string, std::vector<std::size_t>> makers;  // by operator
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (const Kernel& kernel : parts[p].plan.kernels) {
      Piece piece{.kernel = &kernel, .part = p};
      computed(kernel.tree, piece.computes, whole);
      if (!pieces.empty() && pieces.back().part == p) piece.before.push_back(pieces.size() - 1);
      for (const std::string& op : piece.computes) makers[op].push_back(pieces.size());
      pieces.push_back(std::move(piece));
    }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (const std::string& name : pieces[i].computes)
      for (const Access& a : whole.op(*whole.find_op(name)).inputs) {
        const OpId producer = whole.producer(a.tensor);
        if (!producer.valid()) continue;
        const auto made = makers.find(whole.op(producer).name);
        if (made == makers.end()) continue;
        for (std::size_t m : made->second)
          if (pieces[m].part != pieces[i].part) pieces[i].before.push_back(m);
      }
  return pieces;
}

/// None where pieces wait for one another.
std::optional<std::vector<std::size_t>> order_of(const std::vector<Piece>& pieces) {
  std::vector<std::size_t> waiting(pieces.size());
  std::vector<std::vector<std::size_t>> next(pieces.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    waiting[i] = pieces[i].before.size();
    for (std::size_t b : pieces[i].before) next[b].push_back(i);
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (std::size_t n : next[i])
      if (--waiting[n] == 0) ready.push(n);
  }
  if (order.size() < pieces.size()) return std::nullopt;
  return order;
}

std::string unused_name(const std::string& name, const std::set<std::string>& used) {
  if (!used.contains(name)) return name;
  for (int n = 2;; ++n) {
    const std::string numbered = formatted("{}_{}", name, n);
    if (!used.contains(numbered)) return numbered;
  }
}

}  // namespace

namespace {

struct Rewritten {
  Workload whole;
  std::vector<std::string> rewrites;
};

/// The whole with every part's rewrites, where it still has the parts as they were planned.
Result<Rewritten> rewritten_for(const Workload& whole, std::span<const PartPlan> parts) {
  Rewritten r{whole, {}};
  for (const PartPlan& part : parts)
    for (const std::string& name : part.rewrites) {
      if (std::ranges::find(r.rewrites, name) != r.rewrites.end()) continue;
      Result<Workload> next = tilewright::apply(name, r.whole);
      if (!next)
        return Reason{formatted("{}: --rewrite {} of the whole: {}", label(part), name,
                                next.reason())};
      r.whole = std::move(next).value();
      r.rewrites.push_back(name);
    }
  for (const PartPlan& part : parts)
    if (auto reason = not_in(r.whole, part)) return *reason;
  return r;
}

}  // namespace

std::optional<Reason> no_join(const Workload& whole, std::span<const PartPlan> parts) {
  const Result<Rewritten> r = rewritten_for(whole, parts);
  if (r) return std::nullopt;
  return Reason{r.reason()};
}

Result<JoinedPlan> join_plans(const Workload& whole, std::span<const PartPlan> parts) {
  const Result<Rewritten> rewritten = rewritten_for(whole, parts);
  if (!rewritten) return Reason{rewritten.reason()};
  const Workload& w = rewritten->whole;
  JoinedPlan joined{.rewrites = rewritten->rewrites};
  std::set<std::string> planned;
  for (const PartPlan& part : parts)
    for (const Operator& op : part.part.operators()) planned.insert(op.name);
  for (const Operator& op : w.operators())
    if (!planned.contains(op.name)) return Reason{formatted("no part has {}", op.name)};

  const std::vector<Piece> pieces = pieces_of(w, parts);
  const auto order = order_of(pieces);
  if (!order) return Reason{"kernels of several parts would wait for one another"};
  std::set<std::string> names;
  for (std::size_t i : *order) {
    Kernel kernel = *pieces[i].kernel;
    kernel.by = parts[pieces[i].part].by;
    if (!kernel.name.empty()) names.insert(kernel.name = unused_name(kernel.name, names));
    joined.plan.kernels.push_back(std::move(kernel));
    joined.part_of.push_back(pieces[i].part);
  }
  return joined;
}

}  // namespace tilewright
