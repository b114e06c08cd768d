#include "motley/synth/state/mirrors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "motley/program/program_text.h"
#include "motley/testing/drawn_forms.h"

namespace motley::synth {
namespace {

using program::Buffer;
using program::Program;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Program kept_by(const std::vector<std::string>& devices) {
  std::string text = "motley.program/1\nmodel \"m\" plan \"p\" global_batch 0\n";
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    text += fmt::format("device \"d{}\" samples 0 first 0\n", rank) + devices[rank];
  auto program = program::parse_program(text, "kept");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

Mirrors choose_well(const Program& program, const MirrorOptions& options) {
  auto mirrors = choose_mirrors(program, options);
  EXPECT_TRUE(mirrors) << mirrors.error().message;
  return mirrors ? std::move(*mirrors) : Mirrors();
}

std::vector<std::int32_t> keepers_of(const Mirrors& mirrors, int holder) {
  std::vector<std::int32_t> keepers;
  for (const Mirror& mirror : mirrors.mirrors)
    if (mirror.holders[0] == Rank(holder))
      for (const Rank keeper : mirror.keepers) keepers.push_back(keeper.value);
  return keepers;
}

/// Four devices with whole parameters and two states in four parts: 20 of 80 numbers each.
Program states_in_parts() {
  std::vector<std::string> devices;
  for (int rank = 0; rank < 4; ++rank)
    devices.push_back(
        fmt::format("buffer %0: parameter f32[8, 10] \"w\"\n"
                    "buffer %1: state f32[2, 10] \"w/exp_avg\" part 1 {0} 8 10\n"
                    "buffer %2: state f32[2, 10] \"w/exp_avg_sq\" part 1 {0} 8 10\n",
                    2 * rank));
  return kept_by(devices);
}

// Two states of 20 f32 are 160 bytes, the gradient 80. All parts are of one size, so they go in
// order of holders: 0's to 2, the first on the other host; 1's to 3, which has none yet; 2's to 0;
// 3's to 1.
TEST(Mirrors, AreOnTheOtherHost) {
  const Mirrors mirrors =
      choose_well(states_in_parts(), {.survive = 1, .hosts = {"x", "x", "y", "y"}});
  EXPECT_THAT(keepers_of(mirrors, 0), ElementsAre(2));
  EXPECT_THAT(keepers_of(mirrors, 1), ElementsAre(3));
  EXPECT_THAT(keepers_of(mirrors, 2), ElementsAre(0));
  EXPECT_THAT(keepers_of(mirrors, 3), ElementsAre(1));
  EXPECT_THAT(mirrors.kept, Each(Bytes(160)));
  EXPECT_THAT(mirrors.sent, Each(Bytes(80)));
  EXPECT_THAT(mirrors.received, Each(Bytes(80)));
  EXPECT_EQ(mirrors.survives_devices, 1);
  EXPECT_EQ(mirrors.survives_hosts, 1);
  ASSERT_EQ(mirrors.mirrors.size(), 4U);
  const Mirror& second = mirrors.mirrors[1];
  ASSERT_EQ(second.rows.size(), 2U);
  EXPECT_EQ(second.rows[0].tensor, "w/exp_avg");
  EXPECT_EQ(second.rows[0].box, (program::Box{20, {{20, 1}}}));
}

// First copies as above, 160 bytes on each. Then no host is without a copy, so the least load
// decides: 0's second copy goes to 1 (tied with 3), 1's to 0 (before 2), 2's to 3, 3's to 2: 320 on
// each.
TEST(Mirrors, OfTwoOneIsOnTheSameHost) {
  const Mirrors mirrors =
      choose_well(states_in_parts(), {.survive = 2, .hosts = {"x", "x", "y", "y"}});
  EXPECT_THAT(mirrors.kept, Each(Bytes(320)));
  EXPECT_THAT(mirrors.sent, Each(Bytes(160)));
  EXPECT_EQ(mirrors.survives_devices, 2);
  EXPECT_EQ(mirrors.survives_hosts, 1);
}

TEST(Mirrors, WhatEnoughHaveNeedsNone) {
  const std::string whole = "buffer %0: parameter f32[8] \"w\"\nbuffer %1: state f32[8] \"w/m\"\n";
  EXPECT_THAT(choose_well(kept_by({whole, whole}), {.survive = 1}).mirrors, IsEmpty());
  // Two of three copies exist.
  const Mirrors three = choose_well(kept_by({whole, whole, ""}), {.survive = 2});
  ASSERT_EQ(three.mirrors.size(), 1U);
  EXPECT_THAT(three.mirrors[0].holders, ElementsAre(Rank(0), Rank(1)));
  EXPECT_THAT(three.mirrors[0].keepers, ElementsAre(Rank(2)));
  EXPECT_EQ(three.mirrors[0].kept, Bytes(64));
  EXPECT_EQ(three.mirrors[0].per_step, Bytes(32));
}

// bf16 parameters with a master and a mean in f32, as in a stage: 10 * (2 + 4 + 4) bytes. A step
// sends gradients of 10 bf16. A running mean has no gradient and is sent itself; a constant is in
// the file.
TEST(Mirrors, GetGradientsAndWhatHasNone) {
  const Mirrors mirrors =
      choose_well(kept_by({"buffer %0: parameter bf16[10] \"w\" part 1 0 10 1\n"
                           "buffer %1: state f32[10] \"w/master\" part 1 0 10 1\n"
                           "buffer %2: state f32[10] \"w/momentum\" part 1 0 10 1\n"
                           "buffer %3: model_buffer f32[3] \"mean\"\n"
                           "buffer %4: constant f32[9] \"c\"\n",
                           ""}),
                  {.survive = 1});
  ASSERT_EQ(mirrors.mirrors.size(), 1U);
  EXPECT_EQ(mirrors.mirrors[0].kept, Bytes(100 + 12));
  EXPECT_EQ(mirrors.mirrors[0].per_step, Bytes(20 + 12));
}

TEST(Mirrors, SayHowFarTheyReach) {
  // Only d1 has room for parts of 160 bytes.
  const Mirrors mirrors = choose_well(
      states_in_parts(), {.survive = 1, .room = {Bytes(159), Bytes(320), Bytes(0), Bytes(0)}});
  EXPECT_THAT(keepers_of(mirrors, 0), ElementsAre(1));
  EXPECT_THAT(keepers_of(mirrors, 2), ElementsAre(1));
  EXPECT_EQ(mirrors.mirrors.size(), 2U);
  EXPECT_EQ(mirrors.survives_devices, 0);
  const auto wrong = choose_mirrors(states_in_parts(), {.hosts = {"x"}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "found hosts of 1 and room of 0 devices, wanted 4 or none");
}

RC_GTEST_PROP(Mirrors, OutliveWhatTheySay, ()) {
  testing::DrawnForms drawn(*rc::gen::arbitrary<std::uint64_t>());
  const Program program = drawn.draw();
  MirrorOptions options{.survive = static_cast<int>(drawn.number(0, 3))};
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    options.hosts.push_back(std::to_string(drawn.number(0, 2)));
  const auto mirrors = choose_mirrors(program, options);
  if (!mirrors) RC_FAIL(mirrors.error().message);
  std::map<std::pair<std::string, std::int64_t>, std::set<std::size_t>> copies;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    for (const Buffer& buffer : program.devices[rank].buffers)
      for (const std::int64_t index : testing::indices_of(buffer))
        copies[{buffer.name, index}].insert(rank);
  std::vector<std::int64_t> kept(program.devices.size());
  for (const Mirror& mirror : mirrors->mirrors)
    for (const Rank keeper : mirror.keepers) {
      kept[keeper.index()] += mirror.kept.value;
      for (const MirroredRows& rows : mirror.rows) {
        std::vector<std::int64_t> at = {rows.box.begin};
        for (const program::Box::Side& side : rows.box.sides) {
          std::vector<std::int64_t> next;
          for (const std::int64_t each : at)
            for (std::int64_t i = 0; i < side.extent; ++i) next.push_back(each + i * side.stride);
          at = std::move(next);
        }
        RC_ASSERT(static_cast<std::int64_t>(at.size()) == rows.elements);
        // No device mirrors what it holds.
        for (const std::int64_t index : at) {
          const bool is_new = copies[{rows.tensor, index}].insert(keeper.index()).second;
          RC_ASSERT(is_new);
        }
      }
    }
  for (std::size_t rank = 0; rank < kept.size(); ++rank)
    RC_ASSERT(kept[rank] == mirrors->kept[rank].value);
  const int wanted = std::min<int>(options.survive, static_cast<int>(program.devices.size()) - 1);
  for (const auto& [element, ranks] : copies) {
    RC_ASSERT(static_cast<int>(ranks.size()) > wanted);
    std::set<std::string> hosts;
    for (const std::size_t rank : ranks) hosts.insert(options.hosts[rank]);
    RC_ASSERT(static_cast<int>(hosts.size()) > mirrors->survives_hosts);
  }
  if (!copies.empty()) RC_ASSERT(mirrors->survives_devices == wanted);
}

}  // namespace
}  // namespace motley::synth
