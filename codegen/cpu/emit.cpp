// emit: a schedule as one C++ file.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/common/program_head.h"
#include "codegen/cpu/emitter.h"
#include "core/lowering/byte_products.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::cpu {
namespace {

/// Every boundary that a copy between home and a level, or between two levels, can cross.
std::vector<std::string> boundaries_of(const Schedule& s) {
  std::vector<std::string> names;
  const auto add = [&](LevelId outer, LevelId inner) {
    for (const auto& [from, to] : s.machine->path(outer, inner)) {
      const std::string name = s.machine->boundary(from, to);
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  };
  for (const ScheduledKernel& k : s.kernels) {
    for (const Buffer& b : k.buffers) add(b.outer_level, b.level);
    for (OpId op : k.ops)
      if (s.workload->gathers(op)) add(s.machine->home(), k.level);
  }
  return names;
}

constexpr std::int64_t kMostExact = std::int64_t{1} << 24;  // integers that f32 holds, all of them

/// Indices lie in tiles of floats like everything else.
std::optional<Reason> indices_refused(const Workload& w) {
  for (OpId id : w.topological_order())
    for (const Access& a : w.op(id).inputs)
      for (std::size_t d = 0; d < a.index.size(); ++d)
        if (a.index[d].gathered >= 0 && w.tensor(a.tensor).shape[d] > kMostExact)
          return Reason{"operator " + w.op(id).name + " indexes " +
                        std::to_string(w.tensor(a.tensor).shape[d]) + " elements of " +
                        w.tensor(a.tensor).name +
                        " by values: the cpu target's tiles of f32 hold indices below 2^24 only"};
  return std::nullopt;
}

/// What a program computes in, and of which types what it writes is where it lies: `home` where
/// there is one.
struct Types {
  DType real = DType::f32, home = DType::f32;
  std::set<DType> written = {};
  bool pairs = false;  ///< all are bf16
};

Result<Types> types_of(const Schedule& s) {
  const Workload& w = *s.workload;
  const auto any = [&w](auto is) {
    return std::ranges::any_of(w.tensors(), [&](const Tensor& t) { return is(t.dtype); });
  };
  Types types;
  if (any([](DType t) { return t == DType::f64; }))
    types.real = DType::f64;
  else if (auto refused = indices_refused(w))
    return *refused;
  types.home = types.real;
  types.pairs = !any([](DType t) { return t != DType::bf16 && !is_integer(t); });
  for (const ScheduledKernel& k : s.kernels)
    for (const Buffer& b : k.buffers)
      if (b.role == BufferRole::output || (b.role == BufferRole::intermediate && b.leaves))
        types.written.insert(w.tensor(b.tensor).dtype);
  types.home = types.written.size() == 1 ? *types.written.begin() : types.real;
  types.written.insert(types.home);
  return types;
}

struct Between {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
};
Between between(DType type) { return type == DType::i8 ? Between{-128, 127} : Between{}; }

/// What an expression's values are between, as far as its last functions say.
Between between(const Workload& w, const Operator& op, const Expr& e) {
  if (e.kind == Expr::Kind::constant) return {e.constant, e.constant};
  if (e.kind == Expr::Kind::input)
    return between(w.tensor(op.inputs[static_cast<std::size_t>(e.input)].tensor).dtype);
  if (e.kind != Expr::Kind::call) return {};
  const auto of = [&](std::size_t i) { return between(w, op, e.args[i]); };
  if (e.function == "max" || e.function == "min") {
    const Between a = of(0), b = of(1);
    const auto either = e.function == "max" ? [](double x, double y) { return std::max(x, y); }
                                            : [](double x, double y) { return std::min(x, y); };
    return {either(a.least, b.least), either(a.most, b.most)};
  }
  if (e.function == "add") return {of(0).least + of(1).least, of(0).most + of(1).most};
  if (e.function == "sub") return {of(0).least - of(1).most, of(0).most - of(1).least};
  if (e.function == "neg") return {-of(0).most, -of(0).least};
  if (e.function == "round" || e.function == "floor") {
    const Between a = of(0);
    return {std::floor(a.least), std::ceil(a.most)};
  }
  if (e.function == "lt") return {0, 1};
  if (e.function != "select") return {};
  const Between a = of(1), b = of(2);
  return {std::min(a.least, b.least), std::max(a.most, b.most)};
}

/// The nearest number of the type. On chip values lie in reals, whose readers see no conversion.
Expr nearest(const Workload& w, const Operator& op, DType type, Expr value) {
  const auto call = [](const char* function, std::vector<Expr> args) {
    return Expr{.kind = Expr::Kind::call, .function = function, .args = std::move(args)};
  };
  const auto constant = [](double x) { return Expr{.kind = Expr::Kind::constant, .constant = x}; };
  const Between may = between(w, op, value), holds = between(type);
  if (!is_whole(w.spec(), op, value)) {
    std::vector<Expr> args;
    args.push_back(std::move(value));
    value = call("round", std::move(args));
  }
  if (type == DType::i32) return value;  // exact up to 2^24, as all of them
  const auto limit = [&](const char* function, double x) {
    std::vector<Expr> args;
    args.push_back(constant(x));
    args.push_back(std::move(value));
    value = call(function, std::move(args));
  };
  if (may.most > holds.most) limit("min", holds.most);
  if (may.least < holds.least) limit("max", holds.least);
  return value;
}

/// Whether what the kernel makes of an operator's sums is read or written before they are complete.
bool seen_in_parts(const Workload& w, const ScheduledKernel& k, OpId op, TensorId made) {
  if (std::ranges::find(k.ops, op) == k.ops.end()) return false;
  for (OpId reader : w.consumers(made))
    if (std::ranges::find(k.ops, reader) != k.ops.end()) return true;
  const auto compute = std::ranges::find_if(
      k.nodes, [&](const ScheduleNode& n) { return n.kind == NodeKind::compute && n.op == op; });
  bool turns = false;  // a loop further in goes on to other tiles
  for (NodeId at = compute->parent; at.valid(); at = k.node(at).parent) {
    const ScheduleNode& n = k.node(at);
    if (n.kind != NodeKind::loop || n.max_trips <= 1) continue;
    for (const OpLoop& c : n.cuts) {
      if (c.op != op) continue;
      if (!w.is_reduction(op, w.op(op).loops[static_cast<std::size_t>(c.local)]))
        turns = true;
      else if (turns || unit_of(n.binding))
        return true;
    }
  }
  return false;
}

/// The schedule with operators that make whole numbers where a tensor has these alone; nothing
/// where it has such operators already. A Reason where a kernel reads what is rounded once it is
/// whole.
Result<std::optional<Schedule>> with_whole_numbers(const Schedule& s) {
  const Workload& w = *s.workload;
  WorkloadSpec spec = w.spec();
  bool changed = false;
  for (std::size_t i = 0; i < spec.operators.size(); ++i) {
    Operator& op = spec.operators[i];
    for (Output& o : op.outputs) {
      const Tensor& t = w.tensor(o.target.tensor);
      if (!is_integer(t.dtype) || names_outputs(o.value)) continue;
      if (o.combine == Combine::sum || o.combine == Combine::product) {
        if (!o.rescale && is_whole(w.spec(), op, o.value)) continue;
        for (const ScheduledKernel& k : s.kernels)
          if (seen_in_parts(w, k, OpId(i), o.target.tensor))
            return Reason{k.name + ": tensor " + t.name + " is of type " +
                          std::string(name_of(t.dtype)) +
                          " and combines values that are not whole numbers: it is rounded once it "
                          "is complete, and is read or written in parts before"};
        continue;
      }
      Expr value = nearest(w, op, t.dtype, o.value);
      if (value == o.value) continue;
      o.value = std::move(value);
      changed = true;
    }
  }
  if (!changed) return std::optional<Schedule>();
  Schedule whole = s;
  whole.workload = std::make_shared<const Workload>(Workload::create(std::move(spec)));
  return std::optional<Schedule>(std::move(whole));
}

void check(const EmitOptions& o) {
  check_prefix(o.prefix);
  if (o.threads < 1 || o.threads > 4096)
    throw InputError({.field = "threads",
                      .value = std::to_string(o.threads),
                      .problem = "is not a number of threads",
                      .accepted = "1..4096"});
}

std::string head(const Program& p, const Source& source) {
  std::string text = program_head(p.schedule, source.build_command_text);
  text +=
      "// A packed tile is copied at its load into an array of its own, and written tiles are "
      "copied"
      " back;\n// the lines of others come into the cache as they are used.\n";
  for (const TileUse& t : source.tiles)
    text += "//   " +
            one_line(t.tensor + " at " + t.level + ": " + (t.packed ? "packed: " : "in place: ") +
                     t.reason) +
            "\n";
  if (!source.micro_kernel.empty())
    text += "// Matrix products run on micro-kernels " + source.micro_kernel + " for " +
            std::string(name_of(p.options.isa)) + ".\n";
  for (const std::string& note : source.notes) text += "// Note: " + one_line(note) + ".\n";
  return text;
}

std::string entry(const Source& source, const std::vector<KernelText>& kernels,
                  std::int64_t workspace) {
  std::string text = "}  // namespace " + source.prefix + "_code\n\nextern \"C\" {\n";
  text += "// Bytes of working memory that run needs, from a multiple of 4096.\n";
  text += "std::int64_t " + source.prefix + "_workspace(void) { return " +
          std::to_string(workspace) + "; }\n\n// Tensors, by position:";
  for (std::size_t i = 0; i < source.tensors.size(); ++i)
    text += (i == 0 ? " " : ", ") + source.tensors[i] +
            (source.needed[i] ? "" : " (stays on chip: may be null)");
  text += ".\nvoid " + source.prefix +
          "_run(void* const* tensors, void* workspace, std::int64_t* counts) {\n";
  const std::string code = source.prefix + "_code::";
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const std::string kernel = code + "kernel_" + std::to_string(k) + "(tensors, ";
    if (!kernels[k].shared) {
      text += "  " + kernel + "static_cast<char*>(workspace), counts);\n";
      continue;
    }
    text += "#pragma omp parallel for schedule(static, 1) num_threads(" + code + "kThreads)\n";
    text += "  for (int part = 0; part < " + code + "kThreads; ++part)\n    " + kernel +
            "static_cast<char*>(workspace) + part * " + code + "kWorkspace, counts, part, " + code +
            "kThreads);\n";
  }
  text += "}\n";
  if (source.in_parts)
    text +=
        "// One of so many parts of a run, which threads may share; `workspace` is the "
        "thread's own, " +
        std::to_string(workspace / source.threads) + " bytes.\nvoid " + source.prefix +
        "_part(void* const* tensors, void* workspace, std::int64_t part, std::int64_t parts) "
        "{\n  " +
        code + "kernel_0(tensors, static_cast<char*>(workspace), nullptr, part, parts);\n}\n";
  if (source.kept_bytes > 0)
    text += "// Packs what is the same in every run: tensors[" +
            std::to_string(source.tensors.size()) + "] has room for " +
            std::to_string(source.kept_bytes) + " bytes.\nvoid " + source.prefix +
            "_prepare(void* const* tensors) { " + source.prefix + "_code::prepare(tensors); }\n";
  return text + "}\n";
}

constexpr const char* kThread = R"(
inline int64_t thread() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}
)";

