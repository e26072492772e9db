// A kernel that is one matrix product by Hopper's warpgroups: the template of
// device/tilewright_warpgroups.h, with the plan's tile and, where operators follow, a struct of
// these.
#include "codegen/cuda/emit_warpgroups.h"

#include <algorithm>
#include <cmath>

#include "codegen/common/expression.h"
#include "core/lowering/gpu/warpgroup_time.h"
#include "core/workload/text.h"

namespace tilewright::cuda {

HomeParameters home_parameters(Program& p, Launch& launch,
                               const lowering::ProductEpilogue& epilogue) {
  const Workload& w = p.workload();
  const std::size_t written = launch.tensors.size();
  HomeParameters found;
  for (const lowering::EpilogueRead& r : epilogue.reads) {
    launch.tensors.push_back(r.tensor);
    found.after += (found.after.empty() ? "" : ", ") + home_of(w, r.tensor);
  }
  for (std::size_t i = 0; i < launch.tensors.size(); ++i) {
    const TensorId t = launch.tensors[i];
    found.list += std::string(i == 0 ? "" : ", ") + (i < written ? "" : "const ") +
                  element_type(w.tensor(t).dtype) + "* " + home_of(w, t);
    p.needed[t.index()] = true;
  }
  return found;
}

std::string level_of_tiles(const Program& p, int kernel) {
  return p.machine().level(p.schedule.kernels[static_cast<std::size_t>(kernel)].level).name;
}

void add_sums(KernelText& text, const Program& p, int kernel, OpId product,
              const lowering::ProductEpilogue& epilogue, const std::string& reason) {
  const auto add = [&](OpId op) {
    for (const Output& o : p.workload().op(op).outputs)
      text.tiles.push_back({p.workload().tensor(o.target.tensor).name, level_of_tiles(p, kernel),
                            "registers", 1, 0, reason});
  };
  add(product);
  std::ranges::for_each(epilogue.operators, add);
}

namespace {

using lowering::EpilogueRead;
using lowering::WarpgroupProduct;

/// Where a read finds its element.
std::string offset_text(const Workload& w, const lowering::ProductLoops& loops,
                        const EpilogueRead& r) {
  std::string text;
  const auto add = [&](std::int64_t by, const std::string& index) {
    if (by != 0) text += " + i64(" + index + ") * " + std::to_string(by);
  };
  add(r.by_row, "at.row"), add(r.by_column, "at.column");
  std::int64_t below = 1;
  for (std::size_t i = r.by_product.size(); i-- > 0;) {
    const std::int64_t extent = w.loop(loops.products[i]).extent;
    add(r.by_product[i], "at.product / " + std::to_string(below) + " % " + std::to_string(extent));
    below *= extent;
  }
  return text + (r.offset == 0 ? "" : " + " + std::to_string(r.offset));
}

/// The value of an operator's expression at one of two neighbours of a row, `n`.
std::string value_text(const Workload& w, const lowering::ProductLoops& loops, const Expr& e) {
  if (e.kind == Expr::Kind::constant && std::isinf(e.constant))
    return e.constant > 0 ? "kInfinity" : "-kInfinity";
  if (e.kind == Expr::Kind::call) {
    std::string text = "f_" + e.function + "(";
    for (std::size_t i = 0; i < e.args.size(); ++i)
      text += (i == 0 ? "" : ", ") + value_text(w, loops, e.args[i]);
    return text + ")";
  }
  return codegen::expression(e, "float", [&](LoopId loop) -> std::string {
    if (loop == loops.rows) return "float(at.row)";
    if (loop == loops.columns) return "float(at.column + n)";
    std::int64_t below = 1;
    for (std::size_t i = loops.products.size(); i-- > 0;) {
      if (loops.products[i] == loop) break;
      below *= w.loop(loops.products[i]).extent;
    }
    return "float(at.product / " + std::to_string(below) + " % " +
           std::to_string(w.loop(loop).extent) + ")";
  });
}

}  // namespace

std::string operators_text(const Workload& w, const OperatorsAfter& after) {
  Lines out(0);
  const lowering::ProductEpilogue& epilogue = *after.epilogue;
  out.open("struct " + after.name);
  for (const EpilogueRead& r : epilogue.reads)
    out.line("const " + element_type(w.tensor(r.tensor).dtype) + "* " + home_of(w, r.tensor) + ";");
  const std::string reads = std::to_string(std::max<std::size_t>(1, epilogue.reads.size()));
  out.line("static constexpr bool kAny = true, kWhole = " +
           std::string(after.whole ? "true;" : "false;"));
  out.line("static constexpr int kReads = " + reads + ";");
  out.open("TW_MEMBER void read(float (&x)[" + reads + "][2], const " + after.element +
           "& at) const");
  out.line("(void)x, (void)at;");
  const auto yes = [](bool b) { return std::string(b ? "true" : "false"); };
  for (std::size_t i = 0; i < epilogue.reads.size(); ++i) {
    const EpilogueRead& r = epilogue.reads[i];
    out.line("at.read<" + yes(r.by_row != 0) + ", " + yes(r.by_column != 0) + ", " + yes(r.pairs) +
             ">(x[" + std::to_string(i) + "], " + home_of(w, r.tensor) +
             offset_text(w, *after.loops, r) + ", " + std::to_string(r.by_column) + ");");
  }
  out.close();
  const bool twin = after.twin.valid();
  out.open("TW_MEMBER float change(float sum, " + std::string(twin ? "float twin, " : "") +
           "const float (&x)[" + reads + "][2], int n, const " + after.element + "& at) const");
  out.line("(void)x, (void)n, (void)at;");
  const auto made = [&](TensorId t) {
    return t == w.op(after.product).outputs.front().target.tensor ? std::string("sum")
           : twin && t == w.op(after.twin).outputs.front().target.tensor
               ? std::string("twin")
               : identifier("made_", w.tensor(t).name);
  };
  for (std::size_t o = 0; o < epilogue.operators.size(); ++o) {
    const Operator& op = w.op(epilogue.operators[o]);
    out.comment("C." + to_text(w, epilogue.operators[o]));
    for (const Output& y : op.outputs) out.line("float " + made(y.target.tensor) + ";");
    out.open("");
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const int r = epilogue.read_of[o][i];
      out.line("[[maybe_unused]] const float x" + std::to_string(i) + " = " +
               (r < 0 ? made(op.inputs[i].tensor) : "x[" + std::to_string(r) + "][n]") + ";");
    }
    for (const Output& y : op.outputs)
      out.line(made(y.target.tensor) + " = " + value_text(w, *after.loops, y.value) + ";");
    out.close();
  }
  out.line("return " + made(after.result) + ";");
  out.close();
  out.end();
  out.line("};");
  return out.text();
}

