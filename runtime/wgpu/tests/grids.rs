//! Results of more blocks than a grid has workgroups along an axis: 65,535 on most devices, and here [`GRID`], so that a launch of more is an error.

use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{
    Activation, ArgReduceOp, AttentionOptions, ConvOptions, ConvTransposeOptions, CumulativeOp, PoolOp,
    PoolOptions, ReduceOp, TensorData,
};

type Wgpu = kiln_wgpu::Wgpu;

const GRID: usize = 1024;
/// One for each workgroup, and some more.
const MANY: usize = GRID + 77;

/// Whole numbers below 7, which all backends add up exactly.
fn numbers<B: Backend>(shape: &[usize], seed: usize) -> B::Primitive {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 7) as f32 - 3.0).collect();
    B::from_data(TensorData::new(values, shape), &B::Device::default())
}

fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f32> {
    let data = B::into_data(tensor).expect("a device");
    data.convert::<f32>().to_vec().expect("floats")
}

/// The same on the GPU as on the CPU.
macro_rules! alike {
    ($what:expr, $tolerance:expr, $B:ident => $result:expr) => {{
        fn of<$B: Backend>() -> Vec<f32> {
            floats::<$B>($result)
        }
        let (own, cpu) = (of::<Wgpu>(), of::<NdArray>());
        assert_eq!(own.len(), cpu.len(), "{}", $what);
        let differs = |(a, b): (&f32, &f32)| (a - b).abs() > $tolerance;
        if let Some(n) = own.iter().zip(&cpu).position(differs) {
            panic!("{}: {}, not {}, at {n}", $what, own[n], cpu[n]);
        }
    }};
}

fn windows(padding: usize, groups: usize) -> ConvOptions {
    ConvOptions::new([1, 1], [padding, padding], [1, 1], groups)
}

fn many_images() {
    alike!("1 channel", 0.0, B => {
        B::conv(numbers::<B>(&[MANY, 1, 1, 1], 1), numbers::<B>(&[1, 1, 3, 3], 2), None, &windows(1, 1))
    });
    alike!("8 channels and what follows", 0.0, B => {
        let bias = Some(numbers::<B>(&[8], 3));
        let y = B::conv_activated(
            numbers::<B>(&[MANY, 2, 1, 1], 1), numbers::<B>(&[8, 2, 3, 3], 2), bias, Activation::Relu, &windows(1, 1),
        );
        B::binary(kiln_tensor::BinaryOp::Add, y, numbers::<B>(&[1, 8, 1, 1], 4))
    });
    alike!("single elements of 2 by 1", 0.0, B => {
        B::conv(numbers::<B>(&[MANY, 3, 2, 1], 1), numbers::<B>(&[2, 3, 1, 1], 2), None, &windows(0, 1))
    });
    alike!("weights of many groups", 0.0, B => {
        let (x, gradient) = (numbers::<B>(&[2, MANY, 2], 1), numbers::<B>(&[2, 4 * MANY, 2], 2));
        let options = ConvOptions::new([1], [0], [1], MANY);
        B::conv_weight_gradient(x, gradient, &[4 * MANY, 1, 1].into(), &options)
    });
    alike!("transposed", 0.0, B => {
        let options = ConvTransposeOptions::new([1, 1], [0, 0], [0, 0], [1, 1], 1);
        B::conv_transpose(numbers::<B>(&[MANY, 1, 1, 1], 1), numbers::<B>(&[1, 1, 2, 1], 2), None, &options)
    });
    alike!("pooled", 0.0, B => {
        let options = PoolOptions::new([2, 1], [1, 1], [0, 0], [1, 1], false);
        B::pool(PoolOp::Max, numbers::<B>(&[MANY, 1, 2, 1], 1), &options)
    });
}

fn many_groups_of_channels() {
    alike!("one channel each", 0.0, B => {
        let weight = numbers::<B>(&[MANY, 1, 3, 1], 2);
        B::conv(numbers::<B>(&[1, MANY, 1, 1], 1), weight, None, &windows(1, MANY))
    });
    alike!("channels of one group, an odd number of them", 0.0, B => {
        B::conv(numbers::<B>(&[1, 1, 2, 1], 1), numbers::<B>(&[MANY, 1, 2, 1], 2), None, &windows(0, 1))
    });
}

