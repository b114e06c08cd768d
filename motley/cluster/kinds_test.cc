#include "motley/cluster/kinds.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "motley/base/text.h"
#include "motley/testing/places.h"

namespace motley::cluster {
namespace {

const PlanningKind& kind(std::string_view name) {
  const auto kinds = planning_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const PlanningKind& each) { return each.name == name; });
  EXPECT_NE(found, kinds.end()) << name;
  return *found;
}

bool is_gpu(const PlanningKind& kind) { return kind.processor == Processor::kGpu; }

double tera(std::optional<FlopsPerSecond> rate) { return rate ? rate->value / 1e12 : 0; }
double giga(std::optional<BytesPerSecond> rate) { return rate ? rate->value / 1e9 : 0; }

struct NamedRate {
  std::string_view name;
  std::optional<FlopsPerSecond> rate;
};
std::array<NamedRate, 7> rates(const PeakRates& peak) {
  return {{{"f64", peak.f64},
           {"f32", peak.f32},
           {"tf32", peak.tf32},
           {"f16", peak.f16},
           {"bf16", peak.bf16},
           {"f8", peak.f8},
           {"i8", peak.i8}}};
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// --- figures by hand ----------------------------------------------------------------------------

TEST(PlanningKinds, OneDieOfAK80) {
  // Half of the board: 24 GB, 480 GB/s, 8.73 and 2.91 TFLOPS with boost.
  const PlanningKind& k80 = kind("k80");
  EXPECT_EQ(k80.memory, Bytes(12LL << 30));
  EXPECT_DOUBLE_EQ(giga(k80.memory_bandwidth), 240);
  EXPECT_DOUBLE_EQ(tera(k80.peak.f32), 4.365);
  EXPECT_DOUBLE_EQ(tera(k80.peak.f64), 1.455);
  EXPECT_FALSE(k80.peak.f16);
  EXPECT_FALSE(k80.peer_bandwidth);
}

TEST(PlanningKinds, V100HasTensorCoresAndNvlink) {
  // 80 SMs x 8 tensor cores x 64 multiply-adds x 2 x 1.53 GHz = 125.3 T; 6 links x 25 GB/s.
  const PlanningKind& v100 = kind("v100-16g");
  EXPECT_NEAR(tera(v100.peak.f16), 80 * 8 * 64 * 2 * 1.53e-3, 0.5);
  EXPECT_NEAR(tera(v100.peak.f32), 80 * 64 * 2 * 1.53e-3, 0.1);
  EXPECT_DOUBLE_EQ(giga(v100.peer_bandwidth), 6 * 25);
  EXPECT_FALSE(v100.peak.bf16);
  EXPECT_FALSE(v100.peak.tf32);
}

TEST(PlanningKinds, A100IsDense) {
  // 108 SMs x 1024 dense multiply-adds x 2 x 1.41 GHz = 311.9 T, not the 624 with sparsity.
  const PlanningKind& a100 = kind("a100-40g");
  EXPECT_NEAR(tera(a100.peak.f16), 108 * 1024 * 2 * 1.41e-3, 0.5);
  EXPECT_NEAR(tera(a100.peak.tf32), 108 * 512 * 2 * 1.41e-3, 0.5);
  // 12 links x 25 GB/s each way; 16 GT/s x 16 lanes x 128/130 / 8 bits.
  EXPECT_DOUBLE_EQ(giga(a100.peer_bandwidth), 12 * 25);
  EXPECT_NEAR(giga(a100.host_bandwidth), 31.51, 0.01);
}

TEST(PlanningKinds, A4090SumsInF32AtHalfRate) {
  // 128 SMs x 512 multiply-adds with f16 sums x 2 x 2.52 GHz = 330.3 T; with f32 sums half of it.
  const PlanningKind& rtx4090 = kind("rtx4090");
  EXPECT_NEAR(tera(rtx4090.peak.f16), 128 * 512 * 2 * 2.52e-3 / 2, 0.1);
  EXPECT_EQ(rtx4090.peak.f16, rtx4090.peak.bf16);
  EXPECT_NEAR(giga(rtx4090.memory_bandwidth), 384 * 21.0 / 8, 0.1);
}

TEST(PlanningKinds, H100IsDense) {
  // 132 SMs x 2048 dense multiply-adds x 2 x 1.83 GHz = 989.4 T; 18 links x 25 GB/s each way.
  const PlanningKind& h100 = kind("h100-80g");
  EXPECT_NEAR(tera(h100.peak.f16), 132 * 2048 * 2 * 1.83e-3, 0.5);
  EXPECT_NEAR(tera(h100.peak.f8), 132 * 4096 * 2 * 1.83e-3, 1.0);
  EXPECT_DOUBLE_EQ(giga(h100.peer_bandwidth), 18 * 25);
}

TEST(PlanningKinds, CpusAreSocketsAtBaseClock) {
  // 24 cores x 2.7 GHz x 2 units x 16 lanes x 2; 6 channels x 2666 MT/s x 8 B.
  const PlanningKind& xeon = kind("xeon-8168");
  EXPECT_NEAR(tera(xeon.peak.f32), 24 * 2.7e-3 * 2 * 16 * 2, 0.001);
  EXPECT_NEAR(giga(xeon.memory_bandwidth), 6 * 2.6667 * 8, 0.1);
  EXPECT_FALSE(xeon.memory);
}

// --- every kind ---------------------------------------------------------------------------------

TEST(PlanningKinds, AreManyAndOrderedByName) {
  const auto kinds = planning_kinds();
  EXPECT_GE(std::count_if(kinds.begin(), kinds.end(), is_gpu), 50);
  EXPECT_GE(kinds.size(), 70U);
  for (std::size_t i = 0; i + 1 < kinds.size(); ++i) EXPECT_LT(kinds[i].name, kinds[i + 1].name);
  for (const PlanningKind& each : kinds) {
    EXPECT_EQ(each.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos)
        << each.name;
  }
}

TEST(PlanningKinds, RatesAreInOrder) {
  for (const PlanningKind& each : planning_kinds()) {
    SCOPED_TRACE(each.name);
    const PeakRates& peak = each.peak;
    EXPECT_LE(tera(peak.f64), tera(peak.f32));
    // A narrower format is at least as fast, and by no more than with the matrix units of the B200
    // (i8 60 times f32) and of AMX (i8 32 times, before rounding).
    if (peak.tf32) {
      EXPECT_GE(*peak.tf32, peak.f32);
    }
    if (peak.f16) {
      EXPECT_GE(*peak.f16, peak.f32);
    }
    if (peak.bf16) {
      EXPECT_GE(*peak.bf16, peak.f32);
    }
    if (peak.f8) {
      EXPECT_GE(*peak.f8, *peak.f16);
    }
    if (peak.i8) {
      EXPECT_GE(*peak.i8, peak.f16.value_or(peak.f32));
    }
    for (const NamedRate& rate : rates(peak)) {
      EXPECT_LE(tera(rate.rate), (is_gpu(each) ? 64 : 33) * tera(peak.f32)) << rate.name;
    }
    if (peak.tf32) {
      EXPECT_LE(*peak.tf32, *peak.f16);
    }
  }
}

TEST(PlanningKinds, FiguresArePlausible) {
  for (const PlanningKind& each : planning_kinds()) {
    SCOPED_TRACE(each.name);
    const double bandwidth = giga(each.memory_bandwidth);
    EXPECT_GE(bandwidth, is_gpu(each) ? 100 : 50);
    EXPECT_LE(bandwidth, 10e3);
    EXPECT_GE(each.year, 2014);
    EXPECT_LE(each.year, 2026);
    EXPECT_EQ(each.memory.has_value(), is_gpu(each));
    if (each.memory) {
      EXPECT_GE(*each.memory, Bytes(8LL << 30));
      EXPECT_LE(*each.memory, Bytes(288LL << 30));
    }
    // Multiply-adds per byte from memory at the peak.
    const double ridge = tera(each.peak.f32) * 1e3 / bandwidth;
    EXPECT_GE(ridge, 7);
    EXPECT_LE(ridge, 130);
    if (each.peak.f16) {
      EXPECT_LE(tera(each.peak.f16) * 1e3 / bandwidth, 600);
    }
    EXPECT_EQ(each.host_link.empty(), !each.host_bandwidth);
    if (each.host_bandwidth) {
      EXPECT_GE(giga(each.host_bandwidth), 15);
    }
    if (each.peer_bandwidth) {
      EXPECT_GE(giga(each.peer_bandwidth), 25);
    }
    EXPECT_LE(giga(each.peer_bandwidth), 900);
  }
}

// Recomputes the f32 rate, the f16 rate and the bandwidth from other figures of the same devices:
// cores, boost clock in MHz, f32 operations per core and cycle, f16 over f32 by architecture (0:
// not compared), bits of the memory bus, Gbit/s per pin. For some devices the rated f32 clock is
// not the clock of the tensor cores (Hopper), or the tensor cores are limited (A10G, L40).
struct Parts {
  std::string_view name;
  double cores, megahertz, per_cycle, f16_over_f32, bits, gigabits;
};
constexpr Parts kParts[] = {
    {"a10", 9216, 1695, 2, 4, 384, 12.5},
    {"a100-40g", 6912, 1410, 2, 16, 5120, 2.43},
    {"a100-40g-pcie", 6912, 1410, 2, 16, 5120, 2.43},
    {"a100-80g", 6912, 1410, 2, 16, 5120, 3.186},
    {"a100-80g-pcie", 6912, 1410, 2, 16, 5120, 3.024},
    {"a10g", 9216, 1710, 2, 0, 384, 12.5},
    {"a16", 1280, 1755, 2, 4, 128, 12.5},
    {"a2", 1280, 1770, 2, 4, 128, 12.5},
    {"a30", 3584, 1440, 2, 16, 3072, 2.43},
    {"a40", 10752, 1740, 2, 4, 384, 14.5},
    {"a5000", 8192, 1695, 2, 4, 384, 16},
    {"a6000", 10752, 1800, 2, 4, 384, 16},
    {"b100", 18944, 1600, 2, 0, 8192, 8},
    {"b200", 18944, 1965, 2, 0, 8192, 8},
    {"gb200", 18944, 2112, 2, 0, 8192, 8},
    {"gh200-96g", 16896, 1980, 2, 0, 6144, 5.2},
    {"gtx1080ti", 3584, 1582, 2, 0, 352, 11},
    {"h100-80g", 16896, 1980, 2, 16 * 1830 / 1980.0, 5120, 5.2},
    {"h100-80g-pcie", 14592, 1755, 2, 16 * 1620 / 1755.0, 5120, 3.186},
    {"h100-94g", 16896, 1785, 2, 0, 6016, 5.2},
    {"h200", 16896, 1980, 2, 16 * 1830 / 1980.0, 6144, 6.25},
    {"k80", 2496, 875, 2, 0, 384, 5},
    {"l4", 7424, 2040, 2, 4, 192, 12.5},
    {"l40", 18176, 2490, 2, 0, 384, 18},
    {"l40s", 18176, 2520, 2, 4, 384, 18},
    {"mi100", 7680, 1502, 4, 4, 4096, 2.4},
    {"mi210", 6656, 1700, 4, 4, 4096, 3.2},
    {"mi250x", 7040, 1700, 4, 4, 4096, 3.2},
    {"mi300x", 19456, 2100, 4, 8, 8192, 5.2},
    {"mi325x", 19456, 2100, 4, 8, 8192, 5.86},
    {"mi355x", 16384, 2400, 4, 16, 8192, 7.8},
    {"p100", 3584, 1303, 2, 2, 4096, 1.43},
    {"p100-12g", 3584, 1303, 2, 2, 3072, 1.43},
    {"p100-sxm2", 3584, 1480, 2, 2, 4096, 1.43},
    {"p4", 2560, 1063, 2, 0, 256, 6},
    {"p40", 3840, 1531, 2, 0, 384, 7.2},
    {"rtx2080", 2944, 1710, 2, 4, 256, 14},
    {"rtx2080ti", 4352, 1545, 2, 4, 352, 14},
    {"rtx3060", 3584, 1777, 2, 2, 192, 15},
    {"rtx3070", 5888, 1725, 2, 2, 256, 14},
    {"rtx3080", 8704, 1710, 2, 2, 320, 19},
    {"rtx3090", 10496, 1695, 2, 2, 384, 19.5},
    {"rtx4060ti", 4352, 2535, 2, 2, 128, 18},
    {"rtx4070", 5888, 2475, 2, 2, 192, 21},
    {"rtx4080", 9728, 2505, 2, 2, 256, 22.4},
    {"rtx4090", 16384, 2520, 2, 2, 384, 21},
    {"rtx5070ti", 8960, 2452, 2, 2, 256, 28},
    {"rtx5080", 10752, 2617, 2, 2, 256, 30},
    {"rtx5090", 21760, 2407, 2, 2, 512, 28},
    {"rtx6000ada", 18176, 2505, 2, 4, 384, 20},
    {"rtxpro6000", 24064, 2617, 2, 4, 512, 28},
    {"t4", 2560, 1590, 2, 8, 256, 10},
    {"titanrtx", 4608, 1770, 2, 8, 384, 14},
    {"titanv", 5120, 1455, 2, 8, 3072, 1.7},
    {"titanxp", 3840, 1582, 2, 0, 384, 11.4},
    {"v100-16g", 5120, 1530, 2, 8, 4096, 1.75},
    {"v100-16g-pcie", 5120, 1380, 2, 8, 4096, 1.75},
    {"v100-32g", 5120, 1530, 2, 8, 4096, 1.75},
    {"v100s", 5120, 1597, 2, 8, 4096, 2.22},
};

TEST(PlanningKinds, FollowFromTheirParts) {
  std::set<std::string_view> compared;
  for (const Parts& parts : kParts) {
    SCOPED_TRACE(parts.name);
    compared.insert(parts.name);
    const PlanningKind& each = kind(parts.name);
    const double f32 = parts.cores * parts.megahertz * parts.per_cycle * 1e-6;
    EXPECT_NEAR(tera(each.peak.f32) / f32, 1, 0.025);
    EXPECT_NEAR(giga(each.memory_bandwidth) / (parts.bits * parts.gigabits / 8), 1, 0.025);
    if (parts.f16_over_f32 > 0) {
      EXPECT_NEAR(tera(each.peak.f16) / (f32 * parts.f16_over_f32), 1, 0.025);
    }
  }
  for (const PlanningKind& each : planning_kinds()) {
    EXPECT_EQ(compared.contains(each.name), is_gpu(each)) << each.name;
  }
}

TEST(PlanningKinds, NameTheirSources) {
  std::set<std::string_view> known, used;
  for (const KindSource& source : kind_sources()) {
    EXPECT_TRUE(known.empty() || *known.rbegin() < source.id) << source.id;
    known.insert(source.id);
  }
  const std::set<std::string_view> figures = {"all",  "year", "memory", "bandwidth", "f64", "f32",
                                              "tf32", "f16",  "bf16",   "f8",        "i8",  "host"};
  for (const PlanningKind& each : planning_kinds()) {
    SCOPED_TRACE(each.name);
    EXPECT_TRUE(known.contains(each.source)) << each.source;
    used.insert(each.source);
    if (each.derived.empty()) continue;
    for (const std::string_view part : split(each.derived, ';')) {
      const auto colon = part.find(':');
      ASSERT_NE(colon, std::string_view::npos) << part;
      for (const std::string_view figure : split(part.substr(0, colon), ',')) {
        EXPECT_TRUE(figures.contains(trim(figure))) << figure;
        for (const NamedRate& rate : rates(each.peak)) {
          EXPECT_TRUE(rate.name != trim(figure) || rate.rate) << figure << " is absent";
        }
      }
      for (auto open = part.find('['); open != std::string_view::npos;
           open = part.find('[', open + 1)) {
        const auto id = part.substr(open + 1, part.find(']', open) - open - 1);
        EXPECT_TRUE(known.contains(id)) << id;
        used.insert(id);
      }
    }
  }
  EXPECT_EQ(used, known);
}

// --- finding ------------------------------------------------------------------------------------

TEST(FindKind, KnowsDevicesHeldBelowTheirClock) {
  const auto whole = find_kind("a100-40g"), slow = find_kind("a100-40g@0.41");
  ASSERT_TRUE(whole && slow);
  EXPECT_EQ(slow->peak.f16->value, whole->peak.f16->value * 0.41);
  EXPECT_EQ(slow->peak.f32.value, whole->peak.f32.value * 0.41);
  EXPECT_EQ(slow->memory_bandwidth, whole->memory_bandwidth);
  EXPECT_EQ(slow->memory, whole->memory);
  EXPECT_FALSE(is_cpu_kind("a100-40g@0.41"));
  EXPECT_TRUE(is_cpu_kind("xeon-8168@0.5"));
  EXPECT_EQ(find_kind("a100-40g@1.5").error().message,
            "device kind 'a100-40g@1.5': wanted 'a100-40g@' and a part of its clock above 0, up to "
            "1");
}

TEST(FindKind, SuggestsTheNearestName) {
  const auto found = find_kind("rtx4090");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->memory, Bytes(24LL << 30));
  EXPECT_EQ(find_kind("rtx409").error().message,
            "unknown device kind 'rtx409', did you mean 'rtx4090'?");
  EXPECT_EQ(find_kind("abacus").error().message, "unknown device kind 'abacus'");
  EXPECT_EQ(find_kind("abacus").error().code, "cluster.unknown-kind");
}

