//! Fourier transforms: complex spectra of signals, and signals of spectra.
//!
//! ONNX's `DFT` and `STFT` have pairs of real and imaginary parts along a last axis. `DFT` divides by the length where it is inverse.

use super::complex::{self, pairs_of_parts, parts_of_pairs};
use super::shape::rolled;
use super::{Table, family};
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, flag, ints, invalid, string, unsupported};
use crate::pt2::value::{Output, Value};
use kiln_types::{DType, Scalar, quoted};

macro_rules! all_real {
    ($rule:expr) => {
        |call| complex::real($rule(call)?)
    };
}

/// Those whose operands and results may all be real.
pub(super) const RULES: Table = &[
    ("fft_fftfreq.default", |call| frequencies(call, false)),
    ("fft_fftshift.default", |call| shifted(call, false)),
    ("fft_hfft.default", all_real!(hermitian)),
    ("fft_ifftshift.default", |call| shifted(call, true)),
    ("fft_irfft.default", |call| complex::real(one_axis(call, Kind::RealOfSpectrum)?)),
    ("fft_irfft2.default", |call| complex::real(axes_in_order(call, Kind::RealOfSpectrum)?)),
    ("fft_irfftn.default", |call| complex::real(axes_in_order(call, Kind::RealOfSpectrum)?)),
    ("fft_rfftfreq.default", |call| frequencies(call, true)),
    ("stft.center", all_real!(short_time)),
    ("stft.default", all_real!(short_time)),
];

/// Those of which an operand or the result is complex.
pub(super) const COMPLEX_RULES: complex::Table = &[
    ("_fft_c2c.default", core),
    ("_fft_c2r.default", core),
    ("_fft_r2c.default", core),
    ("fft_fft.default", |call| one_axis(call, Kind::Forward)),
    ("fft_fft2.default", |call| axes_in_order(call, Kind::Forward)),
    ("fft_fftn.default", |call| axes_in_order(call, Kind::Forward)),
    ("fft_hfft.default", hermitian),
    ("fft_ifft.default", |call| one_axis(call, Kind::Inverse)),
    ("fft_ifft2.default", |call| axes_in_order(call, Kind::Inverse)),
    ("fft_ifftn.default", |call| axes_in_order(call, Kind::Inverse)),
    ("fft_ihfft.default", |call| {
        let x = operand(call)?;
        let axis = call.axis("dim", -1, &x.real)?;
        let length = call.optional_size("n")?;
        let exponent = Norm::of(call)?.exponent(Kind::Inverse);
        let half = transformed(call, x, &[(axis, length)], Kind::HalfOfSignal, exponent)?;
        Ok(conjugate(call, half).output())
    }),
    ("fft_irfft.default", |call| one_axis(call, Kind::RealOfSpectrum)),
    ("fft_irfft2.default", |call| axes_in_order(call, Kind::RealOfSpectrum)),
    ("fft_irfftn.default", |call| axes_in_order(call, Kind::RealOfSpectrum)),
    ("fft_rfft.default", |call| one_axis(call, Kind::HalfOfSignal)),
    ("fft_rfft2.default", |call| axes_in_order(call, Kind::HalfOfSignal)),
    ("fft_rfftn.default", |call| axes_in_order(call, Kind::HalfOfSignal)),
    ("istft.default", signal_of_frames),
    ("stft.center", short_time),
    ("stft.default", short_time),
];

/// What a transform takes, and what it yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Forward,
    Inverse,
    /// The first half of the spectrum of a real signal, whose other half is conjugate to it.
    HalfOfSignal,
    /// A real signal of the first half of its spectrum.
    RealOfSpectrum,
}

impl Kind {
    fn is_inverse(self) -> bool {
        matches!(self, Kind::Inverse | Kind::RealOfSpectrum)
    }

    /// What it is along all axes but the last one of several.
    fn before(self) -> Self {
        if self.is_inverse() { Kind::Inverse } else { Kind::Forward }
    }
}

/// The direction in which transforms are divided by their length.
#[derive(Clone, Copy)]
enum Norm {
    Backward,
    /// Each direction by the root.
    Ortho,
    Forward,
}

impl Norm {
    fn of(call: &Call<'_, '_>) -> Result<Self> {
        match call.string_or("norm", "backward")? {
            "backward" => Ok(Norm::Backward),
            "ortho" => Ok(Norm::Ortho),
            "forward" => Ok(Norm::Forward),
            other => Err(invalid("norm", format!("is {}, which is no norm", quoted(other)))),
        }
    }

