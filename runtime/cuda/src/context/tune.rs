//! How long it takes a device to do something.

use super::Context;
use crate::graph::CaptureError;
use kiln_gpu::runtime::Way;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is timed at once takes at least so long, unless that would be more [runs](MOST_RUNS): what the host needs to ask for it and to hear that it is done is a small part of
/// it then.
const LEAST: Duration = Duration::from_micros(500);
/// Runs that are timed at once, at most.
const MOST_RUNS: u32 = 32;

impl Context {
    /// See [`Runtime::fastest`](kiln_gpu::runtime::Runtime::fastest). The device is waited for, once for each class of work. While launches are
    /// written down nothing is timed: what was found before is known, and all else is the usual.
    pub fn fastest(
        self: &Arc<Self>,
        class: &str,
        ways: &[Way<'_>],
        run: &mut dyn FnMut(usize) -> bool,
    ) -> usize {
        let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
        let tf32 = if self.tf32.load(std::sync::atomic::Ordering::Relaxed) { "tf32 " } else { "" };
        let run = RefCell::new(run);
        let can = |n: usize| {
            if self.is_captured() {
                return false;
            }
            // One that cannot be is left out: run, it would take no time, and leave its result to nobody.
            if let Some(kernel) = ways[n].kernel
                && let Err(reason) = self.kernel(&mut self.state(), kernel, &[])
            {
                log::debug!("`{}` is not among the kernels for {class}: {reason}", names[n]);
                return false;
            }
            // In the first run kernels are compiled, weights are packed, and libraries are given memory.
            run.borrow_mut()(n) && self.wait_to_time().is_some()
        };
        let time = |n: usize| self.time(&mut || run.borrow_mut()(n));
        self.tuning.fastest(&format!("{tf32}{class}"), &names, can, time)
    }

    /// Waits for all that was asked for; what went wrong is told to those who read.
    fn wait_to_time(&self) -> Option<()> {
        self.sync().map_err(|error| self.fail(error.reason)).ok()
    }

    /// How long the device takes for what `run` asks for, which it did before: by a graph of several runs, which the device does one right after the other.
    fn time(self: &Arc<Self>, run: &mut dyn FnMut() -> bool) -> Option<Duration> {
        let wait = || self.wait_to_time();
        let started = Instant::now();
        run();
        wait()?;
        let once = started.elapsed().max(Duration::from_nanos(1));
        let runs = LEAST.div_duration_f64(once).clamp(1.0, MOST_RUNS.into()) as u32;
        let several = || {
            // What was possible a moment before may not be possible to write down.
            let all = (0..runs).all(|_| run());
            Ok(all)
        };
        let (all, recorded) = self
            .capture(&[], several)
            .map_err(|error| {
                if let CaptureError::Device { reason } = error {
                    self.fail(reason);
                }
            })
            .ok()?;
        let replay = || {
            let started = Instant::now();
            self.replay(&recorded).map_err(|error| self.fail(error.reason)).ok()?;
            wait()?;
            Some(started.elapsed())
        };
        replay().filter(|_| all)?;
        let times = [replay()?, replay()?, replay()?];
        times.into_iter().min().map(|time| time / runs)
    }
}
