// Trees for products on a GPU: blocks of the last result, every product in steps of its depth, and
// a second product within the first one's columns. A convolution's blocks may be rectangles of the
// image. A product alone may share its depth among blocks, which add up what each of them has, or
// among those of a cluster, which add up before anything goes home.
#include <algorithm>
#include <numeric>
#include <set>

#include "core/lowering/gpu/warpgroup_product.h"
#include "core/lowering/gpu/window_product.h"
#include "core/workload/access.h"
#include "models/quickest/gpu.h"

namespace tilewright::quickest {
namespace {

/// Steps that are no larger than the extent, and the extent where it is small.
Variable variable(const std::string& loop, std::int64_t extent,
                  std::initializer_list<std::int64_t> sizes, std::int64_t begin) {
  Variable v{loop, {}};
  for (std::int64_t s : sizes)
    if (s < extent) v.steps.push_back(s);
  if (v.steps.size() < sizes.size()) v.steps.push_back(extent);
  v.at = nearest_step(v.steps, begin);
  return v;
}

class Forms {
 public:
  Forms(const Workload& w, const std::vector<GpuProduct>& products, bool image = false)
      : w_(w), products_(products), image_(image) {}

  std::vector<Form> run() {
    order_ = in_order();
    for (const GpuProduct& p : products_)
      if (place(p.op) == order_.size()) return {};  // a rewrite has made something else of it
    const std::vector<std::string> outer = outer_loops();
    for (std::int64_t rows : {64, 16, 128}) {
      add(outer, rows, {});
      if (chained()) add(outer, rows, {.within = true});
      if (window()) add(outer, rows, {.rectangles = true});
      if (splits()) add(outer, rows, {.split = true});
      if (splits() && extent(products_.front().depth) > 64)
        add(outer, rows, {.split = true, .even = true});
      if (splits() && window()) add(outer, rows, {.rectangles = true, .split = true});
      if (several_depths()) add(outer, rows, {.turns = true});
      if (outer.size() > 1 && columns_last(outer)) {
        const std::vector<std::string> without(outer.begin(), outer.end() - 1);
        add(without, rows, {});
        if (chained()) add(without, rows, {.within = true});
      }
    }
    return std::move(forms_);
  }

  std::vector<Form> by_warpgroups() {
    if (products_.empty() || products_.size() > 2) return {};
    if (products_.size() == 2 ? window() : through_window()) return {};
    order_ = in_order();
    if (side_by_side()) {
      add(outer_loops(), 64, {.warpgroups = true, .twins = true});
      return std::move(forms_);
    }
    if (products_.size() == 2) return pair_by_warpgroups();
    if (!elements_follow()) return {};
    const bool turns = several_depths();
    add(outer_loops(), 64, {.turns = turns, .warpgroups = true});
    if (!lines().empty()) add(outer_loops(), 64, {.warpgroups = true, .lines = true});
    if (order_.size() != 1) return std::move(forms_);
    add(outer_loops(), 64, {.turns = turns, .warpgroups = true, .shares = true});
    const bool cluster = !shared_depth().steps.empty();
    if (cluster) add(outer_loops(), 64, {.turns = turns, .warpgroups = true, .cluster = true});
    if (lines().empty()) return std::move(forms_);
    add(outer_loops(), 64, {.warpgroups = true, .shares = true, .lines = true});
    if (cluster) add(outer_loops(), 64, {.warpgroups = true, .cluster = true, .lines = true});
    return std::move(forms_);
  }

