//! A kernel that faults, on NVIDIA's driver or what stands in for it (`scripts/cuda_driver.sh`). In a process of its own: what faults takes
//! the device's context along.

mod stand_in;

use kiln_cuda::driver::{Address, Driver, KernelLaunch, nvidia::Nvidia};
use kiln_cuda::{Cuda, CudaDevice, InitError, init, reopen};
use kiln_gpu::kernels::access::Access::Linear;
use kiln_gpu::kernels::elementwise::Elementwise;
use kiln_gpu::language::cuda;
use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Expression, Scalar, Step};

const DEVICE: CudaDevice = CudaDevice { index: 0 };

/// Writes where nothing is.
fn fault() {
    let driver = Nvidia::open(DEVICE.index).expect("a device");
    let fill = Elementwise {
        expression: Expression::new(vec![Step::Parameter(0, DType::F32)]),
        operands: [].into(),
        counters: [].into(),
        results: [(DType::F32, Linear)].into(),
        rank: 0,
        fours: 0,
        epilogues: Vec::new(),
    };
    let kernel = fill.kernel();
    let code = driver.compile(&[cuda::PRELUDE, &cuda::source(&kernel)].concat()).expect("a kernel");
    let function = driver.load(&code, &cuda::entry_point(&kernel)).expect("a function");
    // The last element; how many there are, where they start, the number.
    let words = [255, 256, 0, 0];
    let launch = KernelLaunch {
        function,
        blocks: [1; 3],
        threads: kernel.workgroup,
        buffers: &[Address(0xdead_0000)],
        words: &words,
        is_table: false,
    };
    driver.launch(&launch).expect("a launch");
    let error = driver.synchronize().expect_err("a fault").to_string();
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
}

/// Opens the device anew; says whether it is there again. NVIDIA's driver may want the process started again instead, and says so each time.
fn is_open_again() -> bool {
    match reopen(&DEVICE) {
        Ok(()) => true,
        Err(InitError::Faulted { reason }) if !stand_in::is_there() => {
            println!("the driver wants the process started again: {reason}");
            assert!(matches!(reopen(&DEVICE), Err(InitError::Faulted { .. })));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// What NCCL keeps of devices that added up together goes with the first of them, whichever that is.
fn a_device_that_is_opened_again_leaves_no_communicators() {
    let other = CudaDevice::new(1);
    if init(&other).is_err() {
        return;
    }
    let communicators = || stand_in::told("libnccl.so", b"kiln_cuda_communicators\0");
    let add_up = || {
        let set = |device| vec![Cuda::<f32, i64>::full([5].into(), Scalar::Float(2.0), DType::F32, device)];
        for sum in Cuda::<f32, i64>::all_reduce(vec![set(&DEVICE), set(&other)]).into_iter().flatten() {
            let sum = Cuda::<f32, i64>::into_data(sum).expect("a device");
            assert_eq!(sum.to_vec::<f32>().expect("floats"), [4.0; 5]);
        }
    };
    for device in [other, DEVICE] {
        add_up();
        assert!(communicators().is_none_or(|there_are| there_are == 2));
        reopen(&device).expect("a healthy device");
        assert!(communicators().is_none_or(|there_are| there_are == 0));
    }
    add_up();
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn a_device_whose_kernel_faulted_is_opened_again() {
    let full = || Cuda::<f32, i64>::full([5].into(), Scalar::Float(2.0), DType::F32, &DEVICE);
    let read = |tensor| Cuda::<f32, i64>::into_data(tensor).map(|data| data.to_vec::<f32>().expect("floats"));
    a_device_that_is_opened_again_leaves_no_communicators();
    let old = full();
    for _ in 0..2 {
        assert_eq!(read(full()).expect("a device"), [2.0; 5]);
        fault();
        for _ in 0..2 {
            let error = read(full()).expect_err("the context failed").to_string();
            assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
        }
        if !is_open_again() {
            return;
        }
        assert_eq!(read(full()).expect("a device"), [2.0; 5]);
        let error = read(old.clone()).expect_err("memory that is gone").to_string();
        assert!(error.contains("before the device was opened again"), "{error}");
    }
    reopen(&DEVICE).expect("a healthy device");
    assert_eq!(read(full()).expect("a device"), [2.0; 5]);
}