constexpr const char* kShare = R"(
// Of a loop's iterations, those of one part of `parts`: as even as can be. The last parts have those
// that are left over, since the last iteration may be a shorter one.
struct Share {
  int64_t lo, hi;
};
inline Share share_of(int64_t low, int64_t high, int64_t step, int64_t part, int64_t parts) {
  const int64_t trips = high > low ? (high - low + step - 1) / step : 0;
  const int64_t each = trips / parts, more = trips % parts;
  const int64_t extra = part - (parts - more);  // parts before this one that have one more
  const int64_t first = part * each + (extra > 0 ? extra : 0);
  return {low + first * step, low + (first + each + (extra >= 0 ? 1 : 0)) * step};
}
)";

constexpr const char* kZero = R"(
// A tensor that blocks add to starts from what adds nothing.
template <int R, class Element>
void zero(Tile<R, Element>& t, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) put(t.home[i], t.identity);
  t.steps.written(elements * static_cast<int64_t>(sizeof(Element)));
}
)";

/// Whether it has instructions that sum products of i8 in whole numbers.
bool sums_bytes(Isa isa) {
  return isa == Isa::avx2 || isa == Isa::avx512_vnni || isa == Isa::amx_int8;
}

/// By TensorId. A counting build packs as the plan says, in every run. Throws InputError for a name
/// that is no input.
std::vector<bool> constant_of(const Workload& w, const EmitOptions& options) {
  std::vector<bool> constant(w.tensors().size(), false);
  for (const std::string& name : options.constant) {
    const auto t = w.find_tensor(name);
    if (!t || !w.is_input(*t))
      throw InputError({.field = "constant",
                        .value = name,
                        .problem = "is not an input of the workload",
                        .accepted = "names of inputs"});
    constant[t->index()] = !options.count;
  }
  return constant;
}

}  // namespace

