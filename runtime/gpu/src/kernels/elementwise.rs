//! Elementwise programs over strided operands; copies and fills are the shortest of them.

use super::access::{self, Access, Operand, Walk};
use super::direct::Side;
use super::epilogue::{self, EpilogueProgram};
use super::order;
pub(crate) use super::program::activation;
use super::program::{Operands, append_parameters, declare_parameters, evaluate};
use super::{LINE, launch, launch_open, line_of, transpose};
use crate::language::{Buffer, Builder, Builtin, Fours, Kernel, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as, require};
use kiln_tensor::backend::{Layout, Primitive, SliceRange};
use kiln_tensor::compose::ElementwiseProgram;
use kiln_tensor::{Activation, BinaryOp, DType, Expression, InlineVec, Scalar, Shape, Step};
use smallvec::SmallVec;

/// A program with what is known of its operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elementwise {
    /// What is computed of each element.
    pub expression: Expression,
    /// The operands' dtypes, and how they are read.
    pub operands: InlineVec<(DType, Access)>,
    /// How the positions are had that `Iota` steps yield, in the steps' order.
    pub counters: InlineVec<Access>,
    /// The results' dtypes, and how they are written.
    pub results: InlineVec<(DType, Access)>,
    /// Number of dims over which strides are told.
    pub rank: usize,
    /// How many times four neighbours an invocation computes, each of one row along the innermost of those dims: what lies one after another is
    /// read and written four at a time. Without any it computes one element.
    pub fours: u32,
    /// What is done to the one result after that.
    pub epilogues: Vec<EpilogueProgram>,
}

/// Elements from which on an invocation computes four: so many that there are enough invocations to fill a device.
pub(super) const LEAST_OF_FOURS: usize = 1 << 18;
/// The same of two fours, which are asked for at once: with one, elements of 16 bits came at 3.1 TB/s on an H200, which has 4.8.
const LEAST_OF_TWO_FOURS: usize = 1 << 22;

impl Elementwise {
    /// The kernel. Parameters: the number of elements, the dims, operands, counters, results, the expression's own.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("elementwise", [LINE, 1], |k| {
            let program = self.declare(k, true, self.fours > 0);
            if self.fours == 0 {
                let position = k.position(LINE);
                k.when(position.below(program.count), || program.write(position, &program.at(position, 1)));
                return;
            }
            let count = program.count / 4_u32;
            let first = k.group() * (self.fours * LINE) + k.builtin(Builtin::LocalIndex);
            k.when(first.below(count), || {
                // What is read does not wait for what is written: a four beyond the last repeats that until then.
                let fours = (0..self.fours).map(|n| {
                    let four = first + n * LINE;
                    (four, program.at(four.min(count - 1_u32) * 4_u32, 4))
                });
                for (four, results) in fours.collect::<Vec<_>>() {
                    k.when(four.below(count), || program.write(four * 4_u32, &results));
                }
            });
        })
    }

    /// Where the buffer of its first result stands among its own.
    pub(super) fn place_of_result(&self) -> usize {
        self.operands.len()
    }

    /// How many buffers there are of what it reads.
    pub(super) fn buffers(&self) -> usize {
        self.operands.len() + self.epilogues.iter().map(|epilogue| epilogue.operands.len()).sum::<usize>()
    }

    /// The next buffers and parameters as its own; without the buffers of the results where they are not written. What lies one after another is
    /// read, and written, in `fours` or one by one.
    pub(super) fn declare<'t, 'k>(&'t self, k: &'k Builder, written: bool, fours: bool) -> Declared<'t, 'k> {
        self.declare_of(k, written, fours, None)
    }

    /// [`Elementwise::declare`] where one of the operands, by its number, is the result of another program, whose buffers and parameters come first.
    pub(super) fn declare_of<'t, 'k>(
        &'t self,
        k: &'k Builder,
        written: bool,
        fours: bool,
        computed: Option<(usize, Declared<'t, 'k>)>,
    ) -> Declared<'t, 'k> {
        let in_fours = |access: Access| fours && matches!(access, Access::Linear | Access::Runs);
        let (place, mut computed) =
            computed.map_or((None, None), |(place, program)| (Some(place), Some(program)));
        let input =
            |(n, &(dtype, access)): (usize, &(DType, Access))| match computed.take_if(|_| place == Some(n)) {
                Some(program) => Input::Program(Box::new(program)),
                None => Input::Memory(Side::declare(k, dtype, in_fours(access))),
            };
        let output = |&(dtype, _): &(DType, Access)| match fours {
            true => Output::Fours(k.output_of_fours(held_as(dtype))),
            false => Output::Single(k.output(held_as(dtype))),
        };
        let inputs = self.operands.iter().enumerate().map(input).collect();
        let outputs = self.results.iter().filter(|_| written).map(output).collect();
        let count = k.parameter();
        let dims = k.parameters(self.rank);
        let declare = |access: Access| Operand::declare(k, access, self.rank);
        Declared {
            template: self,
            inputs,
            outputs,
            count,
            dims,
            operands: self.operands.iter().map(|&(_, access)| declare(access)).collect(),
            counters: self.counters.iter().map(|&access| declare(access)).collect(),
            results: self.results.iter().map(|&(_, access)| declare(access)).collect(),
            parameters: declare_parameters(k, &self.expression),
            epilogues: epilogue::declare(k, &self.epilogues),
        }
    }
}

