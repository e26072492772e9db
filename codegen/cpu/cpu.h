// Schedules to C++ for the host: emit, build, load, run, and the peak to hold the speed against.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/plan/schedule.h"
#include "core/plan/traffic.h"

namespace tilewright::cpu {

/// Instruction sets that emitted code is written for. `generic` is plain C++; `avx512_bf16` is
/// avx512 whose products of bf16 tensors are dot products of pairs, `avx512_vnni` avx512 whose
/// products of i8 tensors are dot products of quads, `amx_int8` avx512_vnni whose products of i8
/// tensors with several rows are of tiles; all three are avx512 for other tensors.
enum class Isa : std::uint8_t { generic, avx2, avx512, avx512_bf16, avx512_vnni, amx_int8 };
/// "generic", "avx2", "avx512", "avx512_bf16", "avx512_vnni", "amx_int8"
std::string_view name_of(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);
/// True where this processor and kernel run it (avx2 includes FMA).
bool host_runs(Isa isa);
/// The widest that this machine runs, found at run time: for tensors of that type.
Isa host_isa(DType type = DType::f32);
/// The one for a workload's tensors.
Isa host_isa(const Workload& w);

/// A way of computing a box of C[i,j] += A[i,k] * B[k,j] (Chimera, section V-B, Algorithm 2): MI x
/// NI vector registers stay loaded while k runs. One record a way.
struct MicroKernel {
  std::string_view name;  ///< MI x NI: "6x4"; "scalar": plain loops
  std::string_view summary;
  Isa isa = Isa::generic;
  int rows = 1;          ///< MI, at most
  int vectors = 1;       ///< NI, in vector registers, at most
  int vector_bytes = 0;  ///< 0: scalar
  int registers = 0;     ///< that it needs: MI*NI + NI + MII
};
std::span<const MicroKernel> micro_kernels();
/// By name for that isa; an empty name: the isa's first. A reason that lists the isa's names.
Result<MicroKernel> micro_kernel_for(Isa isa, std::string_view name);
/// The isa's micro-kernel that takes the fewest cycles a step of k on a box of rows x columns (with
/// two multiply-adds and two loads a cycle, four cycles of latency), then loads least. 80 columns
/// of f32 are five vectors: 5x5 takes them whole, 6x4 in parts of three and two.
MicroKernel micro_kernel_fitting(Isa isa, std::int64_t rows, std::int64_t columns,
                                 std::int64_t depth, std::int64_t element_bytes);

struct RankedMicroKernel {
  int rows = 0, vectors = 0, registers = 0;
  double intensity = 0;  ///< AI: multiply-adds of a vector an element or vector loaded or stored
};
/// Chimera's search for a micro-kernel (section V-B): every MI x NI with MI*NI + NI + MII <=
/// registers, by AI = MI*NI*KI / (KI*(MI+NI) + 2*MI*NI), best first; depth is KI, 0 its limit for
/// large KI. In 32 registers the best is 5x5 (AI 2.5); the paper prints 6x4 (2.4), which is the
/// best of those whose NI is a power of two.
std::vector<RankedMicroKernel> rank_micro_kernels(int registers, std::int64_t depth = 0,
                                                  int broadcast_registers = 1,
                                                  bool powers_of_two = false);

struct EmitOptions {
  Isa isa = host_isa();
  bool count = false;  ///< byte-counting stubs on every copy; runs on one thread
  int threads = 1;
  std::string micro_kernel = {};      ///< empty: for each product the one that fits it
  std::string prefix = "tilewright";  ///< of the exported symbols; an identifier
  /// Asks for the lines of tiles in place before they are used: of loaded ones at their load, of
  /// written ones before the compute that adds to them. Off: it gains nothing where hardware
  /// streams.
  bool prefetch = false;
  /// Inputs, by name, that are the same in every run (weights): what is packed of them is packed
  /// once (Source::kept_bytes), not at every run.
  std::vector<std::string> constant = {};
};

/// Where a tile at a level lies: packed into an array of its own, or used where the tensor has it.
struct TileUse {
  std::string tensor, level;
  bool packed = true;
  std::string reason;
};

/// Emitted source and what its user must know. The exported symbols, C ABI, are
///   int64_t PREFIX_workspace(void)                     bytes that `run` needs, 4096-aligned
///   void PREFIX_run(void* const* tensors, void* workspace, int64_t* counts)
///   void PREFIX_part(void* const* tensors, void* workspace, int64_t part, int64_t parts)
///                                                      where Source::in_parts: see there
///   void PREFIX_prepare(void* const* tensors)          where Source::kept_bytes is not 0
/// `tensors`: one pointer a tensor of the workload, row-major as declared (on-chip intermediates
/// may be null); with kept_bytes, one more to so many bytes, which `prepare` fills. `counts`: null,
/// or with counting int64 [tensor][boundary][read, written], added to.
struct Source {
  std::string file_name;  ///< "gemm_chain.cpp"
  std::string text;       ///< compiles alone with -O3 -std=c++17
  /// Where in `text` boxes, tiles and micro-kernels are defined: that part is the same in sources
  /// of one instruction set with the same kinds of operators, whatever their loops and tiles.
  std::size_t fixed_begin = 0, fixed_end = 0;
  std::string build_command_text;  ///< for people; build() never passes it to a shell
  std::vector<std::string> flags;  ///< for the compiler, without output and file name
  std::string prefix;
  std::vector<std::string> tensors;     ///< by TensorId
  std::vector<bool> needed;             ///< by TensorId: run() reads or writes it at home
  std::vector<std::string> boundaries;  ///< that `counts` is indexed by; empty without counting
  int threads = 1;                      ///< that it runs on; see notes where fewer than asked
  /// A run may be shared in any number of parts, in any order and at the same time on several
  /// threads, each with a `threads`-th of the workspace; parts wait for nothing.
  bool in_parts = false;
  Isa isa = Isa::generic;
  std::string micro_kernel;        ///< those that its products run on, "6x4, 5x5"
  std::vector<TileUse> tiles;      ///< what became of every buffer that is loaded or written
  std::vector<std::string> notes;  ///< e.g. why it stays on one thread
  std::int64_t kept_bytes = 0;     ///< of what is packed once for all runs
  std::vector<bool> constant;      ///< by TensorId: EmitOptions::constant
};

/// Translates any schedule, loop by loop and load by load. A tile at a level that software manages
/// is packed at its load. At a cache it is packed only where the tensor's own rows would map it
/// onto too few sets (rows a multiple of 4 KiB apart), or where it is loaded for many uses of a
/// long-strided operand; else its lines come into the cache as they are used, which is the load
/// that the plan counts. Source::tiles says which. A Reason: what cannot be emitted, and why (sums
/// rescaled in other blocks than their factors, several types of what is written home, loops bound
/// to units that a CPU has none of, Y.grid inside blocks, an unknown micro-kernel). Integers that
/// are written are rounded. Tiles hold floats, or doubles where some tensor is of f64: those of
/// other types are packed, and converted as they are copied. What is indexed by values is read
/// where it lies; an index that names no element reads as zero. Throws InputError for options that
/// no schedule could make right.
Result<Source> emit(const Schedule& schedule, const EmitOptions& options = {});

class Library;  // a loaded shared object

/// An emitted and built schedule. Copies share the loaded code and its workspace: run one at a
/// time.
class Kernel {
 public:
  /// Runs on tensors by TensorId, each row-major with Tensor::bytes() bytes. What run() does not
  /// need (Source::needed) may be null; a missing one is an InputError.
  /// `kept`: what prepare() filled; null only where Source::kept_bytes is 0.
  void run(std::span<void* const> tensors, void* kept = nullptr);
  /// Packs the constant tensors into Source::kept_bytes bytes.
  void prepare(std::span<void* const> tensors, void* kept);
  /// All that a run needs, looked up once: what Launch::run does is the emitted call alone.
  struct Launch {
    std::vector<void*> tensors;
    std::vector<std::int64_t> counts;
    std::shared_ptr<void> workspace;
    std::int64_t workspace_bytes = 0;  ///< a thread
    void (*whole)(void* const*, void*, std::int64_t*) = nullptr;
    void (*part)(void* const*, void*, std::int64_t, std::int64_t) = nullptr;  ///< null: no parts
    /// See codegen::BoundKernel::run.
    void run(int thread, int part_number, int parts) {
      if (part == nullptr) return whole(tensors.data(), workspace.get(), counts.data());
      part(tensors.data(), static_cast<char*>(workspace.get()) + thread * workspace_bytes,
           part_number, parts);
    }
  };
  Launch launch(std::span<void* const> tensors, void* kept = nullptr) const;
  /// Runs a counting build and says what it copied, sorted by boundary, then tensor; tensors and
  /// boundaries that moved nothing are left out. A Reason without counting.
  Result<std::vector<TrafficEntry>> run_counted(std::span<void* const> tensors);
  const Source& source() const { return source_; }
  /// See codegen::TargetKernel.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  void share_scratch(std::shared_ptr<void> memory, std::int64_t bytes) {
    workspace_ = std::move(memory), workspace_bytes_ = bytes;
  }

