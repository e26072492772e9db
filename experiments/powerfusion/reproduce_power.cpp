// The methods `gir`, `gir-text` and `gir-ranking`: PowerFusion's figures, from its plans and their
// GIR.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/recorded.h"
#include "harness/statistics.h"
#include "models/powerfusion/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using powerfusion::Gir;
using powerfusion::Scope;

Question question_of(const std::string& workload, const std::string& machine) {
  return {.name = workload,
          .workload = std::make_shared<const Workload>(named_workload(workload)),
          .machine = std::make_shared<const Machine>(named_machine(machine))};
}

std::int64_t bytes_of(const Question& q, const powerfusion::Graph& g,
                      std::span<const powerfusion::Operators> kernels) {
  std::int64_t bytes = 0;
  for (const TrafficEntry& e : stitching::traffic_of(*q.machine, g, kernels).entries)
    bytes += (e.read + e.written).value;
  return bytes;
}

/// What a workload's plan comes to.
struct PowerCount {
  std::size_t operators = 0, kernels = 0, library = 0, contractions = 0;
  std::int64_t bytes = 0, unfused = 0, compulsory = 0;
  double gir_before = 0, gir_after = 0, seconds = 0, search = 0;
  int syncs[4] = {};
  std::string templates;                ///< of reductions: scope and pattern
  std::vector<std::string> of_library;  ///< names of the operators
};

void add_gir(PowerCount& c, const powerfusion::Planned& p, std::size_t kernel) {
  for (const Gir& before : powerfusion::gir_of(p, kernel)) {
    const Gir after = powerfusion::optimised(before, p.options.rewriting);
    c.gir_before += powerfusion::dram_bytes(before);
    c.gir_after += powerfusion::dram_bytes(after);
    for (Scope s : {Scope::warp, Scope::block, Scope::device})
      c.syncs[static_cast<int>(s)] += powerfusion::syncs_of(after, s);
    for (const powerfusion::GOp& o : after.ops) {
      if (o.kind != powerfusion::GKind::reduce) continue;
      const auto pattern =
          powerfusion::pattern_of(after, after.slices[static_cast<std::size_t>(o.in.front())]);
      c.templates +=
          formatted("{}{} over a {}: {} x {}", c.templates.empty() ? "" : "; ", o.name,
                    powerfusion::name_of(o.scope), pattern.num * pattern.times, pattern.width);
    }
  }
}

PowerCount counted_power(const std::string& workload, const std::string& machine) {
  const Question q = question_of(workload, machine);
  const Result<powerfusion::Planned> p = powerfusion::planned(q, {});
  if (!p)
    throw InputError({.where = "workload",
                      .value = workload,
                      .problem = p.reason(),
                      .accepted = "workloads and machines that the model takes"});
  PowerCount c{.operators = q.workload->operators().size(),
               .kernels = p->kernels(),
               .bytes = bytes_of(q, *p->graph, stitching::parts_of(p->price)),
               .compulsory = q.workload->compulsory_bytes().value,
               .seconds = p->total_seconds(),
               .search = p->search_seconds};
  for (OpId id : q.workload->topological_order()) c.contractions += q.workload->is_contraction(id);
  const auto graph = powerfusion::Graph::create(q.workload, 0);
  std::vector<powerfusion::Operators> alone;
  for (int v = 0; graph && v < graph->size(); ++v) alone.push_back({v});
  if (graph) c.unfused = bytes_of(q, *graph, alone);
  for (std::size_t k = 0; k < p->kernels(); ++k) {
    if (p->library(k)) {
      ++c.library;
      c.of_library.push_back(
          p->workload->op(p->graph->vertex(p->price.patterns[k].front()).op).name);
    } else {
      add_gir(c, *p, k);
    }
  }
  return c;
}

std::optional<double> number_in(const Field& f, const char* key) {
  const auto found = f.get(key);
  return found ? std::optional(found->real()) : std::nullopt;
}

