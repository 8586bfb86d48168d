"""A quick part of ONNX's own node tests; the gate `conformance` runs all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from onnxcases import cases_of, run
from seeds import one_in

# module of the suite → cases without `test_`
CASES = {
    "conv": "basic_conv_with_padding conv_with_strides_and_asymmetric_padding",
    "convtranspose": "convtranspose_pads convtranspose_dilations convtranspose_output_shape"
    " convtranspose_autopad_same convtranspose_group_2",
    "gemm": "gemm_all_attributes",
    "matmulinteger": "matmulinteger",
    "convinteger": "convinteger_with_padding",
    "qlinearconv": "qlinearconv",
    "qlinearmatmul": "qlinearmatmul_3D_int8_float32",
    "quantizelinear": "quantizelinear_axis quantizelinear_blocked_asymmetric quantizelinear_uint4",
    "dequantizelinear": "dequantizelinear_axis dequantizelinear_blocked dequantizelinear_int4",
    "dynamicquantizelinear": "dynamicquantizelinear_min_adjusted",
    "resize": "resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric"
    " resize_downsample_scales_linear_antialias resize_downsample_scales_cubic"
    " resize_upsample_scales_cubic_A_n0p5_exclude_outside resize_tf_crop_and_resize_axes_2_3"
    " resize_downsample_sizes_linear_pytorch_half_pixel"
    " resize_upsample_sizes_nearest_not_larger resize_downsample_scales_linear_align_corners",
    "maxpool": "maxpool_2d_ceil maxpool_2d_dilations maxpool_with_argmax_2d_precomputed_pads"
    " maxpool_2d_same_lower",
    "averagepool": "averagepool_2d_ceil averagepool_2d_pads_count_include_pad"
    " averagepool_3d_dilations_small",
    "lppool": "lppool_2d_pads",
    "layernormalization": "layer_normalization_3d_axis1_epsilon",
    "groupnormalization": "group_normalization_epsilon",
    "instance_normalization": "instancenorm_epsilon",
    "batch_normalization": "batchnorm_epsilon",
    "rmsnormalization": "rms_normalization_4d_axis1",
    "lrn": "lrn",
    "lstm": "lstm_with_peepholes lstm_batchwise",
    "gru": "gru_with_initial_bias gru_batchwise",
    "if_": "if",
    "rangeop": "range_float_type_positive_delta_expanded",
    "scan": "scan9_sum",
    "slice": "slice_neg_steps slice_end_out_of_bounds",
    "gathernd": "gathernd_example_int32_batch_dim1",
    "gatherelements": "gather_elements_negative_indices",
    "scatternd": "scatternd_add scatternd_max",
    "scatterelements": "scatter_elements_with_duplicate_indices",
    "pad": "reflect_pad edge_pad constant_pad_negative_axes",
    "split": "split_1d_uneven_split_opset18",
    "topk": "top_k_negative_axis top_k_smallest",
    "onehot": "onehot_negative_indices",
    "cumsum": "cumsum_1d_reverse_exclusive",
    "einsum": "einsum_batch_matmul",
    "depthtospace": "depthtospace_crd_mode_example",
    "trilu": "tril_neg triu_pos",
    "argmax": "argmax_negative_axis_keepdims_random_select_last_index",
    "reducemax": "reduce_max_empty_set",
    "reduce_log_sum_exp": "reduce_log_sum_exp_negative_axes_keepdims_random",
    "softmax": "softmax_axis_0 softmax_large_number",
    "gelu": "gelu_default_1 gelu_tanh_2",
    "mod": "mod_mixed_sign_int32 mod_int64_fmod",
    "cast": "cast_FLOAT_to_FLOAT8E4M3FN cast_FLOAT_to_BFLOAT16 cast_INT4_to_INT8",
    "attention": "attention_3d_with_past_and_present attention_4d_gqa_softcap",
    "rotaryembedding": "rotary_embedding_interleaved",
    "col2im": "col2im_dilations",
    "center_crop_pad": "center_crop_pad_crop_and_pad",
    "affinegrid": "affine_grid_2d_align_corners",
}


@pytest.fixture(autouse=True)
def _wide_types() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("module", one_in(3, CASES))
def test_cases_of_the_standard_come_out_as_it_says(module: str, tmp_path: Path) -> None:
    known = cases_of(module)
    told = {name: run(known[f"test_{name}"], tmp_path) for name in CASES[module].split()}
    assert {name: (o.status, o.detail) for name, o in told.items() if o.status != "pass"} == {}
