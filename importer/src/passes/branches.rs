//! Sums of branches that see the same image, as some networks have while they are trained: one convolution.
//!
//! A convolution whose kernel lies in another's, a batch normalization and, for what sees one channel each, the image itself
//! are kernels that the larger kernel takes in.

use super::affine::{Numbers, is_loss, norm};
use super::{Rewrite, Rule};
use crate::data::{Elements, fill};
use crate::ir::{BatchNorm, Concat, Constant, Conv, Op, Origin, Provenance, Reshape, ValueId};
use kiln_types::{BinaryOp, ConvOptions, DType, Scalar, TensorData, UnaryOp};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let &Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub)) = cx.op() else {
        return None;
    };
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    // What is trained stays apart: a sum of two parameters would be one that learns as neither does.
    if cx.options.trainable || a == b || cx.ty(a).dims != cx.ty(b).dims {
        return None;
    }
    let (a, mut b) = match (Branch::of_convolution(cx, a), Branch::of_convolution(cx, b)) {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => {
            let b = a.beside(cx, b)?;
            (a, b)
        }
        (None, Some(b)) => (b.beside(cx, a)?, b),
        (None, None) => return None,
    };
    if op == BinaryOp::Sub {
        b = b.negated()?;
    }
    // Of equal kernels the one that has a name.
    let (large, small) = match b.place_of(&a) {
        Some(_) if a.weight.name.is_none() || a.place_of(&b).is_none() => (b, a),
        _ => (a, b),
    };
    large.add(cx, small)?;
    Some("branch into convolution")
}

/// A summand that is a convolution of an image, or can be written as one.
struct Branch {
    /// Where the convolution stands, or the one beside which this is.
    origin: Origin,
    image: ValueId,
    options: ConvOptions,
    weight: Constant,
    bias: Option<Constant>,
    /// What the convolution adds already.
    residual: Option<ValueId>,
}

impl Branch {
    /// The convolution that computes a value nobody else uses.
    fn of_convolution(cx: &Rewrite<'_>, id: ValueId) -> Option<Self> {
        let node = cx.producer(id).filter(|_| cx.used_once(id))?;
        let Op::Conv(Conv { options, activation: None }) = &node.op else {
            return None;
        };
        let operand = |n: usize| node.inputs.get(n).copied().flatten();
        // A name that another layer uses as well must not stand for two contents.
        let parameter = |id: ValueId| {
            let constant = cx.constant(id).filter(|constant| constant.data.dtype.is_float())?;
            let name = constant.name.clone().filter(|_| cx.used_once(id));
            Some(Constant { name, ..constant.clone() })
        };
        let bias = match operand(2) {
            Some(bias) => Some(parameter(bias)?),
            None => None,
        };
        let (image, weight) = (operand(0)?, parameter(operand(1)?)?);
        let (origin, options) = (node.origin.clone(), options.clone());
        Some(Self { origin, image, options, weight, bias, residual: operand(3) })
    }

    /// A value that is this convolution's image, or that normalized, as another such convolution.
    fn beside(&self, cx: &Rewrite<'_>, id: ValueId) -> Option<Self> {
        let &[out, in_group, ..] = self.weight.data.shape.as_slice() else {
            return None;
        };
        let groups = self.options.groups;
        let same_channels = in_group.checked_mul(groups) == Some(out);
        if !same_channels || self.options.stride.iter().any(|&stride| stride != 1) {
            return None;
        }
        let (dtype, one_each) = (self.weight.data.dtype, in_group == 1);
        let (scale, bias) = if id == self.image {
            // Others add it on their way out for next to nothing, and may round their weights.
            let ones = one_each.then(|| fill(&[out], Scalar::Float(1.0), dtype))??;
            (Constant { name: None, data: ones, provenance: None }, None)
        } else {
            let node = cx.producer(id).filter(|_| cx.used_once(id))?;
            let &Op::BatchNorm(BatchNorm { epsilon, .. }) = &node.op else {
                return None;
            };
            if node.inputs.first() != Some(&Some(self.image)) {
                return None;
            }
            let parameter = |numbers: Numbers| numbers.constant(None, dtype);
            let (scale, shift) = norm(cx, node, out, epsilon)?;
            (parameter(scale), Some(parameter(shift)))
        };
        let mut shape = vec![1; self.weight.data.shape.len()];
        *shape.first_mut()? = out;
        let column = Op::Reshape(Reshape { dims: shape.iter().map(|&size| size.into()).collect() });
        let mut weight = made(&column, &[&scale])?;
        if !one_each {
            cx.look(out.checked_mul(in_group)?)?;
            *shape.get_mut(1)? = in_group;
            weight =
                made(&Op::Binary(BinaryOp::Mul), &[&weight, &own_channels(out, in_group, shape, dtype)])?;
        }
        let axes = self.options.stride.len();
        Some(Self {
            origin: self.origin.clone(),
            image: self.image,
            options: ConvOptions {
                padding: std::iter::repeat_n((0, 0), axes).collect(),
                dilation: self.options.stride.clone(),
                ..self.options.clone()
            },
            weight,
            bias,
            residual: None,
        })
    }

