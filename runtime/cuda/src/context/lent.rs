//! What graphs leave in memory of their own, lent to whoever asked for it until they need that memory again.

use super::capture::Recorded;
use super::{Context, State};
use crate::CudaTensor;
use crate::device::CudaDevice;
use crate::graph::state::Place;
use crate::memory::{Buffer, Memory};
use kiln_gpu::memory::WeakMemory;
use kiln_tensor::backend::ExecutionError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

/// What a graph left at a place, as long as somebody holds it.
pub(super) struct Lent {
    memory: WeakMemory<Buffer>,
    place: Place,
    device: CudaDevice,
}

/// Looks for memory that nobody holds and that is not back either: whoever held it is giving it back.
const MOST_LOOKS: u32 = 1 << 20;

impl Context {
    /// Memory at places of a graph, which is about to write there. Whoever holds what it left there before has a copy of it from here on.
    ///
    /// # Errors
    /// When a place is not given back.
    pub fn take_places<'a>(
        self: &Arc<Self>,
        recorded: &Recorded,
        places: impl Iterator<Item = &'a Place>,
        device: CudaDevice,
    ) -> Result<Vec<CudaTensor>, ExecutionError> {
        places.map(|place| self.take_place(recorded, place, device)).collect()
    }

    fn take_place(
        self: &Arc<Self>,
        recorded: &Recorded,
        place: &Place,
        device: CudaDevice,
    ) -> Result<CudaTensor, ExecutionError> {
        for _ in 0..MOST_LOOKS {
            if let Some(memory) = self.take_reserved(recorded.reserve(), place.buffer(), place.bytes()) {
                return Ok(place.tensor(memory, device));
            }
            let lent = self.state().lent.get(&place.buffer()).and_then(Lent::tensor);
            match lent {
                Some(lent) => {
                    if let Some(taken) = self.take_from(&lent, place) {
                        return Ok(taken);
                    }
                }
                None => thread::yield_now(),
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

    /// Lends what a graph left at a place.
    pub fn lend(&self, place: &Place, tensor: &CudaTensor) {
        let (memory, device) = (tensor.viewed_memory().downgrade(), *tensor.device());
        self.state().lent.insert(place.buffer(), Lent { memory, place: place.clone(), device });
    }

    /// Has a tensor be in memory that no graph asks back.
    #[cfg(feature = "autodiff")]
    pub fn keep(self: &Arc<Self>, tensor: &CudaTensor) {
        let Some(buffer) = tensor.viewed_memory().buffer().map(Buffer::id) else { return };
        let lent = self.state().lent.get(&buffer).and_then(|lent| Some((lent.tensor()?, lent.place.clone())));
        if let Some((lent, place)) = lent {
            drop(self.take_from(&lent, &place));
        }
    }

    /// The memory of a place, in exchange for a copy of what was left there; nothing where that was taken meanwhile.
    fn take_from(&self, lent: &CudaTensor, place: &Place) -> Option<CudaTensor> {
        let copy = lent.copied();
        let mut state = self.state();
        // What was asked for so far uses the place, the copy too.
        self.launch_waiting(&mut state);
        let [own, other] = [lent, &copy].map(|tensor| tensor.viewed_memory().buffer());
        let (own, other) = (own.filter(|own| own.id() == place.buffer())?, other?);
        own.exchange(other);
        state.lent.remove(&place.buffer());
        self.exchanges.fetch_add(1, Ordering::Release);
        drop(state);
        Some(copy)
    }

    /// The state, with nothing lent to anybody: what is written down from here on uses no place of another graph.
    pub(super) fn state_with_nothing_lent(self: &Arc<Self>) -> std::sync::MutexGuard<'_, State> {
        loop {
            let state = self.state();
            let lent: Vec<_> =
                state.lent.values().filter_map(|lent| Some((lent.tensor()?, lent.place.clone()))).collect();
            if lent.is_empty() || state.capture.is_some() {
                return state;
            }
            drop(state);
            // The place goes back to its graph.
            lent.iter().for_each(|(tensor, place)| drop(self.take_from(tensor, place)));
        }
    }

    /// Memory of so many bytes from the start of a buffer that is reserved for a graph; nothing while somebody holds it.
    pub(super) fn take_reserved(
        self: &Arc<Self>,
        reserve: &super::capture::SharedReserve,
        buffer: u64,
        bytes: usize,
    ) -> Option<Memory> {
        let mut state = self.state();
        // A launch that waits may hold the buffer.
        self.launch_waiting(&mut state);
        drop(state);
        let held = &mut super::lock(reserve).held;
        let found = held.iter().position(|held| held.id() == buffer)?;
        Some(Memory::new(held.swap_remove(found), bytes, self.clone()))
    }
}

impl Lent {
    /// What was left, if somebody holds it. It is not to be dropped with the device's state at hand: it may be the last by then.
    fn tensor(&self) -> Option<CudaTensor> {
        Some(self.place.tensor(self.memory.upgrade()?, self.device))
    }
}
