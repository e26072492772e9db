// The whole workload as it is and after rewrites, of which the quickest plan is kept.
#include <limits>
#include <set>
#include <utility>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {
namespace {

constexpr const char *kGathersFirst = "materialise-gathers",
                     *kHoist = "hoist:", *kAcross = "materialise-across:";
// Copies are what prices know least of: those of patches take 1.2 to 1.3 times theirs.
constexpr double kMatricesGain = 0.9, kPatchesGain = 0.8;
constexpr double kHoistGain = 0.95;

}  // namespace

std::optional<Best> KnownGroups::find(const std::string& under, const Group& group,
                                      const std::function<std::optional<Best>()>& search) {
  const Workload& w = *group.workload;
  std::string key = under + ';' + signature(w);
  for (const Loop& l : w.loops()) key += ' ' + l.name;
  for (const Tensor& t : w.tensors()) key += ' ' + t.name + (t.values ? "=" : "");
  for (const Operator& op : w.operators()) key += ' ' + op.name;
  const auto found = groups_.find(key);
  if (found != groups_.end()) return found->second;
  return groups_[std::move(key)] = search();
}

double Planned::seconds() const {
  return proposal.price.traffic.seconds.value_or(std::numeric_limits<double>::infinity());
}

Wholes::Wholes(std::shared_ptr<const Workload> w, Plan plan, bool rewrites)
    : w_(std::move(w)), plan_(std::move(plan)), best_(planned({.workload = w_})) {
  if (!rewrites) return;
  if (auto gathered = rewritten(w_, {kGathersFirst})) tries({{kGathersFirst}, std::move(gathered)});
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

bool Wholes::tries(const stitching::Composition& c, double part) {
  Result<Planned> other = planned(c);
  if (other && best_ && part < 1) part = 1 - (1 - part) * changed(*other);
  return takes(std::move(other), part);
}

double Wholes::changed(const Planned& other) const {
  // By what they read, too: a product of copies keeps its name.
  const auto names = [](const Planned& p, const Part& ops) {
    const Workload& w = *p.composed.workload;
    std::set<std::string> all;
    for (const OpId op : ops) {
      std::string name = w.op(op).name;
      for (const Access& a : w.op(op).inputs) name += ' ' + w.tensor(a.tensor).name;
      all.insert(std::move(name));
    }
    return all;
  };
  std::set<std::set<std::string>> theirs;
  for (const Part& ops : other.groups) theirs.insert(names(other, ops));
  double all = 0, changed = 0;
  for (std::size_t g = 0; g < best_->groups.size(); ++g) {
    all += best_->took[g];
    changed += theirs.contains(names(*best_, best_->groups[g])) ? 0 : best_->took[g];
  }
  return all > 0 ? changed / all : 1;
}

void Wholes::takes_best_of(const std::function<void(const Tried&)>& tries, double part) {
  Result<Planned> least = Reason{""};
  tries([&](const stitching::Composition& c) {
    Result<Planned> other = planned(c);
    if (!other || (least && other->seconds() >= least->seconds())) return false;
    least = std::move(other);
    return true;
  });
  takes(std::move(least), part);
}

void Wholes::try_names(const stitching::Composition& from, const std::string& prefix,
                       std::vector<std::string> names, bool fewer, const Tried& tried) {
  if (names.empty()) return;
  const auto gains = [&](const std::vector<std::string>& of) {
    stitching::Composition c = from;
    c.rewrites.push_back(prefix + join(of, ";"));
    c.workload = rewritten(from.workload, {c.rewrites.back()});
    return c.workload != nullptr && tried(c);
  };
  const bool all = gains(names);
  for (std::size_t i = 0; fewer && names.size() > 1 && i < names.size();) {
    std::vector<std::string> of = all ? names : std::vector<std::string>{names[i]};
    if (all) of.erase(of.begin() + static_cast<std::ptrdiff_t>(i));
    if (gains(of) && all)
      names = std::move(of);
    else
      ++i;
  }
}

void Wholes::try_matrices(bool windows, bool fewer, const std::string& beside) {
  const double part = windows ? kPatchesGain : kMatricesGain;
  std::vector<std::string> names;
  for (const OpId op : no_products_of_matrices(*w_, windows)) names.push_back(w_->op(op).name);
  try_names({.workload = w_}, kMatrices, std::move(names), fewer,
            [&](const stitching::Composition& c) {
              if (tries(c, part)) return true;
              if (beside.empty()) return false;
              stitching::Composition both = c;
              both.workload = rewritten(c.workload, {beside});
              both.rewrites.push_back(beside);
              return both.workload != nullptr && tries(both, part);
            });
}

void Wholes::try_hoisting() {
  if (!best_) return;
  const stitching::Composition from = best_->composed;
  std::vector<std::string> names;
  for (const OpId op : operators_to_hoist(*from.workload, true))
    names.push_back(from.workload->op(op).name);
  try_names(from, kHoist, std::move(names), false,
            [&](const stitching::Composition& c) { return tries(c, kHoistGain); });
}

void Wholes::try_rows() {
  if (!best_) return;
  const stitching::Composition from = best_->composed;
  std::vector<std::string> names;
  for (const OpId op : readers_across(*from.workload)) names.push_back(from.workload->op(op).name);
  try_names(from, kAcross, std::move(names), false,
            [&](const stitching::Composition& c) { return tries(c, kMatricesGain); });
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
