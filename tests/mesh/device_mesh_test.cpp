#include "tegula/mesh/device_mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <unordered_set>

#include "tegula/base/error.h"

namespace tegula {
namespace device_mesh_test {

using Ranks = std::vector<std::int64_t>;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Meshes of many kinds: roots, listed ranks, slices, flattened and unflattened ones.
std::vector<DeviceMesh> sample_meshes() {
  std::vector<DeviceMesh> meshes;
  const DeviceMesh cube({{"a", 2}, {"b", 3}, {"c", 4}});
  Ranks shuffled(24);
  std::iota(shuffled.begin(), shuffled.end(), 10);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(7));
  for (const DeviceMesh& root :
       {cube, DeviceMesh(cube.axes(), shuffled, "cuda"), DeviceMesh({{"a", 1}, {"b", 5}, {"c", 1}}),
        DeviceMesh(
            {{"a", 2, {"gloo", {{"iface", "lo"}}}}, {"b", 2}, {"c", 2, {"", {{"x", "1"}}}}})}) {
    meshes.push_back(root);
    std::vector<std::string> names{"a", "b", "c"};
    do {
      for (std::size_t count = 1; count <= names.size(); ++count) {
        const std::vector<std::string> chosen(names.begin(),
                                              names.begin() + static_cast<std::ptrdiff_t>(count));
        const DeviceMesh slice = root.slice(chosen);
        meshes.push_back(slice);
        meshes.push_back(slice.flatten("all"));
        if (count > 1) meshes.push_back(root.flatten(chosen, "some"));
      }
    } while (std::next_permutation(names.begin(), names.end()));
  }
  meshes.push_back(cube.unflatten("c", {{"x", 2}, {"y", 2}}));
  meshes.push_back(cube["c"].unflatten("c", {{"x", 2}, {"y", 2}})["x"]);
  meshes.push_back(DeviceMesh::concatenate({cube["c"], cube["a"]}));
  return meshes;
}

TEST(DeviceMeshLaw, CoordinatesAreCountedInRowMajorOrder) {
  for (const DeviceMesh& mesh : sample_meshes()) {
    const std::vector<std::int64_t> ranks = mesh.ranks(0);
    for (std::int64_t index = 0; index < mesh.size(); ++index) {
      EXPECT_EQ(mesh.rank_at(mesh.coordinate_at(index)), ranks[static_cast<std::size_t>(index)])
          << mesh;
    }
  }
}

TEST(DeviceMeshLaw, RankAtAndCoordinateOfAreInverse) {
  for (const DeviceMesh& mesh : sample_meshes()) {
    std::set<std::int64_t> seen;
    for (std::int64_t fiber = 0; fiber < mesh.fiber_count(); ++fiber) {
      for (std::int64_t rank : mesh.ranks(fiber)) {
        const Coordinate coordinate = mesh.coordinate_of(rank).value();
        EXPECT_EQ(mesh.fiber_of(rank), fiber) << mesh;
        EXPECT_EQ(mesh.rank_at(coordinate, fiber), rank) << mesh;
        seen.insert(rank);
      }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(mesh.root().size())) << mesh;
    EXPECT_EQ(mesh.size() * mesh.fiber_count(), mesh.root().size()) << mesh;
  }
}

TEST(DeviceMeshLaw, RanksRunThroughCoordinatesInRowMajorOrder) {
  for (const DeviceMesh& mesh : sample_meshes()) {
    const Ranks ranks = mesh.ranks();
    Coordinate last;
    for (std::int64_t rank : ranks) {
      const Coordinate coordinate = mesh.coordinate_of(rank).value();
      EXPECT_TRUE(last.empty() || last < coordinate) << mesh;
      last = coordinate;
    }
  }
}

TEST(DeviceMeshLaw, GroupsAlongAnAxisPartitionTheRoot) {
  for (const DeviceMesh& mesh : sample_meshes()) {
    for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
      std::multiset<std::int64_t> members;
      for (const Ranks& group : mesh.groups(axis)) {
        EXPECT_EQ(static_cast<std::int64_t>(group.size()), mesh.axes()[axis].size);
        for (std::int64_t rank : group) {
          EXPECT_EQ(mesh.group_of(rank, axis), group) << mesh;
          members.insert(rank);
        }
      }
      const Ranks all = mesh.root().ranks();
      EXPECT_EQ(members, std::multiset<std::int64_t>(all.begin(), all.end())) << mesh;
    }
  }
}

