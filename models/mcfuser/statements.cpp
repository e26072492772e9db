// Where each statement of an expression goes: computes by the loops that they have, loads and
// stores by the DAG of loops and statements.
#include <algorithm>

#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {

using detail::Around;
using detail::bit;
using detail::has;
using detail::Statement;

namespace {

using Ops = std::uint64_t;

/// The computes of an expression in its loops.
class Builder {
 public:
  Builder(const Chain& c, Mask live) : c_(c), live_(live) {}

  std::vector<Item> build(const Expression& e, std::size_t at, Ops ops) const {
    if (ops == 0) return {};
    if (at == e.nest.size()) return innermost(e, ops);
    const LoopId x = e.nest[at];
    const Ops users = has(live_, x) ? with(ops, bit(x)) : 0;
    if (users == 0) return build(e, at + 1, ops);
    const Ops dependents = dependents_of_reducers(ops, users, x);
    if (dependents == 0) return enclose(e, at, ops, users);
    // The unfinished reduction first, with what feeds it; then everybody else.
    const Ops inside = (users & ~dependents) | (feeding(users & ~dependents) & ops);
    std::vector<Item> out{loop(x, build(e, at + 1, inside))};
    append(out, build(e, at, ops & ~inside));
    return out;
  }

 private:
  static Item loop(LoopId x, std::vector<Item> body) {
    Item item;
    item.loop = x;
    item.body = std::move(body);
    return item;
  }
  static void append(std::vector<Item>& to, std::vector<Item> more) {
    std::ranges::move(more, std::back_inserter(to));
  }

  Ops with(Ops ops, Mask loops) const {
    Ops users = 0;
    for (OpId p : c_.workload->topological_order())
      if (has(ops, p) && (c_.op_loops[p.index()] & loops) != 0) users |= bit(p);
    return users;
  }
  Ops feeding(Ops ops) const {
    Ops all = 0;
    for (OpId p : c_.workload->topological_order())
      if (has(ops, p)) all |= c_.feeds[p.index()];
    return all;
  }
  Ops dependents_of_reducers(Ops ops, Ops users, LoopId x) const {
    Ops reducers = 0, dependents = 0;
    for (OpId p : c_.workload->topological_order()) {
      if (!has(ops, p)) continue;
      if ((c_.feeds[p.index()] & reducers) != 0) dependents |= bit(p);
      if (has(users, p) && has(c_.op_reduced[p.index()], x) && !c_.workload->op(p).running)
        reducers |= bit(p);
    }
    return dependents;
  }

  /// The computes of `ops` in program order.
  std::vector<Item> computes(Ops ops) const {
    std::vector<Item> out;
    for (OpId p : c_.workload->topological_order()) {
      if (!has(ops, p)) continue;
      Item item;
      item.op = p;
      out.push_back(std::move(item));
    }
    return out;
  }

  std::vector<Item> innermost(const Expression& e, Ops ops) const {
    std::vector<Item> out;
    for (const Expression& part : e.parts) {
      const Ops inside = with(ops, detail::loops_of(part) & live_);
      Ops later = 0;  // has loops in a part that comes after
      for (const Expression& other : e.parts) later |= with(ops, detail::loops_of(other) & live_);
      const Ops before = feeding(inside) & ops & ~inside & ~later;
      append(out, computes(before));
      append(out, build(part, 0, inside));
      ops &= ~(before | inside);
    }
    append(out, computes(ops));
    return out;
  }

  /// One loop around its users and around what must be computed again for each iteration; what need
  /// not be comes before, what does not use the loop after.
  std::vector<Item> enclose(const Expression& e, std::size_t at, Ops ops, Ops users) const {
    Expression rest{{e.nest.begin() + static_cast<std::ptrdiff_t>(at) + 1, e.nest.end()}, e.parts};
    const Mask below = detail::loops_of(rest) & live_;
    Ops core = users, before = 0;
    for (OpId p : c_.workload->topological_order()) {
      if (!has(feeding(users) & ops & ~users, p)) continue;
      const bool again = (c_.op_loops[p.index()] & below) != 0 || (c_.feeds[p.index()] & core) != 0;
      (again ? core : before) |= bit(p);
    }
    std::vector<Item> out = build(rest, 0, before);
    out.push_back(loop(e.nest[at], build(rest, 0, core)));
    append(out, build(rest, 0, ops & ~before & ~core));
    return out;
  }

