// OpenBLAS and BLIS: cblas_sgemm twice a batch element. Both export that name, so each is opened on
// its own (RTLD_LOCAL) and asked for it; neither is linked.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/peer.h"

namespace tilewright::bench {
namespace {

constexpr int kRowMajor = 101, kNoTranspose = 111;  // CBLAS's, the same in every implementation
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                       float* c, int ldc);

/// The first of the names that can be opened; it stays open as long as the program.
void* open_one(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

struct Blas {
  Sgemm sgemm = nullptr;
  std::function<void(int)> set_threads;
};

void product(Sgemm sgemm, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
             const float* b, float* c) {
  sgemm(kRowMajor, kNoTranspose, kNoTranspose, static_cast<int>(m), static_cast<int>(n),
        static_cast<int>(k), 1.0F, a, static_cast<int>(k), b, static_cast<int>(n), 0.0F, c,
        static_cast<int>(n));
}

void run_elements(Sgemm sgemm, const Chain& chain, std::int64_t first, std::int64_t last) {
  for (std::int64_t b = first; b < last; ++b) {
    product(sgemm, chain.m(), chain.l(), chain.k(), chain.a(b), chain.b(b), chain.c(b));
    product(sgemm, chain.m(), chain.n(), chain.l(), chain.c(b), chain.d(b), chain.e(b));
  }
}

/// The library's own threads within each product; and, with several, its products on one thread
/// each with the batch dealt out, which is what a user who knows the sizes would write.
std::vector<Entry> entries(const std::string& name, const Blas& blas, const Chain& chain,
                           int threads) {
  std::vector<Entry> all{{.name = name, .run = [blas, &chain, threads] {
                            blas.set_threads(threads);
                            run_elements(blas.sgemm, chain, 0, chain.batch());
                          }}};
  if (threads > 1 && chain.batch() >= threads)
    all.push_back({.name = name + "/batch", .run = [blas, &chain, threads] {
                     blas.set_threads(1);
                     split(chain.batch(), threads, [&](std::int64_t first, std::int64_t last, int) {
                       run_elements(blas.sgemm, chain, first, last);
                     });
                   }});
  return all;
}

Peer missing(const std::string& name, const std::string& why) {
  return {.name = name, .description = "", .missing = why, .prepare = {}};
}

}  // namespace

Peer openblas() {
  // Debian's own folders before the plain name, which the alternatives system may point elsewhere.
  void* library = open_one({"/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
                            "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
                            "libopenblas.so.0", "libopenblas.so"});
  if (library == nullptr) return missing("OpenBLAS", "no libopenblas.so.0");
  const Blas blas{.sgemm = symbol<Sgemm>(library, "cblas_sgemm"),
                  .set_threads = symbol<void (*)(int)>(library, "openblas_set_num_threads")};
  if (blas.sgemm == nullptr || !blas.set_threads)
    return missing("OpenBLAS", "libopenblas.so.0 without cblas_sgemm or openblas_set_num_threads");
  const auto config = symbol<char* (*)()>(library, "openblas_get_config");
  const auto core = symbol<char* (*)()>(library, "openblas_get_corename");
  const auto parallel = symbol<int (*)()>(library, "openblas_get_parallel");
  std::string about = config != nullptr ? config() : "version unknown";
  if (core != nullptr) about += std::string("; kernels for ") + core();
  if (parallel != nullptr) {
    const int kind = parallel();
    about += kind == 0 ? "; serial build" : kind == 1 ? "; own threads" : "; OpenMP";
  }
  return {.name = "OpenBLAS",
          .description = about,
          .missing = "",
          .prepare = [blas](const Chain& chain, int threads) {
            return entries("OpenBLAS", blas, chain, threads);
          }};
}

Peer blis() {
  void* library = open_one({"/usr/lib/x86_64-linux-gnu/blis-pthread/libblis.so.4",
                            "/usr/lib/aarch64-linux-gnu/blis-pthread/libblis.so.4", "libblis.so.4",
                            "libblis.so.3", "libblis.so"});
  if (library == nullptr) return missing("BLIS", "no libblis.so.4");
  // BLIS's dim_t is 64 bits wide in every build but those for 32-bit machines.
  const auto set = symbol<void (*)(std::int64_t)>(library, "bli_thread_set_num_threads");
  const Blas blas{.sgemm = symbol<Sgemm>(library, "cblas_sgemm"),
                  .set_threads = [set](int threads) { set(threads); }};
  if (blas.sgemm == nullptr || set == nullptr)
    return missing("BLIS", "libblis without cblas_sgemm or bli_thread_set_num_threads");
  const auto version = symbol<const char* (*)()>(library, "bli_info_get_version_str");
  const auto arch = symbol<int (*)()>(library, "bli_arch_query_id");
  const auto arch_name = symbol<const char* (*)(int)>(library, "bli_arch_string");
  std::string about = version != nullptr ? version() : "version unknown";
  if (arch != nullptr && arch_name != nullptr)
    about += std::string("; kernels for ") + arch_name(arch());
  return {.name = "BLIS",
          .description = about,
          .missing = "",
          .prepare = [blas](const Chain& chain, int threads) {
            return entries("BLIS", blas, chain, threads);
          }};
}

}  // namespace tilewright::bench
