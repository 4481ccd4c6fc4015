//! What an initializer is to the network that was exported: a parameter under its own name, a number of the graph's, or
//! something that the exporter made of parameters.

mod merged;

use super::proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto};
use super::scope;
use crate::data::uniform;
use crate::ir::{Op, Provenance, is_anonymous, op};
use kiln_types::TensorData;
use merged::Merged;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// What the dynamo exporter writes about initializers: `PARAMETER`, `BUFFER`, `CONSTANT_TENSOR`.
const KIND: &str = "pkg.torch.export.graph_signature.InputSpec.kind";
/// Whether a buffer is in the `state_dict`.
const PERSISTENT: &str = "pkg.torch.export.graph_signature.InputSpec.persistent";
/// Whether a parameter gets gradients: exported programs alone tell it.
pub(crate) const REQUIRES_GRAD: &str = "kiln.requires_grad";
/// What its optimizer computed an initializer from.
const FOLDED_FROM: &str = "pkg.onnxscript.optimizer.folded_from";
/// What the exported program took, one line each: `p_fc_weight: PARAMETER target='fc.weight'`.
const SIGNATURE: &str = "pkg.torch.export.ExportedProgram.graph_signature";
/// The operation of the network that a node comes from, behind the classes of its modules.
const CLASSES: &str = "pkg.torch.onnx.class_hierarchy";

/// What the file tells about its initializers.
pub(crate) struct Parameters {
    /// By initializer; empty when the exporter tells nothing, so that names must do.
    metadata: HashMap<String, Metadata>,
    /// Parameters and buffers that the exported program had.
    targets: HashSet<String>,
    /// Initializers that are the weight of an `nn.Linear`, turned.
    turned: HashSet<String>,
    /// What a quantizer made of weights: integers, their scales and zero points.
    quantized: HashSet<String>,
    /// Running statistics, by their names, where the exporter does not tell which initializers are parameters.
    statistics: BTreeSet<String>,
    /// Parameters that are others as well.
    merged: Merged,
    /// Whether the exporter tells which initializers are parameters.
    tells: bool,
    /// Whether nodes have TensorFlow's names: then parameters have, too, which are no keys.
    slashes: bool,
    /// Whether PyTorch wrote the file: all that has a name of its own is a parameter then.
    pytorch: bool,
}

/// What the file tells of an initializer.
#[derive(Default)]
struct Metadata {
    kind: Option<String>,
    persistent: bool,
    /// Whether it is a parameter that gets no gradients.
    frozen: bool,
    folded_from: Option<Vec<String>>,
}

fn entry<'p>(entries: &'p [StringStringEntryProto], key: &str) -> Option<&'p str> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

impl Parameters {
    pub(crate) fn of(model: &ModelProto) -> Self {
        let mut found = Self {
            metadata: HashMap::new(),
            targets: HashSet::new(),
            turned: HashSet::new(),
            quantized: HashSet::new(),
            statistics: BTreeSet::new(),
            merged: Merged::default(),
            tells: false,
            slashes: false,
            pytorch: model.producer_name == "pytorch",
        };
        if let Some(graph) = &model.graph {
            found.read(graph);
        }
        found
    }

