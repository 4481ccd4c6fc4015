//! The normal distribution: its logarithm and quantiles, and the scaled error function.

use super::Table;
use super::pointwise::computed;
use super::special::{error_series, polynomial};
use crate::pt2::call::{Call, Outputs, Result};
use kiln_types::DType;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

pub(super) const RULES: Table = &[
    ("special_erfcx.default", |call| {
        let (x, dtype) = computed(call)?;
        let x = call.cast(&x, dtype, DType::F64);
        let result = scaled_complement(call, &x);
        Ok(vec![call.cast(&result, DType::F64, dtype)])
    }),
    ("special_log_ndtr.default", log_part_below),
    ("special_ndtri.default", quantile),
];

/// `exp(x²) · erfc x`; below 0, `2 exp(x²)` less that of `−x`.
fn scaled_complement(call: &mut Call<'_, '_>, x: &str) -> String {
    let (zero, two) = (call.number_of(0.0, DType::F64), call.number_of(2.0, DType::F64));
    let size = call.op("Abs", &[x], Vec::new());
    let (t, sum) = error_series(call, &size);
    let power = call.op("Exp", &[&sum], Vec::new());
    let above = call.op("Mul", &[&t, &power], Vec::new());
    let negative = call.op("Min", &[x, &zero], Vec::new());
    let square = call.op("Mul", &[&negative, &negative], Vec::new());
    let power = call.op("Exp", &[&square], Vec::new());
    let twice = call.op("Mul", &[&power, &two], Vec::new());
    let below = call.op("Sub", &[&twice, &above], Vec::new());
    let is_below = call.op("Less", &[x, &zero], Vec::new());
    call.op("Where", &[&is_below, &below, &above], Vec::new())
}

/// The logarithm of the part below `x`: `log(erfcx(−x/√2) / 2) − x²/2` far below 0, else `log1p(−erfc(x/√2) / 2)`.
fn log_part_below(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let x = call.cast(&x, dtype, DType::F64);
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (bound, scale, half) = (number(call, -1.0), number(call, FRAC_1_SQRT_2), number(call, 0.5));
    let low = call.op("Min", &[&x, &bound], Vec::new());
    let scaled = call.op("Mul", &[&low, &scale], Vec::new());
    let mirrored = call.op("Neg", &[&scaled], Vec::new());
    let part = scaled_complement(call, &mirrored);
    let part = call.op("Mul", &[&part, &half], Vec::new());
    let log = call.op("Log", &[&part], Vec::new());
    let square = call.op("Mul", &[&scaled, &scaled], Vec::new());
    let far = call.op("Sub", &[&log, &square], Vec::new());
    let high = call.op("Max", &[&x, &bound], Vec::new());
    let scaled = call.op("Mul", &[&high, &scale], Vec::new());
    let part = scaled_complement(call, &scaled);
    let square = call.op("Mul", &[&scaled, &scaled], Vec::new());
    let negative = call.op("Neg", &[&square], Vec::new());
    let power = call.op("Exp", &[&negative], Vec::new());
    let part = call.op("Mul", &[&part, &power], Vec::new());
    let minus_half = number(call, -0.5);
    let part = call.op("Mul", &[&part, &minus_half], Vec::new());
    let near = call.kiln("Log1p", &[&part], Vec::new());
    let is_far = call.op("Less", &[&x, &bound], Vec::new());
    let result = call.op("Where", &[&is_far, &far, &near], Vec::new());
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}

