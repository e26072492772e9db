#include "models/powerfusion/model.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/format.h"
#include "core/plan/schedule.h"
#include "models/powerfusion/cores.h"

namespace tilewright::powerfusion {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> operators_of(const Graph& g, const Operators& kernel) {
  std::vector<std::string> names;
  for (int v : kernel) names.push_back(g.workload().op(g.vertex(v).op).name);
  return names;
}

std::int64_t bytes_of(const Traffic& t) {
  std::int64_t n = 0;
  for (const TrafficEntry& e : t.entries) n += (e.read + e.written).value;
  return n;
}

Price shown(const Question& q, const Graph& g, std::span<const Operators> kernels, double seconds,
            const Settings& settings) {
  Price out;
  out.traffic = stitching::traffic_of(*q.machine, g, kernels);
  out.traffic.by = "powerfusion";
  out.traffic.seconds = seconds;
  out.detail = {
      {"volume_bytes", bytes_of(out.traffic)},
      {"kernels", kernels.size()},
      {"options", settings.to_json()},
      {"notes",
       "every tensor crosses once for each part of a kernel that reads it; a library's kernels "
       "take their arithmetic or their bytes, whichever is longer"}};
  if (const auto assumed = assumed_of(*q.machine)) out.detail["assumed"] = *assumed;
  return out;
}

ordered_json slices_json(const Gir& before, const Gir& after) {
  ordered_json syncs = ordered_json::object();
  for (Scope s : {Scope::warp, Scope::block, Scope::device})
    syncs[std::string(name_of(s))] = syncs_of(after, s);
  return {{"units", after.blocks * after.warps},
          {"gops_before", before.ops.size()},
          {"gops", after.ops.size()},
          {"dram_bytes_before", dram_bytes(before)},
          {"dram_bytes", dram_bytes(after)},
          {"syncs", std::move(syncs)}};
}

ordered_json kernels_json(const Planned& p) {
  ordered_json all = ordered_json::array();
  for (std::size_t k = 0; k < p.kernels(); ++k) {
    const bool library = p.library(k);
    ordered_json one = {{"name", p.written.plan.kernels[k].name},
                        {"class", library ? "computation" : "memory"},
                        {"operators", operators_of(*p.graph, p.price.patterns[k])},
                        {"seconds", p.seconds[k]}};
    if (!library) {
      const StitchedKernel& s = p.price.kernels[k];
      one["warps"] = s.threads / kLanes;
      one["templates"] = ordered_json::array();
      for (const stitching::Stitched& part : s.parts)
        one["templates"].push_back(
            {{"rows_of", part.groups.empty() ? std::string_view("core")
                                             : stitching::name_of(part.groups.front().scheme)},
             {"width", kLanes * part.vector},
             {"blocks", part.blocks}});
      const std::string& why = p.written.unbound[k];
      one["without_units"] = why.empty() ? ordered_json(nullptr) : ordered_json(why);
    }
    all.push_back(std::move(one));
  }
  return all;
}

void add_plan(ordered_json& json, const Planned& p) {
  std::size_t library = 0;
  double memory = 0;
  for (std::size_t k = 0; k < p.kernels(); ++k) {
    library += p.library(k) ? 1 : 0;
    memory += p.library(k) ? 0 : p.seconds[k];
  }
  json["seconds"] = p.total_seconds();
  json["memory_seconds"] = memory;
  json["kernels_by_class"] = {{"computation", library}, {"memory", p.kernels() - library}};
  json["components"] = p.components;
  json["search"] = {{"states", p.states}, {"kernels_priced", p.priced}};
  json["search_seconds"] = p.search_seconds;
}

Result<Proposal> propose(const Question& q, const Settings& settings) {
  Result<Planned> planned_now = planned(q, options_of(settings));
  if (!planned_now) return Reason{planned_now.reason()};
  const auto p = std::make_shared<const Planned>(std::move(planned_now).value());
  Proposal out;
  out.plan = p->written.plan;
  out.level = is_cores(p->device) ? vector_level(*q.machine) : q.machine->default_level();
  out.rewrites = p->rewrites;
  const std::vector<Operators> parts = stitching::parts_of(p->price);
  out.price = shown(q, *p->graph, parts, p->total_seconds(), settings);
  out.price.detail["kernels"] = p->kernels();
  out.search_seconds = p->search_seconds;
  out.detail = out.price.detail;
  add_plan(out.detail, *p);
  out.detail["programs"] = kernels_json(*p);
  if (!is_cores(p->device))
    out.choices = [p](std::size_t k) {
      std::vector<KernelChoice> choices;
      for (stitching::WrittenKernel& one :
           stitching::kernel_choices(*p->graph, p->device, p->price, k, p->options.kernels())) {
        one.kernel.name = p->written.plan.kernels[k].name;
        choices.push_back({.kernel = std::move(one.kernel),
                           .seconds = one.seconds > 0 ? std::optional(one.seconds) : std::nullopt,
                           .note = std::move(one.without_units)});
      }
      return choices;
    };
  return out;
}

/// What each part of the plan's kernels computes: those of a pack read for themselves.
std::vector<Operators> parts_of(const Graph& g, const Plan& plan) {
  Plan parts;
  for (const Kernel& k : plan.kernels) {
    if (k.tree.kind != Node::Kind::pack) {
      parts.kernels.push_back(k);
      continue;
    }
    for (const Node& part : k.tree.children)
      parts.kernels.push_back({.name = k.name, .tree = part});
  }
  return stitching::patterns_of(g, parts);
}

Result<Price> price(const Question& q, const Plan& plan, const Settings& settings) {
  const auto units = units_of(*q.machine, options_of(settings));
  if (!units) return Reason{units.reason()};
  const auto& [device, o] = *units;
  const Result<Graph> graph = Graph::create(q.workload, ridge_of(device, o));
  if (!graph) return Reason{graph.reason()};
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  const Result<std::vector<double>> seconds = plan_seconds(*graph, device, o, *schedule, plan);
  if (!seconds) return Reason{seconds.reason()};
  const double all = std::accumulate(seconds->begin(), seconds->end(), 0.0);
  Price out = shown(q, *graph, parts_of(*graph, plan), all, settings);
  out.detail["kernels"] = plan.kernels.size();
  return out;
}

// ---- explain ------------------------------------------------------------------------------------

ordered_json rewriting_json(const Gir& before, const Options& o) {
  std::vector<Rewrite> steps;
  const Gir after = optimised(before, o.rewriting, &steps);
  ordered_json out = slices_json(before, after);
  out["gir_before"] = to_text(before);
  out["rewrites"] = ordered_json::array();
  for (const Rewrite& r : steps)
    out["rewrites"].push_back({{"rule", r.rule}, {"done", r.done}, {"gir", to_text(r.after)}});
  out["gir"] = to_json(after);
  return out;
}

Explained explain(const Question& q, const ExplainAsked&, const Settings& settings) {
  const Options o = options_of(settings);
  Explained out;
  out.detail["source"] = "predicted";
  const Result<Planned> p = planned(q, o);
  if (!p) {
    out.refused = p.reason();
    return out;
  }
  out.rewrites = p->rewrites;
  add_plan(out.detail, *p);
  const Traffic traffic =
      stitching::traffic_of(*q.machine, *p->graph, stitching::parts_of(p->price));
  out.detail["volume_bytes"] = bytes_of(traffic);
  std::vector<Operators> alone;  // as the workload was named
  const Result<Graph> named = Graph::create(q.workload, ridge_of(p->device, o));
  const Graph& before = named ? *named : *p->graph;
  for (int v = 0; v < before.size(); ++v) alone.push_back({v});
  out.detail["unfused_bytes"] = bytes_of(stitching::traffic_of(*q.machine, before, alone));
  out.detail["compulsory_bytes"] = q.workload->compulsory_bytes().value;
  ordered_json kernels = kernels_json(*p);
  for (std::size_t k = 0; k < p->kernels(); ++k) {
    if (p->library(k)) continue;
    kernels[k]["parts"] = ordered_json::array();
    for (const Gir& g : gir_of(*p, k)) kernels[k]["parts"].push_back(rewriting_json(g, o));
  }
  out.detail["kernels"] = std::move(kernels);
  out.detail["options"] = settings.to_json();
  return out;
}

}  // namespace

Model model() {
  return {
      .name = "powerfusion",
      .summary =
          "data movement as instructions: operators merged by what their moves cost, each "
          "kernel a graph of gOperators",
      .source =
          "Ma et al., PowerFusion: A Tensor Compiler with Explicit Data Movement Description and "
          "Instruction-level Graph IR, 2023, sections 4 to 6",
      .assumptions =
          {"the parallel unit is a warp",
           "the paper prints no formula of its performance model: ours is said by --price-by",
           "on a machine that is not a GPU it is a core, a kernel is loops, and prices are of "
           "moves "
           "and bytes",
           "bytes are from home: a tensor counts once a kernel that reads it",
           "library kernels are our product kernels"},
      .options = option_specs(),
      .times = true,
      .propose = propose,
      .price = price,
      .explain = explain};
}

}  // namespace tilewright::powerfusion
