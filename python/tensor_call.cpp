#include "python/tensor_call.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace tilewright::python {
namespace {

namespace py = pybind11;

/// Of more whole numbers PyTorch, which has more threads and vectors, is faster.
constexpr std::int64_t kMostNarrowed = 1 << 16;

/// Names that are asked for in every call.
struct Names {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* is_contiguous = PyUnicode_InternFromString("is_contiguous");
  PyObject* permute = PyUnicode_InternFromString("permute");
};
const Names& names() {
  static const Names all;
  return all;
}

py::object taken(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

std::uintptr_t address_of(const py::object& tensor) {
  const auto value = taken(PyObject_CallMethodNoArgs(tensor.ptr(), names().data_ptr));
  const std::uintptr_t address = PyLong_AsSize_t(value.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return address;
}

bool is_contiguous(const py::object& tensor) {
  return taken(PyObject_CallMethodNoArgs(tensor.ptr(), names().is_contiguous)).ptr() == Py_True;
}

/// In 32 bits; null where one is not between `least` and `most`. Nothing but sums and `or`, by
/// which all processors have vectors: an index takes as long as the row that it looks up.
std::unique_ptr<std::int32_t[]> narrowed(const std::int64_t* from, std::int64_t count,
                                         std::int64_t least, std::int64_t most) {
  auto made = std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(count));
  std::int32_t* to = made.get();
  // Either difference has the sign's bit where a number lies outside, also where it wraps around.
  const auto low = static_cast<std::uint64_t>(least), high = static_cast<std::uint64_t>(most);
  std::uint64_t outside = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<std::uint64_t>(from[i]);
    outside |= (x - low) | (high - x);
    to[i] = static_cast<std::int32_t>(x);
  }
  if (outside >> 63 != 0) return nullptr;
  return made;
}

}  // namespace

TensorCall::TensorCall(Network& network, py::sequence given, py::sequence results,
                       std::vector<std::size_t> order, py::object empty, py::object converted)
    : network_(network),
      order_(std::move(order)),
      empty_(std::move(empty)),
      converted_(std::move(converted)) {
  if (given.size() != network.inputs().size() || order_.size() != network.outputs().size())
    throw std::invalid_argument("as many inputs and results as the network has");
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto one = given[i].cast<py::tuple>();
    const auto& shape = network.inputs()[i].shape;
    Given& to = given_.emplace_back();
    to.place = one[0].cast<py::ssize_t>();
    to.dtypes = one[1].cast<std::vector<py::object>>();
    if (!one[2].is_none()) to.order = one[2];
    if (!one[3].is_none()) {
      const auto whole = one[3].cast<py::tuple>();
      to.whole = Whole{whole[0], whole[1].cast<std::int64_t>(), whole[2].cast<std::int64_t>()};
    }
    to.elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  for (const auto& result : results) results_.push_back(result.cast<py::tuple>());
  for (const std::size_t o : order_)
    if (o >= results_.size()) throw std::invalid_argument("an output that is no result");
}

py::object TensorCall::operator()(const py::sequence& args) const {
  std::vector<std::uintptr_t> inputs, outputs;
  std::vector<py::object> kept;  // what is made for the call
  inputs.reserve(given_.size());
  kept.reserve(given_.size());
  std::vector<std::unique_ptr<std::int32_t[]>> numbers;
  for (const Given& g : given_) {
    auto x = taken(PySequence_GetItem(args.ptr(), g.place));
    if (g.order) x = taken(PyObject_CallMethodOneArg(x.ptr(), names().permute, g.order.ptr()));
    const auto dtype = taken(PyObject_GetAttr(x.ptr(), names().dtype));
    if (is_contiguous(x)) {
      if (g.whole && g.elements <= kMostNarrowed && dtype.is(g.whole->dtype)) {
        auto found = narrowed(reinterpret_cast<const std::int64_t*>(address_of(x)),  // NOLINT
                              g.elements, g.whole->least, g.whole->most);
        if (found) {
          inputs.push_back(reinterpret_cast<std::uintptr_t>(found.get()));  // NOLINT
          numbers.push_back(std::move(found));
          continue;
        }
      } else if (!g.whole &&
                 std::ranges::any_of(g.dtypes, [&](const py::object& d) { return dtype.is(d); })) {
        inputs.push_back(address_of(x));
        kept.push_back(std::move(x));
        continue;
      }
    }
    x = converted_(x, inputs.size());
    if (x.is_none()) return x;
    inputs.push_back(address_of(x));
    kept.push_back(std::move(x));
  }
  py::list made;
  std::vector<std::uintptr_t> addresses;
  for (const py::tuple& result : results_) {
    auto x = taken(PyObject_CallObject(empty_.ptr(), result.ptr()));
    addresses.push_back(address_of(x));
    made.append(std::move(x));
  }
  for (const std::size_t o : order_) outputs.push_back(addresses[o]);
  {
    const py::gil_scoped_release release;
    network_.run(inputs, outputs);
  }
  return made;
}

}  // namespace tilewright::python
