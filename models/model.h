// What a model is: a record that proposes plans and prices them. A model knows workloads, machines
// and its own settings. It knows nothing of command lines, files or the other models.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/option.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/stream.h"
#include "core/plan/target_needs.h"
#include "core/plan/traffic.h"
#include "core/workload/workload.h"

namespace tilewright {

struct Model;

/// What a model is asked about.
struct Question {
  std::string name = {};  ///< the workload as the user named it; for display only
  std::shared_ptr<const Workload> workload = {};
  std::shared_ptr<const Machine> machine = {};
  std::optional<LevelId> level = {};  ///< to plan for; none: the machine's default
  bool all_levels = false;            ///< every level on the chip is planned for
  std::optional<Bytes> room = {};     ///< of the level; none: its capacity
  std::string target = {};            ///< that the plan is for; for display only, empty: none
  TargetNeeds needs = {};             ///< of that target
  std::uint64_t seed = 1;
  Layout layout = Layout::tiled;  ///< how tensors lie in memory; only hardware caches see it
  int threads = 1;                ///< of a processor, that the plan is for
  /// Why that target does not take a schedule; none where it does. Null: nobody says.
  std::function<std::optional<Reason>(const Schedule&)> refuses = {};
  /// Those who make or price plans, beside the one that is asked: for a model that chooses among
  /// others' plans.
  std::vector<const Model*> others = {};
  /// Price::steps at most; a price that would take more is a Reason.
  std::int64_t most_steps = std::numeric_limits<std::int64_t>::max();
  /// Another model asks, which reads plans, bytes and seconds: what is for display may be left out.
  bool of_model = false;

  /// What a model asks another one.
  Question to_other() const {
    Question q = *this;
    q.others.clear();
    q.of_model = true;
    return q;
  }
  LevelId planned_level() const { return level.value_or(machine->default_level()); }
  Bytes room_at(LevelId at) const { return room.value_or(machine->level(at).capacity); }
  /// The level of a plan is its first kernel's, else the one that is asked about.
  LevelId level_of(const Plan& plan) const;
};

/// A plan, or a part of one, in a model's own notation: "mlkn" and {"m": 64}. Tiles of loops that
/// are not named are the model's to choose.
struct Words {
  std::optional<std::string> text = {};
  std::optional<std::map<std::string, std::int64_t>> tiles = {};
  std::vector<std::string> spilled = {};  ///< intermediates that go home and back
};

/// What a model says of a plan.
struct Price {
  Traffic traffic;  ///< with its seconds, where the model knows time
  /// What the model alone has to say. For display only: nothing is read back from it.
  nlohmann::ordered_json detail;
  /// Of a walk that found the price, each about a microsecond; 0: none did. A search that ends by
  /// them ends at the same plan on every machine.
  std::int64_t steps = 0;
};

/// What may stand in a kernel's place.
struct KernelChoice {
  Kernel kernel;
  std::optional<double> seconds = {};  ///< predicted
  std::string note = {};               ///< what is lost; empty: nothing
};

/// A model's plan.
struct Proposal {
  Plan plan;
  LevelId level;  ///< that was planned for
  bool all_levels = false;
  std::vector<std::string> rewrites = {};  ///< of the question's workload, that the plan is of
  Price price;
  std::optional<double> search_seconds = {};
  Words words = {};  ///< the plan in the model's notation; empty where it has none
  /// What may stand in the place of a kernel of the plan, best first. The kernel itself may be
  /// among them, with its predicted seconds. Asked where a target refuses the kernel. Null: nothing
  /// may.
  std::function<std::vector<KernelChoice>(std::size_t kernel)> choices = {};
  /// What the model says of its search. For display only.
  nlohmann::ordered_json detail;
};

/// Plans to draw. What they hold of the level is more than `least` and at most `most`.
struct DrawSpace {
  Bytes least, most;
  std::int64_t min_tile = 1;
  std::int64_t some_below = 0;            ///< some tile is smaller than this; 0: any
  std::int64_t count = 0;                 ///< of each text
  bool optimum = false;                   ///< the best of the space, not random ones
  std::vector<std::string> texts = {};    ///< in the notation; none: the best plan's
  std::vector<std::string> spilled = {};  ///< as of Words
  /// What a target says of a plan's schedule. Null: it takes all.
  std::function<bool(const Schedule&)> accepts = {};
};
struct DrawnPlan {
  Words words;
  /// The plan and its price, where the notation cannot say it.
  std::optional<Plan> plan = {};
  std::optional<Price> price = {};
  std::string illegal = {};  ///< why the model calls the plan illegal; empty: it does not
};

/// What `explain` asks beside the question.
struct ExplainAsked {
  Words words = {};
  std::optional<std::int64_t> samples = {};  ///< candidates to draw from the model's space
  std::vector<std::string> rewrites = {};    ///< by which the question's workload was made
  OptionValues given = {};                   ///< of the model, as given
};
struct Explained {
  nlohmann::ordered_json detail;
  std::optional<std::string> refused = {};  ///< why `detail` is not whole
  std::vector<std::string> rewrites = {};   ///< of the question's workload, that this is of
};

/// One model. Functions throw InputError for settings and words that are wrong, and give a Reason
/// for what is an outcome: the model does not apply, or nothing fits.
struct Model {
  std::string name = {};
  std::string summary = {};
  std::string source = {};
  std::vector<std::string> assumptions = {};
  std::span<const OptionSpec> options = {};  ///< beside --published and --ours
  bool times = false;                        ///< its prices are of time, bytes a part of them
  bool every_level = false;                  ///< plans for every level at once, where asked to
  std::string no_price = {};                 ///< why it prices no plan, where `price` is null
  /// The option that says a plan in the model's own notation: "order"; empty: it has none.
  std::string notation = {};

  /// The model's best plan. Null: it makes none.
  std::function<Result<Proposal>(const Question&, const Settings&)> propose = {};
  /// What it says of any plan. Null: it prices none.
  std::function<Result<Price>(const Question&, const Plan&, const Settings&)> price = {};
  /// The plan that the words say, and its price. Null: the model has no notation.
  std::function<Result<Proposal>(const Question&, const Words&, const Settings&)> written = {};
  /// Every text of the notation; empty where those are too many. Null: they are not listed.
  std::function<std::vector<std::string>(const Workload&)> texts = {};
  /// The text as `texts` writes it. Throws InputError where it is none. Null: as it is.
  std::function<std::string(const Workload&, const std::string&)> canonical = {};
  /// Plans of the space in the model's notation. Null: whoever needs plans redraws the tiles of
  /// one.
  std::function<Result<std::vector<DrawnPlan>>(const Question&, const DrawSpace&, const Settings&)>
      draw = {};
  /// How the model comes to its answer. Null: it says no more than `price`.
  std::function<Explained(const Question&, const ExplainAsked&, const Settings&)> explain = {};
};

// ---- What models and those who ask them share
// ----------------------------------------------------

/// The boundary whose inner level is `level`: "L2/shared".
std::string boundary_into(const Machine& m, LevelId level);
/// {"L1": 1234}, bytes
nlohmann::ordered_json memory_json(const std::map<std::string, Bytes>& memory);
/// How long the bytes take into the level; none where the machine file has no bandwidth.
std::optional<double> seconds_into(const Machine& m, LevelId level, Bytes bytes);
/// A number, or null.
nlohmann::ordered_json or_null(const std::optional<double>& value);

}  // namespace tilewright
