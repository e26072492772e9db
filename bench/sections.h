// What is measured: each section prints its tables and returns its part of the document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/report.h"
#include "codegen/cpu/cpu.h"

namespace tilewright::bench {

struct Settings {
  std::vector<std::string> rows = {};   ///< workloads; empty: those of `set`
  std::string set = "chains";           ///< of rows: see row_sets()
  std::vector<int> threads = {};        ///< empty: 1 and 2, or 1 where there is one processor
  std::vector<std::string> peers = {};  ///< names to take; empty: all that there are
  bool no_peers = false;
  bool prefetch = false;                 ///< kernels: ours with prefetches, too
  std::string machine = "host";          ///< kernels: that is planned for
  std::vector<std::string> models = {};  ///< kernels: others whose plans are timed, too
  int draw = 10;                         ///< kernels: rows of the set `drawn`
  std::uint64_t draw_seed = 1;
  int rounds = 12;
  double turn_seconds = 0.008;
  int tilings = 100;         ///< tilings: how many are drawn a row
  std::string journal = {};  ///< tilings: where finished rows are kept; empty: nowhere
  double part_seconds = 0;   ///< tilings: begins no row that would not end by then; 0: all rows
  cpu::Isa isa = cpu::host_isa();  ///< of our kernel and of the peak
  std::uint64_t seed = 1;
};

/// Our fused kernels, verified, beside the peers' two products and the FMA peak, turn by turn.
/// "kernels": one entry a row and number of threads; "geometric_means"; "peers".
Json kernels(const Settings& settings);
/// Names of sets of rows, each with what it is.
std::vector<std::pair<std::string, std::string>> row_sets();
/// Throws InputError for rows that are no chains and for names that are no peers.
void check_kernels(const Settings& settings);

/// Bytes a second that are read, written and copied in each cache and in DRAM. "bandwidth": one
/// entry a level, kind and number of threads.
Json bandwidth(const Settings& settings);

/// The model's tiling beside the fastest of tilings drawn at random, all verified. "tilings": one
/// entry a row and number of threads; "ratio" is the model's median time over the fastest drawn
/// one's; "rows_left": how many of them another part has to time.
Json tilings(const Settings& settings);

/// How fast the models, the resolver and the simulator are. "rates": one entry a row of
/// rate_rows().
Json rates(const Settings& settings);

}  // namespace tilewright::bench
