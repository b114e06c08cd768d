#include "motley/search/spmd/elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/random.h"

namespace motley::search {

struct Elimination::Steps {
  /// How the tables of a step combine, over the variables that remain and the removed one. Tables
  /// of a level have only its variable and earlier ones.
  struct Pattern {
    int domain = 0;            // of the removed variable
    std::vector<int> domains;  // of the remaining ones, the last fastest
    struct Input {
      std::vector<std::size_t> strides;  // by remaining variable; 0 if absent
      std::size_t own = 0;               // stride of the removed variable
    };
    std::vector<Input> inputs;
    /// By number n of fixed variables: inputs whose last variable is the n-th.
    std::vector<std::vector<std::size_t>> levels;
  };

  struct Step {
    int variable = 0;
    bool is_first = true;  // first group of the variable
    int groups = 1;        // number of its groups
    int pattern = 0;
    std::vector<int> inputs;  // table indices: the layout's, then the steps' results
    std::vector<int> left;    // variables of the result
  };

  std::vector<Step> steps;
  std::vector<Pattern> patterns;
  std::size_t relaxed = 0;
};

namespace {

using Pattern = Elimination::Steps::Pattern;
using Step = Elimination::Steps::Step;

constexpr double kForbidden = std::numeric_limits<double>::infinity();

template <typename T>
std::uint64_t hash_of(const std::vector<T>& of) {
  return hash_bytes({reinterpret_cast<const char*>(of.data()), of.size() * sizeof(T)});
}

/// Finds the elimination order (weighted min-fill): next is the variable whose removal joins the
/// fewest new pairs, weighted by the logarithms of their domains, then with the least work.
class Ordering {
 public:
  Ordering(const TableLayout& layout, std::size_t most_entries)
      : layout_(layout),
        most_entries_(most_entries),
        of_variable_(layout.domains.size()),
        neighbours_(layout.domains.size()) {
    for (const int domain : layout.domains) logs_.push_back(std::log(domain));
    for (const std::vector<int>& variables : layout.tables) {
      MOTLEY_CHECK(!variables.empty());
      add_table(variables);
    }
  }

  void find() {
    using Price = std::pair<double, double>;  // joined pairs, work
    using Entry = std::pair<Price, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    std::vector<Price> known(layout_.domains.size());
    std::vector<char> is_gone(known.size(), 0);
    const auto put = [&](int v) {
      known[at(v)] = {fill(v), entries(neighbours_[at(v)]) * domain(v)};
      queue.emplace(known[at(v)], v);
    };
    for (std::size_t v = 0; v < known.size(); ++v) put(static_cast<int>(v));
    while (!queue.empty()) {
      const auto [price, v] = queue.top();
      queue.pop();
      if (is_gone[at(v)] || price != known[at(v)]) continue;
      is_gone[at(v)] = 1;
      const std::vector<int> touched = neighbours_[at(v)];
      eliminate(v);
      std::vector<int> again = touched;  // their neighbours may have met
      for (const int u : touched)
        again.insert(again.end(), neighbours_[at(u)].begin(), neighbours_[at(u)].end());
      std::sort(again.begin(), again.end());
      again.erase(std::unique(again.begin(), again.end()), again.end());
      for (const int u : again) put(u);
    }
  }

  std::vector<Step> steps;
  std::vector<Pattern> patterns;
  std::size_t relaxed = 0;

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int domain(int v) const { return layout_.domains[at(v)]; }
  const std::vector<int>& variables(int table) const { return tables_[at(table)]; }

  void add_table(std::vector<int> variables) {
    const int id = static_cast<int>(tables_.size());
    for (const int v : variables) {
      of_variable_[at(v)].push_back(id);
      for (const int u : variables)
        if (u != v) join(v, u);
    }
    tables_.push_back(std::move(variables));
  }

  void join(int v, int u) {
    std::vector<int>& own = neighbours_[at(v)];
    const auto place = std::lower_bound(own.begin(), own.end(), u);
    if (place == own.end() || *place != u) own.insert(place, u);
  }

  double fill(int v) const {
    const std::vector<int>& own = neighbours_[at(v)];
    double sum = 0;
    for (std::size_t a = 0; a < own.size(); ++a) {
      const std::vector<int>& known = neighbours_[at(own[a])];
      for (std::size_t b = a + 1; b < own.size(); ++b)
        if (!std::binary_search(known.begin(), known.end(), own[b]))
          sum += logs_[at(own[a])] * logs_[at(own[b])];
    }
    return sum;
  }

