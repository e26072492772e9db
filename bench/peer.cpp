#include "bench/peer.h"

#include <algorithm>
#include <thread>

namespace tilewright::bench {

std::vector<Peer>
peers() {  // Those that ask a child process first, while there is one thread only.
  std::vector<Peer> all{openblas(), blis(), pytorch(), onednn()};
  std::rotate(all.begin(), all.end() - 1, all.end());
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
