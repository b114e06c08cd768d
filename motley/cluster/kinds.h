#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/dtype.h"
#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::cluster {

/// Floating-point operations per second (a multiply-add counts 2), or integer ones.
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

enum class Processor { kGpu, kCpu };

/// The highest rate of multiply-adds in each format, by the fastest unit (vector units, tensor or
/// matrix cores), at the vendor's rated clock: boost for GPUs, base for CPUs. A ceiling of large
/// matrix products, never an expectation.
///
/// - Dense: never the doubled figures "with sparsity".
/// - 8- and 16-bit products are summed in f32 (i8: in i32), as training does: half the advertised
///   rate on GeForce cards since Turing. The P100 has no such unit; its f16 also sums in f16.
/// - tf32 takes f32 operands and rounds them to 10 bits of mantissa; f32 rounds nothing. On AMD's
///   GPUs f32 and f64 are the rates of the matrix cores, up to twice those of the vector units.
/// - Absent: no unit is faster than for the next wider format, or unknown.
///
/// Clocks move: GeForce cards commonly run above the rated boost, cards at their power limit below
/// it; CPUs run above base when few cores are busy or the code is light.
struct PeakRates {
  std::optional<FlopsPerSecond> f64;
  FlopsPerSecond f32;
  std::optional<FlopsPerSecond> tf32, f16, bf16, f8, i8;
};

/// A kind of device that a plan may name without having one. A GPU is one device of the driver: one
/// of the two dies of a K80 or MI250X, one of the four of an A16. A CPU is one whole socket.
///
/// `source` names the vendor's document (kind_sources()) that contains every figure except those in
/// `derived`: "f64: 1/64 of f32; bandwidth: 384 bit x 21 Gbps", computed from the other figures and
/// the core counts, bus widths and clocks of the same document. docs/device_kinds.md stars them.
struct PlanningKind {
  std::string_view name;   ///< as in cluster files: "a100-40g"
  std::string_view model;  ///< drivers' name without the vendor: "A100-SXM4-40GB"; "" = unknown
  Processor processor = Processor::kGpu;
  int year = 0;  ///< of its launch

  /// As printed on the box, in GiB. Drivers offer 1 to 8 % less, most where error correction is
  /// kept in GDDR memory (A10: 22.5 of 24). Absent for CPUs, which use the host's.
  std::optional<Bytes> memory;
  BytesPerSecond memory_bandwidth;  ///< bus width x transfer rate
  PeakRates peak;

  std::string_view host_link;  ///< "PCIe 4.0 x16", "NVLink-C2C"; "" = unknown
  /// Each way, before protocol overhead.
  std::optional<BytesPerSecond> host_bandwidth;
  /// Each way, all links of the device together, where a board or bridge joins its peers (NVLink,
  /// Infinity Fabric). Absent: peers communicate over the host link.
  std::optional<BytesPerSecond> peer_bandwidth;

  std::string_view source;
  std::string_view derived;
};

/// Part of a card's printed memory that counts as free by default: the least that drivers offer.
/// Desktop cards have no error correction and offer 98 %; the other 6 %, 0.7 GiB of 11 and 1.4 GiB
/// of 24, are for the desktop.
inline constexpr double kFreeOfPrinted = 0.92;

/// A document of a vendor: "a100" -> "NVIDIA A100 Tensor Core GPU data sheet, June 2021".
struct KindSource {
  std::string_view id;
  std::string_view title;
};

/// The built-in table, ordered by name.
std::span<const PlanningKind> planning_kinds();
/// Ordered by id.
std::span<const KindSource> kind_sources();

/// Returns every kind that a cluster file may name: "cpu", "cuda" and the planning kinds.
std::vector<std::string> known_kinds();

/// Finds a kind by name. A name may add the fraction of the rated clock at which the device is
/// held, for example by a power limit ("a100-40g@0.41"): peaks scale with it, memory does not.
/// Usage error with a suggestion: "unknown device kind 'rtx409', did you mean 'rtx4090'?".
Result<PlanningKind> find_kind(std::string_view name);

/// Finds the planning kind by the name that a driver or operating system shows: "NVIDIA A10",
/// "Tesla V100-SXM2-16GB", "AMD EPYC 7742 64-Core Processor". Absent if none fits. Of two sizes of
/// memory (RTX 3060, 3080, 4060 Ti) it is the one sold more; a cluster file's `memory` corrects it.
std::optional<PlanningKind> kind_of_model(std::string_view model);

/// Returns the vendor by the title of its source: "NVIDIA", "AMD", "Intel", "AWS".
std::string_view vendor_of(const PlanningKind& kind);

/// Returns the ceiling for products of this type: its own rate; f16 and bf16 fall back to f32.
/// Never tf32, which a program must request. Absent for other types (wider integers, bool).
std::optional<FlopsPerSecond> peak_rate(const PlanningKind& kind, DType dtype);

/// Returns whether a kind of a cluster file computes on a CPU: "cpu" or a planning kind of a CPU.
bool is_cpu_kind(std::string_view name);

}  // namespace motley::cluster
