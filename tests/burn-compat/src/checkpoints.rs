//! Checkpoints of PyTorch, through Kiln into records, and from there into Burn.

use crate::{on_burn, on_kiln};
use burn::module::Module as _;
use burn::record::{
    BinFileRecorder, FileRecorder, FullPrecisionSettings, HalfPrecisionSettings, NamedMpkFileRecorder,
    NamedMpkGzFileRecorder, PrettyJsonFileRecorder,
};
use burn::tensor::{Tensor, TensorData};
use kiln::module::Module as _;
use kiln::record::{FileRecorder as KilnFileRecorder, Recorder as _, Safetensors};
use std::path::Path;

type Burn = on_burn::Cpu;
type BurnNet = on_burn::net::Net<Burn>;
type Kiln = on_kiln::Cpu;
type KilnNet = on_kiln::net::Net<Kiln>;

/// Loads a record with Burn, which adds the extension, runs the network, and compares with PyTorch's answer.
fn answers<R: FileRecorder<Burn> + Default>(record: &Path, io: &Path, tolerance: f32) -> bool {
    let device = Default::default();
    let net = BurnNet::new(&device).load_file(record, &R::default(), &device);
    let net = net.unwrap_or_else(|error| panic!("{}: {error}", record.display()));
    let io = Safetensors::open(io).expect("the recorded inputs can be read");
    let tensor = |name: &str| io.tensor(name).expect("the tensor was recorded");
    let floats = |name: &str| TensorData::new(tensor(name).iter::<f32>().collect(), tensor(name).shape);
    let tokens = TensorData::new(tensor("tokens").iter::<i64>().collect::<Vec<_>>(), tensor("tokens").shape);
    let image = Tensor::from_data(floats("image"), &device);
    let answer = net.forward(image, Tensor::from_data(tokens, &device)).into_data();
    let expected = tensor("answer");
    let pairs = answer.iter::<f32>().zip(expected.iter::<f32>());
    let worst = pairs.map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max);
    let equal = worst <= tolerance;
    let (name, extension) = (record.file_name().unwrap_or_default().to_string_lossy(), R::file_extension());
    println!("Burn loads {name}.{extension}: {} ({worst:.1e})", if equal { "answers as PyTorch" } else { "OTHER ANSWER" });
    equal
}

/// Records that `kiln convert` wrote to a folder, in full and in half precision.
pub fn check_converted(folder: &Path, fixtures: &Path) -> bool {
    let io = fixtures.join("net.io.safetensors");
    let (full, half) = (folder.join("full/net"), folder.join("half/net"));
    [
        answers::<NamedMpkFileRecorder<FullPrecisionSettings>>(&full, &io, 1e-5),
        answers::<NamedMpkGzFileRecorder<FullPrecisionSettings>>(&full, &io, 1e-5),
        answers::<BinFileRecorder<FullPrecisionSettings>>(&full, &io, 1e-5),
        answers::<PrettyJsonFileRecorder<FullPrecisionSettings>>(&full, &io, 1e-5),
        answers::<NamedMpkFileRecorder<HalfPrecisionSettings>>(&half, &io, 5e-3),
        answers::<NamedMpkGzFileRecorder<HalfPrecisionSettings>>(&half, &io, 5e-3),
        answers::<BinFileRecorder<HalfPrecisionSettings>>(&half, &io, 5e-3),
        answers::<PrettyJsonFileRecorder<HalfPrecisionSettings>>(&half, &io, 5e-3),
    ]
    .into_iter()
    .all(|equal| equal)
}

/// Saves with one of Kiln's recorders what its recorder of checkpoints, or its loader, read.
fn store<R: KilnFileRecorder<Kiln> + Default>(checkpoint: &Path, folder: &Path) {
    let device = Default::default();
    let read = kiln::weights::PyTorchFileRecorder::<kiln::record::FullPrecisionSettings>::default();
    let record: <KilnNet as kiln::module::Module<Kiln>>::Record =
        read.load(checkpoint.into(), &device).expect("the checkpoint loads");
    R::default().record(record, folder.join("record")).expect("the record can be saved");
    let net = kiln::weights::load_weights(KilnNet::new(&device), checkpoint, &device).expect("the checkpoint loads");
    net.save_file(folder.join("module"), &R::default()).expect("the module can be saved");
}

/// Records that Kiln's recorders make of a checkpoint, with and without a module in between.
pub fn check_stored(folder: &Path, fixtures: &Path) -> bool {
    type Full = kiln::record::FullPrecisionSettings;
    let (checkpoint, io) = (fixtures.join("net.pt"), fixtures.join("net.io.safetensors"));
    store::<kiln::record::NamedMpkFileRecorder<Full>>(&checkpoint, folder);
    store::<kiln::record::NamedMpkGzFileRecorder<Full>>(&checkpoint, folder);
    store::<kiln::record::BinFileRecorder<Full>>(&checkpoint, folder);
    store::<kiln::record::PrettyJsonFileRecorder<Full>>(&checkpoint, folder);
    let mut good = true;
    for name in ["record", "module"] {
        let path = folder.join(name);
        good &= answers::<NamedMpkFileRecorder<FullPrecisionSettings>>(&path, &io, 1e-5);
        good &= answers::<NamedMpkGzFileRecorder<FullPrecisionSettings>>(&path, &io, 1e-5);
        good &= answers::<BinFileRecorder<FullPrecisionSettings>>(&path, &io, 1e-5);
        good &= answers::<PrettyJsonFileRecorder<FullPrecisionSettings>>(&path, &io, 1e-5);
    }
    good
}
