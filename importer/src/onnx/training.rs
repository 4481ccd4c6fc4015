//! What an exporter took out of a network that is to be trained.
//!
//! Exporters write networks as they infer: they leave dropout out, fold batch normalizations into the layers before them, and keep
//! equal parameters once. A network that is trained without what is gone is another one.

use super::load::decode;
use super::lowering::{label, operator_name, subgraphs};
use super::parameters::Parameters;
use super::proto::{GraphProto, ModelProto, NodeProto};
use super::scope;
use super::source::Folder;
use crate::error::{ImportError, ImportResult};
use kiln_record::FileKind;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// The classes around a node, the operation of the network last.
const CLASSES: &str = "pkg.torch.onnx.class_hierarchy";
/// The paths of the modules around a node.
const SCOPES: &str = "pkg.torch.onnx.name_scopes";
/// Libraries whose layers have dropout unless they are told otherwise.
const DROPPING: [&str; 2] = ["transformers.", "torch.nn.modules.transformer."];
/// Names in a message; more would hide the advice behind them.
const SHOWN: usize = 6;

/// What a file lacks that training needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingLosses {
    /// Nodes that have a batch normalization folded into them, with its path where the file tells.
    pub folded: Vec<(String, Option<String>)>,
    /// Initializers that several parameters of the network became.
    pub merged: Vec<(String, Vec<String>)>,
    /// Batch normalizations whose running statistics take nothing of a batch, or keep nothing of what they were.
    pub cumulative: Vec<String>,
    /// Instance normalizations by running statistics.
    pub instances: Vec<String>,
    /// Whether there is no dropout.
    pub no_dropout: bool,
    /// A class of the network whose layers usually have dropout.
    pub dropping: Option<String>,
    /// Modules of a program whose kind of dropout Kiln does not have, and which are left out.
    pub dropped: Vec<String>,
    /// Whether no parameter of a program gets gradients.
    pub all_frozen: bool,
    /// Whether PyTorch's exporter of today wrote the file, which tells of modules; else what is said is for the older one.
    pub dynamo: bool,
}

/// Finds out what a file lacks that training needs.
///
/// # Errors
/// When the file cannot be read or is not an ONNX model.
pub fn training_losses(path: &Path) -> ImportResult<TrainingLosses> {
    let in_file = |error: ImportError| ImportError { file: path.to_owned(), ..error };
    let folder = Folder::open(path).map_err(|kind| in_file(kind.into()))?;
    if FileKind::of(&folder.model()) == Some(FileKind::Zip) {
        return of_archive(folder.model()).map_err(in_file);
    }
    Ok(of_model(&decode(folder.model(), true).map_err(in_file)?))
}

/// An exported program is the network as it is, but for what Kiln does not have.
#[cfg(feature = "pt2")]
fn of_archive(bytes: bytes::Bytes) -> ImportResult<TrainingLosses> {
    crate::pt2::losses(bytes)
}

/// Where programs are not read, the import says so.
#[cfg(not(feature = "pt2"))]
fn of_archive(_: bytes::Bytes) -> ImportResult<TrainingLosses> {
    Ok(TrainingLosses::default())
}

fn of_model(proto: &ModelProto) -> TrainingLosses {
    let Some(graph) = &proto.graph else { return TrainingLosses::default() };
    let mut found = TrainingLosses { no_dropout: true, ..TrainingLosses::default() };
    let mut graphs: Vec<&GraphProto> = vec![graph];
    while let Some(graph) = graphs.pop() {
        found.read(&graph.node);
        graphs.extend(graph.node.iter().flat_map(subgraphs));
    }
    proto.functions.iter().for_each(|function| found.read(&function.node));
    let parameters = Parameters::of(proto);
    let names = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    let norms: BTreeSet<&str> = found.folded.iter().filter_map(|(_, norm)| norm.as_deref()).collect();
    let of_norm = |key: &String| key.rsplit_once('.').is_some_and(|(module, _)| norms.contains(module));
    let merged = names.filter_map(|name| {
        let others = parameters.merged_with(name)?;
        let apart: Vec<String> = others.iter().filter(|key| !of_norm(key)).cloned().collect();
        (others.is_empty() || !apart.is_empty()).then(|| (name.to_owned(), apart))
    });
    found.merged = merged.collect();
    found
}

impl TrainingLosses {
    fn read(&mut self, nodes: &[NodeProto]) {
        // Statistics of each channel, repeated for each instance.
        let tiles = nodes.iter().filter(|node| node.op_type == "Tile").flat_map(|node| &node.output);
        let tiles: HashSet<&str> = tiles.map(String::as_str).collect();
        nodes.iter().for_each(|node| self.read_node(node, &tiles));
    }

