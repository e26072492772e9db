// A kernel that is one matrix product by Hopper's warpgroups: the template of
// device/tilewright_warpgroups.h, with the plan's tile.
#include "codegen/cuda/emit_warpgroups.h"

namespace tilewright::cuda {

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
                .early = true,
                .cluster = product.cluster()};
  const std::string out = element_type(w.tensor(product.result).dtype);
  std::string list = out + "* " + name(product.result) + "_home";
  for (const lowering::BoxMap& m : product.maps) {
    list += ", TW_TENSOR_MAP(" + name(m.tensor) + "_map)";
    p.needed[m.tensor.index()] = true;
  }
  p.needed[product.result.index()] = true;
  const std::string cluster =
      product.cluster() > 1 ? "TW_CLUSTER(" + std::to_string(product.cluster()) + ") " : "";
  text.text = "extern \"C\" __global__ void " + cluster + "__launch_bounds__(" +
              std::to_string(launch.threads) + number(product.resident) + ") " + launch.symbol +
              "(" + list + ") {\n" + "  TW_SHARED(memory);\n  using Product = WarpgroupProduct<" +
              element_type(product.operand) + ", " + out + number(product.groups) +
              number(product.blocks) + number(product.tile_columns) + number(product.stages) +
              number(product.steps) + yes(product.left_across) + yes(product.right_across) +
              yes(product.left_all) + yes(product.right_all) + yes(product.boxed) +
              number(product.vector) + number(product.share) + yes(product.turned) +
              number(product.down) + number(product.across) + ">;\n  Product::run(memory, " +
              name(product.left) + "_map, " + name(product.right) + "_map, " +
              name(product.boxed ? product.result : product.left) + "_map, " +
              name(product.result) + "_home" + number(product.pitch) + number(product.apart) +
              ",\n               {" + std::to_string(product.rows) + number(product.columns) +
              number(product.depth) + number(product.count) + number(product.order) +
              number(product.part) + "});\n}\n";
  text.launches.push_back(std::move(launch));
  const std::string level =
      p.machine().level(p.schedule.kernels[static_cast<std::size_t>(index)].level).name;
  const std::int64_t left =
                         std::int64_t{product.stages} * product.steps * product.tile_rows() * 128,
                     right = product.stages * product.stage_bytes() - left;
  for (const TensorId t : {product.left, product.right})
    text.tiles.push_back({w.tensor(t).name, level, "shared", product.stages,
                          t == product.left ? left : right,
                          "boxes that the TMA unit copies ahead of their use"});
  text.tiles.push_back({w.tensor(product.result).name, level, "registers", 1, 0,
                        "the sums of a warpgroup's matrix instructions"});
  text.program = lowering::describe(product, p.schedule, index);
  p.used.push_back("wgmma");
  return text;
}

}  // namespace tilewright::cuda
