#include "motley/search/spmd/bound_terms.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace motley::search {
namespace {

constexpr double kMostDropped = 0.01;  // fraction of the seconds that may be dropped to gain waists
constexpr std::size_t kMostReaders = 4;  // per waist
constexpr int kNever = std::numeric_limits<int>::max();

class Terms {
 public:
  Terms(const graph::Graph& graph, const SpmdSpace& space, const std::vector<double>& seconds)
      : graph_(graph), space_(space), seconds_(seconds) {}

  BoundTerms find() {
    find_chain();
    find_places();
    terms_.compute.assign(graph_.ops.size(), 0);
    terms_.inner.assign(graph_.ops.size(), 0);
    terms_.lanes.assign(graph_.values.size(), kLane);
    terms_.copies.assign(graph_.values.size(), kWork);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (space_.is_needed[i]) terms_.inner[i] |= kLane;
    const int end = static_cast<int>(chain_.size()) - 1;
    int turn = 0;  // the last forward operator
    for (int k = 0; k <= end; ++k)
      if (graph_.op(chain_[at(k)]).direction == graph::Direction::kForward) turn = k;
    const auto all = [](std::size_t) { return true; };
    const auto waits = [&](std::size_t op) { return before_[op] != kNever; };
    add(kBusy, all, turn);
    add(kPath, waits, end);
    add(kChain, waits, end, 1);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!space_.is_needed[i]) continue;
      terms_.compute[i] |= kWork;
      // No waist of the forward pass is exchanged after this.
      if (after_[i] < turn) continue;
      for (const ValueId value : graph_.ops[i].outputs) terms_.copies[value.index()] |= kBusy;
    }
    add_after(kAfter, turn);
    add_after(kLate, find_half(turn));
    add_after(kEnd, end);
    add_before(turn);
    return std::move(terms_);
  }

 private:
  /// Adds what a place of the chain waits for, and the exchanges of everything that waits for it.
  void add_after(Bounds bound, int place) {
    const auto is_before = [&](std::size_t op) { return before_[op] <= place; };
    add(bound, is_before, place);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (after_[i] < place || !space_.is_needed[i]) continue;
      if (!is_before(i)) terms_.inner[i] |= bound;
      for (const ValueId value : graph_.ops[i].outputs) terms_.lanes[value.index()] |= bound;
    }
  }

  /// Returns the place on the chain where half of the seconds after `turn` are over.
  int find_half(int turn) const {
    double left = 0;
    for (std::size_t k = at(turn); k < chain_.size(); ++k) left += seconds_[chain_[k].index()];
    double passed = 0;
    int place = turn;
    while (at(place) + 1 < chain_.size() && passed < left / 2)
      passed += seconds_[chain_[at(++place)].index()];
    return place;
  }

  /// Adds what the end of the forward pass waits for, with one reader per value.
  void add_before(int turn) {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!space_.is_needed[i]) continue;
      if (before_[i] <= turn) terms_.inner[i] |= kBefore;
      if (before_[i] > turn && after_[i] >= turn) terms_.compute[i] |= kBefore;
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const std::vector<Reader>& readers = space_.readers[v];
      const auto first = std::find_if(readers.begin(), readers.end(), [&](const Reader& reader) {
        return !reader.op.is_none() && before_[reader.op.index()] <= turn;
      });
      if (first == readers.end()) continue;
      add_change(ValueId(static_cast<std::int64_t>(v)),
                 {static_cast<std::size_t>(first - readers.begin())}, kBefore);
    }
  }

  void add_change(ValueId value, std::vector<std::size_t> readers, Bounds bound) {
    const auto [known, is_new] = changes_.try_emplace({value, readers}, terms_.changes.size());
    if (is_new) terms_.changes.push_back({value, std::move(readers), 0});
    terms_.changes[known->second].bounds |= bound;
  }

  static std::size_t at(int place) { return static_cast<std::size_t>(place); }

  void find_chain() {
    std::vector<double> until(graph_.ops.size(), 0);
    std::vector<ValueId> by(graph_.ops.size());
    std::size_t last = 0;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!space_.is_needed[i]) continue;
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none() || until[producer.index()] <= until[i]) return;
        until[i] = until[producer.index()];
        by[i] = value;
      });
      until[i] += seconds_[i];
      if (until[i] > until[last]) last = i;
    }
    while (true) {
      chain_.emplace_back(static_cast<std::int64_t>(last));
      if (by[last].is_none()) break;
      last = graph_.value(by[last]).producer.index();
    }
    std::reverse(chain_.begin(), chain_.end());
  }

  /// Finds by operator the last chain place that it is or waits for, and the first that waits.
  void find_places() {
    std::vector<int> own(graph_.ops.size(), -1);
    for (std::size_t k = 0; k < chain_.size(); ++k) own[chain_[k].index()] = static_cast<int>(k);
    after_.assign(graph_.ops.size(), -1);
    before_.assign(graph_.ops.size(), kNever);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      after_[i] = own[i];
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (!producer.is_none()) after_[i] = std::max(after_[i], after_[producer.index()]);
      });
    }
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!space_.is_needed[i]) continue;
      if (own[i] >= 0) before_[i] = own[i];
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none()) return;
        int& first = before_[producer.index()];
        first = std::min(first, before_[i]);
      });
    }
  }

  /// May the operator run while the result of the k-th chain operator is exchanged?
  bool is_beside(std::size_t op, int k) const { return before_[op] > k && after_[op] < k; }

  /// Adds some operators' compute, and waists before `end`; may drop a fraction of the seconds.
  template <typename Counts>
  void add(Bounds bound, const Counts& counts, int end, double dropped_most = kMostDropped) {
    std::vector<std::size_t> counted;
    double total = 0;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (space_.is_needed[i] && counts(i)) {
        counted.push_back(i);
        total += seconds_[i];
      }
    std::vector<char> is_dropped(graph_.ops.size(), 0);
    double spare = dropped_most * total;
    const auto drop_beside = [&](int k) {
      double dropped = 0;
      for (const std::size_t op : counted)
        if (!is_dropped[op] && is_beside(op, k)) dropped += seconds_[op];
      if (dropped > spare) return false;
      spare -= dropped;
      for (const std::size_t op : counted)
        if (is_beside(op, k)) is_dropped[op] = 1;
      return true;
    };
    std::vector<int> waists;
    if (drop_beside(end))  // what comes after waits for the end
      for (const int k : by_others(counted, end))
        if (drop_beside(k)) waists.push_back(k);
    for (const std::size_t op : counted)
      if (!is_dropped[op]) terms_.compute[op] |= bound;
    std::sort(waists.begin(), waists.end(), std::greater<>());
    int next = end;
    for (const int k : waists) {
      terms_.inner[chain_[at(k)].index()] |= bound;
      if (add_waist(chain_[at(k)], next, bound)) next = k;
    }
  }

  /// Returns places on the chain, ordered by the seconds that may run beside them.
  std::vector<int> by_others(const std::vector<std::size_t>& counted, int end) const {
    std::vector<double> beside(chain_.size() + 1, 0);  // differences
    for (const std::size_t op : counted) {
      const int first = after_[op] + 1, last = std::min(before_[op], end);
      if (first >= last) continue;
      beside[at(first)] += seconds_[op];
      beside[at(last)] -= seconds_[op];
    }
    std::partial_sum(beside.begin(), beside.end(), beside.begin());
    std::vector<int> places(at(end));
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(),
                     [&](int a, int b) { return beside[at(a)] < beside[at(b)]; });
    return places;
  }

  /// Adds a waist if one result is read by all first readers. Everything that counts between an
  /// operator and the next waist waits for one of the readers of its results before that.
  bool add_waist(OpId op, int next, Bounds bound) {
    ValueId value;
    std::vector<std::size_t> readers;
    for (const ValueId output : graph_.op(op).outputs) {
      const std::vector<Reader>& all = space_.readers[output.index()];
      for (std::size_t r = 0; r < all.size(); ++r) {
        if (all[r].op.is_none() || before_[all[r].op.index()] > next) continue;
        if (!value.is_none() && value != output) return false;
        value = output;
        readers.push_back(r);
      }
    }
    drop_later(value, readers);
    if (readers.empty() || readers.size() > kMostReaders) return false;
    add_change(value, std::move(readers), bound);
    return true;
  }

  /// Removes readers of a value that wait for other readers.
  void drop_later(ValueId value, std::vector<std::size_t>& readers) const {
    if (readers.size() < 2) return;
    const std::vector<Reader>& all = space_.readers[value.index()];
    std::set<std::size_t> ops;
    for (const std::size_t r : readers) ops.insert(all[r].op.index());
    // Finds what waits for one of them, up to the last; operators are in order.
    std::set<std::size_t> later;
    std::vector<char> waits(*ops.rbegin() + 1, 0);
    for (std::size_t i = *ops.begin(); i < waits.size(); ++i) {
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId argument) {
        const OpId producer = graph_.value(argument).producer;
        if (!producer.is_none() && waits[producer.index()]) waits[i] = 1;
      });
      if (waits[i] && ops.contains(i)) later.insert(i);
      if (ops.contains(i)) waits[i] = 1;
    }
    std::erase_if(readers, [&](std::size_t r) { return later.contains(all[r].op.index()); });
  }

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  const std::vector<double>& seconds_;
  std::vector<OpId> chain_;
  std::vector<int> after_, before_;  // places on the chain, by operator
  std::map<std::pair<ValueId, std::vector<std::size_t>>, std::size_t> changes_;  // indices
  BoundTerms terms_;
};

}  // namespace

BoundTerms find_bound_terms(const graph::Graph& graph, const SpmdSpace& space,
                            const std::vector<double>& seconds) {
  return Terms(graph, space, seconds).find();
}

}  // namespace motley::search