    fn read_node(&mut self, node: &NodeProto, tiles: &HashSet<&str>) {
        let operator = operator_name(node);
        self.no_dropout &= operator != "Dropout";
        let list = |key: &str| {
            let entry = node.metadata_props.iter().find(|entry| entry.key == key)?;
            scope::list(&entry.value)
        };
        let (classes, scopes) = (list(CLASSES).unwrap_or_default(), list(SCOPES).unwrap_or_default());
        self.dynamo |= !classes.is_empty();
        if self.dropping.is_none() {
            let drops = |class: &&String| DROPPING.iter().any(|library| class.starts_with(library));
            self.dropping = classes.iter().find(drops).cloned();
        }
        let layer = matches!(operator.as_str(), "Conv" | "ConvTranspose" | "Gemm");
        let norm = classes.iter().rposition(|class| class.starts_with("torch.nn.modules.batchnorm."));
        // The older exporter numbers what it computes, and of a convolution's weights computes nothing but this.
        let numbered = node.input.get(1).is_some_and(|weight| weight.starts_with("onnx::Conv"));
        if layer && (norm.is_some() || numbered) {
            let path = norm.and_then(|at| scopes.get(at)).filter(|path| !path.is_empty());
            self.folded.push((label(node), path.cloned()));
        }
        if operator == "BatchNormalization" {
            let class = classes.iter().rposition(|class| class.starts_with("torch.nn.modules."));
            let path = class.and_then(|at| scopes.get(at)).filter(|path| !path.is_empty());
            let name = path.cloned().unwrap_or_else(|| label(node));
            let momentum = node.attribute.iter().find(|attribute| attribute.name == "momentum");
            if node.input.get(3).is_some_and(|mean| tiles.contains(mean.as_str())) {
                self.instances.push(name);
            } else if momentum.is_some_and(|momentum| [0.0, 1.0].contains(&momentum.f)) {
                self.cumulative.push(name);
            }
        }
    }

    /// What to tell someone who wants to train the network: certain losses, and of dropout when its layers usually have it.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = self.certain();
        if let (true, Some(class)) = (self.no_dropout, &self.dropping) {
            lines.push(format!(
                "there is no dropout in the file, which networks with `{class}` usually have: an exporter drops it in evaluation \
                 mode; to keep it, {}",
                self.advice()
            ));
        }
        lines
    }

    /// The same, and of missing dropout in any case.
    pub fn notes(&self) -> Vec<String> {
        let mut lines = self.warnings();
        if self.no_dropout && self.dropping.is_none() {
            let advice = self.advice();
            lines.push(format!(
                "there is no dropout in the file: if the network has some, {advice}; an exporter drops it in evaluation mode"
            ));
        }
        lines
    }

    fn certain(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.dropped.is_empty() {
            lines.push(format!(
                "alpha dropout is left out, and the network is trained without it: {}; `nn.Dropout` and its forms for channels stay",
                list(self.dropped.iter().cloned(), self.dropped.len())
            ));
        }
        if self.all_frozen {
            lines.push(
                "no parameter in the file gets gradients, so that nothing will be trained; call `model.requires_grad_(True)` before \
                 the export, for those that are to be"
                    .to_owned(),
            );
        }
        if !self.cumulative.is_empty() {
            lines.push(format!(
                "running statistics of batch normalizations do not move, or become those of the last batch: {}; the exporter writes \
                 `momentum=None`, a mean of all batches, as 0 or 1, which Kiln cannot tell from these; give them a momentum before the \
                 export",
                list(self.cumulative.iter().cloned(), self.cumulative.len())
            ));
        }
        if !self.instances.is_empty() {
            lines.push(format!(
                "instance normalizations by running statistics take these in training too, where PyTorch takes each instance's own \
                 and moves the running ones: {}; to train by each instance's, set `track_running_stats` to `False` and `running_mean` \
                 and `running_var` to `None` before the export",
                list(self.instances.iter().cloned(), self.instances.len())
            ));
        }
        if !self.folded.is_empty() {
            let name = |(node, norm): &(String, Option<String>)| match norm {
                Some(norm) => format!("{norm} (into {node})"),
                None => format!("the one into {node}"),
            };
            let names = list(self.folded.iter().map(name), self.folded.len());
            lines.push(format!(
                "the exporter folded batch normalizations into the layers before them, so that they neither normalize by a batch's \
                 statistics nor learn: {names}; to keep them, {}",
                self.advice()
            ));
        }
        if !self.merged.is_empty() {
            let name = |(name, others): &(String, Vec<String>)| match others.len() {
                0 => name.clone(),
                count => format!("{name} (also {})", list(others.iter().cloned(), count)),
            };
            let names = list(self.merged.iter().map(name), self.merged.len());
            lines.push(format!(
                "the exporter kept parameters that were equal only once, and they will learn as one: {names}; to keep them apart, {}",
                self.advice()
            ));
        }
        lines
    }

    /// How to export such that nothing is lost.
    fn advice(&self) -> &'static str {
        if self.dynamo {
            "call `model.train()` and export with `torch.onnx.export(model, args, dynamo=True, optimize=False)`"
        } else {
            "export with `torch.onnx.export(model, args, path, dynamo=False, training=torch.onnx.TrainingMode.TRAINING, \
             do_constant_folding=False)`, or with `dynamo=True, optimize=False` after `model.train()`"
        }
    }
}

