// Everything below the torch line: meshes, placements, specs, plans and rules, as pure arithmetic.
#pragma once

#include "tegula/base/error.h"
#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/mesh/device_mesh.h"
#include "tegula/mesh/layout.h"
#include "tegula/ops/families.h"
#include "tegula/placement/placement.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/propagate/sharding_propagator.h"
#include "tegula/spec/dtensor_spec.h"
#include "tegula/spec/slices.h"
#include "tegula/spec/strided_shard.h"
