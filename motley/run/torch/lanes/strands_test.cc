// Sends and receives in a step: ranks are threads, with the communicator of a run.
#include "motley/program/strands.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "motley/program/program_text.h"
#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/run/torch/lanes/executor.h"
#include "motley/run/torch/lanes/step_progress.h"
#include "motley/testing/thread_ranks.h"

namespace motley::run {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NoSamples final : public data::Batch {
 public:
  std::int64_t samples() const override { return 0; }
  std::int64_t sample_bytes(std::size_t) const override { return 0; }
  void read(std::size_t, std::int64_t, std::byte*) const override {}
};

program::Program parse_devices(const std::vector<std::string>& devices,
                               const std::string& groups = "") {
  std::string text = "motley.program/1\nmodel \"m\" plan \"p\" global_batch 0\n" + groups;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    text += fmt::format("device \"d:{}\" samples 0 first 0\n", rank) + devices[rank];
  auto program = program::parse_program(text, "test");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

std::vector<float> elements(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

class Strands : public RendezvousTest, public ::testing::WithParamInterface<bool> {
 protected:
  using Body = std::function<void(int rank, Executor&, Communicator&)>;

  /// Makes an executor of each rank's program and runs `body` on all.
  void run(const program::Program& program, const Body& body,
           CommunicatorOptions options = {{}, Seconds(20)}) {
    std::filesystem::remove(dir_ + "/rendezvous");
    const auto ranks = static_cast<int>(program.devices.size());
    options.shared_memory = GetParam();
    for (const program::Group& group : program.groups) {
      GroupOptions& made = options.groups.emplace_back();
      for (const Rank member : group.members) made.members.push_back(member.value);
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      for (const program::Strand& strand :
           program::find_strands(program.devices[static_cast<std::size_t>(rank)]).all)
        if (strand.direction == program::Direction::kSend)
          options.pairs.push_back({static_cast<int>(rank), strand.peer.value, link_});
    on_ranks(ranks, [&](Rendezvous& rendezvous) {
      const c10::InferenceMode no_autograd;
      const int rank = rendezvous.rank();
      auto communicator = make_host_communicator(rendezvous, options);
      ASSERT_TRUE(communicator.has_value()) << communicator.error().message;
      ExecutorOptions wishes;
      wishes.timeline_steps = 1;
      for (const auto& device : program.devices) wishes.devices.push_back(device.device);
      auto executor = Executor::create(program.devices[static_cast<std::size_t>(rank)], wishes,
                                       communicator->get(), nullptr);
      ASSERT_TRUE(executor.has_value()) << executor.error().message;
      ASSERT_TRUE(rendezvous.barrier("start", Seconds(20)).has_value());
      body(rank, **executor, **communicator);
    });
  }

  EmulatedLink link_;
};
INSTANTIATE_TEST_SUITE_P(Host, Strands, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Gloo"; });

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Two micro-batches through three stages and back: stage 0 gives x and 2 x, stage 1 adds 1, stage
/// 2 multiplies by 3 and sends to stage 0, where "y" is the sum, 3 (x + 1) + 3 (2 x + 1).
std::vector<std::string> three_stages(const std::string& size) {
  const std::string type = "f32[" + size + "]";
  std::string temporaries;
  for (int id = 2; id < 6; ++id) temporaries += fmt::format("buffer %{}: temporary {}\n", id, type);
  return {
      "buffer %0: model_buffer " + type + " \"x\"\nbuffer %1: model_buffer " + type + " \"y\"\n" +
          temporaries + "buffer %6: temporary " + type +
          "\n"
          "compute ^0: %2 = aten::mul.Tensor(%0, 1.0)\n"
          "peer ^1: motley::send(%2, 1) wait ^0 free %2\n"
          "compute ^2: %3 = aten::mul.Tensor(%0, 2.0)\n"
          "peer ^3: motley::send(%3, 1) wait ^2 free %3\n"
          "peer ^4: %4 = motley::receive(2)\n"
          "peer ^5: %5 = motley::receive(2)\n"
          "compute ^6: %6 = aten::add.Tensor(%4, %5, 1) wait ^4 ^5 free %4 %5\n"
          "compute ^7: motley::assign([%1], [%6]) free %6\n",
      "buffer %0: constant " + type + " \"c\"\nbuffer %1: constant f32[] \"d\"\n" + temporaries +
          "peer ^0: %2 = motley::receive(0)\n"
          "compute ^1: %3 = aten::add.Scalar(%2, 1.0, 1) wait ^0 free %2\n"
          "peer ^2: motley::send(%3, 2) wait ^1 free %3\n"
          "peer ^3: %4 = motley::receive(0)\n"
          "compute ^4: %5 = aten::add.Scalar(%4, 1.0, 1) wait ^3 free %4\n"
          "peer ^5: motley::send(%5, 2) wait ^4 free %5\n",
      "buffer %0: constant " + type + " \"c\"\nbuffer %1: constant f32[] \"d\"\n" + temporaries +
          "peer ^0: %2 = motley::receive(1)\n"
          "compute ^1: %3 = aten::mul.Tensor(%2, 3.0) wait ^0 free %2\n"
          "peer ^2: motley::send(%3, 0) wait ^1 free %3\n"
          "peer ^3: %4 = motley::receive(1)\n"
          "compute ^4: %5 = aten::mul.Tensor(%4, 3.0) wait ^3 free %4\n"
          "peer ^5: motley::send(%5, 0) wait ^4 free %5\n"};
}

TEST_P(Strands, APipelineGivesWhatOneDeviceWould) {
  run(parse_devices(three_stages("1000")), [](int rank, Executor& executor, Communicator&) {
    for (int step = 0; step < 3; ++step) {
      const auto x = static_cast<float>(step + 1);
      if (rank == 0) executor.persistent().at("x").fill_(x);
      const auto result = executor.step(step, NoSamples());
      ASSERT_TRUE(result.has_value()) << result.error().message;
      if (rank == 0) {
        EXPECT_THAT(elements(executor.persistent().at("y")), Each(3 * (x + 1) + 3 * (2 * x + 1)));
      }
    }
    const trace::Trace trace = executor.timeline();
    const auto valid = trace::verify_trace(trace, "timeline");
    EXPECT_TRUE(valid.has_value()) << valid.error().message;
    EXPECT_EQ(trace.intervals.back().lane, Lane::kPeer);
    EXPECT_EQ(trace.intervals.back().bytes, 4000);
  });
}

// A received value goes to another rank, and into a sum, without the compute lane.
TEST_P(Strands, AndTheTransferLaneWaitForEachOther) {
  const std::string buffers =
      "buffer %0: model_buffer f32[4] \"x\"\nbuffer %1: model_buffer f32[4] \"y\"\n"
      "buffer %2: temporary f32[4]\nbuffer %3: temporary f32[4]\n";
  const std::string tail = "compute ^3: motley::assign([%1], [%2]) wait ^2 free %2\n";
  // 0 sends 1 to 1, which sends it to 2; 0 keeps a copy. Then all sum what they have: 3.
  run(parse_devices({buffers +
                         "compute ^0: %2 = aten::mul.Tensor(%0, 1.0)\n"
                         "peer ^1: motley::send(%2, 1) wait ^0\n"
                         "transfer ^2: motley::all_reduce(%2) group 0 wait ^0 ^1\n" +
                         tail,
                     buffers +
                         "peer ^0: %2 = motley::receive(0)\n"
                         "peer ^1: motley::send(%2, 2) wait ^0\n"
                         "transfer ^2: motley::all_reduce(%2) group 0 wait ^1\n" +
                         tail,
                     buffers +
                         "compute ^0: %3 = aten::mul.Tensor(%0, 1.0) free %3\n"
                         "peer ^1: %2 = motley::receive(1) wait ^0\n"
                         "transfer ^2: motley::all_reduce(%2) group 0 wait ^1\n" +
                         tail},
                    "group 0: 0 1 2\n"),
      [](int, Executor& executor, Communicator&) {
        executor.persistent().at("x").fill_(1);
        const auto result = executor.step(0, NoSamples());
        ASSERT_TRUE(result.has_value()) << result.error().message;
        EXPECT_THAT(elements(executor.persistent().at("y")), ElementsAre(3, 3, 3, 3));
      });
}

const trace::Interval& find(const trace::Trace& trace, std::int64_t instruction) {
  for (const trace::Interval& each : trace.intervals)
    if (each.instruction.value == instruction) return each;
  ADD_FAILURE() << "no ^" << instruction;
  return trace.intervals.front();
}

// Messages of 40 kB over links of 1 MB/s and 60 ms take 0.1 s each. Compute takes no time beside
// that, and each direction carries one message at a time:
//   0 to 1: 0..0.1, 0.1..0.2;  1 to 2: 0.1..0.2, 0.2..0.3;  2 to 0: 0.2..0.3, 0.3..0.4
// One after another they would take 0.6 s.
TEST_P(Strands, SlowLinksTakeWhatIsPredictedAndNoneBlocksCompute) {
  link_ = {.rate = 1e6, .latency_s = 0.06};
  run(parse_devices(three_stages("10000")), [](int rank, Executor& executor, Communicator&) {
    if (rank == 0) executor.persistent().at("x").fill_(1);
    const auto begin = std::chrono::steady_clock::now();
    const auto result = executor.step(0, NoSamples());
    ASSERT_TRUE(result.has_value()) << result.error().message;
    const double spent = since(begin);
    const double wanted = rank == 1 ? 0.3 : 0.4;
    EXPECT_GE(spent, wanted - 0.02);
    EXPECT_LT(spent, wanted + 0.08);
    if (rank != 0) return;
    EXPECT_NEAR(result->wait_s, 0.4, 0.08);
    // The second product is made while the first message is in flight.
    const trace::Trace trace = executor.timeline();
    EXPECT_LT(find(trace, 2).end, find(trace, 1).end);
    EXPECT_GE(find(trace, 3).begin, find(trace, 1).end);
  });
}

TEST_P(Strands, ALostPeerEndsAllAndIsNamed) {
  const auto program = parse_devices(three_stages("1000"));
  std::mutex mutex;
  std::vector<std::string> errors(3);
  run(program, [&](int rank, Executor& executor, Communicator& communicator) {
    // Rank 2 ends silently as a killed process: its memory and sockets go.
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return communicator.close();
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto result = executor.step(0, NoSamples());
    EXPECT_LT(since(begin), 10);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, "run.peer-lost");
    EXPECT_EQ(executor.step(1, NoSamples()).error().message, "an earlier step failed");
    const std::lock_guard lock(mutex);
    errors[static_cast<std::size_t>(rank)] = result.error().message;
  });
  // Rank 1 may notice first that rank 0, which noticed before it, has closed.
  EXPECT_THAT(errors[0], ::testing::AnyOf(HasSubstr("d:0: ^4 motley::receive from d:2: "),
                                          HasSubstr("motley::send to d:1: ")));
  EXPECT_THAT(errors[1],
              ::testing::AnyOf(HasSubstr("d:1: ^2 motley::send to d:2: "), HasSubstr("d:0: ")));
}

TEST_P(Strands, AMessageThatDoesNotComeIsATimeoutThatNamesThePeer) {
  const auto program = parse_devices(three_stages("1000"));
  run(program,
      [&](int rank, Executor& executor, Communicator&) {
        // The last stage never begins; until then the others have what they need from each other.
        if (rank == 2) return std::this_thread::sleep_for(std::chrono::seconds(3));
        const auto begin = std::chrono::steady_clock::now();
        const auto result = executor.step(0, NoSamples());
        EXPECT_LT(since(begin), 10);
        ASSERT_FALSE(result.has_value());
        if (rank == 0) {
          EXPECT_EQ(result.error().code, "run.timeout");
          EXPECT_THAT(
              result.error().message,
              HasSubstr("d:0: ^4 motley::receive from d:2: rank 0: receive from rank 2: 4000 "
                        "bytes not done after 1 s, rank 2 has not come"));
        }
      },
      {{}, Seconds(1)});
}

// The compute lane fails while a strand waits for a peer that does not come.
TEST_P(Strands, AFaultOfComputeWakesThem) {
  const auto program =
      parse_devices({"buffer %0: model_buffer f32[4] \"x\"\nbuffer %1: temporary f32[4]\n"
                     "buffer %2: temporary f32[3]\nbuffer %3: temporary f32[4]\n"
                     "peer ^0: %1 = motley::receive(1)\n"
                     "compute ^1: %2 = aten::view(%0, [3])\n"
                     "compute ^2: %3 = aten::add.Tensor(%1, %0, 1) wait ^0\n",
                     "buffer %0: model_buffer f32[4] \"x\"\npeer ^0: motley::send(%0, 0)\n"});
  run(program, [&](int rank, Executor& executor, Communicator&) {
    if (rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(1));
    const auto begin = std::chrono::steady_clock::now();
    const auto result = executor.step(0, NoSamples());
    EXPECT_LT(since(begin), 0.9);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, "run.operator");
    EXPECT_THAT(result.error().message, HasSubstr("d:0: ^1 aten::view: "));
  });
}

TEST(StrandsAlone, WithoutPeersAReceiveGivesZeros) {
  const auto program = parse_devices(three_stages("4"));
  auto executor = Executor::create(program.devices[0], {}, nullptr, nullptr);
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  const c10::InferenceMode no_autograd;
  (*executor)->persistent().at("y").fill_(7);
  ASSERT_TRUE((*executor)->step(0, NoSamples()).has_value());
  EXPECT_THAT(elements((*executor)->persistent().at("y")), ElementsAre(0, 0, 0, 0));
}

TEST(StrandsAlone, TheStatusNamesTheFirstThatIsUnderWay) {
  StatusRecord status{};
  StepProgress progress(5, 100, &status);
  const auto shown = [&] { return status.peer_instruction.load(); };
  progress.set_under_way(3, 7);
  EXPECT_EQ(shown(), 7);
  progress.set_under_way(2, 4);
  EXPECT_EQ(shown(), 4);
  progress.set_under_way(4, 9);
  progress.set_under_way(2, -1);
  EXPECT_EQ(shown(), 7);
  progress.set_under_way(3, -1);
  progress.set_under_way(4, -1);
  EXPECT_EQ(shown(), -1);
}

TEST(StrandsAlone, TheFaultIsTheOneThatNoOtherCaused) {
  StepProgress progress(4, 100, nullptr);
  progress.fail(2, StepProgress::stopped());
  progress.fail(3, {ErrorKind::kRuntime, "run.timeout", "rank 1 has not come"});
  progress.fail(1, {ErrorKind::kRuntime, "run.peer-lost", "rank 2 has ended"});
  EXPECT_EQ(progress.fault().message, "rank 1 has not come");
  EXPECT_FALSE(progress.wait_for_all({{2, 100}, {3, 0}}));
}

}  // namespace
}  // namespace motley::run
