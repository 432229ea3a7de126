//! `legwork places`: lists the places that commands can run at, and checks that they can be
//! reached.

use std::process::ExitCode;

use legwork::{Engine, LOCAL_PLACE, PlaceReport, Registry, ToolError, gate::units::shown_bytes};
use serde_json::{Value, json};

use crate::{
    OUR_FAILURE,
    arguments::PlacesOptions,
    render::{complain_of, print, print_json},
    style::{Style, Tone},
    table::{Table, TableCell},
};

/// A place, and what it says of itself.
struct ListedPlace {
    name: String,
    kind: &'static str,
    target: String,
    is_default: bool,
    checked: Option<Result<PlaceReport, ToolError>>,
}

pub(crate) async fn places(options: PlacesOptions) -> ExitCode {
    let engine = match options.place.open(Registry::default(), &options.rules) {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let mut listed = listed(&engine);
    if let Some(name) = &options.name {
        listed.retain(|place| place.name == *name);
        if listed.is_empty() {
            return match engine.check_place(name).await {
                Err(error) => complain_of(&error),
                Ok(_) => ExitCode::SUCCESS,
            };
        }
    }
    if options.check {
        for place in listed.iter_mut().filter(|place| place.name != LOCAL_PLACE) {
            place.checked = Some(engine.check_place(&place.name).await);
        }
    }
    let printed = if options.json {
        print_json(&json!({ "places": listed.iter().map(ListedPlace::json).collect::<Vec<_>>() }))
    } else {
        print(&text(&listed, options.check, Style::of_stdout()))
    };
    let all_well = listed.iter().all(|place| !matches!(place.checked, Some(Err(_))));
    if all_well { printed } else { ExitCode::from(OUR_FAILURE) }
}

fn listed(engine: &Engine) -> Vec<ListedPlace> {
    let place = |name: &str, kind, target: &str| ListedPlace {
        name: name.to_owned(),
        kind,
        target: target.to_owned(),
        is_default: engine.default_place() == name,
        checked: None,
    };
    let here = place(LOCAL_PLACE, LOCAL_PLACE, "this machine");
    let others = engine.places().into_iter();
    let others = others.map(|it| place(&it.name, it.reach.kind(), it.reach.target()));
    [here].into_iter().chain(others).collect()
}

impl ListedPlace {
    fn json(&self) -> Value {
        let mut shown = json!({
            "name": self.name, "kind": self.kind, "target": self.target,
            "default": self.is_default,
        });
        let (Some(checked), Some(fields)) = (&self.checked, shown.as_object_mut()) else {
            return shown;
        };
        match checked {
            Ok(report) => {
                fields.insert("ok".into(), report.workspace.is_ok().into());
                let more = json!({
                    "host": report.host, "workspace": report.workspace.as_ref().ok(),
                    "problem": report.workspace.as_ref().err(), "state": report.state,
                    "processors": report.processors, "memory_bytes": report.memory_bytes,
                    "connected_us": whole_us(report.opened_in),
                    "answered_us": whole_us(report.answered_in),
                    "same_program": report.is_same_program, "wardens": report.wardens,
                    "tasks": report.tasks, "sandbox": report.sandbox, "lacks": report.lacks,
                });
                fields.extend(more.as_object().cloned().unwrap_or_default());
            }
            Err(error) => {
                fields.insert("ok".into(), false.into());
                fields.insert("problem".into(), error.message.clone().into());
            }
        }
        shown
    }
}

fn whole_us(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn text(listed: &[ListedPlace], is_checked: bool, style: Style) -> String {
    let mut table = Table::new(["PLACE", "KIND", if is_checked { "STATE" } else { "WHERE" }]);
    for place in listed {
        let name = if place.is_default { format!("{} *", place.name) } else { place.name.clone() };
        let last = match &place.checked {
            Some(Ok(report)) => cell(report),
            Some(Err(error)) => TableCell::new(Tone::Bad, error.message.clone()),
            None => place.target.clone().into(),
        };
        table.add([name.into(), place.kind.to_owned().into(), last]);
    }
    let mut text = table.render(style);
    if listed.iter().any(|place| place.is_default) && listed.len() > 1 {
        let note = "* runs commands whose caller names no place";
        text.push_str(&format!("{}\n", style.paint(Tone::Faint, note)));
    }
    text
}

/// What a place says of itself, in a line.
fn cell(report: &PlaceReport) -> TableCell {
    let workspace = match &report.workspace {
        Ok(folder) => folder.display().to_string(),
        Err(problem) => return TableCell::new(Tone::Bad, problem.clone()),
    };
    let missing = report.sandbox.missing.len();
    let of_scheduler: String = report.lacks.iter().map(|lack| format!("; {lack}")).collect();
    let lacks = match missing {
        0 => String::new(),
        1 => ", 1 sandbox layer missing".to_owned(),
        count => format!(", {count} sandbox layers missing"),
    };
    TableCell::new(
        Tone::Good,
        format!(
            "ok: {} ({} processors, {}), {workspace}, answers in {:.1} ms{lacks}{of_scheduler}",
            report.host,
            report.processors,
            shown_bytes(report.memory_bytes),
            report.answered_in.as_secs_f64() * 1000.0,
        ),
    )
}
