#include "codegen/cuda/launch_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "codegen/common/expression.h"
#include "codegen/cuda/shared_phases.h"
#include "core/workload/expr.h"

namespace tilewright::cuda {
namespace {

/// What blocks that combine a tensor begin with.
std::string beginning(const Workload& w, TensorId id) {
  const std::string type = element_type(w.tensor(id).dtype);
  Combine how = Combine::sum;
  for (const Output& o : w.op(w.producer(id)).outputs)
    if (o.target.tensor == id) how = o.combine;
  const std::string real = w.tensor(id).dtype == DType::f64 ? "double" : "float";
  switch (how) {
    case Combine::max:
      return "Rounded<" + type + ">::of(" + real + "(-kInfinity))";
    case Combine::min:
      return "Rounded<" + type + ">::of(" + real + "(kInfinity))";
    case Combine::product:
      return "Rounded<" + type + ">::of(" + real + "(1))";
    default:
      return type + "{}";
  }
}

/// One kernel that zeroes all that the next one's blocks add to.
void add_zeroing(const Workload& w, const std::vector<TensorId>& all, const std::string& symbol,
                 bool early, KernelText& text) {
  if (all.empty()) return;
  Launch launch{.symbol = symbol + "_zero", .tensors = all, .threads = 256, .early = early};
  std::string names, list, loops;
  std::int64_t longest = 0;
  for (TensorId id : all) {
    const Tensor& t = w.tensor(id);
    const std::int64_t elements = t.elements().value;
    longest = std::max(longest, elements);
    names += (names.empty() ? "" : ", ") + t.name;
    list += (list.empty() ? "" : ", ") + element_type(t.dtype) + "* " + home_of(w, id);
    loops += "  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < " +
             std::to_string(elements) + "; i += i64(gridDim.x) * blockDim.x)\n    store_global(" +
             home_of(w, id) + " + i, " + beginning(w, id) + ");\n";
  }
  launch.blocks = std::min<std::int64_t>(1024, ceil_div(longest, 256));
  text.text += "// Blocks add to " + names + ": from nothing on.\nextern \"C\" __global__ void " +
               launch.symbol + "(" + list + ") {\n" +
               (early ? "  launches_ended();\n  next_launch_may_begin();\n" : "") + loops + "}\n\n";
  text.launches.push_back(std::move(launch));
}

/// Whether a compute reads the tensor by another's values: where it lies.
bool is_gathered(const ScheduledKernel& k, TensorId t) {
  return std::ranges::any_of(k.nodes, [&](const ScheduleNode& n) {
    return std::ranges::any_of(
        n.reads, [&](const InputUse& use) { return use.tensor == t && !use.buffer.valid(); });
  });
}

}  // namespace

namespace {

/// Where a text has the name first, as a whole word; its end: nowhere.
std::size_t first_use(const std::string& text, const std::string& name) {
  const auto inside = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) return at;
  }
  return text.size();
}

}  // namespace

std::string element_type(DType type) {
  switch (type) {
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "double";
    case DType::i32:
      return "int";
    case DType::i8:
      return "i8";
    default:
      return "float";
  }
}

std::string made_as(DType type, const Output& out, const std::string& value) {
  if (!is_integer(type) || out.combine != Combine::assign) return value;
  return "whole_number<" + element_type(type) + ">(" + value + ")";
}

std::string combining(Combine c) {
  switch (c) {
    case Combine::max:
      return "kLargest";
    case Combine::min:
      return "kSmallest";
    case Combine::product:
      return "kTimes";
    default:
      return "kSum";
  }
}

std::string joining(Combine c) {
  switch (c) {
    case Combine::max:
      return "Larger{}";
    case Combine::min:
      return "Smaller{}";
    case Combine::product:
      return "Product{}";
    default:
      return "Sum{}";
  }
}

std::string number_text(double value, const std::string& real) {
  if (std::isinf(value)) return real + (value > 0 ? "(kInfinity)" : "(-kInfinity)");
  return literal(value, real);
}

std::string home_of(const Workload& w, TensorId t) {
  return identifier("", w.tensor(t).name) + "_home";
}

