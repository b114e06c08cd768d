#include "motley/run/torch/lanes/executor.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "motley/base/file.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/run/torch/lanes/profile_run.h"
#include "motley/run/torch/memory/allocator.h"
#include "motley/run/torch/operators/distributions.h"
#include "motley/run/torch/operators/dropout.h"
#include "motley/testing/places.h"

namespace motley::run {
namespace {

using data::DatasetBatch;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class Rows final : public data::Dataset {
 public:
  explicit Rows(std::vector<std::vector<std::vector<float>>> inputs) : inputs_(std::move(inputs)) {}
  std::int64_t samples() const override { return static_cast<std::int64_t>(inputs_[0].size()); }
  std::int64_t sample_bytes(std::size_t input) const override {
    return static_cast<std::int64_t>(inputs_[input][0].size() * sizeof(float));
  }
  void read(std::size_t input, std::int64_t sample, std::byte* out) const override {
    const auto& row = inputs_[input][static_cast<std::size_t>(sample)];
    std::memcpy(out, row.data(), row.size() * sizeof(float));
  }

 private:
  std::vector<std::vector<std::vector<float>>> inputs_;
};

/// Ranks as threads of this process.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}
  /// Sums the tensors of all ranks; false once closed.
  bool sum(at::Tensor& tensor) {
    EXPECT_FALSE(tensor.is_complex());
    std::unique_lock lock(mutex_);
    const int round = round_;
    total_ = present_ == 0 ? tensor.clone() : total_.add(tensor);
    if (++present_ == size_) {
      result_ = total_;
      present_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round || closed_; });
      if (round_ == round) return false;
    }
    tensor.copy_(result_);
    return true;
  }
  /// Returns each rank's tensor, by rank; empty once closed.
  std::vector<at::Tensor> collect(int rank, const at::Tensor& tensor) {
    EXPECT_FALSE(tensor.is_complex());
    std::unique_lock lock(mutex_);
    const int round = round_;
    brought_.resize(static_cast<std::size_t>(size_));
    brought_[static_cast<std::size_t>(rank)] = tensor.clone();
    if (++present_ == size_) {
      collected_ = std::exchange(brought_, {});
      present_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round || closed_; });
      if (round_ == round) return {};
    }
    return collected_;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  int size_, present_ = 0, round_ = 0;
  bool closed_ = false;
  at::Tensor total_, result_;
  std::vector<at::Tensor> brought_, collected_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

class MeetingCommunicator final : public Communicator {
 public:
  MeetingCommunicator(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  Result<void> all_reduce(const ExchangeCall&, at::Tensor& tensor) override {
    if (meeting_.sum(tensor)) return {};
    return runtime_error("run.closed", "the group is closed");
  }
  Result<void> all_gather(const ExchangeCall&, const Counts&, const at::Tensor& part,
                          at::Tensor& all) override {
    const auto parts = meeting_.collect(rank_, part);
    if (parts.empty()) return runtime_error("run.closed", "the group is closed");
    all.copy_(at::cat(parts));
    return {};
  }
  Result<void> reduce_scatter(const ExchangeCall&, const Counts& counts, const at::Tensor& all,
                              at::Tensor& part) override {
    const auto addends = meeting_.collect(rank_, all);
    if (addends.empty()) return runtime_error("run.closed", "the group is closed");
    at::Tensor sum = addends[0].clone();
    for (std::size_t i = 1; i < addends.size(); ++i) sum.add_(addends[i]);
    part.copy_(sum.split_with_sizes(counts)[static_cast<std::size_t>(rank_)]);
    return {};
  }
  Result<void> all_to_all(const ExchangeCall&, const Splits& splits, const at::Tensor& in,
                          at::Tensor& out) override {
    const auto all = meeting_.collect(rank_, in);
    const auto sends = meeting_.collect(rank_, at::tensor(splits.sends));
    if (all.empty() || sends.empty()) return runtime_error("run.closed", "the group is closed");
    std::vector<at::Tensor> parts;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto* counts = sends[i].const_data_ptr<std::int64_t>();
      parts.push_back(
          all[i].split_with_sizes({counts, splits.sends.size()})[static_cast<std::size_t>(rank_)]);
    }
    out.copy_(at::cat(parts));
    return {};
  }
  Result<std::int64_t> send(int, const at::Tensor&) override { return 0; }
  Result<std::int64_t> receive(int, at::Tensor&) override { return 0; }
  Result<void> broadcast(at::Tensor&) override { return {}; }
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  void close() override { meeting_.close(); }

 private:
  Meeting& meeting_;
  int rank_;
};