/// Whether the launch begins when the one before has ended: with fewer blocks than SMs, which copy
/// much, behind a kernel of clusters. Their SMs become free a cluster at a time, side by side. Runs
/// follow one another, so the last kernel is before the first.
bool on_idle_sms(const Program& p, int index, const WarpgroupProduct& product) {
  const auto launch = p.before(index);
  if (!launch) return false;
  const auto before = lowering::warpgroup_product(launch->schedule, launch->kernel);
  if (!before || before->cluster() <= 2) return false;
  const auto rates = lowering::block_rates(p.machine(), product.operand);
  return rates && lowering::begins_on_idle_sms(product, p.workload(), *rates);
}

/// Stages of one operand that are copied before the launch before has ended. The TMA unit brings
/// boxes in order: those of the other operand, which is written by then, wait for all of them, and
/// the first product for both. Two take 0.90 to 1.00 of the time of all stages, and 0.96 to 1.01 of
/// none, in ten chains on an H200 (h200-early-stages.json).
constexpr int kAhead = 2;

/// The right operand's images, of a template parameter.
std::string images_text(const lowering::ImagePoints& images) {
  std::string text = "ImagePoints<" + std::to_string(images.points());
  for (const lowering::ImagePoints::Along& a : images.along)
    text += ", Along<" + std::to_string(a.extent) + ", " + std::to_string(a.taps) + ", " +
            std::to_string(a.stride) + ", " + std::to_string(a.dilate) + ", " +
            std::to_string(a.pad) + ">";
  return text + (images.of_group > 0 ? ", " + std::to_string(images.of_group) : "") + ">";
}

