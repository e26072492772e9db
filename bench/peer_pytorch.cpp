// PyTorch: torch.bmm twice, in a Python process of its own that is driven over two pipes
// (pytorch_worker.py). It takes the time of each run itself, so that the pipes are in no figure.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "bench/pytorch_worker.h"

namespace tilewright::bench {
namespace {

/// A folder for the tensors that go over and back, removed with the object.
class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "tilewright-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / (name + ".f32")).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// The running worker. It ends when its input does.
class Worker {
 public:
  explicit Worker(const std::string& python) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe to Python");
    child_ = fork();
    if (child_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      const char* const arguments[] = {python.c_str(), "-c", kPytorchWorker, nullptr};
      execvp(python.c_str(), const_cast<char* const*>(arguments));
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = fdopen(out[0], "r");
    if (child_ < 0 || from_ == nullptr) throw std::runtime_error("Python does not start");
    signal(SIGPIPE, SIG_IGN);  // a worker that died shows in the answer that does not come
  }
  ~Worker() {
    close(to_);
    if (from_ != nullptr) fclose(from_);
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  std::string ask(const std::string& line) {
    const std::string text = line + "\n";
    if (write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("PyTorch's process has ended");
    std::string answer;
    for (int c = 0; (c = fgetc(from_)) != EOF && c != '\n';) answer += static_cast<char>(c);
    if (answer.empty()) throw std::runtime_error("PyTorch's process has ended");
    return answer;
  }

 private:
  pid_t child_ = -1;
  int to_ = -1;
  FILE* from_ = nullptr;
};

/// The first interpreter that imports torch; "" where none does.
std::string python_with_torch() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const pid_t child = fork();
    if (child == 0) {
      const int null = open("/dev/null", O_RDWR);
      for (int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, standard);
      execlp(python, python, "-c", "import torch", nullptr);
      _exit(127);
    }
    int status = 1;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
        WEXITSTATUS(status) == 0)
      return python;
  }
  return "";
}

void write_floats(const std::string& path, const float* values, std::int64_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values),
             count * static_cast<std::int64_t>(sizeof(float)));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void read_floats(const std::string& path, float* values, std::int64_t count) {
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(values), count * static_cast<std::int64_t>(sizeof(float))))
    throw std::runtime_error("cannot read " + path);
}

std::vector<Entry> entries(const std::shared_ptr<Worker>& worker,
                           const std::shared_ptr<Folder>& folder, const Chain& c, int threads) {
  write_floats(folder->file("a"), c.a(), c.batch() * c.m() * c.k());
  write_floats(folder->file("b"), c.b(), c.batch() * c.k() * c.l());
  write_floats(folder->file("d"), c.d(), c.batch() * c.l() * c.n());
  std::string load = "load " + folder->path();
  for (std::int64_t x : {c.batch(), c.m(), c.n(), c.k(), c.l(), std::int64_t{threads}})
    load += " " + std::to_string(x);
  worker->ask(load);
  const auto seconds = std::make_shared<double>(0);
  return {{.name = "PyTorch",
           .run = [worker, seconds] { *seconds = std::stod(worker->ask("run")); },
           .collect =
               [worker, folder, &c] {
                 write_floats(folder->file("e"), c.e(), c.batch() * c.m() * c.n());
                 worker->ask("store");
                 read_floats(folder->file("e"), c.e(), c.batch() * c.m() * c.n());
               },
           .own_seconds = [seconds] { return *seconds; }}};
}

}  // namespace

Peer pytorch() {
  Peer peer{.name = "PyTorch", .description = "", .missing = "", .prepare = {}};
  const std::string python = python_with_torch();
  if (python.empty()) {
    peer.missing = "neither python3 nor /usr/bin/python3 imports torch";
    return peer;
  }
  const auto worker = std::make_shared<Worker>(python);
  const auto folder = std::make_shared<Folder>();
  peer.description = worker->ask("about");
  peer.prepare = [worker, folder](const Chain& chain, int threads) {
    return entries(worker, folder, chain, threads);
  };
  return peer;
}

}  // namespace tilewright::bench
