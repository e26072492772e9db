// How far the planner's choice is from the best plan that its own price knows, of small workloads.
//
//   build/planner-gap [--tries N] [--models] < LIST   a line for each "MACHINE THREADS TARGET
//                                          WORKLOAD", TARGET none where none is named: JSON
//
// With --models every model's own plan of the whole is priced, and nothing else.
// Every partition into convex parts is counted, each part by the least of what the planner and
// every other model propose of it alone; the least partitions are joined and priced as a whole, and
// so is every other model's plan of the whole. From the best of all plans so many trees are then
// drawn for each kernel (steps, orders, loops more and less, loads, bindings, launches), and one
// that takes less goes on. Seconds are the planner's own price of the joined plan; where it knows
// none, bytes.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/plan/join.h"
#include "core/workload/cut.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/registry.h"

namespace tilewright {
namespace {

using nlohmann::ordered_json;
using Ptr = std::shared_ptr<const Workload>;

constexpr std::size_t kMostOperators = 7;    // of which all partitions are counted
constexpr std::size_t kJoined = 24;          // partitions that are priced as a whole
constexpr std::int64_t kLeastProposals = 2;  // of a part

double ratio(double a, double b) { return b > 0 ? a / b : 1; }

/// A plan of a workload after rewrites, and what it takes.
struct Whole {
  Plan plan;
  std::vector<std::string> rewrites;
  Ptr workload;
  double cost = 0;
  std::string by;
};

Ptr rewritten(Ptr w, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Result<Workload> next = tilewright::apply(name, *w);
    if (!next) return nullptr;
    w = std::make_shared<const Workload>(*next);
  }
  return w;
}

class Mutator {
 public:
  Mutator(const Workload& w, std::mt19937_64& random) : w_(w), random_(random) {}

  /// The kernel with one to three things changed.
  Kernel operator()(Kernel k) {
    for (std::size_t n = 1 + below(3); n > 0; --n) change(k);
    return k;
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  static void each(Node& n, const std::function<void(Node&)>& see) {
    see(n);
    for (Node& child : n.children) each(child, see);
  }
  Node* any(Node& tree, const std::function<bool(const Node&)>& is) {
    std::vector<Node*> found;
    each(tree, [&](Node& n) {
      if (is(n)) found.push_back(&n);
    });
    return found.empty() ? nullptr : found[below(found.size())];
  }
  static bool is_loop(const Node& n) { return n.kind == Node::Kind::loop; }

  std::int64_t step_of(const std::string& name, std::int64_t from) {
    const auto l = w_.find_loop(name);
    const std::int64_t n = l ? w_.loop(*l).extent : from;
    std::int64_t step = from;
    switch (below(5)) {
      case 0:
        step = from * 2;
        break;
      case 1:
        step = from / 2;
        break;
      case 2:
        step = ceil_div(n, 1 + static_cast<std::int64_t>(below(64)));
        break;
      case 3:
        step = from + 8 * (static_cast<std::int64_t>(below(9)) - 4);
        break;
      default:
        step = std::int64_t{1} << below(10);
    }
    return std::clamp<std::int64_t>(step, 1, n);
  }

  void change(Kernel& k) {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        Node* l = any(k.tree, is_loop);
        if (l == nullptr) return;
        const auto tile = k.tiles.find(l->name);
        if (l->step == 0 && tile != k.tiles.end())
          tile->second = step_of(l->name, tile->second);
        else
          l->step = step_of(l->name, std::max<std::int64_t>(1, l->step));
        return;
      }
      case 4:
      case 5: {  // two loops change places
        Node* l =
            any(k.tree, [](const Node& n) { return is_loop(n) && is_loop(n.children.front()); });
        if (l == nullptr) return;
        Node& inner = l->children.front();
        std::swap(l->name, inner.name);
        std::swap(l->step, inner.step);
        if (below(2) == 0) std::swap(l->binding, inner.binding);
        return;
      }
      case 6: {  // one loop less
        Node* l = any(k.tree, is_loop);
        if (l == nullptr) return;
        Node body = std::move(l->children.front());
        *l = std::move(body);
        return;
      }
      case 7: {  // one more, of any that its operators have
        Node* at = any(k.tree, [](const Node& n) {
          return n.kind == Node::Kind::loop || n.kind == Node::Kind::compute ||
                 n.kind == Node::Kind::sequence;
        });
        if (at == nullptr || w_.loops().empty()) return;
        const Loop& l = w_.loops()[below(w_.loops().size())];
        *at = loop(l.name, std::exchange(*at, {}),
                   step_of(l.name, std::max<std::int64_t>(1, l.extent / 2)));
        return;
      }
      case 8: {
        Node* l = any(k.tree, is_loop);
        if (l == nullptr) return;
        // One that the tree has: others mean nothing on some machines, and have no price of their
        // own.
        const Node* other = any(k.tree, is_loop);
        l->binding = other->binding;
        return;
      }
      case 9: {
        Node* l = any(k.tree, [](const Node& n) { return n.kind == Node::Kind::load; });
        if (l != nullptr) l->copies = l->copies == 1 ? 2 : 1;
        return;
      }
      case 10: {
        static constexpr int kWarps[] = {1, 2, 4, 8, 12, 16};
        if (below(2) == 0)
          k.launch.warps = kWarps[below(std::size(kWarps))];
        else
          k.launch.stages = 1 + static_cast<int>(below(5));
        return;
      }
      default: {  // a load or store goes, or a sequence is turned
        Node* s = any(k.tree, [](const Node& n) {
          return n.kind == Node::Kind::sequence && n.children.size() > 1;
        });
        if (s == nullptr) return;
        const std::size_t i = below(s->children.size());
        if (s->children[i].kind == Node::Kind::load || s->children[i].kind == Node::Kind::store)
          s->children.erase(s->children.begin() + static_cast<std::ptrdiff_t>(i));
        else
          std::swap(s->children[i], s->children[(i + 1) % s->children.size()]);
      }
    }
  }

