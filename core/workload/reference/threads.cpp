#include "core/workload/reference/threads.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace tilewright::reference {

int threads_for(int asked) {
  if (asked > 0) return asked;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void for_each_piece(std::int64_t pieces, int threads,
                    const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  const auto some = [&] {
    for (std::int64_t i; (i = next++) < pieces;) work(i);
  };
  const std::int64_t most = std::min<std::int64_t>(pieces, threads_for(threads));
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < most; ++i) others.emplace_back(some);
  some();
}

void for_each_range(std::int64_t n, int threads,
                    const std::function<void(std::int64_t, std::int64_t)>& work) {
  for_each_piece((n + kPiece - 1) / kPiece, threads,
                 [&](std::int64_t i) { work(i * kPiece, std::min((i + 1) * kPiece, n)); });
}

}  // namespace tilewright::reference
