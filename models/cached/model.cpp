// cached as a model: what any plan moves between caches that hardware manages.
#include "models/model.h"

#include "models/cached/cached.h"

namespace tilewright::cached {
namespace {

Result<Price> price(const Question& q, const Plan& plan, const Settings&) {
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  CachedCost cost;
  Result<Traffic> traffic = cached_traffic(*schedule, q.layout, &cost);
  if (!traffic) return Reason{"cached says nothing of this: " + traffic.reason()};
  Price out;
  out.traffic = std::move(*traffic);
  if (q.of_model) return out;
  out.traffic.memory = memory_use(*schedule);
  out.detail["layout"] = q.layout == Layout::tiled ? "tiled" : "row-major";
  out.detail["followed"] = cost.walked;
  if (cost.walked) return out;
  out.detail["kinds_of_touches"] = cost.strata;
  out.detail["touches_looked_into"] = cost.samples;
  out.detail["misses_may_be_off"] = cost.doubt;
  return out;
}

}  // namespace

Model model() {
  return {
      .name = "cached",
      .summary =
          "bytes of any plan at every level of LRU caches, walked only where it touches few lines",
      .source =
          "ours: LRU stack distances (Mattson et al., IBM Systems Journal 1970) over the loop "
          "tree, in each line's own set",
      .assumptions = {"caches are set-associative, LRU, write-back, write-allocate and "
                      "non-inclusive; blocks run one after the other",
                      "a level outside the first has a line as long as touches have used it, not "
                      "requests from within"},
      .price = price};
}

}  // namespace tilewright::cached
