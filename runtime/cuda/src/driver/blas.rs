//! Matrix products by cuBLASLt (NVIDIA, "cuBLAS Library", chapter "Using the cuBLASLt API"), where it is there.
//!
//! The library's matrices lie column by column. Ours lie row by row, which is the same as their transposes column by column: what is
//! asked of it is `outᵀ = rhsᵀ · lhsᵀ`, whose rows are our columns.

use super::{ALWAYS, DriverError, Matrices, Product, WAYS, is_named, is_wanted};
use crate::cache::Cache;
use cudarc::cublaslt::{result, sys};
use kiln_tensor::{Activation, DType};
use rustc_hash::FxHashMap;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// Memory that an algorithm may use beside the matrices: what NVIDIA advises for Hopper.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;
/// Products (rows × columns × depth) from which on the library is asked: below, what follows a product is done by our kernel, which
/// saves launches. Measured on an H200 with 24 products of the benchmark's networks (`BENCHMARKS.md`).
const LEAST_PRODUCTS: usize = 1 << 24;
/// The same of products by tensor cores, of which the library does more at once than our kernels.
const LEAST_OF_TENSOR_CORES: usize = 1 << 19;
/// Products of one row from which on the library is asked for them all the same: it computes them as fast as memory is read (125 µs for 2048 x 128256
/// of bf16 on an H200, 525 MB). It does not for smaller ones, which our kernel reads so that more is on its way (`kiln_gpu::kernels::gemv`).
const LEAST_OF_ROWS: usize = 1 << 27;
/// Bytes that our kernel reads at once, where what it reads is aligned to that.
const WIDE: usize = 16;
/// What the address of a bias, or of sums, is a multiple of. The library is told how its matrices are aligned, but has no such attribute for these, and
/// advises algorithms that read them so many bytes at once (a fault of the device for others, with CUDA 13.3 on Turing; PyTorch, pull request 194497).
const ALIGNMENT_OF_VECTORS: u64 = 16;
/// Plans that are kept.
const MOST_PLANS: usize = 4096;

/// The library with what it advised.
pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    /// What it advised at earlier starts, for a device with a name.
    kept: Option<Cache>,
    device: String,
    /// Whether it is asked for small products too.
    always: bool,
    /// Whether it is asked for sums beside a product.
    sums: bool,
    /// By all that a plan depends on; nothing where it has no algorithm.
    plans: Mutex<FxHashMap<Key, Option<Plan>>>,
}

// SAFETY: the handle may be used from any thread ("Thread safety considerations"), and plans are locked.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// A product without its addresses, and by how many bytes each of them is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    product: Product,
    alignments: [u32; 5],
    way: usize,
}

