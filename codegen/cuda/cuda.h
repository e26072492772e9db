// Schedules to CUDA: one .cu file whose kernels call nothing but device/tilewright_device.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/lowering/gpu/box_map.h"
#include "core/lowering/gpu/micro_kernel.h"
#include "core/plan/launch_before.h"
#include "core/plan/schedule.h"

namespace tilewright::cuda {

/// Where a buffer's tile lives in the emitted kernel.
struct TileUse {
  std::string tensor, level;  ///< as the plan has them
  std::string place;          ///< "shared", "shared, float", "registers"
  int stages = 1;             ///< copies in shared memory
  std::int64_t bytes = 0;     ///< of shared memory, all stages
  std::string reason;         ///< why there
};

/// One kernel launch, in order. Its parameters are `tensors` (device pointers), then, where
/// `workspace`, one pointer into Source::workspace_bytes of zeroed memory, `workspace_offset` bytes
/// from its beginning, and then `maps`, a CUtensorMap each.
struct Launch {
  std::string symbol;             ///< extern "C" name
  std::vector<TensorId> tensors;  ///< its pointer parameters, in order
  bool workspace = false;
  std::int64_t workspace_offset = 0;  ///< bytes: the part of it that no other launch has
  std::vector<lowering::BoxMap> maps = {};
  std::int64_t blocks = 1;        ///< grid is one-dimensional
  int threads = 128;              ///< a block
  std::int64_t shared_bytes = 0;  ///< dynamic shared memory a block
  bool cooperative = false;       ///< blocks wait for one another: all must be resident
  /// May begin before the launch before it has ended, and waits for its end itself.
  bool early = false;
  int cluster = 1;  ///< blocks that share their shared memory; the text says so, too
};

/// Emitted source and what its user must know. Tensors are row-major as declared, each from a
/// multiple of 16 bytes (256, as cudaMalloc gives them).
struct Source {
  std::string file_name;           ///< "gemm_chain.cu"
  std::string text;                ///< compiles alone with nvcc -std=c++17 -I DIR, DIR holding
                                   ///< device_headers(); the same text runs on simulator/cuda_host
  std::string build_command_text;  ///< for people
  std::string prefix;              ///< of every symbol
  std::vector<Launch> launches;
  std::vector<bool> needed;          ///< by TensorId: some kernel reads or writes it at home
  std::int64_t workspace_bytes = 0;  ///< zeroed before the first launch of every run
  /// By TensorId: what the launch before the first may write; empty: everything.
  std::vector<bool> written_before = {};
  std::string micro_kernel;  ///< those that its products run on, "mma, simt"
  std::vector<TileUse> tiles;
  std::vector<std::string> notes;
  std::vector<std::string> program;  ///< what the threads of each kernel do, for people
  /// Why a kernel has not its plan's own form: all warps share the work of loops that are bound to
  /// units, or its tiles have no room as its micro-kernel wants them; none: of no kernel.
  std::optional<Reason> makeshift;
};

using lowering::find_micro_kernel;
using lowering::micro_kernels;
using lowering::MicroKernel;

struct EmitOptions {
  std::string micro_kernel = {};  ///< empty: mma for f16 and bf16, simt otherwise
  int warps = 0;                  ///< that compute, a block; 0: by the tiles
  int copy_warps = 4;             ///< that copy tiles ahead, a block
  int stages = 0;                 ///< of loaded tiles in shared memory; 0: two where they fit
  /// The text is for sm_90a alone: products by wgmma where a plan's kernel is one.
  bool warpgroups = false;
  bool registers = true;         ///< keep sums in registers where a plan allows it
  std::int64_t shared_room = 0;  ///< bytes of shared memory a block may have; 0: as the machine has
  std::string prefix = "tilewright";  ///< an identifier
  /// A kernel that has not its plan's own form is refused with Source::makeshift, and nothing is
  /// emitted in its place.
  bool own_form = false;
  /// What the first kernel follows in every run; null: nothing is known of it.
  const LaunchBefore* before = nullptr;
};

/// Translates a schedule whose kernels run at a level that software manages and blocks own
/// (`shared`). A Reason: what cannot be emitted, and why. Throws InputError for options that no
/// schedule could make right.
Result<Source> emit(const Schedule& schedule, const EmitOptions& options = {});

/// A header that emitted sources include, by the name that they include it by.
struct DeviceHeader {
  std::string_view name, text;
};
/// Those under device/: all of them lie in the folder that a source is compiled in.
std::span<const DeviceHeader> device_headers();

}  // namespace tilewright::cuda
