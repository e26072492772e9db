// CUDA text of a ThreadProgram (core/lowering/gpu/thread_program.h), a step at a time. It decides
// nothing: what is loaded when, by whom and where it lies is the program's. It names what is
// computed twice.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/thread_program.h"

namespace tilewright::cuda {

class ProgramPrinter {
 public:
  /// The program is the printer's own: it adds names to it. `from_last`: the launch's first block
  /// is the program's last (core/lowering/gpu/block_order.h). `launched`: which tensors the launch
  /// before may still be writing when this one begins.
  ProgramPrinter(ThreadProgram program, bool from_last, std::function<bool(TensorId)> launched);
  /// The body of the kernel's function.
  std::string body();
  std::vector<TileUse> tiles(const Machine& machine) const;

 private:
  // print_program.cpp
  void define_units();
  void print(const std::vector<Step>& steps);
  void print(const Step& step);
  using Steps = std::vector<Step>::const_iterator;
  Steps at_once(Steps first, Steps end);
  void loop(const Step& step);
  void blocks(const Step& step);
  void parts(const Step& step);
  void declare(const Value& v);
  void open_loop(int id, std::int64_t step = 1, const std::string& how = "");
  void close_loop();
  /// One loop for each of the indices; closes so many.
  void open_loops(const std::vector<int>& ids);
  void close_loops(std::size_t count);
  std::string named(const std::string& type, const std::string& base, const std::string& text);
  std::string condition(const std::vector<Linear>& inside);
  std::string offset_text(TensorId t, const Linear& flat);
  std::string array(const Value& v, const std::map<int, int>& of_use = {}, int without = -1) const;
  std::string shared(const Value& v, const Linear& at) const;
  std::string owner(const Copies& c) const;
  std::string real() const { return p_.f64 ? "double" : "float"; }
  std::string home(TensorId t) const { return home_of(workload_, t); }
  /// The same where it is read.
  std::string source(TensorId t) const {
    return launched_(t) ? "launched(" + home(t) + ")" : home(t);
  }
  std::string literal_text(double value) const { return number_text(value, real()); }
  const ProgramIndex& index(int id) const { return p_.index(id); }
  const Value& only(const Step& s) const { return p_.value(s.values.front()); }
  static std::string both(const std::string& a, const std::string& b) {
    return a.empty() || b.empty() ? a + b : a + " && " + b;
  }

  // print_moves.cpp
  void move(const Step& step);
  void spread(const Step& step);
  std::string among_threads(const Step& step) const;
  void bring(const Step& step, const std::string& turn, std::string in,
             const std::string& of_register, bool puts);
  void zeros_beside(const Step& step);
  void bring_rows(const Step& step, const std::string& turn, const std::string& in,
                    const std::string& of_register, bool puts);
  void stage(const Step& step);
  void fetch(const Step& step);
  void hold(const Step& step);
  void lanes(const Step& step);
  void exchange(const Step& step);
  void add_up_parts(const Step::Joined& joined, const std::string& parts);
  void keep(const Step& step);
  std::string place_among(const std::vector<int>& dims) const;
  std::string joining_warp(const std::vector<int>& dims, const Strip& strip) const;
  std::string part(const Step::Joined& joined, const std::string& parts,
                   const std::string& warp) const;

  // print_compute.cpp
  void compute(const Step& step);
  std::string read(const Read& r);
  std::string place_of(const Read& r);
  struct Gathered {
    std::string there, place, lane;
  };
  Gathered gathered_at(const Gather& g);
  void load_run(Run& run, bool ahead);
  void write(const Write& w, const std::function<std::string(LoopId)>& of_index);

  ThreadProgram p_;
  const Workload& workload_;
  Lines out_{1};
  std::vector<std::map<std::string, std::string>> defined_;
  std::string rest_ = "block";
  bool from_last_ = false;
  std::function<bool(TensorId)> launched_;
};

}  // namespace tilewright::cuda
