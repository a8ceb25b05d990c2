//! Prometheus text, version 0.0.4 of the format, by the encoder of the `prometheus` crate.

use prometheus::proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Error, TextEncoder};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    Histogram,
}

pub struct Histogram {
    pub bounds: Vec<f64>,
    /// How many were not larger than each bound.
    pub cumulative: Vec<i64>,
    pub sum: f64,
    pub count: i64,
}

type Labels = [(&'static str, String)];

/// Metrics by name, in the order in which they were declared.
#[derive(Default)]
pub struct Families(Vec<(MetricFamily, Vec<Metric>)>);

impl Families {
    pub fn declare(&mut self, name: &str, kind: Kind, help: &str) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(match kind {
            Kind::Gauge => MetricType::GAUGE,
            Kind::Counter => MetricType::COUNTER,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        self.0.push((family, Vec::new()));
    }

    /// Adds a sample of a gauge or counter that was declared.
    pub fn add(&mut self, name: &str, labels: &Labels, value: f64) {
        self.push(name, labels, |metric, kind| {
            if kind == MetricType::COUNTER {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        });
    }

    pub fn add_histogram(&mut self, name: &str, labels: &Labels, histogram: &Histogram) {
        self.push(name, labels, |metric, _| {
            let buckets = histogram.bounds.iter().zip(&histogram.cumulative).map(|(bound, count)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*bound);
                bucket.set_cumulative_count(count.unsigned_abs());
                bucket
            });
            let mut written = prometheus::proto::Histogram::default();
            written.set_bucket(buckets.collect());
            written.set_sample_sum(histogram.sum);
            written.set_sample_count(histogram.count.unsigned_abs());
            metric.set_histogram(written);
        });
    }

    fn push(&mut self, name: &str, labels: &Labels, fill: impl FnOnce(&mut Metric, MetricType)) {
        let Some((family, metrics)) = self.0.iter_mut().find(|(family, _)| family.name() == name) else {
            return;
        };
        let labels = labels.iter().map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.clone());
            pair
        });
        let mut metric = Metric::from_label(labels.collect());
        fill(&mut metric, family.get_field_type());
        metrics.push(metric);
    }

    /// The text. A metric that has no sample is left out.
    pub fn text(self) -> Result<String, Error> {
        let families: Vec<MetricFamily> = self
            .0
            .into_iter()
            .filter(|(_, metrics)| !metrics.is_empty())
            .map(|(mut family, metrics)| {
                family.set_metric(metrics);
                family
            })
            .collect();
        TextEncoder::new().encode_to_string(&families)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_families_stay_together() {
        let mut families = Families::default();
        families.declare("taskq_ready_tasks", Kind::Gauge, "Tasks that wait.");
        families.declare("taskq_tasks_started_total", Kind::Counter, "Tasks begun.");
        families.declare("taskq_nothing", Kind::Gauge, "Never there.");
        for (queue, value) in [("a\"b\\c\nd", 3.0), ("<script>", 1_000_000.0)] {
            families.add("taskq_ready_tasks", &[("queue", queue.to_owned())], value);
            families.add("taskq_tasks_started_total", &[("queue", queue.to_owned())], value);
        }
        assert_eq!(
            families.text().unwrap_or_default(),
            "# HELP taskq_ready_tasks Tasks that wait.\n\
             # TYPE taskq_ready_tasks gauge\n\
             taskq_ready_tasks{queue=\"a\\\"b\\\\c\\nd\"} 3\n\
             taskq_ready_tasks{queue=\"<script>\"} 1000000\n\
             # HELP taskq_tasks_started_total Tasks begun.\n\
             # TYPE taskq_tasks_started_total counter\n\
             taskq_tasks_started_total{queue=\"a\\\"b\\\\c\\nd\"} 3\n\
             taskq_tasks_started_total{queue=\"<script>\"} 1000000\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_infinity() {
        let mut families = Families::default();
        families.declare("taskq_tasks_run_seconds", Kind::Histogram, "Runs.");
        let histogram = Histogram { bounds: vec![0.5, 1.0], cumulative: vec![2, 3], sum: 5.25, count: 4 };
        families.add_histogram("taskq_tasks_run_seconds", &[("queue", "q".to_owned())], &histogram);
        let text = families.text().unwrap_or_default();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "taskq_tasks_run_seconds_bucket{queue=\"q\",le=\"0.5\"} 2",
                "taskq_tasks_run_seconds_bucket{queue=\"q\",le=\"1\"} 3",
                "taskq_tasks_run_seconds_bucket{queue=\"q\",le=\"+Inf\"} 4",
                "taskq_tasks_run_seconds_sum{queue=\"q\"} 5.25",
                "taskq_tasks_run_seconds_count{queue=\"q\"} 4",
            ]
        );
    }
}
