// The plan where the machine is no processor, nor a GPU whose file has the numbers of gpu_time.h:
// the fastest of what others propose of the whole and of its parts, each at the longest of the
// times that models give it: what one leaves out, another has. Where no model knows how long the
// whole takes, the one of fewest bytes into the planned level, at the most that models count.
#include <algorithm>
#include <chrono>
#include <limits>

#include "core/base/format.h"
#include "core/plan/join.h"
#include "core/workload/cut.h"
#include "core/workload/subgraph.h"
#include "models/quickest/gpu.h"
#include "models/quickest/model.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {
namespace {

using nlohmann::ordered_json;

struct Candidate {
  PartPlan part;
  std::optional<double> cost;  ///< the most that a model gives it: seconds, or bytes
};

Question question_of(const Question& q, std::shared_ptr<const Workload> w) {
  Question of = q;
  of.workload = std::move(w);
  of.others.clear();
  return of;
}

Settings standard(const Model& m) { return {m.options, {}, "model " + m.name}; }

class Chooser {
 public:
  Chooser(const Question& q, bool times) : q_(q), times_(times) {
    for (const Model* m : q.others)
      if (m->times == times && m->price != nullptr) evaluators_.push_back(m);
  }

  Result<Proposal> run() {
    if (evaluators_.empty()) return Reason{"no model here knows time"};
    std::vector<std::vector<Part>> cuts = {{},
                                           cut_contractions(*q_.workload),
                                           cut_contractions(*q_.workload, false),
                                           cut_each(*q_.workload)};
    for (std::size_t i = 0; i < q_.workload->operators().size(); ++i)
      cuts[0].resize(1), cuts[0][0].emplace_back(i);
    double least = std::numeric_limits<double>::infinity();
    std::vector<const Candidate*> best;
    for (const auto& parts : cuts) {
      double total = 0;
      std::vector<const Candidate*> chosen;
      for (const Part& p : parts) {
        total += cheapest(p, chosen);
        if (total >= least) break;
      }
      if (total < least) least = total, best = chosen;
    }
    if (best.empty()) return Reason{refusals()};
    return joined(best, least);
  }

 private:
  /// The part as one, or as its contractions apart from the rest.
  double cheapest(const Part& p, std::vector<const Candidate*>& chosen) {
    const Candidate* one = best_of(p);
    const double whole = one ? *one->cost : std::numeric_limits<double>::infinity();
    std::vector<Part> pieces;
    const Workload part = subgraph(*q_.workload, p);
    for (Part piece : cut_contractions(part, false)) {
      for (OpId& op : piece) op = *q_.workload->find_op(part.op(op).name);
      pieces.push_back(std::move(piece));
    }
    double apart = 0;
    std::vector<const Candidate*> those;
    if (pieces.size() > 1)
      for (const Part& piece : pieces) {
        const Candidate* c = best_of(piece);
        if (c == nullptr) {
          apart = std::numeric_limits<double>::infinity();
          break;
        }
        apart += *c->cost;
        those.push_back(c);
      }
    if (pieces.size() > 1 && apart < whole) {
      chosen.insert(chosen.end(), those.begin(), those.end());
      return apart;
    }
    if (one != nullptr) chosen.push_back(one);
    return whole;
  }

  const Candidate* best_of(const Part& p) {
    const Candidate* best = nullptr;
    for (const Candidate& c : candidates(p))
      if (c.cost && (best == nullptr || *c.cost < *best->cost)) best = &c;
    return best;
  }

  const std::vector<Candidate>& candidates(const Part& p) {
    const auto known = known_.find(p);
    if (known != known_.end()) return known->second;
    std::vector<Candidate>& all = known_[p];
    const auto w = std::make_shared<const Workload>(subgraph(*q_.workload, p));
    for (const Model* m : q_.others) {
      if (m->propose == nullptr) continue;
      try {
        const Question asked = question_of(q_, w);
        const Result<Proposal> proposal = m->propose(asked, standard(*m));
        if (!proposal) {
          refused_[m->name] = proposal.reason();
          continue;
        }
        const auto own = rewritten(w, proposal->rewrites);
        if (own == nullptr) continue;
        const Result<Schedule> s = resolve(proposal->plan, own, q_.machine);
        if (!s) continue;
        if (q_.refuses)
          if (const auto why = q_.refuses(*s)) {
            refused_[m->name] = why->text;
            continue;
          }
        Candidate c{
            {.part = *own, .plan = proposal->plan, .rewrites = proposal->rewrites, .by = m->name},
            {}};
        for (const Model* e : evaluators_)
          if (const auto its = cost(*e, own, c.part.plan))
            c.cost = std::max(c.cost.value_or(0), *its);
        all.push_back(std::move(c));
      } catch (const InputError& e) {
        refused_[m->name] = e.what();
      }
    }
    return all;
  }

