//! The statements of a module's steps.

use super::{Draft, Parameter, Sharing};
use crate::code::{Block, Callee, Code, CodeBuilder, Literal, Repeat, Statement};
use crate::ids::ModuleId;
use crate::tree::Step;
use crate::{CodegenError, Defect};
use kiln_importer::ir::{Dim, HostRead, If, Loop, NodeId, Op, Region};
use kiln_types::DType;

type Result<T> = std::result::Result<T, CodegenError>;

impl Sharing<'_, '_> {
    /// The statements of a step of a module.
    pub(super) fn statement(
        &self,
        draft: &Draft,
        step: &Step,
        builder: &mut CodeBuilder<'_>,
    ) -> Result<Statement> {
        match step {
            Step::Node(node) => self.node_statement(draft, *node, builder),
            Step::Call(child) => {
                let args = self.call_args(*child, builder)?;
                let callee = self.callee(draft, *child)?;
                let outputs = self.modules[*child].outputs.iter().map(|&value| builder.var(value)).collect();
                Ok(Statement::Bind { outputs, code: Code::Module(callee, args) })
            }
            Step::Loop { modules, carried } => self.loop_statement(draft, modules, *carried, builder),
            Step::Repeat { node, body } => self.repeat_statement(draft, *node, body, builder),
            Step::Branches { node, then, otherwise } => {
                let data = self.tree.graph.node(*node);
                let Op::If(If { condition, then_region, else_region }) = &data.op else {
                    return Err(Defect::node(data, "no branches").into());
                };
                let then = self.branch(draft, then, then_region, builder)?;
                let otherwise = self.branch(draft, otherwise, else_region, builder)?;
                let outputs = data.outputs.iter().map(|&value| builder.var(value)).collect();
                Ok(Statement::If { outputs, condition: condition.clone(), then, otherwise })
            }
        }
    }

    /// Which struct a child has, and where the module in hand holds it.
    fn callee(&self, draft: &Draft, child: ModuleId) -> Result<Callee> {
        let structure = self.structure_of(child)?;
        if self.structs[structure].is_function {
            return Ok(Callee { structure, place: None });
        }
        let place = draft.places.module(self.first_call(child));
        let missing =
            || Defect::module(&self.tree.modules[child].path, "no field in the module that calls it");
        Ok(Callee { structure, place: Some(place.ok_or_else(missing)?) })
    }

    /// A call's arguments: values, literals that differ from call to call, symbols.
    fn call_args(&self, child: ModuleId, builder: &mut CodeBuilder<'_>) -> Result<Vec<Code>> {
        let data = &self.modules[child];
        let mut args: Vec<Code> =
            data.inputs.iter().map(|&value| builder.value(value)).collect::<Result<_>>()?;
        for (value, name) in self.passed(child) {
            args.push(builder.literal_slot(Some(value), Some(name)));
        }
        args.extend(data.body.symbols.iter().cloned().map(Code::Symbol));
        Ok(args)
    }

    /// The literals that a call passes, with their names.
    pub(super) fn passed(&self, child: ModuleId) -> Vec<(Literal, &str)> {
        let data = &self.modules[child];
        let Some(structure) = data.structure else { return Vec::new() };
        let parameters = self.structs[structure].parameters.iter().filter(|parameter| parameter.passed);
        parameters.map(|parameter| (value_of(data, parameter), parameter.name.as_str())).collect()
    }

    fn loop_statement(
        &self,
        draft: &Draft,
        modules: &[ModuleId],
        carried: usize,
        builder: &mut CodeBuilder<'_>,
    ) -> Result<Statement> {
        let &[first, second, ..] = modules else { return Err(Defect::EmptyLoop.into()) };
        let last = modules[modules.len() - 1];
        let mut args = self.call_args(first, builder)?;
        let path = &self.tree.modules[last].path;
        let init =
            args.get_mut(carried).ok_or_else(|| Defect::module(path, "no input that a loop carries"))?;
        let init = std::mem::replace(init, Code::Carried);
        let output = self.modules[last].outputs.first().ok_or_else(|| Defect::module(path, "no output"))?;
        Ok(Statement::Loop {
            output: builder.var(*output),
            init,
            callee: self.callee(draft, first)?,
            again: self.first_call(first) == self.first_call(second),
            times: modules.len(),
            args,
        })
    }

