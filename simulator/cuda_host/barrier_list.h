// Which barriers of the text the threads of launches came to.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/cuda_host/cuda_host.h"
#include "simulator/cuda_host/image.h"

namespace tilewright::cuda_host {

class BarrierList {
 public:
  /// A thread comes to a call of a device function of that name.
  void come(const char* kind, std::uint32_t place) {
    Calls& c = calls_[place];
    c.kind = kind;
    ++c.threads;
  }
  /// Threads came to one barrier by both calls.
  void meet(std::uint32_t one, std::uint32_t other) {
    if (one != other) met_.emplace(one, other);
  }
  /// Calls on one line, and those by which threads met, are one barrier.
  std::vector<Barrier> finish(const Image& image) const;

 private:
  struct Calls {
    const char* kind = "";
    std::int64_t threads = 0;
  };
  std::map<std::uint32_t, Calls> calls_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> met_;
};

}  // namespace tilewright::cuda_host
