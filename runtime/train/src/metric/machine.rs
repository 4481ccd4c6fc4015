//! Metrics of the machine. What it does not tell is logged as `NaN` and shown as unknown.

use super::{
    FormatOptions, Metric, MetricEntry, MetricMetadata, MetricName, Numeric, NumericEntry, NumericMetricState,
};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use sysinfo::{Components, System};

/// What a source knows is asked for at most this often.
const REFRESH: Duration = Duration::from_secs(1);

/// A number that is measured now and then. Clones share the source.
struct Gauge<S> {
    name: MetricName,
    unit: &'static str,
    state: NumericMetricState,
    source: Arc<Mutex<S>>,
    measure: fn(&mut S) -> f64,
    last: Option<(Instant, f64)>,
}

impl<S: Send> Gauge<S> {
    fn new(name: &str, unit: &'static str, source: S, measure: fn(&mut S) -> f64) -> Self {
        let name = MetricName::new(name.to_owned());
        let source = Arc::new(Mutex::new(source));
        Self { name, unit, state: NumericMetricState::new(), source, measure, last: None }
    }

    fn update(&mut self) -> MetricEntry {
        let value = match self.last {
            Some((since, value)) if since.elapsed() < REFRESH => value,
            Some(_) | None => {
                let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
                (self.measure)(&mut source)
            }
        };
        if self.last.is_none_or(|(since, _)| since.elapsed() >= REFRESH) {
            self.last = Some((Instant::now(), value));
        }
        let format = FormatOptions::new(self.name.clone()).unit(self.unit).precision(2);
        let formatted = if value.is_nan() { "unknown".to_owned() } else { format.format(value) };
        let entry: MetricEntry = self.state.update(value, 1, format);
        MetricEntry { formatted, ..entry }
    }
}

// Not derived, which would ask it of the source.
impl<S> Clone for Gauge<S> {
    fn clone(&self) -> Self {
        let Self { name, unit, state, source, measure, last } = self;
        let (name, state, source) = (name.clone(), state.clone(), source.clone());
        Self { name, unit, state, source, measure: *measure, last: *last }
    }
}

/// Declares a metric that is a gauge.
macro_rules! gauge_metric {
    ($(#[$doc:meta])* $metric:ident, $source:ty, $name:literal, $unit:literal, $new:expr, $measure:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $metric(Gauge<$source>);

        impl Default for $metric {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $metric {
            /// The metric.
            pub fn new() -> Self {
                Self(Gauge::new($name, $unit, $new, $measure))
            }
        }

        impl Metric for $metric {
            type Input = ();

            fn name(&self) -> impl Into<MetricName> {
                self.0.name.clone()
            }

            fn update(&mut self, (): &(), _metadata: &MetricMetadata) -> impl Into<MetricEntry> {
                self.0.update()
            }

            fn clear(&mut self) {
                self.0.state.reset();
            }
        }

        impl Numeric for $metric {
            fn value(&self) -> impl Into<NumericEntry> {
                self.0.state.current_value()
            }
        }
    };
}

gauge_metric!(
    /// How busy the processors are, in percent of all of them.
    CpuUse, Option<System>, "CPU Usage", "%", System::new().ok(), |system| {
        let Some(system) = system else { return f64::NAN };
        system.refresh_cpu_usage();
        f64::from(system.global_cpu_usage())
    }
);
gauge_metric!(
    /// How much memory is in use, in percent of all.
    CpuMemory, Option<System>, "CPU Memory", "%", System::new().ok(), |system| {
        let Some(system) = system else { return f64::NAN };
        system.refresh_memory();
        100.0 * system.used_memory() as f64 / system.total_memory() as f64
    }
);
gauge_metric!(
    /// The mean temperature of the processors, in °C.
    CpuTemperature, Option<Components>, "CPU Temperature", "°C", Components::new().ok(), |components| {
        let Some(components) = components else { return f64::NAN };
        components.refresh(true);
        let is_cpu = |label: &str| ["cpu", "core", "tctl", "package"].iter().any(|part| label.contains(part));
        let found = components.iter().filter(|component| is_cpu(&component.label().to_lowercase()));
        mean(found.filter_map(|component| component.temperature()).map(f64::from))
    }
);
gauge_metric!(
    /// The mean temperature of NVIDIA's GPUs, in °C, as `nvidia-smi` tells it.
    GpuTemperature, (), "GPU Temperature", "°C", (), |_| mean(nvidia("temperature.gpu").into_iter())
);
gauge_metric!(
    /// How busy NVIDIA's GPUs are, in percent, as `nvidia-smi` tells it.
    CudaMetric, (), "Cuda", "%", (), |_| mean(nvidia("utilization.gpu").into_iter())
);

/// The mean, `NaN` of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// A property of each NVIDIA GPU; nothing where there is no driver.
fn nvidia(property: &str) -> Vec<f64> {
    let query = format!("--query-gpu={property}");
    let Ok(output) = Command::new("nvidia-smi").args([&query, "--format=csv,noheader,nounits"]).output()
    else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metric: &mut (impl Metric<Input = ()> + Numeric)) -> f64 {
        let _: MetricEntry = metric.update(&(), &MetricMetadata::default()).into();
        let entry: NumericEntry = metric.value().into();
        entry.current()
    }

    #[test]
    fn what_the_machine_tells_is_in_range() {
        let memory = value(&mut CpuMemory::new());
        assert!(memory > 0.0 && memory <= 100.0, "{memory}");
        let busy = value(&mut CpuUse::new());
        assert!((0.0..=100.0).contains(&busy), "{busy}");
        for degrees in [value(&mut CpuTemperature::new()), value(&mut GpuTemperature::new())] {
            assert!(degrees.is_nan() || (0.0..150.0).contains(&degrees), "{degrees}");
        }
        let cuda = value(&mut CudaMetric::new());
        assert!(cuda.is_nan() || (0.0..=100.0).contains(&cuda), "{cuda}");
    }
}
