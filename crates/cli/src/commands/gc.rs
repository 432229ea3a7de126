//! `legwork gc`: removes tasks that are past their time.

use std::{path::Path, process::ExitCode};

use legwork::{CleanUp, Collected, Config, Retention, gate::Mode};

use crate::{
    arguments::GcOptions,
    render::{bytes, complain, complain_of, print, print_json},
};

const DAY_MS: i64 = 24 * 3600 * 1000;

pub(crate) async fn gc(options: GcOptions) -> ExitCode {
    // A project sets nothing here, so that any folder will do.
    let config = match Config::load(Path::new("/"), &options.config, Mode::Guarded) {
        Ok(config) => config,
        Err(error) => return complain(&format!("the configuration: {error}")),
    };
    let configured = config.settings.retention;
    let retention = Retention {
        days: options.days.unwrap_or(configured.days),
        bytes_max: options.bytes_max.unwrap_or(configured.bytes_max),
    };
    let wanted = CleanUp { dry_run: options.dry_run, trust_clock: options.trust_clock };
    let engine = match options.state.open() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    match engine.collect(retention, wanted).await {
        Err(error) => complain_of(&error),
        Ok(collected) if options.json => print_json(&collected),
        Ok(collected) => print(&report(&collected)),
    }
}

fn report(collected: &Collected) -> String {
    let verb = if collected.dry_run { "would be removed" } else { "removed" };
    let mut text = format!(
        "{verb}: {} tasks, {} folders, {}\n",
        collected.tasks,
        collected.folders,
        bytes(collected.bytes)
    );
    let others = [
        (collected.sockets, "sockets of supervisors that are gone"),
        (collected.approvals, "questions that were over"),
        (collected.temporary_folders, "temporary folders"),
        (collected.set_aside, "damaged files that had been set aside"),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{verb}: {count} {what}\n"));
    }
    if collected.restored > 0 {
        text.push_str(&format!(
            "found again: {} tasks that had a folder only\n",
            collected.restored
        ));
    }
    text.push_str(&format!("kept: {}\n", bytes(collected.kept_bytes)));
    if let Some(ahead_ms) = collected.clock_ahead_ms {
        text.push_str(&format!(
            "the clock went ahead by {} days since the last clean-up, so {} tasks that are past their time by it stay; \
             if it is right: `legwork gc --trust-clock`\n",
            ahead_ms / DAY_MS,
            collected.kept_in_doubt
        ));
    }
    text
}
