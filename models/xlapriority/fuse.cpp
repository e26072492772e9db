// The queue of producers, and kernels of several results after it.
#include <algorithm>
#include <functional>

#include "core/base/progress.h"
#include "models/xlapriority/xlapriority.h"

namespace tilewright::xlapriority {
namespace {

/// Kernels by number, in the order in which they were made. One that changes is a new one.
class Kernels {
 public:
  explicit Kernels(const Costs& costs)
      : costs_(costs), giver_(costs.graph().workload().tensors().size(), -1) {
    for (int v = 0; v < costs.graph().size(); ++v) add(costs.fusion({v}, {v}));
  }

  int add(Fusion f) {
    const int id = static_cast<int>(all_.size());
    const Workload& w = costs_.graph().workload();
    for (int v : f.gives)
      for (const Output& o : w.op(costs_.graph().vertex(v).op).outputs)
        giver_[o.target.tensor.index()] = id;
    for (const Fusion::Read& r : f.reads) readers_[r.tensor].insert(id);
    all_.push_back(std::move(f));
    alive_.insert(id);
    rank(id);
    return id;
  }
  void remove(int id) {
    alive_.erase(id);
    for (const Fusion::Read& r : at(id).reads) readers_[r.tensor].erase(id);
  }
  const Fusion& at(int id) const { return all_[static_cast<std::size_t>(id)]; }
  const std::set<int>& alive() const { return alive_; }

  /// Kernels that read what it gives, ascending.
  std::vector<int> users(int id) const {
    std::vector<int> out;
    add_users(id, out);
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }
  std::vector<int> readers(TensorId t) const {
    const auto found = readers_.find(t);
    return found == readers_.end() ? std::vector<int>{}
                                   : std::vector<int>(found->second.begin(), found->second.end());
  }
  /// Kernels that it reads from.
  std::vector<int> operands(int id) const {
    std::set<int> out;
    for (const Fusion::Read& r : at(id).reads)
      if (const int from = giver_[r.tensor.index()]; from >= 0) out.insert(from);
    return {out.begin(), out.end()};
  }
  /// Whether a result is one of the workload: XLA's root, which is no kernel, reads it.
  bool leaves(int id) const {
    return std::ranges::any_of(at(id).gives,
                               [this](int v) { return costs_.graph().vertex(v).leaves; });
  }
  /// Whether `to` waits for `from`, by a path that does not begin with the step from one to the
  /// other.
  bool reaches(int from, int to, bool besides_edge = false) const {
    const auto is_before = [&](int k) { return cyclic_ || rank_of(k) < rank_of(to); };
    if (!is_before(from)) return false;
    std::vector<bool> seen(all_.size(), false);
    seen[static_cast<std::size_t>(from)] = true;
    std::vector<int> next = users(from);
    if (besides_edge) std::erase(next, to);
    while (!next.empty()) {
      const int k = next.back();
      next.pop_back();
      if (k == to) return true;
      if (!is_before(k) || seen[static_cast<std::size_t>(k)]) continue;
      seen[static_cast<std::size_t>(k)] = true;
      add_users(k, next);
    }
    return false;
  }
  /// Producers first.
  std::vector<int> in_order() const {
    std::vector<int> order;
    std::set<int> seen;
    const std::function<void(int)> visit = [&](int k) {
      if (!seen.insert(k).second) return;
      for (int from : operands(k)) visit(from);
      order.push_back(k);
    };
    for (int k : alive_) visit(k);
    return order;
  }
  std::string name(int id) const {
    std::string text;
    for (int v : at(id).ops) text += (text.empty() ? "" : "+") + op(v).name;
    return text;
  }

 private:
  const Operator& op(int v) const {
    return costs_.graph().workload().op(costs_.graph().vertex(v).op);
  }
  /// In no order, some twice.
  void add_users(int id, std::vector<int>& out) const {
    for (int v : at(id).gives)
      for (const Output& o : op(v).outputs)
        if (const auto found = readers_.find(o.target.tensor); found != readers_.end())
          out.insert(out.end(), found->second.begin(), found->second.end());
  }
  int rank_of(int id) const { return ranks_[static_cast<std::size_t>(id)]; }
  /// A rank above those that it reads from, and those that wait for it above it.
  void rank(int id) {
    ranks_.push_back(0);
    for (int from : operands(id)) ranks_.back() = std::max(ranks_.back(), rank_of(from) + 1);
    std::vector<int> raised = {id};
    while (!raised.empty() && !cyclic_) {
      const int k = raised.back();
      raised.pop_back();
      for (int user : users(k)) {
        if (rank_of(user) > rank_of(k)) continue;
        cyclic_ = cyclic_ || user == id;
        ranks_[static_cast<std::size_t>(user)] = rank_of(k) + 1;
        raised.push_back(user);
      }
    }
  }
  const Costs& costs_;
  std::vector<Fusion> all_;
  std::vector<int> ranks_;  ///< lower than that of whoever waits for it
  bool cyclic_ = false;     ///< kernels wait for one another: ranks say nothing
  std::set<int> alive_;
  std::vector<int> giver_;  ///< by tensor
  std::map<TensorId, std::set<int>> readers_;
};

/// Of a producer: what fusing it into all of its users would save, or why it is not.
struct Worth {
  std::vector<int> users;
  double unfused = 0, fused = 0;
  std::string why = {};  ///< refused
  double priority() const { return unfused - fused; }
};

class Queue {
 public:
  Queue(const Costs& costs, const Options& o, Bookkeeping b, Kernels& kernels)
      : costs_(costs), o_(o), bookkeeping_(b), kernels_(kernels) {}

