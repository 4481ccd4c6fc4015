//! Broadcasting and programs against one element at a time.

use super::*;
use crate::gemm::noise;
use crate::simd::forced::at_each_level;
use kiln_types::{BinaryOp, CompareOp, DType, Expression, Scalar, Step};

/// Dims and the strides of two operands.
const SHAPES: &[(&[usize], &[usize], &[usize])] = &[
    (&[], &[], &[]),
    (&[37], &[1], &[1]),
    (&[37], &[1], &[0]),
    (&[37], &[0], &[1]),
    (&[3, 19], &[19, 1], &[0, 1]),
    (&[3, 19], &[19, 1], &[1, 0]),
    (&[2, 5, 7], &[35, 7, 1], &[0, 1, 0]),
    (&[4, 6], &[1, 4], &[6, 1]),
    (&[2, 3, 4, 5], &[60, 20, 5, 1], &[3, 1, 0, 0]),
    (&[3, 50], &[100, 2], &[50, 1]),
    (&[2, 9000], &[9000, 1], &[0, 1]),
    (&[0, 3], &[3, 1], &[3, 1]),
];

fn position(dims: &[usize], strides: &[usize], mut i: usize) -> usize {
    let mut offset = 0;
    for (&d, &s) in dims.iter().zip(strides).rev() {
        offset += i % d * s;
        i /= d;
    }
    offset
}

#[test]
fn binary_operations_broadcast() {
    let (a, b) = (noise(30000, 1), noise(30000, 2));
    use BinaryOp::*;
    let run = || {
        for op in [Add, Sub, Mul, Div, Max, Min, Pow, Remainder, Fmod, Atan2] {
            for &(dims, sa, sb) in SHAPES {
                let total: usize = dims.iter().product();
                let want = |i: usize| binary_of(op, a[position(dims, sa, i)], b[position(dims, sb, i)]);
                let same =
                    |x: f32, y: f32| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-6 * y.abs();
                let (va, vb) = (Strided { data: &a, strides: sa }, Strided { data: &b, strides: sb });
                let mut out = vec![0.0; total];
                binary(op, dims, va, vb, &mut out);
                assert!((0..total).all(|i| same(out[i], want(i))), "{op:?} {dims:?} {sa:?} {sb:?}");
                for swapped in [false, true] {
                    let mut x: Vec<f32> = (0..total).map(|i| a[position(dims, sa, i)]).collect();
                    binary_in_place(op, dims, &mut x, vb, swapped);
                    let want = |i: usize| match swapped {
                        false => want(i),
                        true => binary_of(op, b[position(dims, sb, i)], a[position(dims, sa, i)]),
                    };
                    assert!(
                        (0..total).all(|i| same(x[i], want(i))),
                        "{op:?} in place {dims:?} {sa:?} {sb:?}"
                    );
                }
            }
        }
    };
    at_each_level(|_| run());
    run();
}

#[test]
fn comparisons_broadcast() {
    let (mut a, b) = (noise(30000, 1), noise(30000, 2));
    a[3] = f32::NAN;
    a[4] = b[4];
    for &op in CompareOp::ALL {
        for &(dims, sa, sb) in SHAPES {
            let mut out = vec![9; dims.iter().product()];
            compare(op, dims, Strided { data: &a, strides: sa }, Strided { data: &b, strides: sb }, &mut out);
            for (i, got) in out.iter().enumerate() {
                let want = op.holds(a[position(dims, sa, i)], b[position(dims, sb, i)]);
                assert_eq!(*got, u8::from(want), "{op:?} {dims:?}");
            }
        }
    }
}

#[test]
fn maxima_and_powers_keep_ieee_corners() {
    let x = [f32::NAN, 1.0, -0.0, f32::NEG_INFINITY, 4.0];
    let one = |op, y: f32| {
        let mut out = [0.0; 5];
        let y = [y];
        binary(op, &[5], Strided { data: &x, strides: &[1] }, Strided { data: &y, strides: &[0] }, &mut out);
        out
    };
    at_each_level(|_| {
        assert!(
            one(BinaryOp::Max, 0.5)[0].is_nan() && one(BinaryOp::Max, f32::NAN).iter().all(|x| x.is_nan())
        );
        assert!(one(BinaryOp::Min, f32::NAN)[1].is_nan());
        let roots = one(BinaryOp::Pow, 0.5);
        assert!(roots[2].is_sign_positive() && roots[3] == f32::INFINITY && roots[4] == 2.0);
    });
}

