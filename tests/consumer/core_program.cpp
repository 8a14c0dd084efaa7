#include <tegula/core.h>

#include <iostream>

int main() {
  const tegula::DTensorSpec spec = tegula::parse_spec("f32[10, 7] on (dp=2, tp=3) as [S(0), S(1)]");
  std::cout << spec << '\n';
  return tegula::local_shape(spec, {1, 2}) == tegula::Shape{5, 1} ? 0 : 1;
}