TEST(DeviceMeshLaw, PrintedMeshesParseBackToEqualOnes) {
  std::size_t checked = 0;
  for (const DeviceMesh& mesh : sample_meshes()) {
    const DeviceMesh again = parse_mesh(to_string(mesh));
    EXPECT_EQ(again, mesh) << mesh;
    EXPECT_EQ(again.hash(), mesh.hash()) << mesh;
    EXPECT_EQ(to_string(again), to_string(mesh));
    ++checked;
  }
  EXPECT_GT(checked, 100U);
}

TEST(DeviceMeshLaw, DifferentTextsAreDifferentMeshes) {
  const std::vector<DeviceMesh> meshes = sample_meshes();
  for (const DeviceMesh& a : meshes) {
    for (const DeviceMesh& b : meshes)
      EXPECT_EQ(a == b, to_string(a) == to_string(b)) << a << " and " << b;
  }
}

TEST(DeviceMeshLaw, FlatteningWhatWasUnflattenedGivesTheMeshBack) {
  const DeviceMesh mesh({{"a", 2}, {"b", 12}});
  const DeviceMesh split = mesh.unflatten("b", {{"x", 3}, {"y", 2}, {"z", 2}});
  EXPECT_EQ(split.shape(), (Ranks{2, 3, 2, 2}));
  EXPECT_EQ(split.flatten({"x", "y", "z"}, "b"), mesh);
}

TEST(DeviceMesh, CountsRanksInRowMajorOrder) {
  const DeviceMesh mesh({{"dp", 2}, {"tp", 4}});
  EXPECT_EQ(mesh.ndim(), 2U);
  EXPECT_EQ(mesh.shape(), (Ranks{2, 4}));
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.rank_at({1, 2}), 6);
  EXPECT_EQ(mesh.coordinate_of(6), (Coordinate{1, 2}));
  EXPECT_EQ(mesh.coordinate_of(8), std::nullopt);
  EXPECT_EQ(mesh.coordinate_of(-1), std::nullopt);
  EXPECT_EQ(mesh.group_of(6, 0), (Ranks{2, 6}));
  EXPECT_EQ(to_string(mesh), "(dp=2, tp=4)");
}

