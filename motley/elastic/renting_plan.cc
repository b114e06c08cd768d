#include "motley/elastic/renting_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::elastic {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kNotAllowed = std::numeric_limits<double>::infinity();

double chance(double rate, double time) { return -std::expm1(-rate * time); }

}  // namespace

bool is_safe(const RentingTerms& terms, Seconds slack, Holding now, Holding next) {
  if (next == Holding::kOnDemand) return true;
  const bool keeps = next == now && next == Holding::kSpot;
  const Seconds needed = terms.change_over + (keeps ? Seconds(0) : terms.tick);
  const Seconds starting = next == Holding::kSpot && !keeps
                               ? std::max(terms.change_over - terms.tick, Seconds(0))
                               : Seconds(0);
  return slack >= needed + starting - Seconds(1e-6);
}

RentingPlan::RentingPlan(const RentingTerms& terms, const SpotBelief& belief, Seconds work,
                         Seconds slack)
    : terms_(terms), belief_(belief) {
  const auto most = static_cast<double>(kMostCells);
  slack = std::min(slack, work + terms.change_over * 4);  // more makes no difference
  cell_ = std::max(std::max(work, slack).value / most, terms.tick.value);
  change_ = terms.change_over.value / cell_;
  spot_ = terms.spot_per_hour / 3600 * cell_;
  on_demand_ = terms.on_demand_per_hour / 3600 * cell_;
  slacks_ = static_cast<std::size_t>(std::ceil(slack.value / cell_)) + 1;
  const std::size_t pieces = belief.hazard.ages.size();
  for (std::size_t i = 0; i < pieces; ++i) {
    gone_.push_back(chance(belief.hazard.per_second[i], cell_));
    const double length = i + 1 < pieces ? (belief.hazard.ages[i + 1] - belief.hazard.ages[i]).value
                                         : std::numeric_limits<double>::infinity();
    older_.push_back(std::min(1.0, cell_ / length));
  }
  returns_ = chance(belief.returns_per_second, cell_);
  const auto works = static_cast<std::size_t>(std::ceil(work.value / cell_)) + 1;
  const Row done{std::vector<double>((1 + pieces) * slacks_, 0),
                 std::vector<double>((1 + pieces) * slacks_, 0),
                 std::vector<double>(pieces * slacks_, 0)};
  rows_.push_back(done);
  while (rows_.size() < works) {
    Row row = done;
    fill(rows_.back(), static_cast<double>(rows_.size()), row);
    rows_.push_back(std::move(row));
  }
}

double RentingPlan::at(const std::vector<double>& of, std::size_t state, double slack) const {
  slack = std::clamp(slack, 0.0, static_cast<double>(slacks_ - 1));
  const auto low = static_cast<std::size_t>(slack);
  const double part = slack - static_cast<double>(low);
  const double* const values = of.data() + state * slacks_;
  return part == 0 ? values[low] : (1 - part) * values[low] + part * values[low + 1];
}

/// Returns the cost a cell later without rented spot machines, which come and go meanwhile.
double RentingPlan::after(const std::vector<double>& of, std::size_t state, double slack) const {
  if (state == 0) return (1 - returns_) * at(of, 0, slack) + returns_ * at(of, 1, slack);
  const std::size_t piece = state - 1;
  double there = at(of, state, slack);
  if (older_[piece] > 0)
    there = (1 - older_[piece]) * there + older_[piece] * at(of, state + 1, slack);
  return (1 - gone_[piece]) * there + gone_[piece] * at(of, 0, slack);
}

/// Returns costs with nothing rented. Filled: `spot`, `on_demand` to this slack, `idle` below.
RentingPlan::Options RentingPlan::options(const Row& row, std::size_t state, double slack,
                                          double work) const {
  Options options{kNotAllowed, kNotAllowed, kNotAllowed};
  options.on_demand = slack <= change_
                          ? (change_ + work) * on_demand_
                          : change_ * on_demand_ + at(row.on_demand, state, slack - change_);
  if (slack >= change_ + 1) options.wait = after(row.idle, state, slack - 1);
  if (state > 0 && slack >= 2 * change_) {
    const double lost = chance(belief_.hazard.per_second[state - 1], change_ * cell_);
    // Lost while starting: as with nothing, at a slack that is already filled.
    const double again = at(row.idle, 0, std::min(slack - change_, std::ceil(slack) - 1));
    options.spot =
        change_ * spot_ + (1 - lost) * at(row.spot, state - 1, slack - change_) + lost * again;
  }
  return options;
}

void RentingPlan::fill(const Row& below, double work, Row& row) const {
  const std::size_t states = 1 + gone_.size();
  for (std::size_t s = 0; s < slacks_; ++s) {
    const auto slack = static_cast<double>(s);
    for (std::size_t piece = 0; piece + 1 < states; ++piece) {
      const double next = at(below.spot, piece, slack);
      const double older =
          older_[piece] > 0 ? at(below.spot, std::min(piece + 1, states - 2), slack) : next;
      const double there = (1 - older_[piece]) * next + older_[piece] * older;
      row.spot[piece * slacks_ + s] =
          spot_ + (1 - gone_[piece]) * there + gone_[piece] * at(below.idle, 0, slack);
    }
    for (std::size_t state = 0; state < states; ++state)
      row.on_demand[state * slacks_ + s] = on_demand_ + after(below.on_demand, state, slack);
    for (std::size_t state = 0; state < states; ++state) {
      const Options nothing = options(row, state, slack, work);
      // Giving on-demand machines back has the cost of nothing rented.
      double& kept = row.on_demand[state * slacks_ + s];
      kept = std::min({kept, nothing.wait, nothing.spot});
      row.idle[state * slacks_ + s] = std::min({nothing.wait, nothing.spot, nothing.on_demand});
    }
  }
}

std::size_t RentingPlan::state_of(const Place& place) const {
  return place.is_there ? 1 + piece_of(belief_.hazard.ages, place.age) : 0;
}

double RentingPlan::cost(const Place& place) const {
  if (!(place.work.value > 0)) return 0;
  const double work =
      std::min(std::ceil(place.work.value / cell_), static_cast<double>(rows_.size() - 1));
  const double slack = std::max(0.0, place.slack.value / cell_);
  const Row& row = rows_[static_cast<std::size_t>(work)];
  const std::size_t state = state_of(place);
  if (place.holding == Holding::kSpot && state > 0) return at(row.spot, state - 1, slack);
  return at(place.holding == Holding::kOnDemand ? row.on_demand : row.idle, state, slack);
}

Holding RentingPlan::best(const Place& place) const {
  if (!(place.work.value > 0)) return Holding::kNothing;
  const std::size_t state = state_of(place);
  if (place.holding == Holding::kSpot && state > 0) return Holding::kSpot;
  const double work =
      std::clamp(std::ceil(place.work.value / cell_), 1.0, static_cast<double>(rows_.size() - 1));
  const double slack = std::clamp(place.slack.value / cell_, 0.0, static_cast<double>(slacks_ - 1));
  const Row& row = rows_[static_cast<std::size_t>(work)];
  Options options = this->options(row, state, slack, work);
  if (place.holding == Holding::kOnDemand)
    options.on_demand =
        on_demand_ + after(rows_[static_cast<std::size_t>(work) - 1].on_demand, state, slack);
  // Rounding must not decide between equal costs now and later.
  const double spot = options.spot * (1 - kRounding);
  if (spot <= options.wait && spot <= options.on_demand) return Holding::kSpot;
  return options.wait <= options.on_demand ? Holding::kNothing : Holding::kOnDemand;
}

}  // namespace motley::elastic
