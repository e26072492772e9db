// PyTorch: its products, attention and convolutions, in a Python process of its own that is driven
// over two pipes (pytorch_worker.py). It takes the time of each run itself, so that the pipes are
// in no figure.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "bench/pytorch_worker.h"
#include "bench/report.h"

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

struct Array {
  std::string name;
  const float* data = nullptr;
  std::vector<std::int64_t> shape;
  float* result = nullptr;  ///< the same, of an output
  std::int64_t count() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
};

std::vector<Entry> entries(const std::shared_ptr<Worker>& worker,
                           const std::shared_ptr<Folder>& folder, const std::vector<Array>& inputs,
                           const Json& steps, const std::vector<Array>& outputs, int threads) {
  Json asked = {{"inputs", Json::object()}, {"steps", steps}, {"outputs", Json::array()}};
  for (const Array& a : inputs) {
    write_floats(folder->file(a.name), a.data, a.count());
    asked["inputs"][a.name] = a.shape;
  }
  for (const Array& a : outputs) asked["outputs"].push_back(a.name);
  std::ofstream(folder->path() + "/problem.json") << asked;
  worker->ask("load " + folder->path() + " " + std::to_string(threads));
  const auto seconds = std::make_shared<double>(0);
  return {{.name = "PyTorch",
           .run = [worker, seconds] { *seconds = std::stod(worker->ask("run")); },
           .collect =
               [worker, folder, outputs] {
                 for (const Array& a : outputs)
                   write_floats(folder->file(a.name), a.data, a.count());
                 worker->ask("store");
                 for (const Array& a : outputs)
                   read_floats(folder->file(a.name), a.result, a.count());
               },
           .own_seconds = [seconds] { return *seconds; }}};
}

Array array_of(const Problem& p, const std::string& name) {
  const Workload& w = p.workload();
  return {name, p.data(name), w.tensor(*w.find_tensor(name)).shape, p.data(name)};
}

/// Every input and output, and these steps.
std::vector<Entry> entries(const std::shared_ptr<Worker>& worker,
                           const std::shared_ptr<Folder>& folder, const Problem& p,
                           const Json& steps, int threads) {
  const Workload& w = p.workload();
  std::vector<Array> inputs, outputs;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const TensorId id(t);
    if (!w.producer(id).valid()) inputs.push_back(array_of(p, w.tensor(id).name));
    if (w.is_output(id)) outputs.push_back(array_of(p, w.tensor(id).name));
  }
  return entries(worker, folder, inputs, steps, outputs, threads);
}

Json product_steps(const Problem& p) {
  Json steps = Json::array();
  for (const PlainProduct& x : plain_products(p.workload()))
    steps.push_back({"product", x.a, x.b, x.to, x.relu});
  return steps;
}

Json convolution_steps(const Problem& p) {
  const Workload& w = p.workload();
  const auto stride = [&](const char* op, const char* loop) -> std::int64_t {
    for (const Access& a : w.op(*w.find_op(op)).inputs)
      for (const Affine& index : a.index)
        for (const Term& t : index.terms)
          if (w.loop(t.loop).name == loop) return t.coefficient;
    return 1;
  };
  const std::size_t rows = w.find_loop("b") ? 2 : 1;
  return Json::array({{"convolution", "I", "W1", "M", stride("conv1", "y"),
                       w.find_op("relu").has_value(), p.shape("M", rows), p.shape("M", rows + 1)},
                      {"convolution", "M", "W2", "O", stride("conv2", "h"), false,
                       p.shape("O", rows), p.shape("O", rows + 1)}});
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
  peer.prepare = [worker, folder](const Chain& c, int threads) {
    const auto array = [&](const char* name, const float* data, std::int64_t rows,
                           std::int64_t columns, float* result = nullptr) {
      return Array{name, data, {c.batch(), rows, columns}, result};
    };
    return entries(
        worker, folder,
        {array("A", c.a(), c.m(), c.k()), array("B", c.b(), c.k(), c.l()),
         array("D", c.d(), c.l(), c.n())},
        Json::array({{"product", "A", "B", "C", false}, {"product", "C", "D", "E", false}}),
        {array("E", c.e(), c.m(), c.n(), c.e())}, threads);
  };
  peer.products = [worker, folder](const Problem& p, int threads) {
    return entries(worker, folder, p, product_steps(p), threads);
  };
  peer.softmax = [worker, folder](const Problem& p, int threads) {
    return entries(worker, folder, p, Json::array({{"attention", "Q", "K", "V", "E"}}), threads);
  };
  peer.convolutions = [worker, folder](const Problem& p, int threads) {
    return entries(worker, folder, p, convolution_steps(p), threads);
  };
  return peer;
}

}  // namespace tilewright::bench