  std::vector<Step> run() {
    for (int k : kernels_.alive()) put(k);
    Steps steps(static_cast<double>(queue_.size()));
    while (!queue_.empty()) {
      const auto [priority, producer] = *queue_.rbegin();
      fuse(producer);
      steps.done();
    }
    for (int k : kernels_.alive()) left(k);
    return std::move(steps_);
  }

 private:
  Worth worth(int p) {
    Worth out{.users = kernels_.users(p)};
    const Fusion& producer = kernels_.at(p);
    if (out.users.empty()) out.why = "nobody reads it";
    if (kernels_.leaves(p)) out.why = "it is a result of the workload";
    if (!o_.duplicate && out.users.size() > 1) out.why = "several kernels read it";
    for (int c : out.users) {
      if (!out.why.empty()) return out;
      if (const auto& no = refusal(p, c)) out.why = *no;
    }
    if (!out.why.empty()) return out;
    const auto users = static_cast<double>(out.users.size());
    out.unfused = o_.launch_seconds * (users + 1) + producer.seconds;
    out.fused = o_.launch_seconds * users;
    for (int c : out.users) {
      out.unfused += kernels_.at(c).seconds;
      out.fused += fused_seconds(p, c);
    }
    return out;
  }

  const std::optional<std::string>& refusal(int p, int c) {
    const auto [at, fresh] = refusals_.try_emplace({p, c});
    if (fresh || bookkeeping_ == Bookkeeping::anew)
      at->second = costs_.refusal(kernels_.at(p), kernels_.at(c));
    return at->second;
  }
  double fused_seconds(int p, int c) {
    const auto [at, fresh] = seconds_.try_emplace({p, c});
    if (fresh || bookkeeping_ == Bookkeeping::anew)
      at->second = costs_.fused_seconds(kernels_.at(p), kernels_.at(c));
    return at->second;
  }

  void take(int p) {
    const auto at = worths_.find(p);
    if (at == worths_.end()) return;
    queue_.erase({at->second.priority(), p});
    worths_.erase(at);
  }
  void put(int p) {
    take(p);
    Worth w = worth(p);
    // What would take longer is never fused; the source leaves it out of its queue.
    if (w.why.empty() && w.priority() >= 0) queue_.insert({w.priority(), p});
    worths_.emplace(p, std::move(w));
  }

  void fuse(int p) {
    const Worth w = worths_.at(p);
    Step step{.made = Step::Made::fused, .producer = kernels_.name(p), .consumers = {}};
    step.unfused = w.unfused, step.fused = w.fused;
    take(p);
    std::vector<int> made;
    for (int c : w.users) {
      step.consumers.push_back(kernels_.name(c));
      Fusion both = costs_.fused(kernels_.at(p), kernels_.at(c));
      take(c);
      kernels_.remove(c);
      made.push_back(kernels_.add(std::move(both)));
    }
    kernels_.remove(p);
    steps_.push_back(std::move(step));
    std::set<int> changed(made.begin(), made.end());
    for (int k : made)
      for (int from : kernels_.operands(k)) changed.insert(from);
    if (bookkeeping_ == Bookkeeping::anew) changed = kernels_.alive();
    for (int k : changed) put(k);
  }

  /// Of what was not fused: why.
  void left(int p) {
    const Worth& w = worths_.at(p);
    if (w.users.empty()) return;
    Step step{.made = w.why.empty() ? Step::Made::slower : Step::Made::refused,
              .producer = kernels_.name(p),
              .consumers = {}};
    for (int c : w.users) step.consumers.push_back(kernels_.name(c));
    step.unfused = w.unfused, step.fused = w.fused, step.why = w.why;
    steps_.push_back(std::move(step));
  }

