// Products that stand side by side in a phase (section 6.1): in one nest, as columns of one wider
// product, or on multiprocessors of their own.
#include <algorithm>
#include <limits>
#include <map>

#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

constexpr std::size_t kCompared = 64;    ///< products that a further one is compared with
constexpr std::int64_t kMostParts = 64;  // of a sum
// A result of 16 bits is rounded each time that a part is added to it.
constexpr std::int64_t kMostHalfParts = 8;

/// Whether two accesses differ in the names of their loops alone; `to`: from the loops of the one
/// to the other's.
bool same_form(const Workload& w, const Access& a, const Access& b, std::map<LoopId, LoopId>& to) {
  if (a.tensor != b.tensor || a.index.size() != b.index.size()) return false;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine &x = a.index[d], &y = b.index[d];
    if (x.gathered >= 0 || y.gathered >= 0 || x.offset != y.offset ||
        x.terms.size() != y.terms.size())
      return false;
    for (std::size_t i = 0; i < x.terms.size(); ++i) {
      if (x.terms[i].coefficient != y.terms[i].coefficient ||
          w.loop(x.terms[i].loop).extent != w.loop(y.terms[i].loop).extent)
        return false;
      const auto [at, is_new] = to.emplace(x.terms[i].loop, y.terms[i].loop);
      if (at->second != y.terms[i].loop) return false;
    }
  }
  return true;
}

class SideBySide {
 public:
  SideBySide(const Workload& w, const Device& d, const Options& o, std::span<const OpId> ops,
             std::span<const int> level, TileTable& table)
      : w_(w),
        d_(d),
        o_(o),
        level_(level),
        inside_(w.operators().size(), false),
        out_(w.operators().size()),
        table_(table) {
    for (OpId id : ops) inside_[id.index()] = true;
    for (OpId id : ops) (product(id) ? by_level_ : others_)[level[id.index()]].push_back(id);
  }

  std::vector<Beside> run() {
    for (const auto& [level, products] : by_level_) find_families(level, products);
    for (auto& [level, families] : families_) find_shares(families);
    for (auto& [level, families] : families_)
      for (const Family& f : families) choose(f, is_alone(level));
    return std::move(out_);
  }

 private:
  /// Products that read the same elements of a tensor, or are read together, by nest.
  struct Family {
    std::vector<std::vector<OpId>> nests;
    bool wide = true;  ///< all are columns of one product
  };

  bool product(OpId id) const { return w_.is_contraction(id); }

  void find_families(int level, const std::vector<OpId>& products) {
    std::vector<Family>& all = families_[level];
    std::map<OpId, std::size_t> by_reader;
    std::vector<std::size_t> alone;  // families whose products are read with no other
    for (OpId id : products) {
      std::size_t found = all.size();
      if (!o_.horizontal && !o_.concat) {
        all.push_back({{{id}}});
      } else if (o_.horizontal && is_read_with_products(id)) {
        for (OpId r : readers(id))
          if (const auto at = by_reader.find(r); at != by_reader.end()) found = at->second;
        if (found == all.size()) all.push_back({{{}}, false});
        all[found].nests.front().push_back(id);
        for (OpId r : readers(id))
          if (!product(r) && inside_[r.index()]) by_reader[r] = found;
      } else {
        for (std::size_t f : alone)
          if (found == all.size() && joins(all[f], id)) found = f;
        if (found < all.size()) continue;
        all.push_back({{{id}}});
        if (alone.size() < kCompared) alone.push_back(found);
      }
    }
  }

  /// Puts the product into the family where it belongs there.
  bool joins(Family& f, OpId id) {
    const bool columns = f.wide && widens(id, f.nests.front().front());
    if (o_.horizontal)
      for (std::vector<OpId>& nest : f.nests)
        if (reads_alike(id, nest.front()) && (columns || f.nests.size() == 1)) {
          nest.push_back(id);
          f.wide = columns;
          return true;
        }
    if (!o_.concat || !columns) return false;
    f.nests.push_back({id});
    return true;
  }

  /// An element-wise reader reads another product of the phase, too.
  bool is_read_with_products(OpId id) const {
    for (OpId r : readers(id)) {
      if (!inside_[r.index()] || product(r)) continue;
      for (const Access& a : w_.op(r).inputs) {
        const OpId p = w_.producer(a.tensor);
        if (p.valid() && p != id && inside_[p.index()] && product(p) &&
            level_[p.index()] == level_[id.index()])
          return true;
      }
    }
    return false;
  }

