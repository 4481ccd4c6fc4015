//! Computes in another float dtype than the file's f32.
//!
//! What depends on the model's float inputs or on its weights is computed in the dtype that was asked for. Inputs are converted where they
//! come in and results where they go out, so that the model is called as before. Two kinds of operations stay in f32, and meet the others
//! through conversions: what is computed from integers and literals alone (positions and the angles of rotary embeddings, which count
//! further than f16 does), and calls that no pass looks into.
//!
//! A finite number stays finite where it is narrowed, and a single number that is not 0 does not become 0: a mask's `f32::MIN` would else be
//! -∞, of which `0 · -∞` makes NaN, and an epsilon of 1e-12 nothing.

use super::{Pass, PassReport};
use crate::data::{elements, release, scalar};
use crate::ir::{Builder, Cast, Fill, Graph, NodeId, Op, Origin, Region, ValueId};
use kiln_types::{
    Activation, BinaryOp, DType, Expression, FloatDType, Scalar, Step, TensorData, UnaryOp, bf16, f16,
};
use std::collections::{BTreeMap, BTreeSet};

/// Gives what the file has in f32 another dtype.
pub(super) struct ChangePrecision {
    /// The dtype.
    pub(super) to: FloatDType,
}

impl Pass for ChangePrecision {
    fn name(&self) -> &'static str {
        "precision"
    }

    fn runs_once(&self) -> bool {
        true
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        let mut root = std::mem::take(&mut graph.root);
        let mut change = Change {
            graph,
            to: self.to,
            twins: BTreeMap::new(),
            followed: BTreeSet::new(),
            changed: BTreeSet::new(),
            before: Vec::new(),
            local: Vec::new(),
            report: &mut report,
        };
        change.inputs();
        change.region(&mut root, None);
        graph.root = root;
        report
    }
}

/// The largest finite number of a dtype.
fn largest(dtype: FloatDType) -> f64 {
    match dtype {
        FloatDType::F16 => f16::MAX.to_f64(),
        FloatDType::BF16 => bf16::MAX.to_f64(),
        FloatDType::F32 => f32::MAX.into(),
        FloatDType::F64 => f64::MAX,
    }
}

/// The least number above 0.
fn least(dtype: FloatDType) -> f64 {
    match dtype {
        FloatDType::F16 => f16::MIN_POSITIVE_SUBNORMAL.to_f64(),
        FloatDType::BF16 => bf16::MIN_POSITIVE_SUBNORMAL.to_f64(),
        FloatDType::F32 => f32::from_bits(1).into(),
        FloatDType::F64 => f64::from_bits(1),
    }
}

/// A number of a dtype as near as it gets that is finite, or not 0, if this one is.
fn nearest(value: f64, dtype: FloatDType) -> f64 {
    let rounded = match dtype {
        FloatDType::F16 => f16::from_f64(value).to_f64(),
        FloatDType::BF16 => bf16::from_f64(value).to_f64(),
        FloatDType::F32 => f64::from(value as f32),
        FloatDType::F64 => value,
    };
    if rounded.is_infinite() && value.is_finite() {
        return largest(dtype).copysign(value);
    }
    if rounded == 0.0 && value != 0.0 {
        return least(dtype).copysign(value);
    }
    rounded
}

/// [`nearest`] of a float.
fn nearest_scalar(value: Scalar, dtype: FloatDType) -> Scalar {
    match value {
        Scalar::Float(value) => Scalar::Float(nearest(value, dtype)),
        other => other,
    }
}

/// The elements of a weight, none of which becomes infinite.
fn finite(data: &TensorData, to: FloatDType) -> TensorData {
    let dtype = DType::from(to);
    if data.fits(dtype) {
        return data.clone().convert_dtype(dtype);
    }
    let most = largest(to);
    let bounded = data.iter::<f64>().map(|x| if x.is_finite() { x.clamp(-most, most) } else { x });
    TensorData::new(bounded.collect::<Vec<f64>>(), data.shape.clone()).convert_dtype(dtype)
}

