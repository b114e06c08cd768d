#include "motley/synth/state/move.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "motley/program/boxes.h"
#include "motley/program/program_text.h"
#include "motley/program/state_names.h"
#include "motley/testing/drawn_forms.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

using program::Buffer;
using program::BufferKind;
using program::DeviceProgram;
using program::Program;
using testing::DrawnForms;
using ::testing::ElementsAre;
using testing::indices_of;
using ::testing::IsEmpty;

/// Returns a program of buffers alone, one line each: "parameter f32[2, 6] "w" part 1 0 4 6".
Program forms(const std::vector<std::pair<std::string, std::vector<std::string>>>& devices) {
  std::string text = "motley.program/1\nmodel \"m\" plan \"p\" global_batch 0\n";
  for (const auto& [name, lines] : devices) {
    text += fmt::format("device \"{}\" samples 0 first 0\n", name);
    for (std::size_t i = 0; i < lines.size(); ++i)
      text += fmt::format("buffer %{}: {}\n", i, lines[i]);
  }
  auto program = program::parse_program(text, "forms");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

Move lower_well(const Program& from, const Program& to, const MoveOptions& options) {
  auto move = lower_move(from, to, options);
  EXPECT_TRUE(move) << move.error().message;
  return move ? std::move(*move) : Move();
}

std::string fault_of(const Program& from, const Program& to, const MoveOptions& options) {
  const auto move = lower_move(from, to, options);
  return move ? "" : move.error().code + ": " + move.error().message;
}

/// Runs a move on numbers: old tensors hold their flat indices, new ones begin as -1.
class MoveRun {
 public:
  explicit MoveRun(const Program& program) : program_(program), memory_(program.devices.size()) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank)
      for (const Buffer& buffer : program.devices[rank].buffers) {
        const bool is_old = buffer.name.starts_with(program::kOldPrefix);
        memory_[rank].push_back(
            is_old ? indices_of(buffer)
                   : std::vector<std::int64_t>(static_cast<std::size_t>(buffer.elements()), -1));
      }
    std::vector<std::size_t> next(memory_.size(), 0);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank)
        while (next[rank] < program.devices[rank].instructions.size() &&
               run(rank, program.devices[rank].instructions[next[rank]])) {
          ++next[rank];
          goes_on = true;
        }
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank)
      is_over = is_over && next[rank] == program.devices[rank].instructions.size();
  }

  std::optional<std::vector<std::int64_t>> find(std::size_t rank, const std::string& name) const {
    const std::vector<Buffer>& buffers = program_.devices[rank].buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].name == name) return memory_[rank][i];
    return std::nullopt;
  }

  bool is_over = true;
  std::int64_t twice = 0;  ///< elements written more than once
  std::int64_t sent = 0;   ///< elements

 private:
  template <typename Visit>
  static void walk(const program::Box& box, const Visit& visit, std::size_t side = 0,
                   std::int64_t at = 0) {
    if (side == box.sides.size()) return visit(box.begin + at);
    for (std::int64_t i = 0; i < box.sides[side].extent; ++i)
      walk(box, visit, side + 1, at + i * box.sides[side].stride);
  }

  std::vector<std::int64_t> read(std::size_t rank, BufferId id, const program::Box& box) const {
    std::vector<std::int64_t> read;
    walk(box, [&](std::int64_t at) {
      read.push_back(memory_[rank][id.index()].at(static_cast<std::size_t>(at)));
    });
    return read;
  }

  bool run(std::size_t rank, const program::Instruction& each) {
    const auto copies = program::find_box_copies(each);
    if (each.op == program::kTake) {
      std::vector<std::int64_t> flat;
      for (const auto& [id, box] : copies->from)
        for (const std::int64_t element : read(rank, id, box)) flat.push_back(element);
      memory_[rank][copies->result.index()] = std::move(flat);
    } else if (each.op == program::kPut) {
      for (std::size_t i = 0; i < copies->into.size(); ++i) {
        const auto values = read(rank, copies->from[i].first, copies->from[i].second);
        auto& target = memory_[rank][copies->into[i].first.index()];
        auto value = values.begin();
        walk(copies->into[i].second, [&](std::int64_t at) {
          twice += target.at(static_cast<std::size_t>(at)) == -1 ? 0 : 1;
          target[static_cast<std::size_t>(at)] = *value++;
        });
      }
    } else {
      const auto peer = program::peer_of(each).index();
      if (each.op == program::kSend) {
        const auto id = std::get<BufferId>(each.arguments[0].value);
        sent += static_cast<std::int64_t>(memory_[rank][id.index()].size());
        mail_[{rank, peer}].push_back(memory_[rank][id.index()]);
      } else {
        auto& come = mail_[{peer, rank}];
        if (come.empty()) return false;
        memory_[rank][each.outputs[0].index()] = come.front();
        come.pop_front();
      }
    }
    return true;
  }

  const Program& program_;
  std::vector<std::vector<std::vector<std::int64_t>>> memory_;  // by rank and buffer
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::vector<std::int64_t>>> mail_;
};