std::string_view kind_name(std::string_view model) {
  const auto found = kind_of_model(model);
  return found ? found->name : "none";
}

TEST(KindOfModel, KnowsWhatDriversSay) {
  EXPECT_EQ(kind_name("NVIDIA A10"), "a10");
  EXPECT_EQ(kind_name("NVIDIA A10G"), "a10g");
  EXPECT_EQ(kind_name("Tesla V100-SXM2-16GB"), "v100-16g");
  EXPECT_EQ(kind_name("Tesla V100-PCIE-16GB"), "v100-16g-pcie");
  EXPECT_EQ(kind_name("NVIDIA GeForce RTX 4090"), "rtx4090");
  EXPECT_EQ(kind_name("GeForce GTX 1080 Ti"), "gtx1080ti");
  EXPECT_EQ(kind_name("NVIDIA A100-SXM4-80GB"), "a100-80g");
  EXPECT_EQ(kind_name("NVIDIA A100 80GB PCIe"), "a100-80g-pcie");
  EXPECT_EQ(kind_name("NVIDIA H100 80GB HBM3"), "h100-80g");
  EXPECT_EQ(kind_name("AMD Instinct MI300X"), "mi300x");
  EXPECT_EQ(kind_name("Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz"), "xeon-8168");
  EXPECT_EQ(kind_name("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz"), "xeon-e5-2690v4");
  EXPECT_EQ(kind_name("AMD EPYC 7742 64-Core Processor"), "epyc-7742");
}