/// Least squares y = x w over 3 samples in all: loss = sum (x w - y)^2 / 3, one step of sgd.
std::string device_text(int rank, int samples, int first) {
  return fmt::format(R"(device "a:{0}" samples {1} first {2}
buffer %0: parameter f32[2, 1] "w"
buffer %1: state f32[2, 1] "w/momentum"
buffer %2: input f32[{1}, 2] "x"
buffer %3: input f32[{1}, 1] "y"
buffer %4: temporary f32[{1}, 1]
buffer %5: temporary f32[{1}, 1]
buffer %6: temporary f32[{1}, 1]
buffer %7: temporary f32[]
buffer %8: temporary f32[]
buffer %9: temporary f32[{1}, 1]
buffer %10: temporary f32[{1}, 1]
buffer %11: temporary f32[2, {1}] view %2
buffer %12: temporary f32[2, 1]
buffer %13: temporary f32[1]
buffer %14: temporary f32[4]
buffer %15: temporary f32[2, 1] view %14
buffer %16: temporary f32[] view %14
buffer %17: temporary f32[1] view %14
compute ^0: %2 = motley::load(0) "load x"
compute ^1: %3 = motley::load(1) "load y"
compute ^2: %4 = aten::mm(%2, %0) "fc"
compute ^3: %5 = aten::sub.Tensor(%4, %3, 1) free %4
compute ^4: %6 = aten::mul.Tensor(%5, %5)
compute ^5: %7 = aten::sum(%6, none) free %6
compute ^6: %8 = aten::div.Tensor(%7, number(3)) free %7
compute ^7: %9 = aten::mul.Tensor(%5, 2.0) free %5
compute ^8: %10 = aten::div.Tensor(%9, number(3)) free %9
compute ^9: %11 = aten::t(%2)
compute ^10: %12 = aten::mm(%11, %10) "fc" free %11 %10
compute ^11: %13 = motley::stop_request()
compute ^12: %14 = motley::pack([%12, %8, %13]) "bucket 0" free %12 %8 %13
transfer ^13: motley::all_reduce(%14) group 0 wait ^12 "bucket 0"
compute ^14: %15, %16, %17 = motley::unpack(%14) wait ^13 "bucket 0"
compute ^15: motley::update("sgd", [%0], [%15], [%1], [], none, none, none, 0.01, 0.0, [0.9, 0.0]) "bucket 0"
compute ^16: motley::report(%16, %17, none, []) free %14 %15 %16 %17
)",
                     rank, samples, first);
}

program::Program parse(const std::string& devices, const std::string& group = "0 1",
                       int global_batch = 3) {
  const std::string groups = group.empty() ? "" : "group 0: " + group + "\n";
  const std::string head =
      fmt::format("motley.program/1\nmodel \"m\" plan \"p\" global_batch {}\n", global_batch);
  auto program = program::parse_program(head + groups + devices, "test");
  if (!program) ADD_FAILURE() << program.error().message;
  return std::move(program).value();
}

Rows samples() { return Rows({{{1, 2}, {3, 4}, {5, 6}}, {{1}, {2}, {3}}}); }

void set_weights(Executor& executor) {
  const c10::InferenceMode no_autograd;
  executor.persistent().at("w").copy_(at::tensor({0.5f, -0.5f}).view({2, 1}));
}

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

// w = (0.5, -0.5): errors -1.5, -2.5, -3.5; loss = (2.25 + 6.25 + 12.25) / 3 = 6.916667.
// Gradient = 2/3 x' e = 2/3 (-1.5 - 7.5 - 17.5, -3 - 10 - 21) = (-17.666667, -22.666667).
// w - 0.01 gradient = (0.6766667, -0.2733333). The momentum buffer is the gradient.
void expect_first_step(Executor& executor, const StepResult& result) {
  EXPECT_NEAR(result.loss, 6.9166667, 1e-6);
  EXPECT_THAT(values(executor.persistent().at("w")),
              ElementsAre(FloatNear(0.6766667f, 1e-6f), FloatNear(-0.2733333f, 1e-6f)));
  EXPECT_THAT(values(executor.persistent().at("w/momentum")),
              ElementsAre(FloatNear(-17.666667f, 1e-5f), FloatNear(-22.666667f, 1e-5f)));
}

TEST(Executor, OneRank) {
  const program::Program program = parse(device_text(0, 3, 0), "0");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  set_weights(**executor);
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {0, 1, 2}));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result->stop_requested);
  expect_first_step(**executor, *result);
}

TEST(Executor, TwoRanksOfUnequalSharesEqualOne) {
  const program::Program program = parse(device_text(0, 2, 0) + device_text(1, 1, 2));
  Meeting meeting(2);
  std::vector<std::vector<std::int64_t>> shares = {{0, 1}, {2}};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      MeetingCommunicator communicator(meeting, rank);
      auto executor = Executor::create(program.devices[at], {}, &communicator, nullptr);
      ASSERT_TRUE(executor) << executor.error().message;
      set_weights(**executor);
      auto result = (*executor)->step(0, DatasetBatch(samples(), shares[at]));
      ASSERT_TRUE(result) << result.error().message;
      expect_first_step(**executor, *result);
      // Rank 1 asks; both learn of it in the same step.
      if (rank == 1) (*executor)->request_stop();
      result = (*executor)->step(1, DatasetBatch(samples(), shares[at]));
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_TRUE(result->stop_requested);
      EXPECT_FALSE(result->change_requested);
      // Rank 0 requests another program, rank 1 still a stop: both learn of both.
      if (rank == 0) (*executor)->request_change();
      result = (*executor)->step(2, DatasetBatch(samples(), shares[at]));
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_TRUE(result->stop_requested);
      EXPECT_TRUE(result->change_requested);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// One exchange, enabled by the pack and awaited by the tail's unpack: nothing computes between ^12,
// after which it may start, and the tail of three instructions.
TEST(Executor, SaysWhatAStepConsistsOf) {
  const program::Program program = parse(device_text(0, 3, 0), "0");
  ExecutorOptions options;
  options.measures_parts = true;
  auto executor = Executor::create(program.devices[0], options, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  set_weights(**executor);
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {0, 1, 2}));
  ASSERT_TRUE(result && result->parts);
  const StepParts& parts = *result->parts;
  ASSERT_EQ(parts.ready.size(), 1u);
  EXPECT_GT(parts.ready[0], 0);
  EXPECT_EQ(parts.ready[0], parts.end);
  ASSERT_EQ(parts.update.size(), 1u);
  EXPECT_GT(parts.update[0], 0);
  EXPECT_LE(parts.end + parts.update[0] + result->wait_s, result->step_s * 1.0001);
  ASSERT_EQ(parts.exchange.size(), 1u);
  EXPECT_GT(parts.exchange[0], 0);
  EXPECT_EQ(parts.blocking, 0);
}

