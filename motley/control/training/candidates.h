#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/control/training/adaptation.h"
#include "motley/control/training/ready_plans.h"
#include "motley/job/surroundings.h"

namespace motley::control {

/// The candidates of an adaptation, by which the job may run: finds and makes further ones, their
/// programs, and the moves between them.
class Candidates : public job::Plans {
 public:
  /// All outlive it; the job may be given further devices.
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

  /// Returns its number: that of an equal one where there is one.
  int add(Candidate made);
  Candidate& operator[](int plan) { return choices_.candidates[static_cast<std::size_t>(plan)]; }
  const Candidate& operator[](int plan) const {
    return choices_.candidates[static_cast<std::size_t>(plan)];
  }
  std::size_t found() const { return found_; }  ///< those that there were at first
  /// Makes the program of another one that there was at first.
  void make_next_ahead();
  /// Has plans for the loss of each of these devices made beside training, where that is wanted.
  void prepare_for_losses(const std::vector<std::string>& devices, int now);
  /// Gives the cluster a device. Plans are of the cluster as it is then.
  Result<Grown> grow(const cluster::Cluster& joiner);

 private:
  Result<void> make_programs(Candidate& candidate) const;
  std::vector<DeviceId> ids_of(const std::vector<std::string>& names) const;

  Adaptation& choices_;
  const Inputs& inputs_;
  const run::Job& job_;
  const std::size_t found_;
  std::size_t made_ahead_ = 0;  // of these, whose programs were made
  std::optional<ReadyPlans> ahead_;
};

}  // namespace motley::control
