// Libraries that compute the same chain as two matrix products. Each says what it is, or why it is
// not here; none is needed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/chain.h"
#include "bench/problem.h"

namespace tilewright::bench {

/// One way in which a library computes a chain.
struct Entry {
  std::string name;  ///< a column's head, unique among all peers' entries
  std::function<void()> run;
  /// Brings the last run's result into the chain's E; empty: run() wrote it there.
  std::function<void()> collect = {};
  /// Seconds that the last run took by the peer's own clock; empty: take the time around run().
  std::function<double()> own_seconds = {};
};

struct Peer {
  std::string name;         ///< "oneDNN"
  std::string description;  ///< version, threads, what it picked for this processor
  std::string missing;      ///< why it is not available; empty: it is
  /// Ready to run on `threads` threads, everything that can be made before made. The chain must
  /// outlive what is returned. Throws std::runtime_error where the library refuses.
  std::function<std::vector<Entry>(const Chain& chain, int threads)> prepare;
  /// The same for other kinds of problems; empty: the peer computes chains only.
  std::function<std::vector<Entry>(const Problem& problem, int threads)> softmax = {};
  std::function<std::vector<Entry>(const Problem& problem, int threads)> convolutions = {};
  std::function<std::vector<Entry>(const Problem& problem, int threads)> products = {};
};

/// One function a library; add a peer by adding its function here and its line in peer.cpp.
Peer onednn();
Peer openblas();
Peer blis();
Peer pytorch();
std::vector<std::string> peer_names();
/// Those of these names, in the order of peer_names(); all of them for no names. Opens the
/// libraries: each by dlopen on its own, so that two that export the same cblas_sgemm do not meet.
std::vector<Peer> peers(const std::vector<std::string>& names = {});

/// Calls work(first, last, thread) on `threads` threads, the elements [0, count) dealt out in
/// contiguous shares. Uses OpenMP's threads where it was built with it: a call costs microseconds.
void split(std::int64_t count, int threads,
           const std::function<void(std::int64_t, std::int64_t, int)>& work);

}  // namespace tilewright::bench
