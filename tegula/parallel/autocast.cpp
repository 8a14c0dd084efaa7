#include "tegula/parallel/autocast.h"

#include <ATen/autocast_mode.h>

#include "tegula/base/error.h"

namespace tegula {
namespace {

void check_is_half(std::optional<at::ScalarType> dtype) {
  if (!dtype || *dtype == at::kBFloat16 || *dtype == at::kHalf) return;
  throw UsageError("autocast computes in halves only")
      .fact("dtype", c10::toString(*dtype))
      .hint("give at::kBFloat16 or at::kHalf, or std::nullopt for no autocast");
}

}  // namespace

Autocast::Autocast(std::optional<at::ScalarType> dtype, at::DeviceType device)
    : device_(device),
      was_on_(at::autocast::is_autocast_enabled(device)),
      was_cached_(at::autocast::is_autocast_cache_enabled()),
      outer_dtype_(at::autocast::get_autocast_dtype(device)) {
  check_is_half(dtype);
  at::autocast::set_autocast_enabled(device, dtype.has_value());
  at::autocast::set_autocast_cache_enabled(false);
  if (dtype) at::autocast::set_autocast_dtype(device, *dtype);
}

Autocast::~Autocast() {
  at::autocast::set_autocast_enabled(device_, was_on_);
  at::autocast::set_autocast_cache_enabled(was_cached_);
  at::autocast::set_autocast_dtype(device_, outer_dtype_);
}

}  // namespace tegula
