//! What training computes by kernels equals what the default bodies of the `Backend` trait compose, in f32.

use kiln_ndarray::{NdArray, NdArrayDevice};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{self, CrossEntropyOptions, RnnOperands, RnnOutput};
use kiln_tensor::{
    Activation, AttentionOptions, BinaryOp, ConvOptions, DType, PoolOp, PoolOptions, RnnDirection, RnnKind,
    RnnOptions, Shape, TensorData,
};

type B = NdArray;
type P = <B as Backend>::Primitive;

/// Numbers between -1 and 1 that follow from the seed.
fn noise(dims: &[usize], seed: u32) -> P {
    let count: usize = dims.iter().product();
    let mut state = seed.wrapping_mul(0x9E37_79B9) ^ 0x1234_5678;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    let values: Vec<f32> = (0..count).map(|_| next()).collect();
    B::from_data(TensorData::new(values, dims.to_vec()), &NdArrayDevice::Cpu)
}

/// The same image with its channels last in memory.
fn turned(image: P) -> P {
    let rank = image.dims().len();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes[1..].rotate_left(1);
    let mut back: Vec<usize> = (0..rank).collect();
    back[1..].rotate_right(1);
    let moved = B::permute(image, &axes);
    let shape = moved.shape();
    // Adding zeros makes a copy in the order of the view.
    let zeros = B::full(shape, 0.0.into(), DType::F32, &NdArrayDevice::Cpu);
    B::permute(B::binary(BinaryOp::Add, zeros, moved), &back)
}

fn values(x: P) -> Vec<f32> {
    let shape = x.shape();
    B::into_data(B::reshape(x, shape)).expect("data").to_vec().expect("f32")
}

#[track_caller]
fn same(what: &str, got: P, want: P) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let (got, want) = (values(got), values(want));
    let scale = want.iter().fold(1.0f32, |scale, x| scale.max(x.abs()));
    for (at, (got, want)) in got.iter().zip(&want).enumerate() {
        assert!((got - want).abs() <= 2e-5 * scale, "{what} at {at}: {got} and not {want}");
    }
}

/// Dims of images and weights, step, padding, dilation, groups.
type Conv = (
    &'static [usize],
    &'static [usize],
    &'static [usize],
    &'static [(usize, usize)],
    &'static [usize],
    usize,
);

