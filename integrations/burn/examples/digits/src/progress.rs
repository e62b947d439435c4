//! What the terminal shows while burn trains: one line per epoch.
//!
//! burn's own plain renderer prints a line per batch. This one collects the metrics that burn computes.

use std::collections::HashMap;

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};

/// What burn says of the items of a split: how many there are, or how far it is.
#[cfg(not(feature = "burn-0-23"))]
type Items<'a> = usize;
#[cfg(feature = "burn-0-23")]
type Items<'a> = &'a burn::data::dataloader::Progress;

/// Prints the average loss and accuracy of each epoch.
#[derive(Debug, Default)]
pub struct EpochLines {
    names: HashMap<MetricId, String>,
    training: Averages,
    held_out: Averages,
    epochs: usize,
}

impl EpochLines {
    fn line(&self, epoch: usize) -> String {
        format!(
            "epoch {epoch}/{}: training {}; held out {}",
            self.epochs,
            self.training.text(),
            self.held_out.text()
        )
    }
}

/// Sum and weight of each metric of one epoch, by the metric's name.
#[derive(Debug, Default)]
struct Averages(HashMap<String, (f64, f64)>);

impl Averages {
    fn add(&mut self, names: &HashMap<MetricId, String>, state: MetricState) {
        let MetricState::Numeric(metric, Some(entry)) = state else { return };
        let weight = match entry {
            NumericEntry::Value(_) => 1.0,
            NumericEntry::Aggregated { count, .. } => count as f64,
            // burn's own average of the epoch: the entries before it are in the sum.
            NumericEntry::Final(_) => return,
        };
        if let Some(name) = names.get(&metric.metric_id) {
            let (sum, weights) = self.0.entry(name.clone()).or_default();
            *sum += entry.current() * weight;
            *weights += weight;
        }
    }

    fn text(&self) -> String {
        let average = |name| self.0.get(name).map_or(f64::NAN, |(sum, weights)| sum / weights);
        format!("loss {:.3}, accuracy {:.1} %", average("Loss"), average("Accuracy"))
    }
}

impl MetricsRendererTraining for EpochLines {
    fn update_train(&mut self, state: MetricState) {
        self.training.add(&self.names, state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.held_out.add(&self.names, state);
    }
}

impl TrainingProgressLogger for EpochLines {
    fn start(&mut self, epochs: usize, _first: usize, _items: Option<usize>, _label: Option<&str>) {
        self.epochs = epochs;
    }

    fn update_epoch(&mut self, epoch: usize) {
        println!("{}", self.line(epoch));
        self.training = Averages::default();
        self.held_out = Averages::default();
    }

    fn start_split(&mut self, _split: &str, _items: Items<'_>) {}
    fn update_split(&mut self, _items: Items<'_>) {}
    #[cfg(not(feature = "burn-0-23"))]
    fn end_split(&mut self) {}
    #[cfg(feature = "burn-0-23")]
    fn end_split(&mut self, _items: Items<'_>) {}
    fn end(&mut self) {}
    fn log_event_training(&mut self, _event: String) {}
}

impl MetricsRenderer for EpochLines {
    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name.to_string());
    }

    fn manual_close(&mut self) {}
}

// burn's renderers also serve its `Evaluator`, which this program does not use.

impl MetricsRendererEvaluation for EpochLines {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
}

impl EvaluationProgressLogger for EpochLines {
    fn start_global_progress(&mut self, _tests: usize) {}
    fn start_test(&mut self, _name: &str, _items: Items<'_>) {}
    fn update_test_progress(&mut self, _items: Items<'_>) {}
    #[cfg(not(feature = "burn-0-23"))]
    fn end_test(&mut self) {}
    #[cfg(feature = "burn-0-23")]
    fn end_test(&mut self, _items: Items<'_>) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _event: String) {}
}
