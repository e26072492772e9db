// OpenBLAS and BLIS: cblas_sgemm twice a batch element. Both export that name, so each is opened on
// its own (RTLD_LOCAL) and asked for it; neither is linked.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "bench/child.h"
#include "bench/peer.h"
#include "codegen/cpu/cpu.h"

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

/// Kernels for this processor, where the library's own choice is poorer than what it has.
struct Choice {
  std::string kernels;  ///< in use now
  std::string remark;   ///< where the library was told
};

/// Libraries of before a processor was made fall back to kernels for older ones, and an environment
/// may hold them there. Where this one runs AVX-512 and the library, asked in a child process,
/// would not, `variable` is set to its AVX-512 kernels: a peer is shown at its best, and what was
/// changed is said. A Reason where the library cannot start.
Result<Choice> choose_kernels(const std::function<std::string()>& ask, const char* variable,
                              const std::string& value, std::span<const std::string_view> wide) {
  const auto own = asked_in_child(ask);
  if (!own) return Reason{"it gives up when it starts"};
  const bool is_wide = std::find(wide.begin(), wide.end(), *own) != wide.end();
  if (is_wide || value.empty() || !cpu::host_runs(cpu::Isa::avx512)) return Choice{*own, ""};
  const char* const before = std::getenv(variable);
  const std::string kept = before != nullptr ? before : "";
  setenv(variable, value.c_str(), 1);
  if (const auto told = asked_in_child(ask); told && *told != *own)
    return Choice{*told, std::string(" (told by ") + variable + "; left alone, " +
                             (before != nullptr ? "with " + kept + " in the environment, " : "") +
                             "it takes " + *own + ")"};
  if (before != nullptr)
    setenv(variable, kept.c_str(), 1);
  else
    unsetenv(variable);
  return Choice{*own, ""};
}

void* open_openblas() {
  // Debian's own folders before the plain name, which the alternatives system may point elsewhere.
  return open_one({"/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
                   "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
                   "libopenblas.so.0", "libopenblas.so"});
}

std::string openblas_kernels() {
  const auto name = symbol<char* (*)()>(open_openblas(), "openblas_get_corename");
  return name != nullptr ? name() : "an unknown processor";
}

void* open_blis() {
  return open_one({"/usr/lib/x86_64-linux-gnu/blis-pthread/libblis.so.4",
                   "/usr/lib/aarch64-linux-gnu/blis-pthread/libblis.so.4", "libblis.so.4",
                   "libblis.so.3", "libblis.so"});
}

std::string blis_kernels() {
  void* library = open_blis();
  // Before its start-up the question itself aborts where BLIS_ARCH_TYPE is set (0.9).
  const auto start = symbol<void (*)()>(library, "bli_init");
  const auto arch = symbol<int (*)()>(library, "bli_arch_query_id");
  const auto name = symbol<const char* (*)(int)>(library, "bli_arch_string");
  if (start == nullptr || arch == nullptr || name == nullptr) return "an unknown processor";
  start();
  return name(arch());
}

/// BLIS_ARCH_TYPE's number for "skx"; "" where the library has no such name.
std::string blis_skx() {
  const auto name = symbol<const char* (*)(int)>(open_blis(), "bli_arch_string");
  constexpr int kFew =
      8;  // the names in front are the same in every version; the end is not marked
  for (int id = 0; name != nullptr && id < kFew; ++id)
    if (std::string_view(name(id)) == "skx") return std::to_string(id);
  return "";
}

}  // namespace

Peer openblas() {
  constexpr std::string_view kWide[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
  // Opened once the choice is made: the library looks at the processor as it is loaded.
  if (!asked_in_child([] { return open_openblas() != nullptr ? std::string() : throw 1; }))
    return missing("OpenBLAS", "no libopenblas.so.0");
  const auto choice = choose_kernels(openblas_kernels, "OPENBLAS_CORETYPE", "SkylakeX", kWide);
  if (!choice) return missing("OpenBLAS", choice.reason());
  void* library = open_openblas();
  const Blas blas{.sgemm = symbol<Sgemm>(library, "cblas_sgemm"),
                  .set_threads = symbol<void (*)(int)>(library, "openblas_set_num_threads")};
  if (blas.sgemm == nullptr || !blas.set_threads)
    return missing("OpenBLAS", "libopenblas.so.0 without cblas_sgemm or openblas_set_num_threads");
  const auto config = symbol<char* (*)()>(library, "openblas_get_config");
  const auto parallel = symbol<int (*)()>(library, "openblas_get_parallel");
  std::string about = config != nullptr ? config() : "OpenBLAS, version unknown";
  about += "; kernels for " + choice->kernels + choice->remark;
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
  constexpr std::string_view kWide[] = {"skx", "zen4", "zen5"};
  void* library = open_blis();  // looks at the processor at its start-up, not as it is loaded
  if (library == nullptr) return missing("BLIS", "no libblis.so.4");
  const auto choice = choose_kernels(blis_kernels, "BLIS_ARCH_TYPE", blis_skx(), kWide);
  if (!choice) return missing("BLIS", choice.reason());
  // BLIS's dim_t is 64 bits wide in every build but those for 32-bit machines.
  const auto set = symbol<void (*)(std::int64_t)>(library, "bli_thread_set_num_threads");
  const Blas blas{.sgemm = symbol<Sgemm>(library, "cblas_sgemm"),
                  .set_threads = [set](int threads) { set(threads); }};
  if (blas.sgemm == nullptr || set == nullptr)
    return missing("BLIS", "libblis without cblas_sgemm or bli_thread_set_num_threads");
  blis_kernels();
  const auto version = symbol<const char* (*)()>(library, "bli_info_get_version_str");
  std::string about =
      std::string("BLIS ") + (version != nullptr ? version() : "of unknown version");
  return {.name = "BLIS",
          .description = about + "; kernels for " + choice->kernels + choice->remark,
          .missing = "",
          .prepare = [blas](const Chain& chain, int threads) {
            return entries("BLIS", blas, chain, threads);
          }};
}

}  // namespace tilewright::bench
