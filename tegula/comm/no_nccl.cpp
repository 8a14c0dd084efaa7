#include "tegula/comm/engines.h"

namespace tegula::inner::comm {

std::shared_ptr<Engine> make_nccl_engine(const EngineOptions&) {
  throw UsageError("this Tegula was built without NCCL")
      .hint(
          "build against a libtorch with CUDA (pip install torch from the CUDA index, then "
          "Torch_DIR)");
}

}  // namespace tegula::inner::comm
