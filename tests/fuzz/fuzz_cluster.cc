#include "motley/base/check.h"
#include "motley/cluster/cluster.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a cluster or a message; a cluster prints and reads back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto cluster = motley::cluster::parse_cluster(motley::fuzz::text_of(data, size), "f");
  if (!cluster) return 0;
  const std::string text = motley::cluster::print_cluster(*cluster);
  const auto again = motley::cluster::parse_cluster(text, "f");
  MOTLEY_CHECK(again.has_value() && *again == *cluster && print_cluster(*again) == text);
  return 0;
}
