// Distributed tensors as text, for a rank by itself.
//
//   if (world.rank() == 0) std::cout << show(x) << '\n';
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tegula {

// What this rank holds, with a last line that is the spec; what is large is summarised. If nothing
// is cut or owed, these are the tensor's values; else they are this rank's tile, and the last line
// says so:
//
//    0  1  2
//    3  4  5
//   [ f32[4, 3] on (tp=2) as [S(0)], the tile of rank 0 ]
//
// Does not communicate (to_string does, and shows true values), so that one rank may call it alone;
// waits for a tile that is on its way. Of a view without data of its own, and on a rank outside of
// the mesh, there is only the last line. A plain tensor as libtorch prints it.
std::string show(const at::Tensor& tensor);

}  // namespace tegula
