#include "motley/program/memory.h"

#include <algorithm>

#include "motley/base/check.h"
#include "motley/program/effects.h"
#include "motley/program/strands.h"

namespace motley::program {
namespace {

/// Lifetimes on the clock of the compute lane: position p is its p-th instruction, `end` the end.
class Lifetimes {
 public:
  explicit Lifetimes(const DeviceProgram& program)
      : program_(program), storages_(storages_of(program)) {
    find_positions(Order(program));
    spans_.resize(program.buffers.size());
    carried_until_.resize(program.buffers.size(), 0);
    handles_.resize(program.buffers.size());
    for (std::size_t i = 0; i < program.instructions.size(); ++i) follow(i);
    // The runtime drops everything unfreed at the end of the step.
    for (std::size_t id = 0; id < handles_.size(); ++id)
      if (handles_[id].is_defined && (!handles_[id].is_freed || is_carried(id)))
        spans_[storages_[id].index()].end = end_ + 1;
  }

  /// Positions [begin, end) at which a non-persistent root is live; empty if never.
  struct Span {
    int begin = -1, end = -1;
  };
  const Span& span(std::size_t root) const { return spans_[root]; }
  /// What a step carries over is live from its begin to here, too; 0: not.
  int end_of_carried(std::size_t root) const { return carried_until_[root]; }
  bool is_live(std::size_t root, int position) const {
    const Span& span = spans_[root];
    return (span.begin <= position && position < span.end) || position < carried_until_[root];
  }
  int end_of_step() const { return end_; }
  InstructionId instruction_at(int position) const {
    if (position < end_) return compute_[static_cast<std::size_t>(position)];
    return InstructionId(static_cast<std::int64_t>(program_.instructions.size()) - 1);
  }

 private:
  /// Finds where each instruction begins and where its effects end. An exchange begins after the
  /// compute that it waits for and ends before the first compute that waits for it, directly or
  /// through others.
  void find_positions(const Order& order) {
    const std::size_t count = program_.instructions.size();
    begins_.resize(count);
    ends_.resize(count);
    struct Running {
      std::vector<std::size_t> exchanges;  // in order
      std::size_t oldest = 0;              // the first that no compute instruction has waited for
    };
    std::vector<Running> running(order.strands().all.size());
    for (std::size_t i = 0; i < count; ++i) {
      const int position = static_cast<int>(compute_.size());
      if (program_.instructions[i].lane != Lane::kCompute) {
        const InstructionId before = order.finished(i, Strands::kCompute);
        begins_[i] = before.is_none() ? 0 : begins_[before.index()] + 1;
        running[order.strands().of[i]].exchanges.push_back(i);
        continue;
      }
      begins_[i] = position;
      ends_[i] = position + 1;
      compute_.emplace_back(static_cast<std::int64_t>(i));
      if (program_.instructions[i].waits.empty()) continue;
      for (std::size_t strand = 0; strand < running.size(); ++strand) {
        auto& [exchanges, oldest] = running[strand];
        const InstructionId finished = order.finished(i, strand);
        while (oldest < exchanges.size() && !finished.is_none() &&
               exchanges[oldest] <= finished.index())
          ends_[exchanges[oldest++]] = position;
      }
    }
    end_ = static_cast<int>(compute_.size());
    for (auto& [exchanges, oldest] : running)
      for (; oldest < exchanges.size(); ++oldest) ends_[exchanges[oldest]] = end_ + 1;
  }

  void follow(std::size_t i) {
    const Instruction& instruction = program_.instructions[i];
    for_each_buffer(instruction.arguments, [&](BufferId id) { extend(id, i); });
    for (const BufferId id : instruction.outputs) {
      define(id, i);
      extend(id, i);
    }
    for (const BufferId id : instruction.frees) {
      handles_[id.index()].is_freed = true;
      extend(id, i);
    }
  }

  bool is_carried(std::size_t id) const {
    return program_.buffers[id].kind == BufferKind::kCarried;
  }

  void define(BufferId id, std::size_t i) {
    handles_[id.index()].is_defined = true;
    if (is_carried(id.index())) {
      int& until = carried_until_[storages_[id.index()].index()];
      if (!handles_[id.index()].is_freed) until = std::max(until, begins_[i] + 1);
    }
    Span& span = spans_[storages_[id.index()].index()];
    if (span.begin < 0) span.begin = begins_[i];
    // A buffer without readers is live while it is made.
    span.end = std::max(span.end, begins_[i] + 1);
  }

  void extend(BufferId id, std::size_t i) {
    const std::size_t root = storages_[id.index()].index();
    int& end =
        is_carried(root) && !handles_[root].is_defined ? carried_until_[root] : spans_[root].end;
    end = std::max(end, ends_[i]);
  }

