//! Elementwise operations.

use kiln_tensor::backend::{Backend, held};
use kiln_tensor::{Activation, BinaryOp, CompareOp, DType, Element, Expression, Scalar, Step, UnaryOp};

/// The dtype that operands have.
fn float<B: Backend>() -> DType {
    B::FloatElem::DTYPE
}

functions! { ($) elementwise:
    neg [[2, 3]] |B, [x]| B::unary(UnaryOp::Neg, x);
    abs [[2, 3]] |B, [x]| B::unary(UnaryOp::Abs, x);
    sign [[2, 3]] |B, [x]| B::unary(UnaryOp::Sign, x);
    exp [[2, 3]] |B, [x]| B::unary(UnaryOp::Exp, x);
    log (0.2, 3.0) [[2, 3]] |B, [x]| B::unary(UnaryOp::Log, x);
    log1p (-0.8, 3.0) [[2, 3]] |B, [x]| B::unary(UnaryOp::Log1p, x);
    sqrt (0.2, 3.0) [[2, 3]] |B, [x]| B::unary(UnaryOp::Sqrt, x);
    recip (0.4, 3.0) [[2, 3]] |B, [x]| B::unary(UnaryOp::Recip, x);
    sin [[2, 3]] |B, [x]| B::unary(UnaryOp::Sin, x);
    cos [[2, 3]] |B, [x]| B::unary(UnaryOp::Cos, x);
    tan (-1.2, 1.2) [[2, 3]] |B, [x]| B::unary(UnaryOp::Tan, x);
    asin (-0.8, 0.8) [[2, 3]] |B, [x]| B::unary(UnaryOp::Asin, x);
    acos (-0.8, 0.8) [[2, 3]] |B, [x]| B::unary(UnaryOp::Acos, x);
    atan [[2, 3]] |B, [x]| B::unary(UnaryOp::Atan, x);
    sinh [[2, 3]] |B, [x]| B::unary(UnaryOp::Sinh, x);
    cosh [[2, 3]] |B, [x]| B::unary(UnaryOp::Cosh, x);
    tanh [[2, 3]] |B, [x]| B::unary(UnaryOp::Tanh, x);
    asinh [[2, 3]] |B, [x]| B::unary(UnaryOp::Asinh, x);
    acosh (1.3, 3.0) [[2, 3]] |B, [x]| B::unary(UnaryOp::Acosh, x);
    atanh (-0.8, 0.8) [[2, 3]] |B, [x]| B::unary(UnaryOp::Atanh, x);
    erf [[2, 3]] |B, [x]| B::unary(UnaryOp::Erf, x);
    floor [[2, 3]] |B, [x]| B::unary(UnaryOp::Floor, x);

    add [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Add, a, b);
    sub [[2, 1], [2, 3]] |B, [a, b]| B::binary(BinaryOp::Sub, a, b);
    mul [[2, 1], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Mul, a, b);
    mul_by_itself [[2, 3]] |B, [a]| B::binary(BinaryOp::Mul, a.clone(), a);
    div (0.5, 2.0) [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Div, a, b);
    pow (0.5, 2.0) [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Pow, a, b);
    remainder (0.5, 2.0) [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Remainder, a, b);
    fmod (0.5, 2.0) [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Fmod, a, b);
    max [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Max, a, b);
    min [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Min, a, b);
    atan2 [[2, 3], [1, 3]] |B, [a, b]| B::binary(BinaryOp::Atan2, a, b);
    add_scalar [[4]] |B, [a]| B::binary_scalar(BinaryOp::Add, a, Scalar::Float(2.5));
    div_scalar [[4]] |B, [a]| B::binary_scalar(BinaryOp::Div, a, Scalar::Float(2.5));
    squared [[4]] |B, [a]| B::binary_scalar(BinaryOp::Pow, a, Scalar::Float(2.0));
    cubed [[4]] |B, [a]| B::binary_scalar(BinaryOp::Pow, a, Scalar::Float(3.0));
    to_the_0 [[4]] |B, [a]| B::binary_scalar(BinaryOp::Pow, a, Scalar::Float(0.0));
    to_a_half (0.5, 2.0) [[4]] |B, [a]| B::binary_scalar(BinaryOp::Pow, a, Scalar::Float(0.5));

    relu [[3, 4]] |B, [x]| B::activation(Activation::Relu, x);
    leaky_relu [[3, 4]] |B, [x]| B::activation(Activation::LeakyRelu { slope: 0.1 }, x);
    gelu [[3, 4]] |B, [x]| B::activation(Activation::Gelu, x);
    gelu_tanh [[3, 4]] |B, [x]| B::activation(Activation::GeluTanh, x);
    sigmoid [[3, 4]] |B, [x]| B::activation(Activation::Sigmoid, x);
    tanh_activation [[3, 4]] |B, [x]| B::activation(Activation::Tanh, x);
    silu [[3, 4]] |B, [x]| B::activation(Activation::Silu, x);
    mish [[3, 4]] |B, [x]| B::activation(Activation::Mish, x);
    softplus [[3, 4]] |B, [x]| B::activation(Activation::Softplus, x);
    hard_sigmoid (-6.0, 6.0) [[3, 4]] |B, [x]| B::activation(Activation::HARD_SIGMOID, x);
    hard_swish (-6.0, 6.0) [[3, 4]] |B, [x]| B::activation(Activation::HardSwish, x);
    elu [[3, 4]] |B, [x]| B::activation(Activation::Elu { alpha: 0.7 }, x);
    relu6 (-3.0, 9.0) [[3, 4]] |B, [x]| B::activation(Activation::RELU6, x);
    affine [[3, 4]] |B, [x]| B::activation(Activation::Affine { alpha: 0.7, beta: -0.4 }, x);
    scaled_tanh [[3, 4]] |B, [x]| B::activation(Activation::ScaledTanh { alpha: 1.3, beta: 0.6 }, x);
    softsign [[3, 4]] |B, [x]| B::activation(Activation::Softsign, x);
    thresholded_relu [[3, 4]] |B, [x]| B::activation(Activation::ThresholdedRelu { alpha: 0.35 }, x);

    clamp [[3, 4]] |B, [x]| B::clamp(x, Some(Scalar::Float(-0.5)), Some(Scalar::Float(0.75)));
    select_where [[2, 3], [1, 3], [2, 1]] |B, [x, a, b]| {
        let mask = B::compare(CompareOp::Greater, x, a.clone());
        B::select_where(mask, a, b)
    };
    mask_fill [[2, 3], [1, 3]] |B, [x, a]| {
        let mask = B::compare_scalar(CompareOp::Greater, a, Scalar::Float(0.0));
        B::mask_fill(x, mask, Scalar::Float(3.0))
    };
    // Through the widest float that there is.
    there_and_back [[4]] |B, [x]| {
        let wide = held::<B>(DType::F64, &B::Device::default());
        B::cast(B::unary(UnaryOp::Sin, B::cast(x, wide)), float::<B>())
    };

    // sin(a b) / (1 + a²), with a step that is used twice and a mask between.
    chain [[2, 3], [1, 3]] |B, [a, b]| {
        let steps = vec![
            Step::Input(0),
            Step::Input(1),
            Step::Binary(BinaryOp::Mul, 0, 1),
            Step::Unary(UnaryOp::Sin, 2),
            Step::Binary(BinaryOp::Mul, 0, 0),
            Step::Constant(Scalar::Float(1.0), float::<B>()),
            Step::Binary(BinaryOp::Add, 4, 5),
            Step::Binary(BinaryOp::Div, 3, 6),
            Step::Compare(CompareOp::Greater, 0, 1),
            Step::Activation(Activation::Silu, 7),
            Step::Where(8, 7, 9),
        ];
        B::elementwise(&Expression::new(steps), [a, b].into(), &[]).remove(0)
    };
    // The operand itself, and a constant.
    chain_of_nothing [[3]] |B, [a]| {
        B::elementwise(&Expression::new(vec![Step::Input(0)]), [a].into(), &[]).remove(0)
    };
    // Two results of one program, a parameter and positions: (a b p, a i) with i along the last dim.
    chain_of_two [[2, 3], [1, 3]] |B, [a, b]| {
        let steps = vec![
            Step::Input(0),
            Step::Input(1),
            Step::Parameter(0, float::<B>()),
            Step::Binary(BinaryOp::Mul, 0, 1),
            Step::Binary(BinaryOp::Mul, 3, 2),
            Step::Iota(1, float::<B>()),
            Step::Binary(BinaryOp::Mul, 0, 5),
            Step::Unary(UnaryOp::Exp, 6),
        ];
        let program = Expression { steps, outputs: vec![4, 7] };
        let mut results = B::elementwise(&program, [a, b].into(), &[Scalar::Float(1.5)]);
        let (second, first) = (results.remove(1), results.remove(0));
        B::cat(&[first, second], 0)
    };
}
