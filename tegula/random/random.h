// Random numbers by global element index. A draw is a key and the number of a stream; element i of
// the tensor that it fills depends on these and on i alone. So a tensor gets the same bits on
// meshes of 1, 2, 7 ranks and for any placement (not the bits that a plain tensor would get).
//
// torch's default CPU generator controls the draws as it controls plain ones: torch::manual_seed, a
// state that is saved and restored (fork_rng, checkpoint), also in another process. Where the draws
// stand is the generator's seed, torch.initial_seed(), which moves on with every distributed draw;
// nothing else of the generator does, so distributed draws do not change plain ones, nor do plain
// ones that ranks make for themselves change distributed ones. All ranks set the same seed and
// restore states of the same place in the program. When a world begins, its ranks take rank 0's
// seed, so that they agree even if nobody sets one.
//
// Ranks that draw together count their draws together: those of this rank's fiber of the mesh. All
// meshes of all ranks are one stream. A mesh that leaves ranks or axes of its root out is a stream
// of its own (mesh["tp"] is another than mesh), so its ranks may draw when others do not, and as
// often as they like. All fibers of a slice draw the same numbers.
//
// Ranks that are threads share torch's generator, so it cannot stand for each of them: their worlds
// begin with its seed at run_ranks, and then only the functions below reach them.
//
// docs/design/0012-random-state.md says why it is so.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <map>

#include "tegula/comm/world.h"

namespace tegula {

// Where the draws of a rank stand: how many each stream has made since the seed was set.
struct RNGState {
  std::uint64_t seed = 0;
  std::map<std::uint64_t, std::uint64_t> draws;
  bool operator==(const RNGState&) const = default;
};

// Of this rank; any of its threads may call them. All ranks set the same seed. They read and write
// the seed of torch's default generator, and leave its plain draws alone. A state holds what the
// generator's own state does not: with several streams, what each has drawn, so that it continues
// exactly in another process, too, where ranks have made different draws.
void manual_seed(const World& world, std::uint64_t seed);
RNGState rng_state(const World& world);
void set_rng_state(const World& world, const RNGState& state);

namespace inner {

// What one random op needs to fill its result (random_fill.h).
struct Draw {
  std::uint64_t seed = 0;    // the key
  std::uint64_t number = 0;  // of the stream
  bool operator==(const Draw&) const = default;
};

// Consumes one draw of the mesh's stream. The ranks of its fiber call it for every random op, those
// without elements too. A rank outside of the mesh draws nothing and gets a draw that means
// nothing.
Draw next_draw(const World& world, const DeviceMesh& mesh);
// The same from the generator that the user passed to an op. Torch's default generator is as none;
// of another, 64 bits are taken under its mutex: ranks whose generators are in the same state get
// the same. UsageError unless it is a CPU generator.
Draw next_draw(const World& world, const DeviceMesh& mesh, at::Generator generator);

// A fresh CPU generator for ops that every rank computes in full (randperm, multinomial): equal
// draws give generators in the same state; other draws, and the elements that fill_random makes,
// are independent of it.
at::Generator replicated_generator(const Draw& draw);

}  // namespace inner

}  // namespace tegula
