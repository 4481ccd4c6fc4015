//! Operands that must be known while the model is compiled, or at least be integers on the host.

use super::Lowering;
use crate::ir::{Dim, RuleError, RuleResult, ValueDef, ValueId};
use kiln_types::{DType, Scalar, TensorData, bf16, f16};

/// Operands that must be known are small; what is computed to find them must be, too.
const MOST_ELEMENTS: i64 = 4096;

/// The elements of data as numbers.
pub(crate) fn numbers(data: &TensorData) -> Vec<Scalar> {
    let bytes: &[u8] = &data.bytes;
    bytes.chunks_exact(data.dtype.size()).map(|chunk| number(chunk, data.dtype)).collect()
}

fn is_small(data: &TensorData) -> bool {
    data.num_elements() <= MOST_ELEMENTS as usize
}

/// Whether an integer tensor holds a negative number.
pub(crate) fn holds_negative(data: &TensorData) -> bool {
    let bytes: &[u8] = &data.bytes;
    bytes.chunks_exact(data.dtype.size()).any(|chunk| number(chunk, data.dtype).to_i64() < 0)
}

fn number(chunk: &[u8], dtype: DType) -> Scalar {
    let mut wide = [0u8; 8];
    wide[..chunk.len()].copy_from_slice(chunk);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        DType::F64 => f64::from_bits(bits).into(),
        DType::F32 => f32::from_bits(bits as u32).into(),
        DType::F16 => f16::from_bits(bits as u16).into(),
        DType::BF16 => bf16::from_bits(bits as u16).into(),
        DType::I64 => (bits as i64).into(),
        DType::I32 => (bits as i32).into(),
        DType::I16 => (bits as i16).into(),
        DType::I8 | DType::I4 => (bits as i8).into(),
        DType::U64 | DType::U32 | DType::U16 | DType::U8 | DType::U4 => bits.into(),
        DType::Bool => (bits != 0).into(),
    }
}

impl Lowering<'_, '_> {
    /// A value's contents, when they are known: a constant, shape arithmetic, or a small computation on those.
    pub(crate) fn constant(&self, value: ValueId) -> Option<TensorData> {
        crate::ir::known(self.builder.graph, value)
    }

    /// A value's contents as integers on the host: constants, shape arithmetic, or read back at run time.
    pub(crate) fn host(&mut self, value: ValueId, input: &str) -> RuleResult<Vec<Dim>> {
        if self.builder.graph.value(value).host.is_none()
            && let Some(data) = self.constant(value).filter(|data| !data.dtype.is_float() && is_small(data))
        {
            return Ok(numbers(&data).into_iter().map(|number| Dim::constant(number.to_i64())).collect());
        }
        let hint =
            super::super::load::hint(&self.builder.graph.value(value).name).unwrap_or(input).to_owned();
        let result = self.builder.host(value, &hint);
        result.map_err(|error| match error {
            RuleError::NotConstant { .. } => self.not_constant(value, input),
            other => other,
        })
    }

    /// One integer on the host.
    pub(crate) fn host_integer(&mut self, value: ValueId, input: &str) -> RuleResult<Dim> {
        let mut values = self.host(value, input)?;
        match (values.pop(), values.is_empty()) {
            (Some(dim), true) => Ok(dim),
            _ => {
                Err(RuleError::Attribute { attribute: input.to_owned(), reason: "must be one number".into() })
            }
        }
    }

    /// What is said of an operand that must be known.
    fn not_constant(&self, value: ValueId, operand: &str) -> RuleError {
        let found = self.builder.graph.value(value);
        match found.def {
            ValueDef::Input(_) => {
                RuleError::UnboundInput { operand: operand.to_owned(), name: found.name.clone() }
            }
            _ => RuleError::NotConstant { input: operand.to_owned() },
        }
    }

    /// A value's contents as numbers, which must be known.
    pub(crate) fn known_numbers(&self, value: ValueId, input: &str) -> RuleResult<Vec<Scalar>> {
        let data = self.constant(value).ok_or_else(|| self.not_constant(value, input))?;
        if !is_small(&data) {
            return Err(RuleError::TooLarge {
                what: format!("`{input}`, of {} elements,", data.num_elements()),
            });
        }
        Ok(numbers(&data))
    }

    /// A value's contents as integers, which must be known.
    pub(crate) fn known_ints(&self, value: ValueId, input: &str) -> RuleResult<Vec<i64>> {
        Ok(self.known_numbers(value, input)?.into_iter().map(Scalar::to_i64).collect())
    }

    /// A value's contents as floats, which must be known.
    pub(crate) fn known_floats(&self, value: ValueId, input: &str) -> RuleResult<Vec<f64>> {
        Ok(self.known_numbers(value, input)?.into_iter().map(Scalar::to_f64).collect())
    }

    /// The one number that a value holds, when it is known.
    pub(crate) fn known_number(&self, value: ValueId) -> Option<Scalar> {
        let data = self.constant(value).filter(|data| data.num_elements() == 1)?;
        numbers(&data).first().copied()
    }
}
