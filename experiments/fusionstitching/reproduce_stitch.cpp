// The methods `graphs`, `breakdown`, `kernels`, `graph-speedups` and `graph-search`:
// FusionStitching's tables and figures.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/schedules.h"
#include "models/fusionstitching/model.h"

namespace tilewright::harness {
namespace {

namespace fs = fusionstitching;

std::string us(double seconds) { return formatted("{:.2f}", 1e6 * seconds); }
std::string times(double ratio) { return formatted("{:.2f}", ratio); }

/// One workload under the three ways to fuse it.
struct Ways {
  Setting setting;
  fs::StitchedPlan unfused, xla, explorer;
  std::size_t xla_kernels = 0;  ///< with light operators computed again
};

Ways ways_of(const std::string& workload, const std::string& machine) {
  const Request request = request_for(workload, machine);
  Setting setting = setting_of(request);
  const fs::Options options;
  const auto plan = [&](fs::Stitcher by) {
    Result<fs::StitchedPlan> p = fs::stitched(setting.workload, *setting.machine, options, by);
    if (!p)
      throw InputError({.where = "workload",
                        .value = workload,
                        .problem = p.reason(),
                        .accepted = "graphs and machines that FusionStitching takes"});
    return std::move(p).value();
  };
  Ways w{setting, plan(fs::Stitcher::unfused), plan(fs::Stitcher::xla_rule),
         plan(fs::Stitcher::explorer)};
  w.xla_kernels = fs::xla_kernels(w.xla.graph, options.most_operators).size();
  return w;
}

/// Kernels of memory-intensive operators.
std::int64_t kernels(const fs::StitchedPlan& p) {
  return std::ranges::count_if(p.price().kernels,
                               [](const fs::StitchedKernel& k) { return !k.parts.empty(); });
}
/// L of all kernels, and a call for each.
double with_calls(const fs::StitchedPlan& p) {
  return p.price().seconds + static_cast<double>(kernels(p)) * p.options.call_seconds;
}

/// exact's count of the plan at the machine's default level as a scratchpad; "-" where it has none.
std::string exact_bytes(const Setting& s, const fs::StitchedPlan& p) {
  Setting of = s;  // whose workload the plan is of
  rewrite(of, p.rewrites, "--stitch compose");
  const Result<Alone> alone =
      alone_at(of, fs::plan_of(p.graph, p.price()), s.machine->default_level());
  return alone ? std::to_string(alone->total().value) : "-";
}

/// A row of table 2 as printed.
struct Printed {
  std::string model, tech;
  std::vector<double> ms;     ///< CPU, Math, Mem, Cpy, E2E
  std::vector<double> calls;  ///< Math, Mem, Cpy, all
};

std::vector<Printed> printed_rows(const Field& rows) {
  std::vector<Printed> out;
  for (const Field& f : rows.items()) {
    Printed p{f.at("model").text(), f.at("tech").text(), {}, {}};
    for (const Field& x : f.at("ms").items()) p.ms.push_back(x.real());
    for (const Field& x : f.at("calls").items()) p.calls.push_back(x.real());
    if (p.ms.size() != 5) f.at("ms").fail("are not five times", "CPU, Math, Mem, Cpy, E2E");
    if (p.calls.size() != 4) f.at("calls").fail("are not four counts", "Math, Mem, Cpy, all");
    out.push_back(std::move(p));
  }
  return out;
}

const Printed& find_row(const std::vector<Printed>& rows, const std::string& model,
                        const std::string& tech) {
  const auto it = std::ranges::find_if(
      rows, [&](const Printed& p) { return p.model == model && p.tech == tech; });
  TW_CHECK(it != rows.end(), "a model without one of its three rows");
  return *it;
}

std::vector<std::string> models_of(const std::vector<Printed>& rows) {
  std::vector<std::string> names;
  for (const Printed& p : rows)
    if (std::ranges::find(names, p.model) == names.end()) names.push_back(p.model);
  return names;
}

double sum(std::span<const double> parts) {
  double s = 0;
  for (double x : parts) s += x;
  return s;
}

/// Table 2's own arithmetic: do the parts of each row add up to its last cell?
void check_sums(const Field& top, const std::vector<Printed>& rows, Reproduced& done) {
  Sheet sheet({"model", "tech", "parts ms (sum)", "E2E ms (paper)", "parts calls (sum)",
               "calls (paper)", "adds up"});
  std::vector<std::string> failing;
  for (const Printed& p : rows) {
    const double ms = sum(std::span(p.ms).first(4)), calls = sum(std::span(p.calls).first(3));
    // Five cells rounded to 0.01 ms; calls are whole.
    const bool ms_same = std::abs(ms - p.ms[4]) < 0.026, calls_same = calls == p.calls[3];
    if (!ms_same) failing.push_back(p.model + " " + p.tech + " ms");
    if (!calls_same) failing.push_back(p.model + " " + p.tech + " calls");
    sheet.add({p.model, p.tech, formatted("{:.2f}", ms), formatted("{:.2f}", p.ms[4]),
               formatted("{:.0f}", calls), formatted("{:.0f}", p.calls[3]),
               ms_same && calls_same ? "yes" : "no"});
  }
  sheet.into(done);
  std::vector<std::string> known;
  for (const Field& f : top.at("must_hold").at("sums_that_fail").items()) known.push_back(f.text());
  if (failing != known) fail(done, "sums that fail are " + join(failing) + ", not " + join(known));
}

/// What the text says of the table: ratios of calls and times, and what a removed call saves.
void check_text(const Field& top, const std::vector<Printed>& rows, Reproduced& done) {
  double calls = 0, cpu = 0, mem = 0;
  const std::vector<std::string> models = models_of(rows);
  done.report +=
      "\n| model | memory-intensive calls, FS / XLA | CPU time saved | Mem time XLA / FS | "
      "us saved a removed call |\n|---|---|---|---|---|\n";
  for (const std::string& m : models) {
    const Printed &x = find_row(rows, m, "XLA"), &f = find_row(rows, m, "FS");
    calls += f.calls[1] / x.calls[1];
    cpu += 1 - f.ms[0] / x.ms[0];
    mem += x.ms[2] / f.ms[2];
    const double fewer = x.calls[3] - f.calls[3];
    done.report += formatted("| {} | {:.3f} | {:.1f} % | {:.2f} | {:.1f} |\n", m,
                             f.calls[1] / x.calls[1], 100 * (1 - f.ms[0] / x.ms[0]),
                             x.ms[2] / f.ms[2], 1e3 * (x.ms[0] - f.ms[0]) / fewer);
  }
  const auto n = static_cast<double>(models.size());
  const Field paper = top.at("paper");
  done.report += formatted(
      "\nMeans over all {} rows: calls {:.3f} (the text: {}), CPU saved {:.1f} % (the text: {} %), "
      "Mem "
      "{:.2f} (the text: {}).\n\n",
      models.size(), calls / n, paper.at("calls_ratio").text(), 100 * cpu / n,
      paper.at("cpu_saved_percent").text(), mem / n, paper.at("mem_speedup").text());
}

}  // namespace

Reproduced reproduce_graphs(const Experiment& e) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "machine", "paper", "workloads"});
  Reproduced done;
  done.holds = true;
  Sheet paper({"model (paper)", "field (paper)", "mode (paper)", "batch (paper)"});
  for (const Field& r : top.at("paper").items())
    paper.add(
        {r.at("model").text(), r.at("field").text(), r.at("mode").text(), r.at("batch").text()});
  Reproduced first;
  paper.into(first);
  done.report = first.report + "\n";
  done.result["paper_table"] = first.result["table"];
  Sheet sheet({"workload here", "operators", "edges", "light", "expensive", "reductions",
               "products", "compulsory bytes"});
  for (const Field& f : top.at("workloads").items()) {
    const auto w = std::make_shared<const Workload>(named_workload(f.text()));
    const auto g = fs::Graph::create(w);
    TW_CHECK(g.ok(), "a built-in workload of more than 64 loops");
    const auto count = [&](fs::Kind k) {
      return std::to_string(std::ranges::count(g->vertices(), k, &fs::Vertex::kind));
    };
    sheet.add({f.text(), std::to_string(g->size()), std::to_string(g->edges().size()),
               count(fs::Kind::light), count(fs::Kind::expensive), count(fs::Kind::reduction),
               count(fs::Kind::product), std::to_string(w->compulsory_bytes().value)});
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_breakdown(const Experiment& e, const Run& run) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "machine", "rows", "paper", "workloads",
            "must_hold"});
  Reproduced done;
  done.holds = true;
  const std::vector<Printed> rows = printed_rows(top.at("rows"));
  check_sums(top, rows, done);
  done.result["paper_sums"] = done.result["table"];
  check_text(top, rows, done);
  done.csv.clear();
  Sheet sheet({"workload", "tech", "Mem L us (predicted)", "# kernels", "# XLA with duplication",
               "exact bytes (predicted)", "# products"});
  for (const Field& f : Rows(run, top.at("workloads").items())) {
    const Ways w = ways_of(f.text(), top.at("machine").text());
    const auto row = [&](const char* tech, const fs::StitchedPlan& p,
                         const std::string& duplicated) {
      sheet.add({f.text(), tech, us(p.price().seconds), std::to_string(kernels(p)), duplicated,
                 exact_bytes(w.setting, p),
                 std::to_string(static_cast<std::int64_t>(p.price().kernels.size()) - kernels(p))});
    };
    row("unfused", w.unfused, "-");
    row("XLA's rule", w.xla, std::to_string(w.xla_kernels));
    row("FusionStitching", w.explorer, "-");
    if (kernels(w.explorer) > kernels(w.xla))
      fail(done, f.text() + " has more kernels than by XLA's rule");
    if (w.explorer.price().seconds > w.xla.price().seconds * (1 + 1e-9))
      fail(done, f.text() + " has a larger predicted L than by XLA's rule");
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_kernels(const Experiment& e, const Run& run) {
  const Field top(*e.document, e.where);
  top.only(
      {"id", "title", "source", "method", "about", "machine", "workloads", "paper", "must_hold"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"workload", "XLA kernels", "stitched kernels", "XLA's rule L us (predicted)",
               "stitched L us (predicted)", "ratio (predicted)", "ratio (paper)",
               "unfused exact bytes (predicted)", "stitched exact bytes (predicted)",
               "compulsory bytes"});
  const auto must = [&](const char* key) { return top.at("must_hold").at(key).integer(1, 1000); };
  for (const Field& f : Rows(run, top.at("workloads").items())) {
    const Ways w = ways_of(f.text(), top.at("machine").text());
    sheet.add({f.text(), std::to_string(w.xla_kernels), std::to_string(kernels(w.explorer)),
               us(w.xla.price().seconds), us(w.explorer.price().seconds),
               times(w.xla.price().seconds / w.explorer.price().seconds),
               top.at("paper").at("speedup").text(), exact_bytes(w.setting, w.unfused),
               exact_bytes(w.setting, w.explorer),
               std::to_string(w.setting.workload->compulsory_bytes().value)});
    if (static_cast<std::int64_t>(w.xla_kernels) != must("xla_kernels"))
      fail(done, formatted("XLA's rule makes {} kernels of {}", w.xla_kernels, f.text()));
    if (kernels(w.explorer) != must("stitched_kernels"))
      fail(done, formatted("stitching makes {} kernels of {}", kernels(w.explorer), f.text()));
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_graph_speedups(const Experiment& e, const Run& run) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "machine", "rows", "paper", "workloads"});
  Reproduced done;
  done.holds = true;
  const std::vector<Printed> rows = printed_rows(top.at("rows"));
  Sheet sheet({"what", "over TF or unfused", "over XLA or XLA's rule", "source"});
  double over_tf = 0, over_xla = 0;
  for (const std::string& m : models_of(rows)) {
    const double fs_ms = find_row(rows, m, "FS").ms[4];
    const double tf = find_row(rows, m, "TF").ms[4] / fs_ms;
    const double xla = find_row(rows, m, "XLA").ms[4] / fs_ms;
    over_tf += tf;
    over_xla += xla;
    sheet.add({m, times(tf), times(xla), "paper (table 2's E2E)"});
  }
  const auto n = static_cast<double>(models_of(rows).size());
  sheet.add({"mean", times(over_tf / n), times(over_xla / n), "paper (table 2's E2E)"});
  const auto same = [&](const char* key, double mean) {
    if (std::abs(mean - top.at("paper").at(key).real()) > 0.0051)
      fail(done, formatted("the mean of table 2 is {:.3f}, the text's {} {}", mean, key,
                           top.at("paper").at(key).text()));
  };
  same("over_tf", over_tf / n);
  same("over_xla", over_xla / n);
  for (const Field& f : Rows(run, top.at("workloads").items())) {
    const Ways w = ways_of(f.text(), top.at("machine").text());
    const double own = with_calls(w.explorer), tf = with_calls(w.unfused) / own,
                 xla = with_calls(w.xla) / own;
    sheet.add({f.text(), times(tf), times(xla), "predicted (L and calls)"});
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_graph_search(const Experiment& e, const Run& run) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "machine", "vertices", "seed", "paper",
            "must_hold"});
  const Result<fs::Device> device = fs::device_of(named_machine(top.at("machine").text()));
  Reproduced done;
  if (!device) {
    done.reason = device.reason();
    return done;
  }
  done.holds = true;
  done.result["growth"] = nlohmann::ordered_json::array();
  Sheet sheet({"vertices", "edges", "patterns scored", "explorer s (measured, processor time)",
               "us a vertex and edge (measured)", "kernels"});
  for (const Field& f : Rows(run, top.at("vertices").items())) {
    const std::int64_t n = f.integer(1, 20000);
    const auto w = std::make_shared<const Workload>(
        named_workload(formatted("random-graph:vertices={},rows=8192,cols=1024,seed={}", n,
                                 top.at("seed").integer(1, INT32_MAX))));
    const auto g = fs::Graph::create(w);
    TW_CHECK(g.ok(), "a random graph of two loops");
    double least = INFINITY;
    fs::Exploration found;
    std::int64_t evaluated = 0;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t start = std::clock();  // of this process: other work does not count
      fs::Evaluator evaluator(*g, *device, {});
      found = fs::explore(evaluator);
      evaluated = evaluator.evaluated();
      least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    done.result["growth"].push_back(
        {{"vertices", n}, {"edges", g->edges().size()}, {"seconds", least}});
    const auto size = static_cast<double>(n) + static_cast<double>(g->edges().size());
    sheet.add({std::to_string(n), std::to_string(g->edges().size()), std::to_string(evaluated),
               formatted("{:.4f}", least), formatted("{:.2f}", 1e6 * least / size),
               std::to_string(fs::kernels_of(*g, found.plans.front()))});
    const Field must = top.at("must_hold");
    if (n == must.at("vertices").integer(1, 20000) && least > must.at("seconds").real())
      fail(done, formatted("{} vertices took {:.2f} s", n, least));
  }
  sheet.into(done);
  return done;
}

}  // namespace tilewright::harness
