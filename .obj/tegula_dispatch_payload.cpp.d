/work/main/.obj/tegula_dispatch_payload.cpp.o: \
 /work/main/tegula/dispatch/payload.cpp \
 /work/main/tegula/dispatch/payload.h /work/main/tegula/comm/world.h \
 /work/main/tegula/comm/group.h /work/main/tegula/placement/reduce_op.h \
 /work/main/tegula/comm/world_head.h /work/main/tegula/mesh/device_mesh.h \
 /work/main/tegula/base/coordinate.h /work/main/tegula/mesh/layout.h \
 /work/main/tegula/mesh/int_tuple.h /work/main/tegula/base/text.h \
 /work/main/tegula/dispatch/redistribute_tile.h \
 /work/main/tegula/dispatch/tile_later.h \
 /work/main/tegula/spec/dtensor_spec.h \
 /work/main/tegula/placement/placement.h \
 /work/main/tegula/placement/cut.h /work/main/tegula/spec/dim_cut.h \
 /work/main/tegula/spec/interval.h /work/main/tegula/spec/shard_order.h \
 /work/main/tegula/spec/tensor_meta.h /work/main/tegula/spec/dtype.h \
 /work/main/tegula/bridge/torch_types.h \
 /work/main/tegula/dispatch/tile_layout.h /work/main/tegula/spec/slices.h \
 /work/main/tegula/spec/placed_otherwise.h
