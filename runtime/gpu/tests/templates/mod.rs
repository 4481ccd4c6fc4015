//! Kernels of every family, with what makes a difference to their source.

use kiln_gpu::kernels::access::Access::{self, Linear, Runs, Single, Strided};
use kiln_gpu::kernels::attention::{
    Attention, Decode, DecodeJoin, Flash, FlashGradient, Heads, Part, Scoring, TiledAttention,
};
use kiln_gpu::kernels::cross_entropy::CrossEntropy;
use kiln_gpu::kernels::direct::{Bias, Direct, Reading};
use kiln_gpu::kernels::dropout::Dropout;
use kiln_gpu::kernels::elementwise::Elementwise;
use kiln_gpu::kernels::embedding::EmbeddingGradient;
use kiln_gpu::kernels::gemv::Gemv;
use kiln_gpu::kernels::index::{Assign, Gather, Last, LastPlaces, Scatter};
use kiln_gpu::kernels::matmul::Matmul;
use kiln_gpu::kernels::quantized::{QuantizedMatmul, Side, Zero};
use kiln_gpu::kernels::random::{Draw, Random};
use kiln_gpu::kernels::recurrent::{Recurrent, RecurrentStep, StepPart};
use kiln_gpu::kernels::reduce::{ArgReduce, Fold, Reduce};
use kiln_gpu::kernels::rows::{RowOp, Rows};
use kiln_gpu::kernels::scan::{Compact, Scan};
use kiln_gpu::kernels::sort::SortStep;
use kiln_gpu::kernels::then::Then;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_gpu::kernels::transpose::Transpose;
use kiln_gpu::kernels::window::{
    AdaptivePoolGradient, Conv, DepthwiseConv, FillChannels, Flow, Geometry, NarrowConv, Pool, PoolGradient,
    Pooling, QuantizedConv, RowConv, RowWeightGradient, WeightGradient,
};
use kiln_gpu::kernels::{Form, Template};
use kiln_gpu::language::Factors;
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::{
    Activation, ArgReduceOp, BinaryOp, CompareOp, DType, Expression, FullyMasked, PoolOp, RnnKind, Scalar,
    ScatterOp, Step, UnaryOp,
};

/// What every language has, but for integers of 64 bits.
const DTYPES: [DType; 5] = [DType::F32, DType::F16, DType::I32, DType::U32, DType::Bool];
/// What CUDA C++ has besides.
const OTHERS: [DType; 8] =
    [DType::F64, DType::BF16, DType::I64, DType::I16, DType::I8, DType::U64, DType::U16, DType::U8];

pub fn elementwise(steps: Vec<Step>, operands: &[(DType, Access)], result: DType, rank: usize) -> Template {
    Elementwise {
        expression: Expression::new(steps),
        operands: operands.into(),
        counters: [].into(),
        results: [(result, Linear)].into(),
        rank,
        fours: 0,
        then: Vec::new(),
    }
    .into()
}

/// A sum with a row for all, then a product with a number.
pub fn after(dtype: DType) -> Vec<Then> {
    let sum = Expression::new(vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Add, 0, 1)]);
    let product = vec![Step::Input(0), Step::Parameter(0, dtype), Step::Binary(BinaryOp::Mul, 0, 1)];
    vec![
        Then { dtype, expression: sum, own: 1, operands: [(dtype, Strided)].into(), rank: 2 },
        Then { dtype, expression: Expression::new(product), own: 0, operands: [].into(), rank: 0 },
    ]
}

/// Kernels that compute what they read, and go on with what they would write.
fn fused(dtype: DType) -> Vec<Template> {
    let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Mul, 0, 1)];
    let program = Elementwise {
        expression: Expression::new(steps),
        operands: [(dtype, Strided), (dtype, Linear)].into(),
        counters: [].into(),
        results: [(dtype, Linear)].into(),
        rank: 2,
        fours: 0,
        then: after(dtype),
    };
    let from = || Some(Box::new(program.clone()));
    let then = || after(dtype);
    let fours = |fours| Elementwise { fours, ..program.clone() };
    let runs = Elementwise {
        operands: [(dtype, Runs), (dtype, Linear)].into(),
        results: [(dtype, Runs)].into(),
        then: Vec::new(),
        ..fours(1)
    };
    let (kept, folded) = ((Strided, 2), (Linear, 0));
    let (fold, index) = (Fold::Sum, DType::I32);
    let mut all: Vec<Template> = vec![
        Transpose { dtype, batch: 1, then: then() }.into(),
        fours(1).into(),
        fours(2).into(),
        runs.into(),
        Reduce {
            fold,
            mean: true,
            dtype,
            result: dtype,
            kept,
            folded,
            wide: true,
            subgroups: Subgroups::None,
            from: from(),
            then: then(),
        }
        .into(),
        ArgReduce {
            op: ArgReduceOp::Max,
            select_last: false,
            dtype,
            index,
            kept,
            wide: false,
            among: false,
            from: from(),
        }
        .into(),
        Gather { dtype, index, access: (Linear, Strided, 3), then: then() }.into(),
    ];
    if dtype.is_float() {
        for op in [RowOp::Softmax, RowOp::LayerNorm { bias: true }] {
            all.push(
                Rows {
                    op,
                    dtype,
                    lanes: 8,
                    rows: 1,
                    kept: None,
                    subgroups: Subgroups::None,
                    from: from(),
                    then: then(),
                }
                .into(),
            );
        }
    }
    all
}

