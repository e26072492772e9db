// A sweep's file, expanded into points.
#include "harness/sweep.h"

#include <algorithm>
#include <functional>
#include <set>

#include "core/base/format.h"
#include "harness/points.h"
#include "harness/registry.h"
#include "harness/verb.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVerbs[] = {"predict", "plan", "simulate"};

std::vector<std::string> texts_of(const Field& list) {
  if (!list.is_list()) return {list.text()};
  std::vector<std::string> texts;
  for (const Field& item : list.items()) texts.push_back(item.text());
  if (texts.empty()) list.fail("is empty", "one value, or a list of them");
  return texts;
}

/// A value, a list of them, {from, to, times} or {from, to, plus}.
std::vector<std::int64_t> numbers_of(const Field& f) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (f.is_map()) {
    f.only({"from", "to", "times", "plus"});
    const auto times = f.get("times"), plus = f.get("plus");
    if (times.has_value() == plus.has_value())
      f.fail("needs one step", "{from: 16, to: 256, times: 2} or {from: 16, to: 256, plus: 16}");
    const std::int64_t to = f.at("to").integer(1, kMost);
    std::vector<std::int64_t> numbers;
    for (std::int64_t n = f.at("from").integer(1, to); n <= to;
         n = times ? n * times->integer(2, 1024) : n + plus->integer(1, kMost)) {
      if (numbers.size() == 100'000) f.fail("has too many values", "at most 100000");
      numbers.push_back(n);
    }
    return numbers;
  }
  if (!f.is_list()) return {f.integer(1, kMost)};
  std::vector<std::int64_t> numbers;
  for (const Field& item : f.items()) numbers.push_back(item.integer(1, kMost));
  if (numbers.empty()) f.fail("is empty", "one number, or a list of them");
  return numbers;
}

/// Calls `each` with every way to take one of each axis, the last axis fastest.
void product(const std::vector<std::size_t>& sizes,
             const std::function<void(const std::vector<std::size_t>&)>& each) {
  std::vector<std::size_t> at(sizes.size(), 0);
  while (true) {
    each(at);
    std::size_t k = sizes.size();
    while (k > 0 && ++at[k - 1] == sizes[k - 1]) at[--k] = 0;
    if (k == 0) return;
  }
}

/// Names of workloads: as they are, or a built-in one with every combination of its parameters.
std::vector<std::string> workloads_of(const Field& list, std::int64_t most) {
  std::vector<std::string> names;
  for (const Field& item : list.items()) {
    if (!item.is_map()) {
      names.push_back(item.text());
      continue;
    }
    for (const auto& [name, parameters] : item.entries()) {
      std::vector<std::string> keys;
      std::vector<std::vector<std::string>> values;
      std::vector<std::size_t> sizes;
      for (const auto& [key, value] : parameters.entries()) {
        keys.push_back(key);
        values.emplace_back();
        if (value.is_map())
          for (const std::int64_t n : numbers_of(value)) values.back().push_back(std::to_string(n));
        else
          values.back() = texts_of(value);
        sizes.push_back(values.back().size());
      }
      const std::string builtin = name;  // clang 14's lambdas cannot capture a binding
      product(sizes, [&](const std::vector<std::size_t>& at) {
        if (std::ssize(names) >= most)
          item.fail("makes too many workloads", formatted("at most {}", most));
        std::string full = builtin;
        for (std::size_t k = 0; k < keys.size(); ++k)
          full += (k == 0 ? ":" : ",") + keys[k] + "=" + values[k][at[k]];
        names.push_back(std::move(full));
      });
    }
  }
  if (names.empty()) list.fail("is empty", "names of workloads");
  return names;
}

struct Axis {
  std::string name;
  std::vector<std::string> values;
};

/// What is asked, before it is multiplied out.
struct Axes {
  std::string verb;
  std::vector<std::string> workloads, machines, models, orders;  ///< orders empty: none asked
  bool all_orders = false;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tiles;
  std::vector<Axis> options;
};