/// Rows' claims: exact numbers, bounds that begin with most_, and library kernels of operators
/// whose names have a word, library_of_WORD.
void hold(Reproduced& done, const Field& must, const std::string& name, const PowerCount& c) {
  const std::map<std::string, double> has = {
      {"kernels", static_cast<double>(c.kernels)},
      {"memory_kernels", static_cast<double>(c.kernels - c.library)},
      {"library_kernels", static_cast<double>(c.library)},
      {"contractions", static_cast<double>(c.contractions)},
      {"bytes", static_cast<double>(c.bytes)},
      {"unfused_bytes", static_cast<double>(c.unfused)},
      {"gir_bytes", c.gir_after},
      {"warp_syncs", c.syncs[1]},
      {"block_syncs", c.syncs[2]},
      {"device_syncs", c.syncs[3]}};
  for (const auto& [key, value] : must.entries()) {
    if (key.starts_with("library_of_")) {
      const auto named = std::ranges::count_if(c.of_library, [&](const std::string& operator_name) {
        return operator_name.find(key.substr(11)) != std::string::npos;
      });
      if (static_cast<double>(named) != value.real())
        fail(done, formatted("{}: {} is {}, not {:.0f}", name, key, named, value.real()));
      continue;
    }
    const bool most = key.starts_with("most_");
    const auto at = has.find(most ? key.substr(5) : key);
    if (at == has.end()) must.fail("has no number " + key, "kernels, library_kernels, bytes, ...");
    const double wanted = value.real();
    if (most ? at->second > wanted : at->second != wanted)
      fail(done, formatted("{}: {} is {:.0f}, not {}{:.0f}", name, at->first, at->second,
                           most ? "at most " : "", wanted));
  }
}

}  // namespace

/// Workloads by PowerFusion's plans: kernels by class, bytes, GIR before and after rewriting.
Reproduced reproduce_gir(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "rows", "paper_means"});
  const std::string machine = top.at("machine").text();
  Reproduced done;
  done.holds = true;
  Sheet sheet({"workload", "operators", "computation kernels", "memory kernels",
               "bytes (predicted)", "bytes, a kernel each", "compulsory bytes", "GIR bytes before",
               "GIR bytes after", "warp syncs", "block syncs", "device syncs", "us (predicted)",
               "search ms"});
  std::string templates;
  for (const Field& row : Rows(run, top.at("rows").items())) {
    const std::string name = row.at("name").text(), workload = row.at("workload").text();
    const PowerCount c = counted_power(workload, machine);
    sheet.add({name, std::to_string(c.operators), std::to_string(c.library),
               std::to_string(c.kernels - c.library), std::to_string(c.bytes),
               std::to_string(c.unfused), std::to_string(c.compulsory),
               formatted("{:.0f}", c.gir_before), formatted("{:.0f}", c.gir_after),
               std::to_string(c.syncs[1]), std::to_string(c.syncs[2]), std::to_string(c.syncs[3]),
               formatted("{:.2f}", 1e6 * c.seconds), formatted("{:.0f}", 1e3 * c.search)});
    if (row.get("templates")) templates += "- " + name + ": " + c.templates + "\n";
    done.result["rows"][name] = {{"kernels", c.kernels},
                                 {"library", c.library},
                                 {"bytes", c.bytes},
                                 {"seconds", c.seconds},
                                 {"search_seconds", c.search}};
    if (const auto must = row.get("must_hold")) hold(done, *must, name, c);
    if (c.bytes > c.unfused) fail(done, name + ": more bytes than a kernel for each operator");
    if (const auto paper = number_in(row, "paper_memory_kernels"))
      done.compared.push_back({.what = name + ": memory kernels",
                               .ours = static_cast<double>(c.kernels - c.library),
                               .ours_source = "predicted (powerfusion)",
                               .paper = paper});
  }
  sheet.into(done);
  if (!templates.empty())
    done.report +=
        "\nReductions, by who has parts of their sums and how a warp reads:\n\n" + templates;
  if (const auto means = top.get("paper_means"))
    for (const auto& [name, value] : means->entries())
      done.compared.push_back(
          {.what = name, .ours_source = "not reproduced", .paper = value.real()});
  return done;
}

