#include "motley/search/spmd/elimination.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "motley/base/check.h"

namespace motley::search {
namespace {

constexpr double kForbidden = std::numeric_limits<double>::infinity();

/// A table's numbers, shared by all that are equal.
struct Content {
  std::vector<int> domains;  // of its variables
  std::vector<double> cost;
};

/// Gives equal contents the same number.
class Contents {
 public:
  int add(std::vector<int> domains, std::vector<double> cost) {
    std::uint64_t hash = 1469598103934665603u;
    const auto mix = [&hash](const void* data, std::size_t bytes) {
      const auto* from = static_cast<const unsigned char*>(data);
      for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, from + i, 8);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 29;
      }
      for (std::size_t i = bytes / 8 * 8; i < bytes; ++i) hash = (hash ^ from[i]) * 1099511628211u;
    };
    mix(domains.data(), domains.size() * sizeof(int));
    mix(cost.data(), cost.size() * sizeof(double));
    for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it) {
      const Content& known = all_[static_cast<std::size_t>(it->second)];
      if (known.domains == domains && known.cost == cost) return it->second;
    }
    all_.push_back({std::move(domains), std::move(cost)});
    const int id = static_cast<int>(all_.size()) - 1;
    by_hash_.emplace(hash, id);
    return id;
  }
  const Content& at(int id) const { return all_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<Content> all_;
  std::unordered_multimap<std::uint64_t, int> by_hash_;
};

/// A table in play.
struct Factor {
  std::vector<int> variables;
  int content = 0;
};

/// What removing a variable gives: the least cost for every combination of the others, less the
/// lowest of them, so that what many equal layers add up to does not make them differ.
struct Message {
  int content = 0;
  double least = 0;
};

/// Steps through the combinations of some domains and keeps the places in several tables.
class Odometer {
 public:
  Odometer(std::vector<int> domains, std::vector<std::vector<std::size_t>> strides)
      : domains_(std::move(domains)),
        strides_(std::move(strides)),
        digits_(domains_.size(), 0),
        places_(strides_.size(), 0) {}
  std::size_t place(std::size_t table) const { return places_[table]; }
  bool next() {
    for (std::size_t d = domains_.size(); d-- > 0;) {
      if (++digits_[d] < domains_[d]) {
        for (std::size_t t = 0; t < places_.size(); ++t) places_[t] += strides_[t][d];
        return true;
      }
      for (std::size_t t = 0; t < places_.size(); ++t)
        places_[t] -= strides_[t][d] * static_cast<std::size_t>(domains_[d] - 1);
      digits_[d] = 0;
    }
    return false;
  }

 private:
  std::vector<int> domains_;
  std::vector<std::vector<std::size_t>> strides_;  // [table][digit]
  std::vector<int> digits_;
  std::vector<std::size_t> places_;
};

/// Stride of each variable of `variables` in a table over `own`; 0 where it lacks it.
std::vector<std::size_t> strides_of(const std::vector<int>& variables, const std::vector<int>& own,
                                    const std::vector<int>& domains) {
  std::vector<std::size_t> strides(variables.size(), 0);
  std::size_t stride = 1;
  for (std::size_t i = own.size(); i-- > 0;) {
    const auto at = std::find(variables.begin(), variables.end(), own[i]);
    if (at != variables.end()) strides[static_cast<std::size_t>(at - variables.begin())] = stride;
    stride *= static_cast<std::size_t>(domains[static_cast<std::size_t>(own[i])]);
  }
  return strides;
}

class Solver {
 public:
  Solver(const TableProblem& problem, std::size_t most_entries)
      : problem_(problem), most_entries_(most_entries), of_variable_(problem.domains.size()) {
    for (const CostTable& table : problem.tables) {
      MOTLEY_CHECK(!table.variables.empty());
      if (table.like >= 0) {
        add_factor({table.variables, factors_[static_cast<std::size_t>(table.like)].content});
        continue;
      }
      std::vector<int> domains;
      for (const int v : table.variables) domains.push_back(domain(v));
      add_factor({table.variables, contents_.add(std::move(domains), table.cost)});
    }
  }

  TableSolution solve() {
    eliminate_all();
    solution_.lower_bound = constant_;
    decode();
    if (solution_.relaxed > 0) improve();
    solution_.cost = cost_of(problem_, solution_.choice);
    if (solution_.relaxed == 0) solution_.lower_bound = solution_.cost;
    solution_.lower_bound = std::min(solution_.lower_bound, solution_.cost);
    return std::move(solution_);
  }

