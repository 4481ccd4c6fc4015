//! No key of a checkpoint becomes code, and no file's name: judged by the final text.

#[path = "../../tests/hostile_names/fragments.rs"]
mod fragments;
#[path = "../../tests/hostile_names/source.rs"]
mod source;

use fragments::FRAGMENTS;
use kiln_codegen::names::module_name;
use kiln_skeletons::{Skeleton, SkeletonError, SkeletonOptions, skeleton};
use kiln_types::TensorData;
use kiln_weights::LazyTensor;
use proptest::prelude::*;
use source::check_source;

/// The skeleton of matrices and vectors of these keys; nothing when they form no tree.
fn of_keys(keys: &[String], file: &str) -> Option<Skeleton> {
    let tensor = |(n, key): (usize, &String)| {
        let shape = if n % 2 == 0 { vec![2, 3] } else { vec![3] };
        let data = TensorData::new(vec![0.5f32; shape.iter().product()], shape);
        (key.clone(), LazyTensor::whole(data, key))
    };
    let options = SkeletonOptions {
        model_name: module_name(file),
        source_name: file.to_owned(),
        ..SkeletonOptions::default()
    };
    match skeleton(keys.iter().enumerate().map(tensor).collect(), &options) {
        Ok(made) => Some(made),
        Err(error @ SkeletonError::Internal(_)) => panic!("{error}"),
        Err(_) => None,
    }
}

fn check(made: &Skeleton, keys: usize) {
    check_source(&made.generated.source);
    assert_eq!(made.generated.tensors().len(), keys);
}

#[test]
fn every_fragment_stays_a_name() {
    let mut keys = Vec::new();
    for fragment in FRAGMENTS.iter().filter(|fragment| !fragment.contains('.')) {
        for field in ["weight", "bias"] {
            keys.push(format!("{fragment}.{field}"));
            keys.push(format!("layers.0.{fragment}1.{fragment}.{field}"));
        }
    }
    check(&of_keys(&keys, "model.pt").expect("they form a tree"), keys.len());
    for fragment in FRAGMENTS {
        let file = format!("{fragment}.pt");
        check(&of_keys(&["weight".to_owned()], &file).expect("one tensor"), 1);
    }
}

/// The attack that was found in models: a name closed its literal, and the next was code.
#[test]
fn markers_in_keys_stay_keys() {
    let keys = ["__kiln_list([]", "]), __intruder!(), __kiln_list(["];
    let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
    check(&of_keys(&keys, "__kiln_list([].pt").expect("two tensors"), 2);
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(FRAGMENTS), 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_keys_stay_keys(keys in prop::collection::btree_set(name(), 1..12), file in name()) {
        let keys: Vec<String> = keys.into_iter().collect();
        if let Some(made) = of_keys(&keys, &file) {
            check(&made, keys.len());
        }
    }
}