/// GIRs written out in the file: bytes from DRAM and syncs before and after rewriting, and scopes.
Reproduced reproduce_gir_text(const Experiment& e) {
  const Field top = document_of(e, {"girs"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"GIR", "rewriting", "gOperators before", "gOperators after", "DRAM bytes before",
               "DRAM bytes after", "warp syncs after", "block syncs after", "device syncs after"});
  for (const Field& row : top.at("girs").items()) {
    const std::string name = row.at("name").text();
    const Gir before = powerfusion::parse_gir(row.at("gir").text(), e.where + ": " + name);
    powerfusion::Rewriting how;
    if (const auto scope = row.get("scope"))
      how.scope = scope->text() == "printed" ? powerfusion::ScopeTest::printed
                                             : powerfusion::ScopeTest::units;
    if (const auto swap = row.get("swap")) how.swap = swap->text() != "none";
    std::vector<powerfusion::Rewrite> steps;
    const Gir after = powerfusion::optimised(before, how, &steps);
    const int warp = powerfusion::syncs_of(after, Scope::warp),
              block = powerfusion::syncs_of(after, Scope::block),
              device = powerfusion::syncs_of(after, Scope::device);
    sheet.add({name,
               formatted("scope {}, swap {}",
                         how.scope == powerfusion::ScopeTest::units ? "units" : "printed",
                         how.swap ? "forward" : "none"),
               std::to_string(before.ops.size()), std::to_string(after.ops.size()),
               formatted("{:.0f}", powerfusion::dram_bytes(before)),
               formatted("{:.0f}", powerfusion::dram_bytes(after)), std::to_string(warp),
               std::to_string(block), std::to_string(device)});
    const Field must = row.at("must_hold");
    const std::map<std::string, double> has = {{"before", powerfusion::dram_bytes(before)},
                                               {"after", powerfusion::dram_bytes(after)},
                                               {"warp", warp},
                                               {"block", block},
                                               {"device", device}};
    for (const auto& [key, value] : must.entries()) {
      const auto at = has.find(key);
      if (at == has.end()) must.fail("has no number " + key, "before, after, warp, block, device");
      if (at->second != value.real())
        fail(done, formatted("{}: {} is {:.0f}, not {:.0f}", name, key, at->second, value.real()));
    }
    done.report += "\n" + name + ":\n\n```\n" + powerfusion::to_text(before) + "```\n";
    for (const powerfusion::Rewrite& r : steps)
      done.report += "\nafter " + r.rule + " (" + join(r.done) + "):\n\n```\n" +
                     powerfusion::to_text(r.after) + "```\n";
  }
  sheet.into(done);
  return done;
}

/// Section 6's generation and merging of two operators: every template of each, every pair of one
/// parallel structure as one GIR, before and after rewriting.
Reproduced reproduce_gir_merging(const Experiment& e) {
  const Field top = document_of(e, {"machine", "workload", "must_hold"});
  const auto workload =
      std::make_shared<const Workload>(workload_from_yaml(top.at("workload").text(), e.where));
  const Result<powerfusion::Device> device =
      stitching::device_of(named_machine(top.at("machine").text()));
  if (!device) top.fail(device.reason(), "a GPU");
  const auto g = powerfusion::Graph::create(workload, powerfusion::ridge_of(*device, {}));
  if (!g || g->size() != 2) top.fail("is not a graph of two operators", "two operators");
  Reproduced done;
  done.holds = true;
  Sheet sheet({"operator", "graphs", "parallel structures", "DRAM bytes before",
               "fewest DRAM bytes after", "most DRAM bytes after", "device syncs before",
               "most device syncs after"});
  std::map<std::string, double> has;
  const auto add = [&](const std::string& name, const std::vector<Gir>& girs) {
    std::set<std::pair<std::int64_t, std::int64_t>> structures;
    std::vector<double> bytes;
    int syncs = 0, most_syncs = 0;
    for (const Gir& gir : girs) {
      structures.emplace(gir.blocks, gir.warps);
      const Gir after = powerfusion::optimised(gir);
      bytes.push_back(powerfusion::dram_bytes(after));
      syncs = std::max(syncs, powerfusion::syncs_of(gir, Scope::device));
      most_syncs = std::max(most_syncs, powerfusion::syncs_of(after, Scope::device));
    }
    if (bytes.empty()) return fail(done, name + ": no graph");
    const auto [least, most] = std::ranges::minmax(bytes);
    has[name + " graphs"] = static_cast<double>(girs.size());
    has[name + " before"] = powerfusion::dram_bytes(girs.front());
    has[name + " after"] = most;
    has[name + " syncs before"] = syncs;
    has[name + " syncs after"] = most_syncs;
    sheet.add({name, std::to_string(girs.size()), std::to_string(structures.size()),
               formatted("{:.0f}", powerfusion::dram_bytes(girs.front())),
               formatted("{:.0f}", least), formatted("{:.0f}", most), std::to_string(syncs),
               std::to_string(most_syncs)});
    done.report +=
        "\nThe first of " + name + ":\n\n```\n" + powerfusion::to_text(girs.front()) + "```\n";
    std::vector<powerfusion::Rewrite> steps;
    powerfusion::optimised(girs.front(), {}, &steps);
    for (const powerfusion::Rewrite& r : steps)
      done.report += "\nafter " + r.rule + " (" + join(r.done) + "):\n\n```\n" +
                     powerfusion::to_text(r.after) + "```\n";
  };
  std::vector<std::vector<powerfusion::Template>> templates;
  for (int v : {0, 1}) {
    templates.push_back(powerfusion::templates_of(*g, *device, {}, {v}));
    std::vector<Gir> girs;
    for (const powerfusion::Template& t : templates.back()) girs.push_back(t.gir);
    add(workload->op(g->vertex(v).op).name, girs);
  }
  std::vector<Gir> both;
  for (const powerfusion::Template& a : templates[0])
    for (const powerfusion::Template& b : templates[1])
      if (auto gir = powerfusion::merged(*g, a, b)) both.push_back(*std::move(gir));
  add("merged", both);
  sheet.into(done);
  for (const auto& [key, value] : top.at("must_hold").entries()) {
    const bool least = key.starts_with("least ");
    const auto at = has.find(least ? key.substr(6) : key);
    if (at == has.end()) top.at("must_hold").fail("has no number " + key, "OPERATOR graphs, ...");
    if (least ? at->second < value.real() : at->second != value.real())
      fail(done, formatted("{} is {:.0f}, not {}{:.0f}", at->first, at->second,
                           least ? "at least " : "", value.real()));
  }
  return done;
}