/// What a program reads.
enum Input<'t, 'k> {
    Memory(Side<'k>),
    /// What another yields, which is written when it is read.
    Program(Box<Declared<'t, 'k>>),
}

/// What a program writes, one or four elements at a time.
enum Output<'k> {
    Single(Buffer<'k>),
    Fours(Fours<'k>),
}

/// A program with what it reads and writes in a kernel.
pub(super) struct Declared<'t, 'k> {
    template: &'t Elementwise,
    inputs: Vec<Input<'t, 'k>>,
    outputs: Vec<Output<'k>>,
    count: Value<'k>,
    dims: Vec<Value<'k>>,
    operands: Vec<Operand<'k>>,
    counters: Vec<Operand<'k>>,
    results: Vec<Operand<'k>>,
    parameters: Vec<Vec<Value<'k>>>,
    epilogues: Vec<epilogue::Declared<'t, 'k>>,
}

/// What a program yields at a position with these coordinates, and at its neighbours: of each neighbour each result.
struct Results<'k> {
    coordinates: Vec<Value<'k>>,
    values: Vec<Vec<Value<'k>>>,
}

impl<'k> Declared<'_, 'k> {
    /// What the results are at a position and its neighbours behind it along the innermost dim: so many in all.
    fn at(&self, position: Value<'k>, neighbours: u32) -> Results<'k> {
        let coordinates = access::coordinates(position, &self.dims);
        Results { values: self.values(position, &coordinates, neighbours), coordinates }
    }

    /// Writes results to their position.
    fn write(&self, position: Value<'k>, Results { coordinates, values }: &Results<'k>) {
        for (n, (output, result)) in self.outputs.iter().zip(&self.results).enumerate() {
            let at = result.at(position, coordinates);
            match output {
                Output::Single(buffer) => buffer.set(at, values[0][n]),
                Output::Fours(buffer) => {
                    buffer.set(at / 4_u32, [0, 1, 2, 3].map(|neighbour: usize| values[neighbour][n]));
                }
            }
        }
    }

    /// Writes an element of the first result, which lies as it is counted.
    pub(super) fn write_first(&self, position: Value<'k>, element: Value<'k>) {
        if let (Some(Output::Single(buffer)), Some(result)) = (self.outputs.first(), self.results.first()) {
            buffer.set(result.at(position, &[]), element);
        }
    }

    /// What each result is at a position with the given coordinates, and at its neighbours behind it along the innermost dim: so many in all.
    fn values(&self, position: Value<'k>, coordinates: &[Value<'k>], neighbours: u32) -> Vec<Vec<Value<'k>>> {
        let places = |operand: &Operand<'k>| operand.neighbours(position, coordinates, neighbours);
        let read = |(input, operand): (&Input<'_, 'k>, &Operand<'k>)| match input {
            Input::Memory(side @ Side::Fours(_)) => side.at(operand.at(position, coordinates)),
            Input::Memory(side @ Side::Single(_)) => {
                places(operand).into_iter().map(|at| side.one(at)).collect()
            }
            Input::Program(program) => program.computed(operand.at(position, coordinates), neighbours),
        };
        let operands: Vec<Vec<Value<'k>>> = self.inputs.iter().zip(&self.operands).map(read).collect();
        let counters: Vec<Vec<Value<'k>>> = self.counters.iter().map(places).collect();
        let dtypes: Vec<DType> = self.template.operands.iter().map(|&(dtype, _)| dtype).collect();
        let expression = &self.template.expression;
        let of_neighbour = |n: u32| {
            let of = |all: &[Vec<Value<'k>>]| all.iter().map(|each| each[n as usize]).collect::<Vec<_>>();
            let (operands, counters) = (of(&operands), of(&counters));
            let operands = Operands { values: &operands, dtypes: &dtypes };
            let steps = evaluate(position.kernel(), expression, &operands, &counters, &self.parameters);
            let position = access::behind(position, n);
            let value = |step| epilogue::apply(&self.epilogues, position, steps[usize::from(step)]);
            expression.results().into_iter().map(value).collect()
        };
        (0..neighbours).map(of_neighbour).collect()
    }

