#include "motley/plan/pass_order.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "motley/base/check.h"

namespace motley::plan {
namespace {

using Pass = StageTask::Pass;

constexpr std::size_t kNoTask = static_cast<std::size_t>(-1);

/// Tasks whose needs lie in one array, each with the lag after it.
struct FlatTasks {
  struct Task {
    std::size_t region, micro_batch;
    Pass pass;
    double length;
    std::size_t end;  // of its needs
  };
  struct Need {
    std::size_t task;
    double lag;
  };
  std::vector<Task> tasks;
  std::vector<Need> needs;

  std::size_t size() const { return tasks.size(); }
  std::size_t begin_of(std::size_t t) const { return t == 0 ? 0 : tasks[t - 1].end; }
  /// Its needs are those that were added since the task before.
  void add(std::size_t region, std::size_t micro_batch, Pass pass, double work) {
    // Never nothing: a task begins behind those that it needs.
    tasks.push_back({region, micro_batch, pass, std::max(work, 1e-9), needs.size()});
  }
};

/// Does a backward task let the next micro-batch begin before it?
enum class EarlyForwards { kYes, kNo };

class ListScheduler {
 public:
  ListScheduler(const FlatTasks& tasks, const std::vector<TaskPlace>& places, EarlyForwards early)
      : tasks_(tasks),
        places_(places),
        early_(early),
        ends_(tasks.size()),
        next_waiting_(tasks.size(), kNoTask),
        regions_(places.size()) {
    read_places();
    for (const auto& task : tasks.tasks) width_ = std::max(width_, task.micro_batch + 1);
    batches_.resize(places.size() * width_);
    for (const auto& task : tasks.tasks) ++batches_[task.region * width_ + task.micro_batch].left;
    for (std::size_t r = 0; r < regions_.size(); ++r)
      regions_[r].first = regions_[r].next = next_batch(r, 0);
    find_followers();
    for (std::size_t t = 0; t < tasks.size(); ++t)
      if (absent_[t] == 0) make_ready(t);
    for (std::size_t r = 0; r < regions_.size(); ++r) refresh(r);
  }

  /// A task, or two that run together, the forward one first.
  struct Begun {
    std::size_t task, other = kNoTask;
    double begin = 0, end = 0;
  };

  std::vector<Begun> run() {
    std::vector<Begun> order;
    order.reserve(tasks_.size());
    for (std::size_t done = 0; done < tasks_.size(); ++done) {
      order.push_back(begin(choose()));
      if (order.back().other != kNoTask) ++done;
    }
    // A pair may be chosen before a task that begins earlier elsewhere.
    const auto is_before = [](const Begun& a, const Begun& b) { return a.begin < b.begin; };
    if (!std::is_sorted(order.begin(), order.end(), is_before))
      std::stable_sort(order.begin(), order.end(), is_before);
    return order;
  }

 private:
  /// Order of tasks that could begin; the least does.
  struct Urgency {
    double time;
    int direction;     // where regions share devices: forward tasks first
    std::size_t turn;  // group of micro-batches
    int pass;
    std::size_t region, micro_batch, task;
    auto operator<=>(const Urgency&) const = default;
  };
  /// A micro-batch in a region.
  struct Batch {
    std::size_t left = 0;  // tasks that have not begun
    bool has_begun = false;
    std::size_t waiting = kNoTask;  // the first task that is ready before its turn
  };
  struct Region {
    std::size_t first = 0, next = 0;  // micro-batches: the least, and the least that has not begun
    std::int64_t in_flight = 0;
    double has_room = 0;             // from when on the next may begin
    std::vector<std::size_t> ready;  // tasks of micro-batches that have begun, or of the next
    std::optional<Urgency> best;     // of the task that could begin first
    bool is_changed = false;         // since `best` was found
  };

  void read_places() {
    for (std::size_t r = 0; r < places_.size(); ++r)
      for (const std::size_t device : places_[r].devices) {
        if (device >= free_.size()) {
          free_.resize(device + 1, 0);
          regions_on_.resize(device + 1);
        }
        regions_on_[device].push_back(r);
      }
  }

