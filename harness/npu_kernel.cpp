#include "harness/npu_kernel.h"

#include <algorithm>
#include <cstring>

namespace tilewright::harness {

std::optional<Reason> NpuKernel::write(TensorId tensor, const void* elements) {
  const Tensor& t = w_.tensor(tensor);
  std::vector<std::byte>& to = data_[t.name];
  to.resize(static_cast<std::size_t>(t.bytes().value));
  std::memcpy(to.data(), elements, to.size());
  return std::nullopt;
}

std::optional<Reason> NpuKernel::read(TensorId tensor, void* elements) {
  const std::vector<std::byte>& from = data_.at(w_.tensor(tensor).name);
  std::copy(from.begin(), from.end(), static_cast<std::byte*>(elements));
  return std::nullopt;
}

Result<double> NpuKernel::run() {
  reports_.clear();
  double seconds = 0;
  for (const npu::KernelSource& k : source_.kernels) {
    npu::TensorData data;  // a kernel is given what it reads: the rest holds nothing
    for (const npu::Tensor& t : k.program.tensors)
      if (t.role == npu::Role::input) data[t.name] = data_.at(t.name);
    reports_.push_back(npu::emulate(k.program, machine_, data, options_));
    for (auto& [name, elements] : data) data_[name] = std::move(elements);
    seconds += reports_.back().seconds;
  }
  return seconds;
}

Traffic emulated_traffic(const std::vector<npu::Report>& reports, const Workload& w,
                         const Machine& m) {
  Traffic traffic{.source = Source::simulated, .by = "emulator", .machine = m.name};
  const auto entry = [&](const std::string& tensor, const std::string& boundary) -> TrafficEntry& {
    for (TrafficEntry& e : traffic.entries)
      if (e.tensor == tensor && e.boundary == boundary) return e;
    traffic.entries.push_back({.tensor = tensor, .boundary = boundary});
    return traffic.entries.back();
  };
  for (const npu::Report& r : reports)
    for (const npu::PathBytes& p : r.paths) {
      const auto from = m.find(npu::level_of(p.from)), to = m.find(npu::level_of(p.to));
      const auto tensor = w.find_tensor(p.tensor);
      TW_CHECK(from && to && tensor, "a path or a tensor that the machine or the workload has not");
      const Bytes bytes = bytes_of(Elements(p.elements), w.tensor(*tensor).dtype);
      const std::string boundary = m.boundary(*from, *to);
      const bool inward = boundary.ends_with("/" + m.level(*to).name);
      TrafficEntry& e = entry(p.tensor, boundary);
      (inward ? e.read : e.written) += bytes;
    }
  const auto rank = [&](const TrafficEntry& e) {
    const std::size_t slash = e.boundary.find('/');
    return std::tuple(m.find(e.boundary.substr(0, slash))->index(),
                      m.find(e.boundary.substr(slash + 1))->index(),
                      w.find_tensor(e.tensor)->index());
  };
  std::ranges::sort(traffic.entries, {}, rank);
  traffic.unavailable["DRAM/L2"] = "the emulator counts what DRAM gives L2 by lines, first reads only";
  return traffic;
}

std::vector<PathDifference> path_differences(const Traffic& exact, const Traffic& emulated) {
  std::vector<PathDifference> all;
  const auto look = [&](const TrafficEntry& e) {
    if (exact.unavailable.contains(e.boundary)) return;
    const TrafficEntry a = exact.at(e.tensor, e.boundary), b = emulated.at(e.tensor, e.boundary);
    // UB and L1 fill one another: what exact calls read there, a load, may go outward.
    if (a.read + a.written == b.read + b.written) return;
    if (std::ranges::any_of(all, [&](const PathDifference& d) {
          return d.tensor == e.tensor && d.boundary == e.boundary;
        }))
      return;
    all.push_back({e.tensor, e.boundary, a.read + a.written, b.read + b.written});
  };
  for (const TrafficEntry& e : exact.entries) look(e);
  for (const TrafficEntry& e : emulated.entries) look(e);
  return all;
}

}  // namespace tilewright::harness
