//! How checkpoints of the original network fill the fields of a module.
//!
//! A field whose parameters are simply the original's, under its own name and laid out as PyTorch does, says nothing;
//! others carry an attribute. Keys are relative to the module, so that equal modules still share a struct.

use super::home::relative;
use super::{Content, Field, Plan};
use kiln_importer::fold::uniform;
use kiln_importer::ir::spelling::LayerField;
use kiln_importer::ir::{Norm, Op, Provenance, ValueId};
use kiln_types::{Activation, BinaryOp, Derivation, ReduceOp, UnaryOp, in_pytorch};
use std::collections::BTreeSet;

/// How a field is filled.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldOrigin {
    /// A batch normalization was folded into the layer.
    BatchNorm {
        /// Its path in the module.
        path: String,
        /// What it adds to the variance.
        epsilon: f64,
        /// Whether the layer had a bias before.
        biased: bool,
    },
    /// Parameters of a layer, or (under an empty name) the field itself, are computed.
    Derived(Vec<(&'static str, String)>),
    /// No checkpoint has it.
    Constant,
}

/// How checkpoints fill a field of a module; `None` where they do without saying.
pub fn origin(plan: &Plan<'_>, module: usize, field: &Field) -> Option<FieldOrigin> {
    if !matches!(plan.checkpoints, Checkpoints::Taken { .. }) {
        return None;
    }
    let base = &plan.modules[module].path;
    let path = if base.is_empty() { field.key.clone() } else { format!("{base}.{}", field.key) };
    match &field.content {
        Content::Parameter(value) => {
            let constant = plan.graph.constant(*value)?;
            match (constant.provenance.as_deref(), number(plan, *value)) {
                (None, None) => Some(FieldOrigin::Constant),
                (None, Some(number)) => {
                    Some(FieldOrigin::Derived(vec![("", Derivation::Number(number).to_string())]))
                }
                (Some(made), _) if is_key(made, &path, false) => None,
                (Some(made), _) => {
                    let text = text(plan, made, &(path, false), base)?;
                    Some(FieldOrigin::Derived(vec![("", text)]))
                }
            }
        }
        Content::Layer(node) => {
            let layer = plan.layer(*node)?;
            let kind = layer.ty.rsplit("::").next().unwrap_or(layer.ty);
            let parameters: Vec<Parameter<'_>> = layer
                .fields
                .iter()
                .filter_map(|(name, field)| parameter(plan, kind, name, field, &path))
                .collect();
            folded_norm(&parameters, base).or_else(|| derived(plan, &parameters, base))
        }
        Content::Module(_) | Content::Sequence(_) | Content::Absent => None,
    }
}

/// A parameter of a layer.
struct Parameter<'g> {
    name: &'static str,
    /// How it is made, if not known from the graph alone.
    made: Option<&'g Provenance>,
    /// The one number that it is everywhere.
    number: Option<f64>,
    /// Where checkpoints have it when nothing is said, and whether it is transposed there.
    own: (String, bool),
}

fn parameter<'g>(
    plan: &Plan<'g>,
    kind: &str,
    name: &'static str,
    field: &LayerField,
    path: &str,
) -> Option<Parameter<'g>> {
    let constant = plan.graph.constant(field.value()?)?;
    let (key, turned) = in_pytorch(kind, name);
    let own = (format!("{path}.{key}"), turned);
    let made = constant.provenance.as_deref();
    Some(Parameter { name, made, number: number(plan, field.value()?), own })
}

impl Parameter<'_> {
    /// Whether a provenance is what checkpoints have for it.
    fn is_own(&self, made: &Provenance) -> bool {
        is_key(made, &self.own.0, self.own.1)
    }
}

/// Whether a provenance is a key, perhaps transposed.
fn is_key(made: &Provenance, wanted: &str, turned: bool) -> bool {
    match plain(made) {
        Provenance::Key { key, .. } => !turned && key == wanted,
        Provenance::Apply { op: Op::Permute { axes }, operands } => {
            turned
                && axes.as_slice() == [1, 0]
                && operands.first().is_some_and(|of| is_key(of, wanted, false))
        }
        _ => false,
    }
}

/// A provenance without casts between floats: parameters get the backend's dtype anyway.
fn plain(made: &Provenance) -> &Provenance {
    match made {
        Provenance::Apply { op: Op::Cast { to }, operands } if to.is_float() => match operands.first() {
            Some(of) => plain(of),
            None => made,
        },
        made => made,
    }
}