  /// One convolution as window_product.h has it: blocks of rows and of whole lines of points, steps
  /// of the outermost channels, and clusters that share these.
  std::vector<Form> by_windows(bool clusters) {
    if (products_.size() != 1) return {};
    order_ = in_order();
    if (!elements_follow()) return {};
    const Operator& op = w_.op(*w_.find_op(products_.front().op));
    const Access& out = op.outputs.front().target;
    const auto has = [&](const Access& a, const std::string& loop) {
      return std::ranges::any_of(a.index, [&](const Affine& i) {
        return std::ranges::any_of(i.terms,
                                   [&](const Term& t) { return w_.loop(t.loop).name == loop; });
      });
    };
    const std::vector<std::string> outer = outer_loops();
    if (outer.empty() || op.inputs.size() != 2) return {};
    std::string x = outer.back();
    std::size_t image = has(op.inputs[1], x) ? 1 : 0;
    if (lowering::rows_are_last(w_, op, out)) {
      image = 1 - image;
      for (const std::string& l : outer)
        if (has(out, l) && !has(op.inputs[1 - image], l)) x = l;
    }
    const Access &left = op.inputs[1 - image], &right = op.inputs[image];
    const auto last_of = [&](const Access& a) {
      return a.index.empty() ? std::string() : channel_at(a.index.back(), out);
    };
    std::string rows, y, channel;
    for (const std::string& l : outer) {
      if (l == x || !has(out, l)) continue;
      if (has(left, l) && !has(right, l) && (rows.empty() || extent(l) > extent(rows))) rows = l;
      if (has(right, l) && !has(left, l)) y = l;  // the last of them
    }
    if (rows.empty() || has(left, x) || !has(right, x)) return {};
    const bool plain = !window() && (y.empty() || extent(y) == 1);
    // The left operand's rows begin with the outermost channel, or end with the only one.
    if (!has({.tensor = right.tensor, .index = {right.index.back()}}, x)) channel = last_of(right);
    for (const Affine& i : left.index)
      for (const Term& t : i.terms)
        if (const std::string& l = w_.loop(t.loop).name;
            channel.empty() && extent(l) > 1 && !has(out, l))
          channel = l;
    if (channel.empty()) return {};
    // Other products of matrices have kernels of their own.
    const bool f32 = w_.tensor(left.tensor).dtype == DType::f32;
    if (plain && (f32 || (extent(channel) % 8 == 0 && extent(x) % 8 == 0))) return {};
    for (const std::int64_t tall : {64, 128, 32})
      for (const std::int64_t points : {64, 128, 200}) {
        Form f;
        const std::int64_t wide = std::min<std::int64_t>(extent(x), 256);
        for (const std::string& l : outer)
          f.variables.push_back(
              l == rows ? variable(l, extent(l), {16, 32, 64, 128}, tall)
              : l == x && plain
                  ? variable(l, extent(l), {16, 32, 48, 64, 96, 128, 192, 256}, points)
              : l == x ? (extent(l) <= 256 ? Variable{l, {extent(l)}} : Variable{l, {64, 128, 256}})
              : l == y ? variable(l, extent(l), {1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16},
                                  std::max<std::int64_t>(1, points / wide))
                       : Variable{l, {1}});
        const std::size_t blocks = f.variables.size(), launch = blocks + 1;
        f.variables.push_back(variable(channel, extent(channel), {4, 8, 16, 32, 64, 128}, 16));
        f.variables.push_back({"", {0}});
        f.variables.push_back({"", {0}});
        if (clusters) {
          f.variables.push_back({"", {1, 2, 4, 8}});
          f.variables.back().at = tall == 128 ? 1 : 2;
        }
        f.kernel = [=, parts = parts(false)](const std::vector<Variable>& all) {
          return kernel(all, blocks, {blocks}, {{}}, nullptr, nullptr, launch, false, parts);
        };
        forms_.push_back(std::move(f));
      }
    return std::move(forms_);
  }

 private:
  /// The loop of an index that the results do not have; none: there is none, or several.
  std::string channel_at(const Affine& i, const Access& out) const {
    std::string found;
    for (const Term& t : i.terms) {
      if (indexes(out, t.loop)) continue;
      if (!found.empty()) return {};
      found = w_.loop(t.loop).name;
    }
    return found;
  }

