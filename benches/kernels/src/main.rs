//! Prints how fast the kernels are: `cargo run --release --manifest-path benches/kernels/Cargo.toml [-- FILTER]`, threads from
//! `KILN_NUM_THREADS`.

use kiln_kernels::InOut;
use kiln_kernels::attention::{AttentionMask, AttentionShape, Heads, attention};
use kiln_kernels::conv::{
    ConvShape, ConvWeight, Numbers, NumbersMut, PackedConv, PackedConvBf16, conv, conv_bf16,
};
use kiln_kernels::copy::{Layout, copy_strided};
use kiln_kernels::elementwise::{self, Strided};
use kiln_kernels::gemm::{Epilogue, Lhs, Matrix, PackedLhs, PackedRhs, Rhs, gemm};
use kiln_kernels::norm::layer_norm;
use kiln_kernels::pool::{PoolShape, pool};
use kiln_kernels::reduce::reduce;
use kiln_kernels::softmax::{SoftmaxKind, softmax};
use kiln_kernels::threads;
use kiln_types::{
    Activation, AttentionOptions, BinaryOp, ConvOptions, PoolOp, PoolOptions, ReduceOp, UnaryOp, bf16,
};
use std::hint::black_box;
use std::time::Instant;

/// The best time of a run in seconds, over about a fifth of a second.
fn time(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed().as_secs_f64() < 0.2 {
        let one = Instant::now();
        run();
        best = best.min(one.elapsed().as_secs_f64());
    }
    best
}

