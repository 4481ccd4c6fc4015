//! What graphs leave in memory of their own, lent to whoever asked for it until they need that memory again.

use super::capture::{Recorded, SharedReserve};
use super::{Context, State, lock};
use crate::CudaTensor;
use crate::device::CudaDevice;
use crate::graph::state::Place;
use crate::memory::{Buffer, Memory};
use kiln_gpu::memory::WeakMemory;
use kiln_tensor::backend::ExecutionError;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;

/// What a graph left at a place, as long as somebody holds it.
pub(super) struct Lent {
    memory: WeakMemory<Buffer>,
    place: Place,
    device: CudaDevice,
}

/// How often memory is looked for that nobody holds and that is not back either: whoever held it is giving it back.
const MOST_LOOKS: u32 = 1 << 20;

impl Context {
    /// Memory at places of a graph, which is about to write there, in their order. Whoever holds what it left there before has a copy of it from here on.
    ///
    /// # Errors
    /// When a place is not given back.
    pub fn take_places<'a>(
        self: &Arc<Self>,
        recorded: &Recorded,
        places: impl Iterator<Item = &'a Place>,
        device: CudaDevice,
    ) -> Result<Vec<CudaTensor>, ExecutionError> {
        let mut all: Vec<(&Place, Option<CudaTensor>)> = places.map(|place| (place, None)).collect();
        for look in 0..MOST_LOOKS {
            self.take_reserved(recorded.reserve(), |take| {
                for (place, taken) in all.iter_mut().filter(|(_, taken)| taken.is_none()) {
                    *taken = take(place.buffer(), place.bytes()).map(|memory| place.tensor(memory, device));
                }
            });
            let mut missing: Vec<_> = all.iter_mut().filter(|(_, taken)| taken.is_none()).collect();
            if missing.is_empty() {
                return Ok(all.into_iter().filter_map(|(_, taken)| taken).collect());
            }
            let state = self.state();
            let lent: Vec<_> =
                missing.iter().map(|(place, _)| state.lent.get(&place.buffer())?.tensor()).collect();
            drop(state);
            let (held, lent): (Vec<_>, Vec<_>) =
                missing.iter_mut().zip(lent).filter_map(|(place, lent)| Some((place, lent?))).unzip();
            let places = held.iter().map(|held| held.0);
            let taken = self.take_from(lent.into_iter().zip(places).collect());
            held.into_iter().zip(taken).for_each(|(held, taken)| held.1 = taken);
            if look > 0 {
                // Whoever held it is giving it back.
                thread::yield_now();
            }
        }
        Err(self.error(String::from("a graph's memory for an output is not given back")))
    }

    /// Whether a buffer was taken for a graph and comes back to it: not what nothing wrote to while launches were written down.
    pub fn owns(&self, recorded: &Recorded, buffer: u64) -> bool {
        let state = self.state();
        let last = state.reserved.get(&buffer).and_then(|of| of.last());
        recorded.took(buffer) && last.is_some_and(|of| Arc::ptr_eq(of, recorded.reserve()))
    }

    /// Lends what a graph left at places.
    pub fn lend<'a>(&self, left: impl Iterator<Item = (&'a Place, &'a CudaTensor)>) {
        let lent = &mut self.state().lent;
        for (place, tensor) in left {
            let (memory, device) = (tensor.viewed_memory().downgrade(), *tensor.device());
            lent.insert(place.buffer(), Lent { memory, place: place.clone(), device });
        }
    }

    /// Has a tensor be in memory that no graph asks back.
    #[cfg(feature = "autodiff")]
    pub fn keep(self: &Arc<Self>, tensor: &CudaTensor) {
        let Some(buffer) = tensor.viewed_memory().buffer().map(Buffer::id) else { return };
        let state = self.state();
        // Nothing is copied where nothing runs.
        let lent = state.lent.get(&buffer).filter(|_| !state.captures());
        let lent = lent.and_then(|lent| Some((lent.tensor()?, lent.place.clone())));
        drop(state);
        if let Some((lent, place)) = lent {
            drop(self.take_from(vec![(lent, &place)]));
        }
    }

    /// The memory of places, each in exchange for a copy of what was left there; nothing where that was taken meanwhile.
    fn take_from(&self, lent: Vec<(CudaTensor, &Place)>) -> Vec<Option<CudaTensor>> {
        if lent.is_empty() {
            return Vec::new();
        }
        let copies: Vec<CudaTensor> = lent.iter().map(|(lent, _)| lent.copied()).collect();
        let mut state = self.state();
        // What was asked for so far uses the places, the copies too.
        self.launch_waiting(&mut state);
        let taken = lent.iter().zip(&copies).map(|((lent, place), copy)| {
            let [own, other] = [lent, copy].map(|tensor| tensor.viewed_memory().buffer());
            let (own, other) = (own.filter(|own| own.id() == place.buffer())?, other?);
            own.exchange(other);
            state.lent.remove(&place.buffer())
        });
        let taken: Vec<bool> = taken.map(|taken| taken.is_some()).collect();
        self.exchanges.fetch_add(1, Ordering::Release);
        drop(state);
        copies.into_iter().zip(taken).map(|(copy, taken)| taken.then_some(copy)).collect()
    }

    /// The state, with nothing lent to anybody: what is written down from here on uses no place of another graph.
    pub(super) fn state_with_nothing_lent(self: &Arc<Self>) -> MutexGuard<'_, State> {
        loop {
            let state = self.state();
            let lent: Vec<_> =
                state.lent.values().filter_map(|lent| Some((lent.tensor()?, lent.place.clone()))).collect();
            if lent.is_empty() || state.capture.is_some() {
                return state;
            }
            drop(state);
            // The places go back to their graphs.
            drop(self.take_from(lent.iter().map(|(tensor, place)| (tensor.clone(), place)).collect()));
        }
    }

    /// Memory of so many bytes from the start of buffers that are reserved for a graph, as long as nobody holds them.
    pub(super) fn take_reserved<T>(
        self: &Arc<Self>,
        reserve: &SharedReserve,
        all: impl FnOnce(&mut dyn FnMut(u64, usize) -> Option<Memory>) -> T,
    ) -> T {
        let mut state = self.state();
        // A launch that waits may hold one.
        self.launch_waiting(&mut state);
        drop(state);
        let held = &mut lock(reserve).held;
        all(&mut |buffer, bytes| Some(Memory::new(held.remove(&buffer)?, bytes, self.clone())))
    }
}

impl Lent {
    /// What was left, if somebody holds it. It is not to be dropped with the device's state at hand: it may be the last by then.
    fn tensor(&self) -> Option<CudaTensor> {
        Some(self.place.tensor(self.memory.upgrade()?, self.device))
    }
}
