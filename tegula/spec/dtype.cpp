// One table of names and sizes; everything is looked up in it.
#include "tegula/spec/dtype.h"

#include <string>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr Row kTable[] = {
    {DType::F32, "f32", 4},
    {DType::F64, "f64", 8},
    {DType::F16, "f16", 2},
    {DType::BF16, "bf16", 2},
    {DType::I64, "i64", 8},
    {DType::I32, "i32", 4},
    {DType::I16, "i16", 2},
    {DType::I8, "i8", 1},
    {DType::U8, "u8", 1},
    {DType::U16, "u16", 2},
    {DType::U32, "u32", 4},
    {DType::U64, "u64", 8},
    {DType::Bool, "bool", 1},
    {DType::C32, "c32", 4},
    {DType::C64, "c64", 8},
    {DType::C128, "c128", 16},
    {DType::F8E5M2, "f8e5m2", 1},
    {DType::F8E4M3FN, "f8e4m3fn", 1},
    {DType::F8E5M2FNUZ, "f8e5m2fnuz", 1},
    {DType::F8E4M3FNUZ, "f8e4m3fnuz", 1},
    {DType::F8E8M0FNU, "f8e8m0fnu", 1},
};

const Row& row_of(DType dtype) {
  for (const Row& row : kTable) {
    if (row.dtype == dtype) return row;
  }
  throw UsageError("element type " + std::to_string(static_cast<int>(dtype)) + " is not supported")
      .hint("quantized and bit types have no distributed form; convert the tensor first");
}

}  // namespace

std::string_view name_of(DType dtype) { return row_of(dtype).name; }

std::int64_t size_of(DType dtype) { return row_of(dtype).bytes; }

bool is_floating(DType dtype) {
  return dtype == DType::BF16 || row_of(dtype).name.starts_with('f');
}

DType parse_dtype(std::string_view name) {
  std::vector<std::string> known;
  for (const Row& row : kTable) {
    if (row.name == name) return row.dtype;
    known.emplace_back(row.name);
  }
  throw UsageError("unknown element type " + in_quotes(name)).hint("use one of " + join(known));
}

const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> dtypes = [] {
    std::vector<DType> list;
    for (const Row& row : kTable) list.push_back(row.dtype);
    return list;
  }();
  return dtypes;
}

}  // namespace tegula
