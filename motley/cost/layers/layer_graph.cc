#include "motley/cost/layers/layer_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "motley/base/text.h"
#include "motley/graph/graph_text.h"

namespace motley::cost {
namespace {

constexpr std::int64_t kElement = 4;  // bytes of f32
/// Limit per step; bounds the sums in a graph's verification.
constexpr std::int64_t kMostSamples = 65536;
/// Work per second, by which the passes of a pipeline are ordered (graph::op_work).
constexpr double kFlopsPerSecond = 1e13;

/// Bytes of a member of degree t: whole + split / t.
struct Spread {
  double whole = 0, split = 0;
  double at(int degree) const { return whole + split / degree; }
};

Spread find_spread(int less, double bytes_less, int more, double bytes_more) {
  if (less == more) return less == 1 ? Spread{0, bytes_less} : Spread{0, bytes_less * less};
  const double split = (bytes_less - bytes_more) / (1.0 / less - 1.0 / more);
  const double whole = bytes_less - split / less;
  if (split < 0) return {std::max(bytes_less, bytes_more), 0};
  if (whole < 0) return {0, bytes_less * less};
  return {whole, split};
}

/// Returns the elements that hold `bytes`, per row for a split value; at least 1.
std::int64_t elements(double bytes, std::int64_t rows = 1) {
  return std::max<std::int64_t>(
      1, std::llround(std::ceil(bytes / static_cast<double>(kElement * rows))));
}

class LayerGraphMaker {
 public:
  explicit LayerGraphMaker(const LayerProfile& profile) : profile_(profile) {}

  Result<LayerGraph> make() {
    if (profile_.sizes.empty())
      return usage_error("cost.layers", fmt::format("{}: no bytes of its layers", profile_.model));
    const auto& least = profile_.sizes.begin()->second;
    layers_ = least.size();
    for (const auto& [degree, sizes] : profile_.sizes) {
      rows_ = std::lcm(rows_, static_cast<std::int64_t>(degree));
      if (sizes.size() != layers_)
        return usage_error("cost.layers",
                           fmt::format("{} at tp {}: bytes of {} layers, wanted {}", profile_.model,
                                       degree, sizes.size(), layers_));
    }
    find_spreads();
    write_sources();
    write_forward();
    write_backward();
    LayerGraph made{.rows = rows_, .misfit = misfit_};
    MOTLEY_ASSIGN(made.graph, graph::parse_graph(text_, profile_.model));
    return made;
  }

 private:
  struct Layer {
    Spread parameters, kept, rest;
    std::int64_t output = 1;           // elements per sample
    double forward = 0, backward = 0;  // work per sample
    std::vector<std::string> given;    // names of parameters, split ones first
    int y = -1, kept_split = -1, kept_whole = -1;
  };

  template <typename Of>
  Spread spread(const Of& of) {
    const auto& [less, first] = *profile_.sizes.begin();
    const auto& [more, last] = *profile_.sizes.rbegin();
    const Spread found = find_spread(less, of(first), more, of(last));
    for (const auto& [degree, sizes] : profile_.sizes)
      if (const double bytes = of(sizes); bytes > 0)
        misfit_ = std::max(misfit_, std::abs(found.at(degree) / bytes - 1));
    return found;
  }

  void find_spreads() {
    using Sizes = std::vector<LayerSize>;
    for (std::size_t i = 0; i < layers_; ++i) {
      Layer& layer = all_.emplace_back();
      layer.parameters =
          spread([&](const Sizes& sizes) { return static_cast<double>(sizes[i].gradients.value); });
      layer.kept =
          spread([&](const Sizes& sizes) { return static_cast<double>(sizes[i].kept.value); });
      layer.rest = spread([&](const Sizes& sizes) {
        return std::max(0.0, static_cast<double>(sizes[i].states.value) -
                                 4.0 * static_cast<double>(sizes[i].gradients.value));
      });
      const LayerSize& size = profile_.sizes.begin()->second[i];
      layer.output = i + 1 == layers_ ? 1 : elements(static_cast<double>(size.output.value));
      find_work(i, layer);
    }
    const auto& tied = profile_.tied;
    if (!tied) return;
    Spread& first = all_[tied->first].parameters;
    const Spread& second = all_[tied->second].parameters;
    first = {std::max(0.0, first.whole - second.whole), std::max(0.0, first.split - second.split)};
  }

  /// Finds the work from the first profiled kind, at its smallest degree and largest micro-batch.
  void find_work(std::size_t i, Layer& layer) const {
    for (const auto& [kind, degrees] : profile_.times)
      for (const auto& [degree, table] : degrees) {
        if (table.empty() || table.rbegin()->second.size() <= i) continue;
        const auto& [batch, times] = *table.rbegin();
        layer.forward = kFlopsPerSecond * times[i].forward.value / static_cast<double>(batch);
        layer.backward = kFlopsPerSecond * times[i].backward.value / static_cast<double>(batch);
        return;
      }
  }

  int define(const std::string& line) {
    text_ += line;
    return next_++;
  }
  static std::string matrix(std::int64_t rows, std::int64_t columns) {
    return fmt::format("f32[{}, {}]", rows, columns);
  }
  static std::string samples(std::int64_t elements) {
    return fmt::format("f32[batch, {}]", elements);
  }

