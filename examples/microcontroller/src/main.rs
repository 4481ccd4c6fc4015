//! Three networks on a Cortex-M4F: nothing is allocated, their memory is counted when they are compiled. The first reads 360 handwritten
//! digits that it has never seen, the others are compared with what the original networks computed.
#![no_std]
#![no_main]

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};
use panic_semihosting as _;

mod digits {
    include!(concat!(env!("OUT_DIR"), "/digits/model.rs"));
}

mod tagger {
    include!(concat!(env!("OUT_DIR"), "/tagger/model.rs"));
}

mod quantized {
    include!(concat!(env!("OUT_DIR"), "/quantized/model.rs"));
}

/// Images of 8 × 8 pixels from 0 to 16, each with its label behind it.
static HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const PIXELS: usize = 8 * 8;

/// A data set that came with a network.
macro_rules! golden {
    ($file:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".bin"))
    };
}

#[entry]
fn main() -> ! {
    let correct = read_digits();
    hprintln!("digits: {} of 360 right", correct);

    let mut words = [0i64; 18];
    read(golden!("tagger.input_0"), &mut words, i64::from_le_bytes);
    let mut tagger = tagger::Model::new();
    let tags = difference(tagger.forward(&words), golden!("tagger.output_0"));
    hprintln!("tagger: largest difference {:e}", tags);

    let mut image = [0f32; 1536];
    read(golden!("quantized.input_0"), &mut image, f32::from_le_bytes);
    let mut quantized = quantized::Model::new();
    let scores = difference(quantized.forward(&image), golden!("quantized.output_0"));
    hprintln!("quantized: largest difference {:e}", scores);

    let is_right = correct == 356 && tags < 1e-5 && scores < 1e-5;
    hprintln!("{}", if is_right { "all well" } else { "FAILED" });
    loop {
        debug::exit(if is_right { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    }
}

/// How many of the digits are read right.
fn read_digits() -> usize {
    let mut model = digits::Model::new();
    let mut image = [0f32; PIXELS];
    let mut is_right = |record: &[u8]| {
        for (x, &pixel) in image.iter_mut().zip(record) {
            *x = f32::from(pixel) / 16.0;
        }
        let logits = model.forward(&image);
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        best == Some(usize::from(record[PIXELS]))
    };
    HELD_OUT.chunks_exact(PIXELS + 1).map(|record| usize::from(is_right(record))).sum()
}

/// Numbers of `N` bytes each.
fn read<const N: usize, T>(bytes: &[u8], into: &mut [T], from: impl Fn([u8; N]) -> T) {
    for (number, bytes) in into.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *number = from(*bytes);
    }
}

/// The largest difference from what the original network computed.
fn difference(actual: &[f32], expected: &[u8]) -> f32 {
    let expected = expected.as_chunks::<4>().0;
    assert_eq!(actual.len(), expected.len());
    let differences = actual.iter().zip(expected).map(|(actual, &bytes)| (actual - f32::from_le_bytes(bytes)).abs());
    differences.fold(0.0, f32::max)
}
