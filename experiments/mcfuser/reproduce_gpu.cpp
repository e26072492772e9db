// The method `blocks`: what a tiled product moves on a GPU by size, simulated block by block,
// beside what hardware counted.
#include "core/base/format.h"
#include "core/plan/file.h"
#include "experiments/report/experiment.h"
#include "harness/statistics.h"
#include "simulator/gpu/gpu.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Bytes of all tensors into the inner level of a boundary, or out of it.
std::int64_t bytes_at(const ordered_json& traffic, const std::string& inner, const char* key) {
  std::int64_t sum = 0;
  for (const ordered_json& e : traffic) {
    const std::string boundary = e["boundary"];
    if (boundary.substr(boundary.find('/') + 1) == inner) sum += e[key].get<std::int64_t>();
  }
  return sum;
}

std::string gigabytes(std::int64_t bytes) {
  return formatted("{:.3f}", static_cast<double>(bytes) / 1e9);
}

ordered_json simulated(const Field& top, const Field& row, const Request& request) {
  Request asked;
  const std::int64_t n = row.at("n").integer(1, 1 << 20), tile = row.at("tile").integer(1, 1024);
  asked.subject = formatted("gemm:m={0},n={0},k={0}", n);
  asked.machine = top.at("machine").text();
  asked.tree = top.at("tree").text();
  asked.tiles =
      formatted("m={0},n={0},k={1}", tile, std::min(n, top.at("k_tile").integer(1, 1024)));
  asked.threads = request.threads;
  WalkOptions how;
  if (const auto waves = row.get("sample_waves")) how.sample_waves = waves->integer(1, 1'000'000);
  if (const auto blocks = row.get("blocks_per_sm")) how.blocks_per_sm = blocks->integer(1, 64);
  const Answer answer = simulate(asked, how);
  if (!answer.ok())
    row.fail("cannot be simulated: " + answer.json.value("reason", std::string()),
             "a size and a tile that fit");
  const ordered_json& j = answer.json;
  const ordered_json& kernel = j["gpu"]["kernels"].front();
  return {{"n", n},
          {"tile", tile},
          {"blocks", kernel["blocks"]},
          {"resident_blocks", kernel["resident_blocks"]},
          {"approximate", j["gpu"]["approximate"]},
          {"compulsory_bytes", 3 * n * n * 4},
          {"dram_read_bytes", bytes_at(j["traffic"], "L2", "read_bytes")},
          {"dram_written_bytes", bytes_at(j["traffic"], "L2", "written_bytes")},
          {"sm_read_bytes", bytes_at(j["traffic"], "shared", "read_bytes")},
          {"measured_dram_read_bytes", nullptr},
          {"measured_sm_read_bytes", nullptr},
          {"error", nullptr}};
}

/// Puts what was counted beside it.
void put_measured(ordered_json& point, const Field& measured) {
  measured.only({"dram_read_bytes", "sm_read_bytes", "source"});
  const double counted = measured.at("dram_read_bytes").real();
  point["measured_dram_read_bytes"] = counted;
  point["measured_sm_read_bytes"] = measured.at("sm_read_bytes").real();
  point["measured_source"] = measured.at("source").text();
  point["error"] = point["dram_read_bytes"].get<double>() / counted - 1;
}

/// All rows that were counted, and what must hold of them: `error` of each, `mean_error`, and
/// `min_r2` about y = x.
void judge(Reproduced& done, const Field& must_hold) {
  must_hold.only({"error", "mean_error", "min_r2"});
  std::vector<double> simulated, counted;
  for (const ordered_json& p : done.result["points"]) {
    if (p["error"].is_null()) continue;
    simulated.push_back(p["dram_read_bytes"].get<double>());
    counted.push_back(p["measured_dram_read_bytes"].get<double>());
  }
  const Agreement a = agreement(simulated, counted);
  ordered_json& json = done.result["agreement"] = {{"counted", counted.size()}};
  merge(json, to_json(a));
  json.erase("r2_fit");
  done.report +=
      formatted("\n{} counted: R² about y = x {}, mean error {} %, worst {} %\n", counted.size(),
                fixed_or_dash(json["r2_identity"], 4), fixed_or_dash(json["mape"], 2, 100),
                fixed_or_dash(json["worst"], 2, 100));
  const auto fails = [&](const char* key, const std::optional<double>& value, bool at_least) {
    const auto wanted = must_hold.get(key);
    if (!wanted) return;
    if (value && (at_least ? *value >= wanted->real() : *value <= wanted->real())) return;
    fail(done, formatted("{} is {}, and must be {} {}", key,
                         value ? fixed_or_dash(value, 4) : "not defined (" + a.undefined + ")",
                         at_least ? "at least" : "at most", wanted->real()));
  };
  fails("error", a.worst, false);
  fails("mean_error", a.mape, false);
  if (counted.size() > 1) fails("min_r2", a.r2_identity, true);
}

