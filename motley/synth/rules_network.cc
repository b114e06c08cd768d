// Rules of operators of networks: products, convolutions, embeddings, normalisations, attention,
// losses, dropout.

#include <algorithm>

#include "motley/synth/rules.h"

namespace motley::synth {
namespace {

/// What a dimension of a matrix operand is for.
enum class Factor { kBatch, kFree, kContracted };

struct Product {
  int first = 0;       ///< argument position of the left operand; the right one follows
  int batch_dims = 0;  ///< 1 for bmm
};

Factor left_factor(int dim, int batch_dims) {
  if (dim < batch_dims) return Factor::kBatch;
  return dim == batch_dims ? Factor::kFree : Factor::kContracted;
}

Factor right_factor(int dim, int batch_dims) {
  if (dim < batch_dims) return Factor::kBatch;
  return dim == batch_dims ? Factor::kContracted : Factor::kFree;
}

bool same_rows(const Form& a, const Form& b) {
  if (a.uniform || b.uniform) return a.outer * a.inner == b.outer * b.inner;
  return a.outer == b.outer && a.inner == b.inner;
}

/// Form of left x right: a contraction over samples is a partial sum.
std::optional<Form> product_form(RuleCall& call, const Product& product) {
  Operand& left = *call.operand(product.first);
  Operand& right = *call.operand(product.first + 1);
  const bool partial_left = left.form.kind == FormKind::kPartial;
  if (right.form.kind == FormKind::kPartial &&
      (partial_left || left.form.kind == FormKind::kSharded))
    call.sum(right);
  if (left.form.kind == FormKind::kPartial && right.form.kind == FormKind::kSharded) call.sum(left);
  const Form& a = left.form;
  const Form& b = right.form;
  if (a.kind == FormKind::kPartial || b.kind == FormKind::kPartial) return kPartialForm;
  const bool a_sharded = a.kind == FormKind::kSharded, b_sharded = b.kind == FormKind::kSharded;
  if (!a_sharded && !b_sharded) return kReplicatedForm;
  // A vector on the right has its only dimension contracted; one on the left too (dot).
  const bool left_vector = call.rank(left.id) == product.batch_dims + 1;
  const Factor of_a = left_vector ? Factor::kContracted : left_factor(a.dim, product.batch_dims);
  const Factor of_b = right_factor(b.dim, product.batch_dims);
  Form rows = a_sharded ? a : b;
  if (a_sharded && b_sharded) {
    if (of_a == of_b && of_a != Factor::kFree && same_rows(a, b)) {
      if (of_a == Factor::kContracted) return kPartialForm;
      if (a.uniform) rows = b;
      return rows;
    }
    call.fail("it pairs each sample with every other one");
    return std::nullopt;
  }
  if ((a_sharded ? of_a : of_b) == Factor::kFree) return rows;
  call.fail("it pairs samples with rows that are the same on all devices");
  return std::nullopt;
}

template <int BatchDims>
bool product_rule(RuleCall& call) {
  const auto rows = product_form(call, {0, BatchDims});
  if (!rows) return false;
  if (rows->kind == FormKind::kPartial) return call.set(0, *rows), true;
  return call.carry_all(*rows);
}

/// addmm(bias, left, right, beta, alpha) and baddbmm
template <int BatchDims>
bool add_product_rule(RuleCall& call) {
  const Product product{1, BatchDims};
  auto rows = product_form(call, product);
  if (!rows) return false;
  if (rows->kind == FormKind::kPartial) {
    if (call.form(0).kind == FormKind::kPartial) return call.set(0, *rows), true;
    call.sum(*call.operand(1));
    call.sum(*call.operand(2));
    rows = product_form(call, product);
    if (!rows || rows->kind == FormKind::kPartial)
      return call.fail("it adds a tensor that is the same on all devices to a sum over the batch");
  }
  call.sum(*call.operand(0));
  if (rows->kind == FormKind::kSharded && call.form(0).kind == FormKind::kSharded) {
    const Form& bias = call.form(0);
    const int bias_right = call.rank(call.operand(0)->id) - bias.dim;
    const BatchAxis& axis = call.axis(call.output(0));
    if (!same_rows(bias, *rows) || bias_right != call.rank(call.output(0)) - axis.dim)
      return call.fail("its operands hold the batch in different dimensions");
  }
  if (rows->kind == FormKind::kReplicated && call.form(0).kind == FormKind::kSharded)
    rows = call.form(0);
  return call.carry_all(*rows);
}

/// Operands at `inputs` hold the batch in dimension 0 (where they are sharded); all others must be
/// replicated. The merged row form.
std::optional<Form> leading_rows(RuleCall& call, std::initializer_list<int> inputs) {
  call.sum_all();
  std::optional<Form> rows;
  for (const Operand& operand : call.operands()) {
    const bool is_input = std::find(inputs.begin(), inputs.end(), operand.position) != inputs.end();
    if (operand.form.kind != FormKind::kSharded) continue;
    if (!is_input || operand.form.dim != 0 || (rows && !same_rows(*rows, operand.form))) {
      call.fail("it has the batch where it wants weights, channels or a place");
      return std::nullopt;
    }
    if (!rows || rows->uniform) rows = operand.form;
  }
  Form merged = rows.value_or(kReplicatedForm);
  merged.uniform = false;
  return merged;
}

/// Output 0 has the rows, the others are sums over the batch: gradients of weights.
bool backward_with_weights(RuleCall& call, const Form& rows) {
  if (rows.kind == FormKind::kReplicated) return call.carry_all(rows);
  for (int o = 1; o < call.output_count(); ++o) call.set(o, kPartialForm);
  return call.carry(0, rows);
}

bool convolution_rule(RuleCall& call) {
  const auto rows = leading_rows(call, {0});
  return rows && call.carry_all(*rows);
}

bool convolution_backward_rule(RuleCall& call) {
  const auto rows = leading_rows(call, {0, 1});
  return rows && backward_with_weights(call, *rows);
}

/// embedding(weight, indices, ...)
bool embedding_rule(RuleCall& call) {
  if (call.form(1).kind == FormKind::kReplicated && call.form(0).kind == FormKind::kPartial)
    return call.set_all(kPartialForm), true;
  call.sum_all();
  if (call.form(0).kind != FormKind::kReplicated)
    return call.fail("it looks samples up in samples");
  return call.carry_all(call.form(1));
}

/// embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)
bool embedding_backward_rule(RuleCall& call) {
  const Form grad = call.form(0);
  if (call.truth(4)) return call.fail("it scales gradients by counts within the batch");
  if (grad.kind == FormKind::kPartial && call.form(1).kind == FormKind::kReplicated)
    return call.set_all(kPartialForm), true;
  if (grad.kind != FormKind::kSharded || call.form(1).kind != FormKind::kSharded)
    return call.fail("it pairs samples with rows that are the same on all devices");
  call.set_all(kPartialForm);
  return true;
}

/// Normalisation over trailing dimensions whose number is the length of the list at `Shape`;
/// tensors at or after position `Weights` are weights.
template <int Shape, bool Backward>
bool layer_norm_rule(RuleCall& call) {
  call.sum_all();
  const auto rows = call.merge();
  if (!rows) return false;
  const auto* shape = std::get_if<graph::ArgumentList>(&call.argument(Shape).value);
  const int normalized = shape == nullptr ? 0 : static_cast<int>(shape->size());
  const int leading = call.rank(call.operands()[0].id) - normalized;
  for (const Operand& operand : call.operands())
    if (operand.form.kind == FormKind::kSharded && operand.form.dim >= leading)
      return call.fail("it normalises over the batch");
  Form carried = *rows;
  carried.uniform = false;
  return Backward ? backward_with_weights(call, carried) : call.carry_all(carried);
}

/// native_group_norm(x, weight, bias, N, C, HxW, group, eps): all but weight, bias have N first.
bool group_norm_rule(RuleCall& call) {
  const auto rows = leading_rows(call, {0});
  return rows && call.carry_all(*rows);
}

/// native_group_norm_backward(grad, x, mean, rstd, weight, ...)
bool group_norm_backward_rule(RuleCall& call) {
  const auto rows = leading_rows(call, {0, 1, 2, 3});
  return rows && backward_with_weights(call, *rows);
}

bool wants_batch_apart_from_channels(RuleCall& call) {
  for (const Operand& operand : call.operands())
    if (operand.form.kind == FormKind::kSharded && operand.form.dim == 1)
      return call.fail("it has the batch where it wants channels");
  return true;
}

/// Training batch norm: x, weight, bias, running_mean, running_var[, training], momentum, eps.
bool batch_norm_rule(RuleCall& call) {
  const std::string& name = call.op().name;
  const bool has_flag = name != "aten::_batch_norm_with_update_functional";
  const bool has_statistics = call.op().overload != "no_stats";
  const int flag = has_statistics ? 5 : 3;
  call.sum_all();
  if (!wants_batch_apart_from_channels(call)) return false;
  Form rows = call.form(0);
  rows.uniform = false;
  if (has_flag && !call.truth(flag)) return call.carry(0, rows);
  const bool local = call.batch_norm() == plan::BatchNormMode::kLocal;
  call.rewrite(local ? Rewrite::kBatchNormLocal : Rewrite::kBatchNorm);
  const bool has_reserve = !has_flag;  // an empty tensor after the statistics
  for (int o = 1; o < call.output_count(); ++o) {
    const bool is_statistic = o <= 2 || (has_reserve && o == 3);
    if (local) call.set(o, is_statistic ? Form{FormKind::kOwn} : kPartialForm);
  }
  return call.carry(0, rows);
}

/// Batch norm that only uses running statistics: each sample by itself.
bool batch_norm_inference_rule(RuleCall& call) {
  call.sum_all();
  if (!wants_batch_apart_from_channels(call)) return false;
  Form rows = call.form(0);
  rows.uniform = false;
  return call.carry(0, rows);
}

/// native_batch_norm_backward(grad, x, weight, running_mean, running_var, mean, rstd, train, ...)
/// and batch_norm_backward(... the same ..., reserve)
bool batch_norm_backward_rule(RuleCall& call) {
  const bool trains = call.truth(7);
  // Training uses the statistics of the batch; the running ones are not read.
  for (Operand& operand : call.operands())
    if (trains && (operand.position == 3 || operand.position == 4)) operand.form = kReplicatedForm;
  call.sum_all();
  if (!wants_batch_apart_from_channels(call)) return false;
  const auto rows = call.merge();
  if (!rows) return false;
  const bool own = call.form(5).kind == FormKind::kOwn;
  if (trains && !own) {
    call.rewrite(Rewrite::kBatchNormBackward);
    return call.carry(0, *rows);
  }
  return backward_with_weights(call, *rows);
}

/// motley::attention(q, k, v, mask, ...) and its backward (grad, q, k, v, out, saved, mask, ...):
/// samples or heads first.
bool attention_rule(RuleCall& call) {
  const bool backward = call.op().name == "motley::attention_backward";
  const auto* dropout = std::get_if<double>(&call.argument(backward ? 7 : 4).value);
  if (dropout != nullptr && *dropout != 0.0)
    return call.fail("its dropout would differ from one device's");
  call.sum_all();
  std::optional<Form> rows;
  const int mask = backward ? 6 : 3;
  for (const Operand& operand : call.operands()) {
    if (operand.position == mask) continue;
    if (operand.form.kind != FormKind::kSharded || operand.form.dim > 1 ||
        (rows && (!same_rows(*rows, operand.form) || rows->dim != operand.form.dim)))
      return call.fail("its queries, keys and values hold the batch in different dimensions");
    if (!rows || rows->uniform) rows = operand.form;
  }
  if (!rows) return call.fail("its mask alone holds the batch");
  const Form over = call.form(mask);
  if (over.kind == FormKind::kSharded &&
      (!same_rows(over, *rows) || 4 - rows->dim != call.rank(call.operand(mask)->id) - over.dim))
    return call.fail("its mask holds the batch in another dimension");
  rows->uniform = false;
  return call.carry_all(*rows);
}

/// native_dropout(x, p, train): drawn by global element.
bool dropout_rule(RuleCall& call) {
  const auto* train = std::get_if<bool>(&call.argument(2).value);
  if (train == nullptr || *train) call.rewrite(Rewrite::kDropout);
  call.sum_all();
  if (call.form(0).kind == FormKind::kPosition) return call.fail("it drops out row numbers");
  Form rows = call.form(0);
  rows.uniform = false;
  return call.carry_all(rows);
}

/// reduction argument of a loss: 0 none, 1 mean, 2 sum.
constexpr int kMeanReduction = 1, kNoReduction = 0;

/// Losses of pairs of tensors with a reduction at `Reduction`.
template <int Reduction>
bool loss_rule(RuleCall& call) {
  call.sum_all();
  const auto rows = call.merge();
  if (!rows) return false;
  const std::int64_t reduction = call.integer(Reduction).value_or(kMeanReduction);
  if (reduction == kNoReduction || rows->kind == FormKind::kReplicated)
    return call.carry_all(*rows);
  if (reduction == kMeanReduction) call.rewrite(Rewrite::kMeanLoss);
  call.set_all(kPartialForm);
  return true;
}

template <int Reduction>
bool loss_backward_rule(RuleCall& call) {
  call.sum_all();
  const auto rows = call.merge();
  if (!rows) return false;
  if (call.integer(Reduction).value_or(kMeanReduction) == kMeanReduction)
    call.rewrite(Rewrite::kMeanLossBackward);
  return call.carry_all(*rows);
}

/// nll_loss_forward(x, target, weight, reduction, ignore_index), nll_loss2d_forward: classes in
/// dimension 1, so the batch is dimension 0.
bool nll_rule(RuleCall& call) {
  const auto rows = leading_rows(call, {0, 1});
  if (!rows) return false;
  const std::int64_t reduction = call.integer(3).value_or(kMeanReduction);
  if (reduction == kNoReduction) return call.carry(0, *rows);
  call.set(0, kPartialForm);
  if (reduction == kMeanReduction) {
    call.rewrite(Rewrite::kNllMean);
    call.set(1, kReplicatedForm);
  } else {
    call.set(1, kPartialForm);
  }
  return true;
}

/// nll_loss_backward(grad, x, target, weight, reduction, ignore_index, total_weight): the total
/// weight only matters to the mean, where it is the global one already.
bool nll_backward_rule(RuleCall& call) {
  const std::int64_t reduction = call.integer(4).value_or(kMeanReduction);
  if (reduction != kMeanReduction) {
    if (Operand* total = call.operand(6)) total->form = kReplicatedForm;
  }
  const auto rows = leading_rows(call, {0, 1, 2});
  return rows && call.carry_all(*rows);
}

constexpr NamedRule kRules[] = {
    {"aten::mm", product_rule<0>},
    {"aten::bmm", product_rule<1>},
    {"aten::mv", product_rule<0>},
    {"aten::dot", product_rule<0>},
    {"aten::addmm", add_product_rule<0>},
    {"aten::baddbmm", add_product_rule<1>},
    {"aten::convolution", convolution_rule},
    {"aten::convolution_backward", convolution_backward_rule},
    {"aten::embedding", embedding_rule},
    {"aten::embedding_dense_backward", embedding_backward_rule},
    {"aten::native_layer_norm", layer_norm_rule<1, false>},
    {"aten::native_layer_norm_backward", layer_norm_rule<2, true>},
    {"aten::_fused_rms_norm", layer_norm_rule<1, false>},
    {"aten::_fused_rms_norm_backward", layer_norm_rule<2, true>},
    {"aten::native_group_norm", group_norm_rule},
    {"aten::native_group_norm_backward", group_norm_backward_rule},
    {"aten::_native_batch_norm_legit", batch_norm_rule},
    {"aten::_native_batch_norm_legit_functional", batch_norm_rule},
    {"aten::native_batch_norm", batch_norm_rule},
    {"aten::_batch_norm_with_update_functional", batch_norm_rule},
    {"aten::_native_batch_norm_legit_no_training", batch_norm_inference_rule},
    {"aten::native_batch_norm_backward", batch_norm_backward_rule},
    {"aten::batch_norm_backward", batch_norm_backward_rule},
    {"motley::attention", attention_rule},
    {"motley::attention_backward", attention_rule},
    {"aten::native_dropout", dropout_rule},
    {"aten::mse_loss", loss_rule<2>},
    {"aten::smooth_l1_loss", loss_rule<2>},
    {"aten::huber_loss", loss_rule<2>},
    {"aten::soft_margin_loss", loss_rule<2>},
    {"aten::binary_cross_entropy", loss_rule<3>},
    {"aten::binary_cross_entropy_with_logits", loss_rule<4>},
    {"aten::mse_loss_backward", loss_backward_rule<3>},
    {"aten::smooth_l1_loss_backward", loss_backward_rule<3>},
    {"aten::huber_loss_backward", loss_backward_rule<3>},
    {"aten::soft_margin_loss_backward", loss_backward_rule<3>},
    {"aten::binary_cross_entropy_backward", loss_backward_rule<4>},
    {"aten::nll_loss_forward", nll_rule},
    {"aten::nll_loss2d_forward", nll_rule},
    {"aten::nll_loss_backward", nll_backward_rule},
    {"aten::nll_loss2d_backward", nll_backward_rule},
};

}  // namespace

std::span<const NamedRule> network_rules() { return kRules; }

}  // namespace motley::synth
