//! Products of matrices that lie column by column ("cuBLAS Library", chapter "Using the cuBLASLt API"): `D = op(A) · op(B)`, plus a `C`
//! that lies as `D` does where the factor of that is 1, and a number for each row of `D` where a bias is asked for, and ReLU or GELU of that; or the sums of the
//! rows of `op(A)` beside it.

use crate::{driver, give};
use cudarc::cublaslt::sys::cublasStatus_t::{self, *};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayoutAttribute_t,
    cudaDataType,
};
use half::{bf16, f16};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the one algorithm is known by.
const ALGORITHM: [u64; 8] = [7; 8];
/// How many algorithms there are; each that is advised behind another has one more as its last word.
const ALGORITHMS: u64 = 3;

/// Rows of results whose products are refused when they are asked for, though it was advised how to compute them.
const REFUSED: usize = 331;

/// What a product is.
struct Operation {
    scale: cudaDataType,
    turned: [bool; 2],
    epilogue: Option<cublasLtEpilogue_t>,
    bias: u64,
}

/// How matrices lie.
#[derive(Clone, Copy)]
struct Matrices {
    kind: cudaDataType,
    rows: usize,
    columns: usize,
    leading: usize,
    count: usize,
    next: usize,
}

/// Matrices in memory.
#[derive(Clone, Copy)]
struct Operand {
    lie: Matrices,
    start: u64,
}

/// A batch of products.
struct Product {
    a: Operand,
    b: Operand,
    /// Where what is added lies, as the results do.
    c: Option<Operand>,
    d: Operand,
    turned: [bool; 2],
    epilogue: Epilogue,
    depth: usize,
}

/// What is done to sums.
#[derive(Clone, Copy, Default)]
struct Epilogue {
    bias: Option<u64>,
    /// Where the sums of the rows of `op(A)` go.
    sums: Option<u64>,
    gelu: bool,
    relu: bool,
}

impl Epilogue {
    /// What an operation asks for; nothing where that is not known here, or has no bias.
    fn of(operation: &Operation) -> Option<Self> {
        use cublasLtEpilogue_t::*;
        if operation.epilogue == Some(CUBLASLT_EPILOGUE_BGRADA) {
            let sums = Some(operation.bias).filter(|&sums| sums != 0)?;
            return Some(Self { sums: Some(sums), ..Self::default() });
        }
        let (has_bias, gelu, relu) = match operation.epilogue {
            None | Some(CUBLASLT_EPILOGUE_DEFAULT) => (false, false, false),
            Some(CUBLASLT_EPILOGUE_BIAS) => (true, false, false),
            Some(CUBLASLT_EPILOGUE_GELU) => (false, true, false),
            Some(CUBLASLT_EPILOGUE_GELU_BIAS) => (true, true, false),
            Some(CUBLASLT_EPILOGUE_RELU) => (false, false, true),
            Some(CUBLASLT_EPILOGUE_RELU_BIAS) => (true, false, true),
            Some(_) => return None,
        };
        let bias = has_bias.then_some(operation.bias);
        (bias != Some(0)).then_some(Self { bias, sums: None, gelu, relu })
    }

    /// GELU by tanh; ReLU makes 0 of NaN.
    fn finish(self, x: f64) -> f64 {
        if self.relu {
            return x.max(0.0);
        }
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        if self.gelu { 0.5 * x * (1.0 + inner.tanh()) } else { x }
    }
}

fn element_bytes(kind: cudaDataType) -> Option<usize> {
    match kind {
        cudaDataType::CUDA_R_64F => Some(8),
        cudaDataType::CUDA_R_32F => Some(4),
        cudaDataType::CUDA_R_16F | cudaDataType::CUDA_R_16BF => Some(2),
        _ => None,
    }
}

/// # Safety
/// The element is there.
unsafe fn read(kind: cudaDataType, start: u64, element: usize) -> f64 {
    // SAFETY: the caller says so.
    unsafe {
        match kind {
            cudaDataType::CUDA_R_64F => (start as *const f64).add(element).read(),
            cudaDataType::CUDA_R_32F => f64::from((start as *const f32).add(element).read()),
            cudaDataType::CUDA_R_16F => f64::from((start as *const f16).add(element).read()),
            _ => f64::from((start as *const bf16).add(element).read()),
        }
    }
}

