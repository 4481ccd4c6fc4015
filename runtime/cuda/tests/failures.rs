//! What goes wrong on a device is told by what waits for it, and the process lives.

#![cfg(target_os = "linux")]

mod host;

use host::{faults, mend};
use kiln_cuda::{
    CaptureError, Captured, Cuda, CudaDevice, CudaKernel, CudaTensor, Graph, InitError, Statistics, init,
    reopen, statistics,
};
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{BinaryOp, DType, Expression, ReduceOp, Scalar, Shape, Step, Tensor, TensorData, UnaryOp};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

type B = Cuda;

/// A device of its own for each of these tests, which run one after another.
const DEVICE: CudaDevice = CudaDevice { index: 1 };

fn full(elements: usize, value: f64) -> CudaTensor {
    B::full(Shape::from([elements]), Scalar::Float(value), DType::F32, &DEVICE)
}

fn read(tensor: CudaTensor) -> Result<Vec<f32>, String> {
    let data = B::into_data(tensor).map_err(|error| error.to_string())?;
    Ok(data.to_vec().expect("floats"))
}

fn there_is_no_such_device() {
    assert_eq!(init(&CudaDevice::new(2)), Err(InitError::NotFound { index: 2, found: 2 }));
    assert_eq!(
        InitError::NotFound { index: 2, found: 1 }.to_string(),
        "there is no CUDA device 2: the driver knows 1"
    );
}

fn memory_that_is_not_there_is_an_error() {
    let small = full(1000, 1.0);
    faults(&DEVICE, |faults| faults.memory = Some(1 << 20));
    let large = B::unary(UnaryOp::Neg, full(1 << 20, 1.0));
    let error = read(large).expect_err("no memory");
    assert!(error.contains("out of memory, asking for 4194304 bytes where tensors hold"), "{error}");
    // What has memory goes on.
    assert_eq!(read(B::unary(UnaryOp::Neg, small)), Ok(vec![-1.0; 1000]));
    B::sync(&DEVICE).expect("a device");
    mend(&DEVICE);
    assert_eq!(read(full(3, 2.0)), Ok(vec![2.0; 3]));
}

/// What is computed of what has no memory is never read as if it were there, whoever was told of it first.
fn what_depends_on_missing_memory_is_an_error_for_all_who_read_it() {
    let (small, mut graph) = (full(1000, 1.0), None);
    for is_captured in [false, true] {
        if is_captured {
            let double = |x: Tensor<B, 1>| x * 2.0;
            graph = Some(Graph::capture(Tensor::from_backend(small.clone()), double).expect("a graph"));
        }
        faults(&DEVICE, |faults| faults.memory = Some(1 << 20));
        let large = full(1 << 20, 1.0);
        // These have memory of their own.
        let sum = B::reduce(ReduceOp::Sum, large.clone(), &[0]);
        let part = B::slice(large, &[SliceRange { start: 5, end: 1005, step: 1 }]);
        let added = B::binary(BinaryOp::Add, small.clone(), part.clone());
        let product = B::matmul(
            B::reshape(added.clone(), Shape::from([100, 10])),
            B::reshape(small.clone(), Shape::from([10, 100])),
        );
        mend(&DEVICE);
        let told = B::sync(&DEVICE).expect_err("no memory").to_string();
        assert!(told.contains("out of memory"), "{told}");
        for _ in 0..2 {
            for lost in [&sum, &added, &product] {
                let error = read(lost.clone()).expect_err("what was lost");
                assert!(error.contains("out of memory, asking for 4194304 bytes"), "{error}");
            }
        }
        if let Some(graph) = &graph {
            let error = graph.replay(Tensor::from_backend(added.clone())).expect_err("what was lost");
            assert!(error.to_string().contains("out of memory"), "{error}");
            // The graph's own memory is given other contents by the next replay.
            let _ = B::sync(&DEVICE);
            let doubled = graph.replay(Tensor::from_backend(small.clone())).expect("a replay");
            assert_eq!(read(doubled.into_backend()), Ok(vec![2.0; 1000]));
        }
        drop((sum, part, added, product));
        let _ = B::sync(&DEVICE);
        // Their memory serves others.
        for elements in [1, 1000, 10_000] {
            assert_eq!(read(B::unary(UnaryOp::Neg, full(elements, 1.0))), Ok(vec![-1.0; elements]));
        }
    }
    B::sync(&DEVICE).expect("a device");
}

