//! Users' own kernels: their order among operations, what they see, and their errors.

use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{BinaryOp, DType, Scalar, Shape, TensorData};
use kiln_wgpu::{KernelError, LaunchProblem, TensorProblem, WgpuDevice, WgpuTensor, WgslKernel};

type Wgpu = kiln_wgpu::Wgpu;

/// `y = factor · x + offset`, in workgroups of `WIDTH`.
const AFFINE: &str = "
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    struct Parameters { factor: f32, offset: i32, first: u32 }
    @group(1) @binding(0) var<uniform> parameters: Parameters;
    override WIDTH: u32 = 64;

    @compute @workgroup_size(WIDTH)
    fn affine(@builtin(global_invocation_id) at: vec3<u32>) {
        let i = at.x + parameters.first;
        if i < arrayLength(&y) {
            y[i] = parameters.factor * x[i] + f32(parameters.offset);
        }
    }
";

fn kernel() -> WgslKernel {
    WgslKernel::new("affine", AFFINE, "affine")
}

fn device() -> WgpuDevice {
    WgpuDevice::default()
}

fn tensor(values: &[f32]) -> WgpuTensor {
    Wgpu::from_data(TensorData::new(values.to_vec(), [values.len()]), &device())
}

fn floats(tensor: WgpuTensor) -> Vec<f32> {
    Wgpu::into_data(tensor).expect("a device").to_vec().expect("floats")
}

fn affine(kernel: &WgslKernel, x: WgpuTensor, factor: f32, offset: i32) -> Result<WgpuTensor, KernelError> {
    let x = x.into_contiguous();
    let mut y = WgpuTensor::empty(x.shape(), DType::F32, x.device());
    let groups = x.shape().num_elements().div_ceil(64) as u32;
    kernel
        .launch()
        .input(&x)
        .output(&mut y)
        .parameter(factor)
        .parameter(offset)
        .parameter(0_u32)
        .run([groups, 1, 1])?;
    Ok(y)
}

fn problem(result: Result<impl Sized, KernelError>) -> LaunchProblem {
    match result.err().expect("it should be refused") {
        KernelError::Launch { kernel, problem } => {
            assert_eq!(kernel, "affine");
            problem
        }
        error => panic!("{error}"),
    }
}

#[test]
fn kernels_run_among_operations() {
    let x = tensor(&(0..1000).map(|n| n as f32).collect::<Vec<_>>());
    let doubled = Wgpu::binary_scalar(BinaryOp::Mul, x, Scalar::Float(2.0));
    let y = affine(&kernel(), doubled, 0.5, -3).expect("a kernel");
    let y = Wgpu::binary_scalar(BinaryOp::Add, y, Scalar::Float(1.0));
    let z = affine(&kernel(), y, 10.0, 0).expect("a kernel");
    let expected: Vec<f32> = (0..1000).map(|n| (n as f32 - 2.0) * 10.0).collect();
    assert_eq!(floats(z), expected);
}

#[test]
fn views_are_made_contiguous() {
    let data = TensorData::new((0..600).map(|n| n as f32).collect::<Vec<_>>(), [20, 30]);
    let x = Wgpu::from_data(data, &device());
    let turned = affine(&kernel(), Wgpu::permute(x.clone(), &[1, 0]), 1.0, 1).expect("a kernel");
    assert_eq!(turned.shape().dims, [30, 20]);
    assert_eq!(floats(turned)[..3], [1.0, 31.0, 61.0]);
    // Row 1 starts where no binding may start, row 32 of 64 columns where one may.
    let rows = |x: WgpuTensor, rows: core::ops::Range<usize>| {
        let columns = x.shape().dims[1];
        let range = |start, end| SliceRange { start, end, step: 1 };
        Wgpu::slice(x, &[range(rows.start, rows.end), range(0, columns)])
    };
    assert_eq!(floats(affine(&kernel(), rows(x, 1..2), 2.0, 0).expect("a kernel"))[..2], [60.0, 62.0]);
    let wide = Wgpu::from_data(
        TensorData::new((0..4096).map(|n| n as f32).collect::<Vec<_>>(), [64, 64]),
        &device(),
    );
    let lower = rows(wide, 32..40).into_contiguous();
    let y = floats(affine(&kernel(), lower, 1.0, 0).expect("a kernel"));
    assert_eq!((y.len(), y[0], y[511]), (512, 2048.0, 2559.0));
}