  struct Handle {
    bool is_defined = false, is_freed = false;
  };

  const DeviceProgram& program_;
  const std::vector<BufferId> storages_;
  std::vector<int> begins_, ends_;      // by instruction
  std::vector<InstructionId> compute_;  // by position
  std::vector<Span> spans_;             // by root
  std::vector<int> carried_until_;      // by root
  std::vector<Handle> handles_;         // by buffer
  int end_ = 0;
};

bool is_root(const Buffer& buffer) { return buffer.view_of.is_none(); }

/// Returns the part of the peak to which each root belongs.
std::vector<Bytes MemoryPeak::*> parts_of(const DeviceProgram& program) {
  std::vector<Bytes MemoryPeak::*> parts(program.buffers.size(), &MemoryPeak::activations);
  for (std::size_t id = 0; id < parts.size(); ++id) {
    switch (program.buffers[id].kind) {
      case BufferKind::kParameter:
        parts[id] = &MemoryPeak::parameters;
        break;
      case BufferKind::kState:
        parts[id] = &MemoryPeak::states;
        break;
      case BufferKind::kModelBuffer:
      case BufferKind::kConstant:
        parts[id] = &MemoryPeak::buffers;
        break;
      case BufferKind::kMirror:
        parts[id] = &MemoryPeak::mirrors;
        break;
      case BufferKind::kInput:
        parts[id] = &MemoryPeak::inputs;
        break;
      case BufferKind::kTemporary:
      case BufferKind::kCarried:
        break;
    }
  }
  const auto mark = [&](BufferId id, Bytes MemoryPeak::*part) {
    const BufferId root = storage_of(program, id);
    const BufferKind kind = program.buffer(root).kind;
    if (kind == BufferKind::kTemporary || kind == BufferKind::kCarried) parts[root.index()] = part;
  };
  for (const Instruction& instruction : program.instructions)
    if (instruction.lane != Lane::kCompute || instruction.op == "motley::cut")
      for (const BufferId id : instruction.outputs) mark(id, &MemoryPeak::exchange);
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == "motley::pack" || instruction.op == "motley::update" ||
        instruction.op == "motley::direction")
      for_each_buffer(instruction.arguments,
                      [&](BufferId id) { mark(id, &MemoryPeak::gradients); });
  // Comes last: an update may read views of exchanged buffers.
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == "motley::pack")
      for (const BufferId id : instruction.outputs) mark(id, &MemoryPeak::exchange);
  return parts;
}

}  // namespace

MemoryPeak find_memory_peak(const DeviceProgram& program, std::span<const Bytes> scratch) {
  MOTLEY_CHECK(scratch.empty() || scratch.size() == program.instructions.size());
  const Lifetimes lifetimes(program);
  // Nothing runs at the end of the step.
  const auto scratch_at = [&](int position) {
    if (scratch.empty() || position >= lifetimes.end_of_step()) return Bytes(0);
    return scratch[lifetimes.instruction_at(position).index()];
  };
  MemoryPeak peak;
  std::vector<std::int64_t> change(static_cast<std::size_t>(lifetimes.end_of_step()) + 2, 0);
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (!is_root(buffer)) continue;
    if (is_persistent(buffer.kind)) {
      peak.persistent += buffer.bytes();
      continue;
    }
    const auto add = [&](int begin, int end) {
      if (begin < 0 || begin >= end) return;
      change[static_cast<std::size_t>(begin)] += buffer.bytes().value;
      change[static_cast<std::size_t>(end)] -= buffer.bytes().value;
    };
    add(lifetimes.span(id).begin, lifetimes.span(id).end);
    add(0, lifetimes.end_of_carried(id));
  }
  std::int64_t live = 0, most = -1;
  int at = 0;
  for (int position = 0; position <= lifetimes.end_of_step(); ++position) {
    live += change[static_cast<std::size_t>(position)];
    if (const std::int64_t here = live + scratch_at(position).value; here > most) {
      most = here;
      at = position;
    }
  }
  peak.total = peak.persistent + Bytes(most);
  peak.at = lifetimes.instruction_at(at);
  peak.scratch = scratch_at(at);
  const auto parts = parts_of(program);
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (!is_root(buffer) || !(is_persistent(buffer.kind) || lifetimes.is_live(id, at))) continue;
    peak.*parts[id] += buffer.bytes();
    peak.largest.emplace_back(BufferId(static_cast<std::int64_t>(id)), buffer.bytes());
  }
  const auto larger = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  const std::size_t shown = std::min<std::size_t>(8, peak.largest.size());
  std::partial_sort(peak.largest.begin(), peak.largest.begin() + static_cast<std::ptrdiff_t>(shown),
                    peak.largest.end(), larger);
  peak.largest.resize(shown);
  return peak;
}

}  // namespace motley::program
