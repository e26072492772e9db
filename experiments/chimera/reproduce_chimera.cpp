// The methods `devices`, `chains` and `searches`: Chimera's Tables I, IV and V and its overhead.
#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/ask.h"
#include "harness/schedules.h"
#include "models/chimera/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

std::string fixed(double x, int digits) { return formatted("{:.{}f}", x, digits); }

std::string tiles_text(const ordered_json& tiles) {
  std::string text;
  for (const auto& [loop, size] : tiles.items())
    text += (text.empty() ? "" : " ") + loop + "=" + size.dump();
  return text;
}

double peak_of(const Machine& m, const std::string& dtype) {
  double peak = 0;
  for (const ComputeUnit& u : m.units)
    if (const auto at = u.peak.find(dtype); at != u.peak.end())
      peak = std::max(peak, at->second.value);
  return peak;
}

}  // namespace

Reproduced reproduce_devices(const Experiment& e) {
  const Field top = document_of(e, {"devices", "paper_breakdown"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"device", "TFLOP/s (paper)", "GB/s (paper)", "FLOP/byte (paper)", "machine", "type",
               "TFLOP/s (machine file)", "GB/s (machine file)", "FLOP/byte (machine file)"});
  for (const Field& d : top.at("devices").items()) {
    d.only({"name", "machine", "dtype", "paper"});
    const Machine m = named_machine(d.at("machine").text());
    const Field paper = d.at("paper");
    const double tflops = paper.at("tflops").real(), gbs = paper.at("gbs").real();
    const double ratio = paper.at("ratio").real();
    // The paper rounds; its own columns have to agree.
    if (std::abs(1e3 * tflops / gbs - ratio) > 1)
      fail(done,
           formatted("{}: the paper's ratio is not that of its columns", d.at("name").text()));
    const double peak = peak_of(m, d.at("dtype").text());
    const double bandwidth = m.level(chimera::chip_levels(m).front()).bandwidth.value;
    const bool known = peak > 0 && bandwidth > 0;
    const auto compare_with = [&](const char* what, const char* unit, double ours, double theirs) {
      if (known)
        done.compared.push_back({.what = m.name + ", " + what,
                                 .unit = unit,
                                 .ours = ours,
                                 .ours_source = "machine file",
                                 .paper = theirs});
    };
    compare_with("peak", "TFLOP/s", peak / 1e12, tflops);
    compare_with("bandwidth", "GB/s", bandwidth / 1e9, gbs);
    compare_with("peak over bandwidth", "FLOP/byte", peak / bandwidth, ratio);
    sheet.add({d.at("name").text(), paper.at("tflops").text(), paper.at("gbs").text(),
               paper.at("ratio").text(), m.name, d.at("dtype").text(),
               known ? fixed(peak / 1e12, 2) : "-", known ? fixed(bandwidth / 1e9, 1) : "-",
               known ? fixed(peak / bandwidth, 1) : "-"});
  }
  sheet.into(done);
  done.report +=
      "\n| model | memory-intensive % (paper) | compute-intensive % (paper) | "
      "batch GEMM % (paper) | sum |\n|---|---|---|---|---|\n";
  for (const Field& b : top.at("paper_breakdown").items()) {
    b.only({"name", "mi", "ci", "bmm"});
    const double sum = b.at("mi").real() + b.at("ci").real() + b.at("bmm").real();
    done.report += formatted("| {} | {} | {} | {} | {:.2f} |\n", b.at("name").text(),
                             b.at("mi").text(), b.at("ci").text(), b.at("bmm").text(), sum);
    if (std::abs(sum - 100) > 0.02) fail(done, b.at("name").text() + "'s shares are not a whole");
  }
  return done;
}

