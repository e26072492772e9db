#include <algorithm>
#include <iterator>
#include <limits>
#include <queue>
#include <tuple>

#include "core/base/format.h"
#include "core/base/progress.h"
#include "core/plan/names.h"
#include "core/workload/subgraph.h"
#include "models/quickest/joining.h"

namespace tilewright::quickest {
namespace {

constexpr std::size_t kMostOperators = 32;  // of a kernel
constexpr int kMostProducts = 2;            // of a kernel
constexpr std::size_t kPacked = 3;          // parts that come next, to be run beside
// Kernels that are looked for where parts of what was taken apart are joined anew, and one more for
// so many operators of the whole.
constexpr std::size_t kMostRejoined = 12, kRejoinedOperators = 10;
// Kernels that the plan does not have, for their cost: fewer where there are many operators.
constexpr std::size_t kMostOfEdges = 128, kLeastOfEdges = 32, kEdgesOperators = 4096;

}  // namespace

Partitioner::Partitioner(std::shared_ptr<const Workload> w, Finder find, Rough rough,
                         IsProduct product, std::vector<bool> once)
    : w_(std::move(w)),
      find_(std::move(find)),
      rough_(std::move(rough)),
      product_(std::move(product)),
      once_(std::move(once)) {
  if (!product_) product_ = [of = w_](OpId op) { return of->is_contraction(op); };
}

namespace {

/// Of an input of the part by the dimensions that no loop indexes: the least index there; 0 of
/// others, and where one lies outside of the tensor.
std::vector<std::vector<std::int64_t>> first_indices(const Workload& part) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::vector<std::vector<std::int64_t>> first;
  for (const Tensor& t : part.tensors()) first.emplace_back(t.shape.size(), kNone);
  const auto look = [&](const Access& a, bool written) {
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const Affine& i = a.index[d];
      std::int64_t& least = first[a.tensor.index()][d];
      const bool plain = !written && i.terms.empty() && i.gathered < 0 && i.offset >= 0 &&
                         i.offset < part.tensor(a.tensor).shape[d];
      least = plain ? std::min(least, i.offset) : std::numeric_limits<std::int64_t>::min();
    }
  };
  for (const Operator& op : part.operators()) {
    for (const Access& a : op.inputs) look(a, false);
    for (const Output& o : op.outputs) look(o.target, true);
  }
  for (auto& of_tensor : first)
    for (std::int64_t& least : of_tensor)
      if (least < 0 || least == kNone) least = 0;
  return first;
}

}  // namespace

std::string signature(const Workload& part, bool anywhere) {
  std::string text;
  const auto first = anywhere ? first_indices(part) : std::vector<std::vector<std::int64_t>>();
  const auto add = [&text](std::int64_t n) { text += std::to_string(n) + ","; };
  for (const Loop& l : part.loops()) add(l.extent);
  for (std::size_t t = 0; t < part.tensors().size(); ++t) {
    text += "t";
    for (std::int64_t n : part.tensors()[t].shape) add(n);
    add(static_cast<int>(part.tensors()[t].dtype));
    add(part.is_output(TensorId(t)));
  }
  const auto access = [&](const Access& a) {
    text += "a";
    add(a.tensor.value);
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const Affine& i = a.index[d];
      text += "i";
      for (const Term& t : i.terms) add(t.loop.value), add(t.coefficient);
      add(i.offset - (anywhere ? first[a.tensor.index()][d] : 0)), add(i.gathered);
    }
  };
  const std::function<void(const Expr&)> expression = [&](const Expr& e) {
    text += "e" + e.function;
    add(static_cast<int>(e.kind)), add(e.input), add(e.loop.value);
    for (const Expr& x : e.args) expression(x);
  };
  for (const Operator& op : part.operators()) {
    text += op.running ? "r" : "o";
    for (LoopId l : op.loops) add(l.value);
    for (const Access& a : op.inputs) access(a);
    for (const Output& o : op.outputs) {
      access(o.target), add(static_cast<int>(o.combine)), expression(o.value);
      if (o.rescale) expression(*o.rescale);
    }
  }
  return text;
}

std::optional<Names> names_alike(const Workload& from, const Workload& to,
                                 const std::vector<std::string>& rewrites) {
  if (!rewrites.empty() && signature(from) != signature(to)) return std::nullopt;
  return Names(from, to);
}

