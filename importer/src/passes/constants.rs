//! Computes at build time what is known at build time, and puts shape arithmetic on the host.

use super::{Pass, PassReport};
use crate::data::Elements;
use crate::ir::op::{Folding, Outcome};
use crate::ir::{
    Cast, Dim, Graph, HostRead, HostTensor, If, Loop, Node, NodeId, Op, Provenance, Region, Symbol,
    SymbolOrigin, TensorType, Value, ValueId,
};
use kiln_types::{DType, TensorData};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Folds operations on constants, places known integers on the host, and takes branches whose condition is known.
pub(super) struct FoldConstants {
    /// Whether parameters stay parameters whatever is done with them.
    trainable: bool,
}

/// A folded constant may be this much larger than what it is made from...
const GROWTH: usize = 2;
/// ...or this large in any case (bytes): a mask over a few hundred positions.
const SMALL: usize = 1 << 16;

impl FoldConstants {
    pub(super) fn new(trainable: bool) -> Self {
        Self { trainable }
    }
}

impl Pass for FoldConstants {
    fn name(&self) -> &'static str {
        "constants"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let learns = |node: &Node| matches!(node.op, Op::HostRead(_) | Op::If(_) | Op::Loop(_));
        let before = graph.nodes.iter().any(learns).then(|| graph.clone());
        let (report, learned) = self.fold(graph, true);
        match before {
            // A size that is known now contradicts what another operation asks for. Only who runs the model may be told so: by the read of the
            // size, or in the branch, as if nothing had been known.
            Some(before) if learned && graph.verify().is_err() => {
                *graph = before;
                self.fold(graph, false).0
            }
            _ => report,
        }
    }
}

impl FoldConstants {
    /// Folds what it may, `learning` also sizes that were unknown. Says whether it has learned some.
    fn fold(&self, graph: &mut Graph, learning: bool) -> (PassReport, bool) {
        let mut folder = ConstantFolder {
            trainable: self.trainable,
            learning,
            learned: false,
            alias: BTreeMap::new(),
            known: BTreeMap::new(),
            graph,
            report: PassReport::new(self.name()),
        };
        let mut root = std::mem::take(&mut folder.graph.root);
        folder.region(&mut root);
        let (alias, known, report) = (folder.alias, folder.known, folder.report);
        let learned = folder.learned || !known.is_empty();
        graph.root = root;
        graph.substitute_all(&known);
        for origin in graph.symbols.values_mut() {
            if let SymbolOrigin::Dim { value, .. } = origin {
                *value = resolve(&alias, *value);
            }
        }
        (report, learned)
    }
}

fn resolve(alias: &BTreeMap<ValueId, ValueId>, mut id: ValueId) -> ValueId {
    while let Some(&other) = alias.get(&id) {
        id = other;
    }
    id
}

struct ConstantFolder<'g> {
    graph: &'g mut Graph,
    trainable: bool,
    /// Whether sizes may become known that were not.
    learning: bool,
    /// Whether one has.
    learned: bool,
    /// Outputs of branches that were taken at build time, and the values they are.
    alias: BTreeMap<ValueId, ValueId>,
    /// What is no longer read back since it is known.
    known: BTreeMap<Symbol, Dim>,
    report: PassReport,
}

