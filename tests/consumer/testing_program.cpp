// A user's rules against the oracle: one is true, one is not.
#include <tegula/core.h>
#include <tegula/testing.h>

#include <iostream>

int main() {
  const tegula::Sample product{"mm", "f64[4, 6], f64[6, 5]"};
  tegula::RuleTable right, wrong;
  right.add("mm", "mk * kn -> mn");
  wrong.add("mm", "mk * kn -> nm");
  const auto faults = tegula::faults_of_rule(wrong, product, 2);
  if (!faults.empty()) std::cout << faults.front() << '\n';
  return tegula::faults_of_rule(right, product, 2).empty() && !faults.empty() ? 0 : 1;
}