  /// Both have the same loops and read the same elements of a tensor.
  bool reads_alike(OpId id, OpId other) const {
    if (!std::ranges::is_permutation(w_.op(id).loops, w_.op(other).loops)) return false;
    return std::ranges::any_of(w_.op(id).inputs, [&](const Access& a) {
      return std::ranges::find(w_.op(other).inputs, a) != w_.op(other).inputs.end();
    });
  }

  /// Whether the two are columns of one product: alike but for names of loops and for those that
  /// index the second operand and the result alone, of which there may be other numbers.
  bool widens(OpId id, OpId other) const {
    const Operator &x = w_.op(id), &y = w_.op(other);
    if (x.inputs.size() != 2 || y.inputs.size() != 2 || x.outputs.size() != 1 ||
        y.outputs.size() != 1)
      return false;
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 2; ++j) {
        std::map<LoopId, LoopId> to, from;
        if (!same_form(w_, x.inputs[i], y.inputs[j], to) ||
            !same_form(w_, y.inputs[j], x.inputs[i], from) ||
            w_.tensor(x.inputs[1 - i].tensor).dtype != w_.tensor(y.inputs[1 - j].tensor).dtype)
          continue;
        if (sums_shared(id, to) && sums_shared(other, from)) return true;
      }
    return false;
  }

  /// Every sum is over loops of the shared operand.
  bool sums_shared(OpId id, const std::map<LoopId, LoopId>& shared) const {
    return std::ranges::all_of(
        w_.op(id).loops, [&](LoopId l) { return shared.contains(l) || !w_.is_reduction(id, l); });
  }

  std::set<OpId> readers(OpId id) const {
    std::set<OpId> out;
    for (const Output& o : w_.op(id).outputs)
      for (OpId r : w_.consumers(o.target.tensor)) out.insert(r);
    return out;
  }

  // ---- tiles ----

  /// Multiprocessors are divided among families by their work, a quarter of them evenly. Products
  /// of the same loops have the same share in every phase, so that their tiles can stay.
  void find_shares(const std::vector<Family>& families) {
    std::vector<double> work;
    double all = 0;
    for (const Family& f : families) {
      double sum = 0;
      for (const std::vector<OpId>& nest : f.nests)
        for (OpId id : nest) sum += static_cast<double>(w_.operations(id).value);
      work.push_back(sum);
      all += sum;
    }
    const auto n = static_cast<std::int64_t>(families.size());
    const std::int64_t even = std::max<std::int64_t>(1, d_.sms / (4 * n));
    for (std::size_t f = 0; f < families.size(); ++f) {
      std::int64_t most = blocks_that_wait(d_, w_, families[f].nests.front().front(), o_);
      if (n > 1 && o_.pack && o_.global_sync) {
        const double rest = static_cast<double>(std::max<std::int64_t>(0, d_.sms - n * even));
        most = even + static_cast<std::int64_t>(rest * work[f] / all + 1e-9);
      }
      for (const std::vector<OpId>& nest : families[f].nests)
        if (most > 0) {
          const auto [at, is_new] = shares_.emplace(w_.op(nest.front()).loops, most);
          at->second = std::min(at->second, most);
        }
    }
  }

  /// The family is all that its phase has, so that its kernel has the warps that suit it.
  bool is_alone(int level) const {
    return families_.at(level).size() == 1 && (o_.vertical || !others_.contains(level));
  }

  void choose(const Family& f, bool alone) {
    std::vector<std::vector<OpId>> apart;
    for (const std::vector<OpId>& nest : f.nests)
      for (OpId id : nest) apart.push_back({id});
    std::vector<Tile> tiles = tiles_of(f.nests, alone);
    const std::vector<std::vector<OpId>>* nests = &f.nests;
    // Side by side, or in the same blocks: what is predicted to take less.
    if (f.wide && o_.concat && apart.size() > f.nests.size()) {
      std::vector<Tile> others = tiles_of(apart, alone);
      if (tiles.empty() || (!others.empty() && others.front().seconds < tiles.front().seconds)) {
        tiles = std::move(others);
        nests = &apart;
      }
    }
    if (nests->size() == 1 && !tiles.empty()) tiles = in_parts(*nests, alone, std::move(tiles));
    const int wide = nests->size() > 1 && !tiles.empty() ? wides_++ : -1;
    for (std::size_t n = 0; n < nests->size(); ++n) {
      if (tiles.empty()) {
        const std::vector<Tile> one = tiles_of({(*nests)[n]}, false);
        out_[(*nests)[n].front().index()].tile = one.empty() ? Tile() : one.front();
      }
      for (OpId id : (*nests)[n]) {
        Beside& b = out_[id.index()];
        b.group = groups_;
        b.wide = wide;
        b.alone = alone && wide < 0 && !o_.global_sync;
        b.tile = tiles.empty() ? out_[(*nests)[n].front().index()].tile : tiles[n];
      }
      ++groups_;
    }
  }

  /// The tile of a nest whose blocks each have a part of the sum, where they are done sooner
  /// (section 6.3): its results are too few for the multiprocessors.
  std::vector<Tile> in_parts(const std::vector<std::vector<OpId>>& nests, bool alone,
                             std::vector<Tile> best) {
    const std::vector<OpId>& nest = nests.front();
    if (o_.reduction != Reduction::split || !o_.vertical) return best;
    std::int64_t most = kMostParts;
    bool waits = false;
    for (OpId id : nest) {
      if (!may_sum_over_blocks(w_, o_, id)) return best;
      for (const Output& out : w_.op(id).outputs)
        if (size_of(w_.tensor(out.target.tensor).dtype) < 4) most = kMostHalfParts;
      for (OpId r : readers(id)) waits = waits || (inside_[r.index()] && !product(r));
    }
    double seconds = best.front().seconds;
    for (std::int64_t parts = 2; parts <= most && parts * 2 <= d_.sms; parts *= 2) {
      std::vector<Tile> tiles = tiles_of(nests, alone, parts);
      if (tiles.empty() || tiles.front().blocks > d_.sms) continue;
      const double all = tiles.front().seconds + seconds_of_parts(w_, d_, o_, nest, parts, waits);
      if (all >= seconds) continue;
      seconds = all;
      best = std::move(tiles);
    }
    return best;
  }

  std::vector<Tile> tiles_of(const std::vector<std::vector<OpId>>& nests, bool alone,
                             std::int64_t parts = 1) {
    std::vector<Slice> slices;
    std::int64_t most = parts > 1 ? d_.sms : 0;
    for (const std::vector<OpId>& nest : nests) {
      slices.push_back({.op = nest.front(),
                        .whole = whole_loops(w_, inside_, nest.front()),
                        .together = static_cast<std::int64_t>(nest.size())});
      if (const auto at = shares_.find(w_.op(nest.front()).loops); at != shares_.end())
        most = most > 0 ? std::min(most, at->second) : at->second;
    }
    const bool own = !o_.global_sync && alone && nests.size() == 1;
    const TileAsked asked{.most_blocks = most, .warps = own ? 0 : kWarps, .parts = parts};
    std::vector<Tile> tiles = table_.of(d_, w_, slices, asked);
    if (!tiles.empty()) return tiles;
    for (Slice& s : slices) s.whole.clear();  // no tile has them whole
    return table_.of(d_, w_, slices, asked);
  }

  const Workload& w_;
  const Device& d_;
  const Options& o_;
  std::span<const int> level_;
  std::vector<bool> inside_;
  std::vector<Beside> out_;
  std::map<int, std::vector<OpId>> by_level_, others_;
  std::map<int, std::vector<Family>> families_;
  std::map<std::vector<LoopId>, std::int64_t> shares_;
  TileTable& table_;
  int groups_ = 0, wides_ = 0;
};

}  // namespace