  /// What an operator reads of the workload's, directly or not, itself with it.
  std::set<OpId> needed(OpId op) const {
    std::set<OpId> all{op};
    std::vector<OpId> open{op};
    while (!open.empty()) {
      const OpId at = open.back();
      open.pop_back();
      for (const Access& a : w_.op(at).inputs)
        if (const OpId p = w_.producer(a.tensor); p.valid() && all.insert(p).second)
          open.push_back(p);
    }
    return all;
  }

  /// Each product after what it needs alone, but what does not wait for the second of two, one
  /// behind the other, before that: an order in which operators are declared, of several that are
  /// as right, decides nothing.
  std::vector<std::string> in_order() const {
    std::vector<std::string> all;
    std::set<OpId> taken;
    const auto take = [&](const auto& some) {
      for (OpId op : w_.topological_order())
        if (some(op) && taken.insert(op).second) all.push_back(w_.op(op).name);
    };
    std::optional<OpId> before;
    for (const GpuProduct& p : products_) {
      const auto op = w_.find_op(p.op);
      if (!op) continue;
      const std::set<OpId> its = needed(*op);
      if (before && its.contains(*before))
        take([&](OpId other) { return !needed(other).contains(*op); });
      take([&](OpId other) { return its.contains(other); });
      before = op;
    }
    take([](OpId) { return true; });
    return all;
  }

  /// Both products in one kernel: blocks have rows of all columns, or of some: more blocks, of
  /// which each makes the first product again.
  std::vector<Form> pair_by_warpgroups() {
    for (const GpuProduct& p : products_)
      if (place(p.op) == order_.size()) return {};  // a rewrite has made something else of it
    if (!chained()) return {};
    const std::vector<std::string> outer = outer_loops();
    std::vector<std::string> rows = outer;
    std::erase(rows, products_.back().columns);
    if (extent(products_.back().columns) <= kMostColumns)
      add(rows, 128, {.within = true, .warpgroups = true});
    if (rows.size() < outer.size()) add(outer, 128, {.within = true, .warpgroups = true});
    return std::move(forms_);
  }

  /// A loop of rows that neither product's right operand has: its rows may be together in a block.
  bool shares_keys(const std::string& loop) const {
    if (extent(loop) == 1 || extent(loop) > kMostTogether) return false;
    const LoopId l = *w_.find_loop(loop);
    return std::ranges::all_of(products_, [&](const GpuProduct& p) {
      const Operator& op = w_.op(*w_.find_op(p.op));
      const LoopId columns = *w_.find_loop(p.columns);
      return std::ranges::none_of(
          op.inputs, [&](const Access& a) { return indexes(a, columns) && indexes(a, l); });
    });
  }

  /// The products are first, and what follows is of their elements.
  bool elements_follow() const {
    for (std::size_t i = 0; i < products_.size(); ++i)
      if (place(products_[i].op) != i) return false;
    return std::ranges::all_of(
        order_.begin() + static_cast<std::ptrdiff_t>(products_.size()), order_.end(),
        [&](const std::string& op) { return w_.reduction_loops(*w_.find_op(op)).empty(); });
  }

  /// Two products of one left operand in the same loops, whose results operators join: a gated
  /// layer's.
  bool side_by_side() const {
    if (products_.size() != 2 || !elements_follow() || order_.size() < 3) return false;
    const GpuProduct &a = products_[0], &b = products_[1];
    return a.rows == b.rows && a.columns == b.columns && a.depth == b.depth;
  }

  static constexpr std::int64_t kMostColumns = 256;   // of an instruction
  static constexpr std::int64_t kMostTogether = 192;  // rows of a block
  std::int64_t extent(const std::string& loop) const { return w_.loop(*w_.find_loop(loop)).extent; }
  std::size_t place(const std::string& op) const {
    return static_cast<std::size_t>(std::ranges::find(order_, op) - order_.begin());
  }

