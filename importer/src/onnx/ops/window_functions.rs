//! Window functions: `HannWindow`, `HammingWindow` and `BlackmanWindow`.

use super::prelude::*;
use crate::ir::op;
use std::f64::consts::TAU;

const SIZE: &[&str] = &["size"];

pub(super) struct WindowFunction {
    coefficients: [f64; 3],
    periodic: bool,
    dtype: DType,
}

impl WindowFunction {
    fn read(node: &mut SourceNode<'_>, coefficients: [f64; 3]) -> RuleResult<Self> {
        Ok(Self {
            coefficients,
            periodic: node.flag("periodic", true)?,
            dtype: node.dtype("output_datatype")?.unwrap_or(DType::F32),
        })
    }
}

impl<'m> Operator<'m> for WindowFunction {
    // Coefficients of 1, cos and cos of the double angle; the specification's.
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("BlackmanWindow", 17, SIZE).reads(|node| Self::read(node, [0.42, -0.5, 0.08])),
        Spec::onnx("HammingWindow", 17, SIZE)
            .reads(|node| Self::read(node, [25.0 / 46.0, -21.0 / 46.0, 0.0])),
        Spec::onnx("HannWindow", 17, SIZE).reads(|node| Self::read(node, [0.5, -0.5, 0.0])),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let size = to.host_integer(args.value("size")?, "size")?;
        let wide = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let period = if self.periodic { size.clone() } else { &size - &Dim::constant(1) };
        let period = to.builder.host_tensor(vec![period], Vec::new())?;
        let period = to.cast(period, wide)?;
        let positions =
            to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: size, step: 1 }), &[])?;
        let positions = to.cast(positions, wide)?;
        let [constant, first, second] = self.coefficients;
        let sum = to.formula(|f| {
            let [positions, period] = f.values([positions, period]);
            let angle = positions * TAU / period;
            let mut sum = angle.number(constant);
            for (multiple, coefficient) in [(1.0, first), (2.0, second)] {
                if coefficient != 0.0 {
                    sum = (angle * multiple).unary(UnaryOp::Cos) * coefficient + sum;
                }
            }
            sum
        })?;
        Ok(to.cast(sum, self.dtype)?.into())
    }
}
