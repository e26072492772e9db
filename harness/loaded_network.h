// A network that is planned, built and loaded once and then called on memory of the caller's.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "harness/program.h"

namespace tilewright::harness {

class LoadedNetwork {
 public:
  using Kept = std::map<std::string, const void*>;

  /// Plans the request's workload as `run` does, for a target whose kernels work on memory of this
  /// process. `verify`: every kernel alone, as `run` does, else none. A Reason where the target
  /// refuses a kernel, the compiler fails or a kernel is wrong. `kept`: elements, row-major, of
  /// inputs whose values are drawn, by the tensor's name; they are copied, and the network has them
  /// in place of drawn ones. Throws InputError for bad input. Cost: planning and compiling; with
  /// `verify` also the reference evaluator.
  static Result<std::unique_ptr<LoadedNetwork>> load(const Request& request, bool verify,
                                                     const Kept& kept = {});

  const Workload& workload() const { return *program_.workload; }
  std::size_t launches() const { return program_.launches.size(); }
  /// Predicted seconds of all launches of a call; none where the model has none for one of them.
  std::optional<double> predicted() const { return predicted_; }
  const std::vector<std::string>& notes() const { return program_.notes; }

  /// One call: reads `inputs` (the workload's inputs without values, in order of TensorId) and
  /// writes `outputs` (Workload::outputs), row-major elements of the tensors' types; none overlap.
  /// Nothing is copied. Calls from several threads wait for one another. The first call of one on
  /// several threads runs some times, to find which launches they share.
  std::optional<Reason> run(std::span<void* const> inputs, std::span<void* const> outputs);
  /// What `inputs` of a call are.
  const std::vector<TensorId>& inputs() const { return inputs_; }

 private:
  void* take(std::int64_t bytes);
  void place(const Program& program, const Kept& kept, std::uint64_t seed);
  /// A launch's tensor that lies somewhere else in each call.
  struct Use {
    std::size_t launch = 0;
    TensorId tensor;  ///< of its kernel
  };
  std::optional<Reason> add(const std::vector<const Launch*>& launches);
  std::optional<Reason> given(TensorId tensor, void* elements);

  Program program_;
  std::vector<TensorId> inputs_;
  std::optional<double> predicted_ = {};  ///< seconds of the launches of a call
  std::vector<void*> at_;                 ///< by TensorId
  std::vector<std::vector<Use>> uses_;    ///< by TensorId; of others than inputs and outputs none
  std::vector<std::shared_ptr<void>> memory_;
  std::unique_ptr<codegen::LaunchSequence> sequence_;  ///< of program_'s kernels
  std::size_t once_ = 0, end_ = 0;  ///< its launches before all calls; these and those of a call
  bool chosen_ = false;             ///< which launches threads share
  std::mutex busy_;
};

}  // namespace tilewright::harness