fn noise(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn gemms(wanted: &dyn Fn(&str) -> bool) {
    let sizes = [
        (64, 3136, 576, "resnet layer1"),
        (128, 784, 1152, "resnet layer2"),
        (512, 49, 4608, "resnet layer4"),
        (128, 768, 768, "bert linear"),
        (128, 3072, 768, "bert up"),
        (128, 768, 3072, "bert down"),
        (128, 128, 64, "bert scores"),
        (197, 576, 192, "vit qkv"),
        (252, 384, 384, "few whisper linear"),
        (1500, 384, 384, "whisper linear"),
        (1500, 1536, 384, "whisper up"),
        (1500, 384, 1536, "whisper down"),
        (96, 3136, 24, "mobilenet 1x1"),
        (1000, 1000, 1000, "square"),
        (4, 512, 128, "four rows"),
        (1, 1000, 2048, "one row"),
        (16, 16, 16, "tiny"),
    ];
    println!(
        "{:28} {:>9} {:>9} {:>9} {:>9} {:>9}  GFLOP/s",
        "gemm", "plain", "packed A", "packed B", "both", "gemm crate"
    );
    for (m, n, k, name) in sizes {
        if !wanted(name) {
            continue;
        }
        let (a, b, mut c) = (noise(m * k), noise(k * n), vec![0.0; m * n]);
        let flops = 2.0 * (m * n * k) as f64;
        let (va, vb) = (Matrix::row_major(&a, k), Matrix::row_major(&b, n));
        let (pa, pb) = (PackedLhs::new(va, m, k), PackedRhs::new(vb, k, n));
        let none = Epilogue::default();
        let mut rate =
            |a: Lhs<'_>, b: Rhs<'_>| flops / time(|| gemm(m, n, k, a, b, black_box(&mut c), n, &none)) / 1e9;
        let rates = [
            rate(Lhs::Plain(va), Rhs::Plain(vb)),
            rate(Lhs::Packed(&pa), Rhs::Plain(vb)),
            rate(Lhs::Plain(va), Rhs::Packed(&pb)),
            rate(Lhs::Packed(&pa), Rhs::Packed(&pb)),
        ];
        let other = time(|| peer(m, n, k, &a, &b, black_box(&mut c)));
        print!("{:28}", format!("{name} {m}x{n}x{k}"));
        rates.iter().for_each(|rate| print!(" {rate:9.1}"));
        println!(" {:9.1}", flops / other / 1e9);
    }
}

/// The product by the `gemm` crate.
#[cfg(target_arch = "x86_64")]
fn peer(m: usize, n: usize, k: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    let parallelism = match threads::threads() {
        1 => ::gemm::Parallelism::None,
        threads => ::gemm::Parallelism::Rayon(threads),
    };
    let (rows, columns) = (k as isize, n as isize);
    let (c, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    // SAFETY: the pointers hold the sizes and strides given.
    unsafe {
        ::gemm::gemm(
            m,
            n,
            k,
            c,
            1,
            columns,
            false,
            a,
            1,
            rows,
            b,
            1,
            columns,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// There is no peer here; its column means nothing.
#[cfg(not(target_arch = "x86_64"))]
fn peer(_m: usize, _n: usize, _k: usize, _a: &[f32], _b: &[f32], _c: &mut [f32]) {}

fn convolutions(wanted: &dyn Fn(&str) -> bool) {
    // Channels in and out, groups, image, kernel, stride.
    let sizes = [
        (3, 64, 1, 224, 7, 2, "resnet stem"),
        (3, 32, 1, 224, 3, 2, "mobilenet stem"),
        (3, 64, 1, 224, 3, 1, "vgg stem"),
        (64, 64, 1, 56, 3, 1, "resnet layer1"),
        (64, 128, 1, 56, 3, 2, "resnet down"),
        (128, 128, 1, 28, 3, 1, "resnet layer2"),
        (256, 256, 1, 14, 3, 1, "resnet layer3"),
        (512, 512, 1, 7, 3, 1, "resnet layer4"),
        (64, 256, 1, 56, 1, 1, "resnet50 1x1"),
        (128, 512, 1, 28, 1, 1, "resnet50 1x1 second"),
        (256, 1024, 1, 14, 1, 1, "resnet50 1x1 third"),
        (512, 128, 1, 28, 1, 1, "resnet50 1x1 second narrow"),
        (256, 64, 1, 56, 1, 1, "resnet50 1x1 narrow"),
        (1024, 256, 1, 14, 1, 1, "resnet50 1x1 far rows"),
        (512, 2048, 1, 7, 1, 1, "resnet50 1x1 late"),
        (16, 96, 1, 112, 1, 1, "mobilenet expand"),
        (96, 24, 1, 56, 1, 1, "mobilenet project"),
        (144, 24, 1, 56, 1, 1, "mobilenet project 2"),
        (64, 384, 1, 14, 1, 1, "mobilenet expand small"),
        (384, 64, 1, 14, 1, 1, "mobilenet project small"),
        (160, 960, 1, 7, 1, 1, "mobilenet expand late"),
        (960, 160, 1, 7, 1, 1, "mobilenet project late"),
        (320, 1280, 1, 7, 1, 1, "mobilenet last"),
        (32, 32, 1, 256, 3, 1, "unet first"),
        (32, 32, 32, 112, 3, 1, "mobilenet depthwise"),
        (96, 96, 96, 112, 3, 2, "mobilenet depthwise /2"),
        (576, 576, 576, 14, 3, 1, "mobilenet depthwise small"),
        (240, 240, 240, 28, 5, 1, "efficientnet depthwise"),
        (48, 48, 48, 56, 7, 1, "fastvit depthwise"),
        (48, 48, 48, 56, 7, 2, "fastvit depthwise /2"),
        (384, 384, 384, 7, 7, 1, "fastvit depthwise late"),
        (960, 960, 960, 7, 3, 1, "mobilenet depthwise late"),
        (144, 144, 144, 56, 3, 1, "mobilenet depthwise wide"),
        (128, 128, 32, 56, 3, 1, "resnext groups of 4"),
        (48, 48, 6, 56, 3, 1, "regnet groups of 8"),
        (104, 104, 13, 28, 3, 2, "regnet groups of 8 /2"),
        (160, 160, 10, 14, 3, 1, "regnet groups of 16"),
        (336, 336, 14, 14, 3, 1, "regnet groups of 24"),
        (240, 120, 3, 28, 1, 1, "shufflenet groups of 80"),
        (512, 512, 16, 14, 3, 1, "groups of 32"),
        (512, 512, 8, 14, 3, 1, "groups of 64"),
    ];
    println!(
        "{:40} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  GFLOP/s",
        "convolution", "us", "f32", "bf16", "added", "rounded", "added"
    );
    for (ic, oc, groups, size, kernel, stride, name) in sizes {
        if !wanted(name) {
            continue;
        }
        let options = ConvOptions {
            stride: [stride; 2].into(),
            padding: [(kernel / 2, kernel / 2); 2].into(),
            dilation: [1; 2].into(),
            groups,
        };
        let weight = noise(oc * ic / groups * kernel * kernel);
        let shape = ConvShape::new(&[1, ic, size, size], &[oc, ic / groups, kernel, kernel], &options);
        // At cache lines, as tensors are.
        let (x, bias) = (noise(ic * size * size + 16), noise(oc));
        let x = &x[x.as_ptr().align_offset(64)..][..ic * size * size];
        let len: usize = shape.output_dims().iter().product();
        let mut out = vec![0.0; len + 16];
        let start = out.as_ptr().align_offset(64);
        let out = &mut out[start..start + len];
        let packed = PackedConv::new(&shape, &weight);
        let flops = 2.0 * (out.len() * ic / groups * kernel * kernel) as f64;
        let relu = Some(Activation::Relu);
        let seconds = time(|| {
            conv(&shape, x, ConvWeight::Packed(&packed), Some(&bias), relu, false, black_box(&mut *out));
        });
        print!(
            "{:40} {:9.1} {:9.1}",
            format!("{name} {ic}>{oc} {size} k{kernel} s{stride}"),
            seconds * 1e6,
            flops / seconds / 1e9
        );
        if shape.is_product() {
            let packed = PackedConvBf16::new(&shape, &weight);
            for adds in [false, true] {
                let mut run = || {
                    let out = NumbersMut::Single(black_box(&mut *out));
                    conv_bf16(&shape, Numbers::Single(x), &packed, Some(&bias), relu, adds, out);
                };
                print!(" {:9.1}", flops / time(&mut run) / 1e9);
            }
            // What was rounded before, and stays so.
            if packed.takes_rounded() {
                let x: Vec<bf16> = x.iter().map(|&x| bf16::from_f32(x)).chain([bf16::ZERO; 32]).collect();
                let x = &x[x.as_ptr().align_offset(64)..][..ic * size * size];
                let mut out = vec![bf16::ZERO; len + 32];
                let start = out.as_ptr().align_offset(64);
                let out = &mut out[start..start + len];
                for adds in [false, true] {
                    let mut run = || {
                        let out = NumbersMut::Rounded(black_box(&mut *out));
                        conv_bf16(&shape, Numbers::Rounded(x), &packed, Some(&bias), relu, adds, out);
                    };
                    print!(" {:9.1}", flops / time(&mut run) / 1e9);
                }
            }
        }
        println!();
    }
}

fn others(wanted: &dyn Fn(&str) -> bool) {
    println!("{:40} {:>9} {:>9}", "others", "us", "Gelem/s");
    let line = |name: &str, elements: usize, run: &mut dyn FnMut()| {
        if wanted(name) {
            let seconds = time(run);
            println!("{name:40} {:9.1} {:9.2}", seconds * 1e6, elements as f64 / seconds / 1e9);
        }
    };
    let n = 128 * 3072;
    let (mut x, y) = (noise(n), noise(n));
    for op in [UnaryOp::Exp, UnaryOp::Log, UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Sin] {
        line(&format!("{op:?}"), n, &mut || {
            elementwise::unary(op, InOut::Copy { from: &y, to: black_box(&mut x) })
        });
    }
    for op in
        [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::HardSwish]
    {
        line(&format!("{op:?}"), n, &mut || {
            elementwise::activation(op, InOut::Copy { from: &y, to: black_box(&mut x) })
        });
    }
    let row = Strided { data: &y, strides: &[0, 1] };
    line("Add a row", n, &mut || {
        elementwise::binary_in_place(BinaryOp::Add, &[128, 3072], black_box(&mut x), row, false)
    });
    let channel = Strided { data: &y, strides: &[1, 0] };
    line("Mul by channel", 96 * 49, &mut || {
        elementwise::binary_in_place(BinaryOp::Mul, &[96, 49], black_box(&mut x[..96 * 49]), channel, false);
    });
    line("softmax rows of 128", 12 * 128 * 128, &mut || {
        let (from, to) = (&y[..12 * 128 * 128], black_box(&mut x[..12 * 128 * 128]));
        softmax(SoftmaxKind::Softmax, 12 * 128, 128, 1, InOut::Copy { from, to });
    });
    line("layer norm rows of 768", 128 * 768, &mut || {
        let (from, to) = (&y[..128 * 768], black_box(&mut x[..128 * 768]));
        layer_norm(&y[..768], Some(&y[768..1536]), 1e-5, InOut::Copy { from, to });
    });
    line("sum rows of 3072", n, &mut || reduce(ReduceOp::Sum, 128, 3072, 1, &y, black_box(&mut x[..128])));
    line("mean of 1280 channels of 49", 1280 * 49, &mut || {
        reduce(ReduceOp::Mean, 1280, 49, 1, &y[..1280 * 49], black_box(&mut x[..1280]));
    });
    line("max over 128 of 3072 columns", n, &mut || {
        reduce(ReduceOp::Max, 1, 128, 3072, &y, black_box(&mut x[..3072]))
    });
    let options = PoolOptions {
        kernel: [3; 2].into(),
        stride: [2; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        ceil_mode: false,
    };
    let shape = PoolShape::new(&[1, 30, 112, 112], &options);
    let outputs: usize = shape.output_dims().iter().product();
    line("max pool 3x3 /2 of 30x112x112", 30 * 112 * 112, &mut || {
        pool(PoolOp::Max, &shape, &y[..30 * 112 * 112], black_box(&mut x[..outputs]));
    });
    let from = Layout { offset: 0, strides: &[1, 3072] };
    line("transpose 3072x128", n, &mut || {
        copy_strided(&[3072, 128], &y, from, black_box(&mut x), Layout { offset: 0, strides: &[128, 1] });
    });
    let from = Layout { offset: 0, strides: &[64, 768, 1] };
    line("split heads 128x12x64", 128 * 768, &mut || {
        copy_strided(
            &[12, 128, 64],
            &y,
            from,
            black_box(&mut x),
            Layout { offset: 0, strides: &[8192, 64, 1] },
        );
    });
}

fn attentions(wanted: &dyn Fn(&str) -> bool) {
    println!("{:40} {:>9} {:>9}", "attention", "us", "GFLOP/s");
    for (heads, q_len, k_len, size, name) in [
        (12, 128, 128, 64, "bert"),
        (6, 1500, 1500, 64, "whisper"),
        (12, 1, 1024, 64, "gpt2 step"),
        (3, 197, 197, 64, "vit tiny"),
        (12, 128, 128, 32, "minilm"),
    ] {
        if !wanted(name) {
            continue;
        }
        let shape = AttentionShape { batch: 1, heads, kv_heads: heads, q_len, k_len, size, value_size: size };
        let (q, k) = (noise(heads * q_len * size), noise(heads * k_len * size));
        let q = Heads { data: &q, strides: [0, size, heads * size] };
        let k = Heads { data: &k, strides: [0, size, heads * size] };
        let mut out = vec![0.0; heads * q_len * size];
        let flops = 4.0 * (heads * q_len * k_len * size) as f64;
        let options = AttentionOptions::default();
        let seconds = time(|| attention(&shape, q, k, k, AttentionMask::None, &options, black_box(&mut out)));
        println!("{name:40} {:9.1} {:9.1}", seconds * 1e6, flops / seconds / 1e9);
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("{} threads", threads::threads());
    gemms(&|name| format!("gemm {name}").contains(&filter));
    convolutions(&|name| format!("conv {name}").contains(&filter));
    attentions(&|name| format!("attention {name}").contains(&filter));
    others(&|name| name.contains(&filter));
}
