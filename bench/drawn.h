// Workloads drawn at random, of the kinds that users bring: no row of any table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilewright::bench {

/// `count` workloads, as -m's verbs take them, kind after kind: products, two layers of an MLP
/// (with and without a ReLU), chains of low rank, attention, convolution pairs, and sizes that are
/// no round numbers among all of them. M is 16 to 4096, K and N 256 to 4096. Equal seeds draw equal
/// workloads. None has more than `most_flops`, so that a reference evaluator can check it.
std::vector<std::string> drawn_rows(std::uint64_t seed, int count, double most_flops = 6e9);

}  // namespace tilewright::bench