  void find_followers() {
    absent_.resize(tasks_.size());
    first_follower_.assign(tasks_.size() + 1, 0);
    for (const FlatTasks::Need& need : tasks_.needs) ++first_follower_[need.task + 1];
    for (std::size_t t = 0; t < tasks_.size(); ++t) first_follower_[t + 1] += first_follower_[t];
    followers_.resize(tasks_.needs.size());
    std::vector<std::size_t> at(first_follower_.begin(), first_follower_.end() - 1);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      absent_[t] = tasks_.tasks[t].end - tasks_.begin_of(t);
      for (std::size_t n = tasks_.begin_of(t); n < tasks_.tasks[t].end; ++n)
        followers_[at[tasks_.needs[n].task]++] = t;
    }
  }

  const FlatTasks::Task& task(std::size_t t) const { return tasks_.tasks[t]; }
  const TaskPlace& place(std::size_t t) const { return places_[task(t).region]; }
  Batch& batch(std::size_t t) { return batches_[task(t).region * width_ + task(t).micro_batch]; }
  const Batch& batch(std::size_t t) const {
    return batches_[task(t).region * width_ + task(t).micro_batch];
  }
  std::size_t next_batch(std::size_t region, std::size_t from) const {
    while (from < width_ && batches_[region * width_ + from].left == 0) ++from;
    return from;
  }

  void make_ready(std::size_t t) {
    Region& region = regions_[task(t).region];
    if (batch(t).has_begun || task(t).micro_batch == region.next) {
      region.ready.push_back(t);
    } else {
      next_waiting_[t] = std::exchange(batch(t).waiting, t);
    }
  }

  /// `more` than `ahead` may be in flight.
  bool may_begin(std::size_t t, std::int64_t more = 0) const {
    return batch(t).has_begun ||
           regions_[task(t).region].in_flight < std::max<std::int64_t>(place(t).ahead, 1) + more;
  }

  double earliest(std::size_t t) const {
    return std::max(batch(t).has_begun ? 0 : regions_[task(t).region].has_room, is_there(t));
  }

  /// Returns when what it needs is there, and its devices are free.
  double is_there(std::size_t t) const {
    double time = 0;
    for (std::size_t n = tasks_.begin_of(t); n < task(t).end; ++n)
      time = std::max(time, ends_[tasks_.needs[n].task] + tasks_.needs[n].lag);
    for (const std::size_t device : place(t).devices) time = std::max(time, free_[device]);
    return time;
  }

  Urgency urgency(std::size_t t) const {
    const auto& [region, micro_batch, pass, length, end] = task(t);
    const std::size_t turn = places_[region].turn;
    constexpr int kBackwardFirst[] = {1, 0, 2};  // by Pass
    if (turn == 0)
      return {earliest(t), 0, 0, kBackwardFirst[static_cast<int>(pass)], 0, micro_batch, t};
    const bool is_forward = pass == Pass::kForward;
    return {earliest(t),
            static_cast<int>(pass),
            (micro_batch - regions_[region].first) / turn,
            0,
            is_forward ? region : regions_.size() - region,
            micro_batch,
            t};
  }

  /// Finds the region's task that could begin first.
  void refresh(std::size_t r) {
    Region& region = regions_[r];
    double next_begins = std::numeric_limits<double>::infinity();
    const bool lets_forward =
        early_ == EarlyForwards::kYes && places_[r].turn == 0 && !places_[r].pairs;
    if (lets_forward)
      for (const std::size_t t : region.ready)
        if (!batch(t).has_begun && may_begin(t)) next_begins = std::min(next_begins, earliest(t));
    region.best.reset();
    for (const std::size_t t : region.ready) {
      if (!may_begin(t)) continue;
      const Urgency here = urgency(t);
      if (lets_forward && task(t).pass == Pass::kBackward && batch(t).has_begun &&
          next_begins < here.time + task(t).length)
        continue;
      if (!region.best || here < *region.best) region.best = here;
    }
  }

