//! Kernels as functions of an open device, compiled when they are first needed.

use super::{Context, State};
use crate::driver::{DriverError, Function};
use crate::statistics::count;
use kiln_gpu::kernels::Template;
use kiln_gpu::language::{self, Binding, cuda};
use std::sync::Arc;

pub(super) struct Kernel {
    pub function: Function,
    pub threads: [u32; 2],
    pub bindings: Vec<Binding>,
    /// Launches that it does at once.
    pub capacity: usize,
}

impl Context {
    /// A kernel, compiled when it is first needed; else what is wrong with it.
    pub(super) fn kernel(&self, state: &mut State, template: &Template) -> Result<Arc<Kernel>, Arc<str>> {
        if let Some(kernel) = state.kernels.get(template) {
            return kernel.clone();
        }
        let kernel = template.kernel();
        let made = self.make(&kernel, &cuda::source(&kernel), &cuda::entry_point(&kernel), 1);
        let reason = |error: &DriverError| format!("kernel `{}`: {error}", kernel.name).into();
        let known = made.as_ref().map_err(reason).cloned();
        // Where there was no memory for its code there may be some later.
        if !made.is_err_and(|error| error.is_out_of_memory) {
            state.kernels.insert(template.clone(), known.clone());
        }
        known
    }

    /// The kernel that does several launches of a template at once, if there is one.
    pub(super) fn batch_kernel(&self, state: &mut State, template: &Template) -> Option<Arc<Kernel>> {
        if let Some(kernel) = state.batch_kernels.get(template) {
            return kernel.clone();
        }
        let kernel = template.kernel();
        let made = cuda::batch::capacity(&kernel).and_then(|capacity| {
            let (source, entry_point) = (cuda::batch::source(&kernel), cuda::batch::entry_point(&kernel));
            let made = self.make(&kernel, &source, &entry_point, capacity);
            // Each launch has its own kernel, too.
            made.inspect_err(|error| log::warn!("kernel `{}` for several launches: {error}", kernel.name))
                .ok()
        });
        state.batch_kernels.insert(template.clone(), made.clone());
        made
    }

    fn make(
        &self,
        kernel: &language::Kernel,
        source: &str,
        entry_point: &str,
        capacity: usize,
    ) -> Result<Arc<Kernel>, DriverError> {
        let source = [cuda::PRELUDE, source].concat();
        log::trace!("{source}");
        let function = self.load(&source, entry_point)?;
        let (threads, bindings) = (kernel.workgroup, kernel.bindings.clone());
        Ok(Arc::new(Kernel { function, threads, bindings, capacity }))
    }

    pub(super) fn load(&self, source: &str, entry_point: &str) -> Result<Function, DriverError> {
        let kept =
            self.cache.as_ref().and_then(|cache| cache.find(&self.compiler, &self.architecture, source));
        match kept.map(|code| self.driver.load(&code, entry_point)) {
            Some(Ok(function)) => {
                count(&self.counters.loaded, 1);
                return Ok(function);
            }
            Some(Err(error)) if error.is_out_of_memory => return Err(error),
            // What is not code for the device is compiled anew.
            Some(Err(_)) | None => {}
        }
        let code = self.driver.compile(source)?;
        count(&self.counters.compiled, 1);
        if let Some(cache) = &self.cache
            && let Err(error) = cache.keep(&self.compiler, &self.architecture, source, &code)
        {
            log::warn!("a compiled kernel could not be kept for the next start ({cache:?}): {error}");
        }
        self.driver.load(&code, entry_point)
    }
}
