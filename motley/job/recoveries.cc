#include "motley/job/recoveries.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "motley/base/text.h"
#include "motley/job/controller.h"

namespace motley::job {

std::int64_t Recoveries::saved_step() const {
  return std::max(saved_.saved_step, options_.takeover ? options_.takeover->saved_step : -1);
}

Result<run::Change> Recoveries::recover(const std::vector<run::RecoveryState>& recovery_states,
                                        const std::optional<Error>& stop,
                                        MembershipChange& coming) {
  auto found = run::find_recovery(recovery_states);
  run::Recovery recovery =
      found ? std::move(*found) : fall_back(found.error(), requests_.done(), coming);
  MOTLEY_RETURN_IF_ERROR(check_way_back(recovery));
  if (recovery.from.empty()) {  // of the latest checkpoint, the copy on this host counts
    recovery.point.saved_path = saved_.saved_path;
    recovery.point.saved_step = saved_.saved_step;
    recovery.point.saved_host.clear();
  }
  // The change in which they halted may have begun unreported.
  requests_.fall_back(recovery.generation);
  const int from = requests_.generations().running_plan();
  const bool was_undone = std::any_of(
      recovery_states.begin(), recovery_states.end(), [&](const run::RecoveryState& each) {
        return each.is_open && each.generation == recovery.generation &&
               each.point.step == recovery.point.step;
      });
  coming.lost_steps += was_undone ? 1 : 0;
  if (stop) return give_up(std::move(recovery), from, *stop, coming);
  const std::optional<int> wanted = requests_.plan_without(coming.lost);
  const bool may_stay = coming.lost.empty() && requests_.may_begin(from);
  const Result<int> to = wanted     ? Result<int>(*wanted)
                         : may_stay ? Result<int>(from)
                                    : requests_.make(devices_.staying());
  if (!to) return give_up(std::move(recovery), from, to.error(), coming);
  auto change = recover_from(recovery, from, *to, coming);
  const bool is_small = !change && change.error().kind == ErrorKind::kInfeasible;
  return is_small ? give_up(std::move(recovery), from, change.error(), coming) : change;
}

/// Continues from the processes' state, or, if that is incomplete, from the last checkpoint.
Result<run::Change> Recoveries::recover_from(run::Recovery recovery, int from, int to,
                                             MembershipChange& coming) {
  std::set<std::string> empty;  // joined since, and hold nothing
  for (const DeviceState& each : devices_.all())
    if (each.generation >= recovery.generation) empty.insert(each.name);
  Result<run::Change> change;
  if (recovery.from.empty()) {
    change =
        plans_.make_change({.to = to, .from = from, .there = requests_.there(), .empty = empty});
    if (!change && change.error().code == "synth.move-lost") {
      const bool stops = recovery.stops;
      recovery = fall_back(change.error(), std::max(recovery.point.step, requests_.done()), coming);
      recovery.stops = stops;
      MOTLEY_RETURN_IF_ERROR(check_way_back(recovery));
    }
  }
  if (!recovery.from.empty()) change = plans_.make_change({.to = to});
  MOTLEY_RETURN_IF_ERROR(change);
  change->processes = devices_.living();
  change->after = recovery.generation;
  policy::Decision decision = requests_.decide(
      to, coming.lost.empty() ? "devices did not get on" : "without " + join(coming.lost, ", "));
  decision.seen_step = decision.begins = recovery.point.step;
  change->recovery = std::move(recovery);
  change->number = requests_.number(to, std::move(decision));
  return change;
}

/// Saves the state and stops: the remaining devices are too few or too small.
Result<run::Change> Recoveries::give_up(run::Recovery recovery, int from, const Error& why,
                                        MembershipChange& coming) {
  const std::vector<std::string> devices = devices_.staying();
  if (devices.empty()) return tl::make_unexpected(why);
  around_.note("stopping, as those that are left cannot go on: " + why.message);
  MOTLEY_ASSIGN(const int alone, plans_.make_saving(devices.front(), from));
  recovery.stops = true;
  return recover_from(std::move(recovery), from, alone, coming);
}

/// Falls back to the last checkpoint, because state is missing. Loses the steps since, of `done`.
run::Recovery Recoveries::fall_back(const Error& why, std::int64_t done, MembershipChange& coming) {
  if (saved_.saved_path.empty()) {
    auto brought = around_.bring_checkpoint();
    if (brought) saved_.saved_path = *brought;
    if (!brought) around_.note("warning: " + brought.error().message);
  }
  run::Recovery recovery = around_.open_checkpoint(saved_.saved_path);
  recovery.generation = requests_.generations().running();
  coming.lost_steps += std::max<std::int64_t>(0, done - recovery.point.step);
  requests_.go_back(recovery.point.step);
  around_.note(fmt::format("{}; training goes on {}", why.message,
                           recovery.from == "new" ? "from the beginning: there is no checkpoint"
                                                  : "from " + recovery.from));
  return recovery;
}

/// A taken-over training does not begin anew if the former coordinator had a checkpoint of it.
Result<void> Recoveries::check_way_back(const run::Recovery& recovery) const {
  if (!options_.takeover || recovery.from != "new" || options_.takeover->saved_step < 0) return {};
  return runtime_error(
      "elastic.checkpoint",
      fmt::format(
          "what is left of the model is not all of it, and no host that is left has the "
          "checkpoint of step {}: run the same command on the host that led when it is back",
          options_.takeover->saved_step));
}

}  // namespace motley::job
