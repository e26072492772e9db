#include "bench/peer.h"

#include <algorithm>
#include <thread>

namespace tilewright::bench {

namespace {

struct Known {
  const char* name;
  Peer (*open)();
};
constexpr Known kPeers[] = {
    {"oneDNN", onednn}, {"OpenBLAS", openblas}, {"BLIS", blis}, {"PyTorch", pytorch}};

}  // namespace

std::vector<std::string> peer_names() {
  std::vector<std::string> names;
  for (const Known& k : kPeers) names.emplace_back(k.name);
  return names;
}

std::vector<Peer> peers(const std::vector<std::string>& names) {
  std::vector<Peer> all;
  for (const Known& k : kPeers)
    if (names.empty() || std::find(names.begin(), names.end(), k.name) != names.end())
      all.push_back(k.open());
  return all;
}

void split(std::int64_t count, int threads,
           const std::function<void(std::int64_t, std::int64_t, int)>& work) {
  const auto share = [&](int t) { work(count * t / threads, count * (t + 1) / threads, t); };
  if (threads == 1) return share(0);
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int t = 0; t < threads; ++t) share(t);
#else
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(share, t);
  share(0);
#endif
}

}  // namespace tilewright::bench
