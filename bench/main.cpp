// tilewright-bench: how fast, beside whom, on what. Exit status: 0 success, 2 bad input, 1 an internal
// error.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/sections.h"
#include "core/base/error.h"
#include "core/base/format.h"
#include "harness/request.h"

namespace tilewright::bench {
namespace {

struct Section {
  const char* name;
  const char* summary;
  Json (*run)(const Settings&);
};

/// A load average above which somebody else is using the processors.
constexpr double kBusy = 0.7;

/// In the order in which they run. A section more is a function in sections.h and a line here.
constexpr Section kSections[] = {
    {"bandwidth", "caches and DRAM: read, written, copied", bandwidth},
    {"kernels", "GEMM chains beside the libraries and the FMA peak", kernels},
    {"tilings", "chimera's tiling among 100 drawn at random; only where --only names it", tilings},
    {"rates", "plans priced, resolved and counted, accesses simulated", rates},
};

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Section& s : kSections) names.push_back(s.name);
  return names;
}

struct Arguments {
  Settings settings;
  std::vector<std::string> only;
  std::vector<std::string> row;  ///< whose parameters have commas
  std::string isa, json;
};

void check(Arguments& a) {
  const std::vector<std::string> names = section_names();
  for (const std::string& name : a.only)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw InputError({.where = "--only",
                        .value = name,
                        .problem = "is not a section",
                        .accepted = join(names)});
  if (!a.isa.empty()) {
    const auto isa = cpu::isa_from_name(a.isa);
    if (!isa || !cpu::host_runs(*isa))
      throw InputError({.where = "--isa",
                        .value = a.isa,
                        .problem = isa ? "does not run here" : "is not an instruction set",
                        .accepted = "avx512, avx2, generic, as far as the processor goes"});
    a.settings.isa = *isa;
  }
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (a.settings.threads.empty())
    a.settings.threads = cores > 1 ? std::vector{1, 2} : std::vector{1};
  for (int t : a.settings.threads)
    if (t < 1 || t > cores)
      throw InputError({.where = "--threads",
                        .value = std::to_string(t),
                        .problem = "is not a number of threads that run at once here",
                        .accepted = formatted("1..{}", cores)});
  if (a.settings.rounds < 1 || a.settings.rounds > 100000)
    throw InputError({.where = "--rounds",
                      .value = std::to_string(a.settings.rounds),
                      .problem = "is not a number of rounds",
                      .accepted = "1..100000"});
  if (a.settings.tilings < 1 || a.settings.tilings > 10000)
    throw InputError({.where = "--tilings",
                      .value = std::to_string(a.settings.tilings),
                      .problem = "is not a number of tilings",
                      .accepted = "1..10000"});
  if (!(a.settings.turn_seconds >= 0 && a.settings.turn_seconds <= 60))
    throw InputError({.where = "--turn",
                      .value = formatted("{}", a.settings.turn_seconds),
                      .problem = "is not a length of a turn",
                      .accepted = "0..60 seconds"});
  if (a.settings.part_seconds != 0 &&
      (!(a.settings.part_seconds > 0 && a.settings.part_seconds <= 1e6) ||
       a.settings.journal.empty()))
    throw InputError({.where = "--part",
                      .value = formatted("{}", a.settings.part_seconds),
                      .problem = a.settings.journal.empty()
                                     ? "is of a journal that goes on, and none is named"
                                     : "is not a number of seconds",
                      .accepted = "1..1000000 with --journal FILE"});
  if (a.settings.peers == std::vector<std::string>{"none"})
    a.settings.no_peers = true, a.settings.peers.clear();
  a.settings.rows.insert(a.settings.rows.end(), a.row.begin(), a.row.end());
  for (std::string& row : a.settings.rows)
    if (row.find_first_of("/:.") == std::string::npos) row = "chimera/" + row;
}

