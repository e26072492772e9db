// The methods `units` and `steps`: Souffle's tables, from tensors read a kernel and from our plans.
#include <algorithm>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "models/souffle/model.h"

namespace tilewright::harness {
namespace {

/// The options of a step of table 4.
souffle::Options options_of_step(int step) {
  return {.horizontal = step >= 1,
          .concat = step >= 1,
          .pack = step >= 1,
          .vertical = step >= 2,
          .global_sync = step >= 3,
          .reuse = step >= 4};
}

struct StepCount {
  std::size_t kernels = 0;
  int syncs = 0;
  std::int64_t read = 0;
  double seconds = 0;
};

StepCount counted(const std::string& workload, const std::string& machine,
                  const souffle::Options& o) {
  const Question q{.name = workload,
                   .workload = std::make_shared<const Workload>(named_workload(workload)),
                   .machine = std::make_shared<const Machine>(named_machine(machine))};
  const Result<souffle::Planned> p = souffle::planned(q, o);
  if (!p)
    throw InputError({.where = "workload",
                      .value = workload,
                      .problem = p.reason(),
                      .accepted = "workloads and machines that Souffle takes"});
  StepCount c{.kernels = p->plan.kernels.size(),
              .read = p->counts.read().value,
              .seconds = p->counts.seconds()};
  for (const souffle::KernelCount& k : p->counts.kernels) c.syncs += k.phases - 1;
  return c;
}

/// Operators in their order, so many a subprogram, in turn: each subprogram planned by itself.
StepCount counted_in_turn(const std::string& workload, const std::string& machine,
                          const std::vector<std::int64_t>& sizes) {
  const auto w = std::make_shared<const Workload>(named_workload(workload));
  const auto m = std::make_shared<const Machine>(named_machine(machine));
  const auto order = w->topological_order();
  StepCount all;
  for (std::size_t at = 0, turn = 0; at < order.size(); ++turn) {
    const auto size =
        std::min(order.size() - at, static_cast<std::size_t>(sizes[turn % sizes.size()]));
    std::vector<OpId> ops(order.begin() + static_cast<std::ptrdiff_t>(at),
                          order.begin() + static_cast<std::ptrdiff_t>(at + size));
    std::ranges::sort(ops);
    at += size;
    const Question q{.name = workload,
                     .workload = std::make_shared<const Workload>(subgraph(*w, ops)),
                     .machine = m};
    souffle::Options o;
    o.split = souffle::Split::none;
    const Result<souffle::Planned> p = souffle::planned(q, o);
    if (!p)
      throw InputError({.where = "subprogram",
                        .value = w->op(ops.front()).name,
                        .problem = p.reason(),
                        .accepted = "operators that have a plan of their own"});
    all.kernels += p->plan.kernels.size();
    all.read += p->counts.read().value;
    all.seconds += p->counts.seconds();
    for (const souffle::KernelCount& k : p->counts.kernels) all.syncs += k.phases - 1;
  }
  return all;
}

std::optional<double> number_at(const Field& f, const char* key) {
  const auto found = f.get(key);
  return found ? std::optional(found->real()) : std::nullopt;
}

}  // namespace

/// Every kernel reads its operands once: their sum in units of one activation, beside what was
/// counted.
Reproduced reproduce_units(const Experiment& e) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "difference", "rows", "columns", "size",
            "systems"});
  const std::int64_t unit = top.at("rows").integer(1, std::int64_t{1} << 40) *
                            top.at("columns").integer(1, std::int64_t{1} << 40) *
                            top.at("size").integer(1, std::int64_t{1} << 40);
  Reproduced done;
  done.holds = true;
  done.report =
      formatted("One unit is {} x {} elements of {} bytes: {} bytes.\n\n", top.at("rows").text(),
                top.at("columns").text(), top.at("size").text(), unit);
  Sheet sheet({"system", "kernel", "units", "times", "bytes"});
  for (const Field& system : top.at("systems").items()) {
    const std::int64_t times = system.at("times").integer(1, std::int64_t{1} << 40);
    std::int64_t units = 0, kernels = 0;
    for (const Field& k : system.at("kernels").items()) {
      const std::int64_t n = k.at("units").integer(1, std::int64_t{1} << 40);
      units += n;
      ++kernels;
      sheet.add({system.at("name").text(), k.at("name").text(), std::to_string(n),
                 std::to_string(times), std::to_string(n * unit * times)});
    }
    const std::int64_t bytes = units * unit * times;
    sheet.add({system.at("name").text(), formatted("all {}", kernels), std::to_string(units),
               std::to_string(times), std::to_string(bytes)});
    const std::string name = system.at("name").text();
    const auto paper = number_at(system, "paper_megabytes");
    done.compared.push_back({.what = name + ": bytes loaded",
                             .unit = "bytes",
                             .ours = static_cast<double>(bytes),
                             .ours_source = "derived (units)",
                             .paper = paper ? std::optional(1e6 * *paper) : std::nullopt});
    done.compared.push_back({.what = name + ": kernels",
                             .unit = "kernels",
                             .ours = static_cast<double>(kernels * times),
                             .ours_source = "derived (units)",
                             .paper = number_at(system, "paper_kernels")});
    const std::int64_t derived = system.at("derived").integer(1, std::int64_t{1} << 40);
    if (bytes != derived) fail(done, formatted("{} has {} bytes, not {}", name, bytes, derived));
  }
  sheet.into(done);
  return done;
}

