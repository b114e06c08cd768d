#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "motley/base/file.h"

// The fuzz targets, each under a name of its own.
#define LLVMFuzzerTestOneInput fuzz_cluster
#include "tests/fuzz/fuzz_cluster.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_csv
#include "tests/fuzz/fuzz_csv.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_graph
#include "tests/fuzz/fuzz_graph.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_job
#include "tests/fuzz/fuzz_job.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_json
#include "tests/fuzz/fuzz_json.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_layer_profile
#include "tests/fuzz/fuzz_layer_profile.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_market
#include "tests/fuzz/fuzz_market.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_notice
#include "tests/fuzz/fuzz_notice.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_npz
#include "tests/fuzz/fuzz_npz.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_plan
#include "tests/fuzz/fuzz_plan.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_program
#include "tests/fuzz/fuzz_program.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "tests/fuzz/fuzz_safetensors.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_size_expr
#include "tests/fuzz/fuzz_size_expr.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tensor_files
#include "tests/fuzz/fuzz_tensor_files.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_trace
#include "motley/testing/places.h"
#include "tests/fuzz/fuzz_trace.cc"
#undef LLVMFuzzerTestOneInput

// `make fuzz` looks for new inputs with libFuzzer, which needs all libraries compiled again by
// clang. Here the kept ones, and inputs a few changes away from them, go through the same targets
// as they are built for everybody.
namespace motley::fuzz {
namespace {

using Target = std::function<int(const std::uint8_t*, std::size_t)>;

const std::map<std::string, Target> kTargets = {{"cluster", fuzz_cluster},
                                                {"csv", fuzz_csv},
                                                {"graph", fuzz_graph},
                                                {"job", fuzz_job},
                                                {"json", fuzz_json},
                                                {"layer_profile", fuzz_layer_profile},
                                                {"market", fuzz_market},
                                                {"notice", fuzz_notice},
                                                {"npz", fuzz_npz},
                                                {"plan", fuzz_plan},
                                                {"program", fuzz_program},
                                                {"safetensors", fuzz_safetensors},
                                                {"size_expr", fuzz_size_expr},
                                                {"tensor_files", fuzz_tensor_files},
                                                {"trace", fuzz_trace}};
constexpr int kChangedInputs = 300;  // of a target, shared out among its files

const std::filesystem::path kTests = testing::source_path("tests");

/// What lies in the goldens and the seeds of a target, in the order of names.
std::vector<std::string> kept_inputs(const std::string& target) {
  std::set<std::string> paths;
  for (const auto& folder : {kTests / "golden" / target, kTests / "fuzz/seeds" / target}) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) paths.insert(entry.path().string());
  }
  std::vector<std::string> inputs = {""};
  for (const std::string& path : paths) inputs.push_back(read_file(path).value());
  return inputs;
}

/// One to four of: another byte, a stretch left out, a stretch twice, the end cut off.
std::string changed(std::string input, std::mt19937_64& random) {
  for (std::uint64_t changes = 1 + random() % 4; changes > 0 && !input.empty(); --changes) {
    const std::size_t at = random() % input.size(), length = 1 + random() % 16;
    switch (random() % 4) {
      case 0:
        input[at] = static_cast<char>(random());
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(random() % input.size(), input.substr(at, length));
        break;
      default:
        input.resize(at);
    }
  }
  return input;
}

void replay(const Target& target, const std::string& input) {
  target(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

/// A fault ends the program: the targets check by MOTLEY_CHECK.
TEST(FuzzReplay, KeptInputsAndTheirNeighboursAreReadOrRefused) {
  for (const auto& [name, target] : kTargets) {
    SCOPED_TRACE(name);
    const std::vector<std::string> inputs = kept_inputs(name);
    std::mt19937_64 random(1);
    for (const std::string& input : inputs) replay(target, input);
    for (int i = 0; i < kChangedInputs; ++i)
      replay(target, changed(inputs[random() % inputs.size()], random));
  }
}

TEST(FuzzReplay, EveryTargetIsReplayed) {
  std::set<std::string> found, wanted;
  for (const auto& entry : std::filesystem::directory_iterator(kTests / "fuzz"))
    if (const std::string name = entry.path().stem().string(); name.starts_with("fuzz_"))
      found.insert(name.substr(5));
  for (const auto& [name, target] : kTargets) wanted.insert(name);
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace motley::fuzz
