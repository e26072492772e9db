#include "harness/kernel_batch.h"

#include <algorithm>
#include <optional>

#include "codegen/cpu/loaded.h"
#include "harness/parallel.h"

namespace tilewright::harness {
namespace {

constexpr std::size_t kTogether = 32;  // sources a translation unit

using Built = std::vector<std::optional<Result<cpu::Kernel>>>;

/// Builds sources [begin, end) into their places. Where they do not build together, each alone, so
/// that one that is wrong costs no other.
void build_some(std::span<const cpu::Source> sources, std::span<const std::size_t> places,
                Built& into) {
  auto all = cpu::build_all(sources);
  for (std::size_t i = 0; i < sources.size(); ++i)
    into[places[i]] = all                   ? Result<cpu::Kernel>(std::move(all.value()[i]))
                      : sources.size() == 1 ? Result<cpu::Kernel>(Reason{all.reason()})
                                            : cpu::build(sources[i]);
}

}  // namespace

std::vector<Result<std::unique_ptr<VerifiedKernel>>> verified_kernels(
    const Workload& workload, std::span<const BatchItem> items, const Reference& reference,
    const BatchOptions& options) {
  Built built(items.size());
  std::vector<cpu::Source> sources;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].schedule) {
      built[i] = Reason{items[i].schedule.reason()};
      continue;
    }
    auto source = cpu::emit(*items[i].schedule, {.isa = options.isa,
                                                 .threads = options.threads,
                                                 .micro_kernel = items[i].micro_kernel,
                                                 .prefix = "k" + std::to_string(i)});
    if (!source) {
      built[i] = Reason{source.reason()};
      continue;
    }
    sources.push_back(std::move(source).value());
    places.push_back(i);
  }
  const std::size_t units = (sources.size() + kTogether - 1) / kTogether;
  parallel_for(
      units, options.jobs,
      [&](std::size_t u) {
        const std::size_t begin = u * kTogether, n = std::min(kTogether, sources.size() - begin);
        build_some(std::span(sources).subspan(begin, n), std::span(places).subspan(begin, n),
                   built);
      },
      options.progress, "building");

  const auto tensors = std::make_shared<cpu::Tensors>(workload);
  std::vector<Result<std::unique_ptr<VerifiedKernel>>> kernels;
  for (std::size_t i = 0; i < built.size(); ++i) {
    std::optional<Result<cpu::Kernel>>& kernel = built[i];
    if (!kernel->ok()) {
      kernels.emplace_back(Reason{kernel->reason()});
      continue;
    }
    VerifyResult checked = verify(std::make_unique<cpu::LoadedKernel>(std::move(*kernel).value(), tensors),
                                  workload, reference, {}, &*items[i].schedule);
    if (checked.kernel)
      kernels.emplace_back(std::move(checked.kernel));
    else
      kernels.emplace_back(
          Reason{"verification failed: " + reason_of(checked.verification, workload)});
  }
  return kernels;
}

const cpu::Source& source_of(VerifiedKernel& kernel) {
  return static_cast<const cpu::LoadedKernel&>(kernel.kernel()).source();
}

}  // namespace tilewright::harness
