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

struct Transition {
  int to = 0;
  std::optional<int> from;  ///< the plan that placed the tensors; none: load the checkpoint
  std::optional<std::set<std::string>> there = {};  ///< living devices; none: all live
  std::set<std::string> empty = {};                 ///< living devices that hold no tensors
};

class Plans {
 public:
  virtual ~Plans() = default;
  virtual std::string label(int plan) const = 0;              ///< "the batch split 24:12:4"
  virtual std::optional<Seconds> priced(int plan) const = 0;  ///< step time
  virtual std::set<std::string> devices(int plan) const = 0;
  /// Does the plan outlive the required number of losses when so many devices are there?
  virtual bool outlives_losses(int plan, std::size_t devices) const = 0;
  /// Returns the plan of an action. Runtime error `policy.action`: this job cannot do that.
  virtual Result<int> find(const policy::Action& action) = 0;
  /// Makes a plan for these devices with the batch of plan `now`.
  virtual Result<int> make(const std::vector<std::string>& devices, int now) = 0;
  /// Makes a plan in which this device alone saves the state and trains no step.
  virtual Result<int> make_saving(const std::string& device, int now) = 0;
  /// Makes a change without numbers and processes. Runtime error `synth.move-lost`: some of the
  /// state is missing.
  virtual Result<run::Change> make_change(const Transition& transition) = 0;
  /// Prices a device that has joined and is new to the cluster; returns an explanation.
  virtual std::string price(const std::string& device) = 0;
};

/// Everything a job has beside plans: people, a decision log, checkpoints.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual void note(const std::string& line) = 0;
  /// Logs a decision that makes the job run this plan, from now on or as before.
  enum class Begins { kNow, kBefore };
  virtual void log_plan(policy::Decision decision, int plan, Begins begins) = 0;
  virtual void log_decision(policy::Decision decision) = 0;
  /// Prepares plans for further losses of the devices that are there now.
  virtual void look_ahead() = 0;
  /// A joining device takes part, or could: from now on it is a device of the cluster.
  virtual void keep_joiner(const std::string& text) = 0;
  /// Fetches a checkpoint that another host left and returns its path; "": there is none.
  virtual Result<std::string> bring_checkpoint() = 0;
  /// Returns how to continue from that checkpoint; "" or an unreadable one: from the beginning.
  virtual run::Recovery open_checkpoint(const std::string& path) = 0;
};

}  // namespace motley::job