/// What a library multiplies may have been lost by the kernel that was waiting until then.
fn a_product_of_what_a_kernel_could_not_compute_is_an_error() {
    let x = full(64 * 64, 0.25);
    B::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| {
        faults.library = true;
        faults.load = Some(("no image for the device", false));
    });
    let lost = B::reshape(B::unary(UnaryOp::Atanh, x.clone()), Shape::from([64, 64]));
    let product = B::matmul(lost, B::reshape(x, Shape::from([64, 64])));
    mend(&DEVICE);
    assert!(B::sync(&DEVICE).is_err());
    let error = read(product).expect_err("what was lost");
    assert!(error.contains("no image for the device"), "{error}");
}

/// A user's kernel loses what it writes, not what it reads.
fn a_users_kernel_that_does_not_run_leaves_its_inputs() {
    let text = r#"extern "C" __global__ void sum(const float *a, const float *b, float *out) {
        out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
    }"#;
    let kernel = CudaKernel::new("sum", text);
    let sum = |a: &CudaTensor, b: &CudaTensor| {
        let mut out = CudaTensor::empty(Shape::from([4]), DType::F32, &DEVICE);
        // SAFETY: three pointers to as many elements as there are threads; the last is written to.
        unsafe { kernel.launch().input(a).input(b).output(&mut out).run([1; 3], [4, 1]) }.expect("a kernel");
        out
    };
    let weight = full(4, 0.5);
    B::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| faults.memory = Some(1 << 20));
    let large = full(1 << 20, 1.0);
    let lost = B::unary(UnaryOp::Neg, B::slice(large, &[SliceRange { start: 0, end: 4, step: 1 }]));
    let out = sum(&weight, &lost);
    mend(&DEVICE);
    assert!(B::sync(&DEVICE).is_err());
    assert!(read(out).expect_err("what was lost").contains("out of memory"));
    assert_eq!(read(sum(&weight, &weight)), Ok(vec![1.0; 4]));
}

/// Every launch of a kernel that cannot be loaded is an error; one for whose code there was no memory is loaded again.
fn a_kernel_that_cannot_be_loaded_is_an_error_each_time() {
    let x = full(7, 0.25);
    B::sync(&DEVICE).expect("a device");
    for (is_out_of_memory, op) in [(false, UnaryOp::Asinh), (true, UnaryOp::Acosh)] {
        faults(&DEVICE, |faults| faults.load = Some(("no image for the device", is_out_of_memory)));
        let (first, second) = (B::unary(op, x.clone()), B::unary(op, x.clone()));
        let error = read(first).expect_err("no kernel");
        assert!(error.contains("kernel `") && error.contains("no image for the device"), "{error}");
        assert_eq!(read(second).expect_err("no kernel"), error);
        mend(&DEVICE);
        let third = read(B::unary(op, x.clone()));
        assert_eq!(third.is_ok(), is_out_of_memory, "{third:?}");
        let _ = B::sync(&DEVICE);
    }
    assert_eq!(read(B::unary(UnaryOp::Neg, x)), Ok(vec![-0.25; 7]));
}

fn counters_for_which_there_is_no_memory_are_asked_for_again() {
    // Sums of columns in runs, which the last workgroup joins: its counters are the device's, from the first such kernel on.
    let sums = || B::reduce(ReduceOp::Sum, B::reshape(full(4100 * 64, 1.0), Shape::from([4100, 64])), &[0]);
    let waits = sums();
    faults(&DEVICE, |faults| faults.memory = Some(0));
    let error = read(waits).expect_err("no memory");
    // No tensor's.
    assert!(error.contains("out of memory") && !error.contains("asking for"), "{error}");
    mend(&DEVICE);
    for _ in 0..3 {
        assert_eq!(read(sums()), Ok(vec![4100.0; 64]));
    }
}

fn what_the_pool_keeps_serves_other_sizes() {
    B::sync(&DEVICE).expect("a device");
    let before = statistics(&DEVICE);
    let used = before.buffer_bytes - before.released_bytes;
    faults(&DEVICE, |faults| faults.memory = Some(used + (10 << 20)));
    for megabytes in 1..8 {
        // Each of another size: together they are more than there is.
        assert_eq!(read(full(megabytes << 18, 2.0)).map(|values| values.len()), Ok(megabytes << 18));
    }
    assert!(statistics(&DEVICE).released_bytes > before.released_bytes);
    mend(&DEVICE);
}

