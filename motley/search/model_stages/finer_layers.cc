#include "motley/search/model_stages/finer_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/search/model_stages/recompute_choice.h"

namespace motley::search {
namespace {

constexpr double kNeverCut = std::numeric_limits<double>::infinity();

/// First the finest chain: *atoms*, each of one operator of the forward pass that works on samples.
class Refining {
 public:
  explicit Refining(const FinerQuestion& question)
      : question_(question),
        graph_(question.graph),
        layers_(question.layers),
        atoms_(layers_.of_op.size(), graph::kNoLayer) {}

  FinerLayers run() {
    find_atoms();
    find_atom_seconds();
    find_widths();
    cut();
    return std::move(made_);
  }

 private:
  std::size_t layer_count() const { return layers_.names.size(); }
  bool is_forward(std::size_t op) const {
    return graph_.ops[op].direction == graph::Direction::kForward;
  }

  /// Is it made of parameters, buffers and numbers alone?
  std::vector<char> find_free() const {
    std::vector<char> is_free(graph_.ops.size(), 0);
    for (std::size_t i = 0; i < is_free.size(); ++i) {
      bool all = is_forward(i);
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const graph::Value& about = graph_.value(value);
        all = all && (about.role == graph::ValueRole::kParameter ||
                      about.role == graph::ValueRole::kBuffer ||
                      (!about.producer.is_none() && is_free[about.producer.index()] != 0));
      });
      is_free[i] = all ? 1 : 0;
    }
    return is_free;
  }