#[test]
fn an_array_has_its_tensors_length() {
    // The buffer from the pool is larger: it was another tensor's.
    drop(tensor(&[7.0; 100]));
    let mut y = tensor(&[7.0; 65]);
    let x = tensor(&[1.0; 65]);
    let length = WgslKernel::new(
        "length",
        "@group(0) @binding(0) var<storage, read> x: array<f32>;
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(1) fn main() { y[0] = f32(arrayLength(&x)); y[1] = f32(arrayLength(&y)); }",
        "main",
    );
    length.launch().input(&x).output(&mut y).run([1, 1, 1]).expect("a kernel");
    assert_eq!(floats(y)[..3], [65.0, 65.0, 7.0]);
}

#[test]
fn no_array_is_empty_or_ends_within_a_word() {
    let length = WgslKernel::new(
        "length",
        "@group(0) @binding(0) var<storage, read> x: array<vec2<u32>>;
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(1) fn main() { y[0] = f32(arrayLength(&x)); y[1] = f32(arrayLength(&y)); }",
        "main",
    );
    let run = |x: &WgpuTensor| {
        let mut y = tensor(&[7.0; 3]);
        length.launch().input(x).output(&mut y).run([1, 1, 1]).expect("a kernel");
        floats(y)
    };
    let empty = |dtype| WgpuTensor::empty(Shape::from([3, 0]), dtype, &device());
    assert_eq!(run(&empty(DType::I64)), [2.0, 3.0, 7.0]);
    assert_eq!(run(&empty(DType::F32)), [2.0, 3.0, 7.0]);
    // The end of another tensor, as far as kernels may see it.
    let range = |start, end| SliceRange { start, end, step: 1 };
    let end = Wgpu::slice(
        Wgpu::full(Shape::from([256]), Scalar::Int(1), DType::I64, &device()),
        &[range(256, 256)],
    );
    assert_eq!(run(&end.into_contiguous()), [2.0, 3.0, 7.0]);
    if Wgpu::supports(&device(), DType::F16) {
        assert_eq!(run(&WgpuTensor::empty(Shape::from([15]), DType::F16, &device())), [4.0, 3.0, 7.0]);
    }
}

#[test]
fn tensors_too_small_for_their_bindings_are_refused_and_nothing_else_is_lost() {
    let fours = WgslKernel::new(
        "fours",
        "@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
         @group(0) @binding(1) var<storage, read_write> y: array<f32, 2>;
         @compute @workgroup_size(1) fn main() { y[0] = x[0].w; y[1] = f32(arrayLength(&x)); }",
        "main",
    );
    let run = |inputs: usize, outputs: usize| {
        let mut y = tensor(&vec![0.0; outputs]);
        fours.launch().input(&tensor(&vec![3.0; inputs])).output(&mut y).run([1, 1, 1]).map(|()| y)
    };
    // What is recorded with them.
    let before = Wgpu::binary_scalar(BinaryOp::Add, tensor(&[1.0, 2.0]), Scalar::Float(1.0));
    let first = run(8, 2).expect("two of four");
    for _ in 0..2 {
        let message = run(3, 2).expect_err("less than one of four").to_string();
        assert!(message.starts_with("kernel `fours`: its tensors do not do for its bindings: "), "{message}");
        assert!(message.contains("binding index 0") && message.contains("size 12"), "{message}");
    }
    let message = run(1000, 1).expect_err("one of two").to_string();
    assert!(message.contains("binding index 1") && message.contains("size 4"), "{message}");
    let last = run(4, 3).expect("one of four");
    Wgpu::sync(&device()).expect("nothing went wrong");
    assert_eq!(floats(before), [2.0, 3.0]);
    assert_eq!(floats(first), [3.0, 2.0]);
    assert_eq!(floats(last), [3.0, 1.0, 0.0]);
}

#[test]
fn an_output_is_read_and_written_in_place() {
    let mut y = tensor(&[1.0, 2.0, 3.0]);
    let square = WgslKernel::new(
        "square",
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(4)
         fn main(@builtin(global_invocation_id) at: vec3<u32>) {
             if at.x < arrayLength(&y) { y[at.x] *= y[at.x]; }
         }",
        "main",
    );
    square.launch().output(&mut y).run([1, 1, 1]).expect("a kernel");
    assert_eq!(floats(y), [1.0, 4.0, 9.0]);
}

