// One loop per element type and op. Two contributions go through one pass; more are accumulated
// block by block, so that the partial results stay in the first-level cache.
#include "tegula/comm/reduce.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <complex>
#include <string>
#include <type_traits>

#include "tegula/base/error.h"

namespace tegula::inner::comm {
namespace {

template <class T>
constexpr bool kIsWhole = std::is_integral_v<T>;
template <class T>
constexpr bool kIsComplex = false;
template <class T>
constexpr bool kIsComplex<std::complex<T>> = true;

// Wide enough that no product of two T is undefined.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (kIsWhole<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (kIsWhole<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a || b != b ? (a != a ? a : b) : a;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return b > a || b != b ? (a != a ? a : b) : a;
  }
};

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// Where results go. Places of a streamed one stand alike in their cache lines.
struct Target {
  std::span<void* const> places;
  Writing writing;
};

void write_to_others(const Target& to, const void* result, std::int64_t begin, std::int64_t bytes) {
  for (void* place : to.places.subspan(1)) {
    write_bytes(static_cast<std::byte*>(place) + begin, result, bytes, to.writing);
  }
}

// A source may be the destination, at the same index only: iterations are independent.
template <class T, class Op>
void combine_two(const T* a, const T* b, T* to, std::int64_t count, Op op) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < count; ++i) to[i] = op(a[i], b[i]);
}

#if defined(__SSE2__)
// The same for whole cache lines, around the caches: a line is made in registers and written whole.
// Reading and writing overlap only if they alternate like this.
template <class T, class Op>
void combine_lines(const T* a, const T* b, std::span<T* const> to, std::int64_t count, Op op) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; i += kLine) {
    alignas(64) T line[kLine];
    for (std::int64_t j = 0; j < kLine; ++j) line[j] = op(a[i + j], b[i + j]);
    for (T* place : to) {
      for (int part = 0; part < 4; ++part) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(place + i) + part,
                         _mm_load_si128(reinterpret_cast<const __m128i*>(line) + part));
      }
    }
  }
}

// The same with a line in one store.
template <class T, class Op>
__attribute__((target("avx512f"))) void combine_lines_at_once(const T* a, const T* b,
                                                              std::span<T* const> to,
                                                              std::int64_t count, Op op) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; i += kLine) {
    alignas(64) T line[kLine];
    for (std::int64_t j = 0; j < kLine; ++j) line[j] = op(a[i + j], b[i + j]);
    const __m512i whole = _mm512_load_si512(line);
    for (T* place : to) _mm512_stream_si512(reinterpret_cast<__m512i*>(place + i), whole);
  }
}

template <class T, class Op>
void combine_two_streaming(const T* a, const T* b, std::span<void* const> places,
                           std::int64_t count, Op op) {
  static const bool at_once = __builtin_cpu_supports("avx512f");
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const auto in_line =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(places[0]) % 64 / sizeof(T));
  const std::int64_t head = std::min((kLine - in_line) % kLine, count);
  const std::int64_t lines = (count - head) / kLine * kLine;
  const std::int64_t tail = head + lines;
  T ends[2 * kLine];  // a place may be a source: nothing is written before all is combined
  combine_two(a, b, ends, head, op);
  combine_two(a + tail, b + tail, ends + head, count - tail, op);
  c10::SmallVector<T*, 8> to;
  for (void* place : places) {
    std::copy_n(ends, head, static_cast<T*>(place));
    std::copy_n(ends + head, count - tail, static_cast<T*>(place) + tail);
    to.push_back(static_cast<T*>(place) + head);
  }
  (at_once ? combine_lines_at_once<T, Op>
           : combine_lines<T, Op>)(a + head, b + head, {to.data(), to.size()}, lines, op);
}
#else
template <class T, class Op>
void combine_two_streaming(const T* a, const T* b, std::span<void* const> to, std::int64_t count,
                           Op op) {
  combine_two(a, b, static_cast<T*>(to[0]), count, op);
  write_to_others({to, Writing::Cached}, to[0], 0, count * static_cast<std::int64_t>(sizeof(T)));
}
#endif

