//! What is done, in order, and with which tensors: the first stage.

use crate::error::{StandaloneError, Unfit};
use crate::spelling::{self, rust_type};
use crate::{MOST_BYTES, library};
use kiln_codegen::names::comment;
use kiln_importer::ir::{ElementLoop, Graph, KernelArg, Loops, NodeId, ValueDef, ValueId, View};
use kiln_types::{DType, TensorData};
use std::collections::BTreeMap;

/// Index of a tensor in its [`Program`].
pub(crate) type TensorId = usize;

/// Elements that steps read or write. Values of the graph with the same elements in the same order are one tensor.
pub(crate) struct Tensor {
    /// The value that it was made for; nothing for memory that is used in a step alone.
    pub(crate) value: Option<ValueId>,
    pub(crate) dtype: DType,
    /// Number of elements.
    pub(crate) len: usize,
    pub(crate) origin: Origin,
}

/// Where a tensor's elements come from.
pub(crate) enum Origin {
    /// The `n`-th input.
    Input(usize),
    /// They are known.
    Constant(TensorData),
    /// A step computes them.
    Step,
}

/// What is done for a node.
pub(crate) struct Step {
    /// The node; nothing where what is no step's result becomes an output.
    pub(crate) node: Option<NodeId>,
    pub(crate) loops: Loops,
    /// The tensors of the node's operands.
    pub(crate) operands: Vec<Option<TensorId>>,
    pub(crate) results: Vec<TensorId>,
    /// Memory for this step alone.
    pub(crate) scratch: Vec<TensorId>,
    /// Known numbers that a kernel is given.
    pub(crate) known: Vec<TensorId>,
    /// Whether the result is written in the place of the operand that is the same tensor.
    pub(crate) is_in_place: bool,
}

impl Step {
    /// Every tensor that it reads or writes.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = TensorId> {
        self.operands.iter().flatten().chain(&self.results).chain(&self.scratch).copied()
    }
}

/// A small model has at most so many nodes: each tensor looks for memory among all of it.
const MOST_NODES: u64 = 1 << 14;

/// All steps of a model.
pub(crate) struct Program<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) steps: Vec<Step>,
    /// The tensors of the graph's outputs, in order: each is computed by a step, and no two are the same.
    pub(crate) outputs: Vec<TensorId>,
}

impl<'g> Program<'g> {
    /// The steps of a graph's nodes.
    pub(crate) fn new(graph: &'g Graph) -> Result<Self, StandaloneError> {
        let nodes = graph.root.nodes.len() as u64;
        if nodes > MOST_NODES {
            return Err(StandaloneError::TooLarge { what: "nodes", size: nodes, most: MOST_NODES });
        }
        let program = Program { graph, tensors: Vec::new(), steps: Vec::new(), outputs: Vec::new() };
        let mut building = Building { program, of: BTreeMap::new(), unfit: unfit_values(graph) };
        if building.unfit.is_empty() {
            graph.root.nodes.iter().for_each(|&node| building.node(node));
        }
        if !building.unfit.is_empty() {
            return Err(StandaloneError::Unfit(building.unfit));
        }
        building.outputs()?;
        let mut program = building.program;
        program.join_loops();
        program.write_in_place();
        Ok(program)
    }

    /// The last step that reads or writes each tensor.
    pub(crate) fn last_uses(&self) -> Vec<usize> {
        let mut last = vec![0; self.tensors.len()];
        for (at, step) in self.steps.iter().enumerate() {
            step.tensors().for_each(|tensor| last[tensor] = at);
        }
        last
    }

    /// Has elementwise loops write into an operand that nobody reads afterwards: their result becomes that tensor.
    fn write_in_place(&mut self) {
        let mut last = self.last_uses();
        let mut stands_for: Vec<TensorId> = (0..self.tensors.len()).collect();
        for at in 0..self.steps.len() {
            let (step, tensors, outputs) = (&mut self.steps[at], &self.tensors, &mut self.outputs);
            step.operands.iter_mut().flatten().for_each(|tensor| *tensor = stands_for[*tensor]);
            let (&[result], Loops::Elementwise(loops)) = (step.results.as_slice(), &step.loops) else {
                continue;
            };
            let &[ElementLoop { result: ref view, ref operands, .. }] = loops.as_slice() else { continue };
            if *view != View::new(view.dims()) || view.len() != tensors[result].len {
                continue;
            }
            let tensor_of = |n: usize| step.operands.get(n).copied().flatten();
            let is_free = |tensor: TensorId| {
                matches!(tensors[tensor].origin, Origin::Step)
                    && (tensors[tensor].dtype, tensors[tensor].len)
                        == (tensors[result].dtype, tensors[result].len)
                    && last[tensor] == at
                    && !outputs.contains(&tensor)
                    && operands.iter().all(|(n, read)| tensor_of(*n) != Some(tensor) || read == view)
            };
            let Some(tensor) =
                operands.iter().filter_map(|(n, _)| tensor_of(*n)).find(|&tensor| is_free(tensor))
            else {
                continue;
            };
            step.results = vec![tensor];
            step.is_in_place = true;
            stands_for[result] = tensor;
            last[tensor] = last[result];
            outputs.iter_mut().filter(|output| **output == result).for_each(|output| *output = tensor);
        }
    }
}