 private:
  int domain(int v) const { return problem_.domains[static_cast<std::size_t>(v)]; }

  void add_factor(Factor factor) {
    if (factor.variables.empty()) {
      constant_ += contents_.at(factor.content).cost[0];
      return;
    }
    const int id = static_cast<int>(factors_.size());
    for (const int v : factor.variables) of_variable_[static_cast<std::size_t>(v)].push_back(id);
    factors_.push_back(std::move(factor));
    is_live_.push_back(1);
  }

  std::vector<int> live_factors(int v) const {
    std::vector<int> live;
    for (const int f : of_variable_[static_cast<std::size_t>(v)])
      if (is_live_[static_cast<std::size_t>(f)]) live.push_back(f);
    return live;
  }

  /// Variables of some factors but v, in order of first occurrence.
  std::vector<int> others(const std::vector<int>& factors, int v) const {
    std::vector<int> found;
    for (const int f : factors)
      for (const int other : factors_[static_cast<std::size_t>(f)].variables)
        if (other != v && std::find(found.begin(), found.end(), other) == found.end())
          found.push_back(other);
    return found;
  }

  double entries(const std::vector<int>& variables) const {
    double product = 1;
    for (const int v : variables) product *= domain(v);
    return product;
  }

  double weight(int v) const { return entries(others(live_factors(v), v)) * domain(v); }

  void eliminate_all() {
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    std::vector<double> known(problem_.domains.size());
    std::vector<char> is_gone(problem_.domains.size(), 0);
    for (std::size_t v = 0; v < known.size(); ++v) {
      known[v] = weight(static_cast<int>(v));
      queue.emplace(known[v], static_cast<int>(v));
    }
    while (!queue.empty()) {
      const auto [weight_then, v] = queue.top();
      queue.pop();
      const auto at = static_cast<std::size_t>(v);
      if (is_gone[at] || weight_then != known[at]) continue;
      is_gone[at] = 1;
      const std::vector<int> touched = others(live_factors(v), v);
      eliminate(v);
      for (const int other : touched) {
        const auto o = static_cast<std::size_t>(other);
        known[o] = weight(other);
        queue.emplace(known[o], other);
      }
    }
  }

  void eliminate(int v) {
    std::vector<int> live = live_factors(v);
    order_.push_back({v, live});
    for (const int f : live) is_live_[static_cast<std::size_t>(f)] = 0;
    if (entries(others(live, v)) * domain(v) <= static_cast<double>(most_entries_)) {
      add_factor(minimise(v, live));
      return;
    }
    ++solution_.relaxed;
    std::stable_sort(live.begin(), live.end(), [&](int a, int b) {
      return factors_[static_cast<std::size_t>(a)].variables.size() >
             factors_[static_cast<std::size_t>(b)].variables.size();
    });
    std::vector<std::vector<int>> groups;
    for (const int f : live) {
      const auto fits = std::find_if(groups.begin(), groups.end(), [&](std::vector<int> group) {
        group.push_back(f);
        return entries(others(group, v)) * domain(v) <= static_cast<double>(most_entries_);
      });
      if (fits == groups.end())
        groups.push_back({f});
      else
        fits->push_back(f);
    }
    for (const std::vector<int>& group : groups) add_factor(minimise(v, group));
  }

  /// The table of the least sum over v.
  Factor minimise(int v, const std::vector<int>& group) {
    Factor result{others(group, v), 0};
    // The step as a pattern: which contents, and how their variables meet.
    std::vector<int> key;
    for (const int f : group) {
      const Factor& factor = factors_[static_cast<std::size_t>(f)];
      key.push_back(factor.content);
      for (const int u : factor.variables) {
        const auto at = std::find(result.variables.begin(), result.variables.end(), u);
        key.push_back(u == v ? -1 : static_cast<int>(at - result.variables.begin()));
      }
    }
    const auto [known, is_new] = steps_.try_emplace(std::move(key));
    if (is_new) {
      ++solution_.solved;
      known->second = compute(v, group, result.variables);
    } else {
      ++solution_.repeated;
    }
    result.content = known->second.content;
    constant_ += known->second.least;
    return result;
  }

