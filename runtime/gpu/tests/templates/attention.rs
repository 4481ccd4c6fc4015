//! Attention.

use kiln_gpu::kernels::attention::{
    Attention, Decode, DecodeJoin, Flash, FlashGradient, Heads, Part, Scoring, TiledAttention,
};
use kiln_gpu::kernels::{Form, Template};
use kiln_gpu::language::Factors;
use kiln_tensor::{DType, FullyMasked};

/// Attention with every kind of mask, which needs no warps.
pub fn attention(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for mask in [None, Some(DType::Bool), Some(dtype)] {
        for fully_masked in [None, Some(FullyMasked::Mean), Some(FullyMasked::Zeros)] {
            for is_causal in [false, true] {
                let heads = Heads { dtype, size: 8, value_size: 3, fours: [true, true, false] };
                let scoring = Scoring { mask, is_causal, softcap: is_causal, fully_masked };
                let queries = if mask.is_some() { 1 } else { 2 };
                all.push(Attention { heads, scoring, lanes: 8, queries }.into());
                let (each, over_keys, warps) = ([1, 2], is_causal, false);
                all.push(TiledAttention { heads, scoring, each, over_keys, warps }.into());
            }
        }
    }
    all
}

/// Attention in tiles on devices with warps: what is common, and what takes most registers.
pub fn tiled() -> Vec<Template> {
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
pub fn decode() -> Vec<Template> {
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
pub fn flash() -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let every = [Part::Queries, Part::Keys, Part::Values].as_slice();
    let both = [Part::Queries, Part::KeysAndValues].as_slice();
    let half = (DType::F16, Factors::F16);
    let upper_half = (DType::BF16, Factors::BF16);
    let single = (DType::F32, Factors::TF32);
    for ((dtype, factors), size, mask, parts) in [
        (half, 64, None, both),
        (half, 256, None, every),
        (upper_half, 128, None, &[Part::KeysAndValues]),
        (upper_half, 72, Some(DType::Bool), &[Part::Queries]),
        (single, 64, None, &[Part::KeysAndValues]),
        (single, 256, None, &[Part::Queries]),
    ] {
        let form = Form { dtype, factors, size, in_words: mask.is_none() };
        let scoring = Scoring { mask, is_causal: size < 128, softcap: mask.is_some(), fully_masked: None };
        let warps = 4;
        let sides = [form; 3];
        all.push(Flash { sides, scoring, warps, log_sum: true }.into());
        let sides = [form; 5];
        for &part in parts {
            all.push(FlashGradient { part, sides, scoring, warps }.into());
        }
    }
    all
}
