// run of a network: the whole, what it was held against, and with --profile a line a kernel.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string line(const char* name, const std::string& value) {
  return formatted("{:<16} {}", name, folded(value, 17, 17));
}

std::string number(const ordered_json& value, const char* form) {
  return value.is_number() ? formatted(fmt::runtime(form), value.get<double>()) : "-";
}

std::string in_units(const ordered_json& value) {
  return value.is_number() ? human_bytes(value.get<std::int64_t>()) : "-";
}

std::string threads(const ordered_json& n) {
  return formatted("{} thread{}", n.get<int>(), n == 1 ? "" : "s");
}

/// The first few names, and how many there are.
std::string names(const ordered_json& all, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < all.size() && i < most; ++i)
    out += (i == 0 ? "" : ", ") + all[i].get<std::string>();
  if (all.size() > most) out += formatted(" and {} more", all.size() - most);
  return out;
}

std::string outputs(const ordered_json& all, const char* name) {
  std::string out;
  for (const ordered_json& o : all)
    out += line("", formatted("{} ({}): relative error {}", text(o, name), text(o, "dtype"),
                              number(o["relative_error"], "{:.2g}")));
  return out;
}

std::string beside(const ordered_json& j) {
  if (!j["available"].get<bool>()) return line("onnxruntime", "not compared: " + text(j, "reason"));
  return line("onnxruntime",
              formatted("{}, {}: median {}, least {}, of {} runs; ours takes {} times as long",
                        text(j, "version"), threads(j["threads"]), seconds(j["seconds_median"]),
                        seconds(j["seconds_min"]), text(j, "runs"), number(j["ratio"], "{:.2f}"))) +
         outputs(j["outputs"], "name") +
         (j.contains("saturation_error") && j["saturation_error"] != 0
              ? line("", formatted("held against its exact sums; by default, as timed, it adds "
                                   "products of bytes in 16 bits here, which saturate: off by {}",
                                   number(j["saturation_error"], "{:.2g}")))
              : "") +
         (text(j, "agrees_by") == "what rounding explains"
              ? line("",
                     "its result is off by no more than rounding explains, or by a few times what "
                     "it moves ours")
              : "");
}

std::string profile(const ordered_json& kernels) {
  double all = 0;
  for (const ordered_json& k : kernels)
    if (k["seconds"].is_number()) all += k["seconds"].get<double>();
  Table table({"kernel", "by", "predicted us", "us", "share", "B", "GFLOP/s", "roof", "operators"});
  std::size_t once = 0;
  for (const ordered_json& k : kernels) {
    if (k["once"].get<bool>()) {
      ++once;
      continue;
    }
    const double s = k["seconds"].get<double>();
    const ordered_json& moved =
        k["exact_bytes"].is_null() ? k["compulsory_bytes"] : k["exact_bytes"];
    table.add({text(k, "kernel"), text(k, "model"), microseconds(k["predicted_seconds"], 1),
               microseconds(k["seconds"], 1), formatted("{:.1f} %", 100 * s / all), cell(moved),
               formatted("{:.1f}", k["flops"].get<double>() / s * 1e-9),
               k["roof"].is_null() ? "-" : formatted("{:.0f} %", 100 * k["roof"].get<double>()),
               names(k["operators"], 4)});
  }
  return "\n" + table.text() +
         (once == 0 ? "" : formatted("{} kernels of weights alone ran once, before\n", once));
}

std::string prediction(const ordered_json& p) {
  return formatted(
      "predicted seconds of {} kernels are off by {:.0f} % on average, {:.0f} % by seconds, and at "
      "worst {:.0f} % ({}); of all together they are {:.2f} of the measured\n",
      text(p, "kernels"), 100 * p["mean_error"].get<double>(),
      100 * p["mean_error_by_seconds"].get<double>(), 100 * p["worst_error"].get<double>(),
      text(p, "worst_kernel"), p["whole"].get<double>());
}

/// "-" where the model refuses the layer, or bytes are not known.
std::string plan_bytes(const ordered_json& plan) {
  return plan.contains("bytes") ? cell(plan["bytes"]) : "-";
}

std::vector<std::string> planners(const ordered_json& models) {
  std::vector<std::string> some;
  for (const ordered_json& m : models)
    if (m["layers"] != 0) some.push_back(m["model"]);
  return some;
}

/// Bytes of every layer by every model that plans some, and the times of the operators alone and of
/// the last model's plans, which is the planning model's.
std::string layer_rows(const ordered_json& j) {
  const std::vector<std::string> models = planners(j["models"]);
  std::vector<std::string> header{"layer", "times", "operators", "alone B"};
  header.insert(header.end(), models.begin(), models.end());
  for (const char* name : {"bound B", "alone us", "us"}) header.emplace_back(name);
  Table table(header);
  for (const ordered_json& l : j["layers"]) {
    std::vector<std::string> row{text(l, "layer"), text(l, "count"), cell(l["operators"].size()),
                                 plan_bytes(l["unfused"])};
    for (const std::string& m : models) row.push_back(plan_bytes(l["plans"][m]));
    row.push_back(text(l, "bound_bytes"));
    row.push_back(microseconds(get(l["unfused"], "seconds"), 1));
    const std::string& last = models.empty() ? "" : models.back();
    row.push_back(
        microseconds(models.empty() ? ordered_json() : get(l["plans"][last], "seconds"), 1));
    table.add(row);
  }
  return table.text();
}

