//! Operators on complex numbers, which are two tensors on their way through a program: their real parts, and their imaginary parts.
//!
//! What moves or adds elements is computed of either part, by the rule that real numbers have: `each_part` names the arguments that
//! have parts. So is what is linear in each of two arguments, of the parts of both (`bilinear`). What is neither has a rule of its
//! own in `arithmetic`; what has none is not supported, as no other table is asked.

mod arithmetic;

use super::{create, linear, shape, spectra};
use crate::error::ImportErrorKind;
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, int, unsupported};
use crate::pt2::value::{Output, Part, Value, not_real};
use crate::pt2::views::{Shown, put_back};
use kiln_types::{DType, Scalar};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Writes the nodes of a call of which an operand or a result is complex.
pub(in crate::pt2) type Rule = for<'c, 'p> fn(&mut Call<'c, 'p>) -> Result<Vec<Output>>;

/// Rules by name, as those for real numbers.
pub(super) type Table = &'static [(&'static str, Rule)];

/// Rules of views that no rule for real numbers makes: what they show, and the value of what they view, with another one where the view
/// shows it.
type ViewTable = &'static [(&'static str, Rule, Shown, PutBack)];

type PutBack =
    for<'c, 'p> fn(&mut Call<'c, 'p>, base: &Value, output: Output, position: usize) -> Result<Output>;

#[derive(Clone, Copy)]
struct Entry {
    rule: Rule,
    view: Option<View>,
}

/// What a view shows of complex numbers, or as complex numbers.
#[derive(Clone, Copy)]
pub(in crate::pt2) struct View {
    pub shown: Shown,
    pub put_back: PutBack,
}

const TABLES: &[Table] = &[PARTS, PRODUCTS, OWN, arithmetic::RULES, spectra::COMPLEX_RULES];

static RULES: LazyLock<HashMap<&str, Entry>> = LazyLock::new(|| {
    let own = TABLES.iter().copied().flatten().map(|&(name, rule)| (name, Entry { rule, view: None }));
    let views = VIEWS
        .iter()
        .map(|&(name, rule, shown, put_back)| (name, Entry { rule, view: Some(View { shown, put_back }) }));
    own.chain(views).collect()
});

pub(super) fn find(target: &str) -> Option<Rule> {
    super::of_name(&RULES, target).map(|entry| entry.rule)
}

/// What the result of an operator shows, if that is a view that no rule for real numbers makes.
pub(in crate::pt2) fn view(target: &str) -> Option<View> {
    let entry = super::of_name(&RULES, target).filter(|_| !super::family(target).ends_with("_copy"));
    entry.and_then(|entry| entry.view)
}

/// Whether an operator of this name is such a view.
pub(super) fn is_view(name: &str) -> bool {
    RULES.get(name).is_some_and(|entry| entry.view.is_some())
}

macro_rules! each_part {
    ($($argument:literal),*) => {
        |call| each_part(call, &[$($argument),*])
    };
}

macro_rules! bilinear {
    ($left:literal, $right:literal) => {
        |call| bilinear(call, [$left, $right], by_rule)
    };
}

