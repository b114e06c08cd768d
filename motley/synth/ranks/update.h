#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/plan/recipe.h"
#include "motley/synth/step/rank_step.h"

namespace motley::synth {

/// What comes behind a rank's backward pass: gradients become new parameters, as the recipe says
/// (plan/recipe.h). A bucket of them at a time, unless all must be there first:
///
///   factor      of all gradients: their norm is limited, the loss's scale taken back; one that is
///               not finite leaves everything as it is
///   update      elementwise optimizers: parameters and states in one instruction
///   direction, orthogonalize, apply    those that look at a parameter as a whole; where devices
///               have parts of it, norms are summed over them, and muon and adafactor gather what
///               they look at
///   assign, average    the 16-bit copy of a master, the exponential average
///
/// Parameters that are kept in parts are updated in parts, by the devices that have them. Those
/// that all devices have whole are updated by each; where these are unlike (plan::Updates), norms,
/// the states and directions of adafactor and muon's directions are those of one device, by one
/// more exchange each.
class Update {
 public:
  /// Rows of what is here of a parameter that other devices have, too. States are kept of them
  /// alone, and they alone are updated here; the others come from those who update them.
  struct OwnRows {
    graph::Slab slab;                             ///< of the whole parameter
    std::int64_t here_begin = 0, here_count = 0;  ///< what is here of its extent
    std::int64_t begin = 0, count = 0;            ///< of these the own rows; maybe 0
    bool are_all() const { return count == here_count; }
    std::int64_t elements() const { return slab.before * count * slab.after; }
  };

  /// The step must outlive it.
  explicit Update(RankStep& rank) : rank_(rank), recipe_(rank.step().options.recipe) {}
  /// Can states of the parameter be kept of some rows alone, is it updated element by element?
  bool may_share(ValueId parameter) const;
  /// Says which rows are the own ones, before `begin`; else all that is here.
  void own(ValueId parameter, const OwnRows& rows) { own_[parameter] = rows; }
  /// Adds what is kept from step to step of trained parameters; call when these have buffers.
  void begin();

  /// The derivative of the loss by itself: 1, or the loss's scale.
  BufferId make_tangent(DType dtype);
  /// The own rows as the last update left them: of all that is here the parameter itself. Valid
  /// when that is written.
  BufferId updated(ValueId parameter) const;
  /// A gradient in the form in which its parameter is kept, of own rows as they are.
  void add(ValueId parameter, BufferId gradient) { gradients_.push_back({parameter, gradient}); }
  /// Writes what can be done with the gradients that were added since the last call.
  void write(const std::string& label);
  /// Writes the rest.
  void finish();
  /// The same where others have gradients, too: `squares` is the sum of the squares of all.
  void finish(BufferId squares);
  /// The same where another update of the device has written the factor.
  void finish(const Update& other);
  /// Norm of all gradients, f64 [1]; none: nobody asks for it. Valid after finish().
  BufferId norm() const { return norm_; }

 private:
  /// What belongs to a trained parameter here.
  struct Kept {
    plan::Optimizer optimizer;
    BufferId parameter;  ///< what is updated: the parameter or its master
    BufferId copy;       ///< of a master: the parameter
    BufferId state1, state2, average;
    BufferId piece;  ///< own rows of the parameter while they are updated
    bool is_part = false;
  };
  struct Gradient {
    ValueId parameter;
    BufferId gradient;
  };
  /// Parameters that one instruction updates.
  struct Batch {
    plan::Optimizer optimizer;
    bool is_part = false;
    std::vector<ValueId> values;
    std::vector<BufferId> parameters, gradients, state1, state2;
  };

  /// Own rows that are not all that is here; null: it is all.
  const OwnRows* own_rows(ValueId parameter) const;
  /// The parameter's own rows, before they are updated, in the place of the parameter.
  void take_own_rows(ValueId parameter, const std::string& label);
  Kept keep(ValueId parameter);
  /// A state that is called as the parameter with a suffix.
  BufferId add_state(ValueId parameter, std::string_view suffix, DType dtype,
                     plan::StateSpec::Shape shape);
  std::vector<BufferId> sum_own_squares();
  void write_factor(const std::vector<BufferId>& squares);
  void write_waiting();
  /// What devices have of tensors: all of each, or their parts.
  enum class Extent { kWhole, kParts };
  BufferId sum_squares(const std::vector<BufferId>& tensors, Extent extent,
                       const std::string& label);
  void write_updates(const std::vector<Gradient>& gradients, const std::string& label);
  std::vector<Batch> make_batches(const std::vector<Gradient>& gradients) const;
  void write_batch(const Batch& batch, const std::string& label);
  void apply_directions(const Batch& batch, std::vector<BufferId> directions,
                        const std::string& label);
  void sum_together(std::vector<BufferId>& terms, const std::string& label);
  void share_states(const Batch& batch, std::vector<BufferId>& directions,
                    const std::string& label);
  void gather_whole(const Batch& batch, std::vector<BufferId>& parts, const std::string& label);
  void take_parts(const Batch& batch, std::vector<BufferId>& wholes, const std::string& label);
  void write_copies(const std::vector<Gradient>& gradients, const std::string& label);

  RankStep& rank_;
  const plan::Recipe& recipe_;
  std::vector<Kept> kept_;  // by value
  std::map<ValueId, OwnRows> own_;
  BufferId scaling_, factor_, norm_;
  std::vector<Gradient> gradients_;  // since the last write
  std::vector<std::pair<std::string, std::vector<Gradient>>> waiting_;
};

}  // namespace motley::synth
