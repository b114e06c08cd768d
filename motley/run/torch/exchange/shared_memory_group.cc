#include "motley/run/torch/exchange/shared_memory_group.h"

#include <ATen/Dispatch.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "motley/base/check.h"
#include "motley/run/futex.h"
#include "motley/run/torch/exchange/clock.h"

namespace motley::run {

namespace {

constexpr std::size_t kMostSlot = 2 << 20;     // bytes; a few of them stay in the last-level cache
constexpr std::size_t kMostMemory = 32 << 20;  // per group; containers often have 64 MiB
constexpr std::size_t kSmall = 16 << 10;
constexpr std::int64_t kLook = 50'000'000;  // ns between checks for lost members
constexpr std::int64_t kSpin = 5'000;       // ns; shorter than a wake-up through the kernel
constexpr int kLine = 64;                   // bytes of a cache line

using Word = FutexWord;

/// Compares counters that may wrap after 2^32 meetings; their differences stay small.
bool has_reached(std::uint32_t count, std::uint32_t wanted) {
  return static_cast<std::int32_t>(count - wanted) >= 0;
}

/// Returns a member's lock of one byte, which the kernel releases at the process's end.
struct flock lock_of(int member, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = member;
  lock.l_len = 1;
  return lock;
}

/// Calls `body` with values of the tensor's element type and of the type to sum it in.
template <typename Body>
void with_types(const at::Tensor& tensor, const Body& body) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "sum", [&] {
    // Sums 16-bit floats in f32: otherwise each term after the first would lose bits.
    using Sum =
        std::conditional_t<sizeof(scalar_t) == 2 && !std::is_integral_v<scalar_t>, float, scalar_t>;
    body(scalar_t{}, Sum{});
  });
}

Counts offsets_of(const Counts& counts) {
  Counts offsets(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  return offsets;
}

bool fits(const at::Tensor& tensor, std::int64_t elements) {
  return tensor.is_cpu() && tensor.is_contiguous() && tensor.numel() == elements;
}

/// Copies the bytes of [begin, end) that lie in `slot`, which holds [window, window + bytes) of a
/// flat value. `out` corresponds to byte `begin`.
void copy_overlap(const std::byte* slot, std::int64_t window, std::int64_t bytes,
                  std::int64_t begin, std::int64_t end, std::byte* out) {
  const std::int64_t from = std::max(begin, window), to = std::min(end, window + bytes);
  if (from < to)
    std::memcpy(out + (from - begin), slot + (from - window), static_cast<std::size_t>(to - from));
}

/// Computes data[i] = sum over the members m of slots[m * stride + i], i in [begin, end).
template <typename T, typename Sum>
void sum_slots(const T* slots, std::size_t stride, int members, std::int64_t begin,
               std::int64_t end, T* data) {
  constexpr std::int64_t kBlock = 1024;  // sums on the stack
  Sum sums[kBlock];
  for (; begin < end; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, end - begin);
    const T* piece = slots + begin;
    for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(piece[i]);
    for (int m = 1; m < members; ++m) {
      piece += stride;
      for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<Sum>(piece[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) data[begin + i] = static_cast<T>(sums[i]);
  }
}

}  // namespace

struct SharedMemoryGroup::Header {
  alignas(kLine) Word arrivals;  ///< of all members at all meetings; waited on
  alignas(kLine) Word closed;    ///< 0, or 2 * (member to blame + 1), + 1 if it was late
};

struct SharedMemoryGroup::Seat {
  alignas(kLine) Word meetings;          ///< that the member reached
  std::atomic<std::int64_t> came_ns[2];  ///< arrivals at its last two operations
};

Result<std::unique_ptr<SharedMemoryGroup>> SharedMemoryGroup::open(const Options& options) {
  const auto members = static_cast<std::size_t>(options.members);
  const std::size_t slot_bytes =
      std::min(kMostSlot, kMostMemory / (2 * members)) & ~std::size_t{4095};
  const std::size_t bytes = sizeof(Header) + members * (sizeof(Seat) + 2 * slot_bytes);
  const int file = ::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  // Reserves space now: a full /dev/shm must be an error here, not a SIGBUS at a later store.
  int fault = file < 0 ? errno : ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* memory = MAP_FAILED;
  if (fault == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fault = errno;
  }
  // OFD locks: a process's own locks are lost when it closes any descriptor of the file.
  struct flock lock = lock_of(options.member, F_WRLCK);
  if (fault == 0 && ::fcntl(file, F_OFD_SETLK, &lock) != 0) fault = errno;
  if (fault != 0) {
    if (memory != MAP_FAILED) ::munmap(memory, bytes);
    if (file >= 0) ::close(file);
    return runtime_error("run.shared-memory",
                         fmt::format("{}: {}", options.path, std::strerror(fault)));
  }
  return std::unique_ptr<SharedMemoryGroup>(
      new SharedMemoryGroup(options, file, static_cast<std::byte*>(memory), slot_bytes));
}

SharedMemoryGroup::SharedMemoryGroup(const Options& options, int file, std::byte* memory,
                                     std::size_t slot_bytes)
    : options_(options), file_(file), memory_(memory), slot_bytes_(slot_bytes) {}

SharedMemoryGroup::~SharedMemoryGroup() {
  const auto members = static_cast<std::size_t>(options_.members);
  ::munmap(memory_, sizeof(Header) + members * (sizeof(Seat) + 2 * slot_bytes_));
  ::close(file_);
}

SharedMemoryGroup::Seat& SharedMemoryGroup::seat(int member) const {
  return reinterpret_cast<Seat*>(memory_ + sizeof(Header))[member];
}

std::byte* SharedMemoryGroup::slot(int member) const {
  const auto members = static_cast<std::size_t>(options_.members);
  // Two sets alternate: a member may write the next piece while others read the last one.
  const std::size_t index = (passes_ % 2) * members + static_cast<std::size_t>(member);
  return memory_ + sizeof(Header) + members * sizeof(Seat) + index * slot_bytes_;
}

void SharedMemoryGroup::begin_operation() {
  ++operations_;
  seat(options_.member).came_ns[operations_ % 2].store(monotonic_ns(), std::memory_order_release);
}

tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::all_reduce(at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_cpu() && tensor.is_contiguous());
  begin_operation();
  tl::expected<void, Failure> result;
  with_types(tensor, [&](auto element, auto sum) {
    using T = decltype(element);
    result = reduce<T, decltype(sum)>(tensor.mutable_data_ptr<T>(), tensor.numel());
  });
  return result;
}

tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::all_gather(const Counts& counts,
                                                                             const at::Tensor& part,
                                                                             at::Tensor& all) {
  const auto own = static_cast<std::size_t>(options_.member);
  MOTLEY_CHECK(counts.size() == static_cast<std::size_t>(options_.members));
  const Counts offsets = offsets_of(counts);
  MOTLEY_CHECK(fits(part, counts[own]) && fits(all, offsets.back()) &&
               part.scalar_type() == all.scalar_type());
  begin_operation();
  const auto size = static_cast<std::int64_t>(all.element_size());
  const auto window = static_cast<std::int64_t>(slot_bytes_);
  const std::int64_t most = *std::max_element(counts.begin(), counts.end()) * size;
  const auto* data = static_cast<const std::byte*>(part.const_data_ptr());
  auto* out = static_cast<std::byte*>(all.mutable_data_ptr());
  for (std::int64_t begin = 0; begin < most; begin += window) {
    ++passes_;
    const auto bytes_of = [&](std::size_t member) {
      return static_cast<std::size_t>(
          std::clamp(counts[member] * size - begin, std::int64_t{0}, window));
    };
    if (bytes_of(own) > 0) std::memcpy(slot(options_.member), data + begin, bytes_of(own));
    if (auto met = meet(); !met) return met;
    for (std::size_t member = 0; member < counts.size(); ++member)
      if (bytes_of(member) > 0)
        std::memcpy(out + offsets[member] * size + begin, slot(static_cast<int>(member)),
                    bytes_of(member));
  }
  return {};
}

tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::reduce_scatter(
    const Counts& counts, const at::Tensor& all, at::Tensor& part) {
  const auto own = static_cast<std::size_t>(options_.member);
  MOTLEY_CHECK(counts.size() == static_cast<std::size_t>(options_.members));
  MOTLEY_CHECK(fits(part, counts[own]) && fits(all, offsets_of(counts).back()) &&
               part.scalar_type() == all.scalar_type());
  begin_operation();
  tl::expected<void, Failure> result;
  with_types(all, [&](auto element, auto sum) {
    using T = decltype(element);
    result = scatter<T, decltype(sum)>(counts, all.const_data_ptr<T>(), part.mutable_data_ptr<T>());
  });
  return result;
}

