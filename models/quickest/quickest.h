// Plans for the least predicted seconds: kernels of our own search and of every other model, priced
// by one time model. Internal header of the folder.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/lowering/register_blocks.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/workload/cut.h"
#include "core/workload/workload.h"
#include "models/model.h"

namespace tilewright::quickest {

// ---- rates.cpp: what a processor's work costs ---------------------------------------------------

/// A cache as one thread sees it.
struct CacheRate {
  std::string boundary;  ///< "L2/L1"
  double capacity = 0;   ///< bytes that one thread may keep there: its share where threads share
  double line = 64;      ///< bytes
  std::int64_t ways = 0, sets = 0;
  double core = 0;   ///< seconds a byte that comes in, one thread alone
  double write = 0;  ///< the same of one that is written: it comes in and goes back
  double all = 0;    ///< seconds a byte, over all threads together; 0: not shared
};

/// Seconds of a processor's work. All constants are the machine file's; what it does not say is
/// assumed and listed.
struct Rates {
  int threads = 1;
  std::int64_t element = 4;  ///< bytes of the products' type in registers
  std::int64_t lanes = 16;   ///< elements of a vector
  double cycle = 0;
  double fma = 0;                   ///< a vector's multiply-add
  double call = 0;                  ///< a block of a product in registers, beside its multiply-adds
  double latency = 0;               ///< a line that memory brings where nothing foretells it
  double last_cache = 0;            ///< a line that the last cache brings so
  double write_past = 0;            ///< a byte that is written to memory past the caches
  double light = 0, expensive = 0;  ///< a vector's operation
  double store = 0;                 ///< a vector that is stored, beside its operations
  double divide = 0;                ///< a vector's quotient
  double light_one = 0;             ///< operations of points that are computed one by one: an
  double expensive_one = 0;         ///< arithmetic one, a call as of exp,
  double library_one = 0;           ///< and a long one, as of tanh
  double part = 0;                ///< a vector of which some lanes are left out, beside the others
  double join = 0;                ///< lanes of a vector joined into one element of a sum
  double copy = 0, copy_row = 0;  ///< a line that is packed, and a row of lines begun
  double turn = 0;                ///< a line of a right operand that is turned
  /// A vector of f16 or bf16 that is converted as it is copied in, and as it is copied out.
  double widen_f16 = 0, widen_bf16 = 0, narrow_f16 = 0, narrow_bf16 = 0;
  /// Where products take bf16 in pairs: a vector's multiply-adds of two steps of the depth (0:
  /// they do not), and a vector of an operand that is paired.
  double fma_pairs = 0, pair = 0;
  /// Where products of i8 are summed in whole numbers: a vector's multiply-adds of `bytes_steps`
  /// steps (steps_of_bytes; 0: they are not), and a vector of elements of a right operand that is
  /// put together.
  double fma_bytes = 0, quad = 0;
  int bytes_steps = 4;
  /// Products of quads with several rows are of tiles, of 16 rows, 16 columns and 16 quads
  /// (codegen/cpu/tiles_text.cpp): no two vectors a cycle are as fast.
  bool tiles = false;
  double visit = 0;                          ///< a tile of a compute that is no product
  double reread = 0;                         ///< sums stored one by one that are read as a vector
  double tap = 0, tap_apart = 0;             ///< a vector of a window's tap, neighbours or not
  double region = 0;                         ///< threads begin and end
  std::int64_t registers = 16;               ///< of vectors, that micro-kernels are emitted for
  std::vector<RegisterBlock> micro_kernels;  ///< those that are emitted
  std::vector<CacheRate> caches;             ///< innermost first
  std::vector<std::string> assumed;
};

/// A Reason where the machine is no processor.
Result<Rates> rates_of(const Question& q);

// ---- product.cpp: an operator as a matrix product -----------------------------------------------

/// C[i,j] += A[i,k] * B[k,j]: positions in op.loops, -1: none, and in op.inputs.
struct Product {
  int rows = -1, columns = -1, depth = -1;
  int left = 0, right = 1;
  bool window = false;  ///< the right operand is read through a window: a convolution
};
/// The loops that are longest in `extents` (by position in op.loops); nothing where the operator is
/// no sum of products of two inputs. `on_gpu`: rescaled sums are products, too, and so are windows
/// over images of which any dimension is last.
std::optional<Product> product_of(const Workload& w, OpId op,
                                  const std::vector<std::int64_t>& extents, bool on_gpu = false);
std::optional<Product> product_of(const Workload& w, OpId op, bool on_gpu = false);

/// Several loops in one dimension, or one by steps of several elements: a window.
bool through_window(const Access& a);

/// Cycles of a multiply-add until the next one can add to its sum.
inline constexpr double kLatency = 4;
/// Of steps at once: quads in tiles.
inline constexpr int kTiled = 64;

/// Cycles in which a vector of a block is loaded and stored, much of it beside multiply-adds
/// (`calibrate` takes the same off what it measures of a block).
inline constexpr double kTouched = 0.5;

/// Seconds of a product of rows x columns over a depth, operands at hand, one thread. `steps`: of
/// the depth that it takes at once (1, 2 or 4; kTiled). `known`: all such products have one size,
/// which compilers know. `lines`: that a vector of the right operand has parts of.
double product_seconds(const Rates& r, double rows, double columns, double depth, int steps = 1,
                       bool known = false, double lines = 1);

/// Of what a tile of known size takes beside its steps, the share that is seen: blocks of few
/// instructions pass beside one another, as far as a processor looks ahead.
double seen_of_block(const Rates& r, double rows, double columns, double depth);
/// What no kernel of the workload can be faster than: its products' multiply-adds on all threads,
/// and inputs and outputs once from and to memory.
double least_seconds(const Workload& w, const Rates& r);
/// Rows and vectors of a block that stays in registers: as even as they can be, and the most that
/// its micro-kernel has. The micro-kernel is the one that is emitted (block_fitting).
struct Blocks {
  std::array<std::int64_t, 2> used{}, most{};
};
Blocks blocks_of(const Rates& r, double rows, double columns, double depth);
std::array<std::int64_t, 2> block_of(const Rates& r, double rows, double columns, double depth);

// ---- walk.cpp: a kernel's seconds ---------------------------------------------------------------

struct KernelTime {
  double seconds = 0;
  double arithmetic = 0;  ///< of the thread that has most to do
  double packing = 0;
  std::vector<double> bytes;    ///< by Rates::caches: into the cache, and out of it, all threads
  std::vector<double> waiting;  ///< seconds of it
  /// By Rates::caches, by tensor: bytes that come in, and that go out.
  std::vector<std::vector<std::pair<double, double>>> tensors;
  double share = 1;  ///< of the threads' time that is used
};

/// What a kernel of a resolved plan takes on a processor. Bytes into caches are counted by tiles:
/// what a loop's body touches stays for its next iteration where it fits. Cost: two visits of every
/// node a loop around it.
KernelTime kernel_time(const Schedule& s, const ScheduledKernel& k, const Rates& r);

// ---- kernels.cpp: kernels of our own for a group of operators -----------------------------------

/// Kernels that were searched for, trees and others' plans.
struct Candidates {
  std::int64_t generated = 0;
  std::int64_t priced = 0;  ///< those that are legal, fit and have a price

  /// The one that was generated, if it has come so far.
  template <class T>
  std::optional<T> seen(std::optional<T> candidate) {
    ++generated;
    priced += candidate ? 1 : 0;
    return candidate;
  }
  nlohmann::ordered_json json() const {
    return {{"generated", generated}, {"after", {{"legal_and_priced", priced}}}};
  }
};

/// A kernel and what it takes.
struct Choice {
  Kernel kernel;
  double seconds = 0;
  KernelTime time = {};
  std::string by = {};  ///< the model whose it is; empty: ours
};

/// A part of the workload to find one kernel for.
struct Group {
  Part ops;                                  ///< of the whole, ascending
  std::shared_ptr<const Workload> workload;  ///< of these operators alone
};

/// Kernels that compute the whole group, fastest first; empty where none is legal. `effort`: how
/// many kernels may be priced.
std::vector<Choice> kernels_for(const Question& q, const Group& group, const Rates& r,
                                const std::function<std::optional<Choice>(Kernel)>& priced,
                                int effort);

}  // namespace tilewright::quickest
