//! Kernels as functions of an open device, compiled when they are first needed.

use super::{Context, Part, State};
use crate::driver::{DriverError, Function};
use crate::statistics::count;
use kiln_gpu::kernels::Template;
use kiln_gpu::language::{self, Binding, cuda};
use std::sync::Arc;

pub(super) struct Kernel {
    pub function: Function,
    pub threads: [u32; 2],
    pub bindings: Vec<Binding>,
    /// Words that a launch tells it.
    pub parameters: u32,
    /// Launches that it does at once.
    pub capacity: usize,
}

impl Context {
    /// A kernel, compiled when it is first needed, for a launch of such parts; else what is wrong with it.
    pub(super) fn kernel(
        &self,
        state: &mut State,
        template: &Template,
        parts: &[Part],
    ) -> Result<Arc<Kernel>, Arc<str>> {
        if let Some(kernel) = state.kernels.get(template) {
            return kernel.clone();
        }
        let kernel = template.kernel();
        let text = (&*cuda::source(&kernel), &*cuda::entry_point(&kernel));
        let made = self.make((state, parts), &kernel, text, 1);
        let reason = |error: &DriverError| format!("kernel `{}`: {}", kernel.name, self.reason(error)).into();
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
        let made = cuda::batch::capacity(&kernel).map(|capacity| {
            let text = (&*cuda::batch::source(&kernel), &*cuda::batch::entry_point(&kernel));
            // What the launches use is awaited with them.
            self.make((state, &[]), &kernel, text, capacity)
        });
        // Each launch has its own kernel, too; and where there was no memory for the code of this there may be some later.
        let is_final = !matches!(&made, Some(Err(error)) if error.is_out_of_memory);
        let made = made.and_then(|made| {
            made.inspect_err(|error| log::warn!("kernel `{}` for several launches: {error}", kernel.name))
                .ok()
        });
        if is_final {
            state.batch_kernels.insert(template.clone(), made.clone());
        }
        made
    }

    fn make(
        &self,
        asked: (&mut State, &[Part]),
        kernel: &language::Kernel,
        (source, entry_point): (&str, &str),
        capacity: usize,
    ) -> Result<Arc<Kernel>, DriverError> {
        let source = [cuda::PRELUDE, source].concat();
        log::trace!("{source}");
        let function = self.load(asked, &source, entry_point)?;
        let &language::Kernel { workgroup: threads, ref bindings, parameters, .. } = kernel;
        Ok(Arc::new(Kernel { function, threads, bindings: bindings.clone(), parameters, capacity }))
    }

    /// A function, for a launch of such parts.
    pub(super) fn load(
        &self,
        (state, parts): (&mut State, &[Part]),
        source: &str,
        entry_point: &str,
    ) -> Result<Function, DriverError> {
        let mut load = |code: &[u8]| self.with_memory(state, parts, |driver| driver.load(code, entry_point));
        let kept =
            self.cache.as_ref().and_then(|cache| cache.find(&self.compiler, &self.architecture, source));
        match kept.map(|code| load(&code)) {
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
        load(&code)
    }
}
