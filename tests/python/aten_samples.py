"""Calls of aten overloads that torch's own samples do not reach: forms that libtorch composes of others before
anybody sees them, backward passes by themselves, factories that write to a tensor, questions about a tensor.

Each entry is the overload's name behind "aten." and its arguments; a dict at the end holds those by keyword.
"""
import torch

FLOAT, LONG = torch.float32, torch.int64


def questions(x, y):
    """What is asked of a tensor, and answered without its elements."""
    alone = ("_debug_has_internal_overlap _is_zerotensor _version cudnn_is_acceptable data get_device is_complex is_conj "
             "is_contiguous is_distributed is_floating_point is_inference is_leaf is_neg is_signed lift numel numpy_T "
             "output_nr retains_grad storage_offset sym_is_contiguous sym_numel sym_storage_offset _shape_as_tensor "
             "_saturate_weight_to_fp16 matrix_H requires_grad_ to_dense").split()
    return {**{f"{name}.default": (x,) for name in alone},
            "_has_compatible_shallow_copy_type.default": (x, y), "is_contiguous.memory_format": (x, torch.contiguous_format),
            "size.int": (x, 1), "stride.int": (x, 1), "sym_size.int": (x, 1), "sym_stride.int": (x, 1),
            "result_type.Tensor": (x, y), "result_type.Scalar": (x, 2), "result_type.Scalar_Tensor": (2, x),
            "set_data.default": (x, y), "_dim_arange.default": (x, 0), "type_as.default": (x, y.double()),
            "_test_ambiguous_defaults.a": (x, 1, 1), "_test_ambiguous_defaults.b": (x, 2, "2"),
            "_test_autograd_multiple_dispatch.ntonly": (x, True), "_test_serialization_subcmul.default": (x, y),
            "_test_string_default.default": (x,), "_test_check_tensor.default": (x < 99,), "dim.default": (x,),
            "is_pinned.default": (x,), "is_same_size.default": (x, y)}


def conversions(x):
    return {**{f"_cast_{name}.default": (x,) for name in "Byte Char Double Float Half Int Long Short".split()},
            "_autocast_to_full_precision.default": (x, False, True),
            "_autocast_to_reduced_precision.default": (x, False, True, torch.half, torch.bfloat16),
            "_to_cpu.default": ([x, x + 1],), "view_copy.dtype": (x, torch.int32),
            "view_copy.dtype_out": (x, torch.int32, {"out": torch.empty(6, 8, dtype=torch.int32)}),
            "to_dense_backward.default": (x, x + 1), "to_mkldnn_backward.default": (x, x + 1), "_unpack_dual.default": (x, 0),
            "lift.out": (x, {"out": torch.empty(6, 8)}), "to.dtype": (x, torch.float64), "view.dtype": (x, torch.int32)}


def views(x, image):
    return {"_reshape_alias.default": (x.flatten(), [48], [1]), "_reshape_from_tensor.default": (x, torch.tensor([12, 4])),
            "broadcast_tensors.default": ([x, x[:1]],), "movedim.int": (image, 1, 3), "moveaxis.int": (image, 0, 2),
            "tensor_split.tensor_indices_or_sections": (x, torch.tensor([2, 4]), 0),
            "unsafe_split_with_sizes.default": (x, [2, 4], 0), "squeeze_copy.dims": (x[:, None], [1]),
            "squeeze_copy.dims_out": (x[:, None], [1], {"out": torch.empty(6, 8)}),
            "_remove_batch_dim.default": (x, 1, 2, 0),
            "set_.source_Tensor_storage_offset": (x, x.clone(), 0, [6, 8], [8, 1])}