/// Programs of one step of each kind on every dtype that has it.
fn programs(dtypes: &[DType]) -> Vec<Template> {
    let mut all = Vec::new();
    let arithmetic = |dtype: DType| !dtype.is_bool();
    for &dtype in dtypes {
        for &op in UnaryOp::ALL {
            let result = match op {
                UnaryOp::IsNan | UnaryOp::IsInf => DType::Bool,
                _ => dtype,
            };
            let serves = match op {
                UnaryOp::Not => dtype.is_bool(),
                UnaryOp::BitwiseNot => dtype.is_int(),
                UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => arithmetic(dtype),
                _ => dtype.is_float(),
            };
            if serves {
                let steps = vec![Step::Input(0), Step::Unary(op, 0)];
                all.push(elementwise(steps, &[(dtype, Linear)], result, 0));
            }
        }
        for &op in BinaryOp::ALL {
            let serves = match op {
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => dtype.is_bool(),
                BinaryOp::BitwiseAnd
                | BinaryOp::BitwiseOr
                | BinaryOp::BitwiseXor
                | BinaryOp::ShiftLeft
                | BinaryOp::ShiftRight => dtype.is_int(),
                BinaryOp::Atan2 => dtype.is_float(),
                _ => arithmetic(dtype),
            };
            if serves {
                let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(op, 0, 1)];
                all.push(elementwise(steps, &[(dtype, Linear), (dtype, Strided)], dtype, 3));
            }
        }
        for &op in CompareOp::ALL {
            let steps = vec![Step::Input(0), Step::Parameter(0, dtype), Step::Compare(op, 0, 1)];
            all.push(elementwise(steps, &[(dtype, Single)], DType::Bool, 0));
        }
    }
    all
}

fn casts(from: &[DType], to: &[DType]) -> Vec<Template> {
    let cast = |from, to| elementwise(vec![Step::Input(0), Step::Cast(to, 0)], &[(from, Strided)], to, 2);
    from.iter().flat_map(|&from| to.iter().map(move |&to| cast(from, to))).collect()
}

fn activations(dtype: DType) -> Vec<Template> {
    let all = [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Mish,
        Activation::Softplus,
        Activation::HARD_SIGMOID,
        Activation::HardSwish,
        Activation::Elu { alpha: 1.0 },
        Activation::Clamp { min: f64::NEG_INFINITY, max: f64::MAX },
        Activation::Affine { alpha: -1e300, beta: f64::NAN },
        Activation::ScaledTanh { alpha: 1.7, beta: 0.6 },
        Activation::Softsign,
        Activation::ThresholdedRelu { alpha: 1e-40 },
    ];
    let step = |activation| vec![Step::Input(0), Step::Activation(activation, 0)];
    all.map(|activation| elementwise(step(activation), &[(dtype, Linear)], dtype, 0)).to_vec()
}

/// Several results, counted positions, numbers of every kind.
fn mixed() -> Template {
    let mut expression = Expression::new(vec![
        Step::Input(0),
        Step::Iota(1, DType::I32),
        Step::Constant(Scalar::Int(i64::from(i32::MIN)), DType::I32),
        Step::Binary(BinaryOp::Max, 1, 2),
        Step::Cast(DType::F32, 3),
        Step::Constant(Scalar::Float(f64::INFINITY), DType::F32),
        Step::Compare(CompareOp::Lower, 4, 5),
        Step::Where(6, 0, 4),
    ]);
    expression.outputs = vec![7, 3];
    Elementwise {
        expression,
        operands: [(DType::F16, Strided)].into(),
        counters: [Strided].into(),
        results: [(DType::F32, Linear), (DType::I32, Strided)].into(),
        rank: 2,
        fours: 0,
        then: Vec::new(),
    }
    .into()
}

/// The dtype in which parts of folds are kept.
fn wide_of(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I16 | DType::I8 => DType::I32,
        DType::U16 | DType::U8 => DType::U32,
        other => other,
    }
}

