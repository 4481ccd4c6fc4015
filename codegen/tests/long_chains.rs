//! Passes over long graphs and source for them, however their nodes are named: in time that grows with their length, on a
//! small stack.

use kiln_codegen::{Options, generate};
use kiln_importer::ir::{
    Builder, Concat, Graph, LayerNorm, Linear, Op, Origin, Permute, Provenance, ScopeEntry, TensorType,
    ValueId,
};
use kiln_importer::passes::{self, optimize};
use kiln_types::{BinaryOp, DType, TensorData, UnaryOp};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a build script has.
const STACK: usize = 2 << 20;
/// Nodes of the graphs that are compared; `KILN_CHAIN` measures another length.
const LENGTHS: [usize; 2] = [500, 2_000];
/// How many times longer the longer graph may take: a little more than it is longer. A quadratic step over so many nodes
/// is so dear in a debug build that it shows.
const MAX_RATIO: f64 = 8.0;
/// Something else on the machine can make a measurement wrong, but not each time.
const ATTEMPTS: usize = 4;

struct Shape {
    name: &'static str,
    build: fn(&mut Builder<'_>, ValueId, usize) -> Vec<ValueId>,
}

const SHAPES: &[Shape] = &[
    Shape { name: "no names", build: |b, x, n| chain(b, x, n, |_| Vec::new()) },
    Shape { name: "no names, nothing repeats", build: irregular },
    Shape { name: "one root scope", build: |b, x, n| chain(b, x, n, |_| vec![entry("", "Net")]) },
    Shape {
        name: "one module",
        build: |b, x, n| chain(b, x, n, |_| vec![entry("", "Net"), entry("body", "Body")]),
    },
    Shape {
        name: "a module a node",
        build: |b, x, n| chain(b, x, n, |i| vec![entry("", "Net"), entry(&format!("step{i}"), "Step")]),
    },
    Shape {
        name: "a list of modules",
        build: |b, x, n| {
            chain(b, x, n, |i| vec![entry("", "Net"), entry(&format!("steps.{}", i / 8), "Step")])
        },
    },
    Shape {
        name: "modules that take turns",
        build: |b, x, n| {
            chain(b, x, n, |i| vec![entry("", "Net"), entry(&format!("part{}", i % 100), "Part")])
        },
    },
    Shape { name: "period 1", build: |b, x, n| repeated(b, x, n, 1) },
    Shape { name: "period 2", build: |b, x, n| repeated(b, x, n, 2) },
    Shape { name: "period 3", build: |b, x, n| repeated(b, x, n, 3) },
    Shape { name: "period 7", build: |b, x, n| repeated(b, x, n, 7) },
    Shape { name: "layers in one scope", build: |b, x, n| layers(b, x, n, |_| None) },
    Shape { name: "layers with names", build: |b, x, n| layers(b, x, n, |i| Some(format!("layers.{i}"))) },
    Shape { name: "layers with flat names", build: |b, x, n| layers(b, x, n, |i| Some(format!("fc{i}"))) },
    Shape { name: "one layer again and again", build: |b, x, n| layers(b, x, n, |_| Some("fc".to_owned())) },
    Shape { name: "rounds", build: rounds },
    Shape { name: "rounds that read two back", build: two_back },
    Shape { name: "fan-out", build: fan_out },
    Shape { name: "fan-in", build: fan_in },
    Shape { name: "parameters", build: parameters },
    Shape { name: "a checkpoint's vector a node", build: |b, x, n| own(b, x, n, flat, scaled) },
    Shape { name: "a checkpoint's vector a node, modules", build: |b, x, n| own(b, x, n, nested, scaled) },
    Shape { name: "a checkpoint's layer a node", build: |b, x, n| own(b, x, n, flat, linear) },
    Shape { name: "a checkpoint's layer a node, modules", build: |b, x, n| own(b, x, n, nested, linear) },
    Shape { name: "a checkpoint's norm a node", build: |b, x, n| own(b, x, n, flat, norm) },
];

fn entry(path: &str, class: &str) -> ScopeEntry {
    ScopeEntry { path: path.to_owned(), class: class.to_owned() }
}

const OPS: [UnaryOp; 6] =
    [UnaryOp::Tanh, UnaryOp::Exp, UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sin, UnaryOp::Cos];

fn chain(
    b: &mut Builder<'_>,
    mut x: ValueId,
    n: usize,
    scope: impl Fn(usize) -> Vec<ScopeEntry>,
) -> Vec<ValueId> {
    for i in 0..n {
        b.origin = Origin { scope: scope(i), ..Origin::default() };
        x = b.add(Op::Unary(OPS[i % OPS.len()]), &[x]).unwrap();
    }
    vec![x]
}

/// Operations in no order that repeats.
fn irregular(b: &mut Builder<'_>, mut x: ValueId, n: usize) -> Vec<ValueId> {
    let mut seed = 1u32;
    for _ in 0..n {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        x = b.add(Op::Unary(OPS[(seed >> 16) as usize % OPS.len()]), &[x]).unwrap();
    }
    vec![x]
}

/// Blocks of so many nodes with a parameter each.
fn repeated(b: &mut Builder<'_>, mut x: ValueId, n: usize, period: usize) -> Vec<ValueId> {
    for i in 0..n {
        x = if i % period == 0 {
            let weight = b.graph.add_constant(None, zeros(&[4, 4]));
            b.add(Op::MatMul, &[x, weight]).unwrap()
        } else {
            b.add(Op::Unary(OPS[i % period % OPS.len()]), &[x]).unwrap()
        };
    }
    vec![x]
}

fn layers(
    b: &mut Builder<'_>,
    mut x: ValueId,
    n: usize,
    name: impl Fn(usize) -> Option<String>,
) -> Vec<ValueId> {
    let mut shared: Option<(String, [ValueId; 2])> = None;
    for i in 0..n {
        let name = name(i);
        let [weight, bias] = match (&shared, &name) {
            (Some((known, parameters)), Some(name)) if known == name => *parameters,
            _ => {
                let named = |field: &str| name.as_ref().map(|name| format!("{name}.{field}"));
                [
                    b.graph.add_constant(named("weight"), zeros(&[4, 4])),
                    b.graph.add_constant(named("bias"), zeros(&[4])),
                ]
            }
        };
        shared = name.map(|name| (name, [weight, bias]));
        b.origin = Origin { scope: vec![entry("", "Net")], ..Origin::default() };
        x = b.add(Op::Linear(Linear { activation: None }), &[x, weight, bias]).unwrap();
    }
    vec![x]
}

/// One value that all others are made of; many results.
fn fan_out(b: &mut Builder<'_>, x: ValueId, n: usize) -> Vec<ValueId> {
    let first = b.add(Op::Unary(UnaryOp::Tanh), &[x]).unwrap();
    let branches: Vec<_> = (0..n).map(|i| b.add(Op::Unary(OPS[i % OPS.len()]), &[first]).unwrap()).collect();
    // A few results: a function that yields them all is no function.
    let mut sum = branches[0];
    for &branch in &branches[1..] {
        sum = b.add(Op::Binary(BinaryOp::Add), &[sum, branch]).unwrap();
    }
    vec![sum]
}

/// Many values into one.
fn fan_in(b: &mut Builder<'_>, x: ValueId, n: usize) -> Vec<ValueId> {
    let branches: Vec<_> = (0..n).map(|i| b.add(Op::Unary(OPS[i % OPS.len()]), &[x]).unwrap()).collect();
    vec![b.add(Op::Concat(Concat { axis: 0 }), &branches).unwrap()]
}

/// Rounds of some nodes with one weight, which carry two values and leave one for a list.
fn rounds(b: &mut Builder<'_>, mut x: ValueId, n: usize) -> Vec<ValueId> {
    b.origin = Origin { scope: vec![entry("", "Net")], ..Origin::default() };
    let weight = b.graph.add_constant(Some("weight".into()), zeros(&[4, 4]));
    let mut sum = x;
    let mut left = Vec::new();
    for _ in 0..n / 3 {
        x = b.add(Op::MatMul, &[x, weight]).unwrap();
        x = b.add(Op::Binary(BinaryOp::Mul), &[x, sum]).unwrap();
        sum = b.add(Op::Binary(BinaryOp::Add), &[sum, x]).unwrap();
        left.push(sum);
    }
    vec![x, b.add(Op::Concat(Concat { axis: 0 }), &left).unwrap()]
}

/// Nodes that do the same at every distance and yet are no rounds.
fn two_back(b: &mut Builder<'_>, x: ValueId, n: usize) -> Vec<ValueId> {
    b.origin = Origin { scope: vec![entry("", "Net")], ..Origin::default() };
    let weight = b.graph.add_constant(Some("weight".into()), zeros(&[4, 4]));
    let mut last = [x, b.add(Op::MatMul, &[x, weight]).unwrap(), x];
    for _ in 0..n {
        let sum = b.add(Op::Binary(BinaryOp::Add), &[last[0], last[2]]).unwrap();
        last = [last[1], last[2], sum];
    }
    vec![last[2]]
}

/// A parameter a node, some with names that differ only in numbers.
fn parameters(b: &mut Builder<'_>, mut x: ValueId, n: usize) -> Vec<ValueId> {
    for i in 0..n {
        b.origin = Origin { scope: vec![entry("", "Net")], ..Origin::default() };
        let name = (i % 2 == 0).then(|| format!("scale_{i}"));
        let scale = b.graph.add_constant(name, zeros(&[1, 4]));
        x = b.add(Op::Binary(BinaryOp::Add), &[x, scale]).unwrap();
    }
    vec![x]
}

/// A node that uses tensors of a checkpoint, each under a key of its own.
type Node = fn(&mut Builder<'_>, ValueId, &dyn Fn(&str) -> String) -> ValueId;

fn own(
    b: &mut Builder<'_>,
    mut x: ValueId,
    n: usize,
    key: fn(usize, &str) -> String,
    node: Node,
) -> Vec<ValueId> {
    for i in 0..n {
        x = node(b, x, &|field| key(i, field));
    }
    vec![x]
}

fn flat(i: usize, field: &str) -> String {
    format!("{field}_{i}")
}

fn nested(i: usize, field: &str) -> String {
    format!("layers.{}.step{}.{field}", i / 8, i % 8)
}

/// A tensor of the checkpoint.
fn tensor(b: &mut Builder<'_>, key: String, shape: &[usize]) -> ValueId {
    let made = Provenance::Key { key: key.clone(), shape: shape.to_vec() };
    b.graph.add_derived(Some(key), zeros(shape), Some(Arc::new(made)))
}

fn scaled(b: &mut Builder<'_>, x: ValueId, key: &dyn Fn(&str) -> String) -> ValueId {
    let scale = tensor(b, key("scale"), &[1, 4]);
    b.add(Op::Binary(BinaryOp::Mul), &[x, scale]).unwrap()
}

/// As PyTorch has it: the transposed weight, and a bias.
fn linear(b: &mut Builder<'_>, x: ValueId, key: &dyn Fn(&str) -> String) -> ValueId {
    let (weight, bias) = (tensor(b, key("weight"), &[4, 4]), tensor(b, key("bias"), &[1, 4]));
    let turned = b.add(Op::Permute(Permute { axes: vec![1, 0] }), &[weight]).unwrap();
    let product = b.add(Op::MatMul, &[x, turned]).unwrap();
    b.add(Op::Binary(BinaryOp::Add), &[product, bias]).unwrap()
}

fn norm(b: &mut Builder<'_>, x: ValueId, key: &dyn Fn(&str) -> String) -> ValueId {
    let (weight, bias) = (tensor(b, key("weight"), &[4]), tensor(b, key("bias"), &[4]));
    b.add(Op::LayerNorm(LayerNorm { epsilon: 1e-5 }), &[x, weight, bias]).unwrap()
}

fn zeros(shape: &[usize]) -> TensorData {
    TensorData::new(vec![0f32; shape.iter().product()], shape.to_vec())
}

fn graph(shape: &Shape, length: usize) -> Graph {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let x = builder.input("x", TensorType::new(DType::F32, [2usize, 4]));
    let outputs = (shape.build)(&mut builder, x, length);
    let nodes = builder.nodes;
    graph.root.nodes = nodes;
    graph.output_names = (0..outputs.len()).map(|i| format!("y{i}")).collect();
    graph.root.outputs = outputs;
    graph
}

/// The time that something takes, in a thread with a small stack.
fn time(work: impl FnOnce() + Send) -> Duration {
    let run = || {
        let start = Clock::now();
        work();
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).unwrap();
        thread.join().unwrap()
    })
}