  Message compute(int v, const std::vector<int>& group, const std::vector<int>& variables) {
    std::vector<int> digits;
    for (const int u : variables) digits.push_back(domain(u));
    std::vector<std::vector<std::size_t>> strides;
    std::vector<std::size_t> own;
    std::vector<const double*> costs;
    for (const int f : group) {
      const Factor& factor = factors_[static_cast<std::size_t>(f)];
      strides.push_back(strides_of(variables, factor.variables, problem_.domains));
      own.push_back(strides_of({v}, factor.variables, problem_.domains)[0]);
      costs.push_back(contents_.at(factor.content).cost.data());
    }
    std::vector<double> least;
    least.reserve(static_cast<std::size_t>(entries(variables)));
    Odometer odometer(digits, std::move(strides));
    do {
      double best = kForbidden;
      for (int x = 0; x < domain(v); ++x) {
        double sum = 0;
        for (std::size_t t = 0; t < costs.size(); ++t)
          sum += costs[t][odometer.place(t) + own[t] * static_cast<std::size_t>(x)];
        best = std::min(best, sum);
      }
      least.push_back(best);
    } while (odometer.next());
    const double lowest = *std::min_element(least.begin(), least.end());
    if (lowest == kForbidden) return {contents_.add(std::move(digits), std::move(least)), 0};
    for (double& each : least) each -= lowest;
    return {contents_.add(std::move(digits), std::move(least)), lowest};
  }

  /// Cost that some factors add when v takes x, the others chosen.
  double local_cost(const std::vector<int>& factors, int v, int x) const {
    double sum = 0;
    for (const int f : factors) {
      const Factor& factor = factors_[static_cast<std::size_t>(f)];
      std::size_t place = 0;
      for (const int u : factor.variables)
        place =
            place * static_cast<std::size_t>(domain(u)) +
            static_cast<std::size_t>(u == v ? x : solution_.choice[static_cast<std::size_t>(u)]);
      sum += contents_.at(factor.content).cost[place];
    }
    return sum;
  }

  int best_value(const std::vector<int>& factors, int v) const {
    int best = 0;
    double least = kForbidden;
    for (int x = 0; x < domain(v); ++x)
      if (const double cost = local_cost(factors, v, x); cost < least) {
        least = cost;
        best = x;
      }
    return best;
  }

  void decode() {
    solution_.choice.assign(problem_.domains.size(), 0);
    for (std::size_t i = order_.size(); i-- > 0;) {
      const auto& [v, factors] = order_[i];
      solution_.choice[static_cast<std::size_t>(v)] = best_value(factors, v);
    }
  }

  void improve() {
    std::vector<std::vector<int>> given(problem_.domains.size());
    for (std::size_t f = 0; f < problem_.tables.size(); ++f)
      for (const int v : factors_[f].variables)
        given[static_cast<std::size_t>(v)].push_back(static_cast<int>(f));
    bool is_better = true;
    for (int round = 0; is_better && round < 20; ++round) {
      is_better = false;
      for (std::size_t v = 0; v < given.size(); ++v) {
        const int id = static_cast<int>(v), now = solution_.choice[v];
        const int best = best_value(given[v], id);
        if (!(local_cost(given[v], id, best) < local_cost(given[v], id, now))) continue;
        solution_.choice[v] = best;
        is_better = true;
      }
    }
  }

  const TableProblem& problem_;
  const std::size_t most_entries_;
  Contents contents_;
  std::vector<Factor> factors_;  // the given ones first
  std::vector<char> is_live_;    // by factor
  std::vector<std::vector<int>> of_variable_;
  std::vector<std::pair<int, std::vector<int>>> order_;  // variable, the tables it had
  std::map<std::vector<int>, Message> steps_;            // by pattern
  double constant_ = 0;
  TableSolution solution_;
};

}  // namespace

double cost_of(const TableProblem& problem, const std::vector<int>& choice) {
  double sum = 0;
  for (const CostTable& table : problem.tables) {
    std::size_t place = 0;
    for (const int v : table.variables)
      place = place * static_cast<std::size_t>(problem.domains[static_cast<std::size_t>(v)]) +
              static_cast<std::size_t>(choice[static_cast<std::size_t>(v)]);
    sum += problem.cost(table)[place];
  }
  return sum;
}

TableSolution solve_tables(const TableProblem& problem, std::size_t most_entries) {
  return Solver(problem, most_entries).solve();
}

}  // namespace motley::search
