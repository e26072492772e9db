// How to add a micro-kernel for CUDA: a skeleton that works, slowly, and is tested.
//
// A micro-kernel computes c += a * b on one warp's part of a tile. The emitter knows nothing of it but its
// name and what it takes; everything else of a kernel (loops, loads, rings, rescaling, reductions along
// rows, stores) stays as it is. Four places:
//
//   1. A struct like this one, in tilewright_products.h beside Mma and Simt (or in a header of its own that
//      tilewright_products.h includes and codegen/CMakeLists.txt embeds).
//   2. A record in kMicroKernels (emit_product.cpp): name, summary, whether it takes f16 and bf16, and
//      whether its sums may stay in registers: only if they lie as Sums has them (`fours`: in which of its two
//      ways), because row reductions, element-wise operators and stores read them there. One with a layout of its own (wmma2x2) works on
//      sums in shared memory instead; see Wmma2x2.
//   3. product_fits() and multiply() in emit_product.cpp, where it takes other tiles (a swizzle of its own,
//      descriptors) or other arguments. wgmma, for one, has a warpgroup's 64 rows where Sums has a warp's 16:
//      Place::row_of is the one function that says which row an element is.
//   4. A family in tests/codegen/cuda_families_test.cpp: right numbers, exact's bytes, no finding on the CPU.
//      What PTX it uses goes into tilewright_device.h, with its meaning in C++ in
//      simulator/cuda_host/device/tilewright_host.h, or nothing of it can be tested without a GPU.
#pragma once

#include "tilewright_products.h"

namespace tw {

struct Skeleton {
  /// Both operands in shared memory. c: this warp's M x N blocks of 16 rows and 8 columns. a, b: AlongDepth
  /// or AcrossDepth; value(row or column, k) is an element, whatever way round it lies; left<T>() and
  /// right<T>() are whole fragments for tensor cores. first: the first of this warp's blocks of columns.
  /// depth: how far k runs. Rows and columns beyond the tile may be read: they are padded; k may not
  /// go beyond depth here, while Mma rounds it up because tiles are padded with zeros.
  template <int M, int N, class Left, class Right, bool Fours>
  TW_MEMBER static void multiply(Sums<M, N>& c, const Left& a, const Right& b,
                                 const PlaceOf<Fours>& p, int first, int depth) {
    for (int k = 0; k < depth; ++k)
      each<M, N>(p, first, [&](int i, int j, int e, int row, int column) {
        c.x[i][j][e] += float(a.value(row, k)) * float(b.value(column, k));
      });
  }
  /// The left operand is the sums of a product before, K blocks of 8 columns from 8 * first_depth on, spread
  /// over the warp's lanes: an element is asked of the lane that has it.
  template <int M, int N, int K, class Right, bool Fours>
  TW_MEMBER static void multiply_sums(Sums<M, N>& c, const Sums<M, K>& a, const Right& b,
                                      const PlaceOf<Fours>& p, int first, int first_depth) {
    TW_UNROLL
    for (int q = 0; q < K; ++q)
      TW_UNROLL
      for (int k = 0; k < 8; ++k) {
        float x[M][2];
        TW_UNROLL
        for (int i = 0; i < M; ++i)
          TW_UNROLL
          for (int h = 0; h < 2; ++h)
            x[i][h] = shuffle(a.x[i][Fours ? q - q % 2 + k % 4 / 2 : q][2 * h + k % 2],
                              p.numbered(p.place() / 4 * 4 + (Fours ? q % 2 * 2 + k / 4 : k / 2)));
        each<M, N>(p, first, [&](int i, int j, int e, int, int column) {
          c.x[i][j][e] += x[i][e / 2] * float(b.value(column, (first_depth + q) * 8 + k));
        });
      }
  }
};

}  // namespace tw
