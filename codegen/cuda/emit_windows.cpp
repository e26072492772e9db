// A kernel that is one convolution: the template of device/tilewright_windows.h, with
// the plan's tile as a struct of constants and, where operators follow, a struct of these.
#include "codegen/cuda/emit_windows.h"

#include "codegen/cuda/emit_warpgroups.h"

namespace tilewright::cuda {
namespace {

using lowering::WindowProduct;

std::string shape_text(const WindowProduct& p, const std::string& name, bool early, bool before) {
  Lines out(0);
  out.open("struct " + name);
  using Constant = std::pair<const char*, std::int64_t>;
  const auto line = [&](std::initializer_list<Constant> all) {
    std::string text;
    for (const auto& [constant, value] : all)
      text += (text.empty() ? "static constexpr int " : ", ") + std::string(constant) + " = " +
              std::to_string(value);
    out.line(text + ";");
  };
  line({{"kRows", p.rows}, {"kTile", p.tile}, {"kTileY", p.tile_y}, {"kTileX", p.tile_x}});
  line({{"kOutY", p.out_y}, {"kOutX", p.out_x}, {"kWide", p.wide}, {"kOfLine", p.of_line}});
  line({{"kChannels", p.channels}, {"kStep", p.step}, {"kPart", p.part}, {"kShare", p.share}});
  line({{"kTapsY", p.taps_y},
        {"kTapsX", p.taps_x},
        {"kStrideY", p.stride_y},
        {"kStrideX", p.stride_x}});
  line(
      {{"kDilateY", p.dilate_y}, {"kDilateX", p.dilate_x}, {"kPadY", p.pad_y}, {"kPadX", p.pad_x}});
  line({{"kInY", p.in_y}, {"kInX", p.in_x}, {"kInRow", p.in_row}, {"kInChannel", p.in_channel}});
  line({{"kLeftRow", p.left_row}, {"kLeftPiece", p.left_piece}, {"kRightPiece", p.right_piece}});
  line({{"kLead", p.lead}, {"kPitch", p.pitch}, {"kStages", p.stages}, {"kAhead", p.ahead}});
  line({{"kBlocksM", p.blocks_m}, {"kBlocksN", p.blocks_n}});
  line({{"kWarpsM", p.warps_m}, {"kWarpsN", p.warps_n}, {"kWarpsK", p.warps_k}});
  line({{"kOutRow", p.out_row},
        {"kOutLine", p.out_line},
        {"kOutColumn", p.out_column},
        {"kVector", p.vector}});
  line({{"kInColumn", p.in_column}, {"kLeftTapY", p.left_tap_y}, {"kLeftTapX", p.left_tap_x}});
  out.line("static constexpr bool kEarly = " + std::string(early ? "true" : "false") +
           ", kLeftBefore = " + (before ? "true" : "false") +
           ", kFlat = " + (p.flat ? "true" : "false") + ", kTf32 = " + (p.tf32 ? "true" : "false") +
           ", kBeside = " + (p.beside ? "true" : "false") +
           ", kTurned = " + (p.turned ? "true;" : "false;"));
  out.end();
  out.line("};");
  return out.text();
}

}  // namespace

KernelText emit_windows(Program& p, int index, const WindowProduct& product) {
  const Workload& w = p.workload();
  const bool hopper = p.options.warpgroups;
  Launch launch{.symbol = p.options.prefix + "_" + std::to_string(index),
                .tensors = {product.result, product.left, product.right},
                .blocks = product.grid,
                .threads = static_cast<int>(product.threads()),
                .shared_bytes = product.shared_bytes,
                .early = hopper,
                .cluster = static_cast<int>(product.share)};
  const HomeParameters homes = home_parameters(p, launch, product.epilogue);
  const bool follows = !product.epilogue.operators.empty();
  const std::string operators = "Operators_" + launch.symbol, shape = "Shape_" + launch.symbol;
  KernelText text;
  Lines out(0);
  // With copies whose places are held and others for what is left of the depth, ptxas may spill to
  // have room for more blocks on an SM, of which there are none.
  const bool partial = product.channels % product.part != 0 || product.part % product.step != 0;
  const bool alone = product.held() && partial && product.grid <= p.machine().units.front().count;
  out.open(
      "extern \"C\" __global__ void " +
      (product.share > 1 ? "TW_CLUSTER(" + std::to_string(product.share) + ") " : std::string()) +
      "__launch_bounds__(" + std::to_string(launch.threads) + (alone ? ", 1) " : ") ") +
      launch.symbol + "(" + homes.list + ")");
  out.line("TW_SHARED(memory);");
  std::string rest = product.share > 1 ? "int(blockIdx.x) / " + std::to_string(product.share)
                                       : std::string("int(blockIdx.x)");
  const auto index_of = [&](const std::string& name, std::int64_t count) {
    if (count == 1) return std::string("0");
    out.line("const int " + name + " = (" + rest + ") % " + std::to_string(count) + ";");
    rest = "(" + rest + ") / " + std::to_string(count);
    return name;
  };
  const auto times = [](const std::string& at, std::int64_t by) {
    return at == "0" || by == 0 ? std::string("0") : at + " * " + std::to_string(by);
  };
  const std::string down = index_of("down", product.down()),
                    across = index_of("across", product.across()),
                    lines = index_of("line", product.lines());
  std::string left = home_of(w, product.left), right = home_of(w, product.right),
              result = home_of(w, product.result), count = "0";
  int loop = 0;
  for (const WindowProduct::Outer& o : product.outer) {
    const std::string at = index_of("outer" + std::to_string(loop++), o.extent);
    const auto add = [&](std::string& to, std::int64_t by) {
      if (by != 0 && at != "0") to += " + i64(" + at + ") * " + std::to_string(by);
    };
    add(left, o.left), add(right, o.right), add(result, o.result);
    if (at != "0" && o.product != 0) count += " + " + times(at, o.product);
  }
  out.line("using Product = WindowProduct<" + element_type(product.operand) + ", " +
           element_type(w.tensor(product.result).dtype) + ", " + shape +
           (follows ? ", " + operators : std::string()) + ">;");
  out.line("Product::run(memory, " + left + ", " + right + ", " + result + ", {" +
           times(down, product.tile) + ", " + times(lines, product.tile_y) + ", " +
           times(across, product.tile_x) + ", " + count + "}" +
           (follows ? ", " + operators + "{" + homes.after + "}" : std::string()) + ");");
  out.close();
  text.text =
      (follows ? operators_text(w, {.name = operators,
                                    .element = "WindowElement",
                                    .product = product.product,
                                    .result = product.result,
                                    .loops = &product.loops,
                                    .epilogue = &product.epilogue})
               : std::string()) +
      shape_text(product, shape, hopper, hopper && !p.launch_before_writes(index, product.left)) +
      out.text();
  text.launches.push_back(std::move(launch));
  const std::string level = level_of_tiles(p, index);
  const auto stages = static_cast<int>(product.stages);
  text.tiles.push_back({w.tensor(product.left).name, level, "shared", stages,
                        product.stages * product.left_bytes(), "copied ahead of its use"});
  text.tiles.push_back({w.tensor(product.right).name, level, "shared", stages,
                        product.stages * product.right_bytes(),
                        "what the points' windows cover, zeros around"});
  add_sums(text, p, index, product.product, product.epilogue,
           product.fma() ? "the sums of a thread" : "the sums of a warp's matrix instructions");
  text.program = lowering::describe(product, p.schedule, index);
  p.used.push_back(product.fma() ? "simt" : product.tf32 ? "tf32x3" : "mma");
  return text;
}

}  // namespace tilewright::cuda
