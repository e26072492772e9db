// reproduce of several experiments: what is finished stays, what this machine cannot run says why.
#include <chrono>

#include "core/base/format.h"
#include "experiments/report/experiment.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHolds = "holds";
constexpr const char* kFails = "does not hold";
constexpr const char* kMissing = "not available";

/// --data of several is of recordings; counted misses stay where they are looked for by default.
ReproduceOptions options_for(const Experiment& e, const ReproduceOptions& options) {
  ReproduceOptions one = options;
  one.id = e.id;
  one.all = false;
  if (method_of(e).files != recording_files) one.data.reset();
  return one;
}

/// One experiment's row of the index.
ordered_json row_of(const Experiment& e, const Answer& answer, double seconds) {
  const ordered_json& j = answer.json;
  const bool ran = j.contains("holds");
  ordered_json row = {{"id", e.id},
                      {"title", e.title},
                      {"status", name_of(method_of(e).how)},
                      {"outcome", !ran          ? kMissing
                                  : answer.ok() ? kHolds
                                                : kFails},
                      {"reason", answer.ok() ? ordered_json(nullptr) : j["reason"]},
                      {"already_there", j.value("already_there", false)},
                      {"seconds", ran && !j.contains("already_there") ? ordered_json(seconds)
                                                                      : ordered_json(nullptr)},
                      {"folder", ran ? j["folder"] : ordered_json(nullptr)},
                      {"compared", ran ? j["compared"] : ordered_json::array()}};
  return row;
}

std::string compared_text(const ordered_json& compared) {
  std::string text;
  for (const ordered_json& c : compared) {
    if (c["ours"].is_null() || c["paper"].is_null()) continue;
    if (!text.empty()) return text + "; ...";
    text = formatted(
        "{}: {:.4g} {}(the paper: {:.4g})", c["what"].get<std::string>(), c["ours"].get<double>(),
        c["unit"] == "" ? "" : c["unit"].get<std::string>() + " ", c["paper"].get<double>());
  }
  return text.empty() ? "-" : text;
}

std::string index_text(const ordered_json& json) {
  std::string text =
      "# Experiments\n\n| experiment | what | by | outcome | ours, first of what is compared |\n"
      "|---|---|---|---|---|\n";
  for (const ordered_json& row : json["experiments"]) {
    const std::string id = row["id"];
    const bool ran = row["outcome"] != kMissing;
    const std::string outcome =
        row["outcome"].get<std::string>() +
        (row["reason"].is_null() ? "" : ": " + row["reason"].get<std::string>());
    text +=
        formatted("| {} | {} | {} | {} | {} |\n", ran ? "[" + id + "](" + id + "/report.md)" : id,
                  row["title"].get<std::string>(), row["status"].get<std::string>(), outcome,
                  compared_text(row["compared"]));
  }
  return text;
}

void write_index(const ordered_json& json, const std::string& folder) {
  write_file(folder + "/index.md", index_text(json), "--out");
  write_file(folder + "/index.json", json.dump(2) + "\n", "--out");
}

/// The answer of one; what is wrong with a file of its source is an outcome here, not the end of
/// all.
Answer answer_of(const Experiment& e, const Request& request, const ReproduceOptions& options,
                 const std::string& folder) {
  const ReproduceOptions one = options_for(e, options);
  try {
    return reproduce_into(e, request, one, folder + "/" + e.id, true, folder);
  } catch (const InputError& error) {
    if (method_of(e).files == nullptr || error.parts().where == "--out") throw;
    return refuse(document(), error.what());
  }
}

}  // namespace

Answer reproduce_all(std::span<const Experiment* const> all, const Request& request,
                     const ReproduceOptions& options, const std::string& folder) {
  make_folder(folder, "--out");
  auto json = document();
  json["folder"] = folder;
  json["experiments"] = ordered_json::array();
  std::string fails;
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::int64_t counts[4] = {0, 0, 0, 0};  // hold, do not, are not available, were there already
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Experiment& e = *all[i];
    Request one = request;
    if (request.progress)
      one.progress = [&, i](std::string_view what, double done) {
        request.progress(formatted("{}/{} {}: {}", i + 1, all.size(), e.id, what),
                         (static_cast<double>(i) + done) / static_cast<double>(all.size()));
      };
    const auto start = std::chrono::steady_clock::now();
    const Answer answer = answer_of(e, one, options, folder);
    json["experiments"].push_back(row_of(e, answer, since(start)));
    const ordered_json& row = json["experiments"].back();
    if (row["outcome"] == kFails) fails += (fails.empty() ? "" : ", ") + e.id;
    ++counts[row["outcome"] == kHolds ? 0 : row["outcome"] == kFails ? 1 : 2];
    if (row["already_there"].get<bool>()) ++counts[3];
    write_index(json, folder);
  }
  json["hold"] = counts[0];
  json["do_not_hold"] = counts[1];
  json["not_available"] = counts[2];
  json["already_there"] = counts[3];
  json["seconds"] = since(begin);
  json["files"] = {folder + "/index.md", folder + "/index.json"};
  write_index(json, folder);
  if (fails.empty()) return {std::move(json), Status::done};
  return refuse(std::move(json), "does not hold: " + fails);
}

}  // namespace tilewright::harness