/// The time that the source of a graph takes.
fn generating(shape: &Shape, length: usize) -> Duration {
    let graph = graph(shape, length);
    time(|| {
        let generated = generate(&graph, &Options::default()).unwrap();
        assert!(generated.source.contains("fn forward"));
    })
}

/// The time that the passes over a graph take.
fn optimizing(shape: &Shape, length: usize) -> Duration {
    let mut graph = graph(shape, length);
    time(|| {
        optimize(&mut graph, &passes::Options::default());
    })
}

/// What the thread used of a processor, where the system tells, so that other work does not count.
struct Clock(Option<u64>, Instant);

impl Clock {
    fn now() -> Self {
        Clock(Self::used(), Instant::now())
    }

    fn used() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    }

    fn elapsed(&self) -> Duration {
        match (self.0, Self::used()) {
            (Some(before), Some(after)) => Duration::from_nanos(after - before),
            _ => self.1.elapsed(),
        }
    }
}

/// Holds something to its time for every shape.
fn check(what: fn(&Shape, usize) -> Duration) {
    let only = std::env::var("KILN_SHAPE").ok();
    let length = std::env::var("KILN_CHAIN").ok().and_then(|n| n.parse().ok());
    for shape in SHAPES.iter().filter(|shape| only.as_deref().is_none_or(|only| only == shape.name)) {
        if let Some(length) = length {
            println!("{:>40} {length:>7} {:>10.2?}", shape.name, what(shape, length));
            continue;
        }
        let ratios = (0..ATTEMPTS).map(|_| {
            let [short, long] = LENGTHS.map(|length| what(shape, length));
            long.as_secs_f64() / short.as_secs_f64()
        });
        let mut ratios = ratios.inspect(|ratio| println!("{:>40} {ratio:.1}", shape.name));
        assert!(ratios.any(|ratio| ratio < MAX_RATIO), "{}", shape.name);
    }
}

#[test]
fn the_time_for_source_grows_with_the_length_of_a_graph() {
    check(generating);
}

#[test]
fn the_time_for_passes_grows_with_the_length_of_a_graph() {
    check(optimizing);
}
