// Products by warpgroups, in tiles that do not divide them: every transposition, type and way home.
#include "tilewright_warpgroups.h"

using namespace tw;

struct AsTheyAre {
  TW_MEMBER void operator()(float (&)[2], int, int, const ProductPlace&) const {}
};
struct Positive {
  TW_MEMBER void operator()(float (&x)[2], int, int, const ProductPlace&) const {
    for (float& each : x) each = each > 0 ? each : 0;
  }
};

#define PRODUCT(NAME, IN, OUT, GROUPS, BLOCKS, COLUMNS, STAGES, STEPS, LEFT, RIGHT, ALL, BOXED, VECTOR, RESULTS) \
  extern "C" __global__ void __launch_bounds__((GROUPS + 1) * 128, 1)                                            \
  NAME(OUT* home, const int* size, TW_TENSOR_MAP(a), TW_TENSOR_MAP(b), TW_TENSOR_MAP(c)) {                       \
    TW_SHARED(memory);                                                                                           \
    const ProductSize s{load_global(size), load_global(size + 1), load_global(size + 2), load_global(size + 3),  \
                        load_global(size + 4)};                                                                  \
    WarpgroupProduct<IN, OUT, GROUPS, BLOCKS, COLUMNS, STAGES, STEPS, LEFT, RIGHT, false, ALL, BOXED,            \
                     VECTOR>::run(memory, a, b, c, home, s.columns, i64(s.rows) * s.columns, s, RESULTS{});      \
  }

PRODUCT(rows_rows, f16, f16, 1, 1, 64, 2, 1, false, true, false, true, 8, AsTheyAre)
PRODUCT(rows_columns, bf16, bf16, 2, 1, 48, 3, 1, false, false, false, false, 2, Positive)
PRODUCT(columns_rows, f16, float, 1, 2, 64, 2, 2, true, true, true, true, 4, Positive)
PRODUCT(columns_columns, bf16, f16, 1, 1, 80, 2, 1, true, false, true, false, 1, AsTheyAre)
