// Instruction sets of the host, and the FMA rate that it starts.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "core/lowering/byte_products.h"

#if defined(__x86_64__) || defined(__i386__)
#define TILEWRIGHT_X86 1
#include <cpuid.h>
#include <immintrin.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#else
#define TILEWRIGHT_X86 0
#endif

namespace tilewright::cpu {

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::avx512_vnni:
      return "avx512_vnni";
    case Isa::amx_int8:
      return "amx_int8";
  }
  return "?";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (Isa isa :
       {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::avx512_vnni, Isa::amx_int8})
    if (name == name_of(isa)) return isa;
  return std::nullopt;
}

namespace {

/// Whether the processor has tiles of 8-bit numbers and the kernel gives their registers to this
/// process, which has to ask for them.
bool runs_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool runs = [] {
    constexpr long kAskForState = 0x1023, kTiles = 18;
    constexpr unsigned kTileBits = 1U << 24 | 1U << 25;  // AMX-TILE, AMX-INT8
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTileBits) == kTileBits &&
           syscall(SYS_arch_prctl, kAskForState, kTiles) == 0;
  }();
  return runs;
#else
  return false;
#endif
}

}  // namespace

bool host_runs(Isa isa) {
#if TILEWRIGHT_X86
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma");
    case Isa::avx512_bf16:
      return host_runs(Isa::avx512) && __builtin_cpu_supports("avx512bf16");
    case Isa::avx512_vnni:
      return host_runs(Isa::avx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::amx_int8:
      return host_runs(Isa::avx512_vnni) && runs_tiles();
  }
#endif
  return isa == Isa::generic;
}

Isa host_isa(DType type) {
  if (type == DType::bf16 && host_runs(Isa::avx512_bf16)) return Isa::avx512_bf16;
  if (host_runs(Isa::avx512)) return Isa::avx512;
  return host_runs(Isa::avx2) ? Isa::avx2 : Isa::generic;
}

Isa host_isa(const Workload& w) {
  if (multiplies_bytes(w))
    for (const Isa isa : {Isa::amx_int8, Isa::avx512_vnni})
      if (host_runs(isa)) return isa;
  return host_isa(w.dtype());
}

namespace {

constexpr int kRepeats = 1000;

// Each loop keeps enough independent accumulators in flight to hide the latency of an FMA (4 to 5
// cycles, two started a cycle), and few enough for the registers of its instruction set. Returns a
// value that depends on all of them, so that nothing is left out.
#if TILEWRIGHT_X86
__attribute__((target("avx512f"))) float fma_loop_avx512(float x) {
  __m512 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(x);
  for (int r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, a);
  }
  __m512 sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm512_add_ps(sum, acc[i]);
  float parts[16];
  _mm512_storeu_ps(parts, sum);
  return parts[0] + parts[7] + parts[15];
}

/// Dot products of pairs: two multiply-adds a lane.
__attribute__((target("avx512f,avx512bf16"))) float dot_loop_avx512(float x) {
  __m512 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512bh a = (__m512bh)_mm512_set1_ps(x);
  for (int r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], a, a);
  }
  __m512 sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm512_add_ps(sum, acc[i]);
  float parts[16];
  _mm512_storeu_ps(parts, sum);
  return parts[0] + parts[7] + parts[15];
}

/// Dot products of quads: four multiply-adds a lane.
__attribute__((target("avx512f,avx512vnni"))) float quad_loop_avx512(float x) {
  __m512i acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_castps_si512(_mm512_set1_ps(x));
  for (int r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, a);
  }
  __m512i sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  std::int32_t parts[16];
  _mm512_storeu_si512(parts, sum);
  return static_cast<float>(parts[0] + parts[7] + parts[15]);
}

__attribute__((target("avx2,fma"))) float fma_loop_avx2(float x) {
  __m256 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(x);
  for (int r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, a);
  }
  __m256 sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm256_add_ps(sum, acc[i]);
  float parts[8];
  _mm256_storeu_ps(parts, sum);
  return parts[0] + parts[3] + parts[7];
}
#endif

/// Baseline instructions: four-wide where the compiler's vectors are, multiply then add.
float fma_loop_generic(float x) {
  typedef float Vector __attribute__((vector_size(16)));
  Vector acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = Vector{} + static_cast<float>(i);
  const Vector a = Vector{} + x;
  for (int r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = acc[i] * a + a;
  }
  Vector sum = acc[0];
  for (int i = 1; i < 12; ++i) sum += acc[i];
  return sum[0] + sum[3];
}

struct PeakLoop {
  float (*run)(float);
  double flops;
};

PeakLoop peak_loop(Isa isa) {
#if TILEWRIGHT_X86
  if (isa == Isa::avx512_bf16) return {dot_loop_avx512, 2.0 * 32 * 12 * kRepeats};
  if (isa == Isa::avx512_vnni || isa == Isa::amx_int8)
    return {quad_loop_avx512, 2.0 * 64 * 12 * kRepeats};
  if (isa == Isa::avx512) return {fma_loop_avx512, 2.0 * 16 * 12 * kRepeats};
  if (isa == Isa::avx2) return {fma_loop_avx2, 2.0 * 8 * 12 * kRepeats};
#endif
  (void)isa;
  return {fma_loop_generic, 2.0 * 4 * 12 * kRepeats};
}

/// GFLOP/s of one thread: the best of its slices, so that an interruption does not count.
double peak_of_one(PeakLoop loop, double seconds, std::atomic<float>& sink) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    float sum = 0;
    for (int i = 0; i < 100; ++i) sum += loop.run(0.5F);
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    sink.store(sum, std::memory_order_relaxed);
    if (took > 0) best = std::max(best, 100 * loop.flops / took * 1e-9);
  }
  return best;
}

}  // namespace

double fma_peak_gflops(Isa isa, int threads, double seconds) {
  if (!host_runs(isa))
    throw InputError({.field = "isa",
                      .value = std::string(name_of(isa)),
                      .problem = "this machine does not run it",
                      .accepted = std::string(name_of(host_isa()))});
  if (threads < 1)
    throw InputError({.field = "threads",
                      .value = std::to_string(threads),
                      .problem = "is not positive",
                      .accepted = "1 or more"});
  const PeakLoop loop = peak_loop(isa);
  std::atomic<float> sink{0};
  std::vector<double> rates(static_cast<std::size_t>(threads), 0.0);
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < rates.size(); ++t)
    others.emplace_back([&, t] { rates[t] = peak_of_one(loop, seconds, sink); });
  rates[0] = peak_of_one(loop, seconds, sink);
  for (std::thread& t : others) t.join();
  double total = 0;
  for (double r : rates) total += r;
  return total;
}

}  // namespace tilewright::cpu
