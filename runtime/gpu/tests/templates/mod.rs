//! Kernels of every family, with what makes a difference to their source. A family stands in the file that has its kernels' name.

mod attention;
mod cross_entropy;
mod direct;
mod dropout;
mod elementwise;
mod embedding;
mod fused;
mod gemv;
mod grouped;
mod index;
mod matmul;
mod norm_gradient;
mod quantized;
mod random;
#[allow(dead_code, reason = "not all who compile them read them")]
pub mod readable;
mod recurrent;
mod reduce;
mod rows;
mod scan;
mod segments;
mod sort;
pub mod subgroups;
mod window;

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::Strided;
use kiln_gpu::kernels::epilogue::EpilogueProgram;
use kiln_gpu::kernels::random::Draw;
use kiln_gpu::kernels::reduce::Reducer;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_tensor::{BinaryOp, DType, Expression, Step};

/// What every language has, but for integers of 64 bits.
const DTYPES: [DType; 5] = [DType::F32, DType::F16, DType::I32, DType::U32, DType::Bool];
/// What CUDA C++ has besides.
const OTHERS: [DType; 8] =
    [DType::F64, DType::BF16, DType::I64, DType::I16, DType::I8, DType::U64, DType::U16, DType::U8];

/// A sum with a row for all, then a product with a number.
fn after(dtype: DType) -> Vec<EpilogueProgram> {
    let sum = Expression::new(vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Add, 0, 1)]);
    let product = vec![Step::Input(0), Step::Parameter(0, dtype), Step::Binary(BinaryOp::Mul, 0, 1)];
    vec![
        EpilogueProgram { dtype, expression: sum, own: 1, operands: [(dtype, Strided)].into(), rank: 2 },
        EpilogueProgram { dtype, expression: Expression::new(product), own: 0, operands: [].into(), rank: 0 },
    ]
}

/// The dtype in which parts of reductions are kept.
fn wide_of(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I16 | DType::I8 => DType::I32,
        DType::U16 | DType::U8 => DType::U32,
        other => other,
    }
}

/// Reductions of every kind, and what is made of them.
fn reductions(dtypes: &[DType]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    all.extend(sort::keyed(dtypes.iter().any(|dtype| wide_of(*dtype).size() > 4)));
    for &dtype in dtypes {
        for reducer in [Reducer::Sum, Reducer::Prod, Reducer::Max, Reducer::Min] {
            all.extend(reduce::reductions(reducer, dtype));
            all.extend(scan::scans(reducer, dtype));
        }
        all.extend(reduce::extremes(dtype));
        all.extend(sort::blocks(dtype));
    }
    for &dtype in dtypes.iter().filter(|dtype| dtype.is_float()) {
        all.extend(rows::rows(dtype));
        all.extend(reduce::moments(dtype));
        all.extend(norm_gradient::gradients(dtype));
        all.extend(cross_entropy::losses(dtype));
    }
    all
}

fn indexing(dtypes: &[DType], indices: [DType; 2]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for &dtype in dtypes {
        for index in indices {
            all.push(index::gather(dtype, index).into());
            if dtype.is_float() {
                all.extend(embedding::gradients(dtype, index));
                all.extend(grouped::tiled(dtype, index, Tiling::Invocations([4, 4])));
                all.extend(grouped::rows(dtype, index));
            }
            all.extend(index::writes(dtype, index));
        }
        all.extend(segments::reductions(dtype));
    }
    all.extend(indices.map(index::last_places));
    all.extend(indices.map(sort::rows));
    all
}

fn products_and_windows(dtypes: &[DType]) -> Vec<Template> {
    let tiling = Tiling::Invocations([4, 4]);
    let mut all: Vec<Template> = Vec::new();
    all.extend([[2, 2], [8, 8]].map(Tiling::Invocations).map(matmul::in_parts));
    all.push(window::in_parts(tiling));
    for &dtype in dtypes {
        all.push(matmul::full(dtype, tiling));
        all.push(gemv::full(dtype, dtype.is_float()));
        all.extend(window::convs(dtype, tiling));
        all.extend(window::pools(dtype));
    }
    all
}

/// What devices without shared memory run, and attention.
fn direct(dtypes: &[DType]) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for &dtype in dtypes {
        all.extend(direct::products(dtype));
        all.extend(window::by_rows(dtype));
    }
    // Attention in f64 is made of other kernels.
    for &dtype in dtypes.iter().filter(|&&dtype| dtype.is_float() && dtype != DType::F64) {
        all.extend(attention::attention(dtype));
    }
    all
}

