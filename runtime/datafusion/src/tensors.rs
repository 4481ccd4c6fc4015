//! [`InputTensors`] and [`OutputTensors`]: what a model takes and yields.

use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{DType, DTypeKind, TensorData, TensorKind, Transaction};

/// What the type of a tensor says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The number of dims.
    pub rank: usize,
    /// Float, int or bool.
    pub kind: DTypeKind,
    /// The dtype of its kind where nothing else is said.
    pub dtype: DType,
}

impl TensorType {
    fn of<B: Backend, const D: usize, K: TensorKind<B>>() -> Self {
        Self { rank: D, kind: K::KIND, dtype: K::default_dtype() }
    }
}

/// Inputs of a model: a tensor of any kind, or a tuple (of up to twelve) of such. Their first dim counts rows.
pub trait InputTensors: Sized {
    /// The backend.
    type Backend: Backend;

    /// The type of each tensor, in order.
    fn types() -> Vec<TensorType>;

    /// The tensors, of the next items, whose ranks and kinds are those of [`types`](Self::types). `None` when there are too few.
    fn take(
        data: &mut impl Iterator<Item = TensorData>,
        device: &<Self::Backend as Backend>::Device,
    ) -> Option<Self>;
}

impl<B: Backend, const D: usize, K: TensorKind<B>> InputTensors for Tensor<B, D, K> {
    type Backend = B;

    fn types() -> Vec<TensorType> {
        vec![TensorType::of::<B, D, K>()]
    }

    fn take(data: &mut impl Iterator<Item = TensorData>, device: &B::Device) -> Option<Self> {
        let data = data.next()?;
        let dtype = data.dtype;
        Some(Tensor::from_data_dtype(data, device, dtype))
    }
}

/// Outputs of a model: a tensor of any kind, or a tuple (of up to twelve) of such. Their first dim counts rows.
pub trait OutputTensors: Sized {
    /// The backend.
    type Backend: Backend;

    /// The type of each tensor, in order.
    fn types() -> Vec<TensorType>;

    /// Adds all tensors, in order, to what is read from the device together.
    fn register(self, transaction: Transaction<Self::Backend>) -> Transaction<Self::Backend>;
}

impl<B: Backend, const D: usize, K: TensorKind<B>> OutputTensors for Tensor<B, D, K> {
    type Backend = B;

    fn types() -> Vec<TensorType> {
        vec![TensorType::of::<B, D, K>()]
    }

    fn register(self, transaction: Transaction<B>) -> Transaction<B> {
        transaction.register(self)
    }
}

macro_rules! tuples {
    ($(($($name:ident $place:tt),*))*) => {
        $(impl<T0: InputTensors $(, $name: InputTensors<Backend = T0::Backend>)*> InputTensors for (T0, $($name,)*) {
            type Backend = T0::Backend;

            fn types() -> Vec<TensorType> {
                [T0::types() $(, $name::types())*].concat()
            }

            fn take(
                data: &mut impl Iterator<Item = TensorData>,
                device: &<Self::Backend as Backend>::Device,
            ) -> Option<Self> {
                Some((T0::take(data, device)?, $($name::take(data, device)?,)*))
            }
        }

        impl<T0: OutputTensors $(, $name: OutputTensors<Backend = T0::Backend>)*> OutputTensors for (T0, $($name,)*) {
            type Backend = T0::Backend;

            fn types() -> Vec<TensorType> {
                [T0::types() $(, $name::types())*].concat()
            }

            fn register(self, transaction: Transaction<Self::Backend>) -> Transaction<Self::Backend> {
                let transaction = self.0.register(transaction);
                $(let transaction = self.$place.register(transaction);)*
                transaction
            }
        })*
    };
}

tuples! {
    ()
    (T1 1)
    (T1 1, T2 2)
    (T1 1, T2 2, T3 3)
    (T1 1, T2 2, T3 3, T4 4)
    (T1 1, T2 2, T3 3, T4 4, T5 5)
    (T1 1, T2 2, T3 3, T4 4, T5 5, T6 6)
    (T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7)
    (T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8)
    (T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8, T9 9)
    (T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8, T9 9, T10 10)
    (T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7, T8 8, T9 9, T10 10, T11 11)
}
