//! Checkpoints that may load or be refused, so long as either takes little: those that `fixtures/weights` calls bounded.

use kiln_limits_tests::bounded;
use kiln_weights::Checkpoint;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/weights/hostile")
}

/// Reads all that a checkpoint has. What is refused says so in few words.
fn read(name: &str) {
    let all = || {
        let checkpoint = Checkpoint::open(folder().join(format!("{name}.pt")))?;
        for (path, _) in checkpoint.tensors() {
            checkpoint.data(path)?;
        }
        checkpoint.plain_data().map(drop)
    };
    let read: kiln_weights::Result<()> = all();
    if let Err(error) = read {
        assert!(error.to_string().len() < 10_000, "{error}");
    }
}

macro_rules! checkpoints {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                bounded(|| read(stringify!($name)));
            }
        )*

        #[test]
        fn all_are_here() {
            let of_file = |name: std::ffi::OsString| {
                let name = name.into_string().ok()?.strip_suffix(".expected.json")?.to_owned();
                let text = std::fs::read_to_string(folder().join(format!("{name}.expected.json"))).ok()?;
                text.contains("\"bounded\"").then_some(name)
            };
            let files = std::fs::read_dir(folder()).expect("the hostile checkpoints");
            let files: BTreeSet<_> = files.filter_map(|file| of_file(file.ok()?.file_name())).collect();
            let here: BTreeSet<_> = [$(stringify!($name)),*].map(str::to_owned).into();
            assert_eq!(here, files);
        }
    };
}

checkpoints! {
    cost_keys
    cost_nested_strangers
    cost_paths
    cost_paths_to_key
    cost_paths_to_listed
    cost_paths_to_replaced
    cost_paths_to_set
    cost_shared_by_strangers
    cost_storages
    cost_wide
    deep_reduces
    memo_bomb
    memo_bomb_key
    memo_index_huge
    program_cycle
    program_cycle_in_list
    program_protocol_200
    run_torchscript_constants
    tensor_expanded_huge
    tensor_rank_huge
    zip_bomb_storage
    zip_bomb_text
    zip_comment
    zip_two_pickles
}