  const Chain& c_;
  Mask live_;
};

/// The computes in all loops, those bound to blockIdx around everything.
std::vector<Item> skeleton(const Chain& c, const SubExpression& s, Mask live) {
  Ops all = 0;
  for (OpId p : c.workload->topological_order()) all |= bit(p);
  std::vector<Item> items = Builder(c, live).build(s.rest, 0, all);
  for (auto l = s.bound.rbegin(); l != s.bound.rend(); ++l) {
    if (!has(live, *l)) continue;
    Item item;
    item.loop = *l;
    item.bound = true;
    item.body = std::move(items);
    items.clear();
    items.push_back(std::move(item));
  }
  return items;
}

/// Loads that the compute needs, then the compute, then its stores.
void add_statements(const Chain& c, OpId op, const std::vector<Around>& path, Hoist hoist,
                    Stores stores, std::vector<Statement>& out) {
  const Workload& w = *c.workload;
  const auto depth = [&](Kind kind, TensorId t) {
    return detail::depth_of(kind, path, c.tensor_loops[t.index()], c.op_reduced[op.index()], hoist,
                            stores);
  };
  std::vector<TensorId> loaded;
  for (const Access& a : w.op(op).inputs)
    if (w.is_input(a.tensor) && std::ranges::find(loaded, a.tensor) == loaded.end()) {
      loaded.push_back(a.tensor);
      out.push_back({Kind::load, op, a.tensor, path, depth(Kind::load, a.tensor)});
    }
  out.push_back({Kind::compute, op, TensorId(), path, path.size()});
  for (const Output& o : w.op(op).outputs)
    if (w.is_output(o.target.tensor))
      out.push_back({Kind::store, op, o.target.tensor, path, depth(Kind::store, o.target.tensor)});
}

/// The sequence of items with the statements that belong in it; `path`: the loops around it.
void collect(const Chain& c, const std::vector<Item>& items, std::vector<Around>& path, Hoist hoist,
             Stores stores, std::vector<Statement>& out) {
  for (const Item& item : items) {
    if (!item.loop.valid()) {
      add_statements(c, item.op, path, hoist, stores, out);
      continue;
    }
    path.push_back({item.loop, item.bound});
    collect(c, item.body, path, hoist, stores, out);
    path.pop_back();
  }
}

/// Puts every load before and every store after the item at its depth that holds its compute.
std::vector<Item> weave(const std::vector<Item>& items, std::size_t depth,
                        std::span<const Statement> statements) {
  std::vector<Item> out;
  for (const Item& item : items) {
    // The statements of the computes in this item, in program order, are the first ones left.
    std::size_t computes = 0;
    const auto count = [&computes](const auto& self, const Item& i) -> void {
      if (!i.loop.valid()) ++computes;
      for (const Item& b : i.body) self(self, b);
    };
    count(count, item);
    std::size_t n = 0;
    for (; n < statements.size(); ++n) {
      if (statements[n].kind == Kind::load && computes == 0) break;
      if (statements[n].kind == Kind::compute && computes-- == 0) break;
    }
    const auto own = statements.first(n);
    statements = statements.subspan(n);
    const auto put = [&](Kind kind) {
      for (const Statement& s : own)
        if (s.kind == kind && s.depth == depth) {
          Item statement;
          statement.kind = kind;
          statement.op = s.op;
          statement.tensor = s.tensor;
          out.push_back(std::move(statement));
        }
    };
    put(Kind::load);
    Item copy = item;
    if (item.loop.valid()) copy.body = weave(item.body, depth + 1, own);
    out.push_back(std::move(copy));
    put(Kind::store);
  }
  return out;
}

std::string items_text(const Chain& c, const std::vector<Item>& items, bool letters) {
  std::string out;
  for (const Item& item : items) {
    if (!out.empty()) out += ",";
    if (!item.loop.valid()) {
      out += detail::statement_name(*c.workload, item.kind, item.op, item.tensor);
      continue;
    }
    const Item* at = &item;
    out += c.workload->loop(at->loop).name;
    while (at->body.size() == 1 && at->body.front().loop.valid()) {
      at = &at->body.front();
      out += (letters ? "" : " ") + c.workload->loop(at->loop).name;
    }
    out += "(" + items_text(c, at->body, letters) + ")";
  }
  return out;
}

}  // namespace

