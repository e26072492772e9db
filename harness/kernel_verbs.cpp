// The records of the verbs that build kernels or run on the machine.
#include "core/base/error.h"
#include "harness/registry.h"
#include "harness/verb_records.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

OptionSpec build_only() {
  return {.name = "build-only",
          .kind = OptionKind::flag,
          .help = "build the kernel, do not run it: needs no device"};
}

OptionSpec batch() {
  return {.name = "batch",
          .kind = OptionKind::path,
          .help = "cuda: many runs, one JSON object of options in each line; built in parallel"};
}

/// The request, its target's options checked for this verb.
const Request& checked(const Request& request, const char* verb) {
  target_settings(request, target_named(request.target).name, verb);
  return request;
}

Verb emit_verb() {
  return {
      .name = "emit",
      .summary = "the generated source and how to build it",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nFor cuda: the .cu file, the headers that it includes and, where nvcc or NVRTC is "
          "installed,\n"
          "the report of ptxas. For cuda-emulated also the headers that replace CUDA's on a CPU.\n"
          "--explain prints the thread program of CUDA kernels; other targets have none.",
      .returns =
          "Returns {'target', 'files', 'build', 'notes', ...}; with explain 'program', its lines.",
      .options =
          plan_options() + shared_options({"target", "threads", "seed"}) +
          Specs{{.name = "explain",
                 .kind = OptionKind::flag,
                 .help = "print what the threads of each kernel do, step by step; needs no -o"},
                out(Writes::folder, "the folder to write")},
      .models = true,
      .targets = true,
      .run = [](const Request& r, const Settings& s) {
        return emit(checked(r, "emit"), s.find_text("out").value_or(""), s.flag("explain"));
      }};
}

Verb calibrate_verb() {
  return {
      .name = "calibrate",
      .summary = "measure this machine into a machine file that -m FILE reads",
      .details =
          "Measures the clock, the bandwidth and latency of every cache and of memory (with one "
          "and "
          "with\n"
          "all threads), the rate of multiply-adds, and the cost of a block of a product, a packed "
          "line, a\n"
          "vector operation and the start of threads. Each number has its date and the spread of "
          "its\n"
          "samples. A number that scatters too much is left out of the file, and 'scattered' names "
          "it;\nplans then use an assumed value. The others are kept in FILE.part, and the next "
          "run "
          "goes on from\nthere. Without the clock or the rate of multiply-adds no file is written.",
      .returns =
          "Returns {'numbers': [{'name', 'seconds', 'spread', 'samples', 'date'}], 'scattered', "
          "'written'}.",
      .options = shared_options({"machine"}) + one(out(Writes::file, "the machine file to write")),
      .run = [](const Request& r, const Settings& s) {
        Request of = r;
        if (!of.machine && !of.machine_text) of.machine = "host";
        return calibrate(of, s.find_text("out").value_or(""));
      }};
}

const std::vector<Bound<RunOptions>>& run_options() {
  static const std::vector<Bound<RunOptions>> all = {
      {{.name = "seconds",
        .kind = OptionKind::number,
        .most = 3600,
        .fallback = "2 on cpu, 0.25 on cuda",
        .help = "how long to time, about"},
       into<&RunOptions::seconds>},
      {{.name = "tune",
        .kind = OptionKind::integer,
        .high = 1000,
        .help = "time N of the model's plans and take the fastest; in a network, for each kernel "
                "(MCFuser's paper: 8)"},
       into<&RunOptions::tune>},
      {{.name = "tune-log",
        .kind = OptionKind::path,
        .writes = Writes::lines,
        .value = "FILE",
        .help = "with --tune: keep the plans' times in FILE; what it has of this processor or GPU, "
                "target and code is not measured again"},
       into<&RunOptions::tune_log>},
      {{.name = "split",
        .value = "HOW|FILE",
        .help =
            "how to cut a network into parts, as in plan --split (default: the model plans the "
            "whole; followed where it refuses, and for our planner on a processor for more than "
            "24 operators)"},
       into<&RunOptions::split>},
      {{.name = "profile",
        .kind = OptionKind::flag,
        .help = "of a network: for each kernel its predicted and measured time, bytes, and share "
                "of the roof"},
       into<&RunOptions::profile>},
      {{.name = "trace",
        .kind = OptionKind::path,
        .writes = Writes::file,
        .value = "FILE.json",
        .help = "of a network: write when each kernel ran, for Perfetto and chrome://tracing"},
       into<&RunOptions::trace>},
      {{.name = "beside",
        .fallback = "python3",
        .value = "PYTHON",
        .help = "of an ONNX file: the Python whose onnxruntime runs the same inputs; none: do not "
                "compare"},
       into<&RunOptions::beside>},
      {build_only(), into<&RunOptions::build_only>},
      {{.name = "count",
        .kind = OptionKind::flag,
        .help = "run each verified kernel once more for a profiler, untimed"},
       into<&RunOptions::count>}};
  return all;
}

