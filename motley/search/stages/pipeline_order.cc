#include "motley/search/stages/pipeline_order.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

namespace motley::search {
namespace {

/// `launch` forwards, then a backward and a forward in turn, then the backwards that are left.
PassOrder launch_order(std::int64_t launch, std::int32_t micro_batches) {
  const auto ahead = static_cast<std::int32_t>(std::min<std::int64_t>(launch, micro_batches));
  PassOrder order;
  for (std::int32_t m = 0; m < ahead; ++m) order.push_back({false, m});
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    order.push_back({true, m});
    if (m + ahead < micro_batches) order.push_back({false, m + ahead});
  }
  return order;
}

/// Runs the pipeline on a clock, each free stage taking what is ready.
class ListRun {
 public:
  ListRun(const PipelineWork& work, std::vector<std::int64_t> most_in_flight)
      : work_(work),
        most_in_flight_(std::move(most_in_flight)),
        count_(work.micro_batches()),
        stages_(work.stages()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].forward_at.assign(static_cast<std::size_t>(count_), s == 0 ? 0 : kNever);
      stages_[s].backward_at.assign(static_cast<std::size_t>(count_), kNever);
    }
  }

  std::vector<PassOrder> run() {
    for (std::size_t s = 0; s < stages_.size(); ++s) events_.emplace(0.0, s);
    while (!events_.empty()) {
      const auto [now, s] = events_.top();
      events_.pop();
      start(s, now);
    }
    std::vector<PassOrder> orders;
    for (Stage& stage : stages_) orders.push_back(std::move(stage.order));
    return orders;
  }

 private:
  static constexpr double kNever = 1e300;
  struct Stage {
    std::int32_t forwards = 0, backwards = 0;  // started
    double free_at = 0;
    std::vector<double> forward_at, backward_at;  // when a micro-batch's input is there
    PassOrder order;
  };

  void start(std::size_t s, double now) {
    Stage& stage = stages_[s];
    if (now < stage.free_at) return;  // an event of its own comes then
    const bool last = s + 1 == stages_.size();
    const auto b = static_cast<std::size_t>(stage.backwards);
    const auto f = static_cast<std::size_t>(stage.forwards);
    if (stage.backwards < stage.forwards && (last || stage.backward_at[b] <= now)) {
      stage.free_at = now + work_.backward[s][b];
      stage.order.push_back({true, stage.backwards++});
      if (s > 0)
        arrive(s - 1, stages_[s - 1].backward_at[b], stage.free_at + work_.gradient[s - 1]);
    } else if (stage.forwards < count_ && stage.forward_at[f] <= now &&
               stage.forwards - stage.backwards < most_in_flight_[s]) {
      stage.free_at = now + work_.forward[s][f];
      stage.order.push_back({false, stage.forwards++});
      if (!last) arrive(s + 1, stages_[s + 1].forward_at[f], stage.free_at + work_.activation[s]);
    } else {
      return;
    }
    events_.emplace(stage.free_at, s);
  }
  void arrive(std::size_t s, double& at, double time) {
    at = time;
    events_.emplace(time, s);
  }

  const PipelineWork& work_;
  std::vector<std::int64_t> most_in_flight_;
  std::int32_t count_;
  std::vector<Stage> stages_;
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
  if (schedule == StageSchedule::kList) return ListRun(work, launch_counts(work, schedule)).run();
  std::vector<PassOrder> orders;
  const std::vector<std::int64_t> launch = launch_counts(work, schedule);
  for (std::size_t s = 0; s < work.stages(); ++s)
    orders.push_back(
        launch_order(schedule == StageSchedule::kGPipe ? work.micro_batches() : launch[s],
                     work.micro_batches()));
  return orders;
}

std::int64_t in_flight(const PassOrder& order) {
  std::int64_t now = 0, most = 0;
  for (const StagePass& pass : order) {
    now += pass.is_backward ? -1 : 1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace motley::search
