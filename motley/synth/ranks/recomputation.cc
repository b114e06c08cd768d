#include "motley/synth/ranks/recomputation.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/graph/draws.h"
#include "motley/graph/edit.h"

namespace motley::synth {
namespace {

using graph::Op;

/// Counts the elements of a value; none if its size depends on samples.
std::optional<std::int64_t> count_elements(const graph::Value& value) {
  std::int64_t elements = 1;
  for (const graph::SizeExpr& size : value.shape) {
    if (!size.is_constant()) return std::nullopt;
    elements *= size.evaluate_integer({});
  }
  return elements;
}

class Recomputation {
 public:
  Recomputation(Accumulation& accumulation, const Recomputed& recomputed)
      : from_(accumulation),
        recomputed_(recomputed),
        graph_(accumulation.graph),
        values_(graph_.values.size()),
        is_marked_(graph_.ops.size(), 0) {
    for (std::size_t i = from_.early; i < from_.late; ++i) is_marked_[i] = is_done_again(i) ? 1 : 0;
    for (const std::vector<GatheredAgain>& regions : recomputed.gathered)
      for (const GatheredAgain& region : regions)
        gathers_again_ = gathers_again_ || !region.parameters.empty();
    if (gathers_again_) find_made_of_parameters();
  }

  /// Values keep the numbers of their original operators until all are there in order.
  void run() {
    ops_ = std::exchange(graph_.ops, {});
    copies_ = std::exchange(from_.copies, {});
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      Op op = ops_[i];
      const Reader reader = reader_of(i);
      // Values made of parameters are made anew for each pass; the first is for any other reader.
      const bool is_made_anew = !op.outputs.empty() && is_gathered(op.outputs[0], reader);
      const bool may_want =
          reader.region != nullptr || reader.pass.direction == graph::Direction::kBackward;
      if (may_want && !is_made_anew) {
        make_wanted(i, reader);
        map_operands(op, reader);
      }
      add(std::move(op), copies_[i], behind(i));
    }
    put_in_order();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      for (const ValueId output : graph_.ops[i].outputs)
        graph_.values[output.index()].producer = OpId(i);
  }

 private:
  /// The pass of a micro-batch in which an operator reads.
  struct Pass {
    std::int64_t micro_batch = -1;
    graph::Direction direction = graph::Direction::kForward;
    auto operator<=>(const Pass&) const = default;
  };
  struct Reader {
    Pass pass;
    const GatheredAgain* region = nullptr;  ///< what its region gathers again; null: nothing
  };

  bool is_done_again(std::size_t op) const {
    const Copy& copy = from_.copies[op];
    // Values shared by micro-batches are kept for the next one.
    const bool is_shared = from_.micro_batches > 1 && copy.samples == graph::kWholeForm;
    if (copy.of.is_none() || copy.micro_batch < 0 || is_shared ||
        graph_.ops[op].direction != graph::Direction::kForward)
      return false;
    return covers(recomputed_.operators[replica_of(copy.micro_batch)], copy.of);
  }

  std::size_t replica_of(std::int64_t micro_batch) const {
    return recomputed_.replica_of[static_cast<std::size_t>(micro_batch)];
  }