  /// Loops of the last result that no operator adds up over.
  std::vector<std::string> outer_loops() const {
    std::vector<std::string> loops;
    const auto order = w_.topological_order();
    for (const Affine& index : w_.op(order.back()).outputs.front().target.index)
      for (const Term& t : index.terms) {
        const bool reduced =
            std::ranges::any_of(order, [&](OpId op) { return w_.is_reduction(op, t.loop); });
        const std::string& name = w_.loop(t.loop).name;
        if (!reduced && std::ranges::find(loops, name) == loops.end()) loops.push_back(name);
      }
    return loops;
  }
  bool columns_last(const std::vector<std::string>& outer) const {
    return outer.back() == products_.back().columns;
  }
  /// The loop of the lines of which columns are the points: just before them among the results, and
  /// not of the left operand.
  std::string lines() const {
    const std::vector<std::string> outer = outer_loops();
    const GpuProduct& p = products_.front();
    if (outer.size() < 2 || outer.back() != p.columns || extent(p.columns) > kMostColumns)
      return {};
    const std::string& y = outer[outer.size() - 2];
    const Operator& op = w_.op(*w_.find_op(p.op));
    const auto reads = [&](const Access& a, const std::string& loop) {
      return std::ranges::any_of(a.index, [&](const Affine& i) {
        return std::ranges::any_of(i.terms,
                                   [&](const Term& t) { return w_.loop(t.loop).name == loop; });
      });
    };
    if (y == p.rows || extent(y) == 1) return {};
    for (const Access& a : op.inputs)
      if (reads(a, p.columns) != reads(a, y)) return {};
    return y;
  }
  /// The first product's columns are the second one's depth.
  bool chained() const {
    return products_.size() == 2 && products_[0].columns == products_[1].depth;
  }

  bool window() const { return std::ranges::any_of(products_, &GpuProduct::window); }
  /// Of the first product: whether a window has more than one place, or steps over some.
  bool through_window() const {
    const Operator& op = w_.op(*w_.find_op(products_.front().op));
    return std::ranges::any_of(op.inputs, [&](const Access& a) {
      return std::ranges::any_of(a.index, [&](const Affine& i) {
        std::int64_t several = i.offset == 0 ? 0 : 2;
        for (const Term& t : i.terms)
          if (w_.loop(t.loop).extent > 1) several += t.coefficient == 1 ? 1 : 2;
        return several > 1;
      });
    });
  }
  /// Other loops of the sum that are long: one step of each at a time leaves a product of matrices.
  bool several_depths() const {
    return !window() && std::ranges::any_of(products_, [&](const GpuProduct& p) {
      return std::ranges::any_of(turns_of(p),
                                 [&](const Variable& v) { return extent(v.loop) > 1; });
    });
  }
  std::vector<Variable> turns_of(const GpuProduct& p) const {
    std::vector<Variable> turns;
    const OpId op = *w_.find_op(p.op);
    for (const LoopId loop : w_.op(op).loops)
      if (const std::string& name = w_.loop(loop).name;
          w_.is_reduction(op, loop) && name != p.depth)
        turns.push_back({name, {1}});
    return turns;
  }
  /// A product that nothing follows in its kernel, whose sums in float lose nothing by being added
  /// up at home, with a depth worth sharing.
  bool splits() const {
    if (order_.size() != 1) return false;
    const Output& out = w_.op(w_.topological_order().front()).outputs.front();
    return out.combine == Combine::sum && w_.tensor(out.target.tensor).dtype == DType::f32 &&
           extent(products_.front().depth) >= 32;
  }

  /// The loop of the sum of which a cluster's blocks have parts, the outer one of two, and a part
  /// for each number of blocks: in multiples of 64 of the depth, as TMA boxes have them.
  Variable shared_depth() const {
    const GpuProduct& p = products_.front();
    Variable shared{p.depth, {}};
    std::int64_t within = 1;  // of the depth, for one of that loop
    if (several_depths())
      for (const Variable& turn : turns_of(p))
        if (extent(turn.loop) > 1) shared.loop = turn.loop, within *= extent(p.depth);
    const std::int64_t all = extent(shared.loop),
                       multiple = 64 / std::gcd(within, std::int64_t{64});
    for (std::int64_t blocks = lowering::kMostShare; blocks > 1; --blocks) {
      const std::int64_t part = round_up(ceil_div(all, blocks), multiple);
      if (part < all && (shared.steps.empty() || part > shared.steps.back()))
        shared.steps.push_back(part);
    }
    shared.at = shared.steps.empty() ? 0 : shared.steps.size() - 1;
    return shared;
  }