    /// What its one result is at a position and its neighbours, so many in all, as memory holds it once that is written, too.
    fn computed(&self, position: Value<'k>, neighbours: u32) -> Vec<Value<'k>> {
        let Results { coordinates, values } = self.at(position, neighbours);
        let storage = held_as(self.template.results[0].0);
        let held: Vec<_> = values.into_iter().map(|values| values[0].held_as(storage)).collect();
        let values = held.iter().map(|&value| vec![value]).collect();
        self.write(position, &Results { coordinates, values });
        held
    }

    /// What its results are at a position and its neighbours behind it along the innermost dim, so many in all, as memory would hold them: of each
    /// result the neighbours.
    pub(super) fn results_of(&self, position: Value<'k>, neighbours: u32) -> Vec<Value<'k>> {
        let values = self.at(position, neighbours).values;
        let of_one = |(n, &(dtype, _)): (usize, &(DType, Access))| {
            values.iter().map(move |values| values[n].held_as(held_as(dtype))).collect::<Vec<_>>()
        };
        self.template.results.iter().enumerate().flat_map(of_one).collect()
    }
}

/// What a program's operands broadcast to, and the dtypes of its steps.
///
/// # Panics
/// When the operands do not broadcast, or the program names what is not there.
fn shape_and_dtypes<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
) -> (Shape, InlineVec<DType>) {
    let Some(first) = operands.first() else { panic!("elementwise: no operand") };
    let different = operands.iter().filter(|operand| operand.dims() != first.dims());
    let shape = different.fold(first.shape(), |shape, operand| {
        shape
            .broadcast(&operand.shape())
            .unwrap_or_else(|| panic!("elementwise: {shape} and {} do not broadcast", operand.shape()))
    });
    let dtypes: InlineVec<DType> = operands.iter().map(Primitive::dtype).collect();
    let Some(dtypes) = expression.dtypes(&dtypes) else {
        panic!("elementwise: a program names operands that are not there")
    };
    dtypes.iter().for_each(|&dtype| require::<R>(&first.device, dtype));
    (shape, dtypes)
}

/// Runs a program over operands, which broadcast, into new tensors. These are row-major, or have their channels last if the largest operand has.
///
/// # Panics
/// When the operands do not broadcast, or the program names what is not there.
pub(crate) fn run<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
) -> InlineVec<GpuTensor<R>> {
    in_one_order(expression, &mut operands.iter().cloned().collect(), |operands| {
        let (shape, dtypes) = shape_and_dtypes(expression, operands);
        run_row_major(expression, operands, parameters, &shape, &dtypes)
    })
}

