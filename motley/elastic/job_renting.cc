#include "motley/elastic/job_renting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::elastic {
namespace {

constexpr std::pair<const char*, RentingRule> kRules[] = {{"motley", RentingRule::kMotley},
                                                          {"greedy", RentingRule::kGreedy},
                                                          {"on-demand", RentingRule::kOnDemand},
                                                          {"uniform", RentingRule::kUniform},
                                                          {"none", RentingRule::kNone}};

constexpr int kSettling = 2;      // steps skipped after a change of machines
constexpr double kNewest = 0.2;   // weight of the newest step in a set's average
constexpr double kHiccup = 3;     // a step counts as at most this multiple of the usual
constexpr double kSlower = 1.25;  // a step's slow-down that triggers a decision
constexpr double kPatience = 2;   // starts to wait for a machine
constexpr int kVersion = 2;       // of the state
constexpr const char* kPlaces[] = {"absent", "asked", "there"};

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
    : job_(std::move(job)), lifetimes_(std::move(lifetimes)), machines_(job_.machines.size()) {
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    if (!job_.machines[m].is_there) continue;
    begin_life(m);
    ++target_;
  }
  told_ = there();
  if (job_.step && !told_.empty()) measured_[told_] = told_step_ = job_.step->value;
  for (const Offer& offer : job_.market.offers) offers_.push_back({offer.price_per_hour});
}

std::string_view JobRenting::name() const {
  if (job_.rule == RentingRule::kMotley) return "market";
  for (const auto& [name, rule] : kRules)
    if (rule == job_.rule) return name;
  return "";
}

std::vector<policy::Choice> JobRenting::observe(const policy::Observation& seen) {
  return std::visit([this](const auto& each) { return see(each); }, seen);
}

std::vector<policy::Choice> JobRenting::see(const policy::StepSeen& seen) {
  advance(seen.at);
  done_ = seen.step + 1;
  measure(seen.took);
  return look();
}

std::vector<policy::Choice> JobRenting::see(const policy::LossSeen& seen) {
  const auto m = find_machine(seen.device);
  if (!m) return {};
  advance(seen.at);
  if (machines_[*m].place == Place::kThere && offer_of(*m) != nullptr) {
    if (seen.was_given_back)
      lifetimes_.end_given_back(life_of(*m), now_);
    else
      lifetimes_.end_lost(life_of(*m), now_);
  }
  machines_[*m] = {Place::kAbsent, now_, {}, machines_[*m].lives};
  settling_ = kSettling;
  return decide(seen.device,
                job_.machines[*m].name + (seen.was_given_back ? " was given back" : " is lost"));
}

std::vector<policy::Choice> JobRenting::see(const policy::NoticeSeen& seen) {
  const auto m = find_machine(seen.device);
  if (!m || machines_[*m].place != Place::kThere) return {};
  advance(seen.at);
  machines_[*m].until = now_ + seen.left;
  return decide(seen.device, fmt::format("{} will be gone in {}", job_.machines[*m].name,
                                         print_duration(seen.left)));
}

std::vector<policy::Choice> JobRenting::see(const policy::ArrivalSeen& seen) {
  const auto m = find_machine(seen.device);
  if (!m) return {};
  if (machines_[*m].place == Place::kThere) {  // It was to be given back, and stays.
    if (machines_[*m].until) machines_[*m].is_kept = true;
    machines_[*m].until.reset();
    return {};
  }
  advance(seen.at);
  begin_life(*m);
  settling_ = kSettling;
  return decide(seen.device, job_.machines[*m].name + " has come");
}

std::vector<policy::Choice> JobRenting::see(const policy::PriceSeen& seen) {
  const auto& offers = job_.market.offers;
  const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) {
    return offer.kind == seen.kind && offer.zone == seen.zone && offer.is_spot == seen.is_spot;
  });
  if (found == offers.end()) return {};
  const auto offer = static_cast<std::size_t>(found - offers.begin());
  OfferNow& known = offers_[offer];
  const bool is_there = seen.per_hour >= 0;
  if (known.is_there == is_there && (!is_there || known.price == seen.per_hour)) return {};
  advance(seen.at);
  std::string event = name_of(*found);
  if (is_there) {
    known.gaps.end(now_);
    event += fmt::format(" costs {:g} an hour, not {:g}", seen.per_hour, known.price);
    known.price = seen.per_hour;
  } else {
    known.gaps.begin(now_);
    event += " is not to be had any more";
  }
  known.is_there = is_there;
  return decide(name_of(*found), event);
}

std::optional<std::size_t> JobRenting::find_machine(const std::string& device) const {
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    const std::vector<std::string>& devices = job_.machines[m].devices;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) return m;
  }
  return std::nullopt;
}

