// Cuts a matrix product over four ranks by hand: every rank multiplies its tiles, and the results,
// joined, are the product of the whole matrices.
#include <ATen/ATen.h>
#include <tegula/tegula.h>

#include <iostream>

int main() {
  using namespace tegula;
  DeviceMesh mesh({{"dp", 2}, {"tp", 2}});
  at::Tensor x = at::rand({5, 4});
  at::Tensor w = at::rand({4, 7});
  DTensorSpec x_spec(mesh, {Shard(0), Replicate()}, meta_of(x));  // rows over dp
  DTensorSpec w_spec(mesh, {Replicate(), Shard(1)}, meta_of(w));  // columns over tp
  DTensorSpec y_spec(mesh, {Shard(0), Shard(1)}, TensorMeta({5, 7}, DType::F32));

  std::vector<at::Tensor> tiles;
  for (std::int64_t rank : mesh.ranks()) {
    Coordinate at = *mesh.coordinate_of(rank);
    tiles.push_back(at::mm(cut_tile(x, x_spec, at), cut_tile(w, w_spec, at)));
    std::cout << "rank " << rank << " holds a tile of " << tiles.back().sizes() << '\n';
  }
  bool same = at::allclose(join_tiles(tiles, y_spec), at::mm(x, w));
  std::cout << y_spec << (same ? ": equal to the plain product\n" : ": WRONG\n");
  return same ? 0 : 1;
}
