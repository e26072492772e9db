// Schedules to programs for the emulated NPU (core/npu): one program a kernel, the same for every
// block.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/npu/program.h"
#include "core/plan/schedule.h"

namespace tilewright::npu {

/// A way for the cube to compute C[m,n] += A[m,k] * B[k,n]. One record a way.
struct MicroKernel {
  std::string_view name;  ///< "mad"
  std::string_view summary;
  std::int64_t lanes = kFractal;  ///< M2 = N2: rows and columns of a fractal
};
std::span<const MicroKernel> micro_kernels();
/// By name; empty: the first. None: no such micro-kernel.
const MicroKernel* find_micro_kernel(std::string_view name);

/// Where a buffer's tile lies.
struct TileUse {
  std::string tensor, level;  ///< as the plan has them
  std::string layout;         ///< of elements: "Nz", "nd", ...
  std::string type;           ///< of elements: sums are f32 whatever the tensor is
  int copies = 1;             ///< that are filled in turn
  std::int64_t bytes = 0;     ///< all copies
};

/// What one kernel became.
struct KernelSource {
  Program program;
  std::vector<TileUse> tiles;
  std::int64_t instructions = 0;  ///< that all blocks execute, flags included
  std::int64_t statements = 0;    ///< of the program's text
  std::int64_t flags = 0;         ///< set and waited for, over all blocks
};

struct Source {
  std::string file_name;              ///< "gemm_chain.npu"
  std::string text;                   ///< assembly of every kernel, in launch order
  std::vector<KernelSource> kernels;  ///< launched one after the other
  std::vector<bool> needed;           ///< by TensorId: some kernel reads or writes it at home
  std::string micro_kernel;           ///< that its products run on; empty: it has none
  std::vector<std::string> notes;
};

struct EmitOptions {
  std::string micro_kernel = {};  ///< empty: mad
  /// Copies of a tile, where there is room, so that one is filled while another is used; a plan's
  /// x2 is kept to. 1: no more than the plan says.
  int copies = 2;
  /// Most instructions, of all blocks together, that a kernel is unrolled to before loops are
  /// found.
  std::int64_t most_instructions = 1'000'000;
};

/// Translates a schedule on a machine with an npu_core, whose tensors are at L1, UB, L0A, L0B and
/// L0C as the plan pins them. A Reason: what cannot be emitted, and why. Cost: about a microsecond
/// an instruction of all blocks together.
Result<Source> emit(const Schedule& schedule, const EmitOptions& options = {});

/// Why emit() gives none. No program is written, and of blocks that do the same elsewhere one is
/// walked: about half a microsecond an instruction of these.
std::optional<Reason> refuses(const Schedule& schedule, const EmitOptions& options = {});

/// Seconds that emit()'s kernels take one after the other, predicted. Of blocks that run at
/// once the one that reads most is followed: its pipes in order, with the flags between them, each
/// step as long as the machine file says. The other cores are taken to be at the same step at the
/// same time, so that what all of them move through the L2 at once shares its bandwidth, and what
/// none has read before that of DRAM. Of more than kFollowedBlocks of a core some are followed, and
/// the others take as long as those near them. A Reason where emit() refuses the schedule by what
/// this sees of it. Cost: about a microsecond an instruction of blocks that differ among those that
/// are followed and their neighbours. `steps`: the instructions of all of these are added to it.
Result<double> predicted_seconds(const Schedule& schedule, const EmitOptions& options = {},
                                 std::int64_t* steps = nullptr);
/// Of a core, in one kernel, beside its last one.
inline constexpr std::int64_t kFollowedBlocks = 6;

}  // namespace tilewright::npu
