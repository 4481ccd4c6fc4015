//! The statements of a module's steps.

use super::{Draft, Parameter, Sharing};
use crate::code::{Block, Callee, Code, Literal, Lowering, Statement};
use crate::ids::ModuleId;
use crate::tree::Step;
use crate::{CodegenError, Defect};
use kiln_importer::ir::{HostRead, If, NodeId, Op, Region};

type Result<T> = std::result::Result<T, CodegenError>;

impl Sharing<'_, '_> {
    /// The statements of a step of a module.
    pub(super) fn statement(
        &self,
        draft: &Draft,
        step: &Step,
        lowering: &mut Lowering<'_>,
    ) -> Result<Statement> {
        match step {
            Step::Node(node) => self.node_statement(draft, *node, lowering),
            Step::Call(child) => {
                let args = self.call_args(*child, lowering)?;
                let callee = self.callee(draft, *child)?;
                let outputs = self.modules[*child].outputs.iter().map(|&value| lowering.var(value)).collect();
                Ok(Statement::Bind { outputs, code: Code::Module(callee, args) })
            }
            Step::Loop { modules, carried } => self.loop_statement(draft, modules, *carried, lowering),
            Step::Branches { node, then, otherwise } => {
                let data = self.tree.graph.node(*node);
                let Op::If(If { condition, then_region, else_region }) = &data.op else {
                    return Err(Defect::node(data, "no branches").into());
                };
                let then = self.branch(draft, then, then_region, lowering)?;
                let otherwise = self.branch(draft, otherwise, else_region, lowering)?;
                let outputs = data.outputs.iter().map(|&value| lowering.var(value)).collect();
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
    fn call_args(&self, child: ModuleId, lowering: &mut Lowering<'_>) -> Result<Vec<Code>> {
        let data = &self.modules[child];
        let mut args: Vec<Code> =
            data.inputs.iter().map(|&value| lowering.value(value)).collect::<Result<_>>()?;
        for (value, name) in self.passed(child) {
            args.push(lowering.literal_slot(Some(value), Some(name)));
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
        lowering: &mut Lowering<'_>,
    ) -> Result<Statement> {
        let &[first, second, ..] = modules else { return Err(Defect::EmptyLoop.into()) };
        let last = modules[modules.len() - 1];
        let mut args = self.call_args(first, lowering)?;
        let path = &self.tree.modules[last].path;
        let init =
            args.get_mut(carried).ok_or_else(|| Defect::module(path, "no input that a loop carries"))?;
        let init = std::mem::replace(init, Code::Carried);
        let output = self.modules[last].outputs.first().ok_or_else(|| Defect::module(path, "no output"))?;
        Ok(Statement::Loop {
            output: lowering.var(*output),
            init,
            callee: self.callee(draft, first)?,
            again: self.first_call(first) == self.first_call(second),
            times: modules.len(),
            args,
        })
    }

    fn node_statement(&self, draft: &Draft, node: NodeId, lowering: &mut Lowering<'_>) -> Result<Statement> {
        let data = self.tree.graph.node(node);
        if let Op::HostRead(HostRead { symbols }) = &data.op {
            let operand = data.inputs.first().copied().flatten();
            let operand = operand.ok_or_else(|| Defect::node(data, "no operand to read"))?;
            return Ok(Statement::Read { code: lowering.value(operand)?, symbols: symbols.clone() });
        }
        let code = match self.tree.layer(node) {
            Some((first, layer)) => {
                let field = self.layer_field(draft, first);
                let field = field.ok_or_else(|| Defect::node(data, "no field for its layer"))?;
                let args = layer.args.iter().map(|arg| lowering.node(node, arg)).collect::<Result<_>>()?;
                Code::Layer(field, layer.method, args)
            }
            None => {
                let call = self.tree.call(node);
                lowering.node(node, call.ok_or_else(|| Defect::node(data, "no call of the runtime"))?)?
            }
        };
        let outputs = data.outputs.iter().map(|&value| lowering.var(value)).collect();
        Ok(Statement::Bind { outputs, code })
    }

    fn branch(
        &self,
        draft: &Draft,
        steps: &[Step],
        region: &Region,
        lowering: &mut Lowering<'_>,
    ) -> Result<Block> {
        let statements: Result<Vec<Statement>> =
            steps.iter().map(|step| self.statement(draft, step, lowering)).collect();
        let statements = statements?;
        let results: Result<Vec<Code>> = region.outputs.iter().map(|&value| lowering.value(value)).collect();
        Ok(Block { statements, results: results? })
    }
}

/// What a module has for a parameter of its struct.
pub(super) fn value_of(module: &Draft, parameter: &Parameter) -> Literal {
    let mut values = parameter.slots.iter().filter_map(|&slot| module.body.slots.get(slot)?.value.clone());
    values.next().unwrap_or_else(|| parameter.kind.unused())
}