    /// The power of the length that a transform in the direction of another is multiplied with.
    fn exponent(self, kind: Kind) -> f64 {
        match (self, kind.is_inverse()) {
            (Norm::Backward, false) | (Norm::Forward, true) => 0.0,
            (Norm::Ortho, _) => -0.5,
            (Norm::Backward, true) | (Norm::Forward, false) => -1.0,
        }
    }
}

/// A signal or a spectrum, without imaginary parts where it is real.
struct Signal {
    real: Tensor,
    imaginary: Option<String>,
}

impl Signal {
    fn output(self) -> Vec<Output> {
        vec![match self.imaginary {
            Some(imaginary) => Output::Complex([self.real.name, imaginary]),
            None => Output::Real(self.real.name),
        }]
    }
}

/// The first argument, in the dtype of the result.
fn operand(call: &mut Call<'_, '_>) -> Result<Signal> {
    let dtype = call.of_parts(&[]).result_dtype()?;
    Ok(match call.value("self")? {
        Value::Tensor(x) => {
            Signal { real: Tensor { name: call.cast_tensor(&x, dtype), dtype, ..x }, imaginary: None }
        }
        Value::Complex(complex) => {
            let [real, imaginary] = &complex.parts;
            let imaginary =
                (!call.to.are_zeros(imaginary)).then(|| call.cast(imaginary, complex.dtype, dtype));
            let real = call.cast(real, complex.dtype, dtype);
            Signal { real: Tensor { name: real, dtype, sizes: complex.sizes }, imaginary }
        }
    })
}

fn conjugate(call: &mut Call<'_, '_>, x: Signal) -> Signal {
    let imaginary = x.imaginary.map(|imaginary| call.op("Neg", &[&imaginary], Vec::new()));
    Signal { imaginary, ..x }
}

/// A transform along an axis, and its length.
fn along(
    call: &mut Call<'_, '_>,
    x: Signal,
    axis: i64,
    length: Option<Int>,
    kind: Kind,
) -> Result<(Signal, Int)> {
    let own = call.size_of(&x.real, axis);
    let length = match length {
        Some(length) => length,
        None if kind == Kind::RealOfSpectrum => {
            let last = call.size_op("Sub", &own, &Int::Known(1));
            call.size_op("Mul", &last, &Int::Known(2))
        }
        None => own.clone(),
    };
    let pairs = match (&x.imaginary, kind) {
        (Some(_), Kind::HalfOfSignal) => return Err(unsupported("half of the spectrum of complex numbers")),
        (Some(imaginary), _) => pairs_of_parts(call, &[x.real.name.clone(), imaginary.clone()]),
        (None, Kind::RealOfSpectrum) => {
            let zeros = call.zeros_like(x.real.clone()).name;
            pairs_of_parts(call, &[x.real.name.clone(), zeros])
        }
        (None, _) => call.unsqueeze(&x.real, &[-1]),
    };
    let resized = kind == Kind::RealOfSpectrum || !length.is(&own);
    let given = if resized { call.size_value(&length) } else { String::new() };
    let axis_value = call.int64(axis);
    let half = matches!(kind, Kind::HalfOfSignal | Kind::RealOfSpectrum);
    let attributes = vec![flag("inverse", kind.is_inverse()), flag("onesided", half)];
    let found = call.op("DFT", &[&pairs, &given, &axis_value], attributes);
    let mut sizes = x.real.sizes.clone();
    if let Some(size) = usize::try_from(axis).ok().and_then(|axis| sizes.get_mut(axis)) {
        *size = match (&length, kind) {
            (Int::Known(length), Kind::HalfOfSignal) => Some(length / 2 + 1),
            (Int::Known(length), _) => Some(*length),
            (Int::Value(_), _) => None,
        };
    }
    let (name, imaginary) = if kind == Kind::RealOfSpectrum {
        (call.squeeze(&found, &[-1]), None)
    } else {
        let [real, imaginary] = parts_of_pairs(call, &found, sizes.len());
        (real, Some(imaginary))
    };
    Ok((Signal { real: Tensor { name, sizes, ..x.real }, imaginary }, length))
}

