// emit: a schedule as one .cu file.
#include <algorithm>
#include <sstream>
#include <utility>

#include "codegen/common/program_head.h"
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/emit_pairs.h"
#include "codegen/cuda/emit_warpgroups.h"
#include "codegen/cuda/emit_windows.h"
#include "codegen/cuda/launch_text.h"
#include "codegen/cuda/print_program.h"
#include "codegen/cuda/shared_kernels.h"
#include "core/lowering/gpu/block_order.h"
#include "core/lowering/gpu/early.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::cuda {
namespace {

void check(const EmitOptions& o) {
  check_prefix(o.prefix);
  if (o.warps < 0 || o.warps > 16)
    throw InputError({.field = "warps",
                      .value = std::to_string(o.warps),
                      .problem = "is not a number of warps",
                      .accepted = "1..16, or 0 for as many as suit the tiles"});
  if (o.copy_warps < 1 || o.copy_warps > 8)
    throw InputError({.field = "copy warps",
                      .value = std::to_string(o.copy_warps),
                      .problem = "is not a number of warps",
                      .accepted = "1..8"});
  if (o.stages < 0 || o.stages > 8)
    throw InputError({.field = "stages",
                      .value = std::to_string(o.stages),
                      .problem = "is not a number of stages",
                      .accepted = "1..8, or 0 for as many as fit"});
}

/// Values that name elements are computed in f32, which holds whole numbers below 2^24 only.
std::optional<Reason> indices_refused(const Workload& w) {
  constexpr std::int64_t kMostExact = std::int64_t{1} << 24;
  if (w.dtype() == DType::f64) return std::nullopt;
  for (const Operator& op : w.operators())
    for (const Access& a : op.inputs)
      for (std::size_t d = 0; d < a.index.size(); ++d) {
        if (a.index[d].gathered < 0 || w.tensor(a.tensor).shape[d] <= kMostExact) continue;
        const TensorId by = op.inputs[static_cast<std::size_t>(a.index[d].gathered)].tensor;
        if (!w.is_input(by))
          return Reason{"operator " + op.name + " indexes " +
                        std::to_string(w.tensor(a.tensor).shape[d]) + " elements of " +
                        w.tensor(a.tensor).name + " by values of " + w.tensor(by).name +
                        ", which are made in f32: it has whole numbers below 2^24 only"};
      }
  return std::nullopt;
}

std::optional<Reason> types_refused(const Workload& w) {
  if (auto refused = indices_refused(w)) return refused;
  for (const Operator& op : w.operators())
    for (const Output& o : op.outputs) {
      const Tensor& t = w.tensor(o.target.tensor);
      if (!is_integer(t.dtype) || o.combine == Combine::assign) continue;
      if (o.rescale || !is_whole(w.spec(), op, o.value))
        return Reason{"tensor " + t.name + " is of type " + std::string(name_of(t.dtype)) +
                      " and combines values that are not whole numbers: what it is depends on when "
                      "a partial result is rounded"};
    }
  bool f64 = false, other = false;
  for (const Tensor& t : w.tensors()) {
    if (is_integer(t.dtype)) continue;
    if (t.dtype != DType::f16 && t.dtype != DType::bf16 && t.dtype != DType::f32 &&
        t.dtype != DType::f64)
      return Reason{"tensor " + t.name + " is of type " + std::string(name_of(t.dtype)) +
                    ": the cuda target emits f16, bf16, f32, f64, i8 and i32"};
    (t.dtype == DType::f64 ? f64 : other) = true;
  }
  if (f64 && other)
    return Reason{"tensors of f64 and of other types: the cuda target computes in one of the two"};
  return std::nullopt;
}

std::optional<Reason> micro_kernel_refused(const Workload& w, const std::string& name) {
  if (name.empty()) return std::nullopt;
  const MicroKernel* const m = find_micro_kernel(name, w.dtype());
  if (m != nullptr && (m->takes(w.dtype()) || (w.dtype() == DType::f64 && !m->blocks)))
    return std::nullopt;
  if (m != nullptr)
    return Reason{"micro-kernel " + name + " takes no " + std::string(name_of(w.dtype()))};
  std::vector<std::string> names;
  for (const MicroKernel& each : micro_kernels()) names.emplace_back(each.name);
  return Reason{"the cuda target has no micro-kernel " + name.substr(0, 40) + " (it has " +
                join(names) + ")"};
}

std::string head(const Program& p, const Source& source) {
  std::string text = program_head(p.schedule, source.build_command_text);
  text += "// Tiles:\n";
  for (const TileUse& t : source.tiles) {
    std::string line = t.tensor + " at " + t.level + ": " + t.place;
    if (t.bytes > 0) line += ", " + std::to_string(t.bytes) + " bytes";
    if (t.stages > 1) line += " in " + std::to_string(t.stages) + " stages";
    text += "//   " + one_line(line + " (" + t.reason + ")") + "\n";
  }
  if (!source.micro_kernel.empty())
    text += "// Matrix products run on micro-kernels " + source.micro_kernel + ".\n";
  text += "// Launches, in order:\n";
  for (const Launch& l : source.launches)
    text += "//   " + l.symbol + "<<<" + std::to_string(l.blocks) + ", " +
            std::to_string(l.threads) + ", " + std::to_string(l.shared_bytes) + ">>>" +
            (l.cooperative ? ", cooperative" : "") +
            (l.cluster > 1 ? ", clusters of " + std::to_string(l.cluster) : "") + "\n";
  for (const std::string& note : source.notes) text += "// Note: " + one_line(note) + ".\n";
  return text;
}

Result<KernelText> emit_block(Program& p, int index, bool tight) {
  try {
    return KernelEmitter(p, index, tight).emit();
  } catch (const Refused& refused) {
    return Reason{p.schedule.kernels[static_cast<std::size_t>(index)].name + ": " + refused.text,
                  refused.shortage};
  }
}

/// Where padded tiles have no room, products of floats are by fused multiply-adds, whose tiles are
/// padded less; else tiles are as small as the plan has them, and every operator goes point by
/// point.
Result<KernelText> emit_block(Program& p, int index, Source& source) {
  auto text = emit_block(p, index, false);
  if (!text && text.why().shortage && p.options.micro_kernel.empty() &&
      p.workload().dtype() == DType::f32) {
    p.by_fma = true;
    auto smaller = emit_block(p, index, false);
    p.by_fma = false;
    if (smaller) return smaller;
  }
  if (text || !text.why().shortage || !p.options.micro_kernel.empty() || p.options.own_form)
    return text;
  auto tight = emit_block(p, index, true);
  if (!tight) return text;
  tight.value().notes.push_back("tiles are not padded, and operators go point by point: " +
                                text.reason());
  if (!source.makeshift) source.makeshift = text.why();
  return tight;
}

/// Clusters of thread blocks are of products by warpgroups and of convolutions. In other kernels
/// one block runs what a cluster's blocks have, in turn, and blocks share no operands.
void note_clusters(const ScheduledKernel& k, KernelText& text, Source& source) {
  if (text.launches.back().cluster > 1) return;
  const bool loops = std::ranges::any_of(k.nodes, [](const ScheduleNode& n) {
    return n.kind == NodeKind::loop && n.binding == Binding::cluster && n.max_trips > 1;
  });
  if (!loops && k.launch.cluster.value_or(1) == 1) return;
  const std::string what =
      std::string(loops ? "one block runs the iterations of a cluster's blocks, in turn"
                        : "its blocks run without clusters") +
      ": it is no product by warpgroups and no convolution by tensor cores of sm_90a";
  text.notes.push_back(what);
  if (!source.makeshift) source.makeshift = Reason{k.name + ": " + what};
}

/// What templates of whole kernels some kernel is.
struct Templates {
  bool warpgroups = false, windows = false, hopper = false;
};

/// By warpgroups where the text may be for Hopper alone and the kernel is one product, or two; as
/// one convolution by tensor cores; else block by block.
Result<KernelText> emit_shared(Program& p, int index, Source& source, Templates& templates) {
  const bool hopper = p.options.warpgroups;
  if (!p.options.micro_kernel.empty()) return emit_block(p, index, source);
  std::string why = hopper ? "" : "it is not emitted for warpgroups; ";
  if (hopper) {
    const auto product =
        lowering::warpgroup_product(p.schedule, index, p.options.warps, p.options.stages);
    templates.warpgroups = templates.warpgroups || product.ok();
    if (product) return emit_warpgroups(p, index, *product);
    const auto pair =
        lowering::warpgroup_pair(p.schedule, index, p.options.warps, p.options.stages);
    templates.warpgroups = templates.warpgroups || pair.ok();
    if (pair) return emit_pair(p, index, *pair);
    why = "not by warpgroups: as one product, " + product.reason() + "; as two, " + pair.reason() +
          "; ";
  }
  const auto window =
      lowering::window_product(p.schedule, index, p.options.warps, p.options.stages);
  const bool fits = window && p.options.registers && (hopper || window->share == 1) &&
                    (p.options.shared_room == 0 || window->shared_bytes <= p.options.shared_room);
  templates.windows = templates.windows || fits;
  if (fits) return emit_windows(p, index, *window);
  why += !window ? "not as a convolution: " + window.reason()
                 : "not as a convolution: clusters are of sm_90a, or its tile has no room";
  auto text = emit_block(p, index, source);
  if (!text) return text;
  KernelText value = std::move(text).value();
  if (hopper) value.program += why + "\n";
  return value;
}

/// A kernel whose loops are bound to warps, lanes or threads: each unit has its iterations. Where
/// that cannot be, the block's warps together share the work of one iteration after the other.
Result<KernelText> print_kernel(Program& p, int index, Source& source, bool& stitched) {
  auto lowered = lowering::lower(
      p.schedule, index,
      {.warps = p.options.warps, .shared_room = p.options.shared_room, .target = "cuda"});
  if (!lowered) {
    if (p.options.own_form) return lowered.why();
    auto text = emit_block(p, index, source);
    if (!text)
      return Reason{lowered.reason() + "; and where all warps share its work, " + text.reason(),
                    lowered.why().shortage ? lowered.why().shortage : text.why().shortage};
    text.value().notes.push_back(
        "all warps share the work of loops over warps, lanes or threads: " + lowered.reason());
    if (!source.makeshift) source.makeshift = lowered.why();
    return text;
  }
  stitched = true;
  ThreadProgram program = std::move(lowered).value();
  const int threads = static_cast<int>(lowering::kLanes * program.warps);
  const std::int64_t shared_bytes = program.shared_bytes;
  const bool from_last = lowering::from_last_block(p.schedule, index);
  const bool early = p.begins_early(index);
  const auto written = [&](TensorId t) { return p.launch_before_writes(index, t); };
  const auto launched = [&](TensorId t) { return early && written(t); };
  // A launch that does not begin early may let the next one: it waits for nothing.
  if (early || p.begins_early(index + 1))
    lowering::wait_for_launches(program, written,
                                lowering::lets_next_begin(p.schedule, index, threads));
  std::string description = lowering::describe(program);
  if (from_last) description += "  the last block begins first\n";
  const Machine& m = p.machine();
  const std::int64_t resident =
      m.kind == "gpu" ? program.asked(m.units.front().count, m.units.front().registers) : 0;
  ProgramPrinter printer(std::move(program), from_last, launched);
  KernelText text = launch_text(p, index,
                                {.body = printer.body(),
                                 .threads = threads,
                                 .shared_bytes = shared_bytes,
                                 .resident = resident});
  text.tiles = printer.tiles(p.machine());
  text.program = std::move(description);
  return text;
}

}  // namespace

