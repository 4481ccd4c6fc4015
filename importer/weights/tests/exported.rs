//! The weights in exported programs of PyTorch.

use kiln_types::DType;
use kiln_weights::{Checkpoint, CheckpointFormat, ExportedProgram, OpenOptions, ProgramTensor};
use std::path::{Path, PathBuf};

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/programs").join(name).join("model.pt2")
}

fn bytes(name: &str) -> kiln_types::Bytes {
    kiln_types::Bytes::from_vec(std::fs::read(program(name)).unwrap())
}

#[test]
fn a_program_is_a_checkpoint_of_its_state_dict() {
    let checkpoint = Checkpoint::open(program("residual")).unwrap();
    assert_eq!(checkpoint.format(), CheckpointFormat::ExportedProgram);
    let weight = checkpoint.tensor("stem.0.weight").unwrap();
    assert_eq!((weight.shape(), weight.dtype()), (&[8, 3, 3, 3][..], DType::F32));
    let counted = checkpoint.data("blocks.1.bn1.num_batches_tracked").unwrap();
    assert_eq!((counted.dtype, counted.shape.as_slice()), (DType::I64, &[][..]));
    assert_eq!(checkpoint.unsupported().len(), 0);
    let key = OpenOptions { top_level_key: Some("model".into()) };
    let error = Checkpoint::open_with(program("residual"), &key).unwrap_err().to_string();
    assert!(error.contains("there is no key \"model\""), "{error}");
}

#[test]
fn tied_parameters_share_their_storage() {
    let checkpoint = Checkpoint::open(program("language")).unwrap();
    assert_eq!(checkpoint.shared_storages(), [["wte.weight", "head.weight"]]);
    // In the order of the archive, which has tied ones together.
    let first: Vec<_> = checkpoint.tensors().map(|(name, _)| name).take(3).collect();
    assert_eq!(first, ["wte.weight", "head.weight", "wpe.weight"]);
}

#[test]
fn programs_have_a_text_and_constants() {
    let program = ExportedProgram::read(&bytes("in_place")).unwrap();
    assert!(program.program.starts_with(b"{"));
    assert!(program.weight("no such").unwrap_err().to_string().contains("key \"no such\""));
}

#[test]
fn complex_tensors_are_pairs_for_a_program_alone() {
    let held = ExportedProgram::read(&bytes("fourier")).unwrap();
    let ProgramTensor::Complex(pairs) = held.weight("operators.0.low").unwrap() else {
        panic!("a real tensor")
    };
    assert_eq!((pairs.shape(), pairs.dtype()), (&[4, 4, 2, 2, 2][..], DType::F32));
    assert!(matches!(held.weight("lift.weight").unwrap(), ProgramTensor::Real(_)));
    let checkpoint = Checkpoint::open(program("fourier")).unwrap();
    let unsupported: Vec<_> = checkpoint.unsupported().collect();
    assert_eq!(unsupported.len(), 5);
    assert!(
        unsupported.contains(&("states.c", "a tensor of complex numbers (complex64)")),
        "{unsupported:?}"
    );
}

#[test]
fn parts_of_an_archive_are_no_programs() {
    let whole = bytes("in_place");
    for length in 0..whole.len() {
        assert!(ExportedProgram::read(&whole.slice(0..length).unwrap()).is_err(), "{length}");
    }
}
