// TorchInductor's scheduler as a model: its record, and what its answers say.
#include "models/model.h"

#include <chrono>

#include "models/inductor/inductor.h"

namespace tilewright::inductor {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> names_of(const Graph& g, std::span<const int> vertices) {
  std::vector<std::string> names;
  for (int v : vertices) names.push_back(g.workload().op(g.vertex(v).op).name);
  return names;
}

ordered_json kernels_json(const Graph& g, std::span<const Nest> kernels) {
  ordered_json rows = ordered_json::array();
  for (const Nest& n : kernels)
    rows.push_back({{"operators", names_of(g, n.ops)},
                    {"written", names_of(g, n.gives)},
                    {"emitter", n.library     ? "library"
                                : n.reduces() ? "reduction"
                                              : "loop"},
                    {"points", n.points},
                    {"terms", n.reduced},
                    {"parts", n.parts}});
  return rows;
}

ordered_json steps_json(const Fused& fused) {
  ordered_json steps = ordered_json::array();
  for (const Step& s : fused.steps)
    steps.push_back({{"producer", s.first},
                     {"consumers", ordered_json::array({s.second})},
                     {"alike", s.score.alike},
                     {"shared_bytes", s.score.bytes + s.score.overlap},
                     {"distance", -s.score.nearness},
                     {"decision", s.refused.empty() ? "fused" : "refused: " + s.refused}});
  return steps;
}

Price priced(const Question& q, const Graph& g, std::span<const stitching::Pattern> patterns,
             const Settings& settings) {
  Price out;
  out.traffic = stitching::traffic_of(*q.machine, g, patterns);
  out.traffic.by = "inductor";
  std::int64_t bytes = 0;
  for (const TrafficEntry& e : out.traffic.entries) bytes += (e.read + e.written).value;
  out.detail["volume_bytes"] = bytes;
  out.detail["kernels"] = patterns.size();
  out.detail["options"] = settings.to_json();
  out.detail["notes"] = "a score of shared bytes, no time";
  return out;
}

Result<Graph> graph_of(const Question& q, const Device& d, const Options& o) {
  return Graph::create(q.workload, stitching::ridge_of(d, o.kernels));
}

Result<Price> price(const Question& q, const Plan& plan, const Settings& settings) {
  const Result<Device> device = stitching::device_of(*q.machine);
  if (!device) return Reason{device.reason()};
  const Result<Graph> graph = graph_of(q, *device, options_of(settings));
  if (!graph) return Reason{graph.reason()};
  const std::vector<stitching::Pattern> patterns = stitching::patterns_of(*graph, plan);
  for (const stitching::Pattern& p : patterns)
    if (p.empty()) return Reason{"a kernel computes nothing"};
  return priced(q, *graph, patterns, settings);
}

Result<Proposal> propose(const Question& q, const Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  const Options options = options_of(settings);
  const Result<Device> device = stitching::device_of(*q.machine);
  if (!device) return Reason{device.reason()};
  const Result<Graph> graph = graph_of(q, *device, options);
  if (!graph) return Reason{graph.reason()};
  std::vector<stitching::SharedKernel> kernels;
  for (const Nest& n : fuse(*graph, *device, options).kernels) {
    kernels.emplace_back();
    for (int v : n.ops) kernels.back().ops.push_back(graph->vertex(v).op);
    for (int v : n.gives) kernels.back().gives.push_back(graph->vertex(v).op);
  }
  Result<stitching::KernelsPlanned> planned =
      stitching::planned(q, *device, kernels, options.kernels);
  if (!planned) return Reason{planned.reason()};
  Proposal out = std::move(planned->proposal);
  out.price = priced(q, *planned->graph, planned->patterns, settings);
  out.search_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.detail = out.price.detail;
  out.detail["search_seconds"] = *out.search_seconds;
  out.detail["taken_apart"] = planned->taken_apart;
  return out;
}

Explained explain(const Question& q, const ExplainAsked&, const Settings& settings) {
  Explained out;
  const Options options = options_of(settings);
  const Result<Device> device = stitching::device_of(*q.machine);
  if (!device) {
    out.refused = device.reason();
    return out;
  }
  const Result<Graph> graph = graph_of(q, *device, options);
  if (!graph) {
    out.refused = graph.reason();
    return out;
  }
  const Fused fused = fuse(*graph, *device, options);
  out.detail["source"] = "predicted";
  out.detail["fusion_steps"] = steps_json(fused);
  out.detail["fused_kernels"] = kernels_json(*graph, fused.kernels);
  out.detail["options"] = settings.to_json();
  return out;
}

}  // namespace

Model model() {
  return {.name = "inductor",
          .summary =
              "TorchInductor's scheduler: pairs of kernels that share the most bytes are fused "
              "first",
          .source =
              "pytorch/pytorch, torch/_inductor: scheduler.py (001077c), choices.py (0012d88), "
              "codegen/simd.py, ir.py",
          .assumptions =
              {"a GPU whose machine file gives cycles of instruction classes",
               "products and convolutions are calls of libraries, and take no part: templates with "
               "epilogues (max_autotune) are left out",
               "two kernels are not made one where no kernel of this repository holds both",
               "a kernel runs by the schedule that the shared evaluator of stitched kernels takes "
               "for the fastest",
               "reductions along different dimensions of one tensor in one kernel "
               "(mix_order_reduction) and combo kernels are left out",
               "a sum that TorchInductor takes by two kernels is one kernel of the plan: `explain` "
               "says in how many parts"},
          .options = option_specs(),
          .propose = propose,
          .price = price,
          .explain = explain};
}

}  // namespace tilewright::inductor