  /// Returns the variables of some tables except v, in order of first occurrence.
  std::vector<int> others(const std::vector<int>& tables, int v) const {
    std::vector<int> found;
    for (const int t : tables)
      for (const int other : variables(t))
        if (other != v && std::find(found.begin(), found.end(), other) == found.end())
          found.push_back(other);
    return found;
  }

  double entries(const std::vector<int>& variables) const {
    double product = 1;
    for (const int v : variables) product *= domain(v);
    return product;
  }

  void eliminate(int v) {
    std::vector<int> live = std::move(of_variable_[at(v)]);
    for (const int u : neighbours_[at(v)]) {
      std::vector<int>& met = neighbours_[at(u)];
      met.erase(std::lower_bound(met.begin(), met.end(), v));
      std::vector<int>& tables = of_variable_[at(u)];
      tables.erase(std::remove_if(
                       tables.begin(), tables.end(),
                       [&](int t) { return std::find(live.begin(), live.end(), t) != live.end(); }),
                   tables.end());
    }
    const auto fits = [&](const std::vector<int>& tables) {
      return entries(others(tables, v)) * domain(v) <= static_cast<double>(most_entries_);
    };
    if (fits(live)) return add_step(v, {true, 1}, std::move(live));
    ++relaxed;
    std::stable_sort(live.begin(), live.end(),
                     [&](int a, int b) { return variables(a).size() > variables(b).size(); });
    std::vector<std::vector<int>> groups;
    for (const int t : live) {
      const auto group = std::find_if(groups.begin(), groups.end(), [&](std::vector<int> known) {
        known.push_back(t);
        return fits(known);
      });
      if (group == groups.end())
        groups.push_back({t});
      else
        group->push_back(t);
    }
    const int count = static_cast<int>(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g)
      add_step(v, {g == 0, count}, std::move(groups[g]));
  }

  /// Returns the remaining variables of a step. Those of the most tables come first, so that few
  /// tables have the last one, which has the most combinations.
  std::vector<int> left_of(const std::vector<int>& tables, int v) const {
    std::vector<int> left = others(tables, v);
    const auto times = [&](int u) {
      return std::count_if(tables.begin(), tables.end(), [&](int t) {
        return std::find(variables(t).begin(), variables(t).end(), u) != variables(t).end();
      });
    };
    std::map<int, std::ptrdiff_t> had;
    for (const int u : left) had[u] = times(u);
    std::stable_sort(left.begin(), left.end(), [&](int a, int b) { return had[a] > had[b]; });
    return left;
  }

  struct Group {
    bool is_first = true;
    int groups = 1;
  };

  void add_step(int v, const Group& group, std::vector<int> tables) {
    std::vector<int> left = left_of(tables, v);
    add_table(left);
    const int pattern = pattern_of(tables, v, left, group.groups > 1);
    steps.push_back({v, group.is_first, group.groups, pattern, std::move(tables), std::move(left)});
  }

  int pattern_of(const std::vector<int>& tables, int v, const std::vector<int>& left,
                 bool has_shift) {
    std::vector<int> key = {domain(v), static_cast<int>(left.size()), has_shift};
    for (const int u : left) key.push_back(domain(u));
    for (const int t : tables) {
      for (const int u : variables(t))
        key.push_back(
            u == v ? -1 : static_cast<int>(std::find(left.begin(), left.end(), u) - left.begin()));
      key.push_back(-2);
    }
    const auto [known, is_new] =
        pattern_ids_.try_emplace(std::move(key), static_cast<int>(patterns.size()));
    if (!is_new) return known->second;
    patterns.push_back(make_pattern(tables, v, left));
    if (has_shift) {  // the last input
      patterns.back().levels[0].push_back(patterns.back().inputs.size());
      patterns.back().inputs.push_back({std::vector<std::size_t>(left.size(), 0), 1});
    }
    return known->second;
  }

  Pattern make_pattern(const std::vector<int>& tables, int v, const std::vector<int>& left) const {
    Pattern pattern{domain(v), {}, {}, {}};
    for (const int u : left) pattern.domains.push_back(domain(u));
    pattern.levels.resize(left.size() + 1);
    for (const int t : tables) {
      Pattern::Input input{std::vector<std::size_t>(left.size(), 0), 0};
      std::size_t stride = 1, level = 0;
      for (std::size_t i = variables(t).size(); i-- > 0;) {
        const int u = variables(t)[i];
        if (u == v) {
          input.own = stride;
        } else {
          const auto at =
              static_cast<std::size_t>(std::find(left.begin(), left.end(), u) - left.begin());
          input.strides[at] = stride;
          level = std::max(level, at + 1);
        }
        stride *= static_cast<std::size_t>(domain(u));
      }
      pattern.levels[level].push_back(pattern.inputs.size());
      pattern.inputs.push_back(std::move(input));
    }
    return pattern;
  }

