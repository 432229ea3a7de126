//! Starts a command that waits for what its login profile says to the sandbox.
//!
//! The task is there already: whoever waits for it does so as for any other, can let go of it or
//! stop it, and is not held up by this wait.

use std::sync::Arc;

use legwork_warden::protocol::{Order, Spec};
use tokio::sync::{mpsc, watch};

use super::{plan::Plan, progress::Progress, start::start_with};
use crate::{
    place::{Soon, Warden},
    platform::OwnedFd,
};

/// A command that is to be started.
pub(super) struct DelayedStart {
    spec: Spec,
    /// What goes along.
    workdir: Option<Arc<OwnedFd>>,
    given: Option<OwnedFd>,
    /// What its stderr begins with and is to be left out.
    preamble: Soon<'static, Vec<u8>>,
}

impl DelayedStart {
    pub(super) fn new(spec: Spec, plan: Plan, preamble: Soon<'static, Vec<u8>>) -> Self {
        Self { spec, workdir: plan.workdir.handle, given: plan.given, preamble }
    }

    /// Starts it; returns what was ordered meanwhile. A warden that is gone is noticed by whoever
    /// listens to it next.
    pub(super) async fn start(
        mut self,
        warden: &mut Warden,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        progress: &watch::Sender<Progress>,
    ) -> Vec<Order> {
        let mut ordered = Vec::new();
        loop {
            tokio::select! {
                preamble = &mut self.preamble => {
                    self.spec.stderr_preamble = preamble;
                    break;
                }
                Some(order) = orders.recv() => match order {
                    // Who lets go of it does not wait for it: there is nothing to report yet.
                    Order::Report => progress.send_modify(Progress::report_nothing),
                    Order::Stop { .. } | Order::Signal { .. } => {
                        ordered.push(order);
                        break;
                    }
                    order => ordered.push(order),
                }
            }
        }
        let (workdir, given) = (self.workdir.as_deref(), self.given.as_ref());
        let _ = start_with(warden, self.spec, workdir, given).await;
        progress.send_modify(Progress::handed_over);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use legwork_gate::{Level, NetworkMode};
    use legwork_warden::protocol::{EndCause, Environment, Limits, OutputRoute, StdinSource};
    use tokio::time::timeout;

    use super::*;
    use crate::{
        model::sandbox::Wanted,
        place::{
            Place,
            scripted::{Scripted, WardenScript},
        },
    };

    fn spec() -> Spec {
        Spec {
            task: "t_test".into(),
            program: b"/bin/true".to_vec(),
            argv: vec![b"true".to_vec()],
            environment: Environment { inherited: true, set: Vec::new(), unset: Vec::new() },
            stdin: StdinSource::Null,
            outputs: OutputRoute::Separate,
            memory_bytes_max: 0,
            wall_ms_max: None,
            limits: Limits::default(),
            orphan_ttl_ms: 0,
            sandbox: None,
            stderr_preamble: Vec::new(),
            note: Vec::new(),
        }
    }

    /// What is returned for these orders to a command that waits for ever, and whether a report was
    /// answered; an error if it never starts.
    async fn ordered(orders: &[Order]) -> (Result<Vec<Order>, ()>, bool) {
        let script = WardenScript { killed: 0, fails: 0, leaves: 0, longest_ms: 1, slowest_ms: 1 };
        let wanted = Wanted { level: Level::None, network: NetworkMode::All, operator: true };
        let (mut warden, _) = Scripted::new(1, script).ready(wanted).await.unwrap();
        let (sender, mut inbox) = mpsc::unbounded_channel();
        for order in orders {
            sender.send(order.clone()).unwrap();
        }
        let (progress, seen) = watch::channel(Progress::default());
        let preamble = Box::pin(std::future::pending());
        let delayed = DelayedStart { spec: spec(), workdir: None, given: None, preamble };
        let start = delayed.start(&mut warden, &mut inbox, &progress);
        let started = timeout(Duration::from_secs(60), start).await;
        (started.map_err(drop), seen.borrow().is_reported())
    }

    #[tokio::test(start_paused = true)]
    async fn who_lets_go_of_a_command_that_has_not_started_is_answered_and_a_stop_starts_it() {
        let stop = Order::Stop { signal: 15, grace_ms: 0, because: EndCause::Stopped };
        assert_eq!(ordered(&[Order::Spill, Order::Report]).await, (Err(()), true));
        assert_eq!(ordered(&[Order::Spill]).await, (Err(()), false));
        let both = [Order::Spill, stop.clone()];
        assert_eq!(ordered(&[Order::Spill, stop]).await, (Ok(both.to_vec()), false));
    }
}
