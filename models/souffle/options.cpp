#include "models/souffle/options.h"

#include <array>
#include <charconv>
#include <utility>

namespace tilewright::souffle {
namespace {

template <class T, std::size_t N>
std::optional<T> named(const std::array<const char*, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<T>(i);
  return {};
}

constexpr const char* kSchedules =
    "NAME=BLOCKSxTHREADSxREGISTERSxBYTES with commas between, such as qk=108x128x255x49152";

constexpr std::array kCriteria = {"per-sm", "total"};
constexpr std::array kBounds = {"inclusive", "strict"};
constexpr std::array kOrders = {"topological", "bfs"};
constexpr std::array kIntensive = {"contraction", "ratio"};
constexpr std::array kSyncs = {"needed", "literal"};
constexpr std::array kReductions = {"split", "atomic", "local"};
constexpr std::array kPipelines = {"across", "within"};
constexpr std::array kSplits = {"criterion", "none", "contractions"};

template <std::size_t N>
OptionSpec one_of(const char* name, const std::array<const char*, N>& names, const char* help,
                  const char* source, const char* published = "") {
  return {.name = name,
          .kind = OptionKind::choice,
          .names = {names.begin(), names.end()},
          .standard = names.front(),
          .published = published,
          .help = help,
          .source = source};
}

OptionSpec number(const char* name, const char* standard, const char* help, const char* source) {
  return {.name = name,
          .kind = OptionKind::number,
          .standard = standard,
          .help = help,
          .source = source};
}

}  // namespace

std::optional<Criterion> criterion_from_name(std::string_view n) {
  return named<Criterion>(kCriteria, n);
}
std::optional<Bound> bound_from_name(std::string_view n) { return named<Bound>(kBounds, n); }
std::optional<Order> order_from_name(std::string_view n) { return named<Order>(kOrders, n); }
std::optional<Intensive> intensive_from_name(std::string_view n) {
  return named<Intensive>(kIntensive, n);
}
std::optional<Sync> sync_from_name(std::string_view n) { return named<Sync>(kSyncs, n); }
std::optional<Reduction> reduction_from_name(std::string_view n) {
  return named<Reduction>(kReductions, n);
}
std::optional<Split> split_from_name(std::string_view n) { return named<Split>(kSplits, n); }

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = {
      one_of("criterion", kCriteria,
             "when operators may share a kernel with barriers of all blocks. per-sm: all blocks "
             "can run at once, counted per multiprocessor; total: their registers and shared "
             "memory fit into those of the whole GPU",
             "section 5.4", "total"),
      one_of("fit", kBounds,
             "whether a kernel that needs exactly what the GPU has fits (inclusive) or not "
             "(strict)",
             "section 5.4", "strict"),
      one_of("visit", kOrders,
             "the order in which operators are assigned to kernels: topological, or by "
             "breadth-first search",
             "section 5.4", "bfs"),
      one_of("ci", kIntensive,
             "which operators are compute-intensive: contractions, or those with more "
             "operations per element than --threshold",
             "section 5.3", "ratio"),
      number("threshold", "3",
             "with --ci ratio: operations per element above which an operator is "
             "compute-intensive",
             "section 5.3"),
      one_of("subprograms", kSplits,
             "where one kernel ends and the next begins: where the criterion demands it, nowhere, "
             "or before each compute-intensive operator",
             "section 5.4"),
      {.name = "schedules",
       .kind = OptionKind::pairs,
       .accepted = kSchedules,
       .fallback = "our own tiles",
       .value = "OP=BLOCKSxTHREADSxREGISTERSxBYTES,...",
       .help =
           "the blocks, threads, registers per thread and bytes of shared memory that the "
           "criterion assumes for a product. The name qk stands for qk1, qk2 and so on; REGISTERS "
           "and BYTES may be left out",
       .source = "section 5.4"},
      yes_or_no("horizontal", "independent products and sums over the same loops share a loop nest",
                "section 6.1"),
      yes_or_no("concat",
                "products that read the same tensor become one wider product, also where their "
                "numbers of columns differ",
                "section 6.1"),
      yes_or_no("pack",
                "independent operators of a phase run side by side in one kernel and share out "
                "the multiprocessors",
                "section 6.1"),
      yes_or_no("vertical", "an operator joins the loop nest of the operator that it reads from",
                "section 6.2"),
      yes_or_no("global-sync",
                "operators share a kernel, with barriers of all blocks between its phases; no: "
                "each phase is a kernel",
                "section 6.4"),
      yes_or_no("reuse", "tiles stay on chip across a barrier", "section 6.5"),
      yes_or_no("units",
                "kernels without products keep values in registers, with loops over warps and "
                "lanes, where that is predicted to be faster than tiles in shared memory; kernels "
                "that keep tiles across a barrier do not",
                "section 6.2"),
      one_of("pipeline", kPipelines,
             "when a phase starts to load tensors that no earlier phase writes: before the barrier "
             "in front of it (across), or after it (within)",
             "section 6.5"),
      one_of("sync", kSyncs,
             "where barriers stand: only where a block reads what another block wrote, or "
             "before every sum, as printed",
             "section 6.4", "literal"),
      one_of("reduction", kReductions,
             "how blocks add up a sum that is divided among them: by atomic additions, or in a "
             "phase of its own (local); split: by atomic additions, and sums with few results are "
             "also divided where that is predicted to be faster",
             "section 6.3"),
      {.name = "step",
       .kind = OptionKind::choice,
       .names = {"V0", "V1", "V2", "V3", "V4"},
       .standard = "V4",
       .help = "the steps of table 4, each with those before it: V0 nothing, V1 horizontal, V2 "
               "vertical, V3 global-sync, V4 reuse and pipeline",
       .source = "section 8.2"},
      number("launch-us", "2", "microseconds that a kernel launch takes", "section 8.3"),
      number("sync-us", "0",
             "microseconds that a barrier of all blocks takes; 0 stands for grid_barrier of the "
             "machine file, or 1.5 where it has none",
             ""),
  };
  return specs;
}

