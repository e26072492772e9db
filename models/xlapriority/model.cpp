// XLA's priority fusion as a model: its record, and what its answers say.
#include "models/model.h"

#include <chrono>

#include "models/xlapriority/xlapriority.h"

namespace tilewright::xlapriority {
namespace {

using nlohmann::ordered_json;

/// A workload's graph on a machine, and what XLA would make of it.
struct Found {
  Options options;
  Device device = {};
  std::shared_ptr<const Graph> graph = {};
  std::shared_ptr<const Costs> costs = {};
};

Result<Found> found_for(const Question& q, const std::shared_ptr<const Workload>& w,
                        const Settings& settings) {
  Found out{.options = options_of(settings)};
  Result<Device> device = stitching::device_of(*q.machine);
  if (!device) return Reason{device.reason()};
  out.device = std::move(device).value();
  Result<Graph> graph = Graph::create(w, stitching::ridge_of(out.device, out.options.kernels));
  if (!graph) return Reason{graph.reason()};
  out.graph = std::make_shared<const Graph>(std::move(graph).value());
  out.costs = std::make_shared<const Costs>(*out.graph, gpu_of(out.device), out.options);
  return out;
}

/// Vertices of the kernel whose results others read, or nobody.
std::vector<int> gives_of(const Graph& g, const stitching::Pattern& p) {
  std::vector<int> gives;
  for (int v : p) {
    const Vertex& x = g.vertex(v);
    if (x.leaves || x.consumers.empty() ||
        std::ranges::any_of(x.consumers, [&](int c) { return !std::ranges::binary_search(p, c); }))
      gives.push_back(v);
  }
  return gives;
}

ordered_json kernel_json(const Graph& g, const Fusion& f) {
  ordered_json names = ordered_json::array();
  for (int v : f.ops) names.push_back(g.workload().op(g.vertex(v).op).name);
  const bool library = f.ops.size() == 1 && g.vertex(f.ops.front()).kind == Kind::product;
  ordered_json json = {{"operators", names}};
  json["emitter"] = library ? "library" : std::string(name_of(f.emitter));
  json["blocks"] = library ? ordered_json(nullptr) : ordered_json(f.launch.blocks);
  json["flops"] = f.flops;
  json["compute_seconds"] = f.compute_seconds;
  json["read_seconds"] = f.read_seconds;
  json["write_seconds"] = f.write_seconds;
  json["seconds"] = library ? ordered_json(nullptr) : ordered_json(f.seconds);
  return json;
}

ordered_json steps_json(const Fused& fused) {
  ordered_json steps = ordered_json::array();
  for (const Step& s : fused.steps) {
    const bool refused = s.made == Step::Made::refused;
    steps.push_back({{"producer", s.producer},
                     {"consumers", s.consumers},
                     {"unfused_seconds", refused ? ordered_json(nullptr) : ordered_json(s.unfused)},
                     {"fused_seconds", refused ? ordered_json(nullptr) : ordered_json(s.fused)},
                     {"decision", std::string(name_of(s.made)) + (refused ? ": " + s.why : "")}});
  }
  return steps;
}

/// What the kernels of a plan take and move, by XLA's model.
Price priced(const Question& q, const Found& found, std::span<const stitching::Pattern> patterns,
             const Settings& settings) {
  Price out;
  out.traffic = stitching::traffic_of(*q.machine, *found.graph, patterns);
  out.traffic.by = "xla-priority";
  std::vector<Fusion> kernels;
  bool products = false;
  ordered_json rows = ordered_json::array();
  for (const stitching::Pattern& p : patterns) {
    kernels.push_back(found.costs->fusion(p, gives_of(*found.graph, p)));
    products = products || found.graph->vertex(p.front()).kind == Kind::product;
    rows.push_back(kernel_json(*found.graph, kernels.back()));
  }
  // A sum that leaves calls of libraries out is no time of the plan.
  const double seconds = seconds_of(*found.costs, kernels, found.options);
  if (!products) out.traffic.seconds = seconds;
  std::int64_t bytes = 0;
  for (const TrafficEntry& e : out.traffic.entries) bytes += (e.read + e.written).value;
  out.detail["volume_bytes"] = bytes;
  out.detail["kernels"] = patterns.size();
  out.detail["fused_kernels"] = std::move(rows);
  out.detail["options"] = settings.to_json();
  out.detail["notes"] = "calls of libraries are left out of the time";
  return out;
}

Result<Price> price(const Question& q, const Plan& plan, const Settings& settings) {
  const Result<Found> found = found_for(q, q.workload, settings);
  if (!found) return Reason{found.reason()};
  const std::vector<stitching::Pattern> patterns = stitching::patterns_of(*found->graph, plan);
  for (const stitching::Pattern& p : patterns)
    if (p.empty()) return Reason{"a kernel computes nothing"};
  return priced(q, *found, patterns, settings);
}

std::vector<stitching::SharedKernel> shared_kernels(const Found& found, const Fused& fused) {
  std::vector<stitching::SharedKernel> out;
  for (const Fusion& f : fused.kernels) {
    out.emplace_back();
    for (int v : f.ops) out.back().ops.push_back(found.graph->vertex(v).op);
    for (int v : f.gives) out.back().gives.push_back(found.graph->vertex(v).op);
  }
  return out;
}

Result<Proposal> propose(const Question& q, const Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  const Result<Found> found = found_for(q, q.workload, settings);
  if (!found) return Reason{found.reason()};
  const Fused fused = fuse(*found->costs, found->options);
  Result<stitching::KernelsPlanned> planned =
      stitching::planned(q, found->device, shared_kernels(*found, fused), found->options.kernels);
  if (!planned) return Reason{planned.reason()};
  const Result<Found> rewritten = found_for(q, planned->graph->shared_workload(), settings);
  if (!rewritten) return Reason{rewritten.reason()};
  Proposal out = std::move(planned->proposal);
  out.price = priced(q, *rewritten, planned->patterns, settings);
  out.search_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.detail = out.price.detail;
  if (out.price.traffic.seconds) out.detail["seconds"] = *out.price.traffic.seconds;
  out.detail["search_seconds"] = *out.search_seconds;
  out.detail["taken_apart"] = planned->taken_apart;
  return out;
}

Explained explain(const Question& q, const ExplainAsked&, const Settings& settings) {
  Explained out;
  const Result<Found> found = found_for(q, q.workload, settings);
  if (!found) {
    out.refused = found.reason();
    return out;
  }
  const Fused fused = fuse(*found->costs, found->options);
  out.detail["source"] = "predicted";
  out.detail["seconds"] = seconds_of(*found->costs, fused.kernels, found->options);
  out.detail["fusion_steps"] = steps_json(fused);
  ordered_json rows = ordered_json::array();
  for (const Fusion& f : fused.kernels) rows.push_back(kernel_json(*found->graph, f));
  out.detail["fused_kernels"] = std::move(rows);
  out.detail["options"] = settings.to_json();
  return out;
}

}  // namespace

Model model() {
  return {.name = "xla-priority",
          .summary =
              "XLA's priority fusion: producers go into all of their users where its model of "
              "a kernel's time says so",
          .source =
              "openxla/xla, xla/service/gpu: transforms/priority_fusion.cc (1aea158), "
              "model/gpu_performance_model.cc (1b98628), multi_output_fusion.cc (01c2ee7)",
          .assumptions =
              {"a GPU whose machine file gives cycles of instruction classes",
               "products and convolutions are calls of libraries, and take no part",
               "two kernels are not made one where no kernel of this repository holds both",
               "a kernel runs by the schedule that the shared evaluator of stitched kernels takes "
               "for the fastest; its time is XLA's "
               "model's",
               "XLA's Triton fusions and horizontal fusions are left out; shared memory stands in "
               "for the capacity of L1"},
          .options = option_specs(),
          .times = true,
          .propose = propose,
          .price = price,
          .explain = explain};
}

}  // namespace tilewright::xlapriority
