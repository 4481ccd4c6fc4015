//! [`FloatTensorOps`]: operations on float tensors under Burn's names, for operations that a program adds to a backend.

use super::{BoolTensor, FloatTensor, IntTensor};
use crate::backend::{Backend, ExecutionError, Primitive, SliceRange};
use crate::{
    ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, Dims, Distribution, Element, FloatDType, InlineVec,
    ReduceOp, Scalar, ScatterOp, Shape, TensorData, UnaryOp,
};
use alloc::vec::Vec;
use core::future::Future;

/// Declares [`FloatTensorOps`]: the names of families of operations, which differ in the member alone, and the rest.
macro_rules! float_tensor_ops {
    (
        unary { $($unary:ident = $unary_op:ident,)* }
        binary { $($binary:ident = $binary_op:ident,)* }
        scalar { $($scalar:ident = $scalar_op:ident,)* }
        compare { $($compare:ident = $compare_op:ident,)* }
        compare_elem { $($compare_elem:ident = $compare_elem_op:ident,)* }
        reduce { $($reduce:ident = $reduce_op:ident,)* }
        reduce_dim { $($reduce_dim:ident = $reduce_dim_op:ident,)* }
        arg_reduce { $($arg:ident = $arg_op:ident,)* }
        cumulative { $($cumulative:ident = $cumulative_op:ident,)* }
        others { $($others:tt)* }
    ) => {
        /// The operations of a [`Backend`] on float tensors under the names that Burn gives them: each is a call of that
        /// trait's methods. Every backend has them; none implements them.
        ///
        /// Operands of equal rank broadcast. Shapes and dtypes are the caller's to check: a backend may panic on what does
        /// not fit.
        pub trait FloatTensorOps<B: Backend> {
            $(
                #[doc = concat!("[`UnaryOp::", stringify!($unary_op), "`] of each element.")]
                fn $unary(tensor: FloatTensor<B>) -> FloatTensor<B> {
                    B::unary(UnaryOp::$unary_op, tensor)
                }
            )*
            $(
                #[doc = concat!("[`BinaryOp::", stringify!($binary_op), "`] of each pair of elements.")]
                fn $binary(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
                    B::binary(BinaryOp::$binary_op, lhs, rhs)
                }
            )*
            $(
                #[doc = concat!("[`BinaryOp::", stringify!($scalar_op), "`] of each element and a number.")]
                fn $scalar(lhs: FloatTensor<B>, rhs: B::FloatElem) -> FloatTensor<B> {
                    B::binary_scalar(BinaryOp::$scalar_op, lhs, rhs.into())
                }
            )*
            $(
                #[doc = concat!("[`CompareOp::", stringify!($compare_op), "`] of each pair of elements.")]
                fn $compare(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> BoolTensor<B> {
                    B::compare(CompareOp::$compare_op, lhs, rhs)
                }
            )*
            $(
                #[doc = concat!("[`CompareOp::", stringify!($compare_elem_op), "`] of each element and a number.")]
                fn $compare_elem(lhs: FloatTensor<B>, rhs: B::FloatElem) -> BoolTensor<B> {
                    B::compare_scalar(CompareOp::$compare_elem_op, lhs, rhs.into())
                }
            )*
            $(
                #[doc = concat!("[`ReduceOp::", stringify!($reduce_op), "`] of all elements: a tensor with the one dim 1.")]
                fn $reduce(tensor: FloatTensor<B>) -> FloatTensor<B> {
                    let axes: Dims = (0..tensor.dims().len()).collect();
                    B::reshape(B::reduce(ReduceOp::$reduce_op, tensor, &axes), Shape::new([1]))
                }
            )*
            $(
                #[doc = concat!("[`ReduceOp::", stringify!($reduce_dim_op), "`] along a dim, which stays with size 1.")]
                fn $reduce_dim(tensor: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
                    B::reduce(ReduceOp::$reduce_dim_op, tensor, &[dim])
                }
            )*
            $(
                #[doc = concat!("[`ArgReduceOp::", stringify!($arg_op), "`] along a dim, which stays with size 1; the first of equals.")]
                fn $arg(tensor: FloatTensor<B>, dim: usize) -> IntTensor<B> {
                    B::arg_reduce(ArgReduceOp::$arg_op, tensor, dim, false)
                }
            )*
            $(
                #[doc = concat!("[`CumulativeOp::", stringify!($cumulative_op), "`] along a dim.")]
                fn $cumulative(tensor: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
                    B::cumulative(CumulativeOp::$cumulative_op, tensor, dim, false, false)
                }
            )*
            $($others)*
        }
    };
}

float_tensor_ops! {
    unary {
        float_neg = Neg,
        float_abs = Abs,
        float_sign = Sign,
        float_exp = Exp,
        float_log = Log,
        float_log1p = Log1p,
        float_sqrt = Sqrt,
        float_recip = Recip,
        float_sin = Sin,
        float_cos = Cos,
        float_tan = Tan,
        float_asin = Asin,
        float_acos = Acos,
        float_atan = Atan,
        float_sinh = Sinh,
        float_cosh = Cosh,
        float_tanh = Tanh,
        float_asinh = Asinh,
        float_acosh = Acosh,
        float_atanh = Atanh,
        float_erf = Erf,
        float_floor = Floor,
        float_ceil = Ceil,
        float_round = Round,
        float_trunc = Trunc,
        float_is_nan = IsNan,
        float_is_inf = IsInf,
    }
    binary {
        float_add = Add,
        float_sub = Sub,
        float_mul = Mul,
        float_div = Div,
        float_powf = Pow,
        float_remainder = Remainder,
        float_atan2 = Atan2,
    }
    scalar {
        float_add_scalar = Add,
        float_sub_scalar = Sub,
        float_mul_scalar = Mul,
        float_div_scalar = Div,
        float_remainder_scalar = Remainder,
        float_clamp_min = Max,
        float_clamp_max = Min,
    }
    compare {
        float_equal = Equal,
        float_not_equal = NotEqual,
        float_greater = Greater,
        float_greater_equal = GreaterEqual,
        float_lower = Lower,
        float_lower_equal = LowerEqual,
    }
    compare_elem {
        float_equal_elem = Equal,
        float_not_equal_elem = NotEqual,
        float_greater_elem = Greater,
        float_greater_equal_elem = GreaterEqual,
        float_lower_elem = Lower,
        float_lower_equal_elem = LowerEqual,
    }
    reduce {
        float_sum = Sum,
        float_prod = Prod,
        float_mean = Mean,
        float_max = Max,
        float_min = Min,
    }
    reduce_dim {
        float_sum_dim = Sum,
        float_prod_dim = Prod,
        float_mean_dim = Mean,
        float_max_dim = Max,
        float_min_dim = Min,
    }
    arg_reduce {
        float_argmax = Max,
        float_argmin = Min,
    }
    cumulative {
        float_cumsum = Sum,
        float_cumprod = Prod,
        float_cummax = Max,
        float_cummin = Min,
    }
    others {
        /// A tensor of data, with its dtype.
        fn float_from_data(data: TensorData, device: &B::Device) -> FloatTensor<B> {
            B::from_data(data, device)
        }

        /// Reads a tensor back.
        fn float_into_data(
            tensor: FloatTensor<B>,
        ) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
            B::into_data_async(tensor)
        }

        /// Random numbers of the backend's float dtype.
        fn float_random(shape: Shape, distribution: Distribution, device: &B::Device) -> FloatTensor<B> {
            B::random(shape, distribution, B::FloatElem::DTYPE, device)
        }

        /// Zeros.
        fn float_zeros(shape: Shape, device: &B::Device, dtype: FloatDType) -> FloatTensor<B> {
            B::full(shape, Scalar::Float(0.0), dtype.into(), device)
        }

        /// Ones.
        fn float_ones(shape: Shape, device: &B::Device, dtype: FloatDType) -> FloatTensor<B> {
            B::full(shape, Scalar::Float(1.0), dtype.into(), device)
        }

        /// One number everywhere.
        fn float_full(
            shape: Shape,
            fill_value: B::FloatElem,
            device: &B::Device,
            dtype: FloatDType,
        ) -> FloatTensor<B> {
            B::full(shape, fill_value.into(), dtype.into(), device)
        }

        /// The device of a tensor.
        fn float_device(tensor: &FloatTensor<B>) -> B::Device {
            B::device(tensor)
        }

        /// The tensor on another device.
        fn float_to_device(tensor: FloatTensor<B>, device: &B::Device) -> FloatTensor<B> {
            B::to_device(tensor, device)
        }

        /// The tensor in another float dtype.
        fn float_cast(tensor: FloatTensor<B>, dtype: FloatDType) -> FloatTensor<B> {
            B::cast(tensor, dtype.into())
        }

        /// The tensor as integers of the backend, rounded towards zero.
        fn float_into_int(tensor: FloatTensor<B>) -> IntTensor<B> {
            B::cast(tensor, B::IntElem::DTYPE)
        }

        /// The matrix product over the last two dims: `[.., m, k]` and `[.., k, n]`.
        fn float_matmul(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
            B::matmul(lhs, rhs)
        }

        /// The tensor with its last two dims swapped.
        fn float_transpose(tensor: FloatTensor<B>) -> FloatTensor<B> {
            match tensor.dims().len() {
                0 | 1 => tensor,
                rank => Self::float_swap_dims(tensor, rank - 2, rank - 1),
            }
        }

        /// The tensor with two dims swapped.
        fn float_swap_dims(tensor: FloatTensor<B>, dim1: usize, dim2: usize) -> FloatTensor<B> {
            let mut axes: Dims = (0..tensor.dims().len()).collect();
            axes.swap(dim1, dim2);
            B::permute(tensor, &axes)
        }

        /// The tensor with its dims in another order.
        fn float_permute(tensor: FloatTensor<B>, axes: &[usize]) -> FloatTensor<B> {
            B::permute(tensor, axes)
        }

        /// The tensor reversed along some dims.
        fn float_flip(tensor: FloatTensor<B>, axes: &[usize]) -> FloatTensor<B> {
            let mut ranges: InlineVec<SliceRange> = tensor.dims().iter().copied().map(SliceRange::full).collect();
            axes.iter().for_each(|&axis| ranges[axis].step = -1);
            B::slice(tensor, &ranges)
        }

        /// The same elements in other dims.
        fn float_reshape(tensor: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
            B::reshape(tensor, shape)
        }

        /// The tensor repeated along dims of size 1.
        fn float_expand(tensor: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
            B::expand(tensor, shape)
        }

        /// The tensor `times` times along a dim.
        fn float_repeat_dim(tensor: FloatTensor<B>, dim: usize, times: usize) -> FloatTensor<B> {
            let mut all = Dims::repeat(1, tensor.dims().len());
            all[dim] = times;
            B::repeat(tensor, &all)
        }

        /// Tensors one after the other along a dim.
        fn float_cat(tensors: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
            B::cat(&tensors, dim)
        }

        /// The elements along a dim that indices of the same rank name.
        fn float_gather(dim: usize, tensor: FloatTensor<B>, indices: IntTensor<B>) -> FloatTensor<B> {
            B::gather(tensor, dim, indices)
        }

        /// Adds values where indices of the same rank name places along a dim.
        fn float_scatter_add(
            dim: usize,
            tensor: FloatTensor<B>,
            indices: IntTensor<B>,
            value: FloatTensor<B>,
        ) -> FloatTensor<B> {
            B::scatter(tensor, dim, indices, value, ScatterOp::Add)
        }

        /// The slices along a dim that indices name, `[n]`.
        fn float_select(tensor: FloatTensor<B>, dim: usize, indices: IntTensor<B>) -> FloatTensor<B> {
            B::select(tensor, dim, indices)
        }

        /// Adds slices along a dim where indices, `[n]`, name places.
        fn float_select_add(
            tensor: FloatTensor<B>,
            dim: usize,
            indices: IntTensor<B>,
            value: FloatTensor<B>,
        ) -> FloatTensor<B> {
            B::select_assign(tensor, dim, indices, value, ScatterOp::Add)
        }

        /// `value` where the mask holds, the tensor elsewhere.
        fn float_mask_where(
            tensor: FloatTensor<B>,
            mask: BoolTensor<B>,
            value: FloatTensor<B>,
        ) -> FloatTensor<B> {
            B::select_where(mask, value, tensor)
        }

        /// A number where the mask holds, the tensor elsewhere.
        fn float_mask_fill(
            tensor: FloatTensor<B>,
            mask: BoolTensor<B>,
            value: B::FloatElem,
        ) -> FloatTensor<B> {
            B::mask_fill(tensor, mask, value.into())
        }

        /// Each element, no less and no more than two numbers.
        fn float_clamp(tensor: FloatTensor<B>, min: B::FloatElem, max: B::FloatElem) -> FloatTensor<B> {
            B::clamp(tensor, Some(min.into()), Some(max.into()))
        }

        /// Each element to the power of a number.
        fn float_powf_scalar(tensor: FloatTensor<B>, value: f32) -> FloatTensor<B> {
            B::binary_scalar(BinaryOp::Pow, tensor, f64::from(value).into())
        }

        /// Each element to the power of a whole number.
        fn float_powi_scalar(lhs: FloatTensor<B>, rhs: B::IntElem) -> FloatTensor<B> {
            B::binary_scalar(BinaryOp::Pow, lhs, rhs.into())
        }

        /// The largest along a dim, which stays with size 1, and where it stands; its gradient goes there.
        fn float_max_dim_with_indices(
            tensor: FloatTensor<B>,
            dim: usize,
        ) -> (FloatTensor<B>, IntTensor<B>) {
            let indices = Self::float_argmax(tensor.clone(), dim);
            (Self::float_gather(dim, tensor, indices.clone()), indices)
        }

        /// The smallest along a dim, which stays with size 1, and where it stands; its gradient goes there.
        fn float_min_dim_with_indices(
            tensor: FloatTensor<B>,
            dim: usize,
        ) -> (FloatTensor<B>, IntTensor<B>) {
            let indices = Self::float_argmin(tensor.clone(), dim);
            (Self::float_gather(dim, tensor, indices.clone()), indices)
        }

        /// The elements in order along a dim.
        fn float_sort(tensor: FloatTensor<B>, dim: usize, descending: bool) -> FloatTensor<B> {
            B::sort(tensor, dim, descending).0
        }

        /// The elements in order along a dim, and where they stood.
        fn float_sort_with_indices(
            tensor: FloatTensor<B>,
            dim: usize,
            descending: bool,
        ) -> (FloatTensor<B>, IntTensor<B>) {
            B::sort(tensor, dim, descending)
        }

        /// Where the elements stand that are in order along a dim.
        fn float_argsort(tensor: FloatTensor<B>, dim: usize, descending: bool) -> IntTensor<B> {
            B::sort(tensor, dim, descending).1
        }

        /// The tensor as a constant: gradients do not flow through it.
        fn float_detach(tensor: FloatTensor<B>) -> FloatTensor<B> {
            B::detach(tensor)
        }

        /// The tensor as a leaf whose gradient is wanted, or as a constant.
        fn float_set_require_grad(tensor: FloatTensor<B>, require_grad: bool) -> FloatTensor<B> {
            B::set_require_grad(tensor, require_grad)
        }

        /// Whether the tensor is a leaf whose gradient is wanted.
        fn float_is_require_grad(tensor: &FloatTensor<B>) -> bool {
            B::is_require_grad(tensor)
        }
    }
}

impl<B: Backend> FloatTensorOps<B> for B {}