// Quotients of polynomials, the highest power first; that below has the power before as 1 (Cephes, `ndtri.c`).
/// Between the tails of `e⁻²`: of `(p − ½)²`.
const MIDDLE: [&[f64]; 2] = [
    &[
        -59.963_350_101_410_79,
        98.001_075_418_599_97,
        -56.676_285_746_907_03,
        13.931_260_938_727_968,
        -1.239_165_838_673_812_6,
    ],
    &[
        1.0,
        1.954_488_583_381_417_6,
        4.676_279_128_988_815,
        86.360_242_139_089_06,
        -225.462_687_854_119_37,
        200.260_212_380_060_66,
        -82.037_225_616_833_34,
        15.905_622_512_621_17,
        -1.183_316_211_213_3,
    ],
];
/// Of `1 / √(−2 log p)` from 1/8 on.
const TAIL: [&[f64]; 2] = [
    &[
        4.055_448_923_059_624,
        31.525_109_459_989_388,
        57.162_819_224_642_13,
        44.080_507_389_320_08,
        14.684_956_192_885_803,
        2.186_633_068_507_903,
        -0.140_256_079_171_354_5,
        -3.504_246_268_278_482e-2,
        -8.574_567_851_546_854e-4,
    ],
    &[
        1.0,
        15.779_988_325_646_675,
        45.390_763_512_887_92,
        41.317_203_825_467_2,
        15.042_538_569_290_75,
        2.504_649_462_083_094,
        -0.142_182_922_854_787_8,
        -3.808_064_076_915_783e-2,
        -9.332_594_808_954_574e-4,
    ],
];
/// Of `1 / √(−2 log p)` below 1/8.
const FAR: [&[f64]; 2] = [
    &[
        3.237_748_917_769_46,
        6.915_228_890_689_842,
        3.938_810_252_924_744_4,
        1.333_034_608_158_075_4,
        0.201_485_389_549_179_08,
        1.237_166_348_178_200_2e-2,
        3.015_815_535_082_354e-4,
        2.658_069_746_867_375_5e-6,
        6.239_745_391_849_833e-9,
    ],
    &[
        1.0,
        6.024_270_393_647_42,
        3.679_835_638_561_608_7,
        1.377_020_994_890_813_2,
        0.216_236_993_594_496_63,
        1.342_040_060_885_431_8e-2,
        3.280_144_646_821_277_4e-4,
        2.892_478_647_453_807e-6,
        6.790_194_080_099_813e-9,
    ],
];

fn quotient(call: &mut Call<'_, '_>, x: &str, [above, below]: [&[f64]; 2]) -> String {
    let [above, below] = [above, below].map(|terms| {
        let terms: Vec<f64> = terms.iter().rev().copied().collect();
        polynomial(call, x, &terms, DType::F64)
    });
    call.op("Div", &[&above, &below], Vec::new())
}

/// What a part `p` of the distribution is below.
fn quantile(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (p, dtype) = computed(call)?;
    let p = call.cast(&p, dtype, DType::F64);
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (half, one, bound) = (number(call, 0.5), number(call, 1.0), number(call, (-2.0_f64).exp()));
    let y = call.op("Sub", &[&p, &half], Vec::new());
    let square = call.op("Mul", &[&y, &y], Vec::new());
    let ratio = quotient(call, &square, MIDDLE);
    let part = call.op("Mul", &[&ratio, &square], Vec::new());
    let part = call.op("Mul", &[&part, &y], Vec::new());
    let sum = call.op("Add", &[&part, &y], Vec::new());
    let scale = number(call, (2.0 * PI).sqrt());
    let middle = call.op("Mul", &[&sum, &scale], Vec::new());
    // By the shorter tail.
    let other = call.op("Sub", &[&one, &p], Vec::new());
    let tail = call.op("Min", &[&p, &other], Vec::new());
    let is_tail = call.op("LessOrEqual", &[&tail, &bound], Vec::new());
    let tail = call.op("Min", &[&tail, &bound], Vec::new());
    let log = call.op("Log", &[&tail], Vec::new());
    let minus_two = number(call, -2.0);
    let twice = call.op("Mul", &[&log, &minus_two], Vec::new());
    let root = call.op("Sqrt", &[&twice], Vec::new());
    let inverse = call.op("Reciprocal", &[&root], Vec::new());
    let log = call.op("Log", &[&root], Vec::new());
    let correction = call.op("Mul", &[&log, &inverse], Vec::new());
    let first = call.op("Sub", &[&root, &correction], Vec::new());
    let (near, far) = (quotient(call, &inverse, TAIL), quotient(call, &inverse, FAR));
    let eighth = number(call, 0.125);
    let is_far = call.op("Less", &[&inverse, &eighth], Vec::new());
    let ratio = call.op("Where", &[&is_far, &far, &near], Vec::new());
    let second = call.op("Mul", &[&ratio, &inverse], Vec::new());
    let distance = call.op("Sub", &[&first, &second], Vec::new());
    // All of it is below infinity.
    let (zero, infinity) = (number(call, 0.0), number(call, f64::INFINITY));
    let end = call.op("Equal", &[&tail, &zero], Vec::new());
    let distance = call.op("Where", &[&end, &infinity, &distance], Vec::new());
    let negative = call.op("Neg", &[&distance], Vec::new());
    let is_below = call.op("Less", &[&p, &half], Vec::new());
    let tail = call.op("Where", &[&is_below, &negative, &distance], Vec::new());
    let result = call.op("Where", &[&is_tail, &tail, &middle], Vec::new());
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}