  void write_sources() {
    text_ = fmt::format("motley.graph/1\nname {}\nsize batch 1 {}\n", quote(profile_.model),
                        kMostSamples);
    x_ = define(fmt::format("input %{}: i64[batch, {}] \"samples\"\n", next_,
                            std::max<std::int64_t>(1, profile_.tokens)));
    for (std::size_t i = 0; i < layers_; ++i) {
      Layer& layer = all_[i];
      add_parameter(layer, fmt::format("layers.{}.split", i),
                    matrix(rows_, elements(layer.parameters.split, rows_)));
      if (layer.parameters.whole > 0)
        add_parameter(layer, fmt::format("layers.{}.whole", i),
                      fmt::format("f32[{}]", elements(layer.parameters.whole)));
    }
    if (const auto& tied = profile_.tied; tied) {
      std::vector<std::string>& given = all_[tied->first].given;
      const std::vector<std::string>& shared = all_[tied->second].given;
      given.insert(given.begin() + 1, shared.begin(), shared.end());
      // Split ones come first.
      std::stable_partition(given.begin(), given.end(),
                            [](const std::string& name) { return name.ends_with(".split"); });
    }
    for (std::size_t i = 0; i < layers_; ++i)
      if (all_[i].rest.at(1) >= 1) {
        const Spread& rest = all_[i].rest;
        rests_[i] =
            define(fmt::format("buffer %{}: {} \"layers.{}.rest\"\n", next_,
                               rest.split > 0 ? matrix(rows_, elements(rest.split, rows_))
                                              : fmt::format("f32[{}]", elements(rest.whole)),
                               i));
      }
    tangent_ = define(fmt::format("tangent %{}: f32[]\n", next_));
  }

  void add_parameter(Layer& layer, std::string name, const std::string& type) {
    ids_[name] = define(fmt::format("param %{}: {} {}\n", next_, type, quote(name)));
    types_[name] = type;
    layer.given.push_back(std::move(name));
  }

  std::string parameters(const Layer& layer) const {
    std::string list;
    for (const std::string& name : layer.given)
      list += fmt::format("{}%{}", list.empty() ? "" : ", ", ids_.at(name));
    return "[" + list + "]";
  }

  void write_forward() {
    for (std::size_t i = 0; i < layers_; ++i) {
      Layer& layer = all_[i];
      const int y = next_++, split = next_++, whole = next_++;
      std::string list = parameters(layer);
      if (const auto rest = rests_.find(i); rest != rests_.end())
        list = list.substr(0, list.size() - 1) + fmt::format(", %{}]", rest->second);
      text_ += fmt::format(
          "op %{}: {}, %{}: f32[batch, {}, {}], %{}: {} = {}(%{}, {}, {}, {}) fwd \"layers.{}\" "
          "seq {}\n",
          y, samples(layer.output), split, rows_, elements(layer.kept.split, rows_), whole,
          samples(elements(layer.kept.whole)), kLayer, x_, list, i, work_text(layer.forward), i, i);
      layer.y = y;
      layer.kept_split = split;
      layer.kept_whole = whole;
      x_ = y;
      if (i + 1 == layers_) continue;
      x_ = define(
          fmt::format("op %{}: {} = aten::view(%{}, [size(batch), {}]) fwd \"layers.{}\" seq {}\n",
                      next_, samples(layer.output), y, layer.output, i, i));
    }
    loss_ = define(fmt::format("op %{}: f32[] = aten::sum(%{}, none) fwd \"loss\" seq {}\n", next_,
                               x_, layers_));
  }

  /// Prints always with a point or an exponent.
  static std::string work_text(double work) { return fmt::format("{:.6e}", work); }

  void write_backward() {
    int gradient = define(
        fmt::format("op %{}: {} = aten::expand(%{}, [size(batch), 1], false) bwd \"loss\" seq {}\n",
                    next_, samples(1), tangent_, layers_));
    std::map<std::string, std::vector<int>> terms;
    for (std::size_t i = layers_; i-- > 0;) {
      const Layer& layer = all_[i];
      const int of_x = next_++;
      std::string results = i == 0 ? fmt::format("%{}: none", of_x)
                                   : fmt::format("%{}: {}", of_x, samples(all_[i - 1].output));
      for (const std::string& name : layer.given) {
        terms[name].push_back(next_);
        results += fmt::format(", %{}: {}", next_++, types_.at(name));
      }
      text_ += fmt::format("op {} = {}(%{}, {}, %{}, %{}, {}, {}) bwd \"layers.{}\" seq {}\n",
                           results, kLayerBackward, gradient, parameters(layer), layer.kept_split,
                           layer.kept_whole, i, work_text(layer.backward), i, i);
      gradient = of_x;
    }
    for (auto& [name, of] : terms)
      while (of.size() > 1) {
        const int sum = define(fmt::format("op %{}: {} = aten::add.Tensor(%{}, %{}, 1) bwd \"\"\n",
                                           next_, types_.at(name), of[0], of[1]));
        of.erase(of.begin());
        of[0] = sum;
      }
    text_ += fmt::format("output loss %{}\n", loss_);
    for (const auto& [name, of] : terms)
      text_ += fmt::format("output gradient %{} of {}\n", of[0], quote(name));
  }

  const LayerProfile& profile_;
  std::size_t layers_ = 0;
  std::int64_t rows_ = 1;
  double misfit_ = 0;
  std::vector<Layer> all_;
  std::map<std::size_t, int> rests_;
  std::map<std::string, int> ids_;            // of parameters
  std::map<std::string, std::string> types_;  // of parameters
  std::string text_;
  int next_ = 0, x_ = -1, tangent_ = -1, loss_ = -1;
};

}  // namespace

bool is_layer_graph(const graph::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const graph::Op& op) { return op.name == kLayer; });
}

Result<LayerGraph> make_layer_graph(const LayerProfile& profile) {
  return LayerGraphMaker(profile).make();
}

std::optional<std::size_t> layer_of_parameter(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const auto layer = find_integer(std::string(name.substr(0, name.find('.'))));
  if (!layer || *layer < 0) return std::nullopt;
  return static_cast<std::size_t>(*layer);
}

}  // namespace motley::cost
