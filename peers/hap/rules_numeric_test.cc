// Tests every rule: cuts the inputs unevenly by its pre-condition, computes on each device, joins
// the results by its post-condition and compares with the whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "motley/base/random.h"
#include "peers/hap/rules.h"

namespace motley::peers {
namespace {

using Shape = std::vector<std::int64_t>;
using Index = std::vector<std::int64_t>;

/// A dense tensor, last dimension fastest.
struct Dense {
  Shape shape;
  std::vector<double> values;

  explicit Dense(Shape s = {}) : shape(std::move(s)) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    values.assign(static_cast<std::size_t>(count), 0);
  }
  /// Length 1 accepts any index, as in a broadcast sum.
  double& at(const Index& index) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
      place = place * shape[d] + (shape[d] == 1 ? 0 : index[d]);
    return values.at(static_cast<std::size_t>(place));
  }
  double at(const Index& index) const { return const_cast<Dense*>(this)->at(index); }
};

void for_each(const Shape& shape, const std::function<void(const Index&)>& visit) {
  Index index(shape.size(), 0);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  for (std::size_t d = shape.size();;) {
    visit(index);
    for (d = shape.size(); d > 0 && ++index[d - 1] == shape[d - 1]; --d) index[d - 1] = 0;
    if (d == 0) return;
  }
}

Dense filled(Shape shape, const std::function<double(const Index&)>& value) {
  Dense result(shape);
  for_each(shape, [&](const Index& index) { result.at(index) = value(index); });
  return result;
}

using Inputs = std::vector<Dense>;
using Compute = std::function<std::vector<Dense>(const Inputs&)>;

/// One operator with a whole example: inputs to cut and the expected result.
struct Example {
  std::string kind;
  std::vector<Shape> inputs;
  Compute compute;
  std::vector<std::int64_t> numbers = {};
};

Dense pointwise(const Dense& x) {
  return filled(x.shape, [&x](const Index& i) { return x.at(i) * x.at(i) + 1; });
}

Dense linear(const Dense& x, const Dense& w, const Dense& b) {
  Shape shape = x.shape;
  shape.back() = w.shape[0];
  return filled(shape, [&](const Index& i) {
    Index from = i;
    double sum = b.at({i.back()});
    for (from.back() = 0; from.back() < x.shape.back(); ++from.back())
      sum += x.at(from) * w.at({i.back(), from.back()});
    return sum;
  });
}

Dense cut(const Dense& x, std::size_t d, std::int64_t begin, std::int64_t end) {
  Shape shape = x.shape;
  shape[d] = end - begin;
  return filled(shape, [&](Index i) {
    i[d] += begin;
    return x.at(i);
  });
}

/// Computes one head: softmax over positions of q k^T + mask, times v, then the output layer.
Dense attention(const Inputs& in) {
  const std::int64_t width = in[0].shape[2], length = in[0].shape[0];
  const Dense qkv = linear(in[0], in[1], in[2]);
  const Dense q = cut(qkv, 2, 0, width), k = cut(qkv, 2, width, 2 * width);
  const Dense v = cut(qkv, 2, 2 * width, 3 * width);
  const Dense attended = filled(in[0].shape, [&](const Index& i) {
    double weights = 0, sum = 0;
    for (std::int64_t l = 0; l < length; ++l) {
      double score = in[5].at({i[0], l});
      for (std::int64_t e = 0; e < width; ++e) score += q.at({i[0], i[1], e}) * k.at({l, i[1], e});
      weights += std::exp(score);
      sum += std::exp(score) * v.at({l, i[1], i[2]});
    }
    return sum / weights;
  });
  return linear(attended, in[3], in[4]);
}

Dense conv2d(const Dense& x, const Dense& w, const Dense& b) {
  const Shape shape = {x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1,
                       x.shape[3] - w.shape[3] + 1};
  return filled(shape, [&](const Index& i) {
    double sum = b.at({i[1]});
    for_each({x.shape[1], w.shape[2], w.shape[3]}, [&](const Index& k) {
      sum += x.at({i[0], k[0], i[2] + k[1], i[3] + k[2]}) * w.at({i[1], k[0], k[1], k[2]});
    });
    return sum;
  });
}

Dense pool(const Dense& x, const std::function<double(double, double)>& join, std::int64_t side) {
  return filled({x.shape[0], x.shape[1], x.shape[2] / side, x.shape[3] / side},
                [&](const Index& i) {
                  double value = x.at({i[0], i[1], i[2] * side, i[3] * side});
                  for_each({side, side}, [&](const Index& k) {
                    value = join(value, x.at({i[0], i[1], i[2] * side + k[0], i[3] * side + k[1]}));
                  });
                  return value;
                });
}

