// The kernels of a network: built together, and each held against the reference evaluator, alone.
#include <algorithm>
#include <cmath>
#include <thread>

#include "core/base/format.h"
#include "harness/parallel.h"
#include "harness/pipeline.h"
#include "harness/program.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// The kernel's inputs where it is launched first, as the reference evaluator has them.
TensorValues values_at(const Program& program, std::size_t kernel, const TensorValues& values) {
  const auto launch = std::ranges::find(program.launches, kernel, &Launch::kernel);
  const Workload& w = *program.kernels[kernel].workload;
  TensorValues inputs(w.tensors().size());
  for (std::size_t t = 0; t < inputs.size(); ++t)
    if (w.is_input(TensorId(t))) inputs[t] = values[launch->tensors[t].index()];
  return inputs;
}

const Launch& first_launch(const Program& program, std::size_t kernel) {
  return *std::ranges::find(program.launches, kernel, &Launch::kernel);
}

const std::string& name_of_kernel(const Program& program, std::size_t kernel) {
  return first_launch(program, kernel).name;
}

std::string operators_of(const Program& program, std::size_t kernel) {
  std::vector<std::string> names;
  for (OpId op : first_launch(program, kernel).operators)
    names.push_back(program.workload->op(op).name);
  return join(names, " ");
}

/// Whether a reference can tell right from wrong: where drawn values make no number (the root of a
/// negative variance), it cannot.
bool is_finite(const Reference& reference) {
  const auto finite = [](const std::vector<double>& values) {
    return std::ranges::all_of(values, [](double x) { return std::isfinite(x); });
  };
  return std::ranges::all_of(reference.outputs, finite) &&
         std::ranges::all_of(reference.bounds, finite);
}

Result<VerifyResult> verified(const ProgramKernel& kernel,
                              const std::shared_ptr<codegen::Device>& device,
                              const Reference& reference) {
  ordered_json ignored;
  auto loaded = kernel.emitted->load(device, ignored);
  if (!loaded) return loaded.why();
  const codegen::TargetKernel& running = **loaded;
  std::optional<Reason> fault;
  VerifyResult result = verify(
      std::move(loaded).value(), *kernel.workload, reference, [&] { fault = running.fault(true); },
      &kernel.schedule);
  if (result.kernel && fault) return *fault;
  return result;
}

/// The fastest of the verified kernel and of its others that are right, each timed for a moment.
void tune(ProgramKernel& kernel, const std::shared_ptr<codegen::Device>& device,
          const Reference& reference) {
  const auto seconds = [](VerifiedKernel& timed) {
    constexpr double kSeconds = 0.02;
    const Result<codegen::Timing> timing = timed.kernel().time(kSeconds, {});
    return timing ? median(timing->seconds) : HUGE_VAL;
  };
  if (kernel.others.empty()) return;
  double best = seconds(*kernel.verified);
  for (ProgramKernel& other : kernel.others) {
    if (!other.emitted) continue;
    Result<VerifyResult> checked = verified(other, device, reference);
    if (!checked || !checked->kernel) continue;
    const double its = seconds(*checked->kernel);
    if (its >= best) continue;
    best = its;
    kernel.plan = std::move(other.plan);
    kernel.schedule = std::move(other.schedule);
    kernel.emitted = std::move(other.emitted);
    kernel.shared = other.shared;
    kernel.alone = other.alone;
    kernel.bytes = other.bytes;
    kernel.verified = std::move(checked.value().kernel);
    kernel.tuned = true;
  }
  kernel.others.clear();
}
}  // namespace

std::optional<Reason> build_kernels(Program& program, const codegen::Target& target,
                                    bool for_device, const Progress& progress) {
  constexpr std::size_t kMost = 12;  // kernels a unit: more share more, fewer run side by side
  const std::size_t n = program.kernels.size();
  const auto all = static_cast<std::size_t>(cores());
  std::vector<ProgramKernel*> others;
  for (ProgramKernel& kernel : program.kernels)
    for (ProgramKernel& other : kernel.others) others.push_back(&other);
  parallel_for(others.size(), cores(), [&](std::size_t i) {
    ordered_json ignored;
    if (others[i]->emitted->build(for_device, ignored)) others[i]->emitted.reset();
  });
  const bool together = target.build_together != nullptr;
  const std::size_t size = together ? std::clamp<std::size_t>((n + all - 1) / all, 1, kMost) : 1;
  const std::size_t units = (n + size - 1) / size;
  std::vector<std::optional<Reason>> failed(units);
  const auto build = [&](std::size_t unit) {
    std::vector<std::shared_ptr<codegen::Emitted>> some;
    for (std::size_t i = unit; i < n; i += units) some.push_back(program.kernels[i].emitted);
    ordered_json ignored;
    failed[unit] =
        together ? target.build_together(some) : some.front()->build(for_device, ignored);
  };
  const std::string what =
      formatted("building {} {}, usually 1 to 10 s for each of {} {}", n,
                n == 1 ? "kernel" : "kernels", units, units == 1 ? "compilation" : "compilations");
  if (progress) progress(what, 0);
  parallel_for(units, cores(), build, progress, what);
  for (const auto& why : failed)
    if (why) return Reason{"the kernels cannot be built: " + why->text};
  return std::nullopt;
}

std::optional<Reason> verify_kernels(Program& program,
                                     const std::shared_ptr<codegen::Device>& device,
                                     const TensorValues& values, std::uint64_t seed,
                                     const Progress& progress, double& worst) {
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    ProgramKernel& kernel = program.kernels[i];
    if (progress)
      progress("verifying kernels",
               static_cast<double>(i) / static_cast<double>(program.kernels.size()));
    Reference reference = reference_of(*kernel.workload, seed);
    Result<VerifyResult> checked = verified(kernel, device, reference);
    if (checked && !checked->failure && !checked->kernel &&
        (!is_finite(reference) || checked->verification.worst <= 1)) {
      reference = reference_of(*kernel.workload, values_at(program, i, values));
      checked = verified(kernel, device, reference);
      kernel.on_network_values = true;
    }
    const auto named = [&](const std::string& why) {
      return Reason{formatted("kernel {} ({}): {}", name_of_kernel(program, i),
                              operators_of(program, i), why)};
    };
    if (!checked) return named(checked.reason());
    if (checked->failure) return named("failed: " + checked->failure->text);
    if (!checked->kernel)
      return named(
          "verification failed: " +
          reason_of(checked->verification, *kernel.workload, [&](TensorId t) {
            return program.workload->tensor(first_launch(program, i).tensors[t.index()]).name;
          }));
    worst = std::max(worst, checked->verification.relative_error);
    kernel.verified = std::move(checked.value().kernel);
    tune(kernel, device, reference);
  }
  return std::nullopt;
}

}  // namespace tilewright::harness
