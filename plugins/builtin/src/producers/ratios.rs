//! A histogram of shares that takes many equal ones at once.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Shares of 0 to 1, in tenths. Clones share one.
#[derive(Clone, Debug, Default)]
pub struct Ratios(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    sum: f64,
    /// By tenths, rounded up; what is above 1 has none.
    buckets: [u64; 11],
    count: u64,
}

impl Ratios {
    /// Takes a share that so many show.
    pub fn observe(&self, share: f64, times: u64) {
        let mut counted = self.0.lock();
        counted.sum += share * times as f64;
        counted.count += times;
        if let Some(bucket) = (0..=10_u32).find(|tenths| share <= f64::from(*tenths) / 10.0) {
            counted.buckets[bucket as usize] += times;
        }
    }
}

impl TypedMetric for Ratios {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Ratios {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counted = self.0.lock();
        let tenths = (0..=10_u32).map(|tenths| f64::from(tenths) / 10.0);
        let mut buckets: Vec<(f64, u64)> = tenths.zip(counted.buckets).collect();
        buckets.push((f64::INFINITY, counted.count - counted.buckets.iter().sum::<u64>()));
        encoder.encode_histogram::<NoLabelSet>(counted.sum, counted.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;

    fn page(metric: impl prometheus_client::registry::Metric) -> String {
        let (mut registry, mut page) = (Registry::default(), String::new());
        registry.register("share", "A share", metric);
        encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn shows_what_a_plain_histogram_of_tenths_shows() {
        let (ours, plain) = (Ratios::default(), Histogram::new((0..=10).map(|tenths| f64::from(tenths) / 10.0)));
        for (share, times) in [(0.0, 3), (0.25, 2), (0.1, 1), (1.0, 4), (2.0, 1), (0.5, 0)] {
            ours.observe(share, times);
            (0..times).for_each(|_| plain.observe(share));
        }
        assert_eq!(page(ours), page(plain));
    }
}
