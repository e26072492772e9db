#include "models/powerfusion/optimise.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/base/format.h"

namespace tilewright::powerfusion {
namespace {

class Rewriter {
 public:
  Rewriter(Gir g, const Rewriting& how) : g_(std::move(g)), how_(how) {}

  Gir run(std::vector<Rewrite>* steps) {
    const auto round = [&](const char* rule, auto&& apply) {
      done_.clear();
      index();
      apply();
      if (done_.empty()) return false;
      clean();
      if (steps != nullptr) steps->push_back({rule, done_, g_});
      return true;
    };
    for (;;) {
      bool changed = round("sync", [&] { insert_syncs(); });
      if (how_.swap) changed |= round("swap", [&] { swap_all(); });
      changed |= round("merge", [&] { merge_all(); });
      if (!changed) break;
    }
    clean();
    return std::move(g_);
  }

 private:
  const Slice& slice(int s) const { return g_.slices[static_cast<std::size_t>(s)]; }
  GOp& op(int i) { return g_.ops[static_cast<std::size_t>(i)]; }

  // ---- Uses -------------------------------------------------------------------------------------

  void index() {
    maker_.assign(g_.slices.size(), -1);
    users_.assign(g_.slices.size(), {});
    for (std::size_t i = 0; i < g_.ops.size(); ++i) {
      maker_[static_cast<std::size_t>(g_.ops[i].out)] = static_cast<int>(i);
      for (int s : g_.ops[i].in) users_[static_cast<std::size_t>(s)].push_back(static_cast<int>(i));
    }
  }
  int maker(int s) const { return maker_[static_cast<std::size_t>(s)]; }
  const std::vector<int>& users(int s) const { return users_[static_cast<std::size_t>(s)]; }
  int only_user(int s) const { return users(s).size() == 1 ? users(s).front() : -1; }
  bool leaves(int tensor) const { return std::ranges::binary_search(g_.leaving, tensor); }
  bool is_move(int i, Tier from, Tier to) {
    return i >= 0 && op(i).kind == GKind::move && slice(op(i).in.front()).tier == from &&
           slice(op(i).out).tier == to;
  }
  const std::string& name(int s) const {
    return g_.tensors[static_cast<std::size_t>(slice(s).tensor)].name;
  }
  int add_slice(Slice s) {
    g_.slices.push_back(std::move(s));
    return static_cast<int>(g_.slices.size()) - 1;
  }
  void replace_uses(int s, int by) {
    for (GOp& o : g_.ops)
      for (int& in : o.in)
        if (in == s) in = by;
  }

  /// A value on its way from lanes through DRAM to other lanes: store, sync of the device, load.
  struct Chain {
    int store = -1, sync = -1, load = -1;
    int from = -1, to = -1;  ///< slices in lanes
  };
  std::optional<Chain> chain_at(int sync) {
    Chain c{.sync = sync};
    if (op(sync).kind != GKind::sync || op(sync).scope != Scope::device) return {};
    c.store = maker(op(sync).in.front());
    c.load = only_user(op(sync).out);
    if (!is_move(c.store, Tier::lane, Tier::dram) || !is_move(c.load, Tier::dram, Tier::lane))
      return {};
    c.from = op(c.store).in.front();
    c.to = op(c.load).out;
    return c;
  }

  // ---- Rule 1: syncs ----------------------------------------------------------------------------

