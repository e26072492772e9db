// How verbs ask models: a question, settings and words out of a request.
#pragma once

#include "harness/registry.h"

namespace tilewright::harness {

/// What the request asks of the model. Throws InputError for a level that is not there, for
/// --level all of a model that plans for one, and for a capacity or target that is none.
Question question_of(const Request& request, const Setting& setting, const Model& model);
/// The model's settings out of the request's options. Throws InputError naming the option.
Settings settings_of(const Request& request, const Model& model);
/// The same with one option set, where the model has it and the request does not give it.
Settings settings_with(const Request& request, const Model& model, const std::string& option,
                       const std::string& value, bool over_given = false);
/// The request's words in the model's notation: the text of its option, and --tiles.
Words words_of(const Request& request, const Model& model, const Workload& w);
/// The model in whose notation the request says a plan; null: it says none.
const Model* notation_of(const Request& request);

/// Throws InputError where the request has pins or flags, or (where `tiles`) tiles, beside no words
/// that they belong to.
void refuse_words(const Request& request, bool tiles);

/// The model's best plan. A Reason where it finds none, or makes none.
Result<Proposal> propose(const Model& model, const Request& request, const Setting& setting);
/// What the model says of a plan of the setting's workload.
Result<Price> price(const Model& model, const Request& request, const Setting& setting,
                    const Plan& plan);
/// The plan that a request says: its file, its tree, the words of a model's notation, or the best
/// plan of planner_for(). A model may have planned for a rewritten workload: then that is the
/// setting's from now on. A Reason where the words have no plan or the model finds none; throws
/// InputError where the model makes none.
Result<Proposal> proposal_of(const Request& request, Setting& setting);

/// What `predict` answers by this model: of the plan that the request says, else of the model's
/// own.
Answer predicted(const Model& model, const Request& request, Setting setting);

/// Whether a plan may bring tiles to several levels of the machine's chip.
bool several_levels(const Machine& machine);

}  // namespace tilewright::harness
