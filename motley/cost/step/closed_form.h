#pragma once

#include <vector>

#include "motley/cost/step/step_curves.h"

namespace motley::cost {

/// The closed form of a step in which nothing waits before the backward pass ends. Exchanges run in
/// order on the transfer lane; update k follows exchange k on the compute lane:
///
///   F_k  = max(F_{k-1}, max_i ready_ik) + c_k              exchange k has finished
///   U_ik = max(U_i(k-1), F_k) + u_ik,  U_i0 = end_i        update k has finished on device i
///   T    = max_i U_iJ
///
/// Unrolled, T = max_i f_i(b_i) with one number W_k per exchange, equal for all devices:
///
///   W_k    = max_{j >= k} ( c_k + ... + c_j + max_i (u_ij + ... + u_iJ) )
///   f_i(b) = max( max_k ready_ik(b) + W_k,  end_i(b) + u_i1 + ... + u_iJ )
///
/// The proof is in docs/algorithms.md, "Batch split". Example: J = 2, c = (3, 4), the slowest
/// updates u = (1, 2): W_2 = 4 + 2 = 6 and W_1 = 3 + max(1 + 2, W_2) = 9.

/// Returns u_1 + ... + u_J of a device's updates.
double total_update(const StepCurves& curves);

/// Returns u_k + ... + u_J of a device's updates, for each k.
std::vector<double> update_tails(const StepCurves& curves);

/// Returns W_k for each exchange; `slowest_update` is the maximum of update_tails over the group.
std::vector<double> exchange_tails(const std::vector<double>& exchange,
                                   const std::vector<double>& slowest_update);

/// Returns f(samples) of one device. `tails` matches curves.ready; both empty for one device.
double step_seconds(const StepCurves& curves, const std::vector<double>& tails, double samples);

/// Returns the largest real b with f(b) <= seconds; -infinity: none; infinity: always.
double largest_samples(const StepCurves& curves, const std::vector<double>& tails, double seconds);

}  // namespace motley::cost