/// What is computed of real parts, and of imaginary ones.
const PARTS: Table = &[
    ("_index_put_impl.default", each_part!("self", "values")),
    ("_reshape_alias.default", each_part!("self")),
    ("_to_copy.default", converted),
    ("_unsafe_index.Tensor", each_part!("self")),
    ("_unsafe_index_put.default", each_part!("self", "values")),
    ("_unsafe_view.default", each_part!("self")),
    ("alias.default", each_part!("self")),
    ("as_strided.default", each_part!("self")),
    ("broadcast_to.default", each_part!("self")),
    ("cat.default", each_part!("tensors")),
    ("chunk.default", each_part!("self")),
    ("clone.default", each_part!("self")),
    ("column_stack.default", each_part!("tensors")),
    ("concat.default", each_part!("tensors")),
    ("concatenate.default", each_part!("tensors")),
    ("constant_pad_nd.default", each_part!("self", "value")),
    ("contiguous.default", each_part!("self")),
    ("copy.default", each_part!("self", "src")),
    ("cumsum.default", each_part!("self")),
    ("detach.default", each_part!("self")),
    ("diag.default", each_part!("self")),
    ("diag_embed.default", each_part!("self")),
    ("diagonal.default", each_part!("self")),
    ("diagonal_scatter.default", each_part!("self", "src")),
    ("dstack.default", each_part!("tensors")),
    ("embedding.default", each_part!("weight")),
    ("empty.memory_format", each_part!()),
    ("empty_like.default", each_part!("self")),
    ("empty_permuted.default", each_part!()),
    ("empty_strided.default", each_part!()),
    ("expand.default", each_part!("self")),
    ("expand_as.default", each_part!("self", "other")),
    ("fft_fftshift.default", each_part!("self")),
    ("fft_ifftshift.default", each_part!("self")),
    ("fill.Scalar", each_part!("self", "value")),
    ("fill.Tensor", each_part!("self", "value")),
    ("flatten.using_ints", each_part!("self")),
    ("flip.default", each_part!("self")),
    ("full.default", each_part!("fill_value")),
    ("full_like.default", each_part!("self", "fill_value")),
    ("gather.default", each_part!("self")),
    ("hstack.default", each_part!("tensors")),
    ("index.Tensor", each_part!("self")),
    ("index_add.default", each_part!("self", "source")),
    ("index_copy.default", each_part!("self", "source")),
    ("index_fill.int_Scalar", each_part!("self", "value")),
    ("index_put.default", each_part!("self", "values")),
    ("index_select.default", each_part!("self")),
    ("lerp.Scalar", each_part!("self", "end")),
    ("lift_fresh.default", each_part!("self")),
    ("mT.default", each_part!("self")),
    ("masked_fill.Scalar", each_part!("self", "value")),
    ("masked_fill.Tensor", each_part!("self", "value")),
    ("masked_scatter.default", each_part!("self", "source")),
    ("masked_select.default", each_part!("self")),
    ("mean.default", each_part!("self")),
    ("mean.dim", each_part!("self")),
    ("movedim.int", each_part!("self")),
    ("movedim.intlist", each_part!("self")),
    ("narrow.default", each_part!("self")),
    ("neg.default", each_part!("self")),
    ("new_empty.default", each_part!("self")),
    ("new_empty_strided.default", each_part!("self")),
    ("new_full.default", each_part!("self", "fill_value")),
    ("new_ones.default", |call| {
        let zeros = create::uniform(&mut call.of_parts(&[("self", Part::Real)]), Scalar::Int(0))?;
        ones(call, zeros)
    }),
    ("new_zeros.default", each_part!("self")),
    ("numpy_T.default", each_part!("self")),
    ("ones.default", |call| {
        let zeros = create::uniform(&mut call.of_parts(&[]), Scalar::Int(0))?;
        ones(call, zeros)
    }),
    ("ones_like.default", |call| {
        let zeros = create::uniform_like(&mut call.of_parts(&[("self", Part::Real)]), Scalar::Int(0))?;
        ones(call, zeros)
    }),
    ("pad.default", each_part!("self", "value")),
    ("permute.default", each_part!("self")),
    ("positive.default", each_part!("self")),
    ("ravel.default", each_part!("self")),
    ("reflection_pad1d.default", each_part!("self")),
    ("reflection_pad2d.default", each_part!("self")),
    ("reflection_pad3d.default", each_part!("self")),
    ("repeat.default", each_part!("self")),
    ("repeat_interleave.self_int", each_part!("self")),
    ("replication_pad1d.default", each_part!("self")),
    ("replication_pad2d.default", each_part!("self")),
    ("replication_pad3d.default", each_part!("self")),
    ("reshape.default", each_part!("self")),
    ("reshape_as.default", each_part!("self", "other")),
    ("resolve_conj.default", each_part!("self")),
    ("resolve_neg.default", each_part!("self")),
    ("roll.default", each_part!("self")),
    ("rot90.default", each_part!("self")),
    ("rsub.Scalar", each_part!("self", "other")),
    ("rsub.Tensor", each_part!("self", "other")),
    ("scalar_tensor.default", each_part!("s")),
    ("scatter.src", each_part!("self", "src")),
    ("scatter.value", each_part!("self", "value")),
    ("scatter_add.default", each_part!("self", "src")),
    ("select.int", each_part!("self")),
    ("select_scatter.default", each_part!("self", "src")),
    ("slice.Tensor", each_part!("self")),
    ("slice_scatter.default", each_part!("self", "src")),
    ("split.Tensor", each_part!("self")),
    ("split.sizes", each_part!("self")),
    ("split_with_sizes.default", each_part!("self")),
    ("squeeze.default", each_part!("self")),
    ("squeeze.dim", each_part!("self")),
    ("squeeze.dims", each_part!("self")),
    ("stack.default", each_part!("tensors")),
    ("sum.default", each_part!("self")),
    ("sum.dim_IntList", each_part!("self")),
    ("swapaxes.default", each_part!("self")),
    ("swapdims.default", each_part!("self")),
    ("t.default", each_part!("self")),
    ("take.default", each_part!("self")),
    ("take_along_dim.default", each_part!("self")),
    ("tensor_split.indices", each_part!("self")),
    ("tensor_split.sections", each_part!("self")),
    ("tile.default", each_part!("self")),
    ("to.device", converted),
    ("to.dtype", converted),
    ("to.dtype_layout", converted),
    ("to.other", converted),
    ("to.prim_Device", converted),
    ("to.prim_dtype", converted),
    ("transpose.default", each_part!("self")),
    ("transpose.int", each_part!("self")),
    ("tril.default", each_part!("self")),
    ("triu.default", each_part!("self")),
    ("type_as.default", converted),
    ("unbind.int", each_part!("self")),
    ("unflatten.int", each_part!("self")),
    ("unfold.default", each_part!("self")),
    ("unsafe_chunk.default", each_part!("self")),
    ("unsafe_split.Tensor", each_part!("self")),
    ("unsafe_split_with_sizes.default", each_part!("self")),
    ("unsqueeze.default", each_part!("self")),
    ("view.default", each_part!("self")),
    ("view_as.default", each_part!("self", "other")),
    ("vstack.default", each_part!("tensors")),
    ("where.Scalar", each_part!("self", "other")),
    ("where.ScalarOther", each_part!("self", "other")),
    ("where.ScalarSelf", each_part!("self", "other")),
    ("where.self", each_part!("self", "other")),
    ("zero.default", each_part!("self")),
    ("zeros.default", each_part!()),
    ("zeros_like.default", each_part!("self")),
    // What depends on the shape alone.
    ("_assert_tensor_metadata.default", of_shape),
    ("sym_numel.default", of_shape),
    ("sym_size.int", of_shape),
    ("sym_storage_offset.default", of_shape),
    ("sym_stride.int", of_shape),
];

