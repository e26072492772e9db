// Source to a loaded shared object.
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "codegen/common/host_memory.h"
#include "codegen/cpu/cpu.h"
#include "core/base/toolchain.h"

namespace tilewright::cpu {

class Library {
 public:
  Library(void* handle, bool keep) : handle_(handle), keep_(keep) {}
  ~Library() {
    if (!keep_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void* symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

 private:
  void* handle_;
  bool keep_;  ///< OpenMP's threads outlive a run and may still stand in the code
};

namespace {

namespace fs = std::filesystem;

std::vector<std::string> flags_of(std::span<const Source> sources, const BuildOptions& options) {
  std::vector<std::string> flags;
  for (const Source& s : sources)
    for (const std::string& f : s.flags)
      if (std::ranges::find(flags, f) == flags.end()) flags.push_back(f);
  if (!options.optimisation.empty())
    for (std::string& f : flags)
      if (f == "-O3") f = options.optimisation;
  return flags;
}

/// Sources one after the other; the fixed part of the first that has it serves the later ones too.
std::string joined(std::span<const Source> sources) {
  std::map<std::pair<Isa, std::string_view>, std::string> first;  // its namespace, by fixed part
  std::string text;
  for (const Source& s : sources) {
    const std::string_view whole = s.text;
    const bool has = s.fixed_begin < s.fixed_end && s.fixed_end <= whole.size();
    const std::string_view fixed =
        has ? whole.substr(s.fixed_begin, s.fixed_end - s.fixed_begin) : std::string_view();
    const auto [at, fresh] = first.emplace(std::pair(s.isa, fixed), s.prefix + "_code");
    if (fresh || !has) {
      text += whole;
      continue;
    }
    text += whole.substr(0, s.fixed_begin);
    text += "using namespace " + at->second + ";\n";
    text += whole.substr(s.fixed_end);
  }
  return text;
}

struct Loaded {
  std::shared_ptr<Library> library;
};

Result<Loaded> compile_and_load(std::span<const Source> sources, const BuildOptions& options) {
  auto command = compiler_command(options.compiler);
  if (!command) return Reason{command.reason()};
  const TemporaryDirectory dir(options.directory);
  if (dir.path().empty())
    return Reason{"no temporary directory for the build: " + std::string(std::strerror(errno))};
  {
    std::ofstream out(dir.path() / "kernel.cpp");
    out << joined(sources);
    if (!out.flush()) return Reason{"cannot write the source to " + dir.path().string()};
  }
  const fs::path object = dir.path() / "kernel.so";
  std::vector<std::string> words = *command;
  const std::vector<std::string> flags = flags_of(sources, options);
  words.insert(words.end(), flags.begin(), flags.end());
  if (under_address_sanitizer())
    for (const char* w :
         {"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1", "-O1"})
      words.emplace_back(w);
  words.emplace_back("-fPIC");
  std::vector<std::string> link = words;
  for (const char* w : {"-c", "-o", "kernel.o", "kernel.cpp"}) words.emplace_back(w);
  // As needed: code that uses nothing of the C++ runtime library does not load it.
  for (const char* w : {"-shared", "-Wl,--as-needed", "-o", "kernel.so", "kernel.o"})
    link.emplace_back(w);
  for (const std::vector<std::string>* step : {&words, &link})
    if (auto reason = run_program(*step, dir.path() / "log", {}, dir.path())) return *reason;
  if (!options.object.empty()) {
    std::error_code error;
    fs::copy_file(object, options.object, fs::copy_options::overwrite_existing, error);
    if (error) return Reason{"cannot keep the built kernel: " + error.message()};
  }
  void* handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Reason{"the built kernel does not load: " + std::string(dlerror())};
  const bool openmp = std::ranges::find(flags, "-fopenmp") != flags.end();
  return Loaded{std::make_shared<Library>(handle, openmp)};
}

std::shared_ptr<void> allocate(std::int64_t bytes) {
  constexpr std::size_t kPage = 4096;
  const auto size = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
  if (under_address_sanitizer())
    return codegen::host_memory(static_cast<std::size_t>(bytes), kPage);
  return {std::aligned_alloc(kPage, std::max(size, kPage)), [](void* p) { std::free(p); }};
}

}  // namespace

Result<std::vector<Kernel>> build_all(std::span<const Source> sources,
                                      const BuildOptions& options) {
  for (const Source& s : sources)
    if (!host_runs(s.isa))
      return Reason{"this machine does not run " + std::string(name_of(s.isa))};
  auto loaded = compile_and_load(sources, options);
  if (!loaded) return Reason{loaded.reason()};
  std::vector<Kernel> kernels;
  for (const Source& s : sources) {
    Kernel k;
    k.source_ = s;
    k.library_ = loaded->library;
    void* const workspace = k.library_->symbol(s.prefix + "_workspace");
    void* const run = k.library_->symbol(s.prefix + "_run");
    if (workspace == nullptr || run == nullptr)
      return Reason{"the built kernel has no " + s.prefix + "_run"};
    const std::int64_t bytes = reinterpret_cast<std::int64_t (*)()>(workspace)();
    k.workspace_ = allocate(bytes);
    if (k.workspace_ == nullptr)
      return Reason{"no room for the kernel's " + std::to_string(bytes) +
                    " bytes of working memory"};
    k.workspace_bytes_ = k.scratch_bytes_ = bytes / s.threads;
    k.run_ = reinterpret_cast<Kernel::RunFunction>(run);
    if (s.in_parts)
      k.part_ = reinterpret_cast<decltype(k.part_)>(k.library_->symbol(s.prefix + "_part"));
    if (s.kept_bytes > 0)
      k.prepare_ =
          reinterpret_cast<void (*)(void* const*)>(k.library_->symbol(s.prefix + "_prepare"));
    kernels.push_back(std::move(k));
  }
  return kernels;
}

Result<Kernel> build(const Source& source, const BuildOptions& options) {
  auto all = build_all(std::span(&source, 1), options);
  if (!all) return Reason{all.reason()};
  return std::move(all.value().front());
}

/// All that the emitted function takes.
std::vector<void*> Kernel::all(std::span<void* const> tensors, void* kept) const {
  for (std::size_t t = 0; t < source_.tensors.size(); ++t)
    if (source_.needed[t] && (t >= tensors.size() || tensors[t] == nullptr))
      throw InputError({.field = "tensors",
                        .value = source_.tensors[t],
                        .problem = "has no memory",
                        .accepted = "an array for every tensor used"});
  std::vector<void*> all(tensors.begin(), tensors.end());
  all.resize(source_.tensors.size(), nullptr);
  all.push_back(kept);
  return all;
}

void Kernel::run(std::span<void* const> tensors, void* kept) {
  std::vector<std::int64_t> counts(2 * source_.tensors.size() * source_.boundaries.size());
  run_(all(tensors, kept).data(), workspace_.get(), counts.data());
}

Kernel::Launch Kernel::launch(std::span<void* const> tensors, void* kept) const {
  return {
      .tensors = all(tensors, kept),
      .counts = std::vector<std::int64_t>(2 * source_.tensors.size() * source_.boundaries.size()),
      .workspace = workspace_,
      .workspace_bytes = workspace_bytes_,
      .whole = run_,
      .part = part_};
}

void Kernel::prepare(std::span<void* const> tensors, void* kept) {
  prepare_(all(tensors, kept).data());
}

Result<std::vector<TrafficEntry>> Kernel::run_counted(std::span<void* const> tensors) {
  if (source_.boundaries.empty()) return Reason{"the kernel was emitted without counting"};
  const std::size_t boundaries = source_.boundaries.size();
  std::vector<std::int64_t> counts(2 * source_.tensors.size() * boundaries);
  run_(all(tensors, nullptr).data(), workspace_.get(), counts.data());
  std::vector<TrafficEntry> entries;
  for (std::size_t b = 0; b < boundaries; ++b)
    for (std::size_t t = 0; t < source_.tensors.size(); ++t) {
      const std::size_t at = 2 * (t * boundaries + b);
      if (counts[at] == 0 && counts[at + 1] == 0) continue;
      entries.push_back({.tensor = source_.tensors[t],
                         .boundary = source_.boundaries[b],
                         .read = Bytes(counts[at]),
                         .written = Bytes(counts[at + 1])});
    }
  return entries;
}

}  // namespace tilewright::cpu