/// How a product is computed.
struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    /// Of our right sides, left sides and results.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: all were made for this plan, and are not used again.
        unsafe {
            let _ = result::destroy_matmul_desc(self.operation);
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

/// Names the library, which is there, with its version.
pub(super) fn version() -> String {
    // SAFETY: it takes nothing.
    format!("cuBLASLt {}", unsafe { sys::cublasLtGetVersion() })
}

fn failed(call: &'static str) -> impl Fn(result::CublasError) -> DriverError {
    move |error| DriverError {
        call,
        reason: format!("{:?}", error.0),
        is_out_of_memory: error.0 == sys::cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED,
        is_fault: false,
    }
}

/// Whether the library says that it cannot, and did nothing: not that it failed at it.
fn is_refusal(error: result::CublasError) -> bool {
    use sys::cublasStatus_t::*;
    matches!(error.0, CUBLAS_STATUS_NOT_SUPPORTED | CUBLAS_STATUS_INVALID_VALUE | CUBLAS_STATUS_ARCH_MISMATCH)
}

/// The largest power of two, up to 256, that an address is a multiple of.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

fn data_type(dtype: DType) -> Option<sys::cudaDataType> {
    match dtype {
        DType::F64 => Some(sys::cudaDataType::CUDA_R_64F),
        DType::F32 => Some(sys::cudaDataType::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType::CUDA_R_16BF),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::I4
        | DType::U4
        | DType::Bool => None,
    }
}

/// Whether tensor cores multiply factors of fewer bits than 32-bit floats have.
fn is_rough(product: &Product) -> bool {
    matches!(product.dtype, DType::F16 | DType::BF16) || product.dtype == DType::F32 && product.tf32
}

/// Whether it is one row, or one column, with matrices that our kernel reads 16 bytes at a time.
fn is_wide_row(product: &Product) -> bool {
    let [rows, columns, depth] = product.size;
    let (matrices, size) = match (rows, columns) {
        (1, _) => (&product.rhs, [depth, columns]),
        (_, 1) if product.bias.is_none() && product.sums.is_none() => (&product.lhs, [rows, depth]),
        _ => return false,
    };
    let bytes = product.dtype.size();
    let run = size[usize::from(!matrices.transposed)];
    let starts = matrices.start.0 as usize;
    [starts, matrices.leading * bytes, matrices.next * bytes, run * bytes]
        .into_iter()
        .all(|bytes| bytes.is_multiple_of(WIDE))
}

/// From how many products on the library is faster than our kernels.
fn least(product: &Product) -> usize {
    match is_rough(product) {
        _ if is_wide_row(product) => LEAST_OF_ROWS,
        true => LEAST_OF_TENSOR_CORES,
        false => LEAST_PRODUCTS,
    }
}

/// Whether a bias or sums, if there are any, begin where the library reads or writes them.
fn has_aligned_vectors(product: &Product) -> bool {
    let vectors = [product.bias, product.sums].into_iter().flatten();
    vectors.into_iter().all(|start| start.0.is_multiple_of(ALIGNMENT_OF_VECTORS))
}

/// What the library does behind a product; nothing where it does not do that. Its GELU is the one by tanh, whose exactness it does not state:
/// that of 16 bits is asked of it, and of sums of factors that were rounded to 11. Its ReLU may make 0
/// of NaN (NVIDIA does not state it; version 13 kept it on an H100), and is asked for where a user [allows](crate::set_library_relu) that.
fn epilogue(product: &Product) -> Option<sys::cublasLtEpilogue_t> {
    use sys::cublasLtEpilogue_t as Epilogue;
    let is_rough = is_rough(product);
    if product.sums.is_some() {
        // What is summed is the library's left side, our right one.
        let has_others = product.activation.is_some() || product.bias.is_some() || product.added.is_some();
        let is_alone = !has_others && product.count == 1;
        return is_alone.then_some(Epilogue::CUBLASLT_EPILOGUE_BGRADA);
    }
    match (product.activation, product.bias) {
        (None, None) => Some(Epilogue::CUBLASLT_EPILOGUE_DEFAULT),
        (None, Some(_)) => Some(Epilogue::CUBLASLT_EPILOGUE_BIAS),
        (Some(Activation::Relu), None) => Some(Epilogue::CUBLASLT_EPILOGUE_RELU),
        (Some(Activation::Relu), Some(_)) => Some(Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS),
        (Some(Activation::GeluTanh), None) if is_rough => Some(Epilogue::CUBLASLT_EPILOGUE_GELU),
        (Some(Activation::GeluTanh), Some(_)) if is_rough => Some(Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS),
        (Some(_), _) => None,
    }
}

impl Blas {
    /// The library, if it is there and takes the device that is current, whose name with its architecture is given; what it advises for it
    /// is kept.
    pub fn open(device: String, kept: Option<Cache>) -> Option<Self> {
        // SAFETY: loading NVIDIA's library runs nothing of ours.
        if !unsafe { sys::is_culib_present() } {
            return None;
        }
        let handle = result::create_handle().ok()?;
        let (always, sums) = (is_named(ALWAYS, "cublaslt"), is_wanted("cublaslt-bgrad"));
        Some(Self { handle, kept, device, always, sums, plans: Mutex::default() })
    }

    /// Whether it is worth it to ask the library for products.
    pub fn takes(&self, product: &Product) -> bool {
        let has_it = data_type(product.dtype).is_some()
            && epilogue(product).is_some()
            && has_aligned_vectors(product)
            && (self.sums || product.sums.is_none());
        let [rows, columns, depth] = product.size;
        let products =
            [rows, columns, depth, product.count].into_iter().try_fold(1_usize, usize::checked_mul);
        has_it && (self.always || products.is_none_or(|products| products >= least(product)))
    }

    /// Computes products on a stream in [one of the ways](super::Driver::product) that the library advises, if there is that; says whether it does.
    pub fn product(
        &self,
        (product, way): (&Product, usize),
        stream: sys::cudaStream_t,
        workspace: *mut c_void,
    ) -> Result<bool, DriverError> {
        let (Some(data_type), Some(epilogue)) = (data_type(product.dtype), epilogue(product)) else {
            return Ok(false);
        };
        let Product { added, bias, out, sums, .. } = *product;
        let beside = bias.or(sums);
        let addresses = [Some(product.rhs.start), Some(product.lhs.start), Some(out), beside, added];
        let key = Key {
            product: product.without_addresses(),
            alignments: addresses.map(|address| address.map_or(0, |address| alignment(address.0))),
            way,
        };
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        let plan = match plans.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                match self.plan(&key, data_type, epilogue, beside) {
                    Ok(plan) => new.insert(plan),
                    // Another time there may be memory for it.
                    Err(error) if error.is_out_of_memory => return Ok(false),
                    Err(error) => {
                        log::info!("such products run on kernels of Kiln's: {error}");
                        new.insert(None)
                    }
                }
            }
        };
        let Some(known) = plan else { return Ok(false) };
        if let Some(beside) = beside {
            let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            set(known.operation, attribute, &beside.0)?;
        }
        // The factors of the product and of what is added, in the plan's scale type.
        let factors = [1.0, if added.is_some() { 1.0 } else { 0.0 }];
        let singles = factors.map(|factor| factor as f32);
        let factors: [*const c_void; 2] = if product.dtype == DType::F64 {
            [(&raw const factors[0]).cast(), (&raw const factors[1]).cast()]
        } else {
            [(&raw const singles[0]).cast(), (&raw const singles[1]).cast()]
        };
        let pointer = |address: super::Address| address.0 as *mut c_void;
        let call = "cublasLtMatmul";
        // SAFETY: the plan's parts are valid, the matrices lie within memory that outlives the work, which ends before what is asked
        // for later on the stream, and so does the workspace, which only work on the stream uses.
        let done = unsafe {
            result::matmul(
                self.handle,
                known.operation,
                factors[0],
                factors[1],
                pointer(product.rhs.start),
                known.layouts[0],
                pointer(product.lhs.start),
                known.layouts[1],
                pointer(added.unwrap_or(out)),
                known.layouts[2],
                pointer(out),
                known.layouts[2],
                &raw const known.algorithm,
                workspace,
                WORKSPACE_BYTES,
                stream,
            )
        };
        match done {
            Ok(()) => Ok(true),
            Err(refused) if is_refusal(refused) => {
                log::info!("{call}: {:?}; such products run on kernels of Kiln's", refused.0);
                *plan = None;
                Ok(false)
            }
            Err(error) => Err(failed(call)(error)),
        }
    }

    /// How the library advises to compute products; nothing where it cannot. The library has one address of a vector `beside` the matrices: of the bias, which
    /// it reads, or of sums, which it writes.
    fn plan(
        &self,
        key: &Key,
        data_type: sys::cudaDataType,
        epilogue: sys::cublasLtEpilogue_t,
        beside: Option<super::Address>,
    ) -> Result<Option<Plan>, DriverError> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let Product { size: [rows, columns, depth], count, lhs, rhs, tf32, .. } = key.product;
        let (compute, scale) = match (tf32, data_type) {
            (_, sys::cudaDataType::CUDA_R_64F) => {
                (sys::cublasComputeType_t::CUBLAS_COMPUTE_64F, sys::cudaDataType::CUDA_R_64F)
            }
            (true, sys::cudaDataType::CUDA_R_32F) => {
                (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, sys::cudaDataType::CUDA_R_32F)
            }
            _ => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F),
        };
        let made = failed("cublasLtMatmulDescCreate");
        let operation = result::create_matmul_desc(compute, scale).map_err(made)?;
        // What lies row by row is the transpose that is wanted already.
        let turned = |transposed: bool| i32::from(transposed);
        let set_all = || {
            set(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &turned(rhs.transposed))?;
            set(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &turned(lhs.transposed))?;
            set(operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            match beside {
                // The library advises by where that is, too.
                Some(beside) => set(operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &beside.0),
                None => Ok(()),
            }
        };
        let layouts = [
            layout(data_type, &rhs, [depth, columns], count),
            layout(data_type, &lhs, [rows, depth], count),
            layout(
                data_type,
                &Matrices {
                    start: super::Address(0),
                    next: rows * columns,
                    transposed: false,
                    leading: columns,
                },
                [rows, columns],
                count,
            ),
        ];
        let [Ok(a), Ok(b), Ok(d)] = layouts else {
            for made in layouts.into_iter().flatten() {
                // SAFETY: it was just made.
                let _ = unsafe { result::destroy_matrix_layout(made) };
            }
            // SAFETY: it was just made.
            let _ = unsafe { result::destroy_matmul_desc(operation) };
            return Ok(None);
        };
        // From here on the plan gives all back.
        let algorithm = sys::cublasLtMatmulAlgo_t { data: [0; 8] };
        let mut plan = Plan { operation, layouts: [a, b, d], algorithm };
        set_all()?;
        Ok(self.algorithm(&plan, key).map(|algorithm| {
            plan.algorithm = algorithm;
            plan
        }))
    }

    /// The algorithm that the library advises, or advised at an earlier start.
    fn algorithm(&self, plan: &Plan, key: &Key) -> Option<sys::cublasLtMatmulAlgo_t> {
        let library = version();
        let name = format!("{key:?}");
        let kept = self.kept.as_ref().and_then(|cache| cache.find(&library, &self.device, &name));
        if let Some(algorithm) = kept.and_then(|bytes| self.checked(plan, &bytes)) {
            return Some(algorithm);
        }
        let advised = self.advised(plan, key)?;
        let bytes: Vec<u8> = advised.data.iter().flat_map(|word| word.to_le_bytes()).collect();
        if let Some(cache) = &self.kept
            && let Err(error) = cache.keep(&library, &self.device, &name, &bytes)
        {
            log::debug!("what cuBLASLt advised could not be kept for the next start ({cache:?}): {error}");
        }
        Some(advised)
    }

    /// An algorithm of its bytes ("can be trivially serialized", says the library's reference), where the library takes it for the product.
    fn checked(&self, plan: &Plan, bytes: &[u8]) -> Option<sys::cublasLtMatmulAlgo_t> {
        let mut algorithm = sys::cublasLtMatmulAlgo_t { data: [0; 8] };
        let (words, rest) = bytes.as_chunks::<8>();
        if words.len() != algorithm.data.len() || !rest.is_empty() {
            return None;
        }
        for (to, &word) in algorithm.data.iter_mut().zip(words) {
            *to = u64::from_le_bytes(word);
        }
        let mut result = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        let [a, b, d] = plan.layouts;
        // SAFETY: all are valid. Zeros are a result, whose status is success and whose workspace is empty, should the library write none.
        let (status, result) = unsafe {
            let into = result.as_mut_ptr();
            let operation = plan.operation;
            let status =
                sys::cublasLtMatmulAlgoCheck(self.handle, operation, a, b, d, d, &raw const algorithm, into);
            (status, result.assume_init())
        };
        let fits = status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
            && result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
            && result.workspaceSize <= WORKSPACE_BYTES;
        fits.then_some(algorithm)
    }

    /// The algorithm that the library advises: as many as there may be before it are those that it takes for faster.
    fn advised(&self, plan: &Plan, &Key { alignments, way, .. }: &Key) -> Option<sys::cublasLtMatmulAlgo_t> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = result::create_matmul_pref().ok()?;
        let [a, b, d, _, added] = alignments;
        let c = if added == 0 { d } else { added };
        let wanted = [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
        ];
        let [a, b, d] = plan.layouts;
        let mut results = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); WAYS];
        let (wanted_ways, mut found) = (way.min(WAYS - 1) + 1, 0);
        // SAFETY: all are valid, each attribute has the size that the library says, and there is room for as many results as are wanted. Zeros are
        // a result, should the library write fewer than it says.
        unsafe {
            let workspace = WORKSPACE_BYTES as u64;
            let mut set = result::set_matmul_pref_attribute(
                preference,
                Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of::<u64>(),
            );
            for (attribute, bytes) in wanted {
                let pointer = (&raw const bytes).cast();
                set = set.and(result::set_matmul_pref_attribute(
                    preference,
                    attribute,
                    pointer,
                    size_of::<u32>(),
                ));
            }
            let advised = set.and_then(|()| {
                let (operation, into) = (plan.operation, results.as_mut_ptr().cast());
                let wanted = wanted_ways as c_int;
                let found = &raw mut found;
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    operation,
                    a,
                    b,
                    d,
                    d,
                    preference,
                    wanted,
                    into,
                    found,
                )
                .result()
            });
            let _ = result::destroy_matmul_pref(preference);
            advised.ok()?;
            let found = usize::try_from(found).unwrap_or(0);
            let advised = results.get(way).filter(|_| way < found)?.assume_init();
            (advised.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).then_some(advised.algo)
        }
    }
}