const Offer* JobRenting::offer_of(std::size_t machine) const {
  const auto& offer = job_.machines[machine].offer;
  return offer ? &job_.market.offers[*offer] : nullptr;
}

std::string JobRenting::life_of(std::size_t machine) const {
  return fmt::format("{} life {}", job_.machines[machine].name, machines_[machine].lives);
}

/// Advances the clock and pays for machines that are present or starting.
void JobRenting::advance(Seconds at) {
  const Seconds passed = std::max(at - now_, Seconds(0));
  for (std::size_t m = 0; m < machines_.size(); ++m)
    if (job_.machines[m].offer && machines_[m].place != Place::kAbsent)
      paid_ += passed.value / 3600 * offers_[*job_.machines[m].offer].price;
  now_ += passed;
}

void JobRenting::begin_life(std::size_t machine) {
  machines_[machine] = {Place::kThere, now_, {}, machines_[machine].lives + 1};
  const Offer* const offer = offer_of(machine);
  if (offer != nullptr && offer->is_spot)
    lifetimes_.begin(life_of(machine), offer->kind, offer->zone, now_);
}

void JobRenting::measure(Seconds took) {
  if (settling_ > 0) {
    --settling_;
    return;
  }
  // A leaving machine may no longer take part.
  const bool leaves = std::any_of(machines_.begin(), machines_.end(), [](const MachineState& each) {
    return each.place == Place::kThere && each.until;
  });
  if (leaves || there().empty() || !(took.value > 0)) return;
  const auto [known, is_new] = measured_.try_emplace(there(), took.value);
  if (!is_new)
    known->second += kNewest * (std::min(took.value, kHiccup * known->second) - known->second);
}

/// Gives up on requested machines that are overdue; names them, or none.
std::optional<std::string> JobRenting::give_up_waiting() {
  std::vector<std::string> names;
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    if (machines_[m].place != Place::kAsked) continue;
    const std::size_t offer = *job_.machines[m].offer;
    if (now_ - machines_[m].since <= job_.market.offers[offer].start.cold * kPatience) continue;
    machines_[m] = {Place::kAbsent, now_, {}, machines_[m].lives};
    offers_[offer].gaps.begin(now_);
    offers_[offer].again = now_ + kAgain;
    names.push_back(job_.machines[m].name);
  }
  if (names.empty()) return std::nullopt;
  return join(names, ", ") + " did not come";
}

/// Decides on a tick, without news.
std::vector<policy::Choice> JobRenting::look() {
  if (now_ - looked_ < job_.tick) return {};
  looked_ = now_;
  for (OfferNow& offer : offers_) {
    if (!offer.again || now_ < *offer.again) continue;
    offer.again.reset();
    if (offer.is_there) offer.gaps.end(now_);
  }
  if (const auto missed = give_up_waiting()) return decide("", *missed);
  const double speed = speed_with(there());
  if (settling_ == 0 && speed > 0 && told_step_ > 0 && told_ == there() &&
      1 / speed > kSlower * told_step_)
    return decide("", fmt::format("a step takes {}, not {}", format_seconds(Seconds(1 / speed)),
                                  format_seconds(Seconds(told_step_))));
  if (measured_.empty() || done_ >= job_.steps) return {};
  const Rented rented = choose();
  return rented.what.empty() && !rented.back ? std::vector<policy::Choice>()
                                             : carry_out("", "time goes by", rented);
}

std::vector<policy::Choice> JobRenting::decide(const std::string& subject,
                                               const std::string& event) {
  looked_ = now_;
  if (measured_.empty() || done_ >= job_.steps) return {};
  return carry_out(subject, event, choose());
}