  /// The depth of which blocks have parts: of usual sizes, or one for each number of blocks, in
  /// multiples of 32, so that all blocks of a sum are as long as each other.
  Variable parts_of_depth(bool even) const {
    const std::string& l = products_.front().depth;
    Variable parts =
        variable(l, extent(l), {8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024}, 256);
    if (!even) return parts;
    parts.steps.clear();
    for (const std::int64_t blocks : {24, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2})
      if (const std::int64_t part = round_up(ceil_div(extent(l), blocks), std::int64_t{32});
          part < extent(l) && (parts.steps.empty() || part > parts.steps.back()))
        parts.steps.push_back(part);
    parts.at = parts.steps.size() / 2;
    return parts;
  }

  /// What a form has beside blocks and steps of the depth.
  struct Kind {
    bool within = false;      ///< the second product in the loop of the first one's columns
    bool rectangles = false;  ///< blocks have several of the loops that are no rows or columns
    bool split = false;       ///< blocks share the depth
    bool even = false;        ///< in parts of about equal length
    bool turns = false;       ///< other loops of a sum go one by one around its depth
    bool warpgroups = false;  ///< tiles of warpgroup_product.h; within: of warpgroup_pair.h
    bool cluster = false;     ///< a cluster's blocks share the depth
    bool shares = false;      ///< a cluster's blocks share operands
    bool lines = false;       ///< blocks have whole lines of the columns, several of them
    bool twins = false;       ///< both products in one loop of the depth
  };

  void add(const std::vector<std::string>& outer, std::int64_t rows, const Kind& kind) {
    const bool within = kind.within, pair = within && kind.warpgroups;
    Form f;
    // The longest of the loops but the columns' are the rows; of others, blocks have one each.
    std::string longest;
    const std::string line = kind.lines ? lines() : std::string();
    for (const std::string& l : outer)
      if (l != line && l != products_.back().columns &&
          (longest.empty() || extent(l) > extent(longest)))
        longest = l;
    if (pair && std::ranges::find(outer, products_.front().rows) != outer.end())
      longest = products_.front().rows;
    for (const std::string& l : outer)
      f.variables.push_back(
          kind.lines && l == products_.back().columns ? Variable{l, {extent(l)}}
          : kind.lines && l == line ? variable(l, extent(l), {1, 2, 3, 4, 5, 6, 7, 8, 9}, 2)
          : pair && l == longest    ? variable(l, extent(l), {64, 128, 192}, rows)
          : kind.warpgroups && (l == longest || l == products_.back().columns)
              ? variable(l, extent(l),
                         {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256},
                         64)
          : l == products_.back().columns
              ? variable(l, extent(l), {16, 32, 48, 64, 96, 128, 192, 256}, 64)
          : l == longest    ? variable(l, extent(l), {16, 32, 48, 64, 80, 96, 128, 192, 256}, rows)
          : kind.rectangles ? variable(l, extent(l), {1, 2, 4, 7, 8, 16}, 4)
          : pair && shares_keys(l) ? Variable{l, {1, extent(l)}}
                                   : Variable{l, {1}});
    if (kind.split) f.variables.push_back(parts_of_depth(kind.even));
    const std::size_t blocks = f.variables.size();
    std::vector<std::size_t> depth;
    std::size_t shared = 0;
    if (within) {
      shared = f.variables.size();
      const std::string& l = products_[1].depth;
      f.variables.push_back(
          pair ? variable(l, extent(l),
                          {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256},
                          128)
               : variable(l, extent(l), {16, 32, 64, 96, 128, 192, 256, 512}, 128));
    }
    const std::size_t cluster = f.variables.size();
    if (kind.cluster) f.variables.push_back(shared_depth());
    for (const GpuProduct& p : products_) {
      depth.push_back(f.variables.size());
      if (within && &p != &products_.front())
        depth.back() = shared;
      else if (kind.twins && &p != &products_.front())
        depth.back() = depth.front();
      else
        f.variables.push_back(variable(p.depth, extent(p.depth), {16, 32, 64, 96, 128, 256}, 64));
    }
    const std::size_t launch = f.variables.size();
    if (kind.warpgroups) {
      const std::string& l = products_.front().depth;
      f.variables.back() = {l, {pair ? extent(l) : std::min<std::int64_t>(64, extent(l))}};
      f.variables.push_back({"", {0}});
      f.variables.push_back({"", {0}});
      if (kind.shares) f.variables.push_back({"", {2, 4, 8}});
    } else {
      // Two warps make no convolution by tensor cores of an image's tile, and its other kernels are
      // slower than those (h100-convolutions-again.json).
      f.variables.push_back(image_ ? Variable{"", {0, 4, 8}} : Variable{"", {0, 2, 4, 8}});
      f.variables.push_back({"", {0, 2, 3, 4, 6}});
    }
    std::vector<std::vector<Variable>> turns(products_.size());
    if (kind.turns)
      std::ranges::transform(products_, turns.begin(),
                             [&](const GpuProduct& p) { return turns_of(p); });
    Parts of = parts(within);
    of.twins = kind.twins;
    f.kernel = [=, kind = kind, parts = std::move(of)](const std::vector<Variable>& all) {
      return kernel(all, blocks, depth, turns, within ? &all[shared] : nullptr,
                    kind.cluster ? &all[cluster] : nullptr, launch, kind.split, parts);
    };
    forms_.push_back(std::move(f));
  }