 private:
  friend Result<std::vector<Kernel>> build_all(std::span<const Source> sources,
                                               const struct BuildOptions& options);
  Kernel() = default;
  std::vector<void*> all(std::span<void* const> tensors, void* kept) const;

  using RunFunction = void (*)(void* const*, void*, std::int64_t*);
  Source source_;
  std::shared_ptr<Library> library_;
  std::shared_ptr<void> workspace_;
  std::int64_t workspace_bytes_ = 0;  ///< a thread
  std::int64_t scratch_bytes_ = 0;    ///< a thread, as the emitted code asks
  RunFunction run_ = nullptr;
  void (*part_)(void* const*, void*, std::int64_t, std::int64_t) = nullptr;
  void (*prepare_)(void* const*) = nullptr;
};

struct BuildOptions {
  std::string compiler = {};             ///< empty: $CXX, else c++, g++, clang++ on the PATH
  std::string optimisation = {};         ///< replaces -O3, e.g. "-O1"
  std::filesystem::path directory = {};  ///< temporary files go under here; empty: the system's
  std::filesystem::path object = {};     ///< where to keep the shared object too; empty: nowhere
};

/// Compiles into a fresh temporary directory, loads, and removes the directory. The compiler is
/// started from an argument vector. A Reason: no compiler, or its first diagnostic line.
Result<Kernel> build(const Source& source, const BuildOptions& options = {});
/// Several sources (with different prefixes) as one translation unit and one shared object. What
/// they have in common (Source::fixed_begin) is compiled once, so that a hundred tilings of one
/// workload take seconds, not minutes.
Result<std::vector<Kernel>> build_all(std::span<const Source> sources,
                                      const BuildOptions& options = {});

/// The f32 fused multiply-adds (avx512_bf16, avx512_vnni: those of their dot products) that this
/// process can start, in GFLOP/s (2 an FMA), measured on `threads` threads for about `seconds`:
/// what a kernel's speed is held against. Throws InputError where the host does not run `isa`.
double fma_peak_gflops(Isa isa, int threads = 1, double seconds = 0.2);

}  // namespace tilewright::cpu
