//! Shares that sum to 1.

use super::prelude::*;

attributes! {
    /// Shares that sum to 1.
    pub struct Softmax {
        /// The axis.
        pub axis: usize,
    }
}

attributes! {
    /// Logarithms of shares that sum to 1.
    pub struct LogSoftmax {
        /// The axis.
        pub axis: usize,
    }
}

/// Both differ in the logarithm alone.
macro_rules! softmax {
    ($ty:ty, $log:literal, $function:literal, $kernel:literal) => {
        impl Operation for $ty {
            facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
            none!(host, derivation);

            fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
                let x = at_least_rank(cx, 0, "x", 1)?;
                need_float("x", x)?;
                check_axis(self.axis, x.rank())?;
                Ok(vec![x.clone()])
            }

            fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
                Some(vec![softmax(operands.get(0)?, self.axis, $log)?])
            }

            fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
                let [outer, length, inner] = cx.around(self.axis)?;
                let sizes = KernelArg::sizes("Axis", [("outer", outer), ("length", length), ("inner", inner)]);
                Some(Loops::kernel($kernel, [KernelArg::Operand(0), sizes]))
            }

            fn implementation(&self, _: &Site<'_>) -> Implementation {
                Implementation::Call(Arg::call($function, [Arg::Operand(0), Arg::axis(self.axis)]))
            }
        }
    };
}

softmax!(Softmax, false, "tensor::activation::softmax", "softmax");
softmax!(LogSoftmax, true, "tensor::activation::log_softmax", "log_softmax");

fn softmax(x: &TensorData, axis: usize, log: bool) -> Option<TensorData> {
    let size = *x.shape.get(axis)?;
    let inner: usize = elements(&x.shape[axis + 1..]);
    let outer: usize = elements(&x.shape[..axis]);
    let mut values = Elements::load(x).floats();
    for o in 0..outer {
        for i in 0..inner {
            let at = |row: usize| (o * size + row) * inner + i;
            let most = (0..size).map(|row| values[at(row)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..size).map(|row| (values[at(row)] - most).exp()).sum();
            for row in 0..size {
                let shifted = values[at(row)] - most;
                values[at(row)] = if log { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        }
    }
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}
