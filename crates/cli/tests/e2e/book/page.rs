//! A page of the documentation: its blocks, its headings and its links.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub struct Page {
    /// Its path from the repository's root.
    pub name: String,
    pub text: String,
}

/// A fenced block.
#[derive(Debug)]
pub struct Block<'a> {
    /// What stands behind the fence: a language, and words for the tests.
    pub info: &'a str,
    pub body: &'a str,
    /// Where the body is in the text.
    pub range: Range<usize>,
    /// The line of its fence, from 1.
    pub line: usize,
}

impl Page {
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name)).unwrap_or_else(|_| panic!("no {name}"));
        Self { name: name.to_owned(), text }
    }

    /// README and everything below `docs/`.
    pub fn all() -> Vec<Self> {
        let mut names = vec!["README.md".to_owned()];
        collect(&root().join("docs"), &mut names);
        names.sort();
        names.iter().map(|name| Self::read(name)).collect()
    }

    pub fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let (mut at, mut open) = (0, None);
        for (number, line) in self.text.split_inclusive('\n').enumerate() {
            let end = at + line.len();
            if let Some(info) = line.trim_start().strip_prefix("```") {
                open = match open {
                    None => Some((info.trim(), end, number + 1)),
                    Some((info, start, number)) => {
                        let body = &self.text[start..at];
                        blocks.push(Block { info, body, range: start..at, line: number });
                        None
                    }
                };
            }
            at = end;
        }
        assert!(open.is_none(), "{}: a block has no end", self.name);
        blocks
    }

    /// The text without its blocks.
    pub fn prose(&self) -> String {
        let mut prose = self.text.clone();
        for block in self.blocks().iter().rev() {
            prose.replace_range(block.range.clone(), "");
        }
        prose
    }

    /// Where its links lead.
    pub fn links(&self) -> Vec<&str> {
        let blocks = self.blocks();
        let parts = self.text.match_indices("](").filter_map(|(at, _)| {
            let rest = &self.text[at + 2..];
            let inside = blocks.iter().any(|block| block.range.contains(&at));
            rest.split_once(')').filter(|_| !inside).map(|(link, _)| link)
        });
        parts.collect()
    }

    /// The names by which its headings can be reached.
    pub fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
    }

    /// Its title.
    pub fn title(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
    }
}

/// The name of a heading, as code hosts and mdbook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn collect(folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            names.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}