/// What is linear in each of two arguments.
const PRODUCTS: Table = &[
    ("addbmm.default", |call| {
        let product = products(call, ["batch1", "batch2"], |call| {
            let product = linear::product(call, "batch1", "batch2")?;
            let first = call.int64s(&[0]);
            Ok(call.op("ReduceSum", &[&product, &first], vec![int("keepdims", 0)]))
        })?;
        added(call, product)
    }),
    ("addmm.default", |call| added_product(call, ["mat1", "mat2"])),
    ("addmv.default", |call| added_product(call, ["mat", "vec"])),
    ("baddbmm.default", |call| added_product(call, ["batch1", "batch2"])),
    ("bmm.default", bilinear!("self", "mat2")),
    ("dot.default", bilinear!("self", "tensor")),
    ("einsum.default", einsum),
    ("ger.default", bilinear!("self", "vec2")),
    ("inner.default", bilinear!("self", "other")),
    ("kron.default", bilinear!("self", "other")),
    ("linear.default", |call| {
        let product = products(call, ["input", "weight"], linear::weighted)?;
        if !call.has("bias") {
            return Ok(vec![Output::Complex(product)]);
        }
        let mut biased = |part, product: &str| -> Result<String> {
            let bias = call.of_parts(&[("bias", part)]).tensor("bias")?;
            Ok(call.op("Add", &[product, &bias], Vec::new()))
        };
        let [real, imaginary] = &product;
        Ok(vec![Output::Complex([biased(Part::Real, real)?, biased(Part::Imaginary, imaginary)?])])
    }),
    ("matmul.default", bilinear!("self", "other")),
    ("mm.default", bilinear!("self", "mat2")),
    ("mul.Scalar", bilinear!("self", "other")),
    ("mul.Tensor", bilinear!("self", "other")),
    ("multiply.Scalar", bilinear!("self", "other")),
    ("multiply.Tensor", bilinear!("self", "other")),
    ("mv.default", bilinear!("self", "vec")),
    ("outer.default", bilinear!("self", "vec2")),
    ("tensordot.default", bilinear!("self", "other")),
    ("vdot.default", |call| {
        // The first vector is conjugated.
        let [rr, ri, ir, ii] = four(call, ["self", "other"], by_rule)?;
        let (real, imaginary) = (combined(call, "Add", rr, ii), combined(call, "Sub", ri, ir));
        Ok(vec![Output::Complex(both(call, real, imaginary)?)])
    }),
];

