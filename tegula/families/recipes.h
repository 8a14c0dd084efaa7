// The decompositions of each family: how operators are carried out where a rule does not suffice.
#pragma once

#include <map>
#include <string>

#include "tegula/operators/operator_notes.h"

namespace tegula::inner::families {

// By the name that rules go by ("max.dim").
using RecipeTable = std::map<std::string, MakeRecipe>;

// One function per file.
const RecipeTable& chunk_recipes();
const RecipeTable& definition_recipes();
const RecipeTable& distinct_recipes();
const RecipeTable& extreme_recipes();
const RecipeTable& factorization_recipes();
const RecipeTable& half_recipes();
const RecipeTable& histogram_recipes();
const RecipeTable& loss_recipes();
const RecipeTable& masked_lookup_recipes();
const RecipeTable& norm_recipes();
const RecipeTable& normalization_recipes();
const RecipeTable& product_recipes();
const RecipeTable& reduction_recipes();
const RecipeTable& repeat_recipes();
const RecipeTable& scan_recipes();
const RecipeTable& sobol_recipes();
const RecipeTable& softmax_recipes();
const RecipeTable& sort_recipes();
const RecipeTable& transform_recipes();
const RecipeTable& unfold_recipes();
const RecipeTable& zeros_recipes();

}  // namespace tegula::inner::families
