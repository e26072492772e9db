#include "harness/taken.h"

#include <algorithm>

#include "core/base/format.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

/// How a target is asked. `makeshift`: what has not the plan's own form will do. `met`: set where
/// there was such a thing.
struct Asking {
  const codegen::Target& target;
  const Settings& settings;
  int threads = 1;
  bool* met = nullptr;
  bool makeshift = false;

  Result<std::unique_ptr<codegen::Emitted>> emit(const Schedule& schedule) const {
    auto emitted = target.emit(schedule, settings, threads);
    if (!emitted) return emitted;
    const std::optional<Reason> why = (*emitted)->makeshift();
    if (!why) return emitted;
    *met = true;
    if (makeshift) return emitted;
    return *why;
  }
};

/// Why the target does not take the kernel, whatever it makes of the others.
std::optional<Reason> refused(const Schedule& schedule, std::size_t kernel, const Asking& asking) {
  Schedule alone = schedule;
  alone.kernels = {schedule.kernels[kernel]};
  alone.resolved.kernels = {schedule.resolved.kernels[kernel]};
  // Once one makeshift has been met, whether there are others does not matter.
  if (!asking.makeshift && *asking.met && asking.target.refuses != nullptr)
    return asking.target.refuses(alone, asking.settings, asking.threads);
  const auto emitted = asking.emit(alone);
  if (emitted) return std::nullopt;
  return emitted.why();
}

/// The plan with the choice in a kernel's place; nothing where that is illegal.
std::optional<Scheduled> with_choice(const Scheduled& on, std::size_t kernel, Kernel choice) {
  Scheduled other = on;
  choice.name = on.plan.kernels[kernel].name;
  other.plan.kernels[kernel] = std::move(choice);
  Result<Schedule> schedule = resolve(other.plan, on.setting.workload, on.setting.machine);
  if (!schedule) return std::nullopt;
  other.schedule = std::move(schedule).value();
  return other;
}

/// Without the kernel itself; `own`: its predicted seconds, where the model says them.
std::vector<KernelChoice> choices_for(const Scheduled& on, std::size_t kernel,
                                      std::optional<double>* own = nullptr) {
  std::vector<KernelChoice> all = on.choices(kernel);
  std::erase_if(all, [&](const KernelChoice& c) {
    Kernel named = c.kernel;
    named.name = on.plan.kernels[kernel].name;
    const bool same = named == on.plan.kernels[kernel];
    if (same && own != nullptr) *own = c.seconds;
    return same;
  });
  return all;
}

ordered_json or_null(const std::optional<double>& x) {
  return x ? ordered_json(*x) : ordered_json(nullptr);
}

/// What the model predicts of the plan with other kernels in the place of those that a target
/// refused; nothing where it does not say that of each.
std::optional<double> taken_seconds(const Proposal& best, const ordered_json& replaced) {
  if (!best.price.traffic.seconds) return std::nullopt;
  double seconds = *best.price.traffic.seconds;
  for (const ordered_json& r : replaced) {
    if (r["seconds"].is_null() && r["refused_seconds"].is_null()) continue;  // not timed at all
    if (r["seconds"].is_null() || r["refused_seconds"].is_null()) return std::nullopt;
    seconds += r["seconds"].get<double>() - r["refused_seconds"].get<double>();
  }
  return seconds;
}

/// The first of the choices for a kernel that is legal and taken, and its number.
std::optional<std::pair<Scheduled, std::size_t>> first_taken(
    const Scheduled& on, std::size_t kernel, const std::vector<KernelChoice>& choices,
    const Asking& asking) {
  for (std::size_t c = 0; c < choices.size(); ++c) {
    std::optional<Scheduled> other = with_choice(on, kernel, choices[c].kernel);
    if (other && !refused(*other->schedule, kernel, asking)) return {{std::move(*other), c}};
  }
  return std::nullopt;
}

/// emit_taken() of this plan and its kernels' choices. A makeshift of a kernel is taken only where
/// no choice for it has its own form.
Result<Taken> emit_choices(Scheduled& on, const Asking& asking) {
  Taken taken;
  Asking strictly = asking;
  strictly.makeshift = false;
  auto emitted = strictly.emit(*on.schedule);
  if (!emitted && on.choices) {
    for (std::size_t k = 0; k < on.plan.kernels.size(); ++k) {
      const auto why = refused(*on.schedule, k, strictly);
      if (!why) continue;
      std::optional<double> own;
      const std::vector<KernelChoice> choices = choices_for(on, k, &own);
      auto found = first_taken(on, k, choices, strictly);
      if (!found && asking.makeshift) {
        if (!refused(*on.schedule, k, asking)) continue;
        found = first_taken(on, k, choices, asking);
      }
      if (!found) return *why;
      const KernelChoice& choice = choices[found->second];
      on = std::move(found->first);
      taken.replaced.push_back(
          {{"kernel", on.schedule->kernels[k].name},
           {"refused", why->text},
           {"choice", found->second + 1},
           {"refused_seconds", or_null(own)},
           {"seconds", or_null(choice.seconds)},
           {"note", choice.note.empty() ? ordered_json(nullptr) : ordered_json(choice.note)}});
    }
    emitted = asking.emit(*on.schedule);
  } else if (!emitted && asking.makeshift) {
    emitted = asking.emit(*on.schedule);
  }
  if (!emitted) return emitted.why();
  taken.emitted = std::move(emitted).value();
  return taken;
}

/// How often a model is asked again, and how much less than in proportion it gets, less each time:
/// what a target pads does not shrink with the tiles.
constexpr int kTimesAsked = 8;
constexpr double kMargin = 0.95, kFurther = 0.85;
constexpr std::int64_t kLeastRoom = 1024;