fn folds(dtypes: &[DType]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for &dtype in dtypes {
        for fold in [Fold::Sum, Fold::Prod, Fold::Max, Fold::Min] {
            for wide in [false, true] {
                let (kept, folded) = ((Strided, 3), (Strided, 2));
                for result in [dtype, wide_of(dtype)] {
                    let mean = !dtype.is_bool();
                    all.push(
                        Reduce {
                            fold,
                            mean,
                            dtype,
                            result,
                            kept,
                            folded,
                            wide,
                            subgroups: Subgroups::None,
                            from: None,
                            then: Vec::new(),
                        }
                        .into(),
                    );
                }
            }
            let kept = (Linear, Strided, 2);
            for (exclusive, parts) in [(true, true), (true, false), (false, true), (false, false)] {
                all.push(Scan { fold, dtype, exclusive, kept, parts }.into());
            }
        }
        for op in [ArgReduceOp::Max, ArgReduceOp::Min] {
            let (index, kept) = (DType::I32, (Strided, 2));
            for (wide, among) in [(false, false), (true, false), (true, true)] {
                let select_last = true;
                all.push(ArgReduce { op, select_last, dtype, index, kept, wide, among, from: None }.into());
            }
        }
        all.push(SortStep { dtype, descending: true }.into());
        all.push(SortStep { dtype, descending: false }.into());
    }
    for &dtype in dtypes.iter().filter(|dtype| dtype.is_float()) {
        let norms = [RowOp::LayerNorm { bias: true }, RowOp::LayerNorm { bias: false }, RowOp::RmsNorm];
        for op in norms.into_iter().chain([RowOp::Softmax, RowOp::LogSoftmax]) {
            for (lanes, kept) in [(256, Some(3)), (8, None)] {
                all.push(
                    Rows {
                        op,
                        dtype,
                        lanes,
                        rows: 1,
                        kept,
                        subgroups: Subgroups::None,
                        from: None,
                        then: Vec::new(),
                    }
                    .into(),
                );
            }
        }
        for (weighted, ignored, lanes) in [(true, 2, 256), (false, 0, 8)] {
            let (wide, index, smooth) = (wide_of(dtype), DType::I32, weighted);
            let subgroups = Subgroups::None;
            all.push(CrossEntropy { dtype, wide, index, weighted, smooth, ignored, lanes, subgroups }.into());
        }
    }
    all
}

fn truths() -> Vec<Template> {
    let (kept, folded) = ((Linear, 0), (Single, 0));
    let dtype = DType::Bool;
    let fold = |fold| {
        Reduce {
            fold,
            mean: false,
            dtype,
            result: dtype,
            kept,
            folded,
            wide: true,
            subgroups: Subgroups::None,
            from: None,
            then: Vec::new(),
        }
        .into()
    };
    vec![fold(Fold::Any), fold(Fold::All)]
}

fn positions(index: DType) -> Template {
    Compact { rank: 3, index }.into()
}

fn indexing(dtypes: &[DType], indices: [DType; 2]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for &dtype in dtypes {
        for index in indices {
            all.push(Gather { dtype, index, access: (Linear, Strided, 3), then: Vec::new() }.into());
            if dtype.is_float() {
                let subgroups = Subgroups::None;
                for result in [dtype, wide_of(dtype)] {
                    all.push(EmbeddingGradient { dtype, result, index, subgroups }.into());
                }
            }
            for op in [ScatterOp::Assign, ScatterOp::Add, ScatterOp::Mul, ScatterOp::Max, ScatterOp::Min] {
                all.push(Scatter { op, dtype, index, access: (Strided, Linear, Single, 2) }.into());
            }
            for last in [Last::Search, Last::Table(Strided)] {
                let access = (Strided, Linear, Strided, Strided, 2);
                all.push(Assign { dtype, index, access, last }.into());
            }
        }
    }
    all.extend(indices.map(|index| LastPlaces { index, access: (Linear, Single, Linear, 0) }.into()));
    all
}

fn matmul(dtype: DType, tiling: Tiling) -> Template {
    let activation = dtype.is_float().then_some(Activation::Gelu);
    Matmul {
        dtype,
        batch: (Strided, Linear, 2),
        tiling,
        in_parts: false,
        bias: true,
        activation,
        then: after(dtype),
    }
    .into()
}

const GEOMETRY: Geometry = Geometry { kernel: [1, 3, 3], stride: [1, 2, 1], dilation: [1, 1, 2] };

fn conv(dtype: DType, transposed: bool, tiling: Option<Tiling>) -> Template {
    let activation = dtype.is_float().then_some(Activation::Gelu);
    let (geometry, then) = (GEOMETRY, after(dtype));
    let channels_last = tiling.is_none();
    let in_parts = false;
    Conv { dtype, geometry, transposed, channels_last, bias: true, activation, tiling, in_parts, then }.into()
}

fn weight_gradient(dtype: DType, tiling: Option<Tiling>) -> Template {
    let (result, geometry) = (wide_of(dtype), GEOMETRY);
    WeightGradient { dtype, result, geometry, tiling, subgroups: Subgroups::None }.into()
}