#[test]
fn constants_are_part_of_a_kernel() {
    // One workgroup reaches as many elements as it is wide.
    for width in [1, 4, 32] {
        let (x, mut y) = (tensor(&[1.0; 40]), tensor(&[0.0; 40]));
        let kernel = kernel().constant("WIDTH", f64::from(width));
        let launch = kernel.launch().input(&x).output(&mut y);
        launch.parameter(1.0_f32).parameter(0).parameter(3_u32).run([1, 1, 1]).expect("a kernel");
        assert_eq!(floats(y).iter().sum::<f32>(), width as f32);
    }
    let unknown = affine(&kernel().constant("HEIGHT", 1.0), tensor(&[1.0]), 1.0, 0);
    let message = unknown.expect_err("there is no such constant").to_string();
    assert!(message.starts_with("kernel `affine`: ") && message.contains("HEIGHT"), "{message}");
}

#[test]
fn texts_that_do_not_compile_are_errors_with_their_place() {
    let x = tensor(&[1.0]);
    let run = |wgsl: String, entry_point: &'static str| {
        let mut y = WgpuTensor::empty(Shape::from([1]), DType::F32, &device());
        let kernel = WgslKernel::new("broken", wgsl, entry_point);
        let result = kernel.launch().input(&x).output(&mut y).run([1, 1, 1]);
        match result.expect_err("it should not compile") {
            KernelError::Compile { kernel, reason } => {
                assert_eq!(kernel, "broken");
                reason
            }
            error => panic!("{error}"),
        }
    };
    let unknown = run(AFFINE.replace("f32(parameters.offset)", "shift"), "affine");
    assert!(unknown.contains("no definition in scope for identifier: `shift`"), "{unknown}");
    assert!(unknown.contains("wgsl:12:"), "the place in the text is missing: {unknown}");
    let types = run(AFFINE.replace("f32(parameters.offset)", "parameters.offset"), "affine");
    assert!(types.contains("affine"), "{types}");
    let entry = run(AFFINE.to_owned(), "main");
    assert!(entry.contains("main"), "{entry}");
    // What is given as an input cannot be written to.
    let written = run(AFFINE.replace("storage, read>", "storage, read_write>"), "affine");
    assert!(written.contains("binding 0") || written.contains("binding: 0"), "{written}");
    // The device is as it was.
    Wgpu::sync(&device()).expect("a device");
    assert_eq!(floats(affine(&kernel(), x, 2.0, 0).expect("a kernel")), [2.0]);
}

#[test]
fn launches_that_cannot_be_are_refused() {
    let kernel = kernel();
    let x = tensor(&[1.0; 4]);
    assert_eq!(problem(kernel.launch().input(&x).run([1, 1, 1])), LaunchProblem::NoOutput);

    let mut y = tensor(&[0.0; 4]);
    let grid = problem(kernel.launch().output(&mut y).run([1, 70_000, 1]));
    assert!(matches!(grid, LaunchProblem::TooManyGroups { groups: [1, 70_000, 1], .. }), "{grid}");

    let mut many = kernel.launch().output(&mut y);
    for _ in 0..1000 {
        many = many.input(&x);
    }
    assert!(matches!(problem(many.run([1, 1, 1])), LaunchProblem::TooManyTensors { tensors: 1001, .. }));

    let mut long = kernel.launch().output(&mut y);
    for n in 0..1025_u32 {
        long = long.parameter(n);
    }
    let long = problem(long.run([1, 1, 1]));
    assert_eq!(long.to_string(), "it has 1025 values of 4 bytes, and 4096 bytes are the most");

    let refused = |binding, problem| LaunchProblem::Tensor { binding, problem };
    let view = Wgpu::expand(tensor(&[1.0]), Shape::from([4]));
    let seen = problem(kernel.launch().input(&view).output(&mut y).run([1, 1, 1]));
    assert_eq!(seen, refused(0, TensorProblem::NotContiguous));

    let shared = y.clone();
    let written = problem(kernel.launch().input(&x).output(&mut y).run([1, 1, 1]));
    assert_eq!(written, refused(1, TensorProblem::Shared));
    drop(shared);
    kernel
        .launch()
        .input(&x)
        .output(&mut y)
        .parameter(1.0_f32)
        .parameter(0)
        .parameter(0_u32)
        .run([1, 1, 1])
        .expect("nobody shares it now");
    assert_eq!(floats(y), [1.0; 4]);
}
