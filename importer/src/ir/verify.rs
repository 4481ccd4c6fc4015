//! The invariants of a graph (listed at the head of [`super`]), checked.
//!
//! All violations are collected, so that one run of a broken pass shows everything it broke.

use super::{
    Dim, Graph, Infer, Node, NodeId, Op, Region, Symbol, SymbolOrigin, TensorType, ValueDef, ValueId,
};
use crate::ir::{HostRead, Loop};
use std::collections::BTreeSet;
use std::fmt;

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where: `n7 (Conv, "/layer1/conv1")`, `%12`, `outputs`.
    pub site: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.site, self.what)
    }
}

impl Graph {
    /// Checks every invariant; all violations in order of the nodes.
    pub fn verify(&self) -> Result<(), Vec<Violation>> {
        let mut verifier = Verifier {
            graph: self,
            defined: vec![false; self.values.len()],
            visited: vec![false; self.nodes.len()],
            symbols: BTreeSet::new(),
            violations: Vec::new(),
        };
        verifier.entry();
        verifier.region(&self.root);
        if self.output_names.len() != self.root.outputs.len() {
            let text = format!("{} names for {} values", self.output_names.len(), self.root.outputs.len());
            verifier.violate("outputs", text);
        }
        if verifier.violations.is_empty() { Ok(()) } else { Err(verifier.violations) }
    }
}

struct Verifier<'a> {
    graph: &'a Graph,
    /// Per value: whether it is defined here.
    defined: Vec<bool>,
    /// Per node: whether a region held it already.
    visited: Vec<bool>,
    /// Symbols whose value generated code can compute here.
    symbols: BTreeSet<Symbol>,
    violations: Vec<Violation>,
}

impl<'a> Verifier<'a> {
    fn violate(&mut self, site: impl fmt::Display, what: impl Into<String>) {
        self.violations.push(Violation { site: site.to_string(), what: what.into() });
    }

    /// Inputs and constants.
    fn entry(&mut self) {
        let graph = self.graph;
        for (n, &input) in graph.inputs.iter().enumerate() {
            match graph.values.get(input.index()).map(|value| value.def) {
                Some(ValueDef::Input(i)) if i as usize == n => {
                    self.define(input);
                    self.sizes(input);
                }
                _ => self.violate(input, format!("is input {n} but not defined as such")),
            }
        }
        for (i, value) in graph.values.iter().enumerate() {
            let id = ValueId(i as u32);
            if let ValueDef::Constant(constant) = value.def {
                match graph.constants.get(constant.index()) {
                    Some(constant) => {
                        let ty = TensorType::new(constant.data.dtype, constant.data.shape.iter().copied());
                        if ty != value.ty {
                            self.violate(id, format!("is {} but its constant is {ty}", value.ty));
                        }
                        let size = constant.data.num_elements() * constant.data.dtype.size();
                        if constant.data.bytes.len() != size {
                            let bytes = constant.data.bytes.len();
                            self.violate(id, format!("is {ty} but its constant has {bytes} bytes"));
                        }
                    }
                    None => self.violate(id, format!("names no constant: {constant}")),
                }
                self.defined[i] = true;
            }
            if let Some(host) = &value.host
                && !value.ty.num_elements().is(host.len() as i64)
            {
                self.violate(id, format!("is {} but {} contents are known", value.ty, host.len()));
            }
        }
    }

    fn define(&mut self, id: ValueId) {
        match self.defined.get_mut(id.index()) {
            Some(defined) if !*defined => *defined = true,
            Some(_) => self.violate(id, "is defined twice"),
            None => self.violate(id, "does not exist"),
        }
        // Sizes that can be read off this value.
        if let Some(value) = self.graph.values.get(id.index()) {
            for (axis, dim) in value.ty.dims.iter().enumerate() {
                if let Some(symbol) = dim.as_symbol()
                    && self.graph.symbols.get(symbol) == Some(&SymbolOrigin::Dim { value: id, axis })
                {
                    self.symbols.insert(symbol.clone());
                }
            }
        }
    }

