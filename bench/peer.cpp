#include "bench/peer.h"

#include <thread>

namespace tilewright::bench {

std::vector<Peer> peers() { return {onednn(), openblas(), blis()}; }

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
