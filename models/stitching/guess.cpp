// About what a kernel takes, without a schedule: by its rows, the operators' instructions and what
// a block touches.
#include <algorithm>
#include <cmath>
#include <map>

#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr double kBlocksOfSm = 4;  // where there are rows for them
constexpr double kThreads = 512;   // of a block

/// Elements of the tensor that the rows of a block touch; `rows`: of a loop that blocks split.
double touched(const Graph& g, const Component& c, const Access& a, double rows) {
  double all = 1;
  bool split = false;
  for (std::size_t i = 0; i < a.index.size(); ++i) {
    double span = 1;
    for (const Term& t : a.index[i].terms) {
      if (c.rows.has(t.loop)) {
        split = true;
        continue;
      }
      span += std::abs(static_cast<double>(t.coefficient)) *
              static_cast<double>(g.extent(static_cast<int>(t.loop.index())) - 1);
    }
    const Tensor& tensor = g.workload().tensor(a.tensor);
    all *= std::min(span, static_cast<double>(tensor.shape[i]));
  }
  return split ? all * rows : all;
}

Demand demand_of(const Graph& g, const Device& d, const Component& c, double bytes) {
  const auto sms = static_cast<double>(d.sms);
  double rows = std::max(1.0, c.row_count);
  if (sums_columns(g, c) && may_split(g, c)) rows *= kBlocksOfSm * sms;
  Demand block{.blocks = std::min(rows, kBlocksOfSm * sms),
               .warps = kThreads / kWarp,
               .meets = true,
               .chain = d.block + d.home()};
  std::map<TensorId, double> brought;
  for (int v : c.vertices) {
    const Vertex& x = g.vertex(v);
    const double points = g.points(x.loops) / block.blocks;
    count_operations(block, x, points, std::ceil(points / kThreads), d);
    if (x.kind == Kind::reduction) block.chain += d.barrier + 5 * d.shuffle;
    for (const Access& a : g.workload().op(x.op).inputs) {
      const OpId maker = g.workload().producer(a.tensor);
      if (maker.valid() &&
          std::ranges::any_of(c.vertices, [&](int u) { return g.vertex(u).op == maker; }))
        continue;
      const Tensor& t = g.workload().tensor(a.tensor);
      const double its = touched(g, c, a, std::max(1.0, c.row_count / block.blocks)) *
                         static_cast<double>(size_of(t.dtype));
      double& most = brought[a.tensor];
      most = std::max(most, std::min(its, static_cast<double>(t.bytes().value)));
    }
  }
  double all = bytes / block.blocks;  // where blocks share nothing
  double own = 0;
  for (const auto& [tensor, its] : brought) own += its;
  block.sectors = std::max(all, own) / kSectorBytes;
  return block;
}

}  // namespace

double guessed_seconds(const Graph& g, const Device& d, std::span<const Component> parts) {
  std::vector<Demand> demands;
  double bytes = 0;
  for (const Component& c : parts) {
    const double its = memory_bytes(g, c);
    bytes += its;
    demands.push_back(demand_of(g, d, c, its));
  }
  return overlap(d, demands, kBlocksOfSm, bytes).seconds;
}

}  // namespace tilewright::stitching
