#include "peers/hap/published_models.h"

#include <utility>

namespace motley::peers {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kSamplesPerDevice = 32, kWidth = 768, kHidden = 4 * kWidth;
constexpr std::int64_t kTokens = 128, kVocabulary = 33280, kPatches = 64, kClasses = 10;

/// Appends operators with their output shapes.
class GraphMaker {
 public:
  TensorId input(std::string name, Shape shape) {
    return add_tensor(std::move(name), std::move(shape), TensorRole::kInput, false);
  }
  TensorId parameter(std::string name, Shape shape) {
    return add_tensor(std::move(name), std::move(shape), TensorRole::kParameter, false);
  }
  const Shape& shape(TensorId id) const { return graph_.tensors[id.index()].shape; }

  /// Names results by their operator's kind and number.
  TensorId apply(std::string kind, std::vector<TensorId> inputs, Shape shape,
                 std::vector<std::int64_t> numbers = {}) {
    const TensorId output = activation(kind, std::move(shape));
    graph_.operators.push_back({std::move(kind), std::move(inputs), {output}, std::move(numbers)});
    return output;
  }
  TensorId pointwise(std::string kind, TensorId x) { return apply(std::move(kind), {x}, shape(x)); }
  TensorId add(TensorId x, TensorId y) { return apply("add", {x, y}, shape(x)); }
  TensorId transpose(TensorId x, std::int64_t a, std::int64_t b) {
    Shape result = shape(x);
    std::swap(result[static_cast<std::size_t>(a)], result[static_cast<std::size_t>(b)]);
    return apply("transpose", {x}, std::move(result), {a, b});
  }
  TensorId linear(const std::string& name, TensorId x, std::int64_t width) {
    Shape result = shape(x);
    const TensorId weight = parameter(name + ".weight", {width, result.back()});
    const TensorId bias = parameter(name + ".bias", {width});
    result.back() = width;
    return apply("linear", {x, weight, bias}, std::move(result));
  }
  TensorId layer_norm(const std::string& name, TensorId x) {
    const Shape affine = {shape(x).back()};
    const TensorId weight = parameter(name + ".weight", affine);
    const TensorId bias = parameter(name + ".bias", affine);
    return apply("layer_norm", {x, weight, bias}, shape(x), {1});
  }
  TensorId conv2d(const std::string& name, TensorId x, std::int64_t channels, std::int64_t kernel,
                  std::int64_t pixels) {
    const TensorId weight = parameter(name + ".weight", {channels, shape(x)[1], kernel, kernel});
    const TensorId bias = parameter(name + ".bias", {channels});
    return apply("conv2d", {x, weight, bias}, {shape(x)[0], channels, pixels, pixels});
  }
  /// Makes dispatch and combine masks, both [B, S, X, C].
  std::pair<TensorId, TensorId> gate(const std::string& name, TensorId x, std::int64_t experts,
                                     std::int64_t capacity) {
    const TensorId weight = parameter(name + ".gate", {shape(x)[2], experts});
    const Shape mask = {shape(x)[0], shape(x)[1], experts, capacity};
    const TensorId dispatch = activation("dispatch", mask), combine = activation("combine", mask);
    graph_.operators.push_back({"top_2_gating", {x, weight}, {dispatch, combine}, {}});
    return {dispatch, combine};
  }
  ReferenceGraph finish(TensorId loss) {
    graph_.loss = loss;
    return std::move(graph_);
  }

 private:
  TensorId activation(const std::string& kind, Shape shape) {
    bool may_communicate = true;
    for (const char* cheap :
         {"sigmoid", "sum", "transpose", "relu", "dropout", "log_softmax", "nll_loss"})
      may_communicate = may_communicate && kind != cheap;
    return add_tensor(kind + "." + std::to_string(graph_.operators.size()), std::move(shape),
                      TensorRole::kActivation, may_communicate);
  }
  TensorId add_tensor(std::string name, Shape shape, TensorRole role, bool communicatable) {
    graph_.tensors.push_back({std::move(name), std::move(shape), role, communicatable});
    return TensorId(static_cast<std::int64_t>(graph_.tensors.size()) - 1);
  }