/// The sweep's own keys, and what it decides.
constexpr std::string_view kNoAxis[] = {"machine", "model", "order", "tiles", "threads"};

bool is_axis(const OptionSpec& spec) {
  return spec.kind != OptionKind::path &&
         std::ranges::find(kNoAxis, spec.name) == std::end(kNoAxis);
}

/// The verb's own option of that key; null where there is none.
const OptionSpec* own_axis(std::string_view verb, std::string_view key) {
  const OptionSpec* spec = find_option_by_key(sweep_verb(verb).options, key);
  return spec != nullptr && is_axis(*spec) ? spec : nullptr;
}

/// Null where there is none: by the name that rows have.
const OptionSpec* axis(std::string_view verb, std::string_view key) {
  if (const OptionSpec* spec = own_axis(verb, key)) return spec;
  for (const OptionSpec* spec : options_of(sweep_verb(verb)))
    if (as_key(*spec) == key && is_axis(*spec)) return spec;
  return nullptr;
}

std::vector<std::string> axis_keys(std::string_view verb) {
  std::set<std::string> keys;
  for (const OptionSpec* spec : options_of(sweep_verb(verb)))
    if (is_axis(*spec)) keys.insert(as_key(*spec));
  return {keys.begin(), keys.end()};
}

/// Whether the option says anything of a model's points: it is of all, or of a model with a part in
/// their answers.
bool concerns(const Axes& asked, const std::string& model, const std::string& key) {
  if (own_axis(asked.verb, key) || find_option_by_key(defaults_options(), key)) return true;
  Request r{.model = model};
  if (!asked.orders.empty()) r.order = asked.orders.front();
  for (const Axis& o : asked.options)
    if (std::ranges::any_of(builtin_models(), [&](const Model& m) { return m.notation == o.name; }))
      r.options[o.name] = {o.values.front()};
  return takes_option(r, axis(asked.verb, key)->name);
}

Axes axes_of(const Field& top, std::int64_t most) {
  top.only({"name", "verb", "workloads", "machines", "models", "orders", "tiles", "options"});
  Axes a;
  const auto verb = top.get("verb");
  a.verb = verb ? verb->text() : "predict";
  if (std::find(std::begin(kVerbs), std::end(kVerbs), a.verb) == std::end(kVerbs))
    verb->fail("is not a verb of a sweep", "predict, plan, simulate");
  a.workloads = workloads_of(top.at("workloads"), most);
  a.machines = texts_of(top.at("machines"));
  const auto models = top.get("models");
  const bool plans = a.verb != "predict" && !top.get("orders");
  a.models = models ? texts_of(*models)
                    : std::vector{plans ? planning_model().name : standard_model().name};
  for (const std::string& m : a.models) find_model(m);
  if (const auto orders = top.get("orders")) {
    if (a.verb == "plan")
      orders->fail("is what plan finds", "the verbs predict and simulate with it");
    a.orders = texts_of(*orders);
    a.all_orders = a.orders == std::vector<std::string>{"all"};
  }
  if (const auto tiles = top.get("tiles")) {
    if (a.orders.empty()) tiles->fail("is of an order", "orders beside it");
    for (const auto& [loop, sizes] : tiles->entries())
      a.tiles.emplace_back(loop, numbers_of(sizes));
  }
  if (const auto options = top.get("options"))
    for (const auto& [name, values] : options->entries()) {
      if (axis(a.verb, name) == nullptr)
        values.fail("is not an option of a sweep", with_nearest(name, axis_keys(a.verb)));
      a.options.push_back({name, texts_of(values)});
    }
  if (const auto options = top.get("options"))
    for (const Axis& o : a.options)
      if (std::ranges::none_of(a.models,
                               [&](const std::string& m) { return concerns(a, m, o.name); }))
        options->at(o.name).fail("is an option of none of these models", join(a.models));
  return a;
}