  /// Operators before the shared loop, in it, and after it.
  struct Parts {
    std::vector<std::string> before, inside, after;
    std::vector<std::string> products, stored;
    bool twins = false;
  };
  Parts parts(bool within) const {
    Parts p;
    for (const GpuProduct& x : products_) p.products.push_back(x.op);
    if (!within) p.after = order_;
    for (const std::string& op : within ? order_ : std::vector<std::string>()) {
      if (op == products_[1].op) continue;
      (in_loop(op)                                                      ? p.inside
       : needed(*w_.find_op(products_[1].op)).contains(*w_.find_op(op)) ? p.before
                                                                        : p.after)
          .push_back(op);
    }
    if (within) p.inside.push_back(products_[1].op);
    for (const std::string& op : order_) {
      if (std::ranges::find(p.after, op) == p.after.end() && !(within && op == products_[1].op))
        continue;
      for (const Output& o : w_.op(*w_.find_op(op)).outputs)
        if (w_.is_output(o.target.tensor)) p.stored.push_back(w_.tensor(o.target.tensor).name);
    }
    return p;
  }

  /// Whether an operator is in the loop that is the second product's depth: what lies between the
  /// products, and what else iterates over that loop, but for what the first product needs. A sum
  /// of what lies between (a softmax's) is there wherever it is declared.
  bool in_loop(const std::string& name) const {
    const OpId op = *w_.find_op(name), first = *w_.find_op(products_[0].op),
               second = *w_.find_op(products_[1].op);
    if (op == first || op == second) return true;
    const std::set<OpId> its = needed(op);
    if (its.contains(second) || needed(first).contains(op)) return false;
    if (its.contains(first) && needed(second).contains(op)) return true;
    return std::ranges::find(w_.op(op).loops, *w_.find_loop(products_[1].depth)) !=
           w_.op(op).loops.end();
  }

