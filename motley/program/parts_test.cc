#include "motley/program/parts.h"

#include <gtest/gtest.h>

#include "motley/program/program_text.h"

namespace motley::program {
namespace {

DeviceProgram parse_parts(const std::string& body) {
  const auto program = parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 8\ngroup 0: 0\n"
      "device \"a:0\" samples 8 first 0\n" +
          body,
      "p");
  EXPECT_TRUE(program) << program.error().message;
  return program->devices[0];
}

TEST(Parts, AreReadAndPrintedAsTheyAre) {
  const std::string text =
      "buffer %0: constant f32[2, 5, 3] \"c\"\n"
      "buffer %1: temporary f32[30]\n"
      "buffer %2: temporary f32[30]\n"
      "compute ^0: %1 = motley::cut(%0, 2, [1, 0, 4], 3)\n"
      "transfer ^1: %2 = motley::all_to_all(%1, [30], [30]) group 0 wait ^0 \"shards\"\n";
  const DeviceProgram device = parse_parts(text);
  const auto cut = find_tensor_parts(device.instructions[0]);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->extents, (std::vector<std::int64_t>{1, 0, 4}));
  EXPECT_EQ(cut->before, 2);
  EXPECT_EQ(cut->after, 3);
  EXPECT_FALSE(find_exchange_parts(device.instructions[0]));
  const auto exchange = find_exchange_parts(device.instructions[1]);
  ASSERT_TRUE(exchange);
  EXPECT_EQ(exchange->value, BufferId(1));
  EXPECT_EQ(exchange->receives, (std::vector<std::int64_t>{30}));
  Program program;
  program.groups = {{{Rank(0)}}};
  program.devices = {device};
  EXPECT_NE(print_program(program).find(text), std::string::npos) << print_program(program);
}

TEST(Parts, ArePricedAsIfAllWereTheLargest) {
  DeviceProgram device;
  for (const std::int64_t extent : {3, 8, 10})
    device.buffers.push_back({BufferKind::kTemporary, DType::kF32, {extent}, "", {}});
  const auto counts = [](const std::vector<std::int64_t>& values) {
    ArgumentList list;
    for (const std::int64_t value : values) list.push_back({value});
    return Argument{std::move(list)};
  };
  const auto bytes = [&](Instruction instruction) { return priced_bytes(device, instruction); };
  const BufferId three(0), eight(1), ten(2);
  // 3 members * 5 elements * 4 bytes.
  EXPECT_EQ(
      bytes({Lane::kTransfer, "motley::all_gather", "", {{three}, counts({3, 0, 5})}, {eight}}),
      Bytes(60));
  EXPECT_EQ(
      bytes({Lane::kTransfer, "motley::reduce_scatter", "", {{eight}, counts({3, 0, 5})}, {three}}),
      Bytes(60));
  // 10 elements after, 8 before.
  EXPECT_EQ(bytes({Lane::kTransfer,
                   "motley::all_to_all",
                   "",
                   {{eight}, counts({8, 0}), counts({8, 2})},
                   {ten}}),
            Bytes(40));
  EXPECT_EQ(bytes({Lane::kTransfer, "motley::all_reduce", "", {{eight}}}), Bytes(32));
  const auto uneven = [&](const char* method, const std::vector<std::int64_t>& values) {
    return uneven_parts(
        device,
        {Lane::kTransfer, "motley::all_gather", method, {{three}, counts(values)}, {eight}});
  };
  EXPECT_EQ(uneven("", {3, 0, 5}), (std::vector<Bytes>{Bytes(12), Bytes(0), Bytes(20)}));
  EXPECT_TRUE(uneven("", {4, 4}).empty());
  EXPECT_TRUE(uneven("grouped", {3, 0, 5}).empty());  // it pays for all but one part anyway
  EXPECT_TRUE(uneven_parts(device, {Lane::kTransfer, "motley::all_reduce", "", {{eight}}}).empty());
  // 3 members pass on all but the smallest of 8 elements: 8 * 3 / 2 elements * 4 bytes.
  EXPECT_EQ(bytes({Lane::kTransfer,
                   "motley::all_gather",
                   "grouped",
                   {{three}, counts({3, 0, 5})},
                   {eight}}),
            Bytes(48));
  // 2 members, each with a cell of 9 elements for both.
  EXPECT_EQ(bytes({Lane::kTransfer,
                   "motley::all_to_all",
                   "padded",
                   {{eight}, counts({8, 0}), counts({8, 2}), {std::int64_t{9}}},
                   {ten}}),
            Bytes(72));
}

}  // namespace
}  // namespace motley::program
