#include "motley/elastic/job_renting.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "motley/base/json_fields.h"
#include "motley/base/text.h"

namespace motley::elastic {
namespace {

constexpr std::pair<const char*, RentingRule> kRules[] = {{"motley", RentingRule::kMotley},
                                                          {"greedy", RentingRule::kGreedy},
                                                          {"on-demand", RentingRule::kOnDemand},
                                                          {"uniform", RentingRule::kUniform},
                                                          {"none", RentingRule::kNone}};

constexpr double kSlower = 1.25;  // a step's slow-down that triggers a decision
constexpr int kVersion = 2;       // of the state

}  // namespace

std::vector<std::string> renting_rules() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : kRules) names.emplace_back(name);
  return names;
}

Result<RentingRule> find_renting_rule(const std::string& name) {
  for (const auto& [known, rule] : kRules)
    if (name == known) return rule;
  return usage_error("elastic.policy", fmt::format("no policy that rents is named '{}'{}", name,
                                                   suggestion_clause(name, renting_rules())));
}

JobRenting::JobRenting(RentingJob job, Lifetimes lifetimes)
    : standing_(std::move(job), std::move(lifetimes)), told_(standing_.there()) {
  if (!standing_.measured.empty()) told_step_ = standing_.measured.front().step_s;
}

std::string_view JobRenting::name() const {
  if (job().rule == RentingRule::kMotley) return "market";
  for (const auto& [name, rule] : kRules)
    if (rule == job().rule) return name;
  return "";
}

std::vector<policy::Choice> JobRenting::observe(const policy::Observation& seen) {
  return std::visit([this](const auto& each) { return see(each); }, seen);
}

std::vector<policy::Choice> JobRenting::see(const policy::StepSeen& seen) {
  standing_.advance(seen.at);
  standing_.done = seen.step + 1;
  standing_.measure(seen.took);
  return look();
}

std::vector<policy::Choice> JobRenting::see(const policy::LossSeen& seen) {
  const auto m = standing_.find_machine(seen.device);
  if (!m) return {};
  standing_.advance(seen.at);
  standing_.lose(*m, seen);
  return decide(seen.device,
                job().machines[*m].name + (seen.was_given_back ? " was given back" : " is lost"));
}

std::vector<policy::Choice> JobRenting::see(const policy::NoticeSeen& seen) {
  const auto m = standing_.find_machine(seen.device);
  if (!m || !is_there(*m)) return {};
  standing_.advance(seen.at);
  standing_.machines[*m].until = standing_.now + seen.left;
  return decide(seen.device, fmt::format("{} will be gone in {}", job().machines[*m].name,
                                         print_duration(seen.left)));
}

std::vector<policy::Choice> JobRenting::see(const policy::ArrivalSeen& seen) {
  const auto m = standing_.find_machine(seen.device);
  if (!m) return {};
  if (is_there(*m)) {  // It was to be given back, and stays.
    MachineState& machine = standing_.machines[*m];
    if (machine.until) machine.is_kept = true;
    machine.until.reset();
    return {};
  }
  standing_.advance(seen.at);
  standing_.come(*m);
  return decide(seen.device, job().machines[*m].name + " has come");
}

std::vector<policy::Choice> JobRenting::see(const policy::PriceSeen& seen) {
  const auto& offers = job().market.offers;
  const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) {
    return offer.kind == seen.kind && offer.zone == seen.zone && offer.is_spot == seen.is_spot;
  });
  if (found == offers.end()) return {};
  const auto offer = static_cast<std::size_t>(found - offers.begin());
  const auto event = standing_.reprice(offer, seen.per_hour, seen.at);
  return event ? decide(name_of(*found), *event) : Choices();
}

/// Decides on a tick, without news.
std::vector<policy::Choice> JobRenting::look() {
  if (standing_.now - looked_ < job().tick) return {};
  looked_ = standing_.now;
  if (const auto missed = standing_.give_up_waiting(kAgain); !missed.empty())
    return decide("", join(missed, ", ") + " did not come");
  const Machines there = standing_.there();
  const double speed = standing_.speed_with(there);
  if (standing_.settling == 0 && speed > 0 && told_step_ > 0 && told_ == there &&
      1 / speed > kSlower * told_step_)
    return decide("", fmt::format("a step takes {}, not {}", format_seconds(Seconds(1 / speed)),
                                  format_seconds(Seconds(told_step_))));
  if (standing_.measured.empty() || standing_.done >= job().steps) return {};
  const Rented rented = choose_rented(standing_, change_);
  return rented.is_nothing() ? Choices() : carry_out("", "time goes by", rented);
}

std::vector<policy::Choice> JobRenting::decide(const std::string& subject,
                                               const std::string& event) {
  looked_ = standing_.now;
  if (standing_.measured.empty() || standing_.done >= job().steps) return {};
  return carry_out(subject, event, choose_rented(standing_, change_));
}

