//! `DeformConv`: a convolution whose kernel elements are moved by offsets.

use super::super::lowering::WindowAttributes;
use super::prelude::*;
use crate::ir::op;
use kiln_types::PadMode;

pub(super) struct DeformConv {
    windows: WindowAttributes,
    groups: usize,
    offset_groups: usize,
}

impl DeformConv {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            windows: WindowAttributes::read(node)?,
            groups: node.size("group", 1)?,
            offset_groups: node.size("offset_group", 1)?,
        })
    }
}

impl DeformConv {
    /// An error unless the operands fit each other.
    fn check(
        &self,
        to: &Lowering<'_, '_>,
        [x, weight, offset]: [ValueId; 3],
        [bias, mask]: [Option<ValueId>; 2],
        kernel: &[usize],
    ) -> RuleResult<()> {
        let (image, filters, places) = (to.dims(x), to.dims(weight), to.dims(offset));
        let counts = [
            ("group", self.groups, [image[1].as_size(), filters[0].as_size()]),
            ("offset_group", self.offset_groups, [image[1].as_size(), None]),
        ];
        for (name, groups, channels) in counts {
            if groups == 0 {
                return Err(invalid(name, "is 0"));
            }
            if let Some(channels) = channels.into_iter().flatten().find(|channels| channels % groups != 0) {
                return Err(misfit(name, format!("is {groups} for {channels} channels")));
            }
        }
        let kernel: Vec<Dim> = kernel.iter().map(|&size| Dim::from(size)).collect();
        let in_group = image[1].as_size().map(|channels| Dim::from(channels / self.groups));
        let sizes = kernel.iter().cloned().map(Some);
        to.expect_dims("W", weight, &[None, in_group].into_iter().chain(sizes).collect::<Vec<_>>())?;
        // A row and a column for each element of the kernel, and one factor.
        let elements = &Dim::product(&kernel) * &Dim::from(self.offset_groups);
        let moved =
            |channels: Dim| [&image[0], &channels, &places[2], &places[3]].map(|dim| Some(dim.clone()));
        to.expect_dims("offset", offset, &moved(&elements * &Dim::constant(2)))?;
        if let Some(mask) = mask {
            to.expect_dims("mask", mask, &moved(elements))?;
        }
        match bias {
            Some(bias) => to.expect_dims("B", bias, &[Some(filters[0].clone())]),
            None => Ok(()),
        }
    }
}

impl<'m> Operator<'m> for DeformConv {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("DeformConv", 19, &["X", "W", "offset", "B?", "mask?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (mut x, weight, offset) = (args.value("X")?, args.value("W")?, args.value("offset")?);
        let (bias, mask) = (args.optional("B")?, args.optional("mask")?);
        for (input, value) in [("X", x), ("W", weight), ("offset", offset)] {
            if to.rank(value) != 4 {
                return Err(RuleError::Unsupported {
                    what: format!("`{input}` of rank {}; only images of rank 4", to.rank(value)),
                });
            }
        }
        let kernel: Option<Vec<usize>> = to.dims(weight)[2..].iter().map(Dim::as_size).collect();
        let kernel =
            kernel.ok_or_else(|| RuleError::NotConstant { input: "the kernel's size".to_owned() })?;
        let window = self.windows.over(2, self.windows.kernel.clone().unwrap_or(kernel))?;
        self.check(to, [x, weight, offset], [bias, mask], &window.kernel)?;
        // The runtime pads both sides alike; what is more on one side becomes part of the image.
        let even: Vec<usize> = window.explicit.iter().map(|&(before, after)| before.min(after)).collect();
        let mut rest = vec![(Dim::constant(0), Dim::constant(0)); 2];
        for (&(before, after), &both) in window.explicit.iter().zip(&even) {
            rest.push((Dim::from(before - both), Dim::from(after - both)));
        }
        if rest.iter().any(|(before, after)| !before.is(0) || !after.is(0)) {
            x = to.add(
                Op::Pad(op::Pad { padding: rest, mode: PadMode::Constant, value: Scalar::Int(0) }),
                &[x],
            )?;
        }
        let places = to.dims(offset);
        let dims =
            vec![to.dims(x)[0].clone(), to.dims(weight)[0].clone(), places[2].clone(), places[3].clone()];
        let ty = to.ty(x).with_dims(dims);
        let mut operands = vec![x, offset, weight];
        let mut option = |value: Option<_>| {
            Arg::option(value.map(|value| {
                operands.push(value);
                Arg::Operand(operands.len() - 1)
            }))
        };
        let (mask, bias) = (option(mask), option(bias));
        let options = Arg::fields(
            "tensor::module::DeformConvOptions",
            [
                ("stride", Arg::Array(Arg::ints(&window.stride))),
                ("padding", Arg::Array(Arg::ints(&even))),
                ("dilation", Arg::Array(Arg::ints(&window.dilation))),
                ("weight_groups", Arg::Int(self.groups as i64)),
                ("offset_groups", Arg::Int(self.offset_groups as i64)),
            ],
        );
        let arguments = [Arg::Operand(0), Arg::Operand(1), Arg::Operand(2), mask, bias, options];
        Ok(to.call(Call::new("tensor::module::deform_conv2d", arguments), &operands, ty)?.into())
    }
}