/// Table 4's steps by our plans, and kernels where subprograms end by the paper's rule and before
/// each compute-intensive operator.
Reproduced reproduce_steps(const Experiment& e, const Run& run) {
  const Field top(*e.document, e.where);
  top.only(
      {"id", "title", "source", "method", "about", "difference", "machine", "rows", "paper_means"});
  const std::string default_machine = top.at("machine").text();
  double sync_gains = 0, reuse_gains = 0;
  Reproduced done;
  done.holds = true;
  Sheet sheet(
      {"network", "step", "kernels", "barriers", "bytes from home (predicted)", "us (predicted)"});
  for (const Field& row : Rows(run, top.at("rows").items())) {
    const std::string name = row.at("name").text(), workload = row.at("workload").text();
    const auto own = row.get("machine");
    const std::string machine = own ? own->text() : default_machine;
    const auto add = [&](const std::string& step, const StepCount& c) {
      sheet.add({name, step, std::to_string(c.kernels), std::to_string(c.syncs),
                 std::to_string(c.read), formatted("{:.1f}", 1e6 * c.seconds)});
    };
    std::vector<StepCount> steps;
    for (int step = 0; step <= 4; ++step) {
      steps.push_back(counted(workload, machine, options_of_step(step)));
      add(formatted("V{}", step), steps.back());
      if (step > 0 && steps[static_cast<std::size_t>(step - 1)].kernels < steps.back().kernels)
        fail(done, formatted("{} has more kernels in V{} than in V{}", name, step, step - 1));
    }
    if (steps[4].read > steps[3].read)
      fail(done, name + " reads more with tiles that stay on chip");
    if (steps[4].seconds > steps[0].seconds)
      fail(done, name + " is predicted slower in V4 than in V0");
    souffle::Options each;
    each.split = souffle::Split::contractions;
    const StepCount apart = counted(workload, machine, each);
    add("V4, a subprogram for each compute-intensive operator", apart);
    std::optional<StepCount> in_turn;
    if (const auto turns = row.get("operators_a_subprogram")) {
      std::vector<std::int64_t> sizes;
      std::string text;
      for (const Field& n : turns->items()) {
        sizes.push_back(n.integer(1, 1 << 20));
        text += (text.empty() ? "" : " and ") + std::to_string(sizes.back());
      }
      if (sizes.empty()) turns->fail("has no number", "numbers of operators");
      in_turn = counted_in_turn(workload, machine, sizes);
      add("V4, subprograms of " + text + " operators in turn", *in_turn);
    }
    if (const auto paper = row.get("paper_ms")) {
      const std::vector<Field> ms = paper->items();
      if (ms.size() != 5) paper->fail("are not five times", "V0 to V4");
      for (std::size_t step = 1; step < 5; ++step)
        done.compared.push_back({.what = formatted("{}: time of V0 over V{}", name, step),
                                 .unit = "times",
                                 .ours = steps[0].seconds / steps[step].seconds,
                                 .ours_source = "predicted (souffle)",
                                 .paper = ms[0].real() / ms[step].real()});
    }
    sync_gains += steps[0].seconds / steps[3].seconds;
    reuse_gains += steps[0].seconds / steps[4].seconds;
    if (const auto paper = row.get("paper_us")) {  // of the versions that a figure has
      const std::vector<Field> us = paper->items();
      if (us.size() != 4)
        paper->fail("are not four times", "unfused, fused, with barriers, with reuse");
      for (std::size_t i = 1; i < 4; ++i)
        done.compared.push_back({.what = formatted("{}: time of V0 over V{}", name, i + 1),
                                 .unit = "times",
                                 .ours = steps[0].seconds / steps[i + 1].seconds,
                                 .ours_source = "predicted (souffle)",
                                 .paper = us[0].real() / us[i].real()});
    }
    if (const auto paper = number_at(row, "paper_end_ms"))
      done.compared.push_back({.what = name + ": end to end",
                               .unit = "ms",
                               .ours = 1e3 * steps[4].seconds,
                               .ours_source = "predicted (souffle)",
                               .paper = paper});
    if (const auto paper = number_at(row, "paper_kernels")) {
      done.compared.push_back({.what = name + ": kernels by the criterion",
                               .unit = "kernels",
                               .ours = static_cast<double>(steps[4].kernels),
                               .ours_source = "predicted (souffle)",
                               .paper = paper});
      done.compared.push_back({.what = name + ": kernels, one for each compute-intensive operator",
                               .unit = "kernels",
                               .ours = static_cast<double>(apart.kernels),
                               .ours_source = "predicted (souffle)",
                               .paper = paper});
    }
    if (in_turn)
      done.compared.push_back({.what = name + ": kernels by the paper's subprograms",
                               .unit = "kernels",
                               .ours = static_cast<double>(in_turn->kernels),
                               .ours_source = "predicted (souffle)",
                               .paper = number_at(row, "paper_kernels")});
    if (in_turn)
      if (const auto paper = number_at(row, "paper_megabytes"))
        done.compared.push_back({.what = name + ": bytes loaded by the paper's subprograms",
                                 .unit = "bytes",
                                 .ours = static_cast<double>(in_turn->read),
                                 .ours_source = "predicted (souffle)",
                                 .paper = 1e6 * *paper});
    if (const auto paper = number_at(row, "paper_megabytes"))
      done.compared.push_back({.what = name + ": bytes loaded",
                               .unit = "bytes",
                               .ours = static_cast<double>(steps[4].read),
                               .ours_source = "predicted (souffle)",
                               .paper = 1e6 * *paper});
    if (const auto paper = number_at(row, "paper_reloaded_megabytes"))
      done.compared.push_back({.what = name + ": bytes loaded without reuse over steps",
                               .unit = "bytes",
                               .ours = static_cast<double>(steps[2].read),
                               .ours_source = "predicted (souffle)",
                               .paper = 1e6 * *paper});
  }
  if (const auto means = top.get("paper_means")) {
    const auto rows = static_cast<double>(top.at("rows").items().size());
    const auto mean = [&](const char* step, double gains) {
      done.compared.push_back({.what = formatted("time of V0 over {}, mean", step),
                               .unit = "times",
                               .ours = gains / rows,
                               .ours_source = "predicted (souffle)",
                               .paper = means->at(step).real()});
    };
    mean("V3", sync_gains);
    mean("V4", reuse_gains);
  }
  sheet.into(done);
  done.note =
      "V0: a kernel for each operator. V1: horizontal transformations. V2: vertical ones as well. "
      "V3: "
      "barriers of all blocks as well. V4: tiles that stay on chip as well.";
  return done;
}

}  // namespace tilewright::harness
