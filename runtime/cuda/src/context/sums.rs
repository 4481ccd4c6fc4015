//! Sums over several devices, by the vendor's library.

use super::{Context, Part};
use crate::driver::{Driver, Numbers};
use crate::runtime::CudaRuntime;
use crate::statistics::count;
use kiln_gpu::runtime;
use std::sync::Arc;

impl Context {
    /// See [`Runtime::all_reduce`](kiln_gpu::runtime::Runtime::all_reduce).
    pub fn all_reduce(contexts: &[Arc<Self>], sets: &[Vec<runtime::Numbers<CudaRuntime>>]) -> bool {
        let contexts: Vec<&Self> = contexts.iter().map(|context| &**context).collect();
        let mut states = Self::all(&contexts);
        // A graph holds nothing of other devices.
        if states.iter().any(|state| state.captures()) {
            return false;
        }
        let mut parts: Vec<Vec<Part>> = Vec::with_capacity(sets.len());
        let mut numbers: Vec<Vec<Numbers>> = Vec::with_capacity(sets.len());
        for (context, set) in contexts.iter().zip(sets) {
            let of_set: Option<Vec<(Part, Numbers)>> = set.iter().map(|of| context.numbers(of)).collect();
            let Some(of_set) = of_set else { return false };
            let (set_parts, set_numbers) = of_set.into_iter().unzip();
            parts.push(set_parts);
            numbers.push(set_numbers);
        }
        for ((context, state), parts) in contexts.iter().zip(&mut states).zip(&parts) {
            // The kernels that wait may be to write the numbers, or still read them.
            context.begin_alone(state, parts);
            if state.missing(parts).is_some() {
                // Whoever adds them up otherwise is told why.
                return false;
            }
        }
        let [first, others @ ..] = &*contexts else { return false };
        let others: Vec<&dyn Driver> = others.iter().map(|context| &*context.driver).collect();
        match first.driver.all_reduce(&others, &numbers) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => {
                let reason = error.to_string().into();
                for ((context, state), parts) in contexts.iter().zip(&mut states).zip(&parts) {
                    context.lose(state, parts.iter().map(|part| part.id), &reason);
                }
            }
        }
        for (context, parts) in contexts.iter().zip(&parts) {
            count(&context.counters.library_calls, 1);
            count(&context.counters.moved_bytes, parts.iter().map(|part| part.bytes).sum());
        }
        true
    }

    /// Where numbers are, as a kernel sees them and as the driver does.
    fn numbers(&self, numbers: &runtime::Numbers<CudaRuntime>) -> Option<(Part, Numbers)> {
        let mut part = self.part(&numbers.memory)?;
        let start = part.address?.0 + numbers.bytes.start as u64;
        part.bytes = numbers.bytes.len();
        let count = numbers.bytes.len() / numbers.dtype.size();
        Some((part, Numbers { start: crate::driver::Address(start), count, dtype: numbers.dtype }))
    }
}