TEST(KindOfModel, TakesNoNeighbour) {
  EXPECT_EQ(kind_name("NVIDIA GeForce RTX 3080 Ti"), "none");
  EXPECT_EQ(kind_name("NVIDIA GeForce RTX 4090 Laptop GPU"), "none");
  EXPECT_EQ(kind_name("AMD EPYC 77420"), "none");
  EXPECT_EQ(kind_name(""), "none");
}

TEST(KindOfModel, TellsKindsApart) {
  for (const PlanningKind& each : planning_kinds()) {
    if (!each.model.empty()) {
      EXPECT_EQ(kind_name(each.model), each.name);
    }
  }
}

TEST(VendorOf, IsKnownOfEveryKind) {
  EXPECT_EQ(vendor_of(*find_kind("a100-40g")), "NVIDIA");
  EXPECT_EQ(vendor_of(*find_kind("mi300x")), "AMD");
  EXPECT_EQ(vendor_of(*find_kind("xeon-8168")), "Intel");
  EXPECT_EQ(vendor_of(*find_kind("graviton3")), "AWS");
  for (const PlanningKind& kind : planning_kinds()) EXPECT_FALSE(vendor_of(kind).empty());
}

TEST(PeakRate, FallsBackToF32Only) {
  const PlanningKind& v100 = kind("v100-16g");
  EXPECT_EQ(peak_rate(v100, DType::kF16), v100.peak.f16);
  EXPECT_EQ(peak_rate(v100, DType::kBF16), v100.peak.f32);
  EXPECT_EQ(peak_rate(v100, DType::kI8), std::nullopt);
  EXPECT_EQ(peak_rate(kind("a100-40g"), DType::kF32), FlopsPerSecond(19.5e12));
  EXPECT_EQ(peak_rate(kind("a100-40g"), DType::kF64), FlopsPerSecond(19.5e12));
  EXPECT_EQ(peak_rate(v100, DType::kI64), std::nullopt);
}

