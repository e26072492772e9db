// The methods `intensity`, `space`, `works`, `configurations` and `tuning`: MCFuser's tables and
// figures.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/ask.h"
#include "harness/parallel.h"
#include "harness/schedules.h"
#include "models/mcfuser/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

std::string milliseconds(double seconds) { return formatted("{:.3f}", 1e3 * seconds); }

}  // namespace

Reproduced reproduce_intensity(const Experiment& e) {
  const Field top =
      document_of(e, {"machine", "dtype", "product", "tile", "extents", "paper", "must_hold"});
  const double product = static_cast<double>(top.at("product").integer(1, INT64_MAX));
  const double tile = static_cast<double>(top.at("tile").integer(1, 1 << 20));
  const auto must = mcfuser::ratio_from_name(top.at("must_hold").at("reading").text());
  if (!must) top.at("must_hold").at("reading").fail("is not a reading", "written-once, printed");
  const Setting setting = setting_of(
      request_for("gemm:m=64,n=64,k=64,dtype=" + top.at("dtype").text(), top.at("machine").text()));
  const auto device =
      mcfuser::device_of(*setting.machine, setting.machine->default_level(), *setting.workload);
  Reproduced done;
  if (!device) {
    done.reason = device.reason();
    return done;
  }
  done.holds = true;
  const double threshold = device->peak / device->bandwidth * static_cast<double>(device->element);
  Sheet sheet({"K", "M = N", "phi written-once (predicted)", "phi printed (predicted)",
               "phi (paper)", "P/W (predicted)", "memory-bound (predicted)"});
  for (const Field& f : top.at("extents").items()) {
    const std::int64_t k = f.integer(1, INT32_MAX);
    const double m = std::sqrt(product / static_cast<double>(k));
    const auto phi = [&](mcfuser::Ratio reading) {
      return mcfuser::intensity(std::min(tile, m), std::min(tile, m), static_cast<double>(k),
                                reading);
    };
    std::string paper = "-";
    for (const Field& p : top.at("paper").items())
      if (p.at("k").integer(1, INT32_MAX) == k) {
        paper = p.at("phi").text();
        // The paper rounds one down and the other up: within one.
        done.compared.push_back(
            {.what = formatted("operations over elements moved (phi) at K = {}", k),
             .unit = "FLOP/element",
             .ours = phi(*must),
             .ours_source = "predicted (mcfuser)",
             .paper = p.at("phi").real()});
        if (std::abs(phi(*must) - p.at("phi").real()) >= 1)
          fail(done, formatted("phi at K = {} is {:.2f}, the paper's {}", k, phi(*must), paper));
      }
    const double one = phi(mcfuser::Ratio::written_once);
    sheet.add({std::to_string(k), formatted("{:.0f}", m), formatted("{:.2f}", one),
               formatted("{:.2f}", phi(mcfuser::Ratio::printed)), paper,
               formatted("{:.1f}", threshold), one < threshold ? "yes" : "no"});
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_space(const Experiment& e) {
  const Field top = document_of(e, {"workload", "machine", "paper", "must_hold"});
  const Request request = request_for(top.at("workload").text(), top.at("machine").text());
  const Result<mcfuser::Fused> on =
      mcfuser::fused_of(question_of(request, setting_of(request), find_model("mcfuser")));
  Reproduced done;
  if (!on) {
    done.reason = on.reason();
    return done;
  }
  done.holds = true;
  Sheet sheet({"reading of rules 1 and 4", "after", "expressions (predicted)",
               "tile tuples (predicted)", "candidates (predicted)", "removed here", "paper"});
  for (auto blocks : {mcfuser::Blocks::between, mcfuser::Blocks::always})
    for (auto shared : {mcfuser::Shared::loaded, mcfuser::Shared::all}) {
      const auto space =
          mcfuser::space_of(on->chain, on->device, {.blocks = blocks, .shared = shared});
      TW_CHECK(space.ok(), "the example's space can be counted");
      const bool standard =
          blocks == mcfuser::Options{}.blocks && shared == mcfuser::Options{}.shared;
      std::int64_t before = 0;
      for (const auto& c : space->counts) {
        std::string paper;
        if (standard)
          for (const Field& p : top.at("paper").items())
            if (p.at("rule").text() == c.rule)
              paper +=
                  (paper.empty() ? "" : "; ") + p.at("what").text() + ": " + p.at("value").text();
        const double removed =
            before > 0 ? 100 * (1 - static_cast<double>(c.candidates) / static_cast<double>(before))
                       : 0;
        sheet.add({formatted("{}, {}", mcfuser::name_of(blocks), mcfuser::name_of(shared)), c.rule,
                   std::to_string(c.expressions), std::to_string(c.tuples),
                   std::to_string(c.candidates), formatted("{:.3f} %", removed),
                   paper.empty() ? "-" : paper});
        before = c.candidates;
        if (!standard) continue;
        const Field must = top.at("must_hold");
        const auto hold = [&](const char* key, std::int64_t is) {
          const std::string name = key;
          done.compared.push_back({.what = name.starts_with("rule")
                                               ? "expressions left by rule " + name.substr(4)
                                               : name + " before the rules",
                                   .unit = "",
                                   .ours = static_cast<double>(is),
                                   .ours_source = "predicted (mcfuser)",
                                   .paper = must.at(key).real()});
          if (is != must.at(key).integer(1, INT64_MAX))
            fail(done, formatted("{} is {}, the paper's {}", key, is, must.at(key).text()));
        };
        if (c.rule == "generated") {
          hold("expressions", c.expressions);
          hold("candidates", c.candidates);
        } else if (c.rule == "rule1" || c.rule == "rule2") {
          hold(c.rule.c_str(), c.expressions);
        }
      }
    }
  sheet.into(done);
  return done;
}

Reproduced reproduce_works(const Experiment& e) {
  const Field top = document_of(e, {"workload", "machine", "columns", "rows"});
  const Request request = request_for(top.at("workload").text(), top.at("machine").text());
  const Result<mcfuser::Fused> on =
      mcfuser::fused_of(question_of(request, setting_of(request), find_model("mcfuser")));
  Reproduced done;
  if (!on) {
    done.reason = on.reason();
    return done;
  }
  done.holds = true;
  std::vector<std::string> header{"name"};
  for (const auto& entry : top.at("columns").entries())
    header.push_back(entry.second.text() + " (paper)");
  header.insert(header.end(), {"model here", "expressions, candidates after pruning (predicted)"});
  Sheet sheet(header);
  for (const Field& r : top.at("rows").items()) {
    std::vector<std::string> row{r.at("name").text()};
    for (const auto& entry : top.at("columns").entries())
      row.push_back(r.at("paper").at(entry.first).text());
    std::string model = "-", counted = "not here: no model of it";
    if (const auto named = r.get("model")) {
      model = find_model(named->text()).name;
      const auto space = mcfuser::space_of(on->chain, on->device, {.flat = model == "mcfuser"});
      TW_CHECK(space.ok(), "the example's space can be counted");
      counted = formatted("{} of {}, {}", space->counts.back().expressions,
                          space->counts.front().expressions, space->counts.back().candidates);
    }
    row.insert(row.end(), {model, counted});
    sheet.add(std::move(row));
  }
  sheet.into(done);
  return done;
}

namespace {

/// A model's best plan, with the time of its search (the least of three).
struct Searched {
  Result<Proposal> best = Reason{""};
  double seconds = 0;
};
Searched searched(const char* model, const Request& request, const Setting& setting) {
  Searched out;
  out.seconds = INFINITY;
  for (int i = 0; i < 3; ++i) {
    out.best = propose(find_model(model), request, setting);
    if (!out.best) return out;
    out.seconds = std::min(out.seconds, out.best->detail["search_seconds"].get<double>());
  }
  return out;
}

std::string tiles_text(const ordered_json& tiles) {
  std::string text;
  for (const auto& [loop, size] : tiles.items())
    text += (text.empty() ? "" : " ") + loop + "=" + size.dump();
  return text;
}

}  // namespace

Reproduced reproduce_configurations(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "columns", "rows"});
  std::vector<std::string> header{"workload"};
  for (const auto& [column, loop] : top.at("columns").entries())
    header.push_back(column + " (paper)");
  for (const char* name :
       {"the same here", "memory-bound", "MCFuser expression", "tiles", "us", "bytes",
        "exact bytes", "search ms", "MCFuser-Chimera expression", "us", "search ms"})
    header.emplace_back(name);
  Reproduced done;
  done.holds = true;
  Sheet sheet(header);
  for (const Field& r : Rows(run, top.at("rows").items())) {
    const std::string name = r.at("workload").text();
    const Request request = request_for(name, top.at("machine").text());
    const Setting setting = setting_of(request);
    std::vector<std::string> row{name};
    bool same = true;
    for (const auto& entry : top.at("columns").entries()) {
      const std::int64_t paper = r.at("paper").at(entry.first).integer(1, INT32_MAX);
      const auto loop = setting.workload->find_loop(entry.second.text());
      // A batch of one has no loop.
      same = same && paper == (loop ? setting.workload->loop(*loop).extent : 1);
      row.push_back(std::to_string(paper));
    }
    if (!same) fail(done, name + " has other sizes than the paper's row");
    row.emplace_back(same ? "yes" : "no");
    const Result<mcfuser::Fused> on =
        mcfuser::fused_of(question_of(request, setting, find_model("mcfuser")));
    const Searched own = searched("mcfuser", request, setting);
    const Searched nested = searched("mcfuser-chimera", request, setting);
    if (!on || !own.best || !nested.best) {
      fail(done,
           name + ": " + (on ? own.best ? nested.best.reason() : own.best.reason() : on.reason()));
      continue;
    }
    const auto bound = mcfuser::intensities(on->chain, on->device, {});
    row.emplace_back(std::ranges::all_of(bound, &mcfuser::Intensity::memory_bound) ? "yes" : "no");
    const Result<Alone> alone = alone_at(setting, own.best->plan, own.best->level);
    const ordered_json& a = own.best->detail;
    const ordered_json& b = nested.best->detail;
    const auto us = [](const ordered_json& j) {
      return formatted("{:.2f}", 1e6 * j["seconds"].get<double>());
    };
    row.insert(row.end(),
               {a["expression_paper"].get<std::string>(), tiles_text(a["expression_tiles"]), us(a),
                a["volume_bytes"].dump(), alone ? std::to_string(alone->total().value) : "-",
                milliseconds(own.seconds), b["expression_paper"].get<std::string>(), us(b),
                milliseconds(nested.seconds)});
    sheet.add(std::move(row));
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_tuning(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "groups"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"what", "system", "seconds (paper, tuning on an A100 server)",
               "seconds (measured here, search with the model alone, sum of the rows)", "why not"});
  for (const Field& g : Rows(run, top.at("groups").items())) {
    for (const auto& entry : g.at("paper_seconds").entries()) {
      const std::string& system = entry.first;
      const char* model = system == "MCFuser"           ? "mcfuser"
                          : system == "MCFuser-Chimera" ? "mcfuser-chimera"
                                                        : nullptr;
      std::string ours = "-", why = "this system is not available here";
      if (model != nullptr && g.get("workloads")) {
        double sum = 0;
        for (const Field& w : g.at("workloads").items()) {
          const Request request = request_for(w.text(), top.at("machine").text());
          const Searched s = searched(model, request, setting_of(request));
          if (!s.best) {
            fail(done, w.text() + ": " + s.best.reason());
            continue;
          }
          sum += s.seconds;
        }
        ours = formatted("{:.5f}", sum);
        why = "-";
        done.compared.push_back({.what = formatted("{}, {}", g.at("name").text(), system),
                                 .unit = "seconds",
                                 .ours = sum,
                                 .ours_source = "measured (clock), the search with the model alone",
                                 .paper = entry.second.real()});
      } else if (!g.get("workloads")) {
        why = "end-to-end networks are not available here";
      }
      sheet.add({g.at("name").text(), system, entry.second.text(), ours, why});
    }
  }
  sheet.into(done);
  return done;
}