/// What makes complex numbers of their own.
const OWN: Table = &[
    ("_conj_physical.default", conjugated),
    ("complex.default", |call| {
        let dtype = call.of_parts(&[]).result_dtype()?;
        let (real, imaginary) = (call.tensor("real")?, call.tensor("imag")?);
        let parts = [real, imaginary].map(|part| Tensor { name: call.cast_tensor(&part, dtype), ..part });
        let [real, imaginary] = super::index::in_one_shape(call, &parts[0], &parts[1])?;
        Ok(vec![Output::Complex([real.name, imaginary.name])])
    }),
    ("conj_physical.default", conjugated),
];

/// What shows parts, or pairs as complex numbers, or conjugated ones.
const VIEWS: ViewTable = &[
    ("_conj.default", conjugated, Shown::Conjugated, put_back_conjugated),
    ("_neg_view.default", negated, Shown::Negated, put_back_negated),
    ("adjoint.default", turned, Shown::Conjugated, put_back_conjugated),
    ("conj.default", conjugated, Shown::Conjugated, put_back_conjugated),
    ("imag.default", |call| part(call, Part::Imaginary), Shown::ImaginaryPart, put_back_part),
    ("mH.default", turned, Shown::Conjugated, put_back_conjugated),
    ("matrix_H.default", turned, Shown::Conjugated, put_back_conjugated),
    ("real.default", |call| part(call, Part::Real), Shown::RealPart, put_back_part),
    ("view.dtype", reinterpreted, Shown::AsItIs, |call, base, output, _| match (base, &output) {
        (Value::Complex(_), Output::Complex(_)) => Ok(output),
        _ => Err(put_back::not_put_back(call)),
    }),
    (
        "view_as_complex.default",
        |call| {
            let pairs = call.tensor("self")?;
            let rank = pairs.rank().checked_sub(1).ok_or_else(no_pairs)?;
            Ok(vec![Output::Complex(parts_of_pairs(call, &pairs, rank))])
        },
        Shown::AsItIs,
        |call, _, output, _| match output {
            Output::Complex(parts) => Ok(Output::Real(pairs_of_parts(call, &parts))),
            Output::Real(_) => Err(put_back::not_put_back(call)),
        },
    ),
    (
        "view_as_real.default",
        |call| {
            let parts = parts_of(call, "self")?;
            Ok(vec![Output::Real(pairs_of_parts(call, &parts))])
        },
        Shown::AsItIs,
        |call, base, output, _| match (base, output) {
            (Value::Complex(base), Output::Real(value)) => {
                Ok(Output::Complex(parts_of_pairs(call, &value, base.sizes.len())))
            }
            _ => Err(put_back::not_put_back(call)),
        },
    ),
];

fn put_back_conjugated(
    call: &mut Call<'_, '_>,
    base: &Value,
    output: Output,
    position: usize,
) -> Result<Output> {
    let output = match output {
        Output::Complex([real, imaginary]) => {
            Output::Complex([real, call.op("Neg", &[&imaginary], Vec::new())])
        }
        real @ Output::Real(_) => real,
    };
    put_back::parts(call, base, output, position)
}

fn put_back_negated(call: &mut Call<'_, '_>, _: &Value, output: Output, _: usize) -> Result<Output> {
    match output {
        Output::Complex(parts) => Ok(Output::Complex(parts.map(|part| call.op("Neg", &[&part], Vec::new())))),
        Output::Real(_) => Err(put_back::not_put_back(call)),
    }
}