/// Values that source without a runtime cannot have. Where inputs have sizes that are no numbers, other values have so too, and only inputs are told.
fn unfit_values(graph: &Graph) -> Vec<Unfit> {
    let unfit = |value: ValueId, what: &'static str| {
        let ty = graph.ty(value);
        let (name, text) = (comment(&graph.value(value).name), comment(&ty.to_string()));
        match ty.shape() {
            None => Some(Unfit::Size { what, name, ty: text }),
            Some(_) if rust_type(ty.dtype).is_none() => Some(Unfit::DType { what, name, ty: text }),
            Some(shape) if shape.contains(&0) => Some(Unfit::Empty { what, name, ty: text }),
            Some(shape) => {
                let is_small = ty.dtype.bytes_of(&shape).is_some_and(|bytes| bytes as u64 <= MOST_BYTES);
                (!is_small).then_some(Unfit::Large { what, name, ty: text })
            }
        }
    };
    let inputs: Vec<Unfit> = graph.inputs.iter().filter_map(|&value| unfit(value, "input")).collect();
    if inputs.iter().any(|input| matches!(input, Unfit::Size { .. })) {
        return inputs;
    }
    let used = graph.root.nodes.iter().flat_map(|&node| {
        let node = graph.node(node);
        node.inputs.iter().flatten().chain(&node.outputs).copied()
    });
    let mut values: Vec<ValueId> = used.chain(graph.root.outputs.iter().copied()).collect();
    values.retain(|&value| !matches!(graph.value(value).def, ValueDef::Input(_)));
    values.sort_unstable();
    values.dedup();
    inputs.into_iter().chain(values.into_iter().filter_map(|value| unfit(value, "value"))).collect()
}

/// A program whose steps are being added.
struct Building<'g> {
    program: Program<'g>,
    /// The tensor of each value that has one.
    of: BTreeMap<ValueId, TensorId>,
    unfit: Vec<Unfit>,
}

