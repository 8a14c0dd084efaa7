/work/main/.obj/try_scratch.cpp.o: /work/main/try_scratch.cpp \
 /work/main/tegula/tensor/dtensor.h /work/main/tegula/comm/world.h \
 /work/main/tegula/comm/group.h /work/main/tegula/placement/reduce_op.h \
 /work/main/tegula/comm/world_head.h /work/main/tegula/mesh/device_mesh.h \
 /work/main/tegula/base/coordinate.h /work/main/tegula/mesh/layout.h \
 /work/main/tegula/mesh/int_tuple.h /work/main/tegula/base/text.h \
 /work/main/tegula/spec/dtensor_spec.h \
 /work/main/tegula/placement/placement.h \
 /work/main/tegula/placement/cut.h /work/main/tegula/spec/dim_cut.h \
 /work/main/tegula/spec/interval.h /work/main/tegula/spec/shard_order.h \
 /work/main/tegula/spec/tensor_meta.h /work/main/tegula/spec/dtype.h \
 /work/main/tegula/tensor/factories.h /work/main/tegula/comm/comm_log.h \
 /work/main/tegula/comm/call.h /work/main/tegula/dispatch/guards.h
