//! Whole layers against their equations in f64, whose gradients are differences.

use super::*;
use crate::gemm::{Matrix, PackedRhs, Rhs, noise};
use crate::simd::forced::at_each_level;
use crate::threads::set_threads;
use kiln_types::Activation;

struct Case {
    options: RnnOptions,
    steps: usize,
    batch: usize,
    size: usize,
    lengths: Option<Vec<i64>>,
    peepholes: bool,
}

/// What a layer is given, one after the other: input, input weights, recurrent weights, biases, hidden and cell states, peepholes.
type Operands<T> = [Vec<T>; 7];

/// All outputs and the last states; or gradients of [`Operands`].
#[derive(Debug, PartialEq)]
struct Found {
    results: [Vec<f32>; 3],
    gradients: Operands<f32>,
}

fn activation(which: Activation, x: f64) -> f64 {
    match which {
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Softplus => x.exp().ln_1p(),
        other => panic!("{other:?} is not in these tests"),
    }
}

fn bounded(clip: Option<f64>, x: f64) -> f64 {
    clip.map_or(x, |clip| x.clamp(-clip, clip))
}

impl Case {
    fn counts(&self) -> (usize, usize, usize) {
        (
            self.options.direction.count(),
            self.options.kind.gates() * self.options.hidden_size,
            self.options.hidden_size,
        )
    }

    fn is_lstm(&self) -> bool {
        matches!(self.options.kind, RnnKind::Lstm { .. })
    }

    fn operands(&self) -> Operands<f32> {
        let (directions, rows, hidden) = self.counts();
        let state = directions * self.batch * hidden;
        [
            noise(self.steps * self.batch * self.size, 1),
            noise(directions * rows * self.size, 2),
            noise(directions * rows * hidden, 3),
            noise(directions * 2 * rows, 4),
            noise(state, 5),
            noise(if self.is_lstm() { state } else { 0 }, 6),
            noise(if self.peepholes { directions * 3 * hidden } else { 0 }, 7),
        ]
    }

    /// Gradients of the results.
    fn upstream(&self) -> [Vec<f32>; 3] {
        let (directions, _, hidden) = self.counts();
        let state = directions * self.batch * hidden;
        [noise(self.steps * state, 8), noise(state, 9), noise(if self.is_lstm() { state } else { 0 }, 10)]
    }

    fn layer(&self, peepholes: &'static [f32], training: bool) -> Layer<'_> {
        Layer {
            options: &self.options,
            steps: self.steps,
            batch: self.batch,
            lengths: self.lengths.as_deref(),
            peepholes: self.peepholes.then_some(peepholes),
            training,
        }
    }

    fn run(&self) -> Found {
        let (directions, rows, hidden) = self.counts();
        let [input, weight, recurrent, bias, first_h, first_c, peepholes] = self.operands();
        let peepholes: &'static [f32] = peepholes.leak();
        let kind = self.options.kind;
        let of_parts =
            |parts: &'static [Part], all: &[f32], columns: usize, turned: bool| -> Vec<PackedRhs> {
                (0..directions)
                    .flat_map(|direction| parts.iter().map(move |part| (direction, part)))
                    .map(|(direction, part)| {
                        let first = (direction * rows + part.gate * hidden) * columns;
                        let matrix = Matrix::row_major(&all[first..], columns);
                        match turned {
                            true => PackedRhs::new(matrix.transposed(), columns, part.count * hidden),
                            false => PackedRhs::new(matrix, part.count * hidden, columns),
                        }
                    })
                    .collect()
            };
        let weights = of_parts(input_parts(kind), &weight, self.size, true);
        let weights: Vec<Rhs<'_>> = weights.iter().map(Rhs::Packed).collect();
        let recurrents = of_parts(recurrent_parts(kind), &recurrent, hidden, true);
        let recurrents: Vec<&PackedRhs> = recurrents.iter().collect();
        let forward = |training: bool| {
            let layer = self.layer(peepholes, training);
            // What is not written must not be read.
            let mut gates = vec![f32::NAN; directions * self.steps * self.batch * layer.width()];
            let (mut h, mut c) = (first_h.clone(), first_c.clone());
            let mut output = vec![f32::NAN; self.steps * h.len()];
            let (mut kept_h, mut kept_c) =
                (vec![f32::NAN; self.steps * h.len()], vec![f32::NAN; self.steps * c.len()]);
            let kept = training.then_some(Kept { hidden: &mut kept_h, cell: &mut kept_c });
            layer.project(&input, self.size, &weights, Some(&bias), &mut gates);
            layer.forward(
                &recurrents,
                &mut gates,
                States { hidden: &mut h, cell: &mut c },
                &mut output,
                kept,
            );
            (gates, [output, h, c], [kept_h, kept_c])
        };
        let (mut gates, results, kept) = forward(true);
        assert_eq!(forward(false).1, results, "training changes nothing");

        let layer = self.layer(peepholes, true);
        let recurrents = of_parts(recurrent_parts(kind), &recurrent, hidden, false);
        let recurrents: Vec<&PackedRhs> = recurrents.iter().collect();
        let [of_output, mut of_h, mut of_c] = self.upstream();
        let mut of_peepholes = vec![f32::NAN; peepholes.len()];
        let states = States { hidden: &mut of_h, cell: &mut of_c };
        let of = OfResults { output: &of_output, states };
        layer.backward(&recurrents, &mut gates, [&kept[0], &kept[1]], of, Some(&mut of_peepholes));
        let [mut of_input, mut of_weight, mut of_recurrent, mut of_bias] =
            [&input, &weight, &recurrent, &bias].map(|operand| vec![f32::NAN; operand.len()]);
        layer.of_input(&gates, self.size, &weight, &mut of_input);
        layer.of_weights(&gates, &input, self.size, &kept[0], &mut of_weight, &mut of_recurrent);
        layer.of_biases(&gates, &mut of_bias);
        Found { results, gradients: [of_input, of_weight, of_recurrent, of_bias, of_h, of_c, of_peepholes] }
    }