def products(x, y):
    w, b = torch.randn(8, 4), torch.randn(4)
    batch = torch.randn(3, 6, 8)
    return {"_addmm_activation.default": (b, x, w), "_addmm_activation.out": (b, x, w, {"out": torch.empty(6, 4)}),
            "chain_matmul.default": ([x, w, torch.randn(4, 6)],),
            "chain_matmul.out": ([x, w, torch.randn(4, 6)], {"out": torch.empty(6, 6)}),
            "einsum.default": ("ij,jk->ik", [x, w]), "tensordot.default": (batch, y, [2], [1]),
            "tensordot.out": (batch, y, [2], [1], {"out": torch.empty(3, 6, 6)}),
            "cdist.default": (batch, torch.randn(3, 5, 8)), "cartesian_prod.default": ([x[0], y[1]],),
            "vander.default": (x[0], 4), "_weight_norm.default": (x, torch.randn(6, 1), 0),
            "_weight_norm_interface.default": (x, torch.randn(6, 1), 0),
            "_weight_norm_interface.out": (x, torch.randn(6, 1), 0, {"out0": torch.empty(6, 8), "out1": torch.empty(6, 1)}),
            "_weight_norm_differentiable_backward.default": (x, y, torch.randn(6, 1), torch.rand(6, 1), 0),
            "norm_except_dim.default": (x, 2, 0), "_grouped_mm.default": (torch.randn(4, 8, 16).bfloat16(),
                                                                           torch.randn(4, 16, 32).bfloat16())}


def linear_algebra():
    square = torch.randn(3, 4, 4) + 4 * torch.eye(4)
    tall = torch.randn(3, 5, 4)
    numbers = torch.full((3,), 1e-5)
    out = {"out": torch.empty(3)}
    pseudo = {"out": torch.empty(3, 4, 5)}
    ranks = {"out": torch.empty(3, dtype=LONG)}
    return {"_lu_with_info.default": (square,), "slogdet.default": (square,),
            "slogdet.out": (square, {"sign": torch.empty(3), "logabsdet": torch.empty(3)}),
            "linalg_cond.p_str": (square, "fro"), "linalg_cond.p_str_out": (square, "fro", out),
            "linalg_matrix_rank.default": (tall, 1e-5), "linalg_matrix_rank.out": (tall, 1e-5, ranks),
            "linalg_matrix_rank.tol_tensor": (tall, numbers), "linalg_matrix_rank.out_tol_tensor": (tall, numbers, ranks),
            "linalg_pinv.default": (tall, 1e-5), "linalg_pinv.out": (tall, 1e-5, pseudo),
            "linalg_pinv.rcond_tensor": (tall, numbers), "linalg_pinv.out_rcond_tensor": (tall, numbers, pseudo),
            "matrix_exp_backward.default": (square, square + 1), "nuclear_norm.default": (tall[0],),
            "nuclear_norm.out": (tall[0], {"out": torch.empty(())}), "nuclear_norm.dim": (tall, [1, 2]),
            "nuclear_norm.dim_out": (tall, [1, 2], out), "frobenius_norm.dim": (tall, [1, 2]),
            "frobenius_norm.out": (tall, [1, 2], out)}


def reductions(x):
    wide = {"dtype": torch.float64}
    rows, number = {"out": torch.empty(6, dtype=torch.float64)}, {"out": torch.empty((), dtype=torch.float64)}
    return {"linalg__powsum.default": (x, 2.0, [1]), "norm.ScalarOpt_dtype": (x, 2, wide), "norm.ScalarOpt_dtype_out": (x, 2, {**wide, **number}),
            "norm.ScalarOpt_dim_dtype": (x, 2, [1], False, wide), "norm.dtype_out": (x, 2, [1], False, {**wide, **rows}),
            "histogramdd.int_bins": (torch.rand(60, 2), 4, {"range": [0.0, 1.0, 0.0, 1.0]}),
            "histogramdd.TensorList_bins": (torch.rand(60, 2), [torch.linspace(0, 1, 4), torch.linspace(0, 1, 5)]),
            "isin.Tensor_Scalar": (x.round(), 1.0), "isin.Scalar_Tensor": (1.0, x.round()),
            "isin.Tensor_Scalar_out": (x.round(), 1.0, {"out": torch.empty(6, 8, dtype=torch.bool)}),
            "isin.Scalar_Tensor_out": (1.0, x.round(), {"out": torch.empty((), dtype=torch.bool)}),
            "_choose_qparams_per_tensor.default": (x,), "nonzero_numpy.default": (x.round(),),
            "gradient.scalararray": (x, {"spacing": 2.0, "dim": [0, 1]}),
            "gradient.tensorarrayint": (x, {"spacing": [torch.arange(8.0)], "dim": 1})}


