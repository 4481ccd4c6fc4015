//! [`Batch`]: tensors whose first dim counts rows, and how they are joined and taken apart.

use crate::ServeError;
use kiln_core::Tensor;
use kiln_core::tensor::backend::{Backend, DeviceId, DeviceOps};
use kiln_core::tensor::{DType, Dims, TensorKind};
use std::ops::Range;

/// What of a tensor decides whether it may be joined with another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorInfo {
    /// All dims, the rows first.
    pub dims: Dims,
    /// The dtype.
    pub dtype: DType,
    /// The device.
    pub device: DeviceId,
}

/// Tensors whose first dim counts rows: one of any kind, or a tuple (of up to twelve) of such.
pub trait Batch: Clone + Send + 'static {
    /// Describes each tensor, in order.
    fn describe(&self, tensors: &mut Vec<TensorInfo>);

    /// Joins along the rows. There is at least one part, and they differ in the number of their rows alone.
    fn join(parts: Vec<Self>) -> Self;

    /// Some of the rows. The range lies within the rows that there are.
    fn rows(&self, range: Range<usize>) -> Self;
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Batch for Tensor<B, D, K> {
    fn describe(&self, tensors: &mut Vec<TensorInfo>) {
        let dims = Dims::from(self.dims());
        tensors.push(TensorInfo { dims, dtype: self.dtype(), device: self.device().to_id() });
    }

    fn join(parts: Vec<Self>) -> Self {
        Tensor::cat(parts, 0)
    }

    fn rows(&self, range: Range<usize>) -> Self {
        self.clone().narrow(0, range.start, range.len())
    }
}

macro_rules! tuples {
    ($(($($name:ident $place:tt),+))*) => {
        $(impl<$($name: Batch),+> Batch for ($($name,)+) {
            fn describe(&self, tensors: &mut Vec<TensorInfo>) {
                $(self.$place.describe(tensors);)+
            }

            fn join(parts: Vec<Self>) -> Self {
                ($($name::join(parts.iter().map(|part| part.$place.clone()).collect()),)+)
            }

            fn rows(&self, range: Range<usize>) -> Self {
                ($(self.$place.rows(range.clone()),)+)
            }
        })*
    };
}

tuples! {
    (T0 0)
    (T0 0, T1 1)
    (T0 0, T1 1, T2 2)
    (T0 0, T1 1, T2 2, T3 3)
    (T0 0, T1 1, T2 2, T3 3, T4 4)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8, T9 9)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8, T9 9, T10 10)
    (T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8, T9 9, T10 10, T11 11)
}

/// What requests must have in common to share a batch: for each tensor all dims but the rows, the dtype and the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature(Vec<TensorInfo>);

impl Signature {
    /// The signature of a request, and the number of its rows.
    pub(crate) fn of<I: Batch>(input: &I) -> Result<(Self, usize), ServeError> {
        let mut tensors = Vec::new();
        input.describe(&mut tensors);
        let rows = tensors.iter().map(|tensor| tensor.dims.first().copied());
        let rows = rows.collect::<Option<Vec<_>>>().ok_or(ServeError::NoRowDim)?;
        match rows[..] {
            [] | [0, ..] => return Err(ServeError::NoRows),
            [first, ref others @ ..] if others.iter().any(|&other| other != first) => {
                return Err(ServeError::UnequalRows { rows });
            }
            _ => {}
        }
        for tensor in &mut tensors {
            tensor.dims = tensor.dims[1..].iter().copied().collect();
        }
        Ok((Self(tensors), rows[0]))
    }
}

/// Whether each tensor of an output has one row for each of the input's.
pub(crate) fn check_output<O: Batch>(output: &O, rows: usize) -> Result<(), ServeError> {
    let mut tensors = Vec::new();
    output.describe(&mut tensors);
    match tensors.iter().find(|tensor| tensor.dims.first() != Some(&rows)) {
        Some(other) => Err(ServeError::OutputRows { rows, shape: other.dims.to_vec() }),
        None => Ok(()),
    }
}
