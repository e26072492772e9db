// The method `cluster-space`: how many plans of a GEMM chain FlashFuser's rules leave, by reading.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "experiments/report/sheet.h"

namespace tilewright::harness {
namespace {

/// The paper's dimensions: C[m,n] = A[m,k] B[k,n]; E[m,l] = C[m,n] D[n,l].
enum Dim { kM, kN, kK, kL, kDims };
using PerDim = std::array<std::int64_t, kDims>;

/// Spatial dimensions, at least one, and an order of the loops over the others.
struct LoopSchedule {
  std::array<bool, kDims> spatial = {};
  std::vector<int> order;  ///< outer first
};

std::vector<LoopSchedule> all_schedules() {
  std::vector<LoopSchedule> all;
  for (int mask = 1; mask < 1 << kDims; ++mask) {
    LoopSchedule s;
    for (int d = 0; d < kDims; ++d) {
      s.spatial[static_cast<std::size_t>(d)] = (mask >> d & 1) != 0;
      if ((mask >> d & 1) == 0) s.order.push_back(d);
    }
    do all.push_back(s);
    while (std::next_permutation(s.order.begin(), s.order.end()));
  }
  return all;
}

struct ClusterReading {
  const char* name;
  bool (*keeps)(const PerDim& c, std::int64_t most);
};
constexpr ClusterReading kClusters[] = {
    {"equal blocks: k and l of the cluster the same",
     [](const PerDim& c, std::int64_t most) {
       return c[kM] * c[kN] * c[kK] <= most && c[kK] == c[kL];
     }},
    {"whole shuffle and reduce groups",
     [](const PerDim& c, std::int64_t most) {
       return c[kM] * c[kN] * c[kK] <= most && c[kL] % c[kK] == 0 && c[kN] * c[kK] % c[kL] == 0;
     }},
    {"each GEMM's three dimensions at most 16",
     [](const PerDim& c, std::int64_t most) {
       return c[kM] * c[kN] * c[kK] <= most && c[kM] * c[kN] * c[kL] <= most;
     }},
    {"first GEMM at most 16, whole shuffle groups", [](const PerDim& c, std::int64_t most) {
       return c[kM] * c[kN] * c[kK] <= most && c[kL] % c[kK] == 0;
     }}};

struct OrderReading {
  const char* name;
  bool spatial;  ///< k may be spatial instead
};
constexpr OrderReading kOrders[] = {{"k innermost", false}, {"k innermost or spatial", true}};

bool keeps_order(const LoopSchedule& s, const OrderReading& r) {
  return s.spatial[kK] ? r.spatial : s.order.back() == kK;
}

std::int64_t count_clusters(const std::vector<std::int64_t>& sizes, const ClusterReading& r,
                            std::int64_t most) {
  std::int64_t n = 0;
  for (const std::int64_t m : sizes)
    for (const std::int64_t k : sizes)
      for (const std::int64_t c : sizes)
        for (const std::int64_t l : sizes) n += r.keeps({m, c, k, l}, most) ? 1 : 0;
  return n;
}

struct Count {
  std::string rule, reading;
  double plans;
};

}  // namespace

Reproduced reproduce_cluster_space(const Experiment& e) {
  const Field top = document_of(e, {"extents", "step", "clusters", "most_blocks", "paper"});
  const std::int64_t step = top.at("step").integer(1, 1 << 20);
  const std::int64_t most = top.at("most_blocks").integer(1, 1 << 10);
  std::vector<std::int64_t> sizes;
  for (const Field& f : top.at("clusters").items()) sizes.push_back(f.integer(1, 1 << 10));
  double multiples = 1, divisors = 1;
  for (const char* name : {"m", "n", "k", "l"}) {
    const std::int64_t extent = top.at("extents").at(name).integer(step, 1 << 20);
    std::int64_t dividing = 0;
    for (std::int64_t tile = step; tile <= extent; tile += step) dividing += extent % tile == 0;
    multiples *= static_cast<double>(extent / step);
    divisors *= static_cast<double>(dividing);
  }
  const std::vector<LoopSchedule> schedules = all_schedules();
  const auto count = [](auto n) { return static_cast<double>(n); };
  const double clusters = std::pow(count(sizes.size()), kDims);
  std::vector<Count> counts = {
      {"original", "every multiple of the step", count(schedules.size()) * clusters * multiples},
      {"rule1", "multiples that divide", count(schedules.size()) * clusters * divisors}};
  for (const ClusterReading& c : kClusters) {
    const double kept = count(count_clusters(sizes, c, most)) * divisors;
    counts.push_back({"rule2", c.name, count(schedules.size()) * kept});
    for (const OrderReading& o : kOrders) {
      const auto third = std::ranges::count_if(
          schedules, [&](const LoopSchedule& s) { return keeps_order(s, o); });
      const auto fourth = std::ranges::count_if(
          schedules, [&](const LoopSchedule& s) { return keeps_order(s, o) && !s.spatial[kL]; });
      const std::string reading = formatted("{}; {}", c.name, o.name);
      counts.push_back({"rule3", reading, count(third) * kept});
      counts.push_back({"rule4", reading, count(fourth) * kept});
    }
  }
  const auto off = [&](const Count& c) {
    return std::abs(std::log(c.plans / top.at("paper").at(c.rule).real()));
  };
  std::map<std::string, double> closest;
  for (const Count& c : counts)
    if (const auto [at, first] = closest.emplace(c.rule, off(c)); !first)
      at->second = std::min(at->second, off(c));
  Reproduced done;
  done.holds = true;
  Sheet sheet(
      {"after", "reading", "plans (counted)", "plans (paper)", "ours over the paper's", "closest"});
  for (const Count& c : counts) {
    const double paper = top.at("paper").at(c.rule).real();
    const bool nearest = off(c) == closest[c.rule];
    sheet.add({c.rule, c.reading, formatted("{:.4g}", c.plans), formatted("{:.3g}", paper),
               formatted("{:.3f}", c.plans / paper), nearest ? "yes" : "no"});
    if (nearest)
      done.compared.push_back({.what = formatted("plans after {} ({})", c.rule, c.reading),
                               .unit = "",
                               .ours = c.plans,
                               .ours_source = "predicted (counted)",
                               .paper = paper});
    const bool certain = c.rule == "original" || c.rule == "rule1";
    if (certain && std::abs(c.plans / paper - 1) > 0.005)
      fail(done, formatted("{} has {:.4g} plans, the paper's {:.3g}", c.rule, c.plans, paper));
  }
  sheet.into(done);
  return done;
}

}  // namespace tilewright::harness
