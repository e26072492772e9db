// A workload as FlashFuser's chain.
#include <algorithm>
#include <set>

#include "core/base/format.h"
#include "models/flashfuser/flashfuser.h"

namespace tilewright::flashfuser {
namespace {

constexpr const char* kOnly = "FlashFuser fuses two matrix products in a line";

bool plain(const Access& a) {
  return std::ranges::all_of(a.index, [](const Affine& i) { return i.plain_loop().has_value(); });
}

bool has_loop(const Access& a, LoopId l) {
  return std::ranges::any_of(a.index, [l](const Affine& i) { return i.plain_loop() == l; });
}

class Reader {
 public:
  explicit Reader(std::shared_ptr<const Workload> w) : w_(*w) { c_.workload = std::move(w); }

  Result<Chain> read() {
    if (auto reason = find_products()) return *reason;
    if (auto reason = find_roles()) return *reason;
    for (OpId op : w_.topological_order())
      if (auto reason = place(op)) return *reason;
    if (auto reason = find_joint()) return *reason;
    for (OpId op : w_.topological_order()) add_moved(op);
    return std::move(c_);
  }

 private:
  std::optional<Reason> find_products() {
    std::vector<OpId> products;
    for (OpId op : w_.topological_order()) {
      const Operator& o = w_.op(op);
      const auto all_plain = [](const auto& list) { return std::ranges::all_of(list, plain); };
      if (!all_plain(o.inputs) || o.running || o.outputs.size() != 1 ||
          !plain(o.outputs.front().target))
        return Reason{formatted("{}: {} indexes by more than single loops", kOnly, o.name)};
      if (w_.is_contraction(op)) {
        products.push_back(op);
      } else if (!w_.reduction_loops(op).empty()) {
        return Reason{formatted("{}: {} reduces and is not a product", kOnly, o.name)};
      }
    }
    if (products.size() < 2 || products.size() > 3)
      return Reason{formatted("{} (the first perhaps gated by a third); {} has {}", kOnly,
                              w_.name(), products.size())};
    c_.second = products.back();
    products.pop_back();
    c_.first = std::move(products);
    return std::nullopt;
  }

  /// The loop of `among` that is neither batch nor in one of the others; exactly one.
  std::optional<Reason> set(Role role, std::vector<LoopId> found) {
    std::erase_if(found, [&](LoopId l) { return w_.is_batch(l); });
    if (found.size() != 1)
      return Reason{formatted("{}, with one loop a dimension: {} has {} where one is {}", kOnly,
                              w_.name(), found.size(),
                              role == kM   ? "of the rows of both"
                              : role == kJ ? "what joins them"
                              : role == kK ? "the first's reduction"
                                           : "the second's columns")};
    c_.loops[role] = found.front();
    return std::nullopt;
  }

  std::optional<Reason> find_roles() {
    for (std::size_t l = 0; l < w_.loops().size(); ++l)
      if (w_.is_batch(LoopId(l))) c_.batch.push_back(LoopId(l));
    const Operator &one = w_.op(c_.first.front()), &two = w_.op(c_.second);
    std::vector<LoopId> rows, columns;
    for (LoopId l : two.loops)
      if (has_loop(two.outputs.front().target, l))
        (has_loop(one.outputs.front().target, l) ? rows : columns).push_back(l);
    const auto list = [](std::span<const LoopId> s) { return std::vector(s.begin(), s.end()); };
    if (auto r = set(kK, list(w_.reduction_loops(c_.first.front())))) return r;
    if (auto r = set(kJ, list(w_.reduction_loops(c_.second)))) return r;
    if (auto r = set(kM, rows)) return r;
    if (auto r = set(kN, columns)) return r;
    if (std::set(c_.loops.begin(), c_.loops.end()).size() != kRoles)
      return Reason{formatted("{}: dimensions of {} share a loop", kOnly, w_.name())};
    return std::nullopt;
  }

  /// The operator's loops as roles; batch left out.
  unsigned roles_of(std::span<const LoopId> loops) const {
    unsigned roles = 0;
    for (LoopId l : loops) {
      const auto at = std::ranges::find(c_.loops, l);
      if (at != c_.loops.end())
        roles |= 1U << (at - c_.loops.begin());
      else if (!w_.is_batch(l))
        roles |= 1U << kRoles;
    }
    return roles;
  }