  std::size_t choose() const {
    const Region* least = nullptr;
    for (const Region& region : regions_)
      if (region.best && (least == nullptr || *region.best < *least->best)) least = &region;
    // The lowest micro-batch that is not over may always go on.
    MOTLEY_CHECK(least != nullptr);
    return least->best->task;
  }

  /// Begins the chosen task, and one that runs together with it if its region pairs.
  Begun begin(std::size_t chosen) {
    Begun made{chosen, find_other(chosen, regions_[task(chosen).region].best->time),
               regions_[task(chosen).region].best->time};
    if (made.other != kNoTask) {
      made.begin = std::max(made.begin, is_there(made.other));
      if (task(made.other).pass == Pass::kForward) std::swap(made.task, made.other);
    }
    made.end = made.begin + task(made.task).length;
    if (made.other != kNoTask) made.end += task(made.other).length;
    changed_.clear();
    start(made.task, made.end);
    if (made.other != kNoTask) start(made.other, made.end);
    for (const std::size_t r : changed_) {
      regions_[r].is_changed = false;
      refresh(r);
    }
    return made;
  }

  /// Finds the first task of the other direction and another micro-batch that can begin before the
  /// chosen one would end. Beside a backward task one more may be in flight.
  std::size_t find_other(std::size_t chosen, double time) const {
    const Pass pass = task(chosen).pass;
    if (!place(chosen).pairs || pass == Pass::kWeights) return kNoTask;
    const Pass wanted = pass == Pass::kForward ? Pass::kBackward : Pass::kForward;
    std::size_t best = kNoTask;
    std::tuple<double, std::size_t, std::size_t> least;
    for (const std::size_t t : regions_[task(chosen).region].ready) {
      if (task(t).pass != wanted || task(t).micro_batch == task(chosen).micro_batch ||
          !may_begin(t, 1))
        continue;
      const std::tuple key(is_there(t), task(t).micro_batch, t);
      if (std::get<double>(key) >= time + task(chosen).length || (best != kNoTask && least <= key))
        continue;
      best = t;
      least = key;
    }
    return best;
  }

  void change(std::size_t r) {
    if (!std::exchange(regions_[r].is_changed, true)) changed_.push_back(r);
  }

  void start(std::size_t chosen, double end) {
    const std::size_t r = task(chosen).region;
    Region& region = regions_[r];
    ends_[chosen] = end;
    for (const std::size_t device : places_[r].devices) {
      free_[device] = end;
      for (const std::size_t other : regions_on_[device]) change(other);
    }
    Batch& mine = batch(chosen);
    if (!mine.has_begun) {
      mine.has_begun = true;
      ++region.in_flight;
      region.next = next_batch(r, region.next + 1);
      if (region.next < width_) {
        std::size_t& waiting = batches_[r * width_ + region.next].waiting;
        for (; waiting != kNoTask; waiting = next_waiting_[waiting])
          region.ready.push_back(waiting);
      }
    }
    if (--mine.left == 0 && region.in_flight-- == places_[r].ahead) region.has_room = end;
    region.ready.erase(std::find(region.ready.begin(), region.ready.end(), chosen));
    for (std::size_t f = first_follower_[chosen]; f < first_follower_[chosen + 1]; ++f) {
      const std::size_t follower = followers_[f];
      if (--absent_[follower] > 0) continue;
      make_ready(follower);
      change(task(follower).region);
    }
  }