/// So does it the code of kernels: but for buffers that the launch itself, or another that waits, still uses, though no tensor does.
fn what_the_pool_keeps_serves_code() {
    // A pool of its own.
    reopen(&DEVICE).expect("a device");
    let elements = 1 << 20;
    let empty = |dtype| CudaTensor::empty(Shape::from([elements]), dtype, &DEVICE);
    for (launches, dtype) in [(1, DType::I16), (2, DType::I8)] {
        let values = |n: usize| vec![n as f32 + 3.0; elements];
        let given: Vec<CudaTensor> =
            (0..launches).map(|n| B::from_data(TensorData::new(values(n), [elements]), &DEVICE)).collect();
        // Behind this nothing waits for others of its kind before it is known that there are some.
        drop(product(full(256 * 256, 0.25), full(64 * 64, 0.5)));
        B::sync(&DEVICE).expect("a device");
        // Where the results go, and what nothing uses.
        drop([dtype, dtype, DType::F32].map(empty));
        let Statistics { buffer_bytes, released_bytes, .. } = statistics(&DEVICE);
        let results: Vec<CudaTensor> = given.into_iter().map(|x| B::cast(x, dtype)).collect();
        faults(&DEVICE, |faults| {
            (faults.memory, faults.code) = (Some(buffer_bytes - released_bytes), 4 << 20);
            faults.asked = Some(Vec::new());
        });
        for (n, result) in results.into_iter().enumerate() {
            let found =
                B::into_data(result).expect("memory").iter::<f64>().map(|x| x as f32).collect::<Vec<_>>();
            assert!(found == values(n), "{launches} launches");
        }
        let asked = faults(&DEVICE, |faults| faults.asked.take()).unwrap_or_default();
        assert_eq!(asked.iter().filter(|asked| *asked == "free 4194304").count(), 1, "{asked:?}");
        mend(&DEVICE);
    }
}

/// So it does what the driver makes of what was written down.
fn what_the_pool_keeps_serves_graphs() {
    drop(full(1 << 20, 1.0));
    let mut rounds = 0;
    let graph = Graph::capture(Tensor::from_backend(full(4, 1.0)), |x: Tensor<B, 1>| {
        rounds += 1;
        let y = x * 2.0;
        if rounds == 2 {
            let Statistics { buffer_bytes, released_bytes, .. } = statistics(&DEVICE);
            faults(&DEVICE, |faults| {
                (faults.memory, faults.code) = (Some(buffer_bytes - released_bytes), 4 << 20);
                faults.asked = Some(Vec::new());
            });
        }
        y
    });
    let asked = faults(&DEVICE, |faults| faults.asked.take()).unwrap_or_default();
    mend(&DEVICE);
    assert!(asked.iter().any(|asked| asked == "free 4194304"), "{asked:?}");
    let y = graph.expect("a graph").replay(Tensor::from_backend(full(4, 3.0))).expect("a replay");
    assert_eq!(read(y.into_backend()), Ok(vec![6.0; 4]));
}

fn a_kernel_that_faults_is_an_error_of_what_waits() {
    let x = full(10, 1.0);
    B::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| faults.launch = Some("an illegal memory access was encountered"));
    let y = B::unary(UnaryOp::Neg, x);
    let z = B::unary(UnaryOp::Abs, y);
    let error = read(z.clone()).expect_err("a fault");
    assert_eq!(error, "the host: launch: an illegal memory access was encountered");
    // A device that failed stays so, until it is opened again.
    let error = B::sync(&DEVICE).expect_err("a fault").to_string();
    assert!(error.contains("illegal memory access"), "{error}");
    mend(&DEVICE);
    assert_eq!(read(full(2, 4.0)), Ok(vec![4.0; 2]));
}

/// Nothing can be read any more, and each who tries is told what went wrong first, not what that led to.
fn a_fault_is_told_to_all_until_the_device_is_opened_again() {
    let (x, other) = (full(10, 1.0), full(3, 2.0));
    B::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| {
        faults.launch = Some("an illegal memory access was encountered");
        faults.is_fault = true;
    });
    let lost = B::unary(UnaryOp::Neg, x);
    let first = "the host: launch: an illegal memory access was encountered";
    assert_eq!(B::sync(&DEVICE).expect_err("a fault").to_string(), first);
    std::thread::scope(|scope| {
        let readers = [lost, other.clone(), other].map(|tensor| scope.spawn(|| read(tensor)));
        for reader in readers {
            assert_eq!(reader.join().expect("a thread"), Err(String::from(first)));
        }
    });
    assert_eq!(read(B::unary(UnaryOp::Neg, full(2, 4.0))), Err(String::from(first)));
    assert_eq!(B::sync(&DEVICE).expect_err("a fault").to_string(), first);
    reopen(&DEVICE).expect("a device");
    assert_eq!(read(full(2, 4.0)), Ok(vec![4.0; 2]));
    // What is no fault is told once, and the device goes on.
    faults(&DEVICE, |faults| faults.memory = Some(0));
    drop(full(1 << 20, 1.0));
    mend(&DEVICE);
    assert!(B::sync(&DEVICE).is_err());
    B::sync(&DEVICE).expect("a device");
}