Reproduced reproduce_comparison(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "workloads"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"workload", "plan of", "bound bytes", "exact bytes", "simulated bytes", "gap",
               "chimera bytes (predicted)", "mcfuser bytes (predicted)", "mcfuser us (predicted)",
               "largest difference of mcfuser's price", "its cause"});
  const auto workloads = top.at("workloads").items();
  std::vector<ordered_json> answers(workloads.size());
  parallel_for(
      workloads.size(), threads_of(run.request),
      [&](std::size_t i) {
        const std::string name = workloads[i].text();
        answers[i] = run.points.once(e.id, name, [&] {
          return compare(request_for(name, top.at("machine").text()),
                         "chimera,mcfuser,mcfuser-chimera,bounds",
                         std::numeric_limits<double>::infinity())
              .json;
        });
      },
      run.request.progress, "comparing");
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const Field& w = workloads[i];
    for (const ordered_json& p : answers[i]["plans"]) {
      std::vector<std::string> row{w.text(), p["model"].get<std::string>(),
                                   answers[i]["bound_bytes"].dump()};
      if (!p.contains("prices")) {
        row.resize(10, "-");
        row.push_back(p["reason"].get<std::string>());
        sheet.add(std::move(row));
        continue;
      }
      if (p["simulated_bytes"] != p["exact_bytes"])
        fail(done, w.text() + ": " + row[1] +
                       "'s plan: " + p.value("simulated_reason", "exact and the simulator differ"));
      row.insert(row.end(), {p["exact_bytes"].dump(), p["simulated_bytes"].dump(),
                             formatted("{:.3f}", p["gap"].get<double>())});
      std::string chimera = "-", bytes = "-", us = "-", least = "-", cause = "-";
      for (const ordered_json& price : p["prices"]) {
        if (!price.contains("volume_bytes")) continue;
        if (price["by"] == "chimera") chimera = price["volume_bytes"].dump();
        if (price["by"] != "mcfuser") continue;
        bytes = price["volume_bytes"].dump();
        us = formatted("{:.2f}", 1e6 * price["seconds"].get<double>());
        std::int64_t most = 0;
        for (const ordered_json& c : price["causes"]) {
          const auto n = c["bytes"].get<std::int64_t>();
          if (std::abs(n) <= std::abs(most)) continue;
          most = n;
          least = c["tensor"].get<std::string>() + " " + std::to_string(n);
          cause = c["cause"].get<std::string>();
        }
      }
      row.insert(row.end(), {chimera, bytes, us, least, cause});
      sheet.add(std::move(row));
    }
  }
  sheet.into(done);
  return done;
}

}  // namespace tilewright::harness
