#include "motley/report/manifest.h"

#include <gmock/gmock.h>

namespace motley::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

cluster::Cluster unlike_nodes() {
  cluster::Cluster cluster;
  cluster.name = "Lab 1";
  cluster.nodes = {{.name = "a", .host = "gpu-a"}, {.name = "b", .host = "b"}};
  cluster.devices = {{.node = NodeId(0), .name = "a:0", .kind = "cuda", .model = "NVIDIA A10"},
                     {.node = NodeId(1), .name = "b:0", .kind = "cpu", .threads = 4}};
  return cluster;
}

const ManifestOptions kOptions{.words = {"run", "-m", "a model.motley", "-C", "lab.toml"},
                               .cluster_file = "lab.toml",
                               .time = "01:00:00",
                               .image = "motley:1",
                               .claim = ""};

TEST(Manifest, OfSlurmNamesTheNodesAndQuotesWords) {
  const auto text = print_manifest("slurm", unlike_nodes(), kOptions);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("#SBATCH --job-name=lab-1\n#SBATCH --nodes=2\n"
                               "#SBATCH --nodelist=gpu-a,b\n"));
  EXPECT_THAT(*text, HasSubstr("#SBATCH --time=01:00:00\n"));
  EXPECT_THAT(*text, HasSubstr("motley run -m 'a model.motley' -C lab.toml\n"));
  EXPECT_THAT(*text, Not(HasSubstr("gpus-per-node")));
}

TEST(Manifest, OfKubernetesHasAJobForEachNodeWithWhatItHas) {
  const auto text = print_manifest("kubernetes", unlike_nodes(), kOptions);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("name: lab-1-0\n"));
  EXPECT_THAT(*text, HasSubstr("kubernetes.io/hostname: \"gpu-a\"\n"));
  EXPECT_THAT(*text, HasSubstr("limits: {nvidia.com/gpu: 1}\n"));
  EXPECT_THAT(*text, HasSubstr("name: lab-1-1\n"));
  EXPECT_THAT(*text, HasSubstr("requests: {cpu: 4}\n"));
  EXPECT_THAT(*text, HasSubstr("{name: MASTER_ADDR, value: \"gpu-a.lab-1\"}"));
}

TEST(Manifest, OfSkyPilotIsForIdenticalNodesAndDescribesThemFirst) {
  const auto refused = print_manifest("skypilot", unlike_nodes(), kOptions);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "manifest.unlike");
  cluster::Cluster identical = unlike_nodes();
  identical.devices[1] = identical.devices[0];
  identical.devices[1].node = NodeId(1);
  const auto text = print_manifest("skypilot", identical, kOptions);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("num_nodes: 2\n"));
  EXPECT_THAT(*text, HasSubstr("accelerators: A10:1\n"));
  EXPECT_THAT(*text, HasSubstr("motley probe -o lab.toml\n  motley run"));
}

TEST(Manifest, RefusesWhatItCannotSay) {
  cluster::Cluster nowhere = unlike_nodes();
  nowhere.nodes[1].host = "";
  EXPECT_EQ(print_manifest("slurm", nowhere, kOptions).error().code, "manifest.host");
  ManifestOptions bare = kOptions;
  bare.image = "";
  EXPECT_EQ(print_manifest("kubernetes", unlike_nodes(), bare).error().code, "manifest.image");
  EXPECT_EQ(print_manifest("pbs", unlike_nodes(), kOptions).error().code, "manifest.scheduler");
}

}  // namespace
}  // namespace motley::report