// f32[4, 6]: rows [0, 2) and [2, 4) become columns [0, 3) and [3, 6). a keeps columns 0 to 2 of its
// two rows: 6 elements from 0 on, with row strides of 6 (old) and 3 (new). It sends columns 3 to 5,
// from 3 on, which are rows 0 and 1 at b. It receives b's first three columns as rows 2 and 3,
// consecutive from element 2 * 3 on.
TEST(Move, RowsBecomeColumns) {
  const auto by_rows = [](int begin) {
    return fmt::format("parameter f32[2, 6] \"w\" part 1 {} 4 6", begin);
  };
  const auto by_columns = [](int begin) {
    return fmt::format("parameter f32[4, 3] \"w\" part 4 {} 6 1", begin);
  };
  const Move move =
      lower_well(forms({{"a", {by_rows(0)}}, {"b", {by_rows(2)}}}),
                 forms({{"a", {by_columns(0)}}, {"b", {by_columns(3)}}}), {.devices = {"a", "b"}});
  const std::string text = program::print_program(move.program);
  EXPECT_EQ(text.substr(0, text.find("device \"b\"")),
            "motley.program/1\n"
            "model \"m\" plan \"p\" global_batch 0\n"
            "device \"a\" samples 0 first 0\n"
            "buffer %0: parameter f32[2, 6] \"old/w\" part 1 0 4 6\n"
            "buffer %1: parameter f32[4, 3] \"w\" part 4 0 6 1\n"
            "buffer %2: temporary f32[6]\n"
            "buffer %3: temporary f32[6]\n"
            "compute ^0: %2 = motley::take([%0], [[3, 2, 6, 3, 1]]) \"w\"\n"
            "peer ^1: motley::send(%2, 1) wait ^0 \"w\" free %2\n"
            "compute ^2: motley::put([%1], [[0, 2, 3, 3, 1]], [%0], [[0, 2, 6, 3, 1]]) \"w\"\n"
            "peer ^3: %3 = motley::receive(1) \"w\"\n"
            "compute ^4: motley::put([%1], [[6, 6, 1]], [%3], [[0, 6, 1]]) wait ^3 \"w\" free "
            "%3\n");
  for (const RankMove& rank : move.ranks) {
    EXPECT_EQ(rank.sent, Bytes(24));
    EXPECT_EQ(rank.received, Bytes(24));
    EXPECT_EQ(rank.copied, Bytes(24));
  }
}

// Rows on two devices, a mean in other rows and a bias whole on both, become columns on three
// devices. Messages have at most 10 numbers.
TEST(Move, IsWrittenAsItWas) {
  const auto before = [](int rank) {
    return std::vector<std::string>{
        fmt::format("parameter f32[2, 6] \"w\" part 1 {} 4 6", 2 * rank),
        fmt::format("state f32[1, 12] \"w/momentum\" part 1 {} 24 1", 12 * rank),
        "parameter bf16[6] \"b\"", "constant f32[2] \"c\""};
  };
  const auto after = [](int rank) {
    return std::vector<std::string>{
        fmt::format("parameter f32[4, 2] \"w\" part 4 {} 6 1", 2 * rank),
        fmt::format("state f32[4, 2] \"w/momentum\" part 4 {} 6 1", 2 * rank),
        "parameter bf16[6] \"b\"", "constant f32[2] \"c\""};
  };
  const Move move = lower_well(forms({{"a:0", before(0)}, {"a:1", before(1)}}),
                               forms({{"a:0", after(0)}, {"a:1", after(1)}, {"b:0", after(2)}}),
                               {.devices = {"a:0", "a:1", "b:0"}, .message = Bytes(40)});
  expect_golden("move", program::print_program(move.program));
}

