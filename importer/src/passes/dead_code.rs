//! Removes what no result needs.

use super::{Pass, PassReport};
use crate::ir::{Constant, Graph, Loop, NodeId, Op, Region, Symbol, SymbolOrigin, Value, ValueDef, ValueId};
use std::collections::BTreeSet;

/// Removes nodes whose outputs nobody uses, and the contents of constants nobody uses.
pub(super) struct RemoveDeadCode;

impl Pass for RemoveDeadCode {
    fn name(&self) -> &'static str {
        "dead code"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        for kind in remove(graph) {
            report.count(kind);
        }
        report
    }
}

/// Removes dead nodes; the kinds of what was removed.
pub(super) fn remove(graph: &mut Graph) -> Vec<String> {
    let mut live = Liveness {
        graph,
        nodes: vec![false; graph.nodes.len()],
        values: vec![false; graph.values.len()],
        symbols: BTreeSet::new(),
    };
    live.outputs(&graph.root);
    let (nodes, values) = (live.nodes, live.values);
    let mut root = std::mem::take(&mut graph.root);
    let mut removed = Vec::new();
    keep(graph, &mut root, &Live { nodes: &nodes, values: &values }, &mut removed);
    graph.root = root;
    drop_constants(graph, &values);
    forget_contents(graph, &nodes, &values);
    removed
}

/// Forgets contents that are known by symbols whose origin is gone: nothing could be made from them any more.
fn forget_contents(graph: &mut Graph, nodes: &[bool], values: &[bool]) {
    let gone = |origin: &SymbolOrigin| match origin {
        SymbolOrigin::Read { node, .. } | SymbolOrigin::Iteration { node } => !nodes[node.index()],
        SymbolOrigin::Dim { value, .. } => {
            !values[value.index()] && !matches!(graph.value(*value).def, ValueDef::Input(_))
        }
    };
    let gone: BTreeSet<Symbol> =
        graph.symbols.iter().filter(|(_, origin)| gone(origin)).map(|(symbol, _)| symbol.clone()).collect();
    if gone.is_empty() {
        return;
    }
    for value in &mut graph.values {
        if value.host.iter().flatten().any(|dim| dim.symbols().iter().any(|symbol| gone.contains(symbol))) {
            value.host = None;
        }
    }
}

struct Liveness<'a> {
    graph: &'a Graph,
    /// Whether each node is needed.
    nodes: Vec<bool>,
    /// Whether each value is.
    values: Vec<bool>,
    symbols: BTreeSet<Symbol>,
}

impl Liveness<'_> {
    /// Results of a region. Its other nodes live only if a result needs them.
    fn outputs(&mut self, region: &Region) {
        let mut work = region.outputs.clone();
        while let Some(value) = work.pop() {
            if std::mem::replace(&mut self.values[value.index()], true) {
                continue;
            }
            if let ValueDef::Node(node, n) | ValueDef::RegionParameter(node, n) = self.graph.value(value).def
            {
                self.node(node, &mut work);
                self.place_in_loop(node, n as usize, &mut work);
            }
        }
    }

    /// Of what a loop carries and of what its rounds leave, only that lives which something needs: the `n`-th.
    fn place_in_loop(&self, id: NodeId, n: usize, work: &mut Vec<ValueId>) {
        let node = self.graph.node(id);
        if let Op::Loop(Loop { body, .. }) = &node.op {
            work.extend(body.outputs.get(n));
            work.extend(node.inputs.get(n).into_iter().flatten());
        }
    }

    fn node(&mut self, id: NodeId, work: &mut Vec<ValueId>) {
        if std::mem::replace(&mut self.nodes[id.index()], true) {
            return;
        }
        let graph = self.graph;
        let node = graph.node(id);
        if let Op::Loop(Loop { body, .. }) = &node.op {
            let ends = |id: &&NodeId| matches!(graph.node(**id).op, Op::LoopCondition(_));
            body.nodes.iter().filter(ends).for_each(|&id| self.node(id, work));
        } else {
            work.extend(node.inputs.iter().flatten());
            work.extend(node.op.regions().into_iter().flat_map(|region| &region.outputs));
        }
        for symbol in node.op.symbols() {
            if !self.symbols.insert(symbol.clone()) {
                continue;
            }
            match graph.symbols.get(&symbol) {
                Some(&SymbolOrigin::Dim { value, .. }) => work.push(value),
                Some(&(SymbolOrigin::Read { node, .. } | SymbolOrigin::Iteration { node })) => {
                    self.node(node, work)
                }
                None => {}
            }
        }
    }
}