/// x as rows of a data set; w where the program has it.
at::Tensor count_up(std::int64_t rows) { return at::arange(rows * 5, at::kFloat).view({rows, 5}); }

std::vector<std::vector<float>> rows_of(const at::Tensor& tensor) {
  std::vector<std::vector<float>> rows;
  for (const at::Tensor& row : tensor.unbind()) rows.push_back(values(row));
  return rows;
}

// tests/golden/program/uneven.txt: samples 3, 1 and 1 become columns 3, 2 and 0; the weights are
// summed and gathered by column.
TEST(Executor, UnevenPartsArriveWhereTheyBelong) {
  const std::string path = testing::source_path("tests/golden/program/uneven.txt");
  const auto program = program::parse_program(read_file(path).value(), path);
  ASSERT_TRUE(program) << program.error().message;
  const at::Tensor x = count_up(5), w = count_up(2).mul(-1);
  const Rows data({rows_of(x)});
  const std::vector<std::vector<std::int64_t>> shares = {{0, 1, 2}, {3}, {4}};
  Meeting meeting(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const c10::InferenceMode no_autograd;
      const auto own = static_cast<std::size_t>(rank);
      MeetingCommunicator communicator(meeting, rank);
      auto executor = Executor::create(program->devices[own], {}, &communicator, nullptr);
      ASSERT_TRUE(executor) << executor.error().message;
      auto tensors = (*executor)->persistent();
      tensors.at("w").copy_(w);
      for (int step = 0; step < 2; ++step) {
        const auto result = (*executor)->step(step, DatasetBatch(data, shares[own]));
        ASSERT_TRUE(result) << result.error().message;
      }
      const std::string number = std::to_string(rank);
      EXPECT_TRUE(
          at::equal(tensors.at("columns." + number), x.split_with_sizes({3, 2, 0}, 1)[own]));
      EXPECT_TRUE(
          at::equal(tensors.at("summed." + number), w.split_with_sizes({3, 2, 0}, 1)[own].mul(3)));
      EXPECT_TRUE(at::equal(tensors.at("gathered"), w));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

/// Complex numbers x: gathered, doubled by a sum, doubled again and scattered, exchanged.
std::string complex_text(int rank, int own, const char* sends) {
  return fmt::format(R"(device "a:{0}" samples {1} first {0}
buffer %0: constant f32[{1}, 2] "x"
buffer %1: temporary c64[{1}] view %0
buffer %2: temporary c64[{1}]
buffer %3: temporary c64[3]
buffer %4: temporary c64[{1}]
buffer %5: temporary c64[{1}]
buffer %6: temporary f32[{1}, 2] view %5
buffer %7: model_buffer f32[{1}, 2] "out.{0}"
compute ^0: %1 = aten::view_as_complex(%0)
compute ^1: %2 = motley::cut(%1, 1, [{1}], 1)
transfer ^2: %3 = motley::all_gather(%2, [1, 2]) group 0 wait ^1
transfer ^3: motley::all_reduce(%3) group 0
transfer ^4: %4 = motley::reduce_scatter(%3, [1, 2]) group 0
transfer ^5: %5 = motley::all_to_all(%4, [{2}], [{2}]) group 0
compute ^6: %6 = aten::view_as_real(%5) wait ^5
compute ^7: motley::assign([%7], [%6]) free %6 %5
)",
                     rank, own, sends);
}

// With x = a on rank 0 and b, c on rank 1 the scattered sums are 4a and 4b, 4c; rank 0 sends its
// own to rank 1 and receives 4b.
TEST(Executor, ComplexNumbersAreExchangedAsPairs) {
  const program::Program program = parse(complex_text(0, 1, "0, 1") + complex_text(1, 2, "1, 1"));
  const std::vector<std::vector<float>> wanted = {{12, 16}, {4, 8, 20, 24}};
  Meeting meeting(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const c10::InferenceMode no_autograd;
      const auto own = static_cast<std::size_t>(rank);
      MeetingCommunicator communicator(meeting, rank);
      auto executor = Executor::create(program.devices[own], {}, &communicator, nullptr);
      ASSERT_TRUE(executor) << executor.error().message;
      auto tensors = (*executor)->persistent();
      const at::Tensor x = at::arange(1, 7, at::kFloat).view({3, 2});  // 1+2i, 3+4i, 5+6i
      tensors.at("x").copy_(x.narrow(0, rank, 1 + rank));
      const auto result = (*executor)->step(0, DatasetBatch(samples(), {}));
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(values(tensors.at(fmt::format("out.{}", rank))), wanted[own]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Executor, WithoutPeersAnExchangeGivesWhatIsHere) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: constant f32[2] "c"
buffer %1: temporary f32[2]
buffer %2: model_buffer f32[2] "all"
transfer ^0: %1 = motley::all_gather(%0, [2]) group 0
compute ^1: motley::assign([%2], [%1]) wait ^0 free %1
)",
                                         "0");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  const c10::InferenceMode no_autograd;
  (*executor)->persistent().at("c").copy_(at::tensor({1.0f, 2.0f}));
  ASSERT_TRUE((*executor)->step(0, DatasetBatch(samples(), {})));
  EXPECT_THAT(values((*executor)->persistent().at("all")), ElementsAre(1, 2));
}