Verb run_verb() {
  return {
      .name = "run",
      .summary = "emit, build, verify against the reference evaluator, time",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nA workload that our planner plans, and an ONNX file, runs as a network: each kernel "
          "and "
          "the whole\nare verified. On a processor more than 24 operators are planned in parts. "
          "Speed counts the workload's own "
          "operations, without\nrecomputation. On cpu the peak is measured in the same run, in "
          "turn with the kernel. On cuda it is\nthe machine file's, and runs are timed inside a "
          "CUDA graph. --batch takes no PLAN. Each line of its\nfile is a run, {\"workload\": "
          "\"mcfuser/G1\", \"model\": \"NAME\", \"stages\": 3}; other options are the\n"
          "command line's. -o gets each answer as soon as it is known.",
      .returns =
          "Returns {'verified', 'relative_error', 'seconds_median', 'gflops', 'peak_gflops', ...}.",
      .options = plan_options() + shared_options({"target", "threads", "seed"}) +
                 specs_of(run_options()) + one(batch()) +
                 one(out(Writes::lines, "of --batch: the file that gets each answer, a line each")),
      .models = true,
      .targets = true,
      .run = [](const Request& r, const Settings& s) {
        const RunOptions o = read(run_options(), s);
        checked(r, "run");
        if (!s.has("batch")) {
          if (s.find_text("out"))
            s.refuse("out", "gets the answers of --batch, and there is none",
                     "--batch FILE beside it");
          return run(r, o);
        }
        for (const char* one : {"tune", "tune-log", "split", "profile", "trace", "beside"})
          if (s.given(one))
            s.refuse(one, "is of a single run, and --batch has many", "one without --batch");
        return run_batch(r, o, s.text("batch"), s.find_text("out"));
      }};
}

const std::vector<Bound<MeasureOptions>>& measure_options() {
  static const std::vector<Bound<MeasureOptions>> all = {
      {{.name = "meter",
        .standard = "cachegrind",
        .value = "NAME",
        .help = "the meter; tilewright meters lists them"},
       into<&MeasureOptions::meter>},
      {{.name = "cold-only",
        .kind = OptionKind::flag,
        .help = "ncu: count only with caches emptied before every kernel (takes half the time)"},
       into<&MeasureOptions::cold_only>},
      {build_only(), into<&MeasureOptions::build_only>},
      {{.name = "executed",
        .kind = OptionKind::flag,
        .help = "also simulate every address executed, and name the causes of the difference"},
       into<&MeasureOptions::executed>}};
  return all;
}

Verb measure_verb() {
  return {
      .name = "measure",
      .summary = "measured traffic of the plan's verified kernel",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nEmits, builds and verifies the kernel, then runs it under the meter. --executed also "
          "traces it\n"
          "and says by cause why the count differs from the simulated plan. With --target cuda "
          "--meter ncu\n"
          "the answer has the models' predictions too; --batch is as in run, counted in one "
          "process.",
      .returns =
          "Returns a traffic document as predict() does, of one tensor 'total', with 'counters' "
          "and "
          "'notes';\nwith executed=True 'comparison': plan, executed addresses and meter, and "
          "every "
          "difference's cause.\ntarget='cuda', meter='ncu': also 'predicted' and 'counted'; with a "
          "batch {'results': [...]}.",
      .options = plan_options() + shared_options({"target"}) + specs_of(measure_options()) +
                 shared_options({"threads", "seed"}) + one(batch()) +
                 one(out(Writes::file, "of --batch: the file that gets the answers, a line each")),
      .models = true,
      .targets = true,
      .run = [](const Request& r, const Settings& s) {
        const MeasureOptions o = read(measure_options(), s);
        checked(r, "measure");
        return s.has("batch") ? measure_batch(r, o, s.text("batch"), s.find_text("out"))
                              : measure(r, o);
      }};
}

}  // namespace

std::vector<Verb> kernel_verbs() {
  return {calibrate_verb(), emit_verb(), run_verb(), measure_verb()};
}

}  // namespace tilewright::harness
