#include "codegen/cuda/build.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "codegen/cuda/nvrtc.h"
#include "core/base/toolchain.h"

namespace tilewright::cuda {
namespace {

namespace fs = std::filesystem;

/// "sm_90a" as nvcc wants it: arch=compute_90a,code=sm_90a.
std::string gencode(const std::string& architecture) {
  return "arch=compute_" + architecture.substr(3) + ",code=" + architecture;
}

/// "13.0.88" out of "Cuda compilation tools, release 13.0, V13.0.88".
std::string nvcc_version(const fs::path& nvcc) {
  const TemporaryDirectory dir;
  if (dir.path().empty() || run_program({nvcc.string(), "--version"}, dir.path() / "log"))
    return "nvcc";
  const std::string text = text_of(dir.path() / "log");
  const std::size_t at = text.find(", V");
  if (at == std::string::npos) return "nvcc";
  return "nvcc " + text.substr(at + 3, text.find_first_not_of("0123456789.", at + 3) - at - 3);
}

Result<Binary> build_with_nvcc(const fs::path& nvcc, const Source& source,
                               const std::string& architecture) {
  static const std::string version = nvcc_version(nvcc);
  const TemporaryDirectory dir;
  if (dir.path().empty())
    return Reason{"no temporary directory for the build: " + std::string(std::strerror(errno))};
  for (const DeviceHeader& header : device_headers())
    std::ofstream(dir.path() / header.name, std::ios::binary) << header.text;
  std::ofstream out(dir.path() / "kernel.cu", std::ios::binary);
  if (!(out << source.text).flush())
    return Reason{"cannot write the source to " + dir.path().string()};
  out.close();
  const fs::path cubin = dir.path() / "kernel.cubin";
  const std::vector<std::string> words = {nvcc.string(),  "-std=c++17",
                                          "-O3",          "-lineinfo",
                                          "-gencode",     gencode(architecture),
                                          "-Xptxas",      "-v",
                                          "-I",           dir.path().string(),
                                          "-cubin",       "-o",
                                          cubin.string(), (dir.path() / "kernel.cu").string()};
  if (auto why = run_program(words, dir.path() / "log")) return *why;
  return Binary{.cubin = text_of(cubin),
                .architecture = architecture,
                .builder = version,
                .kernels = figures_from_ptxas(text_of(dir.path() / "log"))};
}

Result<Binary> build_now(const Source& source, const BuildOptions& options) {
  const fs::path nvcc = options.builder == "nvrtc" ? fs::path() : find_nvcc();
  if (!nvcc.empty()) return build_with_nvcc(nvcc, source, options.architecture);
  if (options.builder == "nvcc")
    return Reason{"no nvcc on the PATH, in $CUDA_HOME/bin or in /usr/local/cuda/bin"};
  Result<Binary> built = build_with_nvrtc(source, options.architecture);
  if (built || !options.builder.empty()) return built;
  if (!nvrtc_version())
    return Reason{
        "nothing here builds CUDA: no nvcc on the PATH, in $CUDA_HOME/bin or in "
        "/usr/local/cuda/bin, and " +
        nvrtc_version().reason()};
  return built;
}

// ---- The cache: NAME.cubin, and NAME.txt with the builder's name and ptxas' figures
// -----------------

/// 128 bits of what decides the cubin: two FNV-1a hashes from different bases. They name files,
/// they guard nothing.
std::string fingerprint(const Source& source, const BuildOptions& options) {
  std::string hex;
  for (std::uint64_t hash : {0xcbf29ce484222325ull, 0x9ae16a3b2f90404full}) {
    const auto add = [&hash](std::string_view part) {
      for (char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
      hash = (hash ^ 0xff) * 0x100000001b3ull;  // where a part ends
    };
    add(source.text);
    for (const DeviceHeader& header : device_headers()) add(header.text);
    add(options.architecture);
    add(options.builder);
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    hex += text;
  }
  return hex;
}

std::string figures_text(const Binary& b) {
  std::string text = b.builder + "\n";
  for (const KernelFigures& k : b.kernels)
    text += k.symbol + " " + std::to_string(k.registers) + " " + std::to_string(k.stack_bytes) +
            " " + std::to_string(k.spill_store_bytes) + " " + std::to_string(k.spill_load_bytes) +
            " " + std::to_string(k.static_shared_bytes) + " " + std::to_string(k.constant_bytes) +
            " " + std::to_string(k.barriers) + "\n";
  return text;
}

std::optional<Binary> find_cached(const fs::path& stem, const std::string& architecture) {
  std::ifstream in(stem.string() + ".txt");
  Binary b{.cubin = text_of(stem.string() + ".cubin"),
           .architecture = architecture,
           .file = stem.string() + ".cubin"};
  if (!std::getline(in, b.builder) || b.cubin.empty()) return std::nullopt;
  for (KernelFigures k; in >> k.symbol >> k.registers >> k.stack_bytes >> k.spill_store_bytes >>
                        k.spill_load_bytes >> k.static_shared_bytes >> k.constant_bytes >>
                        k.barriers;)
    b.kernels.push_back(k);
  return b;
}

/// Whole or not there: written beside and renamed. A cache that cannot be written is no error.
void put(const fs::path& file, const std::string& text) {
  static std::atomic<unsigned> counter{0};
  const fs::path part =
      file.string() + ".part" + std::to_string(getpid()) + "." + std::to_string(counter++);
  std::ofstream out(part, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) fs::rename(part, file, error);
  if (!out || error) fs::remove(part, error);
}

}  // namespace

void check_architecture(std::string_view name) {
  std::string_view number = name;
  if (number.starts_with("sm_")) number.remove_prefix(3);
  if (number.ends_with('a') || number.ends_with('f')) number.remove_suffix(1);
  const bool digits = number.find_first_not_of("0123456789") == std::string_view::npos;
  if (!name.starts_with("sm_") || !digits || number.size() < 2 || number.size() > 3 ||
      number.front() == '0')
    throw InputError({.where = "--arch",
                      .value = name.empty() ? "an empty text" : std::string(name),
                      .problem = "is not an architecture",
                      .accepted = "sm_80, sm_90a, or another of NVIDIA's names"});
}

std::string architecture_of(int major, int minor) {
  return major == 9 && minor == 0 ? "sm_90a" : "sm_80";
}

fs::path find_nvcc() {
  if (const fs::path on_path = find_program("nvcc"); !on_path.empty()) return on_path;
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0')
    if (const fs::path file = find_program((fs::path(home) / "bin" / "nvcc").string());
        !file.empty())
      return file;
  return find_program("/usr/local/cuda/bin/nvcc");
}

Result<Binary> build(const Source& source, const BuildOptions& options) {
  check_architecture(options.architecture);
  fs::path stem;
  if (!options.cache.empty()) {
    stem = options.cache / fingerprint(source, options);
    if (auto found = find_cached(stem, options.architecture)) return std::move(*found);
  }
  const auto start = std::chrono::steady_clock::now();
  Result<Binary> built = build_now(source, options);
  if (!built) return built;
  built.value().seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!stem.empty()) {
    built.value().file = stem.string() + ".cubin";
    put(built->file, built->cubin);
    put(stem.string() + ".txt", figures_text(*built));
  }
  return built;
}

std::int64_t code_bytes(std::string_view cubin) {
  const auto read = [&](std::uint64_t at, auto& into) {
    if (at > cubin.size() || cubin.size() - at < sizeof into) return false;
    std::memcpy(&into, cubin.data() + at, sizeof into);
    return true;
  };
  Elf64_Ehdr head;
  Elf64_Shdr names;
  if (!read(0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 ||
      !read(head.e_shoff + std::uint64_t{head.e_shstrndx} * sizeof names, names))
    return 0;
  std::int64_t sum = 0;
  for (std::uint64_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!read(head.e_shoff + i * sizeof section, section)) return 0;
    const std::uint64_t name = names.sh_offset + section.sh_name;
    constexpr std::string_view kText = ".text.";
    if (name < cubin.size() && cubin.substr(name, kText.size()) == kText)
      sum += static_cast<std::int64_t>(std::min<std::uint64_t>(section.sh_size, cubin.size()));
  }
  return sum;
}

}  // namespace tilewright::cuda