  static bool covers(const std::vector<plan::OpRange>& ranges, OpId op) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const plan::OpRange& range) {
      return range.first <= op.value && op.value < range.end;
    });
  }

  /// Finds values made of parameters alone by deterministic operators whose results are as large.
  void find_made_of_parameters() {
    is_of_parameters_.assign(graph_.values.size(), 0);
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      is_of_parameters_[v] = graph_.values[v].role == graph::ValueRole::kParameter ? 1 : 0;
    for (const Op& op : graph_.ops) {
      std::int64_t largest = 0;
      bool all = !graph::is_draw(op) && !op.outputs.empty();
      graph::for_each_value(op.arguments, [&](ValueId value) {
        all = all && is_of_parameters_[value.index()] != 0;
        if (all) largest = std::max(largest, count_elements(graph_.value(value)).value_or(0));
      });
      const auto made =
          all ? count_elements(graph_.value(op.outputs[0])) : std::optional<std::int64_t>();
      if (largest == 0 || !made || *made < largest) continue;
      for (const ValueId output : op.outputs) is_of_parameters_[output.index()] = 1;
    }
  }

  /// The reader that an original operator is.
  Reader reader_of(std::size_t op) const {
    const Copy& copy = copies_[op];
    Reader reader{{copy.micro_batch, ops_[op].direction}};
    const bool is_between = from_.early <= op && op < from_.late;
    if (!gathers_again_ || copy.micro_batch < 0 || !is_between) return reader;
    const OpId of = copy.of.is_none() ? copy.beside : copy.of;
    for (const GatheredAgain& region : recomputed_.gathered[replica_of(copy.micro_batch)])
      if (region.covers.empty() || (!of.is_none() && covers(region.covers, of)))
        reader.region = &region;
    return reader;
  }

  /// Is it a parameter that the reader's region gathers again, or made of one there?
  bool is_gathered(ValueId value, const Reader& reader) const {
    if (reader.region == nullptr || value.index() >= is_of_parameters_.size() ||
        is_of_parameters_[value.index()] == 0)
      return false;
    const graph::Value& about = graph_.value(value);
    if (about.producer.is_none()) return reader.region->parameters.contains(about.name);
    const Copy& copy = copies_[about.producer.index()];
    if (copy.of.is_none() ||
        !(reader.region->covers.empty() || covers(reader.region->covers, copy.of)))
      return false;
    bool is_of_one = false;
    graph::for_each_value(ops_[about.producer.index()].arguments, [&](ValueId operand) {
      is_of_one = is_of_one || is_gathered(operand, reader);
    });
    return is_of_one;
  }

  /// Returns the pass in which the reader's value is made again; none if it reads the kept one.
  std::optional<Pass> pass_of(ValueId value, const Reader& reader) const {
    if (value.index() >= values_) return std::nullopt;
    if (is_gathered(value, reader)) return reader.pass;
    const OpId producer = graph_.value(value).producer;
    if (producer.is_none() || is_marked_[producer.index()] == 0 ||
        reader.pass.direction != graph::Direction::kBackward)
      return std::nullopt;
    return Pass{copies_[producer.index()].micro_batch, graph::Direction::kBackward};
  }

  /// Makes again what the operator reads and does not exist yet, in the original order, before it.
  /// What is made of parameters goes before the previous operator that wanted such values, so that
  /// an exchange for it is hidden.
  void make_wanted(std::size_t op, const Reader& reader) {
    std::map<std::size_t, Reader> wanted;  // by original operator
    std::vector<std::pair<const Op*, Reader>> readers{{&ops_[op], reader}};
    while (!readers.empty()) {
      const auto [next, at] = readers.back();
      readers.pop_back();
      graph::for_each_value(next->arguments, [&, reads = at](ValueId value) {
        const auto pass = pass_of(value, reads);
        if (!pass || again_.contains({value, *pass})) return;
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none()) return add_source(value, *pass);
        const Reader makes{*pass, reads.region};
        if (wanted.emplace(producer.index(), makes).second)
          readers.emplace_back(&ops_[producer.index()], makes);
      });
    }
    std::size_t ahead = op;
    bool is_ahead = false;
    for (const auto& [again, makes] : wanted) {
      const bool is_of_parameters = is_gathered(ops_[again].outputs[0], makes);
      if (is_of_parameters && !std::exchange(is_ahead, true))
        ahead = std::exchange(
            last_wanted_.try_emplace({reader.pass, reader.region}, op).first->second, op);
      add_copy(again, makes, in_front_of(is_of_parameters ? ahead : op));
    }
  }

  void add_source(ValueId parameter, const Pass& pass) {
    const ValueId made = graph::add_value(graph_, graph_.value(parameter));
    again_[{parameter, pass}] = made;
    from_.again.emplace_back(made, parameter);
  }

  void add_copy(std::size_t op, const Reader& reader, std::size_t place) {
    Op again = ops_[op];
    Copy copy = copies_[op];
    again.direction = reader.pass.direction;
    if (is_gathered(again.outputs[0], reader)) {
      copy.micro_batch = reader.pass.micro_batch;
      copy.is_gathered_again = true;
    }
    map_operands(again, reader);
    for (ValueId& output : again.outputs)
      output = again_[{output, reader.pass}] = graph::add_value(graph_, graph_.value(output));
    add(std::move(again), copy, place);
  }

  void map_operands(Op& op, const Reader& reader) const {
    graph::map_values(op.arguments, [&](ValueId value) {
      const auto pass = pass_of(value, reader);
      return pass ? again_.at({value, *pass}) : value;
    });
  }

  // Positions, ascending: of copies before an original operator, and its own.
  static std::size_t in_front_of(std::size_t op) { return 2 * op; }
  static std::size_t behind(std::size_t op) { return 2 * op + 1; }

  void add(Op op, const Copy& copy, std::size_t place) {
    graph_.ops.push_back(std::move(op));
    from_.copies.push_back(copy);
    places_.push_back(place);
  }

  void put_in_order() {
    std::vector<std::size_t> order(places_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return places_[a] < places_[b]; });
    std::vector<Op> ops = std::exchange(graph_.ops, {});
    std::vector<Copy> copies = std::exchange(from_.copies, {});
    std::size_t early = 0, late = 0;
    for (const std::size_t each : order) {
      if (places_[each] < in_front_of(from_.early)) ++early;
      if (places_[each] < in_front_of(from_.late)) ++late;
      graph_.ops.push_back(std::move(ops[each]));
      from_.copies.push_back(copies[each]);
    }
    from_.early = early;
    from_.late = late;
  }

  Accumulation& from_;
  const Recomputed& recomputed_;
  graph::Graph& graph_;
  const std::size_t values_;            // number of original values
  std::vector<Op> ops_;                 // original operators
  std::vector<Copy> copies_;            // of original operators
  std::vector<char> is_marked_;         // by original operator: recomputed in backward passes
  bool gathers_again_ = false;          // whether any parameter is gathered again
  std::vector<char> is_of_parameters_;  // by original value: find_made_of_parameters
  std::map<std::pair<ValueId, Pass>, ValueId> again_;  // by original value
  std::vector<std::size_t> places_;                    // by added operator
  /// By pass and region: the original operator that last wanted values made of parameters.
  std::map<std::pair<Pass, const GatheredAgain*>, std::size_t> last_wanted_;
};

bool is_nothing(const Recomputed& recomputed) {
  return std::all_of(recomputed.operators.begin(), recomputed.operators.end(),
                     [](const std::vector<plan::OpRange>& ranges) { return ranges.empty(); }) &&
         std::all_of(recomputed.gathered.begin(), recomputed.gathered.end(),
                     [](const std::vector<GatheredAgain>& regions) {
                       return std::all_of(
                           regions.begin(), regions.end(),
                           [](const GatheredAgain& region) { return region.parameters.empty(); });
                     });
}

}  // namespace

Accumulation recompute(Accumulation accumulation, const Recomputed& recomputed) {
  if (is_nothing(recomputed)) return accumulation;
  Recomputation(accumulation, recomputed).run();
  return accumulation;
}

}  // namespace motley::synth
