#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <iterator>
#include <sstream>

namespace tilewright::cuda {
namespace {

using Program = void*;

// NVRTC's C interface, as its documentation has it; results are int, 0 is success.
#define TW_NVRTC_FUNCTIONS(F)                                                          \
  F(nvrtcVersion, int, (int*, int*))                                                   \
  F(nvrtcGetErrorString, const char*, (int))                                           \
  F(nvrtcCreateProgram, int,                                                           \
    (Program*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(nvrtcCompileProgram, int, (Program, int, const char* const*))                      \
  F(nvrtcDestroyProgram, int, (Program*))                                              \
  F(nvrtcGetProgramLogSize, int, (Program, std::size_t*))                              \
  F(nvrtcGetProgramLog, int, (Program, char*))                                         \
  F(nvrtcGetCUBINSize, int, (Program, std::size_t*))                                   \
  F(nvrtcGetCUBIN, int, (Program, char*))

struct Functions {
#define TW_MEMBER(NAME, RESULT, PARAMETERS) RESULT(*NAME) PARAMETERS = nullptr;
  TW_NVRTC_FUNCTIONS(TW_MEMBER)
#undef TW_MEMBER
  int major = 0, minor = 0;
};

void* open_nvrtc() {
  const char* home = std::getenv("CUDA_HOME");
  std::vector<std::string> folders = {""};
  if (home != nullptr && *home != '\0') folders.push_back(std::string(home) + "/lib64/");
  folders.emplace_back("/usr/local/cuda/lib64/");
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"})
    for (const std::string& folder : folders)
      if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Result<Functions> load_nvrtc() {
  void* const library = open_nvrtc();
  if (library == nullptr)
    return Reason{"no NVRTC here (libnvrtc.so.13, .12 and .11.2 are not found)"};
  Functions t;
#define TW_LOAD(NAME, RESULT, PARAMETERS)                                 \
  t.NAME = reinterpret_cast<RESULT(*) PARAMETERS>(dlsym(library, #NAME)); \
  if (t.NAME == nullptr) return Reason{"the NVRTC here is too old: it has no " #NAME};
  TW_NVRTC_FUNCTIONS(TW_LOAD)
#undef TW_LOAD
  if (t.nvrtcVersion(&t.major, &t.minor) != 0)
    return Reason{"the NVRTC here does not say its version"};
  return t;
}

const Result<Functions>& nvrtc() {
  static const Result<Functions> table = load_nvrtc();
  return table;
}

std::string log_of(const Functions& t, Program program) {
  std::size_t size = 0;
  if (t.nvrtcGetProgramLogSize(program, &size) != 0 || size == 0) return "";
  std::string log(size, '\0');
  if (t.nvrtcGetProgramLog(program, log.data()) != 0) return "";
  log.resize(size - 1);  // the terminating zero
  return log;
}

std::string first_error(const std::string& log) {
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);)
    if (line.find("error") != std::string::npos) return line;
  return log.substr(0, log.find('\n'));
}

}  // namespace

Result<std::string> nvrtc_version() {
  if (!nvrtc()) return Reason{nvrtc().reason()};
  return "NVRTC " + std::to_string(nvrtc()->major) + "." + std::to_string(nvrtc()->minor);
}

Result<Binary> build_with_nvrtc(const Source& source, const std::string& architecture) {
  const Result<std::string> version = nvrtc_version();
  if (!version) return Reason{version.reason()};
  const Functions& t = *nvrtc();
  std::vector<const char*> headers, names;  // the views end in zeros: they are literals
  for (const DeviceHeader& h : device_headers()) {
    headers.push_back(h.text.data());
    names.push_back(h.name.data());
  }
  Program program = nullptr;
  if (t.nvrtcCreateProgram(&program, source.text.c_str(), source.file_name.c_str(),
                           static_cast<int>(headers.size()), headers.data(), names.data()) != 0)
    return Reason{*version + " does not take the source"};
  const std::string target = "--gpu-architecture=" + architecture;
  const char* const flags[] = {target.c_str(), "--std=c++17", "-lineinfo", "--ptxas-options=-v"};
  const int code = t.nvrtcCompileProgram(program, static_cast<int>(std::size(flags)), flags);
  const std::string log = log_of(t, program);
  Binary binary{
      .architecture = architecture, .builder = *version, .kernels = figures_from_ptxas(log)};
  std::size_t size = 0;
  if (code == 0 && t.nvrtcGetCUBINSize(program, &size) == 0 && size > 0) {
    binary.cubin.resize(size);
    if (t.nvrtcGetCUBIN(program, binary.cubin.data()) != 0) binary.cubin.clear();
  }
  t.nvrtcDestroyProgram(&program);
  if (code != 0)
    return Reason{*version + ": " + (log.empty() ? t.nvrtcGetErrorString(code) : first_error(log))};
  if (binary.cubin.empty()) return Reason{*version + " gives no cubin for " + architecture};
  return binary;
}

}  // namespace tilewright::cuda
