#include "motley/program/strands.h"

#include <algorithm>
#include <map>

namespace motley::program {

Strand strand_of(const Instruction& instruction) {
  if (instruction.lane != Lane::kPeer) return {instruction.lane, {}, {}};
  return {Lane::kPeer, peer_of(instruction),
          instruction.op == kSend ? Direction::kSend : Direction::kReceive};
}

Strands find_strands(const DeviceProgram& program) {
  std::map<Strand, std::size_t> numbers = {{{Lane::kCompute, {}, {}}, 0},
                                           {{Lane::kTransfer, {}, {}}, 1}};
  for (const Instruction& instruction : program.instructions)
    if (instruction.lane == Lane::kPeer) numbers.emplace(strand_of(instruction), 0);
  Strands strands;
  for (auto& [strand, number] : numbers) {
    number = strands.all.size();
    strands.all.push_back(strand);
  }
  strands.of.reserve(program.instructions.size());
  for (const Instruction& instruction : program.instructions)
    strands.of.push_back(instruction.lane == Lane::kPeer
                             ? numbers.at(strand_of(instruction))
                             : static_cast<std::size_t>(instruction.lane));
  return strands;
}

Order::Order(const DeviceProgram& program) : strands_(find_strands(program)) {
  const std::size_t width = strands_.all.size();
  clock_of_.reserve(program.instructions.size());
  clocks_.assign(width, {});
  std::vector<std::size_t> latest(width, 0);  // by strand: the clock of its last instruction
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const std::vector<InstructionId>& waits = program.instructions[i].waits;
    std::size_t& clock = latest[strands_.of[i]];
    if (!waits.empty()) {
      const std::size_t before = clock * width;
      clock = clocks_.size() / width;
      clocks_.resize(clocks_.size() + width);
      InstructionId* now = clocks_.data() + clock * width;
      std::copy_n(clocks_.data() + before, width, now);
      for (const InstructionId wait : waits) {
        const InstructionId* known = clocks_.data() + clock_of_[wait.index()] * width;
        for (std::size_t s = 0; s < width; ++s) now[s] = std::max(now[s], known[s]);
        InstructionId& of_strand = now[strands_.of[wait.index()]];
        of_strand = std::max(of_strand, wait);
      }
    }
    clock_of_.push_back(clock);
  }
}

}  // namespace motley::program
