//! Elementwise loops that follow each other become one: what only the next loop reads is never stored.

use crate::program::{Origin, Program, Step, TensorId};
use kiln_importer::ir::{ElementLoop, Loops, View};
use kiln_types::{Expression, Step as Instruction, StepId};

/// A loop gets no longer than so many steps, and reads no more tensors.
const MOST_STEPS: usize = 48;
const MOST_OPERANDS: usize = 8;

impl Program<'_> {
    /// Has each elementwise loop compute what the loops before it would have computed for it alone.
    pub(crate) fn join_loops(&mut self) {
        let mut uses = vec![0usize; self.tensors.len()];
        let read = self.steps.iter().flat_map(|step| step.operands.iter().flatten());
        read.chain(&self.outputs).for_each(|&tensor| uses[tensor] += 1);
        // The step that computes each tensor, where that is one loop over all of it.
        let mut made_by: Vec<Option<usize>> = vec![None; self.tensors.len()];
        let mut steps: Vec<Option<Step>> = std::mem::take(&mut self.steps).into_iter().map(Some).collect();
        for at in 0..steps.len() {
            let Some(mut step) = steps[at].take() else { continue };
            while let Some((operand, source)) = self.absorbed(&step, &steps, &made_by, &uses) {
                let Some(inner) = steps[source].take() else { break };
                step = joined(step, operand, inner);
            }
            if let (Some(element_loop), &[result]) = (only_loop(&step), step.results.as_slice())
                && element_loop.result == View::new(element_loop.result.dims())
                && element_loop.result.len() == self.tensors[result].len
            {
                made_by[result] = Some(at);
            }
            steps[at] = Some(step);
        }
        self.steps = steps.into_iter().flatten().collect();
    }

    /// An operand of a step's loop, by its place among the loop's operands, and the step before that computes it for this loop alone.
    fn absorbed(
        &self,
        step: &Step,
        steps: &[Option<Step>],
        made_by: &[Option<usize>],
        uses: &[usize],
    ) -> Option<(usize, usize)> {
        let element_loop = only_loop(step)?;
        let whole = View::new(element_loop.result.dims());
        element_loop.operands.iter().enumerate().find_map(|(place, (n, view))| {
            let tensor: TensorId = step.operands.get(*n).copied().flatten()?;
            let source = made_by[tensor]?;
            let inner = only_loop(steps[source].as_ref()?)?;
            let reads = element_loop.operands.iter().filter(|(other, _)| other == n).count();
            let fits = (uses[tensor], reads) == (1, 1)
                && matches!(self.tensors[tensor].origin, Origin::Step)
                && *view == whole
                && view.len() == self.tensors[tensor].len
                && (inner.result.dims() == whole.dims() || is_in_order(inner))
                && inner.expression.steps.len() + element_loop.expression.steps.len() <= MOST_STEPS
                && inner.operands.len() + element_loop.operands.len() <= MOST_OPERANDS;
            fits.then_some((place, source))
        })
    }
}

/// The one loop that a step is.
fn only_loop(step: &Step) -> Option<&ElementLoop> {
    match &step.loops {
        Loops::Elementwise(loops) => match loops.as_slice() {
            [element_loop] => Some(element_loop),
            _ => None,
        },
        Loops::Same | Loops::Reduction(_) | Loops::Kernel(_) => None,
    }
}

/// Whether a loop reads all of its operands in their order, so that its dims do not matter.
fn is_in_order(element_loop: &ElementLoop) -> bool {
    let whole = View::new(element_loop.result.dims());
    element_loop.operands.iter().all(|(_, view)| *view == whole)
}

/// A step whose loop computes what `inner` would have computed for its operand at a place.
fn joined(step: Step, place: usize, inner: Step) -> Step {
    let (Some(outer), Some(source)) = (only_loop(&step), only_loop(&inner)) else { return step };
    let (first, whole) = (step.operands.len(), View::new(outer.result.dims()));
    let mut operands = outer.operands.clone();
    let (read, _) = operands.remove(place);
    let expression = composed(&outer.expression, place, &source.expression, operands.len());
    // What is read in order is so in any dims.
    let is_elsewhere = source.result.dims() != whole.dims();
    let moved = |view: &View| if is_elsewhere { whole.clone() } else { view.clone() };
    operands.extend(source.operands.iter().map(|(n, view)| (first + n, moved(view))));
    let loops = Loops::Elementwise(vec![ElementLoop { result: outer.result.clone(), operands, expression }]);
    let mut operands: Vec<_> = step.operands.into_iter().chain(inner.operands).collect();
    // Nobody reads it any more.
    operands[read] = None;
    Step { loops, operands, ..step }
}

/// A program whose operand `place` is the result of another, whose operands come from `first_input` on.
fn composed(outer: &Expression, place: usize, inner: &Expression, first_input: usize) -> Expression {
    let (place, first_input) = (place as u16, first_input as u16);
    let mut steps: Vec<Instruction> = inner
        .steps
        .iter()
        .map(|&step| match step {
            Instruction::Input(n) => Instruction::Input(first_input + n),
            other => other,
        })
        .collect();
    let result = inner.only_result().unwrap_or(0);
    // Where each step of the outer program is now.
    let mut places: Vec<StepId> = Vec::new();
    for &step in &outer.steps {
        let next = match step {
            Instruction::Input(n) if n == place => {
                places.push(result);
                continue;
            }
            Instruction::Input(n) if n > place => Instruction::Input(n - 1),
            other => other.with_operands(|id| places.get(usize::from(id)).copied().unwrap_or(id)),
        };
        places.push(steps.len() as StepId);
        steps.push(next);
    }
    Expression::new(steps)
}