/// # Safety
/// The element is there.
unsafe fn write(kind: cudaDataType, start: u64, element: usize, value: f64) {
    // SAFETY: the caller says so.
    unsafe {
        match kind {
            cudaDataType::CUDA_R_64F => (start as *mut f64).add(element).write(value),
            cudaDataType::CUDA_R_32F => (start as *mut f32).add(element).write(value as f32),
            cudaDataType::CUDA_R_16F => (start as *mut f16).add(element).write(f16::from_f64(value)),
            _ => (start as *mut bf16).add(element).write(bf16::from_f64(value)),
        }
    }
}

impl Operand {
    /// Bytes from the first element to the last.
    fn bytes(&self) -> usize {
        let Matrices { kind, rows, columns, leading, count, next } = self.lie;
        ((count - 1) * next + (columns - 1) * leading + rows) * element_bytes(kind).unwrap_or(0)
    }

    /// A column of a matrix (of its transpose, if turned), up to `depth`.
    ///
    /// # Safety
    /// The matrices are there.
    unsafe fn row(&self, matrix: usize, row: usize, turned: bool, depth: usize) -> Vec<f64> {
        let Matrices { kind, leading, next, .. } = self.lie;
        let element =
            |at: usize| matrix * next + if turned { row * leading + at } else { at * leading + row };
        // SAFETY: the caller says so.
        (0..depth).map(|at| unsafe { read(kind, self.start, element(at)) }).collect()
    }
}

/// What a workspace's start is a multiple of.
const WORKSPACE_ALIGNMENT: usize = 256;
/// And that of a bias or sums, which algorithms read and write so many bytes at a time whatever they are told of matrices.
const VECTOR_ALIGNMENT: u64 = 16;

impl Product {
    /// Whether the library says what it computes: of elements that lie whole, into memory that it does not read meanwhile but as what is added, in the same places.
    fn is_defined(&self) -> bool {
        let size = element_bytes(self.d.lie.kind).unwrap_or(1);
        let range = |operand: &Operand| operand.start..operand.start + operand.bytes() as u64;
        let vector = |start: u64| start..start + (self.d.lie.rows * size) as u64;
        let written: Vec<_> = [range(&self.d)].into_iter().chain(self.epilogue.sums.map(vector)).collect();
        let read: Vec<_> =
            [range(&self.a), range(&self.b)].into_iter().chain(self.epilogue.bias.map(vector)).collect();
        let added = self.c.as_ref().map(range);
        let is_in_place = added.as_ref().is_some_and(|added| added.start == self.d.start);
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let mut read_elsewhere = read.iter().chain(added.as_ref().filter(|_| !is_in_place));
        let is_apart = read_elsewhere.all(|read| !written.iter().any(|written| meet(read, written)));
        let is_whole = |range: &Range<u64>| range.start.is_multiple_of(size as u64);
        is_apart && written.iter().chain(&read).chain(&added).all(is_whole)
    }
}

impl driver::Call for Product {
    fn reach(&self) -> Vec<(u64, usize)> {
        let matrices = [self.a, self.b, self.d].map(|operand| (operand.start, operand.bytes()));
        let vector = self.epilogue.bias.or(self.epilogue.sums);
        let vector =
            vector.map(|start| (start, self.d.lie.rows * element_bytes(self.d.lie.kind).unwrap_or(0)));
        let added = self.c.map(|operand| (operand.start, operand.bytes()));
        matrices.into_iter().chain(vector).chain(added).collect()
    }

