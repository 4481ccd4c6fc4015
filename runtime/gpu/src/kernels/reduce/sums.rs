//! Sums of what elementwise programs yield, and what is made of them.

use super::super::access::Access;
use super::super::elementwise::{self, Elementwise, Unwritten};
use super::super::source::Computed;
use super::super::{Template, launch, launch_open};
use super::finish::Finishing;
use super::{By, Reduce, Reducer, Reduction, Walks, columns, cut, kept_first, without};
use crate::runtime::{Amendment, Instead, Runtime};
use crate::tensor::{GpuTensor, computed_in};
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::ElementwiseProgram;
use kiln_tensor::{DType, Expression, InlineVec, Shape, Step};
use smallvec::SmallVec;

/// What [`sums`] is asked for, where it is handed back.
type Asked<'a, R> = (ElementwiseProgram<'a, GpuTensor<R>>, Option<ElementwiseProgram<'a, GpuTensor<R>>>);

/// The sums of each result of an elementwise program along the same axes, which stay with size 1, or what another makes of them. One kernel computes and adds up
/// all of them, so that what they are computed of is read once, and the last that joins them does the other program; where there is none that can, what is asked
/// for is handed back.
pub(crate) fn sums<'a, R: Runtime>(
    of: ElementwiseProgram<'a, GpuTensor<R>>,
    axes: &[usize],
    then: Option<ElementwiseProgram<'a, GpuTensor<R>>>,
) -> Result<InlineVec<GpuTensor<R>>, Asked<'a, R>> {
    let ElementwiseProgram { expression, ref operands, .. } = of;
    let Some(device) = operands.first().map(|first| first.device.clone()) else { return Err((of, then)) };
    let dtypes: InlineVec<DType> = operands.iter().map(Primitive::dtype).collect();
    let dtype =
        only_dtype(expression, &dtypes).filter(|&dtype| dtype.is_float() && computed_in(dtype) == dtype);
    let counts = expression.steps.iter().any(|step| matches!(step, Step::Iota(..)));
    let is_read = operands.iter().all(|operand| operand.is_visible() && !operand.is_empty());
    let tensors = expression.results().len();
    // With the result, and what is left of runs.
    let fits = operands.len() + 2 <= R::limits(&device).bindings
        && columns::that_fit::<R>(&device, 1, tensors, dtype.unwrap_or(DType::F32)).is_some();
    let Some(dtype) = dtype.filter(|_| is_read && fits && !counts && !axes.is_empty()) else {
        return Err((of, then));
    };

    let unwritten = elementwise::unwritten(of);
    let shape = without(&unwritten.layout.shape, axes);
    let finishing =
        then.as_ref().and_then(|then| Finishing::new(&device, &vec![dtype; tensors], &shape, then));
    let Some(found) = reduce_results(&device, unwritten, axes, dtype, finishing.as_ref()) else {
        return Ok(finishing.map_or_else(InlineVec::new, |finishing| finishing.results));
    };
    let of_one = |n: usize| found.part_of(n * shape.num_elements(), &shape);
    let sums = (0..tensors).map(of_one);
    Ok(match then {
        Some(then) => {
            let ElementwiseProgram { expression, operands, parameters } = then.behind(sums);
            elementwise::consume(expression, operands, parameters)
        }
        None => sums.collect(),
    })
}

/// Adds up the results of a program along axes, and finishes the sums where there is room for what that needs; nothing is left then. Else the sums of each result
/// of the program are one after another.
fn reduce_results<R: Runtime>(
    device: &R::Device,
    Unwritten { mut template, words, operands, layout }: Unwritten<R>,
    axes: &[usize],
    dtype: DType,
    finishing: Option<&Finishing<R>>,
) -> Option<GpuTensor<R>> {
    let tensors = template.results.len();
    let (layout, split) = kept_first(&layout, axes);
    let walks = Walks::new(&layout, split);
    let mut cut = cut::<R>(device, dtype, &walks, tensors);
    template.fours = match &mut cut.by {
        By::Columns { neighbours } => {
            // It is the same program however it would have been written.
            let most = if template.fours > 0 { *neighbours } else { 1 };
            *neighbours = columns::that_fit::<R>(device, most, tensors, dtype).unwrap_or(1);
            u32::from(*neighbours > 1)
        }
        By::Invocation | By::Warp | By::Workgroup => 0,
    };
    let (is_whole, runs) = (cut.left() == 1, cut.left());
    let fits = |finishing: &&Finishing<R>| {
        operands.len() + usize::from(cut.joins) + finishing.tensors().count() <= R::limits(device).bindings
    };
    let finishing_now = finishing.filter(|_| is_whole).filter(fits);
    let empty = |runs: usize| GpuTensor::empty(Shape::from([tensors * walks.results, runs]), dtype, device);
    let left = cut.joins.then(|| empty(cut.runs));
    let out = finishing_now.is_none().then(|| empty(runs));
    let Reduction { template: reduction, words: of_reduction, groups } =
        Reduction::new::<R>(device, (Reducer::Sum, None), (dtype, dtype), &walks, cut);
    let finish = finishing_now.map(|finishing| finishing.template.clone());
    let reduction = Reduce { from: Some(Box::new(template)), finish, ..reduction };
    let mut words: SmallVec<[u32; 64]> = words.into_iter().chain(of_reduction).collect();
    words.extend(finishing_now.iter().flat_map(|finishing| finishing.words.iter().copied()));
    {
        let further = finishing_now.into_iter().flat_map(Finishing::tensors);
        let further: SmallVec<[&GpuTensor<R>; 16]> = left.iter().chain(&out).chain(further).collect();
        let asked = ProgramReduction {
            reduction,
            operands: &operands,
            further: &further,
            is_open: out.is_some(),
            words,
            groups,
        };
        asked.launch(device);
    }
    let out = out?;
    if is_whole {
        return Some(out);
    }
    // What was found of runs is what a program yields that yields what it is given.
    let of_each = Shape::from([walks.results, runs]);
    let operands = (0..tensors).map(|n| out.part_of(n * of_each.num_elements(), &of_each)).collect();
    let steps: Vec<Step> = (0..tensors as u16).map(Step::Input).collect();
    let outputs = if tensors > 1 { (0..tensors as u16).collect() } else { Vec::new() };
    let expression = &Expression { steps, outputs };
    let of = ElementwiseProgram { expression, operands, parameters: &[] };
    reduce_results(device, elementwise::unwritten(of), &[1], dtype, finishing)
}