/// [`run`] with operands that the caller needs no more: where one of them was just computed, by the kernel that did.
pub(crate) fn consume<R: Runtime>(
    expression: &Expression,
    mut operands: InlineVec<GpuTensor<R>>,
    parameters: &[Scalar],
) -> InlineVec<GpuTensor<R>> {
    in_one_order(expression, &mut operands, |operands| {
        let (shape, dtypes) = shape_and_dtypes(expression, operands);
        let Some(result) = expression.only_result() else {
            return run_row_major(expression, operands, parameters, &shape, &dtypes);
        };
        let dtype = dtypes[usize::from(result)];
        match epilogue::within_last(expression, operands, parameters, &shape, dtype) {
            Some(result) => [result].into(),
            None => run_row_major(expression, operands, parameters, &shape, &dtypes),
        }
    })
}

/// What `run` makes of operands in their order: of images whose channels stand last, of views in which these are row-major. Programs that count
/// along dims are told of the dims as they are.
fn in_one_order<R: Runtime>(
    expression: &Expression,
    operands: &mut InlineVec<GpuTensor<R>>,
    run: impl FnOnce(&mut InlineVec<GpuTensor<R>>) -> InlineVec<GpuTensor<R>>,
) -> InlineVec<GpuTensor<R>> {
    let counts = expression.steps.iter().any(|step| matches!(step, Step::Iota(..)));
    let are_turned = !counts && order::into_channels_last(operands);
    let results = run(operands);
    if are_turned { results.into_iter().map(GpuTensor::channels_first).collect() } else { results }
}

/// Runs a program over operands, which broadcast to `shape`, into new tensors, which are row-major; `dtypes` are those of its steps.
fn run_row_major<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
    shape: &Shape,
    dtypes: &[DType],
) -> InlineVec<GpuTensor<R>> {
    let device = &operands[0].device;
    let results: InlineVec<GpuTensor<R>> = expression
        .results()
        .into_iter()
        .map(|step| GpuTensor::empty(shape.clone(), dtypes[usize::from(step)], device))
        .collect();
    write(expression, operands, parameters, &results, shape);
    results
}

/// Runs a program over operands, which broadcast to `shape`, into memory that is there: views of `shape` that no operand reads.
fn write<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
    results: &[GpuTensor<R>],
    shape: &Shape,
) {
    if shape.num_elements() == 0 {
        return;
    }
    // A position along a dim is the offset of a walk that steps by one along it.
    let counters = expression.steps.iter().filter_map(|step| match *step {
        Step::Iota(dim, _) => Some(usize::from(dim)),
        _ => None,
    });
    let counter = |dim: usize| {
        let strides = (0..shape.rank()).map(|axis| isize::from(axis == dim)).collect();
        Layout { shape: shape.clone(), strides, offset: 0 }
    };
    let counters: Vec<Layout> = counters.map(counter).collect();
    Views { operands, counters: &counters, results }.run(expression, parameters, shape);
}

/// What a program reads, which broadcasts to one shape, and what it writes.
#[derive(Clone, Copy)]
struct Views<'a, R: Runtime> {
    operands: &'a [GpuTensor<R>],
    counters: &'a [Layout],
    results: &'a [GpuTensor<R>],
}