  std::optional<Reason> place(OpId op) {
    const Operator& o = w_.op(op);
    const unsigned roles = roles_of(o.loops);
    constexpr unsigned m = 1U << kM, j = 1U << kJ, k = 1U << kK, n = 1U << kN;
    const auto refuse = [&](const char* why) {
      return Reason{formatted("{}: {} {}", kOnly, o.name, why)};
    };
    if (op == c_.second) {
      if (roles != (m | j | n)) return refuse("has other loops than the second product's");
    } else if (std::ranges::find(c_.first, op) != c_.first.end()) {
      if (roles != (m | j | k)) return refuse("has other loops than the first product's");
      for (const Access& a : o.inputs)
        if (!w_.is_input(a.tensor)) return refuse("reads what another operator makes");
    } else if (roles == (m | j)) {
      c_.between.push_back(op);
    } else if (roles == (m | n)) {
      c_.after.push_back(op);
    } else {
      return refuse("has neither the loops of the first product's result nor of the second's");
    }
    const TensorId made = o.outputs.front().target.tensor;
    if (w_.is_output(made) && (!w_.consumers(made).empty() || (roles & n) == 0))
      return refuse("leaves a result between the products");
    return std::nullopt;
  }

  std::optional<Reason> find_joint() {
    const Operator& two = w_.op(c_.second);
    c_.partial = two.outputs.front().target.tensor;
    int made = 0;
    for (const Access& a : two.inputs)
      if (!w_.is_input(a.tensor)) {
        ++made;
        c_.joint = a.tensor;
      }
    if (made != 1)
      return Reason{formatted("{}: {} does not read exactly one result", kOnly, two.name)};
    // Everything before the second product must lead to what it reads.
    std::vector<OpId> before = c_.first;
    before.insert(before.end(), c_.between.begin(), c_.between.end());
    for (OpId op : before) {
      const TensorId t = w_.op(op).outputs.front().target.tensor;
      for (OpId reader : w_.consumers(t))
        if (std::ranges::find(c_.after, reader) != c_.after.end())
          return Reason{formatted("{}: {} reads the first product behind the second", kOnly,
                                  w_.op(reader).name)};
      if (t != c_.joint && std::ranges::find(w_.consumers(t), c_.second) != w_.consumers(t).end())
        return Reason{formatted("{}: {} reads two results", kOnly, two.name)};
    }
    for (OpId op : c_.after) {
      bool follows = false;
      for (const Access& a : w_.op(op).inputs) {
        const OpId from = w_.producer(a.tensor);
        follows |= from.valid() &&
                   (from == c_.second || std::ranges::find(c_.after, from) != c_.after.end());
      }
      if (!follows)
        return Reason{
            formatted("{}: {} does not follow the second product", kOnly, w_.op(op).name)};
    }
    return std::nullopt;
  }

  unsigned roles_of(const Access& a) const {
    std::vector<LoopId> loops;
    for (const Affine& i : a.index) loops.push_back(*i.plain_loop());
    return roles_of(loops);
  }

  void add_moved(OpId op) {
    const Operator& o = w_.op(op);
    const bool product = op == c_.second || std::ranges::find(c_.first, op) != c_.first.end();
    const bool second = op == c_.second || std::ranges::find(c_.after, op) != c_.after.end();
    const auto add = [&](const Access& a, bool written) {
      const Moved one{a.tensor, roles_of(a), second, product && !written, written};
      const auto same = [&](const Moved& x) { return x.tensor == a.tensor && x.second == second; };
      if (const auto at = std::ranges::find_if(c_.moved, same); at != c_.moved.end())
        at->staged |= one.staged;
      else
        c_.moved.push_back(one);
    };
    for (const Access& a : o.inputs)
      if (w_.is_input(a.tensor)) add(a, false);
    if (w_.is_output(o.outputs.front().target.tensor)) add(o.outputs.front().target, true);
  }

  Chain c_;
  const Workload& w_;
};

}  // namespace

std::int64_t Chain::batches() const {
  std::int64_t all = 1;
  for (LoopId l : batch) all *= workload->loop(l).extent;
  return all;
}

Result<Chain> chain_of(std::shared_ptr<const Workload> w) { return Reader(std::move(w)).read(); }

}  // namespace tilewright::flashfuser
