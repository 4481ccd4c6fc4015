//! The network that `scripts/weight_fixtures/network.py` saves, and what PyTorch answers with it.

use kiln as root;
use kiln::record::Safetensors;

include!("../../../tests/burn-compat/src/net.rs");

/// The CPU.
pub type Cpu = kiln::backend::NdArray;

/// Runs the network on the recorded inputs and compares with PyTorch's answer.
pub fn check_answer(net: &Net<Cpu>, tolerance: f64, what: &str) {
    let io = Safetensors::open(&super::fixture("net.io.safetensors")).unwrap();
    let device = Default::default();
    let image = Tensor::from_data(io.tensor("image").unwrap(), &device);
    let tokens = Tensor::from_data(io.tensor("tokens").unwrap(), &device);
    let answer = net.forward(image, tokens).into_data();
    let expected = io.tensor("answer").unwrap();
    assert_eq!(answer.shape, expected.shape, "{what}");
    for (found, expected) in answer.iter::<f64>().zip(expected.iter::<f64>()) {
        assert!((found - expected).abs() <= tolerance, "{what}: {found} is not {expected}");
    }
}
