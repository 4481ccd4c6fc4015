//! Products, convolutions and attention of sizes that no block of a kernel divides, beside the CPU's. Numbers are small and whole, so that
//! sums are exact in any order.

use kiln_gpu::kernels::access::Access;
use kiln_gpu::kernels::matmul::Matmul;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_gpu::runtime::{Launch, Runtime, Subgroups};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{Activation, AttentionOptions, ConvOptions, DType, TensorData};
use kiln_wgpu::{WgpuDevice, WgpuRuntime, WgpuTensor};

type Wgpu = kiln_wgpu::Wgpu;
type Cpu = NdArray;

/// Whole numbers from -4 to 4 that repeat after a prime.
fn numbers(shape: &[usize], seed: usize) -> TensorData {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    TensorData::new(values, shape)
}

fn on<B: Backend>(data: &TensorData) -> B::Primitive {
    B::from_data(data.clone(), &B::Device::default())
}

fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f32> {
    B::into_data(tensor).expect("a device").to_vec().expect("floats")
}

#[track_caller]
fn same(what: &str, own: <Wgpu as Backend>::Primitive, cpu: <Cpu as Backend>::Primitive, tolerance: f32) {
    let (own, cpu) = (floats::<Wgpu>(own), floats::<Cpu>(cpu));
    assert_eq!(own.len(), cpu.len(), "{what}");
    for (n, (a, b)) in own.iter().zip(&cpu).enumerate() {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{what}: {a}, not {b}, at {n}");
    }
}

/// The product with a batch, of which the right side is one for all.
fn product<B: Backend>(a: &TensorData, b: &TensorData, transposed: bool) -> B::Primitive {
    let (a, b) = (on::<B>(a), on::<B>(b));
    let dims = [b.dims()[0], b.dims()[1]];
    // The right side as a view of its transpose, row by row of which its columns lie.
    let b = match transposed {
        true => B::permute(B::reshape(b, [dims[1], dims[0]].into()), &[1, 0]),
        false => b,
    };
    B::matmul(a, B::expand(B::reshape(b, [1, dims[0], dims[1]].into()), [2, dims[0], dims[1]].into()))
}

#[test]
fn products_of_any_size() {
    for rows in [1, 2, 7, 65] {
        for columns in [1, 4, 33, 68, 100] {
            for depth in [1, 6, 64] {
                let (a, b) = (numbers(&[2, rows, depth], 1), numbers(&[depth, columns], 2));
                for transposed in [false, true] {
                    let what = format!("{rows}×{depth} by {depth}×{columns}, transposed: {transposed}");
                    same(&what, product::<Wgpu>(&a, &b, transposed), product::<Cpu>(&a, &b, transposed), 0.0);
                }
            }
        }
    }
}

/// `a · b` by the kernel that devices choose by timing it alone.
fn product_by_quads(a: &WgpuTensor, b: &WgpuTensor, each: [u32; 2]) -> WgpuTensor {
    let (device, tiling) = (WgpuDevice::default(), Tiling::Quads(each));
    let [rows, depth, columns] = [a.dims()[0], a.dims()[1], b.dims()[1]].map(|size| size as u32);
    let out = WgpuTensor::empty([rows as usize, columns as usize].into(), DType::F32, &device);
    let batch = (Access::Single, Access::Single, 0);
    let template = Matmul {
        dtype: DType::F32,
        batch,
        tiling,
        in_parts: false,
        groups: None,
        bias: false,
        activation: None,
        epilogues: Vec::new(),
    };
    let (block, starts, strides) = ([0, 0, 0], [0, 0], [depth, 1, columns, 1]);
    let parameters = [block.as_slice(), &[rows, columns, depth], &starts, &strides].concat();
    let memories = [a, b, &out].map(|tensor| tensor.memory().expect("a tensor that lies row-major"));
    let [high, wide] = each.map(|each| 16 * each);
    let launch = Launch {
        template: template.into(),
        buffers: &memories.each_ref(),
        parameters: &parameters,
        groups: [columns.div_ceil(wide), rows.div_ceil(high), 1],
        moved: 0,
        writes_all_of: None,
    };
    WgpuRuntime::launch(&device, launch);
    out
}