fn asynchronous_reads_tell_it_too() {
    faults(&DEVICE, |faults| faults.launch = Some("unspecified launch failure"));
    let read = B::into_data_async(B::unary(UnaryOp::Neg, full(10, 1.0)));
    let error = kiln_gpu::promise::block_on(read).expect_err("a fault").to_string();
    assert!(error.contains("unspecified launch failure"), "{error}");
    mend(&DEVICE);
    let read = B::into_data_async(full(10, 1.0));
    let data = kiln_gpu::promise::block_on(read).expect("a device");
    assert_eq!(data.to_vec::<f32>().expect("floats"), vec![1.0; 10]);
}

fn a_device_that_failed_is_opened_again() {
    B::seed(&DEVICE, 7);
    let matrix = |value: f32| Tensor::<B, 1>::from_data(TensorData::new(vec![value; 6], [6]), &DEVICE);
    let (weight, old) = (matrix(3.0), full(10, 1.0));
    let of_old = weight.clone();
    let graph = Graph::capture(matrix(1.0), |x| x * of_old.clone()).expect("a graph");
    let mut weights = weight.clone();
    let mut current = None;
    for round in 0..2 {
        let mut forward = Captured::new(|x: Tensor<B, 1>| x * weights.clone());
        let y = forward.run(matrix(2.0)).expect("a graph");
        assert_eq!(y.into_data().to_vec::<f32>().expect("floats"), vec![6.0; 6], "{round}");
        current = Some(full(4, 4.0));
        faults(&DEVICE, |faults| faults.launch = Some("an illegal memory access was encountered"));
        let waiting = B::into_data_async(B::unary(UnaryOp::Neg, full(10, 1.0)));
        assert!(B::sync(&DEVICE).is_err());
        assert!(forward.run(matrix(2.0)).is_err());
        reopen(&DEVICE).expect("a device");
        // What was begun before tells it, and everything else goes on.
        assert!(kiln_gpu::promise::block_on(waiting).is_err());
        assert_eq!(read(B::unary(UnaryOp::Neg, full(10, 1.0))), Ok(vec![-1.0; 10]));
        weights = matrix(3.0);
    }
    // Tensors of before say so, whatever they are used with; a graph of before too, and one that captures by itself does so again.
    let stale = "it was made before the device was opened again";
    let error = read(old.clone()).expect_err("no memory");
    assert!(error.contains(stale), "{error}");
    let mixed = B::binary(BinaryOp::Add, full(10, 1.0), old);
    let error = read(mixed).expect_err("no memory");
    assert!(error.contains(stale), "{error}");
    let error = graph.replay(matrix(1.0)).map(|_| ()).expect_err("a graph of before").to_string();
    assert!(error.contains("a graph cannot be used"), "{error}");
    drop((graph, current, weight));
    let mut forward = Captured::new(|x: Tensor<B, 1>| x + 1.0);
    for _ in 0..2 {
        let y = forward.run(matrix(2.0)).expect("a graph");
        assert_eq!(y.into_data().to_vec::<f32>().expect("floats"), vec![3.0; 6]);
        reopen(&DEVICE).expect("a healthy device");
    }
    B::sync(&DEVICE).expect("a device");
}

/// A product, before which nothing waits and behind which nothing is expected to: it is launched when something else is asked for.
fn product(lhs: CudaTensor, rhs: CudaTensor) -> CudaTensor {
    B::matmul(B::reshape(lhs, Shape::from([1024, 64])), B::reshape(rhs, Shape::from([64, 64])))
}

/// A result that nobody needs any more is known to be lost by those that were computed of it, however late its kernel turns out not to run.
fn what_reads_a_result_that_is_lost_and_dropped_is_lost() {
    let (x, weight) = (full(256 * 256, 0.25), full(64 * 64, 0.5));
    assert_eq!(read(product(x.clone(), weight.clone())), Ok(vec![8.0; 1024 * 64]));
    faults(&DEVICE, |faults| faults.load = Some(("no image for the device", true)));
    let lost = B::unary(UnaryOp::Sinh, x);
    let of_lost = product(lost.clone(), weight);
    mend(&DEVICE);
    drop(lost);
    assert!(B::sync(&DEVICE).is_err());
    for _ in 0..2 {
        let error = read(of_lost.clone()).expect_err("what was lost");
        assert!(error.contains("no image for the device"), "{error}");
    }
}

/// Memory of a result that nobody needs serves others before its kernel turns out not to run.
fn what_is_lost_is_not_who_has_its_memory_next() {
    // Of a size that nothing else has.
    let elements = 7 << 15;
    let x = full(elements, 0.25);
    assert_eq!(read(full(elements, 0.5)), Ok(vec![0.5; elements]));
    // Nothing is expected to wait behind it.
    drop(product(full(256 * 256, 0.25), full(64 * 64, 0.5)));
    B::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| faults.load = Some(("no image for the device", true)));
    drop(B::unary(UnaryOp::Sinh, x.clone()));
    let other = full(elements, 3.0);
    mend(&DEVICE);
    B::sync(&DEVICE).expect_err("a kernel that does not run");
    assert_eq!(read(other), Ok(vec![3.0; elements]));
    drop(x);
}

