//! What generated code calls beside tensors and layers: checks of inputs, reads of the device.

use crate::tensor::backend::Backend;
use crate::tensor::{BasicOps, InlineVec, Tensor, TensorData, TensorKind};
use alloc::{format, string::String, vec::Vec};

/// One declared input of a model.
#[derive(Clone, Copy, Debug)]
pub struct InputSpec {
    /// The input's name in the model file.
    pub name: &'static str,
    /// Its dims.
    pub dims: &'static [InputDim],
}

/// A declared dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputDim {
    /// Exactly this.
    Size(usize),
    /// Any size, the same wherever the name stands.
    Symbol(&'static str),
    /// The size of the name, or 1, which means the same thing so many times: one mask for a whole batch.
    Repeated(&'static str),
    /// Any size.
    Any,
}

/// An input does not have its declared shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("input `{input}`: {reason}")]
pub struct InputError {
    /// The input's name.
    pub input: String,
    /// What was expected and what came.
    pub reason: String,
}

/// Compares the dims of all inputs, in order, with the declared ones.
///
/// # Errors
/// The first input that has another shape, or another size where one symbol stands twice.
pub fn check_inputs(specs: &[InputSpec], inputs: &[&[usize]]) -> Result<(), InputError> {
    let mut symbols: InlineVec<(&str, usize, &str)> = InlineVec::new();
    for (spec, &dims) in specs.iter().zip(inputs) {
        let fits = spec.dims.len() == dims.len()
            && spec.dims.iter().zip(dims).all(|(declared, &size)| match declared {
                InputDim::Size(expected) => *expected == size,
                InputDim::Symbol(_) | InputDim::Repeated(_) | InputDim::Any => true,
            });
        if !fits {
            let reason = format!("expected {}, got {dims:?}", Declared(spec.dims));
            return Err(InputError { input: spec.name.into(), reason });
        }
    }
    // A size that may be 1 says nothing of the others.
    for may_be_one in [false, true] {
        for (spec, &dims) in specs.iter().zip(inputs) {
            for (axis, (declared, &size)) in spec.dims.iter().zip(dims).enumerate() {
                let symbol = match *declared {
                    InputDim::Symbol(symbol) if !may_be_one => symbol,
                    InputDim::Repeated(symbol) if may_be_one && size != 1 => symbol,
                    InputDim::Symbol(_) | InputDim::Repeated(_) | InputDim::Size(_) | InputDim::Any => {
                        continue;
                    }
                };
                match symbols.iter().find(|(name, ..)| *name == symbol) {
                    Some(&(_, other, input)) if other != size => {
                        let reason = format!(
                            "expected {}, got {dims:?}: dim {axis}, `{symbol}`, is {size} here and {other} in `{input}`",
                            Declared(spec.dims)
                        );
                        return Err(InputError { input: spec.name.into(), reason });
                    }
                    Some(_) => {}
                    None => symbols.push((symbol, size, spec.name)),
                }
            }
        }
    }
    Ok(())
}

/// Prints declared dims: `[batch, 3, 224, ?]`.
struct Declared(&'static [InputDim]);

impl core::fmt::Display for Declared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match dim {
                InputDim::Size(size) => write!(f, "{size}")?,
                InputDim::Symbol(name) => f.write_str(name)?,
                InputDim::Repeated(name) => write!(f, "{name} or 1")?,
                InputDim::Any => f.write_str("?")?,
            }
        }
        f.write_str("]")
    }
}

/// Reads an integer or bool tensor of `N` elements back, because shapes or control flow depend on it.
///
/// # Panics
/// When the tensor has another number of elements or the device fails.
pub fn read_integers<B: Backend, const D: usize, K: TensorKind<B> + BasicOps<B>, const N: usize>(
    tensor: Tensor<B, D, K>,
) -> [i64; N] {
    integers(&tensor.into_data())
}

/// [`read_integers`] without blocking the thread.
///
/// # Panics
/// As [`read_integers`].
pub async fn read_integers_async<
    B: Backend,
    const D: usize,
    K: TensorKind<B> + BasicOps<B>,
    const N: usize,
>(
    tensor: Tensor<B, D, K>,
) -> [i64; N] {
    match tensor.into_data_async().await {
        Ok(data) => integers(&data),
        Err(error) => panic!("reading a tensor back failed: {error}"),
    }
}

fn integers<const N: usize>(data: &TensorData) -> [i64; N] {
    let values: Vec<i64> = data.iter::<i64>().collect();
    match values.try_into() {
        Ok(values) => values,
        Err(values) => panic!("{N} integers were expected, the tensor has {}", Vec::len(&values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: [InputSpec; 2] = [
        InputSpec { name: "ids", dims: &[InputDim::Symbol("batch"), InputDim::Size(8)] },
        InputSpec { name: "mask", dims: &[InputDim::Symbol("batch"), InputDim::Any] },
    ];

    #[test]
    fn accepts_declared_shapes() {
        assert_eq!(check_inputs(&SPECS, &[&[2, 8], &[2, 5]]), Ok(()));
    }

    #[test]
    fn names_the_input_and_both_shapes() {
        let error = check_inputs(&SPECS, &[&[2, 9], &[2, 5]]).unwrap_err();
        assert_eq!(error.to_string(), "input `ids`: expected [batch, 8], got [2, 9]");
    }

    #[test]
    fn one_symbol_is_one_size() {
        let error = check_inputs(&SPECS, &[&[2, 8], &[3, 5]]).unwrap_err();
        let expected =
            "input `mask`: expected [batch, ?], got [3, 5]: dim 0, `batch`, is 3 here and 2 in `ids`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_may_be_repeated_has_its_size_or_one() {
        const MASKED: [InputSpec; 2] = [
            InputSpec { name: "mask", dims: &[InputDim::Repeated("batch"), InputDim::Size(8)] },
            InputSpec { name: "ids", dims: &[InputDim::Symbol("batch"), InputDim::Size(8)] },
        ];
        assert_eq!(check_inputs(&MASKED, &[&[1, 8], &[3, 8]]), Ok(()));
        assert_eq!(check_inputs(&MASKED, &[&[3, 8], &[3, 8]]), Ok(()));
        let error = check_inputs(&MASKED, &[&[2, 8], &[3, 8]]).unwrap_err();
        let expected =
            "input `mask`: expected [batch or 1, 8], got [2, 8]: dim 0, `batch`, is 2 here and 3 in `ids`";
        assert_eq!(error.to_string(), expected);
    }
}
