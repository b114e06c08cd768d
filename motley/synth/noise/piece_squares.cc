#include "motley/synth/noise/piece_squares.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "motley/program/square_count.h"
#include "motley/synth/noise/square_writer.h"

namespace motley::synth {
namespace {

using program::DeviceProgram;
using program::Instruction;

constexpr std::size_t kUnmade = SIZE_MAX;

/// bytes; tensors up to this total are counted together
constexpr std::int64_t kMostKept = 1 << 20;

class PieceCounter {
 public:
  PieceCounter(std::vector<std::int64_t> samples, DeviceProgram& program)
      : program_(program),
        given_(program.buffers.size()),
        made_at_(given_, kUnmade),
        freed_at_(given_, kUnmade),
        squares_{.pieces = std::vector<program::ArgumentList>(samples.size()),
                 .whole = {},
                 .samples = std::move(samples)} {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      for (const BufferId id : program.instructions[i].outputs) made_at_[id.index()] = i;
      for (const BufferId id : program.instructions[i].frees) freed_at_[id.index()] = i;
    }
  }

  Result<void> run() {
    MOTLEY_ASSIGN(const auto updated, find_updated(program_));
    for (const auto& [gradient, of] : updated) add_gradient(gradient, of);
    if (counted_.empty())
      return refuse_squares(program_, "no gradient is a sum over its micro-batches");
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      // Moments count as they are before the step.
      const std::string& op = program_.instructions[i].op;
      if (op == "motley::update" || op == "motley::direction") count_pending(i);
      const auto [begin, end] = counted_.equal_range(i);
      for (auto each = begin; each != end; ++each) {
        pending_.push_back(each->second);
        pending_bytes_ += program_.buffer(each->second.id).bytes().value;
      }
      if (pending_bytes_ >= kMostKept) count_pending(i + 1);
    }
    MOTLEY_RETURN_IF_ERROR(report_squares(squares_, program_));
    insert_before(std::move(added_), program_);
    return {};
  }

 private:
  /// A tensor to count: a term of a piece or, if `piece` is past the last one, a gradient.
  struct Counted {
    BufferId id;
    Updated updated;
    std::size_t piece = 0;
  };

  std::size_t pieces() const { return squares_.samples.size(); }

  /// Finds the terms of a gradient's sum, in order: operands of additions that are not the model's.
  void find_terms(BufferId sum, std::vector<BufferId>& terms) const {
    const std::size_t at = made_at_[sum.index()];
    const Instruction* made = at == kUnmade ? nullptr : &program_.instructions[at];
    if (made == nullptr || made->full_name() != "aten::add.Tensor" || !made->origin.is_none()) {
      terms.push_back(sum);
      return;
    }
    find_terms(buffer_of(made->arguments[0]), terms);
    find_terms(buffer_of(made->arguments[1]), terms);
  }

  /// Adds a gradient: a sum over micro-batches, or of one such sum per use of its parameter.
  void add_gradient(BufferId gradient, const Updated& updated) {
    std::vector<BufferId> terms;
    find_terms(gradient, terms);
    const bool are_made = std::all_of(terms.begin(), terms.end(), [&](BufferId term) {
      return made_at_[term.index()] != kUnmade;
    });
    // Otherwise the gradient does not depend on samples.
    if (!are_made || terms.size() % pieces() != 0) return;
    for (std::size_t piece = 0; piece < pieces(); ++piece) {
      BufferId term = terms[piece];
      for (std::size_t i = piece + pieces(); i < terms.size(); i += pieces())
        term = add_up(term, terms[i]);
      counted_.emplace(made_at_[term.index()], Counted{term, updated, piece});
    }
    counted_.emplace(made_at_[gradient.index()], Counted{gradient, updated, pieces()});
  }

  /// Adds two terms right after the later one.
  BufferId add_up(BufferId a, BufferId b) {
    const std::size_t at = std::max(made_at_[a.index()], made_at_[b.index()]);
    program::Buffer buffer = program_.buffer(a);
    buffer.view_of = {};
    program_.buffers.push_back(std::move(buffer));
    made_at_.push_back(at);
    freed_at_.push_back(kUnmade);
    Instruction& sum = added_[at + 1].emplace_back();
    sum.op = "aten::add";
    sum.overload = "Tensor";
    sum.arguments = {{a}, {b}, {std::int64_t{1}}};
    sum.outputs = {BufferId(program_.buffers.size() - 1)};
    sum.label = program::kSquaresLabel;
    for (const BufferId id : {a, b}) keep_until(at + 1, id, sum);
    return sum.outputs[0];
  }

  /// Keeps a tensor alive for `user`, which is inserted before a position.
  void keep_until(std::size_t position, BufferId id, Instruction& user) {
    std::size_t& freed = freed_at_[id.index()];
    const bool is_given = id.index() < given_;
    if (is_given && freed >= position) return;  // or never freed
    if (is_given) std::erase(program_.instructions[freed].frees, id);
    if (freed == position) return;
    user.frees.push_back(id);
    freed = position;
  }

  void count_pending(std::size_t position) {
    if (pending_.empty()) return;
    std::vector<Instruction>& before = added_[position];
    for (std::size_t piece = 0; piece <= pieces(); ++piece) {
      SquareWriter writer(program_);
      for (const Counted& each : pending_)
        if (each.piece == piece) writer.add(each.id, each.updated);
      program::ArgumentList& sums = piece < pieces() ? squares_.pieces[piece] : squares_.whole;
      for (Instruction& each : writer.write(sums)) before.push_back(std::move(each));
    }
    for (const Counted& each : pending_) keep_until(position, each.id, before.back());
    pending_.clear();
    pending_bytes_ = 0;
  }

  DeviceProgram& program_;
  const std::size_t given_;                      // buffers
  std::vector<std::size_t> made_at_, freed_at_;  // by buffer
  Squares squares_;
  std::multimap<std::size_t, Counted> counted_;  // by the position of what makes it
  std::vector<Counted> pending_;
  std::int64_t pending_bytes_ = 0;
  std::map<std::size_t, std::vector<Instruction>> added_;
};

}  // namespace

Result<void> count_pieces(std::vector<std::int64_t> samples, DeviceProgram& program) {
  return PieceCounter(std::move(samples), program).run();
}

}  // namespace motley::synth
