// The workload as it is written and with slices and gathers computed by each reader: which of them
// is planned is a question of predicted time.
#include <algorithm>
#include <map>
#include <set>

#include "core/workload/rewrite/rewrite.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {
namespace {

/// Accesses beyond the first that operators make to a tensor. A plan's tile is the smallest box
/// around all of one operator's, which of slices far apart is much more than they are.
std::int64_t more_places(const Workload& w) {
  std::int64_t n = 0;
  for (const Operator& op : w.operators()) {
    std::set<TensorId> tensors;
    for (const Access& a : op.inputs) n += tensors.insert(a.tensor).second ? 0 : 1;
  }
  return n;
}

/// What a kernel moves: what is compulsory, but for looked-up elements, which each operator that
/// gathers reads anew at every point. No schedule keeps them between operators.
double moved(const Graph& g, const Pattern& pattern) {
  const Workload& w = g.workload();
  std::map<TensorId, Bytes> once;
  Bytes each;
  for (int v : pattern) {
    const Operator& op = w.op(g.vertex(v).op);
    for (const Access& a : op.inputs) {
      if (!is_gather(a)) continue;
      once[a.tensor] = std::max(once[a.tensor], bytes_read(w, op, a));
      Elements points(1);
      for (int l : gather_loops(op, a))
        points = points * w.loop(op.loops[static_cast<std::size_t>(l)]).extent;
      each += bytes_of(points, w.tensor(a.tensor).dtype);
    }
  }
  Bytes sum = compulsory_of(g, pattern) + each;
  for (const auto& [tensor, bytes] : once) sum = Bytes(sum.value - bytes.value);
  return static_cast<double>(sum.value);
}

constexpr double kLongSum = 4096;      // points, of which a block cannot keep a sector for each
constexpr double kLongColumns = 1024;  // of which it keeps few sectors, which may begin anywhere

/// Whether the operator sums along rows of what it reads.
bool sums_rows(const Workload& w, OpId o) {
  return std::ranges::any_of(w.op(o).inputs, [&](const Access& a) {
    return !a.index.empty() && std::ranges::any_of(w.reduction_loops(o), [&](LoopId l) {
      return std::ranges::find(a.index.back().terms, l, &Term::loop) != a.index.back().terms.end();
    });
  });
}

bool has_long_sums(const Workload& w) {
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    double points = 1;
    for (LoopId l : w.reduction_loops(OpId(o))) points *= static_cast<double>(w.loop(l).extent);
    if (points > kLongSum || (points > kLongColumns && !sums_rows(w, OpId(o)))) return true;
  }
  return false;
}

}  // namespace

std::vector<Composition> compositions(const Workload& w) {
  std::vector<Composition> out;
  const std::int64_t places = more_places(w);
  const auto add = [&](const Workload& from, std::vector<std::string> rewrites) {
    const Result<Workload> changed = tilewright::apply(rewrites.back(), from);
    if (changed && more_places(*changed) <= places)
      out.push_back({std::move(rewrites), std::make_shared<const Workload>(*changed)});
    return changed;
  };
  add(w, {"compose"});
  const Result<Workload> gathers = add(w, {"compose-gathers"});
  if (gathers) add(*gathers, {"compose-gathers", "compose"});
  if (has_long_sums(w)) add(w, {"split-variance"});
  return out;
}

namespace {

constexpr double kAlike = 0.003;

/// Parts of kernels whose threads wait for one another.
std::int64_t waiting(const Priced& p) {
  std::int64_t n = 0;
  for (const StitchedKernel& k : p.price.kernels)
    n += std::ranges::count_if(k.parts, [](const Stitched& s) { return s.demand.meets; });
  return n;
}

}  // namespace

double compared_seconds(const Priced& p) {
  double sum = 0;
  for (const StitchedKernel& k : p.price.kernels) {
    if (k.parts.empty()) continue;
    double bytes = 0;
    for (const Stitched& part : k.parts) bytes += moved(p.graph, part.component.vertices);
    sum += std::max(k.seconds, bytes / p.device.dram_bytes_per_second);
  }
  return sum;
}

bool is_better(const Priced& a, const Priced& b) {
  const double seconds = compared_seconds(a), others = compared_seconds(b);
  // The evaluator does not tell so little apart; threads that do not wait are the safer choice.
  if (std::abs(seconds - others) < kAlike * others)
    return std::pair(waiting(a), seconds) < std::pair(waiting(b), others * (1 - 1e-9));
  return seconds < others;
}

}  // namespace tilewright::stitching
