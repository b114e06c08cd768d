// Runs moves: ranks are threads, with the communicator of a run.
#include "motley/run/torch/lanes/moved_tensors.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "motley/program/effects.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"
#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/run/torch/lanes/executor.h"
#include "motley/run/torch/operators/tensors.h"
#include "motley/synth/state/move.h"
#include "motley/testing/drawn_forms.h"
#include "motley/testing/thread_ranks.h"

namespace motley::run {
namespace {

using program::Buffer;
using program::DeviceProgram;
using program::Program;

class NothingLoaded final : public data::Batch {
 public:
  std::int64_t samples() const override { return 0; }
  std::int64_t sample_bytes(std::size_t) const override { return 0; }
  void read(std::size_t, std::int64_t, std::byte*) const override {}
};

Program parse_forms(const std::vector<std::string>& devices) {
  std::string text = "motley.program/1\nmodel \"m\" plan \"p\" global_batch 0\n";
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    text += fmt::format("device \"d{}\" samples 0 first 0\n", rank) + devices[rank];
  auto program = program::parse_program(text, "test");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

/// Returns a tensor whose elements' bits identify their place in the whole and the tensor's name.
at::Tensor filled(const Buffer& buffer) {
  const std::vector<std::int64_t> indices = testing::indices_of(buffer);
  const auto salt = static_cast<std::int64_t>(buffer.name.back()) * 1000;
  at::Tensor tensor = at::zeros({buffer.elements()}, at::kLong);
  for (std::size_t i = 0; i < indices.size(); ++i)
    tensor.mutable_data_ptr<std::int64_t>()[i] = salt + indices[i] + 1;
  return tensor.to(scalar_type(buffer.dtype)).view(buffer.shape);
}

const DeviceProgram* find_device(const Program& program, const std::string& name) {
  for (const DeviceProgram& device : program.devices)
    if (device.device == name) return &device;
  return nullptr;
}

class RunMove : public RendezvousTest, public ::testing::WithParamInterface<bool> {
 protected:
  /// Moves, and compares each rank's result with the new layout.
  void run(const Program& from, const Program& to, const synth::MoveOptions& moving) {
    const auto move = synth::lower_move(from, to, moving);
    ASSERT_TRUE(move.has_value()) << move.error().message;
    CommunicatorOptions options{{}, Seconds(20)};
    options.shared_memory = GetParam();
    for (std::size_t rank = 0; rank < moving.devices.size(); ++rank)
      for (const program::Strand& strand : program::find_strands(move->program.devices[rank]).all)
        if (strand.direction == program::Direction::kSend)
          options.pairs.push_back({static_cast<int>(rank), strand.peer.value, {}});
    std::filesystem::remove(dir_ + "/rendezvous");
    on_ranks(static_cast<int>(moving.devices.size()), [&](Rendezvous& rendezvous) {
      const c10::InferenceMode no_autograd;
      auto communicator = make_host_communicator(rendezvous, options);
      ASSERT_TRUE(communicator.has_value()) << communicator.error().message;
      const auto rank = static_cast<std::size_t>(rendezvous.rank());
      const std::string& name = moving.devices[rank];
      TensorsByName before;
      if (const DeviceProgram* device = find_device(from, name);
          device != nullptr && !moving.lost.contains(name))
        for (const Buffer& buffer : device->buffers) before.emplace(buffer.name, filled(buffer));
      ExecutorOptions wishes;
      wishes.shared = old_tensors(before);
      const DeviceProgram& own = move->program.devices[rank];
      auto executor = Executor::create(own, wishes, communicator->get(), nullptr);
      ASSERT_TRUE(executor.has_value()) << executor.error().message;
      ASSERT_TRUE(rendezvous.barrier("start", Seconds(20)).has_value());
      const auto result = (*executor)->step(0, NothingLoaded());
      ASSERT_TRUE(result.has_value()) << result.error().message;
      if (const DeviceProgram* device = find_device(to, name); device != nullptr)
        expect_new(*device, new_tensors(*device, own, (*executor)->persistent()), before,
                   move->ranks[rank]);
      ASSERT_TRUE(rendezvous.barrier("over", Seconds(20)).has_value());
    });
  }

  static void expect_new(const DeviceProgram& device, const TensorsByName& tensors,
                         const TensorsByName& before, const synth::RankMove& move) {
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return std::count(names.begin(), names.end(), name) > 0;
    };
    for (const Buffer& buffer : device.buffers) {
      if (!tensors.contains(buffer.name)) {
        EXPECT_EQ(buffer.kind, program::BufferKind::kConstant) << buffer.name;
        continue;
      }
      const at::Tensor& found = tensors.at(buffer.name);
      const at::Tensor wanted =
          has(move.fresh, buffer.name) ? at::zeros_like(found) : filled(buffer);
      EXPECT_EQ(found.sizes(), wanted.sizes()) << buffer.name;
      EXPECT_TRUE(found.equal(wanted)) << buffer.name << " on " << device.device;
      if (has(move.kept, buffer.name)) {
        EXPECT_EQ(found.const_data_ptr(), before.at(buffer.name).const_data_ptr()) << buffer.name;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Host, RunMove, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Gloo"; });

// On one device all is copied or stays: columns 1 and 2 of three, the last three rows of five.
TEST_P(RunMove, OneDeviceCopiesWithinItself) {
  run(parse_forms({"buffer %0: parameter bf16[5, 3] \"w\"\n"
                   "buffer %1: state f32[5, 3] \"w/master\"\n"
                   "buffer %2: model_buffer i64[] \"count\"\n"
                   "buffer %3: constant f32[4] \"c\"\n"
                   "buffer %4: constant f32[2] \"e\" part 1 0 4 1\n"}),
      parse_forms({"buffer %0: parameter bf16[5, 2] \"w\" part 5 1 3 1\n"
                   "buffer %1: state f32[3, 3] \"w/master\" part 1 2 5 3\n"
                   "buffer %2: model_buffer i64[] \"count\"\n"
                   "buffer %3: constant f32[4] \"c\"\n"
                   "buffer %4: constant f32[2] \"e\" part 1 2 4 1\n"}),
      {.devices = {"d0"}});
}

// Rows become columns, for all number sizes; the joining device receives what is whole.
TEST_P(RunMove, PartsChangeTheirCutAndOneComes) {
  std::vector<std::string> from(2), to(3);
  for (const int rank : {0, 1})
    from[static_cast<std::size_t>(rank)] = fmt::format(
        "buffer %0: parameter f32[300, 70] \"w\" part 1 {0} 600 70\n"
        "buffer %1: state f64[300, 70] \"w/x\" part 1 {0} 600 70\n"
        "buffer %2: parameter bf16[1000] \"b\"\n"
        "buffer %3: model_buffer u8[3, 5] \"m\"\n"
        "buffer %4: state f32[] \"motley/loss_scale\"\n",
        rank * 300);
  for (const int rank : {0, 1, 2})
    to[static_cast<std::size_t>(rank)] = fmt::format(
        "buffer %0: parameter f32[600, {0}] \"w\" part 600 {1} 70 1\n"
        "buffer %1: state f64[600, {0}] \"w/x\" part 600 {1} 70 1\n"
        "buffer %2: parameter bf16[1000] \"b\"\n"
        "buffer %3: model_buffer u8[3, 5] \"m\"\n"
        "buffer %4: state f32[] \"motley/loss_scale\"\n",
        rank == 0 ? 30 : 20, rank == 0 ? 0 : 10 + 20 * rank);
  run(parse_forms(from), parse_forms(to),
      {.devices = {"d2", "d0", "d1"}, .message = Bytes(10'000)});
}

TEST_P(RunMove, DrawnFormsBecomeOthers) {
  int moved = 0;
  for (std::uint64_t seed = 0; moved < 12; ++seed) {
    testing::DrawnForms drawn(seed);
    const Program from = drawn.draw(), to = drawn.draw();
    const synth::MoveOptions options{.devices = {"d3", "d0", "d1", "d2", "d4"},
                                     .message = Bytes(drawn.number(1, 100))};
    if (!synth::lower_move(from, to, options)) continue;  // nobody has some of it
    run(from, to, options);
    if (HasFatalFailure() || HasFailure()) return;
    ++moved;
  }
}

}  // namespace
}  // namespace motley::run