std::optional<Best> Partitioner::renamed(const Best& known,
                                         const std::shared_ptr<const Workload>& like,
                                         const std::shared_ptr<const Workload>& now) const {
  const auto from = rewritten(like, known.rewrites), to = rewritten(now, known.rewrites);
  if (from == nullptr || to == nullptr) return std::nullopt;
  const auto names = names_alike(*from, *to, known.rewrites);
  if (!names) return std::nullopt;
  Best best = known;
  for (Kernel& k : best.plan.kernels) k = names->rename(std::move(k));
  for (Choice& c : best.others) c.kernel = names->rename(std::move(c.kernel));
  return best;
}

const Best* Partitioner::best_of(const Part& ops) {
  const auto found = known_.find(ops);
  if (found != known_.end()) return found->second ? &*found->second : nullptr;
  Group group{ops, std::make_shared<const Workload>(subgraph(*w_, ops))};
  const std::string shape = signature(*group.workload);
  std::optional<Best> best;
  const auto like = shapes_.find(shape);
  const bool none = like != shapes_.end() && !like->second.second;
  if (like != shapes_.end() && !none)
    best = renamed(*like->second.second, like->second.first, group.workload);
  if (!best && !none) {
    if (priced_ >= most_priced_) {
      left_out_ = true;
      return nullptr;
    }
    ++priced_;
    best = find_(group);
    shapes_[shape] = {group.workload, best};
  }
  auto& kept = known_[ops] = std::move(best);
  return kept ? &*kept : nullptr;
}

bool Partitioner::runs_once(const Part& ops) const {
  return !once_.empty() && std::ranges::all_of(ops, [&](OpId op) { return once_[op.index()]; });
}

double Partitioner::seconds(const Part& ops) {
  const Best* best = best_of(ops);
  if (best == nullptr) return kNever;
  return runs_once(ops) ? 0 : best->seconds;
}

double Partitioner::about(const Part& ops) {
  if (!rough_) return seconds(ops);
  const auto known = rough_known_.find(ops);
  if (known != rough_known_.end()) return known->second;
  const auto guess = rough_(ops);
  const double all = guess ? *guess : seconds(ops);
  return rough_known_[ops] = runs_once(ops) && all < kNever ? 0 : all;
}

bool Partitioner::small(const Part& ops) const {
  if (ops.size() > kMostOperators) return false;
  return std::ranges::count_if(ops, product_) <= kMostProducts;
}

bool Partitioner::may_join(const Part& ops) const { return small(ops) && !no_subgraph(*w_, ops); }

bool Partitioner::connected(const Part& ops) const {
  std::set<OpId> seen{ops.front()};
  std::vector<OpId> open{ops.front()};
  const auto meet = [&](OpId op) {
    if (std::ranges::binary_search(ops, op) && seen.insert(op).second) open.push_back(op);
  };
  while (!open.empty()) {
    const OpId op = open.back();
    open.pop_back();
    for (const Access& a : w_->op(op).inputs)
      if (const OpId p = w_->producer(a.tensor); p.valid()) meet(p);
    for (const Output& o : w_->op(op).outputs)
      for (OpId reader : w_->consumers(o.target.tensor)) meet(reader);
    if (rough_)
      for (OpId other : readers_beside(*w_, product_, op)) meet(other);
  }
  return seen.size() == ops.size();
}

/// What reads inputs alone waits for nothing, so that its kernels may as well be one: copies that
/// products read.
bool Partitioner::share_launch(const Part& ops) const {
  return rough_ && std::ranges::all_of(ops, [&](OpId op) {
           return !product_(op) && std::ranges::all_of(w_->op(op).inputs, [&](const Access& x) {
             return !w_->producer(x.tensor).valid();
           });
         });
}

Part Partitioner::joined(const Part& a, const Part& b) const {
  Part all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::sort(all);
  return all;
}

