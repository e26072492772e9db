#include "harness/loaded_network.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "codegen/common/host_memory.h"
#include "core/base/format.h"
#include "core/workload/cut.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "harness/pipeline.h"

namespace tilewright::harness {
namespace {

std::optional<Reason> load_kernels(Program& program,
                                   const std::shared_ptr<codegen::Device>& device) {
  for (ProgramKernel& kernel : program.kernels) {
    nlohmann::ordered_json ignored;
    auto loaded = kernel.emitted->load(device, ignored);
    if (!loaded) return loaded.why();
    kernel.loaded = std::move(loaded).value();
  }
  return std::nullopt;
}

}  // namespace

void* LoadedNetwork::take(std::int64_t bytes) {
  constexpr std::size_t kPage = 4096;
  const auto size = static_cast<std::size_t>(bytes);
  memory_.push_back(codegen::host_memory(size, kPage));
  void* const memory = memory_.back().get();
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0xff, size);  // an element that is read and never written shows
  return memory;
}

void LoadedNetwork::place(const Program& program, const Kept& kept, std::uint64_t seed) {
  const Workload& w = *program.workload;
  const bool draws = std::ranges::any_of(w.tensors(), [&](const Tensor& t) {
    return t.values && t.drawn() && !kept.contains(t.name);
  });
  const TensorValues drawn = draws ? random_inputs(w, seed) : TensorValues();
  at_.assign(w.tensors().size(), nullptr);
  for (std::size_t t = 0; t < at_.size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    if (!w.is_input(TensorId(t))) continue;
    if (!tensor.values) {
      inputs_.emplace_back(t);
      continue;
    }
    at_[t] = take(tensor.bytes().value);
    if (const auto given = kept.find(tensor.name); given != kept.end()) {
      std::memcpy(at_[t], given->second, static_cast<std::size_t>(tensor.bytes().value));
      continue;
    }
    const auto count = static_cast<std::size_t>(tensor.elements().value);
    encode_elements(tensor.dtype,
                    tensor.drawn() ? drawn[t] : read_values(*tensor.values, count, tensor.name),
                    at_[t]);
  }
  const HandedOn on = handed_on(program);
  for (TensorId t : on.kept) at_[t.index()] = take(w.tensor(t).bytes().value);
  if (on.tensors.empty()) return;
  auto* base = static_cast<char*>(take(on.bytes));
  for (std::size_t i = 0; i < on.tensors.size(); ++i)
    at_[on.tensors[i].index()] = base + on.offsets[i];
}

Result<std::unique_ptr<LoadedNetwork>> LoadedNetwork::load(const Request& request, bool verify,
                                                           const Kept& kept) {
  const codegen::Target& target = target_named(request.target);
  if (target.sequence == nullptr)
    return Reason{formatted("target {} runs no networks", target.name)};
  const Result<ProgramPlan> plan = program_plan(request, std::nullopt);
  if (!plan) return plan.why();
  Result<Program> program = program_of(request, *plan);
  if (!program) return program.why();
  auto network = std::make_unique<LoadedNetwork>();
  Program& p = network->program_ = std::move(program).value();
  for (const ProgramKernel& kernel : p.kernels)
    if (const auto why = kernel.emitted->cannot_run()) return *why;
  if (const auto why = build_kernels(p, target, true, {})) return *why;
  const auto device = open_device(target);
  if (!device) return device.why();
  if (verify) {
    double worst = 0;
    const TensorValues values = evaluate(*p.workload, random_inputs(*p.workload, request.seed));
    if (const auto why = verify_kernels(p, *device, values, request.seed, request.progress, worst))
      return *why;
  } else if (const auto why = load_kernels(p, *device)) {
    return *why;
  }
  network->place(p, kept, request.seed);
  auto sequence = target.sequence(*device);
  if (!sequence) return sequence.why();
  network->sequence_ = std::move(sequence).value();
  const std::vector<bool> constant = constant_operators(*p.workload);
  const auto predicted = predicted_seconds(p, *plan->setting.machine);
  network->predicted_ = 0;
  std::vector<const Launch*> before, each_call;
  for (const Launch& l : p.launches) {
    const bool once =
        std::ranges::all_of(l.operators, [&](OpId op) { return constant[op.index()]; });
    const bool given =
        std::ranges::any_of(l.tensors, [&](TensorId t) { return p.workload->is_output(t); });
    if (once && !given) {
      before.push_back(&l);
      continue;
    }  // what a call is given memory for is written in every call
    each_call.push_back(&l);
    const auto seconds = predicted[static_cast<std::size_t>(&l - p.launches.data())];
    network->predicted_ = seconds && network->predicted_
                              ? std::optional(*network->predicted_ + *seconds)
                              : std::nullopt;
  }
  network->uses_.resize(network->at_.size());
  if (const auto why = network->add(before)) return *why;
  network->once_ = network->end_;
  if (const auto why = network->add(each_call)) return *why;
  if (const auto done = network->sequence_->run(0, network->once_); !done) return done.why();
  return network;
}

std::optional<Reason> LoadedNetwork::add(const std::vector<const Launch*>& launches) {
  for (const Launch* l : launches) {
    codegen::TargetKernel& kernel = program_.kernels[l->kernel].kernel();
    std::vector<void*> tensors(l->tensors.size(), nullptr);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const TensorId tensor = l->tensors[t];
      if (!kernel.needs(TensorId(t))) continue;
      tensors[t] = at_[tensor.index()];
      if (tensors[t] == nullptr)
        uses_[tensor.index()].push_back({end_, TensorId(t)});
      else if (!kernel.place(TensorId(t), tensors[t]))
        return Reason{"the target's kernels keep their tensors in memory of their own"};
    }
    if (const auto why = sequence_->add(kernel, tensors))
      return Reason{formatted("kernel {}: {}", l->name, why->text)};
    ++end_;
  }
  return std::nullopt;
}

std::optional<Reason> LoadedNetwork::given(TensorId tensor, void* elements) {
  void*& at = at_[tensor.index()];
  if (at == elements) return std::nullopt;
  at = elements;
  for (const Use& use : uses_[tensor.index()])
    if (auto why = sequence_->place(use.launch, use.tensor, elements)) return why;
  return std::nullopt;
}

std::optional<Reason> LoadedNetwork::run(std::span<void* const> inputs,
                                         std::span<void* const> outputs) {
  const std::lock_guard lock(busy_);
  const Workload& w = workload();
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (auto why = given(inputs_[i], inputs[i])) return why;
  for (std::size_t i = 0; i < w.outputs().size(); ++i)
    if (auto why = given(w.outputs()[i], outputs[i])) return why;
  if (!chosen_) {
    constexpr double kBudget = 0.02;  // seconds
    chosen_ = true;
    if (auto why = sequence_->choose_parts(once_, end_, kBudget)) return why;
  }
  if (const Result<double> seconds = sequence_->run(once_, end_); !seconds) return seconds.why();
  return std::nullopt;
}

}  // namespace tilewright::harness
