//! Going on with another ledger or another daybook, when the ones that are open here no longer
//! count.

use super::{
    LedgerError,
    daybook::{Daybook, Wait},
    opened::{self, Damage, Opened, open_daybook},
    post::{post_late, renew},
    rebuild::rebuild,
    writer::Writer,
};

impl Writer {
    /// Opens the ledger of a process that has needed only the daybook so far.
    pub(super) fn open_late(&self) -> Result<Opened, LedgerError> {
        let (opened, daybook) = opened::open(&self.state)?;
        self.go_on_in(&opened, daybook)?;
        Ok(opened)
    }

    /// Opens the ledger and the daybook that stand in the place of these; a ledger that is damaged
    /// is rebuilt first.
    pub(super) fn reopen(
        &self,
        opened: &mut Opened,
        error: &LedgerError,
    ) -> Result<(), LedgerError> {
        let mut damage = Damage::of_ledger(error);
        if damage.is_none() && opened.check().is_ok() {
            // Only the daybook is another one: this happens whenever it has grown.
            match opened.waiting(|| open_daybook(&self.state, opened)) {
                Ok(daybook) => return self.go_on_in(opened, daybook),
                Err(error) => damage = Some(Damage::of_ledger(&error).ok_or(error)?),
            }
        }
        let found = opened.id();
        opened.abandon();
        if let Some(damage) = damage {
            rebuild(&self.state, &damage, found)?;
        }
        let (new, daybook) = opened::open(&self.state)?;
        *opened = new;
        self.go_on_in(opened, daybook)
    }

    /// Goes on in the daybook that stands beside the ledger. What ours says is posted first, unless
    /// whoever closed it has done that: somebody has removed it, or it is damaged.
    fn go_on_in(&self, opened: &Opened, mut new: Daybook) -> Result<(), LedgerError> {
        let mut daybook = self.daybook();
        if daybook.is(&new) {
            daybook.learn(&new);
            return Ok(());
        }
        let _ = daybook.read_to_end();
        if !daybook.is_closed() {
            let known = daybook.batch();
            // What can be read of it counts, whatever became of the rest.
            let _ = daybook.everything();
            opened.waiting(|| {
                post_late(opened, &daybook.batch())?;
                post_late(opened, &known)?;
                // What has come along is open there, too.
                renew(&self.state, opened, &mut new, Wait::patiently())
            })?;
        }
        daybook.go_on_in(new);
        Ok(())
    }
}

/// Whether another ledger or daybook is the answer.
pub(super) fn is_reopened_on(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Replaced) || Damage::of(error).is_some()
}
