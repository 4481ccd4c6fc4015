//! Records of tensors, parameters and plain values.

use super::{PrecisionSettings, Record};
use crate::module::{Param, ParamId};
use crate::tensor::backend::Backend;
use crate::tensor::{Bool, DType, Element, Int, Tensor, TensorData};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Converts data unless it has the dtype already.
fn converted(data: TensorData, dtype: DType) -> TensorData {
    if data.dtype == dtype { data } else { data.convert_dtype(dtype) }
}

/// The dtype of floats on their way into a record or out of it: the usual one there, or their own.
fn float_dtype<S: PrecisionSettings>(found: DType, usual: DType) -> DType {
    if S::KEEPS_FLOAT_DTYPES && found.is_float() { found } else { usual }
}

/// A parameter as it is stored: its id and its value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ParamSerde<T> {
    id: ParamId,
    param: T,
}

/// Declares the stored form of one kind of tensor.
macro_rules! tensor_item {
    ($(#[$doc:meta])* $name:ident, |$found:ident| $stored:expr, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name<S: PrecisionSettings, const D: usize> {
            data: TensorData,
            settings: PhantomData<S>,
        }

        impl<S: PrecisionSettings, const D: usize> $name<S, D> {
            /// From any data of the kind. Data with numbers beyond the range of the settings' precision keeps its dtype.
            pub fn new(data: TensorData) -> Self {
                let $found = data.dtype;
                let stored = $stored;
                let data = if data.fits(stored) { converted(data, stored) } else { data };
                Self { data, settings: PhantomData }
            }

            /// The data.
            pub fn into_data(self) -> TensorData {
                self.data
            }
        }

        impl<S: PrecisionSettings, const D: usize> Serialize for $name<S, D> {
            fn serialize<Se: Serializer>(&self, serializer: Se) -> Result<Se::Ok, Se::Error> {
                self.data.serialize(serializer)
            }
        }

        impl<'de, S: PrecisionSettings, const D: usize> Deserialize<'de> for $name<S, D> {
            /// Data that was stored in another precision stays so, until it becomes a tensor.
            fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
                let data = ranked(deserializer, D, RANKED_NAMES[$kind].get(D))?;
                Ok(Self { data, settings: PhantomData })
            }
        }
    };
}

/// Names under which tensors of a kind and rank are asked for. Formats do not look at them; a deserializer that has no
/// format but only tensors ([`crate::weights`]) learns from them what it has to find.
pub(crate) const RANKED_NAMES: [[&str; 9]; 3] = [
    ["Float0", "Float1", "Float2", "Float3", "Float4", "Float5", "Float6", "Float7", "Float8"],
    ["Int0", "Int1", "Int2", "Int3", "Int4", "Int5", "Int6", "Int7", "Int8"],
    ["Bool0", "Bool1", "Bool2", "Bool3", "Bool4", "Bool5", "Bool6", "Bool7", "Bool8"],
];

/// Reads data of a rank.
fn ranked<'de, De: Deserializer<'de>>(
    deserializer: De,
    rank: usize,
    name: Option<&&'static str>,
) -> Result<TensorData, De::Error> {
    struct Ranked;
    impl<'de> Visitor<'de> for Ranked {
        type Value = TensorData;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a tensor")
        }

        fn visit_newtype_struct<De: Deserializer<'de>>(
            self,
            deserializer: De,
        ) -> Result<TensorData, De::Error> {
            TensorData::deserialize(deserializer)
        }
    }
    let data = match name {
        Some(name) => deserializer.deserialize_newtype_struct(name, Ranked)?,
        None => TensorData::deserialize(deserializer)?,
    };
    if data.shape.len() == rank {
        return Ok(data);
    }
    let shape = &data.shape;
    Err(de::Error::custom(alloc::format!(
        "the module has a tensor of {rank} dims where the record has one of shape {shape:?}"
    )))
}

tensor_item!(
    /// A float tensor as it is stored.
    FloatTensorSerde,
    |found| float_dtype::<S>(found, S::FloatElem::DTYPE),
    0
);
tensor_item!(
    /// An integer tensor as it is stored.
    IntTensorSerde,
    |_found| S::IntElem::DTYPE,
    1
);
tensor_item!(
    /// A bool tensor as it is stored.
    BoolTensorSerde,
    |_found| DType::Bool,
    2
);

/// Implements `Record` for the tensors of one kind, alone and as parameters.
macro_rules! tensor_record {
    ($tensor:ty, $item:ident, |$found:ident| $dtype:expr, |$value:ident| $as_param:expr) => {
        impl<B: Backend, const D: usize> Record<B> for $tensor {
            type Item<S: PrecisionSettings> = $item<S, D>;

            fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
                $item::new(self.into_data())
            }

            fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
                let $found = item.data.dtype;
                Tensor::from_data_dtype(item.data, device, $dtype)
            }
        }

        impl<B: Backend, const D: usize> Record<B> for Param<$tensor> {
            type Item<S: PrecisionSettings> = ParamSerde<$item<S, D>>;

            fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
                let (id, value, mapper) = self.consume();
                ParamSerde { id, param: Record::<B>::into_item::<S>(mapper.on_save(value)) }
            }

            fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
                let $value: $tensor = Record::<B>::from_item::<S>(item.param, device);
                Param::initialized(item.id, $as_param)
            }
        }
    };
}