/// Dynamic programming over sets of parts that are done: a group may come next where all that it
/// reads is done or in it.
std::vector<Part> Partitioner::all_partitions_best(const std::vector<Part>& atoms) {
  const std::size_t n = atoms.size();
  const std::size_t all = (std::size_t{1} << n) - 1;
  std::vector<std::size_t> before(n, 0);
  std::map<OpId, std::size_t> atom_of;
  for (std::size_t a = 0; a < n; ++a)
    for (OpId op : atoms[a]) atom_of[op] = a;
  for (std::size_t a = 0; a < n; ++a)
    for (OpId op : atoms[a])
      for (const Access& x : w_->op(op).inputs)
        if (const OpId p = w_->producer(x.tensor); p.valid() && atom_of[p] != a)
          before[a] |= std::size_t{1} << atom_of[p];
  std::vector<double> least(all + 1, kNever);
  std::vector<std::size_t> taken(all + 1, 0);
  least[0] = 0;
  Steps steps(static_cast<double>(all));
  for (std::size_t done = 0; done < all; ++done, steps.done()) {
    if (least[done] == kNever) continue;
    const std::size_t rest = all & ~done;
    for (std::size_t group = rest; group > 0; group = (group - 1) & rest) {
      bool ready = true;
      Part ops;
      for (std::size_t a = 0; a < n && ready; ++a)
        if (group >> a & 1) {
          ready = (before[a] & ~(done | group)) == 0;
          ops.insert(ops.end(), atoms[a].begin(), atoms[a].end());
        }
      if (!ready) continue;
      std::ranges::sort(ops);
      const bool single = (group & (group - 1)) == 0;
      // Others may plan a whole of more products than a kernel that is searched for.
      const bool whole = group == all && !rough_;
      if (!single && ((!connected(ops) && !share_launch(ops)) || !(whole || may_join(ops))))
        continue;
      const double together = least[done] + seconds(ops);
      if (together < least[done | group])
        least[done | group] = together, taken[done | group] = group;
    }
  }
  std::vector<Part> parts;
  if (least[all] == kNever) return atoms;
  for (std::size_t done = all; done != 0; done &= ~taken[done]) {
    Part ops;
    for (std::size_t a = 0; a < n; ++a)
      if (taken[done] >> a & 1) ops.insert(ops.end(), atoms[a].begin(), atoms[a].end());
    std::ranges::sort(ops);
    parts.push_back(std::move(ops));
  }
  std::ranges::sort(parts);
  return parts;
}

/// Whether no parts wait for one another.
bool Partitioner::acyclic(const std::vector<Part>& parts) const {
  std::map<OpId, std::size_t> part_of;
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (OpId op : parts[p]) part_of[op] = p;
  std::vector<std::set<std::size_t>> after(parts.size());
  std::vector<std::size_t> waits(parts.size(), 0);
  for (const auto& [op, p] : part_of)
    for (const Access& x : w_->op(op).inputs)
      if (const OpId maker = w_->producer(x.tensor);
          maker.valid() && part_of[maker] != p && after[part_of[maker]].insert(p).second)
        ++waits[p];
  std::vector<std::size_t> ready;
  for (std::size_t p = 0; p < parts.size(); ++p)
    if (waits[p] == 0) ready.push_back(p);
  std::size_t done = 0;
  for (; !ready.empty(); ++done) {
    const std::size_t p = ready.back();
    ready.pop_back();
    for (std::size_t next : after[p])
      if (--waits[next] == 0) ready.push_back(next);
  }
  return done == parts.size();
}

/// Joins the two parts that gain most, until no two gain. `loose`: only what these are joined to,
/// by the seconds of the kernels that are found; those that are looked for anew are limited.
std::vector<Part> Partitioner::grown(std::vector<Part> parts, const std::set<Part>* loose) {
  const std::size_t given = parts.size();
  if (loose != nullptr) most_priced_ = priced_ + most_rejoined();
  const auto is_loose = [&](std::size_t p, const Part& part) {
    return p >= given || loose->contains(part);
  };
  const auto has_no_product = [&](const Part& part) {
    return std::ranges::none_of(part, product_);
  };
  const auto price = [&](const Part& part) {
    return loose == nullptr ? about(part) : seconds(part);
  };
  Joining all(*w_, product_, std::move(parts));
  struct Pair {
    double gain;
    std::size_t a, b;
    bool operator<(const Pair& o) const {
      return std::tuple(gain, o.a, o.b) < std::tuple(o.gain, a, b);  // ties: the first ones
    }
  };
  std::priority_queue<Pair> pairs;
  const auto consider = [&](std::size_t a, std::size_t b) {
    if (loose != nullptr && !is_loose(a, all.part(a)) && !is_loose(b, all.part(b))) return;
    const Part both = joined(all.part(a), all.part(b));
    if (!small(both) || all.around(a, b) || all.around(b, a)) return;
    const double apart = price(all.part(a)) + price(all.part(b));
    const double gain = apart - price(both);
    if (gain > 0 && apart < kNever) pairs.push({gain, a, b});
  };
  Steps steps(static_cast<double>(2 * all.size()));  // a join less than there are parts at most
  const auto consider_beside = [&](std::size_t p) {
    if (!rough_) return;
    const std::set<std::size_t> before = all.before(p), after = all.after(p);
    const auto consider_one = [&](std::size_t x) {
      if (!before.contains(x) && !after.contains(x)) consider(std::min(x, p), std::max(x, p));
    };
    for (std::size_t x : all.beside(p))
      if (x < p) consider_one(x);
    // What shares nothing may share a launch.
    if (loose == nullptr && has_no_product(all.part(p)))
      for (std::size_t x : all.next(p, kPacked))
        if (has_no_product(all.part(x))) consider_one(x);
  };
  for (std::size_t p = 0, count = all.size(); p < count; ++p, steps.done()) {
    for (std::size_t next : all.after(p)) consider(p, next);
    consider_beside(p);
  }
  while (!pairs.empty()) {
    const auto [gain, a, b] = pairs.top();
    pairs.pop();
    if (!all.alive(a) || !all.alive(b) || all.around(a, b) || all.around(b, a)) continue;
    Part both = joined(all.part(a), all.part(b));
    halves_[both] = {all.part(a), all.part(b), all.after(a).contains(b)};
    const std::size_t p = all.join(a, b, std::move(both));
    for (std::size_t x : all.before(p)) consider(x, p);
    for (std::size_t x : all.after(p)) consider(p, x);
    consider_beside(p);
    steps.done();
  }
  most_priced_ = std::numeric_limits<std::size_t>::max();
  return all.left();
}

