// What ptxas says of kernels with -v. Lines as nvcc 13.0 prints them:
//   ptxas info    : Compiling entry function 'f' for 'sm_90a'
//   ptxas info    : Function properties for f
//       8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
//   ptxas info    : Used 40 registers, used 1 barriers, 8 bytes cumulative stack size, 2048 bytes
//   smem,
//                   376 bytes cmem[0]
#include <algorithm>
#include <charconv>

#include "codegen/cuda/build.h"

namespace tilewright::cuda {
namespace {

constexpr std::string_view kProperties = "Function properties for ";

/// The number before the first `unit` of a line; 0 without one.
std::int64_t before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

std::string_view quoted(std::string_view line, std::size_t from) {
  const std::size_t open = line.find('\'', from);
  if (open == std::string_view::npos) return {};
  const std::size_t close = line.find('\'', open + 1);
  return close == std::string_view::npos ? std::string_view{}
                                         : line.substr(open + 1, close - open - 1);
}

/// All of the constant banks.
std::int64_t constants(std::string_view line) {
  std::int64_t sum = 0;
  for (std::size_t at; (at = line.find(" bytes cmem[")) != std::string_view::npos;) {
    sum += before(line, " bytes cmem[");
    line.remove_prefix(at + 1);
  }
  return sum;
}

}  // namespace

std::vector<KernelFigures> figures_from_ptxas(std::string_view text) {
  std::vector<KernelFigures> kernels;
  KernelFigures* properties = nullptr;  // whose the next line of properties is
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (const std::size_t at = line.find("Compiling entry function ");
        at != std::string_view::npos) {
      const std::string_view name = quoted(line, at);
      if (!name.empty()) kernels.push_back({.symbol = std::string(name)});
      properties = nullptr;
    } else if (kernels.empty()) {
      continue;
    } else if (const std::size_t named = line.find(kProperties); named != std::string_view::npos) {
      // Functions that were called and not inlined have such lines too, after any kernel's.
      const bool its = line.substr(named + kProperties.size()) == kernels.back().symbol;
      properties = its ? &kernels.back() : nullptr;
    } else if (properties != nullptr && line.find(" bytes stack frame") != std::string_view::npos) {
      properties->stack_bytes = before(line, " bytes stack frame");
      properties->spill_store_bytes = before(line, " bytes spill stores");
      properties->spill_load_bytes = before(line, " bytes spill loads");
    } else if (line.find("Used ") != std::string_view::npos) {
      KernelFigures& k = kernels.back();
      k.registers = static_cast<int>(before(line, " registers"));
      k.barriers = static_cast<int>(before(line, " barriers"));
      k.static_shared_bytes = before(line, " bytes smem");
      k.constant_bytes = constants(line);
    }
  }
  return kernels;
}

}  // namespace tilewright::cuda
