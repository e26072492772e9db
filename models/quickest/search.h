// Trees with holes, and the steps that fill them: descent along one loop after another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.h"

namespace tilewright::quickest {

/// A loop of the tree whose step is searched for, or another number of the kernel.
struct Variable {
  std::string loop;
  std::vector<std::int64_t> steps;  ///< to try, in order of size
  std::size_t at = 0;
  std::int64_t step() const { return steps[at]; }
};

/// The place of the step nearest to a size.
inline std::size_t nearest_step(const std::vector<std::int64_t>& steps, std::int64_t size) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (std::abs(steps[i] - size) < std::abs(steps[best] - size)) best = i;
  return best;
}

/// A tree with holes: steps are those of the variables.
struct Form {
  std::vector<Variable> variables;
  std::function<Kernel(const std::vector<Variable>&)> kernel;
};

inline Node nest(const std::vector<std::pair<const Variable*, Binding>>& loops, Node body) {
  for (auto l = loops.rbegin(); l != loops.rend(); ++l)
    body = loop(l->first->loop, std::move(body), l->first->step(), l->second);
  return body;
}

/// Prices kernels of forms, each once, at most `effort` of them. `Found` has `seconds`.
template <class Found>
class Descent {
 public:
  Descent(std::function<std::optional<Found>(Kernel)> priced, int effort)
      : priced_(std::move(priced)), left_(effort) {}

  /// Every kernel of the forms where they are few enough; else every form once as it begins, those
  /// within three times the best further. Fastest first.
  std::vector<Found> all_or_run(std::vector<Form>& forms) {
    std::size_t count = 0;
    for (const Form& f : forms) {
      std::size_t own = 1;
      for (const Variable& v : f.variables) own *= v.steps.size();
      count += own;
    }
    if (std::cmp_greater(count, left_)) return run(forms);
    for (Form& f : forms) every(f, 0);
    std::ranges::stable_sort(found_, {}, &Found::seconds);
    return std::move(found_);
  }

  /// Every form once as it begins, those within three times the best further. Fastest first.
  std::vector<Found> run(std::vector<Form>& forms) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t f = 0; f < forms.size() && left_ > 0; ++f)
      if (const auto seconds = price(forms[f])) order.emplace_back(*seconds, f);
    std::ranges::sort(order);
    for (const auto& [seconds, f] : order) {
      if (left_ <= 0 || seconds > 3 * order.front().first) break;
      descend(forms[f], seconds);
    }
    std::ranges::stable_sort(found_, {}, &Found::seconds);
    return std::move(found_);
  }

  /// Every form once as it begins, and of a third of the effort places drawn from all of them (the
  /// same in each search); the fastest of these further. For loops that must move together: along
  /// one after the other a descent soon ends. Fastest first.
  std::vector<Found> sampled(std::vector<Form>& forms) {
    std::vector<Place> places;
    for (std::size_t f = 0; f < forms.size() && left_ > 0; ++f) note(forms, f, places);
    std::minstd_rand draw(1);
    for (int draws = left_ / 3; draws > 0 && left_ > 0 && !forms.empty(); --draws) {
      const std::size_t f = draw() % forms.size();
      for (Variable& v : forms[f].variables) v.at = draw() % v.steps.size();
      note(forms, f, places);
    }
    std::ranges::stable_sort(places, {}, &Place::seconds);
    for (const Place& p : places) {
      if (left_ <= 0 || p.seconds > 3 * places.front().seconds) break;
      for (std::size_t v = 0; v < p.at.size(); ++v) forms[p.form].variables[v].at = p.at[v];
      descend(forms[p.form], p.seconds);
    }
    std::ranges::stable_sort(found_, {}, &Found::seconds);
    return std::move(found_);
  }

 private:
  /// A form with its variables' steps, priced.
  struct Place {
    double seconds;
    std::size_t form;
    std::vector<std::size_t> at;
  };
  void note(const std::vector<Form>& forms, std::size_t f, std::vector<Place>& places) {
    const auto seconds = price(forms[f]);
    if (!seconds) return;
    places.push_back({*seconds, f, {}});
    for (const Variable& v : forms[f].variables) places.back().at.push_back(v.at);
  }

  void every(Form& f, std::size_t v) {
    if (v == f.variables.size()) return void(price(f));
    for (f.variables[v].at = 0; f.variables[v].at < f.variables[v].steps.size();
         ++f.variables[v].at)
      every(f, v + 1);
    f.variables[v].at = 0;
  }

  std::optional<double> price(const Form& f) {
    Kernel kernel = f.kernel(f.variables);
    std::string text = to_text(kernel.tree);
    text += ' ' + std::to_string(kernel.launch.warps.value_or(0)) + ' ' +
            std::to_string(kernel.launch.stages.value_or(0)) + ' ' +
            std::to_string(kernel.launch.cluster.value_or(0));
    if (!seen_.insert(std::move(text)).second) return std::nullopt;
    --left_;
    auto choice = priced_(std::move(kernel));
    if (!choice) return std::nullopt;
    found_.push_back(std::move(*choice));
    return found_.back().seconds;
  }

  /// Along one loop after the other, until no other step of any is better.
  void descend(Form& f, double best) {
    for (bool better = true; better && left_ > 0;) {
      better = false;
      for (std::size_t v = 0; v < f.variables.size() && left_ > 0; ++v) {
        Variable& x = f.variables[v];
        const std::size_t from = x.at;
        std::size_t at = from;
        for (const int way : {1, -1})
          for (std::size_t next = from, tries = 0; tries < 3 && left_ > 0; ++tries) {
            if (way < 0 ? next == 0 : next + 1 == x.steps.size()) break;
            next = way < 0 ? next - 1 : next + 1;
            x.at = next;
            const auto seconds = price(f);
            if (seconds && *seconds < best) best = *seconds, at = next, better = true;
          }
        x.at = at;
      }
    }
  }

  std::function<std::optional<Found>(Kernel)> priced_;
  int left_;
  std::set<std::string> seen_;
  std::vector<Found> found_;
};

}  // namespace tilewright::quickest
