//! Source for long graphs, however their nodes are named: in time that grows with their length, on a small stack.

use kiln_codegen::{Options, generate};
use kiln_importer::ir::{Builder, Concat, Graph, Linear, Op, Origin, ScopeEntry, TensorType, ValueId};
use kiln_types::{BinaryOp, DType, TensorData, UnaryOp};
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
    Shape { name: "fan-out", build: fan_out },
    Shape { name: "fan-in", build: fan_in },
    Shape { name: "parameters", build: parameters },
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

/// The time that source takes, in a thread with a small stack.
fn time(shape: &Shape, length: usize) -> Duration {
    let graph = graph(shape, length);
    let run = || {
        let start = Clock::now();
        let generated = generate(&graph, &Options::default()).unwrap();
        assert!(generated.source.contains("fn forward"));
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).unwrap();
        thread.join().unwrap()
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

#[test]
fn time_grows_with_the_length_of_a_graph() {
    let only = std::env::var("KILN_SHAPE").ok();
    let length = std::env::var("KILN_CHAIN").ok().and_then(|n| n.parse().ok());
    for shape in SHAPES.iter().filter(|shape| only.as_deref().is_none_or(|only| only == shape.name)) {
        if let Some(length) = length {
            println!("{:>30} {length:>7} {:>10.2?}", shape.name, time(shape, length));
            continue;
        }
        let ratios = (0..ATTEMPTS).map(|_| {
            let [short, long] = LENGTHS.map(|length| time(shape, length));
            long.as_secs_f64() / short.as_secs_f64()
        });
        let mut ratios = ratios.inspect(|ratio| println!("{:>30} {ratio:.1}", shape.name));
        assert!(ratios.any(|ratio| ratio < MAX_RATIO), "{}", shape.name);
    }
}
