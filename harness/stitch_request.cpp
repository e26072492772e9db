#include "harness/stitch_request.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "core/base/format.h"
#include "harness/schedules.h"

namespace tilewright::harness {
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
    if ((s.component.rows >> l & 1) != 0) rows.push_back(w.loops()[l].name);
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

ordered_json fused_kernels_json(const Workload& w, const fs::Graph& g, const fs::FusionPlan& plan,
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

Result<Optimum> optimise_with(const Request& request, const Setting& asked, Stitcher stitcher) {
  const fs::Options options = stitch_options(request);
  const Result<StitchedPlan> found = stitched(asked, options, stitcher);
  if (!found) return Reason{found.reason()};
  const Setting setting = setting_of(asked, *found);
  const Traffic traffic = stitched_traffic(setting, found->graph, fs::parts_of(found->price()));
  std::int64_t bytes = 0;
  for (const TrafficEntry& e : traffic.entries) bytes += (e.read + e.written).value;
  ordered_json json;
  json["volume_bytes"] = bytes;
  json["seconds"] = found->price().seconds;
  json["score_seconds"] = found->plan().score;
  json["kernels"] = found->price().patterns.size();
  json["stitched"] =
      fused_kernels_json(*setting.workload, found->graph, found->plan(), found->price());
  json["search_seconds"] = found->seconds;
  json["candidates"] = {{"patterns", found->candidates},
                        {"evaluated", found->evaluated},
                        {"plans", found->plans.size()}};
  json["options"] = stitch_settings(request).to_json();
  fs::WrittenPlan written =
      fs::write_plan(found->graph, found->device, found->price(), setting.machine);
  for (std::size_t k = 0; k < written.unbound.size(); ++k)
    json["stitched"][k]["without_units"] =
        written.unbound[k].empty() ? ordered_json(nullptr) : ordered_json(written.unbound[k]);
  const auto choices = [kept = std::make_shared<const StitchedPlan>(*found),
                        options](std::size_t kernel) {
    std::vector<KernelChoice> all;
    for (fs::WrittenKernel& c :
         fs::kernel_choices(kept->graph, kept->device, kept->price(), kernel, options))
      all.push_back({std::move(c.kernel), c.seconds,
                     c.without_units.empty() ? "" : "without units: " + c.without_units});
    return all;
  };
  // A schedule that was asked for by number is not replaced: another would say nothing of it.
  const bool asked_for = stitch_settings(request).given("schedule-rank");
  return Optimum{std::move(written.plan), setting.machine->default_level(), std::move(json),
                 found->rewrites, asked_for ? KernelChoices() : choices};
}

void computed(const Node& n, const Workload& w, std::set<OpId>& ops) {
  if (n.kind == Node::Kind::compute)
    if (const auto op = w.find_op(n.name)) ops.insert(*op);
  for (const Node& c : n.children) computed(c, w, ops);
}

/// Any plan's kernels as patterns.
std::vector<fs::Pattern> patterns_of(const fs::Graph& g, const Workload& w, const Plan& plan) {
  std::vector<fs::Pattern> out;
  for (const Kernel& k : plan.kernels) {
    std::set<OpId> ops;
    computed(k.tree, w, ops);
    out.emplace_back();
    for (int v = 0; v < g.size(); ++v)
      if (ops.contains(g.vertex(v).op)) out.back().push_back(v);
  }
  return out;
}

Answer price_with(const Request& request, const Setting& asked, Stitcher stitcher,
                  const char* name) {
  Setting setting = asked;
  auto json = document();
  name_workload(json, setting);
  const auto refused = [&](const std::string& reason) {
    json["source"] = "predicted";
    json["by"] = name;
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), reason);
  };
  const fs::Options options = stitch_options(request);
  const Result<fs::Device> device = fs::device_of(*setting.machine);
  if (!device) return refused(device.reason());
  Result<fs::Graph> graph = fs::Graph::create(setting.workload, fs::ridge_of(*device, options));
  if (!graph) return refused(graph.reason());
  fs::PlanPrice price;
  if (const auto plan = plan_in_place(request, setting)) {
    for (fs::Pattern& p : patterns_of(*graph, *setting.workload, *plan)) {
      if (p.empty()) return refused("a kernel computes nothing");
      price.kernels.emplace_back();
      if (p.size() > 1 || graph->vertex(p.front()).kind != fs::Kind::product) {
        const auto k = fs::stitch(*graph, *device, p, options);
        if (!k) return refused(k.reason());
        price.seconds += k->seconds;
        price.kernels.back() = *k;
      }
      price.patterns.push_back(std::move(p));
    }
  } else {
    const Result<StitchedPlan> found = stitched(setting, options, stitcher);
    if (!found) return refused(found.reason());
    price = found->price();
    graph = found->graph;
    setting = setting_of(setting, *found);
    name_workload(json, setting);
  }
  Traffic traffic = stitched_traffic(setting, *graph, fs::parts_of(price));
  traffic.by = name;
  traffic.seconds = price.seconds;
  merge(json, to_json(traffic));
  std::int64_t bytes = 0;
  for (const TrafficEntry& e : traffic.entries) bytes += (e.read + e.written).value;
  json["volume_bytes"] = bytes;
  json["kernels"] = price.patterns.size();
  json["options"] = stitch_settings(request).to_json();
  json["notes"] = "products' time is left out; every tensor crosses once for each part of a kernel that reads it";
  return {std::move(json), Status::done};
}

}  // namespace

