//! Times the shapes of well-known networks through the backend, with random weights: `cargo run --release -p
//! kiln-ndarray --example layers [name] [threads] [callers]`. It is for profiling; `kiln bench` times real models. With callers, so many
//! threads run the network at once, and what counts is how many passes all of them make in a second.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{
    Activation, AttentionOptions, BinaryOp, ConvOptions, DType, Distribution, Expression, PoolOp,
    PoolOptions, ReduceOp, RnnDirection, RnnKind, RnnOptions, Scalar, Step, compose::RnnOperands,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

type B = NdArray;
type T = NdArrayTensor;

const CPU: NdArrayDevice = NdArrayDevice::Cpu;

/// Random values as a record's data would come: shared bytes, of a parameter.
fn weight(shape: &[usize]) -> T {
    let values = B::random(shape.into(), Distribution::Uniform(-0.05, 0.05), DType::F32, &CPU);
    B::prepare(B::from_data(B::into_data(values).expect("reads back"), &CPU))
}

struct Linear(T, T);

impl Linear {
    fn new(inputs: usize, outputs: usize) -> Self {
        Self(weight(&[inputs, outputs]), weight(&[outputs]))
    }

    fn forward(&self, x: T, activation: Option<Activation>) -> T {
        B::linear(x, &self.0, Some(&self.1), activation)
    }
}

fn add(a: T, b: T) -> T {
    B::binary(BinaryOp::Add, a, b)
}

fn bert(layers: usize, seq: usize, width: usize, heads: usize) -> impl Fn() -> T {
    let stack: Vec<_> = (0..layers)
        .map(|_| {
            let linears = [(); 4].map(|()| Linear::new(width, width));
            let norms = [(); 2].map(|()| (weight(&[width]), weight(&[width])));
            (linears, norms, Linear::new(width, 4 * width), Linear::new(4 * width, width))
        })
        .collect();
    let x = weight(&[1, seq, width]);
    let mask = B::cast(B::full([1, 1, 1, seq].into(), Scalar::Bool(true), DType::Bool, &CPU), DType::Bool);
    move || {
        let mut x = x.clone();
        for ([q, k, v, o], [first, second], up, down) in &stack {
            let split = |x| B::permute(B::reshape(x, [1, seq, heads, width / heads].into()), &[0, 2, 1, 3]);
            let [q, k, v] = [q, k, v].map(|linear| split(linear.forward(x.clone(), None)));
            let y = B::attention(q, k, v, Some(mask.clone()), &AttentionOptions::default());
            let y = B::reshape(B::permute(y, &[0, 2, 1, 3]), [1, seq, width].into());
            let y = o.forward(y, None);
            x = B::layer_norm(add(y, x), first.0.clone(), Some(first.1.clone()), 1e-12);
            let y = down.forward(up.forward(x.clone(), Some(Activation::Gelu)), None);
            x = B::layer_norm(add(y, x), second.0.clone(), Some(second.1.clone()), 1e-12);
        }
        x
    }
}

struct Conv(T, T, ConvOptions, Option<Activation>);

impl Conv {
    fn new(
        inputs: usize,
        outputs: usize,
        kernel: usize,
        stride: usize,
        groups: usize,
        act: Option<Activation>,
    ) -> Self {
        let options = ConvOptions {
            stride: [stride; 2].into(),
            padding: [(kernel / 2, kernel / 2); 2].into(),
            dilation: [1; 2].into(),
            groups,
        };
        Self(weight(&[outputs, inputs / groups, kernel, kernel]), weight(&[outputs]), options, act)
    }

    fn forward(&self, x: T) -> T {
        let (weight, bias) = (self.0.clone(), Some(self.1.clone()));
        match self.3 {
            Some(activation) => B::conv_activated(x, weight, bias, activation, &self.2),
            None => B::conv(x, weight, bias, &self.2),
        }
    }
}

fn relu_sum() -> Expression {
    Expression::new(vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Activation(Activation::Relu, 2),
    ])
}

fn resnet50() -> impl Fn() -> T {
    let relu = Some(Activation::Relu);
    let stem = Conv::new(3, 64, 7, 2, 1, relu);
    let mut blocks = Vec::new();
    let mut channels = 64;
    for (stage, count) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let shortcut = (block == 0).then(|| Conv::new(channels, 4 * width, 1, stride, 1, None));
            let convs = [
                Conv::new(channels, width, 1, 1, 1, relu),
                Conv::new(width, width, 3, stride, 1, relu),
                Conv::new(width, 4 * width, 1, 1, 1, None),
            ];
            channels = 4 * width;
            blocks.push((convs, shortcut));
        }
    }
    let (x, head, expression) = (weight(&[1, 3, 224, 224]), Linear::new(2048, 1000), relu_sum());
    let pool = PoolOptions {
        kernel: [3; 2].into(),
        stride: [2; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        ceil_mode: false,
    };
    move || {
        let mut x = B::pool(PoolOp::Max, stem.forward(x.clone()), &pool);
        for ([a, b, c], shortcut) in &blocks {
            let y = c.forward(b.forward(a.forward(x.clone())));
            let x_ = match shortcut {
                Some(shortcut) => shortcut.forward(x),
                None => x,
            };
            x = B::elementwise(&expression, [y, x_].into(), &[]).remove(0);
        }
        let x = B::reduce(ReduceOp::Mean, x, &[2, 3]);
        head.forward(B::reshape(x, [1, 2048].into()), None)
    }
}