/// What the pool gives back to the driver is no memory of launches that still wait, even if their tensors are gone.
fn memory_of_a_launch_that_waits_is_not_given_back() {
    // A pool of its own.
    reopen(&DEVICE).expect("a device");
    let empty = |quarters: usize| CudaTensor::empty(Shape::from([quarters << 16]), DType::F32, &DEVICE);
    // The buffer that was made first is the first to be given back: 32 MiB.
    drop(empty(128));
    // More than is kept: 64 MiB, and 4 times what was used.
    (2..=6)
        .flat_map(|power| (4..8).map(move |n| (n << power) / 4))
        .for_each(|quarters| drop(empty(quarters)));
    let (small, weight) = (full(256, 1.0), full(64 * 64, 0.5));
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Binary(BinaryOp::Add, 0, 1),
    ];
    let both = Expression { steps, outputs: vec![2, 3] };
    drop(product(full(256 * 256, 0.25), weight.clone()));
    // The 256th launch is that of what waits for others of its kind.
    loop {
        B::sync(&DEVICE).expect("a device");
        if statistics(&DEVICE).launches % 256 == 255 {
            break;
        }
        drop(B::unary(UnaryOp::Neg, small.clone()));
    }
    let waits = B::elementwise(&both, [small.clone(), small.clone()].into(), &[]);
    let part = B::slice(empty(128), &[SliceRange { start: 0, end: 256 * 256, step: 1 }]);
    let of_part = product(part, weight);
    B::sync(&DEVICE).expect("memory that is there");
    assert!(statistics(&DEVICE).released_buffers > 0);
    assert_eq!(read(of_part).map(|values| values.len()), Ok(1024 * 64));
    assert_eq!(waits.into_iter().map(read).collect::<Vec<_>>(), [Ok(vec![1.0; 256]), Ok(vec![2.0; 256])]);
}

/// What runs so long is a deadlock.
const LONG: Duration = Duration::from_secs(20);

/// A device is opened again when what is captured on it is complete, which may look for other devices meanwhile.
fn a_device_is_opened_again_behind_a_capture() {
    let ((begun, begins), (done, is_done)) = (mpsc::channel(), mpsc::channel());
    std::thread::spawn(move || {
        let mut rounds = 0;
        let captured = Graph::capture(Tensor::from_backend(full(4, 1.0)), |x: Tensor<B, 1>| {
            rounds += 1;
            if rounds == 2 {
                begun.send(()).expect("a thread");
                std::thread::sleep(Duration::from_millis(100));
            }
            // A thread finds the device that it used last without a look at the others.
            init(&CudaDevice::new(0)).expect("a device");
            x * 2.0
        });
        done.send(captured.map(|_| ())).expect("a thread");
    });
    begins.recv().expect("a capture");
    let (reopened, is_reopened) = mpsc::channel();
    std::thread::spawn(move || reopened.send(reopen(&DEVICE)).expect("a thread"));
    assert_eq!(is_done.recv_timeout(LONG).expect("no deadlock"), Ok(()));
    assert_eq!(is_reopened.recv_timeout(LONG).expect("no deadlock"), Ok(()));
    assert_eq!(read(full(3, 2.0)), Ok(vec![2.0; 3]));
}

/// What is captured cannot open its device again, and goes on.
fn a_capture_does_not_open_its_device_again() {
    let mut reopened = Vec::new();
    let mut rounds = 0;
    let graph = Graph::capture(Tensor::from_backend(full(4, 1.0)), |x: Tensor<B, 1>| {
        rounds += 1;
        if rounds == 2 {
            reopened.push(reopen(&DEVICE));
        }
        x * 2.0
    });
    let reason = String::from("this thread captures a computation");
    assert_eq!(reopened, [Err(InitError::NotOpened { reason })]);
    let y = graph.expect("a graph").replay(Tensor::from_backend(full(4, 3.0))).expect("a replay");
    assert_eq!(read(y.into_backend()), Ok(vec![6.0; 4]));
}