KernelText emit_warpgroups(Program& p, int index, const lowering::WarpgroupProduct& product) {
  const Workload& w = p.workload();
  const auto name = [&](TensorId t) { return identifier("", w.tensor(t).name); };
  const auto yes = [](bool b) { return b ? ", true" : ", false"; };
  const auto number = [](std::int64_t n) { return ", " + std::to_string(n); };
  KernelText text;
  Launch launch{.symbol = p.options.prefix + "_" + std::to_string(index),
                .tensors = {product.result},
                .maps = product.maps,
                .blocks = product.grid,
                .threads = product.threads(),
                .shared_bytes = product.shared_bytes,
                .early = !on_idle_sms(p, index, product),
                .cluster = product.cluster()};
  const std::string out = element_type(w.tensor(product.result).dtype);
  const bool follows = !product.epilogue.operators.empty();
  const std::string operators = "Operators_" + launch.symbol;
  const HomeParameters homes = home_parameters(p, launch, product.epilogue);
  std::string list = homes.list;
  for (const lowering::BoxMap& m : product.maps) {
    list += ", TW_TENSOR_MAP(" + name(m.tensor) + "_map)";
    p.needed[m.tensor.index()] = true;
  }
  const std::string cluster =
      product.cluster() > 1 ? "TW_CLUSTER(" + std::to_string(product.cluster()) + ") " : "";
  const bool left_before = !p.launch_before_writes(index, product.left),
             right_before = !p.launch_before_writes(index, product.right) &&
                            !(product.twin.valid() && p.launch_before_writes(index, product.twin));
  const int ahead = left_before && right_before   ? product.stages
                    : left_before || right_before ? std::min(product.stages, kAhead)
                                                  : 0;
  text.text = (follows ? operators_text(w, {.name = operators,
                                            .element = "ProductElements<kWhole>",
                                            .whole = product.whole(),
                                            .product = product.product,
                                            .twin = product.twin_product,
                                            .result = product.result,
                                            .loops = &product.loops,
                                            .epilogue = &product.epilogue})
                       : std::string()) +
              "extern \"C\" __global__ void " + cluster + "__launch_bounds__(" +
              std::to_string(launch.threads) + number(product.resident) + ") " + launch.symbol +
              "(" + list + ") {\n" + "  TW_SHARED(memory);\n  using Product = WarpgroupProduct<" +
              element_type(product.operand) + ", " + out + number(product.groups) +
              number(product.blocks) + number(product.tile_columns) + number(product.stages) +
              number(product.steps) + yes(product.left_across) + yes(product.right_across) +
              yes(product.left_all) + yes(product.right_all) + yes(product.boxed) +
              number(product.vector) + number(product.share) + yes(product.turned) +
              number(product.down) + number(product.across) + yes(left_before) + yes(right_before) +
              number(ahead) + number(product.left_fold) + number(product.right_fold) +
              (product.images ? ", " + images_text(*product.images)
               : follows      ? ", NoImages"
                              : "") +
              (follows ? ", " + operators : "") + (product.twin.valid() ? ", true" : "") +
              ">;\n  Product::run(memory, " + name(product.left) + "_map, " + name(product.right) +
              "_map, " + name(product.boxed ? product.result : product.left) + "_map, " +
              (product.twin.valid() ? name(product.twin) + "_map, " : "") +
              home_of(w, product.result) + number(product.pitch) + number(product.apart) +
              ",\n               {" + std::to_string(product.rows) + number(product.columns) +
              number(product.depth) + number(product.count) + number(product.order) +
              number(product.part) + number(product.columns_apart) + "}" +
              (follows ? ", " + operators + "{" + homes.after + "}" : std::string()) + ");\n}\n";
  text.launches.push_back(std::move(launch));
  const std::string level = level_of_tiles(p, index);
  const std::int64_t left =
                         std::int64_t{product.stages} * product.steps * product.tile_rows() * 128,
                     right = product.stages * product.stage_bytes() - left;
  for (const TensorId t : {product.left, product.right, product.twin})
    if (t.valid())
      text.tiles.push_back({w.tensor(t).name, level, "shared", product.stages,
                            t == product.left ? left : right / product.products(),
                            "boxes that the TMA unit copies ahead of their use"});
  const std::string of_sums = "the sums of a warpgroup's matrix instructions";
  if (product.twin.valid()) add_sums(text, p, index, product.twin_product, {}, of_sums);
  add_sums(text, p, index, product.product, product.epilogue, of_sums);
  text.program = lowering::describe(product, p.schedule, index);
  if (!text.launches.back().early)
    text.program += "launch: when the one before has ended, with blocks evenly on all SMs\n";
  p.used.push_back("wgmma");
  return text;
}

}  // namespace tilewright::cuda
