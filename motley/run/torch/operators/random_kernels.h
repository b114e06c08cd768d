#pragma once

#include <cstdint>

#include "motley/run/torch/operators/element_place.h"
#include "motley/run/torch/operators/element_types.h"
#include "motley/run/torch/operators/philox.h"
#include "motley/run/torch/operators/random_numbers.h"

namespace motley::run {

// The work of one GPU thread for draws and dropout; CPUs process groups of words instead
// (distributions.cc, dropout.cc). Also compiled for GPUs at run time: see philox.h.

/// Identifies the random words of a tensor's elements.
struct DrawnElements {
  std::int64_t count = 0;
  ElementPlace place;
  RandomStream stream;
};

/// Pointers are to contiguous device memory.
struct DrawCall {
  DrawnElements elements;
  Distribution distribution = Distribution::kUniform;
  ElementType type = ElementType::kFloat;
  void* out = nullptr;
};

struct DropoutCall {
  DrawnElements elements;
  std::uint64_t limit = 0;  ///< keeps an element whose word is at least this
  bool* mask = nullptr;
  double scale = 1;  ///< of kept elements
  ElementType type = ElementType::kFloat;
  const void* x = nullptr;  ///< null: only the mask is wanted
  void* out = nullptr;      ///< may be x
};

// Host and device lay them out alike.
static_assert(sizeof(DrawCall) == 112 && sizeof(DropoutCall) == 144);

/// A thread has four elements, 16 apart: 16 threads use one range of memory, and if local groups
/// are groups of the global tensor, four elements share a block.
constexpr int kThreadElements = 4;

inline std::int64_t kernel_threads(std::int64_t elements) {
  return (elements + kPhiloxGroup - 1) / kPhiloxGroup * (kPhiloxGroup / kThreadElements);
}

inline std::uint32_t word_of(const PhiloxBlock& block, std::uint64_t index) {
  const std::uint64_t place = index % kPhiloxGroup / 16;
  return place < 2 ? (place == 0 ? block.a : block.b) : (place == 2 ? block.c : block.d);
}

/// The words of an element: `kWords` blocks of consecutive streams.
struct ElementWords {
  static constexpr int kWords = 4;
  PhiloxBlock blocks[kWords];
  std::uint64_t index = 0;
  void draw(RandomStream stream, std::uint64_t block, int words) {
    // Counting this way keeps the blocks in registers.
    for (stream.word = 0; stream.word < kWords; ++stream.word)
      if (stream.word < words) blocks[stream.word] = philox_block(stream, block);
  }
  std::uint32_t operator()(int word) const { return word_of(blocks[word], index); }
};

/// Calls `put(local, words)` for the elements of a thread.
template <typename Put>
void for_each_of_thread(std::int64_t thread, const DrawnElements& elements, int words,
                        const Put& put) {
  constexpr int kApart = kPhiloxGroup / kThreadElements;
  ElementWords drawn;
  std::uint64_t last = ~std::uint64_t{0};
  for (int i = 0; i < kThreadElements; ++i) {
    const std::int64_t local = thread / kApart * kPhiloxGroup + thread % kApart + i * kApart;
    if (local >= elements.count) return;
    drawn.index = static_cast<std::uint64_t>(global_index(elements.place, elements.count, local));
    const std::uint64_t block = drawn.index / kPhiloxGroup * kApart + drawn.index % kApart;
    if (block != last) drawn.draw(elements.stream, block, words);
    last = block;
    put(local, drawn);
  }
}

inline void draw_elements(const DrawCall& call, std::int64_t thread) {
  const NumberMaker make(call.distribution, call.type);
  const int words = words_of(call.distribution, call.type);
  const bool is_float = with_float_type(call.type, [&](auto* type) {
    auto* out = static_cast<decltype(type)>(call.out);
    for_each_of_thread(
        thread, call.elements, words,
        [&](std::int64_t local, const ElementWords& word) { put(out + local, make.number(word)); });
  });
  if (is_float) return;
  auto* out = static_cast<std::int64_t*>(call.out);
  for_each_of_thread(
      thread, call.elements, words,
      [&](std::int64_t local, const ElementWords& word) { out[local] = NumberMaker::bits(word); });
}

/// Writes x * scale if kept, else 0.
template <typename T, typename Number>
void put_dropout(const T* x, bool is_kept, Number scale, T* out) {
  // A bit mask instead of a branch, so that loops vectorize.
  put(out, take(x) * scale);
  clear_unless(is_kept, out);
}

inline void drop_elements(const DropoutCall& call, std::int64_t thread) {
  if (call.x == nullptr)
    return for_each_of_thread(thread, call.elements, 1,
                              [&](std::int64_t local, const ElementWords& word) {
                                call.mask[local] = word(0) >= call.limit;
                              });
  with_float_type(call.type, [&](auto* type) {
    auto* out = static_cast<decltype(type)>(call.out);
    const auto* x = static_cast<decltype(out)>(const_cast<void*>(call.x));
    const auto scale = static_cast<decltype(take(x))>(call.scale);
    for_each_of_thread(thread, call.elements, 1, [&](std::int64_t local, const ElementWords& word) {
      const bool is_kept = word(0) >= call.limit;
      call.mask[local] = is_kept;
      put_dropout(x + local, is_kept, scale, out + local);
    });
  });
}

}  // namespace motley::run
