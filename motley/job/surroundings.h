#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/policy/decision.h"
#include "motley/run/change.h"

namespace motley::job {

/// What a change does to tensors.
struct Transition {
  int to = 0;               ///< the plan that is gone on by
  std::optional<int> from;  ///< the plan by which they lie; none: what is kept is loaded
  std::optional<std::set<std::string>> there = {};  ///< devices that live; none: all do
  std::set<std::string> empty = {};                 ///< of them, those that have no tensors
};

/// Plans by which a job may run, by number.
class Plans {
 public:
  virtual ~Plans() = default;
  virtual std::string label(int plan) const = 0;              ///< "the batch split 24:12:4"
  virtual std::optional<Seconds> priced(int plan) const = 0;  ///< a step
  virtual std::set<std::string> devices(int plan) const = 0;
  /// Does it outlive the loss of as many devices as it is to, where so many are there?
  virtual bool outlives_losses(int plan, std::size_t devices) const = 0;
  /// That of an action; runtime error `policy.action`: this job cannot do that.
  virtual Result<int> find(const policy::Action& action) = 0;
  /// A plan for these devices, of the batch that plan `now` has.
  virtual Result<int> make(const std::vector<std::string>& devices, int now) = 0;
  /// One by which this device alone saves what there is, and does no step.
  virtual Result<int> make_saving(const std::string& device, int now) = 0;
  /// The change, but for its numbers and processes. Runtime error `synth.move-lost`: what is to be
  /// moved is not all there.
  virtual Result<run::Change> make_change(const Transition& transition) = 0;
  /// Prices a device that has come and that the cluster had not; words on how.
  virtual std::string price(const std::string& device) = 0;
};

/// What a job has beside plans: people, what is kept of its decisions, checkpoints.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual void note(const std::string& line) = 0;
  /// This was decided, and the job runs by that plan; `begins`: from now on, and as it did before.
  enum class Begins { kNow, kBefore };
  virtual void log_plan(policy::Decision decision, int plan, Begins begins) = 0;
  /// This was decided, and no plan begins by it.
  virtual void log_decision(policy::Decision decision) = 0;
  /// Plans for losses to come are made ready, of those that are there now.
  virtual void look_ahead() = 0;
  /// A joining device of this text takes part, or could: it is one of the cluster's devices from
  /// now on.
  virtual void keep_joiner(const std::string& text) = 0;
  /// Where a checkpoint is that another host left; "": there is none.
  virtual Result<std::string> bring_checkpoint() = 0;
  /// How a job goes on from that checkpoint; "", or none that can be read: from the beginning.
  virtual run::Recovery open_checkpoint(const std::string& path) = 0;
};

}  // namespace motley::job