bool Program::begins_early(int kernel) const {
  if (kernel >= static_cast<int>(schedule.kernels.size())) return false;
  const ScheduledKernel& k = schedule.kernels[static_cast<std::size_t>(kernel)];
  // Where nobody knows what is written before a launch, kernels of units would have to read all in
  // its place, which takes up to a quarter longer (h200-graphs-in-place.json).
  const bool unknown = options.before == nullptr || options.before->writes.empty();
  const bool in_place = kernel == 0 && unknown && k.zeroed.empty();
  return options.warpgroups && !k.co_resident && !(in_place && lowering::binds_units(k));
}

bool Program::launch_before_writes(int kernel, TensorId tensor) const {
  // Its own zeros, by a launch that begins no other before all that were before it have ended.
  const std::vector<TensorId>& zeroed = schedule.kernels[static_cast<std::size_t>(kernel)].zeroed;
  if (!zeroed.empty()) return std::ranges::find(zeroed, tensor) != zeroed.end();
  if (kernel == 0)
    return options.before == nullptr || options.before->writes.empty() ||
           options.before->writes[tensor.index()];
  const ScheduledKernel& before = schedule.kernels[static_cast<std::size_t>(kernel - 1)];
  return std::ranges::find(before.zeroed, tensor) != before.zeroed.end() ||
         std::ranges::any_of(before.buffers, [&](const Buffer& b) {
           return b.tensor == tensor && (b.role == BufferRole::output || b.leaves);
         });
}

