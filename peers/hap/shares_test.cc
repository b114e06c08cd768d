// Compares HAP's linear program for the shares, row by row, with make_hap_plan's closed form.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "motley/base/random.h"
#include "motley/search/spmd/balance.h"

namespace motley::peers {
namespace {

using Row = std::vector<double>;  // coefficients, then the right side

/// Solves a square system; none where it is singular.
std::optional<Row> solve(std::vector<Row> rows) {
  const std::size_t n = rows.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(rows[i][k]) > std::abs(rows[pivot][k])) pivot = i;
    if (std::abs(rows[pivot][k]) < 1e-9) return {};
    std::swap(rows[k], rows[pivot]);
    for (std::size_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = rows[i][k] / rows[k][k];
      for (std::size_t j = k; j <= n; ++j) rows[i][j] -= factor * rows[k][j];
    }
  }
  Row solution;
  for (std::size_t k = 0; k < n; ++k) solution.push_back(rows[k][n] / rows[k][k]);
  return solution;
}

struct ShareInstance {
  Row speeds;       // of devices
  Row work, moved;  // of steps: split flops; seconds of exchanges at even shares
};

/// Unknowns: a share per device, then compute and exchange times of each step. Rows are >= 0:
///   time of step k - work_k share_i / speed_i, time of exchange k - moved_k n share_i, share_i
std::vector<Row> rows_of(const ShareInstance& instance) {
  const std::size_t devices = instance.speeds.size(), steps = instance.work.size();
  std::vector<Row> rows;
  const auto add = [&] { return &rows.emplace_back(devices + 2 * steps + 1); };
  for (std::size_t i = 0; i < devices; ++i) {
    (*add())[i] = 1;
    for (std::size_t k = 0; k < steps; ++k) {
      Row& compute = *add();
      compute[devices + k] = 1;
      compute[i] = -instance.work[k] / instance.speeds[i];
      Row& exchange = *add();
      exchange[devices + steps + k] = 1;
      exchange[i] = -instance.moved[k] * static_cast<double>(devices);
    }
  }
  return rows;
}

/// Finds the least sum of all times over every vertex, where as many rows are 0 as there are
/// unknowns, with "shares sum to 1". A linear program with an optimum has one at a vertex.
double least_by_vertices(const ShareInstance& instance) {
  const std::vector<Row> rows = rows_of(instance);
  const std::size_t unknowns = rows[0].size() - 1, devices = instance.speeds.size();
  Row sum(unknowns + 1);
  for (std::size_t i = 0; i < devices; ++i) sum[i] = 1;
  sum[unknowns] = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t chosen = 0; chosen < 1u << rows.size(); ++chosen) {
    if (static_cast<std::size_t>(__builtin_popcount(chosen)) + 1 != unknowns) continue;
    std::vector<Row> active = {sum};
    for (std::size_t i = 0; i < rows.size(); ++i)
      if ((chosen >> i & 1) != 0) active.push_back(rows[i]);
    const auto vertex = solve(std::move(active));
    if (!vertex) continue;
    bool is_feasible = true;
    for (const Row& row : rows) {
      double value = 0;
      for (std::size_t j = 0; j < unknowns; ++j) value += row[j] * (*vertex)[j];
      is_feasible &= value >= -1e-9;
    }
    double total = 0;
    for (std::size_t j = devices; j < unknowns; ++j) total += (*vertex)[j];
    if (is_feasible) least = std::min(least, total);
  }
  return least;
}

double seconds_at(const ShareInstance& instance, const Row& shares) {
  double total = 0;
  for (std::size_t k = 0; k < instance.work.size(); ++k) {
    double compute = 0, exchange = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      compute = std::max(compute, instance.work[k] * shares[i] / instance.speeds[i]);
      exchange =
          std::max(exchange, instance.moved[k] * static_cast<double>(shares.size()) * shares[i]);
    }
    total += compute + exchange;
  }
  return total;
}

TEST(Shares, AreThoseOfTheLinearProgram) {
  SplitMix64 random(7);
  for (int round = 0; round < 24; ++round) {
    // Two steps on two devices, or one step on three: 10 and 9 rows.
    ShareInstance instance;
    const std::size_t devices = 2 + random.below(2), steps = devices == 2 ? 2 : 1;
    for (std::size_t i = 0; i < devices; ++i) instance.speeds.push_back(0.2 + random.uniform());
    for (std::size_t k = 0; k < steps; ++k) {
      instance.work.push_back(random.uniform());
      instance.moved.push_back(random.uniform() * random.uniform());
    }
    double work = 0, moved = 0;
    for (std::size_t k = 0; k < steps; ++k) {
      work += instance.work[k];
      moved += instance.moved[k];
    }
    const Row shares = search::balance(instance.speeds, work, moved);
    EXPECT_NEAR(seconds_at(instance, shares), least_by_vertices(instance), 1e-9);
  }
}

}  // namespace
}  // namespace motley::peers