tensor_record!(
    Tensor<B, D>,
    FloatTensorSerde,
    |found| float_dtype::<S>(found, B::FloatElem::DTYPE),
    |value| value.require_grad()
);
tensor_record!(Tensor<B, D, Int>, IntTensorSerde, |_found| B::IntElem::DTYPE, |value| value);
tensor_record!(Tensor<B, D, Bool>, BoolTensorSerde, |_found| DType::Bool, |value| value);

/// Implements `Record` for values that are stored as they are.
macro_rules! plain_records {
    ($($ty:ty),*) => {
        $(impl<B: Backend> Record<B> for $ty {
            type Item<S: PrecisionSettings> = $ty;

            fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
                self
            }

            fn from_item<S: PrecisionSettings>(item: Self::Item<S>, _device: &B::Device) -> Self {
                item
            }
        })*
    };
}

plain_records!((), String, bool, f64, f32, half::bf16, half::f16);
plain_records!(usize, u64, u32, u16, u8, isize, i64, i32, i16, i8);

impl<B: Backend, T: Record<B>> Record<B> for Option<T> {
    type Item<S: PrecisionSettings> = Option<T::Item<S>>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        self.map(Record::into_item)
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        item.map(|item| Record::from_item::<S>(item, device))
    }
}

impl<B: Backend, T: Record<B>> Record<B> for Vec<T> {
    type Item<S: PrecisionSettings> = Vec<T::Item<S>>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        self.into_iter().map(Record::into_item).collect()
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        item.into_iter().map(|item| Record::from_item::<S>(item, device)).collect()
    }
}

/// The stored form of a map from parameters to states.
///
/// It is sorted by id, so that the same map gives the same bytes.
impl<B: Backend, T: Record<B>> Record<B> for BTreeMap<ParamId, T> {
    type Item<S: PrecisionSettings> = BTreeMap<String, T::Item<S>>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        self.into_iter().map(|(id, value)| (id.serialize(), value.into_item())).collect()
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        item.into_iter()
            .map(|(id, value)| (ParamId::deserialize(&id), Record::from_item::<S>(value, device)))
            .collect()
    }
}

#[cfg(feature = "std")]
impl<B: Backend, T: Record<B>> Record<B> for std::collections::HashMap<ParamId, T> {
    type Item<S: PrecisionSettings> = BTreeMap<String, T::Item<S>>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        self.into_iter().map(|(id, value)| (id.serialize(), value.into_item())).collect()
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        item.into_iter()
            .map(|(id, value)| (ParamId::deserialize(&id), Record::from_item::<S>(value, device)))
            .collect()
    }
}

/// The stored form of an array; serde itself knows arrays of up to 32 items only.
#[derive(Clone, Debug)]
pub struct Array<const N: usize, T>([T; N]);

impl<const N: usize, T: Serialize> Serialize for Array<N, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(N)?;
        for item in &self.0 {
            tuple.serialize_element(item)?;
        }
        tuple.end()
    }
}

impl<'de, const N: usize, T: Deserialize<'de>> Deserialize<'de> for Array<N, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<const N: usize, T>(PhantomData<T>);
        impl<'de, const N: usize, T: Deserialize<'de>> Visitor<'de> for Items<N, T> {
            type Value = Array<N, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an array of {N} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Array<N, T>, A::Error> {
                let mut items = Vec::new();
                while items.len() < N {
                    let item = access.next_element()?;
                    items.push(item.ok_or_else(|| de::Error::invalid_length(items.len(), &self))?);
                }
                let count = items.len();
                items.try_into().map(Array).map_err(|_| de::Error::invalid_length(count, &self))
            }
        }
        deserializer.deserialize_tuple(N, Items(PhantomData))
    }
}

impl<const N: usize, B: Backend, T: Record<B>> Record<B> for [T; N] {
    type Item<S: PrecisionSettings> = Array<N, T::Item<S>>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        Array(self.map(Record::into_item))
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        item.0.map(|item| Record::from_item::<S>(item, device))
    }
}

/// Implements `Record` for the tuples of one length.
macro_rules! tuple_record {
    ($($ty:ident $index:tt),*) => {
        impl<B: Backend, $($ty: Record<B>),*> Record<B> for ($($ty,)*) {
            type Item<S: PrecisionSettings> = ($($ty::Item<S>,)*);

            fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
                ($(self.$index.into_item::<S>(),)*)
            }

            fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
                ($(Record::from_item::<S>(item.$index, device),)*)
            }
        }
    };
}

tuple_record!(R0 0, R1 1);
tuple_record!(R0 0, R1 1, R2 2);
tuple_record!(R0 0, R1 1, R2 2, R3 3);
tuple_record!(R0 0, R1 1, R2 2, R3 3, R4 4);
tuple_record!(R0 0, R1 1, R2 2, R3 3, R4 4, R5 5);
tuple_record!(R0 0, R1 1, R2 2, R3 3, R4 4, R5 5, R6 6);
tuple_record!(R0 0, R1 1, R2 2, R3 3, R4 4, R5 5, R6 6, R7 7);
tuple_record!(R0 0, R1 1, R2 2, R3 3, R4 4, R5 5, R6 6, R7 7, R8 8);
tuple_record!(R0 0, R1 1, R2 2, R3 3, R4 4, R5 5, R6 6, R7 7, R8 8, R9 9);
