#include "motley/synth/stages/stage_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "motley/base/check.h"

namespace motley::synth {
namespace {

class ListScheduler {
 public:
  ListScheduler(const std::vector<StageTask>& tasks, const std::vector<TaskPlace>& regions)
      : tasks_(tasks), regions_(regions), ends_(tasks.size(), 0), absent_(tasks.size(), 0) {
    followers_.resize(tasks.size());
    for (const TaskPlace& region : regions)
      for (const std::size_t device : region.devices)
        free_.resize(std::max(free_.size(), device + 1), 0);
    progress_.resize(regions.size());
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      MicroBatch& micro_batch = progress_[tasks[t].region].micro_batches[tasks[t].micro_batch];
      ++micro_batch.left;
      micro_batches_.push_back(&micro_batch);
      absent_[t] = tasks[t].needs.size();
      for (const std::size_t need : tasks[t].needs) followers_[need].push_back(t);
      if (absent_[t] == 0) ready_.push_back(t);
    }
    for (RegionProgress& region : progress_) region.next = region.micro_batches.begin();
  }

  std::vector<OrderedTask> run() {
    std::vector<OrderedTask> order;
    for (std::size_t done = 0; done < tasks_.size();) {
      order.push_back(begin(choose()));
      done += order.back().tasks.size();
    }
    // One may be chosen before another that begins earlier elsewhere.
    std::stable_sort(order.begin(), order.end(),
                     [](const OrderedTask& a, const OrderedTask& b) { return a.begin < b.begin; });
    return order;
  }

 private:
  struct MicroBatch {
    std::size_t left = 0;  ///< tasks that have not ended
    bool has_begun = false;
  };
  struct RegionProgress {
    std::map<std::size_t, MicroBatch> micro_batches;
    std::map<std::size_t, MicroBatch>::const_iterator next;  ///< the first that has not begun
    std::int64_t under_way = 0;
    double has_room = 0;  ///< from when on the next may begin
  };

  /// Never nothing: a task begins behind those that it needs.
  double length(std::size_t task) const { return std::max(tasks_[task].work, 1e-9); }

  /// Least first.
  static int pass_urgency(StageTask::Pass pass) {
    if (pass == StageTask::Pass::kBackward) return 0;
    return pass == StageTask::Pass::kForward ? 1 : 2;
  }
  /// The same where devices have several regions in turns.
  static int turn_urgency(StageTask::Pass pass) {
    if (pass == StageTask::Pass::kForward) return 0;
    return pass == StageTask::Pass::kBackward ? 1 : 2;
  }

  bool has_begun(std::size_t t) const { return micro_batches_[t]->has_begun; }

  /// `more` than `ahead` may be under way.
  bool may_begin(std::size_t t, std::int64_t more = 0) const {
    const StageTask& task = tasks_[t];
    const RegionProgress& here = progress_[task.region];
    return has_begun(t) ||
           (here.next->first == task.micro_batch &&
            here.under_way < std::max<std::int64_t>(regions_[task.region].ahead, 1) + more);
  }

  double earliest(std::size_t t) const {
    const StageTask& task = tasks_[t];
    return std::max(has_begun(t) ? 0 : progress_[task.region].has_room, is_there(t));
  }

  /// When what it needs is there, and its devices.
  double is_there(std::size_t t) const {
    const StageTask& task = tasks_[t];
    double time = 0;
    for (const std::size_t need : task.needs) {
      const bool is_apart = tasks_[need].region != task.region;
      time = std::max(time, ends_[need] + (is_apart ? regions_[task.region].lag : 0));
    }
    for (const std::size_t device : regions_[task.region].devices)
      time = std::max(time, free_[device]);
    return time;
  }

  /// By region when its next micro-batch can begin, if that is known and there is room for it.
  std::vector<double> next_begins() const {
    std::vector<double> begins(progress_.size(), std::numeric_limits<double>::infinity());
    for (const std::size_t t : ready_)
      if (!has_begun(t) && may_begin(t))
        begins[tasks_[t].region] = std::min(begins[tasks_[t].region], earliest(t));
    return begins;
  }

  /// What begins first of tasks that can at once; the least.
  struct Urgency {
    std::size_t turn;
    int pass;
    std::size_t region, micro_batch, task;
    auto operator<=>(const Urgency&) const = default;
  };
  Urgency urgency(std::size_t t) const {
    const StageTask& task = tasks_[t];
    const std::size_t turn = regions_[task.region].turn;
    if (turn == 0) return {0, pass_urgency(task.pass), 0, task.micro_batch, t};
    const std::size_t first = progress_[task.region].micro_batches.begin()->first;
    const bool is_forward = task.pass == StageTask::Pass::kForward;
    return {(task.micro_batch - first) / turn, 0,
            is_forward ? task.region : regions_.size() - task.region, task.micro_batch, t};
  }

