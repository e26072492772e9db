// Kernels of PolyBench that are chains of GEMMs, as plans: the same loops, walked by `simulate`.
#include "core/base/format.h"
#include "experiments/report/counters.h"
#include "harness/parallel.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

Request plan_request(const Field& f, const polybench::Sizes& n, const std::string& machine) {
  std::string loops, operators;
  std::size_t at = 0;
  for (const Field& loop : f.at("loops").items())
    loops += formatted("{}{}: {}", loops.empty() ? "" : ", ", loop.text(), n.at(at++));
  for (const Field& op : f.at("operators").items())
    operators += formatted("  - \"{}\"\n", op.text());
  Request request;
  request.subject = f.at("kernel").text();
  request.subject_text = formatted("name: {}\ndtype: f64\nloops: {{{}}}\noperators:\n{}",
                                   request.subject, loops, operators);
  request.machine = machine;
  request.tree = f.at("tree").text();
  for (const Field& pin : f.at("pins").items()) request.pins.push_back(pin.text());
  request.layout = "row-major";
  return request;
}

/// Misses at a boundary, over all tensors.
std::int64_t misses_at(const ordered_json& simulated, std::string_view boundary) {
  std::int64_t sum = 0;
  for (const ordered_json& t : simulated["traffic"])
    if (t["boundary"].get_ref<const std::string&>() == boundary)
      sum += t["misses"].get<std::int64_t>();
  return sum;
}

}  // namespace

ordered_json plans_of(const Field& top, polybench::Size size, const Request& request) {
  ordered_json rows = ordered_json::array();
  const Field plans = top.at("plans");
  bool wanted = false;
  for (const Field& s : plans.at("sizes").items()) wanted = wanted || s.text() == name_of(size);
  if (!wanted) return rows;
  const std::string machine = top.at("machine").text();
  const std::vector<Field> kernels = plans.at("kernels").items();
  std::vector<ordered_json> found(kernels.size());
  const auto walk = [&](std::size_t i) {
    const Field& f = kernels[i];
    const polybench::Kernel* kernel = polybench::find_kernel(f.at("kernel").text());
    if (kernel == nullptr) f.at("kernel").fail("is not a kernel", "a kernel of PolyBench");
    const Answer answer = simulate(plan_request(f, kernel->of(size), machine));
    TW_CHECK(answer.ok(), "a plan of PolyBench that is not legal");
    found[i] = {{"kernel", kernel->name},
                {"tree", f.at("tree").text()},
                {"beside", plans.at("beside").text()},
                {"L1", misses_at(answer.json, "L2/L1")},
                {"L2", misses_at(answer.json, "L3/L2")}};
  };
  parallel_for(kernels.size(), threads_of(request), walk, request.progress, "walking plans");
  for (ordered_json& row : found) rows.push_back(std::move(row));
  return rows;
}

}  // namespace tilewright::harness