namespace detail {

std::size_t depth_of(Kind kind, std::span<const Around> path, Mask indexed, Mask reduced,
                     Hoist hoist, Stores stores) {
  if (hoist == Hoist::none) return path.size();
  std::size_t depth = 0, blocks = 0, first = path.size();
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (has(indexed, path[i].loop)) depth = i + 1;
    if (path[i].bound) blocks = i + 1;
    if (has(reduced, path[i].loop)) first = std::min(first, i);
  }
  if (kind == Kind::store && stores == Stores::once) depth = std::min(depth, first);
  return hoist == Hoist::block ? std::max(depth, blocks) : depth;
}

std::vector<Statement> statements_of(const Chain& c, const SubExpression& s, Mask once, Hoist hoist,
                                     Stores stores) {
  const bool removes = hoist == Hoist::dag || hoist == Hoist::block;
  std::vector<Statement> out;
  std::vector<Around> path;
  collect(c, skeleton(c, s, removes ? ~once : ~Mask{0}), path, hoist, stores, out);
  return out;
}

std::string statement_name(const Workload& w, Kind kind, OpId op, TensorId tensor) {
  if (kind == Kind::load) return "L_" + w.tensor(tensor).name;
  if (kind == Kind::store) return "S_" + w.tensor(tensor).name;
  return "C_" + w.tensor(w.op(op).outputs.front().target.tensor).name;
}

}  // namespace detail

std::string to_text(const Chain& c, const std::vector<Item>& items) {
  const bool letters =
      std::ranges::all_of(c.dims, [&](LoopId l) { return c.workload->loop(l).name.size() == 1; });
  return items_text(c, items, letters);
}

std::vector<Item> place(const Chain& c, const SubExpression& s, Mask once, Hoist hoist,
                        Stores stores) {
  const bool removes = hoist == Hoist::dag || hoist == Hoist::block;
  const std::vector<Item> computes = skeleton(c, s, removes ? ~once : ~Mask{0});
  const auto statements = detail::statements_of(c, s, once, hoist, stores);
  return weave(computes, 0, statements);
}

Dag dag_of(const Chain& c, Mask once) {
  const Workload& w = *c.workload;
  Dag dag;
  for (LoopId l : c.dims)
    if (!has(once, l)) dag.loops.push_back(w.loop(l).name);
  const auto scope = [&](Mask loops, const std::string& name) {
    dag.statements.push_back(name);
    for (LoopId l : c.dims)
      if (has(loops & ~once, l)) dag.scope.emplace_back(w.loop(l).name, name);
  };
  for (OpId op : w.topological_order()) {
    const std::string compute = detail::statement_name(w, Kind::compute, op, TensorId());
    for (const Access& a : w.op(op).inputs) {
      const OpId producer = w.producer(a.tensor);
      const std::string from = producer.valid()
                                   ? detail::statement_name(w, Kind::compute, producer, TensorId())
                                   : detail::statement_name(w, Kind::load, op, a.tensor);
      const std::pair edge(from, compute);
      if (std::ranges::find(dag.order, edge) != dag.order.end()) continue;
      if (!producer.valid()) scope(c.tensor_loops[a.tensor.index()], from);
      dag.order.push_back(edge);
    }
    scope(c.op_loops[op.index()], compute);
    for (const Output& o : w.op(op).outputs) {
      if (!w.is_output(o.target.tensor)) continue;
      const std::string store = detail::statement_name(w, Kind::store, op, o.target.tensor);
      scope(c.tensor_loops[o.target.tensor.index()], store);
      dag.order.emplace_back(compute, store);
    }
  }
  return dag;
}

}  // namespace tilewright::mcfuser