Dense layer_norm(const Inputs& in) {
  const double width = static_cast<double>(in[0].shape.back());
  return filled(in[0].shape, [&](const Index& i) {
    Index from = i;
    double sum = 0, squares = 0;
    for (from.back() = 0; from.back() < in[0].shape.back(); ++from.back()) {
      sum += in[0].at(from);
      squares += in[0].at(from) * in[0].at(from);
    }
    const double mean = sum / width;
    return (in[0].at(i) - mean) / std::sqrt(squares / width - mean * mean + 1e-5) *
               in[1].at({i.back()}) +
           in[2].at({i.back()});
  });
}

Dense log_softmax(const Dense& x, std::size_t d) {
  return filled(x.shape, [&](const Index& i) {
    Index from = i;
    double sum = 0;
    for (from[d] = 0; from[d] < x.shape[d]; ++from[d]) sum += std::exp(x.at(from));
    return x.at(i) - std::log(sum);
  });
}

/// Maps any number to an id below `count`.
std::int64_t id_of(double value, std::int64_t count) {
  return static_cast<std::int64_t>(std::floor(std::abs(value) * 100)) % count;
}

Dense nll_loss(const Dense& x, const Dense& target) {
  Dense loss;
  for_each(target.shape, [&](Index i) {
    i.insert(i.begin() + 1, 0);
    Index at = i;
    at.erase(at.begin() + 1);
    i[1] = id_of(target.at(at), x.shape[1]);
    loss.values[0] -= x.at(i);
  });
  return loss;
}

/// A token's position in its expert's queue counts the tokens before it.
std::vector<Dense> gate(const Inputs& in) {
  const Dense scores = linear(in[0],
                              filled({in[1].shape[1], in[1].shape[0]},
                                     [&](const Index& i) {
                                       return in[1].at({i[1], i[0]});
                                     }),
                              Dense({in[1].shape[1]}));
  const Dense dispatch =
      filled({in[0].shape[0], in[0].shape[1], in[1].shape[1], 2}, [&](const Index& i) {
        double queue = 0;
        for (std::int64_t s = 0; s <= i[1]; ++s) queue += scores.at({i[0], s, i[2]});
        return queue * static_cast<double>(i[3] + 1);
      });
  return {dispatch, pointwise(dispatch)};
}

Dense einsum(std::string_view equation, const Inputs& in) {
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  const std::string left(equation.substr(0, comma)), result(equation.substr(arrow + 2));
  const std::string right(equation.substr(comma + 1, arrow - comma - 1));
  std::string letters = result;
  std::map<char, std::int64_t> sizes;
  for (std::size_t d = 0; d < left.size(); ++d) sizes[left[d]] = in[0].shape[d];
  for (std::size_t d = 0; d < right.size(); ++d) {
    // The wrong rule makes shapes that differ; uses the smaller ones.
    const auto [entry, is_new] = sizes.try_emplace(right[d], in[1].shape[d]);
    entry->second = std::min(entry->second, in[1].shape[d]);
  }
  for (const char c : left)
    if (letters.find(c) == std::string::npos) letters += c;
  Shape all, shape;
  for (const char c : letters) all.push_back(sizes.at(c));
  for (const char c : result) shape.push_back(sizes.at(c));
  Dense sum(shape);
  const auto pick = [&letters](const std::string& names, const Index& i) {
    Index picked;
    for (const char c : names) picked.push_back(i[letters.find(c)]);
    return picked;
  };
  for_each(all, [&](const Index& i) {
    sum.at(pick(result, i)) += in[0].at(pick(left, i)) * in[1].at(pick(right, i));
  });
  return sum;
}

