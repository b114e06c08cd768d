#include "motley/run/launch/environment.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "motley/base/text.h"

namespace motley::run {
namespace {

using Variables = std::map<std::string, std::string>;

RankPlace place_of(const Variables& variables) {
  const auto place = find_rank_place(variables);
  EXPECT_TRUE(place.has_value()) << (place ? "" : place.error().message);
  EXPECT_TRUE(place->has_value());
  return **place;
}

std::string error_of(const Variables& variables) {
  const auto place = find_rank_place(variables);
  EXPECT_FALSE(place.has_value());
  EXPECT_EQ(place.error().kind, ErrorKind::kUsage);
  return place.error().message;
}

TEST(RankPlace, NoLauncher) {
  const auto place = find_rank_place({{"PATH", "/bin"}, {"RANK", "3"}});
  ASSERT_TRUE(place.has_value());
  EXPECT_FALSE(place->has_value());
}

TEST(RankPlace, TorchrunWithItsStore) {
  const RankPlace place = place_of({{"RANK", "3"},
                                    {"WORLD_SIZE", "4"},
                                    {"LOCAL_RANK", "1"},
                                    {"MASTER_ADDR", "10.0.0.1"},
                                    {"MASTER_PORT", "29400"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                    {"TORCHELASTIC_RUN_ID", "job7"},
                                    {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(place, (RankPlace{.rank = 3,
                              .size = 4,
                              .local_rank = 1,
                              .master_address = "10.0.0.1",
                              .master_port = 29400,
                              .agent_store = true,
                              .attempt = "job7/2",
                              .interface = "",
                              .source = "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and torchrun's "
                                        "store"}));
}

TEST(RankPlace, KeysBeginWithTheSecret) {
  const RankPlace place = place_of({{"RANK", "0"},
                                    {"WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "10.0.0.1"},
                                    {"MASTER_PORT", "29400"},
                                    {"TORCHELASTIC_RUN_ID", "job7"},
                                    {"TORCHELASTIC_RESTART_COUNT", "2"},
                                    {"MOTLEY_SECRET", "only us"}});
  EXPECT_EQ(place.attempt, "job7/2/only us");
}

TEST(RankPlace, SlurmStep) {
  const RankPlace place = place_of({{"SLURM_PROCID", "5"},
                                    {"SLURM_STEP_ID", "0"},
                                    {"SLURM_STEP_NUM_TASKS", "6"},
                                    {"SLURM_NTASKS", "9"},
                                    {"SLURM_LOCALID", "1"},
                                    {"SLURM_JOB_NODELIST", "gpu[01-08]"},
                                    {"SLURM_STEP_NODELIST", "gpu[03-05]"},
                                    {"SLURM_JOB_ID", "41234"}});
  // Port: 20000 + 41234 mod 20000 = 21234.
  EXPECT_EQ(place, (RankPlace{.rank = 5,
                              .size = 6,
                              .local_rank = 1,
                              .master_address = "gpu03",
                              .master_port = 21234,
                              .agent_store = false,
                              .attempt = "slurm-41234.0/",
                              .interface = "",
                              .source = "SLURM_PROCID, SLURM_STEP_NUM_TASKS; rank 0 on gpu03 port "
                                        "21234"}));
}

TEST(RankPlace, SlurmBatchScriptIsNoStep) {
  const auto place =
      find_rank_place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "a"}});
  ASSERT_TRUE(place.has_value());
  EXPECT_FALSE(place->has_value());
}

TEST(RankPlace, OpenMpiOnOneHost) {
  const RankPlace place = place_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                    {"GLOO_SOCKET_IFNAME", "eth1"}});
  EXPECT_EQ(place.master_address, "127.0.0.1");
  EXPECT_EQ(place.master_port, 29500);
  EXPECT_EQ(place.interface, "eth1");
}

TEST(RankPlace, MpiOnSeveralHostsNeedsAnAddress) {
  EXPECT_EQ(error_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}),
            "PMI_RANK and PMI_SIZE say rank 1 of 4, but MPI gives no address of rank 0; set "
            "MASTER_ADDR to the first host (mpirun -x MASTER_ADDR)");
  EXPECT_EQ(place_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MASTER_ADDR", "n1"}}).master_address,
            "n1");
}

TEST(RankPlace, BadNumbers) {
  Variables variables{
      {"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(error_of(variables), "RANK: found 'x', wanted a number from 0 on");
  variables["RANK"] = "2";
  EXPECT_EQ(error_of(variables),
            "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: found rank 2 of 2 ranks, wanted a rank "
            "below the size");
}

TEST(NodeList, Expands) {
  const auto names = expand_node_list("gpu[01-03,7],login,rack[1-2]n[8-9]x");
  ASSERT_TRUE(names.has_value());
  EXPECT_EQ(*names, (std::vector<std::string>{"gpu01", "gpu02", "gpu03", "gpu7", "login",
                                              "rack1n8x", "rack1n9x", "rack2n8x", "rack2n9x"}));
}

TEST(NodeList, Refuses) {
  EXPECT_EQ(expand_node_list("a[1-").error().message, "node list: 'a[1-' lacks a ']'");
  EXPECT_EQ(expand_node_list("").error().message, "node list: found an empty name");
  EXPECT_EQ(expand_node_list("a[3-1]").error().message,
            "node list: found '[3-1]', wanted ranges like [01-03,7]");
  EXPECT_EQ(expand_node_list("a[1-9][1-99999]").error().message,
            "node list: more than 100000 names");
}

RC_GTEST_PROP(NodeList, PlainNamesPassThrough, ()) {
  const auto numbers =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000)));
  std::vector<std::string> names;
  for (const int number : numbers) names.push_back("n" + std::to_string(number));
  const auto expanded = expand_node_list(join(names, ","));
  RC_ASSERT(expanded.has_value());
  RC_ASSERT(*expanded == names);
}

}  // namespace
}  // namespace motley::run