/// emit_taken(), asked in one way.
Result<Taken> emit_asked(Scheduled& on, const Asking& asking) {
  Scheduled tried = on;
  Result<Taken> taken = emit_choices(tried, asking);
  if (taken) {
    on = std::move(tried);
    return taken;
  }
  Reason first = taken.why();
  // What came of asking again, where it came to nothing.
  const auto ended = [&first](Bytes room, const std::string& why) {
    return Reason{
        formatted("{}; asked again for a plan in {} bytes: {}", first.text, room.value, why),
        first.shortage};
  };
  ordered_json for_more_room = ordered_json::array();
  std::optional<Reason> nothing;
  // Room for which the target refuses the model's plan, and for which the model has none.
  Bytes most = tried.room, least{};
  double margin = kMargin;
  for (int times = 0; on.again && times < kTimesAsked && taken.why().shortage; ++times) {
    const Reason::Shortage& short_of = *taken.why().shortage;
    const double smaller =
        static_cast<double>(most.value) * margin *
        std::min(1.0, static_cast<double>(short_of.room) / static_cast<double>(short_of.needed));
    const Bytes room(least.value > 0 ? (least.value + most.value) / 2
                                     : static_cast<std::int64_t>(smaller));
    if (room.value < kLeastRoom) break;
    margin *= kFurther;
    Scheduled next = on;
    Result<Proposal> proposal = on.again(room, next.setting);
    if (!proposal) {
      nothing = ended(room, proposal.reason());
      least = room;
      continue;
    }
    for_more_room.push_back({{"room_bytes", most.value},
                             {"refused", taken.reason()},
                             {"plan", to_json(tried.plan)["kernels"]}});
    next.plan = proposal->plan;
    next.choices = proposal->choices;
    next.room = room;
    Result<Schedule> schedule = resolve(next.plan, next.setting.workload, next.setting.machine);
    if (!schedule) return ended(room, schedule.reason());
    next.schedule = std::move(schedule).value();
    tried = std::move(next);
    most = room;
    taken = emit_choices(tried, asking);
    if (!taken) continue;
    on = std::move(tried);
    taken.value().for_more_room = std::move(for_more_room);
    taken.value().room = on.room;
    taken.value().proposal = std::move(proposal).value();
    return taken;
  }
  if (nothing) return *nothing;
  return for_more_room.empty() ? first : ended(most, taken.reason());
}

}  // namespace

Result<Taken> emit_taken(Scheduled& on, const codegen::Target& target, const Settings& settings,
                         int threads) {
  bool met = false;
  Asking asking{target, settings, threads, &met};
  Result<Taken> taken = emit_asked(on, asking);
  if (taken || !met) return taken;
  asking.makeshift = true;
  return emit_asked(on, asking);
}

Result<Taken> take(Proposal& best, Setting& setting, const codegen::Target& target,
                   const Request& request, const Again& again) {
  Scheduled on{.setting = setting, .plan = best.plan, .again = again, .choices = best.choices};
  if (again) on.room = capacity_of(request, setting, best.level);
  Result<Schedule> schedule = resolve(on.plan, setting.workload, setting.machine);
  if (!schedule) return Reason{schedule.reason()};
  on.schedule = std::move(schedule).value();
  Result<Taken> taken =
      emit_taken(on, target, settings_for(target, request.target_options), threads_of(request));
  if (!taken)
    return Reason{
        formatted("target {} takes none of the model's plans: {}", target.name, taken.reason()),
        taken.why().shortage};
  if (taken->proposal) {
    best = *taken->proposal;
    setting = on.setting;
  }
  if (!taken->replaced.empty()) {
    best.plan = on.plan;
    best.price.traffic.seconds = taken_seconds(best, taken->replaced);
    if (best.detail.contains("seconds"))
      best.detail["seconds"] = or_null(best.price.traffic.seconds);
  }
  return taken;
}

ordered_json Taken::json() const {
  ordered_json json = ordered_json::object();
  if (!replaced.empty()) json["replaced"] = replaced;
  if (!for_more_room.empty())
    json["asked_again"] = {{"room_bytes", room.value}, {"refused", for_more_room}};
  return json;
}

std::vector<std::string> Taken::notes() const {
  std::vector<std::string> notes;
  if (!for_more_room.empty())
    notes.push_back(
        formatted("the model was asked again for a plan in {} bytes, because the target "
                  "refuses its plan for {}: {}",
                  room.value, for_more_room[0]["room_bytes"].get<std::int64_t>(),
                  for_more_room[0]["refused"].get<std::string>()));
  for (const ordered_json& r : replaced) {
    const std::string note = r["note"].is_null() ? "" : "; " + r["note"].get<std::string>();
    notes.push_back(
        formatted("{} is the model's choice {} after its own{}, because the target "
                  "refuses that one: {}",
                  r["kernel"].get<std::string>(), r["choice"].get<int>(), note,
                  r["refused"].get<std::string>()));
  }
  return notes;
}

std::vector<Scheduled> candidates_of(const Scheduled& on, std::size_t count) {
  std::vector<Scheduled> all = {on};
  if (!on.choices) return all;
  std::vector<std::vector<KernelChoice>> choices;
  std::size_t most = 0;
  for (std::size_t k = 0; k < on.plan.kernels.size(); ++k) {
    choices.push_back(choices_for(on, k));
    most = std::max(most, choices.back().size());
  }
  for (std::size_t c = 0; c < most; ++c)
    for (std::size_t k = 0; k < choices.size() && all.size() < count; ++k)
      if (c < choices[k].size())
        if (auto other = with_choice(on, k, choices[k][c].kernel)) all.push_back(std::move(*other));
  return all;
}

}  // namespace tilewright::harness