std::vector<Example> examples() {
  const auto one = [](auto f) {
    return [f](const Inputs& in) { return std::vector<Dense>{f(in)}; };
  };
  std::vector<Example> all;
  for (const char* kind : {"sigmoid", "relu", "dropout"})
    all.push_back({kind, {{5, 6}}, one([](const Inputs& in) { return pointwise(in[0]); })});
  all.push_back({"scale", {{5, 6}}, one([](const Inputs& in) {
                   return filled(in[0].shape, [&](const Index& i) { return 3 * in[0].at(i); });
                 })});
  for (const Shape& second : {Shape{5, 6, 4}, Shape{1, 6, 4}})
    all.push_back({"add", {{5, 6, 4}, second}, one([](const Inputs& in) {
                     return filled(in[0].shape,
                                   [&](const Index& i) { return in[0].at(i) + in[1].at(i); });
                   })});
  all.push_back({"mul", {{5, 6}, {5, 6}}, one([](const Inputs& in) {
                   return filled(in[0].shape,
                                 [&](const Index& i) { return in[0].at(i) * in[1].at(i); });
                 })});
  all.push_back({"sum", {{5, 6}}, one([](const Inputs& in) {
                   Dense sum;
                   for (const double value : in[0].values) sum.values[0] += value;
                   return sum;
                 })});
  all.push_back({"transpose",
                 {{5, 6, 4}},
                 one([](const Inputs& in) {
                   const Shape& s = in[0].shape;
                   return filled({s[2], s[1], s[0]}, [&](const Index& i) {
                     return in[0].at({i[2], i[1], i[0]});
                   });
                 }),
                 {0, 2}});
  all.push_back({"flatten",
                 {{5, 4, 2, 3}},
                 one([](const Inputs& in) {
                   Dense flat({in[0].shape[0], in[0].shape[1], 6});
                   flat.values = in[0].values;
                   return flat;
                 }),
                 {2}});
  all.push_back({"log_softmax",
                 {{5, 6, 4}},
                 one([](const Inputs& in) { return log_softmax(in[0], 1); }),
                 {1}});
  all.push_back({"layer_norm", {{5, 6, 4}, {4}, {4}}, one(layer_norm), {1}});
  all.push_back({"linear", {{5, 6, 4}, {7, 4}, {7}}, one([](const Inputs& in) {
                   return linear(in[0], in[1], in[2]);
                 })});
  all.push_back({"attention", {{3, 5, 4}, {12, 4}, {12}, {4, 4}, {4}, {3, 3}}, one(attention)});
  all.push_back({"conv2d", {{5, 3, 4, 4}, {6, 3, 3, 3}, {6}}, one([](const Inputs& in) {
                   return conv2d(in[0], in[1], in[2]);
                 })});
  all.push_back({"max_pool2d", {{5, 6, 4, 4}}, one([](const Inputs& in) {
                   return pool(
                       in[0], [](double a, double b) { return std::max(a, b); }, 2);
                 })});
  all.push_back({"adaptive_avg_pool2d", {{5, 6, 2, 2}}, one([](const Inputs& in) {
                   return pool(
                       in[0], [](double a, double b) { return a + b; }, 2);
                 })});
  all.push_back({"nll_loss", {{5, 6, 4}, {5, 4}}, one([](const Inputs& in) {
                   return nll_loss(in[0], in[1]);
                 })});
  all.push_back({"embedding", {{5, 6}, {9, 7}}, one([](const Inputs& in) {
                   return filled({in[0].shape[0], in[0].shape[1], in[1].shape[1]},
                                 [&](const Index& i) {
                                   return in[1].at({id_of(in[0].at({i[0], i[1]}), 9), i[2]});
                                 });
                 })});
  all.push_back(
      {"append_cls_token", {{5, 6, 4}, {1, 1, 4}}, one([](const Inputs& in) {
         return filled({in[0].shape[0], in[0].shape[1] + 1, in[0].shape[2]}, [&](const Index& i) {
           return i[1] == 0 ? in[1].at({0, 0, i[2]}) : in[0].at({i[0], i[1] - 1, i[2]});
         });
       })});
  all.push_back({"get_cls_token", {{5, 6, 4}}, one([](const Inputs& in) {
                   return filled({in[0].shape[0], in[0].shape[2]}, [&](const Index& i) {
                     return in[0].at({i[0], 0, i[1]});
                   });
                 })});
  all.push_back({"top_2_gating", {{5, 6, 4}, {4, 3}}, gate});
  const std::vector<std::pair<std::string, std::vector<Shape>>> products = {
      {"bsd,bsec->becd", {{5, 6, 4}, {5, 6, 7, 3}}},
      {"edh,becd->bech", {{7, 4, 6}, {5, 7, 3, 4}}},
      {"ehd,bech->becd", {{7, 6, 4}, {5, 7, 3, 6}}},
      {"becd,bsec->bsd", {{5, 7, 3, 4}, {5, 6, 7, 3}}}};
  for (const auto& [equation, shapes] : products)
    all.push_back({equation, shapes,
                   one([equation = equation](const Inputs& in) { return einsum(equation, in); })});
  return all;
}

constexpr std::size_t kDevices = 3;

/// Returns the first index of a device's slice: shares 1/2, 0.3, 0.2, rounded, possibly empty.
std::int64_t begin_of(std::size_t device, std::int64_t length) {
  const double shares[] = {0, 0.5, 0.8, 1};
  return std::llround(shares[device] * static_cast<double>(length));
}

