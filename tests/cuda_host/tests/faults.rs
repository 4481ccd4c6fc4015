//! What a device does not forgive, and a host that runs threads in turns would not show: each such kernel is refused.

#![cfg(target_os = "linux")]

use kiln_cuda_host::{compile, load, run};
use kiln_gpu::language::cuda;

/// A kernel of 64 threads as the printer writes it, with a shared array of 64 words, a buffer that it writes and one that it reads.
fn kernel(matrices: bool, body: &str) -> String {
    let matrices = if matrices { cuda::MATRICES } else { "" };
    let prelude = cuda::PRELUDE;
    format!(
        "{prelude}{matrices}__shared__ __align__(16) unsigned shared_0[64];
extern \"C\" __global__ void __launch_bounds__(64) kiln_test(
    unsigned* __restrict__ buffer_0,
    const uint4* __restrict__ buffer_1,
    unsigned last_0,
    unsigned last_1
) {{
    const unsigned own = threadIdx.x;
{body}
    __syncthreads();
}}
"
    )
}

/// Runs a kernel in so many blocks, of which the words of the first buffer begin with 0, and those of the other are their places; yields the first.
fn ran(body: &str, blocks: u32, matrices: bool) -> Result<Vec<u32>, String> {
    #[repr(align(16))]
    struct Aligned([u32; 256]);
    let folder = tempfile::tempdir().expect("a folder");
    let function = load(&compile(&kernel(matrices, body), folder.path())?, folder.path())?;
    let mut written = Aligned([0; 256]);
    let read = Aligned(std::array::from_fn(|n| n as u32));
    let buffers = [written.0.as_mut_ptr() as u64, read.0.as_ptr() as u64];
    run(&function, [blocks, 1, 1], [64, 1], &buffers, &[255, 63])?;
    Ok(written.0.to_vec())
}

struct Case {
    body: &'static str,
    blocks: u32,
    matrices: bool,
    /// What is said of it; nothing where all is well.
    fault: Option<&'static str>,
}

const WELL: Case = Case { body: "", blocks: 1, matrices: false, fault: None };

#[test]
fn faults_of_devices_are_told() {
    let cases = [
        Case { body: "shared_0[own] = own; __syncthreads(); buffer_0[own] = shared_0[63u - own];", ..WELL },
        Case {
            body: "shared_0[own] = own; buffer_0[own] = shared_0[(own + 1u) % 64u];",
            fault: Some("a thread reads of a shared array what another wrote before no barrier"),
            ..WELL
        },
        // Lanes that hear of each other have not seen what each wrote.
        Case {
            body: "shared_0[own] = own; const unsigned x = exchange(own, 1u); buffer_0[own] = shared_0[x];",
            fault: Some("a thread reads of a shared array what another wrote before no barrier"),
            ..WELL
        },
        Case {
            body: "shared_0[own] = own; __syncthreads(); const unsigned x = shared_0[(own + 1u) % 64u]; shared_0[own] = x;",
            fault: Some("a thread writes over what another read of a shared array before no barrier"),
            ..WELL
        },
        Case { body: "shared_0[own / 2u] = 7u;", ..WELL },
        Case {
            body: "shared_0[own / 2u] = own;",
            fault: Some("two threads write different numbers to a place of a shared array before a barrier"),
            ..WELL
        },
        Case {
            body: "shared_0[own + 1u] = own;",
            fault: Some("a place beyond a shared array"),
            ..WELL
        },
        Case {
            body: "if (own < 32u) { __syncthreads(); }",
            fault: Some("some threads of a block wait where others do not come"),
            ..WELL
        },
        Case {
            body: "if (own < 32u) { __syncthreads(); } else { buffer_0[own] = exchange(own, 1u); }",
            fault: Some("some threads wait at a barrier, others for lanes"),
            ..WELL
        },
        // Buffers.
        Case { body: "buffer_0[blockIdx.x * 64u + own] = own;", blocks: 2, ..WELL },
        Case {
            body: "buffer_0[own] = blockIdx.x;",
            blocks: 2,
            fault: Some("two threads of a launch write different numbers to a place of a buffer"),
            ..WELL
        },
        Case {
            body: "buffer_0[own] = own; __syncthreads(); const unsigned x = buffer_0[63u - own]; buffer_0[own + 64u] = x;",
            fault: Some("a thread reads of a buffer what another of the launch wrote"),
            ..WELL
        },
        Case {
            body: "const unsigned x = buffer_0[(own + 63u) % 64u]; buffer_0[own] = x + 1u;",
            fault: Some("a thread writes to a buffer what another of the launch read"),
            ..WELL
        },
        // The last block sees what all of them wrote, if each says so before it is counted.
        Case {
            body: "buffer_0[blockIdx.x * 64u + own] = own; __threadfence(); __syncthreads();
    if (own == 0u) { shared_0[0u] = atomicInc(&buffer_0[255u], 1u); }
    __syncthreads();
    if (shared_0[0u] == 1u) { __threadfence(); const unsigned x = buffer_0[own] + buffer_0[own + 64u]; buffer_0[own + 128u] = x; }",
            blocks: 2,
            ..WELL
        },
        Case {
            body: "buffer_0[blockIdx.x * 64u + own] = own; __syncthreads();
    if (own == 0u) { atomicInc(&buffer_0[255u], 1u); }",
            blocks: 2,
            fault: Some("a block is counted before others see what it wrote"),
            ..WELL
        },
        // Copies.
        Case {
            body: "if (own < 16u) { copy_four(&shared_0[own * 4u], &buffer_1[own], true); }
    copies_done(); __syncthreads(); buffer_0[own] = shared_0[own];",
            matrices: true,
            ..WELL
        },
        Case {
            body: "if (own < 16u) { copy_four(&shared_0[own * 4u], &buffer_1[own], true); }
    copies_done(); buffer_0[own] = shared_0[own];",
            matrices: true,
            fault: Some("a thread writes over what another read of a shared array before no barrier"),
            ..WELL
        },
        Case {
            body: "if (own < 16u) { copy_four(&shared_0[own * 4u], &buffer_1[own], true); }
    __syncthreads(); buffer_0[own] = shared_0[own];",
            matrices: true,
            fault: Some("a copy is looked at before it is waited for"),
            ..WELL
        },
        Case {
            body: "if (own < 16u) { copy_four(&shared_0[own * 4u], &buffer_1[own], true); }",
            matrices: true,
            fault: Some("a thread ends before its copies"),
            ..WELL
        },
        Case {
            body: "if (own < 16u) { *(uint4*)&shared_0[own * 4u + 1u] = uint4{0, 0, 0, 0}; }",
            fault: Some("four neighbours of a shared array that do not lie at 16 bytes"),
            ..WELL
        },
    ];
    for Case { body, blocks, matrices, fault } in cases {
        let said = ran(body, blocks, matrices).err();
        let is_expected = match (fault, &said) {
            (None, None) => true,
            (Some(fault), Some(said)) => said.starts_with(fault),
            (None, Some(_)) | (Some(_), None) => false,
        };
        assert!(is_expected, "{body}\n{fault:?}\n{said:?}");
    }
}

