#include "motley/job/generations.h"

#include <algorithm>
#include <utility>

namespace motley::job {

void Generations::take_over(const std::map<int, int>& plans) {
  numbered_ = plans;
  number_ = std::max(number_, plans.rbegin()->first);
  begun_ = {*plans.begin()};
  current_ = plans.begin()->second;
}

int Generations::ask(int plan, policy::Decision decision) {
  numbered_[++number_] = plan;
  asked_[number_] = {plan, std::move(decision)};
  return number_;
}

std::optional<Generations::Asked> Generations::take(int number) {
  auto asked = asked_.extract(number);
  return asked ? std::optional(std::move(asked.mapped())) : std::nullopt;
}

void Generations::begin(int number, int plan) {
  begun_[number] = plan;
  current_ = plan;
}

void Generations::fall_back(int generation) {
  if (const auto numbered = numbered_.find(generation); numbered != numbered_.end())
    begun_[generation] = numbered->second;
  asked_.clear();
  begun_.erase(begun_.upper_bound(generation), begun_.end());
}

std::optional<int> Generations::plan_of(int generation) const {
  const auto begun = begun_.find(generation);
  return begun == begun_.end() ? std::nullopt : std::optional(begun->second);
}

std::map<int, int> Generations::possible() const {
  std::map<int, int> plans = numbered_;
  plans.insert(begun_.begin(), begun_.end());
  plans.erase(plans.begin(), plans.lower_bound(running()));
  return plans;
}

}  // namespace motley::job
