//! Tensors under serde: as their data.

use super::base::Tensor;
use super::kind::TensorKind;
use crate::backend::Backend;
use crate::{DType, TensorData};
use alloc::format;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

/// Written as [`TensorData`]; reads the device.
impl<B: Backend, const D: usize, K: TensorKind<B>> Serialize for Tensor<B, D, K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.clone().try_into_data().map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Read from [`TensorData`] onto the default device. A dtype of the kind is kept, another one becomes the kind's usual
/// one; another rank than `D` is an error.
impl<'de, B: Backend, const D: usize, K: TensorKind<B>> Deserialize<'de> for Tensor<B, D, K> {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        let data = TensorData::deserialize(deserializer)?;
        if data.rank() != D {
            let shape = &data.shape;
            return Err(De::Error::custom(format!(
                "a tensor of rank {D} was expected, the shape is {shape:?}"
            )));
        }
        let dtype: DType = if data.dtype.kind() == K::KIND { data.dtype } else { K::default_dtype() };
        Ok(Self::from_data_dtype(data, &B::Device::default(), dtype))
    }
}