  const Workload& w_;
  std::mt19937_64& random_;
};

class Gap {
 public:
  Gap(const Question& q, const Model& planner) : q_(q), planner_(planner) {}

  ordered_json run(int tries, bool models) {
    using clock = std::chrono::steady_clock;
    const auto begun = clock::now();
    ordered_json out;
    const Result<Proposal> ours = proposal(planner_, q_.workload);
    if (!ours) return {{"refused", ours.reason()}};
    out["search_seconds"] = std::chrono::duration<double>(clock::now() - begun).count();
    by_bytes_ = !ours->price.traffic.seconds.has_value();
    out["unit"] = by_bytes_ ? "bytes" : "seconds";
    auto own = whole(ours->plan, ours->rewrites, "tilewright");
    if (!own) return {{"refused", "the planner's own plan has no price"}};
    // What the planner says where it joins parts' prices.
    const double said =
        by_bytes_ ? ours->detail.at("volume_bytes").get<double>() : *ours->price.traffic.seconds;
    out["chosen"] = own->cost;
    out["said_over_priced"] = ratio(said, own->cost);
    Whole best = *own;
    const auto note = [&](const char* by) { out[by] = ratio(own->cost, best.cost); };
    for (const Model* m : q_.others) consider(*m, q_.workload, best);
    note("models");
    if (!models) {
      if (q_.workload->operators().size() <= kMostOperators) partitions(best);
      note("partitions");
      const Whole counted = best;
      drawn(*own, tries, best);
      if (counted.by != own->by || counted.cost < own->cost) drawn(counted, tries, best);
      note("drawn");
    }
    out["by"] = best.by;
    if (best.cost < .98 * own->cost) {
      for (const auto& [name, of] : {std::pair{"plan", &*own}, {"better", &best}}) {
        ordered_json kernels = ordered_json::array();
        for (const Kernel& k : of->plan.kernels) {
          ordered_json one = {{"tree", to_text(k.tree)}};
          if (!k.tiles.empty()) one["tiles"] = k.tiles;
          if (k.launch.warps) one["warps"] = *k.launch.warps;
          if (k.launch.stages) one["stages"] = *k.launch.stages;
          kernels.push_back(one);
        }
        out[name] = {{"rewrites", of->rewrites}, {"kernels", kernels}};
      }
    }
    out["seconds"] = std::chrono::duration<double>(clock::now() - begun).count();
    return out;
  }

 private:
  Question of(const Ptr& w) const {
    Question q = q_;
    q.workload = w;
    return q;
  }
  Result<Proposal> proposal(const Model& m, const Ptr& w) const {
    if (m.propose == nullptr) return Reason{"makes none"};
    Question q = of(w);
    if (&m != &planner_) q = q.to_other(), q.workload = w;
    try {
      return m.propose(q, Settings(m.options, {}, m.name));
    } catch (const InputError& e) {
      return Reason{e.what()};
    }
  }

