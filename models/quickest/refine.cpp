// A kernel's tiles moved, one loop at a time, for as long as the target says that it gets faster.
#include "models/quickest/refine.h"

#include <algorithm>
#include <optional>
#include <set>

namespace tilewright::quickest {
namespace {

/// Tiles of more than this are multiples of it; a contraction's, all.
constexpr std::int64_t kGrain = 16;

/// Whether a contraction has the loop: matrix units take tiles of the grain.
bool of_contraction(const Workload& w, LoopId loop) {
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (w.is_contraction(OpId(i)) &&
        std::ranges::find(w.op(OpId(i)).loops, loop) != w.op(OpId(i)).loops.end())
      return true;
  return false;
}

/// Steps of a loop that differ in their number of trips: multiples of the grain, where `fine` those
/// below it, too, and the whole loop. The least step of each number of trips is one of them. They
/// are looked for, not listed: a loop may have 2^31 iterations.
class Steps {
 public:
  Steps(std::int64_t extent, bool fine) : extent_(extent), fine_(fine) {}

  /// The least that is not below `goal`.
  std::optional<std::int64_t> from(std::int64_t goal) const {
    if (goal > extent_) return std::nullopt;
    for (std::int64_t t = std::max<std::int64_t>(goal, 1); t < below(); ++t)
      if (small(t)) return t;
    const std::int64_t t = whole_grains(std::max(goal, kGrain));
    if (t >= extent_) return extent_;
    const std::int64_t first = first_of(trips(t));
    if (first >= t && large(first)) return first;
    return std::min(first_of(trips(t) - 1), extent_);
  }

  /// The greatest that is not above `goal`.
  std::optional<std::int64_t> upto(std::int64_t goal) const {
    if (goal >= extent_) return extent_;
    if (goal >= kGrain)
      if (const std::int64_t t = first_of(trips(goal / kGrain * kGrain)); large(t)) return t;
    for (std::int64_t t = std::min(goal, below() - 1); t >= 1; --t)
      if (small(t)) return t;
    return std::nullopt;
  }

 private:
  std::int64_t trips(std::int64_t step) const { return ceil_div(extent_, step); }
  static std::int64_t whole_grains(std::int64_t step) { return ceil_div(step, kGrain) * kGrain; }
  /// The least multiple of the grain with no more trips.
  std::int64_t first_of(std::int64_t trips) const { return whole_grains(ceil_div(extent_, trips)); }
  /// Where steps below the grain end.
  std::int64_t below() const { return fine_ ? std::min(kGrain, extent_) : 1; }
  bool small(std::int64_t t) const { return t == 1 || trips(t) != trips(t - 1); }
  /// Whether a multiple of the grain, the first of its trips among these, is so among all.
  bool large(std::int64_t t) const { return t > kGrain || !fine_ || trips(t) != trips(t - 1); }