/// Kernels of every family.
pub fn all() -> Vec<Template> {
    let products = [DType::F32, DType::F16, DType::I32];
    let families = [
        elementwise::programs(&DTYPES),
        elementwise::casts(&DTYPES, &DTYPES),
        elementwise::activations(DType::F32),
        vec![elementwise::mixed(), scan::positions(DType::U32)],
        reductions(&DTYPES),
        reduce::truths(),
        indexing(&DTYPES, [DType::I32, DType::U32]),
        fused::fused(DType::F32),
        vec![matmul::full(DType::F32, Tiling::Invocations([2, 8])), gemv::full(DType::F32, false)],
        products_and_windows(&products),
        direct(&products),
        recurrent::layers(&[DType::F32, DType::F16]),
        dropout::dropouts(&[DType::F32, DType::F16], false),
        random::randoms(&[(Draw::Unit, DType::F32), (Draw::Unit, DType::F16), (Draw::Bit, DType::Bool)]),
        random::randoms(&[(Draw::Below, DType::I32), (Draw::Whole, DType::I32), (Draw::Whole, DType::U32)]),
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
        elementwise::programs(&all),
        elementwise::casts(&all, &all),
        elementwise::casts(&all, &DTYPES),
        elementwise::casts(&DTYPES, &all),
        elementwise::activations(DType::F64),
        vec![scan::positions(DType::I64)],
        reductions(&all[..2]),
        indexing(&all[..1], [DType::I64, DType::U64]),
        products_and_windows(&all[..2]),
        direct(&all[..2]),
        recurrent::layers(&[DType::F64, DType::F64]),
        dropout::dropouts(&[DType::F64], false),
        random::randoms(
            &[DType::F64, DType::F32, DType::F16, DType::I64, DType::I32].map(|to| (Draw::Uniform, to)),
        ),
        random::randoms(
            &[DType::F64, DType::F32, DType::F16, DType::I64, DType::Bool].map(|to| (Draw::Normal, to)),
        ),
        random::randoms(&[DType::I64, DType::U64].map(|to| (Draw::Whole, to))),
    ];
    families.into_iter().flatten().collect()
}

/// Kernels with integers of 64 bits, and without floats of 64 bits.
#[allow(dead_code, reason = "CUDA's are among others")]
pub fn of_integers_of_64_bits() -> Vec<Template> {
    let integers = [DType::I64, DType::U64];
    let families = [
        elementwise::programs(&integers),
        elementwise::casts(&integers, &integers),
        elementwise::casts(&integers, &DTYPES),
        elementwise::casts(&DTYPES, &integers),
        vec![scan::positions(DType::I64)],
        reductions(&integers),
        indexing(&[DType::F32, DType::I64], integers),
        products_and_windows(&integers[..1]),
        direct(&integers[..1]),
    ];
    let in_double =
        |template: &Template| matches!(template, Template::Pool(pool) if pool.floats == DType::F64);
    families.into_iter().flatten().filter(|template| !in_double(template)).collect()
}

/// Kernels of every family with dtypes that CUDA C++ alone has: all of them in casts, else one of those that differ by their name alone.
pub fn of_cuda_alone() -> Vec<Template> {
    let some = [DType::F64, DType::BF16, DType::I64, DType::I8, DType::U64, DType::U16];
    let families = [
        elementwise::programs(&some),
        elementwise::casts(&OTHERS, &OTHERS),
        elementwise::casts(&OTHERS, &DTYPES),
        elementwise::casts(&DTYPES, &OTHERS),
        elementwise::activations(DType::F64),
        vec![scan::positions(DType::I64)],
        reductions(&some),
        some.iter().chain(&DTYPES).copied().flat_map(reduce::joins).collect(),
        fused::joins(),
        indexing(&some, [DType::I64, DType::U8]),
        products_and_windows(&some[..4]),
        direct(&[DType::F64, DType::BF16, DType::I8]),
        recurrent::layers(&[DType::F64, DType::BF16]),
        dropout::dropouts(&[DType::F64, DType::BF16], false),
        dropout::dropouts(&[DType::F32, DType::BF16], true),
        random::salted(DType::F32),
        random::randoms(&[DType::F32, DType::F16].map(|to| (Draw::Uniform, to))),
        random::randoms(&[DType::F32, DType::F16].map(|to| (Draw::Normal, to))),
        random::randoms(&[Draw::Unit, Draw::Uniform, Draw::Normal].map(|draw| (draw, DType::BF16))),
        random::randoms(&OTHERS.map(|to| (Draw::Uniform, to))),
        random::randoms(
            &[DType::I64, DType::I16, DType::I8, DType::U64, DType::U16, DType::U8]
                .map(|to| (Draw::Whole, to)),
        ),
        attention::tiled(),
        attention::decode(),
        attention::flash(),
        subgroups::by_warps(),
        gemv::wide(),
    ];
    families.into_iter().flatten().collect()
}