std::vector<policy::Choice> JobRenting::carry_out(const std::string& subject,
                                                  const std::string& event, const Rented& rented) {
  told_ = there();
  const double speed = speed_with(told_);
  told_step_ = speed > 0 ? 1 / speed : 0;
  const std::vector<policy::Alternative> alternatives = this->alternatives();
  std::string text = event + "; left: ";
  for (const policy::Alternative& each : alternatives)
    text += fmt::format("{}{}{} for {:.3g}", &each == &alternatives.front() ? "" : "; ",
                        each.what == "as it is" ? "" : "with " + each.what + " ",
                        print_duration(each.time), each.cost);
  if (alternatives.empty()) text += "nobody is there";
  text +=
      fmt::format("; {} to the deadline, {:.3g} paid", print_duration(job_.deadline - now_), paid_);
  std::vector<policy::Choice> choices;
  std::vector<std::string> asked;
  Machines then = told_;
  for (const auto& [offer, count] : rented.what) {
    const Offer& of = job_.market.offers[offer];
    for (const std::size_t m : free_of(offer, static_cast<std::size_t>(count))) {
      machines_[m] = {Place::kAsked, now_, {}, machines_[m].lives};
      then.insert(m);
    }
    asked.push_back(fmt::format("{} {}", count, name_of(of)));
    choices.push_back({policy::Rent{of.kind, of.zone, of.is_spot, count}, std::nullopt, "", {}});
  }
  if (rented.back) {
    machines_[*rented.back].until = now_;
    is_forced_ = false;
    then.erase(*rented.back);
    const Offer& of = *offer_of(*rented.back);
    choices.push_back({policy::Rent{of.kind, of.zone, of.is_spot, -1}, std::nullopt, "", {}});
  }
  if (choices.empty()) choices.push_back({policy::Tell{subject, ""}, std::nullopt, "", {}});
  text += ": ";
  if (rented.back)
    text += "gives back " + job_.machines[*rented.back].name;
  else
    text += asked.empty() ? "goes on as it is" : "asks for " + join(asked, " and ");
  text += ", " + rented.why;
  for (policy::Choice& choice : choices) {
    if (auto* tell = std::get_if<policy::Tell>(&choice.action)) tell->text = text;
    if (speed_with(then) > 0) choice.expected = Seconds(1 / speed_with(then));
    choice.why = text;
    choice.alternatives = alternatives;
  }
  return choices;
}

std::vector<const JobMachine*> JobRenting::asked_for(const policy::Rent& rent) const {
  std::vector<const JobMachine*> machines;
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    const Offer* const offer = offer_of(m);
    const bool is_asked = machines_[m].place == Place::kAsked && machines_[m].since == now_;
    const bool goes = machines_[m].place == Place::kThere && machines_[m].until == now_;
    if ((rent.count < 0 ? goes : is_asked) && offer != nullptr && offer->kind == rent.kind &&
        offer->zone == rent.zone && offer->is_spot == rent.spot)
      machines.push_back(&job_.machines[m]);
  }
  return machines;
}

namespace {

Json write_optional(const std::optional<Seconds>& time) {
  return time ? Json(time->value) : Json(nullptr);
}

Result<Machines> read_machines(const Json& json, std::size_t most, const std::string& where) {
  Machines machines;
  for (const Json& each : json) {
    if (!each.is_number_unsigned() || each.get<std::size_t>() >= most)
      return usage_error("policy.state", where + ": a machine has no place among the job's");
    machines.insert(each.get<std::size_t>());
  }
  return machines;
}

Result<std::optional<Seconds>> read_optional(const Json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  if (!json.is_number()) return usage_error("policy.state", where + ": a time is no number");
  return Seconds(json.get<double>());
}

}  // namespace

Json JobRenting::state() const {
  Json machines = Json::array(), offers = Json::array(), measured = Json::array();
  for (std::size_t m = 0; m < machines_.size(); ++m)
    machines.push_back({{"name", job_.machines[m].name},
                        {"place", kPlaces[static_cast<int>(machines_[m].place)]},
                        {"since", machines_[m].since.value},
                        {"until", write_optional(machines_[m].until)},
                        {"lives", machines_[m].lives},
                        {"kept", machines_[m].is_kept}});
  for (std::size_t o = 0; o < offers_.size(); ++o)
    offers.push_back({{"name", name_of(job_.market.offers[o])},
                      {"price", offers_[o].price},
                      {"is_there", offers_[o].is_there},
                      {"again", write_optional(offers_[o].again)},
                      {"gaps", offers_[o].gaps.to_json()}});
  for (const auto& [machines_then, step] : measured_)
    measured.push_back({{"machines", machines_then}, {"step_s", step}});
  return {{"policy", name()},
          {"version", kVersion},
          {"now", now_.value},
          {"looked", looked_.value},
          {"done", done_},
          {"paid", paid_},
          {"target", target_},
          {"settling", settling_},
          {"was_safe", was_safe_},
          {"is_forced", is_forced_},
          {"told_step", told_step_},
          {"told", told_},
          {"machines", std::move(machines)},
          {"offers", std::move(offers)},
          {"measured", std::move(measured)},
          {"lifetimes", lifetimes_.to_json()}};
}

namespace {

/// Reads a list whose members have exactly these names.
Result<std::vector<JsonObject>> read_named(JsonObject& object, const std::string& key,
                                           const std::vector<std::string>& names) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  std::vector<JsonObject> members;
  bool fits = list->is_array() && list->size() == names.size();
  for (std::size_t i = 0; fits && i < names.size(); ++i) {
    MOTLEY_ASSIGN(JsonObject member, JsonObject::make((*list)[i], object.where()));
    MOTLEY_ASSIGN(const std::string name, member.string("name"));
    fits = name == names[i];
    members.push_back(std::move(member));
  }
  if (!fits)
    return usage_error("policy.state", fmt::format("{}: {} are not those of this job, {}",
                                                   object.where(), key, join(names, ", ")));
  return members;
}

}  // namespace