  std::optional<double> cost(const Model& e, std::shared_ptr<const Workload> w,
                             const Plan& plan) const {
    try {
      const Result<Price> price = e.price(question_of(q_, std::move(w)), plan, standard(e));
      if (!price) return std::nullopt;
      if (times_) return price->traffic.seconds;
      const std::string boundary = boundary_into(*q_.machine, q_.planned_level());
      const TrafficEntry all = price->traffic.total(boundary);
      if (std::ranges::none_of(price->traffic.entries,
                               [&](const TrafficEntry& e) { return e.boundary == boundary; }))
        return std::nullopt;
      return static_cast<double>(all.read.value + all.written.value);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  Result<Proposal> joined(const std::vector<const Candidate*>& best, double cost) {
    std::vector<PartPlan> parts;
    for (const Candidate* c : best) parts.push_back(c->part);
    Result<JoinedPlan> all = join_plans(*q_.workload, parts);
    if (!all) return Reason{all.reason()};
    Proposal out;
    out.plan = all->plan;
    out.rewrites = all->rewrites;
    out.level = q_.planned_level();
    out.price.traffic.by = "tilewright";
    out.price.traffic.machine = q_.machine->name;
    if (times_) {
      out.price.traffic.seconds = cost;
      out.detail = {{"seconds", cost},
                    {"seconds_are", "of each part, the longest that a model gives its plan"}};
    } else {
      out.detail = {{"volume_bytes", static_cast<std::int64_t>(cost)},
                    {"volume_is", "of each part, the most that a model counts: none knows time"}};
    }
    out.detail["parts_planned"] = ordered_json::array();
    for (const Candidate* c : best) {
      ordered_json operators = ordered_json::array();
      for (const Operator& op : c->part.part.operators()) operators.push_back(op.name);
      out.detail["parts_planned"].push_back({{"operators", operators},
                                             {"by", c->part.by},
                                             {times_ ? "seconds" : "bytes", or_null(c->cost)}});
    }
    return out;
  }

  std::string refusals() const {
    std::string text = times_ ? "no model's plan has a time" : "no model plans all operators here";
    for (const auto& [name, reason] : refused_) text += "; " + name + ": " + reason;
    return text;
  }

  const Question& q_;
  bool times_;
  std::vector<const Model*> evaluators_;
  std::map<Part, std::vector<Candidate>> known_;
  std::map<std::string, std::string> refused_;
};

}  // namespace

static Result<Proposal> choose(const Question& q) {
  Result<Proposal> fastest = Chooser(q, true).run();
  return fastest ? fastest : Chooser(q, false).run();
}

/// GPUs whose machine file has the numbers of models/stitching/gpu_time.h.
static bool has_own_time(const Question& q) {
  return q.machine->kind == "gpu" && stitching::GpuPricer::of(q.workload, *q.machine).ok();
}

Result<Proposal> propose_elsewhere(const Question& q, const Settings& settings) {
  if (!has_own_time(q)) return choose(q);
  Result<Proposal> own = propose_on_gpu(q, settings);
  if (own) return own;
  Result<Proposal> others = choose(q);
  return others ? others : own;
}

Result<Price> price_elsewhere(const Question& q, const Plan& plan, const Settings&) {
  if (has_own_time(q)) return price_on_gpu(q, plan);
  std::optional<Price> longest;
  for (const Model* m : q.others) {
    if (!m->times || m->price == nullptr) continue;
    Result<Price> price = m->price(question_of(q, q.workload), plan, standard(*m));
    if (price && price->traffic.seconds &&
        (!longest || *price->traffic.seconds > *longest->traffic.seconds))
      longest = std::move(price).value();
  }
  if (longest) {
    longest->traffic.entries.clear();  // the bytes are another model's
    longest->traffic.by = "tilewright";
    return *longest;
  }
  return Reason{"no model here knows how long the plan takes"};
}

}  // namespace tilewright::quickest