def special_functions(x, y):
    a, b = x.abs() + 0.5, y.abs() + 0.5
    binary = {f"special_{name}.{form}": (a, b, *outs) for name in ("gammainc", "gammaincc")
              for form, outs in (("default", ()), ("out", ({"out": torch.empty(6, 8)},)))}
    return {**binary, "special_polygamma.default": (1, a), "special_polygamma.out": (1, a, {"out": torch.empty(6, 8)}),
            "float_power_.Scalar": (x.double(), 2.0), "float_power_.Tensor": (x.double(), y.double()),
            "infinitely_differentiable_gelu_backward.default": (x, y)}


def losses(x, y, image):
    classes, pixels = torch.tensor([0, 3, 7, 2, 5, 1]), torch.randint(4, (2, 6, 8))
    signs = torch.tensor([1.0, -1, 1, 1, -1, 1])
    number = {"out": torch.empty(())}
    steps = torch.randn(10, 3, 5).log_softmax(2)
    words = torch.randint(1, 5, (3, 4))
    scores = x.log_softmax(1)
    return {"cosine_embedding_loss.default": (x, y, signs), "cross_entropy_loss.default": (x, classes),
            "hinge_embedding_loss.default": (x, y.sign()), "kl_div.default": (scores, y.softmax(1)),
            "margin_ranking_loss.default": (x[:, 0], y[:, 0], signs), "poisson_nll_loss.default": (x, y, True, False, 1e-8, 1),
            "nll_loss.default": (scores, classes), "nll_loss.out": (scores, classes, number),
            "nll_loss2d.default": (image, pixels), "nll_loss2d.out": (image, pixels, number),
            "nll_loss_nd.default": (image, pixels),
            "ctc_loss.IntList": (steps, words, [10, 9, 8], [4, 3, 2]),
            "ctc_loss.Tensor": (steps, words, torch.tensor([10, 9, 8]), torch.tensor([4, 3, 2]))}


def random_numbers(x, y, image):
    dropouts = {f"{name}{form}.default": (image if "feature" in name else x, 0.5, True)
            for name in ("alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout") for form in ("", "_")}
    return {**dropouts, "native_dropout.default": (x, 0.5, True), "normal_functional.default": (x,),
            "rrelu_with_noise_functional.default": (x, y, 0.1, 0.3, True)}


def norms(x, y, image):
    weights, numbers = (torch.ones(4), torch.zeros(4)), (torch.zeros(4), torch.ones(4))
    norm = (image, *weights)
    return {"_fused_rms_norm.default": (x, [8], torch.randn(8), 1e-5),
            "_fused_rms_norm_backward.default": (y, x, [8], torch.rand(6, 1), torch.randn(8), [True, True]),
            "_native_batch_norm_legit_functional.default": (*norm, *numbers, True, 0.1, 1e-5),
            "_native_batch_norm_legit_no_training.default": (*norm, *numbers, 0.1, 1e-5),
            "_native_batch_norm_legit.no_stats": (*norm, True, 0.1, 1e-5),
            "_native_batch_norm_legit.no_stats_out": (*norm, True, 0.1, 1e-5, {
                "out": torch.empty(2, 4, 6, 8), "save_mean": torch.empty(4), "save_invstd": torch.empty(4)}),
            "_batch_norm_with_update_functional.default": (*norm, *numbers, 0.1, 1e-5),
            "batch_norm.default": (image, *weights, *numbers, True, 0.1, 1e-5, False),
            "_batch_norm_impl_index.default": (image, *weights, *numbers, True, 0.1, 1e-5, False),
            "_batch_norm_impl_index_backward.default": (0, image, image + 1, weights[0], *numbers, *numbers, True, 1e-5,
                                                        [True, True, True], torch.empty(0)),
            "_batch_norm_no_update.default": (image, *weights, *numbers, 0.1, 1e-5),
            "instance_norm.default": (image, *weights, None, None, True, 0.1, 1e-5, False)}