/// A transform along some axes, each of a length if one is given, multiplied with a power of the lengths' product.
fn transformed(
    call: &mut Call<'_, '_>,
    x: Signal,
    axes: &[(i64, Option<Int>)],
    kind: Kind,
    exponent: f64,
) -> Result<Signal> {
    let Some(((last, last_length), before)) = axes.split_last() else {
        return Err(unsupported("a Fourier transform along no axis"));
    };
    let mut x = x;
    let mut count = Int::Known(1);
    // Half a spectrum is taken first, or made a signal last: along the last axis.
    let first = kind != Kind::RealOfSpectrum;
    let last = [(*last, last_length.clone(), kind)];
    let before = before.iter().rev().map(|(axis, length)| (*axis, length.clone(), kind.before()));
    let (head, tail) = if first { (&last[..], &[][..]) } else { (&[][..], &last[..]) };
    for (axis, length, kind) in head.iter().cloned().chain(before).chain(tail.iter().cloned()) {
        let (next, length) = along(call, x, axis, length, kind)?;
        x = next;
        count = call.size_op("Mul", &count, &length);
    }
    // ONNX has divided already.
    let exponent = if kind.is_inverse() { exponent + 1.0 } else { exponent };
    if exponent == 0.0 {
        return Ok(x);
    }
    let dtype = x.real.dtype;
    let factor = match count {
        Int::Known(count) => call.number_of((count as f64).powf(exponent), dtype),
        Int::Value(count) => {
            let count = call.cast(&count, DType::I64, dtype);
            let exponent = call.number_of(exponent, dtype);
            call.op("Pow", &[&count, &exponent], Vec::new())
        }
    };
    let mut times = |part: &str| call.op("Mul", &[part, &factor], Vec::new());
    let real = Tensor { name: times(&x.real), ..x.real };
    Ok(Signal { real, imaginary: x.imaginary.as_deref().map(times) })
}

fn one_axis(call: &mut Call<'_, '_>, kind: Kind) -> Result<Vec<Output>> {
    let x = operand(call)?;
    let axis = call.axis("dim", -1, &x.real)?;
    let length = call.optional_size("n")?;
    let exponent = Norm::of(call)?.exponent(kind);
    Ok(transformed(call, x, &[(axis, length)], kind, exponent)?.output())
}

/// Along several axes: those that are named, or the last ones, as many as there are lengths, or all.
fn axes_in_order(call: &mut Call<'_, '_>, kind: Kind) -> Result<Vec<Output>> {
    let x = operand(call)?;
    let lengths = if call.has("s") { Some(call.sizes("s")?) } else { None };
    let of_images = family(&call.node.target).ends_with('2');
    let axes: Vec<i64> = if call.has("dim") {
        call.axes("dim", &x.real)?
    } else {
        let count = match &lengths {
            _ if of_images => 2,
            Some(lengths) => lengths.len(),
            None => x.real.rank(),
        };
        let before = x
            .real
            .rank()
            .checked_sub(count)
            .ok_or_else(|| invalid("s", "has more numbers than there are axes"))?;
        (0..).take(x.real.rank()).skip(before).collect()
    };
    let lengths = match lengths {
        Some(lengths) if lengths.len() == axes.len() => {
            // One of -1 is that of the axis.
            lengths
                .into_iter()
                .map(|length| Some(length).filter(|length| !matches!(length, Int::Known(-1))))
                .collect()
        }
        Some(lengths) => {
            return Err(invalid("s", format!("has {} numbers for {} axes", lengths.len(), axes.len())));
        }
        None => vec![None; axes.len()],
    };
    let axes: Vec<(i64, Option<Int>)> = axes.into_iter().zip(lengths).collect();
    let exponent = Norm::of(call)?.exponent(kind);
    Ok(transformed(call, x, &axes, kind, exponent)?.output())
}

/// A real spectrum of half a signal that is conjugate to its other half.
fn hermitian(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let x = operand(call)?;
    let axis = call.axis("dim", -1, &x.real)?;
    let length = call.optional_size("n")?;
    let exponent = Norm::of(call)?.exponent(Kind::Forward);
    let x = conjugate(call, x);
    Ok(transformed(call, x, &[(axis, length)], Kind::RealOfSpectrum, exponent)?.output())
}

