//! `legwork gc`: deletes expired finished tasks.

use std::{path::Path, process::ExitCode};

use legwork::{
    CleanUp, Collected, Config, Guarding, Retention,
    gate::units::{shown_bytes, shown_ms},
};

use crate::{
    arguments::GcOptions,
    progress::waiting,
    render::{complain, complain_of, print, print_json},
};

pub(crate) async fn gc(options: GcOptions) -> ExitCode {
    // A project sets nothing here, so that any folder will do.
    let config = match Config::load(Path::new("/"), &options.config, Guarding::default()) {
        Ok(config) => config,
        Err(error) => return complain(&format!("the configuration is wrong: {error}")),
    };
    let configured = config.settings.retention;
    let retention = Retention {
        days: options.days.unwrap_or(configured.days),
        bytes_max: options.bytes_max.unwrap_or(configured.bytes_max),
    };
    let wanted = CleanUp { dry_run: options.dry_run, trust_clock: options.trust_clock };
    let engine = match options.state.existing() {
        Ok(Some(engine)) => engine,
        Ok(None) if options.json => return print_json(&Collected::default()),
        Ok(None) => return print("Nothing to delete: there are no tasks\n"),
        Err(error) => return complain_of(&error),
    };
    let what = "legwork: looking for expired tasks, and deleting them";
    match Box::pin(waiting(what, engine.collect(retention, wanted))).await {
        Err(error) => complain_of(&error),
        Ok(collected) if options.json => print_json(&collected),
        Ok(collected) => print(&report(&collected)),
    }
}

fn report(collected: &Collected) -> String {
    let verb = if collected.dry_run { "would be deleted" } else { "deleted" };
    let mut text = format!(
        "{verb}: {} tasks, {} folders, {}\n",
        collected.tasks,
        collected.folders,
        shown_bytes(collected.bytes)
    );
    let others = [
        (collected.sockets, "sockets of supervisors that have ended"),
        (collected.approvals, "questions that have expired"),
        (collected.temporary_folders, "temporary folders"),
        (collected.set_aside, "damaged files that had been set aside"),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{verb}: {count} {what}\n"));
    }
    if collected.restored > 0 {
        text.push_str(&format!(
            "recovered: {} tasks that were missing in the database\n",
            collected.restored
        ));
    }
    text.push_str(&format!("kept: {}\n", shown_bytes(collected.kept_bytes)));
    if let Some(ahead_ms) = collected.clock_ahead_ms {
        text.push_str(&format!(
            "the clock jumped ahead by {} since the last clean-up, so {} tasks that it says have expired are kept; \
             if the clock is right: `legwork gc --trust-clock`\n",
            shown_ms(ahead_ms.max(0).cast_unsigned()),
            collected.kept_in_doubt
        ));
    }
    text
}