/// Returns device `device`'s part of x. A dimension of length 1 is whole everywhere.
Dense part_of(const Dense& x, HapForm form, std::size_t device) {
  if (form.is_gather() && x.shape[form.dimension()] > 1) {
    const std::int64_t length = x.shape[form.dimension()];
    return cut(x, form.dimension(), begin_of(device, length), begin_of(device + 1, length));
  }
  if (form != HapForm::reduce()) return x;
  // terms that sum to x
  const double weights[] = {2.5, -4, 2.5};
  return filled(x.shape, [&](const Index& i) { return weights[device] * x.at(i); });
}

bool is_near(const Dense& a, const Dense& b) {
  if (a.shape != b.shape) return false;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    if (std::abs(a.values[i] - b.values[i]) > 1e-9 * (1 + std::abs(b.values[i]))) return false;
  return true;
}

/// Returns whether the devices' results are `whole` in this form.
bool is_whole(const std::vector<Dense>& parts, HapForm form, const Dense& whole) {
  Dense sum(whole.shape);
  for (std::size_t device = 0; device < kDevices; ++device) {
    if (form == HapForm::reduce()) {
      if (parts[device].shape != whole.shape) return false;
      for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += parts[device].values[i];
    } else if (!is_near(parts[device], part_of(whole, form, device))) {
      return false;
    }
  }
  return form != HapForm::reduce() || is_near(sum, whole);
}

/// Replaces a parameter that a triple does not read: ones for a weight, zeros for a bias.
Dense left_out(const Dense& x, std::size_t input) {
  return filled(x.shape, [input](const Index&) { return input == 1 ? 1.0 : 0.0; });
}

bool is_right(const Example& example, const Inputs& inputs, const Triple& triple) {
  const std::vector<Dense> whole = example.compute(inputs);
  std::vector<std::vector<Dense>> parts(whole.size());
  for (std::size_t device = 0; device < kDevices; ++device) {
    Inputs local;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      local.push_back(triple.pre[i] ? part_of(inputs[i], *triple.pre[i], device)
                                    : left_out(inputs[i], i));
    const std::vector<Dense> made = example.compute(local);
    for (std::size_t i = 0; i < made.size(); ++i) parts[i].push_back(made[i]);
  }
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (!is_whole(parts[i], triple.post[i], whole[i])) return false;
  return true;
}

/// Lists all triples with a wrong result, as "KIND NUMBER"; `tried` counts all.
std::vector<std::string> wrong_rules(const RuleOptions& options, std::size_t& tried) {
  SplitMix64 random(1);
  std::vector<std::string> wrong;
  for (const Example& example : examples()) {
    Inputs inputs;
    ReferenceGraph graph;
    ReferenceOperator op{example.kind, {}, {}, example.numbers};
    const auto add = [&graph](const Dense& x, TensorRole role) {
      graph.tensors.push_back({"", x.shape, role});
      return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
    };
    for (const Shape& shape : example.inputs) {
      inputs.push_back(filled(shape, [&random](const Index&) { return random.uniform() - 0.3; }));
      op.inputs.push_back(add(inputs.back(), TensorRole::kInput));
    }
    for (const Dense& output : example.compute(inputs))
      op.outputs.push_back(add(output, TensorRole::kActivation));
    graph.loss = op.outputs.front();
    graph.operators.push_back(op);
    const auto rules = make_rules(graph, options);
    EXPECT_TRUE(rules) << rules.error().message;
    for (std::size_t i = 0; rules && i < rules->front().triples.size(); ++i, ++tried)
      if (!is_right(example, inputs, rules->front().triples[i]))
        wrong.push_back(fmt::format("{} {}", example.kind, i));
  }
  return wrong;
}

TEST(RulesNumeric, SoundRulesComputeTheWhole) {
  std::size_t tried = 0;
  EXPECT_EQ(wrong_rules({.sound = true, .sufficient_factors = true}, tried),
            std::vector<std::string>{});
  EXPECT_GT(tried, 90u);
}

TEST(RulesNumeric, ReleasedRulesFailWhereTheyAreKnownTo) {
  std::size_t tried = 0;
  // Norms without their parameters, and the combination over a wrong dimension.
  EXPECT_EQ(wrong_rules({}, tried), (std::vector<std::string>{"layer_norm 0", "layer_norm 1",
                                                              "layer_norm 2", "becd,bsec->bsd 5"}));
  EXPECT_GT(tried, 90u);
}

}  // namespace
}  // namespace motley::peers