#[test]
fn products_whose_left_side_goes_from_lane_to_lane() {
    if WgpuRuntime::limits(&WgpuDevice::default()).subgroups == Subgroups::None {
        return;
    }
    for each in [[2, 2], [4, 2]] {
        for [rows, columns, depth] in [[65, 33, 70], [7, 100, 5], [130, 68, 16]] {
            let (a, b) = (numbers(&[rows, depth], 1), numbers(&[depth, columns], 2));
            let own = product_by_quads(&on::<Wgpu>(&a), &on::<Wgpu>(&b), each);
            let what = format!("{rows}×{depth} by {depth}×{columns}, {each:?} each");
            same(&what, own, Cpu::matmul(on::<Cpu>(&a), on::<Cpu>(&b)), 0.0);
        }
    }
}

#[test]
fn vectors_with_matrices() {
    fn product<B: Backend>(rows: usize, columns: usize, transposed: bool) -> B::Primitive {
        let depth = 77;
        let weight = match transposed {
            true => B::permute(on::<B>(&numbers(&[columns, depth], 2)), &[1, 0]),
            false => on::<B>(&numbers(&[depth, columns], 2)),
        };
        let bias = on::<B>(&numbers(&[columns], 3));
        B::linear(on::<B>(&numbers(&[rows, depth], 1)), &weight, Some(&bias), Some(Activation::Relu))
    }
    // And a matrix with a vector, of a batch.
    fn turned<B: Backend>(rows: usize) -> B::Primitive {
        B::matmul(on::<B>(&numbers(&[3, rows, 50], 1)), on::<B>(&numbers(&[3, 50, 1], 2)))
    }
    for rows in [1, 2, 3, 4] {
        for columns in [1, 7, 32, 45] {
            for transposed in [false, true] {
                let what = format!("{rows} rows, {columns} columns, transposed: {transposed}");
                let own = product::<Wgpu>(rows, columns, transposed);
                same(&what, own, product::<Cpu>(rows, columns, transposed), 0.0);
            }
        }
    }
    for rows in [2, 40, 130] {
        same(&format!("{rows} rows with a vector"), turned::<Wgpu>(rows), turned::<Cpu>(rows), 0.0);
    }
}

#[test]
fn products_of_views() {
    fn product<B: Backend>() -> B::Primitive {
        let a = on::<B>(&numbers(&[10, 13], 3));
        let b = on::<B>(&numbers(&[13, 12], 4));
        let full = SliceRange::full;
        let a = B::slice(a, &[full(10), SliceRange { start: 1, end: 9, step: 1 }]);
        let b = B::slice(
            b,
            &[SliceRange { start: 4, end: 12, step: -1 }, SliceRange { start: 3, end: 11, step: 1 }],
        );
        let bias = B::slice(on::<B>(&numbers(&[11], 5)), &[SliceRange { start: 2, end: 10, step: 1 }]);
        B::linear(a, &b, Some(&bias), Some(Activation::Relu))
    }
    same("views", product::<Wgpu>(), product::<Cpu>(), 0.0);
}

/// Channels in and out, groups, image, window, stride, padding, dilation.
type Case = (usize, usize, usize, [usize; 2], [usize; 2], [usize; 2], [usize; 2], [usize; 2]);

#[test]
fn convolutions_of_any_size() {
    let cases: [Case; 12] = [
        (3, 8, 1, [9, 30], [3, 3], [1, 1], [1, 1], [1, 1]),
        (4, 12, 1, [11, 15], [7, 7], [2, 2], [3, 3], [1, 1]),
        (6, 6, 6, [10, 17], [5, 5], [1, 2], [2, 2], [1, 1]),
        (4, 6, 2, [8, 9], [3, 2], [2, 1], [0, 1], [1, 2]),
        (3, 16, 1, [32, 32], [16, 16], [16, 16], [0, 0], [1, 1]),
        (2, 4, 1, [3, 40], [1, 11], [1, 1], [0, 5], [1, 1]),
        (5, 9, 1, [7, 7], [1, 1], [1, 1], [0, 0], [1, 1]),
        (8, 24, 1, [1, 1], [1, 1], [1, 1], [0, 0], [1, 1]),
        (8, 8, 4, [5, 6], [1, 1], [1, 1], [0, 0], [1, 1]),
        (8, 16, 1, [6, 6], [1, 1], [2, 2], [0, 0], [1, 1]),
        (2, 1, 1, [5, 5], [3, 3], [1, 1], [1, 1], [1, 1]),
        (4, 8, 1, [1, 1], [3, 3], [1, 1], [1, 1], [1, 1]),
    ];
    for case in cases {
        let (from, to, groups, image, window, stride, padding, dilation) = case;
        let options = ConvOptions::new(stride, padding, dilation, groups);
        let x = numbers(&[2, from, image[0], image[1]], 1);
        let weight = numbers(&[to, from / groups, window[0], window[1]], 2);
        let bias = numbers(&[to], 3);
        fn conv<B: Backend>(data: [&TensorData; 3], options: &ConvOptions) -> B::Primitive {
            let [x, weight, bias] = data.map(on::<B>);
            B::conv_activated(x, weight, Some(bias), Activation::Relu, options)
        }
        let data = [&x, &weight, &bias];
        same(&format!("{case:?}"), conv::<Wgpu>(data, &options), conv::<Cpu>(data, &options), 1e-6);
    }
}