/// The first names of a list, each once, and how many more there are.
fn list(names: impl Iterator<Item = String>, count: usize) -> String {
    let mut seen = BTreeSet::new();
    let shown: Vec<String> = names.filter(|name| seen.insert(name.clone())).take(SHOWN).collect();
    match count.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn fixture(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(path).join("model.onnx")
    }

    fn losses(path: &str) -> TrainingLosses {
        training_losses(&fixture(path)).expect("a model")
    }

    #[test]
    fn folded_norms_are_named() {
        let dynamo = losses("digits");
        let names: Vec<_> =
            dynamo.folded.iter().map(|(node, norm)| (node.as_str(), norm.as_deref())).collect();
        let expected = [("node_Conv_37", Some("block1.norm")), ("node_Conv_39", Some("block2.norm"))];
        assert_eq!(names, expected);
        let text = dynamo.warnings().join("\n");
        assert!(
            text.contains("block1.norm (into node_Conv_37)") && text.contains("optimize=False"),
            "{text}"
        );
        assert_eq!(dynamo.warnings().len(), 1);
        assert!(dynamo.notes().join("\n").contains("model.train()"));

        let torchscript = losses("checkpoints/convolution_torchscript_folded");
        assert_eq!(torchscript.folded, [("/conv/Conv".to_owned(), None)]);
        assert!(torchscript.warnings()[0].contains("training=torch.onnx.TrainingMode.TRAINING"));
    }

    #[test]
    fn nothing_is_said_of_what_is_there() {
        assert!(losses("digits/unfolded").warnings().is_empty());
        assert!(losses("training/dropout").notes().is_empty());
        assert!(losses("training/resnet_torchscript").warnings().is_empty());
        let bert = losses("training/bert");
        assert_eq!(bert.warnings().len(), 1, "{bert:?}");
        assert!(bert.warnings()[0].contains("`transformers."), "{bert:?}");
    }

    #[test]
    fn norms_whose_statistics_do_not_do_as_in_pytorch_are_named() {
        use crate::onnx::proto::AttributeProto;
        let norm = |name: &str, mean: &str, momentum: f32| NodeProto {
            name: name.into(),
            op_type: "BatchNormalization".into(),
            input: ["x", "w", "b", mean, "v"].map(str::to_owned).to_vec(),
            attribute: vec![AttributeProto {
                name: "momentum".into(),
                f: momentum,
                ..AttributeProto::default()
            }],
            ..NodeProto::default()
        };
        let tile = NodeProto { op_type: "Tile".into(), output: vec!["tiled".into()], ..NodeProto::default() };
        let graph = GraphProto {
            node: vec![
                norm("/a/BatchNorm", "m", 1.0),
                tile,
                norm("/b/BatchNorm", "tiled", 0.9),
                norm("/c/BatchNorm", "m", 0.9),
            ],
            ..GraphProto::default()
        };
        let lost = of_model(&ModelProto { graph: Some(graph), ..ModelProto::default() });
        let named = [lost.cumulative.join(" "), lost.instances.join(" ")];
        assert_eq!(named, ["/a/BatchNorm", "/b/BatchNorm"]);
        assert_eq!(lost.warnings().len(), 2);
    }

    #[test]
    fn merged_parameters_are_named() {
        use crate::onnx::proto::{StringStringEntryProto, TensorProto};
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let node = |path: &str| NodeProto {
            op_type: "Mul".into(),
            input: vec!["x".into(), "l.0.weight".into()],
            metadata_props: vec![
                entry(SCOPES, &format!("['', '{path}', 'mul']")),
                entry(CLASSES, "['Net', 'Scale', 'aten.mul.Tensor']"),
            ],
            ..NodeProto::default()
        };
        let signature =
            "p_a: PARAMETER target='l.0.weight'\np_b: PARAMETER target='l.1.weight'\nx: USER_INPUT";
        let tensor = |name: &str| TensorProto { name: name.into(), ..TensorProto::default() };
        let graph = GraphProto {
            node: vec![node("l.0"), node("l.1")],
            initializer: vec![tensor("l.0.weight"), tensor("val_1")],
            metadata_props: vec![entry("pkg.torch.export.ExportedProgram.graph_signature", signature)],
            ..GraphProto::default()
        };
        let found = of_model(&ModelProto { graph: Some(graph), ..ModelProto::default() });
        assert_eq!(found.merged, [("l.0.weight".to_owned(), vec!["l.1.weight".to_owned()])]);
        assert!(found.warnings()[0].contains("will learn as one: l.0.weight (also l.1.weight)"), "{found:?}");
    }
}