  const TableLayout& layout_;
  const std::size_t most_entries_;
  std::vector<double> logs_;                   // of domains, by variable
  std::vector<std::vector<int>> tables_;       // variables by table; the layout's first
  std::vector<std::vector<int>> of_variable_;  // remaining tables
  std::vector<std::vector<int>> neighbours_;   // by variable: those it meets, ascending
  std::map<std::vector<int>, int> pattern_ids_;
};

/// Assigns equal costs the same number.
class Contents {
 public:
  int add(std::vector<double> costs) {
    const std::uint64_t hash = hash_of(costs);
    for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it)
      if (at(it->second) == costs) return it->second;
    all_.push_back(std::move(costs));
    const int id = static_cast<int>(all_.size()) - 1;
    by_hash_.emplace(hash, id);
    return id;
  }
  const std::vector<double>& at(int id) const { return all_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<std::vector<double>> all_;
  std::unordered_multimap<std::uint64_t, int> by_hash_;
};

/// Minimises the sum of tables over the removed variable, for all combinations of the others. It
/// recurses over these and adds each table that becomes determined.
class Minimum {
 public:
  Minimum(const Pattern& pattern, const std::vector<const double*>& tables)
      : pattern_(pattern),
        tables_(tables),
        domain_(static_cast<std::size_t>(pattern.domain)),
        places_((pattern.domains.size() + 1) * tables.size(), 0),
        sums_((pattern.domains.size() + 1) * domain_, 0.0) {
    std::size_t entries = 1;
    for (const int domain : pattern.domains) entries *= static_cast<std::size_t>(domain);
    least_.reserve(entries);
  }

  std::vector<double> find() {
    go(0);
    return std::move(least_);
  }

 private:
  /// The first `level` variables are fixed.
  void go(std::size_t level) {
    const std::size_t tables = tables_.size();
    const std::size_t* places = &places_[level * tables];
    double* sums = &sums_[level * domain_];
    if (level > 0) std::copy_n(sums - domain_, domain_, sums);
    for (const std::size_t t : pattern_.levels[level]) {
      const double* costs = tables_[t] + places[t];
      const std::size_t own = pattern_.inputs[t].own;
      for (std::size_t x = 0; x < domain_; ++x) sums[x] += costs[x * own];
    }
    if (level + 1 >= pattern_.domains.size()) return finish(places, sums);
    std::size_t* next = &places_[(level + 1) * tables];
    std::copy_n(places, tables, next);
    for (int digit = 0; digit < pattern_.domains[level]; ++digit) {
      go(level + 1);
      for (std::size_t t = 0; t < tables; ++t) next[t] += pattern_.inputs[t].strides[level];
    }
  }

  /// Only the last variable, if any, is free.
  void finish(const std::size_t* places, const double* sums) {
    const std::size_t last = pattern_.domains.size();
    if (last == 0) {
      least_.push_back(*std::min_element(sums, sums + domain_));
      return;
    }
    columns_.clear();
    for (const std::size_t t : pattern_.levels[last]) {
      const Pattern::Input& input = pattern_.inputs[t];
      columns_.push_back({tables_[t] + places[t], input.strides[last - 1], input.own});
    }
    switch (columns_.size()) {
      case 1:
        return over_last(sums, [this](std::size_t x) { return columns_[0].at(x); });
      case 2:
        return over_last(sums,
                         [this](std::size_t x) { return columns_[0].at(x) + columns_[1].at(x); });
      default:
        return over_last(sums, [this](std::size_t x) {
          double sum = 0;
          for (const Column& column : columns_) sum += column.at(x);
          return sum;
        });
    }
  }

  /// A table by values of the last and the removed variable.
  struct Column {
    const double* costs;
    std::size_t stride, own;
    double at(std::size_t x) const { return costs[x * own]; }
  };

  template <typename Last>
  void over_last(const double* sums, const Last& last) {
    for (int digit = 0; digit < pattern_.domains.back(); ++digit) {
      double best = kForbidden;
      for (std::size_t x = 0; x < domain_; ++x) best = std::min(best, sums[x] + last(x));
      least_.push_back(best);
      for (Column& column : columns_) column.costs += column.stride;
    }
  }

