#include "motley/synth/state/move.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "motley/program/boxes.h"
#include "motley/program/effects.h"
#include "motley/program/program_text.h"
#include "motley/program/state_names.h"
#include "motley/synth/state/move_pieces.h"

namespace motley::synth {
namespace {

using program::ArgumentList;
using program::Buffer;
using program::BufferKind;
using program::DeviceProgram;
using program::Instruction;

/// messages of a pair that are in memory at once
constexpr std::size_t kMessagesAhead = 2;

/// Pieces of one dtype that are sent together.
struct MoveMessage {
  DType dtype = DType::kF32;
  std::int64_t elements = 0;
  std::vector<const MovePiece*> pieces;
};
using MoveMessages = std::vector<MoveMessage>;

/// By source and target, in the order of their pieces; includes messages of a rank to itself.
using MessagesByPair = std::map<std::pair<Rank, Rank>, MoveMessages>;

MessagesByPair bundle(const MovePieces& found, const MoveOptions& options) {
  MessagesByPair messages;
  std::map<std::tuple<Rank, Rank, DType>, std::size_t> open;  // index of the message to fill
  for (const MovePiece& piece : found.pieces) {
    const DType dtype = found.tensors[piece.tensor].dtype;
    MoveMessages& all = messages[{piece.source, piece.target}];
    const auto [at, is_first] = open.try_emplace({piece.source, piece.target, dtype}, all.size());
    if (is_first || all[at->second].elements + piece.elements > most_elements(options, dtype)) {
      at->second = all.size();
      all.push_back({dtype, 0, {}});
    }
    MoveMessage& message = all[at->second];
    message.elements += piece.elements;
    message.pieces.push_back(&piece);
  }
  return messages;
}

/// Writes one rank's program.
class RankMoveWriter {
 public:
  RankMoveWriter(const MovePieces& found, const MessagesByPair& messages, Rank rank)
      : found_(found), rank_(rank) {
    for (const auto& [pair, all] : messages) {
      if (pair.first == rank && pair.second == rank)
        copies_ = &all;
      else if (pair.first == rank)
        outgoing_.push_back({pair.second, &all, {}});
      else if (pair.second == rank)
        incoming_.push_back({pair.first, &all, {}});
    }
  }

  /// Adds the rank's old and new buffers.
  void add_buffers(const DeviceProgram* from, const DeviceProgram* to) {
    if (from != nullptr)
      for (const Buffer& buffer : from->buffers)
        if (program::is_persistent(buffer.kind))
          olds_[buffer.name] = add(buffer, std::string(program::kOldPrefix) + buffer.name);
    std::set<std::string_view> kept;
    kept.insert(found_.kept[rank_.index()].begin(), found_.kept[rank_.index()].end());
    if (to == nullptr) return;
    for (const Buffer& buffer : to->buffers)
      if (program::is_persistent(buffer.kind) && buffer.kind != BufferKind::kConstant &&
          !kept.contains(buffer.name))
        news_[buffer.name] = add(buffer, buffer.name);
  }

  /// Writes rounds as in move.h, packing the next before unpacking this one, to keep links busy.
  DeviceProgram write(const std::string& device) {
    program_.device = device;
    std::size_t rounds = copies_ == nullptr ? 0 : copies_->size();
    for (const auto* all : {&outgoing_, &incoming_})
      for (const Peer& peer : *all) rounds = std::max(rounds, peer.messages->size());
    for (Peer& peer : outgoing_) give(peer, 0);
    for (std::size_t round = 0; round < rounds; ++round) {
      for (Peer& peer : outgoing_) give(peer, round + 1);
      if (copies_ != nullptr && round < copies_->size()) copy((*copies_)[round]);
      for (Peer& peer : incoming_) take_in(peer, round);
    }
    return std::move(program_);
  }

 private:
  struct BoxCopy {
    BufferId target, value;
    program::Box into, from;
  };
  struct Peer {
    Rank rank;
    const MoveMessages* messages = nullptr;
    std::vector<InstructionId> done;  // by message: sent, or unpacked
  };

  BufferId add(Buffer buffer, std::string name) {
    buffer.name = std::move(name);
    program_.buffers.push_back(std::move(buffer));
    return BufferId(program_.buffers.size() - 1);
  }
  BufferId add_flat(const MoveMessage& message) {
    return add({BufferKind::kTemporary, message.dtype, {message.elements}, "", {}, {}}, "");
  }
  InstructionId append(Instruction instruction, const MoveMessage& message) {
    const std::string& first = found_.tensors[message.pieces[0]->tensor].name;
    const std::size_t more = message.pieces.size() - 1;
    instruction.label = more == 0 ? first : fmt::format("{} and {} more", first, more);
    program_.instructions.push_back(std::move(instruction));
    return InstructionId(program_.instructions.size() - 1);
  }
  BufferId old_of(const MovePiece* piece) const {
    return olds_.at(found_.tensors[piece->tensor].held[piece->held].buffer);
  }
  BufferId new_of(const MovePiece* piece) const {
    return news_.at(found_.tensors[piece->tensor].wanted[piece->wanted].buffer);
  }
  /// Returns the instruction that frees the memory for message n.
  static std::vector<InstructionId> room_for(const Peer& peer, std::size_t n) {
    if (n < kMessagesAhead) return {};
    return {peer.done[n - kMessagesAhead]};
  }