template <class T, class Partial>
void finish(const Partial* partial, T* to, std::int64_t count, std::int64_t divisor) {
  if constexpr (!kIsWhole<Partial>) {
    if (divisor > 1) {
      using Real = decltype(std::real(Partial()));
      const Real ranks = static_cast<Real>(divisor);
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(partial[i] / ranks);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(partial[i]);
}

constexpr std::int64_t kBlock = 512;  // elements

template <class T, class Partial, class Op>
void combine_block(std::span<const void* const> from, std::int64_t begin, std::int64_t count,
                   Target to, Op op, std::int64_t divisor) {
  alignas(64) Partial partial[kBlock];
  const T* first = static_cast<const T*>(from[0]) + begin;
  for (std::int64_t i = 0; i < count; ++i) partial[i] = static_cast<Partial>(first[i]);
  for (const void* source : from.subspan(1)) {
    const T* next = static_cast<const T*>(source) + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      partial[i] = op(partial[i], static_cast<Partial>(next[i]));
    }
  }
  T* place = static_cast<T*>(to.places[0]) + begin;
  constexpr std::int64_t kBytes = sizeof(T);
  if (to.writing == Writing::Cached) {
    finish<T>(partial, place, count, divisor);
    return write_to_others(to, place, begin * kBytes, count * kBytes);
  }
  alignas(64) T finished[kBlock];
  finish<T>(partial, finished, count, divisor);
  write_bytes(place, finished, count * kBytes, to.writing);
  write_to_others(to, finished, begin * kBytes, count * kBytes);
}

// The average of two, rounded as finish() rounds it.
struct MeanOfTwo {
  template <class T>
  T operator()(T a, T b) const {
    using Real = decltype(std::real(T()));
    return (a + b) / static_cast<Real>(2);
  }
};

// `divisor` is 1 but for avg.
template <class T, class Partial, class Op>
void combine_all(std::span<const void* const> from, Target to, std::int64_t count, Op op,
                 std::int64_t divisor = 1) {
  if constexpr (std::is_same_v<T, Partial>) {
    if (from.size() == 2 && divisor == 1) {
      const T* first = static_cast<const T*>(from[0]);
      const T* second = static_cast<const T*>(from[1]);
      if (to.writing == Writing::Streaming) {
        combine_two_streaming(first, second, to.places, count, op);
        return settle(to.writing);
      }
      T* result = static_cast<T*>(to.places[0]);
      combine_two(first, second, result, count, op);
      return write_to_others(to, result, 0, count * static_cast<std::int64_t>(sizeof(T)));
    }
  }
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    combine_block<T, Partial>(from, begin, std::min(kBlock, count - begin), to, op, divisor);
  }
  settle(to.writing);
}

bool stand_alike(std::span<void* const> places) {
  const auto offset = [](const void* place) {
    return reinterpret_cast<std::uintptr_t>(place) % 64;
  };
  return std::all_of(places.begin(), places.end(),
                     [&](const void* place) { return offset(place) == offset(places[0]); });
}

[[noreturn]] void refuse(DType dtype, ReduceOp op) {
  throw UsageError("cannot reduce " + std::string(name_of(dtype)) + " elements by " +
                   std::string(name_of(op)))
      .hint(
          "bitwise ops need whole numbers or bools, min and max need an order, avg needs "
          "fractions");
}