/// Products by tensor cores.
fn by_warps() -> Vec<Template> {
    let kinds = [(DType::F16, Factors::F16), (DType::BF16, Factors::BF16), (DType::F32, Factors::TF32)];
    let of = |(dtype, factors)| {
        let tiling = Tiling::Warps(factors, [2, 2]);
        [matmul(dtype, tiling), conv(dtype, false, Some(tiling))]
    };
    let largest = matmul(DType::BF16, Tiling::Warps(Factors::BF16, [4, 2]));
    let halves = Some(Tiling::Warps(Factors::F16, [2, 2]));
    let gradients = [conv(DType::F16, true, halves), weight_gradient(DType::F16, halves)];
    kinds.into_iter().flat_map(of).chain([largest]).chain(gradients).chain(quantized()).collect()
}

/// Products of 8-bit integers.
fn quantized() -> Vec<Template> {
    let (bytes, words) = (false, true);
    let sides = |zeros: [Zero; 2], in_words: [bool; 2]| {
        [0, 1].map(|n| Side { zero: zeros[n], in_words: in_words[n] })
    };
    let (each, batch) = ([2, 2], (Strided, Linear, 2));
    let product = |sides| QuantizedMatmul { sides, batch, each, then: after(DType::I32) };
    let conv = |sides| QuantizedConv { sides, geometry: GEOMETRY, each, then: after(DType::I32) };
    vec![
        product(sides([Zero::Tensor; 2], [bytes; 2])).into(),
        product(sides([Zero::Number, Zero::None], [words; 2])).into(),
        conv(sides([Zero::Tensor, Zero::Number], [bytes; 2])).into(),
        conv(sides([Zero::None, Zero::Tensor], [words, bytes])).into(),
    ]
}

fn gemv(dtype: DType, by_columns: bool) -> Template {
    let batch = (Strided, Linear, 2);
    let (bias, activation, subgroups) = (true, None, Subgroups::None);
    let (wide, across, then) = ([false; 2], 4, after(dtype));
    Gemv { dtype, batch, rows: 2, by_columns, subgroups, wide, across, bias, activation, then }.into()
}

/// Products of few rows on devices with warps, which read 16 bytes at once.
fn wide_gemvs() -> Vec<Template> {
    let (batch, subgroups, bias, activation) = ((Strided, Linear, 2), Subgroups::Warps, true, None);
    let of = |dtype, rows, by_columns, across| {
        let wide = [by_columns, true];
        Gemv { dtype, batch, rows, by_columns, subgroups, wide, across, bias, activation, then: Vec::new() }
            .into()
    };
    let mut all: Vec<Template> = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8] {
        for rows in [1, 4] {
            all.extend([of(dtype, rows, true, 1), of(dtype, rows, false, 1), of(dtype, rows, false, 8)]);
        }
    }
    all
}

fn products_and_windows(dtypes: &[DType]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let (geometry, tiling) = (GEOMETRY, Tiling::Invocations([4, 4]));
    let (dtype, batch, bias, activation) = (DType::F32, (Strided, Linear, 2), false, None);
    let then = Vec::new;
    all.extend([[2, 2], [8, 8]].map(Tiling::Invocations).map(|tiling| {
        Matmul { dtype, batch, tiling, in_parts: true, bias, activation, then: then() }.into()
    }));
    let (transposed, of_tile, in_parts) = (false, Some(tiling), true);
    let of_parts = Conv {
        dtype,
        geometry,
        transposed,
        channels_last: false,
        bias,
        activation,
        tiling: of_tile,
        in_parts,
        then: then(),
    };
    all.push(of_parts.into());
    for &dtype in dtypes {
        all.push(matmul(dtype, tiling));
        all.push(gemv(dtype, dtype.is_float()));
        for tiling in [None, Some(tiling)] {
            all.extend([false, true].map(|transposed| conv(dtype, transposed, tiling)));
            all.push(weight_gradient(dtype, tiling));
        }
        let (bias, activation) = (dtype.is_float(), dtype.is_float().then_some(Activation::Gelu));
        all.push(DepthwiseConv { dtype, geometry, bias, activation, then: after(dtype) }.into());
        all.push(FillChannels { dtype }.into());
        all.push(NarrowConv { dtype, channels: 3, bias, activation, then: after(dtype) }.into());
        let average = |include_pad| Pooling::Of(PoolOp::Average { include_pad });
        let poolings = [Pooling::Max(None), Pooling::Max(Some(DType::I32)), average(false), average(true)];
        for pooling in poolings.into_iter().chain([1, 2, 5].map(|p| Pooling::Of(PoolOp::Lp { p }))) {
            all.extend([(false, false), (true, false), (true, true)].map(|(channels_last, fours)| {
                Pool { pooling, dtype, geometry, channels_last, fours }.into()
            }));
        }
        let mut flows = vec![Flow::ToPosition(DType::I32)];
        flows.extend([false, true].map(|include_pad| Flow::Average { include_pad }));
        if dtype.is_float() {
            flows.extend([1, 5].map(|p| Flow::Norm { p }));
        }
        all.extend(flows.into_iter().map(|flow| PoolGradient { flow, dtype, geometry }.into()));
        all.push(AdaptivePoolGradient { dtype }.into());
    }
    all
}

