// Ranks that are processes of their own: this test program, started again for each. A fork alone
// does not do: libtorch refuses to run backward in the fork of a process that has run it.
#pragma once

#include <functional>
#include <string>

#include "tegula/comm/world.h"

namespace tegula {

// Gives a body a name by which it can be run; one per name, at namespace scope.
class RankProgram {
 public:
  using Body = std::function<void(World& world, const std::string& argument)>;
  RankProgram(std::string name, Body body);

  // Starts `ranks` processes and waits for them; those that live longer than `limit` seconds are
  // killed. Throws std::runtime_error with what the ranks wrote unless all of them succeed.
  void run(int ranks, const std::string& argument, double limit) const;

 private:
  std::string name_;
};

// How long a rank of these tests waits for another before it gives up.
WorldOptions patient_world();

}  // namespace tegula
