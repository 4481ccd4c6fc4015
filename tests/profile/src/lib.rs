//! Profiles of imported networks: modules by their paths, operations with what is fused into them, FLOPs and bytes.
#![cfg(test)]

use kiln::Tensor;
use kiln::backend::NdArray;
use kiln::backend::profile::{Profiled, ProfiledOperation, ProfiledPass, Recorder, scope};
use kiln::tensor::Int;
use kiln::tensor::backend::Backend;

include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Loads a model beside its source.
macro_rules! load {
    ($name:ident, $backend:ty) => {
        $name::Model::<$backend>::from_file(
            concat!(env!("OUT_DIR"), "/", stringify!($name), "/model.safetensors"),
            &Default::default(),
        )
    };
}

/// Runs a model as it is and profiled, which must yield the same bits; yields the operations and the pass.
macro_rules! profile {
    ($name:ident, $input:ident($($shape:literal),*)) => {{
        fn model<B: Backend>(model: $name::Model<B>) -> impl FnOnce() -> Vec<f32> {
            let input = $input::<B, _>([$($shape),*]);
            move || model.forward(input).into_data().to_vec().expect("floats")
        }

        let mut recorder = Recorder::default();
        let output = recorder.pass(model(load!($name, Profiled<NdArray>)));
        assert_eq!(output, model(load!($name, NdArray))());
        let (operations, mut passes) = recorder.finish();
        let [pass] = passes.as_mut_slice() else { panic!("{} passes", passes.len()) };
        check(&operations, pass);
        (operations, std::mem::take(pass))
    }};
}

/// Some image, which differs from place to place.
fn image<B: Backend, const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    let elements = shape.iter().product::<usize>() as i64;
    Tensor::<B, 1, Int>::arange(0..elements, &Default::default()).float().sin().reshape(shape)
}

/// Some words.
fn words<B: Backend, const D: usize>(shape: [usize; D]) -> Tensor<B, D, Int> {
    let elements = shape.iter().product::<usize>() as i64;
    Tensor::<B, 1, Int>::arange(0..elements, &Default::default()).remainder_scalar(50).reshape(shape)
}

/// What holds of every pass: calls follow each other, modules lie within each other, and each call within those that its path names.
fn check(operations: &[ProfiledOperation], pass: &ProfiledPass) {
    let mut end = 0;
    for call in &pass.calls {
        assert!(end <= call.start && call.start <= call.end && call.end <= pass.time, "{call:?} after {end}");
        end = call.end;
        let path = &operations[call.operation].path;
        let inside = |module: &&kiln::backend::profile::ProfiledModule| {
            module.start <= call.start && call.end <= module.end
        };
        let deepest = pass.modules.iter().filter(inside).max_by_key(|module| module.depth);
        assert_eq!(deepest.map_or("", |module| &module.path), path);
    }
    for (n, module) in pass.modules.iter().enumerate() {
        let parent = pass.modules[..n].iter().rev().find(|parent| parent.depth < module.depth);
        assert_eq!(parent.map_or(0, |parent| parent.depth + 1), module.depth, "{module:?}");
        assert!(parent.is_none_or(
            |parent| module.path.starts_with(&format!("{}.", parent.path)) && module.end <= parent.end
        ));
    }
}

/// The operations that compute something.
fn computed(operations: &[ProfiledOperation]) -> Vec<(&str, &str)> {
    let computed = operations.iter().filter(|operation| operation.flops != Some(0));
    computed.map(|operation| (operation.path.as_str(), operation.name.as_str())).collect()
}