TEST(IsCpuKind, KnowsSocketsAndThisMachine) {
  EXPECT_TRUE(is_cpu_kind("cpu"));
  EXPECT_TRUE(is_cpu_kind("epyc-7742"));
  EXPECT_FALSE(is_cpu_kind("cuda"));
  EXPECT_FALSE(is_cpu_kind("a10"));
  EXPECT_FALSE(is_cpu_kind("abacus"));
}

// --- documentation ------------------------------------------------------------------------------

bool is_derived(const PlanningKind& kind, std::string_view figure) {
  for (const std::string_view part : split(kind.derived, ';')) {
    for (const std::string_view each : split(part.substr(0, part.find(':')), ',')) {
      if (trim(each) == figure || trim(each) == "all") return true;
    }
  }
  return false;
}

// Prints "31.2" for 31.2, "31.2*" for a figure that its document does not contain, "-" for none.
std::string cell(const PlanningKind& kind, std::string_view figure, double value) {
  if (value == 0) return "-";
  return fmt::format("{:.4g}{}", value, is_derived(kind, figure) ? "*" : "");
}

std::string memory_cells(const PlanningKind& each) {
  std::string cells;
  if (each.memory) {
    cells =
        fmt::format(" {} |", cell(each, "memory", static_cast<double>(each.memory->value >> 30)));
  }
  return cells + fmt::format(" {} |", cell(each, "bandwidth", giga(each.memory_bandwidth)));
}