namespace {

/// Whether the paper's row is the built-in workload: the same loops and tensors from its
/// parameters.
bool same_workload(const Field& row, const Field& columns, const std::string& kind,
                   const Workload& named, std::vector<std::string>& cells) {
  std::string text = kind;
  for (const auto& [column, parameter] : columns.entries()) {
    const std::string value = row.at("paper").at(column).text();
    cells.push_back(value);
    text += (text == kind ? ":" : ",") + parameter.text() + "=" + value;
  }
  const Workload built = named_workload(text);
  return std::ranges::equal(built.loops(), named.loops()) &&
         std::ranges::equal(built.tensors(), named.tensors(), {}, &Tensor::shape, &Tensor::shape);
}

/// Operations that exact counts beyond each point once.
std::int64_t recomputed(const Workload& w, const Alone& alone) {
  std::int64_t extra = 0;
  for (const auto& [name, n] : alone.exact.operations)
    extra += std::max<std::int64_t>(0, n.value - w.operations(*w.find_op(name)).value);
  return extra;
}
std::string share(std::int64_t part, std::int64_t whole) {
  return formatted("{:.2f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

/// Bytes that must move, each operator a kernel of its own: every operator's inputs and outputs.
std::int64_t unfused_bytes(const Workload& w) {
  std::int64_t sum = 0;
  for (const Operator& op : w.operators()) {
    for (const Access& a : op.inputs) sum += w.tensor(a.tensor).bytes().value;
    for (const Output& o : op.outputs) sum += w.tensor(o.target.tensor).bytes().value;
  }
  return sum;
}

}  // namespace

Reproduced reproduce_chains(const Experiment& e, const Run& run) {
  const Field top =
      document_of(e, {"machine", "level", "workload", "columns", "rows", "must_hold"});
  top.at("must_hold").only({"recomputed"});
  std::vector<std::string> recomputing;
  for (const Field& f : top.at("must_hold").at("recomputed").items())
    recomputing.push_back(f.text());
  std::vector<std::string> header{"workload"};
  for (const auto& [column, parameter] : top.at("columns").entries())
    header.push_back(column + " (paper)");
  for (const char* name :
       {"the same here", "order", "tiles", "Chimera's bytes (predicted)", "exact bytes (predicted)",
        "recomputed by the plan", "recomputed at small tiles",
        "Chimera's bytes at small tiles (predicted)", "exact bytes at small tiles (predicted)",
        "compulsory bytes, two kernels", "compulsory bytes, fused", "saved %"})
    header.emplace_back(name);
  Reproduced done;
  done.holds = true;
  Sheet sheet(header);
  for (const Field& r : Rows(run, top.at("rows").items())) {
    const std::string name = r.at("workload").text();
    Request request = request_for(name, top.at("machine").text());
    request.level = top.at("level").text();
    const Setting setting = setting_of(request);
    const Workload& w = *setting.workload;
    std::vector<std::string> row{name};
    const bool same = same_workload(r, top.at("columns"), top.at("workload").text(), w, row);
    if (!same) fail(done, name + " is not the paper's row");
    row.emplace_back(same ? "yes" : "no");
    const Result<Proposal> best = propose(find_model("chimera"), request, setting);
    if (!best) {
      fail(done, name + ": " + best.reason());
      continue;
    }
    const Result<Alone> alone = alone_at(setting, best->plan, best->level);
    const ordered_json& j = best->detail;
    // A quarter of each output dimension of the last operator: what a cut of rows computes again.
    chimera::Tiles tiles = chimera::tiles_from(w, {});
    for (LoopId l : chimera::order_loops(w))
      if (const std::string& loop = w.loop(l).name; loop == "h" || loop == "w" || loop == "m")
        tiles[l.index()] = ceil_div(w.loop(l).extent, 4);
    chimera::Order order = chimera::order_loops(w);
    std::ranges::stable_sort(order, [&](LoopId a, LoopId b) {
      return tiles[a.index()] < w.loop(a).extent && tiles[b.index()] == w.loop(b).extent;
    });
    const chimera::Price cut = chimera::price(w, order, tiles, {});
    const Result<Alone> there = alone_at(
        setting, chimera::plan_of(w, order, tiles, *setting.machine, best->level), best->level);
    const bool again = cut.recomputed.value > 0;
    if (there && recomputed(w, *there) != cut.recomputed.value)
      fail(done, name + ": exact counts other operations than the model at small tiles");
    if (again != (std::ranges::find(recomputing, name) != recomputing.end()))
      fail(done,
           name + (again ? " recomputes" : " does not recompute") + " where its rows are cut");
    std::int64_t once = 0;
    for (const Operator& op : w.operators()) once += w.operations(*w.find_op(op.name)).value;
    const double must = static_cast<double>(w.compulsory_bytes().value);
    const double two = static_cast<double>(unfused_bytes(w));
    row.insert(
        row.end(),
        {j["order"].get<std::string>(), tiles_text(to_json(best->plan)["kernels"][0]["tiles"]),
         j["volume_bytes"].dump(), alone ? std::to_string(alone->total().value) : "-",
         alone ? share(recomputed(w, *alone), once) : "-", share(cut.recomputed.value, once),
         std::to_string(bytes_of(cut.volume, w.dtype()).value),
         there ? std::to_string(there->total().value) : "-", fixed(two, 0), fixed(must, 0),
         fixed(100 * (1 - must / two), 2)});
    sheet.add(std::move(row));
  }
  sheet.into(done);
  return done;
}

namespace {

/// How long the searches for a workload take: over one level, and over all.
ordered_json searched(const std::string& workload, const std::string& machine) {
  Request request = request_for(workload, machine);
  const Setting setting = setting_of(request);
  const auto search = [&](const std::optional<std::string>& level) {
    request.level = level;
    return propose(find_model("chimera"), request, setting);
  };
  const Result<Proposal> one = search(std::nullopt), all = search("all");
  if (!one || !all) return {{"reason", one ? all.reason() : one.reason()}};
  return {{"one_level_seconds", one->detail["search_seconds"]},
          {"all_levels_seconds", all->detail["search_seconds"]},
          {"candidates", all->detail["candidates"]}};
}

}  // namespace

Reproduced reproduce_searches(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "workloads", "paper", "must_hold"});
  const double most = top.at("must_hold").at("search_seconds").real();
  Reproduced done;
  done.holds = true;
  Sheet sheet({"workload", "orders", "distinct orders", "orders solved", "one level ms (measured)",
               "all levels ms (measured)"});
  double sum = 0;
  for (const Field& f : Rows(run, top.at("workloads").items())) {
    const ordered_json p = run.points.once(
        e.id, f.text(), [&] { return searched(f.text(), top.at("machine").text()); });
    if (p.contains("reason")) {
      fail(done, f.text() + ": " + p["reason"].get<std::string>());
      continue;
    }
    const double a = p["one_level_seconds"], b = p["all_levels_seconds"];
    sum += b;
    if (std::max(a, b) > most)
      fail(done, formatted("the search for {} took {:.3f} s", f.text(), b));
    const ordered_json& counted = p["candidates"];
    sheet.add({f.text(), counted["orders"].dump(), counted["distinct_orders"].dump(),
               counted["solves"].dump(), fixed(1e3 * a, 1), fixed(1e3 * b, 1)});
  }
  sheet.into(done);
  done.report += formatted("\nAll of them over all levels: {:.2f} s. ", sum);
  for (const Field& p : top.at("paper").items())
    done.report += formatted("The paper: {} ({}). ", p.at("says").text(), p.at("source").text());
  done.report += "\n";
  return done;
}

}  // namespace tilewright::harness
