#include "motley/graph/draws.h"

#include <algorithm>
#include <array>

namespace motley::graph {
namespace {

/// Names without "aten::" and overload, sorted.
constexpr auto kRandom = std::to_array<std::string_view>({
    "_fused_dropout",
    "_sample_dirichlet",
    "_standard_gamma",
    "alpha_dropout",
    "bernoulli",
    "binomial",
    "cauchy",
    "dropout",
    "exponential",
    "feature_alpha_dropout",
    "feature_dropout",
    "geometric",
    "log_normal",
    "multinomial",
    "native_dropout",
    "normal",
    "normal_functional",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "rrelu",
    "rrelu_with_noise",
    "rrelu_with_noise_functional",
    "uniform",
});
static_assert(std::is_sorted(kRandom.begin(), kRandom.end()));

constexpr std::array<std::string_view, 5> kDistributions = {"uniform", "exponential", "normal",
                                                            "bits", "permutation"};

template <typename T>
const T* given(const Op& op, std::size_t argument) {
  return argument < op.arguments.size() ? std::get_if<T>(&op.arguments[argument].value) : nullptr;
}

/// Checks (x, p, draw) -> out, mask.
bool is_sound_dropout(const Op& op) {
  const double* p = given<double>(op, 1);
  return op.arguments.size() == 3 && op.outputs.size() == 2 && given<ValueId>(op, 0) != nullptr &&
         p != nullptr && *p >= 0 && *p <= 1;
}

/// Checks (distribution, shape, dtype, draw) -> x.
bool is_sound_random(const Op& op) {
  const auto* distribution = given<std::string>(op, 0);
  return op.arguments.size() == 4 && op.outputs.size() == 1 && distribution != nullptr &&
         std::find(kDistributions.begin(), kDistributions.end(), *distribution) !=
             kDistributions.end();
}

}  // namespace

bool is_draw(const Op& op) { return op.name == "motley::dropout" || op.name == "motley::random"; }

std::optional<std::int64_t> find_draw_number(const Op& op) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const bool is_dropout = op.name == "motley::dropout";
  if (!is_draw(op) || !(is_dropout ? is_sound_dropout(op) : is_sound_random(op)))
    return std::nullopt;
  const auto* number = given<std::int64_t>(op, is_dropout ? 2 : 3);
  if (number == nullptr || *number < 0 || *number >= kMost) return std::nullopt;
  return *number;
}

bool draws_across(const Op& op) {
  const auto* distribution = given<std::string>(op, 0);
  return op.name == "motley::random" && distribution != nullptr && *distribution == "permutation";
}

bool is_random(std::string_view op_name) {
  constexpr std::string_view kSpace = "aten::";
  std::string_view name = op_name.substr(0, op_name.find('.'));
  if (!name.starts_with(kSpace)) return false;
  name.remove_prefix(kSpace.size());
  if (name.ends_with('_')) name.remove_suffix(1);  // in place
  return std::binary_search(kRandom.begin(), kRandom.end(), name);
}

}  // namespace motley::graph