  void find_atoms() {
    const std::vector<char> is_free = find_free();
    std::vector<std::vector<std::size_t>> ops(layer_count());  // forward
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (is_forward(i)) ops[layers_.of_op[i]].push_back(i);
    first_atom_ = {0};
    for (const std::vector<std::size_t>& own : ops) {
      std::size_t next = first_atom_.back();
      for (const std::size_t op : own)
        if (is_free[op] == 0) atoms_[op] = next++;
      first_atom_.push_back(std::max(next, first_atom_.back() + 1));
    }
    // With the first that reads it, which is in this layer or, of what has no reader here, none.
    std::vector<std::size_t> reader(graph_.values.size(), graph::kNoLayer);
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!is_forward(i)) continue;
      const std::size_t layer = layers_.of_op[i];
      if (is_free[i] != 0) {
        std::size_t at = first_atom_[layer + 1] - 1;
        for (const ValueId output : graph_.ops[i].outputs)
          at = std::min(at, reader[output.index()]);
        atoms_[i] = std::max(at, first_atom_[layer]);
      }
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        reader[value.index()] = std::min(reader[value.index()], atoms_[i]);
      });
    }
    const std::vector<std::size_t> modules = atoms_;  // of the forward pass
    graph::place_backward(graph_, modules, atoms_);
    for (std::size_t i = 0; i < atoms_.size(); ++i)
      atoms_[i] = std::clamp(atoms_[i], first_atom_[layers_.of_op[i]],
                             first_atom_[layers_.of_op[i] + 1] - 1);
  }

  void find_atom_seconds() {
    seconds_.assign(first_atom_.back(), 0);
    for (std::size_t i = 0; i < atoms_.size(); ++i) seconds_[atoms_[i]] += question_.seconds[i];
  }

  /// By atom: what passes between it and the one before.
  void find_widths() {
    widths_.assign(first_atom_.back() + 1, 0);
    const std::vector<ValueId> roots = find_roots(graph_);
    const graph::Reach live = graph::find_live(graph_);
    using Range = std::pair<std::size_t, std::size_t>;
    std::vector<Range> ranges(graph_.values.size(), {graph::kNoLayer, 0});
    std::map<std::pair<ValueId, std::size_t>, Range> sources;  // by layer
    const auto add = [](Range& range, std::size_t atom) {
      range = {std::min(range.first, atom), std::max(range.second, atom)};
    };
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!live.holds(i)) continue;
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const ValueId root = roots[value.index()];
        const graph::Value& about = graph_.value(root);
        if (about.role == graph::ValueRole::kParameter || about.role == graph::ValueRole::kBuffer)
          add(sources.try_emplace({root, layers_.of_op[i]}, Range{atoms_[i], atoms_[i]})
                  .first->second,
              atoms_[i]);
        else if (!about.producer.is_none() && is_forward(about.producer.index()))
          add(ranges[root.index()], atoms_[i]);
      });
    }
    const graph::Sizes small{{"batch", question_.samples}}, large{{"batch", 2 * question_.samples}};
    for (std::size_t v = 0; v < ranges.size(); ++v) {
      if (ranges[v].first == graph::kNoLayer) continue;
      const graph::Value& value = graph_.values[v];
      add(ranges[v], atoms_[value.producer.index()]);
      const auto bytes =
          static_cast<double>(graph::value_bytes(value, large) - graph::value_bytes(value, small));
      widths_[ranges[v].first + 1] += bytes;
      widths_[ranges[v].second + 1] -= bytes;
    }
    for (std::size_t a = 1; a < widths_.size(); ++a) widths_[a] += widths_[a - 1];
    for (const auto& [source, range] : sources)
      for (std::size_t a = range.first + 1; a <= range.second; ++a) widths_[a] = kNeverCut;
  }

  /// The atoms at which pieces of a layer begin, but for the first one.
  std::vector<std::size_t> find_cuts(std::size_t layer) const {
    const std::size_t begin = first_atom_[layer], end = first_atom_[layer + 1];
    std::vector<double> before = {0};  // seconds
    for (std::size_t a = begin; a < end; ++a) before.push_back(before.back() + seconds_[a]);
    const double count = std::ceil(before.back() / question_.piece), each = before.back() / count;
    std::vector<std::size_t> cuts;
    std::size_t a = begin + 1;
    for (double place = each; place < before.back() - each / 2; place += each) {
      std::size_t best = end;
      for (; a < end && before[a - begin] < place + each / 2; ++a) {
        if (before[a - begin] < place - each / 2 || widths_[a] == kNeverCut) continue;
        const auto off = [&](std::size_t at) { return std::abs(before[at - begin] - place); };
        if (best == end || std::pair(widths_[a], off(a)) < std::pair(widths_[best], off(best)))
          best = a;
      }
      if (best < end) cuts.push_back(best);
    }
    return cuts;
  }

  void cut() {
    const graph::ShortGraph& shown = question_.shown;
    std::vector<std::vector<std::size_t>> cuts(layer_count());
    made_.first = {0};
    for (std::size_t l = 0; l < layer_count(); ++l) {
      const std::size_t by = shown.of_layer[l];
      if (by == l) cuts[l] = find_cuts(l);
      for (std::size_t piece = 0; piece <= cuts[by].size(); ++piece) {
        made_.stand.push_back(made_.first[by] + piece);
        made_.pieces.names.push_back(layers_.names[l]);
      }
      made_.first.push_back(made_.pieces.names.size());
    }
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const std::size_t by = shown.whole_op[shown.of_op[i].index()].index();
      const std::vector<std::size_t>& own = cuts[layers_.of_op[by]];
      const auto behind = std::upper_bound(own.begin(), own.end(), atoms_[by]) - own.begin();
      made_.pieces.of_op.push_back(made_.first[layers_.of_op[i]] +
                                   static_cast<std::size_t>(behind));
    }
    name();
  }

  /// What a cut behind each piece is called: by the last operator of its forward pass.
  void name() {
    made_.last.assign(made_.pieces.names.size(), "");
    std::map<std::pair<std::size_t, std::string>, int> seen;  // in a layer
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!is_forward(i)) continue;
      const graph::Op& op = graph_.ops[i];
      const std::size_t layer = layers_.of_op[i];
      const std::string& path = layers_.names[layer];
      std::string module = op.module;
      if (module == path) module.clear();
      if (module.starts_with(path + ".")) module = module.substr(path.size() + 1);
      const std::string text = module.empty() ? op.name : fmt::format("{} of {}", op.name, module);
      const int count = ++seen[{layer, text}];
      made_.last[made_.pieces.of_op[i]] = count == 1 ? text : fmt::format("{}, {}", text, count);
    }
  }

  const FinerQuestion& question_;
  const graph::Graph& graph_;
  const graph::LayerChain& layers_;
  std::vector<std::size_t> atoms_;       // by operator
  std::vector<std::size_t> first_atom_;  // by layer, and one more
  std::vector<double> seconds_;          // by atom
  std::vector<double> widths_;           // by atom
  FinerLayers made_;
};

}  // namespace

std::string FinerLayers::name_first(std::size_t piece) const {
  const std::string& layer = pieces.names[piece];
  const bool is_first = std::binary_search(first.begin(), first.end(), piece);
  return is_first ? layer : fmt::format("{} (after {})", layer, last[piece - 1]);
}

std::string FinerLayers::name_last(std::size_t piece) const {
  const std::string& layer = pieces.names[piece];
  const bool is_last = std::binary_search(first.begin(), first.end(), piece + 1);
  return is_last ? layer : fmt::format("{} (through {})", layer, last[piece]);
}

std::vector<std::pair<std::size_t, std::size_t>> FinerLayers::parts(std::size_t from,
                                                                    std::size_t to) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t l = 0; l + 1 < first.size(); ++l)
    if (const auto begin = std::max(first[l], from), end = std::min(first[l + 1], to); begin < end)
      found.emplace_back(begin, end);
  return found;
}

FinerLayers find_finer_layers(const FinerQuestion& question) { return Refining(question).run(); }

}  // namespace motley::search