    fn negated(self) -> Option<Self> {
        let negate = |constant: Constant| {
            let negative = made(&Op::Unary(UnaryOp::Neg), &[&constant])?;
            Some(Constant { name: constant.name, ..negative })
        };
        let bias = match self.bias {
            Some(bias) => Some(negate(bias)?),
            None => None,
        };
        let weight = negate(self.weight)?;
        self.residual.is_none().then_some(Self { weight, bias, ..self })
    }

    /// Where another branch's kernel lies in this one's, by axis, if all of it does.
    fn place_of(&self, other: &Self) -> Option<Vec<usize>> {
        let (ours, theirs) = (&self.options, &other.options);
        let (weight, part) = (&self.weight.data, &other.weight.data);
        let same_sums = self.image == other.image
            && (&ours.stride, ours.groups) == (&theirs.stride, theirs.groups)
            && weight.dtype == part.dtype
            && weight.shape.get(..2)? == part.shape.get(..2)?;
        if !same_sums {
            return None;
        }
        let mut place = Vec::new();
        for (axis, (&size, &part)) in weight.shape.get(2..)?.iter().zip(part.shape.get(2..)?).enumerate() {
            let (dilation, other) = (*ours.dilation.get(axis)?, *theirs.dilation.get(axis)?);
            let before = ours.padding.get(axis)?.0.checked_sub(theirs.padding.get(axis)?.0)?;
            let at = before.checked_div(dilation)?;
            // Of a single element it says nothing how far the next one is.
            let same_grid = before.is_multiple_of(dilation) && (dilation == other || part == 1);
            if !same_grid || at.checked_add(part)? > size {
                return None;
            }
            place.push(at);
        }
        Some(place)
    }

    /// The current node becomes this convolution, the other one in it; not if no checkpoint could be taken then.
    fn add(self, cx: &mut Rewrite<'_>, other: Self) -> Option<()> {
        let place = self.place_of(&other)?;
        let residual = match (self.residual, other.residual) {
            (Some(_), Some(_)) => return None,
            (ours, theirs) => ours.or(theirs),
        };
        cx.remake(&self.weight.data)?;
        let sum = |a: &Constant, b: &Constant| made(&Op::Binary(BinaryOp::Add), &[a, b]);
        let part = padded(other.weight, &place, self.weight.data.shape.get(2..)?)?;
        let weight = sum(&self.weight, &part)?;
        let bias_name = self.bias.as_ref().map_or_else(
            || Some(format!("{}.bias", self.weight.name.as_deref()?.strip_suffix(".weight")?)),
            |bias| bias.name.clone(),
        );
        let bias = match (self.bias, other.bias) {
            (Some(ours), Some(theirs)) => Some(sum(&ours, &theirs)?),
            (ours, theirs) => ours.or(theirs),
        };
        if is_loss(&weight) || bias.as_ref().is_some_and(is_loss) {
            return None;
        }
        let weight = cx.add_derived(self.weight.name, weight.data, weight.provenance);
        let mut inputs = vec![Some(self.image), Some(weight)];
        let bias = bias.map(|bias| cx.add_derived(bias_name, bias.data, bias.provenance));
        if bias.is_some() || residual.is_some() {
            inputs.push(bias);
        }
        if residual.is_some() {
            inputs.push(residual);
        }
        let op = Op::Conv(Conv { options: self.options, activation: None });
        cx.replace_as(op, inputs, Some(self.origin))
    }
}

/// What an operation makes of constants, and of how they were made.
fn made(op: &Op, operands: &[&Constant]) -> Option<Constant> {
    let data: Vec<Option<&TensorData>> = operands.iter().map(|operand| Some(&operand.data)).collect();
    let from: Vec<_> = operands.iter().map(|operand| (operand.provenance.clone(), &operand.data)).collect();
    let data = op.evaluate(&data)?.pop()?;
    Some(Constant { name: None, data, provenance: Provenance::of_operation(op, &from) })
}

