//! Where data decides what runs: values read back from the device, the choice between two regions, and loops.

use super::prelude::*;
use crate::ir::{Graph, Op, Region, Symbol, SymbolOrigin, ValueId};
use std::collections::BTreeSet;

attributes! {
    /// Reads a small integer or bool tensor of known shape back, defining symbols; no outputs. Only where shapes or control
    /// flow depend on data.
    pub struct HostRead {
        /// One per element, row-major.
        pub symbols: Vec<Symbol>,
    }
}

impl Operation for HostRead {
    facts!(operands: ["x"], effect: Control, folding: Never, result: Unknown);
    none!(host, evaluate, derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need("x", x, !x.dtype.is_float(), "expected an integer or bool")?;
        if !x.num_elements().is(i64::try_from(self.symbols.len()).unwrap_or(i64::MAX)) {
            return Err(RuleError::NotConstant { input: format!("shape of {x}") });
        }
        Ok(Vec::new())
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Control
    }
}

attributes! {
    /// One of two regions, which use values around them; outputs as the regions'.
    pub struct If {
        /// 0 is false.
        pub condition: Dim,
        /// When not 0.
        #[serde(skip)]
        pub then_region: Region,
        /// When 0.
        #[serde(skip)]
        pub else_region: Region,
    }
}

impl Operation for If {
    facts!(operands: [], effect: Control, folding: Never, result: Unknown);
    none!(host, evaluate, derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        // Outputs of a choice between two regions: what both agree on; a size that differs is known only at run time.
        let (then_region, else_region) = (&self.then_region, &self.else_region);
        if then_region.outputs.len() != else_region.outputs.len() {
            return Err(RuleError::Attribute {
                attribute: "then_branch".into(),
                reason: format!(
                    "yields {} values, else_branch {}",
                    then_region.outputs.len(),
                    else_region.outputs.len()
                ),
            });
        }
        let mut types = Vec::with_capacity(then_region.outputs.len());
        for (&a, &b) in then_region.outputs.iter().zip(&else_region.outputs) {
            let (a, b) = (cx.graph().ty(a), cx.graph().ty(b));
            same_dtype("then_branch", a, "else_branch", b)?;
            if a.rank() != b.rank() {
                return Err(dims_error("ranks of the branches' outputs", a, b));
            }
            let join =
                a.dims.iter().zip(&b.dims).map(|(x, y)| if x == y { x.clone() } else { cx.fresh("dim") });
            types.push(a.with_dims(join.collect()));
        }
        Ok(types)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Control
    }
}

attributes! {
    /// A region again and again. Its parameters are what a round begins with: the operands first, then what the round before
    /// yielded. The region yields those, then what each round leaves; the outputs are what the last round yielded (the
    /// operands after no round), then all that the rounds left, joined along a new first axis.
    ///
    /// A region that decides itself whether another round follows has a [`LoopCondition`].
    pub struct Loop {
        /// The most rounds; none where it is negative, and any number where there is none.
        pub trip_count: Option<Dim>,
        /// Whether the first round runs; 0 is false.
        pub condition: Dim,
        /// The number of rounds before the one in hand, known inside the region.
        pub iteration: Symbol,
        /// What a round does.
        #[serde(skip)]
        pub body: Region,
    }
}