/// The part, or what it was joined of where that is faster after all.
std::vector<Part> Partitioner::settled(const Part& part) {
  constexpr double kBelieved = 1.25;  // times the rough seconds
  const auto halves = halves_.find(part);
  if (halves == halves_.end()) return {part};
  const Halves of = halves->second;
  const double whole = seconds(part);
  if (of.handed_on && whole < kBelieved * about(part)) return {part};
  std::vector<Part> apart = settled(of.first);
  for (Part& p : settled(of.second)) apart.push_back(std::move(p));
  double sum = 0;
  for (const Part& p : apart) sum += seconds(p);
  return sum < whole ? apart : std::vector<Part>{part};
}

std::size_t Partitioner::most_rejoined() const {
  return kMostRejoined + w_->operators().size() / kRejoinedOperators;
}

/// Puts others in the place of two parts where they take less, by kernels that are found.
bool Partitioner::replaces(std::vector<Part>& parts, std::size_t a, std::size_t b,
                           std::vector<Part> by) {
  const double now = seconds(parts[a]) + seconds(parts[b]);
  double guess = 0, then = 0;
  for (const Part& p : by) {
    if (!may_join(p)) return false;
    guess += about(p);
  }
  if (guess >= now) return false;
  std::vector<Part> next = parts;
  next[a] = by.front();
  next[b] = by.back();
  if (by.size() == 1) next.erase(next.begin() + static_cast<std::ptrdiff_t>(b));
  if (!acyclic(next)) return false;
  for (const Part& p : by) then += seconds(p);
  if (then >= now * (1 - 1e-3)) return false;
  parts = std::move(next);
  return true;
}

