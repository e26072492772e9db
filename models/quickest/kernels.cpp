// Kernels of our own for a group of operators: trees of a few forms, and tiles by descent along one
// loop after another, each priced.
#include <algorithm>
#include <set>

#include "core/base/format.h"
#include "core/plan/shares.h"
#include "models/quickest/quickest.h"
#include "models/quickest/search.h"

namespace tilewright::quickest {
namespace {

/// As even as pieces can be, rounded up to whole multiples.
std::vector<std::int64_t> steps_of(std::int64_t extent, std::int64_t multiple, std::int64_t least,
                                   std::int64_t most) {
  static constexpr std::array kPieces = {1,  2,  3,  4,  6,   8,   12,  16,  24,
                                         32, 48, 64, 96, 128, 256, 512, 1024};
  std::set<std::int64_t, std::greater<>> steps;
  for (std::int64_t pieces : kPieces) {
    const std::int64_t step =
        std::min(extent, round_up(ceil_div(extent, pieces), std::max<std::int64_t>(1, multiple)));
    if (step <= most && (step >= least || step == extent)) steps.insert(step);
  }
  if (steps.empty()) steps.insert(std::min(extent, std::max(least, std::int64_t{1})));
  return {steps.begin(), steps.end()};
}

class Search {
 public:
  Search(const Question& q, const Group& g, const Rates& r,
         const std::function<std::optional<Choice>(Kernel)>& priced, int effort)
      : q_(q), w_(*g.workload), r_(r), priced_(priced), effort_(effort) {}

  std::vector<Choice> run() {
    std::vector<Form> forms = all_forms();
    return Descent<Choice>(priced_, effort_).run(forms);
  }

 private:
  // ---- forms ------------------------------------------------------------------------------------

  std::string name() const { return w_.op(w_.topological_order().back()).name; }

  Kernel kernel_of(Node tree) const {
    Kernel k{.name = name(), .tree = std::move(tree)};
    k.level = level_;
    return k;
  }

  std::vector<Form> all_forms() {
    // Tiles of the second cache: micro-kernels block for the first one themselves.
    std::vector<LevelId> caches;
    for (std::size_t i = q_.machine->levels.size(); i-- > 1;)
      if (q_.machine->levels[i].kind != LevelKind::registers) caches.emplace_back(i);
    const bool second = caches.size() > 1 && q_.machine->level(caches[1]).private_to >= Unit::grid;
    level_ = caches.empty() ? "" : q_.machine->level(caches[second ? 1 : 0]).name;
    if (q_.level || q_.room) level_ = q_.machine->level(q_.planned_level()).name;
    std::vector<Form> forms;
    const auto order = w_.topological_order();
    if (order.size() == 1)
      if (const auto p = product_of(w_, order[0]); p && !p->window)
        product_forms(order[0], *p, forms);
    rows_forms(forms);
    if (r_.threads > 1)
      for (Form& f : forms)
        if (!f.variables.empty()) share_evenly(f.variables.front());
    return forms;
  }

  /// Of a loop that threads share, the steps that keep them busy: between two such steps lie others
  /// that a descent would not get past.
  void share_evenly(Variable& v) const {
    constexpr double kEven = 0.94;
    const auto loop = w_.find_loop(v.loop);
    if (!loop) return;
    const std::int64_t begin = v.step();
    std::vector<std::int64_t> even;
    const std::int64_t share = ceil_div(extent(*loop), r_.threads);
    std::vector<std::int64_t> steps = v.steps;
    steps.insert(steps.end(), {share, std::min(extent(*loop), round_up(share, r_.lanes))});
    for (const std::int64_t step : steps)
      if (used_of_threads(extent(*loop), step, r_.threads) >= kEven) even.push_back(step);
    std::ranges::sort(even, std::greater<>{});
    even.erase(std::unique(even.begin(), even.end()), even.end());
    if (even.empty()) return;
    v.steps = std::move(even);
    v.at = nearest_step(v.steps, begin);
  }

  std::int64_t extent(LoopId l) const { return w_.loop(l).extent; }
  const std::string& loop_name(LoopId l) const { return w_.loop(l).name; }