    fn read(&mut self, graph: &GraphProto) {
        for info in &graph.value_info {
            let kind = entry(&info.metadata_props, KIND).map(str::to_owned);
            let folded_from = entry(&info.metadata_props, FOLDED_FROM).and_then(scope::list);
            let persistent = entry(&info.metadata_props, PERSISTENT) == Some("True");
            self.tells |= kind.is_some();
            if kind.is_some() || folded_from.is_some() {
                let frozen = entry(&info.metadata_props, REQUIRES_GRAD) == Some("False");
                self.metadata.insert(info.name.clone(), Metadata { kind, persistent, frozen, folded_from });
            }
        }
        let signature = entry(&graph.metadata_props, SIGNATURE);
        let lines = signature.unwrap_or_default().lines();
        let targets = lines.filter_map(|line| line.split_once("target='")?.1.split_once('\''));
        self.targets = targets.map(|(target, _)| target.to_owned()).collect();
        // One that names no parameter says that there are none.
        self.tells |= signature.is_some();
        if !self.tells {
            let names = graph.initializer.iter().map(|tensor| &tensor.name);
            self.statistics = names.filter(|name| is_statistic(name)).cloned().collect();
        }
        self.slashes = !self.pytorch && graph.node.iter().any(|node| scope::slash_path(&node.name).is_some());
        let quantized = graph.initializer.iter().filter_map(|tensor| tensor.name.strip_suffix(QUANTIZED));
        let parts = |name: &str| [QUANTIZED, "_scale", "_zero_point"].map(|part| format!("{name}{part}"));
        self.quantized = quantized.flat_map(parts).collect();
        self.turned = graph.node.iter().filter_map(turned_weight).collect();
        let folded: HashSet<String> = self
            .metadata
            .values()
            .filter_map(|metadata| metadata.folded_from.as_ref())
            .flatten()
            .cloned()
            .collect();
        // The optimizer alone makes initializers that the network does not have, and merges those that it has.
        let made = |name: &str| self.metadata.get(name).is_none_or(|metadata| metadata.kind.is_none());
        let optimized = graph.initializer.iter().any(|tensor| made(&tensor.name));
        self.merged = match (self.tells, self.pytorch) {
            (true, _) if optimized => Merged::told(graph, &self.targets, &folded),
            (false, true) => Merged::by_uses(graph),
            _ => Merged::default(),
        };
    }

    /// Parameters of the exported program that are not among the initializers.
    pub(crate) fn without<'n>(&self, initializers: impl Iterator<Item = &'n str>) -> BTreeSet<String> {
        let there: HashSet<&str> = initializers.collect();
        self.targets.iter().filter(|target| !there.contains(target.as_str())).cloned().collect()
    }

    /// Tensors of the network's state that it does not train, as far as the exporter or their names tell.
    pub(crate) fn buffers(&self) -> BTreeSet<String> {
        let fixed = |(_, metadata): &(&String, &Metadata)| {
            metadata.frozen || metadata.kind.as_deref() == Some("BUFFER")
        };
        let told = self.metadata.iter().filter(fixed).map(|(name, _)| name);
        told.chain(&self.statistics).cloned().collect()
    }

    /// The parameters that an initializer stands for besides its own, as far as they are known, if the exporter merged any into it.
    pub(crate) fn merged_with(&self, name: &str) -> Option<Vec<String>> {
        self.merged.others(name, || false)
    }

    /// Whether the result of a `Constant` is a parameter, as exporters write them that keep all weights in nodes: it has a key's name.
    pub(crate) fn holds_parameter(&self, name: &str, data: &TensorData) -> bool {
        !self.tells && is_path(name) && data.dtype.is_float() && data.num_elements() > 1
    }

    /// What an initializer is made of; `None` when the graph alone decides what it holds.
    pub(crate) fn provenance(&self, name: &str, data: &TensorData) -> Option<Arc<Provenance>> {
        let key = |key: &str, shape: &[usize]| {
            Arc::new(Provenance::Key { key: key.to_owned(), shape: shape.to_vec() })
        };
        // What a quantizer made of a weight is no checkpoint's.
        if self.quantized.contains(name) {
            return name.ends_with(QUANTIZED).then(|| exporters(name, Vec::new()));
        }
        let same = || data.num_elements() == 1 || uniform(data).is_some();
        // What equal numbers of several modules became one of is a number.
        if data.dtype.is_float()
            && !is_number_of_module(name)
            && let Some(others) = self.merged.others(name, same)
        {
            return Some(exporters(name, [vec![name.to_owned()], others].concat()));
        }
        if !self.tells {
            return match by_name(name, data, self.pytorch) {
                // Such files have names of their own for what they folded, too.
                ByName::Parameter
                    if self.slashes && (!name.contains('.') || scope::slash_path(name).is_some()) =>
                {
                    Some(exporters(name, Vec::new()))
                }
                ByName::Parameter => Some(key(name, &data.shape)),
                ByName::Exporters => Some(exporters(name, Vec::new())),
                ByName::Number => None,
            };
        }
        let metadata = self.metadata.get(name);
        match metadata.and_then(|metadata| metadata.kind.as_deref()) {
            Some("PARAMETER") => return Some(key(name, &data.shape)),
            Some("BUFFER") if metadata.is_some_and(|metadata| metadata.persistent) => {
                return Some(key(name, &data.shape));
            }
            Some(_) => return None,
            None => {}
        }
        let Some(from) = metadata.and_then(|metadata| metadata.folded_from.as_deref()) else {
            // Under a parameter's name, but no parameter: the exporter put another one into it.
            let rewritten = data.dtype.is_float() && (self.targets.contains(name) || data.num_elements() > 1);
            return rewritten.then(|| {
                let own = self.targets.contains(name).then(|| name.to_owned());
                exporters(name, own.into_iter().collect())
            });
        };
        let keys: Vec<String> = from.iter().filter(|name| self.targets.contains(*name)).cloned().collect();
        match (keys.as_slice(), data.shape.as_slice()) {
            ([], _) => None,
            _ if !data.dtype.is_float() => None,
            ([only], &[inputs, outputs]) if from.len() == 1 && self.turned.contains(name) => {
                let op = Op::Permute(op::Permute { axes: vec![1, 0] });
                Provenance::of_operation(&op, &[(Some(key(only, &[outputs, inputs])), data)])
            }
            _ => Some(exporters(name, keys)),
        }
    }
}