TEST(Move, WhatStaysIsNeitherCopiedNorThere) {
  const std::vector<std::string> whole = {"parameter f32[4, 6] \"w\"", "state f32[4, 6] \"w/m\"",
                                          "model_buffer f32[2] \"mean\"", "constant f32[3] \"c\""};
  // The new program has all rows of the state as a part, and no mean.
  const std::vector<std::string> other = {"parameter f32[4, 6] \"w\"",
                                          "state f32[1, 24] \"w/m\" part 1 0 24 1",
                                          "constant f32[3] \"c\""};
  const Move move = lower_well(forms({{"a", whole}}), forms({{"a", other}, {"b", other}}),
                               {.devices = {"a", "b"}});
  EXPECT_THAT(move.ranks[0].kept, ElementsAre("w", "w/m", "c"));
  EXPECT_THAT(move.ranks[1].kept, IsEmpty());
  std::vector<std::string> names;
  for (const auto& device : move.program.devices)
    for (const Buffer& buffer : device.buffers)
      if (buffer.kind != BufferKind::kTemporary) names.push_back(buffer.name);
  EXPECT_THAT(names, ElementsAre("old/w", "old/w/m", "old/mean", "old/c", "w", "w/m"));
  // Two tensors of 24 numbers without the constant, in one message.
  EXPECT_EQ(move.ranks[0].sent, Bytes(192));
  EXPECT_EQ(move.program.devices[0].instructions.size(), 2U);
  EXPECT_EQ(move.program.devices[0].instructions[1].label, "w and 1 more");
}

TEST(Move, SendersShareTheLoad) {
  const std::vector<std::string> whole = {"parameter f32[3, 1000] \"w\""};
  const Move move = lower_well(forms({{"a", whole}, {"b", whole}, {"c", whole}}),
                               forms({{"a", whole}, {"b", whole}, {"c", whole}, {"d", whole}}),
                               {.devices = {"a", "b", "c", "d"}, .message = Bytes(4000)});
  for (const std::size_t rank : {0, 1, 2}) EXPECT_EQ(move.ranks[rank].sent, Bytes(4000));
  EXPECT_EQ(move.ranks[3].received, Bytes(12000));
}

// Only a has rows 0 and 1, so b sends all shared rows although it comes last in the tensor.
TEST(Move, WhatOneAloneHasIsGivenOutFirst) {
  const Program from = forms(
      {{"a", {"parameter f32[4, 10] \"w\""}}, {"b", {"parameter f32[2, 10] \"w\" part 1 0 4 10"}}});
  const std::vector<std::string> whole = {"parameter f32[4, 10] \"w\""};
  const Move move = lower_well(from, forms({{"c", whole}}), {.devices = {"a", "b", "c"}});
  EXPECT_EQ(move.ranks[0].sent, Bytes(80));
  EXPECT_EQ(move.ranks[1].sent, Bytes(80));
}

TEST(Move, TheReceiversHostGivesFirst) {
  const std::vector<std::string> whole = {"parameter f32[100] \"w\"", "parameter f32[100] \"v\""};
  MoveOptions options{.devices = {"x:0", "y:0", "y:1"}};
  options.host_of = [](const std::string& device) { return device.substr(0, 1); };
  const Move move = lower_well(forms({{"x:0", whole}, {"y:0", whole}}),
                               forms({{"x:0", whole}, {"y:0", whole}, {"y:1", whole}}), options);
  EXPECT_EQ(move.ranks[0].sent, Bytes(0));
  EXPECT_EQ(move.ranks[1].sent, Bytes(800));
}