// Prints "4.0x16" for "PCIe 4.0 x16".
std::string link_cell(const PlanningKind& each) {
  if (each.host_link.empty()) return "-";
  std::string text(each.host_link);
  if (text.starts_with("PCIe ")) text.erase(0, 5).erase(text.find(' '), 1);
  return text + (is_derived(each, "host") ? "*" : "");
}

std::string kind_row(const PlanningKind& each) {
  std::string row = fmt::format("| `{}` | {} |{}", each.name, each.model, memory_cells(each));
  for (const NamedRate& rate : rates(each.peak)) {
    if (!is_gpu(each) && (rate.name == "tf32" || rate.name == "f8")) continue;
    row += fmt::format(" {} |", cell(each, rate.name, tera(rate.rate)));
  }
  if (is_gpu(each)) {
    row +=
        fmt::format(" {} | {} |", link_cell(each), cell(each, "peers", giga(each.peer_bandwidth)));
  }
  return row + fmt::format(" {} |\n", each.source);
}

std::string tables() {
  std::string gpus =
      "| kind | driver's name | GiB | GB/s | f64 | f32 | tf32 | f16 | bf16 | f8 | i8 | PCIe | "
      "peers | source |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  std::string cpus =
      "| kind | driver's name | GB/s | f64 | f32 | f16 | bf16 | i8 | source |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const PlanningKind& each : planning_kinds()) {
    (is_gpu(each) ? gpus : cpus) += kind_row(each);
  }
  std::string sources;
  for (const KindSource& source : kind_sources()) {
    sources += fmt::format("- {}: {}\n", source.id, source.title);
  }
  return "## GPUs\n\n" + gpus + "\n## CPUs\n\n" + cpus + "\n## Sources\n\n" + sources;
}

TEST(PlanningKinds, AreInTheDocumentation) {
  const std::string page = read_file(testing::source_path("docs/device_kinds.md"));
  const auto start = page.find("## GPUs\n");
  const std::string wanted = tables();
  if (start != std::string::npos && page.substr(start) == wanted) return;
  const std::string path = testing::build_path("device_kinds.md");
  std::ofstream(path) << page.substr(0, std::min(start, page.size())) << wanted;
  FAIL() << "docs/device_kinds.md is not what the table says; wanted: " << path;
}

}  // namespace
}  // namespace motley::cluster