/// What devices without shared memory run, and attention.
fn direct(dtypes: &[DType]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let geometry = Geometry { kernel: [1, 3, 3], stride: [1, 2, 1], dilation: [1, 1, 2] };
    let wide = Geometry { kernel: [2, 1, 16], stride: [1, 1, 16], dilation: [1, 1, 1] };
    for &dtype in dtypes {
        let activation = dtype.is_float().then_some(Activation::Silu);
        for (lhs_fours, rhs) in [
            (true, Reading::Columns),
            (false, Reading::Columns),
            (true, Reading::Depth),
            (true, Reading::Single),
            (false, Reading::Single),
        ] {
            for bias in [None, Some(Bias::OfRows), Some(Bias::OfColumns)] {
                let (batch, rows, columns) = ((Strided, Linear, 2), 2, 8);
                all.push(
                    Direct {
                        dtype,
                        batch,
                        lhs_fours,
                        rhs,
                        rows,
                        columns,
                        bias,
                        activation,
                        then: after(dtype),
                    }
                    .into(),
                );
            }
        }
        for (geometry, channels) in [(geometry, 8), (geometry, 1), (wide, 4)] {
            for padded in [false, true] {
                // Of transposed ones any window may reach beyond the image.
                for transposed in [false, padded] {
                    all.push(
                        RowConv {
                            dtype,
                            geometry,
                            transposed,
                            padded,
                            channels,
                            pixels: 4,
                            bias: padded,
                            activation,
                            then: after(dtype),
                        }
                        .into(),
                    );
                }
                let (result, pixels) = (wide_of(dtype), if padded { 7 } else { 4 });
                all.push(RowWeightGradient { dtype, result, geometry, padded, channels, pixels }.into());
            }
        }
    }
    // Attention in f64 is made of other kernels.
    for &dtype in dtypes.iter().filter(|&&dtype| dtype.is_float() && dtype != DType::F64) {
        for mask in [None, Some(DType::Bool), Some(dtype)] {
            for fully_masked in [None, Some(FullyMasked::Mean), Some(FullyMasked::Zeros)] {
                for is_causal in [false, true] {
                    let heads = Heads { dtype, size: 8, value_size: 3, fours: [true, true, false] };
                    let scoring = Scoring { mask, is_causal, softcap: is_causal, fully_masked };
                    let attention =
                        Attention { heads, scoring, lanes: 8, queries: if mask.is_some() { 1 } else { 2 } };
                    all.push(attention.into());
                    let tiled =
                        TiledAttention { heads, scoring, each: [1, 2], over_keys: is_causal, warps: false };
                    all.push(tiled.into());
                }
            }
        }
    }
    all
}

/// Attention in tiles on devices with warps: what is common, and what takes most registers.
fn tiled() -> Vec<Template> {
    let mask = DType::Bool;
    let cases = [
        (64, [2, 4], Some(mask), false),
        (32, [2, 4], None, false),
        (64, [1, 4], None, true),
        (64, [4, 4], None, false),
        (64, [4, 4], Some(mask), true),
        (80, [4, 2], None, false),
        (128, [2, 2], Some(mask), false),
        (256, [1, 1], None, true),
        (40, [4, 4], None, true),
    ];
    let of = |(size, each, mask, is_causal): (u32, [u32; 2], Option<DType>, bool)| {
        TiledAttention {
            heads: Heads { dtype: DType::F32, size, value_size: size, fours: [true; 3] },
            scoring: Scoring { mask, is_causal, softcap: false, fully_masked: None },
            each,
            over_keys: each == [4, 4],
            warps: true,
        }
        .into()
    };
    cases.map(of).to_vec()
}

/// Attention of few queries, with what is common and what takes most registers.
fn decode() -> Vec<Template> {
    let cases = [
        (DType::BF16, 64, Some(DType::Bool), [true; 3], false),
        (DType::F32, 64, Some(DType::Bool), [true; 3], false),
        (DType::F16, 80, Some(DType::F16), [true; 3], true),
        (DType::BF16, 256, None, [true; 3], true),
        (DType::F32, 256, Some(DType::F32), [true; 3], false),
        (DType::F32, 19, None, [false; 3], false),
    ];
    let of = |(dtype, size, mask, wide, in_parts)| {
        let scoring = Scoring { mask, is_causal: mask.is_none(), softcap: in_parts, fully_masked: None };
        Decode { dtype, size, value_size: size, wide, scoring, warps: 16, in_parts }.into()
    };
    let join = DecodeJoin { dtype: DType::BF16, value_size: 64, leaves_zeros: true };
    cases.map(of).into_iter().chain([join.into()]).collect()
}