  void give(Peer& peer, std::size_t n) {
    if (n >= peer.messages->size()) return;
    const MoveMessage& message = (*peer.messages)[n];
    ArgumentList values, boxes;
    for (const MovePiece* piece : message.pieces) {
      program::Box from = piece->from, flat = flat_box(*piece, 0);
      merge_sides(from, flat);
      values.push_back({old_of(piece)});
      boxes.push_back(program::box_argument(from));
    }
    Instruction take{Lane::kCompute, std::string(program::kTake)};
    take.arguments = {{std::move(values)}, {std::move(boxes)}};
    take.outputs = {add_flat(message)};
    take.waits = room_for(peer, n);
    const BufferId flat = take.outputs[0];
    Instruction send{Lane::kPeer, std::string(program::kSend)};
    send.arguments = {{flat}, {std::int64_t{peer.rank.value}}};
    send.waits = {append(std::move(take), message)};
    send.frees = {flat};
    peer.done.push_back(append(std::move(send), message));
  }

  void take_in(Peer& peer, std::size_t n) {
    if (n >= peer.messages->size()) return;
    const MoveMessage& message = (*peer.messages)[n];
    Instruction receive{Lane::kPeer, std::string(program::kReceive)};
    receive.arguments = {{std::int64_t{peer.rank.value}}};
    receive.outputs = {add_flat(message)};
    receive.waits = room_for(peer, n);
    const BufferId flat = receive.outputs[0];
    std::vector<BoxCopy> copies;
    std::int64_t begin = 0;
    for (const MovePiece* piece : message.pieces) {
      copies.push_back({new_of(piece), flat, piece->into, flat_box(*piece, begin)});
      begin += piece->elements;
    }
    Instruction put = put_of(std::move(copies));
    put.waits = {append(std::move(receive), message)};
    put.frees = {flat};
    peer.done.push_back(append(std::move(put), message));
  }

  void copy(const MoveMessage& message) {
    std::vector<BoxCopy> copies;
    for (const MovePiece* piece : message.pieces)
      copies.push_back({new_of(piece), old_of(piece), piece->into, piece->from});
    append(put_of(std::move(copies)), message);
  }

  static Instruction put_of(std::vector<BoxCopy> copies) {
    ArgumentList targets, places, values, boxes;
    for (BoxCopy& copy : copies) {
      merge_sides(copy.into, copy.from);
      targets.push_back({copy.target});
      places.push_back(program::box_argument(copy.into));
      values.push_back({copy.value});
      boxes.push_back(program::box_argument(copy.from));
    }
    Instruction put{Lane::kCompute, std::string(program::kPut)};
    put.arguments = {
        {std::move(targets)}, {std::move(places)}, {std::move(values)}, {std::move(boxes)}};
    return put;
  }

  /// Returns the box of a piece in a message.
  static program::Box flat_box(const MovePiece& piece, std::int64_t begin) {
    program::Box box = piece.into;
    box.begin = begin;
    std::int64_t stride = 1;
    for (auto side = box.sides.rbegin(); side != box.sides.rend(); ++side) {
      side->stride = stride;
      stride *= side->extent;
    }
    return box;
  }

  const MovePieces& found_;
  const Rank rank_;
  const MoveMessages* copies_ = nullptr;
  std::vector<Peer> outgoing_, incoming_;  // by rank
  DeviceProgram program_;
  std::map<std::string, BufferId> olds_, news_;  // by name
};

std::vector<RankMove> sum_up(const MovePieces& found) {
  std::vector<RankMove> ranks(found.kept.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].kept = found.kept[rank];
    ranks[rank].fresh = found.fresh[rank];
  }
  for (const MovePiece& piece : found.pieces) {
    const Bytes bytes(piece.elements * dtype_size(found.tensors[piece.tensor].dtype));
    if (piece.source == piece.target) {
      ranks[piece.target.index()].copied += bytes;
    } else {
      ranks[piece.source.index()].sent += bytes;
      ranks[piece.target.index()].received += bytes;
    }
  }
  return ranks;
}

}  // namespace

Result<Move> lower_move(const program::Program& from, const program::Program& to,
                        const MoveOptions& options) {
  MOTLEY_ASSIGN(const MovedDevices devices, find_moved_devices(from, to, options));
  MOTLEY_ASSIGN(const MovePieces found, find_move_pieces(from, to, options));
  const MessagesByPair messages = bundle(found, options);
  Move move;
  move.program.model_hash = to.model_hash;
  move.program.plan_hash = to.plan_hash;
  for (std::size_t rank = 0; rank < options.devices.size(); ++rank) {
    RankMoveWriter writer(found, messages, Rank(rank));
    writer.add_buffers(devices.from[rank], devices.to[rank]);
    move.program.devices.push_back(writer.write(options.devices[rank]));
  }
  MOTLEY_RETURN_IF_ERROR(program::verify_program(move.program, "move"));
  move.ranks = sum_up(found);
  return move;
}

}  // namespace motley::synth