/// Two threads that use each other's device within what they capture: one of them is refused, rather than both waiting for ever.
fn captures_that_use_each_others_devices_do_not_wait_for_ever() {
    let both = Arc::new(Barrier::new(2));
    let (done, is_done) = mpsc::channel();
    let devices = [CudaDevice::new(0), DEVICE];
    let on = |device: CudaDevice, value: f64| {
        Tensor::<B, 1>::from_backend(B::full(Shape::from([4]), value.into(), DType::F32, &device))
    };
    for (own, other) in [(devices[0], devices[1]), (devices[1], devices[0])] {
        let (both, done) = (both.clone(), done.clone());
        std::thread::spawn(move || {
            let (mut rounds, mut kept, mut elsewhere) = (0, None, Vec::new());
            let captured = Graph::capture(on(own, 1.0), |x| {
                rounds += 1;
                let x = x * 2.0;
                // Not before both capture: who does not yet would wait for the other, which waits for it here.
                if rounds == 2 {
                    both.wait();
                    elsewhere = read((on(other, 3.0) * 2.0).into_backend()).expect("another device");
                }
                // Of the graph that was given up as of one that is captured, nothing is computed.
                let y = x.clone() + on(own, 1.0) * 3.0;
                kept = Some((y.clone() * 2.0).into_backend());
                y
            });
            let kept = read(kept.expect("two runs")).map(|_| ());
            let replayed = captured.map(|graph| {
                let y = graph.replay(on(own, 4.0)).expect("a replay");
                read(y.into_backend()).expect("a replay")
            });
            done.send((replayed, kept, elsewhere, own)).expect("a test");
        });
    }
    let all = [(); 2].map(|()| is_done.recv_timeout(LONG).expect("no deadlock"));
    for (replayed, kept, elsewhere, own) in &all {
        assert_eq!(elsewhere, &vec![6.0; 4]);
        match replayed {
            Ok(values) => assert_eq!(values, &vec![11.0; 4]),
            Err(error) => assert_eq!(error, &CaptureError::Deadlock),
        }
        let error = kept.as_ref().expect_err("what was captured");
        assert!(error.contains("captured computation") || error.contains("could not be captured"), "{error}");
        B::sync(own).expect("a device that is as it was");
        let values = read((on(*own, 5.0) * 2.0).into_backend());
        assert_eq!(values, Ok(vec![10.0; 4]));
    }
    assert_eq!(all.iter().filter(|(replayed, ..)| replayed.is_err()).count(), 1, "{all:?}");
}

/// What others hold while they wait for a capture is not waited for within one: another device's graphs, and its being opened again.
fn a_capture_uses_no_graph_of_another_device() {
    let other = CudaDevice::new(0);
    let on = |device: CudaDevice, value: f64| {
        Tensor::<B, 1>::from_backend(B::full(Shape::from([4]), value.into(), DType::F32, &device))
    };
    let elsewhere = Graph::capture_with_state(on(other, 1.0), (), |state, ()| (state.clone() * 2.0, state));
    let elsewhere = elsewhere.expect("a graph");
    let asked: [&dyn Fn() -> String; 3] = [
        &|| elsewhere.replay(()).expect_err("a replay").to_string(),
        &|| elsewhere.state().expect_err("the state").to_string(),
        &|| elsewhere.set_state(on(other, 1.0)).expect_err("another state").to_string(),
    ];
    for ask in asked {
        let mut rounds = 0;
        let captured = Graph::capture(on(DEVICE, 1.0), |x| {
            rounds += 1;
            if rounds == 2 {
                let said = ask();
                assert!(said.contains("a captured computation replays a graph"), "{said}");
            }
            x * 2.0
        });
        assert_eq!(captured.map(|_| ()), Err(CaptureError::Replay));
    }
    let (mut rounds, mut reopened) = (0, None);
    let captured = Graph::capture(on(DEVICE, 1.0), |x| {
        rounds += 1;
        if rounds == 2 {
            reopened = Some(reopen(&other));
        }
        x * 2.0
    });
    assert!(matches!(reopened, Some(Err(InitError::NotOpened { .. }))));
    let y = captured.expect("a graph").replay(on(DEVICE, 3.0)).expect("a replay");
    assert_eq!(read(y.into_backend()), Ok(vec![6.0; 4]));
    // The other device and its graph are as they were.
    for value in [1.0, 2.0, 4.0] {
        assert_eq!(read(elsewhere.replay(()).expect("a replay").into_backend()), Ok(vec![value; 4]));
    }
}

/// A device that takes its time to open does not hold up who uses others.
fn a_device_that_opens_holds_up_no_other() {
    let (go_on, goes_on) = mpsc::channel();
    let (opens, is_opening) = mpsc::channel();
    let other = CudaDevice::new(0);
    faults(&other, |faults| {
        faults.opening = Some(Box::new(move || {
            opens.send(()).expect("a test");
            goes_on.recv_timeout(LONG).expect("no deadlock");
        }));
    });
    let opening = std::thread::spawn(move || init(&other));
    is_opening.recv_timeout(LONG).expect("a device that opens");
    // A thread that used none before.
    let used = std::thread::spawn(|| read(full(3, 2.0)));
    std::thread::sleep(Duration::from_millis(100));
    let is_held_up = !used.is_finished();
    go_on.send(()).expect("a device that opens");
    assert_eq!(opening.join().expect("a thread"), Ok(()));
    assert_eq!(used.join().expect("a thread"), Ok(vec![2.0; 3]));
    assert!(!is_held_up);
}

