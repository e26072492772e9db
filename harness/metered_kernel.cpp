#include "harness/metered_kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/format.h"
#include "core/plan/stream.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "harness/cpu_kernel.h"

namespace tilewright::harness {
namespace {

constexpr std::int64_t kPage = 4096;

std::int64_t page_from(std::int64_t address) { return (address + kPage - 1) / kPage * kPage; }

/// All bits set are a NaN of every type.
constexpr std::byte kUnset{0xFF};

}  // namespace

cpu::Isa isa_for(const profilers::MeterRecord& meter) {
  if (!meter.valgrind) return cpu::host_isa();
  return cpu::host_runs(cpu::Isa::avx2) ? cpu::Isa::avx2 : cpu::Isa::generic;
}

Result<std::unique_ptr<MeteredKernel>> MeteredKernel::make(const Schedule& schedule,
                                                           const cpu::EmitOptions& options,
                                                           const Reference& reference) {
  const Result<cpu::Source> source = cpu::emit(schedule, options);
  if (!source) return Reason{"target cpu cannot emit this schedule: " + source.reason()};
  std::unique_ptr<MeteredKernel> metered(new MeteredKernel);
  if (metered->directory_.path().empty())
    return Reason{"no temporary directory: " + std::string(std::strerror(errno))};
  metered->built_.object = metered->directory_.path() / "kernel.so";
  Result<cpu::Kernel> kernel = cpu::build(*source, {.object = metered->built_.object});
  if (!kernel) return Reason{"the kernel cannot be built: " + kernel.reason()};
  metered->workload_ = schedule.workload;
  VerifyResult checked =
      verify(std::make_unique<CpuKernel>(std::move(kernel).value(), *schedule.workload),
             *schedule.workload, reference, {}, &schedule);
  if (!checked.kernel)
    return Reason{"verification failed: " + reason_of(checked.verification, *schedule.workload) +
                  "; the kernel is not measured"};
  metered->kernel_ = std::move(checked.kernel);
  metered->place(schedule);
  return metered;
}

void MeteredKernel::place(const Schedule& schedule) {
  const Workload& w = *workload_;
  const cpu::Source& source = kernel_->source();
  const AddressMap map(schedule, Layout::row_major);
  profilers::BuiltKernel& b = built_;
  b.prefix = source.prefix, b.threads = source.threads, b.isa = cpu::name_of(source.isa);
  b.arena = b.end = AddressMap::kArena;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const std::int64_t bytes = w.tensors()[t].bytes().value;
    if (map.base(TensorId(t)) != 0) b.end = std::max(b.end, map.base(TensorId(t)) + bytes);
  }
  before_.resize(w.tensors().size());
  after_.resize(w.tensors().size());
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    profilers::PlacedTensor placed{.name = tensor.name, .bytes = tensor.bytes().value};
    if (source.needed[t]) {
      placed.address = map.base(TensorId(t));
      if (placed.address == 0) {  // the simulator has it on chip
        placed.address = page_from(b.end);
        b.end = placed.address + placed.bytes;
      }
      before_[t].assign(static_cast<std::size_t>(placed.bytes), kUnset);
      if (w.is_input(TensorId(t))) kernel_->kernel().read(TensorId(t), before_[t].data());
      placed.before = before_[t].data();
    }
    b.tensors.push_back(std::move(placed));
  }
  for (TensorId t : w.outputs()) {
    const Tensor& tensor = w.tensor(t);
    std::vector<std::byte> elements(static_cast<std::size_t>(tensor.bytes().value));
    kernel_->kernel().read(t, elements.data());
    after_[t.index()] = decode_elements(tensor.dtype, elements.data(),
                                        static_cast<std::size_t>(tensor.elements().value));
  }
  b.end = page_from(b.end);
  b.workspace = b.end;
  b.run = [this] { return kernel_->run(); };
  b.check = [this](const std::byte* arena) { return check(arena); };
}

std::optional<Reason> MeteredKernel::check(const std::byte* arena) const {
  const Workload& w = *workload_;
  double worst = 0;
  for (TensorId t : w.outputs()) {
    const Tensor& tensor = w.tensor(t);
    const std::byte* const at = arena + (built_.tensors[t.index()].address - built_.arena);
    const std::vector<double> got =
        decode_elements(tensor.dtype, at, static_cast<std::size_t>(tensor.elements().value));
    worst = std::max(worst, relative_error(got, after_[t.index()]));
  }
  if (worst <= verification().tolerance) return std::nullopt;
  return Reason{
      formatted("under the meter the kernel computes something else: relative error {:.3g}, "
                "accepted {:.3g}",
                worst, verification().tolerance)};
}

}  // namespace tilewright::harness
