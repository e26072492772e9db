#include "harness/metered_kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/format.h"
#include "core/plan/stream.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "harness/meters.h"
#include "harness/registry.h"

namespace tilewright::harness {
namespace {

constexpr std::int64_t kPage = 4096;

std::int64_t page_from(std::int64_t address) { return (address + kPage - 1) / kPage * kPage; }

/// All bits set are a NaN of every type.
constexpr std::byte kUnset{0xFF};

}  // namespace

OptionValues options_under(const profilers::MeterRecord& meter, const codegen::Target& target,
                           OptionValues given) {
  if (meter.valgrind && target.under_valgrind != nullptr) given.merge(target.under_valgrind());
  return given;
}

Result<std::unique_ptr<MeteredKernel>> MeteredKernel::make(const Schedule& schedule,
                                                           const profilers::MeterRecord& meter,
                                                           const Reference& reference) {
  const codegen::Target& target = target_of(meter);
  const auto emitted = target.emit(schedule, settings_for(target, options_under(meter, target)), 1);
  if (!emitted)
    return Reason{"target " + std::string(target.name) +
                  " cannot emit this schedule: " + emitted.reason()};
  return make(schedule, **emitted, reference);
}

Result<std::unique_ptr<MeteredKernel>> MeteredKernel::make(const Schedule& schedule,
                                                           codegen::Emitted& emitted,
                                                           const Reference& reference) {
  std::unique_ptr<MeteredKernel> metered(new MeteredKernel);
  if (metered->directory_.path().empty())
    return Reason{"no temporary directory: " + std::string(std::strerror(errno))};
  metered->built_.object = metered->directory_.path() / "kernel.so";
  const Result<codegen::HostObject> object = emitted.build_object(metered->built_.object);
  if (!object) return Reason{"the kernel cannot be built: " + object.reason()};
  nlohmann::ordered_json unused;
  Result<std::unique_ptr<TargetKernel>> loaded = emitted.load(nullptr, unused);
  if (!loaded) return Reason{"the kernel does not run here: " + loaded.reason()};
  metered->workload_ = schedule.workload;
  VerifyResult checked =
      verify(std::move(loaded).value(), *schedule.workload, reference, {}, &schedule);
  if (!checked.kernel)
    return Reason{"verification failed: " + reason_of(checked.verification, *schedule.workload) +
                  "; the kernel is not measured"};
  metered->kernel_ = std::move(checked.kernel);
  metered->place(schedule, *object);
  return metered;
}

void MeteredKernel::place(const Schedule& schedule, const codegen::HostObject& object) {
  const Workload& w = *workload_;
  const AddressMap map(schedule, Layout::row_major);
  profilers::BuiltKernel& b = built_;
  b.prefix = object.prefix, b.threads = object.threads, b.isa = object.isa;
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
    if (kernel_->kernel().needs(TensorId(t))) {
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
