#include "motley/cli/demo/demo_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/statistics.h"
#include "motley/base/text.h"

namespace motley::cli {

Seconds Timings::typical() const {
  std::vector<double> values;
  for (const Seconds step : steps) values.push_back(step.value);
  return Seconds(median(std::move(values)));
}

Seconds Timings::shortest() const { return *std::min_element(steps.begin(), steps.end()); }

Seconds Timings::longest() const { return *std::max_element(steps.begin(), steps.end()); }

double Timings::apart() const { return steps.size() < 2 ? 0 : longest() / shortest() - 1; }

const Timings& TimedInTurns::noisiest() const {
  return equal.apart() > plan.apart() ? equal : plan;
}

double TimedInTurns::others() const { return std::max(equal.others, plan.others); }

double spare_processors(int processors) {
  constexpr int kDevices = 3;
  constexpr double kLeft = 0.2;
  return std::max(0, processors - kDevices) + kLeft;
}

Judged judge_prediction(const TimedInTurns& timed, double limit, Profile profile) {
  Judged judged{Verdict::kRight, INFINITY, limit + timed.plan.apart()};
  for (const Seconds step : timed.plan.steps)
    judged.value = std::min(judged.value, std::abs(timed.predicted / step - 1));
  if (judged.value <= limit && timed.plan.apart() <= limit) return judged;
  if (timed.noisiest().apart() > limit) {
    judged.verdict = Verdict::kNoise;
    judged.allowed = limit;
  } else if (judged.value > judged.allowed) {
    judged.verdict = timed.is_shared()            ? Verdict::kNoise
                     : profile == Profile::kFirst ? Verdict::kProfileAgain
                                                  : Verdict::kWrong;
  }
  return judged;
}

Judged judge_speedup(const TimedInTurns& timed, double wanted, double noise) {
  const bool is_noisy = timed.noisiest().apart() > noise;
  const double kindest = timed.equal.longest() / timed.plan.shortest();
  const double least = timed.is_shared() ? 0 : is_noisy ? 1 : wanted;
  Judged judged{Verdict::kRight, timed.equal.typical() / timed.plan.typical(), wanted};
  if (kindest < least) {
    judged.verdict = Verdict::kWrong;
  } else if (least < wanted && judged.value < wanted) {
    judged.verdict = Verdict::kNoise;
  }
  return judged;
}

std::string print_noise(const TimedInTurns& timed, double limit, const std::string& what) {
  const Timings& noisiest = timed.noisiest();
  std::vector<std::string> why;
  if (noisiest.apart() > limit)
    why.push_back(fmt::format("{} timings of {} differ by {:.0f} %",
                              noisiest.steps.size() == 2 ? "two" : "three", noisiest.thing,
                              100 * noisiest.apart()));
  if (timed.is_shared())
    why.push_back(fmt::format("others kept {:.1f} processors busy", timed.others()));
  return fmt::format("the machine was busy: {}; {} cannot be checked", join(why, ", and "), what);
}

}  // namespace motley::cli