impl ConstantFolder<'_> {
    fn region(&mut self, region: &mut Region) {
        let nodes = std::mem::take(&mut region.nodes);
        for id in nodes {
            for n in 0..self.graph.node(id).inputs.len() {
                let resolved = self.graph.node(id).inputs[n].map(|value| resolve(&self.alias, value));
                self.graph.node_mut(id).inputs[n] = resolved;
            }
            self.take_out_of_loop(id);
            let mut inner: Vec<Region> =
                self.graph.node_mut(id).op.regions_mut().into_iter().map(std::mem::take).collect();
            for region in &mut inner {
                self.region(region);
            }
            for (slot, folded) in self.graph.node_mut(id).op.regions_mut().into_iter().zip(inner) {
                *slot = folded;
            }
            self.node(id, &mut region.nodes);
        }
        for output in &mut region.outputs {
            *output = resolve(&self.alias, *output);
        }
    }

    /// Puts the node, or what stands for it, into `nodes`.
    fn node(&mut self, id: NodeId, nodes: &mut Vec<NodeId>) {
        if self.take_branch(id, nodes) || self.fold_host(id) || self.fold_data(id) || self.fold_read(id) {
            return;
        }
        self.place_on_host(id, nodes);
        self.materialize_parameters(id);
        nodes.push(id);
    }

    /// A choice whose condition is known: the nodes of the branch stand here.
    fn take_branch(&mut self, id: NodeId, nodes: &mut Vec<NodeId>) -> bool {
        let Op::If(If { condition, then_region, else_region }) = &self.graph.node(id).op else {
            return false;
        };
        let Some(condition) = condition.as_constant().filter(|_| self.learning) else {
            return false;
        };
        let region = if condition != 0 { then_region.clone() } else { else_region.clone() };
        let outputs = self.graph.node(id).outputs.clone();
        for (&output, &actual) in outputs.iter().zip(&region.outputs) {
            let actual = resolve(&self.alias, actual);
            self.adopt_sizes(output, actual);
            self.alias.insert(output, actual);
        }
        nodes.extend(region.nodes);
        self.report.count("branches taken");
        true
    }

    /// Integers that are read back from a tensor whose contents are known.
    fn fold_read(&mut self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let (Op::HostRead(HostRead { symbols }), &[Some(x)], true) =
            (&node.op, node.inputs.as_slice(), self.learning)
        else {
            return false;
        };
        let Some(Elements::Int(values)) = self.data(x).as_ref().map(Elements::load) else {
            return false;
        };
        let values: Option<Vec<i64>> = values.into_iter().map(|value| i64::try_from(value).ok()).collect();
        let Some(values) = values.filter(|values| values.len() == symbols.len()) else {
            return false;
        };
        self.known.extend(symbols.iter().cloned().zip(values.into_iter().map(Dim::constant)));
        self.report.count("reads of constants");
        true
    }

    /// What a loop carries and no round changes is the operand itself.
    fn take_out_of_loop(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let (Op::Loop(Loop { body, .. }), true) = (&node.op, self.learning) else {
            return;
        };
        let carried = body.parameters.iter().zip(&body.outputs).zip(node.inputs.iter().zip(&node.outputs));
        let same: Vec<(ValueId, ValueId, ValueId)> = carried
            .filter(|((parameter, yielded), _)| parameter == yielded)
            .filter_map(|((&parameter, _), (&input, &output))| Some((parameter, input?, output)))
            .filter(|(parameter, ..)| !self.alias.contains_key(parameter))
            .collect();
        for (parameter, input, output) in same {
            for value in [parameter, output] {
                self.adopt_sizes(value, input);
                self.alias.insert(value, input);
            }
            self.report.count("taken out of loops");
        }
    }

    /// Sizes that were unknown until the branch was: everything that names them is told.
    fn adopt_sizes(&mut self, output: ValueId, actual: ValueId) {
        let (old, new) = (self.graph.ty(output).dims.clone(), self.graph.ty(actual).dims.clone());
        for (axis, (old, new)) in old.iter().zip(&new).enumerate() {
            let Some(symbol) = old.as_symbol() else {
                continue;
            };
            let here = SymbolOrigin::Dim { value: output, axis };
            if old != new && self.graph.symbols.get(symbol) == Some(&here) {
                self.graph.substitute(symbol, new);
                self.learned = true;
            }
        }
    }

    /// An integer value whose contents are known numbers.
    fn fold_host(&mut self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let (&[output], true) = (node.outputs.as_slice(), node.op.effect().is_repeatable()) else {
            return false;
        };
        let is_host = matches!(node.op, Op::HostTensor(_));
        if !is_host && matches!(node.op.result(), Outcome::Made | Outcome::Unknown) {
            return false;
        }
        let value = self.graph.value(output);
        let (Some(host), Some(shape)) = (&value.host, value.ty.shape()) else {
            return false;
        };
        let values: Option<Vec<i128>> = host.iter().map(|dim| dim.as_constant().map(i128::from)).collect();
        let Some(values) = values else {
            return false;
        };
        let data = Elements::Int(values).store(value.ty.dtype, shape);
        self.become_constant(id, output, (None, None), data);
        true
    }

    /// An operation whose operands are all known.
    fn fold_data(&mut self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let makes = node.op.result() == Outcome::Made;
        let (&[output], true, false) = (node.outputs.as_slice(), node.op.effect().is_repeatable(), makes)
        else {
            return false;
        };
        let operands: Option<Vec<Option<TensorData>>> =
            node.inputs.iter().map(|input| input.map_or(Some(None), |id| self.data(id).map(Some))).collect();
        let (Some(operands), Some(shape)) = (operands, self.graph.ty(output).shape()) else {
            return false;
        };
        let folding = node.op.folding();
        if folding == Folding::Never || self.keeps_parameter(id) {
            return false;
        }
        // One value spread out stays as such: it is made at run time from a literal.
        let spread = node.op.result() == Outcome::Repeated;
        if spread && operands.iter().flatten().any(|data| data.num_elements() == 1) {
            return false;
        }
        let from: usize = operands.iter().flatten().map(|data| data.bytes.len()).sum();
        let size = shape.iter().try_fold(self.graph.ty(output).dtype.size(), |n, &d| n.checked_mul(d));
        let Some(size) = size.filter(|&size| size <= SMALL.max(GROWTH.saturating_mul(from))) else {
            return false;
        };
        let operands: Vec<Option<&TensorData>> = operands.iter().map(Option::as_ref).collect();
        let Ok(provenance) = self.provenance(node, &operands) else {
            return false;
        };
        // The same bytes in other dims cost nothing.
        let bytes = if folding == Folding::Free { 0 } else { size as u64 };
        let Some(cost) = folding.cost(&operands, crate::data::elements(&shape)) else {
            return false;
        };
        let budget = &self.graph.budget;
        if node.inputs.is_empty() || !budget.elements.take(cost) || !budget.bytes.take(bytes) {
            return false;
        }
        let Some(data) = node.op.evaluate(&operands).and_then(|mut outputs| outputs.pop()) else {
            return false;
        };
        let source = node.inputs.first().copied().flatten().filter(|_| node.op.result() == Outcome::LaidOut);
        let name = source.and_then(|input| self.graph.constant(input)?.name.clone());
        self.become_constant(id, output, (name, provenance), data);
        true
    }

    /// How the result of an operation on constants is made of parameters. `Err` when no checkpoint could be taken any more
    /// after folding, since its loader could not repeat the operation: it runs with the model then.
    fn provenance(
        &self,
        node: &Node,
        operands: &[Option<&TensorData>],
    ) -> Result<Option<Arc<Provenance>>, ()> {
        let sources: Vec<_> = node
            .inputs
            .iter()
            .zip(operands)
            .filter_map(|(input, data)| Some((self.graph.provenance((*input)?), (*data)?)))
            .collect();
        let provenance = Provenance::of_operation(&node.op, &sources);
        let told = |made: &Arc<Provenance>| !made.is_exporters();
        let lost = provenance.as_ref().is_some_and(|made| made.is_loss())
            && sources.iter().filter_map(|(made, _)| made.as_ref()).all(told);
        // Buffers of integers are the network's structure: what is made of them is known from the graph.
        let floats = sources.iter().any(|(made, data)| made.is_some() && data.dtype.is_float());
        match (lost, floats) {
            (true, true) => Err(()),
            (true, false) => Ok(None),
            (false, _) => Ok(provenance),
        }
    }

    /// Whether folding would lose a parameter: a table that is looked up in, and, when the model is to be trained, any
    /// that is more than laid out anew.
    fn keeps_parameter(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let parameter = |input: &Option<ValueId>| {
            input.and_then(|id| self.graph.constant(id)).is_some_and(|constant| {
                let several = constant.name.is_some() && constant.data.num_elements() > 1;
                // One number may be a parameter too; a literal that an exporter named is none.
                let learnt = self.trainable && constant.provenance.is_some();
                constant.data.dtype.is_float() && (several || learnt)
            })
        };
        match node.op.result() {
            // What the layers' own parameters look like, but for those that would be rounded.
            Outcome::LaidOut if self.narrows(node) => self.trainable && node.inputs.iter().any(parameter),
            Outcome::LaidOut | Outcome::Joined => false,
            Outcome::LookedUp => node.inputs.first().is_some_and(parameter),
            Outcome::Made | Outcome::Repeated | Outcome::Computed | Outcome::Unknown => {
                self.trainable && node.inputs.iter().any(parameter)
            }
        }
    }

    /// Whether floats become narrower ones.
    fn narrows(&self, node: &Node) -> bool {
        let (Op::Cast(Cast { to }), &[Some(x)]) = (&node.op, node.inputs.as_slice()) else { return false };
        let from = self.graph.ty(x).dtype;
        from.is_float() && to.is_float() && to.size() < from.size()
    }

    /// Contents of a constant, or of a small value that is made from literals.
    fn data(&self, id: ValueId) -> Option<TensorData> {
        if let Some(constant) = self.graph.constant(id) {
            return Some(constant.data.clone());
        }
        let node = self.graph.node(self.graph.producer(id)?);
        let shape = self.graph.ty(id).shape()?;
        let size = shape.iter().try_fold(self.graph.ty(id).dtype.size(), |n, &d| n.checked_mul(d))?;
        let is_made = node.op.result() == Outcome::Made && size <= SMALL;
        if is_made { node.op.evaluate(&[])?.pop() } else { None }
    }

    fn become_constant(
        &mut self,
        id: NodeId,
        output: ValueId,
        (name, provenance): (Option<String>, Option<Arc<Provenance>>),
        data: TensorData,
    ) {
        self.report.count(self.graph.node(id).op.kind());
        let constant = self.graph.add_derived(name, data, provenance);
        let Value { ty, def, host, .. } = self.graph.value(constant).clone();
        let value = self.graph.value_mut(output);
        (value.ty, value.def) = (ty, def);
        value.host = host.or_else(|| value.host.take());
    }

    /// A tensor of integers that are known as expressions is made from them, not computed as a tensor.
    fn place_on_host(&mut self, id: NodeId, nodes: &mut Vec<NodeId>) {
        let node = self.graph.node(id);
        let (&[output], true) = (node.outputs.as_slice(), node.op.effect().is_repeatable()) else {
            return;
        };
        let made = matches!(node.op.result(), Outcome::Made | Outcome::Unknown);
        let value = self.graph.value(output);
        let (Some(values), Some(dims), false) = (value.host.clone(), value.ty.shape(), made) else {
            return;
        };
        if let Op::Cast(_) = node.op
            && node.inputs[0]
                .and_then(|x| self.graph.producer(x))
                .is_some_and(|producer| matches!(self.graph.node(producer).op, Op::HostTensor(_)))
        {
            return;
        }
        // Integers that are read back from this very tensor.
        let read = |symbol: &Symbol| match self.graph.symbols.get(symbol) {
            Some(SymbolOrigin::Read { node, .. }) => self.graph.node(*node).inputs.contains(&Some(output)),
            _ => false,
        };
        if values.iter().flat_map(Dim::symbols).any(|symbol| read(&symbol)) {
            return;
        }
        // Arithmetic that has grown too large stays in tensors, as no operation holds it.
        if values.iter().any(Dim::is_beyond) {
            return;
        }
        self.report.count("placed on the host");
        let dtype = value.ty.dtype;
        let tensor = Op::HostTensor(HostTensor { values: values.clone(), dims: dims.clone() });
        if dtype == DType::I64 {
            let node = self.graph.node_mut(id);
            (node.op, node.inputs) = (tensor, Vec::new());
            return;
        }
        let origin = node.origin.clone();
        let made = self.graph.add_node(tensor, Vec::new(), vec![TensorType::new(DType::I64, dims)], origin);
        let integers = self.graph.node(made).outputs[0];
        self.graph.value_mut(integers).host = Some(values);
        nodes.push(made);
        let node = self.graph.node_mut(id);
        (node.op, node.inputs) = (Op::Cast(Cast { to: dtype }), vec![Some(integers)]);
    }

    /// Layers hold their parameters as constants, so those that are made from one value become such.
    fn materialize_parameters(&mut self, id: NodeId) {
        for &n in self.graph.node(id).op.parameters() {
            let Some(input) = self.graph.node(id).inputs.get(n).copied().flatten() else {
                continue;
            };
            if self.graph.constant(input).is_none()
                && let Some(data) = self.data(input)
                && self.graph.budget.bytes.take(data.bytes.len() as u64)
            {
                let constant = self.graph.add_constant(None, data);
                self.graph.node_mut(id).inputs[n] = Some(constant);
                self.report.count("parameters of one value");
            }
        }
    }
}