/// What a workload's points are made of: its orders and, of the tiles, those of loops that it has.
struct OfWorkload {
  std::vector<std::string> orders;  ///< one empty: none asked
  std::vector<std::size_t> tiles;   ///< indices of Axes::tiles
};

OfWorkload of_workload(const Axes& asked, const Workload& w, std::set<std::string>& known) {
  OfWorkload of;
  if (asked.all_orders) {
    of.orders = standard_model().texts(w);
    if (of.orders.empty())
      throw InputError({.where = "orders",
                        .value = "all",
                        .problem = "are too many orders: " + w.name() + " has too many loops",
                        .accepted = "a list of orders, such as [mlkn, mlnk]"});
    known.insert("all");
  } else {
    for (const std::string& text : asked.orders) {
      try {
        of.orders.push_back(standard_model().canonical(w, text));
        known.insert(text);
      } catch (const InputError&) {
        // Perhaps another workload's; one that no workload has is refused below.
      }
    }
  }
  if (asked.orders.empty()) of.orders.emplace_back();
  for (std::size_t k = 0; k < asked.tiles.size(); ++k)
    if (w.find_loop(asked.tiles[k].first)) {
      of.tiles.push_back(k);
      known.insert("tiles." + asked.tiles[k].first);
    }
  return of;
}

void refuse_unknown(const Axes& asked, const Field& top, const std::set<std::string>& known) {
  for (const std::string& order : asked.orders)
    if (!known.contains(order))
      top.at("orders").fail(order + " is an order of no workload here",
                            "orders of its loops, or all");
  for (const auto& [loop, sizes] : asked.tiles)
    if (!known.contains("tiles." + loop))
      top.at("tiles").at(loop).fail("is a loop of no workload here", "tiles of its loops");
}

class Expansion {
 public:
  Expansion(const Axes& asked, const Field& top, std::int64_t most)
      : asked_(asked), top_(top), most_(most) {
    for (const std::string& model : asked.models)
      for (std::size_t i = 0; i < asked.options.size(); ++i)
        if (concerns(asked, model, asked.options[i].name)) concerned_.emplace(model, i);
  }

  /// All points of a workload, on every machine, by every model.
  void add(const std::string& name, const OfWorkload& of) {
    std::vector<std::size_t> sizes{asked_.machines.size(), asked_.models.size()};
    for (const Axis& o : asked_.options) sizes.push_back(o.values.size());
    sizes.push_back(of.orders.size());
    for (const std::size_t k : of.tiles) sizes.push_back(asked_.tiles[k].second.size());
    if (of.orders.empty()) return;
    count(sizes);
    product(sizes, [&](const std::vector<std::size_t>& at) { add_point(name, of, at); });
  }

  std::vector<SweepPoint> take() { return std::move(points_); }

 private:
  void count(const std::vector<std::size_t>& sizes) {
    std::int64_t more = 1;
    for (const std::size_t s : sizes) {
      more *=
          static_cast<std::int64_t>(s);  // at most most_ before, and refused before it overflows
      if (more + std::ssize(points_) > most_)
        top_.fail("asks for too many points", formatted("at most {}", most_));
    }
  }

  void add_point(const std::string& name, const OfWorkload& of,
                 const std::vector<std::size_t>& at) {
    std::size_t k = 0;
    SweepPoint p{.verb = asked_.verb,
                 .workload = name,
                 .machine = asked_.machines[at[k]],
                 .model = asked_.models[at[k + 1]]};
    k += 2;
    const std::size_t first_option = k;
    k += asked_.options.size();
    p.order = of.orders[at[k++]];
    for (std::size_t i = 0; i < asked_.options.size(); ++i)
      if (concerned_.contains({p.model, i}))
        p.options[asked_.options[i].name] = asked_.options[i].values[at[first_option + i]];
    for (const std::size_t t : of.tiles)
      p.tiles[asked_.tiles[t].first] = asked_.tiles[t].second[at[k++]];
    if (seen_.insert(id_of(p)).second) points_.push_back(std::move(p));
  }

