//! [`MetricRegistration`]: several metrics at once.

use super::metrics::Metrics;
use crate::metric::{Adaptor, Metric, Numeric};

/// Numeric metrics, in a tuple, that are measured both in training, whose outputs are `T`, and in validation, whose outputs are
/// `V`.
pub trait MetricRegistration<T, V> {
    /// Adds the metrics to those of training and of validation.
    #[doc(hidden)]
    fn register(self, both: &mut Both<'_, T, V>);
}

/// Metrics, in a tuple, that are only shown and logged, both in training and in validation.
pub trait TextMetricRegistration<T, V> {
    /// Adds the metrics to those of training and of validation.
    #[doc(hidden)]
    fn register(self, both: &mut Both<'_, T, V>);
}

/// The metrics of training and of validation.
pub struct Both<'a, T, V> {
    pub(super) train: &'a mut Metrics<T>,
    pub(super) valid: &'a mut Metrics<V>,
}

impl<T, V> Both<'_, T, V> {
    fn add<M>(&mut self, metric: M)
    where
        M: Metric + Clone + 'static,
        T: Adaptor<M::Input>,
        V: Adaptor<M::Input>,
    {
        self.train.add(metric.clone());
        self.valid.add(metric);
    }

    fn add_numeric<M>(&mut self, metric: M)
    where
        M: Metric + Numeric + Clone + 'static,
        T: Adaptor<M::Input>,
        V: Adaptor<M::Input>,
    {
        self.train.add_numeric(metric.clone());
        self.valid.add_numeric(metric);
    }
}

macro_rules! tuple {
    ($($metric:ident)*) => {
        impl<T, V, $($metric),*> MetricRegistration<T, V> for ($($metric,)*)
        where
            $($metric: Metric + Numeric + Clone + 'static, T: Adaptor<$metric::Input>, V: Adaptor<$metric::Input>,)*
        {
            #[allow(non_snake_case)]
            fn register(self, both: &mut Both<'_, T, V>) {
                let ($($metric,)*) = self;
                $(both.add_numeric($metric);)*
            }
        }

        impl<T, V, $($metric),*> TextMetricRegistration<T, V> for ($($metric,)*)
        where
            $($metric: Metric + Clone + 'static, T: Adaptor<$metric::Input>, V: Adaptor<$metric::Input>,)*
        {
            #[allow(non_snake_case)]
            fn register(self, both: &mut Both<'_, T, V>) {
                let ($($metric,)*) = self;
                $(both.add($metric);)*
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
tuple!(M1 M2 M3 M4 M5 M6 M7);
tuple!(M1 M2 M3 M4 M5 M6 M7 M8);