  Variable rows_of(LoopId l, std::int64_t begin) const {
    const std::int64_t multiple = r_.tiles ? 32 : r_.micro_kernels.front().rows * 2;
    Variable v{loop_name(l), steps_of(extent(l), multiple, multiple, 4096)};
    v.at = nearest_step(v.steps, begin);
    return v;
  }
  Variable columns_of(LoopId l, std::int64_t begin) const {
    const std::int64_t multiple = r_.micro_kernels.front().vectors * r_.lanes;
    Variable v{loop_name(l), steps_of(extent(l), multiple, multiple, 8192)};
    v.at = nearest_step(v.steps, begin);
    return v;
  }
  Variable depth_of(LoopId l, std::int64_t begin) const {
    Variable v{loop_name(l), steps_of(extent(l), 16, 48, 4096)};
    v.at = nearest_step(v.steps, begin);
    return v;
  }
  Variable plain_of(LoopId l, std::int64_t begin) const {
    Variable v{loop_name(l), steps_of(extent(l), 1, 1, INT64_MAX)};
    v.at = nearest_step(v.steps, begin);
    return v;
  }

  /// One product: every order of its loops in which threads can share the outermost one.
  void product_forms(OpId id, const Product& p, std::vector<Form>& forms) const {
    const Operator& op = w_.op(id);
    std::vector<Variable> batch;
    for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
      if (l != p.rows && l != p.columns && l != p.depth) {
        const LoopId loop_id = op.loops[static_cast<std::size_t>(l)];
        if (w_.is_reduction(id, loop_id)) return;  // several depths: rows_forms
        batch.push_back({loop_name(loop_id), {1}});
      }
    const auto at = [&](int l) { return op.loops[static_cast<std::size_t>(l)]; };
    std::vector<Variable> own = {columns_of(at(p.columns), 512), depth_of(at(p.depth), 256)};
    if (p.rows >= 0) own.push_back(rows_of(at(p.rows), 96));
    // 0: columns, 1: depth, 2: rows
    static constexpr std::array<std::array<int, 3>, 4> kOrders = {
        {{0, 1, 2}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}}};
    for (const auto& order : kOrders) {
      Form f;
      f.variables = batch;
      for (int i : order)
        if (i < static_cast<int>(own.size()))
          f.variables.push_back(own[static_cast<std::size_t>(i)]);
      f.kernel = [this, name = op.name, count = batch.size()](const std::vector<Variable>& all) {
        std::vector<std::pair<const Variable*, Binding>> loops;
        for (std::size_t i = 0; i < all.size(); ++i)
          loops.emplace_back(&all[i], r_.threads > 1 && i == 0 ? Binding::grid : Binding::seq);
        return kernel_of(nest(loops, compute(name)));
      };
      forms.push_back(f);
      if (batch.empty() || r_.threads <= 1) continue;
      // Threads share the matrix where the batch is too small for them.
      std::rotate(f.variables.begin(), f.variables.begin() + static_cast<long>(batch.size()),
                  f.variables.begin() + static_cast<long>(batch.size()) + 1);
      forms.push_back(std::move(f));
    }
  }

  /// Loops that may stand around the whole group: of its last operator's output, and of no
  /// operator a reduction.
  std::vector<LoopId> outer_loops() const {
    const OpId last = w_.topological_order().back();
    std::vector<LoopId> loops;
    for (const Affine& index : w_.op(last).outputs[0].target.index)
      for (const Term& t : index.terms) {
        const bool reduced = std::ranges::any_of(
            w_.topological_order(), [&](OpId op) { return w_.is_reduction(op, t.loop); });
        if (!reduced && std::ranges::find(loops, t.loop) == loops.end()) loops.push_back(t.loop);
      }
    return loops;
  }

  /// Whether the loop walks the result's last dimension, whose elements are neighbours.
  bool is_last_dimension(LoopId l) const {
    const auto& index = w_.op(w_.topological_order().back()).outputs[0].target.index;
    return !index.empty() && index.back().plain_loop() == l;
  }

  bool is_product(OpId op) const { return product_of(w_, op).has_value(); }

