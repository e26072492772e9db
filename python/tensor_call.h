// A network called with PyTorch's tensors, without a line of Python for each of them: a call of few
// elements takes as long as what is around its kernels.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "python/network.h"

namespace tilewright::python {

class TensorCall {
 public:
  /// `given`: a tuple for each input of the network: its place in a call's arguments; the types
  /// with which its elements are taken as they lie; the order of its dimensions in memory, or None;
  /// of whole numbers (the type in which they are converted here, least, most), or None.
  /// `results`: the arguments of `empty` for each result, which are tensors of the network's types.
  /// `order`: of each output of the network, which result it is.
  /// `converted`: makes an input's tensor of that place another one, or None: PyTorch must see it.
  TensorCall(Network& network, pybind11::sequence given, pybind11::sequence results,
             std::vector<std::size_t> order, pybind11::object empty, pybind11::object converted);

  /// The results as a list; None where an input is none of the network's.
  pybind11::object operator()(const pybind11::sequence& args) const;

 private:
  struct Whole {
    pybind11::object dtype;
    std::int64_t least, most;
  };
  struct Given {
    pybind11::ssize_t place;
    std::vector<pybind11::object> dtypes;
    pybind11::object order;  ///< nothing: as they are
    std::optional<Whole> whole;
    std::int64_t elements;
  };
  Network& network_;
  std::vector<Given> given_;
  std::vector<pybind11::tuple> results_;
  std::vector<std::size_t> order_;
  pybind11::object empty_, converted_;
};

}  // namespace tilewright::python
