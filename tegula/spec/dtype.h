// Element types. The numbers are those of c10::ScalarType (tegula/bridge checks that), so that a
// conversion costs nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tegula {

enum class DType : std::int8_t {
  U8 = 0,
  I8 = 1,
  I16 = 2,
  I32 = 3,
  I64 = 4,
  F16 = 5,
  F32 = 6,
  F64 = 7,
  C32 = 8,
  C64 = 9,
  C128 = 10,
  Bool = 11,
  BF16 = 15,
  F8E5M2 = 23,
  F8E4M3FN = 24,
  F8E5M2FNUZ = 25,
  F8E4M3FNUZ = 26,
  U16 = 27,
  U32 = 28,
  U64 = 29,
  F8E8M0FNU = 44,
};

// "f32", "bf16", "i64", "bool", "c64" (a complex of two f32), "f8e4m3fn", ...
std::string_view name_of(DType dtype);
// Bytes per element.
std::int64_t size_of(DType dtype);
// Of real numbers; complex ones have no order.
bool is_floating(DType dtype);
// The reverse of name_of; UsageError with the known names otherwise.
DType parse_dtype(std::string_view name);
const std::vector<DType>& all_dtypes();

}  // namespace tegula