namespace {

/// "96x128x255x49152", the last two 0 where they are left out.
std::optional<Resources> resources_from(std::string_view text) {
  std::int64_t values[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < 4 && !text.empty(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), values[i]);
    if (error != std::errc() || values[i] < 0 || values[i] > (std::int64_t{1} << 31)) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) break;
    if (text.front() != 'x' || i == 3 || text.size() == 1) return {};
    text.remove_prefix(1);
  }
  if (values[0] < 1 || values[1] < 1) return {};
  return Resources{values[0], values[1], values[2], Bytes(values[3])};
}

std::map<std::string, Resources, std::less<>> schedules_of(const Settings& s) {
  std::map<std::string, Resources, std::less<>> out;
  std::string_view rest = s.text("schedules");
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    const auto found =
        equals == std::string_view::npos ? std::nullopt : resources_from(one.substr(equals + 1));
    if (!found || equals == 0)
      s.refuse("schedules", "has a schedule that is none: " + std::string(one), kSchedules);
    out.insert_or_assign(std::string(one.substr(0, equals)), *found);
  }
  return out;
}

}  // namespace

Options options_of(const Settings& s) {
  Options o;
  o.schedules = schedules_of(s);
  o.criterion = s.choice<Criterion>("criterion", criterion_from_name);
  o.bound = s.choice<Bound>("fit", bound_from_name);
  o.order = s.choice<Order>("visit", order_from_name);
  o.intensive = s.choice<Intensive>("ci", intensive_from_name);
  o.threshold = s.number("threshold");
  o.split = s.choice<Split>("subprograms", split_from_name);
  const int step = s.text("step")[1] - '0';
  const auto on = [&](const char* name, int from) {
    return s.given(name) ? s.text(name) == "yes" : step >= from;
  };
  o.horizontal = on("horizontal", 1);
  o.concat = on("concat", 1);
  o.pack = on("pack", 1);
  o.vertical = on("vertical", 2);
  o.global_sync = on("global-sync", 3);
  o.reuse = on("reuse", 4) && o.global_sync;
  o.pipeline = (s.given("pipeline") ? s.text("pipeline") == "across" : step >= 4) && o.global_sync;
  o.units = s.text("units") == "yes";
  o.sync = s.choice<Sync>("sync", sync_from_name);
  o.reduction = s.choice<Reduction>("reduction", reduction_from_name);
  o.launch_us = s.number("launch-us");
  o.sync_us = s.number("sync-us");
  return o;
}

}  // namespace tilewright::souffle
