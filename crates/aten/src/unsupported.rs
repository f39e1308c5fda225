//! The operators of PyTorch that are missing, with the reason. Errors and `docs/operators.md` print
//! the reasons.

use maquette_ops::operator::Missing;

/// Reasons, each with the operators that are missing for it: in alphabetical order, without the
/// namespace, and without the overload name `.default`.
static UNSUPPORTED: &[(&str, &[&str])] = &[
    (
        "it changes the metadata of its argument, but a tensor's sizes and strides are immutable \
            in Maquette; use the operator of the same name without `_`",
        &[
            "as_strided_",
            "detach_",
            "resize_",
            "resize_as_",
            "set_",
            "squeeze_",
            "squeeze_.dim",
            "squeeze_.dims",
            "swapaxes_",
            "swapdims_",
            "t_",
            "transpose_",
            "unsqueeze_",
        ],
    ),
    (
        "it takes or returns complex numbers, and complex dtypes are not supported",
        &[
            "complex",
            "fft_fft",
            "fft_fft2",
            "fft_fftn",
            "fft_hfft",
            "fft_hfft2",
            "fft_hfftn",
            "fft_ifft",
            "fft_ifft2",
            "fft_ifftn",
            "fft_ihfft",
            "fft_irfft",
            "fft_irfft2",
            "fft_irfftn",
            "fft_rfft",
            "fft_rfft2",
            "fft_rfftn",
            "istft",
            "polar",
            "stft",
            "stft.center",
            "view_as_complex",
            "view_as_real",
        ],
    ),
    (
        "eigenvalues, singular values and operators based on them are not implemented yet",
        &[
            "_linalg_eigh",
            "_linalg_svd",
            "linalg_cond",
            "linalg_eig",
            "linalg_eigh",
            "linalg_eigvals",
            "linalg_eigvalsh",
            "linalg_ldl_factor",
            "linalg_ldl_factor_ex",
            "linalg_ldl_solve",
            "linalg_lstsq",
            "linalg_matrix_exp",
            "linalg_matrix_rank.atol_rtol_float",
            "linalg_matrix_rank.atol_rtol_tensor",
            "linalg_matrix_sqrth",
            "linalg_pinv",
            "linalg_pinv.atol_rtol_float",
            "linalg_pinv.atol_rtol_tensor",
            "linalg_polar",
            "linalg_svd",
            "linalg_svdvals",
            "linalg_tensorinv",
            "linalg_tensorsolve",
            "matrix_exp",
            "pinverse",
            "svd",
        ],
    ),
    (
        "the offset of its view depends on data; read the index with `item` and use the overload \
            that takes integers",
        &["narrow.Tensor", "tensor_split.tensor_indices_or_sections"],
    ),
    (
        "it is a fused kernel of PyTorch; use the operators of which it consists",
        &[
            "_batch_norm_impl_index",
            "_linalg_check_errors",
            "_native_multi_head_attention",
            "_nested_tensor_from_mask_left_aligned",
            "_transformer_encoder_layer_fwd",
            "mkldnn_rnn_layer",
        ],
    ),
    (
        "it is not implemented yet",
        &[
            "_lu_with_info",
            "ctc_loss.IntList",
            "ctc_loss.Tensor",
            "fft_fftshift",
            "fft_ifftshift",
            "gradient.scalararray",
            "gradient.scalarint",
            "gradient.scalarrayarray",
            "gradient.scalarrayint",
            "gradient.tensorarray",
            "logdet",
            "lstm.data",
            "lu_solve",
            "result_type.Tensor",
        ],
    ),
];

maquette_ops::inventory::submit! { Missing(unsupported) }

/// The reason why PyTorch's operator of this full name is missing, if it is in the list.
pub fn unsupported(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("aten::")?;
    UNSUPPORTED.iter().find(|(_, names)| names.contains(&bare)).map(|(why, _)| *why)
}

/// All missing operators, each with the reason.
pub fn all_unsupported() -> impl Iterator<Item = (&'static str, &'static str)> {
    UNSUPPORTED.iter().flat_map(|(why, names)| names.iter().map(|n| (*n, *why)))
}