Result<void> JobRenting::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  JobRenting made(job_, Lifetimes(lifetimes_.options()));
  MOTLEY_ASSIGN(const std::string policy, object.string("policy"));
  MOTLEY_ASSIGN(const std::int64_t version, object.integer("version"));
  if (policy != name() || version != kVersion)
    return usage_error("policy.state",
                       fmt::format("{}: state of policy '{}', version {}; wanted '{}', version {}",
                                   where, policy, version, name(), kVersion));
  MOTLEY_ASSIGN(made.now_.value, object.number("now"));
  MOTLEY_ASSIGN(made.looked_.value, object.number("looked"));
  MOTLEY_ASSIGN(made.done_, object.integer("done"));
  MOTLEY_ASSIGN(made.paid_, object.number("paid"));
  MOTLEY_ASSIGN(const std::int64_t target, object.integer("target"));
  MOTLEY_ASSIGN(const std::int64_t settling, object.integer("settling"));
  made.target_ = static_cast<std::size_t>(target);
  made.settling_ = static_cast<int>(settling);
  MOTLEY_ASSIGN(made.was_safe_, object.boolean("was_safe"));
  MOTLEY_ASSIGN(made.is_forced_, object.boolean("is_forced"));
  MOTLEY_ASSIGN(made.told_step_, object.number("told_step"));
  MOTLEY_ASSIGN(const Json* told, object.member("told"));
  MOTLEY_ASSIGN(made.told_, read_machines(*told, made.machines_.size(), where));
  MOTLEY_RETURN_IF_ERROR(made.restore_lists(object));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  *this = std::move(made);
  return {};
}

Result<void> JobRenting::restore_lists(JsonObject& object) {
  const std::string& where = object.where();
  std::vector<std::string> names;
  for (const JobMachine& machine : job_.machines) names.push_back(machine.name);
  MOTLEY_ASSIGN(std::vector<JsonObject> machines, read_named(object, "machines", names));
  for (std::size_t m = 0; m < machines.size(); ++m) {
    MOTLEY_ASSIGN(const std::string place, machines[m].string("place"));
    const auto found = std::find(std::begin(kPlaces), std::end(kPlaces), place);
    if (found == std::end(kPlaces))
      return usage_error("policy.state", where + ": key 'place': found '" + place +
                                             "', wanted absent, asked or there");
    MOTLEY_ASSIGN(const double since, machines[m].number("since"));
    MOTLEY_ASSIGN(const Json* until, machines[m].member("until"));
    MOTLEY_ASSIGN(const std::int64_t lives, machines[m].integer("lives"));
    machines_[m] = {static_cast<Place>(found - std::begin(kPlaces)),
                    Seconds(since),
                    {},
                    static_cast<int>(lives)};
    MOTLEY_ASSIGN(machines_[m].until, read_optional(*until, where));
    MOTLEY_ASSIGN(machines_[m].is_kept, machines[m].boolean("kept"));
  }
  names.clear();
  for (const Offer& offer : job_.market.offers) names.push_back(name_of(offer));
  MOTLEY_ASSIGN(std::vector<JsonObject> offers, read_named(object, "offers", names));
  for (std::size_t o = 0; o < offers.size(); ++o) {
    MOTLEY_ASSIGN(offers_[o].price, offers[o].number("price"));
    MOTLEY_ASSIGN(offers_[o].is_there, offers[o].boolean("is_there"));
    MOTLEY_ASSIGN(const Json* again, offers[o].member("again"));
    MOTLEY_ASSIGN(offers_[o].again, read_optional(*again, where));
    MOTLEY_ASSIGN(const Json* gaps, offers[o].member("gaps"));
    MOTLEY_ASSIGN(offers_[o].gaps, SpotGaps::from_json(*gaps, where));
  }
  MOTLEY_ASSIGN(const Json* measured, object.member("measured"));
  measured_.clear();
  for (const Json& each : *measured) {
    MOTLEY_ASSIGN(JsonObject one, JsonObject::make(each, where));
    MOTLEY_ASSIGN(const Json* by, one.member("machines"));
    MOTLEY_ASSIGN(const Machines machines_then, read_machines(*by, machines_.size(), where));
    MOTLEY_ASSIGN(measured_[machines_then], one.number("step_s"));
  }
  MOTLEY_ASSIGN(const Json* lifetimes, object.member("lifetimes"));
  MOTLEY_ASSIGN(lifetimes_, Lifetimes::from_json(*lifetimes, where, lifetimes_.options()));
  return {};
}

}  // namespace motley::elastic