  const Pattern& pattern_;
  const std::vector<const double*>& tables_;
  const std::size_t domain_;
  std::vector<std::size_t> places_;  // [fixed variables][table]
  std::vector<double> sums_;         // [fixed variables][value of the removed one]
  std::vector<Column> columns_;      // determined by the last variable
  std::vector<double> least_;
};

/// A step's least costs minus their minimum, so that equal layers' results are equal.
struct Message {
  int content = 0;
  double least = 0;
};

struct HashKey {
  std::size_t operator()(const std::vector<int>& key) const { return hash_of(key); }
};

std::size_t place_of(const TableLayout& layout, std::size_t table, const std::vector<int>& choice) {
  std::size_t place = 0;
  for (const int u : layout.tables[table]) {
    const auto v = static_cast<std::size_t>(u);
    place =
        place * static_cast<std::size_t>(layout.domains[v]) + static_cast<std::size_t>(choice[v]);
  }
  return place;
}

const std::vector<double>& costs_of(const TableCosts& costs, std::size_t table) {
  return costs.costs[static_cast<std::size_t>(costs.of_table[table])];
}

/// Sets each variable to its best value in turn, until nothing improves.
void improve(const TableLayout& layout, const TableCosts& costs, std::vector<int>& choice) {
  constexpr int kMostRounds = 20;
  std::vector<std::vector<std::size_t>> tables_of(layout.domains.size());
  for (std::size_t t = 0; t < layout.tables.size(); ++t)
    for (const int v : layout.tables[t]) tables_of[static_cast<std::size_t>(v)].push_back(t);
  const auto local_cost = [&](std::size_t v) {
    double sum = 0;
    for (const std::size_t t : tables_of[v]) sum += costs_of(costs, t)[place_of(layout, t, choice)];
    return sum;
  };
  bool is_better = true;
  for (int round = 0; is_better && round < kMostRounds; ++round) {
    is_better = false;
    for (std::size_t v = 0; v < tables_of.size(); ++v) {
      int best = choice[v];
      double least = local_cost(v);
      for (choice[v] = 0; choice[v] < layout.domains[v]; ++choice[v])
        if (const double cost = local_cost(v); cost < least) {
          least = cost;
          best = choice[v];
          is_better = true;
        }
      choice[v] = best;
    }
  }
}

class Solver {
 public:
  Solver(const TableLayout& layout, const Elimination::Steps& steps, const TableCosts& costs,
         bool has_shifts)
      : layout_(layout), plan_(steps), has_shifts_(has_shifts) {
    std::vector<int> ids;
    for (const std::vector<double>& table : costs.costs) ids.push_back(contents_.add(table));
    for (const int cost : costs.of_table)
      content_of_.push_back(ids[static_cast<std::size_t>(cost)]);
  }

  TableSolution solve() {
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
      const Step& step = plan_.steps[s];
      if (step.is_first && step.groups > 1) find_shifts(s);
      const Message message = minimise(step);
      content_of_.push_back(message.content);
      solution_.lower_bound += message.least;
    }
    decode();
    return std::move(solution_);
  }

 private:
  const std::vector<double>& content(int table) const {
    return contents_.at(content_of_[static_cast<std::size_t>(table)]);
  }

  /// Shifts the costs of a variable's groups, which are minimised separately, so that they agree on
  /// its value: each by the mean of the groups' least costs less its own, which sums to zero.
  void find_shifts(std::size_t first) {
    const auto groups = static_cast<std::size_t>(plan_.steps[first].groups);
    std::vector<std::vector<double>> least;
    for (std::size_t g = 0; g < groups; ++g) least.push_back(least_of(plan_.steps[first + g]));
    shifts_.clear();
    for (std::size_t x = 0; x < least[0].size(); ++x) {
      double sum = 0;
      for (const std::vector<double>& own : least) sum += own[x];
      for (std::vector<double>& own : least)
        own[x] = has_shifts_ && std::isfinite(sum) ? sum / static_cast<double>(groups) - own[x] : 0;
    }
    for (std::vector<double>& own : least) shifts_.push_back(contents_.add(std::move(own)));
    next_shift_ = 0;
  }

  /// Returns, by value of the variable, the sum of the tables' least costs.
  std::vector<double> least_of(const Step& step) const {
    const Pattern& pattern = plan_.patterns[static_cast<std::size_t>(step.pattern)];
    const auto domain = static_cast<std::size_t>(pattern.domain);
    std::vector<double> sums(domain, 0), own(domain);
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const std::vector<double>& costs = content(step.inputs[i]);
      const std::size_t stride = pattern.inputs[i].own;
      own.assign(domain, kForbidden);
      for (std::size_t place = 0; place < costs.size();)
        for (double& each : own)
          for (std::size_t end = place + stride; place < end; ++place)
            each = std::min(each, costs[place]);
      for (std::size_t x = 0; x < domain; ++x) sums[x] += own[x];
    }
    return sums;
  }

