#include <algorithm>

#include "codegen/npu/emitter.h"
#include "codegen/npu/npu.h"
#include "core/npu/assembly.h"

namespace tilewright::npu {
namespace {

std::int64_t count(const std::vector<Statement>& body) {
  std::int64_t n = 0;
  for (const Statement& s : body) {
    ++n;
    if (const auto* loop = std::get_if<Loop>(&s.action)) n += count(loop->body);
    if (const auto* branch = std::get_if<Branch>(&s.action))
      n += count(branch->then) + count(branch->otherwise);
  }
  return n;
}

std::string name_of(const Workload& w, std::size_t kernel) {
  std::string name = w.name() + "_" + std::to_string(kernel);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

/// Machines and workloads that no kernel is emitted for.
std::optional<Reason> without_code(const Schedule& schedule) {
  if (!schedule.machine->npu_core)
    return Reason{"machine " + schedule.machine->name + " has no npu_core"};
  return std::nullopt;
}

}  // namespace

std::optional<Reason> refuses(const Schedule& schedule, const EmitOptions& options) {
  if (auto why = without_code(schedule)) return why;
  for (std::size_t k = 0; k < schedule.kernels.size(); ++k)
    if (const auto taken = merged_or_plain(schedule, k, options, &KernelEmitter::taken); !taken)
      return taken.why();
  return std::nullopt;
}

Result<Source> emit(const Schedule& schedule, const EmitOptions& options) {
  const MicroKernel* micro_kernel = find_micro_kernel(options.micro_kernel);
  if (micro_kernel == nullptr)
    throw InputError({.where = "--micro-kernel",
                      .value = options.micro_kernel,
                      .problem = "is not a micro-kernel for npu",
                      .accepted = std::string(micro_kernels().front().name)});
  const Workload& w = *schedule.workload;
  if (auto why = without_code(schedule)) return *why;
  Source source;
  for (const char c : w.name())
    source.file_name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  source.file_name += ".npu";
  source.needed.assign(w.tensors().size(), false);
  for (std::size_t k = 0; k < schedule.kernels.size(); ++k) {
    Result<KernelSource> kernel = merged_or_plain(schedule, k, options, &KernelEmitter::emit);
    if (!kernel) return kernel.why();
    source.kernels.push_back(std::move(kernel).value());
    KernelSource& made = source.kernels.back();
    made.program.name = name_of(w, k);  // and shapes, as the plan's workload has them
    for (Tensor& t : made.program.tensors)
      if (const auto& shape = w.tensor(*w.find_tensor(t.name)).shape; !shape.empty())
        t.shape = shape;
    made.statements = count(made.program.body);
    check(made.program, *schedule.machine);
    source.text += (source.text.empty() ? "" : "\n") + to_text(made.program);
    for (const npu::Tensor& t : made.program.tensors)
      source.needed[w.find_tensor(t.name)->index()] = true;
    for (OpId op : schedule.kernels[k].ops)
      if (w.is_contraction(op)) source.micro_kernel = micro_kernel->name;
  }
  return source;
}

}  // namespace tilewright::npu