/// Attention by tensor cores, with what takes most registers.
fn flash() -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let every = [Part::Queries, Part::Keys, Part::Values].as_slice();
    let half = (DType::F16, Factors::F16);
    let upper_half = (DType::BF16, Factors::BF16);
    let single = (DType::F32, Factors::TF32);
    for ((dtype, factors), size, mask, parts) in [
        (half, 64, None, every),
        (half, 256, None, every),
        (upper_half, 128, None, &[Part::Keys]),
        (upper_half, 72, Some(DType::Bool), &[Part::Queries]),
        (single, 64, None, &[Part::Keys]),
        (single, 256, None, &[Part::Queries]),
    ] {
        let form = Form { dtype, factors, size, in_words: mask.is_none() };
        let scoring = Scoring { mask, is_causal: size < 128, softcap: mask.is_some(), fully_masked: None };
        let warps = 4;
        let sides = [form; 3];
        all.push(Flash { sides, scoring, warps, log_sum: true }.into());
        let sides = [form; 4];
        for &part in parts {
            all.push(FlashGradient { part, sides, scoring, warps }.into());
        }
    }
    all
}

fn recurrent(dtypes: &[DType; 2]) -> Vec<Template> {
    let clip = |bound: f64| Activation::Clamp { min: -bound, max: bound };
    let kinds = [
        RnnKind::Rnn,
        RnnKind::Gru { linear_before_reset: true },
        RnnKind::Gru { linear_before_reset: false },
        RnnKind::Lstm { input_forget: true },
        RnnKind::Lstm { input_forget: false },
    ];
    let mut all: Vec<Template> = Vec::new();
    for kind in kinds {
        for (dtype, hidden, full) in [(dtypes[0], 64, false), (dtypes[1], 300, true)] {
            let lstm = matches!(kind, RnnKind::Lstm { .. });
            let apart = matches!(kind, RnnKind::Gru { linear_before_reset: true });
            let recurrent = Recurrent {
                dtype,
                kind,
                hidden,
                clip: full.then_some(clip(3.0)),
                state_clip: full.then_some(clip(0.5)),
                activations: kind.activations().to_vec(),
                bias: full && apart,
                peepholes: full && lstm,
                lengths: full,
            };
            for &part in StepPart::of(kind) {
                for (rows, fours) in [(1, true), (if dtype == DType::F64 { 4 } else { 8 }, !full)] {
                    all.push(RecurrentStep { layer: recurrent.clone(), part, rows, fours }.into());
                }
            }
            all.push(recurrent.into());
        }
    }
    all
}

fn dropouts(dtypes: &[DType]) -> Vec<Template> {
    dtypes.iter().map(|&dtype| Dropout { dtype }.into()).collect()
}

fn randoms(all: &[(Draw, DType)]) -> Vec<Template> {
    all.iter().map(|&(draw, dtype)| Random { draw, dtype }.into()).collect()
}

/// Kernels of every family.
pub fn all() -> Vec<Template> {
    let products = [DType::F32, DType::F16, DType::I32];
    let families = [
        programs(&DTYPES),
        casts(&DTYPES, &DTYPES),
        activations(DType::F32),
        vec![mixed(), positions(DType::U32)],
        folds(&DTYPES),
        truths(),
        indexing(&DTYPES, [DType::I32, DType::U32]),
        fused(DType::F32),
        vec![matmul(DType::F32, Tiling::Invocations([2, 8])), gemv(DType::F32, false)],
        products_and_windows(&products),
        direct(&products),
        recurrent(&[DType::F32, DType::F16]),
        dropouts(&[DType::F32, DType::F16]),
        randoms(&[(Draw::Unit, DType::F32), (Draw::Unit, DType::F16), (Draw::Bit, DType::Bool)]),
        randoms(&[(Draw::Below, DType::I32), (Draw::Whole, DType::I32), (Draw::Whole, DType::U32)]),
    ];
    let all: Vec<Template> = families.into_iter().flatten().collect();
    assert!(all.len() > 300, "only {} kernels", all.len());
    all
}

/// Kernels of every family with numbers of 64 bits.
#[allow(dead_code, reason = "CUDA's are among others")]
pub fn of_64_bits() -> Vec<Template> {
    let all = [DType::F64, DType::I64, DType::U64];
    let families = [
        programs(&all),
        casts(&all, &all),
        casts(&all, &DTYPES),
        casts(&DTYPES, &all),
        activations(DType::F64),
        vec![positions(DType::I64)],
        folds(&all[..2]),
        indexing(&all[..1], [DType::I64, DType::U64]),
        products_and_windows(&all[..2]),
        direct(&all[..2]),
        recurrent(&[DType::F64, DType::F64]),
        dropouts(&[DType::F64]),
        randoms(&[DType::F64, DType::F32, DType::F16, DType::I64, DType::I32].map(|to| (Draw::Uniform, to))),
        randoms(&[DType::F64, DType::F32, DType::F16, DType::I64, DType::Bool].map(|to| (Draw::Normal, to))),
        randoms(&[DType::I64, DType::U64].map(|to| (Draw::Whole, to))),
    ];
    families.into_iter().flatten().collect()
}