template <class T, class Partial = T>
void reduce_as(DType dtype, ReduceOp op, std::span<const void* const> from, Target to,
               std::int64_t count) {
  constexpr bool kHasBits = kIsWhole<T>;
  constexpr bool kHasOrder = !kIsComplex<T>;
  switch (op) {
    case ReduceOp::Sum:
      return combine_all<T, Partial>(from, to, count, Sum());
    case ReduceOp::Product:
      return combine_all<T, Partial>(from, to, count, Product());
    case ReduceOp::Avg:
      if constexpr (!kHasBits) {
        if constexpr (std::is_same_v<T, Partial>) {
          if (from.size() == 2) return combine_all<T, Partial>(from, to, count, MeanOfTwo());
        }
        return combine_all<T, Partial>(from, to, count, Sum(),
                                       static_cast<std::int64_t>(from.size()));
      }
      break;
    case ReduceOp::Min:
      if constexpr (kHasOrder) return combine_all<T, Partial>(from, to, count, Min());
      break;
    case ReduceOp::Max:
      if constexpr (kHasOrder) return combine_all<T, Partial>(from, to, count, Max());
      break;
    case ReduceOp::Band:
      if constexpr (kHasBits) return combine_all<T, Partial>(from, to, count, And());
      break;
    case ReduceOp::Bor:
      if constexpr (kHasBits) return combine_all<T, Partial>(from, to, count, Or());
      break;
    case ReduceOp::Bxor:
      if constexpr (kHasBits) return combine_all<T, Partial>(from, to, count, Xor());
      break;
  }
  refuse(dtype, op);
}

void reduce_bools(ReduceOp op, std::span<const void* const> from, Target to, std::int64_t count) {
  using U8 = std::uint8_t;
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Max:
    case ReduceOp::Bor:
      return combine_all<U8, U8>(from, to, count, Or());
    case ReduceOp::Product:
    case ReduceOp::Min:
    case ReduceOp::Band:
      return combine_all<U8, U8>(from, to, count, And());
    case ReduceOp::Bxor:
      return combine_all<U8, U8>(from, to, count, Xor());
    case ReduceOp::Avg:
      break;
  }
  refuse(DType::Bool, op);
}

}  // namespace

void combine(DType dtype, ReduceOp op, std::span<const void* const> from, void* to,
             std::int64_t count, Writing writing) {
  combine_into(dtype, op, from, {&to, 1}, count, writing);
}

void combine_into(DType dtype, ReduceOp op, std::span<const void* const> from,
                  std::span<void* const> places, std::int64_t count, Writing writing) {
  const Target to{places, stand_alike(places) ? writing : Writing::Cached};
  switch (dtype) {
    case DType::Bool:
      return reduce_bools(op, from, to, count);
    case DType::U8:
      return reduce_as<std::uint8_t>(dtype, op, from, to, count);
    case DType::I8:
      return reduce_as<std::int8_t>(dtype, op, from, to, count);
    case DType::I16:
      return reduce_as<std::int16_t>(dtype, op, from, to, count);
    case DType::I32:
      return reduce_as<std::int32_t>(dtype, op, from, to, count);
    case DType::I64:
      return reduce_as<std::int64_t>(dtype, op, from, to, count);
    case DType::U16:
      return reduce_as<std::uint16_t>(dtype, op, from, to, count);
    case DType::U32:
      return reduce_as<std::uint32_t>(dtype, op, from, to, count);
    case DType::U64:
      return reduce_as<std::uint64_t>(dtype, op, from, to, count);
    case DType::F16:
      return reduce_as<c10::Half, float>(dtype, op, from, to, count);
    case DType::BF16:
      return reduce_as<c10::BFloat16, float>(dtype, op, from, to, count);
    case DType::F32:
      return reduce_as<float>(dtype, op, from, to, count);
    case DType::F64:
      return reduce_as<double>(dtype, op, from, to, count);
    case DType::C64:
      return reduce_as<std::complex<float>>(dtype, op, from, to, count);
    case DType::C128:
      return reduce_as<std::complex<double>>(dtype, op, from, to, count);
    case DType::C32:
    case DType::F8E5M2:
    case DType::F8E4M3FN:
    case DType::F8E5M2FNUZ:
    case DType::F8E4M3FNUZ:
    case DType::F8E8M0FNU:
      break;
  }
  throw UsageError("cannot reduce " + std::string(name_of(dtype)) + " elements")
      .hint("convert the tensor to a type that torch computes with, such as f32");
}

void check_reducible(DType dtype, ReduceOp op) {
  const void* const nothing[1] = {nullptr};
  combine(dtype, op, nothing, nullptr, 0);
}

}  // namespace tegula::inner::comm
