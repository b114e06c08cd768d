#include "motley/search/spmd/study.h"

#include <algorithm>
#include <utility>

namespace motley::search {

Result<SpmdStudy> SpmdStudy::make(const SpmdQuestion& question) {
  SpmdStudy study(question);
  if (question.global_batch % question.micro_batches != 0)
    return tl::make_unexpected(
        synth::accumulate(*question.graph, question.global_batch, question.micro_batches).error());
  std::vector<const graph::ShortGraph*> graphs = {nullptr};
  if (question.depths) graphs = {&question.depths->shorter, &question.depths->searched};
  for (const graph::ShortGraph* graph : graphs) {
    MOTLEY_ASSIGN(Programs programs, study.find_programs(graph));
    study.programs_.push_back(std::move(programs));
  }
  MOTLEY_ASSIGN(study.kinds_,
                DeviceKinds::find(*question.cluster, *question.costs, question.devices));
  study.model_ = question.costs->model(*question.cluster);
  study.choices(std::vector<double>(question.devices.size(), 1.0));
  for (const Estimate estimate : {Estimate::kUsual, Estimate::kLeast, Estimate::kLeastAlone})
    for (const DeviceKind& kind : study.kinds_.all())
      study.whole_[estimate].push_back(study.find_whole_step(kind, estimate));
  return study;
}

Result<SpmdStudy::Programs> SpmdStudy::find_programs(const graph::ShortGraph* shortened) const {
  const SpmdQuestion& question = *question_;
  const graph::Graph& graph = shortened != nullptr ? shortened->graph : *question.graph;
  Programs programs{&graph, shortened, synth::find_rules(graph, question.micro_batch()), {}};
  const std::int64_t turns = question.turns;
  const std::int64_t most =
      std::min(question.micro_batches, turns == 1 ? kPricedMicroBatches : 2 * turns);
  const std::int64_t least = most < question.micro_batches ? most - turns : most;
  for (std::int64_t times = least; question.micro_batches > 1 && times <= most; times += turns) {
    MOTLEY_ASSIGN(synth::Accumulation made,
                  synth::accumulate(graph, question.micro_batch() * times, times,
                                    question.lowering.batch_norm_span));
    programs.accumulations.push_back(std::move(made));
  }
  return programs;
}

WholeStep SpmdStudy::find_whole_step(const DeviceKind& kind, Estimate estimate) {
  SpmdPrices prices = this->prices(space(), {kind.devices[0]}, {1.0}, estimate);
  WholeStep whole;
  for (std::size_t i = 0; i < space().ways.size(); ++i) {
    const OpId op(static_cast<std::int64_t>(i));
    const double count = space().is_needed[i] != 0 ? space().op_count[i] : 0;
    whole.seconds.push_back(count > 0 ? count * prices.compute(op, space().ways[i][0])[0] : 0);
    whole.launch.push_back(count > 0 ? count * prices.launch(op, 0) : 0);
    whole.total += whole.seconds.back();
  }
  return whole;
}

Result<SpmdStudy*> SpmdStudy::whole() {
  const bool takes_turns = question_->turns > 1;
  if (!question_->depths && (takes_turns || question_->micro_batches == 1)) return this;
  if (!whole_study_) {
    auto question = std::make_unique<SpmdQuestion>(*question_);
    question->depths = nullptr;
    if (!takes_turns) question->micro_batches = 1;
    MOTLEY_ASSIGN(SpmdStudy made, make(*question));
    whole_question_ = std::move(question);
    whole_study_ = std::make_unique<SpmdStudy>(std::move(made));
  }
  return whole_study_.get();
}

std::vector<double> SpmdStudy::speeds() const {
  std::vector<double> speeds;
  for (const DeviceId id : question_->devices)
    speeds.push_back(1 / whole_step(kinds_.of(id)).total);
  return speeds;
}

const SpmdChoices& SpmdStudy::choices(const std::vector<double>& shares) {
  for (const auto& known : choices_)
    if (holds_for(known->space, shares)) return *known;
  SpmdSpace space = find_space(graph(), question_->micro_batch(), shares);
  if (question_->depths) {
    space.op_count = question_->depths->searched.op_count;
    space.value_count = question_->depths->searched.value_count;
  }
  count_once(space);
  choices_.push_back(std::make_unique<const SpmdChoices>(graph(), std::move(space)));
  return *choices_.back();
}

/// Counts what a step of several micro-batches has once as 1 / micro_batches: operators without
/// samples, their results, and sums of inputs, which are made for all micro-batches first.
void SpmdStudy::count_once(SpmdSpace& space) const {
  const Programs& programs = programs_.back();
  if (programs.accumulations.empty()) return;
  const synth::Accumulation& made = programs.accumulations.back();
  const double part = 1 / static_cast<double>(question_->micro_batches);
  std::vector<int> copies(graph().ops.size(), 0);
  std::vector<char> is_once(graph().ops.size(), 0);
  for (std::size_t i = 0; i < made.copies.size(); ++i) {
    const synth::Copy& copy = made.copies[i];
    if (copy.of.is_none()) continue;
    ++copies[copy.of.index()];
    const bool is_early = i < made.early;
    // The labels of all micro-batches are counted together.
    const bool counts_labels = synth::is_nll(graph().op(copy.of));
    if (is_early || counts_labels) is_once[copy.of.index()] = 1;
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i] != 1 && is_once[i] == 0) continue;
    space.op_count[i] *= part;
    for (const ValueId output : graph().ops[i].outputs) space.value_count[output.index()] *= part;
  }
}

ExchangeTimes& SpmdStudy::exchanges(const std::vector<DeviceId>& devices) {
  std::unique_ptr<ExchangeTimes>& exchanges = exchanges_[devices];
  if (!exchanges) exchanges = std::make_unique<ExchangeTimes>(*model_, names(devices));
  return *exchanges;
}

SpmdPrices SpmdStudy::prices(const SpmdSpace& space, const std::vector<DeviceId>& devices,
                             std::vector<double> shares, Estimate estimate) {
  return prices(space, exchanges(devices), devices, std::move(shares), estimate);
}

SpmdPrices SpmdStudy::prices(const SpmdSpace& space, ExchangeTimes& exchanges,
                             const std::vector<DeviceId>& devices, std::vector<double> shares,
                             Estimate estimate) {
  SpmdPrices prices(graph(), space, exchanges, kinds_, devices, std::move(shares), estimate);
  if (devices.size() > 1) prices.set_updates(question_->lowering.updates);
  prices.set_bucket(std::max(question_->lowering.bucket_bytes, question_->most_bucket_bytes));
  return prices;
}

std::vector<std::string> SpmdStudy::names(const std::vector<DeviceId>& devices) const {
  std::vector<std::string> names;
  for (const DeviceId id : devices) names.push_back(device(id).name);
  return names;
}

synth::Sharding SpmdStudy::sharding(const SpmdChoices& choices, const std::vector<int>& choice,
                                    const std::vector<DeviceId>& devices,
                                    std::vector<double> shares) const {
  synth::Sharding sharding;
  sharding.devices = names(devices);
  sharding.shares = std::move(shares);
  sharding.micro_batches = question_->micro_batches;
  sharding.turns = question_->turns;
  choices.problem.apply(choice, sharding);
  return sharding;
}

}  // namespace motley::search