/// Kernels with integers of 64 bits, and without floats of 64 bits.
#[allow(dead_code, reason = "CUDA's are among others")]
pub fn of_integers_of_64_bits() -> Vec<Template> {
    let integers = [DType::I64, DType::U64];
    let families = [
        programs(&integers),
        casts(&integers, &integers),
        casts(&integers, &DTYPES),
        casts(&DTYPES, &integers),
        vec![positions(DType::I64)],
        folds(&integers),
        indexing(&[DType::F32, DType::I64], integers),
        products_and_windows(&integers[..1]),
        direct(&integers[..1]),
    ];
    // Norms of windows are computed in floats that hold the integers.
    let is_norm = |template: &Template| matches!(template, Template::Pool(pool) if matches!(pool.pooling, Pooling::Of(PoolOp::Lp { .. })));
    families.into_iter().flatten().filter(|template| !is_norm(template)).collect()
}

/// Has what joins numbers of invocations do it by subgroups; yields whether it does.
#[allow(dead_code, reason = "not all who compile them have subgroups")]
pub fn join_by(template: &mut Template, by: Subgroups) -> bool {
    match template {
        Template::Rows(Rows { lanes, rows, subgroups, .. }) => {
            *subgroups = by;
            if by == Subgroups::Warps && *lanes < 32 {
                (*lanes, *rows) = (32, 8);
            }
        }
        Template::CrossEntropy(CrossEntropy { lanes, subgroups, .. }) => {
            *subgroups = by;
            if by == Subgroups::Warps {
                *lanes = 256;
            }
        }
        Template::Reduce(Reduce { wide: true, subgroups, .. })
        | Template::EmbeddingGradient(EmbeddingGradient { subgroups, .. })
        | Template::WeightGradient(WeightGradient { tiling: None, subgroups, .. })
        | Template::Gemv(Gemv { by_columns: true, subgroups, .. }) => *subgroups = by,
        Template::Gemv(Gemv { subgroups, .. }) if by == Subgroups::Warps => *subgroups = by,
        _ => return false,
    }
    true
}

/// Kernels of devices with subgroups of any size.
#[allow(dead_code, reason = "WGSL alone has them")]
pub fn with_subgroups() -> Vec<Template> {
    let mut all = folds(&DTYPES);
    all.extend(truths());
    all.extend(indexing(&DTYPES, [DType::I32, DType::U32]));
    all.extend(DTYPES[..4].iter().flat_map(|&dtype| [gemv(dtype, true), weight_gradient(dtype, None)]));
    all.retain_mut(|template| join_by(template, Subgroups::OfAnySize));
    let tiling = Tiling::Quads([4, 4]);
    for dtype in DTYPES.into_iter().take(4) {
        all.extend([matmul(dtype, tiling), conv(dtype, false, Some(tiling))]);
    }
    all.extend([conv(DType::F32, true, Some(tiling)), weight_gradient(DType::F32, Some(tiling))]);
    all
}

/// Kernels of every family with dtypes that CUDA C++ alone has: all of them in casts, else one of those that differ by their name alone.
pub fn of_cuda_alone() -> Vec<Template> {
    let some = [DType::F64, DType::BF16, DType::I64, DType::I8, DType::U64, DType::U16];
    let families = [
        programs(&some),
        casts(&OTHERS, &OTHERS),
        casts(&OTHERS, &DTYPES),
        casts(&DTYPES, &OTHERS),
        activations(DType::F64),
        vec![positions(DType::I64)],
        folds(&some),
        indexing(&some, [DType::I64, DType::U8]),
        products_and_windows(&some[..4]),
        direct(&[DType::F64, DType::BF16, DType::I8]),
        recurrent(&[DType::F64, DType::BF16]),
        dropouts(&[DType::F64, DType::BF16]),
        randoms(&[DType::F32, DType::F16].map(|to| (Draw::Uniform, to))),
        randoms(&[DType::F32, DType::F16].map(|to| (Draw::Normal, to))),
        randoms(&[Draw::Unit, Draw::Uniform, Draw::Normal].map(|draw| (draw, DType::BF16))),
        randoms(&OTHERS.map(|to| (Draw::Uniform, to))),
        randoms(
            &[DType::I64, DType::I16, DType::I8, DType::U64, DType::U16, DType::U8]
                .map(|to| (Draw::Whole, to)),
        ),
        tiled(),
        decode(),
        flash(),
        by_warps(),
        wide_gemvs(),
    ];
    families.into_iter().flatten().collect()
}

