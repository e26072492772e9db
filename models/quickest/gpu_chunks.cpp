// Attention in chunks of its keys.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/workload/access.h"
#include "models/quickest/gpu.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {
namespace {

// Of queries that share keys, where no kernels by warpgroups are: other kernels of chunks are
// priced below their times.
constexpr std::int64_t kFewRows = 256;
constexpr std::int64_t kChunkStep = 64;  // keys, of ragged chunks
constexpr std::int64_t kLeastChunk = 32;
constexpr double kMostTurns = 2;  // of blocks on all multiprocessors, to be split further

/// A running maximum of a product's results.
struct RunningRows {
  std::int64_t extent = 0;  ///< of the loop that it runs over
  std::int64_t rows = 1;    ///< of the product for which it has one operand
  std::int64_t others = 1;  ///< products, beside another
};

/// The first one.
std::optional<RunningRows> running_rows(const Workload& w) {
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    const Operator& op = w.operators()[i];
    if (!op.running || op.outputs.front().combine != Combine::max) continue;
    const auto over = w.reduction_loops(OpId(i));
    if (over.size() != 1) continue;
    RunningRows found{.extent = w.loop(over.front()).extent};
    const auto product = std::ranges::find_if(w.topological_order(), [&](OpId id) {
      return w.is_contraction(id) && w.local_index(id, over.front()) >= 0 &&
             !w.is_reduction(id, over.front());
    });
    if (product == w.topological_order().end()) return std::nullopt;
    for (const Affine& at : op.outputs.front().target.index)
      for (const Term& t : at.terms) {
        // Rows have one operand together: the one along the loop that the maximum runs over.
        const bool shared = std::ranges::any_of(w.op(*product).inputs, [&](const Access& a) {
          return indexes(a, over.front()) && !indexes(a, t.loop);
        });
        (shared ? found.rows : found.others) *= w.loop(t.loop).extent;
      }
    return found;
  }
  return std::nullopt;
}

/// About so many iterations: chunks that divide the loop, where there are such within a factor of
/// two. What reads behind the end of a loop is copied and multiplied by slower forms, but by
/// warpgroups.
std::int64_t chunk_near(std::int64_t part, std::int64_t extent) {
  std::int64_t best = 0;
  const auto off = [part](std::int64_t n) {
    return std::max(static_cast<double>(n) / static_cast<double>(part),
                    static_cast<double>(part) / static_cast<double>(n));
  };
  for (std::int64_t n = kLeastChunk; n < 2 * part && n < extent; ++n)
    if (extent % n == 0 && off(n) < 2 && (best == 0 || off(n) < off(best))) best = n;
  return best == 0 ? round_up(part, kChunkStep) : best;
}

}  // namespace

void try_chunks(const std::shared_ptr<const Workload>& w, double units, bool warpgroups,
                const std::function<bool(const stitching::Composition&)>& tried) {
  for (std::vector<std::string> rewrites :
       {std::vector<std::string>{}, {kOnline}, {kLate, kOnline}}) {
    const auto from = rewritten(w, rewrites);
    if (from == nullptr) continue;
    std::optional<RunningRows> found = running_rows(*from);
    if (!found) continue;
    const double tiles =
        static_cast<double>(found->others * ceil_div(found->rows, std::int64_t{64}));
    if ((!warpgroups && found->rows > kFewRows) || tiles > kMostTurns * units) return;
    rewrites.emplace_back();
    std::set<std::int64_t> known;
    for (const double blocks : {units / 2, units, 2 * units, 4 * units}) {
      const auto chunks = static_cast<std::int64_t>(blocks / tiles);
      if (chunks < 2) continue;
      const std::int64_t even = ceil_div(found->extent, chunks);
      for (const std::int64_t chunk :
           {chunk_near(even, found->extent), round_up(even, kChunkStep)}) {
        if (chunk >= found->extent || !known.insert(chunk).second) continue;
        rewrites.back() = kChunks + std::to_string(chunk);
        if (auto split = rewritten(w, rewrites)) tried({rewrites, std::move(split)});
      }
    }
    return;
  }
}

}  // namespace tilewright::quickest
