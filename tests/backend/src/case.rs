//! Cases of golden files, as `scripts/tensor_goldens.py` writes them.

use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{
    Activation, BasicOps, DType, DTypeKind, Element, RnnDirection, RnnKind, RnnOptions, Tensor, TensorData,
};
use std::collections::BTreeMap;

/// One case of a file.
#[derive(Default)]
pub struct Case {
    pub name: String,
    pub args: BTreeMap<String, String>,
    pub tensors: BTreeMap<String, TensorData>,
}

impl Case {
    pub fn float(&self, name: &str) -> Option<f64> {
        self.args.get(name).map(|value| value.parse().unwrap())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.args.get(name).map(|value| value.split(',').map(|part| part.parse().unwrap()).collect())
    }

    pub fn sizes<const N: usize>(&self, name: &str) -> [usize; N] {
        let sizes: Vec<usize> = self.args[name].split(',').map(|part| part.parse().unwrap()).collect();
        sizes.try_into().unwrap()
    }

    pub fn dim(&self) -> usize {
        self.args["dim"].parse().unwrap()
    }

    pub fn get<B: Backend, const D: usize, K: BasicOps<B>>(&self, name: &str) -> Tensor<B, D, K> {
        self.maybe(name).unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }

    pub fn maybe<B: Backend, const D: usize, K: BasicOps<B>>(&self, name: &str) -> Option<Tensor<B, D, K>> {
        self.tensors.get(name).map(|data| Tensor::from_data(data.clone(), &B::Device::default()))
    }

    /// In f32, whatever the backend's floats are: for positions and scores, among which a rounding chooses others.
    pub fn exactly<B: Backend, const D: usize>(&self, name: &str) -> Tensor<B, D> {
        Tensor::from_data_dtype(self.tensors[name].clone(), &B::Device::default(), DType::F32)
    }

    /// A case of ONNX's `RNN`, `GRU` or `LSTM`.
    pub fn recurrent_options(&self) -> RnnOptions {
        let flag = |name| self.float(name).is_some_and(|value| value != 0.0);
        RnnOptions {
            kind: match self.name.as_str() {
                "RNN" => RnnKind::Rnn,
                "GRU" => RnnKind::Gru { linear_before_reset: flag("linear_before_reset") },
                "LSTM" => RnnKind::Lstm { input_forget: flag("input_forget") },
                name => panic!("{name} is no recurrent layer"),
            },
            direction: match self.args["direction"].as_str() {
                "forward" => RnnDirection::Forward,
                "reverse" => RnnDirection::Reverse,
                "bidirectional" => RnnDirection::Bidirectional,
                name => panic!("{name} is no direction"),
            },
            hidden_size: self.args["hidden"].parse().unwrap(),
            activations: self.args["activations"]
                .split(',')
                .map(|name| match name {
                    "Sigmoid" => Activation::Sigmoid,
                    "Tanh" => Activation::Tanh,
                    "Relu" => Activation::Relu,
                    "Softsign" => Activation::Softsign,
                    "Softplus" => Activation::Softplus,
                    name => panic!("{name} is no activation of these cases"),
                })
                .collect(),
            clip: self.float("clip"),
            state_clip: None,
            batch_first: false,
        }
    }

    /// A backend's own tensor, of its usual dtypes.
    pub fn primitive<B: Backend>(&self, name: &str) -> B::Primitive {
        let data = self.tensors[name].clone();
        let dtype = match data.dtype.kind() {
            DTypeKind::Float => B::FloatElem::DTYPE,
            DTypeKind::Int => B::IntElem::DTYPE,
            DTypeKind::Bool => DType::Bool,
        };
        B::from_data(data.convert_dtype(dtype), &B::Device::default())
    }

    #[track_caller]
    pub fn compare<B: Backend>(&self, name: &str, actual: B::Primitive) {
        println!("{} {:?}: {name}", self.name, self.args);
        assert_eq!(actual.dtype(), B::FloatElem::DTYPE);
        let data = B::into_data(actual).expect("a backend in these tests reads back");
        data.assert_approx_eq(&self.tensors[name], crate::tolerance::<B>());
    }

    #[track_caller]
    pub fn check<B: Backend, const D: usize>(&self, name: &str, actual: Tensor<B, D>) {
        println!("{} {:?}", self.name, self.args);
        actual.into_data().assert_approx_eq(&self.tensors[name], crate::tolerance::<B>());
    }
}

/// The cases of a file.
pub fn read(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (kind, name, rest) =
            (words.next().unwrap(), words.next().unwrap().to_owned(), words.next().unwrap_or_default());
        match kind {
            "case" => cases.push(Case { name, ..Case::default() }),
            "arg" => drop(cases.last_mut().unwrap().args.insert(name, rest.to_owned())),
            _ => drop(cases.last_mut().unwrap().tensors.insert(name, data(rest))),
        }
    }
    cases
}

/// `f32 2,3 : 1.0 …`
fn data(text: &str) -> TensorData {
    let (head, elements) = text.split_once(':').unwrap();
    let (dtype, dims) = head.trim().split_once(' ').unwrap_or((head.trim(), ""));
    let shape: Vec<usize> = dims.split(',').filter(|d| !d.is_empty()).map(|d| d.parse().unwrap()).collect();
    let elements = elements.split_whitespace();
    match dtype {
        "f32" => TensorData::new(elements.map(|x| x.parse::<f32>().unwrap()).collect(), shape),
        "i64" => TensorData::new(elements.map(|x| x.parse::<i64>().unwrap()).collect(), shape),
        _ => TensorData::new(elements.map(|x| x == "1").collect(), shape),
    }
}
