#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "motley/cost/links/transfer.h"
#include "motley/trace/trace.h"

namespace motley::simulate {

/// Links shared by flows with max-min fairness: raising any flow's rate would lower that of a flow
/// that is not faster (progressive filling; Bertsekas and Gallager, Data Networks, 6.5.2). A flow
/// at rate r takes weight * r of each link it uses, and r is at most most_rate. Rates change only
/// when a flow starts or ends. Deterministic: ties break by order of start.
///
/// Example: a link of 10 B/s, flows of 20 and 40 bytes from time 0: 5 B/s each until 4 s; then the
/// second moves its last 20 bytes at 10 B/s and ends at 6 s.
///
/// Cost of a start or an end: u log u, with u the uses of all flows connected to it by shared
/// links. Events at one time are settled once, when next_end() is called. Memory: a constant for
/// each link and for each use of the most flows in flight at a time.
class FlowNetwork {
 public:
  static constexpr trace::Nanoseconds kNever = INT64_MAX;

  /// `capacities`: of each link in bytes/s, all > 0.
  explicit FlowNetwork(std::vector<double> capacities);

  /// Starts a flow at `now`, not before any earlier call's time nor after next_end(). Bytes and
  /// most_rate are finite and >= 0, weights > 0; a link may be named more than once. Returns the
  /// flow's number, reused after its end. Flows without a shared link do not affect each other.
  std::int32_t start(trace::Nanoseconds now, const cost::Flow& flow);
  /// Returns when the first flow in flight ends, rounded up to a nanosecond (an excess below 0.001
  /// ns is rounding noise); kNever if there is none. A flow without bytes, or without both links
  /// and most_rate, ends when it starts; one that would take 292 years does not end.
  trace::Nanoseconds next_end();
  /// Ends the flows that finish at next_end() and appends their numbers in order of start.
  void end_next(std::vector<std::int32_t>& ended);
  /// Returns the rate of a flow in flight from now on, in bytes/s.
  double rate(std::int32_t flow);

 private:
  struct Use {
    std::int32_t link;
    std::int32_t place;  // in Link::members
    double weight;
  };
  struct Flow {
    double remaining = 0;  // bytes, at `since`
    double rate = 0;
    double most_rate = 0;
    double next_rate = 0;  // during fill(); < 0: unknown
    trace::Nanoseconds since = 0, end = kNever;
    std::int64_t order = -1;  // of start; -1: not in flight
    std::int64_t visit = 0;
    std::vector<Use> uses;
  };
  struct Member {
    std::int32_t flow;
    std::int32_t use;  // in Flow::uses
  };
  struct Link {
    double capacity = 0;
    double left = 0, weight = 0;  // of and for the members with unknown rate
    std::int32_t unknown = 0;     // their number
    std::int64_t visit = 0;
    std::vector<Member> members;
  };
  struct End {
    trace::Nanoseconds time;
    std::int64_t order;
    std::int32_t flow;
    bool operator==(const End&) const = default;
  };
  struct Limit {
    double rate;
    std::int32_t place;  // a link, or -1 - flow for a flow's most_rate
  };

  void settle();
  void visit_link(std::int32_t link);
  void visit_flow(std::int32_t flow);
  void collect();
  void fill();
  void fix_rate(std::int32_t flow, double rate);
  void apply_rate(Flow& flow, std::int32_t number);
  void push_end(std::int32_t flow);
  bool is_stale(const End& end) const;
  void drop_stale_ends();
  void remove(std::int32_t flow);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<std::int32_t> free_;  // numbers to reuse
  std::vector<End> ends_;           // heap, earliest first; some stale
  trace::Nanoseconds now_ = 0;
  std::int64_t started_ = 0, visits_ = 0;
  std::size_t under_way_ = 0;
  // Changed at now_ and not settled yet; then everything reached from there.
  std::vector<std::int32_t> reached_links_, reached_flows_;
  std::vector<Limit> limits_;
};

}  // namespace motley::simulate