/// Of each tensor between parts: the two as one, or one of its ends in the other part, alone or
/// with what waits for it alone; and what reads a tensor with another part's operator there. As
/// long as that gains, and kernels may be looked for.
std::vector<Part> Partitioner::polished(std::vector<Part> parts) {
  most_priced_ = priced_ + most_rejoined();
  const auto part_of = [&](OpId op) {
    return static_cast<std::size_t>(
        std::ranges::find_if(parts,
                             [&](const Part& p) { return std::ranges::binary_search(p, op); }) -
        parts.begin());
  };
  const auto without = [](Part part, OpId op) {
    std::erase(part, op);
    return part;
  };
  const auto moved = [&](OpId maker, OpId op) {
    const std::size_t a = part_of(maker), b = part_of(op);
    if (a == b) return false;
    if (replaces(parts, a, b, {joined(parts[a], parts[b])})) return true;
    if (parts[a].size() > 1 &&
        replaces(parts, a, b, {without(parts[a], maker), joined(parts[b], {maker})}))
      return true;
    if (parts[b].size() > 1 &&
        replaces(parts, a, b, {joined(parts[a], {op}), without(parts[b], op)}))
      return true;
    // With what waits for it alone.
    Part with{op}, rest;
    for (const OpId x : w_->topological_order()) {
      if (x == op || !std::ranges::binary_search(parts[b], x)) continue;
      Part makers = needed(parts[b], x);
      std::erase(makers, x);
      const bool of_these = !makers.empty() && std::ranges::all_of(makers, [&](OpId m) {
        return std::ranges::find(with, m) != with.end();
      });
      (of_these ? with : rest).push_back(x);
    }
    std::ranges::sort(with), std::ranges::sort(rest);
    return with.size() > 1 && !rest.empty() &&
           replaces(parts, a, b, {joined(parts[a], with), rest});
  };
  const auto moved_beside = [&](OpId op) {
    for (OpId other : readers_beside(*w_, product_, op))
      if (const std::size_t a = part_of(op), b = part_of(other);
          a != b && parts[a].size() > 1 &&
          replaces(parts, a, b, {without(parts[a], op), joined(parts[b], {op})}))
        return true;
    return false;
  };
  for (bool gains = true; gains && priced_ < most_priced_;) {
    gains = false;
    for (OpId op : w_->topological_order()) {
      gains = moved_beside(op) || gains;
      for (const Access& x : w_->op(op).inputs)
        if (const OpId maker = w_->producer(x.tensor); maker.valid() && priced_ < most_priced_)
          gains = moved(maker, op) || gains;
    }
  }
  most_priced_ = std::numeric_limits<std::size_t>::max();
  return parts;
}

/// What an operator needs within a part, itself with it.
Part Partitioner::needed(const Part& part, OpId op) const {
  Part all{op};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const Access& x : w_->op(all[i]).inputs)
      if (const OpId p = w_->producer(x.tensor); p.valid() && std::ranges::binary_search(part, p) &&
                                                 std::ranges::find(all, p) == all.end())
        all.push_back(p);
  std::ranges::sort(all);
  return all;
}

/// Two products and what lies between, where that beats what they were taken apart into. What else
/// the parts have that it meets is left as parts of its own, or is in one with it.
void Partitioner::with_pairs(std::vector<Part>& parts) {
  for (const Part& pair : cut_contractions(*w_)) {
    if (pair.size() < 2 || !may_join(pair)) continue;
    double apart = 0;
    Part all = pair;
    std::vector<Part> others, alone{pair};
    for (const Part& p : parts) {
      Part rest;
      std::ranges::set_difference(p, pair, std::back_inserter(rest));
      if (rest.size() == p.size()) {
        others.push_back(p);
        continue;
      }
      apart += about(p);
      all = joined(all, rest);
      if (!rest.empty()) alone.push_back(std::move(rest));
    }
    std::vector<std::vector<Part>> choices{alone};
    if (alone.size() > 1) choices.push_back({all});
    for (const std::vector<Part>& choice : choices) {
      double together = 0;
      for (const Part& p : choice) together += p.size() == 1 || may_join(p) ? about(p) : kNever;
      if (together >= apart) continue;
      std::vector<Part> next = others;
      next.insert(next.end(), choice.begin(), choice.end());
      if (!acyclic(next)) continue;
      parts = std::move(next);
      apart = together;
    }
  }
}

/// Two operators and all on ways between them, as one of the parts, and those that it meets with
/// it.
void Partitioner::begin_with(const Part& pair, std::vector<Part>& parts) const {
  Part all;
  for (std::size_t i = 0; i < w_->operators().size(); ++i) all.emplace_back(i);
  const Part before = needed(all, pair.back());
  Part both;
  for (const OpId op : before)
    if (std::ranges::binary_search(needed(before, op), pair.front())) both.push_back(op);
  std::vector<Part> next;
  for (const Part& p : parts) {
    const bool meets =
        std::ranges::any_of(p, [&](OpId op) { return std::ranges::binary_search(both, op); });
    if (!meets) next.push_back(p);
    for (const OpId op : p)
      if (meets && !std::ranges::binary_search(both, op))
        both.insert(std::ranges::upper_bound(both, op), op);
  }
  next.push_back(std::move(both));
  if (may_join(next.back()) && acyclic(next)) parts = std::move(next);
}

