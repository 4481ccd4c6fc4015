//! Numbers of small constants.

use crate::data::Elements;
use kiln_types::{DType, Scalar, TensorData};

/// More elements are no literal.
const MAX_ELEMENTS: usize = 64;

/// The elements of a small tensor; `None` when it is larger, or its bytes do not fit its shape.
pub fn scalars(data: &TensorData) -> Option<Vec<Scalar>> {
    let elements = data.num_elements();
    if elements > MAX_ELEMENTS || data.bytes.len() != elements * data.dtype.size() {
        return None;
    }
    Some(match Elements::load(data) {
        Elements::Float(floats) => floats.into_iter().map(Scalar::Float).collect(),
        Elements::Int(ints) => ints
            .into_iter()
            .map(|int| match data.dtype {
                DType::Bool => Scalar::Bool(int != 0),
                DType::U64 => Scalar::from(int as u64),
                _ => Scalar::Int(int as i64),
            })
            .collect(),
    })
}