  void insert_syncs() {
    for (std::size_t i = 0, n = g_.ops.size(); i < n; ++i) {
      const auto c = chain_at(static_cast<int>(i));
      if (!c) continue;
      const Scope s = scope_between(g_, slice(c->from), slice(c->to), how_.scope);
      if (s == Scope::device) continue;
      Slice written = slice(c->from), read = slice(c->to);
      written.tier = read.tier = highest_tier(s);
      const std::string tensor = name(c->from);
      const int a = add_slice(std::move(written));
      const int to = s == Scope::lane ? a : add_slice(std::move(read));
      g_.ops.push_back({.kind = GKind::move, .in = {c->from}, .out = a});
      if (s == Scope::lane) {
        op(c->sync) = {.kind = GKind::move, .in = {a}, .out = c->to};  // what the load was
        dead_.insert(c->load);
      } else {
        op(c->sync) = {.kind = GKind::sync, .scope = s, .in = {a}, .out = to};
        op(c->load).in = {to};
      }
      done_.push_back(formatted("{}: {}", name_of(s), tensor));
      index_again();
    }
  }
  void index_again() {
    for (int i : dead_) op(i) = {.kind = GKind::move, .in = {}, .out = -1};
    std::erase_if(g_.ops, [](const GOp& o) { return o.out < 0; });
    dead_.clear();
    sort();
    index();
  }

  // ---- Rule 3: element-wise gOperators behind moves
  // ------------------------------------------------

  /// Whether they have the same elements in the same units, of tensors of the same shape.
  bool same_points(int a, int b) const {
    return slice(a).base == slice(b).base && slice(a).units == slice(b).units &&
           g_.tensors[static_cast<std::size_t>(slice(a).tensor)].shape ==
               g_.tensors[static_cast<std::size_t>(slice(b).tensor)].shape;
  }

  void swap_all() {
    for (bool any = true; any;) {
      any = false;
      for (std::size_t i = 0; i < g_.ops.size() && !any; ++i) any = swap_at(static_cast<int>(i));
    }
  }
  bool swap_at(int i) {
    if (op(i).kind != GKind::elementwise || op(i).in.size() != 1) return false;
    const int x = op(i).in.front(), y = op(i).out;
    const int store = only_user(y);
    if (leaves(slice(y).tensor) || store < 0 || !same_points(x, y)) return false;
    const int sync = only_user(op(store).out);
    const auto c = sync < 0 ? std::nullopt : chain_at(sync);
    if (!c || c->store != store) return false;
    // x goes through DRAM in its place; the reader computes y from it.
    const auto as_x = [&](int s) {
      Slice copy = slice(s);
      copy.tensor = slice(x).tensor;
      return add_slice(std::move(copy));
    };
    done_.push_back(formatted("{} behind the move of {}", op(i).name, name(y)));
    op(store).in = {x};
    op(store).out = as_x(op(store).out);
    op(sync).in = {op(store).out};
    op(sync).out = as_x(op(sync).out);
    op(c->load).in = {op(sync).out};
    op(c->load).out = as_x(c->to);
    op(i).in = {op(c->load).out};
    op(i).out = c->to;
    sort();
    index();
    return true;
  }

  // ---- Rule 2: merging --------------------------------------------------------------------------

  void merge_all() {
    for (bool any = true; any;) {
      any = false;
      for (std::size_t i = 0; i < g_.ops.size() && !any; ++i)
        any = merge_copy(static_cast<int>(i)) || merge_after_write(static_cast<int>(i)) ||
              merge_reads(static_cast<int>(i));
      if (any) {
        drop_unused();
        index();
      }
    }
  }

  /// Read after write, of lanes: `move, move` or `move, sync, move`.
  bool merge_after_write(int i) {
    if (op(i).kind != GKind::move || slice(op(i).in.front()).tier == Tier::dram ||
        slice(op(i).out).tier == Tier::dram)
      return false;
    const int from = op(i).in.front();
    if (maker(from) >= 0 && op(maker(from)).kind == GKind::move &&
        slice(op(maker(from)).in.front()).tier == Tier::dram)
      return false;  // a value read once for several: merge_reads() has made it so
    const int next = only_user(op(i).out);
    if (next < 0) return false;
    if (op(next).kind == GKind::sync) {
      const int last = only_user(op(next).out);
      if (last < 0 || op(last).kind != GKind::move || slice(op(last).out).tier != Tier::lane)
        return false;
      done_.push_back(formatted("one {} sync: {}", name_of(op(next).scope), name(from)));
      op(next).in = {from};
      op(next).out = op(last).out;
      remove(i, last);
      return true;
    }
    if (op(next).kind != GKind::move || slice(op(next).out).tier != Tier::lane) return false;
    const int to = op(next).out;
    if (same_content(g_, slice(from), slice(to))) {
      done_.push_back(formatted("null: {}", name(from)));
      replace_uses(to, from);
      remove(i, next);
    } else {
      done_.push_back(formatted("one move: {}", name(from)));
      op(next).in = {from};
      remove(i, -1);
    }
    return true;
  }

