//! Going on with another ledger or another daybook, when the ones that are open here no longer
//! count.

use super::{
    LedgerError,
    daybook::Wait,
    opened::{self, Damage, Opened, open_daybook},
    post::{post_late, renew},
    rebuild::rebuild,
    salvage::merge,
    writer::Writer,
};

impl Writer {
    /// Opens the ledger of a process that has needed only the daybook so far, and finds out what of
    /// that is in the ledger.
    pub(super) fn open_late(&self) -> Result<Opened, LedgerError> {
        let (opened, mut new, _) = opened::open(&self.state, None)?;
        let mut daybook = self.daybook();
        if daybook.is(&new) {
            daybook.learn(&new);
            return Ok(opened);
        }
        // Another one stands in its place; what can be read of ours counts, whatever became of it.
        let _ = daybook.read_to_end();
        if !daybook.is_closed() {
            opened.waiting(|| {
                post_late(&opened, &daybook.batch())?;
                renew(&self.state, &opened, &mut new, Wait::patiently())
            })?;
        }
        daybook.go_on_in(new);
        Ok(opened)
    }

    /// Opens the ledger and the daybook that stand in the place of these, or rebuilds them first;
    /// what only these still know is taken along.
    pub(super) fn mend(&self, opened: &mut Opened, error: &LedgerError) -> Result<(), LedgerError> {
        let mut daybook = self.daybook();
        let mut damage = Damage::of(error);
        if damage.is_none() && opened.check().is_ok() {
            // Only the daybook is another one: this happens whenever it has grown.
            daybook.read_to_end()?;
            if !daybook.is_closed() {
                // Nobody has posted it before it went.
                opened.waiting(|| post_late(opened, &daybook.batch()))?;
            }
            match opened.waiting(|| open_daybook(&self.state, opened)) {
                Ok(new) => {
                    daybook.go_on_in(new);
                    return Ok(());
                }
                // What stands in its place is none.
                Err(error) => damage = Some(Damage::of(&error).ok_or(error)?),
            }
        }
        let found = opened.id();
        opened.abandon();
        let known = daybook.batch();
        let mut rebuilt = match damage {
            Some(damage) => rebuild(&self.state, &damage, found, None)?,
            None => false,
        };
        let (new, mut new_daybook, at_open) =
            opened::open(&self.state, Some((&opened.connection, &mut daybook)))?;
        rebuilt |= at_open;
        new.waiting(|| {
            if !rebuilt {
                // Another process has rebuilt it, and could not know what is only here.
                new.commit(|connection| Ok(merge(&opened.connection, connection)?))?;
            }
            post_late(&new, &known)?;
            // What has come along is open there, too.
            renew(&self.state, &new, &mut new_daybook, Wait::patiently())
        })?;
        *opened = new;
        daybook.go_on_in(new_daybook);
        Ok(())
    }
}

/// Whether another ledger is the answer.
pub(super) fn is_mendable(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Replaced) || Damage::of(error).is_some()
}