/// While one thread waits for the device, another may begin to write launches down; nobody may wait for the device's stream then.
fn a_thread_that_waits_and_one_that_captures_are_not_in_each_others_way() {
    let (end, ends) = mpsc::channel();
    let (captured, is_captured) = mpsc::channel();
    let (begun, is_begun) = mpsc::channel();
    let capture = move || {
        let mut rounds = 0;
        let graph = Graph::capture(Tensor::<B, 1>::from_backend(full(4, 1.0)), |x| {
            rounds += 1;
            if rounds == 2 {
                begun.send(()).expect("a test");
                ends.recv_timeout(LONG).expect("no deadlock");
            }
            x * 2.0
        });
        let y = graph.map(|graph| graph.replay(Tensor::from_backend(full(4, 3.0))).map(Tensor::into_backend));
        captured.send(y).expect("a test");
    };
    drop(full(4, 1.0));
    faults(&DEVICE, |faults| {
        faults.waiting = Some(Box::new(move || {
            std::thread::spawn(capture);
            is_begun.recv_timeout(LONG).expect("a capture");
        }));
    });
    assert_eq!(B::sync(&DEVICE).map_err(|error| error.to_string()), Ok(()));
    end.send(()).expect("a capture");
    let y = is_captured.recv_timeout(LONG).expect("no deadlock").expect("a graph").expect("a replay");
    assert_eq!(read(y), Ok(vec![6.0; 4]));
}

/// A user's kernel for whose code there was no memory is loaded again.
fn a_users_kernel_is_loaded_when_there_is_memory_again() {
    let kernel = CudaKernel::new("one", r#"extern "C" __global__ void one(float *out) { out[0] = 1.0f; }"#);
    let run = || {
        let mut out = CudaTensor::empty(Shape::from([1]), DType::F32, &DEVICE);
        // SAFETY: one pointer to one element, which is written to.
        unsafe { kernel.launch().output(&mut out).run([1; 3], [1, 1]) }.map(|()| read(out))
    };
    faults(&DEVICE, |faults| faults.load = Some(("no memory for code", true)));
    assert!(run().expect_err("no memory").to_string().contains("no memory for code"));
    mend(&DEVICE);
    assert_eq!(run(), Ok(Ok(vec![1.0])));
}

/// A graph reads weights where they are: if what was to change them did not run, its replays are none.
fn a_graph_whose_weight_is_lost_is_not_replayed() {
    let mut weight = full(4, 3.0);
    let captured = weight.clone();
    let graph = Graph::capture(Tensor::from_backend(full(4, 1.0)), move |x: Tensor<B, 1>| {
        x * Tensor::from_backend(captured.clone())
    })
    .expect("a graph");
    let replay = || {
        let y = graph.replay(Tensor::from_backend(full(4, 2.0))).map_err(|error| error.to_string())?;
        read(y.into_backend())
    };
    assert_eq!(replay(), Ok(vec![6.0; 4]));
    faults(&DEVICE, |faults| faults.load = Some(("no image for the device", true)));
    // In place, since nobody else holds it.
    let values = B::unary(UnaryOp::Sinh, full(2, 1.0));
    weight = B::slice_assign(weight, &[SliceRange { start: 0, end: 2, step: 1 }], values);
    assert!(B::sync(&DEVICE).is_err());
    mend(&DEVICE);
    for _ in 0..2 {
        let error = replay().expect_err("a weight that was lost");
        assert!(error.contains("no image for the device"), "{error}");
    }
    drop((graph, weight));
    B::sync(&DEVICE).expect("a device");
}

/// What a computation leaves behind whose capture failed was never computed.
fn what_a_failed_capture_leaves_is_an_error() {
    let x = || Tensor::<B, 1>::from_backend(full(4, 1.0));
    let mut kept = Vec::new();
    let captured = Graph::capture(x(), |x| {
        kept.push((x.clone() * 3.0).into_backend());
        let _ = B::sync(&DEVICE);
        x
    });
    assert!(captured.is_err());
    let later = kept.pop().expect("what the second run kept");
    assert_eq!(read(kept.pop().expect("what the first run kept")), Ok(vec![3.0; 4]));
    let error = read(later.clone()).expect_err("what was not computed");
    assert!(error.contains("captured"), "{error}");
    assert!(read(B::unary(UnaryOp::Neg, later)).is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Graph::capture(x(), |x| {
            kept.push((x.clone() * 3.0).into_backend());
            assert!(kept.len() < 2, "on purpose");
            x
        })
    }));
    assert!(panicked.is_err());
    assert!(read(kept.pop().expect("what the second run kept")).is_err());
    let _ = B::sync(&DEVICE);
    // Its memory serves others.
    kept.clear();
    assert_eq!(read(full(4, 2.0)), Ok(vec![2.0; 4]));
}