  /// Read, and written as it was read: readers read what it was read from.
  bool merge_copy(int i) {
    if (!is_move(i, Tier::lane, Tier::dram)) return false;
    const int lanes = op(i).in.front(), load = maker(lanes);
    if (!is_move(load, Tier::dram, Tier::lane) || users(op(i).out).empty()) return false;
    const int source = maker(op(load).in.front());
    if (source >= 0 && op(source).kind != GKind::sync) return false;
    const std::string tensor = name(lanes);
    const auto readers = users(op(i).out);
    for (int r : readers) {
      if (op(r).kind != GKind::sync || op(r).scope != Scope::device) return false;
      if (source < 0 && only_user(op(r).out) < 0) return false;
    }
    for (int r : readers) {
      if (source >= 0) {
        op(r).in = op(source).in;
        continue;
      }
      dead_.insert(r);  // an input: nobody has to wait for it
    }
    done_.push_back(formatted("read where it was: {}", tensor));
    dead_.insert(i);
    for (int d : dead_) op(d) = {.out = -1};
    dead_.clear();
    std::erase_if(g_.ops, [](const GOp& o) { return o.out < 0; });
    sort();
    index();
    return true;
  }

  /// Read after read: what another move has of the same values, and units that it need not wait
  /// for.
  bool merge_reads(int i) {
    if (!is_move(i, Tier::dram, Tier::lane)) return false;
    const int source = source_of(i);
    for (int j = 0; j < i; ++j) {
      if (!is_move(j, Tier::dram, Tier::lane) ||
          slice(op(j).in.front()).tensor != slice(op(i).in.front()).tensor ||
          source_of(j) != source)
        continue;
      const int first = op(j).out, second = op(i).out;
      const Scope s = scope_between(g_, slice(first), slice(second), how_.scope);
      if (s == Scope::device) continue;
      done_.push_back(formatted("read once: {}", name(first)));
      if (s == Scope::lane && same_content(g_, slice(first), slice(second))) {
        replace_uses(second, first);
        remove(i, -1);
      } else {
        op(i) = {.kind = s == Scope::lane ? GKind::move : GKind::sync,
                 .scope = s,
                 .in = {first},
                 .out = second};
      }
      sort();
      return true;
    }
    return false;
  }
  /// The slice that a sync before the load has from its writer; -1: an input's.
  int source_of(int load) {
    const int sync = maker(op(load).in.front());
    return sync < 0 ? -1 : op(sync).in.front();
  }

  void remove(int a, int b) {
    for (int i : {a, b})
      if (i >= 0) op(i) = {.out = -1};
    std::erase_if(g_.ops, [](const GOp& o) { return o.out < 0; });
  }

  // ---- Cleaning ---------------------------------------------------------------------------------

  /// gOperators whose value nothing reads, but for one store of each tensor that leaves.
  void drop_unused() {
    for (bool any = true; any;) {
      std::vector<int> uses(g_.slices.size(), 0);
      for (const GOp& o : g_.ops)
        for (int s : o.in) ++uses[static_cast<std::size_t>(s)];
      std::set<int> stored;
      const std::size_t before = g_.ops.size();
      std::erase_if(g_.ops, [&](const GOp& o) {
        const Slice& s = slice(o.out);
        const bool store = o.kind == GKind::move && s.tier == Tier::dram && leaves(s.tensor);
        const bool first = store && stored.insert(s.tensor).second;
        return uses[static_cast<std::size_t>(o.out)] == 0 && !first;
      });
      any = g_.ops.size() != before;
    }
  }