impl Loop {
    /// What the body says of another round, if it has a say.
    pub fn again<'g>(&self, graph: &'g Graph) -> Option<&'g Dim> {
        self.body.nodes.iter().rev().find_map(|&id| match &graph.node(id).op {
            Op::LoopCondition(LoopCondition { condition }) => Some(condition),
            _ => None,
        })
    }

    /// How many rounds run, where that is known before the first.
    pub fn rounds(&self, graph: &Graph) -> Option<Dim> {
        let trip_count = self.trip_count.as_ref().filter(|_| self.condition.is(1))?;
        self.again(graph).is_none().then(|| graph.maximum(trip_count, &Dim::constant(0)))
    }

    /// The sizes of what each round leaves, for all of that; `None` for a size that rounds decide.
    pub fn left_dims(&self, graph: &Graph) -> Vec<Vec<Option<Dim>>> {
        let left = self.body.outputs.get(self.body.parameters.len()..).unwrap_or_default();
        if left.is_empty() {
            return Vec::new();
        }
        let inside = self.symbols_inside(graph);
        let known = |dim: &Dim| dim.symbols().iter().all(|symbol| !inside.contains(symbol));
        let dims = |&value: &ValueId| {
            graph.ty(value).dims.iter().map(|dim| known(dim).then(|| dim.clone())).collect()
        };
        left.iter().map(dims).collect()
    }

    /// The symbols that mean nothing outside the body.
    fn symbols_inside(&self, graph: &Graph) -> BTreeSet<Symbol> {
        let mut inside = BTreeSet::from([self.iteration.clone()]);
        let mut regions = vec![&self.body];
        while let Some(region) = regions.pop() {
            let outputs = region.nodes.iter().flat_map(|&id| &graph.node(id).outputs);
            for &value in region.parameters.iter().chain(outputs) {
                for (axis, symbol) in graph.ty(value).dims.iter().map(Dim::as_symbol).enumerate() {
                    let here = SymbolOrigin::Dim { value, axis };
                    inside.extend(symbol.filter(|&symbol| graph.symbols.get(symbol) == Some(&here)).cloned());
                }
            }
            for &id in &region.nodes {
                let op = &graph.node(id).op;
                match op {
                    Op::HostRead(HostRead { symbols }) => inside.extend(symbols.iter().cloned()),
                    Op::Loop(Loop { iteration, .. }) => inside.extend([iteration.clone()]),
                    _ => {}
                }
                regions.extend(op.regions());
            }
        }
        inside
    }
}

impl Operation for Loop {
    facts!(operands: ["carried*"], effect: Control, folding: Never, result: Unknown);
    none!(host, evaluate, derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let graph = cx.graph();
        let Region { parameters, outputs, .. } = &self.body;
        let wrong = |reason: String| RuleError::Attribute { attribute: "body".into(), reason };
        if parameters.len() != cx.len() || outputs.len() < cx.len() {
            let (takes, yields) = (parameters.len(), outputs.len());
            let reason = format!("takes {takes} values and yields {yields} where {} are carried", cx.len());
            return Err(wrong(reason));
        }
        let mut types = Vec::with_capacity(outputs.len());
        for (n, (&parameter, &output)) in parameters.iter().zip(outputs).enumerate() {
            let (before, parameter_ty, after) = (cx.ty(n)?, graph.ty(parameter), graph.ty(output));
            for (what, ty) in [("a round begins with it as", before), ("a round yields it as", after)] {
                if ty.dtype != parameter_ty.dtype || ty.rank() != parameter_ty.rank() {
                    let reason = format!("carries {parameter_ty}, {what} {ty}; dtype and rank must stay");
                    return Err(wrong(reason));
                }
            }
            let mut dims = Vec::with_capacity(before.rank());
            for (axis, dim) in parameter_ty.dims.iter().enumerate() {
                // Where any size will do in the body, rounds may change it.
                let here = SymbolOrigin::Dim { value: parameter, axis };
                let free = dim.as_symbol().is_some_and(|symbol| graph.symbols.get(symbol) == Some(&here));
                let sizes = (dim.as_constant(), after.dims.get(axis).and_then(Dim::as_constant));
                if let (Some(size), Some(other)) = sizes
                    && size != other
                {
                    return Err(wrong(format!("carries {parameter_ty}, a round yields it as {after}")));
                }
                dims.push(if free { cx.fresh("dim") } else { dim.clone() });
            }
            types.push(parameter_ty.with_dims(dims));
        }
        let left = outputs.get(cx.len()..).unwrap_or_default();
        // All that is left has one for each round.
        let rounds = match self.rounds(graph) {
            None if !left.is_empty() => cx.fresh("rounds"),
            known => known.unwrap_or(Dim::constant(0)),
        };
        for (&output, inner) in left.iter().zip(self.left_dims(graph)) {
            let mut dims = vec![rounds.clone()];
            dims.extend(inner.into_iter().map(|dim| dim.unwrap_or_else(|| cx.fresh("dim"))));
            types.push(graph.ty(output).with_dims(dims));
        }
        Ok(types)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Control
    }
}

attributes! {
    /// Whether another round of the loop around follows, for which the one in hand is finished first: a node of its body,
    /// without outputs.
    pub struct LoopCondition {
        /// 0 is false.
        pub condition: Dim,
    }
}

impl Operation for LoopCondition {
    facts!(operands: [], effect: Control, folding: Never, result: Unknown);
    none!(host, evaluate, derivation, loops);