// On a transposed tensor with other strides; empty parts at both ends.
TEST(Executor, CutJoinAndPartAreNarrowAndCat) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: constant f32[2, 3, 6] "x"
buffer %1: temporary f32[2, 6, 3] view %0
buffer %2: temporary f32[36]
buffer %3: temporary f32[2, 6, 3]
buffer %4: temporary f32[2, 2, 3]
buffer %5: temporary f32[2, 0, 3]
buffer %6: model_buffer f32[36] "flat"
buffer %7: model_buffer f32[2, 6, 3] "joined"
buffer %8: model_buffer f32[2, 2, 3] "part"
compute ^0: %1 = aten::transpose.int(%0, 1, 2)
compute ^1: %2 = motley::cut(%1, 2, [0, 1, 5, 0], 3)
compute ^2: %3 = motley::join(%2, 2, [0, 1, 5, 0], 3)
compute ^3: %4 = motley::part(%1, 2, 3, 3)
compute ^4: %5 = motley::part(%1, 2, 6, 3) free %5
compute ^5: motley::assign([%6], [%2]) free %2
compute ^6: motley::assign([%7], [%3]) free %3
compute ^7: motley::assign([%8], [%4]) free %4 %1
)",
                                         "");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  const c10::InferenceMode no_autograd;
  auto tensors = (*executor)->persistent();
  tensors.at("x").copy_(at::arange(36, at::kFloat).view({2, 3, 6}));
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {}));
  ASSERT_TRUE(result) << result.error().message;
  const at::Tensor x = tensors.at("x").transpose(1, 2);
  const at::Tensor flat =
      at::cat({x.narrow(1, 0, 1).reshape({-1}), x.narrow(1, 1, 5).reshape({-1})});
  EXPECT_TRUE(at::equal(tensors.at("flat"), flat));
  EXPECT_TRUE(at::equal(tensors.at("joined"), x));
  EXPECT_TRUE(at::equal(tensors.at("part"), x.narrow(1, 3, 2)));
}

TEST(Executor, ALostPeerIsAnErrorWithPlace) {
  const program::Program program = parse(device_text(0, 2, 0) + device_text(1, 1, 2));
  Meeting meeting(2);
  MeetingCommunicator communicator(meeting, 0);
  StatusRecord status{};
  auto executor = Executor::create(program.devices[0], {}, &communicator, &status);
  ASSERT_TRUE(executor);
  std::thread peer([&] {
    while (status.transfer_instruction.load() != 13) std::this_thread::yield();
    meeting.close();
  });
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {0, 1}));
  peer.join();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, "run.closed");
  EXPECT_EQ(result.error().message, "a:0: ^13 motley::all_reduce (bucket 0): the group is closed");
  EXPECT_EQ(status.compute_instruction.load(), 14);
  EXPECT_EQ((*executor)->step(1, DatasetBatch(samples(), {0, 1})).error().message,
            "an earlier step failed");
}

// x takes 40 kB, y and the values made of them 20 kB each; everything else is small.
TEST(Executor, PeakMemoryIsTheLivenessPrediction) {
  const program::Program program = parse(device_text(0, 5000, 0), "0", 5000);
  CountingAllocator& allocator = CountingAllocator::install();
  const std::int64_t before = allocator.in_use();
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor);
  StepResult last;
  for (int step = 0; step < 2; ++step) {
    auto result =
        (*executor)->step(step, DatasetBatch(samples(), std::vector<std::int64_t>(5000, 1)));
    ASSERT_TRUE(result) << result.error().message;
    last = *result;
  }
  const double predicted =
      static_cast<double>(program::find_memory_peak(program.devices[0]).total.value);
  EXPECT_NEAR(static_cast<double>(last.peak_bytes - before), predicted, 0.01 * predicted);
}

TEST(Executor, TimelineCoversTheStep) {
  const program::Program program = parse(device_text(0, 3, 0), "0");
  ExecutorOptions options;
  options.timeline_steps = 2;
  auto executor = Executor::create(program.devices[0], options, nullptr, nullptr);
  ASSERT_TRUE(executor);
  for (int step = 0; step < 5; ++step)
    ASSERT_TRUE((*executor)->step(step, DatasetBatch(samples(), {0, 1, 2})));
  const trace::Trace trace = (*executor)->timeline();
  EXPECT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[0].step, 3);
  EXPECT_EQ(trace.steps[1].step, 4);
  EXPECT_EQ(trace.intervals.size(), 2u * 17);
  EXPECT_EQ(trace.names[0][2], "aten::mm fc");
  const auto valid = trace::verify_trace(trace, "timeline");
  EXPECT_TRUE(valid) << valid.error().message;
  EXPECT_EQ(trace.intervals.back().bytes, 16);
}