/// A kernel with zeros around it: a larger one that has it at this place.
fn padded(mut weight: Constant, place: &[usize], sizes: &[usize]) -> Option<Constant> {
    for (axis, (&before, &size)) in (2..).zip(place.iter().zip(sizes)) {
        let shape = weight.data.shape.clone();
        let after = size.checked_sub(before)?.checked_sub(*shape.get(axis)?)?;
        let zeros = |count: usize| {
            let mut shape = shape.clone();
            *shape.get_mut(axis)? = count;
            let data = fill(&shape, Scalar::Float(0.0), weight.data.dtype)?;
            Some(Constant { name: None, data, provenance: None })
        };
        let (before, after) = (zeros(before)?, zeros(after)?);
        if before.data.num_elements() + after.data.num_elements() > 0 {
            weight = made(&Op::Concat(Concat { axis }), &[&before, &weight, &after])?;
        }
    }
    Some(weight)
}

/// The kernel of one element that yields each channel as it is; `out` and `in_group` are its first sizes.
fn own_channels(out: usize, in_group: usize, shape: Vec<usize>, dtype: DType) -> Constant {
    let own = |i: usize| if i / in_group % in_group == i % in_group { 1.0 } else { 0.0 };
    let data = Elements::Float((0..out * in_group).map(own).collect()).store(dtype, shape);
    Constant { name: None, data, provenance: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Graph};
    use crate::passes::testing::{checked, constant, graph, kinds, single};
    use crate::passes::{Options, optimize};

    const CHANNELS: usize = 4;

    fn ramp(count: usize, step: f32) -> Vec<f32> {
        (0..count).map(|i| (i % 11) as f32 * step - 0.5).collect()
    }

    /// A convolution of an image of [`CHANNELS`] with as many in its result, that keeps the image's sizes at a stride of 1.
    fn conv(
        b: &mut Builder<'_>,
        x: ValueId,
        name: &str,
        kernel: usize,
        stride: usize,
        groups: usize,
    ) -> ValueId {
        let half = kernel / 2;
        let options = ConvOptions::new([stride, stride], [half, half], [1, 1], groups);
        let shape = [CHANNELS, CHANNELS / groups, kernel, kernel];
        let weight = ramp(shape.iter().product(), 0.1 / kernel as f32);
        let weight = constant(b, Some(&format!("{name}.weight")), &shape, &weight);
        let bias = constant(b, Some(&format!("{name}.bias")), &[CHANNELS], &ramp(CHANNELS, 0.3));
        b.add(Op::Conv(Conv { options, activation: None }), &[x, weight, bias]).unwrap()
    }

    fn normalized(b: &mut Builder<'_>, x: ValueId, name: &str) -> ValueId {
        let mut parameter =
            |which: &str, values: &[f32]| constant(b, Some(&format!("{name}.{which}")), &[CHANNELS], values);
        let weight = parameter("weight", &ramp(CHANNELS, 0.4));
        let bias = parameter("bias", &ramp(CHANNELS, 0.2));
        let mean = parameter("running_mean", &ramp(CHANNELS, 0.7));
        let variance = parameter("running_var", &[0.5, 1.5, 0.7, 2.0]);
        b.add(Op::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: None }), &[x, weight, bias, mean, variance])
            .unwrap()
    }

    fn binary(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        b.add(Op::Binary(op), &[x, y]).unwrap()
    }

    fn add(b: &mut Builder<'_>, x: ValueId, y: ValueId) -> ValueId {
        binary(b, BinaryOp::Add, x, y)
    }

    /// `x + scale (conv 3×3 + conv 1×1 + norm - norm)`, as networks mix tokens.
    fn mixer(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (first, small) = (normalized(b, x, "identity"), conv(b, x, "small", 1, 1, CHANNELS));
        let sum = add(b, small, first);
        let large = conv(b, x, "large", 3, 1, CHANNELS);
        let (sum, norm) = (add(b, sum, large), normalized(b, x, "norm"));
        let difference = binary(b, BinaryOp::Sub, sum, norm);
        let scale = constant(b, Some("scale"), &[1, CHANNELS, 1, 1], &ramp(CHANNELS, 0.3));
        let scaled = binary(b, BinaryOp::Mul, difference, scale);
        add(b, x, scaled)
    }

    fn weight_name(g: &Graph) -> Option<String> {
        g.constant(single(g).inputs[1]?)?.name.clone()
    }

    #[test]
    fn a_mixer_of_tokens_is_one_depthwise_convolution() {
        let g = checked(graph(&["f32[n, 4, 5, 6]"], |b, x| vec![mixer(b, x[0])]), &[("n", 2)]);
        assert_eq!(weight_name(&g).as_deref(), Some("large.weight"));
        let weight = g.constant(single(&g).inputs[1].unwrap()).unwrap();
        assert!(weight.provenance.as_ref().unwrap().is_repeatable());
    }

    #[test]
    fn smaller_kernels_lie_in_larger_ones() {
        for (stride, groups) in [(1, 1), (2, 1), (2, 2), (2, CHANNELS)] {
            for (first, second) in [(7, 3), (3, 1), (1, 5)] {
                let g = graph(&["f32[n, 4, 9, 8]"], |b, x| {
                    let first = conv(b, x[0], "a", first, stride, groups);
                    let second = conv(b, x[0], "b", second, stride, groups);
                    vec![binary(b, BinaryOp::Sub, first, second)]
                });
                single(&checked(g, &[("n", 2)]));
            }
        }
    }

    #[test]
    fn convolutions_of_several_channels_take_normalized_images() {
        for groups in [1, 2] {
            let g = graph(&["f32[n, 4, 5, 5]"], |b, x| {
                let (conv, norm) = (conv(b, x[0], "conv", 3, 1, groups), normalized(b, x[0], "norm"));
                vec![add(b, norm, conv)]
            });
            assert_eq!(weight_name(&checked(g, &[("n", 2)])).as_deref(), Some("conv.weight"));
        }
    }

    #[test]
    fn what_is_added_already_stays_added() {
        let g = graph(&["f32[n, 4, 5, 5]", "f32[n, 4, 5, 5]"], |b, x| {
            let first = conv(b, x[0], "a", 3, 1, 1);
            let sum = add(b, x[1], first);
            let second = conv(b, x[0], "b", 1, 1, 1);
            vec![add(b, sum, second)]
        });
        let g = checked(g, &[("n", 2)]);
        assert_eq!(single(&g).inputs[3], Some(g.inputs[1]));
    }

    #[test]
    fn what_does_not_fit_stays() {
        type Body = fn(&mut Builder<'_>, &[ValueId]) -> Vec<ValueId>;
        let cases: [(&str, Body, &[&str]); 4] = [
            (
                "another image",
                |b, x| {
                    let (first, second) = (conv(b, x[0], "a", 3, 1, 1), conv(b, x[1], "b", 1, 1, 1));
                    vec![add(b, first, second)]
                },
                &["Conv", "Conv"],
            ),
            (
                "other groups",
                |b, x| {
                    let (first, second) = (conv(b, x[0], "a", 3, 1, 1), conv(b, x[0], "b", 1, 1, CHANNELS));
                    vec![add(b, first, second)]
                },
                &["Conv", "Conv"],
            ),
            (
                "needed elsewhere",
                |b, x| {
                    let (first, second) = (conv(b, x[0], "a", 3, 1, 1), conv(b, x[0], "b", 1, 1, 1));
                    vec![add(b, first, second), first, second]
                },
                &["Conv", "Conv", "Binary(Add)"],
            ),
            (
                "between the elements of the larger kernel",
                |b, x| {
                    let options = ConvOptions::new([1, 1], [1, 1], [2, 2], 1);
                    let weight = constant(b, Some("a.weight"), &[4, 4, 2, 2], &ramp(64, 0.1));
                    let first = b.add(Op::Conv(Conv { options, activation: None }), &[x[0], weight]).unwrap();
                    let second = conv(b, x[0], "b", 1, 1, 1);
                    vec![add(b, first, second)]
                },
                &["Conv", "Conv"],
            ),
        ];
        for (name, body, expected) in cases {
            let g = checked(graph(&["f32[n, 4, 5, 5]", "f32[n, 4, 5, 5]"], body), &[("n", 2)]);
            assert_eq!(kinds(&g), expected, "{name}");
        }
    }

    #[test]
    fn what_is_to_be_trained_stays() {
        let mut g = graph(&["f32[n, 4, 5, 5]"], |b, x| vec![mixer(b, x[0])]);
        optimize(&mut g, &Options { trainable: true, ..Options::default() });
        let kept = |kind: &str| kinds(&g).iter().filter(|other| *other == kind).count();
        assert_eq!((kept("Conv"), kept("BatchNorm")), (2, 2));
    }
}
