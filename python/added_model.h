// Models written in Python, as records beside the built-in ones.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace tilewright::python {

/// Adds a model. `record` is JSON: name, summary, source, assumptions. `optimise` (or None) and
/// `price` take one text, the JSON of a question, and return the JSON of an answer;
/// tilewright/model.py makes both from a Model and checks what it says. What they raise leaves the
/// verb that asked. They are called with the GIL held, from any thread, one at a time.
void add_model(const std::string& record, pybind11::object optimise, pybind11::object price);

}  // namespace tilewright::python
