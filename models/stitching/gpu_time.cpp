#include "models/stitching/gpu_time.h"

#include <algorithm>

#include "core/base/format.h"
#include "core/lowering/gpu/thread_program.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {

Result<GpuPricer> GpuPricer::of(std::shared_ptr<const Workload> w, const Machine& m,
                                double working_set) {
  GpuPricer p;
  const Result<Device> device = device_of(m);
  if (!device) return Reason{device.reason()};
  const Result<lowering::BlockRates> rates = lowering::block_rates(m, w->dtype());
  if (!rates) return Reason{rates.reason()};
  p.w_ = std::move(w);
  if (working_set <= 0)
    for (const Tensor& t : p.w_->tensors()) working_set += static_cast<double>(t.bytes().value);
  p.device_ = with_working_set(*device, working_set);
  p.device_.machine = std::make_shared<const Machine>(m);
  p.rates_ = *rates;
  p.working_set_ = working_set;
  return p;
}

Result<GpuTime> GpuPricer::kernel(const Schedule& s, std::size_t kernel) const {
  const ScheduledKernel& k = s.kernels[kernel];
  if (!lowering::binds_units(k)) {
    auto t =
        lowering::block_time(s, static_cast<int>(kernel), rates_, {.working_set = working_set_});
    if (!t) return t.why();
    return GpuTime{.seconds = t->seconds, .blocks = std::move(t).value()};
  }
  const auto program = lowering::lower(s, static_cast<int>(kernel));
  if (!program) return Reason{program.reason()};
  if (graph_ == nullptr) {
    // A contraction that is bound to units is a reduction, however many points it has.
    constexpr double kNoProducts = 1e30;
    Result<Graph> graph = Graph::create(w_, kNoProducts);
    if (!graph) return Reason{graph.reason()};
    graph_ = std::make_shared<const Graph>(std::move(graph).value());
  }
  Pattern ops;
  for (const Vertex& v : graph_->vertices())
    if (std::ranges::find(k.ops, v.op) != k.ops.end())
      ops.push_back(static_cast<int>(&v - graph_->vertices().data()));
  double moved = 0;
  if (k.co_resident) {
    moved = compulsory(k);
  } else {
    auto parts = components_of(*graph_, ops, 1 << 20);
    if (!parts) return Reason{k.name + ": its operators need one another's blocks"};
    // Those of a pack have blocks of their own.
    if (std::ranges::none_of(k.nodes,
                             [](const ScheduleNode& n) { return n.kind == NodeKind::pack; }))
      join_equal(*graph_, *parts);
    for (const Component& c : *parts) moved += memory_bytes(*graph_, c);
  }
  const std::vector<Demand> demands = demands_of(*graph_, ops, device_, *program);
  const double resident = resident_blocks(device_, largest_of(demands), program->shared_bytes);
  if (k.co_resident && static_cast<double>(k.blocks) > resident * static_cast<double>(device_.sms))
    return Reason{formatted("{}: its {} blocks wait for one another, and {} are resident", k.name,
                            k.blocks, resident * static_cast<double>(device_.sms))};
  const Overlap t = overlap(device_, demands, resident, moved);
  return GpuTime{.seconds = t.seconds, .units = t};
}

/// What goes in and out of a kernel, each tensor once.
double GpuPricer::compulsory(const ScheduledKernel& k) const {
  double bytes = 0;
  for (std::size_t i = 0; i < w_->tensors().size(); ++i) {
    const TensorId t(i);
    const auto here = [&](OpId op) {
      return op.valid() && std::ranges::find(k.ops, op) != k.ops.end();
    };
    const bool made = here(w_->producer(t));
    const auto readers = w_->consumers(t);
    const bool read = std::ranges::any_of(readers, here);
    const bool leaves = w_->is_output(t) || !std::ranges::all_of(readers, here);
    if ((read && !made) || (made && leaves))
      bytes += static_cast<double>(w_->tensor(t).bytes().value);
  }
  return bytes;
}

Result<double> GpuPricer::seconds(const Schedule& s) const {
  double all = 0;
  for (std::size_t k = 0; k < s.kernels.size(); ++k) {
    const Result<GpuTime> t = kernel(s, k);
    if (!t) return Reason{t.reason()};
    all += t->seconds;
  }
  return all;
}

}  // namespace tilewright::stitching