    /// ONNX's equations: all outputs and the last states.
    fn equations(&self, operands: &Operands<f64>) -> [Vec<f64>; 3] {
        let [input, weight, recurrent, bias, first_h, first_c, peepholes] = operands;
        let (directions, rows, hidden) = self.counts();
        let RnnOptions { kind, clip, state_clip, .. } = self.options;
        let state = self.batch * hidden;
        let mut output = vec![0.0; self.steps * directions * state];
        let (mut h, mut c) = (first_h.clone(), first_c.clone());
        let cells = kind.activations().len();
        for direction in 0..directions {
            let functions = &self.options.activations[direction * cells..][..cells];
            let act = |n: usize, x: f64| activation(functions[n], bounded(clip, x));
            let dot = |weights: &[f64], row: usize, x: &[f64]| -> f64 {
                weights[(direction * rows + row) * x.len()..][..x.len()]
                    .iter()
                    .zip(x)
                    .map(|(w, x)| w * x)
                    .sum()
            };
            for n in 0..self.steps {
                let step = self.layer(&[], false).place_of(direction, n);
                for row in (0..self.batch)
                    .filter(|&row| self.lengths.as_ref().is_none_or(|all| all[row] > step as i64))
                {
                    let at = (direction * self.batch + row) * hidden;
                    let old: Vec<f64> = h[at..at + hidden].to_vec();
                    let x = &input[(step * self.batch + row) * self.size..][..self.size];
                    let from_x = |gate: usize, j: usize| {
                        dot(weight, gate * hidden + j, x) + bias[direction * 2 * rows + gate * hidden + j]
                    };
                    let from = |gate: usize, j: usize, h: &[f64]| {
                        dot(recurrent, gate * hidden + j, h)
                            + bias[(direction * 2 + 1) * rows + gate * hidden + j]
                    };
                    let from_h = |gate: usize, j: usize| from(gate, j, &old);
                    let reset: Vec<f64> = match kind {
                        RnnKind::Gru { .. } => {
                            (0..hidden).map(|j| old[j] * act(0, from_x(1, j) + from_h(1, j))).collect()
                        }
                        RnnKind::Rnn | RnnKind::Lstm { .. } => Vec::new(),
                    };
                    for j in 0..hidden {
                        h[at + j] = match kind {
                            RnnKind::Rnn => bounded(state_clip, act(0, from_x(0, j) + from_h(0, j))),
                            RnnKind::Gru { linear_before_reset } => {
                                let z = act(0, from_x(0, j) + from_h(0, j));
                                let r = act(0, from_x(1, j) + from_h(1, j));
                                let given =
                                    if linear_before_reset { r * from_h(2, j) } else { from(2, j, &reset) };
                                bounded(state_clip, (1.0 - z) * act(1, from_x(2, j) + given) + z * old[j])
                            }
                            RnnKind::Lstm { input_forget } => {
                                let peep = |n: usize, c: f64| {
                                    peepholes.get((direction * 3 + n) * hidden + j).map_or(0.0, |p| p * c)
                                };
                                let gate =
                                    |n: usize, c: f64| act(0, from_x(n, j) + from_h(n, j) + peep(n, c));
                                let input = gate(0, c[at + j]);
                                let forget = if input_forget { 1.0 - input } else { gate(2, c[at + j]) };
                                let new = forget * c[at + j] + input * act(1, from_x(3, j) + from_h(3, j));
                                c[at + j] = bounded(state_clip, new);
                                gate(1, c[at + j]) * activation(functions[2], c[at + j])
                            }
                        };
                    }
                    let out = ((step * directions + direction) * self.batch + row) * hidden;
                    output[out..out + hidden].copy_from_slice(&h[at..at + hidden]);
                }
            }
        }
        [output, h, c]
    }