Result<Source> emit(const Schedule& given, const EmitOptions& options) {
  check(options);
  const auto whole = with_whole_numbers(given);
  if (!whole) return Reason{whole.reason()};
  const Schedule& s = whole->has_value() ? **whole : given;
  const auto types = types_of(s);
  if (!types) return Reason{types.reason()};
  std::optional<MicroKernel> asked;
  if (!options.micro_kernel.empty()) {
    const auto found = micro_kernel_for(options.isa, options.micro_kernel);
    if (!found) return Reason{found.reason()};
    asked = *found;
  }

  Program p{.schedule = s,
            .options = options,
            .micro_kernel = asked,
            .element_bytes = types->real == DType::f64 ? 8 : 4};
  // All vectors of a program are of one width.
  p.vector_bytes = asked ? asked->vector_bytes : micro_kernel_for(options.isa, "")->vector_bytes;
  p.boundaries = boundaries_of(s);
  p.needed.assign(s.workload->tensors().size(), false);
  p.constant = constant_of(*s.workload, options);
  p.prelude.count = options.count;
  p.prelude.f64 = types->real == DType::f64;
  p.prelude.home = types->home;
  p.prelude.written = types->written;
  p.prelude.vector_bytes = static_cast<int>(p.vector_bytes);
  p.pairs = types->pairs && options.isa == Isa::avx512_bf16 && p.vector_bytes == 64;
  const bool bytes = multiplies_bytes(*s.workload) && types->real == DType::f32;
  if (bytes && sums_bytes(options.isa) && p.vector_bytes > 0)
    p.whole = steps_of_bytes(p.vector_bytes);
  p.tiles = p.whole > 0 && options.isa == Isa::amx_int8;

  std::vector<KernelText> kernels;
  std::int64_t workspace = 4096;
  bool parallel = false;
  Source source{.prefix = options.prefix};
  if (types->home != types->real) {
    const std::string home(name_of(types->home)), real(name_of(types->real));
    source.notes.push_back("tensors are " + home + " at home and " + real +
                           " in tiles: converted as they are copied, " +
                           (p.pairs ? "multiplied as pairs of " + home + " and summed in " + real
                                    : "computed in " + real));
  }
  if (multiplies_bytes(*s.workload))
    source.notes.push_back(
        p.whole == 4   ? "products of i8 are made in quads and summed in whole numbers"
        : p.whole == 2 ? "products of i8 are made in pairs of 16 bits and summed in whole numbers"
                       : "products of i8 are computed in " + std::string(name_of(types->real)) +
                             ": " + std::string(name_of(options.isa)) +
                             " has no instruction for them, or is not asked to use it");
  for (std::size_t k = 0; k < s.kernels.size(); ++k) {
    auto text = KernelEmitter(p, static_cast<int>(k)).emit();
    if (!text) return text.why();
    workspace = std::max(workspace, text->workspace);
    parallel = parallel || text->parallel;
    for (const std::string& note : text->notes) source.notes.push_back(note);
    source.tiles.insert(source.tiles.end(), text->tiles.begin(), text->tiles.end());
    kernels.push_back(std::move(text).value());
  }

  source.file_name = harmless(s.workload->name()) + ".cpp";
  source.flags = {"-O3", "-std=c++17", "-ffp-contract=fast"};
  if (parallel) source.flags.push_back("-fopenmp");
  source.build_command_text = "c++ " + join(source.flags, " ") + " -shared -fPIC " +
                              source.file_name + " -o " + harmless(s.workload->name()) + ".so";
  for (const Tensor& t : s.workload->tensors()) source.tensors.push_back(t.name);
  source.needed = p.needed;
  source.constant = p.constant;
  source.kept_bytes = p.kept * p.element_bytes;
  if (options.count) source.boundaries = p.boundaries;
  source.threads = parallel ? options.threads : 1;
  source.in_parts = kernels.size() == 1 && kernels.front().shared;
  source.isa = options.isa;
  source.micro_kernel = join(p.used);

  std::string text = head(p, source);
  const bool vectors = p.vector_bytes > 0 && (p.prelude.products || p.prelude.vectors);
  if (vectors || p.prelude.converts_f16()) text += "#include <immintrin.h>\n\n";
  text += "#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <new>\n";
  if (parallel) text += "#ifdef _OPENMP\n#include <omp.h>\n#endif\n";
  text += "\n#define TILEWRIGHT_TARGET " + target_attribute(options.isa) + "\n";
  text += "#define TILEWRIGHT_ALWAYS __attribute__((always_inline))\n";
  text += "#define TILEWRIGHT_INLINE TILEWRIGHT_ALWAYS inline\n";
  text += "\nnamespace " + source.prefix + "_code {\n";
  source.fixed_begin = text.size();
  text += prelude_text(p.prelude);
  if (p.prelude.atomic) text += kZero;
  if (vectors) text += lanes_text(p.vector_bytes, p.prelude.f64);
  if (p.prelude.vectors) text += vector_functions_text(p.vector_bytes, p.prelude.f64);
  if (p.prelude.vectors && p.prelude.vectors_of_bytes)
    text += vectors_of_bytes_text(p.vector_bytes);
  if (p.prelude.planes) text += planes_text();
  if (p.prelude.products)
    text += micro_kernel_text(p.vector_bytes, p.prelude.f64, p.pairs ? 2 : std::max(p.whole, 1),
                              p.whole > 0, p.tiles);
  if (p.prelude.along_depth) text += along_depth_text(p.vector_bytes, p.prelude.f64);
  if (p.prelude.windows) text += window_text();
  if (p.prelude.lines) text += lines_of_points_text();
  if (p.prelude.transformed) text += transformed_text();
  if (p.prelude.bytes) text += bytes_text(p.whole);
  source.fixed_end = text.size();
  if (parallel) {
    text += "\nconstexpr int kThreads = " + std::to_string(options.threads) + ";\n";
    text += "constexpr int64_t kWorkspace = " + std::to_string(workspace) + ";  // a thread\n";
    text += kThread;
    text += kShare;
    const auto all = checked_mul(workspace, options.threads);
    if (!all) return Reason{"its tiles need more working memory than 64 bits count"};
    workspace = *all;
  }
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    text += "\n// " + one_line(to_text(s.resolved.kernels[k].tree)) + "\n";
    text += "TILEWRIGHT_TARGET void kernel_" + std::to_string(k) +
            "(void* const* tensors, char* workspace, int64_t* counts" +
            (kernels[k].shared ? ", int64_t part, int64_t parts" : "") + ") {\n  (void)counts;\n" +
            kernels[k].text + "}\n\n";
  }
  if (source.kept_bytes > 0) {
    text += "\nvoid prepare(void* const* tensors) {\n";
    for (const KernelText& k : kernels) text += k.prepare;
    text += "}\n\n";
  }
  text += entry(source, kernels, workspace) +
          "\n#undef TILEWRIGHT_TARGET\n#undef TILEWRIGHT_INLINE\n#undef TILEWRIGHT_ALWAYS\n";
  source.text = std::move(text);
  return source;
}

}  // namespace tilewright::cpu