/// What is needed.
struct Live<'l> {
    nodes: &'l [bool],
    values: &'l [bool],
}

/// Keeps the live nodes of a region.
fn keep(graph: &mut Graph, region: &mut Region, live: &Live<'_>, removed: &mut Vec<String>) {
    region.nodes.retain(|&id| {
        let alive = live.nodes[id.index()];
        if !alive {
            removed.push(graph.node(id).op.kind());
        }
        alive
    });
    for &id in &region.nodes {
        keep_carried(graph, id, live, removed);
        let mut inner: Vec<Region> =
            graph.node_mut(id).op.regions_mut().into_iter().map(std::mem::take).collect();
        for region in &mut inner {
            keep(graph, region, live, removed);
        }
        for (slot, kept) in graph.node_mut(id).op.regions_mut().into_iter().zip(inner) {
            *slot = kept;
        }
    }
}

/// Keeps what is needed of what a loop carries and of what its rounds leave.
fn keep_carried(graph: &mut Graph, id: NodeId, live: &Live<'_>, removed: &mut Vec<String>) {
    let node = graph.node(id);
    let Op::Loop(Loop { body, .. }) = &node.op else {
        return;
    };
    let needed = |values: &[ValueId], n: usize| values.get(n).is_some_and(|value| live.values[value.index()]);
    let kept: Vec<bool> =
        (0..node.outputs.len()).map(|n| needed(&node.outputs, n) || needed(&body.parameters, n)).collect();
    let unneeded = kept.iter().filter(|kept| !**kept).count();
    if unneeded == 0 {
        return;
    }
    removed.extend(std::iter::repeat_n("part of a loop".to_owned(), unneeded));
    let node = graph.node_mut(id);
    retain(&mut node.inputs, &kept);
    retain(&mut node.outputs, &kept);
    let outputs = node.outputs.clone();
    let mut parameters = Vec::new();
    for body in node.op.regions_mut() {
        retain(&mut body.parameters, &kept);
        retain(&mut body.outputs, &kept);
        parameters.clone_from(&body.parameters);
    }
    for (n, value) in outputs.into_iter().enumerate() {
        graph.value_mut(value).def = ValueDef::Node(id, n as u32);
    }
    for (n, value) in parameters.into_iter().enumerate() {
        graph.value_mut(value).def = ValueDef::RegionParameter(id, n as u32);
    }
}

/// Keeps the items of a list that a flag says.
fn retain<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    items.retain(|_| kept.next().copied().unwrap_or(true));
}

/// Lets go of the bytes of constants that nothing uses: a pass may have made new weights from them.
fn drop_constants(graph: &mut Graph, live: &[bool]) {
    let mut used = vec![false; graph.constants.len()];
    for (value, live) in graph.values.iter().zip(live) {
        if let ValueDef::Constant(constant) = value.def
            && let Some(used) = used.get_mut(constant.index())
        {
            *used |= live;
        }
    }
    for value in &mut graph.values {
        let ValueDef::Constant(id) = value.def else {
            continue;
        };
        if let (Some(false), Some(constant)) = (used.get(id.index()), graph.constants.get_mut(id.index()))
            && !is_dropped(value, constant)
        {
            constant.data.bytes = kiln_types::Bytes::default();
            constant.data.shape = vec![0];
            constant.name = None;
            constant.provenance = None;
            value.ty.dims = vec![crate::ir::Dim::constant(0)];
            value.host = None;
        }
    }
}

