// What a verb is asked about: a workload, a machine, a plan, and the options that several verbs share,
// as the command line and Python give them. Everything unset is the documented default.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/option.h"
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/stream.h"
#include "core/workload/workload.h"
#include "harness/answer.h"

namespace tilewright::harness {

struct Request {
  std::string subject = {};                   ///< a workload W, or a plan file
  std::optional<std::string> machine = {};    ///< -m
  /// From Python: the text of a workload, plan or machine file that there is no file of. `subject` and
  /// `machine` then only name it.
  std::optional<std::string> subject_text = {};
  std::optional<std::string> machine_text = {};
  std::vector<std::string> rewrites = {};     ///< --rewrite: "compose", in order
  std::optional<std::string> model = {};
  std::optional<std::string> tree = {};       ///< a loop tree; with `tiles`, a plan in place
  std::optional<std::string> tiles = {};      ///< "m=64,l=64"
  std::vector<std::string> pins = {};         ///< "C=dram", "C=dram@l"
  std::vector<std::string> flags = {};        ///< "C=sliding", "rowmax=running"
  std::optional<std::string> level = {};      ///< a level's name, or "all"
  std::optional<std::string> capacity = {};   ///< "32K", "4096B", "262144e"
  std::optional<std::string> order = {};      ///< "mlkn", "m,l,k,n", or "all"
  OptionValues options = {};                  ///< of models, as given (settings_among)
  OptionValues target_options = {};           ///< of the target that is asked, as given
  std::optional<std::string> target = {};     ///< --target: a plan's tiles suit its micro-kernel
  std::optional<std::string> layout = {};     ///< tiled, row-major
  std::optional<std::int64_t> samples = {};   ///< explain: candidates drawn from the model's space
  std::uint64_t seed = 1;
  std::optional<int> threads = {};
  Progress progress = {};
};

/// The workload and the machine of a request, read and checked.
struct Setting {
  std::string workload_name;  ///< as the user gave it
  std::shared_ptr<const Workload> workload;  ///< rewritten: what plans and their names are of
  std::shared_ptr<const Machine> machine;
  std::optional<PlanFile> file;  ///< where the subject is a plan file
  /// What `workload` was made from and by which rewrites, the request's, the plan file's and a
  /// model's; null and none where it is as it was named.
  std::shared_ptr<const Workload> original = {};
  std::vector<std::string> rewrites = {};

  /// The workload as it was named: what kernels are verified against and speeds are counted in.
  const Workload& as_named() const { return original ? *original : *workload; }

  /// Whether the request says a plan, not only a workload.
  bool has_plan() const { return file.has_value(); }
};

/// Reads the subject (a plan file is told from a workload file by its `kernels`) and the machine, the
/// command line's before the plan file's. Throws InputError where either is missing or wrong.
Setting setting_of(const Request& request);
/// The machine alone, for a verb that needs no workload: --machine.
std::shared_ptr<const Machine> machine_of(const Request& request);
/// The workload alone, for a verb that needs no machine.
Setting workload_of(const Request& request);

/// Rewrites the setting's workload further, each rewrite after those before. Throws InputError where a
/// name is no rewrite or the rewrite does not apply; `where` says who asked ("--rewrite").
void rewrite(Setting& setting, std::span<const std::string> names, std::string_view where);
/// Says of which workload an answer is: "workload", and "rewrites" where there are any.
void name_workload(nlohmann::ordered_json& json, const Setting& setting);

/// The level that --level names, else the machine's default level. Throws InputError for a level that
/// is not there, for home, and for "all" (the callers that take it look first).
LevelId level_of(const Request& request, const Machine& machine);
/// --capacity in bytes ("e": elements of the workload's type), else the level's.
Bytes capacity_of(const Request& request, const Setting& setting, LevelId level);

/// --tiles, checked against the workload: every name a loop, no tile above its loop's extent. Entries
/// that a tree does not need are dropped by whoever uses them (convention 6).
std::map<std::string, std::int64_t> tiles_of(const Request& request, const Workload& workload);

/// The plan of the plan file, or of --tree, --tiles, --pin and --flag; nothing where the request names
/// neither. Throws InputError where both are given, or where pins come without a plan.
std::optional<Plan> plan_in_place(const Request& request, const Setting& setting);

/// A model's settings: those of the request's options that it has, over its defaults. Throws
/// InputError for a value that is not accepted; `owner` is "model NAME".
Settings settings_among(const Request& request, std::span<const OptionSpec> specs,
                        std::string_view owner);

/// --layout; tiled where it is not given.
Layout layout_of(const Request& request);
std::string_view name_of(Layout layout);

/// --threads, else every core there is.
int threads_of(const Request& request);

/// The whole of a text file, at most 64 MiB. Throws InputError naming the path.
std::string read_file(const std::string& path, std::string_view option);
/// Writes all of it or nothing: to a file beside `path`, then renamed over it. Throws InputError.
void write_file(const std::string& path, std::string_view text, std::string_view option);
/// Creates a folder and those above it. Throws InputError.
void make_folder(const std::string& path, std::string_view option);

}  // namespace tilewright::harness