#[test]
fn kernels_that_are_well_compute_as_on_a_device() {
    let turned = ran("shared_0[own] = own; __syncthreads(); buffer_0[own] = shared_0[63u - own];", 1, false);
    assert_eq!(turned.expect("a kernel")[..64], (0..64).rev().collect::<Vec<u32>>());
    let copied = ran(
        "if (own < 16u) { copy_four(&shared_0[own * 4u], &buffer_1[own], own < 8u); }
    copies_done(); __syncthreads(); buffer_0[own] = shared_0[own];",
        1,
        true,
    );
    let expected = (0..64).map(|n| if n < 32 { n } else { 0 });
    assert_eq!(copied.expect("a kernel")[..64], expected.collect::<Vec<u32>>());
}

/// The compiler takes what is read alone for what nobody changes, and reads it whenever it likes.
#[test]
fn what_is_written_is_no_other_buffer_of_the_launch() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = kernel(false, "    buffer_0[own] = buffer_1[own / 4u].x;");
    let function = load(&compile(&text, folder.path()).expect("a kernel"), folder.path()).expect("a kernel");
    let mut words = vec![0_u128; 128];
    let start = words.as_mut_ptr() as u64;
    let refused = |buffers: [u64; 2]| run(&function, [1; 3], [64, 1], &buffers, &[63, 15]).err();
    assert_eq!(refused([start, start + 256]), None);
    let overlap = "a launch writes buffer 0, which it was given as another too";
    assert_eq!(refused([start, start + 240]).as_deref(), Some(overlap));
    assert_eq!(refused([start, start]).as_deref(), Some(overlap));
    let apart = refused([start, start + 264]).expect("a fault");
    assert!(apart.starts_with("buffer 1 of 16 bytes an element begins at"), "{apart}");
}

#[test]
fn grids_that_no_device_takes_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = kernel(false, "");
    let function = load(&compile(&text, folder.path()).expect("a kernel"), folder.path()).expect("a kernel");
    let words = vec![0_u128; 128];
    let start = words.as_ptr() as u64;
    let refused = |blocks, threads| run(&function, blocks, threads, &[start, start + 256], &[63, 15]).err();
    assert_eq!(refused([1; 3], [64, 1]), None);
    for (blocks, threads) in
        [([0, 1, 1], [64, 1]), ([1, 65_536, 1], [64, 1]), ([1; 3], [0, 1]), ([1; 3], [64, 2])]
    {
        let said = refused(blocks, threads).expect("a fault");
        assert!(said.starts_with("no device runs"), "{said}");
    }
    let large = text.replace("shared_0[64]", "shared_0[12289]");
    assert!(compile(&large, folder.path()).is_err_and(|said| said.contains("more shared memory")));
}