template <typename T, typename Sum>
tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::scatter(const Counts& counts,
                                                                          const T* data, T* part) {
  const std::size_t members = counts.size(), own = static_cast<std::size_t>(options_.member);
  const Counts offsets = offsets_of(counts);
  const std::size_t stride = slot_bytes_ / sizeof(T);
  // Rounding up gives each part at most one element more than its share.
  const auto room = static_cast<std::int64_t>(stride - members);
  const std::int64_t passes = (offsets.back() + room - 1) / room;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    ++passes_;
    T* mine = reinterpret_cast<T*>(slot(options_.member));
    const T* first = reinterpret_cast<const T*>(slot(0));
    std::int64_t begin = 0, length = 0;  // range that this member sums
    for (std::size_t member = 0; member < members; ++member) {
      const std::int64_t share = (counts[member] + passes - 1) / passes;
      const std::int64_t from = std::min(counts[member], pass * share);
      const std::int64_t count = std::min(counts[member], from + share) - from;
      if (count > 0)
        std::memcpy(mine, data + offsets[member] + from,
                    static_cast<std::size_t>(count) * sizeof(T));
      if (member == own) {
        begin = from;
        length = count;
        first += mine - reinterpret_cast<const T*>(slot(options_.member));
      }
      mine += count;
    }
    if (auto met = meet(); !met) return met;
    sum_slots<T, Sum>(first, stride, options_.members, 0, length, part + begin);
  }
  return {};
}

tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::all_to_all(const Splits& splits,
                                                                             const at::Tensor& in,
                                                                             at::Tensor& out) {
  const std::size_t members = splits.sends.size(), own = static_cast<std::size_t>(options_.member);
  MOTLEY_CHECK(members == static_cast<std::size_t>(options_.members) &&
               splits.receives.size() == members && splits.sends[own] == splits.receives[own]);
  const Counts starts = offsets_of(splits.sends), places = offsets_of(splits.receives);
  MOTLEY_CHECK(fits(in, starts.back()) && fits(out, places.back()) &&
               in.scalar_type() == out.scalar_type());
  begin_operation();
  const auto size = static_cast<std::int64_t>(in.element_size());
  const std::size_t table = (members + 1) * sizeof(std::int64_t);
  const auto window = static_cast<std::int64_t>((slot_bytes_ - table) & ~std::size_t{kLine - 1});
  const auto* data = static_cast<const std::byte*>(in.const_data_ptr());
  auto* target = static_cast<std::byte*>(out.mutable_data_ptr());
  std::int64_t most = 1;  // the most bytes that any member sends; known after the first pass
  for (std::int64_t begin = 0; begin < most; begin += window) {
    ++passes_;
    std::byte* mine = slot(options_.member);
    std::memcpy(mine, starts.data(), table);
    const std::int64_t bytes = std::clamp(starts.back() * size - begin, std::int64_t{0}, window);
    if (bytes > 0) std::memcpy(mine + table, data + begin, static_cast<std::size_t>(bytes));
    if (auto met = meet(); !met) return met;
    for (std::size_t member = 0; member < members; ++member) {
      const std::byte* theirs = slot(static_cast<int>(member));
      Counts offsets(members + 1);
      std::memcpy(offsets.data(), theirs, table);
      most = std::max(most, offsets.back() * size);
      MOTLEY_CHECK(offsets[own + 1] - offsets[own] == splits.receives[member]);
      copy_overlap(theirs + table, begin, window, offsets[own] * size, offsets[own + 1] * size,
                   target + places[member] * size);
    }
  }
  return {};
}

template <typename T, typename Sum>
tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::reduce(T* data,
                                                                         std::int64_t count) {
  const auto most = static_cast<std::int64_t>(slot_bytes_ / sizeof(T));
  for (std::int64_t begin = 0; begin < count; begin += most) {
    auto piece = reduce_piece<T, Sum>(data + begin, std::min(most, count - begin));
    if (!piece) return piece;
  }
  return {};
}

