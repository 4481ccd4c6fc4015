//! `MelWeightMatrix`: triangular filters on the mel scale, as a constant.

use super::prelude::*;
use kiln_types::TensorData;

/// Bands or bins beyond this are no filter bank.
const MOST: i64 = 1 << 12;

pub(super) struct MelWeightMatrix {
    dtype: DType,
}

impl MelWeightMatrix {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { dtype: node.dtype("output_datatype")?.unwrap_or(DType::F32) })
    }
}

impl<'m> Operator<'m> for MelWeightMatrix {
    const FORMS: Forms<'m, Self> = &[Spec::onnx(
        "MelWeightMatrix",
        17,
        &["num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let number = |name: &str| -> RuleResult<f64> {
            let numbers = to.known_floats(args.value(name)?, name)?;
            numbers.first().copied().ok_or_else(|| invalid(name, "is empty"))
        };
        let (bands, length) = (number("num_mel_bins")? as i64, number("dft_length")? as i64);
        let rate = number("sample_rate")?;
        let edges = [number("lower_edge_hertz")?, number("upper_edge_hertz")?];
        if !(1..=MOST).contains(&bands) || !(1..=2 * MOST).contains(&length) || rate <= 0.0 {
            return Err(invalid("num_mel_bins", format!("is {bands}, for transforms of length {length}")));
        }
        let (rows, columns) = ((length / 2 + 1) as usize, bands as usize);
        to.reserve(rows * columns * size_of::<f32>())?;
        let weights = filters(rows, columns, length, rate, edges);
        let data = TensorData::new(weights, [rows, columns]);
        let matrix = to.builder.constant(data);
        Ok(to.cast(matrix, self.dtype)?.into())
    }
}

/// One triangle a column, between three neighbouring edges.
fn filters(rows: usize, columns: usize, length: i64, rate: f64, edges: [f64; 2]) -> Vec<f32> {
    // O'Shaughnessy's formula, as the specification has it.
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let [low, high] = edges.map(mel);
    let step = (high - low) / (columns + 2) as f64;
    let bin = |n: usize| {
        let hertz = 700.0 * (10f64.powf((n as f64 * step + low) / 2595.0) - 1.0);
        // Far outside the rows, one bin is like another.
        ((length + 1) as f64 * hertz / rate).floor().clamp(-1e9, 1e9) as i64
    };
    let mut weights = vec![0f32; rows * columns];
    for column in 0..columns {
        let mut set = |row: i64, weight: f64| {
            if let Ok(row) = usize::try_from(row)
                && row < rows
            {
                weights[row * columns + column] = weight as f32;
            }
        };
        let (lower, center, upper) = (bin(column), bin(column + 1), bin(column + 2));
        let limit = rows as i64;
        if center == lower {
            set(center, 1.0);
        }
        for row in lower.max(0)..(center + 1).min(limit) {
            if center > lower {
                set(row, (row - lower) as f64 / (center - lower) as f64);
            }
        }
        for row in center.max(0)..upper.min(limit) {
            set(row, (upper - row) as f64 / (upper - center) as f64);
        }
    }
    weights
}