/// Another part of complex numbers; the other one stays.
fn put_back_part(call: &mut Call<'_, '_>, base: &Value, output: Output, _: usize) -> Result<Output> {
    let shown = view(&call.node.target).map(|view| view.shown);
    match (base, output) {
        (Value::Complex(base), Output::Real(value)) => {
            let [real, imaginary] = base.parts.clone();
            Ok(Output::Complex(if shown == Some(Shown::RealPart) {
                [value, imaginary]
            } else {
                [real, value]
            }))
        }
        _ => Err(put_back::not_put_back(call)),
    }
}

fn no_pairs() -> ImportErrorKind {
    unsupported("complex numbers of a tensor without axes")
}

// ---- parts ----

/// The results, if all are real.
pub(super) fn real(outputs: Vec<Output>) -> Result<Outputs> {
    let real = |output| match output {
        Output::Real(value) => Ok(value),
        Output::Complex(_) => Err(not_real()),
    };
    outputs.into_iter().map(real).collect()
}

/// Takes pairs apart that lie along a last axis.
pub(in crate::pt2) fn parts_of_pairs(call: &mut Call<'_, '_>, pairs: &str, axis: usize) -> [String; 2] {
    let names = [call.to.fresh(), call.to.fresh()];
    call.to.split_pairs(pairs, axis, names)
}

/// Pairs of both parts along a new last axis.
pub(in crate::pt2) fn pairs_of_parts(call: &mut Call<'_, '_>, parts: &[String; 2]) -> String {
    let [real, imaginary] = parts;
    let (real, imaginary) = (call.unsqueeze(real, &[-1]), call.unsqueeze(imaginary, &[-1]));
    call.op("Concat", &[&real, &imaginary], vec![int("axis", -1)])
}

/// The parts of an argument that must be complex.
pub(super) fn parts_of(call: &mut Call<'_, '_>, argument: &str) -> Result<[String; 2]> {
    match call.value(argument)? {
        Value::Complex(complex) => Ok(complex.parts),
        Value::Tensor(_) => Err(unsupported("real numbers where an operator takes complex ones")),
    }
}

fn part(call: &mut Call<'_, '_>, part: Part) -> Result<Vec<Output>> {
    let [real, imaginary] = parts_of(call, "self")?;
    let value = match part {
        Part::Real => real,
        Part::Imaginary => imaginary,
    };
    Ok(vec![Output::Real(call.op("Identity", &[&value], Vec::new()))])
}

fn rule_for_parts(call: &Call<'_, '_>) -> Result<super::Rule> {
    super::find(&call.node.target).ok_or_else(|| unsupported("this operator on parts of complex numbers"))
}