TEST(DeviceMesh, SlicingByNamesInAnyOrderTransposes) {
  const DeviceMesh mesh({{"dp", 2}, {"tp", 3}});
  const DeviceMesh swapped = mesh[{"tp", "dp"}];
  EXPECT_EQ(swapped.shape(), (Ranks{3, 2}));
  EXPECT_EQ(swapped.ranks(), (Ranks{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ((swapped[{"dp", "tp"}]), mesh);
  EXPECT_EQ((mesh[{"dp", "tp"}]), mesh);
  EXPECT_TRUE((mesh[{"dp", "tp"}]).is_root());
  EXPECT_FALSE(swapped.is_root());
}

TEST(DeviceMesh, ASliceIsAFamilyOfFibers) {
  const DeviceMesh mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  const DeviceMesh middle = mesh["b"];
  EXPECT_EQ(middle.fiber_count(), 4);
  EXPECT_EQ(middle.groups(0), (std::vector<Ranks>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(middle.coordinate_of(6), (Coordinate{1}));
  EXPECT_EQ(middle.root(), mesh);
  EXPECT_EQ(mesh["a"].groups(0), (std::vector<Ranks>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(DeviceMesh, FlattensAxesThatAreNotNeighbours) {
  const DeviceMesh mesh({{"dp", 2}, {"pp", 2}, {"cp", 2}});
  const DeviceMesh both = mesh[{"dp", "cp"}].flatten();
  EXPECT_EQ(both.axes().front().name, "dp_cp");
  EXPECT_EQ(both.groups(0), (std::vector<Ranks>{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(to_string(both), "(dp_cp=(2, 2):(4, 1)) of (dp=2, pp=2, cp=2)");
}

TEST(DeviceMesh, ConcatenatesSlicesOfOneRoot) {
  const DeviceMesh mesh({{"dp", 2}, {"pp", 2}, {"tp", 2}});
  EXPECT_EQ(DeviceMesh::concatenate({mesh["dp"], mesh["tp"]}), (mesh[{"dp", "tp"}]));
  EXPECT_EQ(DeviceMesh::concatenate({mesh["dp"], mesh[{"pp", "tp"}]}), mesh);
}

TEST(DeviceMesh, CarriesTheBackendWantedPerAxis) {
  const DeviceMesh mesh({{"dp", 2, {"gloo", {{"timeout", "30"}}}}, {"tp", 2}});
  EXPECT_EQ(mesh["dp"].axes().front().backend.name, "gloo");
  EXPECT_EQ(to_string(mesh), "(dp=2@gloo{timeout=30}, tp=2)");
  EXPECT_NE(mesh, DeviceMesh({{"dp", 2}, {"tp", 2}}));
}

TEST(DeviceMesh, ListedRanksPrintAsRanges) {
  EXPECT_EQ(to_string(DeviceMesh({{"x", 6}}, {4, 5, 6, 2, 1, 0}, "cuda")),
            "cuda (x=6) over [4:7, 2, 1, 0]");
  EXPECT_EQ(parse_mesh("x=2, y=2 over [4:8]").ranks(), (Ranks{4, 5, 6, 7}));
}

TEST(DeviceMesh, TheGreatestRankOfAllEndsNoRange) {
  const std::int64_t last = std::numeric_limits<std::int64_t>::max();
  const DeviceMesh mesh({{"x", 5}}, {last - 3, last - 2, last - 1, last, 0});
  EXPECT_EQ(to_string(mesh),
            "(x=5) over [9223372036854775804:9223372036854775807, 9223372036854775807, 0]");
  EXPECT_EQ(parse_mesh(to_string(mesh)), mesh);
}

TEST(DeviceMesh, ListedRanksThatCountFromZeroAreTheDefault) {
  EXPECT_EQ(DeviceMesh({{"x", 3}}, {0, 1, 2}), DeviceMesh({{"x", 3}}));
}

TEST(DeviceMesh, HashesTellMeshesApart) {
  std::unordered_set<std::size_t> hashes;
  for (const DeviceMesh& mesh : sample_meshes()) hashes.insert(mesh.hash());
  EXPECT_GT(hashes.size(), 60U);
}

TEST(DeviceMesh, ManyRanksCostNoMoreThanTheirList) {
  const DeviceMesh mesh({{"a", 4096}, {"b", 4096}});
  EXPECT_EQ(mesh.size(), DeviceMesh::kMostRanks);
  EXPECT_EQ(mesh["a"].coordinate_of(16'777'215), (Coordinate{4095}));
  EXPECT_EQ(mesh["b"].group_of(5000, 0)->front(), 4096);
}

TEST(DeviceMeshErrors, BadAxesAreRefused) {
  EXPECT_EQ(message_of([] { DeviceMesh(std::vector<MeshAxis>{}); }),
            "tegula: a mesh needs at least one axis\n"
            "  hint    a single rank is a mesh too: dp=1");
  EXPECT_EQ(message_of([] { DeviceMesh({{"dp", 2}, {"dp", 2}}); }),
            "tegula: two axes of a mesh cannot both be named \"dp\"\n"
            "  axes    (dp=2, dp=2)\n"
            "  hint    give each axis a name of its own");
  EXPECT_EQ(message_of([] { DeviceMesh({{"d p", 2}}); }),
            "tegula: \"d p\" cannot name a mesh axis\n"
            "  axes    (d p=2)\n"
            "  hint    use letters, digits and _, not a digit first: dp, tp, stage_1");
  EXPECT_EQ(message_of([] { DeviceMesh({{"dp", 0}}); }),
            "tegula: axis \"dp\" cannot have 0 ranks\n"
            "  axes    (dp=0)\n"
            "  hint    sizes are 1 or more");
  EXPECT_EQ(message_of([] { DeviceMesh({{"a", INT64_MAX}, {"b", INT64_MAX}}); }),
            "tegula: a mesh cannot have more than 16777216 ranks\n"
            "  axes    (a=9223372036854775807, b=9223372036854775807)\n"
            "  hint    check the sizes");
  EXPECT_THROW(DeviceMesh({{"a", 2, {"two words", {}}}}), UsageError);
  EXPECT_THROW(DeviceMesh({{"a", 2, {"gloo", {{"key", "a, b"}}}}}), UsageError);
}

TEST(DeviceMeshErrors, BadRanksAreRefused) {
  EXPECT_EQ(message_of([] { DeviceMesh({{"dp", 3}}, {4, 7, 4}); }),
            "tegula: rank 4 appears twice in a mesh\n"
            "  axes    (dp=3)\n"
            "  places  0 and 2\n"
            "  hint    list every rank once");
  EXPECT_EQ(message_of([] { DeviceMesh({{"dp", 3}}, {4, 7}); }),
            "tegula: a mesh of 3 ranks cannot be laid over a list of 2\n"
            "  axes    (dp=3)\n"
            "  hint    list as many ranks as the sizes multiply to");
  EXPECT_EQ(message_of([] { DeviceMesh({{"dp", 2}}, {4, -7}); }),
            "tegula: a mesh cannot hold rank -7\n"
            "  axes    (dp=2)\n"
            "  hint    ranks are 0 or more");
}

TEST(DeviceMeshErrors, BadDeviceTypesAreRefused) {
  for (const char* device_type : {"cuda:0", "", "CPU", "c p u"}) {
    EXPECT_THROW(DeviceMesh({{"dp", 2}}, {}, device_type), UsageError) << device_type;
  }
}

TEST(DeviceMeshErrors, BadSlicesAreRefused) {
  const DeviceMesh mesh({{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(message_of([&] { mesh["pp"]; }),
            "tegula: the mesh has no axis \"pp\"\n"
            "  mesh    (dp=2, tp=2)\n"
            "  hint    its axes are dp, tp");
  EXPECT_EQ(message_of([&] { mesh.slice({}); }),
            "tegula: a slice of a mesh needs at least one axis\n"
            "  mesh    (dp=2, tp=2)\n"
            "  hint    its axes are dp, tp");
  EXPECT_EQ(message_of([&] { mesh.slice({"dp", "dp"}); }),
            "tegula: axis \"dp\" is named twice in a slice\n"
            "  mesh    (dp=2, tp=2)\n"
            "  hint    name each axis once");
  EXPECT_EQ(message_of([&] { mesh.rank_at({2, 0}); }),
            "tegula: the mesh has no place [2, 0]\n"
            "  mesh    (dp=2, tp=2)\n"
            "  fibers  1\n"
            "  hint    give one coordinate per axis, from 0 to its size - 1");
  EXPECT_THROW(mesh.rank_at({0}), UsageError);
  EXPECT_THROW(mesh.rank_at({0, 0}, 1), UsageError);
  EXPECT_THROW(mesh.ranks(1), UsageError);
  EXPECT_THROW(mesh.groups(2), UsageError);
  EXPECT_THROW(mesh.group_of(0, 2), UsageError);
}

TEST(DeviceMeshErrors, ImpossibleRegroupingsAreRefused) {
  const DeviceMesh mesh({{"a", 2}, {"b", 2}, {"c", 3}});
  EXPECT_EQ(message_of([&] { mesh.unflatten("a", {{"x", 2}, {"y", 2}}); }),
            "tegula: axis \"a\" of 2 ranks cannot be unflattened into (x=2, y=2)\n"
            "  mesh    (a=2, b=2, c=3)\n"
            "  hint    the sizes must multiply to 2");
  EXPECT_EQ(
      message_of([&] { mesh[{"a", "c"}].flatten("ac").unflatten("ac", {{"x", 3}, {"y", 2}}); }),
      "tegula: axis \"ac\" cannot be unflattened into (x=3, y=2): it walks through the ranks in "
      "steps of "
      "(2, 3):(6, 1)\n"
      "  mesh    (ac=(2, 3):(6, 1)) of (a=2, b=2, c=3)\n"
      "  hint    choose sizes that the steps can be grouped into");
  EXPECT_THROW(mesh.flatten({"a", "b"}, "c"), UsageError);
  EXPECT_THROW(mesh.unflatten("a", {{"b", 2}}), UsageError);
  EXPECT_THROW(mesh.unflatten("a", {}), UsageError);
  EXPECT_EQ(
      message_of([&] { DeviceMesh::concatenate({mesh["a"], mesh[{"a", "b"}].flatten("x")}); }),
      "tegula: cannot concatenate meshes that share ranks along an axis\n"
      "  meshes  (a=2) of (a=2, b=2, c=3), (x=4:3) of (a=2, b=2, c=3)\n"
      "  hint    use each axis of the root once");
  EXPECT_EQ(message_of([&] { DeviceMesh::concatenate({mesh["a"], DeviceMesh({{"b", 2}})}); }),
            "tegula: cannot concatenate meshes over different roots\n"
            "  one     (a=2) of (a=2, b=2, c=3)\n"
            "  another (b=2)\n"
            "  hint    slice them from one mesh");
  EXPECT_THROW(DeviceMesh::concatenate({}), UsageError);
  EXPECT_THROW(DeviceMesh::concatenate({mesh["a"], mesh["a"]}), UsageError);
}

}  // namespace device_mesh_test
}  // namespace tegula
