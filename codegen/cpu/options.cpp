#include "codegen/cpu/options.h"

#include "codegen/cpu/cpu.h"
#include "codegen/micro_kernels.h"

namespace tilewright::cpu {
namespace {

std::vector<OptionSpec> make_specs() {
  std::vector<std::string> isas;
  for (const Isa isa :
       {Isa::amx_int8, Isa::avx512_vnni, Isa::avx512_bf16, Isa::avx512, Isa::avx2, Isa::generic})
    isas.emplace_back(name_of(isa));
  return {{.name = "isa",
           .kind = OptionKind::choice,
           .names = isas,
           .fallback = "the widest that runs here",
           .help = "the instruction set"},
          codegen::micro_kernel_option("cpu"),
          {.name = "prefetch",
           .kind = OptionKind::flag,
           .help = "ask for the lines of tiles in place before they are used"},
          {.name = "constant",
           .kind = OptionKind::list,
           .accepted = "names of inputs with commas between",
           .fallback = "none; in a network its weights",
           .value = "W1,W2",
           .help = "inputs that are the same in every run: packed once, untimed"}};
}

}  // namespace

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = make_specs();
  return specs;
}

}  // namespace tilewright::cpu