  std::int64_t extent_;
  bool fine_;
};

/// The steps around one: the next ones, and those next to twice and half of it.
std::vector<std::int64_t> around(std::int64_t step, std::int64_t extent, bool fine) {
  const Steps steps(extent, fine);
  std::set<std::int64_t> near;
  for (const std::int64_t goal : {step / 2, step - 1, step + 1, 2 * step})
    if (const auto found = goal > step ? steps.from(goal) : steps.upto(goal)) near.insert(*found);
  near.erase(step);
  return {near.rbegin(), near.rend()};
}

void collect(Node& n, std::vector<Node*>& loops) {
  if (n.kind == Node::Kind::loop) loops.push_back(&n);
  for (Node& c : n.children) collect(c, loops);
}

/// Places of a kernel that hold a step: loops with one of their own, then the table of tiles.
std::vector<std::pair<std::string, std::int64_t*>> steps_in(Kernel& k) {
  std::vector<std::pair<std::string, std::int64_t*>> all;
  std::vector<Node*> loops;
  collect(k.tree, loops);
  for (Node* n : loops)
    if (n->step > 0) all.emplace_back(n->name, &n->step);
  for (auto& [name, step] : k.tiles) all.emplace_back(name, &step);
  return all;
}

}  // namespace

int refine(Plan& plan, std::size_t kernel, double& seconds, const Workload& w, int tries,
           const std::function<std::optional<double>(const Plan&)>& timed) {
  int tried = 0;
  for (bool better = true; better && tried < tries;) {
    better = false;
    const std::size_t count = steps_in(plan.kernels[kernel]).size();
    for (std::size_t i = 0; i < count && tried < tries; ++i) {
      const auto [name, step] = steps_in(plan.kernels[kernel])[i];
      const auto loop = w.find_loop(name);
      if (!loop) continue;
      for (const std::int64_t other :
           around(*step, w.loop(*loop).extent, !of_contraction(w, *loop))) {
        if (tried >= tries) break;
        Plan moved = plan;
        *steps_in(moved.kernels[kernel])[i].second = other;
        const auto its = timed(moved);
        ++tried;
        if (!its || *its >= seconds) continue;
        seconds = *its;
        plan = std::move(moved);
        better = true;
        break;
      }
    }
  }
  return tried;
}

namespace {

/// The plan with steps of all loops, and of one loop, changed by 2, 4, ... 64.
std::vector<Plan> with_other_steps(
    const Plan& plan, const Workload& w,
    const std::function<std::int64_t(std::int64_t step, std::int64_t times)>& changed) {
  constexpr std::int64_t kMost = 64;
  std::set<std::string> loops;
  for (Kernel k : plan.kernels)
    for (const auto& [name, step] : steps_in(k)) loops.insert(name);
  std::vector<Plan> all;
  const auto add = [&](const std::set<std::string>& which, std::int64_t times) {
    Plan other = plan;
    for (Kernel& k : other.kernels)
      for (const auto& [name, step] : steps_in(k))
        if (const auto loop = w.find_loop(name); loop && which.contains(name))
          *step = std::clamp<std::int64_t>(changed(*step, times), 1, w.loop(*loop).extent);
    if (other != plan) all.push_back(std::move(other));
  };
  for (std::int64_t times = 2; times <= kMost; times *= 2) add(loops, times);
  for (const std::string& name : loops)
    for (std::int64_t times = 2; times <= kMost; times *= 2) add({name}, times);
  return all;
}

}  // namespace

std::vector<Plan> coarser(const Plan& plan, const Workload& w) {
  return with_other_steps(plan, w, std::multiplies<>());
}

std::vector<Plan> finer(const Plan& plan, const Workload& w) {
  return with_other_steps(plan, w, std::divides<>());
}

namespace {

/// Whether some input is read along its rows by the loop and another together.
bool is_tap(const Operator& op, LoopId l) {
  return std::ranges::any_of(op.inputs, [&](const Access& a) {
    if (a.index.empty() || a.index.back().terms.size() < 2) return false;
    const std::vector<Term>& terms = a.index.back().terms;
    return std::ranges::find(terms, l, &Term::loop) != terms.end();
  });
}

}  // namespace

std::vector<Plan> blocks_of_result(const Plan& plan, const Workload& w) {
  constexpr std::int64_t kLongSum = 64;
  std::vector<Plan> all;
  if (plan.kernels.size() != 1 || w.operators().size() != 1) return all;
  const Operator& op = w.operators().front();
  std::vector<LoopId> dimensions;  // of the result, outermost first
  for (const Affine& index : op.outputs.front().target.index)
    if (const auto l = index.plain_loop()) dimensions.push_back(*l);
  Node whole = compute(op.name), in_steps = whole;
  for (LoopId l : w.reduction_loops(OpId(0)))
    if (w.loop(l).extent > kLongSum) in_steps = loop(w.loop(l).name, std::move(in_steps), kLongSum);
  // What is read of a row at one tap of a window begins where the tile does.
  Node by_taps = whole;
  for (LoopId l : w.reduction_loops(OpId(0)))
    if (is_tap(op, l)) by_taps = loop(w.loop(l).name, std::move(by_taps), 1);
  // One block where there is one result.
  for (std::size_t outer = dimensions.empty() ? 0 : 1; outer <= dimensions.size(); ++outer)
    for (const Node& body : {whole, in_steps, by_taps}) {
      Kernel blocks{
          .name = plan.kernels.front().name, .level = plan.kernels.front().level, .tree = body};
      for (std::size_t i = outer; i-- > 0;)
        blocks.tree = loop(w.loop(dimensions[i]).name, std::move(blocks.tree), 1, Binding::grid);
      if (std::ranges::find(all, std::vector<Kernel>{blocks}, &Plan::kernels) == all.end())
        all.push_back({.kernels = {std::move(blocks)}});
    }
  return all;
}

}  // namespace tilewright::quickest