// Its clock is read only now and then, and estimates between readings may be too large.
TEST(Executor, TimelineOfAnEmulatedDeviceIsInOrder) {
  const program::Program program = parse(device_text(0, 3, 0), "0");
  ExecutorOptions options;
  options.speed = 0.05;
  options.timeline_steps = 200;
  auto executor = Executor::create(program.devices[0], options, nullptr, nullptr);
  ASSERT_TRUE(executor);
  // Arrives late, without work, and too soon for another reading of the clock.
  class LateRows final : public data::Dataset {
   public:
    std::int64_t samples() const override { return rows_.samples(); }
    std::int64_t sample_bytes(std::size_t input) const override {
      return rows_.sample_bytes(input);
    }
    void read(std::size_t input, std::int64_t sample, std::byte* out) const override {
      if (input == 1 && sample == 0) std::this_thread::sleep_for(std::chrono::microseconds(40));
      rows_.read(input, sample, out);
    }

   private:
    Rows rows_ = motley::run::samples();
  };
  const LateRows rows;
  for (int step = 0; step < 200; ++step)
    ASSERT_TRUE((*executor)->step(step, DatasetBatch(rows, {0, 1, 2})));
  const auto valid = trace::verify_trace((*executor)->timeline(), "timeline");
  EXPECT_TRUE(valid) << valid.error().message;
}

TEST(Executor, NamesAllMissingOperators) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[2] "w"
buffer %1: temporary f32[2]
buffer %2: temporary f32[2]
compute ^0: %1 = aten::frobnicate.Tensor(%0)
compute ^1: %2 = aten::blend(%1, %0) free %1 %2
)",
                                         "");
  const auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().message,
            "a:0: 2 operators that this engine does not have: aten::blend, "
            "aten::frobnicate.Tensor; run with the PyTorch version that exported the model");
}

TEST(Executor, NamesAnArgumentThatDoesNotFit) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[2] "w"
buffer %1: temporary f32[2]
compute ^0: %1 = aten::transpose.int(%0, 0, "one") "fc" free %1
)",
                                         "");
  const auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().message,
            "a:0: ^0 aten::transpose.int (fc): found \"one\", wanted int for argument 'dim1' of "
            "aten::transpose.int");
}

TEST(Executor, AFaultNamesTheInstruction) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[2, 3] "w"
buffer %1: temporary f32[2, 3]
compute ^0: %1 = aten::mm(%0, %0) "h.0.attn" free %1
)",
                                         "");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor);
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {}));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, "run.operator");
  // PyTorch 2.15 puts "mm: " between the two.
  EXPECT_THAT(result.error().message, HasSubstr("a:0: ^0 aten::mm (h.0.attn): "));
  EXPECT_THAT(result.error().message, HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
}

TEST(Executor, RefusesMemoryBeyondTheLimit) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[1024, 1024] "w"
buffer %1: temporary f32[1024, 1024]
compute ^0: %1 = aten::relu(%0) "act" free %1
)",
                                         "");
  CountingAllocator& allocator = CountingAllocator::install();
  const std::int64_t before = allocator.in_use();
  ExecutorOptions options;
  options.memory = Bytes(before + (6 << 20));  // the parameter fits, its copy does not
  auto executor = Executor::create(program.devices[0], options, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {}));
  allocator.set_limit(std::nullopt);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, "run.out-of-memory");
  EXPECT_THAT(result.error().message,
              HasSubstr("a:0: ^0 aten::relu (act): out of memory: wanted 4 MiB, "));
  EXPECT_THAT(result.error().message, HasSubstr(" in use, limit "));
}

TEST(Executor, ConvertsArgumentsAsTheSchemaWants) {
  // A wrapped number keeps the integer type; an int is repeated for int[2]; a list is returned;
  // view runs as reshape on a transposed tensor; optional tensors in a list.
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[1, 1, 4, 4] "w"
buffer %1: temporary f32[1, 1, 2, 2]
buffer %2: temporary f32[1, 1, 4, 4] view %0
buffer %3: temporary f32[16]
buffer %4: temporary f32[8] view %3
buffer %5: temporary f32[8] view %3
buffer %6: temporary i64[3]
buffer %7: temporary i64[3]
buffer %8: temporary f32[3]
buffer %9: model_buffer f32[3] "picked"
buffer %10: model_buffer f32[1, 1, 2, 2] "pooled"
compute ^0: %1 = aten::avg_pool2d(%0, 2, [], 0, false, true, none)
compute ^1: %2 = aten::transpose.int(%0, 2, 3)
compute ^2: %3 = aten::view(%2, [16])
compute ^3: %4, %5 = aten::split.Tensor(%3, 8, 0) list
compute ^4: %6 = aten::arange(3, dtype(i64), layout(strided), device(local), false)
compute ^5: %7 = aten::mul.Tensor(%6, 2)
compute ^6: %8 = aten::index.Tensor(%5, [%7])
compute ^7: motley::assign([%9], [%8])
compute ^8: motley::assign([%10], [%1]) free %1 %2 %3 %4 %5 %6 %7 %8
)",
                                         "");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  float* w = (*executor)->persistent().at("w").mutable_data_ptr<float>();
  for (int i = 0; i < 16; ++i) w[i] = static_cast<float>(i);
  const auto result = (*executor)->step(0, DatasetBatch(samples(), {}));
  ASSERT_TRUE(result) << result.error().message;
  // Transposed rows: 0 4 8 12 | 1 5 9 13 | 2 6 10 14 | 3 7 11 15; of the last 8, at 0, 2, 4.
  EXPECT_THAT(values((*executor)->persistent().at("picked")), ElementsAre(2, 10, 3));
  EXPECT_THAT(values((*executor)->persistent().at("pooled")), ElementsAre(2.5, 4.5, 10.5, 12.5));
}