    fn region(&mut self, region: &Region) {
        let outside = (self.defined.clone(), self.symbols.clone());
        for &parameter in &region.parameters {
            self.define(parameter);
        }
        for &id in &region.nodes {
            let Some(node) = self.graph.nodes.get(id.index()) else {
                self.violate(id, "does not exist");
                continue;
            };
            if std::mem::replace(&mut self.visited[id.index()], true) {
                self.violate(site(id, node), "stands in two places");
            }
            self.node(id, node);
        }
        for &output in &region.outputs {
            if !self.is_defined(output) {
                self.violate("outputs", format!("{output} is not defined"));
            }
        }
        (self.defined, self.symbols) = outside;
    }

    fn is_defined(&self, id: ValueId) -> bool {
        self.defined.get(id.index()).copied().unwrap_or(false)
    }

    fn node(&mut self, id: NodeId, node: &'a Node) {
        let mut operands_known = true;
        for &input in node.inputs.iter().flatten() {
            if !self.is_defined(input) {
                operands_known = false;
                self.violate(site(id, node), format!("uses {input} before it is defined"));
            }
        }
        for symbol in node.op.symbols() {
            if !self.symbols.contains(&symbol) {
                self.violate(site(id, node), format!("uses `{symbol}` before its value is known"));
            }
        }
        let mut is_beyond = false;
        node.op.for_each_dim(&mut |dim| is_beyond |= dim.is_beyond());
        if is_beyond {
            self.violate(site(id, node), "holds a size that has grown too large");
        }
        for region in node.op.regions() {
            for (n, &parameter) in region.parameters.iter().enumerate() {
                let def = self.graph.values.get(parameter.index()).map(|value| value.def);
                if def != Some(ValueDef::RegionParameter(id, n as u32)) {
                    self.violate(site(id, node), format!("{parameter} is not defined as its parameter {n}"));
                }
            }
            if let Op::Loop(Loop { iteration, .. }) = &node.op {
                if self.graph.symbols.get(iteration) != Some(&SymbolOrigin::Iteration { node: id }) {
                    self.violate(site(id, node), format!("`{iteration}` does not name it as its origin"));
                }
                self.symbols.insert(iteration.clone());
                self.region(region);
                self.symbols.remove(iteration);
            } else {
                self.region(region);
            }
        }
        if operands_known {
            self.types(id, node);
        }
        for (n, &output) in node.outputs.iter().enumerate() {
            if self.graph.values.get(output.index()).map(|v| v.def) != Some(ValueDef::Node(id, n as u32)) {
                self.violate(site(id, node), format!("{output} is not defined as its output {n}"));
            }
            self.define(output);
        }
        if let Op::HostRead(HostRead { symbols }) = &node.op {
            for (index, symbol) in symbols.iter().enumerate() {
                if self.graph.symbols.get(symbol) != Some(&SymbolOrigin::Read { node: id, index }) {
                    self.violate(site(id, node), format!("`{symbol}` does not name it as its origin"));
                }
                self.symbols.insert(symbol.clone());
            }
        }
    }

    /// The outputs' types must be what inference says; where that makes up a size, any will do.
    fn types(&mut self, id: NodeId, node: &Node) {
        let mut infer = Infer::new(self.graph, &node.inputs);
        let types = match node.op.infer(&mut infer) {
            Ok(types) => types,
            Err(error) => return self.violate(site(id, node), error.to_string()),
        };
        if types.len() != node.outputs.len() {
            let text = format!("has {} outputs, inference says {}", node.outputs.len(), types.len());
            return self.violate(site(id, node), text);
        }
        for (ty, &output) in types.iter().zip(&node.outputs) {
            let Some(value) = self.graph.values.get(output.index()) else {
                continue;
            };
            let fits = ty.dtype == value.ty.dtype
                && ty.rank() == value.ty.rank()
                && ty.dims.iter().zip(&value.ty.dims).all(|(a, b)| Self::same(a, b));
            if !fits {
                self.violate(site(id, node), format!("{output} is {}, inference says {ty}", value.ty));
            }
            self.sizes(output);
        }
    }

