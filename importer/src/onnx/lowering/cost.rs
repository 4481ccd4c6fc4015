//! What lowering takes of the model's budget: steps for what is read, once or again (functions and loops are written out),
//! and bytes for tables.

use super::{Lowering, MAX_NODES};
use crate::error::ImportErrorKind;
use crate::ir::{RuleError, RuleResult, ValueId};
use crate::onnx::proto::{NodeProto, SparseTensorProto, TensorProto};
use crate::onnx::tensor;
use bytes::Bytes;
use kiln_types::{DType, TensorData};

/// Steps of one node, its operands and attributes apart.
const NODE: usize = 16;
/// Steps of one operation that a node is lowered to.
const OPERATION: usize = 8;
/// Steps of a graph or a function's body, its names apart.
pub(super) const BODY: usize = 16;

/// Bytes of a name for each step.
const BYTES: usize = 32;

/// What lowering had left of nodes, operations and steps.
pub(crate) struct Left([u64; 3]);

/// Steps of looking names up: a few that are long take as long as many.
pub(super) fn names<'n>(names: impl IntoIterator<Item = &'n String>) -> usize {
    names.into_iter().map(|name| 1 + name.len() / BYTES).fold(0, usize::saturating_add)
}

/// Steps of reading strings, likewise.
fn texts<'b>(texts: impl IntoIterator<Item = &'b Bytes>) -> usize {
    texts.into_iter().map(|text| 1 + text.len() / BYTES).fold(0, usize::saturating_add)
}

impl<'m> Lowering<'_, 'm> {
    /// Takes steps; an error when no file of this size may ask for so many.
    pub(super) fn spend(&self, steps: usize) -> Result<(), ImportErrorKind> {
        if self.builder.graph.budget.steps.take(steps as u64) {
            return Ok(());
        }
        Err(ImportErrorKind::Disproportionate { what: "functions, loops and sequences, written out," })
    }

    /// Like [`Lowering::spend`], for operators that repeat something.
    pub(crate) fn repeat(&self, steps: usize) -> RuleResult<()> {
        self.spend(steps).map_err(|_| RuleError::TooLarge {
            what: "what it repeats, out of proportion to the size of the file,".to_owned(),
        })
    }

    /// Takes the steps of so many values that have a name of the file and a number.
    pub(crate) fn spend_numbered(&self, count: usize, name: &str) -> Result<(), ImportErrorKind> {
        self.spend(count.saturating_mul(1 + name.len() / BYTES))
    }

    /// Takes the steps of reading a node.
    pub(super) fn spend_node(&self, node: &NodeProto) -> Result<(), ImportErrorKind> {
        let attributes = node.attribute.iter().map(|attribute| {
            let numbers = attribute.ints.len() + attribute.floats.len();
            let texts = texts(attribute.strings.iter().chain([&attribute.s]));
            numbers.saturating_add(names([&attribute.name])).saturating_add(texts)
        });
        let own = [&node.name, &node.op_type, &node.domain, &node.overload];
        let metadata = node.metadata_props.iter().flat_map(|entry| [&entry.key, &entry.value]);
        let names = names(node.input.iter().chain(&node.output).chain(own).chain(metadata));
        let steps = attributes.fold(names.saturating_add(NODE), usize::saturating_add);
        self.spend(steps)
    }

    /// Takes the steps of operations that were added since the last time.
    pub(super) fn spend_operations(&mut self) -> Result<(), ImportErrorKind> {
        let count = self.builder.graph.nodes.len();
        let added = count.saturating_sub(std::mem::replace(&mut self.counted, count));
        self.spend(added.saturating_mul(OPERATION))
    }

    /// What is left at the moment.
    pub(crate) fn left(&self) -> Left {
        let nodes = |used: usize| MAX_NODES.saturating_sub(used) as u64;
        let graph = &*self.builder.graph;
        Left([nodes(self.lowered), nodes(graph.nodes.len()), graph.budget.steps.left()])
    }

    /// Whether so many rounds, if all take what the first ones did, leave half of what there was before them to the rest of the
    /// model.
    pub(crate) fn affords(&self, before: &Left, written: u64, rounds: u64) -> bool {
        let (Left(before), Left(now)) = (before, self.left());
        before.iter().zip(now).all(|(&before, now)| {
            let taken = u128::from(before.saturating_sub(now));
            taken * u128::from(rounds) <= u128::from(before / 2) * u128::from(written)
        })
    }

    /// Takes the bytes of a table before it is made.
    pub(crate) fn reserve(&self, bytes: usize) -> RuleResult<()> {
        if self.builder.graph.budget.bytes.take(bytes as u64) {
            return Ok(());
        }
        let what =
            format!("a constant of {bytes} bytes, in proportion to the model's size and beside its others,");
        Err(RuleError::TooLarge { what })
    }

    /// Takes the look at so many elements of a constant; `false` when they have been looked at too often.
    pub(crate) fn look(&self, elements: usize) -> bool {
        self.builder.graph.budget.elements.take(elements as u64)
    }

    /// Adds a table `[rows, columns, …]` of floats as a constant of the dtype; `element` tells each by its position.
    pub(crate) fn table(
        &mut self,
        shape: Vec<usize>,
        dtype: DType,
        element: impl Fn(usize) -> f64,
    ) -> RuleResult<ValueId> {
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let count = shape.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        let count =
            count.ok_or_else(|| RuleError::TooLarge { what: format!("a table of dims {shape:?}") })?;
        self.reserve(count.saturating_mul(wide.size()))?;
        let data = match wide {
            DType::F64 => TensorData::new((0..count).map(element).collect::<Vec<f64>>(), shape),
            _ => TensorData::new((0..count).map(|at| element(at) as f32).collect::<Vec<f32>>(), shape),
        };
        let table = self.builder.constant(data);
        self.cast(table, dtype)
    }

    /// Contents of a tensor in the file, taken from the budget: several may be the same bytes of one file.
    pub(crate) fn read(&self, proto: &'m TensorProto) -> Result<TensorData, ImportErrorKind> {
        let data = tensor::read(proto, self.folder())?;
        self.builder.graph.budget.grow(self.folder().take_mapped());
        self.reserve(data.bytes.len().saturating_add(proto.name.len()))?;
        Ok(data)
    }

    /// A tensor of strings in the file, and its shape, taken from the budget.
    pub(crate) fn read_strings(
        &self,
        proto: &TensorProto,
    ) -> Result<(Vec<String>, Vec<usize>), ImportErrorKind> {
        self.spend(texts(&proto.string_data))?;
        let bytes = proto.string_data.iter().map(|text| size_of::<String>() + text.len());
        self.reserve(bytes.fold(0, usize::saturating_add))?;
        tensor::strings(proto)
    }

    /// Contents of a sparse tensor in the file, all elements of which are taken from the budget.
    pub(crate) fn read_sparse(&self, proto: &'m SparseTensorProto) -> Result<TensorData, ImportErrorKind> {
        tensor::read_sparse(proto, self.folder(), |bytes| self.reserve(bytes))
    }
}