/// Exponents that need no logarithm, against powers of f64: in the corners of f32, and within three units in the last place between.
#[test]
fn powers_of_simple_exponents_are_close() {
    let corners =
        [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -2.5, f32::MIN_POSITIVE, f32::MAX, 1.0];
    let mut x = noise(1013, 5);
    for (i, x) in x.iter_mut().enumerate() {
        *x = x.abs() * 10f32.powi(i as i32 % 61 - 30);
    }
    x.extend(corners);
    at_each_level(|_| {
        for y in [-1.0_f32, -0.5, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 0.7] {
            let mut out = vec![7.0; x.len()];
            let operand = Strided { data: &[y], strides: &[0] };
            binary(BinaryOp::Pow, &[x.len()], Strided { data: &x, strides: &[1] }, operand, &mut out);
            for (&x, &got) in x.iter().zip(&out) {
                let want = f64::from(x).powf(f64::from(y)) as f32;
                let near = (got - want).abs() <= 3.0 * f32::EPSILON * want.abs() + f32::from_bits(1);
                let same = got == want && got.is_sign_positive() == want.is_sign_positive();
                assert!(
                    same || near && want != 0.0 || got.is_nan() && want.is_nan(),
                    "{x} ^ {y}: {got}, not {want}"
                );
            }
        }
    });
}

/// `where(x > y, silu(x) · 2, |y| + x)`, with a cast and a logical operation thrown in.
fn expression() -> Expression {
    let two = Step::Constant(Scalar::Float(2.0), DType::F32);
    Expression::new(vec![
        Step::Input(0),
        Step::Input(1),
        Step::Compare(CompareOp::Greater, 0, 1),
        Step::Activation(Activation::Silu, 0),
        two,
        Step::Binary(BinaryOp::Mul, 3, 4),
        Step::Unary(UnaryOp::Abs, 1),
        Step::Binary(BinaryOp::Add, 6, 0),
        Step::Unary(UnaryOp::IsNan, 0),
        Step::Unary(UnaryOp::Not, 8),
        Step::Binary(BinaryOp::And, 2, 9),
        Step::Where(10, 5, 7),
        Step::Cast(DType::F32, 2),
        Step::Binary(BinaryOp::Sub, 11, 12),
    ])
}

#[test]
fn programs_do_what_their_steps_say() {
    let expression = expression();
    let program = Program::new(&expression, &[], &[]).expect("all f32 and bool");
    assert_eq!(program.inputs(), 2);
    let (a, b) = (noise(30000, 1), noise(30000, 2));
    let want = |x: f32, y: f32| {
        let chosen = if x > y { activation_of(Activation::Silu, x) * 2.0 } else { y.abs() + x };
        chosen - f32::from(u8::from(x > y))
    };
    let run = || {
        for &(dims, sa, sb) in SHAPES {
            let total: usize = dims.iter().product();
            let want = |i: usize| want(a[position(dims, sa, i)], b[position(dims, sb, i)]);
            let close = |x: f32, y: f32| (x - y).abs() < 1e-5;
            let views = [Strided { data: &a, strides: sa }, Strided { data: &b, strides: sb }];
            let mut out = vec![0.0; total];
            program.run(dims, &views.map(ProgramOperand::Strided), &mut [&mut out]);
            assert!((0..total).all(|i| close(out[i], want(i))), "{dims:?} {sa:?} {sb:?}");
            let mut x: Vec<f32> = (0..total).map(|i| a[position(dims, sa, i)]).collect();
            program.run(dims, &[ProgramOperand::Output(0), ProgramOperand::Strided(views[1])], &mut [&mut x]);
            assert!((0..total).all(|i| close(x[i], want(i))), "in place {dims:?} {sa:?} {sb:?}");
        }
    };
    at_each_level(|_| run());
    run();
}

