#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/control/training/adaptation.h"
#include "motley/control/training/ready_plans.h"
#include "motley/job/surroundings.h"

namespace motley::control {

/// The plans of an adaptation. Makes further candidates, programs, and moves between them.
class Candidates : public job::Plans {
 public:
  /// All arguments outlive it; the job may gain devices.
  Candidates(Adaptation& choices, const Inputs& inputs, const run::Job& job)
      : choices_(choices), inputs_(inputs), job_(job), found_(choices.candidates.size()) {}

  std::string label(int plan) const override { return (*this)[plan].label; }
  std::optional<Seconds> priced(int plan) const override { return (*this)[plan].priced; }
  std::set<std::string> devices(int plan) const override;
  bool outlives_losses(int plan, std::size_t devices) const override;
  Result<int> find(const policy::Action& action) override;
  Result<int> make(const std::vector<std::string>& devices, int now) override;
  Result<int> make_saving(const std::string& device, int now) override;
  Result<run::Change> make_change(const job::Transition& transition) override;
  std::string price(const std::string& device) override;

  /// Returns the number of the candidate, or of an equal one.
  int add(Candidate made);
  Candidate& operator[](int plan) { return choices_.candidates[static_cast<std::size_t>(plan)]; }
  const Candidate& operator[](int plan) const {
    return choices_.candidates[static_cast<std::size_t>(plan)];
  }
  std::size_t found() const { return found_; }  ///< initial candidates
  /// Makes the program of the next initial candidate.
  void make_next_ahead();
  /// Prepares plans for the loss of each of these devices during training, if that is enabled.
  void prepare_for_losses(const std::vector<std::string>& devices, int now);
  /// Adds a device to the cluster. All plans then refer to the grown cluster.
  Result<Grown> grow(const cluster::Cluster& joiner);

 private:
  Result<void> make_programs(Candidate& candidate) const;
  std::vector<DeviceId> ids_of(const std::vector<std::string>& names) const;

  Adaptation& choices_;
  const Inputs& inputs_;
  const run::Job& job_;
  const std::size_t found_;
  std::size_t made_ahead_ = 0;  // with programs
  std::optional<ReadyPlans> ahead_;
};

}  // namespace motley::control