  const Costs& costs_;
  const Options& o_;
  Bookkeeping bookkeeping_;
  Kernels& kernels_;
  std::set<std::pair<double, int>> queue_;
  std::map<int, Worth> worths_;                                         ///< of every kernel
  std::map<std::pair<int, int>, std::optional<std::string>> refusals_;  ///< by producer and user
  std::map<std::pair<int, int>, double> seconds_;
  std::vector<Step> steps_;
};

/// Kernels of several results: those that read the same tensor, and a producer with one of its
/// users.
class MultiOutput {
 public:
  MultiOutput(const Costs& costs, const Options& o, Kernels& kernels)
      : costs_(costs), o_(o), kernels_(kernels) {}

  std::vector<Step> run() {
    // Users before what they use; a kernel that was made on the way is not visited again.
    std::vector<int> order = kernels_.in_order();
    for (auto k = order.rbegin(); k != order.rend(); ++k) {
      if (!kernels_.alive().contains(*k)) continue;
      siblings(kernels_.users(*k));
      if (kernels_.alive().contains(*k)) with_user(*k);
    }
    const Workload& w = costs_.graph().workload();
    for (std::size_t t = w.tensors().size(); t-- > 0;)
      if (w.is_input(TensorId(t))) siblings(kernels_.readers(TensorId(t)));
    return std::move(steps_);
  }

 private:
  /// Several results, several operators, one.
  int rank(int k) const {
    const Fusion& f = kernels_.at(k);
    return f.gives.size() > 1 ? 2 : f.ops.size() > 1 ? 1 : 0;
  }
  bool stays(int k) const { return costs_.is_library(kernels_.at(k).ops.front()); }

  int merge(int a, int b, Step::Made made) {
    const Fusion &first = kernels_.at(a), &second = kernels_.at(b);
    Fusion both = costs_.fused(first, second, true);
    Step step{.made = made, .producer = kernels_.name(a), .consumers = {kernels_.name(b)}};
    step.unfused = 2 * o_.launch_seconds + first.seconds + second.seconds;
    step.fused =
        o_.launch_seconds +
        (made == Step::Made::siblings ? both.seconds : costs_.fused_seconds(first, second, true));
    steps_.push_back(std::move(step));
    kernels_.remove(a);
    kernels_.remove(b);
    return kernels_.add(std::move(both));
  }

  void siblings(std::vector<int> readers) {
    std::erase_if(readers, [this](int k) { return stays(k); });
    std::ranges::stable_sort(readers, std::ranges::greater{}, [this](int k) { return rank(k); });
    for (std::size_t i = 0; i < readers.size(); ++i)
      for (std::size_t j = i + 1; j < readers.size();) {
        const int a = readers[i], b = readers[j];
        if (kernels_.reaches(a, b) || kernels_.reaches(b, a) ||
            costs_.sibling_refusal(kernels_.at(a), kernels_.at(b))) {
          ++j;
          continue;
        }
        readers[i] = merge(a, b, Step::Made::siblings);
        readers.erase(readers.begin() + static_cast<std::ptrdiff_t>(j));
      }
  }

  void with_user(int p) {
    if (stays(p) || kernels_.at(p).gives.size() > 1) return;
    const std::vector<int> users = kernels_.users(p);
    // One user and no result: the queue has seen to it.
    if (users.size() == 1 && !kernels_.leaves(p) && rank(users.front()) < 2) return;
    int best = -1;
    for (int c : users) {
      if (stays(c) || (best >= 0 && rank(c) <= rank(best))) continue;
      const Fusion &producer = kernels_.at(p), &consumer = kernels_.at(c);
      if (costs_.refusal(producer, consumer, true) || kernels_.reaches(p, c, true)) continue;
      if (costs_.fused_seconds(producer, consumer, true) >
          o_.launch_seconds + producer.seconds + consumer.seconds)
        continue;
      best = c;
    }
    if (best >= 0) merge(p, best, Step::Made::both_outputs);
  }

  const Costs& costs_;
  const Options& o_;
  Kernels& kernels_;
  std::vector<Step> steps_;
};

}  // namespace

std::string_view name_of(Step::Made m) {
  switch (m) {
    case Step::Made::fused:
      return "fused";
    case Step::Made::siblings:
      return "one kernel, read the same";
    case Step::Made::both_outputs:
      return "one kernel, both written";
    case Step::Made::slower:
      return "slower";
    case Step::Made::refused:
      return "refused";
  }
  return "refused";
}

Fused fuse(const Costs& costs, const Options& o, Bookkeeping b) {
  Kernels kernels(costs);
  Fused out;
  out.steps = Queue(costs, o, b, kernels).run();
  if (o.multi_output)
    for (Step& s : MultiOutput(costs, o, kernels).run()) out.steps.push_back(std::move(s));
  for (int k : kernels.in_order()) out.kernels.push_back(kernels.at(k));
  return out;
}

}  // namespace tilewright::xlapriority