impl Building<'_> {
    /// Adds what is done for a node.
    fn node(&mut self, id: NodeId) {
        let graph = self.program.graph;
        let node = graph.node(id);
        let operands = node.inputs.iter().map(|&input| match input {
            None => Some(None),
            Some(value) => self.tensor(value).map(Some),
        });
        // What is missing is a result of a node that is reported already.
        let Some(operands) = operands.collect::<Option<Vec<_>>>() else { return };
        let loops = node.op.loops(graph, node);
        match (loops, operands.as_slice(), node.outputs.as_slice()) {
            (Some(Loops::Same), &[Some(same), ..], &[result]) => {
                self.of.insert(result, same);
            }
            (Some(loops), ..) if self.is_spelt(&loops, &operands) => self.step(id, loops, operands),
            (_, operands, &[result]) => {
                match node.op.evaluate(&[]).and_then(|results| results.into_iter().next()) {
                    // What is made of nothing is known.
                    Some(data) if operands.is_empty() => {
                        self.add(Some(result), data.dtype, data.num_elements(), Origin::Constant(data));
                    }
                    Some(_) | None => self.unfit(id),
                }
            }
            _ => self.unfit(id),
        }
    }

    fn unfit(&mut self, id: NodeId) {
        let graph = self.program.graph;
        let operands: Vec<_> = graph.node(id).inputs.iter().flatten().map(|&value| graph.ty(value)).collect();
        self.unfit.push(Unfit::operation(graph.node(id), &operands));
    }

    fn step(&mut self, id: NodeId, loops: Loops, operands: Vec<Option<TensorId>>) {
        let graph = self.program.graph;
        let outputs = &graph.node(id).outputs;
        let results: Vec<TensorId> = outputs.iter().map(|&value| self.computed(value)).collect();
        let dtype = outputs.first().map_or(DType::F32, |&value| graph.ty(value).dtype);
        let lengths: Vec<usize> = match &loops {
            Loops::Kernel(kernel) => kernel.args.iter().filter_map(KernelArg::scratch).collect(),
            Loops::Same | Loops::Elementwise(_) | Loops::Reduction(_) => Vec::new(),
        };
        let scratch = lengths.into_iter().map(|len| self.add(None, dtype, len, Origin::Step)).collect();
        let tables: Vec<TensorData> = match &loops {
            Loops::Kernel(kernel) => kernel.args.iter().filter_map(KernelArg::known).cloned().collect(),
            Loops::Same | Loops::Elementwise(_) | Loops::Reduction(_) => Vec::new(),
        };
        let known = tables
            .into_iter()
            .map(|data| self.add(None, data.dtype, data.num_elements(), Origin::Constant(data)));
        let known = known.collect();
        self.program.steps.push(Step {
            node: Some(id),
            loops,
            operands,
            results,
            scratch,
            known,
            is_in_place: false,
        });
    }

    /// The tensor of a value, where it has one.
    fn tensor(&mut self, value: ValueId) -> Option<TensorId> {
        if let Some(&tensor) = self.of.get(&value) {
            return Some(tensor);
        }
        let graph = self.program.graph;
        let origin = match graph.value(value).def {
            ValueDef::Input(n) => Origin::Input(n as usize),
            ValueDef::Constant(_) => Origin::Constant(graph.constant(value)?.data.clone()),
            ValueDef::Node(..) | ValueDef::RegionParameter(..) => return None,
        };
        let (dtype, len) = (graph.ty(value).dtype, graph.ty(value).num_elements().as_size()?);
        Some(self.add(Some(value), dtype, len, origin))
    }

    /// The tensor of a step's result.
    fn computed(&mut self, value: ValueId) -> TensorId {
        let ty = self.program.graph.ty(value);
        // Sizes were found to be numbers; one beyond all memory is told of when memory is shared out.
        let len = ty.num_elements().as_size().unwrap_or(usize::MAX);
        self.add(Some(value), ty.dtype, len, Origin::Step)
    }

    fn add(&mut self, value: Option<ValueId>, dtype: DType, len: usize, origin: Origin) -> TensorId {
        let id = self.program.tensors.len();
        self.program.tensors.push(Tensor { value, dtype, len, origin });
        if let Some(value) = value {
            self.of.insert(value, id);
        }
        id
    }

    /// Whether Rust has words for it, with operands of these dtypes.
    fn is_spelt(&self, loops: &Loops, operands: &[Option<TensorId>]) -> bool {
        let dtype =
            |n: usize| operands.get(n).copied().flatten().map(|tensor| self.program.tensors[tensor].dtype);
        match loops {
            Loops::Same => true,
            Loops::Reduction(reduction) => {
                dtype(0).is_some_and(|dtype| spelling::reduces(reduction.op, dtype))
            }
            Loops::Elementwise(loops) => loops.iter().all(|element_loop| {
                let dtypes = element_loop.operands.iter().map(|(n, _)| dtype(*n)).collect::<Option<Vec<_>>>();
                dtypes.is_some_and(|dtypes| spelling::is_spelt(&element_loop.expression, &dtypes))
            }),
            Loops::Kernel(kernel) => library::takes(kernel, &dtype),
        }
    }

    /// Gives each output a tensor of its own.
    fn outputs(&mut self) -> Result<(), StandaloneError> {
        let graph = self.program.graph;
        for &value in &graph.root.outputs {
            let mut tensor =
                self.tensor(value).ok_or(StandaloneError::Missing("an output without a value"))?;
            let (dtype, len) = (self.program.tensors[tensor].dtype, self.program.tensors[tensor].len);
            if !matches!(self.program.tensors[tensor].origin, Origin::Step)
                || self.program.outputs.contains(&tensor)
            {
                let operands = vec![Some(tensor)];
                self.program.tensors.push(Tensor { value: Some(value), dtype, len, origin: Origin::Step });
                tensor = self.program.tensors.len() - 1;
                let loops = Loops::copy(View::new(&[len]));
                let results = vec![tensor];
                let (scratch, known) = (Vec::new(), Vec::new());
                let step = Step { node: None, loops, operands, results, scratch, known, is_in_place: false };
                self.program.steps.push(step);
            }
            self.program.outputs.push(tensor);
        }
        Ok(())
    }
}
