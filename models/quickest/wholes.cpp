// The whole workload as it is and after rewrites, of which the quickest plan is kept.
#include <limits>
#include <utility>

#include "models/quickest/partition.h"

namespace tilewright::quickest {
namespace {

constexpr const char* kGathersFirst = "materialise-gathers";

}  // namespace

double Planned::seconds() const {
  return proposal.price.traffic.seconds.value_or(std::numeric_limits<double>::infinity());
}

Wholes::Wholes(std::shared_ptr<const Workload> w, Plan plan)
    : plan_(std::move(plan)), best_(planned({.workload = w})) {
  if (auto gathered = rewritten(w, {kGathersFirst})) tries({{kGathersFirst}, std::move(gathered)});
}

Result<Planned> Wholes::planned(const stitching::Composition& c) const {
  Result<Planned> p = plan_(c);
  if (!p) return p;
  std::vector<std::string>& all = p.value().proposal.rewrites;
  all.insert(all.begin(), c.rewrites.begin(), c.rewrites.end());
  p.value().composed = c;
  return p;
}

bool Wholes::takes(Result<Planned> other, double part) {
  if (!other || (best_ && other->seconds() >= part * best_->seconds())) return false;
  best_ = std::move(other);
  return true;
}

Result<Proposal> Wholes::proposal() && {
  if (!best_) return Reason{best_.reason()};
  Proposal out = std::move(best_).value().proposal;
  out.search_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  out.detail["search_seconds"] = *out.search_seconds;
  return out;
}

}  // namespace tilewright::quickest