/// Adam's moments and step from a gradient: three results over three of four operands, with a rate that is a parameter,
/// and a result that is an operand as it came.
#[test]
fn programs_have_several_results() {
    let number = |x: f64| Step::Constant(Scalar::Float(x), DType::F32);
    let mut adam = Expression::new(vec![
        Step::Input(0),
        Step::Input(1),
        Step::Input(2),
        number(0.9),
        Step::Binary(BinaryOp::Mul, 1, 3),
        Step::Binary(BinaryOp::Add, 4, 2),
        Step::Parameter(0, DType::F32),
        Step::Binary(BinaryOp::Mul, 5, 6),
        Step::Iota(1, DType::F32),
        Step::Binary(BinaryOp::Mul, 7, 8),
        Step::Binary(BinaryOp::Sub, 0, 9),
    ]);
    adam.outputs = vec![10, 5, 2];
    let dims = [3, 700];
    let (p, m, g) = (noise(2100, 1), noise(2100, 2), noise(2100, 3));
    let strides = [700, 1];
    let view = |data| ProgramOperand::Strided(Strided { data, strides: &strides });
    for rate in [0.5, 0.25] {
        let parameters = [Scalar::Float(rate)];
        let program = Program::new(&adam, &parameters, &[]).expect("all f32");
        assert_eq!((program.inputs(), program.outputs()), (3, 3));
        let moment = |i: usize| m[i] * 0.9 + g[i];
        let step = |i: usize| p[i] - moment(i) * rate as f32 * (i % 700) as f32;
        let check = |new_p: &[f32], new_m: &[f32], same: &[f32]| {
            assert!((0..2100).all(|i| (new_p[i] - step(i)).abs() <= 1e-4 * step(i).abs().max(1.0)));
            assert!((0..2100).all(|i| (new_m[i] - moment(i)).abs() < 1e-6));
            assert_eq!(same, g);
        };
        let mut outs = [(); 3].map(|()| vec![0.0; 2100]);
        let [a, b, c] = &mut outs;
        program.run(&dims, &[view(&p), view(&m), view(&g)], &mut [a, b, c]);
        check(&outs[0], &outs[1], &outs[2]);
        // The parameter and its moment in place.
        let (mut new_p, mut new_m, mut same) = (p.clone(), m.clone(), vec![0.0; 2100]);
        let operands = [ProgramOperand::Output(0), ProgramOperand::Output(1), view(&g)];
        program.run(&dims, &operands, &mut [&mut new_p, &mut new_m, &mut same]);
        check(&new_p, &new_m, &same);
        // Only what is read no later may be overwritten, and nothing that is a result itself.
        assert!(program.may_overwrite(0, 1) && !program.may_overwrite(1, 0));
        assert!(!program.may_overwrite(0, 2) && !program.may_overwrite(2, 0));
    }
}

/// Positions are whole numbers: they are compared, and become f32.
#[test]
fn programs_compare_positions() {
    let dims = [3, 5, 700];
    let x = noise(3 * 5 * 700, 1);
    let whole = |value: i64| Step::Constant(Scalar::Int(value), DType::I64);
    for (dim, inner) in [(0, 3500), (1, 700), (2, 1)] {
        let expression = Expression::new(vec![
            Step::Input(0),
            Step::Iota(dim, DType::I64),
            whole(2),
            Step::Compare(CompareOp::Lower, 1, 2),
            Step::Cast(DType::F32, 1),
            Step::Where(3, 0, 4),
        ]);
        let program = Program::new(&expression, &[], &dims).expect("positions are compared");
        at_each_level(|_| {
            let mut out = vec![0.0; x.len()];
            let view = ProgramOperand::Strided(Strided { data: &x, strides: &[3500, 700, 1] });
            program.run(&dims, &[view], &mut [&mut out]);
            for (i, y) in out.iter().enumerate() {
                let at = i / inner % dims[usize::from(dim)];
                assert_eq!(*y, if at < 2 { x[i] } else { at as f32 }, "{dim}: {i}");
            }
        });
        // f32 has not every number so large.
        assert!(Program::new(&expression, &[], &[3, 5, (1 << 24) + 1]).is_none());
    }
    let after =
        |steps: [Step; 2]| Expression::new([Step::Iota(0, DType::I64)].into_iter().chain(steps).collect());
    let sum = after([Step::Binary(BinaryOp::Add, 0, 0), Step::Cast(DType::F32, 1)]);
    assert!(Program::new(&sum, &[], &[4]).is_none(), "the sum of positions is not f32's");
    let large = after([whole((1 << 24) + 1), Step::Compare(CompareOp::Lower, 0, 1)]);
    assert!(Program::new(&large, &[], &[4]).is_none(), "f32 has not every number so large");
}

#[test]
fn programs_of_other_dtypes_are_left_to_others() {
    let cast = |dtype| Expression::new(vec![Step::Input(0), Step::Cast(dtype, 0)]);
    assert!(Program::new(&cast(DType::I64), &[], &[]).is_none());
    assert!(Program::new(&cast(DType::Bool), &[], &[]).is_none());
    assert!(Program::new(&cast(DType::F32), &[], &[]).is_some());
    assert!(Program::new(&Expression::default(), &[], &[]).is_none());
}

#[test]
#[should_panic(expected = "do not hold")]
fn a_view_beyond_its_slice_is_refused() {
    let x = [0.0; 5];
    binary(
        BinaryOp::Add,
        &[2, 3],
        Strided { data: &x, strides: &[3, 1] },
        Strided { data: &x, strides: &[0, 0] },
        &mut [0.0; 6],
    );
}