/// What ONNX Runtime's quantizer puts behind the name of a weight for its integers.
const QUANTIZED: &str = "_quantized";

/// Whether a name is that of a normalization's running mean or variance.
fn is_statistic(name: &str) -> bool {
    matches!(name.rsplit('.').next(), Some("running_mean" | "running_var"))
}

fn exporters(name: &str, keys: Vec<String>) -> Arc<Provenance> {
    Arc::new(Provenance::Exporter { name: name.to_owned(), keys })
}

/// The initializer that a product takes as the turned weight of an `nn.Linear`: that is how the exporter writes one, and
/// its optimizer leaves nothing of it but the product.
fn turned_weight(node: &NodeProto) -> Option<String> {
    let classes = entry(&node.metadata_props, CLASSES).and_then(scope::list)?;
    let linear = classes.last().is_some_and(|operation| operation == "aten.linear.default");
    (linear && node.op_type == "MatMul").then(|| node.input.get(1).cloned())?
}

/// What a name says where nothing else does.
enum ByName {
    Parameter,
    Exporters,
    Number,
}

fn by_name(name: &str, data: &TensorData, pytorch: bool) -> ByName {
    let several = data.num_elements() > 1;
    // `onnx::MatMul_123` and, before that, `123`: what PyTorch's older exporter computed. `/fc/MatMul_output_0_weight`: what
    // OnnxSlim calls a weight of a product that it wrote anew.
    let of_product = name.starts_with('/') && (name.ends_with("_weight") || name.ends_with("_bias"));
    let made = match pytorch {
        true => is_anonymous(name) && !is_attribute(name),
        false => name.starts_with("onnx::") || is_anonymous(name),
    } || of_product;
    let written = name.is_empty() || (name.starts_with('/') && !of_product) || is_number_of_module(name);
    match (data.dtype.is_float(), several) {
        (true, true) if written => ByName::Number,
        (true, true) if made => ByName::Exporters,
        (true, true) => ByName::Parameter,
        (_, false) | (false, true) if !made && !written && (pytorch || is_path(name)) => ByName::Parameter,
        _ => ByName::Number,
    }
}

/// Whether a name that says nothing is that of a module's own parameter where PyTorch counts under other names: `v`, `const`, `W1`.
/// (`t1` may be what a tool that takes names out of files has put in their place.)
fn is_attribute(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let letters = !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_alphabetic());
    letters && (stem == name || (stem.len() == 1 && stem.as_bytes()[0].is_ascii_uppercase()))
}

/// Whether a name is that of a number in a module, as `/model/Constant_output_0` is.
fn is_number_of_module(name: &str) -> bool {
    name.contains("Constant_")
}

