#include "simulator/cuda_host/image.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "generated/cuda_host/device_api.h"
#include "generated/cuda_host/tilewright_half.h"
#include "generated/cuda_host/tilewright_host.h"

namespace tilewright::cuda_host {

namespace fs = std::filesystem;

std::vector<Header> host_headers() {
  return {{"tilewright_host.h", kTilewrightHost},
          {"tilewright_half.h", kTilewrightHalf},
          {"device_api.h", kDeviceApi}};
}

namespace {

void check_file_name(const std::string& name) {
  const bool good = !name.empty() && name.front() != '.' && name.front() != '-' &&
                    std::ranges::all_of(name, [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '_' || c == '-';
                    });
  if (!good)
    throw InputError({.field = "file name",
                      .value = name,
                      .problem = "is not accepted",
                      .accepted = "letters, digits, '.', '_' and '-'"});
}

void check_names(const Program& program) {
  check_file_name(program.file_name);
  for (const Header& h : program.headers) check_file_name(h.name);
  for (const std::string& k : program.kernels)
    if (!is_identifier(k))
      throw InputError({.field = "kernel",
                        .value = k,
                        .problem = "is not an identifier",
                        .accepted = "a C++ identifier of at most 64 characters"});
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  return static_cast<bool>(out.flush());
}

std::string entry_text(const Program& program) {
  std::string text = "#include \"tilewright_host.h\"\n#include \"" + program.file_name + "\"\n";
  for (const std::string& k : program.kernels) text += "TW_HOST_KERNEL(" + k + ")\n";
  return text;
}

// -O1: the loads and stores of the source, but for those repeated with nothing between. A frame
// above 128 KiB would not fit a fiber's stack. Tail calls would lose the return address.
constexpr const char* kFlags[] = {"-std=c++17",
                                  "-O1",
                                  "-g1",
                                  "-fPIC",
                                  "-fsanitize=thread",
                                  "-fno-strict-aliasing",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fno-optimize-sibling-calls",
                                  "-fno-exceptions",
                                  "-fno-stack-protector",
                                  "-fvisibility=hidden",
                                  "-Wframe-larger-than=131072",
                                  "-c",
                                  "-o"};

// Addresses are checked by the hooks; overflow, shifts and alignment are checked where the process
// is under a sanitizer.
constexpr const char* kChecked[] = {"-fsanitize=undefined", "-fno-sanitize-recover=undefined"};

struct Extent {
  std::uintptr_t base, end;
};

int find_extent(dl_phdr_info* info, std::size_t, void* data) {
  auto* extent = static_cast<Extent*>(data);
  if (info->dlpi_addr != extent->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      extent->end = std::max<std::uintptr_t>(
          extent->end, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  return 1;
}

}  // namespace

Image::~Image() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<std::shared_ptr<Image>> Image::build(const Program& program, const BuildOptions& options) {
  check_names(program);
  auto command = compiler_command(options.compiler);
  if (!command) return Reason{command.reason()};
  auto image = std::make_shared<Image>();
  const fs::path dir = image->directory_.path();
  if (dir.empty())
    return Reason{"no temporary directory for the build: " + std::string(std::strerror(errno))};
  std::vector<Header> files = host_headers();
  files.insert(files.end(), program.headers.begin(), program.headers.end());
  files.push_back({program.file_name, program.text});
  files.push_back({"tilewright_entry.cpp", entry_text(program)});
  for (const Header& h : files)
    if (!write_file(dir / h.name, h.text))
      return Reason{"cannot write " + h.name + " to " + dir.string()};
  std::vector<std::string> words = *command;
  if (under_address_sanitizer()) words.insert(words.end(), std::begin(kChecked), std::end(kChecked));
  words.insert(words.end(), std::begin(kFlags), std::end(kFlags));
  for (const char* w : {"kernel.o", "tilewright_entry.cpp"}) words.emplace_back(w);
  if (auto reason = run_program(words, dir / "log", {}, dir)) return *reason;
  // Linked without -fsanitize=thread: the hooks are in the object itself.
  words = *command;
  if (under_address_sanitizer()) words.insert(words.end(), std::begin(kChecked), std::end(kChecked));
  for (const char* w : {"-shared", "-Wl,-Bsymbolic", "-Wl,-z,now", "-Wl,-z,defs", "-o"})
    words.emplace_back(w);
  for (const char* w : {"kernel.so", "kernel.o", "-lm"}) words.emplace_back(w);
  if (auto reason = run_program(words, dir / "log", {}, dir)) return *reason;
  if (auto reason = image->load(program)) return *reason;
  return image;
}

std::optional<Reason> Image::load(const Program& program) {
  file_name_ = program.file_name;
  keep_lines(program.file_name, program.text);
  for (const Header& h : program.headers) keep_lines(h.name, h.text);
  handle_ = dlopen((directory_.path() / "kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr)
    return Reason{"the built kernel does not load: " + std::string(dlerror())};
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0)
    return Reason{"the built kernel's place in memory is not known: " + std::string(dlerror())};
  Extent extent{map->l_addr, 0};
  dl_iterate_phdr(find_extent, &extent);
  base_ = extent.base;
  extent_ = extent.end - extent.base;
  for (const std::string& k : program.kernels) {
    void* const parameters = dlsym(handle_, ("tw_host_parameters_" + k).c_str());
    void* const call = dlsym(handle_, ("tw_host_call_" + k).c_str());
    TW_CHECK(parameters != nullptr && call != nullptr, "an entry that was compiled");
    entries_[k] = {reinterpret_cast<int (*)()>(parameters)(),
                   reinterpret_cast<void (*)(void* const*)>(call)};
  }
  return std::nullopt;
}

const Entry* Image::entry(const std::string& kernel) const {
  const auto at = entries_.find(kernel);
  return at == entries_.end() ? nullptr : &at->second;
}

void Image::keep_lines(const std::string& name, const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string>& lines = texts_[name];
  for (std::string line; std::getline(in, line);) lines.push_back(line);
}

/// The innermost frame in a file of the program is the place; the first in the .cu file its caller.
void Image::add_frame(Place& place, const std::string& frame) const {
  const auto slash = frame.rfind('/');
  const auto start = slash == std::string::npos ? 0 : slash + 1;
  const auto colon = frame.find(':', start);
  if (colon == std::string::npos) return;
  const std::string file = frame.substr(start, colon - start);
  const auto text = texts_.find(file);
  const int line = std::atoi(frame.c_str() + colon + 1);
  if (text == texts_.end() || line <= 0 || line > static_cast<int>(text->second.size())) return;
  if (place.line == 0) {
    std::string words = text->second[static_cast<std::size_t>(line - 1)];
    words.erase(0, std::min(words.find_first_not_of(" \t"), words.size()));
    place = {file, line, 0, words};
  } else if (place.file != file_name_ && place.caller_line == 0 && file == file_name_) {
    place.caller_line = line;
  }
}

std::map<std::uint32_t, Place> Image::lines(const std::vector<std::uint32_t>& places) const {
  std::map<std::uint32_t, Place> found;
  if (places.empty() || !on_path("addr2line")) return found;
  static std::atomic<int> calls = 0;  // runs on several threads share the directory
  const fs::path log = directory_.path() / ("lines" + std::to_string(calls++));
  std::vector<std::string> words{"addr2line", "-a", "-i", "-e",
                                 (directory_.path() / "kernel.so").string()};
  for (const std::uint32_t p : places) {
    std::ostringstream hex;  // the call lies before its return address
    hex << "0x" << std::hex << p - 1;
    words.push_back(hex.str());
  }
  if (run_program(words, log)) return found;
  // For each address "0x..." and then its frames, innermost first.
  std::ifstream in(log);
  Place* place = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0x", 0) == 0)
      place = &found[static_cast<std::uint32_t>(std::stoull(line, nullptr, 16)) + 1];
    else if (place != nullptr)
      add_frame(*place, line);
  }
  return found;
}

}  // namespace tilewright::cuda_host
