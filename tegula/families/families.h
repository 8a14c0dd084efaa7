// Families of operators: what each says about its operators beyond their schemas and rules. These
// are the only files above the torch line that name operators.
#pragma once

#include "tegula/operators/operator_entry.h"

namespace tegula::inner {

// The operators of this process, with the notes of all families.
OperatorTable& operator_table();

// Makes every operator that libtorch knows, and every one that was registered since the last call,
// meet the kernel. Any thread; cheap if there is nothing new. All functions that make DTensors call
// it; call it yourself only if a library with operators is loaded while DTensors are in use.
void claim_operators();

namespace families {

// One function per file.
void attention(const c10::OperatorHandle& op, OperatorNotes& notes);
void batch_norm(const c10::OperatorHandle& op, OperatorNotes& notes);
void adaptive_pooling(const c10::OperatorHandle& op, OperatorNotes& notes);
void compositions(const c10::OperatorHandle& op, OperatorNotes& notes);
void convolutions(const c10::OperatorHandle& op, OperatorNotes& notes);
void decompositions(const c10::OperatorHandle& op, OperatorNotes& notes);
void embedding_bags(const c10::OperatorHandle& op, OperatorNotes& notes);
void geometry(const c10::OperatorHandle& op, OperatorNotes& notes);
void joins(const c10::OperatorHandle& op, OperatorNotes& notes);
void lists(const c10::OperatorHandle& op, OperatorNotes& notes);
void masks(const c10::OperatorHandle& op, OperatorNotes& notes);
void matrices(const c10::OperatorHandle& op, OperatorNotes& notes);
void new_tensors(const c10::OperatorHandle& op, OperatorNotes& notes);
void owners(const c10::OperatorHandle& op, OperatorNotes& notes);
void moved_elements(const c10::OperatorHandle& op, OperatorNotes& notes);
void padding(const c10::OperatorHandle& op, OperatorNotes& notes);
void pooling(const c10::OperatorHandle& op, OperatorNotes& notes);
void random_numbers(const c10::OperatorHandle& op, OperatorNotes& notes);
void recurrent(const c10::OperatorHandle& op, OperatorNotes& notes);
void schema_gaps(const c10::OperatorHandle& op, OperatorNotes& notes);
void triangles(const c10::OperatorHandle& op, OperatorNotes& notes);
void unboxed_kernels(const c10::OperatorHandle& op, OperatorNotes& notes);
void view_copies(const c10::OperatorHandle& op, OperatorNotes& notes);
void views(const c10::OperatorHandle& op, OperatorNotes& notes);

// self.set_(source), registered as it is: it takes a plain source that nobody has said to be
// replicated. self becomes another name of a DTensor; a plain source of self's shape and dtype
// gives self its values, as the mesh's first rank has them (torch::load: all ranks call it), and
// under ImplicitReplication as each rank has them. UsageError for others.
at::Tensor& set_to_tensor(at::Tensor& self, const at::Tensor& source);

}  // namespace families
}  // namespace tegula::inner
