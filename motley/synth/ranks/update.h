#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/plan/recipe.h"
#include "motley/synth/step/rank_step.h"

namespace motley::synth {

/// Writes the end of a rank's step: gradients become new parameters according to the recipe
/// (plan/recipe.h), one bucket at a time unless all gradients are needed first:
///
///  factor      over all gradients: limits their norm and removes the loss scale; if one is not
///              finite, everything stays as it is
///  update      elementwise optimizers: parameters and states in one instruction
///  direction, orthogonalize, apply    optimizers that read a parameter as a whole; if devices
///              have parts of it, norms are summed over them, and muon and adafactor gather what
///              they read
///  assign, average    the 16-bit copy of a master, the exponential average
///
/// Devices update the parts of sharded parameters that they have. Each device updates parameters
/// that all have whole. If devices are of different kinds (plan::Updates), one device provides
/// norms, adafactor's states and directions, and muon's directions, at one more exchange each.
class Update {
 public:
  /// Local rows of a parameter that other devices also have. States are kept of these rows alone,
  /// and only they are updated here; other devices provide the rest.
  struct OwnRows {
    graph::Slab slab;                             ///< of the whole parameter
    std::int64_t here_begin = 0, here_count = 0;  ///< local range of its extent
    std::int64_t begin = 0, count = 0;            ///< own rows of these; maybe 0
    bool are_all() const { return count == here_count; }
    std::int64_t elements() const { return slab.before * count * slab.after; }
  };

  /// The step must outlive it.
  explicit Update(RankStep& rank) : rank_(rank), recipe_(rank.step().options.recipe) {}
  /// Can states be kept of some rows alone, since updates are elementwise?
  bool may_share(ValueId parameter) const;
  /// Sets the own rows, before `begin`; default: all local rows.
  void own(ValueId parameter, const OwnRows& rows) { own_[parameter] = rows; }
  /// Adds the state that is kept between steps; call when trained parameters have buffers.
  void begin();

  /// Makes the derivative of the loss by itself: 1, or the loss scale.
  BufferId make_tangent(DType dtype);
  /// Returns the own rows after the last update; the parameter itself if all local rows are own.
  /// Valid once the update is written.
  BufferId updated(ValueId parameter) const;
  /// Adds a gradient in its parameter's form, of the own rows only.
  void add(ValueId parameter, BufferId gradient) { gradients_.push_back({parameter, gradient}); }
  /// Writes all possible updates for gradients added since the last call.
  void write(const std::string& label);
  void finish();
  /// Finishes when others have gradients, too: `squares` is the sum of the squares of all.
  void finish(BufferId squares);
  /// Finishes when another update of the device has written the factor.
  void finish(const Update& other);
  /// Norm of all gradients, f64 [1]; none if not needed. Valid after finish().
  BufferId norm() const { return norm_; }

 private:
  struct Kept {
    plan::Optimizer optimizer;
    BufferId parameter;  ///< what is updated: the parameter or its master
    BufferId copy;       ///< of a master: the parameter
    BufferId state1, state2, average;
    BufferId piece;  ///< own rows of the parameter during the update
    bool is_part = false;
  };
  struct Gradient {
    ValueId parameter;
    BufferId gradient;
  };
  struct Batch {
    plan::Optimizer optimizer;
    bool is_part = false;
    std::vector<ValueId> values;
    std::vector<BufferId> parameters, gradients, state1, state2;
  };

  /// Returns the own rows if they are not all local rows; null otherwise.
  const OwnRows* own_rows(ValueId parameter) const;
  /// Replaces the parameter by its own rows before they are updated.
  void take_own_rows(ValueId parameter, const std::string& label);
  Kept keep(ValueId parameter);
  /// Adds a state named after the parameter, with a suffix.
  BufferId add_state(ValueId parameter, std::string_view suffix, DType dtype,
                     plan::StateSpec::Shape shape);
  std::vector<BufferId> sum_own_squares();
  void write_factor(const std::vector<BufferId>& squares);
  void write_waiting();
  /// Whether devices have tensors whole or in parts.
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
