// Every function of tilewright_device.h that computes, one kernel each, by one warp or a few.
#include "tilewright_device.h"

extern "C" __global__ void round_to(const float* x, tw::f16* half, tw::bf16* bfloat, tw::u32* packed) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float v = tw::load_global(x + i);
  tw::store_global(half + i, tw::Rounded<tw::f16>::of(v));
  tw::store_global(bfloat + i, tw::Rounded<tw::bf16>::of(v));
  tw::store_global(packed + 2 * i, tw::Packed<tw::f16>::of(v, -v));
  tw::store_global(packed + 2 * i + 1, tw::Packed<tw::bf16>::of(-v, v));
}

extern "C" __global__ void widen(const tw::f16* half, const tw::bf16* bfloat, float* a, float* b) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tw::store_global(a + i, tw::to_float(tw::load_global(half + i)));
  tw::store_global(b + i, tw::to_float(tw::load_global(bfloat + i)));
}

// c[16x16] = a[16x16] b[16x16], row-major, through ldmatrix and mma; b is also given transposed.
template <class T>
TW_DEVICE void multiply(const T* a, const T* b, const T* bt, float* c, float* ct) {
  TW_SHARED(memory);
  const int lane = threadIdx.x;
  const void* from[3] = {a, b, bt};
  TW_UNROLL
  for (int i = 0; i < 3; ++i)
    tw::cp_async16(memory + 512 * i + 16 * lane, static_cast<const char*>(from[i]) + 16 * lane, 16);
  tw::cp_async_commit();
  tw::cp_async_wait<0>();
  tw::warp_sync();
  tw::u32 left[4], right[4], other[4];
  const int at = lane % 16 * 32 + lane / 16 * 16;
  tw::ldmatrix4(left, memory + at);
  tw::ldmatrix4_transposed(right, memory + 512 + at);
  tw::ldmatrix4(other, memory + 1024 + (lane % 8 + lane / 16 * 8) * 32 + lane / 8 % 2 * 16);
  float d[2][4] = {{1, 1, 1, 1}, {1, 1, 1, 1}}, e[2][4] = {};
  for (int j = 0; j < 2; ++j) {
    tw::mma_16x8x16<T>(d[j], left, right[2 * j], right[2 * j + 1]);
    tw::mma_16x8x16<T>(e[j], left, other[2 * j], other[2 * j + 1]);
  }
  TW_UNROLL
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 4; ++i) {
      const int to = (lane / 4 + i / 2 * 8) * 16 + j * 8 + lane % 4 * 2 + i % 2;
      tw::store_global(c + to, d[j][i]);
      tw::store_global(ct + to, e[j][i]);
    }
}
extern "C" __global__ void multiply_f16(const tw::f16* a, const tw::f16* b, const tw::f16* bt, float* c,
                                        float* ct) {
  multiply(a, b, bt, c, ct);
}
extern "C" __global__ void multiply_bf16(const tw::bf16* a, const tw::bf16* b, const tw::bf16* bt,
                                         float* c, float* ct) {
  multiply(a, b, bt, c, ct);
}

// c[4][16x16] = a b with a, b as they are or transposed in memory.
extern "C" __global__ void multiply_wmma(const tw::f16* a, const tw::f16* b, const tw::f16* at,
                                         const tw::f16* bt, float* c) {
  TW_SHARED(memory);
  const int lane = threadIdx.x;
  tw::f16* const tiles = reinterpret_cast<tw::f16*>(memory);
  const tw::f16* from[4] = {a, b, at, bt};
  // Rows of 24 elements: a stride that is not the tile's own.
  TW_UNROLL
  for (int i = 0; i < 4; ++i)
    for (int j = lane; j < 256; j += 32)
      tiles[i * 384 + j / 16 * 24 + j % 16] = tw::load_global(from[i] + j);
  float* const sums = reinterpret_cast<float*>(memory + 4096);
  for (int j = lane; j < 320; j += 32) sums[j] = 2;
  tw::warp_sync();
  tw::WmmaOperand l, lt, r, rt;
  tw::wmma_load_a(l, tiles, 24);
  tw::wmma_load_b(r, tiles + 384, 24);
  tw::wmma_load_a_transposed(lt, tiles + 768, 24);
  tw::wmma_load_b_transposed(rt, tiles + 1152, 24);
  tw::WmmaSums s[4];
  for (int i = 0; i < 4; ++i) tw::wmma_load_sums(s[i], sums, 20);
  tw::wmma_multiply<false, false>(s[0], l, r);
  tw::wmma_multiply<true, false>(s[1], lt, r);
  tw::wmma_multiply<false, true>(s[2], l, rt);
  tw::wmma_multiply<true, true>(s[3], lt, rt);
  for (int i = 0; i < 4; ++i) {
    tw::warp_sync();
    tw::wmma_store_sums(sums, s[i], 20);
    tw::warp_sync();
    for (int j = lane; j < 256; j += 32)
      tw::store_global(c + 256 * i + j, sums[j / 16 * 20 + j % 16]);
  }
}