/// A few that are worth reading, with their names.
#[allow(dead_code, reason = "not all who compile them read them")]
pub fn readable() -> [(&'static str, Template); 6] {
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Activation(Activation::Relu, 2),
    ];
    let sum = elementwise(steps, &[(DType::F32, Linear), (DType::F16, Strided)], DType::F32, 2);
    let (kept, folded) = ((Linear, 0), (Linear, 0));
    let dtype = DType::F32;
    let mean = Reduce {
        fold: Fold::Sum,
        mean: true,
        dtype,
        result: dtype,
        kept,
        folded,
        wide: true,
        subgroups: Subgroups::None,
        from: None,
        then: Vec::new(),
    };
    let product = Matmul {
        dtype: DType::F32,
        batch: (Single, Single, 0),
        tiling: Tiling::Invocations([2, 2]),
        in_parts: false,
        bias: false,
        activation: None,
        then: Vec::new(),
    };
    let direct = Direct {
        dtype: DType::F16,
        batch: (Single, Single, 0),
        lhs_fours: true,
        rhs: Reading::Columns,
        rows: 1,
        columns: 4,
        bias: Some(Bias::OfColumns),
        activation: Some(Activation::Relu),
        then: after(DType::F32),
    };
    let geometry = Geometry { kernel: [1, 1, 3], stride: [1, 1, 2], dilation: [1; 3] };
    let (result, channels, pixels) = (dtype, 1, 2);
    let weights = RowWeightGradient { dtype, result, geometry, padded: true, channels, pixels };
    let averages = PoolGradient { flow: Flow::Average { include_pad: false }, dtype, geometry };
    [
        ("sum", sum),
        ("mean", mean.into()),
        ("matmul", product.into()),
        ("direct", direct.into()),
        ("row_weight_gradient", weights.into()),
        ("pool_gradient", averages.into()),
    ]
}

/// A few of those that are otherwise in WGSL: where a workgroup shares elements of 16 bits, or is joined by its subgroups.
#[allow(dead_code, reason = "not all who compile them read them")]
pub fn readable_in_wgsl_alone() -> [(&'static str, Template); 3] {
    let batch = (Single, Single, 0);
    let (bias, activation, then) = (false, None, Vec::new());
    let half = Matmul {
        dtype: DType::F16,
        batch,
        tiling: Tiling::Invocations([2, 2]),
        in_parts: false,
        bias,
        activation,
        then: then.clone(),
    };
    let dtype = DType::F32;
    let (tiling, in_parts) = (Tiling::Quads([2, 2]), false);
    let quads = Matmul { dtype, batch, tiling, in_parts, bias, activation, then: then.clone() };
    let subgroups = Subgroups::OfAnySize;
    let (wide, across) = ([false; 2], 1);
    let joined =
        Gemv { dtype, batch, rows: 1, by_columns: true, subgroups, wide, across, bias, activation, then };
    [("matmul_of_f16", half.into()), ("matmul_by_quads", quads.into()), ("gemv_by_subgroups", joined.into())]
}

/// A few of those that CUDA C++ alone has.
#[allow(dead_code, reason = "not all who compile them read them")]
pub fn readable_in_cuda_alone() -> [(&'static str, Template); 5] {
    let wrapped = vec![
        Step::Input(0),
        Step::Parameter(0, DType::I8),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Binary(BinaryOp::Div, 2, 1),
    ];
    let told = vec![
        Step::Input(0),
        Step::Parameter(0, DType::I64),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Cast(DType::F64, 2),
        Step::Unary(UnaryOp::Exp, 3),
    ];
    let rounded = vec![Step::Input(0), Step::Cast(DType::BF16, 0)];
    let (dtype, subgroups) = (DType::F32, Subgroups::Warps);
    let summed = Reduce {
        fold: Fold::Sum,
        mean: false,
        dtype,
        result: dtype,
        kept: (Linear, 0),
        folded: (Linear, 0),
        wide: true,
        subgroups,
        from: None,
        then: Vec::new(),
    };
    let (op, lanes, rows) = (RowOp::RmsNorm, 32, 8);
    let short_rows = Rows { op, dtype, lanes, rows, kept: Some(2), subgroups, from: None, then: Vec::new() };
    [
        ("sum_by_warps_cuda", summed.into()),
        ("short_rows_cuda", short_rows.into()),
        ("wrapped_cuda", elementwise(wrapped, &[(DType::I8, Linear)], DType::I8, 0)),
        ("told_cuda", elementwise(told, &[(DType::I64, Linear)], DType::F64, 0)),
        ("rounded_cuda", elementwise(rounded, &[(DType::F64, Linear)], DType::BF16, 0)),
    ]
}
