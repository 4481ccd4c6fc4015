//! `MatMulBnb4`: a product whose right side is of four-bit codes under a scale for each block, as `bitsandbytes` has them.

use super::blocks::block_size;
use super::matmul::product;
use super::prelude::*;
use crate::ir::Provenance;
use kiln_types::TensorData;
use std::sync::Arc;

pub(super) struct MatMulBnb4 {
    codes: &'static [f32; 16],
    block: usize,
    rows: usize,
    columns: usize,
}

/// Floats of a sign, two bits of exponent and one of mantissa, over the greatest ("FP4" of `bitsandbytes`).
const FP4: [f32; 16] = [
    0.0,
    0.005_208_333_3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    -0.0,
    -0.005_208_333_3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];

/// Quantiles of the normal distribution ("QLoRA: Efficient Finetuning of Quantized LLMs", Dettmers and others, 2023, appendix E).
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

impl MatMulBnb4 {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Whether an implementation keeps what a gradient needs.
        node.ignore(&["training_mode"]);
        let codes = match node.required_int("quant_type")? {
            0 => &FP4,
            1 => &NF4,
            other => return Err(invalid("quant_type", format!("is {other}, must be 0 or 1"))),
        };
        let mut size = |name: &str| {
            let size = node.required_int(name)?;
            let fits = usize::try_from(size).ok().filter(|&size| size > 0 && size <= i32::MAX as usize);
            fits.ok_or_else(|| invalid(name, format!("is {size}, must be the size of an axis")))
        };
        let (columns, rows) = (size("K")?, size("N")?);
        if !node.flag("transB", true)? {
            let what = "`transB` of 0, the form of gradients".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        Ok(Self { codes, block: block_size(node, None)?, rows, columns })
    }
}

impl<'m> Operator<'m> for MatMulBnb4 {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft("MatMulBnb4", &["A", "B", "absmax"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let a = args.value("A")?;
        let weight = self.weight(to, args.value("B")?, args.value("absmax")?)?;
        let weight = to.permute(weight, vec![1, 0])?;
        Ok(product(to, a, weight)?.into())
    }
}

impl MatMulBnb4 {
    /// The right side in the scales' dtype: a byte holds the first of two codes in its upper bits.
    fn weight(&self, to: &mut Lowering<'_, '_>, codes: ValueId, scales: ValueId) -> RuleResult<ValueId> {
        let not_constant = |input: &str| RuleError::NotConstant { input: input.to_owned() };
        let packed = to.constant(codes).ok_or_else(|| not_constant("B"))?;
        let largest = to.constant(scales).ok_or_else(|| not_constant("absmax"))?;
        let count = self.rows.checked_mul(self.columns).ok_or_else(|| invalid("N", "is too large"))?;
        if packed.dtype != DType::U8 || packed.bytes.len() != count.div_ceil(2) {
            let reason = format!("is {}, must have {} bytes", to.ty(codes), count.div_ceil(2));
            return Err(invalid("B", reason));
        }
        let blocks = count.div_ceil(self.block);
        if !largest.dtype.is_float() || largest.num_elements() != blocks {
            let reason = format!("is {}, must have {blocks} floats", to.ty(scales));
            return Err(invalid("absmax", reason));
        }
        let dtype = largest.dtype;
        // Eight times the bytes that were found.
        to.reserve(count.saturating_mul(size_of::<f32>()))?;
        let halves = packed.bytes.iter().flat_map(|&byte| [byte >> 4, byte & 0xf]).take(count);
        let values: Vec<f32> =
            halves.map(|code| self.codes.get(usize::from(code)).copied().unwrap_or(0.0)).collect();
        let scaled = values.chunks(self.block).zip(largest.iter::<f32>());
        let scaled: Vec<f32> =
            scaled.flat_map(|(values, scale)| values.iter().map(move |value| value * scale)).collect();
        let data = TensorData::new(scaled, [self.rows, self.columns]).convert_dtype(dtype);
        let graph = &mut *to.builder.graph;
        // Under the name that the weight had before.
        let name = graph.constant(codes).and_then(|constant| constant.name.clone());
        let name = name.map(|name| name.strip_suffix("_Bnb4").map_or(name.clone(), str::to_owned));
        // No checkpoint holds them so: the tool that packed them made them of floats.
        let made =
            |_| Arc::new(Provenance::Exporter { name: name.clone().unwrap_or_default(), keys: Vec::new() });
        let provenance = graph.provenance(codes).map(made);
        Ok(graph.add_derived(name, data, provenance))
    }
}