TEST(Move, NewStatesBeginAndOldOnesAreLeft) {
  const Move move = lower_well(
      forms({{"a", {"parameter f32[8] \"w\"", "state f32[8] \"w/momentum\""}}}),
      forms({{"a", {"parameter f32[8] \"w\"", "state f32[8] \"w/exp_avg\""}}}), {.devices = {"a"}});
  EXPECT_THAT(move.ranks[0].kept, ElementsAre("w"));
  EXPECT_THAT(move.ranks[0].fresh, ElementsAre("w/exp_avg"));
  EXPECT_THAT(move.program.devices[0].instructions, IsEmpty());
}

TEST(Move, AtMostTwoMessagesOfAPairAreUnderWay) {
  const std::vector<std::string> whole = {"parameter f32[40] \"w\""};
  const Move move = lower_well(forms({{"a", whole}}), forms({{"b", whole}}),
                               {.devices = {"a", "b"}, .message = Bytes(40)});
  // pack ^0, send ^1, pack ^2, send ^3; the third waits for ^1, which frees its memory.
  const auto& gives = move.program.devices[0].instructions;
  ASSERT_EQ(gives.size(), 8U);
  EXPECT_THAT(gives[2].waits, IsEmpty());
  EXPECT_THAT(gives[4].waits, ElementsAre(InstructionId(1)));
  // receive ^0, unpack ^1, receive ^2, unpack ^3, receive ^4 after ^1.
  const auto& gets = move.program.devices[1].instructions;
  EXPECT_THAT(gets[2].waits, IsEmpty());
  EXPECT_THAT(gets[4].waits, ElementsAre(InstructionId(1)));
}

// b is lost, but a has its mirror. So a has both parts in two buffers and nothing is sent; the new
// program's mirrors are made of them.
TEST(Move, MirrorsAreCopiesToo) {
  const auto part = [](int begin) {
    return fmt::format("parameter f32[2, 6] \"w\" part 1 {} 4 6", begin);
  };
  const auto mirror = [](int of, int begin) {
    return fmt::format("mirror f32[2, 6] \"mirror/{}/w\" part 1 {} 4 6 copy", of, begin);
  };
  const Program from = forms({{"a", {part(0), mirror(1, 2)}}, {"b", {part(2), mirror(0, 0)}}});
  const Move alone =
      lower_well(from, forms({{"a", {"parameter f32[4, 6] \"w\""}}}), {.devices = {"a"}});
  EXPECT_EQ(alone.ranks[0].copied, Bytes(96));
  EXPECT_EQ(alone.ranks[0].received, Bytes(0));
  const Move spread =
      lower_well(from, forms({{"c", {part(0), mirror(1, 2)}}, {"a", {mirror(0, 0), part(2)}}}),
                 {.devices = {"c", "a"}});
  EXPECT_EQ(spread.ranks[1].sent, Bytes(96));
  EXPECT_EQ(spread.ranks[1].copied, Bytes(96));
  const Move same = lower_well(from, from, {.devices = {"a", "b"}});
  EXPECT_THAT(same.ranks[0].kept, ElementsAre("w", "mirror/1/w"));
}

TEST(Move, SaysWhatIsLost) {
  const Program from = forms({{"a", {"parameter f32[2, 6] \"w\" part 1 0 4 6"}},
                              {"b", {"parameter f32[2, 6] \"w\" part 1 2 4 6"}}});
  const Program to = forms({{"a", {"parameter f32[4, 6] \"w\""}}});
  const std::string wanted =
      "synth.move-lost: nobody has elements 12 to 23 of w (24 in all), which a needs; go on from a "
      "checkpoint";
  EXPECT_EQ(fault_of(from, to, {.devices = {"a"}}), wanted);
  EXPECT_EQ(fault_of(from, to, {.devices = {"a", "b"}, .lost = {"b"}}), wanted);
  EXPECT_EQ(fault_of(from, to, {.devices = {"a", "b"}}), "");
  EXPECT_EQ(fault_of(forms({{"a", {}}}), to, {.devices = {"a"}}),
            "synth.move-lost: nobody has elements 0 to 23 of w (24 in all), which a needs; go on "
            "from a checkpoint");
}

