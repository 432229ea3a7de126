//! README and the pages below `docs/` tell the truth.
//!
//! - [`session`]: their console blocks run, each page in a fresh home, and print what is shown.
//! - [`reference`]: the reference is made from the program and its source.
//! - [`clients`]: the settings for each client start a server.
//! - Here: links lead somewhere, the table of contents is complete, the words are plain.
//!
//! `LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-cli --test e2e book` writes what differs anew.

mod clients;
pub mod page;
mod reference;
mod session;
mod source;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use self::page::{Page, root};

/// Lines that README may have: it is for the first minute.
const README_LINES: usize = 200;

/// Turns of phrase that nobody would search for, and what to write instead.
const ODD: [(&str, &str); 15] = [
    ("complete our words", "shell completions"),
    ("take part in", "attach to"),
    ("past their time", "expired"),
    ("mend ", "fix"),
    ("leave it out", "remove it"),
    ("is whole", "is intact"),
    ("makes code of", "would run whatever … prints"),
    ("speaks of", "matches, names"),
    ("(abandoned)", "stopped: no client for 10 minutes"),
    ("cannot be known", "is unknown"),
    ("what became of", "the outcome of"),
    ("could not be made", "could not create"),
    (" cage", "sandbox"),
    (" tidings", "event"),
    (" nobody comes back", "no client returns"),
];

/// Whether pages are to be written anew.
fn updating() -> bool {
    std::env::var_os("LEGWORK_UPDATE_DOCS").is_some()
}

/// Compares a page with what it is made from, or writes it.
#[track_caller]
fn settle(name: &str, made: &str) {
    let path = root().join(name);
    if updating() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "{name} differs from line {} on: LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-cli --test \
         e2e book",
        first.unwrap_or_else(|| kept.lines().count().min(made.lines().count())) + 1
    );
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in Page::all() {
        let folder = Path::new(&page.name).parent().unwrap().to_owned();
        for link in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => PathBuf::from(&page.name),
                file => folder.join(file),
            };
            if !root().join(&path).exists() {
                broken.push(format!("{}: there is no {link}", page.name));
            } else if !heading.is_empty() {
                let target = Page::read(path.to_str().unwrap());
                if !target.anchors().iter().any(|anchor| anchor == heading) {
                    broken.push(format!("{}: there is no heading {link}", page.name));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_table_of_contents_lists_every_page_once() {
    let contents = Page::read("docs/SUMMARY.md");
    let listed: Vec<String> =
        contents.links().into_iter().map(|link| format!("docs/{link}")).collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "a page is listed twice");
    let pages = Page::all().into_iter().map(|page| page.name);
    let pages: BTreeSet<String> =
        pages.filter(|name| name != "README.md" && name != "docs/SUMMARY.md").collect();
    assert_eq!(unique, pages);
}

#[test]
fn readme_takes_a_minute_and_the_words_are_plain() {
    let readme = Page::read("README.md");
    assert!(readme.text.lines().count() < README_LINES, "{}", readme.text.lines().count());
    let mut odd = Vec::new();
    for page in Page::all().iter().filter(|page| !reference::is_generated(&page.name)) {
        let prose = page.prose().to_lowercase();
        for (phrase, instead) in ODD.iter().filter(|(phrase, _)| prose.contains(phrase)) {
            odd.push(format!("{}: `{phrase}`: write {instead}", page.name));
        }
    }
    assert!(odd.is_empty(), "{odd:#?}");
}

#[test]
fn blocks_of_data_can_be_read() {
    for page in Page::all() {
        for block in page.blocks() {
            let place = format!("{}:{}", page.name, block.line);
            match block.info.split(' ').next().unwrap() {
                "json" => {
                    let read = serde_json::from_str::<serde_json::Value>(block.body);
                    assert!(read.is_ok(), "{place}: {read:?}");
                }
                "toml" => {
                    let read = toml::from_str::<toml::Table>(block.body);
                    assert!(read.is_ok(), "{place}: {read:?}");
                }
                "" => panic!("{place}: say what this block is: console, text, toml, …"),
                _ => {}
            }
        }
    }
}
