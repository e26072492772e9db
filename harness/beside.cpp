#include "harness/beside.h"

#include <cstdint>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "core/base/toolchain.h"
#include "core/workload/import/onnx_import.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

// Reads asked.json and the arrays beside it, writes answer.json.
constexpr const char* kScript = R"py(
import json, mmap, platform, sys, time
folder = sys.argv[1]
asked = json.load(open(folder + "/asked.json"))
def answer(value):
    json.dump(value, open(folder + "/answer.json", "w"))
    sys.exit(0)
try:
    import numpy, onnxruntime
except Exception as e:
    answer({"available": False, "reason": str(e).splitlines()[0]})
def has_quads():
    try:
        return "vnni" in open("/proc/cpuinfo").read()
    except OSError:
        return True
def has_bytes(model):
    with open(model, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return any(text.find(name) >= 0 for name in (b"Quant", b"QLinear", b"QGemm", b"QAttention", b"Integer"))
def apart(ours, theirs):
    most = float(abs(theirs).max()) if theirs.size else 0.0
    off = float(abs(ours - theirs).max()) if theirs.size else 0.0
    return 0.0 if off == 0 else off / most if most > 0 else float("inf")
TYPES = {"tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2", "tensor(int64)": "i8",
         "tensor(int32)": "i4", "tensor(int16)": "i2", "tensor(int8)": "i1", "tensor(uint8)": "u1",
         "tensor(uint16)": "u2", "tensor(uint32)": "u4", "tensor(uint64)": "u8", "tensor(bool)": "?"}
try:
    onnxruntime.set_default_logger_severity(3)
    def opened(exact):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = asked["threads"], 1
        # As the file says: not with what the other operand is, rounded to 8 bits.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        if exact:
            options.add_session_config_entry("session.x64quantprecision", "1")
        return onnxruntime.InferenceSession(asked["model"], options, providers=["CPUExecutionProvider"])
    # Without instructions for quads of bytes it adds products of unsigned and signed ones in pairs, in
    # 16 bits that saturate. With that option it does not, and takes longer: results are by it, times not.
    pairs = asked["values"] and platform.machine() in ("x86_64", "AMD64") and not has_quads() and has_bytes(asked["model"])
    session = opened(False)
    feed = {}
    for i in session.get_inputs():
        bind = asked["bind"]
        shape = [d if isinstance(d, int) and d > 0 else bind.get(d, bind.get("%s.%d" % (i.name, k), 1))
                 for k, d in enumerate(i.shape)]
        if i.type not in TYPES:
            raise ValueError("input " + i.name + " is of type " + i.type)
        if i.name in asked["inputs"]:
            values = numpy.fromfile(folder + "/" + asked["inputs"][i.name], "f8")
            feed[i.name] = values.astype(TYPES[i.type]).reshape(shape)
        else:
            feed[i.name] = numpy.full(shape, asked["bind"].get(i.name, 0), TYPES[i.type])
    names = [o.name for o in session.get_outputs()]
    got, outputs = session.run(names, feed), []
    saturated = None
    if pairs:
        by_default, got = got, opened(True).run(names, feed)
        saturated = max((apart(numpy.asarray(x).astype("f8"), numpy.asarray(y).astype("f8"))
                         for name, x, y in zip(names, by_default, got) if name in asked["outputs"]), default=0.0)
    for name, value in zip(names, got):
        if name not in asked["outputs"]:
            continue
        ours = numpy.fromfile(folder + "/" + asked["outputs"][name], "f8")
        value = numpy.asarray(value)
        theirs = value.astype("f8").reshape(-1)
        if ours.size != theirs.size:
            raise ValueError("output %s has %d elements, not %d" % (name, theirs.size, ours.size))
        error = apart(ours, theirs)
        outputs.append({"name": name, "dtype": str(value.dtype),
                        "relative_error": error if numpy.isfinite(error) else None})
        if asked["values"]:
            theirs.tofile(folder + "/theirs%d" % (len(outputs) - 1))
    times, start = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - start < asked["seconds"] and len(times) < 1000):
        begin = time.perf_counter()
        session.run(names, feed)
        times.append(time.perf_counter() - begin)
    said = {"available": True, "version": onnxruntime.__version__, "threads": asked["threads"]}
    if saturated is not None:
        said["saturation_error"] = saturated if numpy.isfinite(saturated) else None
    answer({**said, "seconds": times, "outputs": outputs})
except Exception as e:
    answer({"available": False, "reason": (str(e) or type(e).__name__).splitlines()[0]})
)py";

Beside unavailable(std::string why) {
  return {.json = {{"available", false}, {"reason", std::move(why)}}};
}

/// Each array in a file of its own: {name: file}.
ordered_json written(const std::filesystem::path& folder, const char* kind,
                     const std::map<std::string, std::vector<double>>& arrays) {
  ordered_json names = ordered_json::object();
  for (const auto& [name, values] : arrays) {
    const std::string file = kind + std::to_string(names.size());
    std::ofstream(folder / file, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(double)));
    names[name] = file;
  }
  return names;
}

}  // namespace

Beside beside_onnxruntime(const BesideAsked& asked) {
  const std::filesystem::path python = find_program(asked.python);
  if (python.empty()) return unavailable("there is no " + asked.python);
  const TemporaryDirectory folder;
  if (folder.path().empty()) return unavailable("no temporary directory");
  const std::size_t end = asked.subject.find(".onnx") + 5;
  ordered_json json = {{"model", std::filesystem::absolute(asked.subject.substr(0, end)).string()},
                       {"threads", asked.threads},
                       {"seconds", asked.seconds},
                       {"values", asked.values},
                       {"bind", ordered_json::object()},
                       {"inputs", written(folder.path(), "in", asked.inputs)},
                       {"outputs", written(folder.path(), "out", asked.outputs)}};
  if (asked.subject.size() > end)
    for (const auto& [name, n] : parse_bindings(asked.subject.substr(end + 1), "W"))
      json["bind"][name] = n;
  std::ofstream(folder.path() / "asked.json") << json;
  if (const auto why = run_program({python.string(), "-c", kScript, folder.path().string()},
                                   folder.path() / "log"))
    return unavailable(why->text);
  ordered_json answer = ordered_json::parse(text_of(folder.path() / "answer.json"), nullptr, false);
  if (!answer.is_object()) return unavailable(asked.python + " gave no answer");
  Beside beside{.json = std::move(answer)};
  if (asked.values && beside.json.value("available", false))
    for (std::size_t i = 0; i < beside.json["outputs"].size(); ++i) {
      const std::string bytes = text_of(folder.path() / ("theirs" + std::to_string(i)));
      std::vector<double>& values = beside.outputs[beside.json["outputs"][i]["name"]];
      values.resize(bytes.size() / sizeof(double));
      std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
    }
  return beside;
}

}  // namespace tilewright::harness