std::string reasons(const ordered_json& m) {
  if (m["reasons"].empty()) return "";
  const ordered_json& first = m["reasons"].front();
  const std::size_t more = m["reasons"].size() - 1;
  return formatted(
      "refuses {} layer{}: {}{}", text(m, "refused"), m["refused"] == 1 ? "" : "s",
      text(first, "reason"),
      more == 0 ? "" : formatted(" (and {} other reason{})", more, more == 1 ? "" : "s"));
}

}  // namespace

std::string layers_table(const ordered_json& j, bool each) {
  std::string out =
      formatted("{} on {}, level {}: {} operators, {} of weights alone; {} kinds of layers\n\n",
                text(j, "workload"), text(j, "machine"), text(j, "level"), text(j, "operators"),
                text(j, "prepared_operators"), j["layers"].size());
  if (each) out += layer_rows(j) + "\n";
  Table table({"the whole, by", "layers", "kernels", "bytes", "of the operators alone", "us", ""});
  const ordered_json& alone = j["unfused"];
  const auto share = [&](const ordered_json& bytes) {
    if (!bytes.is_number() || !alone["bytes"].is_number()) return std::string("-");
    return formatted("{:.3f}", bytes.get<double>() / alone["bytes"].get<double>());
  };
  table.add({"operators alone", "", text(alone, "kernels"), cell(alone["bytes"]),
             share(alone["bytes"]), microseconds(alone["seconds"], 1), ""});
  for (const ordered_json& m : j["models"]) {
    const bool none = m["layers"] == 0;
    table.add({text(m, "model"), text(m, "layers"), none ? "-" : text(m, "kernels"),
               none ? "-" : cell(m["bytes"]), none ? "-" : share(m["bytes"]),
               none ? "-" : microseconds(m["seconds"], 1), reasons(m)});
  }
  table.add({"bound, by layer", "", "", text(j, "bound_bytes"), share(j["bound_bytes"]), "", ""});
  table.add({"bound, in one kernel", "", "", text(j, "compulsory_bytes"),
             share(j["compulsory_bytes"]), "", ""});
  out += table.text();
  if (j.contains("counted")) out += "\n" + line("counted", text(j, "counted"));
  return out;
}

std::string network_table(const ordered_json& j) {
  std::string out =
      line("kernels", formatted("{} launches of {} kernels; planned in {}, built in {}",
                                text(j, "launches"), text(j, "compiled"),
                                seconds(j["plan_seconds"]), seconds(get(j, "build_seconds"))));
  for (const ordered_json& note : j["notes"]) out += line("note", note.get<std::string>());
  if (!j.contains("verified")) return out;
  if (j["verified"].get<bool>()) {
    const int own = j["kernels_on_network_values"].get<int>();
    out += line("verified",
                formatted("every kernel alone: {} with drawn inputs, {} with the network's values; "
                          "relative error {} at most",
                          j["kernels_verified"].get<int>() - own, own,
                          number(j["kernels_relative_error"], "{:.2g}")));
    if (text(j, "verified_by") != "the whole")
      out += line("",
                  "the whole is too sensitive to rounding to be compared: each launch is right "
                  "on what it has in the network");
    out += line("", "the whole, relative to the largest element:");
  }
  if (j.contains("outputs")) out += outputs(j["outputs"], "tensor");
  if (j.contains("kernels_tuned"))
    out += line("tuned", formatted("{} of {} kernels are another choice of the planner's, which "
                                   "took less time alone",
                                   text(j, "kernels_tuned"), text(j, "compiled")));
  out += line("drawn", names(j["drawn"], 6) + formatted(" (seed {})", text(j, "seed")));
  if (j["weights"] != 0)
    out += line("weights",
                formatted("{} from the file, {}", text(j, "weights"), in_units(j["weight_bytes"])));
  if (!j.contains("seconds_median")) return out;
  out += line("memory", formatted("{} between kernels, in an arena of {}",
                                  in_units(j["handed_on_bytes"]), size(j["arena_bytes"])));
  out += line("time",
              formatted("median {}, least {}, of {} runs {}; predicted {}",
                        seconds(j["seconds_median"]), seconds(j["seconds_min"]), text(j, "runs"),
                        j.contains("device") ? "on " + text(j["device"], "name")
                                             : "on " + threads(j["threads"]),
                        seconds(j["predicted_seconds"])));
  if (j.contains("timed_by"))
    out += line("", text(j, "timed_by") + "; launches " + text(j, "launches_timed_by"));
  out += line("speed", number(j["gflops"], "{:.1f}") + " GFLOP/s");
  if (j.contains("onnxruntime")) out += beside(j["onnxruntime"]);
  if (j.contains("trace")) out += line("trace", text(j, "trace"));
  if (j.contains("profile")) out += profile(j["profile"]);
  if (j.contains("prediction") && !j["prediction"].is_null()) out += prediction(j["prediction"]);
  return out;
}

}  // namespace tilewright::cli
