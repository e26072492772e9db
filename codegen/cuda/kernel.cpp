#include "codegen/cuda/kernel.h"

namespace tilewright::cuda {

Result<Kernel> Kernel::load(std::shared_ptr<Device> device, Source source, Binary binary,
                            std::vector<std::int64_t> bytes, int copies) {
  TW_CHECK(copies >= 1, "a kernel without tensors");
  Kernel k;
  k.device_ = std::move(device);
  k.source_ = std::move(source);
  k.binary_ = std::move(binary);
  k.bytes_ = std::move(bytes);
  k.copies_ = copies;
  Result<Module> module = k.device_->load(k.binary_.cubin);
  if (!module) return Reason{module.reason()};
  k.module_ = std::move(module).value();
  if (auto why = k.find_functions()) return *why;
  if (auto why = k.take_memory()) return *why;

  Result<Graph> once = k.device_->capture(k.nodes(0));
  if (!once) return Reason{once.reason()};
  k.once_ = std::move(once).value();
  return k;
}

std::optional<Reason> Kernel::find_functions() {
  for (const Launch& launch : source_.launches) {
    const Result<void*> function = device_->function(module_, launch.symbol, launch.shared_bytes);
    if (!function) return Reason{function.reason()};
    functions_.push_back(*function);
    const Result<FunctionFigures> figures = device_->figures(*function);
    if (!figures) return Reason{figures.reason()};
    figures_.push_back(*figures);
    const Result<int> resident =
        device_->resident_blocks(*function, launch.threads, launch.shared_bytes);
    if (!resident) return Reason{resident.reason()};
    resident_.push_back(*resident);
    const std::int64_t room = std::int64_t{*resident} * device_->info().multiprocessors;
    if (*resident == 0)
      return Reason{launch.symbol + ": no multiprocessor holds a block of " +
                    std::to_string(launch.threads) + " threads with " +
                    std::to_string(figures->registers) + " registers each and " +
                    std::to_string(launch.shared_bytes) + " bytes of shared memory"};
    if (launch.cooperative && (launch.blocks > room || !device_->info().cooperative))
      return Reason{launch.symbol + ": its " + std::to_string(launch.blocks) +
                    " blocks wait for one another, and the device holds " + std::to_string(room) +
                    " at once"};
  }
  return std::nullopt;
}

std::optional<Reason> Kernel::take_memory() {
  for (int copy = 0; copy < copies_; ++copy) {
    tensors_.emplace_back(bytes_.size());
    for (std::size_t t = 0; t < bytes_.size(); ++t) {
      if (t >= source_.needed.size() || !source_.needed[t]) continue;
      Result<Buffer> buffer = device_->allocate(bytes_[t]);
      if (!buffer) return Reason{buffer.reason()};
      tensors_.back()[t] = std::move(buffer).value();
    }
  }
  if (source_.workspace_bytes == 0) return std::nullopt;
  Result<Buffer> workspace = device_->allocate(source_.workspace_bytes);
  if (!workspace) return Reason{workspace.reason()};
  workspace_ = std::move(workspace).value();
  return std::nullopt;
}

std::vector<GraphNode> Kernel::nodes(int copy) const {
  std::vector<void*> addresses;
  for (const Buffer& buffer : tensors_[static_cast<std::size_t>(copy)])
    addresses.push_back(reinterpret_cast<void*>(buffer.address()));
  return nodes_on(addresses);
}

std::vector<GraphNode> Kernel::nodes_on(std::span<void* const> tensors) const {
  std::vector<GraphNode> nodes;
  if (source_.workspace_bytes > 0)
    nodes.push_back({.arguments = {workspace_.address()}, .zeroed_bytes = source_.workspace_bytes});
  for (std::size_t i = 0; i < source_.launches.size(); ++i) {
    const Launch& launch = source_.launches[i];
    GraphNode node{.function = functions_[i],
                   .blocks = launch.blocks,
                   .threads = launch.threads,
                   .shared_bytes = launch.shared_bytes,
                   .cooperative = launch.cooperative,
                   .early = launch.early};
    for (TensorId t : launch.tensors) {
      TW_CHECK(tensors[t.index()] != nullptr, "a launch on a tensor that is nowhere");
      node.arguments.push_back(reinterpret_cast<std::uint64_t>(tensors[t.index()]));
    }
    if (launch.workspace)
      node.arguments.push_back(workspace_.address() +
                               static_cast<std::uint64_t>(launch.workspace_offset));
    for (const lowering::BoxMap& m : launch.maps) {
      TW_CHECK(tensors[m.tensor.index()] != nullptr, "boxes of a tensor that is nowhere");
      node.boxes.push_back({m, reinterpret_cast<std::uint64_t>(tensors[m.tensor.index()])});
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

void Kernel::give_up_tensors() {
  once_ = {};
  tensors_.clear();
}

std::optional<Reason> Kernel::write(TensorId tensor, const void* from) {
  for (std::vector<Buffer>& set : tensors_)
    if (auto why = device_->upload(set[tensor.index()], from, bytes_[tensor.index()])) return why;
  return std::nullopt;
}

std::optional<Reason> Kernel::read(TensorId tensor, void* to) {
  return device_->download(to, tensors_.front()[tensor.index()], bytes_[tensor.index()]);
}

Result<double> Kernel::run_once() { return device_->run(once_, 1); }

std::optional<Reason> Kernel::run_profiled() { return device_->run_profiled(nodes(0)); }

}  // namespace tilewright::cuda