  /// A block of rows through all operators: what lies between them stays on chip.
  void rows_forms(std::vector<Form>& forms) const {
    const std::vector<LoopId> loops = outer_loops();
    const bool products =
        std::ranges::any_of(w_.topological_order(), [&](OpId op) { return is_product(op); });
    const bool windows = std::ranges::any_of(w_.topological_order(), [&](OpId op) {
      const auto p = product_of(w_, op);
      return p && p->window;
    });
    // So many of them, from the first on; the last one varies least in memory.
    for (std::size_t count = loops.size(); count > 0; --count)
      for (const bool depth_first : {false, true}) {
        if (depth_first && !products) continue;
        forms.push_back(
            rows_form({loops.begin(), loops.begin() + static_cast<long>(count)}, depth_first));
      }
    if (loops.empty()) forms.push_back(rows_form({}, false));
    // Neighbours of the result alone, so that what lies across them is read line by line.
    if (loops.size() > 1 && !products && is_last_dimension(loops.back()))
      forms.push_back(rows_form({loops.back()}, false));
    // Another loop outermost, that threads share. Columns of an image are not shared: two threads
    // would write to the same lines, and their rows are too short for what takes whole ones.
    if (r_.threads > 1)
      for (std::size_t first = 0; first < loops.size(); ++first) {
        if (windows && is_last_dimension(loops[first])) continue;
        // Each thread's share of it in one piece, and within that blocks of it behind the others:
        // what depends on these alone is packed once a share, not once a block.
        std::vector<LoopId> twice = loops;
        twice.insert(twice.begin(), loops[first]);
        forms.push_back(rows_form(twice, false));
        if (first == 0) continue;
        std::vector<LoopId> turned = loops;
        std::rotate(turned.begin(), turned.begin() + static_cast<long>(first),
                    turned.begin() + static_cast<long>(first) + 1);
        forms.push_back(rows_form(turned, false));
        turned.pop_back();
        if (!turned.empty()) forms.push_back(rows_form(turned, false));
      }
  }

  /// `outer`: the first may stand there twice, for shares of threads and for blocks within them.
  Form rows_form(const std::vector<LoopId>& outer, bool depth_first) const {
    Form f;
    std::set<std::string> around;
    for (LoopId l : outer) {
      const bool innermost = is_last_dimension(l);
      const bool rows = std::ranges::any_of(w_.topological_order(), [&](OpId op) {
        const auto p = product_of(w_, op);
        return p && p->rows >= 0 && w_.op(op).loops[static_cast<std::size_t>(p->rows)] == l;
      });
      f.variables.push_back(innermost ? columns_of(l, 256)
                            : rows    ? rows_of(l, 48)
                                      : plain_of(l, rows ? 48 : 1));
      around.insert(loop_name(l));
    }
    // Of each product, columns and depths that stand around it alone.
    struct Inner {
      OpId op;
      std::vector<std::size_t> variables;
    };
    std::vector<Inner> inner;
    for (OpId op : w_.topological_order()) {
      Inner own{op, {}};
      const auto p = product_of(w_, op);
      const auto add = [&](int l, const auto& variable) {
        if (l < 0) return;
        const LoopId id = w_.op(op).loops[static_cast<std::size_t>(l)];
        if (around.contains(loop_name(id))) return;
        own.variables.push_back(f.variables.size());
        f.variables.push_back(variable(id));
      };
      if (p && !p->window) {
        const auto columns = [&](LoopId l) { return columns_of(l, 512); };
        const auto depth = [&](LoopId l) { return depth_of(l, 256); };
        if (depth_first) add(p->depth, depth);
        add(p->columns, columns);
        if (!depth_first) add(p->depth, depth);
      }
      inner.push_back(std::move(own));
    }
    f.kernel = [this, inner, count = outer.size()](const std::vector<Variable>& all) {
      std::vector<Node> body;
      for (const Inner& i : inner) {
        std::vector<std::pair<const Variable*, Binding>> loops;
        for (std::size_t v : i.variables) loops.emplace_back(&all[v], Binding::seq);
        body.push_back(nest(loops, compute(w_.op(i.op).name)));
      }
      std::vector<std::pair<const Variable*, Binding>> loops;
      for (std::size_t v = 0; v < count; ++v) {
        const bool again = v > 0 && all[v].loop == all.front().loop;
        if (again && all[v].step() >= all.front().step()) continue;  // the share is one block
        loops.emplace_back(&all[v], r_.threads > 1 && v == 0 ? Binding::grid : Binding::seq);
      }
      return kernel_of(nest(loops, sequence(std::move(body))));
    };
    return f;
  }

  const Question& q_;
  const Workload& w_;
  const Rates& r_;
  const std::function<std::optional<Choice>(Kernel)>& priced_;
  int effort_;
  std::string level_;
};

}  // namespace

std::vector<Choice> kernels_for(const Question& q, const Group& group, const Rates& r,
                                const std::function<std::optional<Choice>(Kernel)>& priced,
                                int effort) {
  return Search(q, group, r, priced, effort).run();
}

}  // namespace tilewright::quickest
