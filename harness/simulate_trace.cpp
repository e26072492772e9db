// simulate --trace: recorded accesses through a machine's caches.
#include <filesystem>
#include <fstream>

#include "harness/simulate_json.h"
#include "simulator/trace.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

std::ifstream opened(const std::string& path) {
  std::error_code error;
  std::ifstream in;
  if (!std::filesystem::is_directory(path, error)) in.open(path, std::ios::binary);
  if (!in.is_open() || !in)
    throw InputError({.where = "--trace",
                      .value = path.empty() ? "an empty name" : path,
                      .problem = "cannot be read",
                      .accepted = "a readable file"});
  return in;
}

void refuse_plans(const Request& request, const WalkOptions& options) {
  const auto bad = [](const char* option, const std::string& value, const char* problem) {
    throw InputError({.where = option,
                      .value = value,
                      .problem = problem,
                      .accepted = "--trace FILE -m MACHINE, --curve, --attribute, --csv, --seed"});
  };
  if (!request.subject.empty()) bad("simulate", request.subject, "is a plan beside a trace");
  if (request.tree || request.tiles || request.order || request.model)
    bad("--trace", *options.trace, "has no plan to make");
  if (options.save_trace) bad("--save-trace", *options.save_trace, "is what --trace reads");
  if (!options.skip) bad("--no-skip", "given", "is of a plan's loops, which a trace does not have");
  if (request.threads) bad("--threads", std::to_string(*request.threads), "are of a plan's walk");
  if (options.occupancy) bad("--occupancy", *options.occupancy, "is of a plan's walk");
  if (options.cores.value_or(1) != 1)
    bad("--cores", std::to_string(*options.cores), "are not told apart in a trace");
}

Traffic traffic_of(const Machine& m, const CachesOf& of, const CacheHierarchy& caches,
                   const std::vector<std::string>& tensors) {
  Traffic t{.source = Source::simulated,
            .by = "cache",
            .machine = m.name,
            .counts = {.write_allocate = true, .write_back = true}};
  for (std::size_t c = of.levels.size(); c-- > 0;) {
    t.counts.prefetch = t.counts.prefetch || !of.levels[c].behaviour.prefetch.empty();
    const auto counts = caches.counts(c);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (counts[i] != CacheCount{})
        t.entries.push_back({.tensor = tensors[i],
                             .boundary = of.boundaries[c],
                             .read = counts[i].read,
                             .written = counts[i].written,
                             .hits = counts[i].hits,
                             .misses = counts[i].misses,
                             .resident_dirty = counts[i].resident_dirty});
  }
  return t;
}

}  // namespace

Answer simulate_trace(const Request& request, const WalkOptions& options) {
  refuse_plans(request, options);
  const auto machine = machine_of(request);
  const CachesOf of = caches_of(*machine, "--trace");
  std::ifstream in = opened(*options.trace);
  const std::vector<std::string> tensors = trace_tensors(in, *options.trace);
  const int count = static_cast<int>(tensors.size());
  CacheHierarchy caches(of.levels, {.tensors = count,
                                    .dram = machine->level(machine->home()).rows,
                                    .seed = request.seed,
                                    .attribute = options.attribute});
  std::optional<Curves> curves;
  if (options.curve || options.csv) curves.emplace(of.levels.front(), count);
  if (request.progress) request.progress("walking the trace", 0);
  const TraceSummary summary =
      read_trace(in, *options.trace, [&](std::span<const Stream> streams, std::int64_t rounds) {
        caches.streams(streams, rounds);
        if (!curves) return;
        curves->associative().streams(streams, rounds);
        curves->sets().streams(streams, rounds);
      });

  auto json = document();
  merge(json, to_json(traffic_of(*machine, of, caches, tensors)));
  json["trace"] = {{"format", name_of(summary.format)},
                   {"reads", summary.reads},
                   {"writes", summary.writes},
                   {"instruction_fetches_left_out", summary.fetches}};
  std::vector<std::pair<std::string, std::vector<CacheCount>>> counts;
  std::vector<Blame> blame;
  for (std::size_t c = 0; c < of.levels.size(); ++c) {
    counts.emplace_back(of.boundaries[c], caches.counts(c));
    if (options.attribute)
      blame.push_back({.boundary = of.boundaries[c], .level = caches.blame(c)});
  }
  if (auto more = behaviour_json(counts); !more.empty()) json["behaviour"] = std::move(more);
  if (options.attribute) json["attribution"] = blame_json(blame, {}, tensors);
  if (machine->level(machine->home()).rows.row_bytes != 0) json["dram"] = dram_json(caches.dram());
  if (options.curve) json["curve"] = curves->json(tensors);
  if (options.csv) write_file(*options.csv, curves->csv(tensors), "--csv");
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