    /// Every symbol in a value's sizes must have an origin.
    fn sizes(&mut self, id: ValueId) {
        let graph = self.graph;
        for symbol in graph.ty(id).dims.iter().flat_map(Dim::symbols) {
            if !graph.symbols.contains_key(&symbol) {
                self.violate(id, format!("has a size `{symbol}` of no origin"));
            }
        }
    }

    /// Whether an inferred size and a recorded one agree; sizes with symbols may be known in other words.
    fn same(inferred: &Dim, recorded: &Dim) -> bool {
        inferred == recorded || inferred.as_constant().is_none() || recorded.as_constant().is_none()
    }
}

/// Where a violation is, for people.
fn site(id: NodeId, node: &Node) -> String {
    format!("{id} ({}, {:?})", node.op.kind(), node.origin.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Reshape};
    use kiln_types::{BinaryOp, DType, UnaryOp};

    fn sample() -> Graph {
        let mut graph = Graph { name: "sample".into(), ..Graph::default() };
        let mut b = Builder::new(&mut graph);
        let x = b.input("x", TensorType::new(DType::F32, [Dim::symbol("batch"), Dim::constant(3)]));
        let half = b.constant(kiln_types::TensorData::new(vec![0.5f32], [] as [usize; 0]));
        let scaled = b.add(Op::Binary(BinaryOp::Mul), &[x, half]).unwrap();
        let y = b
            .add(Op::Reshape(Reshape { dims: vec![&Dim::symbol("batch") * &Dim::constant(3)] }), &[scaled])
            .unwrap();
        let nodes = b.nodes;
        graph.root.nodes = nodes;
        graph.root.outputs = vec![y];
        graph.output_names = vec!["y".into()];
        graph
    }

    fn violations(graph: &Graph) -> Vec<String> {
        graph.verify().err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn text_reads_as_a_program() {
        let expected = r#"graph "sample" {
  %0: f32[batch, 3] = input "x"
  symbol batch = dim 0 of %0
  %2: f32[batch, 3] = Binary(Mul) %0, 0.5:f32[]
  %3: f32[3 * batch] = Reshape { dims: [3 * batch] } %2
  return %3
}
"#;
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn every_violation_is_found() {
        assert_eq!(violations(&sample()), [""; 0]);

        let mut graph = sample();
        graph.root.nodes.reverse();
        assert_eq!(violations(&graph), ["n1 (Reshape, \"\"): uses %2 before it is defined"]);

        let mut graph = sample();
        let mut grown = Dim::symbol("batch");
        for n in 0..40 {
            grown = &grown * &grown.maximum(&Dim::constant(3 + n));
        }
        graph.node_mut(NodeId(1)).op = Op::Reshape(Reshape { dims: vec![grown] });
        assert!(violations(&graph).iter().any(|v| v.ends_with("holds a size that has grown too large")));

        let mut graph = sample();
        graph.constants[0].data.bytes = kiln_types::Bytes::default();
        assert_eq!(violations(&graph), ["%1: is f32[] but its constant has 0 bytes"]);

        let mut graph = sample();
        graph.node_mut(NodeId(0)).op = Op::Unary(UnaryOp::IsNan);
        assert_eq!(
            violations(&graph),
            ["n0 (Unary(IsNan), \"\"): not supported: 2 operands where 1 are known"]
        );
        graph.node_mut(NodeId(0)).inputs.truncate(1);
        graph.output_names.clear();
        graph.symbols.clear();
        let found = violations(&graph);
        assert_eq!(found[0], "%0: has a size `batch` of no origin");
        assert!(found[1].contains("%2 is f32[batch, 3], inference says bool[batch, 3]"), "{found:?}");
        assert!(found.iter().any(|v| v.contains("has a size `batch` of no origin")), "{found:?}");
        assert!(found.iter().any(|v| v.contains("uses `batch` before its value is known")), "{found:?}");
        assert!(found.iter().any(|v| v == "outputs: 0 names for 1 values"), "{found:?}");
    }
}