#[test]
fn weights_that_change_are_packed_anew() {
    fn outputs<B: Backend>() -> Vec<f32> {
        let x = on::<B>(&numbers(&[1, 4, 6, 6], 1));
        let mut weight = on::<B>(&numbers(&[8, 4, 3, 3], 2));
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let mut all = floats::<B>(B::conv(x.clone(), weight.clone(), None, &options));
        let part = [
            SliceRange { start: 2, end: 3, step: 1 },
            SliceRange::full(4),
            SliceRange::full(3),
            SliceRange::full(3),
        ];
        weight = B::slice_assign(weight, &part, on::<B>(&numbers(&[1, 4, 3, 3], 7)));
        all.extend(floats::<B>(B::conv(x.clone(), weight.clone(), None, &options)));
        // The same memory seen as another convolution's weights.
        let weight = B::reshape(weight, [4, 8, 3, 3].into());
        let x = B::reshape(x, [1, 8, 3, 6].into());
        all.extend(floats::<B>(B::conv(x, weight, None, &options)));
        all
    }
    assert_eq!(outputs::<Wgpu>(), outputs::<Cpu>());
}

#[test]
fn attention_of_any_size() {
    for (queries, keys, size, value_size) in
        [(33, 17, 20, 12), (1, 40, 64, 64), (9, 9, 5, 3), (20, 20, 130, 8)]
    {
        for is_causal in [false, true] {
            fn attention<B: Backend>(sizes: [usize; 4], options: &AttentionOptions) -> B::Primitive {
                let [queries, keys, size, value_size] = sizes;
                // Heads are views of rows that hold all of them, as projections yield them.
                let heads = |rows: usize, heads: usize, size: usize, seed| {
                    let rows = on::<B>(&numbers(&[2, rows, heads, size], seed));
                    B::permute(rows, &[0, 2, 1, 3])
                };
                let (q, k) = (heads(queries, 4, size, 1), heads(keys, 2, size, 2));
                B::attention(q, k, heads(keys, 2, value_size, 3), None, options)
            }
            let sizes = [queries, keys, size, value_size];
            let options = AttentionOptions { is_causal, scale: Some(0.05), ..AttentionOptions::default() };
            let what = format!("{sizes:?}, causal: {is_causal}");
            same(&what, attention::<Wgpu>(sizes, &options), attention::<Cpu>(sizes, &options), 1e-5);
        }
    }
}

#[test]
fn more_rows_than_a_grid_has() {
    fn product<B: Backend>() -> B::Primitive {
        B::linear(on::<B>(&numbers(&[530_000, 2], 1)), &on::<B>(&numbers(&[2, 3], 2)), None, None)
    }
    same("530,000 rows", product::<Wgpu>(), product::<Cpu>(), 0.0);
}

/// Drivers that compute on the CPU get kernels of their own; those of GPUs are asked for here.
#[test]
fn with_shared_memory() {
    const SHARED_MEMORY: &str = "KILN_WGPU_SHARED_MEMORY";
    if std::env::var_os(SHARED_MEMORY).is_some() {
        return;
    }
    let this = std::env::current_exe().expect("the test's own path");
    let tests = ["vectors_with_matrices", "products_of_views"];
    for subgroups in ["1", "0"] {
        let mut command = std::process::Command::new(&this);
        command.args(tests).env(SHARED_MEMORY, "1").env("KILN_WGPU_SUBGROUPS", subgroups);
        let run = command.output().expect("a process");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{said}");
        assert_eq!(said.matches("... ok").count(), tests.len(), "{said}");
    }
}