  ReferenceGraph graph_;
};

/// Adds self-attention over x [B, S, D] with its sum and norm. The mask is optional.
TensorId add_attention(GraphMaker& maker, const std::string& name, TensorId x, TensorId mask) {
  const TensorId by_position = maker.transpose(x, 0, 1);
  std::vector<TensorId> inputs = {by_position,
                                  maker.parameter(name + ".in.weight", {3 * kWidth, kWidth}),
                                  maker.parameter(name + ".in.bias", {3 * kWidth}),
                                  maker.parameter(name + ".out.weight", {kWidth, kWidth}),
                                  maker.parameter(name + ".out.bias", {kWidth})};
  if (!mask.is_none()) inputs.push_back(mask);
  const TensorId attended = maker.apply("attention", std::move(inputs), maker.shape(by_position));
  const TensorId dropped = maker.pointwise("dropout", maker.transpose(attended, 0, 1));
  return maker.layer_norm(name + ".norm1", maker.add(x, dropped));
}

TensorId add_encoder_layer(GraphMaker& maker, const std::string& name, TensorId x, TensorId mask) {
  x = add_attention(maker, name, x, mask);
  TensorId y = maker.linear(name + ".ff1", x, kHidden);
  y = maker.pointwise("dropout", maker.pointwise("relu", y));
  y = maker.pointwise("dropout", maker.linear(name + ".ff2", y, kWidth));
  return maker.layer_norm(name + ".norm2", maker.add(x, y));
}

TensorId add_expert_layer(GraphMaker& maker, const std::string& name, TensorId x, TensorId mask,
                          std::int64_t experts) {
  x = add_attention(maker, name, x, mask);
  // Two experts per token, with a capacity factor of 1.25.
  const std::int64_t capacity = (5 * kTokens + 2 * experts - 1) / (2 * experts);
  const std::int64_t samples = maker.shape(x)[0];
  const auto [dispatch, combine] = maker.gate(name, x, experts, capacity);
  const TensorId first = maker.parameter(name + ".experts.first", {experts, kWidth, kHidden});
  const TensorId second = maker.parameter(name + ".experts.second", {experts, kHidden, kWidth});
  TensorId y = maker.apply("bsd,bsec->becd", {x, dispatch}, {samples, experts, capacity, kWidth});
  y = maker.apply("edh,becd->bech", {first, y}, {samples, experts, capacity, kHidden});
  y = maker.pointwise("relu", y);
  y = maker.apply("ehd,bech->becd", {second, y}, {samples, experts, capacity, kWidth});
  y = maker.apply("becd,bsec->bsd", {y, combine}, maker.shape(x));
  return maker.layer_norm(name + ".norm2", maker.add(x, y));
}

/// Sums the negative log-likelihood of [B, classes] over the samples.
TensorId add_class_loss(GraphMaker& maker, TensorId x) {
  x = maker.apply("log_softmax", {x}, maker.shape(x), {1});
  return maker.apply("nll_loss", {x, maker.input("labels", {maker.shape(x)[0]})}, {});
}

ReferenceGraph make_language_model(std::int64_t devices, std::int64_t layers,
                                   std::int64_t experts) {
  GraphMaker maker;
  const std::int64_t samples = kSamplesPerDevice * devices;
  const TensorId ids = maker.input("tokens", {samples, kTokens});
  const TensorId table = maker.parameter("embedding.weight", {kVocabulary, kWidth});
  TensorId x = maker.apply("embedding", {ids, table}, {samples, kTokens, kWidth});
  x = maker.pointwise("scale", x);
  x = maker.add(x, maker.parameter("positions", {1, kTokens, kWidth}));
  const TensorId mask = maker.parameter("mask", {kTokens, kTokens});
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    x = experts > 0 && layer % 2 == 1 ? add_expert_layer(maker, name, x, mask, experts)
                                      : add_encoder_layer(maker, name, x, mask);
  }
  x = maker.linear("decoder", x, kVocabulary);
  x = maker.transpose(maker.apply("log_softmax", {x}, maker.shape(x), {2}), 1, 2);
  const TensorId labels = maker.input("labels", {samples, kTokens});
  return maker.finish(maker.apply("nll_loss", {x, labels}, {}));
}

}  // namespace