/// Whether a constant holds nothing, and a value of it says so: it was let go of before.
fn is_dropped(value: &Value, constant: &Constant) -> bool {
    let is_empty = matches!(value.ty.dims.as_slice(), [dim] if dim.as_constant() == Some(0));
    is_empty && value.host.is_none() && constant.name.is_none() && constant.provenance.is_none()
}

#[cfg(test)]
mod tests {
    use crate::ir::{Builder, Dim, Graph, If, Op, Region, Repeat, TensorType, ValueId};
    use crate::passes::testing::{constant, graph, kinds, optimized};
    use kiln_types::{BinaryOp, DType, UnaryOp};

    #[test]
    fn what_a_size_is_read_from_lives() {
        let g = graph(&["f32[n, 3]", "i64[1]"], |b, x| {
            let one = b.constant(kiln_types::TensorData::new(vec![1i64], [1]));
            let count = b.add(Op::Binary(BinaryOp::Add), &[x[1], one]).unwrap();
            let unused = b.add(Op::Binary(BinaryOp::Mul), &[x[1], one]).unwrap();
            b.host(unused, "unused").unwrap();
            let times = b.host(count, "times").unwrap();
            vec![b.add(Op::Repeat(Repeat { times: vec![times[0].clone(), 1.into()] }), &[x[0]]).unwrap()]
        });
        assert_eq!(kinds(&optimized(g)), ["Binary(Add)", "HostRead", "Repeat"]);
    }

    /// `if condition { sin(exp(x)) } else { exp(x) }`, with something unused inside.
    fn choice(b: &mut Builder<'_>, x: ValueId, condition: Dim) -> ValueId {
        let outer = std::mem::take(&mut b.nodes);
        let mut branch = |sine: bool| {
            let mut y = b.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
            let zero = constant(b, None, &[], &[0.0]);
            b.add(Op::Unary(UnaryOp::Cos), &[y]).unwrap();
            y = b.add(Op::Binary(BinaryOp::Add), &[y, zero]).unwrap();
            if sine {
                y = b.add(Op::Unary(UnaryOp::Sin), &[y]).unwrap();
            }
            Region { parameters: Vec::new(), nodes: std::mem::take(&mut b.nodes), outputs: vec![y] }
        };
        let (then_region, else_region) = (branch(true), branch(false));
        b.nodes = outer;
        b.add(Op::If(If { condition, then_region, else_region }), &[]).unwrap()
    }

    fn inner_kinds(g: &Graph) -> Vec<Vec<String>> {
        let regions = g.root.nodes.iter().flat_map(|&id| g.node(id).op.regions());
        regions.map(|r| r.nodes.iter().map(|&id| g.node(id).op.kind()).collect()).collect()
    }

    #[test]
    fn branches_are_optimized_and_taken_when_decided() {
        let g = graph(&["f32[n, 3]"], |b, x| vec![choice(b, x[0], Dim::symbol("n"))]);
        let g = optimized(g);
        assert_eq!(inner_kinds(&g), [vec!["Unary(Exp)", "Unary(Sin)"], vec!["Unary(Exp)"]]);
        let g = graph(&["f32[n, 3]"], |b, x| {
            let y = choice(b, x[0], Dim::constant(0));
            vec![b.add(Op::Unary(UnaryOp::Tanh), &[y]).unwrap()]
        });
        let g = optimized(g);
        assert_eq!(kinds(&g), ["Unary(Exp)", "Unary(Tanh)"], "{g}");
        assert_eq!(*g.ty(g.root.outputs[0]), TensorType::new(DType::F32, [Dim::symbol("n"), 3.into()]));
    }
}
