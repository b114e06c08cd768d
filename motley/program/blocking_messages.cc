#include "motley/program/blocking_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace motley::program {
namespace {

/// Puts a device's instructions in their new order.
class Blocker {
 public:
  explicit Blocker(const Program& program) : program_(program) {}

  Result<Program> run() {
    orders_.resize(program_.devices.size());
    // Higher ranks come first: lower ranks follow their orders.
    for (std::size_t rank = program_.devices.size(); rank-- > 0;) order(rank);
    Program made = program_;
    for (std::size_t rank = 0; rank < made.devices.size(); ++rank) {
      MOTLEY_RETURN_IF_ERROR(rewrite(rank, made.devices[rank]));
    }
    return made;
  }

 private:
  /// The number of a message among those from one rank to another.
  struct Message {
    bool is_sent_up = false;  // from the lower rank
    std::size_t number = 0;
    bool operator==(const Message&) const = default;
  };

  const std::vector<Instruction>& instructions(std::size_t rank) const {
    return program_.devices[rank].instructions;
  }
  static bool is_message(const Instruction& instruction) { return !peer_of(instruction).is_none(); }

  void order(std::size_t rank) {
    const std::vector<Instruction>& all = instructions(rank);
    std::vector<std::size_t>& made = orders_[rank];
    is_placed_.assign(all.size(), false);
    // Sends by the compute instruction that they follow.
    std::map<std::size_t, std::vector<std::size_t>> behind;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].op == kSend) behind[maker(rank, i)].push_back(i);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_message(all[i])) continue;
      for (const InstructionId wait : all[i].waits)
        if (all[wait.index()].op == kReceive) place(rank, wait.index(), made);
      made.push_back(i);
      if (const auto sends = behind.find(i); sends != behind.end())
        for (const std::size_t send : sends->second) place(rank, send, made);
    }
    // Messages that no instruction waits for.
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is_message(all[i])) place(rank, i, made);
  }

  /// Returns the last instruction of the compute lane that a send waits for.
  std::size_t maker(std::size_t rank, std::size_t send) const {
    std::size_t last = 0;
    for (const InstructionId wait : instructions(rank)[send].waits)
      if (instructions(rank)[wait.index()].lane == Lane::kCompute)
        last = std::max(last, wait.index());
    return last;
  }

  /// Places a message after those that come before it at its other end.
  void place(std::size_t rank, std::size_t i, std::vector<std::size_t>& made) {
    if (is_placed_[i]) return;
    const std::size_t peer = peer_of(instructions(rank)[i]).index();
    if (peer > rank)
      for (const std::size_t earlier : order_at(peer, rank)) {
        if (earlier == i) break;
        if (!is_placed_[earlier]) made.push_back(earlier);
        is_placed_[earlier] = true;
      }
    made.push_back(i);
    is_placed_[i] = true;
  }

  /// Returns the instructions of a rank that exchange with a higher peer, in the peer's order.
  const std::vector<std::size_t>& order_at(std::size_t peer, std::size_t rank) {
    const auto [known, is_new] = shared_.try_emplace({peer, rank});
    if (!is_new) return known->second;
    // The n-th send of one is the n-th receive of the other.
    std::vector<std::size_t> sends, receives;
    for (std::size_t i = 0; i < instructions(rank).size(); ++i)
      if (const Instruction& each = instructions(rank)[i];
          peer_of(each) == Rank(static_cast<std::int64_t>(peer)))
        (each.op == kSend ? sends : receives).push_back(i);
    std::size_t sent = 0, received = 0;
    std::vector<std::size_t> numbers(instructions(peer).size());
    for (std::size_t i = 0; i < instructions(peer).size(); ++i)
      if (const Instruction& each = instructions(peer)[i];
          peer_of(each) == Rank(static_cast<std::int64_t>(rank)))
        numbers[i] = each.op == kSend ? received++ : sent++;
    for (const std::size_t i : orders_[peer])
      if (const Instruction& each = instructions(peer)[i];
          peer_of(each) == Rank(static_cast<std::int64_t>(rank)))
        known->second.push_back((each.op == kSend ? receives : sends).at(numbers[i]));
    return known->second;
  }

  Result<void> rewrite(std::size_t rank, DeviceProgram& device) const {
    const std::vector<std::size_t>& order = orders_[rank];
    std::vector<InstructionId> number(order.size());
    for (std::size_t at = 0; at < order.size(); ++at)
      number[order[at]] = InstructionId(static_cast<std::int64_t>(at));
    std::vector<Instruction> all;
    InstructionId computed, message;
    for (const std::size_t i : order) {
      Instruction instruction = instructions(rank)[i];
      const InstructionId own(static_cast<std::int64_t>(all.size()));
      for (InstructionId& wait : instruction.waits) {
        wait = number[wait.index()];
        if (wait >= own)
          return usage_error("program.blocking",
                             fmt::format("{} ^{} {}: with messages that block it would wait for "
                                         "what comes later",
                                         device.device, i, instruction.full_name()));
      }
      const auto wait_for = [&](InstructionId other) {
        if (!other.is_none()) instruction.waits.push_back(other);
      };
      if (is_message(instruction)) {
        wait_for(computed);
        wait_for(message);
        message = own;
      } else if (instruction.lane == Lane::kCompute) {
        wait_for(message);
        computed = own;
      }
      std::sort(instruction.waits.begin(), instruction.waits.end());
      instruction.waits.erase(std::unique(instruction.waits.begin(), instruction.waits.end()),
                              instruction.waits.end());
      all.push_back(std::move(instruction));
    }
    device.instructions = std::move(all);
    return {};
  }

  const Program& program_;
  std::vector<std::vector<std::size_t>> orders_;  // by rank: instructions
  std::vector<bool> is_placed_;                   // of the rank at hand
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> shared_;
};

}  // namespace

Result<Program> block_messages(const Program& program) { return Blocker(program).run(); }

}  // namespace motley::program
