// Assembly that tests and benchmarks run on the emulated NPU.
#pragma once

#include <string>

namespace tilewright::npu {

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

/// C[m,n] = A[m,k] B[k,n] on one core, everything double-buffered: A stays in L1, B streams through
/// it; n is walked by 128, k by 64. m is one tile, a multiple of 16 up to 256; n and k are
/// multiples of 128 and 64; A fits L1 beside B.
inline std::string gemm_text(int m, int n, int k) {
  static const char* const kText = R"(.program gemm
.blocks 1
.input A f16[$M, $K]
.input B f16[$K, $N]
.output C f16[$M, $N]
.buffer a1 L1 f16[$MK] at 0 holds A
.buffer b1 L1 f16[16384] at 1015808 holds B
.buffer a0 L0A f16[32768] at 0 holds A
.buffer b0 L0B f16[16384] at 0 holds B
.buffer c0 L0C f32[65536] at 0 holds C
.buffer cu UB f16[65536] at 0 holds C
for n = 0 to $N step 128
  let t = n/128
  let half = t%2*32768
  if t >= 2
    wait_flag V, M, t%2           ; these sums have been taken away
  end
  for k = 0 to $K step 64
    let s = t*($K/64) + k/64
    let a = s%2*16384
    let b = s%2*8192
    if s >= 2
      wait_flag MTE1, MTE2, s%2   ; this half of b1 has been read
    end
    if t == 0
      copy a1[k*$M].Nz($M), A[k].nd($K), rows=$M, columns=64
    end
    copy b1[b].Nz(64), B[k*$N + n].nd($N), rows=64, columns=128
    set_flag MTE2, MTE1, s%2
    wait_flag MTE2, MTE1, s%2
    if s >= 2
      wait_flag M, MTE1, s%2      ; these halves of a0 and b0 have been multiplied
    end
    copy a0[a].Zz(64), a1[k*$M].Nz($M), rows=$M, columns=64
    copy b0[b].Zn(128), b1[b].Nz(64), rows=64, columns=128
    set_flag MTE1, MTE2, s%2
    set_flag MTE1, M, s%2
    wait_flag MTE1, M, s%2
    mad c0[half], a0[a], b0[b], m=$M, n=128, k=64, accumulate=k > 0
    set_flag M, MTE1, s%2
  end
  set_flag M, V, t%2
  wait_flag M, V, t%2
  if t >= 2
    wait_flag MTE3, V, t%2        ; this half of cu has been written out
  end
  copy cu[half].nd(128), c0[half].Nz($M), rows=$M, columns=128
  set_flag V, M, t%2
  set_flag V, MTE3, t%2
  wait_flag V, MTE3, t%2
  copy C[n].nd($N), cu[half].nd(128), rows=$M, columns=128
  set_flag MTE3, V, t%2
end
for e = 0 to 2                    ; what is still set
  wait_flag MTE1, MTE2, e
  wait_flag M, MTE1, e
  wait_flag V, M, e
  wait_flag MTE3, V, e
end
)";
  std::string text = replaced(kText, "$MK", std::to_string(m * k));
  text = replaced(text, "$M", std::to_string(m));
  text = replaced(text, "$N", std::to_string(n));
  return replaced(text, "$K", std::to_string(k));
}

/// Y = exp(X) * 0.5 + X on two cores, tiles of 128 x 128 double-buffered in UB.
inline std::string element_wise_text(int tiles) {
  static const char* const kText = R"(.program element_wise
.blocks 2
.input X f16[$R, 128]
.output Y f16[$R, 128]
.buffer x UB f16[32768] at 0 holds X
.buffer y UB f16[32768] at 65792 holds Y
for i = 0 to $T
  let h = i%2*16384
  let at = (i*blocks + block)*16384
  if i >= 2
    wait_flag V, MTE2, i%2
  end
  copy x[h].nd(128), X[at].nd(128), rows=128, columns=128
  set_flag MTE2, V, i%2
  wait_flag MTE2, V, i%2
  if i >= 2
    wait_flag MTE3, V, i%2
  end
  vexp y[h], x[h], repeat=128
  vmuls y[h], y[h], 0.5, repeat=128
  vadd y[h], y[h], x[h], repeat=128
  set_flag V, MTE2, i%2
  set_flag V, MTE3, i%2
  wait_flag V, MTE3, i%2
  copy Y[at].nd(128), y[h].nd(128), rows=128, columns=128
  set_flag MTE3, V, i%2
end
for e = 0 to 2
  wait_flag V, MTE2, e
  wait_flag MTE3, V, e
end
)";
  return replaced(replaced(kText, "$T", std::to_string(tiles)), "$R",
                  std::to_string(tiles * 2 * 128));
}