std::vector<policy::Choice> JobRenting::carry_out(const std::string& subject,
                                                  const std::string& event, const Rented& rented) {
  told_ = standing_.there();
  const double speed = standing_.speed_with(told_);
  told_step_ = speed > 0 ? 1 / speed : 0;
  const std::vector<policy::Alternative> alternatives = list_alternatives(standing_);
  const std::string text = tell(event, rented, alternatives);
  std::vector<policy::Action> actions;
  const auto rent = [&](const Offer& of, int count) {
    actions.push_back(policy::Rent{of.kind, of.zone, of.is_spot, count});
  };
  Machines then = told_;
  for (const auto& [offer, count] : rented.what) {
    for (const std::size_t m : standing_.free_of(offer, static_cast<std::size_t>(count))) {
      standing_.ask(m);
      then.insert(m);
    }
    rent(job().market.offers[offer], count);
  }
  if (rented.back) {
    standing_.machines[*rented.back].until = standing_.now;
    change_.is_forced = false;
    then.erase(*rented.back);
    rent(*standing_.offer_of(*rented.back), -1);
  }
  if (actions.empty()) actions.push_back(policy::Tell{subject, text});
  const double expected = standing_.speed_with(then);
  std::vector<policy::Choice> choices;
  for (policy::Action& action : actions)
    choices.push_back({std::move(action),
                       expected > 0 ? std::optional(Seconds(1 / expected)) : std::nullopt, text,
                       alternatives});
  return choices;
}

/// Says what happened, the alternatives, and what was chosen.
std::string JobRenting::tell(const std::string& event, const Rented& rented,
                             const std::vector<policy::Alternative>& alternatives) const {
  std::string text = event + "; left: ";
  for (const policy::Alternative& each : alternatives)
    text += fmt::format("{}{}{} for {:.3g}", &each == &alternatives.front() ? "" : "; ",
                        each.what == "as it is" ? "" : "with " + each.what + " ",
                        print_duration(each.time), each.cost);
  if (alternatives.empty()) text += "nobody is there";
  std::vector<std::string> asked;
  for (const auto& [offer, count] : rented.what)
    asked.push_back(fmt::format("{} {}", count, standing_.offers[offer].name));
  const std::string chosen = rented.back     ? "gives back " + job().machines[*rented.back].name
                             : asked.empty() ? "goes on as it is"
                                             : "asks for " + join(asked, " and ");
  return fmt::format("{}; {} to the deadline, {:.3g} paid: {}, {}", text,
                     print_duration(job().deadline - standing_.now), paid(), chosen, rented.why);
}

std::vector<const JobMachine*> JobRenting::asked_for(const policy::Rent& rent) const {
  std::vector<const JobMachine*> machines;
  for (std::size_t m = 0; m < standing_.machines.size(); ++m) {
    const Offer* const offer = standing_.offer_of(m);
    const MachineState& state = standing_.machines[m];
    const bool is_asked =
        state.place == MachineState::Place::kAsked && state.since == standing_.now;
    const bool goes = state.is_there() && state.until == standing_.now;
    if ((rent.count < 0 ? goes : is_asked) && offer != nullptr && offer->kind == rent.kind &&
        offer->zone == rent.zone && offer->is_spot == rent.spot)
      machines.push_back(&job().machines[m]);
  }
  return machines;
}

Json JobRenting::state() const {
  Json json{{"policy", name()}, {"version", kVersion}};
  json.update(fields_to_json(*this));
  json["lifetimes"] = lifetimes().to_json();
  return json;
}

Result<void> JobRenting::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::string policy, object.string("policy"));
  MOTLEY_ASSIGN(const std::int64_t version, object.integer("version"));
  if (policy != name() || version != kVersion)
    return usage_error("policy.state",
                       fmt::format("{}: state of policy '{}', version {}; wanted '{}', version {}",
                                   where, policy, version, name(), kVersion));
  JobRenting made(job(), Lifetimes(lifetimes().options()));
  MOTLEY_RETURN_IF_ERROR(read_fields(object, made));
  MOTLEY_ASSIGN(const Json* learned, object.member("lifetimes"));
  MOTLEY_ASSIGN(made.standing_.lifetimes,
                Lifetimes::from_json(*learned, where, lifetimes().options()));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  MOTLEY_RETURN_IF_ERROR(check_restored(made, where));
  *this = std::move(made);
  return {};
}

namespace {

/// Checks that a restored list has the names of the job's.
Result<void> check_names(const auto& restored, const auto& own, const std::string& what) {
  std::vector<std::string> names;
  for (const auto& each : own) names.push_back(each.name);
  const auto is_same = [](const auto& one, const std::string& name) { return one.name == name; };
  if (std::ranges::equal(restored, names, is_same)) return {};
  return usage_error("policy.state",
                     fmt::format("{} are not those of this job, {}", what, join(names, ", ")));
}

}  // namespace

Result<void> JobRenting::check_restored(const JobRenting& other, const std::string& where) const {
  const JobStanding& read = other.standing_;
  MOTLEY_RETURN_IF_ERROR(check_names(read.machines, standing_.machines, where + ": machines"));
  MOTLEY_RETURN_IF_ERROR(check_names(read.offers, standing_.offers, where + ": offers"));
  const auto fits = [&](const Machines& machines) {
    return machines.empty() || *machines.rbegin() < read.machines.size();
  };
  if (fits(other.told_) && std::ranges::all_of(read.measured, fits, &MeasuredSet::machines))
    return {};
  return usage_error("policy.state", where + ": a machine has no place among the job's");
}

}  // namespace motley::elastic