std::string update_text(const std::string& call) {
  return R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[2] "w"
buffer %1: constant f32[2] "g"
buffer %2: state f32[2] "s1"
buffer %3: state f32[2] "s2"
compute ^0: motley::update()" +
         call + ")\n";
}

/// Returns w = (1, 1) after two steps with a constant gradient (1, -2).
std::vector<float> two_updates(const std::string& call) {
  const program::Program program = parse(update_text(call), "");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  EXPECT_TRUE(executor) << (executor ? "" : executor.error().message);
  auto tensors = (*executor)->persistent();
  const c10::InferenceMode no_autograd;
  tensors.at("w").fill_(1);
  tensors.at("g").copy_(at::tensor({1.0f, -2.0f}));
  for (int step = 0; step < 2; ++step) {
    const auto result = (*executor)->step(step, DatasetBatch(samples(), {}));
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
  }
  return values(tensors.at("w"));
}

TEST(Update, Sgd) {
  // No momentum: w - 2 * 0.1 * g.
  EXPECT_THAT(two_updates(R"("sgd", [%0], [%1], [], [], none, none, none, 0.1, 0.0, [0.0, 0.0])"),
              ElementsAre(FloatNear(0.8f, 1e-6f), FloatNear(1.4f, 1e-6f)));
  // Momentum 0.9: buffers g, 1.9 g; w - 0.1 * 2.9 g.
  EXPECT_THAT(two_updates(R"("sgd", [%0], [%1], [%2], [], none, none, none, 0.1, 0.0, [0.9, 0.0])"),
              ElementsAre(FloatNear(0.71f, 1e-6f), FloatNear(1.58f, 1e-6f)));
  // Nesterov: steps g + 0.9 g = 1.9 g and g + 0.9 * 1.9 g = 2.71 g; together 4.61 g.
  EXPECT_THAT(two_updates(R"("sgd", [%0], [%1], [%2], [], none, none, none, 0.1, 0.0, [0.9, 1.0])"),
              ElementsAre(FloatNear(0.539f, 1e-6f), FloatNear(1.922f, 1e-6f)));
  // Weight decay 0.5 is added to the gradient: 1.5 and -1.5, then 1 + 0.425 and -2 + 0.575.
  EXPECT_THAT(two_updates(R"("sgd", [%0], [%1], [], [], none, none, none, 0.1, 0.5, [0.0, 0.0])"),
              ElementsAre(FloatNear(0.7075f, 1e-6f), FloatNear(1.2925f, 1e-6f)));
}

TEST(Update, Adam) {
  // With a constant gradient the corrected moments are g and g^2: steps of lr * sign(g).
  EXPECT_THAT(
      two_updates(
          R"("adam", [%0], [%1], [%2], [%3], none, none, none, 0.1, 0.0, [0.9, 0.999, 1e-08])"),
      ElementsAre(FloatNear(0.8f, 1e-6f), FloatNear(1.2f, 1e-6f)));
  // AdamW first shrinks by 1 - lr * weight_decay = 0.95:
  // (0.95 - 0.1) * 0.95 - 0.1 = 0.7075; (0.95 + 0.1) * 0.95 + 0.1 = 1.0975.
  EXPECT_THAT(
      two_updates(
          R"("adamw", [%0], [%1], [%2], [%3], none, none, none, 0.1, 0.5, [0.9, 0.999, 1e-08])"),
      ElementsAre(FloatNear(0.7075f, 1e-6f), FloatNear(1.0975f, 1e-6f)));
}

TEST(Update, OthersThatLookAtAnElementAlone) {
  // Lion: the gradient's sign each time, after shrinking by 1 - 0.1 * 0.5: (0.95 - 0.1) * 0.95 -
  // 0.1; (0.95 + 0.1) * 0.95 + 0.1.
  EXPECT_THAT(
      two_updates(R"("lion", [%0], [%1], [%2], [], none, none, none, 0.1, 0.5, [0.9, 0.99])"),
      ElementsAre(FloatNear(0.7075f, 1e-6f), FloatNear(1.0975f, 1e-6f)));
  // Adagrad: sums g^2, 2 g^2: steps 0.1 (1 + 1 / sqrt(2)) = 0.1707107 against the sign.
  EXPECT_THAT(two_updates(R"("adagrad", [%0], [%1], [%2], [], none, none, none, 0.1, 0.0, [0.0])"),
              ElementsAre(FloatNear(0.8292893f, 1e-6f), FloatNear(1.1707107f, 1e-6f)));
  // RMSprop, alpha 0.75: means g^2 / 4 and 7/16 g^2: steps 2 + 4 / sqrt(7) = 3.5118579 times 0.1.
  EXPECT_THAT(
      two_updates(
          R"("rmsprop", [%0], [%1], [%2], [], none, none, none, 0.1, 0.0, [0.75, 0.0, 0.0])"),
      ElementsAre(FloatNear(0.6488142f, 1e-6f), FloatNear(1.3511858f, 1e-6f)));
}