impl<R: Runtime> Views<'_, R> {
    /// Runs the program: in halves where kernels do not see all of a tensor's memory.
    fn run(self, expression: &Expression, parameters: &[Scalar], shape: &Shape) {
        if self.are_visible() {
            self.launch(expression, parameters, shape);
            return;
        }
        let narrowed = |tensors: &[GpuTensor<R>]| -> InlineVec<GpuTensor<R>> {
            tensors.iter().map(GpuTensor::narrowed).collect()
        };
        let (operands, results) = (narrowed(self.operands), narrowed(self.results));
        let views = Views { operands: &operands, counters: self.counters, results: &results };
        match views.farthest(shape).filter(|_| !views.are_visible()) {
            None => views.launch(expression, parameters, shape),
            Some(axis) => {
                let size = shape.dims[axis];
                for (start, end) in [(0, size / 2), (size / 2, size)] {
                    let mut ranges: Vec<SliceRange> =
                        shape.dims.iter().map(|&size| SliceRange::full(size)).collect();
                    ranges[axis] = SliceRange { start, end, step: 1 };
                    let mut half = shape.clone();
                    half.dims[axis] = end - start;
                    let parts = |tensors: &[GpuTensor<R>]| -> InlineVec<GpuTensor<R>> {
                        let part = |tensor: &GpuTensor<R>| {
                            let layout = tensor.layout.expand(shape).slice(&ranges);
                            tensor.clone().with_layout(layout)
                        };
                        tensors.iter().map(part).collect()
                    };
                    let counters: Vec<Layout> =
                        views.counters.iter().map(|counter| counter.slice(&ranges)).collect();
                    let (operands, results) = (parts(&operands), parts(&results));
                    let half_views = Views { operands: &operands, counters: &counters, results: &results };
                    half_views.run(expression, parameters, &half);
                }
            }
        }
    }

    /// The dim along which a tensor that kernels do not see all of reaches farthest, so that its halves reach less.
    fn farthest(&self, shape: &Shape) -> Option<usize> {
        let limits = self.results.first().map(|result| R::limits(&result.device))?;
        let hidden: InlineVec<Layout> = self
            .operands
            .iter()
            .chain(self.results)
            .filter(|tensor| !tensor.is_visible_within(&limits))
            .map(|tensor| tensor.layout.expand(shape))
            .collect();
        let reach = |axis: usize| {
            let along = hidden.iter().map(|layout| layout.strides[axis].unsigned_abs());
            along.max().unwrap_or(0).saturating_mul(shape.dims[axis] - 1)
        };
        (0..shape.rank())
            .filter(|&axis| shape.dims[axis] > 1)
            .max_by_key(|&axis| (reach(axis), std::cmp::Reverse(axis)))
    }

    /// Whether kernels see all of the tensors' memory.
    fn are_visible(&self) -> bool {
        let Some(first) = self.results.first() else { return true };
        let limits = R::limits(&first.device);
        self.operands.iter().chain(self.results).all(|tensor| tensor.is_visible_within(&limits))
    }

    fn launch(&self, expression: &Expression, parameters: &[Scalar], shape: &Shape) {
        let Some(device) = self.results.first().map(|result| &result.device) else { return };
        let results: SmallVec<[(DType, &Layout); 4]> =
            self.results.iter().map(|result| (result.dtype, &*result.layout)).collect();
        let described =
            describe(device, expression, parameters, shape, (self.operands, self.counters), &results);
        let Described { template, words } = described;
        let count = shape.num_elements();
        let invocations = match template.fours as usize {
            0 => count,
            fours => (count / 4).div_ceil(fours),
        };
        let tensors: SmallVec<[&GpuTensor<R>; 8]> = self.operands.iter().chain(self.results).collect();
        let groups = line_of::<R>(device, invocations);
        match (self.results, template.results.as_slice()) {
            ([result], [(_, Access::Linear)]) if result.layout.offset == 0 => {
                launch_open::<R>(device, template, &tensors, &words, groups);
            }
            _ => launch::<R>(device, template, &tensors, &words, groups),
        }
    }
}

/// A program as a kernel does it.
struct Described {
    template: Elementwise,
    /// Its parameters.
    words: SmallVec<[u32; 64]>,
}