/// Nothing where --help was asked for and given.
std::optional<Arguments> parse(int argc, char** argv) {
  Arguments a;
  CLI::App app("Speeds, as medians of interleaved runs, with the peak measured in the same run.",
               "tilewright-bench");
  std::string sections;
  for (const Section& s : kSections) sections += formatted("\n  {:<10} {}", s.name, s.summary);
  app.footer("Sections:" + sections);
  app.add_option("--only", a.only, "sections, comma-separated; all by default")->delimiter(',');
  app.add_option("--rows", a.settings.rows,
                 "kernels: rows such as G2,G7 (chimera's) or mcfuser/G1:dtype=f32")
      ->delimiter(',');
  app.add_option("--row", a.row,
                 "kernels: one row, such as gemm-chain:m=64,n=32,k=32,l=64; repeated")
      ->allow_extra_args(false);
  std::string sets;
  for (const auto& [name, summary] : row_sets())
    sets += (sets.empty() ? "" : "; ") + name + ": " + summary;
  app.add_option("--set", a.settings.set, "kernels, without --row: " + sets)->capture_default_str();
  app.add_option("--machine", a.settings.machine,
                 "kernels: the machine that is planned for, such as a file that calibrate wrote")
      ->capture_default_str();
  app.add_option("--models", a.settings.models, "kernels: other models' plans beside ours")
      ->delimiter(',');
  app.add_option("--draw", a.settings.draw, "kernels: so many rows of the set drawn")
      ->capture_default_str();
  app.add_option("--draw-seed", a.settings.draw_seed, "kernels: of the set drawn")
      ->capture_default_str();
  app.add_option("--threads", a.settings.threads, "1,2 by default")->delimiter(',');
  app.add_option("--rounds", a.settings.rounds, "turns of each contestant")->capture_default_str();
  app.add_option("--turn", a.settings.turn_seconds, "seconds a turn")->capture_default_str();
  app.add_option("--tilings", a.settings.tilings, "tilings: drawn a row")->capture_default_str();
  app.add_option("--journal", a.settings.journal,
                 "tilings: a file that keeps finished rows; a run that finds it goes on with it");
  app.add_option("--part", a.settings.part_seconds,
                 "tilings: seconds after which no row is begun; with --journal");
  app.add_option("--peers", a.settings.peers, "kernels: OpenBLAS,BLIS,... or none")->delimiter(',');
  app.add_flag("--prefetch", a.settings.prefetch, "kernels: ours with prefetches beside it");
  app.add_option("--isa", a.isa, "kernels: of our code and the peak: avx512, avx2, generic");
  app.add_option("--seed", a.settings.seed, "of the inputs")->capture_default_str();
  app.add_option("--json", a.json, "writes one document to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    throw InputError({.problem = e.what(), .accepted = "what --help lists"});
  }
  check(a);
  return a;
}

int run(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) return 0;
  Json document = {{"schema", 1}, {"source", "measured"}, {"by", "tilewright-bench"}};
  document.update(circumstances({argv, argv + argc}));
  const auto text = [&document](const char* key) { return document[key].get<std::string>(); };
  print(formatted("{}, {} processors online, {}, {}\n{}\n", text("cpu"),
                  document["cpus_online"].get<int>(), text("compiler"), text("date"),
                  text("command")));
  if (const double load = document["load_average"]; load > kBusy)
    print(
        formatted("Load average {:.1f} before the start: others use the processors, which lowers "
                  "medians; compare the fastest runs.\n",
                  load));
  document["rounds"] = arguments->settings.rounds;
  document["turn_seconds"] = arguments->settings.turn_seconds;
  document["seed"] = arguments->settings.seed;
  const auto wanted = [&](const char* name) {
    // A row's kernels take minutes to build.
    return (arguments->only.empty() && std::string_view(name) != "tilings") ||
           std::find(arguments->only.begin(), arguments->only.end(), name) != arguments->only.end();
  };
  if (wanted("kernels") || wanted("tilings"))
    check_kernels(arguments->settings);  // before minutes of another section
  for (const Section& s : kSections)
    if (wanted(s.name)) document.update(s.run(arguments->settings));
  if (!arguments->json.empty())
    harness::write_file(arguments->json, document.dump(2) + "\n", "--json");
  return 0;
}

/// One line, whatever a library put into the message.
int complain(std::string message, int status) {
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::fputs(formatted("tilewright-bench: {}\n", message).c_str(), stderr);
  return status;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  using namespace tilewright;
  try {
    return bench::run(argc, argv);
  } catch (const InputError& e) {
    return bench::complain(e.what(), 2);
  } catch (const std::exception& e) {
    return bench::complain(e.what(), 1);
  }
}