fn find<'o>(operations: &'o [ProfiledOperation], path: &str, name: &str) -> &'o ProfiledOperation {
    let found = operations.iter().find(|operation| operation.path == path && operation.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {path}: {operations:#?}"))
}

#[test]
fn convolutions_with_what_is_fused_into_them() {
    let (operations, pass) = profile!(net_residual_cnn, image(2, 3, 32, 32));
    assert_eq!(
        computed(&operations),
        [
            ("conv1", "conv2d 7×7, stride 2 + relu"),
            ("", "max_pool2d 3×3, stride 2"),
            ("layer1.0.conv1", "conv2d 3×3 + relu"),
            ("layer1.0.conv2", "conv2d 3×3 + add + relu"),
            ("layer1.1.conv1", "conv2d 3×3 + relu"),
            ("layer1.1.conv2", "conv2d 3×3 + add + relu"),
            ("layer2.0.downsample.0", "conv2d 1×1, stride 2"),
            ("layer2.0.conv1", "conv2d 3×3, stride 2 + relu"),
            ("layer2.0.conv2", "conv2d 3×3 + add + relu"),
            ("layer2.1.conv1", "conv2d 3×3 + relu"),
            ("layer2.1.conv2", "conv2d 3×3 + add + relu"),
            ("", "mean"),
            ("fc", "linear"),
        ]
    );
    // Each at one place, and a view before the last.
    assert_eq!((pass.calls.len(), operations.len()), (14, 14));

    let first = find(&operations, "conv1", "conv2d 7×7, stride 2 + relu");
    let (results, window) = (2 * 8 * 16 * 16, 3 * 7 * 7);
    assert_eq!(first.shape, [2, 8, 16, 16]);
    // A multiply-add for each number of a window, the bias, the activation.
    assert_eq!(first.flops, Some(results * (2 * window + 2)));
    // Input, weights, bias, results.
    assert_eq!(first.bytes, Some(4 * (2 * 3 * 32 * 32 + 8 * window + 8 + results)));
    let added = find(&operations, "layer1.0.conv2", "conv2d 3×3 + add + relu");
    let results = 2 * 8 * 8 * 8;
    assert_eq!(added.flops, Some(results * (2 * 8 * 3 * 3 + 3)));
    // The residual is read too.
    assert_eq!(added.bytes, Some(4 * (3 * results + 8 * 8 * 3 * 3 + 8)));
    let linear = find(&operations, "fc", "linear");
    assert_eq!(
        (linear.flops, linear.bytes),
        (Some(20 * (2 * 16 + 1)), Some(4 * (2 * 16 + 16 * 10 + 10 + 20)))
    );
    let view = find(&operations, "", "reshape");
    assert_eq!((view.flops, view.bytes), (Some(0), Some(0)));
}

#[test]
fn layers_of_a_loop_and_what_is_within_them() {
    let mut recorder = Recorder::default();
    let model = load!(net_bert_encoder, Profiled<NdArray>);
    let ids = words([2, 6]);
    for _ in 0..2 {
        recorder.pass(|| model.forward(ids.clone(), ids.clone()));
    }
    let (operations, passes) = recorder.finish();
    passes.iter().for_each(|pass| check(&operations, pass));
    // The second pass has the operations of the first.
    let of = |n: usize| passes[n].calls.iter().map(|call| call.operation).collect::<Vec<_>>();
    assert_eq!(of(0), of(1));
    let layer = |n: usize| {
        let prefix = format!("layer.{n}");
        let inside = computed(&operations).into_iter().filter(|(path, _)| path.starts_with(&prefix));
        inside.map(|(path, name)| (path[prefix.len()..].to_owned(), name.to_owned())).collect::<Vec<_>>()
    };
    let expected = [
        (".attention.query", "linear"),
        (".attention.key", "linear"),
        (".attention.value", "linear"),
        (".attention", "attention"),
        (".output", "linear"),
        ("", "add"),
        (".norm1", "layer_norm"),
        (".intermediate", "linear + gelu"),
        (".down", "linear"),
        (".norm2", "layer_norm"),
    ]
    .map(|(path, name)| (path.to_owned(), name.to_owned()));
    assert_eq!((layer(0), layer(1)), (expected.to_vec(), expected.to_vec()));
    let attention = find(&operations, "layer.1.attention", "attention");
    // Two products over 8 numbers a head; scale, mask and softmax of each of 6 × 6 pairs.
    assert_eq!(attention.flops, Some(2 * 4 * 6 * 6 * (2 * 8 + 2 * 8 + 5 + 2)));
}

#[test]
fn recurrent_layers() {
    let (operations, _) = profile!(net_lstm_tagger, words(2, 9));
    let layers: Vec<_> =
        operations.iter().filter(|operation| operation.name == "lstm, bidirectional").collect();
    let [first, second] = layers.as_slice() else { panic!("{operations:#?}") };
    // Each step of each direction and row: four gates of 16, each of two products, a bias, both sums and the activation, then the state.
    let flops = |inputs: u64| 2 * 9 * 2 * 16 * (4 * (2 * inputs + 2 * 16 + 3) + 5);
    assert_eq!((first.flops, second.flops), (Some(flops(12)), Some(flops(32))));
    assert!(
        first.path.starts_with("lstm") && second.path.starts_with("lstm") && first.path != second.path,
        "{layers:#?}"
    );
}

#[test]
fn a_module_that_is_called_again_has_one_path() {
    let mut recorder = Recorder::default();
    let model = load!(net_shared_layer, Profiled<NdArray>);
    recorder.pass(|| model.forward(words([2, 7]), words([2, 7])));
    let (operations, passes) = recorder.finish();
    check(&operations, &passes[0]);
    let calls = passes[0].modules.iter().filter(|module| module.path == "layer").count();
    assert!(calls > 1, "{:#?}", passes[0].modules);
    let attention = operations.iter().position(|operation| operation.name == "attention").expect("attention");
    assert_eq!(passes[0].calls.iter().filter(|call| call.operation == attention).count(), calls);
}

#[test]
fn nothing_is_recorded_outside_of_a_pass() {
    let x = || image::<Profiled<NdArray>, 2>([2, 2]);
    let mut recorder = Recorder::default();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        recorder.pass(|| scope("a", None, (), |()| panic!("as meant")))
    }));
    assert!(panicked.is_err());
    scope("b", None, (x(),), |(x,)| x.clone().matmul(x));
    recorder.pass(|| scope("c", Some(3), (x(),), |(x,)| scope("d.e", None, (x,), |(x,)| x.exp())));
    let (operations, passes) = recorder.finish();
    assert_eq!(passes.len(), 1);
    check(&operations, &passes[0]);
    // The argument was made before the module was called.
    assert!(operations.iter().any(|operation| operation.path.is_empty() && operation.name == "sin"));
    assert_eq!(find(&operations, "c.3.d.e", "exp").shape, [2, 2]);
    assert!(!operations.iter().any(|operation| operation.name == "matmul"), "{operations:#?}");
}