/// A program of which the operands, the positions that it counts and the results lie as is told, over `shape`.
fn describe<R: Runtime>(
    device: &R::Device,
    expression: &Expression,
    parameters: &[Scalar],
    shape: &Shape,
    (operands, counters): (&[GpuTensor<R>], &[Layout]),
    results: &[(DType, &Layout)],
) -> Described {
    let of_operands = operands.iter().map(|tensor| &*tensor.layout);
    let of_results = results.iter().map(|&(_, layout)| layout);
    let views: SmallVec<[&Layout; 8]> = of_operands.chain(counters).chain(of_results).collect();
    // Of those that have not the shape itself.
    let mut expanded: SmallVec<[Option<InlineVec<isize>>; 8]> = SmallVec::new();
    expanded.extend(views.iter().map(|view| (view.shape != *shape).then(|| view.expanded_strides(shape))));
    let strides = views.iter().zip(&expanded);
    let strides: SmallVec<[&[isize]; 8]> =
        strides.map(|(view, expanded)| expanded.as_ref().unwrap_or(&view.strides).as_slice()).collect();
    let walk = Walk::new(&shape.dims, &strides);
    let mut access: SmallVec<[Access; 16]> = (0..views.len()).map(|view| walk.access(view)).collect();
    let is_of_runs = |n: usize| walk.is_of_runs(n, views[n].offset);
    let strided = access.contains(&Access::Strided);

    let count = shape.num_elements();
    let mut words: SmallVec<[u32; 64]> = SmallVec::new();
    words.push(count as u32);
    words.extend(walk.dim_words().filter(|_| strided));
    for (n, view) in views.iter().enumerate() {
        words.push(view.offset as u32);
        words.extend(walk.stride_words(n));
    }
    append_parameters(&mut words, expression, parameters);

    // A row along the innermost dim is whole fours, and what lies one after another begins with one.
    let begins_with_four =
        |(access, view): (&Access, &&Layout)| *access != Access::Linear || view.offset % 4 == 0;
    let in_fours = count >= LEAST_OF_FOURS
        && R::limits(device).shared_memory
        && walk.dims.last().is_some_and(|&dim| dim % 4 == 0)
        && access.iter().zip(&views).all(begins_with_four)
        && (views.len() - results.len()..views.len()).all(|n| access[n] == Access::Linear || is_of_runs(n));
    let fours = match in_fours {
        true if count >= LEAST_OF_TWO_FOURS => 2,
        true => 1,
        false => 0,
    };
    if in_fours {
        // What is joined is written so, and read where it is a part of something.
        for (_, access) in access.iter_mut().enumerate().filter(|&(n, _)| is_of_runs(n)) {
            *access = Access::Runs;
        }
    }
    let (read, rest) = access.split_at(operands.len());
    let (counted, written) = rest.split_at(counters.len());
    let template = Elementwise {
        expression: expression.clone(),
        operands: operands.iter().map(|tensor| tensor.dtype).zip(read.iter().copied()).collect(),
        counters: counted.into(),
        results: results.iter().map(|&(dtype, _)| dtype).zip(written.iter().copied()).collect(),
        rank: if strided { walk.dims.len() } else { 0 },
        fours,
        epilogues: Vec::new(),
    };
    Described { template, words }
}

/// A program whose results are written nowhere: another kernel reads them in place of tensors, as a part of itself.
pub(super) struct Unwritten<R: Runtime> {
    /// The program.
    pub template: Elementwise,
    /// Its parameters.
    pub words: SmallVec<[u32; 64]>,
    /// What it reads.
    pub operands: InlineVec<GpuTensor<R>>,
    /// How each result would lie in a memory of its own.
    pub layout: Layout,
}