fn large_images() {
    alike!("a tall image", 0.0, B => {
        let options = ConvOptions::new([1, 1], [1, 0], [1, 1], 1);
        B::conv(numbers::<B>(&[1, 1, 8 * MANY, 1], 1), numbers::<B>(&[1, 1, 3, 1], 2), None, &options)
    });
    alike!("single elements of a large image", 0.0, B => {
        B::conv(numbers::<B>(&[1, 1, 64, MANY], 1), numbers::<B>(&[1, 1, 1, 1], 2), None, &windows(0, 1))
    });
}

fn wide_products() {
    // One element of a row at a time, in blocks of few columns.
    alike!("8 columns for each workgroup", 0.0, B => {
        B::matmul(numbers::<B>(&[2, 2], 1), numbers::<B>(&[2, 8 * MANY], 2))
    });
    alike!("64 columns for each workgroup", 0.0, B => {
        B::matmul(numbers::<B>(&[1, 1], 1), numbers::<B>(&[1, 64 * MANY + 1], 2))
    });
}

fn deep_and_tall_products() {
    alike!("many products", 0.0, B => {
        B::matmul(numbers::<B>(&[MANY, 2, 2], 1), numbers::<B>(&[MANY, 2, 1], 2))
    });
    alike!("8 rows for each workgroup", 0.0, B => {
        B::matmul(numbers::<B>(&[8 * MANY, 1], 1), numbers::<B>(&[1, 2], 2))
    });
}

fn attention_of_many() {
    alike!("many heads", 1e-5, B => {
        let rows = |seed| numbers::<B>(&[MANY, 2, 2, 1], seed);
        B::attention(rows(1), rows(2), rows(3), None, &AttentionOptions::default())
    });
    alike!("8 queries for each workgroup", 1e-5, B => {
        let rows = |count: usize, seed| numbers::<B>(&[1, 1, count, 1], seed);
        B::attention(rows(8 * MANY, 1), rows(2, 2), rows(2, 3), None, &AttentionOptions::default())
    });
}

fn many_rows() {
    alike!("softmax", 1e-6, B => B::softmax(numbers::<B>(&[MANY, 3], 1), 1));
    alike!("layer norm", 1e-4, B => {
        B::layer_norm(numbers::<B>(&[MANY, 3], 1), numbers::<B>(&[3], 2), None, 1e-5)
    });
    alike!("sums", 0.0, B => B::reduce(ReduceOp::Sum, numbers::<B>(&[MANY, 300], 1), &[1]));
    alike!("running sums", 0.0, B => {
        B::cumulative(CumulativeOp::Sum, numbers::<B>(&[MANY, 3], 1), 1, false, false)
    });
    alike!("positions", 0.0, B => {
        B::arg_reduce(ArgReduceOp::Max, numbers::<B>(&[MANY, 3], 1), 1, false)
    });
    alike!("sorted", 0.0, B => B::sort(numbers::<B>(&[MANY, 3], 1), 1, false).1);
}

/// More elements than workgroups of one axis have invocations: the line of workgroups goes on in the next row of the grid. The grid is the device's own.
#[test]
fn many_elements() {
    const ELEMENTS: usize = 65_535 * 256 + 7;
    alike!("elements", 0.0, B => {
        let x = B::expand(numbers::<B>(&[1, 7], 1), [ELEMENTS / 7 + 1, 7].into());
        let x = B::unary(kiln_tensor::UnaryOp::Neg, x);
        let last = SliceRange { start: ELEMENTS / 7 - 20, end: ELEMENTS / 7 + 1, step: 1 };
        B::slice(x, &[last, SliceRange::full(7)])
    });
}

/// The functions above, in processes of their own: with the kernels of this driver, which computes on the CPU, and with those of GPUs.
#[test]
fn small_grids() {
    const LIMIT: &str = "KILN_WGPU_GRID";
    if std::env::var_os(LIMIT).is_some() {
        many_images();
        many_groups_of_channels();
        large_images();
        wide_products();
        deep_and_tall_products();
        attention_of_many();
        many_rows();
        return;
    }
    let this = std::env::current_exe().expect("the test's own path");
    for shared_memory in ["0", "1"] {
        let mut command = std::process::Command::new(&this);
        command.args(["--exact", "small_grids"]);
        command.env(LIMIT, GRID.to_string()).env("KILN_WGPU_SHARED_MEMORY", shared_memory);
        let run = command.output().expect("a process");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{said}");
        assert!(said.contains("small_grids ... ok"), "{said}");
    }
}
