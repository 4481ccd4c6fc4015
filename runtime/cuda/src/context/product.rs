//! Matrix products and convolutions by the vendor's libraries.

use super::{Context, Part};
use crate::driver::{self, Address, Driver, DriverError, Epilogue, Product};
use crate::memory::Memory;
use crate::runtime::CudaRuntime;
use crate::statistics::count;
use kiln_gpu::language::Factors;
use kiln_gpu::runtime::{self, Convolution, ConvolutionEpilogue, ConvolutionShape, MatrixProduct, Way};
use kiln_tensor::{Activation, DType};
use smallvec::{SmallVec, smallvec};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Names of the ways that a library advises.
const WAYS: [&str; driver::WAYS] = ["0", "1", "2", "3", "4", "5", "6", "7"];

impl Context {
    /// See [`Runtime::factors`](kiln_gpu::runtime::Runtime::factors).
    pub fn factors(&self, dtype: DType) -> Option<Factors> {
        let factors = match dtype {
            DType::F16 => Factors::F16,
            DType::BF16 => Factors::BF16,
            DType::F32 if self.tf32.load(Ordering::Relaxed) => Factors::TF32,
            DType::I8 => Factors::I8,
            DType::U8 => Factors::U8,
            DType::F64
            | DType::F32
            | DType::I64
            | DType::I32
            | DType::I16
            | DType::I4
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U4
            | DType::Bool => return None,
        };
        self.driver.multiplies(factors).then_some(factors)
    }

