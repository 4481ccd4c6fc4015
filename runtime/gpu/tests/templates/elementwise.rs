//! Elementwise programs.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{self, Linear, Single, Strided};
use kiln_gpu::kernels::elementwise::Elementwise;
use kiln_tensor::{Activation, BinaryOp, CompareOp, DType, Expression, Scalar, Step, UnaryOp};

/// A program of one result, with nothing after it.
pub fn plain(steps: Vec<Step>, operands: &[(DType, Access)], result: DType, rank: usize) -> Elementwise {
    Elementwise {
        expression: Expression::new(steps),
        operands: operands.into(),
        counters: [].into(),
        results: [(result, Linear)].into(),
        rank,
        fours: 0,
        epilogues: Vec::new(),
    }
}

/// Programs of one step of each kind on every dtype that has it.
pub fn programs(dtypes: &[DType]) -> Vec<Template> {
    let mut all = Vec::new();
    let arithmetic = |dtype: DType| !dtype.is_bool();
    for &dtype in dtypes {
        for &op in UnaryOp::ALL {
            let result = match op {
                UnaryOp::IsNan | UnaryOp::IsInf => DType::Bool,
                _ => dtype,
            };
            let serves = match op {
                UnaryOp::Not => dtype.is_bool(),
                UnaryOp::BitwiseNot => dtype.is_int(),
                UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => arithmetic(dtype),
                _ => dtype.is_float(),
            };
            if serves {
                let steps = vec![Step::Input(0), Step::Unary(op, 0)];
                all.push(plain(steps, &[(dtype, Linear)], result, 0).into());
            }
        }
        for &op in BinaryOp::ALL {
            let serves = match op {
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => dtype.is_bool(),
                BinaryOp::BitwiseAnd
                | BinaryOp::BitwiseOr
                | BinaryOp::BitwiseXor
                | BinaryOp::ShiftLeft
                | BinaryOp::ShiftRight => dtype.is_int(),
                BinaryOp::Atan2 => dtype.is_float(),
                _ => arithmetic(dtype),
            };
            if serves {
                let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(op, 0, 1)];
                all.push(plain(steps, &[(dtype, Linear), (dtype, Strided)], dtype, 3).into());
            }
        }
        for &op in CompareOp::ALL {
            let steps = vec![Step::Input(0), Step::Parameter(0, dtype), Step::Compare(op, 0, 1)];
            all.push(plain(steps, &[(dtype, Single)], DType::Bool, 0).into());
        }
    }
    all
}

pub fn casts(from: &[DType], to: &[DType]) -> Vec<Template> {
    let cast = |from, to| plain(vec![Step::Input(0), Step::Cast(to, 0)], &[(from, Strided)], to, 2).into();
    from.iter().flat_map(|&from| to.iter().map(move |&to| cast(from, to))).collect()
}

pub fn activations(dtype: DType) -> Vec<Template> {
    let all = [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Mish,
        Activation::Softplus,
        Activation::HARD_SIGMOID,
        Activation::HardSwish,
        Activation::Elu { alpha: 1.0 },
        Activation::Clamp { min: f64::NEG_INFINITY, max: f64::MAX },
        Activation::Affine { alpha: -1e300, beta: f64::NAN },
        Activation::ScaledTanh { alpha: 1.7, beta: 0.6 },
        Activation::Softsign,
        Activation::ThresholdedRelu { alpha: 1e-40 },
    ];
    let step = |activation| vec![Step::Input(0), Step::Activation(activation, 0)];
    all.map(|activation| plain(step(activation), &[(dtype, Linear)], dtype, 0).into()).to_vec()
}

/// Several results, counted positions, numbers of every kind.
pub fn mixed() -> Template {
    let mut expression = Expression::new(vec![
        Step::Input(0),
        Step::Iota(1, DType::I32),
        Step::Constant(Scalar::Int(i64::from(i32::MIN)), DType::I32),
        Step::Binary(BinaryOp::Max, 1, 2),
        Step::Cast(DType::F32, 3),
        Step::Constant(Scalar::Float(f64::INFINITY), DType::F32),
        Step::Compare(CompareOp::Lower, 4, 5),
        Step::Where(6, 0, 4),
    ]);
    expression.outputs = vec![7, 3];
    Elementwise {
        expression,
        operands: [(DType::F16, Strided)].into(),
        counters: [Strided].into(),
        results: [(DType::F32, Linear), (DType::I32, Strided)].into(),
        rank: 2,
        fours: 0,
        epilogues: Vec::new(),
    }
    .into()
}