  /// Makers before users, otherwise as they stood.
  void sort() {
    std::vector<GOp> out;
    std::vector<bool> written(g_.slices.size(), true), placed(g_.ops.size(), false);
    for (const GOp& o : g_.ops) written[static_cast<std::size_t>(o.out)] = false;
    while (out.size() < g_.ops.size()) {
      const std::size_t before = out.size();
      for (std::size_t i = 0; i < g_.ops.size(); ++i) {
        if (placed[i] || !std::ranges::all_of(g_.ops[i].in, [&](int s) {
              return written[static_cast<std::size_t>(s)];
            }))
          continue;
        placed[i] = true;
        written[static_cast<std::size_t>(g_.ops[i].out)] = true;
        out.push_back(g_.ops[i]);
      }
      TW_CHECK(out.size() != before, "a GIR's gOperators wait for one another");
    }
    g_.ops = std::move(out);
  }

  /// Slices and units that nothing has go; the rest are numbered as gOperators name them.
  void clean() {
    drop_unused();
    sort();
    Gir out = g_;
    out.slices.clear();
    out.maps.clear();
    std::map<int, int> slices, maps;
    const auto kept = [&](int s) {
      const auto [at, fresh] = slices.emplace(s, static_cast<int>(out.slices.size()));
      if (fresh) {
        Slice copy = slice(s);
        const auto [map, unseen] = maps.emplace(copy.units, static_cast<int>(out.maps.size()));
        if (unseen) out.maps.push_back(g_.maps[static_cast<std::size_t>(copy.units)]);
        copy.units = map->second;
        out.slices.push_back(std::move(copy));
      }
      return at->second;
    };
    for (GOp& o : out.ops) {
      for (int& s : o.in) s = kept(s);
      o.out = kept(o.out);
    }
    g_ = std::move(out);
  }

  Gir g_;
  Rewriting how_;
  std::vector<int> maker_;
  std::vector<std::vector<int>> users_;
  std::set<int> dead_;
  std::vector<std::string> done_;
};

double bytes_of_slice(const Gir& g, int s) {
  const Slice& slice = g.slices[static_cast<std::size_t>(s)];
  return elements_of(g, slice) *
         static_cast<double>(size_of(g.tensors[static_cast<std::size_t>(slice.tensor)].dtype));
}

}  // namespace

Gir optimised(Gir g, const Rewriting& how, std::vector<Rewrite>* steps) {
  return Rewriter(std::move(g), how).run(steps);
}

double dram_bytes(const Gir& g) {
  double bytes = 0;
  for (const GOp& o : g.ops) {
    if (o.kind != GKind::move) continue;
    for (int s : {o.in.front(), o.out})
      if (g.slices[static_cast<std::size_t>(s)].tier == Tier::dram) bytes += bytes_of_slice(g, s);
  }
  return bytes;
}

double compulsory_bytes(const Gir& g) {
  std::map<int, double> read, written;
  std::set<int> made;
  for (const GOp& o : g.ops)
    if (o.kind != GKind::move && o.kind != GKind::sync)
      made.insert(g.slices[static_cast<std::size_t>(o.out)].tensor);
  for (const GOp& o : g.ops) {
    if (o.kind != GKind::move) continue;
    for (int s : {o.in.front(), o.out}) {
      const Slice& slice = g.slices[static_cast<std::size_t>(s)];
      if (slice.tier != Tier::dram) continue;
      if (s == o.out && std::ranges::binary_search(g.leaving, slice.tensor))
        written[slice.tensor] = std::max(written[slice.tensor], bytes_of_slice(g, s));
      if (s != o.out && !made.contains(slice.tensor))
        read[slice.tensor] = std::max(read[slice.tensor], bytes_of_slice(g, s));
    }
  }
  double bytes = 0;
  for (const auto* all : {&read, &written})
    for (const auto& [tensor, n] : *all) bytes += n;
  return bytes;
}

int syncs_of(const Gir& g, Scope s) {
  return static_cast<int>(std::ranges::count_if(
      g.ops, [s](const GOp& o) { return o.kind == GKind::sync && o.scope == s; }));
}

}  // namespace tilewright::powerfusion