    /// See [`Runtime::product`](kiln_gpu::runtime::Runtime::product).
    pub fn product(self: &Arc<Self>, product: &MatrixProduct<'_, CudaRuntime>) -> bool {
        let MatrixProduct {
            dtype,
            size,
            count: matrix_count,
            ref lhs,
            ref rhs,
            bias,
            added,
            activation,
            out,
            sums,
        } = *product;
        if activation.is_some_and(|activation| !self.is_left_to_libraries(activation)) {
            return false;
        }
        let seen = self.exchanges.load(Ordering::Acquire);
        let bytes = dtype.size();
        let at = |memory: &Memory, start: usize| {
            let mut part = self.part(memory)?;
            part.address = part.address.map(|address| Address(address.0 + (start * bytes) as u64));
            Some(part)
        };
        let parts = [at(lhs.memory, lhs.start), at(rhs.memory, rhs.start), at(out, 0)];
        let [Some(left), Some(right), Some(result)] = parts else { return false };
        let [shift, more] = [bias, added].map(|of| of.and_then(|(memory, start)| at(memory, start)));
        let columns = sums.and_then(|memory| at(memory, 0));
        let ([Some(left_start), Some(right_start), Some(out_start)], false) = (
            [left, right, result].map(|part| part.address),
            [shift, more, columns].into_iter().flatten().any(|part| part.address.is_none()),
        ) else {
            return false;
        };
        let matrices = |start: Address, of: &runtime::Matrices<'_, CudaRuntime>| driver::Matrices {
            start,
            next: of.next,
            transposed: of.transposed,
            leading: of.leading,
        };
        let all: SmallVec<[Part; 5]> =
            [left, right, result].into_iter().chain(shift).chain(more).chain(columns).collect();
        let product = Product {
            dtype,
            tf32: self.tf32.load(Ordering::Relaxed),
            size,
            count: matrix_count,
            lhs: matrices(left_start, lhs),
            rhs: matrices(right_start, rhs),
            bias: shift.and_then(|shift| shift.address),
            added: more.and_then(|more| more.address),
            activation,
            out: out_start,
            sums: columns.and_then(|columns| columns.address),
        };
        if !self.driver.takes_product(&product) {
            return false;
        }
        let ask = |way: usize| {
            self.by_library((&all, seen), &[Some(result), columns], |driver| driver.product(&product, way))
        };
        // Done twice, what is added to itself is another number.
        match more.is_none_or(|more| more.id != result.id) {
            true => self.in_the_fastest_way(|| product.without_addresses(), ask),
            false => ask(0),
        }
    }

    /// See [`Runtime::convolution`](kiln_gpu::runtime::Runtime::convolution).
    pub fn convolution(self: &Arc<Self>, convolution: &Convolution<'_, CudaRuntime>) -> bool {
        let &Convolution { ref shape, channels_last, image, weight, result, ref epilogue } = convolution;
        let seen = self.exchanges.load(Ordering::Acquire);
        let parts = [image, weight, result].map(|memory| self.part(memory));
        let [Some(image), Some(weight), Some(result)] = parts else { return false };
        let addresses = [image, weight, result].map(|part| part.address);
        let [Some(at_image), Some(at_weight), Some(at_result)] = addresses else { return false };
        let mut all: SmallVec<[Part; 5]> = smallvec![image, weight, result];
        let epilogue = match epilogue.as_ref().map(|epilogue| self.epilogue(epilogue, &mut all)) {
            Some(None) => return false,
            known => known.flatten(),
        };
        let convolution = driver::Convolution {
            shape: self.convolution_shape(shape, channels_last),
            image: at_image,
            weight: at_weight,
            result: at_result,
            epilogue,
        };
        let ask = |way: usize| {
            self.by_library((&all, seen), &[Some(result)], |driver| driver.convolve(&convolution, way))
        };
        // As with products; the result is the third of them, and a residual is behind those.
        match all.iter().skip(3).any(|part| part.id == result.id) {
            true => ask(0),
            false => self.in_the_fastest_way(
                || {
                    let with = |epilogue: &Epilogue| (epilogue.residual.is_some(), epilogue.relu);
                    (convolution.shape.clone(), convolution.epilogue.as_ref().map(with))
                },
                ask,
            ),
        }
    }

    /// See [`Runtime::channels_if_last`](kiln_gpu::runtime::Runtime::channels_if_last).
    pub fn channels_if_last(&self, shape: &ConvolutionShape<'_>) -> Option<usize> {
        self.driver.channels_if_last(&self.convolution_shape(shape, true))
    }

    fn convolution_shape(
        &self,
        shape: &ConvolutionShape<'_>,
        channels_last: bool,
    ) -> driver::ConvolutionShape {
        let &ConvolutionShape { dtype, direction, windows, batch, groups, channels } = shape;
        let (tf32, windows) = (self.tf32.load(Ordering::Relaxed), windows.clone());
        driver::ConvolutionShape { dtype, tf32, direction, windows, batch, groups, channels, channels_last }
    }

    /// Whether libraries may compute an activation, should they have it.
    fn is_left_to_libraries(&self, activation: Activation) -> bool {
        activation != Activation::Relu || self.library_relu.load(Ordering::Relaxed)
    }

    /// What is done to the results of a convolution, where a library may do that; adds the memory that is read for it to `parts`.
    fn epilogue(
        &self,
        epilogue: &ConvolutionEpilogue<'_, CudaRuntime>,
        parts: &mut SmallVec<[Part; 5]>,
    ) -> Option<Epilogue> {
        let relu = match epilogue.activation {
            None => false,
            Some(activation @ Activation::Relu) if self.is_left_to_libraries(activation) => true,
            Some(_) => return None,
        };
        let mut address = |memory: &Memory| {
            let part = self.part(memory)?;
            parts.push(part);
            part.address
        };
        let bias = address(epilogue.bias)?;
        let residual = match epilogue.residual {
            Some(memory) => Some(address(memory)?),
            None => None,
        };
        Some(Epilogue { bias, residual, relu })
    }

    /// Asks a library for some work [in the way](Driver::product) that it takes for the fastest, or where ways are timed, in the one that was; says whether it does it.
    fn in_the_fastest_way<W: Debug>(
        self: &Arc<Self>,
        work: impl FnOnce() -> W,
        ask: impl Fn(usize) -> bool,
    ) -> bool {
        if !self.tuning.is_on() {
            return ask(0);
        }
        let class = format!("ways of {}: {:?}", self.driver.libraries(), work());
        // What is refused as it is advised first is left to kernels.
        let mut is_refused = false;
        let way = self.fastest(&class, &WAYS.map(|name| Way { name, kernel: None }), &mut |way| {
            let is_done = !is_refused && ask(way);
            is_refused |= way == 0 && !is_done;
            is_done
        });
        // Of what is alike, not all can be done in the same ways.
        ask(way) || way > 0 && ask(0)
    }

    /// Asks a library, behind all that uses its buffers; says whether it does it, or failed at it. The parts were looked at when so many buffers had been
    /// [exchanged](crate::memory::Buffer::exchange).
    fn by_library(
        &self,
        (parts, seen): (&[Part], u64),
        written: &[Option<Part>],
        ask: impl Fn(&dyn Driver) -> Result<bool, DriverError>,
    ) -> bool {
        let mut state = self.state();
        if self.exchanges.load(Ordering::Acquire) != seen || state.given_up().is_some() {
            // A tensor may be elsewhere now, or nothing is to run, which a kernel knows.
            return false;
        }
        self.begin_alone(&mut state, parts);
        if state.missing(parts).is_some() {
            // A kernel, which is not run either, knows what is lost by that.
            return false;
        }
        match self.with_memory(&mut state, parts, ask) {
            Ok(false) => return false,
            Ok(true) => {
                if let Some(capture) = &mut state.capture {
                    capture.written.extend(written.iter().flatten().map(|part| part.id));
                }
            }
            Err(error) => {
                let written = written.iter().flatten().map(|part| part.id);
                self.lose(&mut state, written, &self.reason(&error).into());
            }
        }
        state.reserve(parts.iter().map(|part| part.id));
        count(&self.counters.launches, 1);
        count(&self.counters.library_calls, 1);
        count(&self.counters.moved_bytes, parts.iter().map(|part| part.bytes).sum());
        true
    }
}