/// A recording's schedules by what PowerFusion says of their trees, beside the recording's
/// predictions and the published L.
Reproduced reproduce_gir_ranking(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"recording", "must_hold"});
  const std::string path = recording_path(e, run.options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  done.holds = true;
  add_provenance(done, recording, path);
  const std::int64_t fewest = top.at("must_hold").at("min_graphs").integer(1, 1000);
  Sheet sheet({"graph", "schedules", "rank correlation: moves and syncs", "resources",
               "recorded prediction", "L alone"});
  std::int64_t ranked = 0;
  double sums[4] = {};
  for (const auto& [name, graph] : Rows(run, recording.at("ranking").entries())) {
    const auto workload = graph.get("workload");
    if (!workload) continue;
    const Question q = question_of(workload->text(), recording.at("machine").text());
    const Result<powerfusion::Device> device = stitching::device_of(*q.machine);
    if (!device) continue;
    const auto g = powerfusion::Graph::create(q.workload, powerfusion::ridge_of(*device, {}));
    std::vector<double> measured;
    std::vector<double> by[4];
    for (const Field& point : graph.at("points").items()) {
      double seconds[2] = {};
      try {
        Kernel k{
            .name = "recorded", .level = "registers", .tree = parse_tree(point.at("tree").text())};
        Plan plan;
        plan.kernels.push_back(k);
        const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
        if (!schedule) continue;
        bool all = true;
        for (int way = 0; way < 2; ++way) {
          powerfusion::Options o;
          o.price = way == 0 ? powerfusion::PriceBy::parallel : powerfusion::PriceBy::overlap;
          const Result<double> s = powerfusion::tree_seconds(*g, *device, o, *schedule, 0, k);
          all = all && s;
          seconds[way] = s ? *s : 0;
        }
        if (!all) continue;
      } catch (const InputError&) {
        continue;  // the tree is of one of several kernels, or of a workload rewritten
      }
      measured.push_back(point.at("seconds_median").real());
      by[0].push_back(seconds[0]);
      by[1].push_back(seconds[1]);
      by[2].push_back(point.at("predicted_seconds").real());
      by[3].push_back(point.at("latency_seconds").real());
    }
    if (measured.size() < 10) {
      sheet.add({name, std::to_string(measured.size()), "-", "-", "-", "-"});
      continue;
    }
    std::vector<std::string> cells = {name, std::to_string(measured.size())};
    bool any = true;
    for (int i = 0; i < 4; ++i) {
      const std::optional<double> rho = rank_correlation(by[i], measured);
      cells.push_back(fixed_or_dash(rho, 3));
      any = any && rho;
      if (rho) sums[i] += *rho;
    }
    ranked += any ? 1 : 0;
    sheet.add(cells);
  }
  sheet.into(done);
  if (ranked < fewest)
    fail(done, formatted("{} graphs' schedules can be ranked, fewer than {}", ranked, fewest));
  constexpr const char* kWays[] = {"moves and syncs (--price-by parallel)",
                                   "resources (--price-by overlap)",
                                   "FusionStitching's prediction, as recorded", "L as published"};
  for (int i = 0; i < 4 && ranked > 0; ++i)
    done.compared.push_back({.what = formatted("mean rank correlation, {}", kWays[i]),
                             .ours = sums[i] / static_cast<double>(ranked),
                             .ours_source = "predicted against measured"});
  return done;
}

}  // namespace tilewright::harness