  static Kernel kernel(const std::vector<Variable>& all, std::size_t blocks,
                       const std::vector<std::size_t>& depth,
                       const std::vector<std::vector<Variable>>& turns, const Variable* shared,
                       const Variable* cluster, std::size_t launch, bool split, const Parts& p) {
    const auto one = [&](const std::string& op) {
      const auto at = std::ranges::find(p.products, op);
      if (at == p.products.end() || (shared != nullptr && at != p.products.begin()))
        return compute(op);
      const auto d = static_cast<std::size_t>(at - p.products.begin());
      std::vector<std::pair<const Variable*, Binding>> loops;
      for (const Variable& turn : turns[d]) loops.emplace_back(&turn, Binding::seq);
      loops.emplace_back(&all[depth[d]], Binding::seq);
      Node both = p.twins ? sequence({compute(op), compute(p.products[1])}) : compute(op);
      Node steps = nest(loops, std::move(both));
      return cluster == nullptr ? steps : nest({{cluster, Binding::cluster}}, std::move(steps));
    };
    std::vector<Node> body, inside;
    for (const std::string& op : p.before) body.push_back(one(op));
    for (const std::string& op : p.inside) inside.push_back(one(op));
    if (shared != nullptr)
      body.push_back(nest({{shared, Binding::seq}}, sequence(std::move(inside))));
    for (const std::string& op : p.after)
      if (!p.twins || op != p.products[1]) body.push_back(one(op));
    for (const std::string& t : p.stored) body.push_back(store(t, {}, split));
    std::vector<std::pair<const Variable*, Binding>> loops;
    for (std::size_t v = 0; v < blocks; ++v) loops.emplace_back(&all[v], Binding::grid);
    Kernel k{.name = p.products.back(), .tree = nest(loops, sequence(std::move(body)))};
    if (const auto n = static_cast<int>(all[launch].step()); n > 0) k.launch.warps = n;
    if (const auto n = static_cast<int>(all[launch + 1].step()); n > 0) k.launch.stages = n;
    if (launch + 2 < all.size() && all[launch + 2].step() > 1)
      k.launch.cluster = static_cast<int>(all[launch + 2].step());
    return k;
  }

  const Workload& w_;
  const std::vector<GpuProduct>& products_;
  bool image_;  ///< by_windows has forms of it
  std::vector<std::string> order_;
  std::vector<Form> forms_;
};

}  // namespace

/// Whether every index of several loops is one of a loop in chunks (the rewrite split-running).
static bool in_chunks(const Workload& w, OpId op) {
  return std::ranges::all_of(w.op(op).inputs, [&](const Access& a) {
    return std::ranges::all_of(a.index, [&](const Affine& i) {
      return i.terms.size() < 2 || (i.terms.size() == 2 && i.terms[1].coefficient == 1 &&
                                    i.terms[0].coefficient == w.loop(i.terms[1].loop).extent);
    });
  });
}

std::vector<GpuProduct> gpu_products(const Workload& w) {
  std::vector<GpuProduct> all;
  for (OpId op : w.topological_order()) {
    const auto p = product_of(w, op, true);
    if (!p || p->rows < 0 || p->columns < 0 || p->depth < 0) continue;
    const auto name = [&](int l) {
      return w.loop(w.op(op).loops[static_cast<std::size_t>(l)]).name;
    };
    all.push_back({w.op(op).name, name(p->rows), name(p->columns), name(p->depth),
                   p->window && !in_chunks(w, op)});
  }
  return all;
}

std::vector<Form> gpu_forms(const Workload& w, const std::vector<GpuProduct>& products) {
  if (products.empty() || products.size() > 2) return {};
  const auto narrow = [&](const std::string& name) {
    const auto op = w.find_op(name);  // none where a rewrite has made something else of it
    if (!op) return false;
    const DType type = w.tensor(w.op(*op).inputs.front().tensor).dtype;
    return type == DType::f16 || type == DType::bf16;
  };
  const bool image = narrow(products.front().op) && !Forms(w, products).by_windows(false).empty();
  return Forms(w, products, image).run();
}

std::vector<Form> warpgroup_forms(const Workload& w, const std::vector<GpuProduct>& products) {
  return Forms(w, products).by_warpgroups();
}

std::vector<Form> window_forms(const Workload& w, const std::vector<GpuProduct>& products,
                               bool clusters) {
  return Forms(w, products).by_windows(clusters);
}

}  // namespace tilewright::quickest
