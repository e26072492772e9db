#include "models/souffle/model.h"

#include <algorithm>

#include "core/base/format.h"

namespace tilewright::souffle {
namespace {

using nlohmann::ordered_json;

Traffic traffic_of(const Machine& m, const Workload& w, const PlanCount& c) {
  Traffic t;
  t.source = Source::predicted;
  t.by = "souffle";
  t.machine = m.name;
  const std::string boundary = m.boundary(m.home(), LevelId(1));
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    const auto& [read, written] = c.tensors[i];
    if (read.value == 0 && written.value == 0) continue;
    t.entries.push_back(
        {.tensor = w.tensors()[i].name, .boundary = boundary, .read = read, .written = written});
  }
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    t.operations[w.operators()[i].name] = w.operations(OpId(i));
  t.seconds = c.seconds();
  return t;
}

Price price_of(const Question& q, const Workload& w, const PlanCount& c, const Settings& settings) {
  Price out;
  out.traffic = traffic_of(*q.machine, w, c);
  Bytes bytes;
  int syncs = 0;
  for (const KernelCount& k : c.kernels) {
    bytes += k.read + k.written;
    syncs += k.phases - 1;
  }
  out.detail = {
      {"volume_bytes", bytes.value},
      {"read_bytes", c.read().value},
      {"kernels", c.kernels.size()},
      {"syncs", syncs},
      {"options", settings.to_json()},
      {"notes",
       "bytes from home: every tensor once a phase that reads it, unless its blocks have the tile; "
       "seconds are ours: calls, barriers, and each phase at the rate of memory or arithmetic"}};
  return out;
}

ordered_json kernels_json(const Workload& w, const Planned& p) {
  ordered_json kernels = ordered_json::array();
  for (std::size_t i = 0; i < p.programs.size(); ++i) {
    const KernelCount& c = p.counts.kernels[i];
    ordered_json phases = ordered_json::array();
    std::int64_t blocks = 0;
    for (const Nest& n : p.programs[i].nests) {
      ordered_json grid = ordered_json::object();
      for (const Cut& cut : n.grid) grid[w.loop(cut.loop).name] = cut.step;
      ordered_json operators = ordered_json::array();
      for (OpId id : n.ops()) operators.push_back(w.op(id).name);
      phases.push_back({{"phase", n.phase},
                        {"first_block", n.first},
                        {"blocks", n.blocks},
                        {"grid", grid},
                        {"operators", operators}});
      if (n.threads > 0)
        phases.back()["estimate"] = {
            {"threads", n.threads}, {"registers", n.registers}, {"shared_bytes", n.shared.value}};
      blocks = std::max(blocks, n.first + n.blocks);
    }
    kernels.push_back({{"subprogram", p.subprogram[i]},
                       {"phases", c.phases},
                       {"syncs", c.phases - 1},
                       {"blocks", blocks},
                       {"read_bytes", c.read.value},
                       {"written_bytes", c.written.value},
                       {"seconds", c.seconds},
                       {"kept", c.kept},
                       {"nests", std::move(phases)}});
  }
  return kernels;
}

ordered_json subprograms_json(const Workload& w, const Planned& p) {
  ordered_json out = ordered_json::array();
  for (std::size_t s = 0; s < p.subprograms.size(); ++s) {
    const Subprogram& sub = p.subprograms[s];
    out.push_back(
        {{"first", w.op(sub.ops.front()).name},
         {"operators", sub.ops.size()},
         {"opened_by", sub.opened_by.empty() ? ordered_json(nullptr) : ordered_json(sub.opened_by)},
         {"cut_because", p.cut[s].empty() ? ordered_json(nullptr) : ordered_json(p.cut[s])}});
  }
  return out;
}

Result<Proposal> propose(const Question& q, const Settings& settings) {
  const Options o = options_of(settings);
  Result<Planned> found = planned(q, o);
  if (!found) return Reason{found.reason()};
  Planned& p = found.value();
  Proposal out;
  out.level = q.machine->default_level();
  out.rewrites = p.rewrites;
  out.price = price_of(q, *p.workload, p.counts, settings);
  out.search_seconds = p.seconds;
  out.detail = out.price.detail;
  out.detail["seconds"] = p.counts.seconds();
  out.detail["subprograms"] = subprograms_json(*p.workload, p);
  out.detail["programs"] = kernels_json(*p.workload, p);
  out.plan = std::move(p.plan);
  return out;
}

Result<Price> price(const Question& q, const Plan& plan, const Settings& settings) {
  const Options o = options_of(settings);
  const auto device = device_of(*q.machine, q.workload->dtype(), q.room);
  if (!device) return Reason{device.reason()};
  const Result<Schedule> s = resolve(plan, q.workload, q.machine);
  if (!s) return Reason{s.reason()};
  return price_of(q, *q.workload, count(*q.workload, *device, o, s->resolved), settings);
}

/// What the analysis says of every expression.
ordered_json analysis_json(const Workload& w, const Analysis& a) {
  std::size_t all = 0, many = 0, intensive = 0;
  ordered_json each = ordered_json::array();
  for (OpId id : w.topological_order()) {
    const Expression& e = a.of[id.index()];
    const std::size_t n = w.op(id).outputs.size();
    all += n;
    many += e.many ? n : 0;
    intensive += e.intensive ? n : 0;
    each.push_back({{"operator", w.op(id).name},
                    {"relies_on", e.many ? "many" : "one"},
                    {"compute_intensive", e.intensive},
                    {"operations", e.operations},
                    {"elements", e.elements}});
  }
  ordered_json reused = ordered_json::array();
  for (const Reused& r : a.reused)
    reused.push_back({{"tensor", w.tensor(r.tensor).name},
                      {"readers", r.readers.size()},
                      {"pairs_in_space", r.in_space},
                      {"pairs_in_time", r.in_time}});
  ordered_json live = ordered_json::object();
  for (std::size_t t = 0; t < a.live.size(); ++t)
    live[w.tensors()[t].name] = {a.live[t].first, a.live[t].second};
  return {{"expressions", all},
          {"rely_on_many", many},
          {"rely_on_one", all - many},
          {"compute_intensive", intensive},
          {"reused_tensors", a.reused.size()},
          {"each", each},
          {"reused", reused},
          {"live", live}};
}

/// Chains of two one-on-one expressions: the map of both, and the one that the paper's order gives.
ordered_json compositions_json(const Workload& w) {
  ordered_json out = ordered_json::array();
  for (OpId reader : w.topological_order()) {
    if (!w.reduction_loops(reader).empty()) continue;
    for (const Access& a : w.op(reader).inputs) {
      const OpId producer = w.producer(a.tensor);
      if (!producer.valid() || !w.reduction_loops(producer).empty()) continue;
      const auto outer = index_map(w.op(reader), a);
      for (const Access& b : w.op(producer).inputs) {
        const auto inner = index_map(w.op(producer), b);
        if (!inner || !outer) continue;
        const auto right = composed(*inner, *outer), printed = composed(*outer, *inner);
        if (!right) continue;
        out.push_back(
            {{"reader", w.op(reader).name},
             {"through", w.tensor(a.tensor).name},
             {"reads", w.tensor(b.tensor).name},
             {"map", to_text(*right)},
             {"printed_order", printed ? ordered_json(to_text(*printed)) : ordered_json(nullptr)},
             {"printed_is_wrong", !printed || *printed != *right}});
      }
    }
  }
  return out;
}

Explained explain(const Question& q, const ExplainAsked&, const Settings& settings) {
  const Options o = options_of(settings);
  Explained out;
  out.detail["source"] = "predicted";
  out.detail["analysis"] = analysis_json(*q.workload, analyse(*q.workload, o));
  out.detail["compositions"] = compositions_json(*q.workload);
  const Result<Planned> found = planned(q, o);
  if (!found) {
    out.refused = found.reason();
    return out;
  }
  out.rewrites = found->rewrites;
  const Workload& w = *found->workload;
  out.detail["seconds"] = found->counts.seconds();
  out.detail["read_bytes"] = found->counts.read().value;
  int syncs = 0, phases = 0;
  for (const KernelCount& k : found->counts.kernels) {
    syncs += k.phases - 1;
    phases += k.phases;
  }
  out.detail["phases"] = phases;
  out.detail["syncs"] = syncs;
  out.detail["subprograms"] = subprograms_json(w, *found);
  out.detail["kernels"] = kernels_json(w, *found);
  out.detail["search_seconds"] = found->seconds;
  out.detail["options"] = settings.to_json();
  return out;
}

}  // namespace

Model model() {
  return {.name = "souffle",
          .summary =
              "subprograms of tensor expressions as kernels with grid-wide barriers, tiles kept "
              "across them",
          .source =
              "Xia et al., Optimizing Deep Learning Inference via Global Analysis and Tensor "
              "Expressions, "
              "ASPLOS 2024, sections 5 and 6",
          .assumptions = {"a tile chooser of our own stands where the paper asks Ansor",
                          "bytes are from home: a tensor counts once a phase, whatever caches hold",
                          "seconds are ours: the paper prices nothing"},
          .options = option_specs(),
          .times = true,
          .propose = propose,
          .price = price,
          .explain = explain};
}

}  // namespace tilewright::souffle