  const Axes& asked_;
  const Field& top_;
  const std::int64_t most_;
  std::set<std::pair<std::string, std::size_t>> concerned_;  ///< models and positions of options
  std::vector<SweepPoint> points_;
  std::set<std::string> seen_;
};

}  // namespace

const Verb& sweep_verb(std::string_view name) {
  static const std::vector<Verb> all = harness_verbs();
  const auto verb = std::ranges::find(all, name, &Verb::name);
  if (verb == all.end() || std::ranges::find(kVerbs, name) == std::end(kVerbs))
    throw InputError({.where = "verb",
                      .value = std::string(name),
                      .problem = "is not a verb of a sweep",
                      .accepted = "predict, plan, simulate"});
  return *verb;
}

Asked asked_of(const SweepPoint& p) {
  Asked asked{.subject = p.workload};
  asked.options = {{"machine", {p.machine}}, {"model", {p.model}}};
  if (!p.order.empty()) asked.options["order"] = {p.order};
  std::vector<std::string> tiles;
  for (const auto& [loop, size] : p.tiles) tiles.push_back(loop + "=" + std::to_string(size));
  if (!tiles.empty()) asked.options["tiles"] = {join(tiles, ",")};
  for (const auto& [key, value] : p.options) {
    const OptionSpec* spec = axis(p.verb, key);
    if (spec == nullptr)
      throw InputError({.where = "options",
                        .field = key,
                        .value = value,
                        .problem = "is not an option of a sweep",
                        .accepted = join(axis_keys(p.verb))});
    check_option(*spec, value, "options: " + key);
    asked.options[spec->name] = {value};
  }
  // The caller has the other threads.
  if (find_option(sweep_verb(p.verb).options, "threads")) asked.options["threads"] = {"1"};
  return asked;
}

ordered_json to_json(const SweepPoint& p) {
  ordered_json json = {
      {"verb", p.verb}, {"workload", p.workload}, {"machine", p.machine}, {"model", p.model}};
  if (!p.order.empty()) json["order"] = p.order;
  if (!p.tiles.empty()) json["tiles"] = p.tiles;
  if (!p.options.empty()) json["options"] = p.options;
  return json;
}

SweepPoint sweep_point_from_json(const ordered_json& j) {
  try {
    SweepPoint p{.verb = j.at("verb"),
                 .workload = j.at("workload"),
                 .machine = j.at("machine"),
                 .model = j.at("model")};
    p.order = j.value("order", std::string());
    if (j.contains("tiles")) p.tiles = j["tiles"];
    if (j.contains("options")) p.options = j["options"];
    return p;
  } catch (const nlohmann::json::exception& e) {
    throw InputError({.where = "point",
                      .value = j.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
                      .problem = "is not a point of a sweep",
                      .accepted = "what a sweep's file is expanded to"});
  }
}

// A letter first, so that nobody takes a name of sixteen digits for a number.
std::string id_of(const SweepPoint& p) { return "p" + hash_text(to_json(p).dump()); }

Sweep read_sweep(std::string_view text, const std::string& where, std::int64_t most) {
  const DocumentValue document = read_yaml(text, where);
  const Field top(document, where);
  const Axes asked = axes_of(top, most);
  Sweep sweep{.name = top.at("name").identifier("name")};
  for (const std::string& m : asked.machines) named_machine(m);
  std::set<std::string> known;
  Expansion expansion(asked, top, most);
  for (const std::string& name : asked.workloads)
    expansion.add(name, of_workload(asked, named_workload(name), known));
  refuse_unknown(asked, top, known);
  sweep.points = expansion.take();
  return sweep;
}

}  // namespace tilewright::harness