/// The rule for real numbers, of the real parts of some arguments, and of their imaginary parts.
fn each_part<'a>(call: &mut Call<'_, '_>, arguments: &[&'a str]) -> Result<Vec<Output>> {
    let rule = rule_for_parts(call)?;
    let mut outputs = |part| {
        let parts: Vec<(&'a str, Part)> = arguments.iter().map(|&argument| (argument, part)).collect();
        rule(&mut call.of_parts(&parts))
    };
    let (real, imaginary) = (outputs(Part::Real)?, outputs(Part::Imaginary)?);
    Ok(real.into_iter().zip(imaginary).map(|(real, imaginary)| Output::Complex([real, imaginary])).collect())
}

/// What the rule for real numbers makes of real parts alone.
fn of_shape(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let rule = rule_for_parts(call)?;
    Ok(rule(&mut call.of_parts(&[("self", Part::Real)]))?.into_iter().map(Output::Real).collect())
}

/// Another dtype; real numbers are real parts, and of complex numbers real ones keep that part.
fn converted(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    call.ignore(&["other"]);
    match (call.yields_complex(), call.value("self")?) {
        (true, Value::Complex(_)) => each_part(call, &["self"]),
        (true, Value::Tensor(x)) => {
            let dtype = call.of_parts(&[]).result_dtype()?;
            let real = Tensor { name: call.cast_tensor(&x, dtype), dtype, ..x };
            let zeros = call.zeros_like(real.clone());
            Ok(vec![Output::Complex([call.op("Identity", &[&real], Vec::new()), zeros.name])])
        }
        (false, _) => of_shape(call),
    }
}

/// Ones whose imaginary parts are these zeros.
fn ones(call: &mut Call<'_, '_>, zeros: Outputs) -> Result<Vec<Output>> {
    let rule = rule_for_parts(call)?;
    let ones = rule(&mut call.of_parts(&[("self", Part::Real)]))?;
    Ok(ones.into_iter().zip(zeros).map(|(one, zero)| Output::Complex([one, zero])).collect())
}

fn negated(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let parts = parts_of(call, "self")?;
    Ok(vec![Output::Complex(parts.map(|part| call.op("Neg", &[&part], Vec::new())))])
}

fn conjugated(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let [real, imaginary] = parts_of(call, "self")?;
    let imaginary = call.op("Neg", &[&imaginary], Vec::new());
    Ok(vec![Output::Complex([call.op("Identity", &[&real], Vec::new()), imaginary])])
}

/// The transposed, conjugated matrix.
fn turned(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let turned = each_part(call, &["self"])?;
    let conjugated = |output| match output {
        Output::Complex([real, imaginary]) => {
            Output::Complex([real, call.op("Neg", &[&imaginary], Vec::new())])
        }
        real @ Output::Real(_) => real,
    };
    Ok(turned.into_iter().map(conjugated).collect())
}

/// Pairs along the last axis as complex numbers, or the other way round.
fn reinterpreted(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let of_pairs = |dtype: DType| unsupported(format!("taking the bits of {dtype} for complex numbers"));
    let axes = |x: &Tensor| x.rank().checked_sub(1).ok_or_else(no_pairs);
    match call.value("self")? {
        Value::Tensor(x) => {
            let dtype = call.of_parts(&[]).result_dtype()?;
            let last = axes(&x)?;
            if x.dtype != dtype {
                return Err(of_pairs(x.dtype));
            }
            let mut sizes = shape::dims(call, &x);
            if let Some(size) = sizes.last_mut() {
                *size = Int::Known(-1);
            }
            sizes.push(Int::Known(2));
            let pairs = shape::reshaped(call, &x, &sizes);
            Ok(vec![Output::Complex(parts_of_pairs(call, &pairs, last + 1))])
        }
        Value::Complex(x) if call.yields_complex() => Ok(vec![Output::Complex(x.parts)]),
        Value::Complex(x) => {
            let (dtype, like) = (call.result_dtype()?, x.part(Part::Real));
            axes(&like)?;
            if x.dtype != dtype {
                return Err(of_pairs(dtype));
            }
            let mut sizes = shape::dims(call, &like);
            if let Some(size) = sizes.last_mut() {
                *size = Int::Known(-1);
            }
            let pairs = pairs_of_parts(call, &x.parts);
            Ok(vec![Output::Real(shape::reshaped(call, &pairs, &sizes))])
        }
    }
}

// ---- products ----

/// The first result of the rule for real numbers.
fn by_rule(call: &mut Call<'_, '_>) -> Result<String> {
    let rule = rule_for_parts(call)?;
    rule(call)?.into_iter().next().ok_or_else(|| unsupported("an operator without a result"))
}

/// What is computed of the real parts of both arguments, of the real part of the one and the imaginary part of the other, and so on;
/// nothing, where a part is 0.
fn four(
    call: &mut Call<'_, '_>,
    [left, right]: [&str; 2],
    product: impl Fn(&mut Call<'_, '_>) -> Result<String>,
) -> Result<[Option<String>; 4]> {
    let mut made = [None, None, None, None];
    let pairs =
        [Part::Real, Part::Imaginary].map(|own| [Part::Real, Part::Imaginary].map(|other| [own, other]));
    for (made, [own, other]) in made.iter_mut().zip(pairs.into_iter().flatten()) {
        if call.has_part(left, own)? && call.has_part(right, other)? {
            *made = Some(product(&mut call.of_parts(&[(left, own), (right, other)]))?);
        }
    }
    Ok(made)
}

/// The sum or difference of two parts, of which either may be 0.
fn combined(
    call: &mut Call<'_, '_>,
    operator: &str,
    left: Option<String>,
    right: Option<String>,
) -> Option<String> {
    match (left, right) {
        (Some(left), Some(right)) => Some(call.op(operator, &[&left, &right], Vec::new())),
        (None, Some(right)) if operator == "Sub" => Some(call.op("Neg", &[&right], Vec::new())),
        (left, right) => left.or(right),
    }
}

/// Both parts; one that is 0 has the shape of the other.
fn both(call: &mut Call<'_, '_>, real: Option<String>, imaginary: Option<String>) -> Result<[String; 2]> {
    let dtype = call.of_parts(&[]).result_dtype()?;
    let mut zeros = |like: &str| {
        let like = Tensor { name: like.to_owned(), dtype, sizes: vec![None] };
        call.zeros_like(like).name
    };
    match (real, imaginary) {
        (Some(real), Some(imaginary)) => Ok([real, imaginary]),
        (Some(real), None) => {
            let imaginary = zeros(&real);
            Ok([real, imaginary])
        }
        (None, Some(imaginary)) => Ok([zeros(&imaginary), imaginary]),
        (None, None) => Err(unsupported("a product of no parts")),
    }
}

/// Real and imaginary part of a product.
fn products(
    call: &mut Call<'_, '_>,
    arguments: [&str; 2],
    product: impl Fn(&mut Call<'_, '_>) -> Result<String>,
) -> Result<[String; 2]> {
    let [rr, ri, ir, ii] = four(call, arguments, product)?;
    let (real, imaginary) = (combined(call, "Sub", rr, ii), combined(call, "Add", ri, ir));
    both(call, real, imaginary)
}

fn bilinear(
    call: &mut Call<'_, '_>,
    arguments: [&str; 2],
    product: impl Fn(&mut Call<'_, '_>) -> Result<String>,
) -> Result<Vec<Output>> {
    Ok(vec![Output::Complex(products(call, arguments, product)?)])
}

/// `beta · self + alpha · product`.
fn added(call: &mut Call<'_, '_>, [real, imaginary]: [String; 2]) -> Result<Vec<Output>> {
    let real = linear::added(&mut call.of_parts(&[("self", Part::Real)]), &real)?;
    let imaginary = linear::added(&mut call.of_parts(&[("self", Part::Imaginary)]), &imaginary)?;
    Ok(real.into_iter().zip(imaginary).map(|(real, imaginary)| Output::Complex([real, imaginary])).collect())
}

fn added_product(call: &mut Call<'_, '_>, [left, right]: [&str; 2]) -> Result<Vec<Output>> {
    let product = products(call, [left, right], |call| linear::product(call, left, right))?;
    added(call, product)
}

/// The product of any number of tensors, summed over indices: each choice of parts has an odd or even number of imaginary ones.
fn einsum(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    /// Choices double with each complex operand.
    const MOST: usize = 4;
    let mut operands = call.values("tensors")?;
    for value in &mut operands {
        if let Value::Complex(complex) = value
            && call.to.are_zeros(&complex.parts[1])
        {
            *value = Value::Tensor(complex.part(Part::Real));
        }
    }
    let complex = operands.iter().filter(|value| matches!(value, Value::Complex(_))).count();
    if complex > MOST {
        return Err(unsupported(format!("`einsum` of more than {MOST} complex tensors")));
    }
    let dtype = call.of_parts(&[]).result_dtype()?;
    let mut sums: [Option<String>; 2] = [None, None];
    for choice in 0..1u32 << complex {
        let mut place = 0;
        let mut inputs = Vec::with_capacity(operands.len());
        for value in &operands {
            inputs.push(match value {
                Value::Tensor(tensor) => call.cast_tensor(tensor, dtype),
                Value::Complex(complex) => {
                    let part = if choice >> place & 1 == 1 { Part::Imaginary } else { Part::Real };
                    place += 1;
                    complex.part(part).name
                }
            });
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let term = linear::summed(call, &inputs)?;
        // Powers of the imaginary unit.
        let imaginary = choice.count_ones();
        let [real_sum, imaginary_sum] = &mut sums;
        let sum = if imaginary % 2 == 0 { real_sum } else { imaginary_sum };
        let operator = if imaginary % 4 < 2 { "Add" } else { "Sub" };
        *sum = combined(call, operator, sum.take(), Some(term));
    }
    let [real, imaginary] = sums;
    Ok(vec![Output::Complex(both(call, real, imaginary)?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_one_rule() {
        let tables: usize = TABLES.iter().map(|table| table.len()).sum();
        assert_eq!(tables + VIEWS.len(), RULES.len());
    }
}
