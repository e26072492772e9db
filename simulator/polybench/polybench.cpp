#include "simulator/polybench/polybench.h"

#include <algorithm>

#include "simulator/polybench/spaces.h"

namespace tilewright::polybench {

std::string_view name_of(Size size) {
  constexpr std::array<std::string_view, 3> kNames{"small", "medium", "large"};
  return kNames[static_cast<std::size_t>(size)];
}

std::optional<Size> size_from_name(std::string_view name) {
  for (const Size s : {Size::small, Size::medium, Size::large})
    if (name == name_of(s)) return s;
  return {};
}

std::span<const Kernel> kernels() {
  static const std::vector<Kernel> all = [] {
    std::vector<Kernel> list;
    for (const auto& group : {products(), solvers(), stencils()})
      list.insert(list.end(), group.begin(), group.end());
    std::sort(list.begin(), list.end(),
              [](const Kernel& a, const Kernel& b) { return a.name < b.name; });
    return list;
  }();
  return all;
}

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& k : kernels())
    if (k.name == name) return &k;
  return nullptr;
}

Counted count(const Kernel& kernel, const Sizes& n, std::vector<CacheGeometry> inner_to_outer,
              const Options& options) {
  CacheOptions cache_options = options.caches;
  cache_options.tensors = kernel.arrays + 1;
  CacheHierarchy caches(std::move(inner_to_outer), cache_options);
  RecorderOptions how{.addresses_only = !options.values, .walks = options.walks};
  if (how.walks) how.walks->tensor = kernel.arrays;
  Recorder recorder(caches, how);
  Traced space(recorder, options.base, options.values);
  kernel.traced(space, n);
  Counted counted{.accesses = recorder.accesses(),
                  .walks = recorder.walks() != nullptr ? recorder.walks()->walks() : 0};
  for (std::size_t l = 0; l < caches.levels().size(); ++l) {
    const CacheCount total = caches.total(l);
    counted.levels.push_back({.name = caches.levels()[l].name,
                              .hits = total.hits,
                              .misses = total.misses,
                              .prefetches = total.prefetches,
                              .walk_misses = caches.counts(l).back().misses});
  }
  if (options.values) counted.values = space.memory().values();
  return counted;
}

std::vector<std::vector<double>> compute(const Kernel& kernel, const Sizes& n) {
  Plain space;
  kernel.plain(space, n);
  return space.memory().values();
}

}  // namespace tilewright::polybench