def images(image):
    kernels = torch.randn(5, 4, 3, 3)
    volume = torch.randn(2, 4, 5, 6, 8)
    volume_kernels = torch.randn(3, 4, 3, 3, 3)
    grid = torch.rand(2, 5, 7, 2) * 2 - 1
    theta = torch.randn(2, 2, 3)
    ones, twos = [1, 1], [2, 2]
    sequence = image[:, :, 0]
    resized = {f"{name}1d.vec": (sequence, [12], None) for name in ("upsample_nearest", "_upsample_nearest_exact")}
    resized |= {f"{name}2d.vec": (image, [12, 16], None) for name in ("upsample_nearest", "_upsample_nearest_exact")}
    resized |= {f"{name}3d.vec": (volume, [10, 12, 16], None) for name in ("upsample_nearest", "_upsample_nearest_exact")}
    resized |= {f"{name}2d{form}.vec": (image, [12, 16], False, None) for name, form in
                (("upsample_bicubic", ""), ("upsample_bilinear", ""), ("_upsample_bicubic", "_aa"), ("_upsample_lanczos", "_aa"))}
    return {**resized, "upsample_linear1d.vec": (sequence, [12], False, None),
            "upsample_trilinear3d.vec": (volume, [10, 12, 16], False, None),
            "_convolution.deprecated": (image, kernels, None, ones, ones, ones, False, [0, 0], 1, False, False, False),
            "_convolution_mode.default": (image, kernels, None, ones, "same", ones, 1),
            "_convolution_double_backward.default": (image, None, None, torch.randn(2, 5, 6, 8), kernels, image, ones, ones,
                                                     ones, False, [0, 0], 1, [True, True, True]),
            "conv_tbc_backward.default": (torch.randn(8, 2, 5), torch.randn(6, 2, 4), torch.randn(3, 4, 5), torch.randn(5), 2),
            "thnn_conv2d.default": (image, kernels, [3, 3], None, ones, ones),
            "thnn_conv2d.out": (image, kernels, [3, 3], None, ones, ones, {"out": torch.empty(2, 5, 6, 8)}),
            "slow_conv3d.default": (volume, volume_kernels, [3, 3, 3], None, [1] * 3, [1] * 3),
            "slow_conv3d.out": (volume, volume_kernels, [3, 3, 3], None, [1] * 3, [1] * 3, {"out": torch.empty(2, 3, 5, 6, 8)}),
            "im2col.default": (image, twos, ones, [0, 0], twos), "col2im.default": (torch.randn(2, 16, 12), [6, 8], twos, ones, [0, 0], twos),
            "im2col.out": (image, twos, ones, [0, 0], twos, {"out": torch.empty(2, 16, 12)}),
            "col2im.out": (torch.randn(2, 16, 12), [6, 8], twos, ones, [0, 0], twos, {"out": torch.empty(2, 4, 6, 8)}),
            "max_pool1d.default": (sequence, [2]), "max_pool2d.default": (image, twos), "max_pool3d.default": (volume, [2] * 3),
            "native_channel_shuffle.default": (image, 2), "grid_sampler.default": (image, grid, 0, 0, False),
            "affine_grid_generator.default": (theta, [2, 4, 6, 8], False),
            "affine_grid_generator.out": (theta, [2, 4, 6, 8], False, {"out": torch.empty(2, 6, 8, 2)}),
            "affine_grid_generator_backward.default": (torch.randn(2, 6, 8, 2), [2, 4, 6, 8], False),
            "_pad_circular.default": (image, [1, 1, 1, 1]), "_pad_enum.default": (image, [1, 1, 1, 1], 2),
            "adaptive_max_pool1d.default": (sequence, [3]), "max_pool1d_with_indices.default": (sequence, [2]),
            **{f"_upsample_{name}2d_aa.default": (image, [4, 5], False) for name in ("bicubic", "lanczos")},
            **{f"_upsample_{name}2d_aa_backward.default": (torch.randn(2, 4, 4, 5), [4, 5], [2, 4, 6, 8], False)
               for name in ("bicubic", "lanczos")}}


def quantizations(x):
    mask = x > 0
    on = torch.ones(1, dtype=LONG)
    rows = (torch.zeros(6), torch.ones(6), torch.ones(6), torch.zeros(6, dtype=torch.int32))
    return {"fused_moving_avg_obs_fake_quant.default": (x, on, on, *rows, 0.01, 0, 255, 0, True, False),
            "fbgemm_linear_quantize_weight.default": (x,), "choose_qparams_optimized.default": (x.flatten(), 48, 200, 0.16, 8),
            "fake_quantize_per_channel_affine.default": (x, torch.full((8,), 0.1), torch.zeros(8, dtype=torch.int32), 1, 0, 255),
            "fake_quantize_per_channel_affine_cachemask_backward.default": (x, mask),
            "fake_quantize_per_tensor_affine.default": (x, 0.1, 0, 0, 255),
            "fake_quantize_per_tensor_affine.tensor_qparams": (x, torch.tensor([0.1]), torch.zeros(1, dtype=torch.int32), 0, 255),
            "fake_quantize_per_tensor_affine_cachemask_backward.default": (x, mask)}


