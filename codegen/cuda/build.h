// CUDA source to a cubin, by nvcc or by NVRTC, and what ptxas says of its kernels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cuda/cuda.h"
#include "core/base/error.h"

namespace tilewright::cuda {

/// What `ptxas -v` says of one kernel.
struct KernelFigures {
  std::string symbol;
  int registers = 0;             ///< a thread
  std::int64_t stack_bytes = 0;  ///< a thread, in local memory
  std::int64_t spill_store_bytes = 0;
  std::int64_t spill_load_bytes = 0;
  std::int64_t static_shared_bytes = 0;  ///< a block; dynamic shared memory is the launch's
  std::int64_t constant_bytes = 0;       ///< parameters included
  int barriers = 0;
  friend bool operator==(const KernelFigures&, const KernelFigures&) = default;
};
/// Reads what ptxas prints with -v (nvcc -Xptxas -v and NVRTC's log are the same), kernels in its
/// order. Lines that are none of its are passed over; a number that it does not print stays 0.
std::vector<KernelFigures> figures_from_ptxas(std::string_view text);

struct Binary {
  std::string cubin;
  std::string architecture;  ///< "sm_90a"
  std::string builder;       ///< "nvcc 13.0.88", "NVRTC 13.0"
  std::vector<KernelFigures> kernels;
  double seconds = 0;  ///< that building took; 0: out of the cache
  std::filesystem::path file = {};  ///< where the cache keeps the cubin; empty: no cache
};

/// Throws InputError unless it has the form of NVIDIA's names: "sm_80", "sm_90a", "sm_120".
void check_architecture(std::string_view name);
/// "sm_90a" for compute capability 9.0, whose instructions that no other has are emitted; else
/// "sm_80".
std::string architecture_of(int major, int minor);
/// nvcc by the PATH, $CUDA_HOME/bin and /usr/local/cuda/bin; empty where there is none.
std::filesystem::path find_nvcc();
/// "NVRTC 13.0"; a Reason where no libnvrtc opens.
Result<std::string> nvrtc_version();

struct BuildOptions {
  std::string architecture = "sm_90a";
  std::string builder = {};  ///< "nvcc", "nvrtc"; empty: nvcc where there is one, else NVRTC
  std::filesystem::path cache =
      {};  ///< a folder where cubins are kept and found again; empty: none
};
/// Builds for that architecture. A Reason: no builder, or its first diagnostic. Safe from several
/// threads. Cost: one to several seconds of one core.
Result<Binary> build(const Source& source, const BuildOptions& options = {});
/// Of the kernels' instructions in a cubin: its sections .text.NAME. 0 where it is no ELF file of 64
/// bits, or ends before its sections do.
std::int64_t code_bytes(std::string_view cubin);

}  // namespace tilewright::cuda