TEST(Update, ClipsEachElement) {
  // The gradient (1, -2) becomes (1, -1.5): 1 - 0.2 and 1 + 0.3.
  EXPECT_THAT(two_updates(R"("sgd", [%0], [%1], [], [], none, none, 1.5, 0.1, 0.0, [0.0, 0.0])"),
              ElementsAre(FloatNear(0.8f, 1e-6f), FloatNear(1.3f, 1e-6f)));
}

/// The weights and the scale's state after one step with the gradient (3, 4) from w = (1, 1), with
/// its norm limited to `most`.
struct Scaled {
  std::vector<float> weights, scaling;
  std::optional<double> norm;
};
Scaled scaled_update(const std::string& most, std::vector<float> gradient, float scale,
                     std::int64_t step = 7) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[2] "w"
buffer %1: constant f32[2] "g"
buffer %2: state f32[3] "scaling"
buffer %3: temporary f64[1]
buffer %4: temporary f64[1]
buffer %5: temporary f64[1]
buffer %6: temporary f32[]
compute ^0: %6 = motley::tangent()
compute ^1: %3 = motley::square_sums([%1])
compute ^2: %4, %5 = motley::gradient_factor(%2, [%3], )" +
                                             most + R"(, 2.0, 0.5, 3, 1024.0) free %3
compute ^3: motley::update("sgd", [%0], [%1], [], [], %4, %2, none, 1.0, 0.0, [0.0, 0.0]) free %4
compute ^4: motley::report(%6, none, %5, []) free %5 %6
)",
                                         "");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  EXPECT_TRUE(executor) << (executor ? "" : executor.error().message);
  auto tensors = (*executor)->persistent();
  const c10::InferenceMode no_autograd;
  tensors.at("w").fill_(1);
  tensors.at("g").copy_(at::tensor(gradient));
  tensors.at("scaling").copy_(at::tensor({scale, 2.0f, 5.0f}));
  const auto result = (*executor)->step(step, DatasetBatch(samples(), {}));
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return {values(tensors.at("w")), values(tensors.at("scaling")), result->gradient_norm};
}

TEST(GradientFactor, TakesTheScaleBackAndLimitsTheNorm) {
  // Divided by the scale 2 the gradient is (1.5, 2), of norm 2.5; limited to 1.25 it is halved: 1 -
  // 0.75 and 1 - 1. The third good step in a row doubles the scale.
  const Scaled done = scaled_update("1.25", {3, 4}, 2);
  EXPECT_THAT(done.weights, ElementsAre(FloatNear(0.25f, 1e-5f), FloatNear(0.0f, 1e-5f)));
  EXPECT_THAT(done.scaling, ElementsAre(4, 0, 6));
  EXPECT_NEAR(*done.norm, 2.5, 1e-6);
}

TEST(GradientFactor, LeavesASmallNormAsItIs) {
  const Scaled done = scaled_update("100.0", {3, 4}, 1);
  EXPECT_THAT(done.weights, ElementsAre(FloatNear(-2.0f, 1e-5f), FloatNear(-3.0f, 1e-5f)));
}

TEST(GradientFactor, AGradientThatIsNotFiniteChangesNothingButTheScale) {
  const Scaled done = scaled_update("none", {3, HUGE_VALF}, 2);
  EXPECT_THAT(done.weights, ElementsAre(1, 1));
  EXPECT_THAT(done.scaling, ElementsAre(1, 0, 5));
  EXPECT_FALSE(std::isfinite(*done.norm));
}

TEST(GradientFactor, BeginsTheScaleWhereNoTangentHas) {
  EXPECT_THAT(scaled_update("none", {3, 4}, 0, 0).scaling, ElementsAre(1024, 1, 1));
}

std::string update_fault(const std::string& instruction) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: parameter f32[2] "w"
buffer %1: constant f32[2] "g"
buffer %2: state f32[2] "s1"
buffer %3: temporary f32[2]
compute ^0: )" + instruction + "\n",
                                         "");
  const auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  return executor ? "" : executor.error().message;
}

TEST(Update, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(
      update_fault(
          R"(motley::update("lino", [%0], [%1], [%2], [], none, none, none, 0.1, 0.0, [0.9, 0.999, 1e-08]))"),
      "a:0: ^0 motley::update: found optimizer 'lino', wanted sgd, adam, adamw, adagrad, rmsprop "
      "or lion");
  EXPECT_EQ(
      update_fault(
          R"(motley::update("lion", [%0], [%1], [], [], none, none, none, 0.1, 0.0, [0.9, 0.99]))"),
      "a:0: ^0 motley::update: found 1 gradients, 0 and 0 states for 1 parameters of lion, wanted "
      "1, 1, 0");
  EXPECT_EQ(
      update_fault(
          R"(%3 = motley::direction("muon", [%0], [%1], [%2], [], none, none, none, 0.1, 0.0, [0.9]) free %3)"),
      "a:0: ^0 motley::direction: found 1 constants of muon, wanted 2");
  EXPECT_EQ(
      update_fault(
          R"(motley::apply("lamb", [%0], [%1], [1, 2], none, none, none, none, 0.1, 0.0, [0.9, 0.99, 1e-08]))"),
      "a:0: ^0 motley::apply: found 1 directions, 2 extents, 3 constants, 0 tensors of squares for "
      "1 parameters of lamb, wanted 1, 2, 3, 2");
}