#[test]
fn convolutions() {
    let cases: [Conv; 6] = [
        (&[2, 5, 11], &[4, 5, 3], &[2], &[(1, 2)], &[2], 1),
        (&[2, 18, 13, 12], &[20, 18, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 1),
        (&[1, 3, 17, 15], &[8, 3, 5, 4], &[2, 3], &[(2, 1), (0, 3)], &[1, 1], 1),
        (&[2, 8, 9, 7], &[12, 4, 2, 3], &[2, 1], &[(1, 0), (1, 1)], &[1, 2], 2),
        (&[2, 9, 10, 8], &[9, 1, 3, 3], &[2, 2], &[(1, 1); 2], &[1, 1], 9),
        (&[1, 4, 5, 6, 4], &[6, 4, 2, 2, 3], &[1, 2, 1], &[(0, 1), (1, 1), (1, 1)], &[1, 1, 1], 1),
    ];
    for case @ (x, weight, stride, padding, dilation, groups) in cases {
        let options =
            ConvOptions { stride: stride.into(), padding: padding.into(), dilation: dilation.into(), groups };
        let (x, weight) = (noise(x, 1), noise(weight, 2));
        let gradient = noise(B::conv(x.clone(), weight.clone(), None, &options).dims(), 3);
        let (input, kernel) = (x.shape(), weight.shape());
        let of_x = compose::conv_input_gradient::<B>(gradient.clone(), weight.clone(), &input, &options);
        let of_weight = compose::conv_weight_gradient::<B>(x.clone(), gradient.clone(), &kernel, &options);
        for (x, gradient) in [(x.clone(), gradient.clone()), (turned(x), turned(gradient))] {
            let got = B::conv_input_gradient(gradient.clone(), weight.clone(), &input, &options);
            same(&format!("input of {case:?}"), got, of_x.clone());
            let got = B::conv_weight_gradient(x, gradient, &kernel, &options);
            same(&format!("weight of {case:?}"), got, of_weight.clone());
        }
    }
}

#[test]
fn convolutions_of_nothing() {
    let options = ConvOptions {
        stride: [1; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    let (x, weight) = (noise(&[0, 3, 5, 5], 1), noise(&[4, 3, 3, 3], 2));
    let gradient = noise(&[0, 4, 5, 5], 3);
    let of_weight = B::conv_weight_gradient(x.clone(), gradient.clone(), &weight.shape(), &options);
    assert!(values(of_weight).iter().all(|&x| x == 0.0));
    let of_x = B::conv_input_gradient(gradient, weight, &x.shape(), &options);
    assert_eq!(of_x.shape(), x.shape());
}

#[test]
fn poolings() {
    for (op, ceil_mode) in [
        (PoolOp::Max, false),
        (PoolOp::Max, true),
        (PoolOp::Average { include_pad: true }, false),
        (PoolOp::Average { include_pad: false }, true),
        (PoolOp::Lp { p: 2 }, false),
    ] {
        let options = PoolOptions {
            kernel: [3, 2].into(),
            stride: [2, 1].into(),
            padding: [(1, 1), (0, 1)].into(),
            dilation: [1, 2].into(),
            ceil_mode,
        };
        let x = noise(&[2, 21, 8, 7], 1);
        let output = B::pool(op, x.clone(), &options);
        let gradient = noise(output.dims(), 2);
        let want = compose::pool_gradient::<B>(op, gradient.clone(), x.clone(), output.clone(), &options);
        let all = [gradient, x, output];
        for [gradient, x, output] in [all.clone(), all.map(turned)] {
            same(&format!("{op:?}"), B::pool_gradient(op, gradient, x, output, &options), want.clone());
        }
    }
}

#[test]
fn batch_normalization() {
    for dims in [&[7, 5][..], &[3, 21, 4], &[2, 33, 5, 6], &[1, 4, 3, 2, 5]] {
        let channels = [dims[1]];
        let (x, gradient) = (noise(dims, 1), noise(dims, 2));
        let (weight, bias) = (noise(&channels, 3), noise(&channels, 4));
        let want = compose::batch_norm_train::<B>(x.clone(), weight.clone(), bias.clone(), 1e-3);
        let (mean, variance) = (want.mean.clone(), want.variance.clone());
        let back = |gradient: P, x: P| {
            B::batch_norm_gradient(gradient, x, weight.clone(), mean.clone(), variance.clone(), 1e-3)
        };
        let composed = compose::batch_norm_gradient::<B>(
            gradient.clone(),
            x.clone(),
            weight.clone(),
            mean.clone(),
            variance.clone(),
            1e-3,
        );
        let forms = match dims.len() {
            2 => vec![(x, gradient)],
            _ => vec![(x.clone(), gradient.clone()), (turned(x), turned(gradient))],
        };
        for (x, gradient) in forms {
            let got = B::batch_norm_train(x.clone(), weight.clone(), bias.clone(), 1e-3);
            same("output", got.output, want.output.clone());
            same("mean", got.mean, want.mean.clone());
            same("variance", got.variance, want.variance.clone());
            let statistics = (mean.clone(), variance.clone());
            let given =
                B::batch_norm(x.clone(), weight.clone(), bias.clone(), statistics.0, statistics.1, 1e-3);
            same("with these statistics", given, want.output.clone());
            let got = back(gradient, x);
            same("input", got.input, composed.input.clone());
            same("weight", got.weight, composed.weight.clone());
            same("bias", got.bias, composed.bias.clone());
        }
    }
}

/// A recurrent layer and what it is given.
struct Recurrent {
    options: RnnOptions,
    /// Biases, first states, peepholes of an LSTM.
    full: bool,
    lengths: bool,
}

impl Recurrent {
    const STEPS: usize = 5;
    const BATCH: usize = 17;
    const INPUT: usize = 7;

    fn operands(&self) -> RnnOperands<B> {
        let RnnOptions { kind, hidden_size: hidden, batch_first, .. } = self.options;
        let (count, gates) = (self.options.direction.count(), kind.gates() * hidden);
        let outer = |a: usize, b: usize, c: usize| if batch_first { [b, a, c] } else { [a, b, c] };
        let lstm = self.full && matches!(kind, RnnKind::Lstm { .. });
        let lengths: Vec<i32> = (0..Self::BATCH as i32).map(|row| row % (Self::STEPS as i32 + 1)).collect();
        let state = |seed| noise(&outer(count, Self::BATCH, hidden), seed);
        RnnOperands {
            input: noise(&outer(Self::STEPS, Self::BATCH, Self::INPUT), 1),
            weight: noise(&[count, gates, Self::INPUT], 2),
            recurrent: noise(&[count, gates, hidden], 3),
            bias: self.full.then(|| noise(&[count, 2 * gates], 4)),
            sequence_lengths: self
                .lengths
                .then(|| B::from_data(TensorData::new(lengths, [Self::BATCH]), &NdArrayDevice::Cpu)),
            initial_hidden: self.full.then(|| state(5)),
            initial_cell: lstm.then(|| state(6)),
            peepholes: lstm.then(|| noise(&[count, 3 * hidden], 10)),
        }
    }

    fn check(&self) {
        let (options, name) = (&self.options, format!("{:?} {} {}", self.options, self.full, self.lengths));
        let named = |what: &str| format!("{what} of {name}");
        let optional = |what: &str, got: Option<P>, want: Option<P>| {
            assert_eq!(got.is_some(), want.is_some(), "{}", named(what));
            if let Some((got, want)) = got.zip(want) {
                same(&named(what), got, want);
            }
        };
        let got = B::rnn_train(self.operands(), options);
        let want = compose::rnn_train::<B>(self.operands(), options);
        let gradient = || RnnOutput::<B> {
            output: noise(want.output.output.dims(), 7),
            hidden: noise(want.output.hidden.dims(), 8),
            cell: want.output.cell.as_ref().map(|cell| noise(cell.dims(), 9)),
        };
        same(&named("output"), got.output.output, want.output.output.clone());
        same(&named("hidden"), got.output.hidden, want.output.hidden.clone());
        same(&named("states"), got.states.hidden.clone(), want.states.hidden.clone());
        assert!(got.states.gates.is_some(), "the kernels' way of {name}");
        optional("cell", got.output.cell, want.output.cell.clone());
        optional("cell states", got.states.cell.clone(), want.states.cell.clone());
        let plain = B::rnn(self.operands(), options);
        same(&named("output without training"), plain.output, want.output.output.clone());
        same(&named("hidden without training"), plain.hidden, want.output.hidden.clone());
        optional("cell without training", plain.cell, want.output.cell.clone());
        let found = B::rnn_gradient(gradient(), self.operands(), got.states, options);
        let composed = compose::rnn_gradient::<B>(gradient(), self.operands(), want.states, options);
        same(&named("input"), found.input, composed.input);
        same(&named("weight"), found.weight, composed.weight);
        same(&named("recurrent"), found.recurrent, composed.recurrent);
        same(&named("initial hidden"), found.initial_hidden, composed.initial_hidden);
        optional("bias", found.bias, composed.bias);
        optional("initial cell", found.initial_cell, composed.initial_cell);
        optional("peepholes", found.peepholes, composed.peepholes);
    }
}

#[test]
fn recurrent_layers() {
    use Activation::{Sigmoid, Softplus, Tanh};
    let scaled = Activation::ScaledTanh { alpha: 1.2, beta: 0.7 };
    let kinds: [(RnnKind, [&[Activation]; 2]); 5] = [
        (RnnKind::Lstm { input_forget: false }, [&[Sigmoid, Tanh, Tanh], &[Sigmoid, Softplus, scaled]]),
        (RnnKind::Lstm { input_forget: true }, [&[Sigmoid, Tanh, Tanh], &[scaled, Tanh, Activation::Relu]]),
        (
            RnnKind::Gru { linear_before_reset: true },
            [&[Sigmoid, Tanh], &[Activation::HARD_SIGMOID, Softplus]],
        ),
        (RnnKind::Gru { linear_before_reset: false }, [&[Sigmoid, Tanh], &[Softplus, Activation::Softsign]]),
        (RnnKind::Rnn, [&[Tanh], &[Activation::Elu { alpha: 0.7 }]]),
    ];
    for (kind, [usual, other]) in kinds {
        for direction in [RnnDirection::Forward, RnnDirection::Reverse, RnnDirection::Bidirectional] {
            for (hidden_size, activations, full, lengths, clip) in [
                (9, usual, true, false, false),
                (9, usual, false, true, false),
                (9, usual, true, true, true),
                (9, other, true, false, false),
                (9, other, true, true, true),
                // Steps of rows that many elements apart clash in caches.
                (128, usual, false, true, false),
            ] {
                let options = RnnOptions {
                    kind,
                    direction,
                    hidden_size,
                    activations: activations.repeat(direction.count()).into(),
                    clip: clip.then_some(0.9),
                    state_clip: clip.then_some(0.4),
                    batch_first: lengths != clip,
                };
                Recurrent { options, full, lengths }.check();
            }
        }
    }
}

#[test]
fn softmax_and_norms_over_rows() {
    for dims in [&[5, 7][..], &[2, 3, 64], &[1, 130], &[3, 0]] {
        let (x, gradient) = (noise(dims, 1), noise(dims, 2));
        let last = dims.len() - 1;
        for dim in [0, last] {
            let y = B::softmax(x.clone(), dim);
            let want = compose::softmax_gradient::<B>(gradient.clone(), y.clone(), dim);
            same("softmax", B::softmax_gradient(gradient.clone(), y, dim), want);
            let y = B::log_softmax(x.clone(), dim);
            let want = compose::log_softmax_gradient::<B>(gradient.clone(), y.clone(), dim);
            same("log_softmax", B::log_softmax_gradient(gradient.clone(), y, dim), want);
        }
        if dims[last] == 0 {
            continue;
        }
        for covered in [&dims[last..], &dims[1..]] {
            let weight = noise(covered, 3);
            let (g, x, w) = (gradient.clone(), x.clone(), weight.clone());
            let want = compose::layer_norm_gradient::<B>(g, x, w, 1e-3);
            let (g, x) = (gradient.clone(), noise(dims, 1));
            let got = B::layer_norm_gradient(g, x, weight.clone(), 1e-3);
            same("layer_norm's input", got.input, want.input);
            same("layer_norm's weight", got.weight, want.weight);
            same("layer_norm's bias", got.bias, want.bias);
            let want =
                compose::rms_norm_gradient::<B>(gradient.clone(), noise(dims, 1), weight.clone(), 1e-3);
            let got = B::rms_norm_gradient(gradient.clone(), noise(dims, 1), weight, 1e-3);
            same("rms_norm's input", got.0, want.0);
            same("rms_norm's weight", got.1, want.1);
        }
    }
}

#[test]
fn attention() {
    let (batch, heads, key_heads, queries, keys, size, value_size) = (2, 4, 2, 9, 11, 6, 5);
    // As a projection leaves them: the sequence before the heads in memory.
    let of = |heads: usize, len: usize, size: usize, seed| {
        B::permute(noise(&[batch, len, heads, size], seed), &[0, 2, 1, 3])
    };
    let (q, k) = (of(heads, queries, size, 1), of(key_heads, keys, size, 2));
    let (v, gradient) = (of(key_heads, keys, value_size, 3), of(heads, queries, value_size, 4));
    let added = noise(&[batch, 1, queries, keys], 5);
    let kept = B::compare_scalar(kiln_tensor::CompareOp::Greater, added.clone(), (-0.5).into());
    let plain = AttentionOptions::default();
    let causal = AttentionOptions { is_causal: true, scale: Some(0.4), ..plain };
    let capped = AttentionOptions { softcap: Some(0.5), ..plain };
    for (mask, options) in [
        (None, plain),
        (None, causal),
        (Some(kept), plain),
        (Some(added.clone()), causal),
        (Some(added.clone()), capped),
    ] {
        let [got, want] = [B::attention_train, compose::attention_train::<B>]
            .map(|train| train(q.clone(), k.clone(), v.clone(), mask.clone(), &options));
        same("output", got.output.clone(), want.output.clone());
        for of_mask in [false, mask.is_some()] {
            let found = B::attention_gradient(gradient.clone(), got.clone(), &options, of_mask);
            let composed =
                compose::attention_gradient::<B>(gradient.clone(), want.clone(), &options, of_mask);
            same("queries", found.q, composed.q);
            same("keys", found.k, composed.k);
            same("values", found.v, composed.v);
            assert_eq!(found.mask.is_some(), composed.mask.is_some());
            if let Some((got, want)) = found.mask.zip(composed.mask) {
                same("mask", got, want);
            }
        }
    }
}

/// Shapes stay those of what the gradients are of, whatever dims are 1.
#[test]
fn single_pixels() {
    let options = ConvOptions {
        stride: [2; 2].into(),
        padding: [(0, 0); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    let (x, weight) = (noise(&[1, 1, 1, 1], 1), noise(&[1, 1, 1, 1], 2));
    let gradient = noise(&[1, 1, 1, 1], 3);
    let got = B::conv_input_gradient(gradient.clone(), weight.clone(), &x.shape(), &options);
    let want = values(gradient)[0] * values(weight)[0];
    assert_eq!((got.shape(), values(got)[0]), (Shape::from([1, 1, 1, 1]), want));
}

fn cast(x: P, dtype: DType) -> P {
    B::cast(x, dtype)
}

/// Along every dim, of images in both orders.
#[test]
fn softmaxes_along_any_dim() {
    for dims in [&[3, 70, 9][..], &[2, 5, 6, 33], &[2, 130]] {
        for dim in 0..dims.len() {
            for orders in 0..4 {
                let order = |x: P, turn: bool| if turn && dims.len() > 2 { turned(x) } else { x };
                let x = order(noise(dims, 1), orders & 1 == 1);
                let gradient = order(noise(dims, 2), orders & 2 == 2);
                let what = format!("{dims:?} along {dim}, order {orders}");
                let [y, log] = [B::softmax(x.clone(), dim), B::log_softmax(x.clone(), dim)];
                same(&what, y.clone(), compose::softmax::<B>(x.clone(), dim));
                same(&what, log.clone(), compose::log_softmax::<B>(x, dim));
                let want = compose::softmax_gradient::<B>(gradient.clone(), y.clone(), dim);
                same(&what, B::softmax_gradient(gradient.clone(), y, dim), want);
                let want = compose::log_softmax_gradient::<B>(gradient.clone(), log.clone(), dim);
                same(&what, B::log_softmax_gradient(gradient, log, dim), want);
            }
        }
    }
}

fn rows_of(count: usize, rows: usize) -> P {
    let indices: Vec<i64> = (0..count).map(|i| (i * i % 97 % rows) as i64).collect();
    B::from_data(TensorData::new(indices, [count]), &NdArrayDevice::Cpu)
}

/// Rows that are named many times, in every dtype, against the sums in f64; and into a table that another holds, or that is a view.
#[test]
fn sums_of_rows() {
    for (rows, width, count) in [(5, 1, 40), (120, 130, 400), (7, 64, 1), (3, 70, 0)] {
        let gradient = noise(&[count, width], 1);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let what = format!("{count} of {rows} rows of {width} in {dtype}");
            let given = cast(gradient.clone(), dtype);
            let exact = B::embedding_gradient(cast(given.clone(), DType::F64), rows_of(count, rows), rows);
            let found = B::embedding_gradient(given.clone(), rows_of(count, rows), rows);
            assert_eq!(found.dtype(), dtype);
            same(&what, cast(found, DType::F32), cast(cast(exact, dtype), DType::F32));

            let add = |table: P, value: P| {
                B::select_assign(table, 0, rows_of(count, rows), value, kiln_tensor::ScatterOp::Add)
            };
            let table = cast(noise(&[rows, width], 2), dtype);
            let exact = add(cast(table.clone(), DType::F64), cast(given.clone(), DType::F64));
            let want = cast(cast(exact, dtype), DType::F32);
            let before = values(cast(table.clone(), DType::F32));
            same(&what, cast(add(table.clone(), given.clone()), DType::F32), want.clone());
            assert_eq!(values(cast(table.clone(), DType::F32)), before, "{what}: another's table");
            let column_major = B::permute(table, &[1, 0]);
            let column_major = B::permute(B::reshape(column_major, [width, rows].into()), &[1, 0]);
            same(&what, cast(add(column_major, given), DType::F32), want);
        }
    }
}

/// Threads share the work in other pieces, which changes no bit.
#[test]
fn any_number_of_threads_yields_the_same() {
    let run = || {
        let x = noise(&[70, 900], 1);
        let targets = B::from_data(TensorData::new((0..70).collect::<Vec<i64>>(), [70]), &NdArrayDevice::Cpu);
        let options = CrossEntropyOptions { ignored: vec![3], smoothing: 0.1 };
        let weights = Some(cast(
            B::compare_scalar(kiln_tensor::CompareOp::Lower, noise(&[900], 3), 0.5.into()),
            DType::F32,
        ));
        let trained = B::cross_entropy_train(x.clone(), targets.clone(), weights.clone(), &options);
        let kept = (trained.largest, trained.log_sum);
        let of_logits =
            B::cross_entropy_gradient(noise(&[70], 4), x.clone(), targets, weights, kept, &options);
        let wide = noise(&[30, 70, 90], 5);
        let dropped = [DType::F32, DType::F16, DType::BF16, DType::F64]
            .map(|dtype| cast(B::dropout(cast(wide.clone(), dtype), 0.3, 5), DType::F32));
        let softmax = B::softmax(wide.clone(), 1);
        let results = [
            trained.losses,
            of_logits,
            B::embedding_gradient(x, rows_of(70, 40), 40),
            B::softmax_gradient(wide, softmax, 1),
        ];
        results.into_iter().chain(dropped).map(values).collect::<Vec<_>>()
    };
    let threads = kiln_ndarray::threads();
    let [one, two, seven] = [1, 2, 7].map(|threads| {
        kiln_ndarray::set_threads(threads);
        run()
    });
    kiln_ndarray::set_threads(threads);
    assert!(one == two && one == seven);
}

/// Rows of many classes, far from 0.
#[test]
fn cross_entropies() {
    for (rows, classes) in [(1, 3), (40, 1000), (3, 30_000)] {
        for (weighted, smoothing) in [(false, 0.0), (true, 0.0), (true, 0.2)] {
            for offset in [0.0, 4096.0] {
                let x = B::binary_scalar(BinaryOp::Mul, noise(&[rows, classes], 1), 8.0.into());
                let x = B::binary_scalar(BinaryOp::Add, x, offset.into());
                let weights = weighted.then(|| B::unary(kiln_tensor::UnaryOp::Exp, noise(&[classes], 2)));
                let targets: Vec<i64> = (0..rows).map(|row| (row * 31 % classes) as i64).collect();
                let targets = || B::from_data(TensorData::new(targets.clone(), [rows]), &NdArrayDevice::Cpu);
                let options = CrossEntropyOptions { ignored: vec![31], smoothing };
                let what = format!("{rows} × {classes} around {offset}, {options:?}, weighted: {weighted}");
                let own = B::cross_entropy_train(x.clone(), targets(), weights.clone(), &options);
                let composed =
                    compose::cross_entropy_train::<B>(x.clone(), targets(), weights.clone(), &options);
                same(&what, own.losses, composed.losses);
                same(&what, own.largest.clone(), composed.largest.clone());
                same(&what, own.log_sum.clone(), composed.log_sum.clone());
                let gradient = noise(&[rows], 3);
                let want = compose::cross_entropy_gradient::<B>(
                    gradient.clone(),
                    x.clone(),
                    targets(),
                    weights.clone(),
                    (composed.largest, composed.log_sum),
                    &options,
                );
                let kept = (own.largest, own.log_sum);
                let before = values(x.clone());
                let found =
                    B::cross_entropy_gradient(gradient, x.clone(), targets(), weights, kept, &options);
                same(&what, found, want);
                assert_eq!(values(x), before, "{what}: logits that another holds");
            }
        }
    }
}
