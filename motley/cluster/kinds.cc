#include "motley/cluster/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "motley/base/text.h"

namespace motley::cluster {
namespace {

constexpr Processor kGpu = Processor::kGpu;
constexpr Processor kCpu = Processor::kCpu;

/// A host link, each way. PCIe: transfers per second x lanes x 128/130 (coding) / 8 bits.
struct HostLink {
  std::string_view name;
  double bandwidth;  // GB/s
};
constexpr HostLink kPcie3x16 = {"PCIe 3.0 x16", 8 * 16 * 128.0 / 130 / 8};
constexpr HostLink kPcie4x8 = {"PCIe 4.0 x8", 16 * 8 * 128.0 / 130 / 8};
constexpr HostLink kPcie4x16 = {"PCIe 4.0 x16", 16 * 16 * 128.0 / 130 / 8};
constexpr HostLink kPcie5x16 = {"PCIe 5.0 x16", 32 * 16 * 128.0 / 130 / 8};
constexpr HostLink kNvlinkC2c = {"NVLink-C2C", 450};  // 900 both ways
constexpr HostLink kUnknown = {"", 0};

/// One line of the table, in the units of data sheets; 0 = absent.
struct Row {
  std::string_view name;
  Processor processor;
  int year;
  int gibibytes;
  double bandwidth;  // GB/s
  struct {
    double f64, f32, tf32, f16, bf16, f8, i8;
  } peak;  // 10^12 operations per second
  HostLink host;
  double peer;  // GB/s each way
  std::string_view source, model, derived;
};

constexpr std::string_view kF64Of32 = "f64: 1/32 of f32 [cuda-guide]";
constexpr std::string_view kF64Of64 = "f64: 1/64 of f32 [cuda-guide]";

// clang-format off
constexpr std::array kRows = {
  //  name               unit  year  GiB   GB/s    f64    f32   tf32     f16    bf16      f8      i8   host        peer   source
  Row{"a10",            kGpu, 2021,  24,   600, {0.488,  31.2,  62.5,    125,    125,      0,    250}, kPcie4x16,     0, "a10",               "A10", kF64Of64},
  Row{"a100-40g",       kGpu, 2020,  40,  1555, { 19.5,  19.5,   156,    312,    312,      0,    624}, kPcie4x16,   300, "a100",              "A100-SXM4-40GB", ""},
  Row{"a100-40g-pcie",  kGpu, 2020,  40,  1555, { 19.5,  19.5,   156,    312,    312,      0,    624}, kPcie4x16,   300, "a100",              "A100-PCIE-40GB", ""},
  Row{"a100-80g",       kGpu, 2020,  80,  2039, { 19.5,  19.5,   156,    312,    312,      0,    624}, kPcie4x16,   300, "a100",              "A100-SXM4-80GB", ""},
  Row{"a100-80g-pcie",  kGpu, 2021,  80,  1935, { 19.5,  19.5,   156,    312,    312,      0,    624}, kPcie4x16,   300, "a100",              "A100 80GB PCIe", ""},
  Row{"a10g",           kGpu, 2021,  24,   600, {0.492,  31.5,    35,     70,     70,      0,    140}, kPcie4x16,     0, "a10g",              "A10G", kF64Of64},
  Row{"a16",            kGpu, 2021,  16,   200, {0.0703,   4.5,     9,   17.9,   17.9,      0,   35.9}, kPcie4x16,     0, "a16",               "A16",
      "f64: 1/64 of f32 [cuda-guide]; host: one slot, which the board's four share"},
  Row{"a2",             kGpu, 2021,  16,   200, {0.0703,   4.5,     9,     18,     18,      0,     36}, kPcie4x8,      0, "a2",                "A2", kF64Of64},
  Row{"a30",            kGpu, 2021,  24,   933, { 10.3,  10.3,    82,    165,    165,      0,    330}, kPcie4x16,   100, "a30",               "A30", ""},
  Row{"a40",            kGpu, 2020,  48,   696, {0.584,  37.4,  74.8,  149.7,  149.7,      0,  299.3}, kPcie4x16, 56.25, "ga102",             "A40", kF64Of64},
  Row{"a5000",          kGpu, 2021,  24,   768, {0.434,  27.8,  55.6,  111.1,  111.1,      0,  222.2}, kPcie4x16, 56.25, "a5000",             "RTX A5000",
      "f64: 1/64 of f32 [cuda-guide]; tf32, f16, bf16, i8: 2, 4, 4, 8 times f32, as of the A6000 [ga102]"},
  Row{"a6000",          kGpu, 2020,  48,   768, {0.605,  38.7,  77.4,  154.8,  154.8,      0,  309.7}, kPcie4x16, 56.25, "ga102",             "RTX A6000", kF64Of64},
  Row{"b100",           kGpu, 2024, 192,  8000, {   30,    60,   875,   1750,   1750,   3500,   3500}, kPcie5x16,   900, "blackwell",         "B100",
      "tf32, f16, bf16: 1/4, 1/2, 1/2 of f8, as the brief rounds them"},
  Row{"b200",           kGpu, 2024, 180,  8000, {   37,    75,  1125,   2250,   2250,   4500,   4500}, kPcie5x16,   900, "hgx-b200",          "B200",
      "all: 1/8 of the board's; bandwidth: 1/8 of the system's [dgx-b200]"},
  Row{"epyc-7742",      kCpu, 2019,   0, 204.8, {2.304, 4.608,     0,      0,      0,      0,      0}, kUnknown,      0, "amd-epyc",          "EPYC 7742",
      "f64, f32: 64 cores x 2.25 GHz x 16, 32 [zen2]; bandwidth: 8 x DDR4-3200"},
  Row{"epyc-7763",      kCpu, 2021,   0, 204.8, {2.509, 5.018,     0,      0,      0,      0,      0}, kUnknown,      0, "amd-epyc",          "EPYC 7763",
      "f64, f32: 64 cores x 2.45 GHz x 16, 32 [zen3]; bandwidth: 8 x DDR4-3200"},
  Row{"epyc-9654",      kCpu, 2022,   0, 460.8, {3.686, 7.373,     0,      0,      0,      0,      0}, kUnknown,      0, "amd-epyc",          "EPYC 9654",
      "f64, f32: 96 cores x 2.4 GHz x 16, 32 [zen4]; bandwidth: 12 x DDR5-4800"},
  Row{"epyc-9755",      kCpu, 2024,   0,   576, {11.06, 22.12,     0,      0,      0,      0,      0}, kUnknown,      0, "amd-epyc",          "EPYC 9755",
      "f64, f32: 128 cores x 2.7 GHz x 32, 64 [zen5]; bandwidth: 12 x DDR5-6000"},
  Row{"gb200",          kGpu, 2024, 186,  8000, {   40,    80,  1250,   2500,   2500,   5000,   5000}, kUnknown,    900, "gb200",             "GB200",
      "all: 1/72 of the rack's"},
  Row{"gh200-96g",      kGpu, 2023,  96,  4000, {   67,    67, 494.5,  989.5,  989.5,   1979,   1979}, kNvlinkC2c,   450, "gh200",             "GH200 480GB", ""},
  Row{"graviton2",      kCpu, 2020,   0, 204.8, { 1.28,  2.56,     0,      0,      0,      0,      0}, kUnknown,      0, "graviton",          "",
      "f64, f32: 64 cores x 2.5 GHz x 8, 16 [neoverse]; bandwidth: 8 x DDR4-3200"},
  Row{"graviton3",      kCpu, 2022,   0, 307.2, {2.662, 5.325,     0,      0,      0,      0,      0}, kUnknown,      0, "graviton",          "",
      "f64, f32: 64 cores x 2.6 GHz x 16, 32 [neoverse]; bandwidth: 8 x DDR5-4800"},
  Row{"graviton4",      kCpu, 2024,   0, 537.6, {4.301, 8.602,     0,      0,      0,      0,      0}, kUnknown,      0, "graviton",          "",
      "f64, f32: 96 cores x 2.8 GHz x 16, 32 [neoverse]; bandwidth: 12 x DDR5-5600"},
  Row{"gtx1080ti",      kGpu, 2017,  11,   484, {0.354,  11.3,     0,      0,      0,      0,      0}, kPcie3x16,     0, "geforce-10",        "GeForce GTX 1080 Ti",
      "f64: 1/32 of f32 [cuda-guide]; f32: 2 x 3584 cores x 1582 MHz"},
  Row{"h100-80g",       kGpu, 2022,  80,  3350, {   67,    67, 494.5,  989.5,  989.5,   1979,   1979}, kPcie5x16,   450, "h100",              "H100 80GB HBM3", ""},
  Row{"h100-80g-pcie",  kGpu, 2022,  80,  2000, { 51.2,  51.2,   378,    756,    756,   1513,   1513}, kPcie5x16,   300, "h100-paper",        "H100 PCIe", ""},
  Row{"h100-94g",       kGpu, 2023,  94,  3900, {   60,    60, 417.5,  835.5,  835.5, 1670.5, 1670.5}, kPcie5x16,   300, "h100",              "H100 NVL", ""},
  Row{"h200",           kGpu, 2024, 141,  4800, {   67,    67, 494.5,  989.5,  989.5,   1979,   1979}, kPcie5x16,   450, "h200",              "H200", ""},
  Row{"k80",            kGpu, 2014,  12,   240, {1.455, 4.365,     0,      0,      0,      0,      0}, kPcie3x16,     0, "k80",               "Tesla K80",
      "f64, f32, memory, bandwidth: half of the board's; host: one slot, which both dies share"},
  Row{"l4",             kGpu, 2023,  24,   300, {0.473,  30.3,    60,    121,    121,  242.5,  242.5}, kPcie4x16,     0, "l4",                "L4", kF64Of64},
  Row{"l40",            kGpu, 2022,  48,   864, { 1.41,  90.5,  90.5,    181,    181,    362,    362}, kPcie4x16,     0, "l40",               "L40", kF64Of64},
  Row{"l40s",           kGpu, 2023,  48,   864, { 1.43,  91.6,   183,    362,    362,    733,    733}, kPcie4x16,     0, "l40s",              "L40S", kF64Of64},
  Row{"mi100",          kGpu, 2020,  32,  1229, { 11.5,  46.1,     0,  184.6,   92.3,      0,  184.6}, kPcie4x16,   138, "mi100",             "Instinct MI100", ""},
  Row{"mi210",          kGpu, 2022,  64,  1638, { 45.3,  45.3,     0,    181,    181,      0,    181}, kPcie4x16,   150, "mi210",             "Instinct MI210", ""},
  Row{"mi250x",         kGpu, 2021,  64,  1638, { 47.9,  47.9,     0,  191.5,  191.5,      0,  191.5}, kUnknown,      0, "mi250x",            "Instinct MI250X",
      "f64, f32, f16, bf16, i8, memory, bandwidth: half of the module's"},
  Row{"mi300x",         kGpu, 2023, 192,  5300, {163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9}, kPcie5x16,   448, "mi300x",            "Instinct MI300X", ""},
  Row{"mi325x",         kGpu, 2024, 256,  6000, {163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9}, kPcie5x16,   448, "mi325x",            "Instinct MI325X", ""},
  Row{"mi355x",         kGpu, 2025, 288,  8000, { 78.6, 157.3,     0, 2516.6, 2516.6, 5033.2, 5033.2}, kPcie5x16, 537.6, "mi355x",            "Instinct MI355X", ""},
  Row{"p100",           kGpu, 2016,  16,   732, {  4.7,   9.3,     0,   18.7,      0,      0,      0}, kPcie3x16,     0, "p100",              "Tesla P100-PCIE-16GB", ""},
  Row{"p100-12g",       kGpu, 2016,  12,   549, {  4.7,   9.3,     0,   18.7,      0,      0,      0}, kPcie3x16,     0, "p100",              "Tesla P100-PCIE-12GB", ""},
  Row{"p100-sxm2",      kGpu, 2016,  16,   732, {  5.3,  10.6,     0,   21.2,      0,      0,      0}, kPcie3x16,    80, "p100-paper",        "Tesla P100-SXM2-16GB", ""},
  Row{"p4",             kGpu, 2016,   8,   192, {0.172,   5.5,     0,      0,      0,      0,     22}, kPcie3x16,     0, "p4",                "Tesla P4", kF64Of32},
  Row{"p40",            kGpu, 2016,  24,   346, {0.375,    12,     0,      0,      0,      0,     47}, kPcie3x16,     0, "p40",               "Tesla P40", kF64Of32},
  Row{"rtx2080",        kGpu, 2018,   8,   448, {0.316,  10.1,     0,   40.3,      0,      0,  161.1}, kPcie3x16,    25, "turing",            "GeForce RTX 2080", kF64Of32},
  Row{"rtx2080ti",      kGpu, 2018,  11,   616, {0.419,  13.4,     0,   53.8,      0,      0,  215.2}, kPcie3x16,    50, "turing",            "GeForce RTX 2080 Ti", kF64Of32},
  Row{"rtx3060",        kGpu, 2021,  12,   360, {0.198,  12.7,  12.7,   25.5,   25.5,      0,  101.9}, kPcie4x16,     0, "geforce-30",        "GeForce RTX 3060",
      "f64: 1/64 of f32 [cuda-guide]; f32: 2 x 3584 cores x 1777 MHz; tf32, f16, bf16, i8: 1, 2, 2, 8 times f32, as "
      "of the RTX 3070 [ga102]; bandwidth: 192 bit x 15 Gbps"},
  Row{"rtx3070",        kGpu, 2020,   8,   448, {0.317,  20.3,  20.3,   40.6,   40.6,      0,  162.6}, kPcie4x16,     0, "ga102",             "GeForce RTX 3070", kF64Of64},
  Row{"rtx3080",        kGpu, 2020,  10,   760, {0.466,  29.8,  29.8,   59.5,   59.5,      0,    238}, kPcie4x16,     0, "ga102",             "GeForce RTX 3080", kF64Of64},
  Row{"rtx3090",        kGpu, 2020,  24,   936, {0.556,  35.6,  35.6,     71,     71,      0,    284}, kPcie4x16, 56.25, "ga102",             "GeForce RTX 3090", kF64Of64},
  Row{"rtx4060ti",      kGpu, 2023,   8,   288, {0.345,  22.1,  22.1,   44.1,   44.1,   88.2,  176.5}, kPcie4x8,      0, "geforce-40",        "GeForce RTX 4060 Ti",
      "f64: 1/64 of f32 [cuda-guide]; f32: 2 x 4352 cores x 2535 MHz; tf32, f16, bf16, f8, i8: 1, 2, 2, 4, 8 times "
      "f32, as of the RTX 4090 [ada]; bandwidth: 128 bit x 18 Gbps"},
  Row{"rtx4070",        kGpu, 2023,  12,   504, {0.455,  29.1,  29.1,   58.3,   58.3,  116.6,  233.2}, kPcie4x16,     0, "geforce-40",        "GeForce RTX 4070",
      "f64: 1/64 of f32 [cuda-guide]; f32: 2 x 5888 cores x 2475 MHz; tf32, f16, bf16, f8, i8: 1, 2, 2, 4, 8 times "
      "f32, as of the RTX 4090 [ada]; bandwidth: 192 bit x 21 Gbps"},
  Row{"rtx4080",        kGpu, 2022,  16,   717, {0.761,  48.7,  48.7,   97.5,   97.5,  194.9,  389.9}, kPcie4x16,     0, "ada",               "GeForce RTX 4080", kF64Of64},
  Row{"rtx4090",        kGpu, 2022,  24,  1008, { 1.29,  82.6,  82.6,  165.2,  165.2,  330.3,  660.6}, kPcie4x16,     0, "ada",               "GeForce RTX 4090", kF64Of64},
  Row{"rtx5070ti",      kGpu, 2025,  16,   896, {0.686,  43.9,  43.9,   87.9,   87.9,  175.8,  351.5}, kPcie5x16,     0, "rtx-blackwell",     "GeForce RTX 5070 Ti", kF64Of64},
  Row{"rtx5080",        kGpu, 2025,  16,   960, { 0.88,  56.3,  56.3,  112.6,  112.6,  225.1,  450.2}, kPcie5x16,     0, "rtx-blackwell",     "GeForce RTX 5080", kF64Of64},
  Row{"rtx5090",        kGpu, 2025,  32,  1792, { 1.64, 104.8, 104.8,  209.5,  209.5,    419,    838}, kPcie5x16,     0, "rtx-blackwell",     "GeForce RTX 5090", kF64Of64},
  Row{"rtx6000ada",     kGpu, 2022,  48,   960, { 1.42,  91.1, 182.1,  364.2,  364.2,  728.5,  728.5}, kPcie4x16,     0, "rtx6000ada",        "RTX 6000 Ada Generation",
      "f64: 1/64 of f32 [cuda-guide]; tf32, f16, bf16, i8: 1/4, 1/2, 1/2, 1 times f8"},
  Row{"rtxpro6000",     kGpu, 2025,  96,  1792, { 1.97,   126, 251.9,  503.8,  503.8, 1007.6, 1007.6}, kPcie5x16,     0, "rtx-pro-blackwell", "RTX PRO 6000 Blackwell Workstation Edition", kF64Of64},
  Row{"t4",             kGpu, 2018,  16,   320, {0.253,   8.1,     0,     65,      0,      0,    130}, kPcie3x16,     0, "t4",                "Tesla T4", kF64Of32},
  Row{"titanrtx",       kGpu, 2018,  24,   672, {0.509,  16.3,     0,  130.5,      0,      0,    261}, kPcie3x16,    50, "titanrtx",          "TITAN RTX",
      "f64: 1/32 of f32 [cuda-guide]; f32: 2 x 4608 cores x 1770 MHz; f16, i8: as of the Quadro RTX 6000, the same "
      "chip and clock [turing]"},
  Row{"titanv",         kGpu, 2017,  12,   653, { 7.45,  14.9,     0,    119,      0,      0,      0}, kPcie3x16,     0, "titanv",            "TITAN V",
      "f64: 1/2 of f32; f32: 2 x 5120 cores x 1455 MHz; f16: 128 x 640 tensor cores x 1455 MHz [volta]"},
  Row{"titanxp",        kGpu, 2017,  12,   548, { 0.38, 12.15,     0,      0,      0,      0,      0}, kPcie3x16,     0, "geforce-10",        "TITAN Xp",
      "f64: 1/32 of f32 [cuda-guide]; f32: 2 x 3840 cores x 1582 MHz"},
  Row{"v100-16g",       kGpu, 2017,  16,   900, {  7.8,  15.7,     0,    125,      0,      0,      0}, kPcie3x16,   150, "v100",              "Tesla V100-SXM2-16GB", ""},
  Row{"v100-16g-pcie",  kGpu, 2017,  16,   900, {    7,    14,     0,    112,      0,      0,      0}, kPcie3x16,     0, "v100",              "Tesla V100-PCIE-16GB", ""},
  Row{"v100-32g",       kGpu, 2018,  32,   900, {  7.8,  15.7,     0,    125,      0,      0,      0}, kPcie3x16,   150, "v100",              "Tesla V100-SXM2-32GB", ""},
  Row{"v100s",          kGpu, 2019,  32,  1134, {  8.2,  16.4,     0,    130,      0,      0,      0}, kPcie3x16,     0, "v100",              "Tesla V100S-PCIE-32GB", ""},
  Row{"xeon-8168",      kCpu, 2017,   0,   128, {2.074, 4.147,     0,      0,      0,      0,      0}, kUnknown,      0, "intel-ark",         "Platinum 8168",
      "f64, f32: 24 cores x 2.7 GHz x 32, 64 [intel-optimization]; bandwidth: 6 x DDR4-2666"},
  Row{"xeon-8280",      kCpu, 2019,   0, 140.8, {2.419, 4.838,     0,      0,      0,      0,  19.35}, kUnknown,      0, "intel-ark",         "Platinum 8280",
      "f64, f32, i8: 28 cores x 2.7 GHz x 32, 64, 256 [intel-optimization]; bandwidth: 6 x DDR4-2933"},
  Row{"xeon-8380",      kCpu, 2021,   0, 204.8, {2.944, 5.888,     0,      0,      0,      0,  23.55}, kUnknown,      0, "intel-ark",         "Platinum 8380",
      "f64, f32, i8: 40 cores x 2.3 GHz x 32, 64, 256 [intel-optimization]; bandwidth: 8 x DDR4-3200"},
  Row{"xeon-8480p",     kCpu, 2023,   0, 307.2, {3.584, 7.168,     0,  14.34,  114.7,      0,  229.4}, kUnknown,      0, "intel-ark",         "Platinum 8480+",
      "f64, f32, f16, bf16, i8: 56 cores x 2.0 GHz x 32, 64, 128, 1024, 2048 [intel-optimization]; bandwidth: 8 x "
      "DDR5-4800"},
  Row{"xeon-e5-2690v4", kCpu, 2016,   0,  76.8, {0.582, 1.165,     0,      0,      0,      0,      0}, kUnknown,      0, "intel-ark",         "E5-2690 v4",
      "f64, f32: 14 cores x 2.6 GHz x 16, 32 [intel-optimization]; bandwidth: 4 x DDR4-2400"},
};
// clang-format on

constexpr std::array kSources = {
    KindSource{"a10", "NVIDIA A10 Tensor Core GPU, data sheet, 2021"},
    KindSource{"a100", "NVIDIA A100 Tensor Core GPU, data sheet, June 2021"},
    KindSource{"a10g", "NVIDIA A10G Tensor Core GPU for AWS, data sheet, February 2022"},
    KindSource{"a16", "NVIDIA A16 GPU, data sheet, 2021"},
    KindSource{"a2", "NVIDIA A2 Tensor Core GPU, data sheet, 2021"},
    KindSource{"a30", "NVIDIA A30 Tensor Core GPU, data sheet, 2021"},
    KindSource{"a5000", "NVIDIA RTX A5000, data sheet, 2021"},
    KindSource{"ada", "NVIDIA Ada GPU Architecture, white paper, 2023, appendix A"},
    KindSource{"amd-epyc", "AMD EPYC 7002 to 9005, product specifications on amd.com"},
    KindSource{"blackwell", "NVIDIA Blackwell Architecture, technical brief, 2024"},
    KindSource{"cuda-guide",
               "NVIDIA CUDA C++ Programming Guide, throughput of native arithmetic instructions"},
    KindSource{"dgx-b200", "NVIDIA DGX B200, data sheet, 2024"},
    KindSource{"ga102", "NVIDIA Ampere GA102 GPU Architecture, white paper V2.0, 2021"},
    KindSource{"gb200", "NVIDIA GB200 NVL72, data sheet, 2025"},
    KindSource{
        "geforce-10",
        "NVIDIA GeForce GTX 1080 Ti and TITAN Xp, product specifications on nvidia.com, 2017"},
    KindSource{"geforce-30",
               "NVIDIA GeForce RTX 30 Series, product specifications on nvidia.com, 2021"},
    KindSource{"geforce-40",
               "NVIDIA GeForce RTX 40 Series, product specifications on nvidia.com, 2023"},
    KindSource{"gh200", "NVIDIA GH200 Grace Hopper Superchip, data sheet, 2023"},
    KindSource{"graviton", "AWS Graviton Technical Guide (aws/aws-graviton-getting-started)"},
    KindSource{"h100", "NVIDIA H100 Tensor Core GPU, data sheet, 2023"},
    KindSource{"h100-paper", "NVIDIA H100 Tensor Core GPU Architecture, white paper, 2022"},
    KindSource{"h200", "NVIDIA H200 Tensor Core GPU, data sheet, 2024"},
    KindSource{"hgx-b200", "NVIDIA HGX Platform, data sheet, 2025"},
    KindSource{"intel-ark", "Intel product specifications (ARK), the processor's page"},
    KindSource{"intel-optimization",
               "Intel 64 and IA-32 Architectures Optimization Reference Manual, 248966"},
    KindSource{"k80",
               "NVIDIA Tesla K80 GPU Accelerator, board specification BD-07317-001, January 2015"},
    KindSource{"l4", "NVIDIA L4 Tensor Core GPU, data sheet, 2023"},
    KindSource{"l40", "NVIDIA L40 GPU, data sheet, 2022"},
    KindSource{"l40s", "NVIDIA L40S GPU, data sheet, 2023"},
    KindSource{"mi100", "AMD Instinct MI100 Accelerator, brochure, November 2020"},
    KindSource{"mi210", "AMD Instinct MI210 Accelerator, data sheet, 2022"},
    KindSource{"mi250x", "AMD Instinct MI200 Series Accelerator, data sheet, 2021"},
    KindSource{"mi300x", "AMD Instinct MI300X Accelerator, data sheet, 2023"},
    KindSource{"mi325x", "AMD Instinct MI325X Accelerator, data sheet, 2024"},
    KindSource{"mi355x", "AMD Instinct MI355X GPU, data sheet, 2025"},
    KindSource{"neoverse", "Arm Neoverse N1, V1 and V2, software optimization guides"},
    KindSource{"p100", "NVIDIA Tesla P100 for PCIe-based servers, data sheet, 2016"},
    KindSource{"p100-paper", "NVIDIA Tesla P100, white paper WP-08019-001, 2016"},
    KindSource{"p4", "NVIDIA Tesla P4 Inferencing Accelerator, data sheet, 2016"},
    KindSource{"p40", "NVIDIA Tesla P40 Inferencing Accelerator, data sheet, 2016"},
    KindSource{"rtx-blackwell",
               "NVIDIA RTX Blackwell GPU Architecture, white paper, 2025, appendix"},
    KindSource{"rtx-pro-blackwell", "NVIDIA RTX PRO Blackwell GPU Architecture, white paper, 2025"},
    KindSource{"rtx6000ada", "NVIDIA RTX 6000 Ada Generation, data sheet, 2022"},
    KindSource{"t4", "NVIDIA T4 Tensor Core GPU, data sheet, March 2019"},
    KindSource{"titanrtx", "NVIDIA TITAN RTX, product specifications on nvidia.com, 2018"},
    KindSource{"titanv", "NVIDIA TITAN V, product specifications on nvidia.com, 2017"},
    KindSource{"turing", "NVIDIA Turing GPU Architecture, white paper WP-09183-001, 2018"},
    KindSource{"v100", "NVIDIA V100 Tensor Core GPU, data sheet, January 2020"},
    KindSource{"volta",
               "NVIDIA Tesla V100 GPU Architecture, white paper WP-08608-001, August 2017"},
    KindSource{"zen2",
               "AMD Software Optimization Guide for Family 17h Models 30h and Greater, 56305"},
    KindSource{"zen3", "AMD Software Optimization Guide for Family 19h, 56665"},
    KindSource{"zen4", "AMD Software Optimization Guide for Zen 4, 57647"},
    KindSource{"zen5", "AMD Software Optimization Guide for Zen 5, 58455"},
};

constexpr std::optional<FlopsPerSecond> tera(double count) {
  if (count == 0) return std::nullopt;
  return FlopsPerSecond(count * 1e12);
}

constexpr std::optional<BytesPerSecond> giga(double count) {
  if (count == 0) return std::nullopt;
  return BytesPerSecond(count * 1e9);
}

constexpr PlanningKind kind_of_row(const Row& row) {
  PlanningKind kind{.name = row.name,
                    .model = row.model,
                    .processor = row.processor,
                    .year = row.year,
                    .memory_bandwidth = *giga(row.bandwidth),
                    .host_link = row.host.name,
                    .host_bandwidth = giga(row.host.bandwidth),
                    .peer_bandwidth = giga(row.peer),
                    .source = row.source,
                    .derived = row.derived};
  if (row.gibibytes > 0) kind.memory = Bytes(std::int64_t{row.gibibytes} << 30);
  kind.peak = {tera(row.peak.f64),  *tera(row.peak.f32), tera(row.peak.tf32), tera(row.peak.f16),
               tera(row.peak.bf16), tera(row.peak.f8),   tera(row.peak.i8)};
  return kind;
}

constexpr auto kKinds = [] {
  std::array<PlanningKind, kRows.size()> kinds;
  std::transform(kRows.begin(), kRows.end(), kinds.begin(), kind_of_row);
  return kinds;
}();

/// Removes the vendor, which newer drivers write and older ones do not.
std::string_view without_vendor(std::string_view model) {
  for (const std::string_view vendor : {"NVIDIA ", "AMD "}) {
    if (model.starts_with(vendor)) model.remove_prefix(vendor.size());
  }
  return model;
}

/// Finds whole words: "EPYC 7742" in "EPYC 7742 64-Core Processor", not in "EPYC 77420".
bool has_words(std::string_view text, std::string_view words) {
  const std::string padded = fmt::format(" {} ", text);
  return padded.find(fmt::format(" {} ", words)) != std::string::npos;
}

}  // namespace

std::span<const PlanningKind> planning_kinds() { return kKinds; }

std::span<const KindSource> kind_sources() { return kSources; }

std::vector<std::string> known_kinds() {
  std::vector<std::string> names = {"cpu", "cuda"};
  for (const PlanningKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

namespace {

PlanningKind slowed(PlanningKind kind, double part) {
  kind.peak.f32 = FlopsPerSecond(kind.peak.f32.value * part);
  for (auto rate : {&PeakRates::f64, &PeakRates::tf32, &PeakRates::f16, &PeakRates::bf16,
                    &PeakRates::f8, &PeakRates::i8})
    if (kind.peak.*rate) kind.peak.*rate = FlopsPerSecond((kind.peak.*rate)->value * part);
  return kind;
}

}  // namespace

Result<PlanningKind> find_kind(std::string_view name) {
  const std::size_t at = name.find('@');
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const PlanningKind& known) { return known.name == name.substr(0, at); });
  if (kind == std::end(kKinds)) {
    std::vector<std::string> names;
    for (const PlanningKind& known : kKinds) names.emplace_back(known.name);
    return usage_error("cluster.unknown-kind", fmt::format("unknown device kind '{}'{}", name,
                                                           suggestion_clause(name, names)));
  }
  if (at == std::string_view::npos) return *kind;
  const std::optional<double> part = find_float(name.substr(at + 1));
  if (part && *part > 0 && *part <= 1) return slowed(*kind, *part);
  return usage_error(
      "cluster.unknown-kind",
      fmt::format("device kind '{}': wanted '{}@' and a part of its clock above 0, up to 1", name,
                  kind->name));
}

std::optional<PlanningKind> kind_of_model(std::string_view model) {
  model = without_vendor(trim(model));
  for (const PlanningKind& kind : kKinds) {
    if (kind.model.empty()) continue;
    // A GPU's name is matched whole: "GeForce RTX 3080" is not "GeForce RTX 3080 Ti". A CPU's is
    // part of a longer text: "Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz".
    const bool is_gpu = kind.processor == Processor::kGpu;
    if (is_gpu ? model == kind.model : has_words(model, kind.model)) return kind;
  }
  return std::nullopt;
}

std::string_view vendor_of(const PlanningKind& kind) {
  const auto source = std::find_if(kSources.begin(), kSources.end(), [&](const KindSource& known) {
    return known.id == kind.source;
  });
  return source == kSources.end() ? "" : source->title.substr(0, source->title.find(' '));
}

std::optional<FlopsPerSecond> peak_rate(const PlanningKind& kind, DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kC128:
      return kind.peak.f64;
    case DType::kF32:
    case DType::kC64:
      return kind.peak.f32;
    case DType::kF16:
      return kind.peak.f16 ? kind.peak.f16 : kind.peak.f32;
    case DType::kBF16:
      return kind.peak.bf16 ? kind.peak.bf16 : kind.peak.f32;
    case DType::kI8:
      return kind.peak.i8;
    default:
      return std::nullopt;
  }
}

bool is_cpu_kind(std::string_view name) {
  if (name == "cpu") return true;
  const auto kind = find_kind(name);
  return kind && kind->processor == Processor::kCpu;
}

}  // namespace motley::cluster