  std::optional<double> cost(const Plan& plan, const Ptr& w) const {
    try {
      const Result<Schedule> s = resolve(plan, w, q_.machine);
      if (!s || misfit(*s)) return std::nullopt;
      const Result<Price> price = planner_.price(of(w), plan, Settings(planner_.options, {}, ""));
      if (!price) return std::nullopt;
      if (!by_bytes_) return price->traffic.seconds;
      const TrafficEntry all = price->traffic.total(boundary_into(*q_.machine, q_.planned_level()));
      return static_cast<double>(all.read.value + all.written.value);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }
  bool taken(const Plan& plan, const Ptr& w) const {
    if (!q_.refuses) return true;
    const Result<Schedule> s = resolve(plan, w, q_.machine);
    return s && !q_.refuses(*s);
  }

  std::optional<Whole> whole(const Plan& plan, const std::vector<std::string>& rewrites,
                             const std::string& by) const {
    const Ptr w = rewritten(q_.workload, rewrites);
    if (w == nullptr) return std::nullopt;
    const auto its = cost(plan, w);
    if (!its) return std::nullopt;
    return Whole{plan, rewrites, w, *its, by};
  }

  void consider(const Model& m, const Ptr& w, Whole& best) const {
    const Result<Proposal> p = proposal(m, w);
    if (!p) return;
    if (auto its = whole(p->plan, p->rewrites, m.name);
        its && its->cost < best.cost && taken(its->plan, its->workload))
      best = *its;
  }

  // ---- partitions -------------------------------------------------------------------------------

  struct Priced {
    double cost;
    PartPlan part;
  };
  /// The least of a part alone.
  std::vector<Priced> priced(const Part& ops) const {
    const Ptr w = std::make_shared<const Workload>(subgraph(*q_.workload, ops));
    std::vector<Priced> all;
    std::vector<const Model*> asked = q_.others;
    asked.push_back(&planner_);
    for (const Model* m : asked) {
      const Result<Proposal> p = proposal(*m, w);
      if (!p) continue;
      const Ptr to = rewritten(w, p->rewrites);
      if (to == nullptr) continue;
      const auto its = cost(p->plan, to);
      if (!its || !taken(p->plan, to)) continue;
      all.push_back({*its, {.part = *to, .plan = p->plan, .rewrites = p->rewrites, .by = m->name}});
    }
    std::ranges::stable_sort(all, {}, &Priced::cost);
    if (all.size() > kLeastProposals) all.resize(kLeastProposals);
    return all;
  }

  void partitions(Whole& best) const {
    const std::size_t n = q_.workload->operators().size();
    std::map<std::size_t, std::vector<Priced>> parts;
    for (std::size_t set = 1; set < (std::size_t{1} << n); ++set) {
      Part ops;
      for (std::size_t i = 0; i < n; ++i)
        if (set >> i & 1) ops.emplace_back(i);
      if (ops.size() > 1 && no_subgraph(*q_.workload, ops)) continue;
      auto all = priced(ops);
      if (!all.empty()) parts[set] = std::move(all);
    }
    struct Found {
      double cost;
      std::vector<std::size_t> sets;
    };
    std::vector<Found> found;
    std::vector<std::size_t> now;
    const std::function<void(std::size_t, double)> go = [&](std::size_t left, double sum) {
      if (left == 0) return void(found.push_back({sum, now}));
      const std::size_t first = left & ~(left - 1);
      for (std::size_t set = left; set > 0; set = (set - 1) & left) {
        if (!(set & first) || !parts.contains(set)) continue;
        now.push_back(set);
        go(left & ~set, sum + parts[set].front().cost);
        now.pop_back();
      }
    };
    go((std::size_t{1} << n) - 1, 0);
    std::ranges::stable_sort(found, {}, &Found::cost);
    if (found.size() > kJoined) found.resize(kJoined);
    for (const Found& f : found) {
      // Each part's first proposal, and with one part's second.
      for (std::size_t second = 0; second <= f.sets.size(); ++second) {
        std::vector<PartPlan> plans;
        std::string by;
        for (std::size_t i = 0; i < f.sets.size(); ++i) {
          const auto& all = parts[f.sets[i]];
          const Priced& one = all[i + 1 == second && all.size() > 1 ? 1 : 0];
          plans.push_back(one.part);
          by += (i > 0 ? "|" : "") + one.part.by;
        }
        const Result<JoinedPlan> joined = join_plans(*q_.workload, plans);
        if (!joined) continue;
        if (auto its = whole(joined->plan, joined->rewrites, by);
            its && its->cost < best.cost && taken(its->plan, its->workload))
          best = *its;
      }
    }
  }

  void drawn(const Whole& from, int tries, Whole& best) const {
    std::mt19937_64 random(28);
    Mutator mutate(*from.workload, random);
    Whole now = from;
    std::set<std::string> seen;
    for (int i = 0; i < tries; ++i) {
      if (i == tries / 2) now = from;  // once more, another way
      Plan plan = now.plan;
      Kernel& k = plan.kernels[static_cast<std::size_t>(random() % plan.kernels.size())];
      k = mutate(k);
      const auto its = cost(plan, from.workload);
      if (!its || *its >= now.cost || !taken(plan, from.workload)) continue;
      now.plan = plan, now.cost = *its;
      now.by = from.by + ", drawn";
      if (now.cost < best.cost) best = now;
    }
  }

  Question q_;
  const Model& planner_;
  bool by_bytes_ = false;
};

int run(int argc, char** argv) {
  int tries = 400;
  bool models = false;
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--models")
      models = true;
    else if (std::string(argv[i]) == "--tries" && i + 1 < argc)
      tries = std::stoi(argv[++i]);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string machine, target, workload;
    int threads = 1;
    words >> machine >> threads >> target >> workload;
    ordered_json out = {
        {"workload", workload}, {"machine", machine}, {"threads", threads}, {"target", target}};
    try {
      harness::Request request{.subject = workload, .machine = machine};
      if (threads > 1) request.threads = threads;
      if (target != "none") request.target = target;
      const harness::Setting setting = harness::setting_of(request);
      const Model& planner = harness::planning_model();
      out["operators"] = setting.workload->operators().size();
      out.update(Gap(harness::question_of(request, setting, planner), planner).run(tries, models));
    } catch (const InputError& e) {
      out["refused"] = e.what();
    }
    std::cout << out.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::run(argc, argv); }
