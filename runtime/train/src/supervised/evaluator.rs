//! [`Evaluator`]: metrics of a model that is trained.

use crate::ValidStep;
use crate::learner::{Metrics, check_names};
use crate::logger::{
    ApplicationLoggerInstaller, FileApplicationLoggerInstaller, FileMetricLogger, MetricLogger,
};
use crate::metric::{Adaptor, ItemLazy, Metric, MetricMetadata, Numeric};
use crate::renderer::{CliMetricsRenderer, EvaluationName, EvaluationProgress, MetricState, MetricsRenderer};
use kiln_core::module::Module;
use kiln_core::tensor::backend::Backend;
use kiln_data::dataloader::DataLoader;
use std::fmt::Display;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builds an [`Evaluator`]. The values of its metrics go to `test/NAME/epoch-1` in its directory, and what the program logs to
/// `evaluation.log`.
pub struct EvaluatorBuilder<B, M, I, O: ItemLazy> {
    directory: PathBuf,
    metrics: Metrics<O::ItemSync>,
    renderer: Option<Box<dyn MetricsRenderer>>,
    application_logger: Option<Box<dyn ApplicationLoggerInstaller>>,
    types: PhantomData<fn(B, M, I)>,
}

impl<B, M, I, O> EvaluatorBuilder<B, M, I, O>
where
    B: Backend,
    M: Module<B> + ValidStep<I, O>,
    O: ItemLazy,
{
    /// Without metrics yet; files go to a directory.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref().to_owned();
        let log = FileApplicationLoggerInstaller::new(directory.join("evaluation.log"));
        Self {
            directory,
            metrics: Metrics::new(),
            renderer: None,
            application_logger: Some(Box::new(log)),
            types: PhantomData,
        }
    }

    /// With numeric metrics, in a tuple.
    #[must_use]
    pub fn metrics<Me: EvalMetricRegistration<O::ItemSync>>(mut self, metrics: Me) -> Self {
        metrics.register(&mut self.metrics);
        self
    }

    /// With metrics that are only shown and logged, in a tuple.
    #[must_use]
    pub fn metrics_text<Me: EvalTextMetricRegistration<O::ItemSync>>(mut self, metrics: Me) -> Self {
        metrics.register(&mut self.metrics);
        self
    }

    /// With a numeric metric.
    #[must_use]
    pub fn metric_numeric<Me: Metric + Numeric + 'static>(mut self, metric: Me) -> Self
    where
        O::ItemSync: Adaptor<Me::Input>,
    {
        self.metrics.add_numeric(metric);
        self
    }

    /// With a metric that is only shown and logged.
    #[must_use]
    pub fn metric<Me: Metric + 'static>(mut self, metric: Me) -> Self
    where
        O::ItemSync: Adaptor<Me::Input>,
    {
        self.metrics.add(metric);
        self
    }

    /// What shows the evaluation, such as what showed the training; lines of text if nothing else is said.
    #[must_use]
    pub fn renderer(mut self, renderer: Box<dyn MetricsRenderer>) -> Self {
        self.renderer = Some(renderer);
        self
    }

    /// Where messages of the `log` crate go, instead of to `evaluation.log`; `None` leaves them as they are.
    #[must_use]
    pub fn with_application_logger(mut self, logger: Option<Box<dyn ApplicationLoggerInstaller>>) -> Self {
        self.application_logger = logger;
        self
    }

    /// The evaluator of a model.
    ///
    /// # Panics
    /// When two metrics have one name, or names that are one as that of a file.
    pub fn build(self, model: M) -> Evaluator<B, M, I, O> {
        check_names("EvaluatorBuilder", "evaluation", self.metrics.names());
        if let Some(logger) = &self.application_logger
            && let Err(reason) = logger.install()
        {
            log::warn!("messages do not go where the evaluation was to send them: {reason}");
        }
        Evaluator {
            renderer: self.renderer.unwrap_or_else(|| Box::new(CliMetricsRenderer::new())),
            directory: self.directory,
            metrics: self.metrics,
            model,
            types: PhantomData,
        }
    }
}