TEST(Move, RefusesWhatIsNotOneTraining) {
  const Program w = forms({{"a", {"parameter f32[8] \"w\""}}});
  EXPECT_EQ(fault_of(w, forms({{"a", {"parameter f32[9] \"w\""}}}), {.devices = {"a"}}),
            "synth.move-form: w: found 9 elements of f32, and 8 of f32");
  EXPECT_EQ(fault_of(w, forms({{"a", {"parameter bf16[8] \"w\""}}}), {.devices = {"a"}}),
            "synth.move-form: w: found 8 elements of bf16, and 8 of f32");
  EXPECT_EQ(fault_of(w, w, {.devices = {"b"}}), "synth.move-devices: the move has no device a");
  EXPECT_EQ(fault_of(w, w, {.devices = {"a", "a"}}),
            "synth.move-devices: the move has device a twice");
  Program other = w;
  other.model_hash = "n";
  EXPECT_EQ(fault_of(w, other, {.devices = {"a"}}),
            "synth.move-model: the old program is of model m, the new one of n");
  other = w;
  other.devices[0] = {.device = "a", .is_elsewhere = true};
  EXPECT_EQ(fault_of(other, w, {.devices = {"a"}}),
            "synth.move-devices: what a does is in another file");
}

const Buffer* find_buffer(const Program& program, const std::string& device,
                          const std::string& name) {
  for (const DeviceProgram& each : program.devices)
    for (const Buffer& buffer : each.buffers)
      if (each.device == device && buffer.name == name) return &buffer;
  return nullptr;
}

// Every element of every new tensor is written once or was there. Nothing is sent that the receiver
// has. If a wanted element is lost, the error names it.
RC_GTEST_PROP(Move, GivesEachDeviceWhatItNeeds, ()) {
  DrawnForms drawn(*rc::gen::arbitrary<std::uint64_t>());
  const Program from = drawn.draw(), to = drawn.draw();
  MoveOptions options{.devices = {"d4", "d0", "d1", "d2", "d3"},
                      .message = Bytes(drawn.number(1, 100))};
  if (drawn.number(0, 2) == 0) options.lost = {"d1"};
  std::int64_t lacking = 0;
  bool is_lost = false;
  for (const DeviceProgram& device : to.devices)
    for (const Buffer& buffer : device.buffers) {
      std::set<std::int64_t> here, anywhere;
      bool is_known = false;
      for (const DeviceProgram& other : from.devices) {
        const Buffer* old = find_buffer(from, other.device, buffer.name);
        is_known = is_known || old != nullptr;
        if (old == nullptr || options.lost.contains(other.device)) continue;
        for (const std::int64_t index : indices_of(*old)) {
          anywhere.insert(index);
          if (other.device == device.device) here.insert(index);
        }
      }
      if (buffer.kind == BufferKind::kState && !is_known) continue;
      for (const std::int64_t index : indices_of(buffer)) {
        is_lost = is_lost || !anywhere.contains(index);
        lacking += here.contains(index) ? 0 : 1;
      }
    }
  const auto move = lower_move(from, to, options);
  RC_CLASSIFY(is_lost, "lost");
  RC_CLASSIFY(lacking > 0 && !is_lost, "moved");
  if (is_lost) {
    RC_ASSERT(!move);
    RC_ASSERT(move.error().code == "synth.move-lost");
    return;
  }
  if (!move) RC_FAIL(move.error().message);
  const MoveRun run(move->program);
  RC_ASSERT(run.is_over);
  RC_ASSERT(run.twice == 0);
  RC_ASSERT(run.sent == lacking);
  for (std::size_t rank = 0; rank < options.devices.size(); ++rank) {
    const RankMove& own = move->ranks[rank];
    for (const DeviceProgram& device : to.devices)
      for (const Buffer& buffer : device.buffers) {
        if (device.device != options.devices[rank]) continue;
        const auto has = [&](const std::vector<std::string>& names) {
          return std::count(names.begin(), names.end(), buffer.name) > 0;
        };
        const auto found = run.find(rank, has(own.kept) ? "old/" + buffer.name : buffer.name);
        RC_ASSERT(found.has_value());
        const std::vector<std::int64_t> untouched(found->size(), -1);
        RC_ASSERT(*found == (has(own.fresh) ? untouched : indices_of(buffer)));
      }
  }
}

}  // namespace
}  // namespace motley::synth