/// Converts what was computed; what is finite stays so.
fn within_range(dtype: FloatDType) -> Expression {
    let most = largest(dtype);
    let number = |value: f64| Step::Constant(Scalar::Float(value), DType::F32);
    Expression::new(vec![
        Step::Input(0),
        number(-most),
        Step::Binary(BinaryOp::Max, 0, 1),
        number(most),
        Step::Binary(BinaryOp::Min, 2, 3),
        Step::Unary(UnaryOp::IsInf, 0),
        Step::Where(5, 0, 4),
        Step::Cast(dtype.into(), 6),
    ])
}

/// The work on one graph.
struct Change<'g> {
    graph: &'g mut Graph,
    to: FloatDType,
    /// Values in f32 and in the other dtype: those of one are the keys, the same numbers in the other dtype beside them.
    twins: BTreeMap<ValueId, ValueId>,
    /// Values that are in f32 and whose users shall use the twin: inputs, results of calls.
    followed: BTreeSet<ValueId>,
    /// Values that were in f32.
    changed: BTreeSet<ValueId>,
    /// Nodes to stand before the current one.
    before: Vec<NodeId>,
    /// Values whose twins nodes of the current region compute.
    local: Vec<ValueId>,
    report: &'g mut PassReport,
}

impl Change<'_> {
    fn is_single(&self, id: ValueId) -> bool {
        self.graph.ty(id).dtype == DType::F32
    }

    fn is_constant(&self, id: ValueId) -> bool {
        self.graph.constant(id).is_some()
    }

    /// Whether the value belongs to what is computed in the other dtype.
    fn leads(&self, id: ValueId) -> bool {
        self.changed.contains(&id) || self.followed.contains(&id)
    }

    /// Converts every input where it comes in.
    fn inputs(&mut self) {
        for input in self.graph.inputs.clone() {
            if self.is_single(input) && self.insert_cast(input, self.to, &Origin::default()).is_some() {
                self.followed.insert(input);
                self.report.count("input");
            }
        }
        // They are there for the whole graph.
        self.local.clear();
    }

    /// Changes a region; its results have the dtypes of `outputs`, or, the root's, those that they had.
    fn region(&mut self, region: &mut Region, outputs: Option<&[ValueId]>) {
        let outer = std::mem::take(&mut self.local);
        for &parameter in &region.parameters {
            if self.is_single(parameter) && self.followed.contains(&parameter) {
                self.insert_cast(parameter, self.to, &Origin::default());
            }
        }
        let mut nodes = std::mem::take(&mut self.before);
        for id in std::mem::take(&mut region.nodes) {
            let after = self.node(id);
            nodes.append(&mut self.before);
            nodes.push(id);
            nodes.extend(after);
        }
        for (i, output) in region.outputs.iter_mut().enumerate() {
            let single = outputs.is_none_or(|outputs| outputs.get(i).is_none_or(|&id| self.is_single(id)));
            if single && self.changed.contains(output) {
                let origin = match outputs {
                    Some(_) => self.graph.producer(*output).map(|node| self.graph.node(node).origin.clone()),
                    None => None,
                };
                *output = self.in_dtype(*output, FloatDType::F32, &origin.unwrap_or_default());
            }
        }
        nodes.append(&mut self.before);
        region.nodes = nodes;
        // Nothing outside the region may use what it computes.
        for value in std::mem::replace(&mut self.local, outer) {
            self.twins.remove(&value);
        }
    }

    /// Changes one node; yields the nodes to stand after it.
    fn node(&mut self, id: NodeId) -> Vec<NodeId> {
        let node = self.graph.node(id);
        match &node.op {
            Op::If(_) | Op::Loop(_) => self.regions(id),
            // Thresholds tell numbers of the dtype apart in which they were found.
            Op::Call(_) | Op::HostRead(_) | Op::TreeLeaves(_) => self.call(id),
            op if self.is_computed_so(op, &node.inputs) => {
                self.change(id);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Whether an operation on these operands is computed in the other dtype.
    fn is_computed_so(&self, op: &Op, inputs: &[Option<ValueId>]) -> bool {
        let given = || inputs.iter().flatten().copied();
        if given().any(|id| self.leads(id)) {
            return true;
        }
        let mut singles = given().filter(|&id| self.is_single(id)).peekable();
        // Weights that are looked up or laid out. Literals meet each other in f32.
        let weights = singles.peek().is_some() && singles.all(|id| self.is_constant(id));
        weights && matches!(op, Op::Take(_) | Op::Gather(_) | Op::Linear(_) | Op::MatMul)
    }

    fn change(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let origin = node.origin.clone();
        let mut inputs = node.inputs.clone();
        let outputs = node.outputs.clone();
        for input in inputs.iter_mut().flatten() {
            if self.is_single(*input) {
                *input = self.in_dtype(*input, self.to, &origin);
            }
        }
        let to = self.to;
        let node = self.graph.node_mut(id);
        node.inputs = inputs;
        match &mut node.op {
            Op::Cast(cast) if cast.to == DType::F32 => cast.to = to.into(),
            Op::Clamp(clamp) => {
                clamp.min = clamp.min.map(|min| nearest_scalar(min, to));
                clamp.max = clamp.max.map(|max| nearest_scalar(max, to));
            }
            Op::Pad(pad) => pad.value = nearest_scalar(pad.value, to),
            _ => {}
        }
        for output in outputs {
            if self.is_single(output) {
                self.graph.value_mut(output).ty.dtype = to.into();
                self.changed.insert(output);
            }
        }
        self.report.count("operation");
    }

    /// A call gets what it was written for. Whoever uses its results uses their twins, if it depends on what has some.
    fn call(&mut self, id: NodeId) -> Vec<NodeId> {
        let node = self.graph.node(id);
        let origin = node.origin.clone();
        let outputs = node.outputs.clone();
        let mut inputs = node.inputs.clone();
        let follows = inputs.iter().flatten().any(|&input| self.leads(input));
        for input in inputs.iter_mut().flatten() {
            if self.changed.contains(input) {
                *input = self.in_dtype(*input, FloatDType::F32, &origin);
            }
        }
        self.graph.node_mut(id).inputs = inputs;
        if follows { self.follow(&outputs, &origin) } else { Vec::new() }
    }

    /// A choice yields what it did; a loop carries what it did, too.
    fn regions(&mut self, id: NodeId) -> Vec<NodeId> {
        let node = self.graph.node_mut(id);
        let (outputs, origin) = (node.outputs.clone(), node.origin.clone());
        let mut regions: Vec<Region> = node.op.regions_mut().into_iter().map(std::mem::take).collect();
        let mut inputs = node.inputs.clone();
        let leading: Vec<bool> =
            inputs.iter().map(|input| input.is_some_and(|input| self.leads(input))).collect();
        for input in inputs.iter_mut().flatten() {
            if self.changed.contains(input) {
                *input = self.in_dtype(*input, FloatDType::F32, &origin);
            }
        }
        self.graph.node_mut(id).inputs = inputs;
        let before = std::mem::take(&mut self.before);
        let mut follows = leading.contains(&true);
        for region in &mut regions {
            let leading = region.parameters.iter().zip(&leading).filter(|(_, leads)| **leads);
            self.followed.extend(leading.map(|(parameter, _)| *parameter));
            let results = region.outputs.clone();
            self.region(region, Some(&outputs));
            follows |= results.iter().any(|&result| self.leads(result));
        }
        self.before = before;
        for (slot, region) in self.graph.node_mut(id).op.regions_mut().into_iter().zip(regions) {
            *slot = region;
        }
        if follows { self.follow(&outputs, &origin) } else { Vec::new() }
    }

    /// Users of these values shall use their twins, which come after the node that yields them.
    fn follow(&mut self, values: &[ValueId], origin: &Origin) -> Vec<NodeId> {
        let before = std::mem::take(&mut self.before);
        for &value in values {
            if self.is_single(value) && self.insert_cast(value, self.to, origin).is_some() {
                self.followed.insert(value);
            }
        }
        std::mem::replace(&mut self.before, before)
    }

    /// The value in a dtype, where the current node can use it.
    fn in_dtype(&mut self, id: ValueId, dtype: FloatDType, origin: &Origin) -> ValueId {
        if let Some(&twin) = self.twins.get(&id) {
            return twin;
        }
        if let Some(twin) = self.constant(id, dtype) {
            self.twins.insert(id, twin);
            return twin;
        }
        let twin = match self.remade(id, dtype, origin) {
            Some(twin) => Some(twin),
            None if dtype == FloatDType::F32 || self.is_bounded(id) => self.insert_cast(id, dtype, origin),
            None => self.insert_twin(id, Op::Elementwise(within_range(dtype)), &[id], origin),
        };
        twin.unwrap_or(id)
    }

    /// A constant's twin.
    fn constant(&mut self, id: ValueId, to: FloatDType) -> Option<ValueId> {
        let dtype = DType::from(to);
        let constant = self.graph.constant(id)?;
        let (name, provenance) = (constant.name.clone(), constant.provenance.clone());
        let data = constant.data.clone();
        // Where a file has no more to ask for, what is left of it is converted when the model runs.
        let count = elements(&data.shape) as u64;
        let budget = &self.graph.budget;
        if !budget.elements.take(count) || !budget.bytes.take(count.saturating_mul(dtype.size() as u64)) {
            return None;
        }
        let converted = match scalar(&data) {
            Some(number) => {
                let number = nearest(number.to_f64(), to);
                TensorData::new(vec![number], data.shape.clone()).convert_dtype(dtype)
            }
            None => finite(&data, to),
        };
        release(&data);
        self.report.count("constant");
        Some(self.graph.add_derived(name, converted, provenance))
    }

    /// What makes a value without computing makes its twin.
    fn remade(&mut self, id: ValueId, to: FloatDType, origin: &Origin) -> Option<ValueId> {
        let producer = self.graph.node(self.graph.producer(id)?);
        let dtype = DType::from(to);
        match (&producer.op, producer.inputs.as_slice()) {
            (Op::Fill(fill), _) => {
                let fill = Fill { value: nearest_scalar(fill.value, to), dtype, ..fill.clone() };
                self.insert_twin(id, Op::Fill(fill), &[], origin)
            }
            (Op::Cast(_), &[Some(from)]) if self.graph.ty(from).dtype.is_bool() => {
                self.insert_twin(id, Op::Cast(Cast { to: dtype }), &[from], origin)
            }
            _ => None,
        }
    }

    /// Whether a value is known to be small, as cosines are.
    fn is_bounded(&self, mut id: ValueId) -> bool {
        if self.to == FloatDType::F64 {
            return true;
        }
        // Operations that only lay out, one behind the other.
        for _ in 0..8 {
            let Some(node) = self.graph.producer(id).map(|node| self.graph.node(node)) else { return false };
            match (&node.op, node.inputs.first()) {
                (
                    Op::Unary(UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sign),
                    _,
                )
                | (Op::Activation(Activation::Sigmoid) | Op::Softmax(_), _) => return true,
                (
                    Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_) | Op::Repeat(_),
                    Some(&Some(x)),
                ) => {
                    id = x;
                }
                _ => return false,
            }
        }
        false
    }

    fn insert_cast(&mut self, id: ValueId, dtype: FloatDType, origin: &Origin) -> Option<ValueId> {
        self.insert_twin(id, Op::Cast(Cast { to: dtype.into() }), &[id], origin)
    }

    fn insert_twin(&mut self, id: ValueId, op: Op, inputs: &[ValueId], origin: &Origin) -> Option<ValueId> {
        let twin = self.insert(op, inputs, origin)?;
        self.twins.insert(id, twin);
        self.local.push(id);
        Some(twin)
    }

    fn insert(&mut self, op: Op, inputs: &[ValueId], origin: &Origin) -> Option<ValueId> {
        let mut builder = Builder::new(self.graph);
        builder.origin = origin.clone();
        let value = builder.add(op, inputs).ok()?;
        let nodes = builder.nodes;
        self.before.extend(nodes);
        Some(value)
    }
}
