#include "python/options.h"

#include <cstdint>

#include "harness/registry.h"

namespace tilewright::python {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void bad(const std::string& name, const Json& value, const std::string& accepted) {
  throw InputError({.field = name,
                    .value = value.dump(-1, ' ', false, Json::error_handler_t::replace),
                    .problem = "is not accepted",
                    .accepted = accepted});
}

/// Reads each option at most once; absent and null ones keep the default.
class Reader {
 public:
  explicit Reader(const Json& options) : options_(options) {
    if (!options.is_object()) bad("options", options, "an object");
  }

  void text(const char* name, std::optional<std::string>& to) {
    if (const Json* v = find(name)) to = string(name, *v);
  }
  void text(const char* name, std::string& to) {
    if (const Json* v = find(name)) to = string(name, *v);
  }
  void texts(const char* name, std::vector<std::string>& to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_array()) bad(name, *v, "a list of strings");
    for (const Json& item : *v) to.push_back(string(name, item));
  }
  void flag(const char* name, bool& to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_boolean()) bad(name, *v, "True or False");
    to = v->get<bool>();
  }
  template <class Integer>
  void whole(const char* name, std::int64_t low, std::int64_t high, Integer& to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    const bool fits = v->is_number_integer() &&
                      (!v->is_number_unsigned() || v->get<std::uint64_t>() <= INT64_MAX) &&
                      v->get<std::int64_t>() >= low && v->get<std::int64_t>() <= high;
    if (!fits)
      bad(name, *v, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    to = static_cast<typename Value<Integer>::type>(v->get<std::int64_t>());
  }
  template <class Number>
  void number(const char* name, double low, double high, Number& to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_number() || v->get<double>() < low || v->get<double>() > high)
      bad(name, *v, "a number from " + std::to_string(low) + " to " + std::to_string(high));
    to = v->get<double>();
  }

  /// A workload or plan: a name or path, or the document itself.
  void subject(harness::Request& request) {
    const Json* v = find("subject");
    if (v == nullptr) return;
    if (v->is_string()) {
      request.subject = v->get<std::string>();
      return;
    }
    if (!v->is_object()) bad("subject", *v, "a name, a path, or a document as a dict");
    if (v->contains("kernels")) {
      request.subject = "plan";
      request.subject_text = to_yaml(plan_file_from_yaml(v->dump(), request.subject));
    } else {
      request.subject = "workload";
      request.subject_text = to_yaml(workload(*v, request.subject));
    }
  }

  void machine(harness::Request& request) {
    const Json* v = find("machine");
    if (v == nullptr) return;
    if (v->is_object()) {
      request.machine_text = v->dump();
    } else {
      request.machine = string("machine", *v);
    }
  }

  /// Of every model; whoever is asked checks whether it has them.
  void model_options(harness::Request& request) {
    const auto read = [&](std::span<const OptionSpec> specs) {
      for (const OptionSpec& spec : specs)
        if (const Json* v = find(as_key(spec).c_str()))
          request.options[spec.name] = option_texts(spec, *v, "", as_key(spec));
    };
    read(defaults_options());
    for (const harness::ModelRecord& m : harness::models()) read(m.options);
  }

  void finish() const {
    for (const auto& [key, value] : options_.items())
      if (!seen_.contains(key)) bad(key, value, "an option of this verb");
  }

 private:
  template <class T>
  struct Value {
    using type = T;
  };
  template <class T>
  struct Value<std::optional<T>> {
    using type = T;
  };

  const Json* find(const char* name) {
    seen_.insert(name);
    const auto it = options_.find(name);
    return it == options_.end() || it->is_null() ? nullptr : &*it;
  }
  static std::string string(const char* name, const Json& v) {
    if (!v.is_string()) bad(name, v, "a string");
    return v.get<std::string>();
  }
  /// As a workload file has it, in which the order of loops and tensors is kept; or as our JSON.
  static Workload workload(const Json& v, const std::string& where) {
    const bool as_file = !v.contains("loops") || v["loops"].is_object();
    return as_file ? workload_from_yaml(v.dump(), where) : workload_from_json(v, where);
  }

  const Json& options_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace

Invocation invocation_of(const Json& options) {
  Invocation i;
  harness::Request& r = i.request;
  Reader read(options);
  read.subject(r);
  read.machine(r);
  read.texts("rewrite", r.rewrites);
  read.text("model", r.model);
  read.text("tree", r.tree);
  read.text("tiles", r.tiles);
  read.texts("pins", r.pins);
  read.texts("flags", r.flags);
  read.text("level", r.level);
  read.text("capacity", r.capacity);
  read.text("order", r.order);
  read.model_options(r);
  read.text("layout", r.layout);
  read.whole("seed", 0, INT64_MAX, r.seed);
  read.whole("threads", 1, 1024, r.threads);
  read.flag("resolved", i.resolved);
  bool no_skip = false;
  read.flag("curve", i.curve);
  i.walk.curve = i.curve;
  read.text("trace", i.walk.trace);
  read.text("save_trace", i.walk.save_trace);
  read.flag("attribute", i.walk.attribute);
  read.flag("no_skip", no_skip);
  i.walk.skip = !no_skip;
  read.text("occupancy", i.walk.occupancy);
  read.whole("stride", 1, INT64_MAX, i.walk.stride);
  read.whole("cores", 1, 1024, i.walk.cores);
  read.text("schedule", i.walk.schedule);
  read.whole("blocks_per_sm", 1, 64, i.walk.blocks_per_sm);
  read.whole("partitions", 1, 2, i.walk.partitions);
  read.number("jitter", 0, 0.9, i.walk.jitter);
  read.whole("sample_waves", 1, 1'000'000, i.walk.sample_waves);
  read.text("models", i.models);
  read.text("out", i.out);
  read.text("target", i.request.target);
  read.text("isa", i.run.isa);
  read.text("micro_kernel", i.run.micro_kernel);
  read.flag("prefetch", i.run.prefetch);
  read.text("meter", i.measure.meter);
  read.flag("cold_only", i.measure.cuda.cold_only);
  read.flag("executed", i.measure.executed);
  read.whole("warps", 1, 16, i.run.cuda.warps);
  read.whole("stages", 1, 8, i.run.cuda.stages);
  read.text("arch", i.run.cuda.arch);
  read.text("cache", i.run.cuda.cache);
  read.flag("cold", i.run.cuda.cold);
  read.text("timeline", i.run.timeline);
  read.flag("build_only", i.run.cuda.build_only);
  read.flag("count", i.run.cuda.count);
  read.number("seconds", 0, 3600, i.run.seconds);
  read.text("batch", i.batch);
  read.texts("orders", i.validate.orders);
  read.whole("samples", 1, 1'000'000, i.reproduce.samples);
  read.flag("all", i.reproduce.all);
  read.text("size", i.reproduce.size);
  read.text("data", i.reproduce.data);
  read.text("truth", i.validate.truth);
  read.number("min_r2", -1e9, 1, i.validate.min_r2);
  read.flag("beyond", i.validate.beyond);
  read.text("spill", i.validate.spill);
  read.text("csv", i.validate.csv);
  read.text("recorded", i.validate.recorded);
  i.walk.csv = i.validate.csv;
  read.finish();
  if (i.request.target) i.emit.target = i.run.target = i.measure.target = *i.request.target;
  i.emit.isa = i.measure.isa = i.run.isa;
  i.emit.micro_kernel = i.measure.micro_kernel = i.run.micro_kernel;
  i.emit.prefetch = i.measure.prefetch = i.run.prefetch;
  i.emit.cuda = i.measure.cuda = i.run.cuda;
  i.emit.out = i.out.value_or("");
  if (i.reproduce.samples) i.validate.samples = *i.reproduce.samples;
  i.request.samples = i.reproduce.samples;
  i.reproduce.id = r.subject;
  i.reproduce.out = i.out;
  return i;
}

}  // namespace tilewright::python
