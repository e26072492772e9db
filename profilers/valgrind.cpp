#include "profilers/valgrind.h"

#include "core/base/format.h"
#include "core/base/toolchain.h"

namespace tilewright::profilers {

namespace {
/// Valgrind itself lies from here on, and the arena may not.
constexpr std::int64_t kValgrind = 0x58000000;
}  // namespace

Availability valgrind_here() {
  const std::string found = find_program("valgrind");
  if (found.empty())
    return {.reason = "valgrind is not on the PATH", .help = "sudo apt-get install valgrind"};
  if (const auto compiler = compiler_command(""); !compiler)
    return {.reason = compiler.reason() + " (to build the kernel and what runs it)",
            .help = "sudo apt-get install g++"};
  return {.usable = true, .detail = found};
}

std::optional<Reason> valgrind_refuses(const BuiltKernel& k) {
  if (const Availability here = valgrind_here(); !here.usable) return Reason{here.reason};
  if (k.threads != 1)
    return Reason{"Valgrind runs one thread at a time, and the kernel is for " +
                  std::to_string(k.threads) + ": use --threads 1"};
  if (k.isa == "avx512") return Reason{"Valgrind knows no AVX-512: use --isa avx2"};
  if (k.workspace >= kValgrind)
    return Reason{formatted("its tensors take {} MiB from {:#x} on, and Valgrind leaves {}",
                            (k.end - k.arena) >> 20, k.arena, (kValgrind - k.arena) >> 20)};
  return std::nullopt;
}

std::optional<Reason> trace_execution(const BuiltKernel& kernel,
                                      const std::filesystem::path& file) {
  if (auto why = valgrind_refuses(kernel)) return why;
  auto driver = KernelDriver::prepare(kernel);
  if (!driver) return Reason{driver.reason()};
  return driver.value()->run({"valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no",
                              "--log-file=" + file.string()},
                             1);
}

}  // namespace tilewright::profilers
