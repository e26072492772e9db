// Kernels without products whose loops warps, lanes and threads share out (models/stitching):
// values pass from operator to operator in registers, where blocks' tiles would lie in shared
// memory.
#include "models/souffle/units.h"

#include <algorithm>
#include <limits>

#include "core/plan/names.h"
#include "core/plan/schedule.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"

namespace tilewright::souffle {
namespace {

constexpr int kMostRefused = 8;  // kernels that a target is asked about

Bytes all_tensors(const Workload& w) {
  Bytes all;
  for (const Tensor& t : w.tensors()) all += t.bytes();
  return all;
}

}  // namespace

Units::Units(const Question& q, const Workload& w) : q_(q), w_(w) {
  const auto device = stitching::device_of(*q.machine);
  if (!device) return;
  device_ = *device;
  device_->machine = q.machine;
}

std::optional<double> Units::seconds(const Schedule& s) const {
  const auto working_set = static_cast<double>(all_tensors(w_).value);
  const auto pricer = stitching::GpuPricer::of(s.workload, *q_.machine, working_set);
  if (!pricer) return {};
  const auto seconds = pricer->seconds(s);
  return seconds ? std::optional(*seconds) : std::nullopt;
}

std::optional<UnitKernel> Units::kernel(std::vector<OpId> ops) {
  if (!device_ || ops.size() > kMostOperators) return {};
  std::ranges::sort(ops);
  if (no_subgraph(w_, ops)) return {};
  const auto part = std::make_shared<const Workload>(subgraph(w_, ops));
  const std::string key = to_yaml(without_names(*part));
  auto at = known_.find(key);
  if (at == known_.end()) at = known_.emplace(key, Known{part, made(part)}).first;
  if (!at->second.kernel) return {};
  UnitKernel out = *at->second.kernel;
  out.kernel = Names(*at->second.of, *part).rename(std::move(out.kernel));
  out.ops = std::move(ops);
  return out;
}

bool Units::is_product(OpId id) {
  if (!w_.is_contraction(id) || !device_) return false;
  if (products_.empty()) {
    products_.assign(w_.operators().size(), false);
    const auto graph = stitching::Graph::create(
        std::make_shared<const Workload>(w_), stitching::ridge_of(*device_, stitching::Options{}));
    if (graph)
      for (const stitching::Vertex& v : graph->vertices())
        products_[v.op.index()] = v.kind == stitching::Kind::product;
  }
  return products_[id.index()];
}

std::optional<UnitKernel> Units::made(const std::shared_ptr<const Workload>& part) const {
  const stitching::Options options;
  const auto graph = stitching::Graph::create(part, stitching::ridge_of(*device_, options));
  if (!graph) return {};
  stitching::Pattern all;
  for (int v = 0; v < graph->size(); ++v) {
    if (graph->vertex(v).kind == stitching::Kind::product) return {};
    all.push_back(v);
  }
  const std::vector<stitching::Pattern> patterns{all};
  const auto price = stitching::price(*graph, *device_, patterns, options);
  if (!price || price->kernels.size() != 1 || !price->kernels.front().without_units.empty())
    return {};
  const auto taken = [&](const Kernel& k, double seconds) -> std::optional<UnitKernel> {
    const auto s = resolve(Plan{{k}}, part, q_.machine);
    if (!s || (q_.refuses && q_.refuses(*s))) return {};
    return UnitKernel{
        .ops = {}, .kernel = k, .seconds = seconds, .blocks = s->kernels.front().blocks};
  };
  const stitching::WrittenPlan written =
      stitching::write_plan(*graph, *device_, *price, q_.machine);
  if (!written.unbound.front().empty()) return {};
  if (auto k = taken(written.plan.kernels.front(), price->kernels.front().seconds)) return k;
  if (!q_.refuses) return {};
  int asked = 0;
  for (const stitching::WrittenKernel& k :
       stitching::kernel_choices(*graph, *device_, *price, 0, options)) {
    if (++asked > kMostRefused || !k.without_units.empty()) break;
    if (auto other = taken(k.kernel, k.seconds)) return other;
  }
  return {};
}

std::vector<UnitKernel> Units::kernels(std::span<const std::vector<OpId>> phases) {
  std::vector<UnitKernel> out;
  for (const std::vector<OpId>& phase : phases)
    if (std::ranges::any_of(phase, [&](OpId id) { return is_product(id); })) return {};
  for (const std::vector<OpId>& phase : phases) {
    std::optional<UnitKernel> next = kernel(phase);
    if (!next) return {};
    if (!out.empty()) {
      std::vector<OpId> both = out.back().ops;
      both.insert(both.end(), phase.begin(), phase.end());
      const double apart = out.back().seconds + next->seconds;
      if (std::optional<UnitKernel> joined = kernel(std::move(both));
          joined && joined->seconds <= apart) {
        out.back() = *std::move(joined);
        continue;
      }
    }
    out.push_back(*std::move(next));
  }
  return out;
}

}  // namespace tilewright::souffle
