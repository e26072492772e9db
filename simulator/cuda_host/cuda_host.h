// CUDA kernels executed and checked on the CPU: the very text that is given to nvcc, compiled by
// the host's C++ compiler against device/tilewright_host.h, whose functions (and, through the
// compiler's instrumentation, every plain load and store) come here. Threads are fibers; blocks run
// one after the other (those of a cooperative launch, and of a cluster, together) on one thread of
// the host.
//
// Checked: bounds, alignment, initialisation, phases of mbarriers that nobody who waits for them
// can tell apart, and races by vector clocks (FastTrack: Flanagan and Freund, PLDI 2009). Order
// comes from what PTX promises: barriers, warp_sync, mbarrier arrive to wait, cp_async's
// completion, cluster_sync, grid_sync, and the end of a launch. Shuffles, ballots, ldmatrix, mma
// and wmma make a warp's threads meet but order no memory.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/lowering/gpu/box_map.h"

namespace tilewright::cuda_host {

/// A text that kernels may include, by name.
struct Header {
  std::string name, text;
};
/// The headers that stand in for CUDA: what tilewright_device.h includes without nvcc, and theirs.
std::vector<Header> host_headers();

/// A .cu file and what of it is to run.
struct Program {
  std::string file_name = "kernel.cu";  ///< letters, digits, . _ -
  std::string text;
  std::vector<Header> headers;       ///< beside host_headers(): tilewright_device.h
  std::vector<std::string> kernels;  ///< extern "C" __global__ functions of pointers only
};

struct BuildOptions {
  std::string compiler = {};  ///< empty: CXX, else c++, g++, clang++; "ccache g++" is two words
};

/// Memory of a launch's parameters, row-major; its data are copied in and, where written, back.
struct Tensor {
  std::string name;
  void* data = nullptr;
  std::int64_t bytes = 0;
  int element_bytes = 2;       ///< 1, 2, 4 or 8: what initialisation and races are told apart by
  bool initialised = true;     ///< false: an output, an error to read before it is written
  bool written_before = true;  ///< whether a launch before the first may have written it
};

struct Launch {
  std::string kernel;
  std::vector<int> tensors;                 ///< its pointer parameters: indices into the tensors
  bool workspace = false;                   ///< one more parameter: the workspace
  std::int64_t workspace_offset = 0;        ///< bytes from its beginning that this points to
  std::vector<lowering::BoxMap> maps = {};  ///< the last parameters; their tensors: indices, too
  std::int64_t blocks = 1;
  int threads = 128;  ///< a block, at most 1024
  std::int64_t shared_bytes = 0;
  bool cooperative = false;
  bool early = false;  ///< may begin before the launch before it has ended: see launches_ended
  int cluster = 1;     ///< blocks that follow one another and share their shared memory
};

struct RunOptions {
  std::int64_t workspace_bytes = 0;  ///< zeroed before the first launch
  bool checks = true;      ///< initialisation and races; bounds and alignment are always checked
  double max_seconds = 0;  ///< 0: no limit; else a launch that takes longer is stopped, as endless
  int max_findings = 100;  ///< distinct ones kept; the others are only counted
  bool list_barriers = false;               ///< in the report
  std::vector<std::uint32_t> without = {};  ///< calls of barriers of this module: all go past them
  std::uint64_t turns = 0;  ///< 0: a thread runs until it waits; else they take turns, by this seed
};

enum class Fault : std::uint8_t {
  out_of_bounds,
  misaligned,
  uninitialised,
  race,              ///< two accesses of one block that nothing orders, one of them a write
  block_race,        ///< two accesses of different blocks, one of them a write and not both atomic
  barrier_mismatch,  ///< counts that differ, threads that have ended, part of a warp
  divergent,         ///< a warp's threads at different collectives
  deadlock,          ///< all threads wait, or max_seconds have passed
  mbarrier_misuse,
  not_fenced,    ///< read asynchronously without shared_for_async after the store
  wgmma_misuse,  ///< sums that were not waited for, or begun without wgmma_begin
  bad_argument,  ///< a barrier id, a valid count, an operand that was loaded otherwise
};
std::string_view name_of(Fault fault);  ///< "out of bounds", "race", ...

/// A place in the program's texts: the .cu file or one of its headers.
struct Place {
  std::string file;
  int line = 0;  ///< 0: not known (no addr2line on the PATH)
  int caller_line =
      0;             ///< where `file` is a header, the line of the .cu file that came to it; else 0
  std::string text;  ///< the line, without its indentation
  friend auto operator<=>(const Place&, const Place&) = default;
};
/// "12", "350 of tilewright_tiles.h (from line 12)", "?".
std::string described(const Place& place);

/// One fault, however often it came: `thread` and `block` are of the first time.
struct Finding {
  Fault fault = Fault::out_of_bounds;
  std::string kernel;
  std::int64_t block = 0;
  int thread = 0;
  Place place;
  Place other;  ///< of a race: the earlier access
  std::int64_t other_block = 0;
  int other_thread = 0;
  std::string object;             ///< a tensor, "workspace" or "shared memory"; empty: neither
  std::int64_t offset_bytes = 0;  ///< in it
  std::string text;               ///< one sentence, all of the above in it
  std::int64_t count = 1;
};

/// Where threads of a launch wait for one another or for copies, or say that they have come: a line
/// of the text, and with it the others from which threads came to the same barrier.
struct Barrier {
  std::string kind;  ///< the device function: "block_sync", "mbarrier_wait", ...
  std::vector<Place> places;
  std::vector<std::uint32_t> calls;  ///< in the compiled module; for RunOptions::without
  std::int64_t threads = 0;          ///< that came, each as often as it did
};

/// Bytes that kernels asked for, of one tensor.
struct TensorBytes {
  std::int64_t read = 0;     ///< cp_async (its valid bytes) and load_global
  std::int64_t written = 0;  ///< store_global
  std::int64_t atomic = 0;   ///< atomic_add, once each
  std::int64_t read_through_l1 = 0, written_through_l1 = 0;  ///< plain loads and stores
  friend bool operator==(const TensorBytes&, const TensorBytes&) = default;
};

/// Counted by warps where a warp executes it together, else by threads.
struct LaunchCounts {
  std::vector<TensorBytes> tensors;  ///< by tensor; the workspace last
  std::int64_t shared_read = 0, shared_written = 0;
  std::int64_t ldmatrix = 0, mma = 0, wmma = 0, shuffles = 0, warp_syncs = 0;  ///< warps
  std::int64_t wgmma = 0;                                                      ///< warpgroups
  std::int64_t boxes = 0;           ///< load_box and store_box
  std::int64_t block_barriers = 0;  ///< block_sync and barrier, completed
  std::int64_t grid_syncs = 0, cluster_syncs = 0;
  std::int64_t cluster_read = 0;  ///< bytes of other blocks' shared memory: load_of_block
  std::int64_t mbarrier_phases = 0;
  std::int64_t copies = 0;  ///< cp_async of any size, threads
};

struct Report {
  std::vector<Finding> findings;
  std::int64_t findings_left_out = 0;  ///< beyond max_findings
  std::int64_t blocks_stopped = 0;     ///< that a fault (deadlock, a wild address) ended early
  std::vector<LaunchCounts> launches;
  std::vector<Barrier> barriers;  ///< that launches came to, if they were to be listed
  double seconds = 0;             ///< of execution, without building
  std::vector<std::string> notes;
  bool clean() const { return findings.empty() && findings_left_out == 0; }
};

class Image;

/// A compiled .cu file. Copies share it. It may run on several threads at once.
class Module {
 public:
  /// A Reason: no compiler, or the compiler's first error. InputError: names that are no
  /// identifiers.
  static Result<Module> build(const Program& program, const BuildOptions& options = {});
  /// Runs the launches in order. A Reason: memory that cannot be had, a launch that does not fit
  /// its kernel's parameters. InputError: sizes and indices that no launch may have.
  Result<Report> run(std::span<const Launch> launches, std::span<const Tensor> tensors,
                     const RunOptions& options = {}) const;

 private:
  std::shared_ptr<const Image> image_;
};

}  // namespace tilewright::cuda_host
