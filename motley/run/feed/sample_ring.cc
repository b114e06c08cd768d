#include "motley/run/feed/sample_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "motley/base/text.h"

namespace motley::run {
namespace {

constexpr std::size_t kLongestMessage = 4000;
constexpr std::size_t kPage = 4096;
constexpr int kCacheLine = 64;

tl::unexpected<Error> ring_error(const std::string& what) {
  return runtime_error("run.feed", fmt::format("{}: {}", what, std::strerror(errno)));
}

std::size_t in_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

struct SampleRing::Header {
  std::int64_t slots, slot_bytes, data_offset;
  int released_write;  ///< the leader's descriptor
  alignas(kCacheLine) FutexWord published;
  alignas(kCacheLine) FutexWord has_failed;
  char message[kLongestMessage + 1];
};

struct SampleRing::Slot {
  alignas(kCacheLine) FutexWord filled;
  std::atomic<std::uint32_t> released, readers;
};

SampleRing::Header& SampleRing::header() const { return *reinterpret_cast<Header*>(memory_); }

SampleRing::Slot& SampleRing::slot(std::int64_t item) const {
  auto* slots = reinterpret_cast<Slot*>(memory_ + in_pages(sizeof(Header)));
  return slots[item % header().slots];
}

Result<std::unique_ptr<SampleRing>> SampleRing::create(std::int64_t slots,
                                                       std::int64_t slot_bytes) {
  const std::size_t data =
      in_pages(in_pages(sizeof(Header)) + static_cast<std::size_t>(slots) * sizeof(Slot));
  const std::size_t bytes =
      in_pages(data + static_cast<std::size_t>(slots) * static_cast<std::size_t>(slot_bytes));
  Descriptor file(::memfd_create("motley-samples", MFD_CLOEXEC));
  // Zeros: no slot is filled and none is awaited.
  if (!file.is_open() || ::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0)
    return ring_error(
        fmt::format("memory for {} samples of {}", slots, format_bytes(Bytes(slot_bytes))));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) return ring_error("memory for samples");
  std::unique_ptr<SampleRing> ring(
      new SampleRing(std::move(file), static_cast<std::byte*>(memory), bytes));
  MOTLEY_ASSIGN(ring->released_, make_pipe());
  for (const int end : {ring->released_.read.number(), ring->released_.write.number()})
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  Header& header = ring->header();
  header.slots = slots;
  header.slot_bytes = slot_bytes;
  header.data_offset = static_cast<std::int64_t>(data);
  header.released_write = ring->released_.write.number();
  return ring;
}

Result<std::unique_ptr<SampleRing>> SampleRing::open(const std::string& address) {
  const std::string path = address.substr(0, address.rfind(' '));
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat about {};
  if (!file.is_open() || ::fstat(file.number(), &about) != 0)
    return ring_error(fmt::format("samples of the leader at {}", path));
  const auto bytes = static_cast<std::size_t>(about.st_size);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) return ring_error(fmt::format("samples of the leader at {}", path));
  std::unique_ptr<SampleRing> ring(
      new SampleRing(std::move(file), static_cast<std::byte*>(memory), bytes));
  const std::string pipe = address.substr(address.rfind(' ') + 1);
  ring->released_.write = Descriptor(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  if (!ring->released_.write.is_open()) return ring_error("pipe of the leader");
  return ring;
}

SampleRing::~SampleRing() { ::munmap(memory_, bytes_); }

std::string SampleRing::memory_path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.number());
}

std::string SampleRing::address() const {
  return fmt::format("{} /proc/{}/fd/{}", memory_path(), ::getpid(), header().released_write);
}

std::int64_t SampleRing::data_offset() const { return header().data_offset; }
std::int64_t SampleRing::slots() const { return header().slots; }
std::uint32_t SampleRing::progress() const {
  return header().published.load(std::memory_order_relaxed);
}

bool SampleRing::claim(std::int64_t item, int readers) {
  Slot& slot = this->slot(item);
  if (slot.released.load(std::memory_order_acquire) != slot.readers.load(std::memory_order_relaxed))
    return false;
  slot.released.store(0, std::memory_order_relaxed);
  slot.readers.store(static_cast<std::uint32_t>(readers), std::memory_order_relaxed);
  return true;
}

void SampleRing::publish(std::int64_t item) {
  Slot& slot = this->slot(item);
  slot.filled.store(static_cast<std::uint32_t>(item + 1), std::memory_order_release);
  header().published.fetch_add(1, std::memory_order_relaxed);
  futex_wake_all(slot.filled);
}

void SampleRing::fail(const std::string& message) {
  Header& header = this->header();
  if (header.has_failed.load() != 0) return;
  const std::size_t length = std::min(message.size(), kLongestMessage);
  std::memcpy(header.message, message.data(), length);
  header.message[length] = '\0';
  header.has_failed.store(1, std::memory_order_release);
}

std::optional<std::string> SampleRing::failure() const {
  if (header().has_failed.load(std::memory_order_acquire) == 0) return std::nullopt;
  return std::string(header().message);
}

void SampleRing::take_releases() {
  char bytes[4096];
  while (::read(released_.read.number(), bytes, sizeof bytes) > 0) {
  }
}

bool SampleRing::wait_for(std::int64_t item, std::int64_t most_ns) const {
  FutexWord& filled = slot(item).filled;
  const auto wanted = static_cast<std::uint32_t>(item + 1);
  const std::uint32_t found = filled.load(std::memory_order_acquire);
  if (found == wanted) return true;
  futex_wait(filled, found, most_ns);
  return filled.load(std::memory_order_acquire) == wanted;
}

const std::byte* SampleRing::sample(std::int64_t item) const {
  return memory_ + header().data_offset + item % header().slots * header().slot_bytes;
}

void SampleRing::release(std::int64_t item) {
  slot(item).released.fetch_add(1, std::memory_order_release);
}

void SampleRing::wake_leader() {
  const char byte = 0;
  // A full pipe wakes it as well.
  [[maybe_unused]] const ssize_t written = ::write(released_.write.number(), &byte, 1);
}

}  // namespace motley::run
