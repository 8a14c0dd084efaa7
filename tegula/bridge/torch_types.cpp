#include "tegula/bridge/torch_types.h"

#include <string>
#include <vector>

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
  static const std::vector<bool> is_known = [] {
    std::vector<bool> known(128);
    for (DType dtype : all_dtypes()) {
      if (libtorch_has(dtype)) known[static_cast<std::size_t>(dtype)] = true;
    }
    return known;
  }();
  const auto number = static_cast<std::size_t>(type);
  if (number < is_known.size() && is_known[number]) {
    return static_cast<DType>(type);
  }
  throw UsageError("tensors of " + std::string(c10::toString(type)) + " have no distributed form")
      .hint("convert the tensor to a plain number type first");
}

void refuse_element_type(DType dtype) {
  throw UsageError("this libtorch has no element type " + std::string(name_of(dtype)))
      .hint("use a newer libtorch or another element type");
}

TensorMeta meta_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), dtype_of(tensor.scalar_type())};
}

at::Device device_of(const DeviceMesh& mesh) {
  const std::string& type = mesh.device_type();
  return type == "cpu" ? host_device() : at::Device(type);  // reading a name takes long
}

at::Device host_device() { return at::kCPU; }

}  // namespace tegula