std::optional<Program::Before> Program::before(int kernel) const {
  if (kernel > 0) return Before{schedule, kernel - 1};
  if (options.before != nullptr) return Before{*options.before->schedule, 0};
  if (schedule.kernels.size() < 2) return std::nullopt;
  return Before{schedule, static_cast<int>(schedule.kernels.size()) - 1};
}

Result<Source> emit(const Schedule& s, const EmitOptions& options) {
  check(options);
  if (auto refused = types_refused(*s.workload)) return *refused;
  if (auto refused = micro_kernel_refused(*s.workload, options.micro_kernel)) return *refused;
  Program p{.schedule = s, .options = options};
  p.needed.assign(s.workload->tensors().size(), false);
  p.f64 = s.workload->dtype() == DType::f64;

  Source source{.prefix = options.prefix};
  if (options.before != nullptr) source.written_before = options.before->writes;
  std::string kernels;
  SharedKernels functions;
  bool stitched = false, cold = false;
  Templates templates;
  for (std::size_t k = 0; k < s.kernels.size(); ++k) {
    const int index = static_cast<int>(k);
    auto text = lowering::binds_units(s.kernels[k]) ? print_kernel(p, index, source, stitched)
                                                    : emit_shared(p, index, source, templates);
    if (!text) return text.why();
    note_clusters(s.kernels[k], text.value(), source);
    if (options.own_form && source.makeshift) return *source.makeshift;
    if (auto refused = too_many_wait(p.machine(), text->launches.back()))
      return Reason{s.kernels[k].name + ": " + refused->text};
    templates.hopper = templates.hopper || text->gives_registers ||
                       std::ranges::any_of(text->launches, &Launch::early);
    cold = cold || text->cold;
    const bool shared = functions.share(text.value());
    kernels += "// " + one_line(to_text(s.resolved.kernels[k].tree)) + "\n" +
               (shared ? "// The same as " + text->launches.back().symbol + " on other tensors.\n"
                       : text->text) +
               "\n";
    source.launches.insert(source.launches.end(), text->launches.begin(), text->launches.end());
    source.tiles.insert(source.tiles.end(), text->tiles.begin(), text->tiles.end());
    source.notes.insert(source.notes.end(), text->notes.begin(), text->notes.end());
    std::istringstream program(text->program);
    for (std::string line; std::getline(program, line);) source.program.push_back(line);
    if (text->launches.back().workspace)
      source.workspace_bytes =
          256 * ceil_div(4 * static_cast<std::int64_t>(k + 1), std::int64_t{256});
  }
  source.file_name = harmless(s.workload->name()) + ".cu";
  source.build_command_text =
      "nvcc -std=c++17 -I . -gencode arch=compute_90a,code=sm_90a -cubin " + source.file_name;
  source.needed = p.needed;
  source.micro_kernel = join(p.used);
  source.text =
      head(p, source) +
      (cold ? "#define TW_COPIES_AT_ONCE 1\n#define TW_ELEMENTS_AT_ONCE 1\n" : "") +
      "#include \"tilewright_" + (stitched ? "stitch" : "products") + ".h\"\n" +
      (std::ranges::find(p.used, "tf32x3") != p.used.end() ? "#include \"tilewright_tf32.h\"\n"
                                                           : "") +
      (templates.hopper ? "#include \"tilewright_hopper.h\"\n" : "") +
      (templates.warpgroups ? "#include \"tilewright_pairs.h\"\n" : "") +
      (templates.windows ? "#include \"tilewright_windows.h\"\n" : "") +
      "\nusing namespace tw;\n\n" + kernels;
  return source;
}

}  // namespace tilewright::cuda