/// A reduction of what a program yields, as it is launched.
struct ProgramReduction<'a, R: Runtime> {
    reduction: Reduce,
    /// What the program reads.
    operands: &'a [GpuTensor<R>],
    /// The buffers behind these; the last is the result, if it `is_open` to more.
    further: &'a [&'a GpuTensor<R>],
    is_open: bool,
    words: SmallVec<[u32; 64]>,
    groups: [u32; 3],
}

impl<R: Runtime> ProgramReduction<'_, R> {
    /// Has the kernel of the reduction also compute an operand of the program, where that was the last kernel's to do; elsewhere launches it alone.
    fn launch(self, device: &R::Device) {
        if (0..self.operands.len()).any(|operand| self.computes(device, operand)) {
            return;
        }
        let buffers: SmallVec<[&GpuTensor<R>; 16]> =
            self.operands.iter().chain(self.further.iter().copied()).collect();
        match self.is_open {
            true => launch_open::<R>(device, self.reduction, &buffers, &self.words, self.groups),
            false => launch::<R>(device, self.reduction, &buffers, &self.words, self.groups),
        }
    }

    /// Makes the reduction of the last kernel, if that computes the operand of this number; says whether it does.
    fn computes(&self, device: &R::Device, operand: usize) -> bool {
        let (By::Columns { .. }, Some(from)) = (self.reduction.by, &self.reduction.from) else {
            return false;
        };
        let own = &self.operands[operand];
        if from.operands[operand].1 != Access::Linear || own.layout.offset != 0 {
            return false;
        }
        let others = self.operands.iter().enumerate().filter(|&(n, _)| n != operand).map(|(_, other)| other);
        let buffers: SmallVec<[&GpuTensor<R>; 16]> = others.chain(self.further.iter().copied()).collect();
        R::amend(device, &mut own.memory.clone(), own.len(), |last| {
            let Template::Elementwise(program) = &*last.template else { return None };
            let is_its = program.results.len() == 1 && program.results[0].0 == own.dtype;
            let fours = from.fours > 0;
            let fits = last.buffers + buffers.len() <= R::limits(device).bindings
                && buffers.iter().all(|buffer| buffer.is_visible())
                // What is written may be memory that the program reads, and that was given back; what is read may be what it writes.
                && !buffers.iter().any(|buffer| last.uses(&buffer.memory));
            if !(is_its && fits) || fours && program.fours == 0 {
                return None;
            }
            let by = Box::new(Elementwise { fours: u32::from(fours), ..program.clone() });
            *last.template =
                Reduce { computed: Some(Computed { operand, by }), ..self.reduction.clone() }.into();
            Some(Amendment {
                parameters: self.words.iter().copied().collect(),
                moved: buffers.iter().map(|buffer| buffer.bytes_in_memory()).sum::<usize>() as isize,
                instead: Some(Instead {
                    without: None,
                    groups: self.groups,
                    writes_all_of: match (self.is_open, self.further.last()) {
                        (true, Some(out)) => Some((buffers.len() - 1, out.len())),
                        _ => None,
                    },
                }),
                buffers: buffers.iter().map(|buffer| &buffer.memory).collect(),
            })
        })
    }
}

/// The dtype that all results of a program have, if they have one.
fn only_dtype(expression: &Expression, operands: &[DType]) -> Option<DType> {
    let dtypes = expression.dtypes(operands)?;
    let mut results = expression.results().into_iter().map(|step| dtypes[usize::from(step)]);
    let first = results.next()?;
    results.all(|dtype| dtype == first).then_some(first)
}