std::vector<Beside> side_by_side(const Workload& w, const Device& d, const Options& o,
                                 std::span<const OpId> ops, std::span<const int> level,
                                 TileTable& table) {
  return SideBySide(w, d, o, ops, level, table).run();
}

std::set<LoopId> whole_loops(const Workload& w, const std::vector<bool>& inside, OpId id) {
  const auto many = [&](OpId op) { return !w.reduction_loops(op).empty(); };
  std::set<LoopId> out;
  std::vector<OpId> next = {id};
  std::set<OpId> seen;
  while (!next.empty() && seen.size() < kCompared) {
    const OpId at = next.back();
    next.pop_back();
    for (const Output& o : w.op(at).outputs)
      for (OpId r : w.consumers(o.target.tensor)) {
        if (!inside[r.index()] || w.is_contraction(r) || !seen.insert(r).second) continue;
        for (const Access& a : w.op(r).inputs) {
          if (a.tensor != o.target.tensor) continue;
          for (std::size_t d = 0; d < a.index.size(); ++d)
            if (const auto loop = o.target.index[d].plain_loop();
                loop && w.loop(*loop).extent <= kWhole && w.local_index(id, *loop) >= 0 &&
                (many(r) ? w.is_reduction(r, *loop) : a.index[d].plain_loop() != *loop))
              out.insert(*loop);
        }
        if (!many(r)) next.push_back(r);
      }
  }
  return out;
}

}  // namespace tilewright::souffle