/// The operators that all others are made of.
fn core(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let x = operand(call)?;
    let mut axes: Vec<(i64, Option<Int>)> =
        call.axes("dim", &x.real)?.into_iter().map(|axis| (axis, None)).collect();
    let kind = match family(&call.node.target) {
        "_fft_c2r" => {
            let length = call.size("last_dim_size")?;
            if let Some((_, last)) = axes.last_mut() {
                *last = Some(length);
            }
            Kind::RealOfSpectrum
        }
        "_fft_r2c" if call.bool_or("onesided", true)? => Kind::HalfOfSignal,
        "_fft_c2c" if !call.bool_or("forward", true)? => Kind::Inverse,
        _ => Kind::Forward,
    };
    let exponent = match call.int("normalization")? {
        0 => 0.0,
        1 => -0.5,
        2 => -1.0,
        other => return Err(invalid("normalization", format!("is {other}, which is none"))),
    };
    Ok(transformed(call, x, &axes, kind, exponent)?.output())
}

// ---- frequencies ----

/// The frequencies of a spectrum, or of its first half.
fn frequencies(call: &mut Call<'_, '_>, half: bool) -> Result<Outputs> {
    /// Longer spectra than this are none.
    const MOST: i64 = 1 << 20;
    let (length, spacing) = (call.int("n")?, call.float_or("d", 1.0)?);
    if !(1..=MOST).contains(&length) {
        return Err(unsupported(format!("the frequencies of a spectrum of {length} numbers")));
    }
    call.to.spend(usize::try_from(length).unwrap_or(usize::MAX))?;
    let dtype = call.result_dtype()?;
    let count = if half { length / 2 + 1 } else { length };
    let turns = |place: i64| if half || 2 * place < length { place } else { place - length };
    let numbers: Vec<f64> = (0..count).map(|place| turns(place) as f64 / (length as f64 * spacing)).collect();
    Ok(vec![call.floats(&numbers, dtype)])
}

/// The frequency 0 in the middle of each axis, or at its beginning again.
fn shifted(call: &mut Call<'_, '_>, back: bool) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let axes = if call.has("dim") { call.axes("dim", &x)? } else { (0..).take(x.rank()).collect() };
    let mut value = x.name.clone();
    for axis in axes {
        let mut size = call.size_of(&x, axis);
        if back {
            size = call.size_op("Add", &size, &Int::Known(1));
        }
        let shift = call.size_op("Div", &size, &Int::Known(2));
        value = rolled(call, value, &shift, axis);
    }
    Ok(vec![value])
}

// ---- frames ----

/// A window of the length of a frame: shorter ones stand in its middle.
fn window(call: &mut Call<'_, '_>, size: i64, dtype: DType) -> Result<String> {
    let length = call.int_or("win_length", size)?;
    let window = match call.optional_tensor("window")? {
        Some(window) => call.cast_tensor(&window, dtype),
        None => {
            let shape = call.int64s(&[length]);
            call.filled(&shape, Scalar::Int(1), dtype)
        }
    };
    if length >= size {
        return Ok(window);
    }
    let before = size.saturating_sub(length) / 2;
    let after = size.saturating_sub(length).saturating_sub(before);
    let pads = call.int64s(&[before, after]);
    Ok(call.op("Pad", &[&window, &pads], Vec::new()))
}

/// Spectra of frames.
fn short_time(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let x = call.tensor("self")?;
    let size = call.int("n_fft")?;
    let hop = call.int_or("hop_length", size / 4)?;
    let half = call.bool_or("onesided", true)?;
    let window = window(call, size, x.dtype)?;
    let mut signal = if x.rank() == 1 { call.unsqueeze(&x, &[0]) } else { x.name.clone() };
    if super::name(&call.node.target) == "stft.center" && call.bool_or("center", true)? {
        let mode = match call.string_or("pad_mode", "reflect")? {
            "replicate" => "edge",
            "circular" => "wrap",
            mode @ ("constant" | "reflect") => mode,
            other => {
                return Err(invalid("pad_mode", format!("is {}, which is no way to pad", quoted(other))));
            }
        };
        let pads = call.int64s(&[0, size / 2, 0, size / 2]);
        signal = call.op("Pad", &[&signal, &pads], vec![string("mode", mode)]);
    }
    let (hop, size_value) = (call.int64(hop), call.int64(size));
    let signal = call.unsqueeze(&signal, &[-1]);
    let found = call.op("STFT", &[&signal, &hop, &window, &size_value], vec![flag("onesided", half)]);
    let mut found = call.transpose(&found, &[0, 2, 1, 3]);
    if call.bool_or("normalized", false)? {
        let scale = call.number_of((size as f64).sqrt().recip(), x.dtype);
        found = call.op("Mul", &[&found, &scale], Vec::new());
    }
    let found = if x.rank() == 1 { call.squeeze(&found, &[0]) } else { found };
    Ok(vec![if call.yields_complex() {
        Output::Complex(parts_of_pairs(call, &found, x.rank() + 1))
    } else {
        Output::Real(found)
    }])
}

