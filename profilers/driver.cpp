#include "profilers/driver.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>

#include "core/base/format.h"

namespace tilewright::profilers {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kPage = 4096;

/// C++ without its library, so that as little as possible runs beside the kernel.
constexpr const char* kDriver = R"(
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fail(const char* what) {
  fprintf(stderr, "error: %s\n", what);
  _exit(1);
}
static char* map(int64_t address, int64_t bytes, int file) {
  const int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | (file < 0 ? MAP_ANONYMOUS : 0);
  void* const at = mmap((void*)address, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (at != (void*)address) fail("the arena's addresses are taken");
  return (char*)at;
}

// OBJECT PREFIX TIMES IMAGE RESULT ARENA BYTES WORKSPACE TENSOR...; numbers in hexadecimal
int main(int argc, char** argv) {
  if (argc < 9) fail("too few arguments");
  void* const object = dlopen(argv[1], RTLD_NOW);
  if (object == 0) fail(dlerror());
  char name[256];
  snprintf(name, sizeof name, "%s_run", argv[2]);
  void (*const run)(void* const*, void*, int64_t*) =
      (void (*)(void* const*, void*, int64_t*))dlsym(object, name);
  snprintf(name, sizeof name, "%s_workspace", argv[2]);
  int64_t (*const workspace_bytes)(void) = (int64_t(*)(void))dlsym(object, name);
  if (run == 0 || workspace_bytes == 0) fail("the object has no such kernel");
  const int times = atoi(argv[3]);
  const int image = open(argv[4], O_RDONLY), result = open(argv[5], O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (image < 0 || result < 0) fail("the arena's files do not open");
  const int64_t arena = strtoll(argv[6], 0, 16), bytes = strtoll(argv[7], 0, 16);
  char* const memory = map(arena, bytes, image);
  volatile int64_t* const markers = (volatile int64_t*)map(arena - 4096, 4096, -1);
  char* const workspace = map(strtoll(argv[8], 0, 16), workspace_bytes(), -1);
  void** const tensors = (void**)calloc(argc, sizeof(void*));
  for (int i = 9; i < argc; ++i) tensors[i - 9] = (void*)strtoll(argv[i], 0, 16);
  markers[0] = 1;
  for (int i = 0; i < times; ++i) run(tensors, workspace, 0);
  markers[8] = 1;
  for (int64_t done = 0; done < bytes;) {
    const int64_t more = write(result, memory + done, bytes - done);
    if (more <= 0) fail("the arena cannot be written");
    done += more;
  }
  _exit(0);
}
)";

/// Compiled once a process, and there until its end.
Result<std::string> driver() {
  static std::mutex one_at_a_time;
  static const TemporaryDirectory directory;
  static std::optional<Result<std::string>> built;
  const std::lock_guard lock(one_at_a_time);
  if (built) return *built;
  const auto build = [&]() -> Result<std::string> {
    auto words = compiler_command("");
    if (!words) return Reason{words.reason()};
    const fs::path source = directory.path() / "driver.cpp", program = directory.path() / "driver";
    std::ofstream(source) << kDriver;
    // Bound at once: finding a symbol after the kernel has run would cost misses that a run without
    // the kernel has not.
    for (const char* w : {"-O1", "-std=c++17", "-w", "-Wl,-z,now", "-o"})
      words.value().emplace_back(w);
    for (const std::string& w : {program.string(), source.string(), std::string("-ldl")})
      words.value().push_back(w);
    if (auto why = run_program(*words, directory.path() / "log")) return *why;
    return program.string();
  };
  built = build();
  return *built;
}

}  // namespace

Markers markers_of(const BuiltKernel& kernel) {
  return {.begin = kernel.arena - kPage, .end = kernel.arena - kPage + 64};
}

Result<std::unique_ptr<KernelDriver>> KernelDriver::prepare(const BuiltKernel& kernel) {
  auto program = driver();
  if (!program) return Reason{"what runs the kernel cannot be built: " + program.reason()};
  std::unique_ptr<KernelDriver> runs(new KernelDriver(kernel));
  if (runs->directory().empty())
    return Reason{"no temporary directory: " + std::string(std::strerror(errno))};
  runs->driver_ = std::move(program).value();
  if (auto why = runs->write_image()) return *why;
  return runs;
}

std::optional<Reason> KernelDriver::write_image() const {
  std::ofstream out(directory() / "image", std::ios::binary);
  for (const PlacedTensor& t : kernel_.tensors) {
    if (t.address == 0) continue;
    out.seekp(t.address - kernel_.arena);
    out.write(static_cast<const char*>(t.before), t.bytes);
  }
  out.close();
  std::error_code error;
  fs::resize_file(directory() / "image", static_cast<std::uintmax_t>(kernel_.end - kernel_.arena),
                  error);
  if (!out || error) return Reason{"the tensors cannot be written to " + directory().string()};
  return std::nullopt;
}

std::optional<Reason> KernelDriver::check_result() const {
  const auto bytes = static_cast<std::size_t>(kernel_.end - kernel_.arena);
  std::vector<std::byte> arena(bytes);
  std::ifstream in(directory() / "result", std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(arena.data()), static_cast<std::streamsize>(bytes)))
    return Reason{"what the kernel computed cannot be read"};
  return kernel_.check(arena.data());
}

std::optional<Reason> KernelDriver::run(const std::vector<std::string>& under, std::int64_t times) {
  std::vector<std::string> words = under;
  words.insert(words.end(),
               {driver_, kernel_.object.string(), kernel_.prefix, std::to_string(times),
                (directory() / "image").string(), (directory() / "result").string()});
  for (const std::int64_t n : {kernel_.arena, kernel_.end - kernel_.arena, kernel_.workspace})
    words.push_back(formatted("{:x}", n));
  for (const PlacedTensor& t : kernel_.tensors) words.push_back(formatted("{:x}", t.address));
  command_ = join(words, " ");
  // Variables of this process that would change what is counted.
  const std::vector<std::string> environment = {"VALGRIND_OPTS=", "LD_PRELOAD="};
  if (auto why = run_program(words, directory() / "log", environment)) return why;
  return times > 0 ? check_result() : std::nullopt;
}

}  // namespace tilewright::profilers
