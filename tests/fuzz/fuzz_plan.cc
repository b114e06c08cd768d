#include "motley/base/check.h"
#include "motley/plan/plan.h"
#include "tests/fuzz/text_of.h"

namespace {

motley::cluster::Cluster two_devices() {
  return *motley::cluster::parse_cluster(R"(schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
)",
                                         "two");
}

}  // namespace

/// Any text gives a plan or a message; a plan prints and reads back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const motley::cluster::Cluster cluster = two_devices();
  const auto plan = motley::plan::parse_plan(motley::fuzz::text_of(data, size), "f", cluster);
  if (!plan) return 0;
  const std::string text = motley::plan::print_plan(*plan, cluster);
  const auto again = motley::plan::parse_plan(text, "f", cluster);
  MOTLEY_CHECK(again.has_value() && print_plan(*again, cluster) == text);
  static_cast<void>(motley::plan::verify_plan(*plan, plan->model_hash, cluster));
  return 0;
}
