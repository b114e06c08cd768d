#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/synth/stages/gradient_exchange.h"
#include "motley/testing/bench_stage.h"

namespace motley::synth {

/// Lowers exchanges of given gradients; each position is a motley::stop_request on all devices.
class ExchangeBench {
 public:
  explicit ExchangeBench(const Bench& bench) : bench_(bench) {
    bench_.options.recipe.optimizer.lr = 0.5;
    for (const BenchRegion& region : bench_.regions)
      for (const std::size_t rank : region.ranks)
        while (builders_.size() <= rank)
          builders_.emplace_back(program::DeviceProgram{fmt::format("a:{}", builders_.size())});
    step_.times = bench_.times;
    for (const BenchRegion& region : bench_.regions) {
      opened_.emplace_back(bench_, region, builders_);
      StageGraph& stage = step_.stages.emplace_back();
      stage.graph = opened_.back().graph;
      stage.ranks = region.ranks;
      stage.rate = region.rate;
      for (const BenchGradient& each : region.gradients)
        for (std::size_t member = 0; member < region.ranks.size(); ++member)
          last_ = std::max(last_, each.ready_on(member));
    }
  }

  /// Returns the arrangement's error, or the program of all devices.
  Result<program::Program> lower() {
    GradientExchange exchange(step_, target());
    add_shares(exchange);
    MOTLEY_RETURN_IF_ERROR(exchange.arrange());
    for (BenchStage& region : opened_)
      for (RankWriter& writer : region.writers) writer.begin();
    for (std::int64_t position = 0; position <= last_; ++position) {
      for (ProgramBuilder& builder : builders_)
        builder.make("motley::stop_request", {}, DType::kF32, {1}, "");
      exchange.begin(position);
    }
    exchange.finish();
    update(exchange);
    exchange.give_back();
    shared_ = exchange.shared();
    program::Program program;
    for (ProgramBuilder& builder : builders_) program.devices.push_back(builder.finish());
    program.groups = groups_;
    return program;
  }

  const std::set<std::string>& shared() const { return shared_; }

  static std::string gradient_name(const std::string& name, std::size_t region,
                                   std::size_t member) {
    return fmt::format("{} of {}.{}", name, region, member);
  }

 private:
  GradientExchange::Target target() {
    return {.bucket_bytes = Bytes(bench_.bucket_bytes),
            .rank = [&](std::size_t s, std::size_t m) -> RankStep& { return opened_[s].ranks[m]; },
            .update = [&](std::size_t s, std::size_t m) -> Update& {
              return opened_[s].writers[m].update();
            },
            .group = [&](const std::vector<std::size_t>& ranks) { return group_of(ranks); },
            .gradient = [&](const GradientExchange::Share& share) { return gradient_of(share); },
            .busy_until =
                [&](std::size_t rank) {
                  const auto busy = bench_.busy_until.find(rank);
                  return busy == bench_.busy_until.end() ? std::int64_t{0} : busy->second;
                },
            .owners = bench_.owners,
            .nodes = bench_.nodes,
            .updates_at_once = !bench_.options.recipe.needs_factor()};
  }

  GroupId group_of(const std::vector<std::size_t>& ranks) {
    program::Group group;
    for (const std::size_t rank : ranks)
      group.members.emplace_back(static_cast<std::int64_t>(rank));
    const auto known = std::find(groups_.begin(), groups_.end(), group) - groups_.begin();
    if (known == static_cast<std::ptrdiff_t>(groups_.size())) groups_.push_back(group);
    return GroupId(known);
  }

  /// Makes a constant in place of the device's part of the gradient.
  BufferId gradient_of(const GradientExchange::Share& share) {
    RankStep& rank = opened_[share.stage].ranks[share.member];
    const auto parameter = ValueId(share.output - 1);  // after the loss
    const graph::Value& value = rank.graph().value(parameter);
    return rank.builder().add_buffer({program::BufferKind::kConstant, value.dtype,
                                      rank.local_shape(parameter, share.form),
                                      gradient_name(value.name, share.stage, share.member)});
  }

  void add_shares(GradientExchange& exchange) const {
    for (std::size_t s = 0; s < bench_.regions.size(); ++s)
      for (std::size_t member = 0; member < bench_.regions[s].ranks.size(); ++member)
        for (std::size_t i = 0; i < bench_.regions[s].gradients.size(); ++i) {
          const BenchGradient& each = bench_.regions[s].gradients[i];
          exchange.add({s, member, bench_.regions[s].ranks[member],
                        static_cast<std::int64_t>(i) + 1, each.form, each.is_term,
                        each.ready_on(member), each.bucket});
        }
  }

  /// Sums squares of the counted gradients on each device, then adds the updates that use the norm.
  void update(GradientExchange& exchange) {
    std::vector<const Update*> first(builders_.size(), nullptr);
    std::vector<BufferId> squares;
    for (std::size_t rank = 0; rank < builders_.size(); ++rank) {
      const std::vector<BufferId>& counted = exchange.counted(rank);
      squares.push_back(builders_[rank].make("motley::square_sums", {{buffer_list(counted)}},
                                             DType::kF64,
                                             {static_cast<std::int64_t>(counted.size())}, "norm"));
    }
    for (std::size_t s = 0; s < opened_.size(); ++s)
      for (std::size_t m = 0; m < opened_[s].writers.size(); ++m) {
        const std::size_t rank = bench_.regions[s].ranks[m];
        Update& own = opened_[s].writers[m].update();
        if (!bench_.options.recipe.needs_factor())
          own.finish();
        else if (first[rank] == nullptr)
          own.finish(squares[rank]);
        else
          own.finish(*first[rank]);
        if (first[rank] == nullptr) first[rank] = &own;
      }
  }

  Bench bench_;
  StagedStep step_;
  std::deque<ProgramBuilder> builders_;  // by rank
  std::deque<BenchStage> opened_;        // by region
  std::vector<program::Group> groups_;
  std::int64_t last_ = 0;
  std::set<std::string> shared_;
};

}  // namespace motley::synth
