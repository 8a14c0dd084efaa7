// Overloaded: one callable made of several, to visit a std::variant with a case per alternative.
//
//   std::visit(Overloaded{[](const Replicate&) { ... }, [](const Shard& shard) { ... }, ...}, p);
//
// No case takes `auto`: an alternative that is added later does not compile until every visit has
// an answer for it.
#pragma once

namespace tegula::inner {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace tegula::inner