    fn repeat_statement(
        &self,
        draft: &Draft,
        node: NodeId,
        steps: &[Step],
        builder: &mut CodeBuilder<'_>,
    ) -> Result<Statement> {
        let graph = self.tree.graph;
        let data = graph.node(node);
        let Op::Loop(repeated) = &data.op else { return Err(Defect::node(data, "no body").into()) };
        let Loop { trip_count, condition, iteration, body } = repeated;
        let places = body.parameters.len();
        let inputs = data.inputs.iter().flatten();
        let init = inputs.map(|&value| builder.value(value)).collect::<Result<_>>()?;
        let parameters = body.parameters.iter().map(|&value| builder.var(value)).collect();
        // What rounds leave comes first: it may be what the round began with.
        let (carried, left) = body.outputs.split_at(places.min(body.outputs.len()));
        let results = Region { outputs: [left, carried].concat(), ..Region::default() };
        let body = self.branch(draft, steps, &results, builder)?;
        let outputs = data.outputs.iter().map(|&value| builder.var(value)).collect();
        let most = trip_count.as_ref().map(|most| most.as_constant().is_some_and(|most| most > 0));
        let runs = condition.is(1) && most.unwrap_or(true);
        let mut none = Vec::new();
        for (&value, dims) in
            data.outputs.iter().skip(places).zip(repeated.left_dims(graph)).filter(|_| !runs)
        {
            // A size that rounds decide is 0 where there was none.
            let size = |dim: Option<Dim>| match dim.as_ref().map(Dim::as_size) {
                None => Code::Int(0),
                Some(Some(size)) => Code::Int(size as i64),
                Some(None) => Code::Size(dim.unwrap_or(Dim::constant(0))),
            };
            let sizes = std::iter::once(Code::Int(0)).chain(dims.into_iter().map(size)).collect();
            let ty = graph.ty(value).clone();
            let dtype = ty.dtype;
            let empty = Code::Make(ty, "empty".into(), vec![Code::Array(sizes), Code::Device]);
            none.push(match dtype {
                DType::F32 | DType::I64 | DType::Bool => empty,
                other => Code::Method(Box::new(empty), "cast".into(), Vec::new(), vec![Code::DType(other)]),
            });
        }
        Ok(Statement::Repeat(Box::new(Repeat {
            outputs,
            parameters,
            init,
            start: 0,
            trip_count: trip_count.as_ref().map(|most| most * condition),
            condition: condition.clone(),
            iteration: iteration.clone(),
            items: Vec::new(),
            again: repeated.again(graph).cloned(),
            body,
            none,
        })))
    }

    fn node_statement(
        &self,
        draft: &Draft,
        node: NodeId,
        builder: &mut CodeBuilder<'_>,
    ) -> Result<Statement> {
        let data = self.tree.graph.node(node);
        if let Op::HostRead(HostRead { symbols }) = &data.op {
            let operand = data.inputs.first().copied().flatten();
            let operand = operand.ok_or_else(|| Defect::node(data, "no operand to read"))?;
            return Ok(Statement::Read { code: builder.value(operand)?, symbols: symbols.clone() });
        }
        let code = match self.tree.layer(node) {
            Some((first, layer)) => {
                let place = self.layer_place(draft, first);
                let place = place.ok_or_else(|| Defect::node(data, "no field for its layer"))?;
                let args = layer.args.iter().map(|arg| builder.node(node, arg)).collect::<Result<_>>()?;
                Code::Layer(place, layer.method, args)
            }
            None => {
                let call = self.tree.call(node);
                builder.node(node, call.ok_or_else(|| Defect::node(data, "no call of the runtime"))?)?
            }
        };
        let outputs = data.outputs.iter().map(|&value| builder.var(value)).collect();
        Ok(Statement::Bind { outputs, code })
    }

    fn branch(
        &self,
        draft: &Draft,
        steps: &[Step],
        region: &Region,
        builder: &mut CodeBuilder<'_>,
    ) -> Result<Block> {
        let statements: Result<Vec<Statement>> =
            steps.iter().map(|step| self.statement(draft, step, builder)).collect();
        let statements = statements?;
        let results: Result<Vec<Code>> = region.outputs.iter().map(|&value| builder.value(value)).collect();
        Ok(Block { statements, results: results? })
    }
}

/// What a module has for a parameter of its struct.
pub(super) fn value_of(module: &Draft, parameter: &Parameter) -> Literal {
    let mut values = parameter.slots.iter().filter_map(|&slot| module.body.slots.get(slot)?.value.clone());
    values.next().unwrap_or_else(|| parameter.kind.unused())
}