def lookups(x, y):
    rows = torch.tensor([4, 0, 2])
    index = torch.randint(6, (6, 8))
    words, bags = torch.tensor([1, 2, 4, 5, 0, 3]), torch.tensor([0, 2, 4])
    return {"_unsafe_index.Tensor": (x, [rows]), "_unsafe_index_put.default": (x, [rows], y[:3]), "_index_put_impl_.default": (x, [rows], y[:3]),
            "embedding_backward.default": (torch.randn(3, 8), rows, 6, -1, False, False),
            "embedding_bag.default": (x, words, bags), "embedding_bag.padding_idx": (x, words, bags, False, 0, False, None, False, 2),
            "gather_backward.default": (x, y, 0, index, False), "index_select_backward.default": (y[:3], [6, 8], 0, rows),
            "masked_select_backward.default": (torch.randn(int((x > 0).sum())), y, x > 0),
            "scatter_.reduce": (x, 0, index, y, {"reduce": "add"}), "scatter_.value_reduce": (x, 0, index, 2.0, {"reduce": "add"}),
            "value_selecting_reduction_backward.default": (x[0], 0, index[0], [6, 8], False),
            "cummaxmin_backward.default": (x, y, index, 0), "cumprod_backward.default": (x, y, 0, y.cumprod(0)),
            "_rowwise_prune.default": (x, x[:, 0] > 0, LONG), "fill_diagonal_.default": (x, 2.0)}


def lists(x, y):
    w, number = torch.randn(8), torch.tensor(2.0)
    return {"_foreach_add.Tensor": ([x, w], number), "_foreach_add_.Tensor": ([x, w], number),
            "_foreach_addcdiv_.Tensor": ([x], [x], [y], torch.tensor([2.0])),
            "_foreach_addcmul_.Tensor": ([x], [x], [y], torch.tensor([2.0])),
            "_foreach_addcmul_.ScalarList": ([x], [x], [y], [2.0]),
            "_foreach_pow.ScalarAndTensor": (2.0, [x, w]), "_foreach_powsum.Scalar": ([x, w], 2.0),
            "_amp_foreach_non_finite_check_and_unscale_.default": ([x, y], torch.zeros(1), torch.ones(1)),
            "pad_sequence.default": ([x, y[:4]],), "flatten_dense_tensors.default": ([x, y],),
            "unflatten_dense_tensors.default": (torch.randn(96), [x, y]),
            "_pad_packed_sequence.default": (x, torch.tensor([2, 2, 2]), False, 0.0, 3),
            "_pack_padded_sequence_backward.default": (x, [3, 2, 8], torch.tensor([2, 2, 2]), False)}


def recurrent_layers(x, y):
    found = {}
    sequence, sizes = torch.randn(5, 6, 8), torch.tensor([6] * 5)
    for name, gates in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)):
        state = torch.randn(1, 6, 8)
        parameters = [torch.randn(8 * gates, 8), torch.randn(8 * gates, 8), torch.randn(8 * gates), torch.randn(8 * gates)]
        states = [state, state + 1] if name == "lstm" else state
        options = (parameters, True, 1, 0.0, False, False)
        found[f"{name}.input"] = (sequence, states, *options, False)
        found[f"{name}.data"] = (sequence.flatten(0, 1), sizes, states, *options)
        found[f"{name}_cell.default"] = (x, [y, y + 1] if name == "lstm" else y, *parameters)
    gates, hidden = torch.randn(6, 32), torch.randn(6, 32)
    found["_thnn_differentiable_lstm_cell_backward.default"] = (x, y, gates, hidden, None, None, x, y)
    found["_thnn_differentiable_gru_cell_backward.default"] = (x, gates[:, :24], hidden[:, :24], y, None, None)
    return found


def attention():
    heads = [torch.randn(2, 4, 6, 8) for _ in range(3)]
    return {"_scaled_dot_product_attention_math.default": tuple(heads)}