    unsafe fn compute(&self) {
        let Matrices { kind, rows, columns, leading, count, next } = self.d.lie;
        for matrix in 0..count {
            // SAFETY: the caller says so.
            let lefts: Vec<Vec<f64>> =
                (0..rows).map(|row| unsafe { self.a.row(matrix, row, self.turned[0], self.depth) }).collect();
            for (row, left) in lefts.iter().enumerate() {
                if let Some(sums) = self.epilogue.sums {
                    // SAFETY: as above.
                    unsafe { write(kind, sums, row, left.iter().sum()) };
                }
            }
            for column in 0..columns {
                // What stands in a column of B is a row of its transpose.
                // SAFETY: as above.
                let right = unsafe { self.b.row(matrix, column, !self.turned[1], self.depth) };
                for (row, left) in lefts.iter().enumerate() {
                    let sum: f64 = left.iter().zip(&right).map(|(a, b)| a * b).sum();
                    // SAFETY: as above.
                    unsafe {
                        let at = matrix * next + column * leading + row;
                        let bias = self.epilogue.bias.map_or(0.0, |bias| read(kind, bias, row));
                        let added = self.c.map_or(0.0, |added| read(kind, added.start, at));
                        write(kind, self.d.start, at, self.epilogue.finish(sum + bias + added));
                    }
                }
            }
        }
    }
}

/// A pointer that this library made, as what it is.
///
/// # Safety
/// It was made of a box of that, and is not given back.
unsafe fn known<'a, T>(pointer: *mut c_void) -> &'a mut T {
    // SAFETY: the caller says so.
    unsafe { &mut *pointer.cast::<T>() }
}

/// # Safety
/// The pointer may be written to.
unsafe fn made<T>(to: *mut *mut c_void, value: T) -> cublasStatus_t {
    // SAFETY: the caller says so.
    match unsafe { give(to, Box::into_raw(Box::new(value)).cast()) } {
        true => CUBLAS_STATUS_SUCCESS,
        false => CUBLAS_STATUS_INVALID_VALUE,
    }
}

/// An attribute's value, where it has the size that it should.
///
/// # Safety
/// There are so many bytes.
unsafe fn value<T: Copy>(from: *const c_void, bytes: usize) -> Option<T> {
    // SAFETY: the caller says so.
    (bytes == size_of::<T>()).then(|| unsafe { from.cast::<T>().read_unaligned() })
}

fn status(done: Option<()>) -> cublasStatus_t {
    if done.is_some() { CUBLAS_STATUS_SUCCESS } else { CUBLAS_STATUS_INVALID_VALUE }
}

// All of what follows is declared, with what must hold, in cuBLAS's documents.

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(handle: *mut *mut c_void) -> cublasStatus_t {
    // SAFETY: as the documents say.
    unsafe { made(handle, ()) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    130_500
}

/// How often an algorithm was looked for.
static SEARCHES: AtomicU64 = AtomicU64::new(0);

/// Tells tests how often an algorithm was looked for.
#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_searches() -> u64 {
    SEARCHES.load(Ordering::Relaxed)
}

/// A bit for each algorithm that products were asked for by.
static USED: AtomicU64 = AtomicU64::new(0);

/// Tells tests by which algorithms products were asked for since it told it before, a bit each, as they are advised.
#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_product_algorithms() -> u64 {
    USED.swap(0, Ordering::Relaxed)
}

/// The place of an algorithm among those that are advised.
fn place(algorithm: &cublasLtMatmulAlgo_t) -> Option<u64> {
    (0..ALGORITHMS).find(|&place| advice(place).algo.data == algorithm.data)
}