/// Frames, `[batch, size, frames]`, each laid behind the one before by a step, and summed.
fn overlapped(call: &mut Call<'_, '_>, frames: &str, size: i64, hop: i64, length: &Int) -> String {
    let image = call.sizes_value(&[Int::Known(1), length.clone()]);
    let block = call.int64s(&[1, size]);
    let summed = call.op("Col2Im", &[frames, &image, &block], vec![ints("strides", [1, hop])]);
    call.squeeze(&summed, &[1, 2])
}

/// The signal whose frames have these spectra: their windowed sum over the sum of the windows' squares.
fn signal_of_frames(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    if call.bool_or("return_complex", false)? {
        return Err(unsupported("`istft` of complex signals"));
    }
    let mut spectra = operand(call)?;
    let dtype = spectra.real.dtype;
    let batched = spectra.real.rank() == 3;
    if !batched {
        spectra.real.name = call.unsqueeze(&spectra.real, &[0]);
        spectra.imaginary = spectra.imaginary.map(|part| call.unsqueeze(&part, &[0]));
        spectra.real.sizes.insert(0, Some(1));
    }
    let size = call.int("n_fft")?;
    let hop = call.int_or("hop_length", size / 4)?;
    if size < 1 || hop < 1 {
        return Err(invalid("hop_length", "and `n_fft` must be positive"));
    }
    let exponent = if call.bool_or("normalized", false)? { -0.5 } else { -1.0 };
    let count = call.size_of(&spectra.real, 2);
    // Of a whole spectrum PyTorch, too, takes the first half.
    call.ignore(&["onesided"]);
    let axes = [(1, Some(Int::Known(size)))];
    let frames = transformed(call, spectra, &axes, Kind::RealOfSpectrum, exponent)?;
    let window = window(call, size, dtype)?;
    let column = call.unsqueeze(&window, &[1]);
    let windowed = call.op("Mul", &[&frames.real, &column], Vec::new());
    let square = call.op("Mul", &[&column, &column], Vec::new());
    let shape = call.sizes_value(&[Int::Known(1), Int::Known(size), count.clone()]);
    let squares = call.op("Expand", &[&square, &shape], Vec::new());
    let steps = call.size_op("Sub", &count, &Int::Known(1));
    let steps = call.size_op("Mul", &steps, &Int::Known(hop));
    let whole = call.size_op("Add", &steps, &Int::Known(size));
    let start = if call.bool_or("center", true)? { size / 2 } else { 0 };
    let length = call.optional_size("length")?;
    let end = match &length {
        Some(length) => call.size_op("Add", length, &Int::Known(start)),
        None => call.size_op("Sub", &whole, &Int::Known(start)),
    };
    let parts = [windowed, squares].map(|frames| {
        let summed = overlapped(call, &frames, size, hop, &whole);
        call.slice(&summed, 1, [&Int::Known(start), &end], 1)
    });
    let [sum, weights] = &parts;
    let mut signal = call.op("Div", &[sum, weights], Vec::new());
    if length.is_some() {
        // Zeros where no frame reaches.
        let missing = match call.size_op("Sub", &end, &whole) {
            Int::Known(missing) => Int::Known(missing.max(0)),
            Int::Value(missing) => {
                let zero = call.int64(0);
                Int::Value(call.op("Max", &[&missing, &zero], Vec::new()))
            }
        };
        if !matches!(missing, Int::Known(0)) {
            let pads = call.sizes_value(&[Int::Known(0), Int::Known(0), Int::Known(0), missing]);
            signal = call.op("Pad", &[&signal, &pads], Vec::new());
        }
    }
    Ok(vec![Output::Real(if batched { signal } else { call.squeeze(&signal, &[0]) })])
}
