#include "tegula/bridge/torch_types.h"

#include <string>

#include "tegula/base/error.h"

namespace tegula {
namespace {

// The numbers of DType are those of c10::ScalarType: spot checks over the whole range.
static_assert(static_cast<int>(DType::U8) == static_cast<int>(at::kByte));
static_assert(static_cast<int>(DType::I64) == static_cast<int>(at::kLong));
static_assert(static_cast<int>(DType::F32) == static_cast<int>(at::kFloat));
static_assert(static_cast<int>(DType::C128) == static_cast<int>(at::kComplexDouble));
static_assert(static_cast<int>(DType::Bool) == static_cast<int>(at::kBool));
static_assert(static_cast<int>(DType::BF16) == static_cast<int>(at::kBFloat16));
static_assert(static_cast<int>(DType::F8E4M3FNUZ) == static_cast<int>(at::kFloat8_e4m3fnuz));
static_assert(static_cast<int>(DType::U64) == static_cast<int>(at::kUInt64));

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (DType dtype : all_dtypes()) {
    if (static_cast<int>(dtype) == static_cast<int>(type)) return dtype;
  }
  throw UsageError("tensors of " + std::string(c10::toString(type)) + " have no distributed form")
      .hint("convert the tensor to a plain number type first");
}

at::ScalarType scalar_type_of(DType dtype) {
  if (static_cast<int>(dtype) >= static_cast<int>(at::ScalarType::NumOptions)) {
    throw UsageError("this libtorch has no element type " + std::string(name_of(dtype)))
        .hint("use a newer libtorch or another element type");
  }
  return static_cast<at::ScalarType>(dtype);
}

TensorMeta meta_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), dtype_of(tensor.scalar_type())};
}

}  // namespace tegula