fn mobilenet_v2() -> impl Fn() -> T {
    let relu6 = Some(Activation::Clamp { min: 0.0, max: 6.0 });
    let stem = Conv::new(3, 32, 3, 2, 1, relu6);
    let plan = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    let mut blocks = Vec::new();
    let mut channels = 32;
    for (expand, out, count, stride) in plan {
        for block in 0..count {
            let stride = if block == 0 { stride } else { 1 };
            let wide = channels * expand;
            let up = (expand > 1).then(|| Conv::new(channels, wide, 1, 1, 1, relu6));
            let deep = Conv::new(wide, wide, 3, stride, wide, relu6);
            blocks.push((up, deep, Conv::new(wide, out, 1, 1, 1, None), channels == out && stride == 1));
            channels = out;
        }
    }
    let last = Conv::new(320, 1280, 1, 1, 1, relu6);
    let (x, head) = (weight(&[1, 3, 224, 224]), Linear::new(1280, 1000));
    move || {
        let mut x = stem.forward(x.clone());
        for (up, deep, down, residual) in &blocks {
            let y = match up {
                Some(up) => up.forward(x.clone()),
                None => x.clone(),
            };
            let y = down.forward(deep.forward(y));
            x = if *residual { add(y, x) } else { y };
        }
        let x = B::reduce(ReduceOp::Mean, last.forward(x), &[2, 3]);
        head.forward(B::reshape(x, [1, 1280].into()), None)
    }
}

fn lstm(seq: usize, input: usize, hidden: usize) -> impl Fn() -> T {
    let operands =
        move || [weight(&[2, 4 * hidden, input]), weight(&[2, 4 * hidden, hidden]), weight(&[2, 8 * hidden])];
    let [w, r, b] = operands();
    let x = weight(&[seq, 1, input]);
    let options = RnnOptions {
        kind: RnnKind::Lstm { input_forget: false },
        direction: RnnDirection::Bidirectional,
        hidden_size: hidden,
        activations: [Activation::Sigmoid, Activation::Tanh, Activation::Tanh].repeat(2).into(),
        clip: None,
        state_clip: None,
        batch_first: false,
    };
    move || {
        let operands = RnnOperands {
            input: x.clone(),
            weight: w.clone(),
            recurrent: r.clone(),
            bias: Some(b.clone()),
            sequence_lengths: None,
            initial_hidden: None,
            initial_cell: None,
            peepholes: None,
        };
        B::rnn(operands, &options).output
    }
}

fn mlp() -> impl Fn() -> T {
    let layers = [Linear::new(16, 32), Linear::new(32, 12), Linear::new(12, 5)];
    let x = weight(&[1, 16]);
    move || {
        let [a, b, c] = &layers;
        let relu = Some(Activation::Relu);
        B::softmax(c.forward(b.forward(a.forward(x.clone(), relu), relu), None), 1)
    }
}

/// Milliseconds that this thread ran (0 where the system does not say): on a busy machine, more telling than the clock.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// What to run.
struct Wanted {
    name: String,
    callers: Option<usize>,
}

impl Wanted {
    fn time<R: Fn() -> T + Sync>(&self, name: &str, make: impl FnOnce() -> R) {
        if name.contains(&self.name) {
            match self.callers {
                Some(callers) => throughput(name, callers, &make()),
                None => time(name, &make()),
            }
        }
    }
}

fn time(name: &str, run: &impl Fn() -> T) {
    let first = Instant::now();
    let shape = run().shape();
    let first = first.elapsed();
    let (mut times, start, on_cpu) = (Vec::new(), Instant::now(), cpu_ms());
    while (start.elapsed().as_secs_f64() < 2.0 && times.len() < 100_000) || times.len() < 3 {
        let start = Instant::now();
        drop(run());
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let busy = (cpu_ms() - on_cpu) / times.len() as f64;
    times.sort_by(f64::total_cmp);
    let (first, median) = (first.as_secs_f64() * 1e3, times[times.len() / 2]);
    println!(
        "{name}: median {median:.4} ms, least {:.4}, on the CPU {busy:.4}, first {first:.1}, {shape}",
        times[0]
    );
}

/// Passes a second of so many threads at once.
fn throughput(name: &str, callers: usize, run: &(impl Fn() -> T + Sync)) {
    let pass = || drop(B::into_data(run()).expect("it is on the CPU"));
    pass();
    let start = Instant::now();
    let passes = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                while start.elapsed().as_secs_f64() < 3.0 {
                    pass();
                    passes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let rate = passes.into_inner() as f64 / start.elapsed().as_secs_f64();
    println!("{name}: {callers} callers, {rate:.1} passes a second");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    if let Some(threads) = arguments.next().and_then(|n| n.parse().ok()) {
        kiln_kernels::threads::set_threads(threads);
    }
    let wanted = Wanted { name, callers: arguments.next().and_then(|n| n.parse().ok()) };
    wanted.time("mlp", mlp);
    wanted.time("lstm", || lstm(64, 128, 128));
    wanted.time("minilm", || bert(6, 128, 384, 12));
    wanted.time("bert", || bert(12, 128, 768, 12));
    wanted.time("mobilenet", mobilenet_v2);
    wanted.time("resnet", resnet50);
}
