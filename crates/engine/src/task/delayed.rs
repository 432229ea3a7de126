//! Starts a command that waits for what its login profile says to the sandbox.
//!
//! The task is there already: whoever waits for it does so as for any other, can let go of it or
//! stop it, and is not held up by this wait.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use legwork_warden::protocol::{Order, Spec};
use tokio::sync::{mpsc, watch};

use super::{plan::Plan, run::Progress};
use crate::place::{Soon, Warden};

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
        let mut with: Vec<_> = self.workdir.iter().map(AsFd::as_fd).collect();
        with.extend(self.given.as_ref().map(AsFd::as_fd));
        let _ = warden.start(self.spec, &with).await;
        ordered
    }
}