impl Graph {
    /// Replaces a symbol everywhere by a dim, and forgets it.
    pub fn substitute(&mut self, symbol: &Symbol, dim: &Dim) {
        self.substitute_all(&BTreeMap::from([(symbol.clone(), dim.clone())]));
    }

    /// Likewise, of several symbols.
    fn substitute_all(&mut self, dims: &BTreeMap<Symbol, Dim>) {
        if dims.is_empty() {
            return;
        }
        let lookup = |symbol: &Symbol| dims.get(symbol).cloned();
        for value in &mut self.values {
            for dim in value.ty.dims.iter_mut().chain(value.host.iter_mut().flatten()) {
                *dim = dim.substitute(&lookup);
            }
        }
        for node in &mut self.nodes {
            node.op.map_dims(&mut |dim| dim.substitute(&lookup));
        }
        for symbol in dims.keys() {
            self.symbols.remove(symbol);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Expand, Permute, Repeat, Reshape, Softmax};
    use crate::passes::testing::{constant, graph, optimized, single};

    #[test]
    fn layout_changes_keep_the_name() {
        let g = graph(&["f32[n, 3]"], |b, x| {
            let weight = constant(b, Some("fc.weight"), &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let turned = b.add(Op::Permute(Permute { axes: vec![1, 0] }), &[weight]).unwrap();
            vec![b.add(Op::MatMul, &[x[0], turned]).unwrap()]
        });
        let g = optimized(g);
        let node = single(&g);
        let constant = g.constant(node.inputs[1].unwrap()).unwrap();
        assert_eq!(constant.name.as_deref(), Some("fc.weight"));
        assert_eq!(constant.data, TensorData::new(vec![1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0], [3, 2]));
    }

    #[test]
    fn what_a_checkpoint_could_not_repeat_stays() {
        let g = graph(&["f32[n, 3]"], |b, x| {
            let mix = constant(b, Some("mix"), &[1, 3], &[1.0, 2.0, 3.0]);
            let shares = b.add(Op::Softmax(Softmax { axis: 1 }), &[mix]).unwrap();
            let tied = constant(b, None, &[1, 3], &[1.0, 2.0, 3.0]);
            let known = b.add(Op::Softmax(Softmax { axis: 1 }), &[tied]).unwrap();
            let y = b.add(Op::Binary(kiln_types::BinaryOp::Mul), &[x[0], shares]).unwrap();
            vec![b.add(Op::Binary(kiln_types::BinaryOp::Div), &[y, known]).unwrap()]
        });
        let g = optimized(g);
        let kinds: Vec<String> = g.root.nodes.iter().map(|&id| g.node(id).op.kind()).collect();
        assert_eq!(kinds, ["Softmax", "Binary(Mul)", "Binary(Div)"], "{g}");
    }

    /// Arithmetic on sizes that has grown too large for one expression is computed as tensors.
    #[test]
    fn what_has_grown_too_large_is_not_placed_on_the_host() {
        let g = graph(&["f32[n, 3]"], |b, _| {
            let n = b.host_tensor(vec![Dim::symbol("n")], Vec::new()).unwrap();
            let two = b.host_tensor(vec![2.into()], Vec::new()).unwrap();
            let mut sum = n;
            for _ in 0..105 {
                let half = b.add(Op::Binary(kiln_types::BinaryOp::Div), &[sum, two]).unwrap();
                sum = b.add(Op::Binary(kiln_types::BinaryOp::Add), &[half, n]).unwrap();
            }
            vec![sum]
        });
        let g = optimized(g);
        let is_grown = |op: &Op| {
            let mut is_beyond = false;
            op.for_each_dim(&mut |dim| is_beyond |= dim.is_beyond());
            is_beyond
        };
        assert!(!g.root.nodes.iter().any(|&id| is_grown(&g.node(id).op)), "{g}");
        assert!(g.root.nodes.iter().any(|&id| matches!(g.node(id).op, Op::Binary(_))), "{g}");
    }

    #[test]
    fn one_value_is_not_spread_out() {
        let g = graph(&[], |b, _| {
            let one = constant(b, None, &[], &[1.0]);
            let flat = b.add(Op::Reshape(Reshape { dims: vec![1.into(), 1.into()] }), &[one]).unwrap();
            let dims = vec![1024.into(), 1024.into()];
            vec![b.add(Op::Expand(Expand { dims }), &[flat]).unwrap()]
        });
        assert!(matches!(single(&optimized(g)).op, Op::Fill(_)));
    }

    #[test]
    fn shape_arithmetic_leaves_no_tensors() {
        let g = graph(&["f32[n, 6]"], |b, x| {
            let shape = b.host_tensor(vec![Dim::symbol("n"), 6.into()], vec![2]).unwrap();
            let two = b.constant(TensorData::new(vec![2i64], [1]));
            let twice = b.add(Op::Binary(kiln_types::BinaryOp::Mul), &[shape, two]).unwrap();
            let dims = b.host(twice, "dims").unwrap();
            let wide = b.add(Op::Repeat(Repeat { times: vec![2.into(), 2.into()] }), &[x[0]]).unwrap();
            let y = b.add(Op::Reshape(Reshape { dims }), &[wide]).unwrap();
            vec![y, twice]
        });
        let g = optimized(g);
        let kinds: Vec<String> = g.root.nodes.iter().map(|&id| g.node(id).op.kind()).collect();
        assert_eq!(kinds, ["HostTensor", "Repeat"], "{g}");
    }
}