/// E[m,n] = (A[m,k] B[k,l]) D[l,n], m = 64, l and k = 64, n = 32, fused: the first product goes
/// from L0C through UB into L1. Rows in blocks of 64, several a core.
inline std::string chain_text(int rows) {
  static const char* const kText = R"(.program chain
.blocks 1
.input A f16[$R, 64]
.input B f16[64, 64]
.input D f16[64, 32]
.output E f16[$R, 32]
.buffer a1 L1 f16[4096] at 0 holds A
.buffer b1 L1 f16[4096] at 8192 holds B
.buffer d1 L1 f16[2048] at 16384 holds D
.buffer c1 L1 f16[4096] at 20480 holds C
.buffer a0 L0A f16[4096] at 0 holds A
.buffer c0a L0A f16[4096] at 8192 holds C
.buffer b0 L0B f16[4096] at 0 holds B
.buffer d0 L0B f16[2048] at 8192 holds D
.buffer c0 L0C f32[4096] at 0 holds C
.buffer e0 L0C f32[2048] at 16384 holds E
.buffer cu UB f16[4096] at 0 holds C
.buffer eu UB f16[2048] at 8192 holds E
copy b1[0].Nz(64), B[0].nd(64), rows=64, columns=64
copy d1[0].Nz(64), D[0].nd(32), rows=64, columns=32
for i = 0 to $R step 64
  if i > 0
    wait_flag MTE1, MTE2, 0
  end
  copy a1[0].Nz(64), A[i*64].nd(64), rows=64, columns=64
  set_flag MTE2, MTE1, 0
  wait_flag MTE2, MTE1, 0
  if i > 0
    wait_flag M, MTE1, 0
  else
    copy b0[0].Zn(64), b1[0].Nz(64), rows=64, columns=64
    copy d0[0].Zn(32), d1[0].Nz(64), rows=64, columns=32
  end
  copy a0[0].Zz(64), a1[0].Nz(64), rows=64, columns=64
  set_flag MTE1, MTE2, 0
  set_flag MTE1, M, 0
  wait_flag MTE1, M, 0
  mad c0[0], a0[0], b0[0], m=64, n=64, k=64, accumulate=0
  set_flag M, MTE1, 0
  set_flag M, V, 0
  wait_flag M, V, 0
  copy cu[0].Nz(64), c0[0].Nz(64), rows=64, columns=64
  set_flag V, MTE3, 0
  wait_flag V, MTE3, 0
  copy c1[0].Nz(64), cu[0].Nz(64), rows=64, columns=64
  set_flag MTE3, MTE1, 0
  wait_flag MTE3, MTE1, 0
  copy c0a[0].Zz(64), c1[0].Nz(64), rows=64, columns=64
  set_flag MTE1, M, 1
  wait_flag MTE1, M, 1
  mad e0[0], c0a[0], d0[0], m=64, n=32, k=64, accumulate=0
  set_flag M, V, 1
  wait_flag M, V, 1
  if i > 0
    wait_flag MTE3, V, 0
  end
  copy eu[0].nd(32), e0[0].Nz(64), rows=64, columns=32
  set_flag V, MTE3, 1
  wait_flag V, MTE3, 1
  copy E[i*32].nd(32), eu[0].nd(32), rows=64, columns=32
  set_flag MTE3, V, 0
end
wait_flag MTE1, MTE2, 0
wait_flag M, MTE1, 0
wait_flag MTE3, V, 0
)";
  return replaced(kText, "$R", std::to_string(rows));
}

}  // namespace tilewright::npu
