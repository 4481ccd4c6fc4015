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

/// Which kernel is made of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Its own.
    Single,
    /// The one that does several launches at once.
    Batch,
}

impl Context {
    /// A kernel, compiled when it is first needed.
    pub(super) fn kernel(&self, state: &mut State, template: &Template, form: Form) -> Option<Arc<Kernel>> {
        let kernels = match form {
            Form::Single => &mut state.kernels,
            Form::Batch => &mut state.batch_kernels,
        };
        if let Some(kernel) = kernels.get(template) {
            return kernel.clone();
        }
        let made = self.make(&template.kernel(), form);
        kernels.insert(template.clone(), made.clone());
        made
    }

    fn make(&self, kernel: &language::Kernel, form: Form) -> Option<Arc<Kernel>> {
        let (source, entry_point, capacity) = match form {
            Form::Single => (cuda::source(kernel), cuda::entry_point(kernel), 1),
            Form::Batch => (
                cuda::batch::source(kernel),
                cuda::batch::entry_point(kernel),
                cuda::batch::capacity(kernel)?,
            ),
        };
        let source = [cuda::PRELUDE, &source].concat();
        log::trace!("{source}");
        match self.load(&source, &entry_point) {
            Ok(function) => {
                let (threads, bindings) = (kernel.workgroup, kernel.bindings.clone());
                Some(Arc::new(Kernel { function, threads, bindings, capacity }))
            }
            Err(error) => {
                self.fail(format!("kernel `{}`: {error}", kernel.name));
                None
            }
        }
    }

    pub(super) fn load(&self, source: &str, entry_point: &str) -> Result<Function, DriverError> {
        let kept =
            self.cache.as_ref().and_then(|cache| cache.find(&self.compiler, &self.architecture, source));
        if let Some(function) = kept.and_then(|code| self.driver.load(&code, entry_point).ok()) {
            count(&self.counters.loaded, 1);
            return Ok(function);
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