  const FlatTasks& tasks_;
  const std::vector<TaskPlace>& places_;
  EarlyForwards early_;
  std::size_t width_ = 0;            // micro-batches
  std::vector<double> ends_;         // by task
  std::vector<std::size_t> absent_;  // by task: needs that have not begun
  std::vector<std::size_t> first_follower_, followers_;
  std::vector<std::size_t> next_waiting_;  // by task: the next of Batch::waiting
  std::vector<Batch> batches_;             // by region, then micro-batch
  std::vector<Region> regions_;
  std::vector<double> free_;                          // by device: from when on
  std::vector<std::vector<std::size_t>> regions_on_;  // by device
  std::vector<std::size_t> changed_;                  // regions
};

/// Returns `launch` forwards, then a backward and a forward in turn, then the remaining backwards.
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
/// is in flight may always go on.
bool has_several(const PipelineWork& work) {
  for (std::size_t s = 0; s < work.seats.size(); ++s)
    if (work.seats[s] != s) return true;
  return false;
}

/// A pass is task 2 (m * stages + s), or one more for its backward.
FlatTasks flatten(const PipelineWork& work) {
  const std::size_t stages = work.stages(), count = static_cast<std::size_t>(work.micro_batches());
  FlatTasks flat;
  flat.tasks.reserve(2 * stages * count);
  flat.needs.reserve(2 * stages * count);
  for (std::size_t m = 0; m < count; ++m)
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t forward = 2 * (m * stages + s);
      if (s > 0) flat.needs.push_back({forward - 2, work.activation[s - 1]});
      flat.add(s, m, Pass::kForward, work.forward[s][m]);
      if (s + 1 < stages) {
        flat.needs.push_back({forward + 3, work.gradient[s]});
      } else {
        flat.needs.push_back({forward, 0});
      }
      flat.add(s, m, Pass::kBackward, work.backward[s][m]);
    }
  return flat;
}

std::vector<PassOrder> list_order(const PipelineWork& work,
                                  const std::vector<std::int64_t>& most_in_flight) {
  std::size_t seats = 0;
  for (const std::size_t seat : work.seats) seats = std::max(seats, seat + 1);
  std::vector<TaskPlace> places;
  for (std::size_t s = 0; s < work.stages(); ++s)
    places.push_back({{work.seats[s]}, most_in_flight[s], 0, has_several(work) ? seats : 0});
  const FlatTasks flat = flatten(work);
  std::vector<PassOrder> orders(seats);
  for (const auto& each : ListScheduler(flat, places, EarlyForwards::kNo).run()) {
    const FlatTasks::Task& task = flat.tasks[each.task];
    orders[work.seats[task.region]].push_back({task.pass == Pass::kBackward,
                                               static_cast<std::int32_t>(task.micro_batch),
                                               static_cast<std::int32_t>(task.region)});
  }
  return orders;
}

}  // namespace

double order_seconds(const graph::Work& work) {
  constexpr double kFlops = 1e13, kBytes = 5e11;
  return work.flops.value / kFlops +
         static_cast<double>(work.bytes_read.value + work.bytes_written.value) / kBytes;
}

std::vector<OrderedTask> order_tasks(const std::vector<StageTask>& tasks,
                                     const std::vector<TaskPlace>& regions) {
  FlatTasks flat;
  flat.tasks.reserve(tasks.size());
  for (const StageTask& task : tasks) {
    for (const std::size_t need : task.needs) {
      const bool is_apart = tasks[need].region != task.region;
      flat.needs.push_back({need, is_apart ? regions[task.region].lag : 0});
    }
    flat.add(task.region, task.micro_batch, task.pass, task.work);
  }
  std::vector<OrderedTask> order;
  for (const auto& [task, other, begin, end] :
       ListScheduler(flat, regions, EarlyForwards::kYes).run()) {
    order.push_back({{task}, begin, end});
    if (other != kNoTask) order.back().tasks.push_back(other);
  }
  return order;
}

std::string_view schedule_name(StageSchedule schedule) {
  switch (schedule) {
    case StageSchedule::k1F1B:
      return "1f1b";
    case StageSchedule::kH1F1B:
      return "h-1f1b";
    case StageSchedule::kList:
      return "list";
    case StageSchedule::kWide:
      return "wide 1f1b";
    case StageSchedule::kDeepList:
      return "deep list";
    case StageSchedule::kGPipe:
      return "gpipe";
    case StageSchedule::kInterleaved:
      return "interleaved";
  }
  return "";
}

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
  if (schedule == StageSchedule::kDeepList) return list_order(work, work.most_in_flight);
  const std::vector<std::int64_t> launch = launch_counts(work, schedule);
  if (schedule == StageSchedule::kList || schedule == StageSchedule::kInterleaved)
    return list_order(work, launch);
  std::vector<PassOrder> orders;
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

}  // namespace motley::plan