ReferenceGraph make_bert(std::int64_t devices, std::int64_t layers) {
  return make_language_model(devices, layers, 0);
}

ReferenceGraph make_bert_moe(std::int64_t devices, std::int64_t layers) {
  return make_language_model(devices, layers, 2 * devices);
}

ReferenceGraph make_vit(std::int64_t devices, std::int64_t layers) {
  GraphMaker maker;
  const std::int64_t samples = kSamplesPerDevice * devices;
  TensorId x = maker.conv2d("patches", maker.input("images", {samples, 3, 32, 32}), kWidth, 4, 8);
  x = maker.apply("flatten", {x}, {samples, kWidth, kPatches}, {2});
  x = maker.transpose(x, 1, 2);
  const TensorId token = maker.parameter("class_token", {1, 1, kWidth});
  x = maker.apply("append_cls_token", {x, token}, {samples, kPatches + 1, kWidth});
  x = maker.add(x, maker.parameter("positions", {1, kPatches + 1, kWidth}));
  for (std::int64_t layer = 0; layer < layers; ++layer)
    x = add_encoder_layer(maker, "layer" + std::to_string(layer), x, TensorId());
  x = maker.apply("get_cls_token", {x}, {samples, kWidth});
  return maker.finish(add_class_loss(maker, maker.linear("decoder", x, kClasses)));
}

ReferenceGraph make_vgg19(std::int64_t devices) {
  GraphMaker maker;
  const std::int64_t samples = kSamplesPerDevice * devices;
  std::int64_t pixels = 32, number = 0;
  TensorId x = maker.input("images", {samples, 3, pixels, pixels});
  for (const auto& [channels, repeats] :
       {std::pair<std::int64_t, int>{64, 2}, {128, 2}, {256, 4}, {512, 4}, {512, 4}}) {
    for (int i = 0; i < repeats; ++i) {
      x = maker.conv2d("conv" + std::to_string(++number), x, channels, 3, pixels);
      x = maker.pointwise("relu", x);
    }
    pixels /= 2;
    x = maker.apply("max_pool2d", {x}, {samples, channels, pixels, pixels});
  }
  x = maker.apply("adaptive_avg_pool2d", {x}, {samples, 512, 7, 7});
  x = maker.apply("flatten", {x}, {samples, 512 * 7 * 7}, {1});
  for (const char* name : {"fc1", "fc2"})
    x = maker.pointwise("dropout", maker.pointwise("relu", maker.linear(name, x, 4096)));
  return maker.finish(add_class_loss(maker, maker.linear("fc3", x, kClasses)));
}

HapCluster make_v100_p100_cluster(std::int64_t devices) {
  HapCluster cluster;
  for (std::int64_t i = 0; i < devices; ++i)
    cluster.device_flops.push_back(4 * i < devices ? 3858755112937 : 2149250936815);
  cluster.bytes_per_second = {.all_gather = 815418707,
                              .all_reduce = 476774816,
                              .reduce_scatter = 876490907,
                              .all_to_all = 7504501871,
                              .grouped_all_gather = 549828906,
                              .grouped_reduce_scatter = 512358434};
  return cluster;
}

HapCluster make_default_cluster(std::int64_t devices) {
  HapCluster cluster;
  cluster.device_flops.assign(static_cast<std::size_t>(devices), 5966645808610);
  cluster.bytes_per_second = {.all_gather = 9463184466,
                              .all_reduce = 5906161310,
                              .reduce_scatter = 9740459122,
                              .all_to_all = 24588140722,
                              .grouped_all_gather = 9146232360,
                              .grouped_reduce_scatter = 8756865799};
  return cluster;
}

}  // namespace motley::peers
