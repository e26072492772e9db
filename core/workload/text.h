// Workloads as text: index notation, YAML, JSON, built-in names. Everything printed here parses
// back to the same value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// A workload file (design/interface.md). `where` names the file in errors, which give the line.
/// `tensors:` entries are loop names, integers or affine forms of loops (their extent: the largest
/// value plus one); a tensor not listed gets the shape that its writer covers or, for an input, the
/// smallest that holds every read. `dtypes:` maps tensors to types other than `dtype`. An operator
/// is index notation, or {name: index notation}. Loops and tensors keep the order of the file.
Workload workload_from_yaml(std::string_view text, std::string_view where);
std::string to_yaml(const Workload& w);
/// What an input's values are drawn from, as files have it: "0.5", or "0 to 1".
std::string range_text(const Tensor& t);
/// The same keys; `loops` and `tensors` are arrays of records, because their order is part of the
/// value. Read back, objects as in YAML do as well (and count as ordered by name).
nlohmann::ordered_json to_json(const Workload& w);
Workload workload_from_json(const nlohmann::json& j, std::string_view where);

/// One operator as index notation: "gemm1: C[m,l] += A[m,k] * B[k,l]". The whole of it:
///
///   operator  = [name ":"] statement {";" statement} ["running"]
///   statement = access combine value ["rescale" "(" value ")"]
///   combine   = "=" | "+=" | "*=" | "max=" | "min="
///   access    = tensor "[" [index {"," index}] "]"          x[] is a scalar
///   index     = ["-"] part {("+" | "-") part}               2*h + r - 1
///             | access                                      T[ids[b],d]: a gather (inputs only)
///   part      = integer | loop | integer "*" loop | loop "*" integer
///   value     = + - * / with the usual precedence, unary -, parentheses, numbers, inf, accesses,
///               calls of expr_functions(), and before(tensor), after(tensor)
///
/// The name defaults to the first target's. Several statements are several outputs of one operator.
/// In a running operator, "Z[m] += P[m,l] rescale(exp(d[m])) running" multiplies the partial result
/// by the factor before each block of the reduction, and "R[m] max= S[m,l]; d[m] = before(R) -
/// after(R) running" assigns from another output as it was and as it is around that block.
std::string to_text(const Workload& w, OpId op);

/// A record for every built-in workload: feeds the list, the help, the docs and the contract tests.
struct BuiltinWorkload {
  std::string name;  ///< "gemm-chain", or "chimera/G1"
  std::string summary;
  std::string source;
  std::string defaults;  ///< "m=512,n=64,..." in the form that named_workload takes
};
const std::vector<BuiltinWorkload>& builtin_workloads();

/// "gemm-chain:m=512,n=64,k=64,l=512,batch=8,dtype=f32", "chimera/G7:dtype=f16,batch=1", or the
/// path of a .yaml file or an .onnx file, "model.onnx:batch=1,seq=128" with symbolic dimensions.
/// Throws InputError naming the parameter, or the nearest known name.
Workload named_workload(std::string_view name);

}  // namespace tilewright