TEST(LabelCount, CountsOrWeighs) {
  const program::Program program = parse(R"(device "a:0" samples 3 first 0
buffer %0: constant i64[4] "labels"
buffer %1: constant f32[3] "weights"
buffer %2: temporary f32[]
buffer %3: temporary f32[]
buffer %4: model_buffer f32[] "count"
buffer %5: model_buffer f32[] "weight"
compute ^0: %2 = motley::label_count(%0, none, -100)
compute ^1: %3 = motley::label_count(%0, %1, -100)
compute ^2: motley::assign([%4], [%2]) free %2
compute ^3: motley::assign([%5], [%3]) free %3
)",
                                         "");
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor) << executor.error().message;
  auto tensors = (*executor)->persistent();
  {
    const c10::InferenceMode no_autograd;
    tensors.at("labels").copy_(
        at::tensor({std::int64_t{2}, std::int64_t{-100}, std::int64_t{0}, std::int64_t{2}}));
    tensors.at("weights").copy_(at::tensor({0.5f, 10.0f, 2.0f}));
  }
  ASSERT_TRUE((*executor)->step(0, DatasetBatch(samples(), {})));
  EXPECT_THAT(values(tensors.at("count")), ElementsAre(3));
  EXPECT_THAT(values(tensors.at("weight")), ElementsAre(4.5));  // 2 + 0.5 + 2
}

TEST(Profile, MeasuresEveryKey) {
  const program::Program program = parse(device_text(0, 3, 0), "0");
  ProfileRunOptions options;
  options.max_steps = 7;
  const auto times = profile_program(program.devices[0], options);
  ASSERT_TRUE(times) << times.error().message;
  double total = 0;
  std::int64_t samples = 0;
  for (const OpTime& time : *times) {
    EXPECT_GE(time.median.value, 0.0);
    total += time.median.value;
    samples += time.samples;
  }
  EXPECT_EQ(samples, 16 * 7);  // compute instructions times steps
  EXPECT_GT(total, 0.0);
}

// A pause itself is a wait; what it adds is not negative, and here less than the pause.
TEST(Profile, MeasuresWholeStepsAndPauses) {
  const auto program = parse(device_text(0, 3, 0), "0");
  const auto times =
      time_whole_steps(program.devices[0], 0.5, {.max_steps = 40, .budget = Seconds(5)});
  ASSERT_TRUE(times.has_value()) << times.error().message;
  EXPECT_EQ(times->step.key, fmt::format("step {}", program.devices[0].samples));
  EXPECT_EQ(times->pause.key, fmt::format("pause {}", program.devices[0].samples));
  EXPECT_GT(times->step.median, Seconds(0));
  EXPECT_EQ(times->step.samples, 15);
  EXPECT_EQ(times->pause.samples, 15);
  EXPECT_LT(times->pause.median, Seconds(1e-3));
}

// ---- memory of random numbers

/// Returns the peak of memory that `make` adds, in bytes.
template <typename Make>
std::int64_t peak_of(const Make& make) {
  CountingAllocator& allocator = CountingAllocator::install();
  const std::int64_t before = allocator.in_use();
  allocator.reset_peak();
  make();
  return allocator.peak() - before;
}

TEST(Dropout, NeedsNoMemoryBesideItsResults) {
  constexpr std::int64_t kElements = 1 << 18;
  const ElementPlace place{1, 1, 0, kElements};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const bool is_contiguous : {true, false}) {
      at::Tensor x = at::arange(kElements).view({512, 512}).to(dtype);
      if (!is_contiguous) x = x.t();
      const at::Tensor wanted = dropout(x.contiguous(), 0.25, place, {1, 2, 3}).first;
      at::Tensor out;
      const std::int64_t peak = peak_of([&] { out = dropout(x, 0.25, place, {1, 2, 3}).first; });
      // PyTorch transposes by small blocks.
      const std::int64_t block = is_contiguous ? 0 : 32 << 10;
      EXPECT_LE(peak, kElements * (1 + static_cast<std::int64_t>(x.element_size())) + block)
          << dtype;
      EXPECT_TRUE(out.equal(wanted) && out.is_contiguous());
    }
}

TEST(Draw, NeedsNoMemoryBesideItsResult) {
  constexpr std::int64_t kElements = 1 << 18;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    EXPECT_EQ(peak_of([&] {
                draw({Distribution::kNormal, {kElements}, dtype, {1, 1, 0, kElements}}, {1, 2, 3},
                     at::kCPU);
              }),
              kElements * static_cast<std::int64_t>(c10::elementSize(dtype)));
}

}  // namespace
}  // namespace motley::run