def quasi_random_numbers():
    quasi, state = torch.zeros(6, dtype=LONG), torch.zeros(6, 30, dtype=LONG)
    torch.ops.aten._sobol_engine_initialize_state_(state, 6)
    scrambling = torch.randint(2, (6, 30, 30)).tril()
    return {"_sobol_engine_draw.default": (quasi, 5, state, 6, 0, FLOAT), "_sobol_engine_ff_.default": (quasi, 5, state, 6, 0),
            "_sobol_engine_initialize_state_.default": (torch.zeros_like(state), 6),
            "_sobol_engine_scramble_.default": (state, scrambling, 6)}


def parts_of_sparse_tensors(x):
    """What sparse tensors are made of, and tensors that are made sparse."""
    begins, places, values = torch.tensor([0, 2, 3, 4, 6]), torch.tensor([0, 1, 1, 2, 0, 3]), torch.randn(6)
    blocks = torch.randn(6, 2, 2)
    indices, entries = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), torch.randn(4)
    return {"_validate_sparse_compressed_tensor_args.default": (begins, places, values, [4, 4], torch.sparse_csr),
            "_validate_sparse_csr_tensor_args.default": (begins, places, values, [4, 4]),
            "_validate_sparse_csc_tensor_args.default": (begins, places, values, [4, 4]),
            "_validate_sparse_bsr_tensor_args.default": (begins, places, blocks, [8, 8]),
            "_validate_sparse_bsc_tensor_args.default": (begins, places, blocks, [8, 8]),
            "_validate_sparse_coo_tensor_args.default": (indices, entries, [4, 4]),
            "_sparse_coo_tensor_unsafe.default": (indices, entries, [4, 4]),
            "to_sparse_csr.default": (x,), "to_sparse_csc.default": (x,), "to_sparse_bsr.default": (x, [2, 2]),
            "to_sparse_bsc.default": (x, [2, 2]), "_sparse_mm.default": (x, torch.randn(8, 4)),
            "embedding_sparse_backward.default": (torch.randn(3, 8), torch.tensor([4, 0, 2]), 6, -1, False),
            "_gather_sparse_backward.default": (x, 0, torch.randint(6, (6, 8)), x + 1)}


def sequences_of_numbers():
    """What a factory writes to a tensor that is there."""
    def into(*shape, dtype=FLOAT):
        return {"out": torch.zeros(shape, dtype=dtype)}

    one, ten = torch.tensor(1.0), torch.tensor(10.0)
    spaced = {f"{name}.{form}": (start, end, 12, into(12)) for name in ("linspace", "logspace") for form, start, end in
              (("out", 1.0, 10.0), ("Scalar_Tensor_out", 1.0, ten), ("Tensor_Scalar_out", one, 10.0), ("Tensor_Tensor_out", one, ten))}
    return {**spaced, "arange.out": (12, into(12)), "arange.start_out": (2, 14, 1, into(12)),
            "empty.out": ([6, 8], into(6, 8)), "empty_strided.out": ([6, 8], [8, 1], into(6, 8)), "eye.out": (6, into(6, 6)),
            "eye.m_out": (6, 8, into(6, 8)), "full.out": ([6, 8], 2.0, into(6, 8)), "hann_window.out": (12, into(12)),
            "hann_window.periodic_out": (12, True, into(12)),
            "normal.float_float_out": (0.0, 1.0, [6, 8], into(6, 8)), "rand.generator_out": ([6, 8], {"generator": None, **into(6, 8)}),
            "randn.out": ([6, 8], into(6, 8)), "randn.generator_out": ([6, 8], {"generator": None, **into(6, 8)}),
            "tril_indices.out": (4, 4, into(2, 10, dtype=LONG)), "triu_indices.out": (4, 4, into(2, 10, dtype=LONG))}


def all_samples():
    """{overload: (args, kwargs)}"""
    x, y, image = torch.randn(6, 8), torch.randn(6, 8), torch.randn(2, 4, 6, 8)
    groups = (questions(x, y), conversions(x), views(x, image), products(x, y), linear_algebra(), reductions(x),
              special_functions(x, y), losses(x, y, image), random_numbers(x, y, image), norms(x, y, image), images(image), quantizations(x),
              lookups(x, y), lists(x, y), recurrent_layers(x, y), attention(), quasi_random_numbers(),
              parts_of_sparse_tensors(x), sequences_of_numbers())
    return {f"aten.{name}": split(arguments) for group in groups for name, arguments in group.items()}


def split(arguments):
    named = arguments[-1] if arguments and isinstance(arguments[-1], dict) else None
    return (arguments, {}) if named is None else (arguments[:-1], named)