/// Computes metrics of a model over the batches of a loader; [`EvaluatorBuilder`] makes one.
pub struct Evaluator<B, M, I, O: ItemLazy> {
    directory: PathBuf,
    metrics: Metrics<O::ItemSync>,
    renderer: Box<dyn MetricsRenderer>,
    model: M,
    types: PhantomData<fn(B, I)>,
}

impl<B, M, I, O> Evaluator<B, M, I, O>
where
    B: Backend,
    M: Module<B> + ValidStep<I, O>,
    O: ItemLazy,
{
    /// Goes through the batches, on the model's device. The name says what they are of; what is yielded is the renderer, for the
    /// next evaluation.
    pub fn eval<S: Display>(
        mut self,
        name: S,
        dataloader: Arc<dyn DataLoader<B, I>>,
    ) -> Box<dyn MetricsRenderer> {
        let name = EvaluationName::new(name);
        let folder = name.to_string().trim().replace(' ', "-").to_lowercase();
        let mut logger = FileMetricLogger::new(self.directory.join("test").join(crate::file_name(&folder)));
        logger.resume_at(1, 0);
        self.metrics.definitions().for_each(|definition| self.renderer.register_metric(definition));
        let device = self.model.devices().into_iter().next().unwrap_or_default();
        let dataloader = dataloader.to_device(&device);
        let mut batches = dataloader.iter();
        let mut iteration = 0;
        while let Some(batch) = batches.next() {
            iteration += 1;
            let progress = batches.progress();
            let metadata = MetricMetadata { progress, epoch: 1, epoch_total: 1, iteration, lr: None };
            let item = ValidStep::step(&self.model, batch).sync();
            for state in self.metrics.states(&item, &metadata) {
                let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = &state;
                logger.log(entry);
                self.renderer.update_test(name.clone(), state);
            }
            self.renderer.render_test(EvaluationProgress { progress, iteration });
        }
        logger.flush();
        if let Err(error) = self.renderer.on_test_end() {
            log::error!("the end of the evaluation was not shown: {error}");
        }
        self.renderer
    }
}

/// Numeric metrics, in a tuple, of outputs `T`.
pub trait EvalMetricRegistration<T> {
    /// Adds the metrics.
    #[doc(hidden)]
    fn register(self, metrics: &mut Metrics<T>);
}

/// Metrics that are only shown and logged, in a tuple, of outputs `T`.
pub trait EvalTextMetricRegistration<T> {
    /// Adds the metrics.
    #[doc(hidden)]
    fn register(self, metrics: &mut Metrics<T>);
}

macro_rules! tuple {
    ($($metric:ident)*) => {
        impl<T, $($metric),*> EvalMetricRegistration<T> for ($($metric,)*)
        where
            $($metric: Metric + Numeric + 'static, T: Adaptor<$metric::Input>,)*
        {
            #[allow(non_snake_case)]
            fn register(self, metrics: &mut Metrics<T>) {
                let ($($metric,)*) = self;
                $(metrics.add_numeric($metric);)*
            }
        }

        impl<T, $($metric),*> EvalTextMetricRegistration<T> for ($($metric,)*)
        where
            $($metric: Metric + 'static, T: Adaptor<$metric::Input>,)*
        {
            #[allow(non_snake_case)]
            fn register(self, metrics: &mut Metrics<T>) {
                let ($($metric,)*) = self;
                $(metrics.add($metric);)*
            }
        }
    };
}

tuple!(M1);
tuple!(M1 M2);
tuple!(M1 M2 M3);
tuple!(M1 M2 M3 M4);
tuple!(M1 M2 M3 M4 M5);
tuple!(M1 M2 M3 M4 M5 M6);
