#include "models/fusionstitching/model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "core/base/format.h"
#include "core/base/progress.h"

namespace tilewright::fusionstitching {
namespace {

namespace fs = fusionstitching;
using nlohmann::ordered_json;

std::vector<std::string> names_of(const Workload& w, const fs::Graph& g,
                                  std::span<const int> vertices) {
  std::vector<std::string> names;
  for (int v : vertices) names.push_back(w.op(g.vertex(v).op).name);
  return names;
}

ordered_json part_json(const Workload& w, const fs::Graph& g, const fs::Stitched& s) {
  ordered_json rows = ordered_json::array();
  for (std::size_t l = 0; l < w.loops().size(); ++l)
    if (s.component.rows.has(l)) rows.push_back(w.loops()[l].name);
  ordered_json json = {{"rows", rows},
                       {"row_count", s.component.row_count},
                       {"rows_per_block", s.rows_per_block},
                       {"rows_in_turn", s.rows_in_turn},
                       {"added_bytes", s.added_bytes},
                       {"blocks", s.blocks},
                       {"registers", s.registers},
                       {"shared_bytes", s.shared_bytes},
                       {"shared_unshared_bytes", s.shared_unshared_bytes},
                       {"recomputed", s.recomputed},
                       {"groups", ordered_json::array()}};
  for (const fs::Group& group : s.groups)
    json["groups"].push_back({{"root", w.op(g.vertex(group.root).op).name},
                              {"sub_root", group.sub_root},
                              {"scheme", fs::name_of(group.scheme)},
                              {"operators", names_of(w, g, group.vertices)}});
  return json;
}

ordered_json kernels_json(const Workload& w, const fs::Graph& g, const fs::FusionPlan& plan,
                          const fs::PlanPrice& price) {
  ordered_json kernels = ordered_json::array();
  for (std::size_t k = 0; k < price.patterns.size(); ++k) {
    const fs::StitchedKernel& s = price.kernels[k];
    ordered_json json = {{"operators", names_of(w, g, price.patterns[k])}};
    json["score_seconds"] = 0.0;
    for (const fs::Scored& p : plan.patterns)
      if (p.pattern == price.patterns[k]) json["score_seconds"] = p.score;
    const bool product = s.parts.empty();
    json["class"] = product ? "product" : s.parts.size() > 1 ? "packed" : "stitched";
    json["seconds"] = product ? ordered_json(nullptr) : ordered_json(s.seconds);
    if (!product) {
      json["cycles"] = s.cycles;
      json["threads"] = s.threads;
      json["warps"] = s.warps;
      json["resident_warps"] = s.occupancy;
      json["waves"] = s.waves;
      json["schedules"] = s.schedules;
      json["parts"] = ordered_json::array();
      for (const fs::Stitched& part : s.parts) json["parts"].push_back(part_json(w, g, part));
    }
    kernels.push_back(std::move(json));
  }
  return kernels;
}

/// A kernel an operator, and XLA's rule, beside the explorer's.
fs::Exploration plans_by(Stitcher stitcher, fs::Evaluator& e) {
  if (stitcher == Stitcher::explorer) return fs::explore(e);
  fs::Exploration out;
  out.plans.push_back(stitcher == Stitcher::xla_rule ? fs::xla_rule(e) : fs::FusionPlan{});
  out.evaluated = e.evaluated();
  return out;
}

/// The best plan of the workload as it is, its schedules each the best.
Result<StitchedPlan> stitched_as_is(const std::shared_ptr<const Workload>& workload,
                                    const fs::Device& device, const fs::Options& options,
                                    Stitcher stitcher) {
  Result<fs::Graph> graph = fs::Graph::create(workload, fs::ridge_of(device, options));
  if (!graph) return Reason{graph.reason()};
  StitchedPlan out{.graph = std::move(graph).value(), .device = device, .options = options};
  fs::Evaluator evaluator(out.graph, out.device, options);
  Steps halves(2);
  fs::Exploration found = plans_by(stitcher, evaluator);
  halves.done();
  out.candidates = found.candidates;
  out.evaluated = found.evaluated;
  std::string why;
  fs::Known known;
  Steps priced(static_cast<double>(found.plans.size()) + 1);
  for (fs::FusionPlan& plan : found.plans) {
    priced.done();
    Result<fs::PlanPrice> price = fs::price(out.graph, out.device, plan, options, &known);
    if (!price) {
      why = price.reason();
      continue;
    }
    out.plans.push_back(std::move(plan));
    out.prices.push_back(std::move(price).value());
    // Of equal latencies the better score, which comes first.
    const std::size_t last = out.plans.size() - 1;
    const auto seconds = [&](const fs::PlanPrice& p) {
      return fs::compared_seconds({out.graph, out.device, p});
    };
    if (options.pick == fs::Pick::latency && seconds(out.prices[last]) < seconds(out.price()))
      out.chosen = last;
  }
  if (out.plans.empty()) return Reason{why};
  if (options.pick != fs::Pick::latency || stitcher != Stitcher::explorer) return out;
  if (auto plan = fs::joined(evaluator, out.device, out.price(), known)) {
    Result<fs::PlanPrice> price = fs::price(out.graph, out.device, *plan, options, &known);
    if (!price) return out;
    out.plans.push_back(*std::move(plan));
    out.prices.push_back(std::move(price).value());
    out.chosen = out.plans.size() - 1;
  }
  return out;
}

fs::Priced priced(const StitchedPlan& p) { return {p.graph, p.device, p.price()}; }

}  // namespace

Result<StitchedPlan> stitched(const std::shared_ptr<const Workload>& workload, const Machine& machine,
                              const fs::Options& options, Stitcher stitcher) {
  const Result<fs::Device> device = fs::device_of(machine);
  if (!device) return Reason{device.reason()};
  const auto start = std::chrono::steady_clock::now();
  Result<StitchedPlan> best = stitched_as_is(workload, *device, options, stitcher);
  std::vector<fs::Composition> others;
  if (options.compose && stitcher == Stitcher::explorer)
    others = fs::compositions(*workload);
  for (fs::Composition& c : others) {
    Result<StitchedPlan> other = stitched_as_is(c.workload, *device, options, stitcher);
    if (!other || (best && !fs::is_better(priced(*other), priced(*best)))) continue;
    other.value().rewrites = std::move(c.rewrites);
    best = std::move(other);
  }
  if (!best) return best;
  StitchedPlan& out = best.value();
  Result<fs::PlanPrice> asked = fs::with_schedule(out.graph, out.device, out.price(), options);
  if (!asked) return Reason{asked.reason()};
  out.prices[out.chosen] = std::move(asked).value();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return best;
}

Traffic stitched_traffic(const Machine& machine, const fs::Graph& g,
                         std::span<const fs::Pattern> kernels) {
  Traffic traffic = fs::traffic_of(machine, g, kernels);
  traffic.by = "fusionstitching";
  return traffic;
}

namespace {

struct Variant {
  Stitcher stitcher;
  const char* name;
};

std::int64_t bytes_of(const Traffic& traffic) {
  std::int64_t bytes = 0;
  for (const TrafficEntry& e : traffic.entries) bytes += (e.read + e.written).value;
  return bytes;
}

/// A price by the latency-evaluator, and what `predict` shows of it.
Price shown(const Question& q, const fs::Graph& graph, const fs::PlanPrice& price,
            const Settings& settings, Variant v) {
  Price out;
  out.traffic = stitched_traffic(*q.machine, graph, fs::parts_of(price));
  out.traffic.by = v.name;
  // A sum that leaves products out is no time of the plan.
  const bool products = std::ranges::any_of(
      price.kernels, [](const fs::StitchedKernel& k) { return k.parts.empty(); });
  if (!products) out.traffic.seconds = price.seconds;
  ordered_json& json = out.detail;
  json["volume_bytes"] = bytes_of(out.traffic);
  json["kernels"] = price.patterns.size();
  json["options"] = settings.to_json();
  json["notes"] = "products' time is left out; every tensor crosses once for each part of a kernel that reads it";
  return out;
}

Result<Price> price_plan(const Question& q, const Plan& plan, const Settings& settings, Variant v) {
  const fs::Options options = fs::options_of(settings);
  const Result<fs::Device> device = fs::device_of(*q.machine);
  if (!device) return Reason{device.reason()};
  Result<fs::Graph> graph = fs::Graph::create(q.workload, fs::ridge_of(*device, options));
  if (!graph) return Reason{graph.reason()};
  fs::PlanPrice price;
  for (fs::Pattern& p : fs::patterns_of(*graph, plan)) {
    if (p.empty()) return Reason{"a kernel computes nothing"};
    price.kernels.emplace_back();
    if (p.size() > 1 || graph->vertex(p.front()).kind != fs::Kind::product) {
      const auto k = fs::stitch(*graph, *device, p, options);
      if (!k) return Reason{k.reason()};
      price.seconds += k->seconds;
      price.kernels.back() = *k;
    }
    price.patterns.push_back(std::move(p));
  }
  return shown(q, *graph, price, settings, v);
}

Result<Proposal> propose_with(const Question& q, const Settings& settings, Variant v) {
  const fs::Options options = fs::options_of(settings);
  Machine machine = *q.machine;
  // Asked for less: what a block of a kernel has of shared memory.
  if (const auto shared = machine.find("shared"); q.room && shared)
    for (Level& l : machine.levels)
      if (l.name == "shared") l.capacity = std::min(l.capacity, *q.room);
  Result<StitchedPlan> planned = stitched(q.workload, machine, options, v.stitcher);
  if (!planned) return Reason{planned.reason()};
  const auto found = std::make_shared<const StitchedPlan>(std::move(planned).value());
  const Workload& w = found->graph.workload();
  fs::WrittenPlan written = fs::write_plan(found->graph, found->device, found->price(), q.machine);
  Proposal out;
  out.plan = written.plan;
  out.level = q.machine->default_level();
  out.rewrites = found->rewrites;
  out.price = shown(q, found->graph, found->price(), settings, v);
  out.search_seconds = found->seconds;
  ordered_json& json = out.detail;
  json["volume_bytes"] =
      bytes_of(stitched_traffic(*q.machine, found->graph, fs::parts_of(found->price())));
  json["seconds"] = found->price().seconds;
  json["score_seconds"] = found->plan().score;
  json["kernels"] = found->price().patterns.size();
  json["stitched"] = kernels_json(w, found->graph, found->plan(), found->price());
  json["search_seconds"] = found->seconds;
  json["candidates"] = {{"patterns", found->candidates},
                        {"evaluated", found->evaluated},
                        {"plans", found->plans.size()}};
  json["options"] = settings.to_json();
  for (std::size_t k = 0; k < written.unbound.size(); ++k)
    json["stitched"][k]["without_units"] =
        written.unbound[k].empty() ? ordered_json(nullptr) : ordered_json(written.unbound[k]);
  // A schedule that was asked for is not replaced: another one in its place would say nothing of it.
  if (!settings.given("schedule-rank"))
    out.choices = [found](std::size_t k) {
      std::vector<KernelChoice> choices;
      for (fs::WrittenKernel& one :
           fs::kernel_choices(found->graph, found->device, found->price(), k, found->options))
        choices.push_back({.kernel = std::move(one.kernel),
                           .seconds = one.seconds > 0 ? std::optional(one.seconds) : std::nullopt,
                           .note = std::move(one.without_units)});
      return choices;
    };
  return out;
}

// ---- explain ------------------------------------------------------------------------------------

/// Where a tensor is between its writer and its readers.
std::string home_of(const fs::Graph& g, const fs::PlanPrice& price, TensorId t) {
  const Workload& w = g.workload();
  const OpId writer = w.producer(t);
  if (!writer.valid() || w.is_output(t)) return "global memory";
  for (std::size_t k = 0; k < price.patterns.size(); ++k) {
    const auto inside = [&](OpId op) {
      return std::ranges::any_of(price.patterns[k], [&](int v) { return g.vertex(v).op == op; });
    };
    if (!inside(writer)) continue;
    if (!std::ranges::all_of(w.consumers(t), inside)) return "global memory";
    for (const fs::Stitched& part : price.kernels[k].parts)
      for (const fs::Group& group : part.groups)
        if (group.sub_root && g.vertex(group.root).op == writer)
          return group.scheme == fs::Scheme::block  ? "shared memory"
                 : group.scheme == fs::Scheme::warp ? "the first lane's register"
                                                    : "registers";
  }
  return "registers";
}

/// The graph as Graphviz draws it: a box a kernel, a box within a group, edges by where values are.
std::string drawing(const fs::Graph& g, const fs::PlanPrice& price) {
  const Workload& w = g.workload();
  std::string dot =
      "digraph plan {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=Helvetica];\n";
  const auto name = [&](int v) { return w.op(g.vertex(v).op).name; };
  const auto fill = [&](int v) {
    switch (g.vertex(v).kind) {
      case fs::Kind::light:
        return "white";
      case fs::Kind::expensive:
        return "lightyellow";
      case fs::Kind::reduction:
        return "lightblue";
      case fs::Kind::product:
        return "lightgrey";
    }
    return "white";
  };
  for (std::size_t k = 0; k < price.patterns.size(); ++k) {
    dot += formatted("  subgraph cluster_{} {{\n    label=\"kernel {}\";\n", k, k + 1);
    std::map<int, std::string> scheme;
    for (const fs::Stitched& part : price.kernels[k].parts)
      for (const fs::Group& group : part.groups)
        scheme[group.root] =
            std::string(fs::name_of(group.scheme)) + (group.sub_root ? " composition" : "");
    for (int v : price.patterns[k]) {
      const auto at = scheme.find(v);
      dot +=
          formatted("    \"{}\" [fillcolor={}, label=\"{}\\n{}{}\"];\n", name(v), fill(v), name(v),
                    fs::name_of(g.vertex(v).kind), at == scheme.end() ? "" : "\\n" + at->second);
    }
    dot += "  }\n";
  }
  for (const fs::Edge& e : g.edges()) {
    const std::string home = home_of(g, price, e.tensor);
    const char* style = home == "global memory"   ? "color=red, penwidth=2"
                        : home == "shared memory" ? "color=blue"
                        : home == "registers"     ? "color=black"
                                                  : "color=darkgreen";
    dot += formatted("  \"{}\" -> \"{}\" [label=\"{}\\n{}\", {}];\n", name(e.from), name(e.to),
                     w.tensor(e.tensor).name, home, style);
  }
  return dot + "}\n";
}

Explained explain(const Question& q, const ExplainAsked& asked, const Settings& settings,
                  Variant v) {
  Explained out;
  ordered_json& json = out.detail;
  const fs::Options options = fs::options_of(settings);
  const Result<StitchedPlan> found = stitched(q.workload, *q.machine, options, v.stitcher);
  if (!found) {
    out.refused = found.reason();
    return out;
  }
  out.rewrites = found->rewrites;
  const Workload& w = found->graph.workload();
  json["source"] = "predicted";
  json["seconds"] = found->price().seconds;
  json["score_seconds"] = found->plan().score;
  json["stitched"] = kernels_json(w, found->graph, found->plan(), found->price());
  json["lives"] = ordered_json::object();
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (!w.is_input(TensorId(t)))
      json["lives"][w.tensors()[t].name] = home_of(found->graph, found->price(), TensorId(t));
  json["plans"] = ordered_json::array();
  for (std::size_t i = 0; i < found->plans.size(); ++i)
    json["plans"].push_back({{"kernels", fs::kernels_of(found->graph, found->plans[i])},
                             {"score_seconds", found->plans[i].score},
                             {"seconds", found->prices[i].seconds},
                             {"chosen", i == found->chosen}});
  json["xla_kernels"] = ordered_json::array();
  const Result<fs::Graph> named =
      fs::Graph::create(q.workload, fs::ridge_of(found->device, options));
  for (const fs::Pattern& p : fs::xla_kernels(*named, options.most_operators))
    json["xla_kernels"].push_back(names_of(*q.workload, *named, p));
  json["options"] = settings.to_json();
  if (asked.samples) {
    json["seed"] = q.seed;
    json["drawn"] = drawn_schedules(asked, q.seed, *found);
  }
  json["dot"] = drawing(found->graph, found->price());
  return out;
}

Model record(Variant v, std::string summary, std::string sections,
             std::vector<std::string> assumptions) {
  return {.name = v.name,
          .summary = std::move(summary),
          .source = "Zheng et al., FusionStitching, arXiv:2009.10924, section" + std::move(sections),
          .assumptions = std::move(assumptions),
          .options = fs::option_specs(),
          .times = true,
          .propose = [v](const Question& q,
                         const Settings& s) { return propose_with(q, s, v); },
          .price = [v](const Question& q, const Plan& p,
                       const Settings& s) { return price_plan(q, p, s, v); },
          .explain = [v](const Question& q, const ExplainAsked& a,
                         const Settings& s) { return explain(q, a, s, v); }};
}

}  // namespace

Model model() {
  return record(
      {Stitcher::explorer, "fusionstitching"},
      "which memory-intensive operators of a graph to fuse, and how to stitch them", "s 4 and 5",
      {"a GPU whose machine file gives cycles of instruction classes",
       "bandwidths stand in for the regression of reduced memory latency, which is not published",
       "the latency-evaluator leaves products out, as published; the time of overlapping resources "
       "has constants that were chosen on an H200",
       "division by a constant counts as a light operator; in the explorer's score, inputs that "
       "operators share save nothing"});
}

Model xla_model() {
  return record({Stitcher::xla_rule, "xla-rule"},
                "XLA's rule for the same graphs: reductions and expensive operators only end a "
                "kernel",
                "s 1 and 2", {"an operator is in one kernel: XLA would compute it again in several"});
}

Model unfused_model() {
  return record({Stitcher::unfused, "unfused"},
                "a kernel for each operator, priced by FusionStitching's evaluators", " 4.3",
                {"a GPU whose machine file gives cycles of instruction classes"});
}

}  // namespace tilewright::fusionstitching