Settings stitch_settings(const Request& request) {
  return settings_among(request, fs::option_specs(), "model fusionstitching");
}

fs::Options stitch_options(const Request& request) {
  return fs::options_of(stitch_settings(request));
}

namespace {

/// The best plan of the workload as it is, its schedules each the best.
Result<StitchedPlan> stitched_as_is(const std::shared_ptr<const Workload>& workload,
                                    const fs::Device& device, const fs::Options& options,
                                    Stitcher stitcher) {
  Result<fs::Graph> graph = fs::Graph::create(workload, fs::ridge_of(device, options));
  if (!graph) return Reason{graph.reason()};
  StitchedPlan out{.graph = std::move(graph).value(), .device = device, .options = options};
  fs::Evaluator evaluator(out.graph, out.device, options);
  fs::Exploration found = plans_by(stitcher, evaluator);
  out.candidates = found.candidates;
  out.evaluated = found.evaluated;
  std::string why;
  fs::Known known;
  for (fs::FusionPlan& plan : found.plans) {
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
  return out;
}

fs::Priced priced(const StitchedPlan& p) { return {p.graph, p.device, p.price()}; }

}  // namespace

Result<StitchedPlan> stitched(const Setting& setting, const fs::Options& options,
                              Stitcher stitcher) {
  const Result<fs::Device> device = fs::device_of(*setting.machine);
  if (!device) return Reason{device.reason()};
  const auto start = std::chrono::steady_clock::now();
  Result<StitchedPlan> best = stitched_as_is(setting.workload, *device, options, stitcher);
  std::vector<fs::Composition> others;
  if (options.compose && stitcher == Stitcher::explorer)
    others = fs::compositions(*setting.workload);
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

Setting setting_of(const Setting& asked, const StitchedPlan& plan) {
  Setting setting = asked;
  if (plan.rewrites.empty()) return setting;
  rewrite(setting, plan.rewrites, "--stitch compose");
  return setting;
}

Traffic stitched_traffic(const Setting& setting, const fs::Graph& g,
                         std::span<const fs::Pattern> kernels) {
  const Workload& w = *setting.workload;
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.by = "fusionstitching";
  traffic.machine = setting.machine->name;
  const std::string boundary = boundary_into(*setting.machine, setting.machine->default_level());
  std::map<TensorId, TrafficEntry> entries;
  for (const fs::Pattern& kernel : kernels) {
    std::set<TensorId> reads;
    std::set<OpId> own;
    for (int v : kernel) own.insert(g.vertex(v).op);
    for (OpId id : own) {
      const Operator& op = w.op(id);
      for (const Access& a : op.inputs)
        if (!own.contains(w.producer(a.tensor)))
          reads.insert(a.tensor);
      for (const Output& o : op.outputs) {
        const TensorId t = o.target.tensor;
        const bool leaves = w.is_output(t) || std::ranges::any_of(w.consumers(t), [&](OpId c) {
                              return !own.contains(c);
                            });
        if (leaves) entries[t].written += w.tensor(t).bytes();
      }
      traffic.operations[op.name] = w.operations(id);
    }
    const std::vector<OpId> ops(own.begin(), own.end());
    for (TensorId t : reads) entries[t].read += fs::bytes_read(w, t, ops);
  }
  for (auto& [tensor, entry] : entries) {
    entry.tensor = w.tensor(tensor).name;
    entry.boundary = boundary;
    traffic.entries.push_back(std::move(entry));
  }
  return traffic;
}

// ---- explain ------------------------------------------------------------------------------------

namespace {

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

}  // namespace

std::optional<Stitcher> stitcher_of(const std::string& model) {
  if (model == "fusionstitching") return Stitcher::explorer;
  if (model == "xla-rule") return Stitcher::xla_rule;
  if (model == "unfused") return Stitcher::unfused;
  return std::nullopt;
}

Answer stitch_explain(const Request& request, const Setting& asked) {
  const std::string model = find_model(*request.model).name;
  const Stitcher stitcher = stitcher_of(model).value_or(Stitcher::explorer);
  auto json = document();
  name_workload(json, asked);
  json["machine"] = asked.machine->name;
  json["model"] = model;
  const fs::Options options = stitch_options(request);
  const Result<StitchedPlan> found = stitched(asked, options, stitcher);
  if (!found) return refuse(std::move(json), found.reason());
  const Setting setting = setting_of(asked, *found);
  name_workload(json, setting);
  const Workload& w = *setting.workload;
  json["source"] = "predicted";
  json["seconds"] = found->price().seconds;
  json["score_seconds"] = found->plan().score;
  json["stitched"] = fused_kernels_json(w, found->graph, found->plan(), found->price());
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
      fs::Graph::create(asked.workload, fs::ridge_of(found->device, options));
  for (const fs::Pattern& p : fs::xla_kernels(*named, options.most_operators))
    json["xla_kernels"].push_back(names_of(*asked.workload, *named, p));
  json["options"] = stitch_settings(request).to_json();
  if (request.samples) {
    json["seed"] = request.seed;
    json["drawn"] = drawn_schedules(request, *found);
  }
  json["dot"] = drawing(found->graph, found->price());
  return {std::move(json), Status::done};
}

// ---- the records --------------------------------------------------------------------------------

namespace {

template <Stitcher kind>
Result<Optimum> optimise(const Request& r, const Setting& s) {
  return optimise_with(r, s, kind);
}
template <Stitcher kind>
Answer price(const Request& r, const Setting& s) {
  constexpr const char* kName = kind == Stitcher::explorer   ? "fusionstitching"
                                : kind == Stitcher::xla_rule ? "xla-rule"
                                                             : "unfused";
  return price_with(r, s, kind, kName);
}

}  // namespace

std::vector<ModelRecord> stitch_records() {
  const std::string source = "Zheng et al., FusionStitching, arXiv:2009.10924";
  const std::vector<std::string> assumptions = {
      "a GPU whose machine file gives cycles of instruction classes",
      "bandwidths stand in for the regression of reduced memory latency, which is not published",
      "the latency-evaluator leaves products out, as published; the time of overlapping resources "
      "has constants that were chosen on an H200",
      "division by a constant counts as a light operator; in the explorer's score, inputs that "
      "operators share save nothing"};
  return {
      {.name = "fusionstitching",
       .summary = "which memory-intensive operators of a graph to fuse, and how to stitch them",
       .source = source + ", sections 4 and 5",
       .assumptions = assumptions,
       .options = fs::option_specs(),
       .optimise = optimise<Stitcher::explorer>,
       .price = price<Stitcher::explorer>},
      {.name = "xla-rule",
       .summary = "XLA's rule for the same graphs: reductions and expensive operators only end a "
                  "kernel",
       .source = source + ", sections 1 and 2",
       .assumptions = {"an operator is in one kernel: XLA would compute it again in several"},
       .options = fs::option_specs(),
       .optimise = optimise<Stitcher::xla_rule>,
       .price = price<Stitcher::xla_rule>},
      {.name = "unfused",
       .summary = "a kernel an operator, priced by FusionStitching's evaluators",
       .source = source + ", section 4.3",
       .assumptions = {"a GPU whose machine file gives cycles of instruction classes"},
       .options = fs::option_specs(),
       .optimise = optimise<Stitcher::unfused>,
       .price = price<Stitcher::unfused>}};
}

}  // namespace tilewright::harness