  Message minimise(const Step& step) {
    key_.assign({step.pattern});
    for (const int table : step.inputs)
      key_.push_back(content_of_[static_cast<std::size_t>(table)]);
    const int shift = step.groups > 1 ? shifts_[next_shift_++] : -1;
    if (shift >= 0) key_.push_back(shift);
    if (const auto known = done_.find(key_); known != done_.end()) {
      ++solution_.repeated;
      return known->second;
    }
    ++solution_.solved;
    std::vector<const double*> tables;
    for (const int table : step.inputs) tables.push_back(content(table).data());
    if (shift >= 0) tables.push_back(contents_.at(shift).data());
    const Pattern& pattern = plan_.patterns[static_cast<std::size_t>(step.pattern)];
    std::vector<double> least = Minimum(pattern, tables).find();
    Message message{0, *std::min_element(least.begin(), least.end())};
    if (message.least < kForbidden)
      for (double& each : least) each -= message.least;
    message.content = contents_.add(std::move(least));
    done_.emplace(key_, message);
    return message;
  }

  /// Finds the values of the variables, the last removed first.
  void decode() {
    std::vector<int>& choice = solution_.choice;
    choice.assign(layout_.domains.size(), 0);
    std::vector<double> sums;
    for (std::size_t s = plan_.steps.size(); s-- > 0;) {
      const Step& step = plan_.steps[s];
      const Pattern& pattern = plan_.patterns[static_cast<std::size_t>(step.pattern)];
      sums.resize(static_cast<std::size_t>(pattern.domain), 0.0);
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        const Pattern::Input& input = pattern.inputs[i];
        std::size_t place = 0;
        for (std::size_t u = 0; u < step.left.size(); ++u)
          place += input.strides[u] *
                   static_cast<std::size_t>(choice[static_cast<std::size_t>(step.left[u])]);
        const std::vector<double>& costs = content(step.inputs[i]);
        for (std::size_t x = 0; x < sums.size(); ++x) sums[x] += costs[place + x * input.own];
      }
      if (!step.is_first) continue;  // more groups of the variable
      const auto best = std::min_element(sums.begin(), sums.end());
      choice[static_cast<std::size_t>(step.variable)] = static_cast<int>(best - sums.begin());
      sums.clear();
    }
  }

  const TableLayout& layout_;
  const Elimination::Steps& plan_;
  const bool has_shifts_;
  Contents contents_;
  std::vector<int> content_of_;                                  // by table, as far as known
  std::unordered_map<std::vector<int>, Message, HashKey> done_;  // by pattern and contents
  std::vector<int> key_;
  std::vector<int> shifts_;  // contents, by group of the removed variable
  std::size_t next_shift_ = 0;
  TableSolution solution_;
};

}  // namespace

Elimination::Elimination(TableLayout layout, std::size_t most_entries)
    : layout_(std::move(layout)) {
  Ordering ordering(layout_, most_entries);
  ordering.find();
  steps_ = std::make_unique<const Steps>(
      Steps{std::move(ordering.steps), std::move(ordering.patterns), ordering.relaxed});
}

Elimination::~Elimination() = default;

TableSolution Elimination::solve(const TableCosts& costs) const {
  TableSolution solution = solve(costs, Shifts::kOn);
  if (solution.relaxed == 0) return solution;
  TableSolution other = solve(costs, Shifts::kOff);
  if (other.cost < solution.cost) std::swap(solution, other);
  solution.lower_bound = std::max(solution.lower_bound, other.lower_bound);
  return solution;
}

TableSolution Elimination::bound(const TableCosts& costs) const {
  return solve(costs, Shifts::kOn);
}

TableSolution Elimination::solve(const TableCosts& costs, Shifts shifts) const {
  TableSolution solution = Solver(layout_, *steps_, costs, shifts == Shifts::kOn).solve();
  solution.relaxed = steps_->relaxed;
  if (solution.relaxed > 0) improve(layout_, costs, solution.choice);
  solution.cost = cost_of(layout_, costs, solution.choice);
  if (solution.relaxed == 0) solution.lower_bound = solution.cost;
  solution.lower_bound = std::min(solution.lower_bound, solution.cost);
  return solution;
}

double cost_of(const TableLayout& layout, const TableCosts& costs, const std::vector<int>& choice) {
  double sum = 0;
  for (std::size_t t = 0; t < layout.tables.size(); ++t)
    sum += costs_of(costs, t)[place_of(layout, t, choice)];
  return sum;
}

}  // namespace motley::search