/// Whether a name is a path of identifiers and numbers that ends in an identifier, as the keys of a `state_dict` are.
fn is_path(name: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.contains('.') && name.split('.').all(word) && !last.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::op;
    use crate::onnx::proto::{TensorProto, ValueInfoProto};

    fn props(entries: &[(&str, &str)]) -> Vec<StringStringEntryProto> {
        let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        entries.iter().map(entry).collect()
    }

    fn info(name: &str, entries: &[(&str, &str)]) -> ValueInfoProto {
        ValueInfoProto { name: name.to_owned(), metadata_props: props(entries), ..Default::default() }
    }

    fn floats(shape: &[usize]) -> TensorData {
        TensorData::new(vec![0.5f32; shape.iter().product()], shape)
    }

    fn described() -> Parameters {
        let linear = NodeProto {
            op_type: "MatMul".into(),
            input: vec!["x".into(), "val_1".into()],
            metadata_props: props(&[(CLASSES, "['Net', 'torch.nn.Linear', 'aten.linear.default']")]),
            ..NodeProto::default()
        };
        let signature = "# inputs\np_fc_weight: PARAMETER target='fc.weight'\n\
                         p_conv_weight: PARAMETER target='conv.weight'\nx: USER_INPUT";
        let graph = GraphProto {
            node: vec![linear],
            value_info: vec![
                info("fc.bias", &[(KIND, "PARAMETER"), (PERSISTENT, "None")]),
                info("bn.running_mean", &[(KIND, "BUFFER"), (PERSISTENT, "True")]),
                info("mask", &[(KIND, "BUFFER"), (PERSISTENT, "False")]),
                info("val_1", &[(FOLDED_FROM, "['fc.weight']")]),
                info("val_2", &[(FOLDED_FROM, "['fc.weight', 'val_0']")]),
                info("val_3", &[(FOLDED_FROM, "['val_0']")]),
            ],
            metadata_props: props(&[(SIGNATURE, signature)]),
            ..GraphProto::default()
        };
        Parameters::of(&ModelProto { graph: Some(graph), ..ModelProto::default() })
    }

    #[test]
    fn the_exporter_tells_what_is_a_parameter() {
        let parameters = described();
        let of = |name: &str| parameters.provenance(name, &floats(&[2, 3])).map(|found| (*found).clone());
        let key = |name: &str| Some(Provenance::Key { key: name.into(), shape: vec![2, 3] });
        assert_eq!(of("fc.bias"), key("fc.bias"));
        assert_eq!(of("bn.running_mean"), key("bn.running_mean"));
        assert_eq!(of("mask"), None);
        assert_eq!(parameters.buffers(), BTreeSet::from(["bn.running_mean".into(), "mask".into()]));
        assert_eq!(of("val_3"), None);
        let exporters =
            |name: &str, key: &str| Some(Provenance::Exporter { name: name.into(), keys: vec![key.into()] });
        assert_eq!(of("val_2"), exporters("val_2", "fc.weight"));
        assert_eq!(of("conv.weight"), exporters("conv.weight", "conv.weight"));
        match of("val_1") {
            Some(Provenance::Apply { op, operands }) => {
                assert_eq!(op, Op::Permute(op::Permute { axes: vec![1, 0] }));
                assert_eq!(*operands[0], Provenance::Key { key: "fc.weight".into(), shape: vec![3, 2] });
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_signature_without_parameters_tells_that_there_are_none() {
        let graph = GraphProto {
            value_info: vec![info("scalar_tensor_default", &[(FOLDED_FROM, "['val_0']")])],
            metadata_props: props(&[(SIGNATURE, "# inputs\nx: USER_INPUT")]),
            ..GraphProto::default()
        };
        let parameters = Parameters::of(&ModelProto {
            graph: Some(graph),
            producer_name: "pytorch".into(),
            ..ModelProto::default()
        });
        assert_eq!(parameters.provenance("scalar_tensor_default", &floats(&[])), None);
    }

    #[test]
    fn what_a_quantizer_made_of_a_weight_is_no_key() {
        let tensor = |name: &str| TensorProto { name: name.into(), ..TensorProto::default() };
        let names = ["fc.weight_quantized", "fc.weight_scale", "fc.weight_zero_point", "clip.logit_scale"];
        let graph = GraphProto {
            initializer: names.iter().map(|name| tensor(name)).collect(),
            ..GraphProto::default()
        };
        let untold = Parameters::of(&ModelProto { graph: Some(graph), ..ModelProto::default() });
        let of = |name: &str| untold.provenance(name, &floats(&[1]));
        assert!(matches!(of("fc.weight_quantized").as_deref(), Some(Provenance::Exporter { .. })));
        assert_eq!([of("fc.weight_scale"), of("fc.weight_zero_point")], [None, None]);
        assert!(matches!(of("clip.logit_scale").as_deref(), Some(Provenance::Key { .. })));
    }

    #[test]
    fn names_tell_where_the_exporter_does_not() {
        let untold = Parameters::of(&ModelProto::default());
        let of = |name: &str, shape: &[usize]| untold.provenance(name, &floats(shape));
        for (name, shape) in
            [("a.weight", &[2][..]), ("w", &[2]), ("act.weight", &[1]), ("layer.0.scale", &[])]
        {
            assert!(matches!(of(name, shape).as_deref(), Some(Provenance::Key { .. })), "{name}");
        }
        assert!(untold.buffers().is_empty());
        for name in ["onnx::MatMul_12", "387", "/a/fc/MatMul_output_0_weight"] {
            assert!(matches!(of(name, &[2]).as_deref(), Some(Provenance::Exporter { .. })), "{name}");
        }
        for (name, shape) in
            [("eps", &[1][..]), ("/a/Constant_1_output_0", &[2]), ("onnx::Add_3", &[]), ("1.5", &[])]
        {
            assert!(of(name, shape).is_none(), "{name}");
        }
    }

    #[test]
    fn short_names_are_parameters_in_files_of_pytorch() {
        let initializer = |name: &str| TensorProto { name: name.into(), ..TensorProto::default() };
        let graph = GraphProto {
            initializer: ["v", "norm.running_var"].map(initializer).to_vec(),
            ..GraphProto::default()
        };
        let producer_name = "pytorch".to_owned();
        let of_pytorch =
            Parameters::of(&ModelProto { producer_name, graph: Some(graph), ..ModelProto::default() });
        let of = |name: &str| of_pytorch.provenance(name, &floats(&[2]));
        for name in ["v", "x", "const", "W1"] {
            assert!(matches!(of(name).as_deref(), Some(Provenance::Key { .. })), "{name}");
        }
        for name in ["val_3", "387", "t2", "onnx::MatMul_1", "onnx::v", "MatMul_7"] {
            assert!(matches!(of(name).as_deref(), Some(Provenance::Exporter { .. })), "{name}");
        }
        assert_eq!(of_pytorch.buffers(), BTreeSet::from(["norm.running_var".to_owned()]));
    }

    #[test]
    fn numbers_that_a_tool_merged_are_no_parameters() {
        let number = "/layers/layers.0/act/Constant_output_0";
        let shared = ["layers.0.scale", number];
        let node = |layer: usize, input: &str| NodeProto {
            op_type: "Mul".into(),
            name: format!("/layers/layers.{layer}/act/Mul"),
            input: vec!["x".into(), input.into()],
            ..NodeProto::default()
        };
        let graph = GraphProto {
            initializer: shared
                .map(|name| TensorProto { name: name.into(), ..TensorProto::default() })
                .to_vec(),
            node: shared.iter().flat_map(|input| [node(0, input), node(1, input)]).collect(),
            ..GraphProto::default()
        };
        let untold = Parameters::of(&ModelProto {
            graph: Some(graph),
            producer_name: "pytorch".into(),
            ..ModelProto::default()
        });
        let of = |name: &str| untold.provenance(name, &floats(&[]));
        assert!(matches!(of("layers.0.scale").as_deref(), Some(Provenance::Exporter { .. })));
        assert!(of(number).is_none());
    }
}
