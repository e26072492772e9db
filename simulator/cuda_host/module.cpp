#include <algorithm>
#include <chrono>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

[[noreturn]] void refuse(const std::string& field, std::int64_t value, const char* accepted) {
  throw InputError({.field = field,
                    .value = std::to_string(value),
                    .problem = "is not accepted",
                    .accepted = accepted});
}

void check(const Tensor& t) {
  if (t.bytes < 0) refuse("tensor " + t.name + ": bytes", t.bytes, "0 or more");
  if (t.bytes > 0 && t.data == nullptr)
    throw InputError(
        {.field = "tensor", .value = t.name, .problem = "has no memory", .accepted = "an array"});
  if (t.element_bytes != 1 && t.element_bytes != 2 && t.element_bytes != 4 && t.element_bytes != 8)
    refuse("tensor " + t.name + ": element_bytes", t.element_bytes, "1, 2, 4 or 8");
}

void check(const Launch& l, std::size_t tensors, std::int64_t workspace_bytes) {
  for (const int t : l.tensors)
    if (t < 0 || static_cast<std::size_t>(t) >= tensors)
      refuse(l.kernel + ": tensor", t, "an index of a tensor");
  // 22 bits of blocks and 11 of threads and their copies are what a cell of memory remembers.
  for (const lowering::BoxMap& m : l.maps)
    if (m.tensor.index() >= tensors || m.box[0] * size_of(m.type) != 128 || m.rows() < 1 ||
        m.rows() > 256 || std::ranges::any_of(m.box, [](std::int64_t n) { return n > 256; }))
      refuse(l.kernel + ": box of a tensor", m.box[0], "rows of 128 bytes, 1 to 256 of them");
  if (l.blocks < 1 || l.blocks > 0x7fffffff)
    refuse(l.kernel + ": blocks", l.blocks, "1 to 2147483647");
  if (l.cluster < 1 || l.cluster > 16 || l.blocks % l.cluster != 0 ||
      (l.cluster > 1 && l.cooperative))
    refuse(l.kernel + ": cluster", l.cluster,
           "1 to 16 blocks that divide the launch's, which is not cooperative");
  if (l.threads < 1 || l.threads > 1024) refuse(l.kernel + ": threads", l.threads, "1 to 1024");
  if (l.shared_bytes < 0 || l.shared_bytes > 1 << 20)
    refuse(l.kernel + ": shared_bytes", l.shared_bytes, "0 to 1048576");
  if (l.workspace && workspace_bytes <= 0)
    refuse("workspace_bytes", workspace_bytes, "more than 0, since a launch takes the workspace");
  if (l.workspace && (l.workspace_offset < 0 || l.workspace_offset >= workspace_bytes))
    refuse(l.kernel + ": workspace_offset", l.workspace_offset, "0 to less than workspace_bytes");
}

std::optional<Reason> check_parameters(const Image& image, const Launch& l) {
  const Entry* const entry = image.entry(l.kernel);
  if (entry == nullptr) return Reason{"the module has no kernel " + l.kernel};
  const int given = static_cast<int>(l.tensors.size() + l.maps.size()) + (l.workspace ? 1 : 0);
  if (entry->parameters == given) return std::nullopt;
  return Reason{
      formatted("{} takes {} pointers, its launch gives {}", l.kernel, entry->parameters, given)};
}

}  // namespace

Result<Module> Module::build(const Program& program, const BuildOptions& options) {
  auto image = Image::build(program, options);
  if (!image) return Reason{image.reason()};
  Module module;
  module.image_ = *image;
  return module;
}

Result<Report> Module::run(std::span<const Launch> launches, std::span<const Tensor> tensors,
                           const RunOptions& options) const {
  for (const Tensor& t : tensors) check(t);
  for (const Launch& l : launches) {
    check(l, tensors.size(), options.workspace_bytes);
    if (auto reason = check_parameters(*image_, l)) return *reason;
  }
  GlobalMemory memory;
  if (auto reason = memory.lay_out(tensors, options.workspace_bytes)) return *reason;
  FindingCollector findings(options.max_findings);
  Engine engine(*image_, memory, findings, options);
  Report report;
  const auto start = std::chrono::steady_clock::now();
  for (const Launch& l : launches)
    if (auto reason = engine.launch(l, tensors, report.launches.emplace_back())) return *reason;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.blocks_stopped = engine.blocks_stopped();
  findings.finish(*image_, report);
  report.barriers = engine.barriers().finish(*image_);
  memory.copy_back(tensors);
  return report;
}

}  // namespace tilewright::cuda_host
