#include "motley/search/stages/pipeline_order.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

namespace motley::search {
namespace {

/// `launch` forwards, then a backward and a forward in turn, then the backwards that are left.
PassOrder launch_order(std::int64_t launch, std::int32_t micro_batches, std::int32_t stage) {
  const auto ahead = static_cast<std::int32_t>(std::min<std::int64_t>(launch, micro_batches));
  PassOrder order;
  for (std::int32_t m = 0; m < ahead; ++m) order.push_back({false, m, stage});
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    order.push_back({true, m, stage});
    if (m + ahead < micro_batches) order.push_back({false, m + ahead, stage});
  }
  return order;
}

/// Has a seat several stages? A list needs room for one micro-batch in each then: the lowest that
/// is under way may always go on.
bool has_several(const PipelineWork& work) {
  for (std::size_t s = 0; s < work.seats.size(); ++s)
    if (work.seats[s] != s) return true;
  return false;
}

/// Runs the pipeline on a clock, each free seat taking what is ready.
class ListRun {
 public:
  ListRun(const PipelineWork& work, std::vector<std::int64_t> most_in_flight)
      : work_(work),
        most_in_flight_(std::move(most_in_flight)),
        count_(work.micro_batches()),
        takes_turns_(has_several(work)),
        stages_(work.stages()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].forward_at.assign(static_cast<std::size_t>(count_), s == 0 ? 0 : kNever);
      stages_[s].backward_at.assign(static_cast<std::size_t>(count_), kNever);
      if (work.seats[s] >= seats_.size()) seats_.resize(work.seats[s] + 1);
      seats_[work.seats[s]].stages.push_back(s);
    }
  }

  std::vector<PassOrder> run() {
    for (std::size_t seat = 0; seat < seats_.size(); ++seat) events_.emplace(0.0, seat);
    while (!events_.empty()) {
      const auto [now, seat] = events_.top();
      events_.pop();
      if (now < seats_[seat].free_at) continue;  // an event of its own comes then
      if (const auto pass = choose(seats_[seat], now)) start(seats_[seat], *pass, now);
    }
    std::vector<PassOrder> orders;
    for (Seat& seat : seats_) orders.push_back(std::move(seat.order));
    return orders;
  }

 private:
  static constexpr double kNever = 1e300;
  struct Stage {
    std::int32_t forwards = 0, backwards = 0;     // started
    std::vector<double> forward_at, backward_at;  // when a micro-batch's input is there
  };
  struct Seat {
    std::vector<std::size_t> stages;
    double free_at = 0;
    PassOrder order;
  };

  bool is_last(std::size_t s) const { return s + 1 == stages_.size(); }

  std::optional<StagePass> choose(const Seat& seat, double now) const {
    std::optional<StagePass> best;
    for (const std::size_t s : seat.stages)
      for (const bool is_backward : {true, false}) {
        const Stage& stage = stages_[s];
        const std::int32_t micro = is_backward ? stage.backwards : stage.forwards;
        const auto m = static_cast<std::size_t>(micro);
        const bool is_ready =
            is_backward
                ? stage.backwards < stage.forwards && (is_last(s) || stage.backward_at[m] <= now)
                : stage.forwards < count_ && stage.forward_at[m] <= now &&
                      stage.forwards - stage.backwards < most_in_flight_[s];
        if (!is_ready) continue;
        const StagePass pass{is_backward, micro, static_cast<std::int32_t>(s)};
        if (!best || urgency(pass) < urgency(*best)) best = pass;
      }
    return best;
  }

  /// Least first. Backward, where each seat has one stage.
  std::tuple<int, std::int32_t, std::int32_t> urgency(const StagePass& pass) const {
    if (!takes_turns_) return {pass.is_backward ? 0 : 1, 0, 0};
    const auto turn = static_cast<std::int32_t>(seats_.size());
    return {pass.is_backward ? 1 : 0, pass.micro / turn,
            pass.is_backward ? -pass.stage : pass.stage};
  }

  void start(Seat& seat, const StagePass& pass, double now) {
    const auto s = static_cast<std::size_t>(pass.stage), m = static_cast<std::size_t>(pass.micro);
    const bool goes_on = pass.is_backward ? s > 0 : !is_last(s);
    seat.free_at = now + (pass.is_backward ? work_.backward : work_.forward)[s][m];
    seat.order.push_back(pass);
    ++(pass.is_backward ? stages_[s].backwards : stages_[s].forwards);
    events_.emplace(seat.free_at, work_.seats[s]);
    if (!goes_on) return;
    const std::size_t to = pass.is_backward ? s - 1 : s + 1;
    const double arrives =
        seat.free_at + (pass.is_backward ? work_.gradient[s - 1] : work_.activation[s]);
    (pass.is_backward ? stages_[to].backward_at : stages_[to].forward_at)[m] = arrives;
    events_.emplace(arrives, work_.seats[to]);
  }

  const PipelineWork& work_;
  std::vector<std::int64_t> most_in_flight_;
  std::int32_t count_;
  bool takes_turns_;  // seats have several stages
  std::vector<Stage> stages_;
  std::vector<Seat> seats_;
  using Event = std::pair<double, std::size_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::vector<std::int64_t> launch_counts(const PipelineWork& work, StageSchedule schedule) {
  const std::size_t stages = work.stages();
  double slowest = 0;
  for (std::size_t s = 0; s < stages; ++s)
    slowest = std::max(slowest, work.forward[s][0] + work.backward[s][0]);
  std::vector<std::int64_t> launch(
      stages, schedule == StageSchedule::kWide || schedule == StageSchedule::kList ? 2 : 1);
  for (std::size_t s = stages - 1; s-- > 0;) {
    const double message = std::max(work.activation[s], work.gradient[s]);
    const int step = message < slowest / 10 ? 1 : message < slowest / 2 ? 2 : 3;
    const bool is_wide = schedule == StageSchedule::kWide || schedule == StageSchedule::kList;
    launch[s] = launch[s + 1] + (schedule == StageSchedule::kH1F1B ? step : is_wide ? 2 : 1);
  }
  if (has_several(work)) {
    for (std::size_t s = 0; s < stages; ++s)
      launch[s] = std::max<std::int64_t>(1, std::min(launch[s], work.most_in_flight[s]));
    return launch;
  }
  // A stage starts fewer than the one before it, which else waits for it and it for that.
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (std::size_t s = 0; s < stages; ++s) {
    const auto plain = static_cast<std::int64_t>(stages - s);
    launch[s] = std::max(plain, std::min({launch[s], work.most_in_flight[s], most}));
    most = launch[s] - 1;
  }
  return launch;
}

std::vector<PassOrder> order_passes(const PipelineWork& work, StageSchedule schedule) {
  if (schedule == StageSchedule::kDeepList) return ListRun(work, work.most_in_flight).run();
  if (schedule == StageSchedule::kList || schedule == StageSchedule::kInterleaved)
    return ListRun(work, launch_counts(work, schedule)).run();
  std::vector<PassOrder> orders;
  const std::vector<std::int64_t> launch = launch_counts(work, schedule);
  for (std::size_t s = 0; s < work.stages(); ++s)
    orders.push_back(
        launch_order(schedule == StageSchedule::kGPipe ? work.micro_batches() : launch[s],
                     work.micro_batches(), static_cast<std::int32_t>(s)));
  return orders;
}

std::int64_t in_flight(const PassOrder& order, std::size_t stage) {
  std::int64_t now = 0, most = 0;
  for (const StagePass& pass : order) {
    if (static_cast<std::size_t>(pass.stage) != stage) continue;
    now += pass.is_backward ? -1 : 1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace motley::search