/// A normalization with PyTorch's names, folded into weight and bias.
fn folded_norm(parameters: &[Parameter<'_>], base: &str) -> Option<FieldOrigin> {
    let [weight, bias] = parameters else { return None };
    if (weight.name, bias.name) != ("weight", "bias") {
        return None;
    }
    let norm = match plain(weight.made?) {
        Provenance::Scaled { weight: own, scale, .. } if weight.is_own(own) => match plain(scale) {
            Provenance::NormScale(norm) => norm,
            _ => return None,
        },
        _ => return None,
    };
    let is_shift = |made: &Provenance| matches!(plain(made), Provenance::NormShift(other) if other == norm);
    let is_scale = |made: &Provenance| matches!(plain(made), Provenance::NormScale(other) if other == norm);
    let biased = match plain(bias.made?) {
        made if is_shift(made) => false,
        Provenance::Apply { op: Op::Binary(BinaryOp::Add), operands } => match operands.as_slice() {
            [product, shift] if is_shift(shift) => match plain(product) {
                Provenance::Apply { op: Op::Binary(BinaryOp::Mul), operands } => match operands.as_slice() {
                    [own, scale] if bias.is_own(own) && is_scale(scale) => true,
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    let path = norm_path(norm)?;
    let path = relative(&path, base)?.to_owned();
    Some(FieldOrigin::BatchNorm { path, epsilon: short(norm.epsilon), biased })
}

/// The path below which all parameters of a normalization have PyTorch's names.
fn norm_path(norm: &Norm) -> Option<String> {
    let path = match plain(&norm.gamma) {
        Provenance::Key { key, .. } => key.strip_suffix(".weight")?,
        _ => return None,
    };
    let named = |made: &Provenance, name: &str| is_key(made, &format!("{path}.{name}"), false);
    let all = named(&norm.beta, "bias")
        && named(&norm.mean, "running_mean")
        && named(&norm.variance, "running_var");
    all.then(|| path.to_owned())
}

/// Epsilons come as f32: `9.999999747378752e-6` is meant to be `1e-5`.
fn short(value: f64) -> f64 {
    (value as f32)
        .to_string()
        .parse()
        .ok()
        .filter(|short: &f64| *short as f32 == value as f32)
        .unwrap_or(value)
}

fn derived(plan: &Plan<'_>, parameters: &[Parameter<'_>], base: &str) -> Option<FieldOrigin> {
    if !parameters.is_empty() && parameters.iter().all(|p| p.made.is_none() && p.number.is_none()) {
        return Some(FieldOrigin::Constant);
    }
    let mut texts = Vec::new();
    for parameter in parameters {
        let text = match (parameter.made, parameter.number) {
            (Some(made), _) if parameter.is_own(made) => continue,
            (Some(made), _) => text(plan, made, &parameter.own, base)?,
            (None, Some(number)) => Derivation::Number(number).to_string(),
            (None, None) => Derivation::Constant.to_string(),
        };
        texts.push((parameter.name, text));
    }
    (!texts.is_empty()).then_some(FieldOrigin::Derived(texts))
}

/// The expression of a parameter. `own` is where checkpoints have it when nothing is said, and whether it is transposed
/// there.
fn text(plan: &Plan<'_>, made: &Provenance, own: &(String, bool), base: &str) -> Option<String> {
    let mut derivation = derivation(made, base).ok()?;
    if plan.graph.tied_keys.contains(&own.0) && matches!(plain(made), Provenance::Key { .. }) && !own.1 {
        let own = Derivation::key(relative(&own.0, base)?, false);
        return Some(Derivation::First(vec![own, derivation]).to_string());
    }
    // The parameter's own shape needs no words.
    if let Derivation::Reshape(_, sizes) = &mut derivation {
        *sizes = None;
    }
    Some(derivation.to_string())
}

/// A provenance as an expression, its keys relative to a module. The error says what cannot be expressed.
fn derivation(made: &Provenance, base: &str) -> Result<Derivation, String> {
    let of = |part: &Provenance| derivation(part, base);
    let boxed = |part: &Provenance| of(part).map(Box::new);
    Ok(match plain(made) {
        Provenance::Key { key, .. } => match relative(key, base) {
            Some(key) => Derivation::key(key, false),
            None => Derivation::key(key, true),
        },
        Provenance::Literal(data) => match uniform(data) {
            Some(number) => Derivation::Number(number),
            None => return Err(format!("a table of {} numbers", data.num_elements())),
        },
        Provenance::Apply { op, operands } => {
            let parts: Vec<&Provenance> = operands.iter().map(|operand| &**operand).collect();
            applied(op, &parts, base)?
        }
        Provenance::Scaled { weight, scale, .. } => Derivation::Scaled(boxed(weight)?, boxed(scale)?),
        Provenance::NormScale(norm) => scale_of(norm, base)?,
        Provenance::NormShift(norm) => {
            let moved = Derivation::binary(BinaryOp::Mul, of(&norm.mean)?, scale_of(norm, base)?);
            Derivation::binary(BinaryOp::Sub, of(&norm.beta)?, moved)
        }
        Provenance::Exporter { .. } => return Err("what the exporter did".into()),
        Provenance::TooMuch { .. } => return Err("a long computation".into()),
    })
}

fn scale_of(norm: &Norm, base: &str) -> Result<Derivation, String> {
    let variance = derivation(&norm.variance, base)?;
    let sum = Derivation::binary(BinaryOp::Add, variance, Derivation::Number(short(norm.epsilon)));
    let root = Derivation::Unary(UnaryOp::Sqrt, Box::new(sum));
    Ok(Derivation::binary(BinaryOp::Div, derivation(&norm.gamma, base)?, root))
}

/// An operation as an expression.
fn applied(op: &Op, operands: &[&Provenance], base: &str) -> Result<Derivation, String> {
    let unknown = || format!("the operation {}", op.name());
    let of = |n: usize| operands.get(n).ok_or_else(unknown).and_then(|part| derivation(part, base));
    let boxed = |n: usize| of(n).map(Box::new);
    let sizes = |dims: &[kiln_importer::ir::Dim]| -> Result<Vec<usize>, String> {
        dims.iter().map(|dim| dim.as_size().ok_or_else(unknown)).collect()
    };
    let one = Derivation::Number(1.0);
    Ok(match op {
        Op::Unary(op) => Derivation::Unary(*op, boxed(0)?),
        Op::Activation(Activation::Tanh) => Derivation::Unary(UnaryOp::Tanh, boxed(0)?),
        Op::Activation(Activation::Sigmoid) => {
            let exp = Derivation::Unary(UnaryOp::Exp, Box::new(Derivation::Unary(UnaryOp::Neg, boxed(0)?)));
            Derivation::binary(BinaryOp::Div, one.clone(), Derivation::binary(BinaryOp::Add, one, exp))
        }
        Op::Activation(Activation::Softplus) => {
            Derivation::Unary(UnaryOp::Log1p, Box::new(Derivation::Unary(UnaryOp::Exp, boxed(0)?)))
        }
        Op::Binary(op) => Derivation::binary(*op, of(0)?, of(1)?),
        Op::Permute { axes } => Derivation::Permute(boxed(0)?, axes.clone()),
        Op::Reshape { dims } => Derivation::Reshape(boxed(0)?, Some(sizes(dims)?)),
        Op::Expand { dims } => Derivation::Expand(boxed(0)?, sizes(dims)?),
        Op::Concat { axis: 0 } => joined((0..operands.len()).map(of).collect::<Result<_, _>>()?, operands),
        Op::Concat { axis } => {
            Derivation::Concat(*axis, (0..operands.len()).map(of).collect::<Result<_, _>>()?)
        }
        Op::Slice { ranges } => {
            let mut cut = of(0)?;
            for (axis, range) in ranges.iter().enumerate() {
                let (start, end) = (range.start.as_size(), range.end.as_size());
                let (Some(start), Some(end), Ok(step @ 1..)) = (start, end, usize::try_from(range.step))
                else {
                    return Err(unknown());
                };
                let size =
                    operands.first().and_then(|of| of.shape()).and_then(|shape| shape.get(axis).copied());
                if (start, step) == (0, 1) && size == Some(end) {
                    continue;
                }
                cut = Derivation::Slice { of: Box::new(cut), axis, start, end, step };
            }
            cut
        }
        Op::Reduce {
            op: op @ (ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min),
            axes,
            keep_dims: true,
        } => Derivation::Reduce(*op, boxed(0)?, axes.clone()),
        Op::MatMul if operands.iter().all(|of| of.shape().is_some_and(|shape| shape.len() == 2)) => {
            Derivation::MatMul(boxed(0)?, boxed(1)?)
        }
        _ => return Err(unknown()),
    })
}

/// Tensors joined along the first axis, said without sizes where that is possible, so that modules of other sizes are
/// equal: the gates of recurrent layers in another order, their directions.
fn joined(parts: Vec<Derivation>, operands: &[&Provenance]) -> Derivation {
    stacked(&parts, operands).or_else(|| reordered(&parts, operands)).unwrap_or(Derivation::Concat(0, parts))
}

/// Parts that have an axis of size 1 in front, which was put there.
fn stacked(parts: &[Derivation], operands: &[&Provenance]) -> Option<Derivation> {
    let inner = parts.iter().zip(operands).map(|(part, operand)| match (part, operand) {
        (Derivation::Reshape(inner, Some(sizes)), Provenance::Apply { operands, .. }) => {
            let shape = operands.first()?.shape()?;
            let (&[1], rest) = sizes.split_at_checked(1)? else { return None };
            (*rest == *shape).then(|| (**inner).clone())
        }
        _ => None,
    });
    Some(Derivation::Stack(inner.collect::<Option<_>>()?))
}

/// Slices that are all the equal parts of one tensor.
fn reordered(parts: &[Derivation], operands: &[&Provenance]) -> Option<Derivation> {
    let Provenance::Apply { operands: first, .. } = operands.first()? else { return None };
    let size = *first.first()?.shape()?.first()?;
    let length =
        size.checked_div(parts.len()).filter(|length| length * parts.len() == size && *length > 0)?;
    let mut source: Option<&Derivation> = None;
    let order = parts.iter().map(|part| match part {
        Derivation::Slice { of, axis: 0, start, end, step: 1 } if start + length == *end => {
            let one = *source.get_or_insert(of) == &**of && start % length == 0;
            one.then_some(start / length)
        }
        _ => None,
    });
    let order: Vec<usize> = order.collect::<Option<_>>()?;
    Some(Derivation::Parts(Box::new(source?.clone()), order))
}

/// Why a model cannot take checkpoints at all: parameters that the exporter, or Kiln, changed in ways that cannot be
/// repeated. `None` when it can.
fn refusal(plan: &Plan<'_>) -> Option<String> {
    let mut exporters: Vec<String> = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for value in parameters(plan) {
        let Some(made) = plan.graph.provenance(value) else { continue };
        let name = plan.graph.constant(value).and_then(|constant| constant.name.clone());
        let name = name.unwrap_or_else(|| "a parameter".into());
        let keys = made.keys();
        if made.is_exporters() {
            let from: Vec<&str> = keys.iter().filter(|key| **key != name).map(String::as_str).collect();
            exporters.push(if from.is_empty() { name } else { format!("{name} (from {})", from.join(", ")) });
        } else if let Err(what) = derivation(&made, "") {
            others.push(format!("{name} (from {}, by {what})", keys.join(", ")));
        }
    }
    let list = |names: &[String]| {
        /// More would hide the advice behind them.
        const SHOWN: usize = 3;
        let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        match names.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    };
    if !exporters.is_empty() {
        return Some(format!(
            "the exporter changed {}; export with optimize=False (the older exporter: do_constant_folding=False, \
             training=TrainingMode.PRESERVE)",
            list(&exporters)
        ));
    }
    (!others.is_empty()).then(|| format!("it cannot be repeated how {} were computed", list(&others)))
}

/// Whether and how a model takes checkpoints of the original network.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Checkpoints {
    /// It has no parameters that a checkpoint could hold.
    #[default]
    None,
    /// It does not, for this reason.
    Refused(String),
    /// It does.
    Taken {
        /// Whether it has parameters besides that no checkpoint holds.
        constants: bool,
    },
}

/// Decides it for a plan whose parameters have their places.
pub fn checkpoints(plan: &Plan<'_>) -> Checkpoints {
    let made = |value: &ValueId| plan.graph.provenance(*value).is_some();
    let values = parameters(plan);
    // What has no names but the exporter's numbers may come from anywhere.
    let of_keys = |value: &ValueId| plan.graph.provenance(*value).is_some_and(|made| !made.keys().is_empty());
    if !values.iter().any(of_keys) {
        return Checkpoints::None;
    }
    if let Some(reason) = refusal(plan) {
        return Checkpoints::Refused(reason);
    }
    let constants = values.iter().any(|value| !made(value) && number(plan, *value).is_none());
    Checkpoints::Taken { constants }
}

/// The one number that a parameter is everywhere, when no checkpoint has it.
fn number(plan: &Plan<'_>, value: ValueId) -> Option<f64> {
    let constant = plan.graph.constant(value).filter(|constant| constant.provenance.is_none())?;
    if constant.data.dtype.is_bool() {
        None
    } else {
        uniform(&constant.data).filter(|number| number.is_finite())
    }
}

/// Every parameter of the modules, in order.
fn parameters(plan: &Plan<'_>) -> Vec<ValueId> {
    let mut found = Vec::new();
    let (mut waiting, mut seen) = (vec![plan.root], BTreeSet::new());
    while let Some(module) = waiting.pop() {
        if !seen.insert(module) {
            continue;
        }
        for field in &plan.modules[module].fields {
            match &field.content {
                Content::Parameter(value) => found.push(*value),
                Content::Layer(node) => {
                    let fields = plan.layer(*node).map(|layer| layer.fields.as_slice()).unwrap_or_default();
                    found.extend(fields.iter().filter_map(|(_, field)| field.value()));
                }
                Content::Module(child) => waiting.push(*child),
                Content::Sequence(children) => waiting.extend(children.iter().rev()),
                Content::Absent => {}
            }
        }
    }
    found
}
