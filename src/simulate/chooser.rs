//! Who chooses: a rule, at once, or the pipeline of a config, which may wait.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Wake;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;

use super::balance::Balance;
use super::picker::{Pick, Picker};
use crate::flow::refusal::Refusal;

/// A request that is being picked for, and when it came.
type Picking = LocalBoxFuture<'static, (u32, Duration, Result<Pick, Refusal>)>;

pub(super) enum Chooser {
    Rule(Box<Balance>),
    Pipeline { picker: Rc<Picker>, picking: FuturesUnordered<Picking>, bell: Arc<Bell> },
}

/// Rings when somebody who waits in a pick can go on.
#[derive(Default)]
pub(super) struct Bell(pub AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Chooser {
    /// Chooses by a pipeline.
    pub fn pipeline(picker: Rc<Picker>) -> Self {
        Self::Pipeline { picker, picking: FuturesUnordered::new(), bell: Arc::default() }
    }

    /// The pipeline, if one chooses.
    pub fn picker(&self) -> Option<&Rc<Picker>> {
        match self {
            Self::Pipeline { picker, .. } => Some(picker),
            Self::Rule(_) => None,
        }
    }

    /// What of its config is not played.
    pub fn passed_over(&self) -> Vec<String> {
        self.picker().map(|picker| picker.passed_over()).unwrap_or_default()
    }
}