// An operand that was loaded as the other side.
extern "C" __global__ void wrong_operand(const tw::f16* a, float* c) {
  TW_SHARED(memory);
  for (int j = threadIdx.x; j < 256; j += 32)
    reinterpret_cast<tw::f16*>(memory)[j] = tw::load_global(a + j);
  tw::warp_sync();
  tw::WmmaOperand l, r;
  tw::WmmaSums s = {};
  tw::wmma_load_a(l, reinterpret_cast<tw::f16*>(memory), 16);
  tw::wmma_load_a(r, reinterpret_cast<tw::f16*>(memory), 16);
  tw::wmma_multiply<false, false>(s, l, r);  // wrong operand
  tw::store_global(c + threadIdx.x, s.r[0]);
}

// out[lane] of five shuffles and a ballot.
extern "C" __global__ void shuffles(const float* in, float* out, tw::u32* votes) {
  const int lane = threadIdx.x;
  const float x = tw::load_global(in + lane);
  float sum = x;
  for (int m = 16; m > 0; m /= 2) sum += tw::shuffle_xor(sum, m);
  tw::store_global(out + lane, sum);
  tw::store_global(out + 32 + lane, tw::shuffle_xor(x, 5));
  tw::store_global(out + 64 + lane, tw::shuffle_down(x, 3));
  tw::store_global(out + 96 + lane, tw::shuffle(x, 7));
  tw::store_global(out + 128 + lane, tw::shuffle(x, lane / 2));
  tw::store_global(votes + lane, tw::ballot(x > 0));
}

// Four blocks add to the same 32 elements of every type.
extern "C" __global__ void atomics(const float* in, float* f, double* d, tw::f16* h, tw::bf16* b) {
  const float x = tw::load_global(in + blockIdx.x * 32 + threadIdx.x);
  tw::atomic_add(f + threadIdx.x, x);
  tw::atomic_add(d + threadIdx.x, double(x));
  tw::atomic_add(h + threadIdx.x, x);
  tw::atomic_add(b + threadIdx.x, x);
}

// Rounds of a stencil over all blocks: x'[i] = x[i-1] + x[i+1], cyclically.
extern "C" __global__ void stencil(float* x, float* y, tw::u32* counter) {
  const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int round = 0; round < 4; ++round) {
    float* const from = round % 2 == 0 ? x : y;
    float* const to = round % 2 == 0 ? y : x;
    const float sum = tw::load_global(from + (i + n - 1) % n) + tw::load_global(from + (i + 1) % n);
    tw::store_global(to + i, sum);
    tw::grid_sync(counter);
  }
}

// Plain C++: a struct copied whole, sixteen bytes at once, and functions of the C library.
struct Triple { float a, b, c; };
extern "C" __global__ void plain(const Triple* in, Triple* out, const tw::b128* wide, tw::b128* wide_out) {
  TW_SHARED(memory);
  Triple* const kept = reinterpret_cast<Triple*>(memory);
  kept[threadIdx.x] = in[threadIdx.x];
  tw::block_sync();
  Triple t = kept[blockDim.x - 1 - threadIdx.x];
  t.a = expf(t.a);
  t.b = sqrtf(t.b);
  t.c = fmaxf(t.c, tanhf(t.c));
  out[threadIdx.x] = t;
  wide_out[threadIdx.x] = wide[threadIdx.x];
}