    fn infer(&self, _: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(Vec::new())
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Control
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run;
    use crate::ir::{Builder, Cast, Concat, HostTensor};
    use kiln_types::{BinaryOp, CompareOp, DType, ReduceOp};

    /// `x` grows by its sum in each round, until that is at least `bound` or there were `most` rounds; each round leaves its
    /// number and the sum.
    fn growing(most: Option<i64>) -> Graph {
        let mut graph = Graph { name: "growing".into(), ..Graph::default() };
        let mut b = Builder::new(&mut graph);
        let x = b.input("x", TensorType::new(DType::F32, [Dim::symbol("n")]));
        let bound = b.input("bound", TensorType::new(DType::F32, [0usize; 0]));
        let open = b.open_loop(&[(x, vec![true])]);
        let parameter = open.parameters[0];
        let sum = super::super::Reduce { op: ReduceOp::Sum, axes: vec![0], keep_dims: true };
        let sum = b.add(Op::Reduce(sum), &[parameter]).unwrap();
        let longer = b.add(Op::Concat(Concat { axis: 0 }), &[parameter, sum]).unwrap();
        let scalar = b.add(Op::Reshape(super::super::Reshape { dims: Vec::new() }), &[sum]).unwrap();
        let less = b.add(Op::Compare(CompareOp::Lower), &[scalar, bound]).unwrap();
        let again = b.host(less, "again").unwrap().remove(0);
        b.add_all(Op::LoopCondition(LoopCondition { condition: again }), Vec::new()).unwrap();
        let number = HostTensor { values: vec![Dim::symbol(open.iteration.clone())], dims: Vec::new() };
        let number = b.add(Op::HostTensor(number), &[]).unwrap();
        let number = b.add(Op::Cast(Cast { to: DType::F32 }), &[number]).unwrap();
        let left = b.add(Op::Binary(BinaryOp::Add), &[number, scalar]).unwrap();
        let limits = (most.map(Dim::constant), Dim::constant(1));
        let outputs = b.close_loop(open, limits, vec![longer, left]).unwrap();
        let nodes = b.nodes;
        graph.root.nodes = nodes;
        graph.root.outputs = outputs;
        graph.output_names = vec!["longer".into(), "left".into()];
        graph
    }

    #[test]
    fn rounds_carry_and_leave() {
        let inputs = [TensorData::new(vec![1f32, 2.0], [2]), TensorData::new(vec![10f32], [0usize; 0])];
        let without: (&[f32], &[f32]) = (&[1.0, 2.0, 3.0, 6.0, 12.0], &[3.0, 7.0, 14.0]);
        let cases = [
            (None, without),
            (Some(9), without),
            (Some(1), (&[1.0, 2.0, 3.0], &[3.0])),
            (Some(0), (&[1.0, 2.0], &[])),
        ];
        for (most, (longer, left)) in cases {
            let graph = growing(most);
            assert_eq!(graph.verify(), Ok(()), "{graph}");
            let found = run(&graph, &inputs).unwrap();
            let expected = [longer, left].map(|values| TensorData::new(values.to_vec(), [values.len()]));
            assert_eq!(found, expected, "{most:?}");
            let text = graph.to_text();
            assert_eq!(Graph::parse(&text).unwrap().to_text(), text);
        }
    }

    #[test]
    fn what_is_carried_keeps_its_dtype_and_rank() {
        let mut graph = Graph::default();
        let mut b = Builder::new(&mut graph);
        let x = b.input("x", TensorType::new(DType::F32, [3usize]));
        let limits = || (Some(Dim::constant(2)), Dim::constant(1));
        let mut close = |make: &dyn Fn(&mut Builder<'_>, ValueId) -> Vec<ValueId>| {
            let open = b.open_loop(&[(x, vec![false])]);
            let outputs = make(&mut b, open.parameters[0]);
            b.close_loop(open, limits(), outputs).map_err(|error| error.to_string())
        };
        let cast = |b: &mut Builder<'_>, x| vec![b.add(Op::Cast(Cast { to: DType::I64 }), &[x]).unwrap()];
        let longer = |b: &mut Builder<'_>, x| vec![b.add(Op::Concat(Concat { axis: 0 }), &[x, x]).unwrap()];
        assert!(close(&cast).unwrap_err().contains("dtype and rank must stay"));
        assert!(close(&longer).unwrap_err().contains("carries f32[3], a round yields it as f32[6]"));
        assert!(close(&|_, _| Vec::new()).unwrap_err().contains("yields 0 where 1 are carried"));
        assert!(close(&|_, x| vec![x, x]).is_ok());
    }
}
