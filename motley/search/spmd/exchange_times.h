#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/cost/cost_model.h"

namespace motley::search {

/// Bytes by which an exchange is priced (program::even_bytes): passed on around a ring, or given by
/// each member to all others.
struct ExchangeBytes {
  double direct = 0, grouped = 0;
};

/// The quickest way to carry an exchange out.
struct QuickestExchange {
  double seconds = 0;
  ExchangeMethod method = ExchangeMethod::kNative;
};

/// Seconds of collectives among one group. An algorithm takes latency + bytes / rate, so the best
/// of several is concave in the bytes: the cost model is asked at powers of two until what is
/// between them is a line, which for one algorithm takes three times. A group of one takes 0, what
/// nobody measured infinity. Remembers what it was told, so one object serves one thread.
class ExchangeTimes {
 public:
  /// The model must outlive it.
  ExchangeTimes(const cost::CostModel& model, std::vector<std::string> group)
      : model_(model), group_(std::move(group)) {}
  /// Of a collective by its name ("motley::all_gather.grouped").
  double at(std::string_view name, double bytes);
  QuickestExchange quickest(std::string_view op, const ExchangeBytes& bytes);

 private:
  struct Knot {
    double bytes, seconds;
  };
  using Knots = std::vector<Knot>;  // of a polyline, by bytes

  const Knots& knots(std::string_view name);
  Knot ask(std::string_view name, int exponent) const;
  /// Appends the knots between two powers of two, and the second.
  void refine(std::string_view name, int low, int high, const Knot& end, Knots& knots) const;

  const cost::CostModel& model_;
  const std::vector<std::string> group_;  // names of devices
  std::map<std::string, Knots, std::less<>> known_;
};

}  // namespace motley::search
