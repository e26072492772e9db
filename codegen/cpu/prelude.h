// The fixed part of every emitted program: boxes, tiles and what moves them.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "codegen/cpu/cpu.h"

namespace tilewright::cpu {

/// A program computes in one type, float or double, whatever its tensors are at home.
struct PreludeOptions {
  bool count = false;
  bool f64 = false;
  int vector_bytes = 0;           ///< of the isa's vectors; 0: none
  DType home = DType::f32;        ///< of what most tiles write, where its tensor lies
  std::set<DType> written = {};   ///< it and others that tiles write
  std::set<DType> read = {};      ///< that tiles or gathers convert as they read them
  int most_steps = 1;             ///< boundaries that one copy crosses, at most
  bool once = false;              ///< some compute is !once
  bool functions = false;         ///< some operator evaluates an expression
  bool atomic = false;            ///< some store is !atomic
  bool products = false;          ///< some operator is a matrix product
  bool along_depth = false;       ///< of these, some whose operands' rows lie along the depth
  bool windows = false;           ///< some right operand is read through a window
  bool lines = false;             ///< of these, some by lines of points
  bool transformed = false;       ///< of these, some whose taps are transformed
  bool bytes = false;             ///< of these, some of whole numbers of 8 bits
  bool vectors = false;           ///< some operator runs on vectors of points
  bool vectors_of_bytes = false;  ///< of these, some load or store whole numbers of 8 bits
  bool planes = false;            ///< some window slides over copies of bands of its image
  bool in_place = false;          ///< some tile is used where its tensor lies
  bool prefetch = false;          ///< some tile's lines are asked for
  DType real() const { return f64 ? DType::f64 : DType::f32; }
  /// Whether instructions convert rows of f16, which <immintrin.h> is needed for.
  bool converts_f16() const {
    return !f64 && vector_bytes > 0 && (written.contains(DType::f16) || read.contains(DType::f16));
  }
};

/// What an element of that type is called in the program.
std::string element_type(DType type);
/// The types of `options`: how their elements become numbers and back, and rows of them.
std::string elements_text(const PreludeOptions& options);
/// C++17 text, to stand inside the emitted program's namespace after <cmath>, <cstdint>, <cstring>
/// and after the macro TILEWRIGHT_TARGET.
std::string prelude_text(const PreludeOptions& options);

/// `copy_row` of f16 by F16C (32 bytes) or AVX-512 (64), after <immintrin.h>.
std::string rows_of_f16_text(int vector_bytes);
/// `Vector`, `Lanes` and their loads and stores, of 64 bytes (AVX-512) or 32 (AVX2), after
/// <immintrin.h>.
std::string lanes_text(int vector_bytes, bool f64);
/// The functions of an expression on vectors, by the names that they have for a number, and
/// `across_sum` and the like, which join lanes; after lanes_text and the prelude's functions.
std::string vector_functions_text(int vector_bytes, bool f64);
/// Its part that is computed by polynomials: exponentials, logarithms, sines, tanh, erf, powers.
std::string functions_text(bool f64);
/// `text` with `to` wherever it has `from`.
std::string replaced(std::string text, std::string_view from, const std::string& to);
/// Loads and stores of vectors of f32 whose elements lie in 8 bits; after vector_functions_text.
std::string vectors_of_bytes_text(int vector_bytes);
/// `copy_plane<STEP, PHASES>`: a band of an image with its edges filled in; after
/// vector_functions_text.
std::string planes_text();
/// `multiply<MI, NI, Whole>` (C[i,j] += A[i,k] * B[k,j] on any sizes) on vectors of that many bytes
/// (64 or 32, after lanes_text; 0: plain loops, whatever MI and NI).
/// `steps`: of the depth at once, in some products, else 1; `whole`: those of whole numbers of 8
/// bits (steps_of_bytes), else pairs of bfloat16.
/// `tiles`: products of quads with several rows are of tiles.
std::string micro_kernel_text(int vector_bytes, bool f64, int steps, bool whole, bool tiles);
/// `along_depth<R, J>`, after it: C[i,j] += A[i,k] * B[j,k] as the operands
/// lie.
std::string along_depth_text(int vector_bytes, bool f64);
/// The part of it for tiles.
std::string tiles_text();
/// The part of it for several steps at once; empty for one.
std::string together_text(int steps, bool whole);
/// `convolve<MI, NI, STEP>`: the same with the right operand read through a window, its columns
/// STEP elements apart; after micro_kernel_text, on vectors only.
std::string window_text();
/// `convolve_lines<MI, NI, STEP, M, N, Once>`: the same with vectors along the points; after
/// window_text and vector_functions_text.
std::string lines_of_points_text();
/// `convolve_transformed<MI, NI, DOWN, ACROSS, M, N>`: the same by minimal filtering; after
/// lines_of_points_text.
std::string transformed_text();
/// `convolve_bytes<MI, NI, STEP, M, N>`: the same of whole numbers of 8 bits; after
/// lines_of_points_text and together_text of as many steps.
std::string bytes_text(int steps);
/// The most taps of a window that convolve takes.
inline constexpr int kMostTaps = 64;
/// Steps of a block of channels that `convolve` takes, at most: no fewer than taps.
inline constexpr int kMostReads = 512;
/// The function attribute that the isa needs, or nothing.
std::string target_attribute(Isa isa);

}  // namespace tilewright::cpu