std::int64_t resident_blocks(const Machine& m, const Launch& l) {
  return l.cooperative && m.kind == "gpu" ? ceil_div(l.blocks, m.units.front().count) : 1;
}

std::optional<Reason> too_many_wait(const Machine& m, const Launch& l) {
  constexpr std::int64_t kFewestRegisters = 32;  // a thread, below which kernels spill
  const std::int64_t each = resident_blocks(m, l);
  if (each == 1) return {};
  const ComputeUnit& sm = m.units.front();
  const auto of_threads = std::ranges::find(m.levels, Unit::thread, &Level::private_to);
  const std::int64_t threads =
      of_threads == m.levels.end() ? 2048 : of_threads->instances / sm.count;
  const std::int64_t most =
      std::min({sm.blocks, threads / l.threads,
                sm.registers > 0 ? sm.registers / (l.threads * kFewestRegisters) : sm.blocks});
  if (each <= most) return {};
  return Reason{std::to_string(l.blocks) + " blocks of " + std::to_string(l.threads) +
                " threads wait for one another, " + std::to_string(each) + " on each " + sm.name +
                ": at most " + std::to_string(most) + " are resident there (" +
                std::to_string(threads) + " threads, " + std::to_string(sm.registers) +
                " registers)"};
}

std::string shared_place(const std::string& type, std::int64_t bytes) {
  return "reinterpret_cast<" + type + "*>(memory_begin + made_here(" + std::to_string(bytes) + "))";
}

KernelText launch_text(Program& p, int index, const KernelBody& body) {
  const Workload& w = p.workload();
  const ScheduledKernel& k = p.schedule.kernels[static_cast<std::size_t>(index)];
  const auto at_home = [](const Buffer& b) {
    return b.role != BufferRole::intermediate || b.leaves;
  };
  KernelText text;
  const std::string symbol = p.options.prefix + "_" + std::to_string(index);
  const bool early = p.begins_early(index);
  add_zeroing(w, k.zeroed, symbol, early, text);
  Launch launch{.symbol = symbol,
                .tensors = {},
                .workspace = k.co_resident,
                .workspace_offset = k.co_resident ? 4 * std::int64_t{index} : 0,
                .blocks = k.blocks,
                .threads = body.threads,
                .shared_bytes = body.shared_bytes,
                .cooperative = k.co_resident,
                .early = early};
  std::string list;
  for (std::size_t i = 0; i < w.tensors().size(); ++i) {
    const TensorId t(i);
    const auto is_it = [&](const Buffer& b) { return b.tensor == t && at_home(b); };
    if (std::ranges::none_of(k.buffers, is_it) && !is_gathered(k, t)) continue;
    p.needed[i] = true;
    launch.tensors.push_back(t);
  }
  // In the order of their use: kernels that differ in tensors alone have one text.
  std::map<TensorId, std::size_t> used;
  for (TensorId t : launch.tensors) used[t] = first_use(body.body, home_of(w, t));
  std::ranges::stable_sort(launch.tensors, {}, [&](TensorId t) { return used.at(t); });
  for (TensorId t : launch.tensors) {
    const bool written = std::ranges::any_of(
        k.buffers, [&](const Buffer& b) { return b.tensor == t && b.role != BufferRole::input; });
    list += (list.empty() ? "" : ", ") + std::string(written ? "" : "const ") +
            element_type(w.tensor(t).dtype) + "* " + home_of(w, t);
  }
  if (launch.workspace) list += (list.empty() ? "" : ", ") + std::string("u32* arrivals");
  std::string bounds = std::to_string(launch.threads);
  if (const std::int64_t each = resident_blocks(p.machine(), launch); each > 1)
    bounds += ", " + std::to_string(each);
  else if (body.resident > 0)
    bounds += ", " + std::to_string(body.resident);
  SharedPhases phases{.functions = {}, .body = body.body};
  if (launch.workspace) phases = share_phases(body.body, list, symbol);
  text.text += phases.functions + "extern \"C\" __global__ void __launch_bounds__(" + bounds +
               ") " + symbol + "(" + list + ") {\n" + phases.body + "}\n";
  text.launches.push_back(launch);
  return text;
}

}  // namespace tilewright::cuda