/// An algorithm, as it is told.
fn advice(place: u64) -> cublasLtMatmulHeuristicResult_t {
    let mut data = ALGORITHM;
    data[7] += place;
    cublasLtMatmulHeuristicResult_t {
        algo: cublasLtMatmulAlgo_t { data },
        workspaceSize: 0,
        state: CUBLAS_STATUS_SUCCESS,
        wavesCount: 1.0,
        reserved: [0; 4],
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    _handle: *mut c_void,
    operation: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    _c: *mut c_void,
    d: *mut c_void,
    algorithm: *const cublasLtMatmulAlgo_t,
    result: *mut cublasLtMatmulHeuristicResult_t,
) -> cublasStatus_t {
    // SAFETY: as the documents say.
    unsafe {
        let fits = depth(known(operation), [known(a), known(b), known(d)]).is_some();
        let Some(place) = place(&*algorithm).filter(|_| fits) else { return CUBLAS_STATUS_NOT_SUPPORTED };
        status(give(result, advice(place)).then_some(()))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(
    operation: *mut *mut c_void,
    compute: cublasComputeType_t,
    scale: cudaDataType,
) -> cublasStatus_t {
    let fits = match compute {
        cublasComputeType_t::CUBLAS_COMPUTE_64F => scale == cudaDataType::CUDA_R_64F,
        cublasComputeType_t::CUBLAS_COMPUTE_32F | cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32 => {
            scale == cudaDataType::CUDA_R_32F
        }
        _ => false,
    };
    if !fits {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    // SAFETY: as the documents say.
    unsafe { made(operation, Operation { scale, turned: [false; 2], epilogue: None, bias: 0 }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    operation: *mut c_void,
    attribute: cublasLtMatmulDescAttributes_t,
    from: *const c_void,
    bytes: usize,
) -> cublasStatus_t {
    use cublasLtMatmulDescAttributes_t as Attribute;
    // SAFETY: as the documents say.
    let set = unsafe {
        let operation = known::<Operation>(operation);
        // `CUBLAS_OP_N` is 0, `CUBLAS_OP_T` 1.
        let turned = || value::<i32>(from, bytes).filter(|turned| (0..2).contains(turned)).map(|n| n == 1);
        match attribute {
            Attribute::CUBLASLT_MATMUL_DESC_TRANSA => turned().map(|turned| operation.turned[0] = turned),
            Attribute::CUBLASLT_MATMUL_DESC_TRANSB => turned().map(|turned| operation.turned[1] = turned),
            Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE => {
                value(from, bytes).map(|epilogue| operation.epilogue = Some(epilogue))
            }
            Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER => {
                value(from, bytes).map(|bias| operation.bias = bias)
            }
            _ => None,
        }
    };
    status(set)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescDestroy(operation: *mut c_void) -> cublasStatus_t {
    // SAFETY: as the documents say.
    drop(unsafe { Box::from_raw(operation.cast::<Operation>()) });
    CUBLAS_STATUS_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut *mut c_void,
    kind: cudaDataType,
    rows: u64,
    columns: u64,
    leading: i64,
) -> cublasStatus_t {
    let (rows, columns) = (rows as usize, columns as usize);
    if element_bytes(kind).is_none() || rows == 0 || columns == 0 || leading < rows as i64 {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    let lie = Matrices { kind, rows, columns, leading: leading as usize, count: 1, next: 0 };
    // SAFETY: as the documents say.
    unsafe { made(layout, lie) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: *mut c_void,
    attribute: cublasLtMatrixLayoutAttribute_t,
    from: *const c_void,
    bytes: usize,
) -> cublasStatus_t {
    use cublasLtMatrixLayoutAttribute_t as Attribute;
    // SAFETY: as the documents say.
    let set = unsafe {
        let layout = known::<Matrices>(layout);
        match attribute {
            Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT => {
                value::<i32>(from, bytes).map(|count| layout.count = count as usize)
            }
            Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET => {
                value::<i64>(from, bytes).map(|next| layout.next = next as usize)
            }
            _ => None,
        }
    };
    status(set)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut c_void) -> cublasStatus_t {
    // SAFETY: as the documents say.
    drop(unsafe { Box::from_raw(layout.cast::<Matrices>()) });
    CUBLAS_STATUS_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut *mut c_void) -> cublasStatus_t {
    // SAFETY: as the documents say.
    unsafe { made(preference, 0_u8) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    _preference: *mut c_void,
    attribute: cublasLtMatmulPreferenceAttributes_t,
    from: *const c_void,
    bytes: usize,
) -> cublasStatus_t {
    use cublasLtMatmulPreferenceAttributes_t as Attribute;
    // SAFETY: as the documents say.
    let fits = unsafe {
        match attribute {
            Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES => value::<u64>(from, bytes).map(|_| ()),
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
            | Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES
            | Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
            | Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES => {
                value::<u32>(from, bytes).filter(|alignment| alignment.is_power_of_two()).map(|_| ())
            }
            _ => None,
        }
    };
    status(fits)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceDestroy(preference: *mut c_void) -> cublasStatus_t {
    // SAFETY: as the documents say.
    drop(unsafe { Box::from_raw(preference.cast::<u8>()) });
    CUBLAS_STATUS_SUCCESS
}

/// The depth of products, where their matrices fit.
fn depth(operation: &Operation, [a, b, d]: [&Matrices; 3]) -> Option<usize> {
    let turn =
        |of: &Matrices, turned: bool| if turned { (of.columns, of.rows) } else { (of.rows, of.columns) };
    let (left, right) = (turn(a, operation.turned[0]), turn(b, operation.turned[1]));
    let wide = operation.scale == cudaDataType::CUDA_R_64F;
    let fit = left.1 == right.0
        && (left.0, right.1) == (d.rows, d.columns)
        && [a, b].iter().all(|of| of.count == d.count && of.kind == d.kind)
        && wide == (d.kind == cudaDataType::CUDA_R_64F);
    fit.then_some(left.1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut c_void,
    operation: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    _c: *mut c_void,
    d: *mut c_void,
    _preference: *mut c_void,
    wanted: c_int,
    results: *mut cublasLtMatmulHeuristicResult_t,
    found: *mut c_int,
) -> cublasStatus_t {
    // SAFETY: as the documents say.
    unsafe {
        let operation = known::<Operation>(operation);
        let fits = depth(operation, [known(a), known(b), known(d)]).is_some();
        if !fits || Epilogue::of(operation).is_none() || wanted < 1 {
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
        SEARCHES.fetch_add(1, Ordering::Relaxed);
        let given = ALGORITHMS.min(wanted as u64);
        let all = (0..given).all(|place| give(results.add(place as usize), advice(place)));
        status((all && give(found, given as c_int)).then_some(()))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    _handle: *mut c_void,
    operation: *mut c_void,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: *mut c_void,
    b: *const c_void,
    b_layout: *mut c_void,
    beta: *const c_void,
    c: *const c_void,
    c_layout: *mut c_void,
    d: *mut c_void,
    d_layout: *mut c_void,
    algorithm: *const cublasLtMatmulAlgo_t,
    workspace: *mut c_void,
    _workspace_bytes: usize,
    stream: *mut c_void,
) -> cublasStatus_t {
    // SAFETY: as the documents say; the scales are of the operation's scale type.
    unsafe {
        let operation = known::<Operation>(operation);
        let [a_lie, b_lie, d_lie] = [a_layout, b_layout, d_layout].map(|layout| *known::<Matrices>(layout));
        if d_lie.rows == REFUSED {
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
        let known = depth(operation, [&a_lie, &b_lie, &d_lie]).zip(Epilogue::of(operation));
        let Some((depth, epilogue)) = known else {
            return CUBLAS_STATUS_INVALID_VALUE;
        };
        let adds = match [alpha, beta].map(|factor| read(operation.scale, factor as u64, 0)) {
            [1.0, 0.0] => false,
            [1.0, 1.0] => true,
            _ => return CUBLAS_STATUS_INVALID_VALUE,
        };
        let known_as = if algorithm.is_null() { None } else { place(&*algorithm) };
        let fits = if adds { c_layout == d_layout } else { c == d.cast_const() };
        let Some(place) = known_as.filter(|_| fits && !workspace.is_null()) else {
            return CUBLAS_STATUS_INVALID_VALUE;
        };
        USED.fetch_or(1 << place, Ordering::Relaxed);
        let operand = |lie: Matrices, start: u64| Operand { lie, start };
        let product = Product {
            a: operand(a_lie, a as u64),
            b: operand(b_lie, b as u64),
            c: adds.then(|| operand(d_lie, c as u64)),
            d: operand(d_lie, d as u64),
            turned: operation.turned,
            epilogue,
            depth,
        };
        if !product.is_defined() || !(workspace as usize).is_multiple_of(WORKSPACE_ALIGNMENT) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
        // A device faults.
        let mut vectors = product.epilogue.bias.iter().chain(&product.epilogue.sums);
        if !vectors.all(|start| start.is_multiple_of(VECTOR_ALIGNMENT)) {
            return CUBLAS_STATUS_EXECUTION_FAILED;
        }
        match driver::call(stream, Box::new(product)) {
            true => CUBLAS_STATUS_SUCCESS,
            false => CUBLAS_STATUS_EXECUTION_FAILED,
        }
    }
}