/// A program over operands, which broadcast, that counts nothing.
///
/// # Panics
/// When the operands do not broadcast, or the program names what is not there.
pub(super) fn unwritten<R: Runtime>(
    ElementwiseProgram { expression, mut operands, parameters }: ElementwiseProgram<'_, GpuTensor<R>>,
) -> Unwritten<R> {
    let are_turned = order::into_channels_last(&mut operands);
    let (shape, dtypes) = shape_and_dtypes(expression, &operands);
    let row_major = Layout::contiguous(shape.clone());
    let results = expression.results();
    let results: SmallVec<[(DType, &Layout); 4]> =
        results.iter().map(|&step| (dtypes[usize::from(step)], &row_major)).collect();
    let device = &operands[0].device;
    let Described { template, words } =
        describe(device, expression, parameters, &shape, (&operands, &[]), &results);
    let layout = if are_turned { row_major.clone().into_channels_first() } else { row_major.clone() };
    Unwritten { template, words, operands, layout }
}

/// The program that yields its operand.
fn identity() -> Expression {
    Expression::new(vec![Step::Input(0)])
}

/// A row-major copy.
pub(crate) fn copy<R: Runtime>(tensor: &GpuTensor<R>) -> GpuTensor<R> {
    let result = GpuTensor::empty(tensor.shape(), tensor.dtype, &tensor.device);
    copy_into(tensor, &result);
    result
}

/// Copies `from`, which broadcasts, over a view of memory that `from` does not read.
pub(crate) fn copy_into<R: Runtime>(from: &GpuTensor<R>, to: &GpuTensor<R>) {
    if from.dtype == to.dtype
        && lies_from_start(to)
        && transpose::copy_into(from, &from.layout.expand(&to.shape()), to)
    {
        return;
    }
    write(&identity(), core::slice::from_ref(from), &[], core::slice::from_ref(to), &to.shape());
}

/// Row-major without gaps; copies where it is not.
pub(crate) fn contiguous<R: Runtime>(tensor: GpuTensor<R>) -> GpuTensor<R> {
    if tensor.layout.is_contiguous() { tensor } else { copy(&tensor) }
}

/// Whether it is row-major without gaps from the start of its memory.
pub(crate) fn lies_from_start<R: Runtime>(tensor: &GpuTensor<R>) -> bool {
    tensor.layout.is_contiguous() && tensor.layout.offset == 0
}

/// Row-major without gaps from the start of its memory; copies where it is not.
pub(crate) fn from_start<R: Runtime>(tensor: GpuTensor<R>) -> GpuTensor<R> {
    if lies_from_start(&tensor) { tensor } else { copy(&tensor) }
}

/// Converts the elements.
pub(crate) fn cast<R: Runtime>(tensor: &GpuTensor<R>, dtype: DType) -> GpuTensor<R> {
    if tensor.dtype == dtype {
        return tensor.clone();
    }
    let program = Expression::new(vec![Step::Input(0), Step::Cast(dtype, 0)]);
    single(&program, core::slice::from_ref(tensor), &[])
}

/// A tensor whose elements follow from their positions alone: the result, of `dtype`, of a program without operands.
pub(crate) fn fill<R: Runtime>(
    program: &Expression,
    parameters: &[Scalar],
    shape: Shape,
    dtype: DType,
    device: &R::Device,
) -> GpuTensor<R> {
    let result = GpuTensor::empty(shape.clone(), dtype, device);
    write(program, &[], parameters, core::slice::from_ref(&result), &shape);
    result
}

/// A tensor filled with one number.
pub(crate) fn full<R: Runtime>(
    shape: Shape,
    value: Scalar,
    dtype: DType,
    device: &R::Device,
) -> GpuTensor<R> {
    fill(&Expression::new(vec![Step::Parameter(0, dtype)]), &[value], shape, dtype, device)
}