    fn check(&self) {
        let found = self.run();
        let wide = |x: &Vec<f32>| -> Vec<f64> { x.iter().copied().map(f64::from).collect() };
        let operands: Operands<f64> = self.operands().each_ref().map(wide);
        let exact = self.equations(&operands);
        for (got, want) in found.results.iter().flatten().zip(exact.iter().flatten()) {
            let close = (f64::from(*got) - want).abs() < 2e-6 * want.abs().max(1.0);
            assert!(close, "{:?}: {got} {want}", self.options);
        }
        let upstream = self.upstream().each_ref().map(wide);
        let score = |operands: &Operands<f64>| -> f64 {
            self.equations(operands).iter().flatten().zip(upstream.iter().flatten()).map(|(y, g)| y * g).sum()
        };
        for (n, gradient) in found.gradients.iter().enumerate() {
            assert_eq!(gradient.len(), operands[n].len());
            for (at, got) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut operands = operands.clone();
                    operands[n][at] += by;
                    score(&operands)
                };
                let want = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let close = (f64::from(*got) - want).abs() < 1e-5 * want.abs().max(1.0);
                assert!(close, "{:?}: operand {n} at {at}: {got} {want}", self.options);
            }
        }
    }
}

const KINDS: [RnnKind; 5] = [
    RnnKind::Rnn,
    RnnKind::Gru { linear_before_reset: true },
    RnnKind::Gru { linear_before_reset: false },
    RnnKind::Lstm { input_forget: false },
    RnnKind::Lstm { input_forget: true },
];

fn case(kind: RnnKind, direction: RnnDirection, activations: &[Activation], all: bool) -> Case {
    let options = RnnOptions {
        kind,
        direction,
        hidden_size: 5,
        activations: activations.repeat(direction.count()).into(),
        clip: all.then_some(0.8),
        state_clip: all.then_some(0.45),
        batch_first: false,
    };
    let peepholes = all && matches!(kind, RnnKind::Lstm { .. });
    Case { options, steps: 3, batch: 4, size: 2, lengths: all.then(|| vec![3, 0, 2, 1]), peepholes }
}

#[test]
fn layers_equal_onnx_equations_and_their_differences() {
    at_each_level(|_| {
        for kind in KINDS {
            for direction in [RnnDirection::Forward, RnnDirection::Reverse, RnnDirection::Bidirectional] {
                for all in [false, true] {
                    case(kind, direction, kind.activations(), all).check();
                }
            }
            // An activation whose slope does not follow from its value.
            let others = vec![Activation::Softplus; kind.activations().len()];
            case(kind, RnnDirection::Forward, &others, false).check();
        }
    });
}

/// Not a bit depends on how many threads there are, whatever they share out: directions, rows, or, when rows are few, products.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let before = crate::threads::threads();
    for kind in KINDS {
        for (direction, batch, hidden) in [
            (RnnDirection::Forward, 29, 48),
            (RnnDirection::Bidirectional, 33, 40),
            (RnnDirection::Reverse, 1, 128),
            (RnnDirection::Forward, 15, 224),
        ] {
            let mut case = case(kind, direction, kind.activations(), false);
            (case.batch, case.options.hidden_size) = (batch, hidden);
            case.lengths = Some((0..batch as i64).map(|row| row % 4).collect());
            let mut all = [1, 2, 3, 8].into_iter().map(|threads| {
                set_threads(threads);
                (threads, case.run())
            });
            let Some((_, first)) = all.next() else { unreachable!("there are four") };
            for (threads, found) in all {
                assert!(
                    found == first,
                    "{kind:?}, {direction:?}, {batch} rows of {hidden}: {threads} threads"
                );
            }
        }
    }
    set_threads(before);
}