  std::size_t choose() const {
    const std::vector<double> begins = next_begins();
    std::size_t best = tasks_.size();
    std::tuple<double, int, Urgency> least;
    for (const std::size_t t : ready_) {
      const StageTask& task = tasks_[t];
      if (!may_begin(t)) continue;
      const double time = earliest(t);
      if (best < tasks_.size() && time > std::get<double>(least)) continue;
      const bool is_backward = task.pass == StageTask::Pass::kBackward;
      const bool takes_turns = regions_[task.region].turn > 0;
      if (!takes_turns && !regions_[task.region].pairs && is_backward && has_begun(t) &&
          begins[task.region] < time + length(t))
        continue;
      const int direction = takes_turns ? turn_urgency(task.pass) : 0;
      const std::tuple key(time, direction, urgency(t));
      if (best < tasks_.size() && least <= key) continue;
      best = t;
      least = key;
    }
    // The lowest micro-batch that is not over may always go on.
    MOTLEY_CHECK(best < tasks_.size());
    return best;
  }

  /// The chosen task, and one that is done together with it, if its region does so.
  OrderedTask begin(std::size_t chosen) {
    OrderedTask made{{chosen}, earliest(chosen), 0};
    if (const std::optional<std::size_t> other = find_other(chosen, made.begin)) {
      made.begin = std::max(made.begin, is_there(*other));
      const bool is_forward = tasks_[*other].pass == StageTask::Pass::kForward;
      made.tasks.insert(is_forward ? made.tasks.begin() : made.tasks.end(), *other);
    }
    made.end = made.begin;
    for (const std::size_t task : made.tasks) made.end += length(task);
    for (const std::size_t task : made.tasks) start(task, made.end);
    return made;
  }

  /// Of the other direction, of another micro-batch, the first that can begin before the chosen
  /// one would be over. Beside a backward task one more may be under way.
  std::optional<std::size_t> find_other(std::size_t chosen, double time) const {
    const StageTask& task = tasks_[chosen];
    const auto wanted = task.pass == StageTask::Pass::kForward    ? StageTask::Pass::kBackward
                        : task.pass == StageTask::Pass::kBackward ? StageTask::Pass::kForward
                                                                  : StageTask::Pass::kWeights;
    if (!regions_[task.region].pairs || wanted == StageTask::Pass::kWeights) return std::nullopt;
    std::optional<std::size_t> best;
    std::tuple<double, std::size_t, std::size_t> least;
    for (const std::size_t t : ready_) {
      const StageTask& other = tasks_[t];
      if (other.region != task.region || other.pass != wanted ||
          other.micro_batch == task.micro_batch || !may_begin(t, 1))
        continue;
      const std::tuple key(is_there(t), other.micro_batch, t);
      if (std::get<double>(key) >= time + length(chosen) || (best && least <= key)) continue;
      best = t;
      least = key;
    }
    return best;
  }

  void start(std::size_t chosen, double end) {
    const StageTask& task = tasks_[chosen];
    ends_[chosen] = end;
    for (const std::size_t device : regions_[task.region].devices) free_[device] = end;
    RegionProgress& here = progress_[task.region];
    MicroBatch& micro_batch = *micro_batches_[chosen];
    if (!micro_batch.has_begun) {
      micro_batch.has_begun = true;
      ++here.next;
      ++here.under_way;
    }
    if (--micro_batch.left == 0 && here.under_way-- == regions_[task.region].ahead)
      here.has_room = ends_[chosen];
    ready_.erase(std::find(ready_.begin(), ready_.end(), chosen));
    for (const std::size_t follower : followers_[chosen])
      if (--absent_[follower] == 0) ready_.push_back(follower);
  }

  const std::vector<StageTask>& tasks_;
  const std::vector<TaskPlace>& regions_;
  std::vector<double> ends_;                         // by task
  std::vector<std::size_t> absent_;                  // by task: needs that have not begun
  std::vector<std::vector<std::size_t>> followers_;  // by task
  std::vector<RegionProgress> progress_;             // by region
  std::vector<MicroBatch*> micro_batches_;           // by task, in its region
  std::vector<std::size_t> ready_;
  std::vector<double> free_;  // by device: from when on
};

}  // namespace

double order_seconds(const graph::Work& work) {
  constexpr double kFlops = 1e13, kBytes = 5e11;
  return work.flops.value / kFlops +
         static_cast<double>(work.bytes_read.value + work.bytes_written.value) / kBytes;
}

std::vector<OrderedTask> order_tasks(const std::vector<StageTask>& tasks,
                                     const std::vector<TaskPlace>& regions) {
  return ListScheduler(tasks, regions).run();
}

}  // namespace motley::synth