/// A computation that cannot be captured for some inputs takes none of the graphs for others along.
fn what_cannot_be_captured_leaves_the_graphs_that_there_are() {
    let x = |elements: usize| Tensor::<B, 1>::from_backend(full(elements, 1.0));
    let mut runs = 0;
    let mut forward = Captured::new(|x: Tensor<B, 1>| {
        runs += 1;
        if x.dims() == [5] {
            let _ = B::sync(&DEVICE);
        }
        x * 2.0
    })
    .with_capacity(2);
    let mut graphs = [1, 2, 2, 2, 2].into_iter();
    for elements in [3, 4, 5, 3, 4] {
        let found = forward.run(x(elements));
        assert_eq!(found.is_err(), elements == 5);
        let number = graphs.next();
        assert_eq!(Some(forward.graphs()), number);
    }
    drop(forward);
    assert_eq!(runs, 6);
}

/// Where there is no memory for one graph more than is kept, the one that was not used for longest makes room.
fn a_graph_more_than_is_kept_takes_the_place_of_the_oldest() {
    // A pool of its own.
    reopen(&DEVICE).expect("a device");
    let x = |elements: usize| Tensor::<B, 1>::from_backend(full(elements, 1.0));
    let mut forward = Captured::new(|x: Tensor<B, 1>| (x.clone() * 2.0, x * 3.0)).with_capacity(1);
    let elements = 1 << 20;
    drop(forward.run(x(elements)).expect("a graph"));
    // Less than both graphs need, of which one has 4 MiB for its input and each of two results, and the next 5 MiB.
    faults(&DEVICE, |faults| faults.memory = Some(24 << 20));
    let (y, z) = forward.run(x(elements + 1)).expect("a graph");
    assert_eq!(forward.graphs(), 1);
    for (found, expected) in [(y, 2.0), (z, 3.0)] {
        assert!(read(found.into_backend()).is_ok_and(|found| found == vec![expected; elements + 1]));
    }
    drop(forward);
    mend(&DEVICE);
    B::sync(&DEVICE).expect("a device");
}

/// Faults are the device's: one after another.
#[test]
fn failures_are_errors() {
    there_is_no_such_device();
    memory_that_is_not_there_is_an_error();
    counters_for_which_there_is_no_memory_are_asked_for_again();
    what_depends_on_missing_memory_is_an_error_for_all_who_read_it();
    a_kernel_that_cannot_be_loaded_is_an_error_each_time();
    a_product_of_what_a_kernel_could_not_compute_is_an_error();
    a_users_kernel_that_does_not_run_leaves_its_inputs();
    what_the_pool_keeps_serves_other_sizes();
    what_the_pool_keeps_serves_code();
    what_the_pool_keeps_serves_graphs();
    a_kernel_that_faults_is_an_error_of_what_waits();
    a_fault_is_told_to_all_until_the_device_is_opened_again();
    asynchronous_reads_tell_it_too();
    what_reads_a_result_that_is_lost_and_dropped_is_lost();
    what_is_lost_is_not_who_has_its_memory_next();
    memory_of_a_launch_that_waits_is_not_given_back();
    a_users_kernel_is_loaded_when_there_is_memory_again();
    a_graph_whose_weight_is_lost_is_not_replayed();
    what_a_failed_capture_leaves_is_an_error();
    what_cannot_be_captured_leaves_the_graphs_that_there_are();
    a_graph_more_than_is_kept_takes_the_place_of_the_oldest();
    a_device_that_opens_holds_up_no_other();
    a_thread_that_waits_and_one_that_captures_are_not_in_each_others_way();
    a_device_is_opened_again_behind_a_capture();
    a_capture_does_not_open_its_device_again();
    captures_that_use_each_others_devices_do_not_wait_for_ever();
    a_capture_uses_no_graph_of_another_device();
    a_device_that_failed_is_opened_again();
}

#[test]
fn what_is_missing_is_named_with_how_to_get_it() {
    for (error, named) in
        [(InitError::NoDriver, "libcuda.so.1"), (InitError::NoCompiler, "pip install nvidia-cuda-nvrtc")]
    {
        assert!(error.to_string().contains(named), "{error}");
    }
}
