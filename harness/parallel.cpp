#include "harness/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewright::harness {

void parallel_for(std::size_t n, int threads, const std::function<void(std::size_t)>& work,
                  const Progress& progress, std::string_view what) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t done = 0;
  std::exception_ptr failure;
  const auto worker = [&] {
    for (std::size_t i = next++; i < n; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = n;
      }
      const std::lock_guard lock(mutex);
      ++done;
      if (progress) progress(what, static_cast<double>(done) / static_cast<double>(n));
    }
  };
  std::vector<std::thread> others;
  const std::size_t most = std::min(n, static_cast<std::size_t>(std::max(threads, 1)));
  for (std::size_t t = 1; t < most; ++t) others.emplace_back(worker);
  worker();
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tilewright::harness