Result<Partition> Partitioner::run(const Question& q, const Part& pair) {
  const std::vector<Part> atoms = cut_each(*w_);
  Partition out;
  out.exact = atoms.size() <= kMostExact;
  std::vector<Part> parts = atoms;
  if (out.exact) {
    parts = all_partitions_best(atoms);
  } else {
    if (!pair.empty()) begin_with(pair, parts);
    parts = grown(std::move(parts));
    with_pairs(parts);
    parts = grown(std::move(parts));
  }
  if (rough_ && !out.exact) {
    std::vector<Part> all;
    std::set<Part> loose;
    for (const Part& p : parts) {
      std::vector<Part> apart = settled(p);
      if (apart.size() > 1) loose.insert(apart.begin(), apart.end());
      std::ranges::move(apart, std::back_inserter(all));
    }
    // Halves are not the only way to take a part apart.
    parts = loose.empty() ? std::move(all) : grown(std::move(all), &loose);
    parts = polished(std::move(parts));
  }
  std::ranges::sort(parts);
  for (const Part& p : parts) {
    const Best* best = best_of(p);
    if (best == nullptr) {
      const std::string why = why_none(std::make_shared<const Workload>(subgraph(*w_, p)), q);
      return Reason{"no kernel was found for operator " + w_->op(p.front()).name +
                    (why.empty() ? "" : ": " + why)};
    }
    out.groups.push_back({p, std::make_shared<const Workload>(subgraph(*w_, p))});
    out.best.push_back(*best);
    out.seconds += seconds(p);
  }
  out.priced = priced_;
  return out;
}

std::vector<Edge> Partitioner::edges(const Partition& p) {
  std::map<OpId, std::size_t> part_of;
  for (std::size_t g = 0; g < p.groups.size(); ++g)
    for (OpId op : p.groups[g].ops) part_of[op] = g;
  std::vector<std::shared_ptr<const Workload>> plans;  // whose plans the groups have
  for (std::size_t g = 0; g < p.best.size(); ++g)
    plans.push_back(rewritten(p.groups[g].workload, p.best[g].rewrites));
  std::vector<Edge> all;
  const auto known = [](double s) { return s == kNever ? std::nullopt : std::optional(s); };
  const std::size_t most =
      std::clamp(kEdgesOperators / w_->operators().size(), kLeastOfEdges, kMostOfEdges);
  most_priced_ = priced_ + most;
  for (OpId op : w_->topological_order())
    for (const Access& x : w_->op(op).inputs) {
      const OpId maker = w_->producer(x.tensor);
      if (!maker.valid()) continue;
      Edge e{x.tensor, maker, op, part_of[maker] == part_of[op]};
      left_out_ = false;
      const std::size_t g = part_of[op];
      Part a = p.groups[part_of[maker]].ops;
      const Part& b = p.groups[g].ops;
      std::optional<Part> kernel;
      if (e.fused && g < p.best.size() && plans[g] != nullptr)
        kernel = kernel_with(p.best[g].plan, *plans[g], *w_, e);
      if (kernel && kernel->empty()) {
        e.fused = false;
        e.note = "kernels of their own in the plan of " + p.best[g].by;
      } else if (e.fused) {
        // A plan of a network may be one part: its kernel decides, not all that is in the part.
        const bool whole = !kernel || *kernel == a;
        if (!whole) a = *kernel;
        // Apart: what the maker needs within the kernel, and the rest.
        const Part first = needed(a, maker);
        Part second;
        std::ranges::set_difference(a, first, std::back_inserter(second));
        // Nobody looks for kernels of so many operators, and what others propose takes long.
        const bool many = a.size() > kMostOperators;
        e.together = whole && g < p.best.size() ? p.best[g].seconds
                     : many                     ? std::nullopt
                                                : known(seconds(a));
        if (!e.together && g < p.best.size())
          e.note = "one kernel in the plan of " + p.best[g].by;
        else if (many)
          e.note = formatted("one kernel of {} operators, which are not parted", a.size());
        else if (!second.empty() && !no_subgraph(*w_, first) && !no_subgraph(*w_, second)) {
          e.apart = known(seconds(first) + seconds(second));
          if (whole) e.halves = {first, second};
        }
      } else {
        e.apart = known(seconds(a) + seconds(b));
        const Part both = joined(a, b);
        if (may_join(both)) e.together = known(seconds(both));
      }
      if (left_out_ && e.note.empty())
        e.note = formatted("the other choice is not among the {} that were looked for", most);
      if (std::ranges::none_of(all, [&](const Edge& o) {
            return o.tensor == e.tensor && o.from == e.from && o.to == e.to;
          }))
        all.push_back(std::move(e));
    }
  most_priced_ = std::numeric_limits<std::size_t>::max();
  return all;
}

}  // namespace tilewright::quickest