/// The table's Markdown and the points' CSV.
void write_report(Reproduced& done) {
  std::string head = "|", line = "|";
  for (const ordered_json& c : done.result["columns"]) {
    head += " " + c.get<std::string>() + " |";
    line += "---|";
  }
  done.report = head + "\n" + line + "\n";
  for (const ordered_json& row : done.result["table"]) {
    for (const ordered_json& c : row) done.report += "| " + c.get<std::string>() + " ";
    done.report += "|\n";
  }
  constexpr const char* kKeys[] = {"n",
                                   "tile",
                                   "blocks",
                                   "resident_blocks",
                                   "approximate",
                                   "compulsory_bytes",
                                   "dram_read_bytes",
                                   "dram_written_bytes",
                                   "sm_read_bytes",
                                   "measured_dram_read_bytes"};
  for (const char* key : kKeys) done.csv += (key == kKeys[0] ? "" : ",") + std::string(key);
  done.csv += "\n";
  for (const ordered_json& p : done.result["points"]) {
    for (const char* key : kKeys)
      done.csv += (key == kKeys[0] ? "" : ",") + (p[key].is_null() ? "" : p[key].dump());
    done.csv += "\n";
  }
}

std::vector<std::string> cells(const ordered_json& p) {
  const bool counted = !p["error"].is_null();
  const auto bytes = [&](const char* key) { return gigabytes(p[key].get<std::int64_t>()); };
  const auto measured = [&](const char* key) {
    return counted ? formatted("{:.2f}", p[key].get<double>() / 1e9) : std::string("-");
  };
  return {formatted("{}", p["n"].get<std::int64_t>()),
          formatted("{0}x{0}", p["tile"].get<std::int64_t>()),
          formatted("{}{}", p["blocks"].get<std::int64_t>(),
                    p["approximate"].get<bool>() ? ", sampled" : ""),
          formatted("{}", p["resident_blocks"].get<std::int64_t>()),
          bytes("compulsory_bytes"),
          bytes("dram_read_bytes"),
          bytes("dram_written_bytes"),
          bytes("sm_read_bytes"),
          measured("measured_dram_read_bytes"),
          measured("measured_sm_read_bytes"),
          counted ? formatted("{:+.1f} %", 100 * p["error"].get<double>()) : "-"};
}

}  // namespace

Reproduced reproduce_blocks(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "tree", "k_tile", "rows", "must_hold"});
  Reproduced done;
  done.holds = true;
  done.result["points"] = ordered_json::array();
  done.result["columns"] = {"n",          "block",
                            "blocks",     "resident",
                            "A, B, C GB", "DRAM read GB",
                            "written GB", "into SMs GB",
                            "counted GB", "counted into SMs GB",
                            "error"};
  done.result["table"] = ordered_json::array();
  for (const Field& row : top.at("rows").items()) {
    row.only({"n", "tile", "sample_waves", "blocks_per_sm", "measured"});
    const auto count = static_cast<double>(top.at("rows").items().size());
    if (run.request.progress)
      run.request.progress("simulating", static_cast<double>(done.result["points"].size()) / count);
    const std::string key = formatted("n={} tile={}", row.at("n").text(), row.at("tile").text());
    ordered_json point =
        run.points.once(e.id, key, [&] { return simulated(top, row, run.request); });
    if (const auto measured = row.get("measured")) {
      put_measured(point, *measured);
      done.compared.push_back({.what = key + ", read from DRAM; the paper's: counted",
                               .unit = "bytes",
                               .ours = point["dram_read_bytes"].get<double>(),
                               .ours_source = "simulated (gpu)",
                               .paper = point["measured_dram_read_bytes"].get<double>(),
                               .paper_source = point["measured_source"].get<std::string>()});
    }
    done.result["table"].push_back(cells(point));
    done.result["points"].push_back(std::move(point));
  }
  write_report(done);
  judge(done, top.at("must_hold"));
  return done;
}

}  // namespace tilewright::harness