fn set<T>(
    operation: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), DriverError> {
    // SAFETY: the operation is valid, and the attribute has the value's size.
    unsafe {
        result::set_matmul_desc_attribute(operation, attribute, (&raw const *value).cast(), size_of::<T>())
    }
    .map_err(failed("cublasLtMatmulDescSetAttribute"))
}

/// Of matrices of so many rows and columns, as the library sees them.
fn layout(
    data_type: sys::cudaDataType,
    matrices: &Matrices,
    [rows, columns]: [usize; 2],
    count: usize,
) -> Result<sys::cublasLtMatrixLayout_t, result::CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    // Column by column, what lies row by row has its rows and columns exchanged.
    let [rows, columns] = if matrices.transposed { [rows, columns] } else { [columns, rows] };
    let layout =
        result::create_matrix_layout(data_type, rows as u64, columns as u64, matrices.leading as i64)?;
    if count > 1 {
        let (count, next) = (i32::try_from(count).unwrap_or(i32::MAX), matrices.next as i64);
        // SAFETY: the layout is valid, and both attributes have the sizes that the library says.
        let set = unsafe {
            result::set_matrix_layout_attribute(
                layout,
                Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                (&raw const count).cast(),
                size_of::<i32>(),
            )
            .and(result::set_matrix_layout_attribute(
                layout,
                Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                (&raw const next).cast(),
                size_of::<i64>(),
            ))
        };
        if let Err(error) = set {
            // SAFETY: it was just made.
            let _ = unsafe { result::destroy_matrix_layout(layout) };
            return Err(error);
        }
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::super::Address;
    use super::*;

    #[test]
    fn vectors_begin_at_sixteen_bytes() {
        let matrices = Matrices { start: Address(514), next: 0, transposed: false, leading: 64 };
        let product = |bias: Option<u64>, sums: Option<u64>| Product {
            dtype: DType::BF16,
            tf32: false,
            size: [64; 3],
            count: 1,
            lhs: matrices,
            rhs: matrices,
            bias: bias.map(Address),
            added: None,
            activation: None,
            out: Address(1024),
            sums: sums.map(Address),
        };
        let of = |bias, sums| has_aligned_vectors(&product(bias, sums));
        assert!(of(None, None) && of(Some(528), None) && of(None, Some(512)));
        assert!(!of(Some(514), None) && !of(Some(520), None) && !of(None, Some(516)));
    }

    #[test]
    fn one_row_is_the_librarys_only_where_it_is_huge() {
        let matrices =
            |transposed: bool, leading: usize| Matrices { start: Address(512), next: 0, transposed, leading };
        let of = |size: [usize; 3], dtype: DType, transposed: bool| {
            let [_, columns, depth] = size;
            Product {
                dtype,
                tf32: false,
                size,
                count: 1,
                lhs: matrices(false, depth),
                rhs: matrices(transposed, if transposed { depth } else { columns }),
                bias: None,
                added: None,
                activation: None,
                out: Address(1024),
                sums: None,
            }
        };
        for (product, expected) in [
            (of([1, 2048, 8192], DType::BF16, false), LEAST_OF_ROWS),
            (of([1, 50257, 768], DType::F32, true), LEAST_OF_ROWS),
            // What begins within a run is read element by element.
            (of([1, 50257, 768], DType::BF16, false), LEAST_OF_TENSOR_CORES),
            (of([8192, 1, 2048], DType::F32, false), LEAST_OF_ROWS),
            (of([2, 2048, 8192], DType::F32, false), LEAST_PRODUCTS),
            (Product { tf32: true, ..of([1, 768, 768], DType::F32, false) }, LEAST_OF_ROWS),
        ] {
            assert_eq!(least(&product), expected, "{product:?}");
        }
    }
}