template <typename T, typename Sum>
tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::reduce_piece(T* data,
                                                                               std::int64_t count) {
  ++passes_;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  const std::size_t stride = slot_bytes_ / sizeof(T);
  std::memcpy(slot(options_.member), data, bytes);
  if (auto met = meet(); !met) return met;
  T* slots = reinterpret_cast<T*>(slot(0));
  // Every member computes a small sum itself: cheaper than another meeting.
  if (bytes <= kSmall) {
    sum_slots<T, Sum>(slots, stride, options_.members, 0, count, data);
    return {};
  }
  const auto line = static_cast<std::int64_t>(kLine / sizeof(T));
  const std::int64_t part = (count / options_.members + line) / line * line;
  const std::int64_t begin = std::min(count, part * options_.member);
  sum_slots<T, Sum>(slots, stride, options_.members, begin, std::min(count, begin + part), slots);
  if (auto met = meet(); !met) return met;
  std::memcpy(data, slots, bytes);
  return {};
}

/// Waits until all members have reached this one's next meeting.
tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::meet() {
  Header& header = *reinterpret_cast<Header*>(memory_);
  ++meetings_;
  seat(options_.member).meetings.store(meetings_, std::memory_order_release);
  const auto members = static_cast<std::uint32_t>(options_.members);
  const std::uint32_t wanted = meetings_ * members;
  if (header.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == wanted) {
    futex_wake_all(header.arrivals);
    return find_lost();
  }
  const std::int64_t begin = monotonic_ns();
  const auto timeout = static_cast<std::int64_t>(options_.timeout.value * 1e9);
  std::int64_t waited = 0;
  for (;;) {
    const std::uint32_t count = header.arrivals.load(std::memory_order_acquire);
    if (has_reached(count, wanted)) return {};
    if (auto here = find_lost(); !here) return here;
    // Members with equal parts arrive within microseconds; the kernel is used only later.
    if (waited >= kSpin) {
      if (waited >= timeout) return fail({Failure::Kind::kLate, first_missing()});
      futex_wait(header.arrivals, count, std::min(kLook, timeout - waited));
      if (const int missing = first_missing(); missing >= 0 && !is_alive(missing))
        return fail({Failure::Kind::kLost, missing});
    }
    waited = monotonic_ns() - begin;
  }
}

/// Returns an error, the same on all members, if the group was closed.
tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::find_lost() const {
  const Header& header = *reinterpret_cast<const Header*>(memory_);
  const std::uint32_t word = header.closed.load(std::memory_order_acquire);
  if (word == 0) return {};
  Failure failure{word % 2 == 0 ? Failure::Kind::kLost : Failure::Kind::kLate,
                  static_cast<int>(word / 2) - 1};
  if (failure.member == options_.member) failure.member = -1;
  return tl::make_unexpected(failure);
}

/// Closes the group. All members report the first reason.
tl::expected<void, SharedMemoryGroup::Failure> SharedMemoryGroup::fail(Failure failure) {
  Header& header = *reinterpret_cast<Header*>(memory_);
  std::uint32_t open = 0;
  const std::uint32_t late = failure.kind == Failure::Kind::kLate ? 1 : 0;
  // The first reason stays: later ones are its consequences.
  header.closed.compare_exchange_strong(
      open, 2 * (static_cast<std::uint32_t>(failure.member) + 1) + late);
  futex_wake_all(header.arrivals);
  return find_lost();
}

/// Returns the first member that has not reached this one's meeting; -1: all have.
int SharedMemoryGroup::first_missing() const {
  for (int member = 0; member < options_.members; ++member)
    if (!has_reached(seat(member).meetings.load(std::memory_order_acquire), meetings_))
      return member;
  return -1;
}

bool SharedMemoryGroup::is_alive(int member) const {
  struct flock lock = lock_of(member, F_WRLCK);
  return ::fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::int64_t SharedMemoryGroup::last_arrival_ns() const {
  std::int64_t last = 0;
  for (int member = 0; member < options_.members; ++member)
    last = std::max(last, seat(member).came_ns[operations_ % 2].load(std::memory_order_acquire));
  return last;
}

void SharedMemoryGroup::close() { (void)fail({Failure::Kind::kLost, options_.member}); }

}  // namespace motley::run
