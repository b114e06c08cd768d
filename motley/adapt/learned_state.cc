#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/adapt/learned_curves.h"
#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

// The text form of what was learned of a device.

namespace motley::adapt {

using policy::read_numbers;

Json LearnedCurves::state() const {
  Json points = Json::array(), window = Json::array();
  for (const Point& point : points_)
    points.push_back({{"samples", point.samples},
                      {"log_end", point.log_end},
                      {"weight", point.weight},
                      {"ready", point.ready},
                      {"age", point.age},
                      {"step", point.step}});
  for (const Reading& reading : window_)
    window.push_back(
        {{"log_end", reading.log_end}, {"ready", reading.ready}, {"first", reading.is_first}});
  return {{"points", std::move(points)},
          {"window", std::move(window)},
          {"samples", window_samples_},
          {"step", last_step_},
          {"largest", largest_seen_},
          {"updates", updates_},
          {"watch", watch_.state()},
          {"log_level", log_level_},
          {"squares", squares_},
          {"degrees", degrees_},
          {"assumed", assumed_spread_},
          {"first", first_steps_.state()},
          {"assumed_first", assumed_first_.state()}};
}

Result<void> LearnedCurves::restore(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  const auto read_point = [](JsonObject& each) -> Result<Point> {
    Point point;
    MOTLEY_ASSIGN(point.samples, each.integer("samples"));
    MOTLEY_ASSIGN(point.log_end, each.number("log_end"));
    MOTLEY_ASSIGN(point.weight, each.number("weight"));
    MOTLEY_ASSIGN(point.ready, read_numbers(each, "ready"));
    MOTLEY_ASSIGN(const std::int64_t age, each.integer("age"));
    point.age = static_cast<int>(age);
    MOTLEY_ASSIGN(point.step, each.integer("step"));
    if (point.samples <= 0 || !(point.weight > 0))
      return usage_error("policy.state", each.where() + ": wanted samples and a weight above 0");
    point.weight = std::min(point.weight, 1e6);
    return point;
  };
  const auto read_reading = [](JsonObject& each) -> Result<Reading> {
    Reading reading;
    MOTLEY_ASSIGN(reading.log_end, each.number("log_end"));
    MOTLEY_ASSIGN(reading.ready, read_numbers(each, "ready"));
    if (each.has("first")) {  // states of before have none
      MOTLEY_ASSIGN(reading.is_first, each.boolean("first"));
    }
    return reading;
  };
  MOTLEY_ASSIGN(points_, policy::read_list<Point>(object, "points", read_point));
  MOTLEY_ASSIGN(window_, policy::read_list<Reading>(object, "window", read_reading));
  MOTLEY_ASSIGN(window_samples_, object.integer("samples"));
  MOTLEY_ASSIGN(last_step_, object.integer("step"));
  MOTLEY_ASSIGN(largest_seen_, object.integer("largest"));
  MOTLEY_ASSIGN(updates_, policy::read_rows(object, "updates"));
  MOTLEY_ASSIGN(const Json* watch, object.member("watch"));
  MOTLEY_RETURN_IF_ERROR(watch_.restore(*watch, where + ": watch"));
  MOTLEY_ASSIGN(log_level_, object.number("log_level"));
  MOTLEY_ASSIGN(squares_, object.number("squares"));
  MOTLEY_ASSIGN(degrees_, object.number("degrees"));
  MOTLEY_ASSIGN(assumed_spread_, object.number("assumed"));
  for (const auto& [name, steps] :
       {std::pair{"first", &first_steps_}, std::pair{"assumed_first", &assumed_first_}}) {
    if (!object.has(name)) continue;  // states of before have none
    MOTLEY_ASSIGN(const Json* first, object.member(name));
    MOTLEY_RETURN_IF_ERROR(steps->restore(*first, where + ": " + name));
  }
  const auto fits = [](double log_seconds) { return std::abs(log_seconds) < 100; };
  const bool is_sound = fits(log_level_) && squares_ >= 0 && squares_ < 1e6 && degrees_ >= 0 &&
                        degrees_ < 1e6 && assumed_spread_ > 0 && assumed_spread_ < 100 &&
                        std::all_of(points_.begin(), points_.end(),
                                    [&](const Point& x) { return fits(x.log_end); }) &&
                        std::all_of(window_.begin(), window_.end(),
                                    [&](const Reading& x) { return fits(x.log_end); });
  if (!is_sound || (!window_.empty() && window_samples_ <= 0))
    return usage_error("policy.state", where + ": wanted times that a device can take");
  return object.refuse_unknown();
}

}  // namespace motley::adapt
