//! Who waits in the picker, where flow control lets requests wait.

use std::collections::VecDeque;
use std::time::Duration;

use crate::flow::core::Core;
use crate::flow::outcome::Outcome;

/// One that waits, and when it came.
pub(super) type Waiter = (u32, Duration);

/// Who waits, and who is told to wait no more.
pub(super) struct Door {
    pub core: Core<Waiter, ()>,
    pub left: VecDeque<(Waiter, Outcome)>,
    /// When it is looked at next.
    pub looks: Option<Duration>,
    pub quiet_since: Option<Duration>,
}