/// `start, start + step, …` below (or above) `end`.
pub(crate) fn arange<R: Runtime>(
    start: i64,
    end: i64,
    step: i64,
    dtype: DType,
    device: &R::Device,
) -> GpuTensor<R> {
    let distance = if step > 0 { end.saturating_sub(start) } else { start.saturating_sub(end) };
    let count = usize::try_from(distance).unwrap_or(0).div_ceil(step.unsigned_abs().max(1) as usize);
    // What a narrow dtype rounds or wraps is exact where it is counted in a wide one.
    let counted = DType::I64;
    let program = Expression::new(vec![
        Step::Iota(0, counted),
        Step::Parameter(0, counted),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Parameter(1, counted),
        Step::Binary(BinaryOp::Add, 2, 3),
        Step::Cast(dtype, 4),
    ]);
    // One number, or none, is no step away from the first.
    let step = if count > 1 { step } else { 0 };
    let parameters = [Scalar::Int(step), Scalar::Int(if count > 0 { start } else { 0 })];
    fill(&program, &parameters, Shape::from([count]), dtype, device)
}

/// [`run`] for a program with one result.
pub(crate) fn single<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
) -> GpuTensor<R> {
    only(run(expression, operands, parameters))
}

/// The result of a program with one.
///
/// # Panics
/// When it has none, or several.
pub(crate) fn only<R: Runtime>(mut results: InlineVec<GpuTensor<R>>) -> GpuTensor<R> {
    match (results.pop(), results.is_empty()) {
        (Some(result), true) => result,
        _ => panic!("elementwise: a program of one result was expected"),
    }
}

/// `activation(x + bias)`, of a bias that broadcasts.
pub(crate) fn finished<R: Runtime>(
    x: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    activation: Option<Activation>,
) -> GpuTensor<R> {
    let (mut steps, mut operands) = (vec![Step::Input(0)], InlineVec::from([x]));
    if let Some(bias) = bias {
        operands.push(bias);
        steps.extend([Step::Input(1), Step::Binary(BinaryOp::Add, 0, 1)]);
    }
    if let Some(activation) = activation {
        steps.push(Step::Activation(activation, (steps.len() - 1) as u16));
    }
    match (steps.len(), operands.pop()) {
        (1, Some(x)) => x,
        (_, last) => {
            operands.extend(last);
            only(consume(&Expression::new(steps), operands, &[]))
        }
    }
}

/// `a + b`.
pub(crate) fn add<R: Runtime>(a: &GpuTensor<R>, b: &GpuTensor<R>) -> GpuTensor<R> {
    let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Add, 0, 1)];
    single(&Expression::new(steps), &[a.clone(), b.clone()], &[])
}

/// An activation of each element.
pub(crate) fn activated<R: Runtime>(activation: Activation, x: &GpuTensor<R>) -> GpuTensor<R> {
    let steps = vec![Step::Input(0), Step::Activation(activation, 0)];
    single(&Expression::new(steps), core::slice::from_ref(x), &[])
}

/// Tensors one after another along `dim`: row-major, or with their channels last if the largest has them so.
///
/// # Panics
/// When there is none.
pub(crate) fn join<R: Runtime>(tensors: &[GpuTensor<R>], dim: usize) -> GpuTensor<R> {
    let mut turned = tensors.to_vec();
    if order::into_channels_last(&mut turned) {
        let rank = turned[0].dims().len();
        return join_row_major(&turned, order::moved_axis(dim, rank)).channels_first();
    }
    join_row_major(tensors, dim)
}

fn join_row_major<R: Runtime>(tensors: &[GpuTensor<R>], dim: usize) -> GpuTensor<R> {
    let Some(first) = tensors.first() else { panic!("cat: no tensors") };
    let mut shape = first.shape();
    shape.dims[dim] = tensors.iter().map(|tensor| tensor.dims()[dim]).sum();
    let out = GpuTensor::empty(shape.clone(), first.dtype, &first.device);
    let mut ranges: Vec<SliceRange> = shape.dims.iter().map(|&size| SliceRange::full(size)).collect();
    let mut start = 0;
    for tensor in tensors {
        let end = start + tensor.dims()[dim];
        ranges[dim] = SliceRange { start, end, step: 1 };
        let view = out.layout.slice(&ranges);
        copy_into(tensor, &out.clone().with_layout(view));
        start = end;
    }
    out
}
