#include "motley/control/survey/link_survey.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "motley/base/check.h"
#include "motley/base/random.h"

namespace motley::control {
namespace {

constexpr std::size_t kDrawn = 8;  // random pairs
constexpr std::uint64_t kSeed = 0x6d6f746c6579;
constexpr int kDisturbed = 2;  // pairs that prove it
constexpr double kLow = 0.9;   // of the flows' rates alone

}  // namespace

LinkSurvey::LinkSurvey(std::size_t hosts) : best_(hosts) { wires_.hosts = hosts; }

void LinkSurvey::want(std::size_t a, std::size_t b) {
  const Pair pair = std::minmax(a, b);
  if (a != b && !measured_.contains(pair)) pending_.push_back(pair);
}

/// Adds all pairs in rounds of a tournament: the first host stays, the others rotate.
void LinkSurvey::want_all(const std::vector<std::size_t>& hosts) {
  constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  std::vector<std::size_t> seats = hosts;
  if (seats.size() % 2 == 1) seats.push_back(kNobody);
  for (std::size_t round = 0; round + 1 < seats.size(); ++round) {
    for (std::size_t i = 0; i < seats.size() / 2; ++i)
      if (const std::size_t a = seats[i], b = seats[seats.size() - 1 - i];
          a != kNobody && b != kNobody)
        want(a, b);
    std::rotate(seats.begin() + 1, seats.end() - 1, seats.end());
  }
}

void LinkSurvey::draw_pairs() {
  has_drawn_ = true;
  SplitMix64 random(kSeed);
  for (std::size_t i = 0; i < kDrawn; ++i) {
    const std::size_t a = random.below(wires_.hosts), b = random.below(wires_.hosts);
    if (std::find(pending_.begin(), pending_.end(), Pair(std::minmax(a, b))) == pending_.end())
      want(a, b);
  }
}

void LinkSurvey::want_pairs() {
  std::vector<std::size_t> firsts(wires_.hosts);
  std::iota(firsts.begin(), firsts.end(), 0);
  if (wires_.hosts > kMostPaired) {
    firsts.clear();
    for (const auto& group : find_groups(Joints(wires_))) {
      firsts.push_back(group.front());
      for (std::size_t witness = 0; witness < std::min<std::size_t>(2, group.size()); ++witness)
        for (std::size_t i = witness + 1; i < group.size(); ++i) want(group[witness], group[i]);
      if (!pending_.empty()) return;  // their results may change the groups
    }
  }
  want_all(firsts);
  if (pending_.empty() && !has_drawn_ && wires_.hosts > kMostPaired) draw_pairs();
}

std::optional<LinkSurvey::Batch> LinkSurvey::next() {
  if (wires_.hosts < 2) return std::nullopt;
  if (pending_.empty() && doubtful_.empty()) want_pairs();
  if (auto batch = next_pairs()) return batch;
  return next_load();
}

std::optional<LinkSurvey::Batch> LinkSurvey::next_pairs() {
  const auto flow_of = [](const Pair& pair) { return WireFlow{pair.first, pair.second}; };
  if (!doubtful_.empty()) return Batch{Batch::What::kPairs, {flow_of(doubtful_.front().first)}};
  if (pending_.empty()) return std::nullopt;
  Batch batch{Batch::What::kPairs, {}};
  std::set<std::size_t> busy;
  for (const Pair& pair : pending_) {
    const bool is_known = known_.contains(pair.first) && known_.contains(pair.second);
    if (!batch.flows.empty() && !is_known) continue;
    if (busy.contains(pair.first) || busy.contains(pair.second)) continue;
    batch.flows.push_back(flow_of(pair));
    if (!is_known || disturbed_ >= kDisturbed) break;
    busy.insert({pair.first, pair.second});
  }
  return batch;
}

std::optional<LinkSurvey::Batch> LinkSurvey::next_load() {
  for (const std::vector<WireFlow>& flows : find_loads(wires_)) {
    const bool is_done = std::any_of(wires_.loads.begin(), wires_.loads.end(),
                                     [&](const Load& load) { return load.flows == flows; });
    if (!is_done) return Batch{Batch::What::kTogether, flows};
  }
  return std::nullopt;
}

void LinkSurvey::keep(const Wire& there, const Wire& back) {
  measured_.insert(std::minmax(there.flow.from, there.flow.to));
  wires_.alone.push_back(there);
  wires_.alone.push_back(back);
  const BytesPerSecond rate = std::min(there.bandwidth, back.bandwidth);
  for (const std::size_t host : {there.flow.from, there.flow.to})
    best_[host] = std::max(best_[host], rate);
}

void LinkSurvey::take(const Batch& batch, const std::vector<Wire>& measured) {
  if (batch.what == Batch::What::kTogether) {
    Load load{batch.flows, {}};
    for (const Wire& wire : measured) load.rates.push_back(wire.bandwidth);
    return take_load(std::move(load));
  }
  MOTLEY_CHECK(measured.size() == 2 * batch.flows.size());
  const How how = batch.flows.size() == 1 ? How::kAlone : How::kBeside;
  for (std::size_t i = 0; i < batch.flows.size(); ++i)
    take_pair(measured[2 * i], measured[2 * i + 1], how);
}

void LinkSurvey::take_pair(const Wire& there, const Wire& back, How how) {
  const Pair pair = std::minmax(there.flow.from, there.flow.to);
  const BytesPerSecond rate = std::min(there.bandwidth, back.bandwidth);
  std::erase(pending_, pair);
  if (how == How::kBeside) {
    if (are_identical(rate, std::min(best_[pair.first], best_[pair.second])))
      return keep(there, back);
    doubtful_.emplace_back(pair, rate);
    return;
  }
  known_.insert({pair.first, pair.second});
  const auto doubted = std::find_if(doubtful_.begin(), doubtful_.end(),
                                    [&](const auto& each) { return each.first == pair; });
  if (doubted != doubtful_.end()) {
    disturbed_ += rate > doubted->second && !are_identical(rate, doubted->second) ? 1 : 0;
    doubtful_.erase(doubted);
  }
  keep(there, back);
}

void LinkSurvey::take_load(Load load) {
  const auto before = std::find_if(low_.begin(), low_.end(),
                                   [&](const Load& low) { return low.flows == load.flows; });
  if (before == low_.end() && is_low(load)) {
    low_.push_back(std::move(load));
    return;
  }
  const bool was_more = before != low_.end() && before->sum() > load.sum();
  wires_.loads.push_back(was_more ? *before : std::move(load));
}

/// Is the load below its expected sum? Several flows of one host are expected to share one's rate.
bool LinkSurvey::is_low(const Load& load) const {
  const Joints joints(wires_);
  double sum = 0, most = 0;
  std::set<std::size_t> from, to;
  for (const WireFlow& flow : load.flows) {
    const Joint* joint = joints.find(flow.from, flow.to);
    const double rate = joint != nullptr ? joint->bandwidth.value
                                         : std::min(best_[flow.from], best_[flow.to]).value;
    sum += rate;
    most = std::max(most, rate);
    from.insert(flow.from);
    to.insert(flow.to);
  }
  const bool is_of_one_host = from.size() == 1 || to.size() == 1;
  return load.sum() < kLow * (is_of_one_host ? most : sum);
}

}  // namespace motley::control
